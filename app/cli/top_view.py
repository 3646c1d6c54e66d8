"""What ``top`` shows."""

import datetime as dt
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from app.cli.process import printable
from app.model.requests import CPU, MEMORY, PODS
from app.tools.feed_model import UNSCHEDULABLE_FLAG, Decision, FeedModel, NodeRow
from app.tools.simulate.tables import shown_amount

#: Groups of nodes that are shown.
_GROUPS: Final = 8
#: Columns for the names and numbers of groups, for one resource, and for its bar.
_NAMES: Final = 24
_RESOURCE: Final = 34
_BAR: Final = 10
_USUAL: Final = (CPU, MEMORY, PODS)
#: From this share on a resource is nearly used up.
_FULL: Final = 0.9
#: Lines that are not those of lists: titles, headers and summaries.
_OTHER_LINES: Final = 22
_FEWEST_LINES: Final = 4
_RESULTS: Final = {"bound": ("✓", "green"), "unschedulable": ("⊘", "yellow"), "error": ("✗", "red")}


def view(model: FeedModel, label: str, size: tuple[int, int], problem: str = "") -> RenderableType:
    """Everything, for a width and about a height; nodes are grouped by a label. ``problem``: why it is not up to
    date.
    """
    width, height = size
    groups = _by_label(model.nodes.values(), label)
    room = max(_FEWEST_LINES, height - _OTHER_LINES - min(len(groups), _GROUPS))
    sections = model.sections
    parts: list[RenderableType] = [_health(sections, problem), _queue(sections), Text("")]
    parts += [_nodes(groups, label, (width - _NAMES) // _RESOURCE), Text("")]
    if sections.get("reasons"):
        parts += [_reasons(sections["reasons"][: max(1, room // 3)]), Text("")]
    if sections.get("extenders"):
        parts += [_extenders(sections["extenders"]), Text("")]
    parts.append(_decisions(list(model.streams["decisions"])[: -room - 1 : -1]))
    return Group(*parts)


# ---------------------------------------------------------------- lines


def _health(sections: Mapping[str, Any], problem: str) -> Text:
    scheduler, rates = sections["scheduler"], sections["rates"]
    failed = [each for each in sections["health"] if each[1] and each[2]]
    degraded = [each for each in sections["health"] if each[1] and not each[2]]
    if problem:
        sign, style, word = "✗", "bold red", f"not connected: {printable(problem)}"
    elif not scheduler["leading"]:
        sign, style, word = (
            "‖",
            "bold yellow",
            f"standby; {printable(scheduler['holder']) or 'no process'} leads",
        )
    elif failed:
        sign, style, word = "✗", "bold red", "not ready"
    elif degraded:
        sign, style, word = "▲", "bold yellow", "degraded"
    else:
        sign, style, word = "✓", "bold green", "healthy"
    told = Text.assemble((f"{sign} {word}", style), f"  {printable(scheduler['identity'])}  ")
    p50, p99 = (_duration(seconds) for seconds in rates["attempt"])
    total = sum(rates["perSecond"].values())
    told.append(f"{total:.1f} attempts/s, p50 {p50}, p99 {p99}")
    for name, text, _ in (*failed, *degraded):
        told.append(f"\n  {printable(name)}: {printable(text)}", "yellow")
    rejected = sections.get("kubeletRejections") or {}
    if rejected:
        each = ", ".join(f"{printable(reason)} {count:,}" for reason, count in rejected.items())
        told.append(f"\n  pods that kubelets rejected: {each}", "yellow")
    return told


def _queue(sections: Mapping[str, Any]) -> Text:
    queue = sections["queue"]
    counts = {
        "active": queue["active"] + queue["in_flight"],
        "backoff": queue["backoff"] + queue["error_backoff"],
        "unschedulable": queue["unschedulable"],
        "gated": queue["gated"],
    }
    told = Text.assemble((f"{sum(counts.values()):,}", "bold"), " pods wait: ")
    told.append(", ".join(f"{name} {count:,}" for name, count in counts.items()))
    return told


# ---------------------------------------------------------------- tables


def _table(*columns: str, numbers: frozenset[str] = frozenset()) -> Table:
    """A table in which only the last column is cut."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        right = column in numbers
        table.add_column(
            column, justify="right" if right else "left", no_wrap=column != columns[-1]
        )
    return table


def _cut(text: str) -> Text:
    """A text of others on one line, as a terminal can show it."""
    return Text(printable(text), no_wrap=True, overflow="ellipsis")


def _by_label(nodes: Iterable[NodeRow], label: str) -> dict[str, list[NodeRow]]:
    found: dict[str, list[NodeRow]] = {}
    for node in nodes:
        found.setdefault(node.labels.get(label, ""), []).append(node)
    return dict(sorted(found.items()))


def _nodes(groups: Mapping[str, Sequence[NodeRow]], label: str, resources: int) -> Table:
    """Requested shares by group, and in all."""
    everyone = [node for nodes in groups.values() for node in nodes]
    shown = dict(list(groups.items())[:_GROUPS]) if len(groups) > 1 else {}
    names = [
        *_USUAL,
        *sorted(
            {name for node in everyone for name in node.allocatable}
            - {*_USUAL, "ephemeral-storage"}
        ),
    ][: max(1, resources)]
    table = _table(label.rpartition("/")[2], "nodes", *names, numbers=frozenset({"nodes"}))
    for name, nodes in shown.items():
        table.add_row(_cut(name or "(none)"), _count(nodes), *(_use(nodes, each) for each in names))
    left = len(groups) - len(shown)
    title = f"all, with {left} more" if shown and left else "all"
    table.add_row(title, _count(everyone), *(_use(everyone, each) for each in names), style="bold")
    return table


def _count(nodes: Sequence[NodeRow]) -> str:
    closed = sum(bool(node.flags & UNSCHEDULABLE_FLAG) for node in nodes)
    return f"{len(nodes):,}" + (f" ({closed:,} unschedulable)" if closed else "")


def _use(nodes: Iterable[NodeRow], resource: str) -> Text:
    """A bar, the share, and what is free."""
    there = used = 0
    for node in nodes:
        there += node.allocatable.get(resource, 0)
        used += node.requested.get(resource, 0)
    if not there:
        return Text("-")
    share = used / there
    filled = round(_BAR * min(1.0, share))
    style = "yellow" if share >= _FULL else "blue"
    free = shown_amount(resource, max(0, there - used))
    return Text.assemble(
        ("█" * filled, style), ("░" * (_BAR - filled), "dim"), f" {share:4.0%} {free} free"
    )


def _reasons(reasons: Sequence[tuple[str, int]]) -> Table:
    table = _table("pods", "why they wait", numbers=frozenset({"pods"}))
    for text, count in reasons:
        table.add_row(f"{count:,}", _cut(text))
    return table


def _extenders(extenders: Iterable[Mapping[str, Any]]) -> Table:
    numbers = ("in flight", "limit", "p50", "p99", "calls", "failed", "refused")
    table = _table("extender", "verb", "breaker", *numbers, numbers=frozenset(numbers))
    for each in extenders:
        calls = sum(each["outcomes"].values())
        failed = calls - each["outcomes"].get("success", 0)
        style = "" if each["breaker"] == "closed" else "bold red"
        latency = [_duration(seconds) for seconds in each["latency"]]
        figures = (
            str(each["inFlight"]),
            str(each.get("limit") or "-"),
            *latency,
            f"{calls:,}",
            f"{failed:,}",
            f"{each['dropped']:,}",
        )
        table.add_row(
            _cut(each["extender"]),
            _cut(each["verb"]),
            Text(printable(each["breaker"]), style),
            *figures,
        )
    return table


def _decisions(decisions: Iterable[Sequence[Any]]) -> Table:
    table = _table("time", "", "pod", "took", "where, or why not", numbers=frozenset({"took"}))
    for row in _decision_rows(decisions):
        table.add_row(*row)
    return table


def _decision_rows(decisions: Iterable[Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
    for each in itertools.starmap(Decision, decisions):
        sign, style = _RESULTS.get(each.result, ("?", ""))
        when = dt.datetime.fromtimestamp(each.at).astimezone().strftime("%H:%M:%S")
        what = each.node if each.result == "bound" else each.message or each.result
        yield when, Text(sign, style), _cut(each.pod), _duration(each.seconds), _cut(what)


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds:.1f} s"
