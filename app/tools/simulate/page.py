"""An answer as one HTML file that needs nothing else, in light and dark."""

from collections.abc import Iterable, Iterator
from html import escape
from typing import Final

from app.tools.simulate.result import Answer, NodeUse
from app.tools.simulate.tables import ReportTable, remarks, report_tables, summary, warnings

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --bar: #3b82f6; --bad: #dc2626; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.sum { font-size: 1.1rem; font-weight: 600; }
.warn { border-left: 4px solid var(--bad); padding: .3rem .8rem; margin: .5rem 0; background: var(--soft); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { text-align: left; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; white-space: nowrap; }
.n { text-align: right; font-variant-numeric: tabular-nums; }
.map { display: flex; flex-wrap: wrap; gap: 3px; margin: .5rem 0 1rem; }
.map i { width: 14px; height: 22px; background: linear-gradient(to top, var(--bar) var(--p), var(--soft) var(--p)); }
.map i.changed { outline: 1px solid currentColor; }
details { margin: .3rem 0; } summary { cursor: pointer; }
footer { margin-top: 3rem; opacity: .7; font-size: .85rem; }
"""


def as_page(answer: Answer, title: str) -> str:
    """The page; every text is escaped."""
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="sum">{escape(summary(answer))}</p>',
        *(f'<p class="warn">{escape(text)}</p>' for text in warnings(answer)),
        *_sections(answer),
        *_placements(answer),
        *(f"<p>{escape(text)}</p>" for text in remarks(answer)),
        "<footer>aiokube-scheduler simulate</footer>",
    ]
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
            *body,
            "</body></html>\n",
        ]
    )


def _sections(answer: Answer) -> Iterator[str]:
    for sheet in report_tables(answer):
        yield f"<h2>{escape(sheet.title)}</h2>"
        if sheet.columns[0] == "node":
            yield _map(answer.nodes)
        yield _table(sheet)


def _table(sheet: ReportTable) -> str:
    classes = [' class="n"' if name in sheet.numbers else "" for name in sheet.columns]
    head = _row("th", sheet.columns, classes)
    rows = "\n".join(_row("td", row, classes) for row in sheet.rows)
    return (
        f'<div class="scroll"><table><thead>{head}</thead><tbody>\n{rows}\n</tbody></table></div>'
    )


def _row(tag: str, cells: Iterable[str], classes: Iterable[str]) -> str:
    inner = (
        f"<{tag}{mark}>{escape(cell)}</{tag}>" for cell, mark in zip(cells, classes, strict=True)
    )
    return f"<tr>{''.join(inner)}</tr>"


def _map(nodes: Iterable[NodeUse]) -> str:
    """A column per node, as high as its fullest resource; those that changed are framed."""
    return f'<div class="map">{"".join(map(_column, nodes))}</div>'


def _column(node: NodeUse) -> str:
    percent = min(100, round(100 * node.fullness))
    mark = ' class="changed"' if node.is_changed else ""
    said = escape(f"{node.name} ({node.zone}): {percent} %", quote=True)
    return f'<i{mark} style="--p:{percent}%" title="{said}"></i>'


def _placements(answer: Answer) -> Iterator[str]:
    """Every pod with its node, folded."""
    placed = [each for each in (*answer.workloads, *answer.pending_before) if each.placements]
    if placed:
        yield "<h2>Every pod</h2>"
    for each in placed:
        rows = [(p.pod, p.node, p.zone) for p in each.placements]
        sheet = ReportTable("", ("pod", "node", "zone"), rows)
        said = escape(f"{each.title} ({len(rows)})")
        yield f"<details><summary>{said}</summary>{_table(sheet)}</details>"
