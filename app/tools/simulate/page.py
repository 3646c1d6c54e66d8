"""The result of a simulation as an HTML page of its own, with the drawing of the dashboard."""

import re
from collections.abc import Iterable, Iterator
from html import escape
from typing import Final

import msgspec

from app.tools.dashboard import static_files
from app.tools.simulate.result import NodeUse, SimulationResult
from app.tools.simulate.tables import ReportTable, remarks, report_tables, summary, warnings

#: The modules of the page, each after those that it uses.
_MODULES: Final = ("format.js", "cluster.js", "simulation.js")
_STYLES: Final = ("style.css", "simulation.css")
#: What ties modules together; as one script they need none of it.
_IMPORT: Final = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EXPORT: Final = re.compile(r"^export ", re.MULTILINE)
_THEME: Final = """
const dark = matchMedia("(prefers-color-scheme: dark)");
const paint = () => { document.documentElement.dataset.theme = dark.matches ? "dark" : "light"; };
dark.addEventListener("change", paint);
paint();
"""
_CONTROLS: Final = """
<div class="bar-line">
  <label>by <select id="by"><option value="zone">zone</option><option value="">nothing</option></select></label>
  <label>filled by <select id="resource"></select></label>
  <label>show <select id="when"><option value="after">after</option>
    <option value="before">before</option></select></label>
  <label>filter <input id="filter" type="search" placeholder="node, zone, pod or workload" spellcheck="false"></label>
</div>
<div class="map"><canvas id="map" tabindex="0" role="application" aria-describedby="spoken" data-height="360" data-fit
  aria-label="Nodes before and after; arrow keys move"></canvas></div>
<p class="sr" id="spoken" aria-live="polite"></p>
<ul class="legend map-legend">
  <li><i class="cell before"></i>requested before</li>
  <li><i class="cell after"></i>added: the node has a frame</li>
  <li><i class="cell full"></i>90 % and more</li>
  <li><i class="cell"></i>free</li>
</ul>
"""


def as_page(answer: SimulationResult, title: str) -> str:
    """The page, which needs no other file; every text is escaped."""
    files = {name: body.decode() for name, body in static_files().items()}
    style = "\n".join(files[name] for name in _STYLES)
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="sum">{escape(summary(answer))}</p>',
        *(f'<p class="warn">{escape(text)}</p>' for text in warnings(answer)),
        *_sections(answer),
        *_placements(answer),
        *(f"<p>{escape(text)}</p>" for text in remarks(answer)),
        "<footer>aiokube-scheduler simulate</footer>",
    ]
    if answer.nodes:
        script = "\n".join(_EXPORT.sub("", _IMPORT.sub("", files[name])) for name in _MODULES)
        body.append(f'<script type="application/json" id="nodes">{_data(answer.nodes)}</script>')
        body.append(f'<script type="module">{script}</script>')
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{style}</style>",
            f'<script>{_THEME}</script></head><body class="simulation">',
            *body,
            "</body></html>\n",
        ]
    )


def _data(nodes: Iterable[NodeUse]) -> str:
    """The nodes as JSON that can stand in a script element."""
    text = msgspec.json.encode(list(nodes)).decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _sections(answer: SimulationResult) -> Iterator[str]:
    """The tables; before that of the nodes stands their drawing."""
    for sheet in report_tables(answer):
        yield f"<h2>{escape(sheet.title)}</h2>"
        if sheet.columns[0] == "node":
            yield _CONTROLS
        yield _table(sheet)


def _table(sheet: ReportTable) -> str:
    """A table; rows of workloads with pending pods are marked."""
    classes = [" ".join(_classes(sheet, name)) for name in sheet.columns]
    head = _row("th", sheet.columns, classes)
    pending = sheet.columns.index("pending") if "pending" in sheet.columns else None
    rows = "\n".join(
        _row("td", row, classes, marked=pending is not None and row[pending] not in {"-", "0"})
        for row in sheet.rows
    )
    return (
        f'<div class="scroll"><table><thead>{head}</thead><tbody>\n{rows}\n</tbody></table></div>'
    )


def _classes(sheet: ReportTable, column: str) -> Iterator[str]:
    if column in sheet.numbers:
        yield "n"
    if column == "pending":
        yield "p"


def _row(tag: str, cells: Iterable[str], classes: Iterable[str], *, marked: bool = False) -> str:
    opened = (f'<{tag} class="{mark}">' if mark else f"<{tag}>" for mark in classes)
    inner = (f"{o}{escape(cell)}</{tag}>" for o, cell in zip(opened, cells, strict=True))
    start = '<tr class="pending">' if marked else "<tr>"
    return f"{start}{''.join(inner)}</tr>"


def _placements(answer: SimulationResult) -> Iterator[str]:
    """All pods with their nodes, collapsed."""
    placed = [each for each in (*answer.workloads, *answer.pending_before) if each.placements]
    if placed:
        yield "<h2>Every pod</h2>"
    for each in placed:
        rows = [(p.pod, p.node, p.zone) for p in each.placements]
        sheet = ReportTable("", ("pod", "node", "zone"), rows)
        said = escape(f"{each.title} ({len(rows)})")
        yield f"<details><summary>{said}</summary>{_table(sheet)}</details>"
