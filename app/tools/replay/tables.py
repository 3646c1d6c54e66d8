"""Shows a comparison of configurations as tables, and as a page with the courses over time."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from app.tools.replay.course import Comparison, Course

_REASONS: Final = 5
_WIDTH, _HEIGHT = 720, 180
_COLOURS: Final = ("#3b6fb6", "#c0562f", "#3f8f5b", "#8a5fb0", "#a8862a", "#4a9aa8")
_STYLE: Final = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
table { border-collapse: collapse } td, th { padding: .2rem .8rem .2rem 0; text-align: right }
td:first-child, th:first-child { text-align: left } tr + tr { border-top: 1px solid #8884 }
svg { width: 100%; height: auto; background: #8881 } .legend span { margin-right: 1.5rem }
"""


def rows(found: Comparison) -> list[tuple[str, ...]]:
    """What is compared, and a cell for what was recorded and for each course."""
    columns = [found.recorded, *found.courses]
    priorities = list(dict.fromkeys(name for each in columns for name in each.waiting))
    table = [
        ("pods", *(str(each.pods) for each in columns)),
        ("bound", *(str(each.bound) for each in columns)),
        ("pending at the end", *(str(each.pending) for each in columns)),
        ("unschedulable at least once", *(str(each.unschedulable_pods) for each in columns)),
        ("preempted", *(str(each.preempted) for each in columns)),
    ]
    for name in priorities:
        whose = "all" if name == "all" else f"priority {name}"
        for what in ("p50", "p99"):
            cells = (each.waiting.get(name) for each in columns)
            shown = ("-" if w is None else f"{getattr(w, what):.3f} s" for w in cells)
            table.append((f"waiting, {whose}, {what}", *shown))
    resources = list(dict.fromkeys(name for each in columns for name in each.mean_utilisation))
    for name in resources:
        shares = (each.mean_utilisation.get(name) if each.times else None for each in columns)
        table.append((f"requested, {name}", *(_percent(share) for share in shares)))
    lost = (each.mean_fragmentation if each.times else None for each in columns)
    table.append(("free CPUs that no pod can use", *map(_percent, lost)))
    used = (f"{each.mean_nodes_in_use:.1f}" if each.times else "-" for each in columns)
    table.append(("nodes in use", *used))
    moved = ["-", "-", *(str(each.moved) for each in found.differences)]
    table.append(("pods that moved", *moved))
    if any(each.questions for each in columns):
        asked = (each.questions for each in columns)
        table.append(("calls to extenders", *(str(sum(q.values())) for q in asked)))
        asked = (each.questions for each in columns)
        table.append(("unknown questions", *(str(q.get("unknown", 0)) for q in asked)))
    return table


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def heads(found: Comparison) -> list[str]:
    """The names of the columns."""
    return ["", found.recorded.name, *(each.name for each in found.courses)]


def as_tables(found: Comparison) -> RenderableType:
    """For the terminal."""
    table = Table(box=box.SIMPLE_HEAD)
    for number, head in enumerate(heads(found)):
        table.add_column(Text(head), justify="right" if number else "left", overflow="fold")
    for row in rows(found):
        table.add_row(*map(Text, row))
    return Group(table, *(Text(line) for line in _why(found)))


def _why(found: Comparison) -> Iterator[str]:
    for each in found.courses:
        for reason in each.unschedulable[:_REASONS]:
            yield f"{each.name}: {reason.pods} pods: {reason.message}"
        yield f"{each.name}: hash {each.hash}"


def as_page(found: Comparison, title: str) -> str:
    """A page that needs no other file; every text is escaped."""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads(found))
    body = "\n".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in rows(found)
    )
    legend = "".join(
        f'<span><svg width="12" height="12" style="width:12px"><rect width="12" height="12" fill="{colour}"/></svg> '
        f"{escape(each.name)}</span>"
        for each, colour in _coloured(found.courses)
    )
    reasons = "\n".join(f"<li>{escape(line)}</li>" for line in _why(found))
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>",
            f'<p class="legend">{legend}</p>',
            *_drawings(found.courses),
            f"<ul>\n{reasons}\n</ul>",
            "</body></html>\n",
        ]
    )


def _coloured(courses: Sequence[Course]) -> Iterator[tuple[Course, str]]:
    for number, each in enumerate(courses):
        yield each, _COLOURS[number % len(_COLOURS)]


def _drawings(courses: Sequence[Course]) -> Iterator[str]:
    names = list(dict.fromkeys(name for each in courses for name in each.utilisation))
    for name in names:
        yield _drawing(
            f"Requested part of {name}, 0 to 100 %",
            [(each.times, each.utilisation.get(name, ())) for each in courses],
            1.0,
        )
    fragments = [(each.times, each.fragmentation) for each in courses]
    yield _drawing("Part of the free CPUs that no pod can use, 0 to 100 %", fragments, 1.0)
    used = [(each.times, each.nodes_in_use) for each in courses]
    most = max((max(values, default=0) for _, values in used), default=0)
    yield _drawing(f"Nodes in use, 0 to {most}", used, float(most or 1))
    waiting = [(each.times, each.waiting_pods) for each in courses]
    most = max((max(values, default=0) for _, values in waiting), default=0)
    yield _drawing(f"Pods that wait, 0 to {most}", waiting, float(most or 1))


def _drawing(
    title: str, lines: Iterable[tuple[Sequence[float], Sequence[float]]], highest: float
) -> str:
    paths = []
    for number, (times, values) in enumerate(lines):
        end = max(times, default=0.0) or 1.0
        points = " ".join(
            f"{_WIDTH * t / end:.1f},{_HEIGHT * (1 - min(v / highest, 1.0)):.1f}"
            for t, v in zip(times, values, strict=False)
        )
        colour = _COLOURS[number % len(_COLOURS)]
        paths.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
    label = escape(title)
    return (
        f"<h2>{label}</h2>\n"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">{"".join(paths)}</svg>'
    )
