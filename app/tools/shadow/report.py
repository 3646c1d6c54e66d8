"""What a journal says: counts by class and plugin, the loss of score, the lag, and one sentence."""

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final

import msgspec
import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table

from app.tools.shadow.verdict import (
    AGREEING,
    CLASSES,
    NOT_COMPARABLE,
    RACE,
    SAME,
    SAMPLED,
    TIE,
    UNEXPLAINED,
    Verdict,
)

#: Differences that are kept as examples, of each class.
_EXAMPLES: Final = 20


class Quantiles(msgspec.Struct, frozen=True):
    """Of some numbers; 0 if there are none."""

    p50: float = 0.0
    p99: float = 0.0
    max: float = 0.0


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``shadow report --output json`` prints this (docs/shadow.md)."""

    pods: int
    """The decisions that were judged; a pod that was refused and bound later counts for each."""
    classes: dict[str, int]
    by_plugin: dict[str, int]
    """The differences that each plugin explains; one difference may count for several plugins."""
    behind_seconds: float
    """From the outcome to the verdict, of the last verdict."""
    lag_seconds: Quantiles
    score_loss: Quantiles
    """Of the pods whose node has a lower score here than the best."""
    first: float
    """When the first and the last outcome arrived, in seconds since the epoch."""
    last: float
    examples: list[Verdict]
    summary: str


def report(verdicts: Iterable[Verdict], since: float = 0.0, until: float = np.inf) -> Report:
    """The report on what happened from ``since`` on and before ``until`` (seconds since the epoch)."""
    classes: Counter[str] = Counter()
    plugins: Counter[str] = Counter()
    lags, losses, times = [], [], []
    examples: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if not since <= verdict.at < until:
            continue
        classes[verdict.kind] += 1
        lags.append(verdict.lag)
        times.append(verdict.at)
        if verdict.loss > 0:
            losses.append(verdict.loss)
        if not verdict.agrees:
            plugins.update(verdict.plugins)
            some = examples.setdefault(verdict.kind, [])
            if len(some) < _EXAMPLES:
                some.append(verdict)
    return Report(
        pods=classes.total(),
        classes={kind: classes[kind] for kind in CLASSES},
        by_plugin=dict(plugins.most_common()),
        behind_seconds=lags[-1] if lags else 0.0,
        lag_seconds=_quantiles(lags),
        score_loss=_quantiles(losses),
        first=min(times, default=0.0),
        last=max(times, default=0.0),
        examples=[v for kind in CLASSES for v in examples.get(kind, ())],
        summary=summary(classes, plugins),
    )


def _quantiles(numbers: Sequence[float]) -> Quantiles:
    if not numbers:
        return Quantiles()
    p50, p99, most = np.percentile(numbers, [50, 99, 100])
    return Quantiles(round(float(p50), 4), round(float(p99), 4), round(float(most), 4))


def summary(classes: Counter[str], plugins: Counter[str]) -> str:
    """One sentence."""
    pods = classes.total()
    if not pods:
        return "No pod was judged."
    agreed = classes[SAME] + classes[TIE]
    parts = [
        f"Of {pods} decisions {agreed} ({_share(agreed, pods)}) are those of the cluster's scheduler or tied"
    ]
    if classes[SAMPLED]:
        parts.append(
            f"{classes[SAMPLED]} differ, which may be because it looked at some of the nodes only"
        )
    if classes[RACE]:
        parts.append(
            f"{classes[RACE]} ({_share(classes[RACE], pods)}) depend on the order of events at about the same time"
        )
    different = pods - sum(classes[kind] for kind in (*AGREEING, NOT_COMPARABLE))
    if different:
        names = ", ".join(f"{name} ({count})" for name, count in plugins.most_common(3))
        parts.append(f"{different} differ" + (f", most likely through {names}" if names else ""))
    if classes[NOT_COMPARABLE]:
        parts.append(f"{classes[NOT_COMPARABLE]} cannot be compared")
    unexplained = classes[UNEXPLAINED]
    parts.append(f"{unexplained} ({_share(unexplained, pods)}) stay unexplained")
    return f"{'; '.join(parts)}."


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} %"


# ------------------------------------------------------------ for people


def as_text(told: Report) -> RenderableType:
    """The report for a terminal."""
    return Group(told.summary, "", *map(_as_table, _tables(told)))


class _Sheet(msgspec.Struct, frozen=True):
    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def _tables(told: Report) -> Iterator[_Sheet]:
    yield _Sheet(
        "Decisions",
        ("class", "number", "share"),
        [(kind, str(n), _share(n, told.pods)) for kind, n in told.classes.items() if n],
    )
    if told.by_plugin:
        plugins = [(name, str(count)) for name, count in told.by_plugin.items()]
        yield _Sheet("Differences by plugin", ("plugin", "differences"), plugins)
    numbers = {
        "score loss": told.score_loss,
        "seconds from outcome to verdict": told.lag_seconds,
    }
    yield _Sheet(
        "Quantiles",
        ("of", "p50", "p99", "max"),
        [(name, f"{q.p50:g}", f"{q.p99:g}", f"{q.max:g}") for name, q in numbers.items()],
    )
    if told.examples:
        yield _Sheet(
            "Examples",
            ("class", "pod", "node", "node here", "loss", "what would have to change"),
            [
                (v.kind, v.pod, v.node or "-", v.node_here or "-", str(v.loss or ""), _why(v))
                for v in told.examples
            ],
        )


def _why(verdict: Verdict) -> str:
    if verdict.message_here and verdict.message:
        return f"there: {verdict.message} here: {verdict.message_here}"
    return verdict.change or verdict.message_here or verdict.message


def _as_table(sheet: _Sheet) -> Table:
    table = Table(title=sheet.title, title_justify="left")
    for column in sheet.columns:
        table.add_column(column, overflow="fold")
    for row in sheet.rows:
        table.add_row(*row)
    return table


_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 "
    "1rem;color:#222;background:#fff}"
    "table{border-collapse:collapse;margin:.5rem 0 1.5rem}td,th{padding:.2rem .8rem;border-bottom:1px solid #ddd;"
    "text-align:left;vertical-align:top}.sum{font-size:1.1rem;background:#f2f6fb;padding:.8rem 1rem}"
    ""
    "@media(prefers-color-scheme:dark){body{background:#181a1d;color:#ddd}.sum{background:#22303f}"
    "td,th{border-color:#444}}"
)


def as_page(told: Report) -> str:
    """The report as an HTML page; every text is escaped."""
    first, last = (
        dt.datetime.fromtimestamp(at, dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        for at in (told.first, told.last)
    )
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Shadow of a scheduler</title><style>{_STYLE}</style></head><body>",
        "<h1>Shadow of a scheduler</h1>",
        f'<p class="sum">{escape(told.summary)}</p>',
        f"<p>{escape(first)} to {escape(last)}</p>" if told.pods else "",
    ]
    for sheet in _tables(told):
        parts.append(f"<h2>{escape(sheet.title)}</h2><table>{_row('th', sheet.columns)}")
        parts += [_row("td", row) for row in sheet.rows]
        parts.append("</table>")
    return "\n".join([*parts, "<footer>aiokube-scheduler shadow</footer></body></html>\n"])


def _row(tag: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"
