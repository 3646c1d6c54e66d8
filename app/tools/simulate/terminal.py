"""An answer for a terminal."""

from collections.abc import Iterator
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from app.tools.simulate.result import Answer
from app.tools.simulate.tables import Sheet, remarks, sheets, summary

#: Rows of long tables; the page and the JSON have all.
_MOST_ROWS: Final = 15


def as_tables(answer: Answer) -> RenderableType:
    """What is worth a look."""
    parts: list[RenderableType] = []
    for sheet in sheets(answer, most=_MOST_ROWS):
        parts += _shown(sheet)
    parts += [Text(""), *map(Text, remarks(answer)), Text(summary(answer), style="bold")]
    return Group(*parts)


def _shown(sheet: Sheet) -> Iterator[RenderableType]:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in sheet.columns:
        justify = "right" if name in sheet.numbers else "left"
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]  # a literal
    for row in sheet.rows:
        table.add_row(*map(Text, row))
    yield Text(f"\n{sheet.title}", style="bold")
    yield table
    if sheet.note:
        yield Text(f"({sheet.note})", style="dim")
