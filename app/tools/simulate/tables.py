"""Shows the result of a simulation as tables on the terminal."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from app.model.requests import CPU, EPHEMERAL_STORAGE, MEMORY
from app.tools.simulate.result import (
    GroupResult,
    NodeUse,
    Reason,
    SimulationResult,
    Usage,
    WorkloadResult,
)

_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi")
_STEP: Final = 1024


def shown_amount(resource: str, amount: int) -> str:
    """A short text for an amount in the scheduler's units.

    >>> shown_amount("cpu", 2500), shown_amount("memory", 3 * 2**29), shown_amount("example.com/gpu", 4)
    ('2.5', '1.5Gi', '4')
    """
    if resource == CPU:
        return f"{amount / 1000:.3f}".rstrip("0").rstrip(".")
    if resource in {MEMORY, EPHEMERAL_STORAGE} or resource.startswith("hugepages-"):
        return _shown_bytes(amount)
    return str(amount)


def _shown_bytes(amount: int) -> str:
    value, step = float(amount), 0
    while abs(value) >= _STEP and step < len(_BINARY) - 1:
        value, step = value / _STEP, step + 1
    return f"{value:.1f}".removesuffix(".0") + _BINARY[step]


#: Rows of long tables on the terminal; the page and the JSON have all rows.
_MOST_ROWS: Final = 15
#: Up to this number nodes are named; more are counted by zone.
_NAMED_NODES: Final = 3
_USUAL: Final = ("pods", "cpu", "memory")


@dataclasses.dataclass(frozen=True, slots=True)
class ReportTable:
    """A table."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numbers: frozenset[str] = frozenset()
    """Columns that hold numbers."""
    note: str = ""
    """A remark below the table."""


def report_tables(answer: SimulationResult, *, most: int | None = None) -> Iterator[ReportTable]:
    """The tables that have rows.

    ``most``: nodes and victims to show; only nodes that changed, or are full, if given.
    """
    yield _placement("Where the pods go", answer.workloads)
    if answer.pending_before:
        yield _placement("Pods that were pending in the cluster before", answer.pending_before)
    if answer.groups:
        yield _groups(answer.groups)
    reasons = list(_reasons(answer))
    if reasons:
        yield ReportTable("Pending, and why", ("pods", "workload", "reason"), reasons, _PODS)
    if answer.preempted:
        yield _preempted(answer, most)
    if answer.nodes:
        yield _nodes(answer.nodes, most)


def summary(answer: SimulationResult) -> str:
    """One sentence.

    "12 of 14 pods get a node, 2 stay pending, 1 other pod is preempted."
    """
    pods = sum(each.pods for each in answer.workloads)
    placed = sum(each.placed for each in answer.workloads)
    evicted = sum(each.evicted for each in answer.workloads)
    if not pods:
        return (
            "There is nothing to place: the workload has no pods, or the cluster has them already."
        )
    parts = [f"{placed} of {pods} pods get a node"]
    if answer.groups:
        parts.append(
            f"{sum(each.runs for each in answer.groups)} of {len(answer.groups)} groups run"
        )
    if answer.pending:
        parts.append(f"{answer.pending} stay pending")
    others = len(answer.preempted) - evicted
    if evicted:
        parts.append(f"{evicted} are preempted by others")
    if others > 0:
        parts.append(f"{_counted(others, 'pod')} of the cluster {_is(others)} preempted")
    return f"{', '.join(parts)}."


def warnings(answer: SimulationResult) -> Iterator[str]:
    """Warnings that limit the validity of the result."""
    if not answer.is_complete:
        undecided = [
            f"{reason.pods} of {each.title}: {reason.message}"
            for each in (*answer.workloads, *answer.pending_before)
            for reason in each.reasons
            if not reason.is_decided
        ]
        yield "; ".join(
            [f"the time was up after {answer.seconds:.0f} s, before all was decided", *undecided]
        )
    if answer.extenders_left_out:
        names = ", ".join(answer.extenders_left_out)
        yield f"extenders are left out, and what they would reject is not known: {names}"
    yield from answer.warnings


def remarks(answer: SimulationResult) -> Iterator[str]:
    """Remarks after the tables."""
    for name, count in answer.other_schedulers.items():
        yield f"{_counted(count, 'pod')} {_is(count)} for {name}, which has no profile here."
    if answer.passed_over:
        counts = ", ".join(f"{count} {kind}" for kind, count in answer.passed_over.items())
        yield f"Ignored, because scheduling does not read them: {counts}."


_PODS: Final = frozenset({"pods"})


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


# ---------------------------------------------------------------- workloads


def _placement(title: str, workloads: Sequence[WorkloadResult]) -> ReportTable:
    """One row per workload; a column that is empty throughout is left out."""
    columns = {
        "workload": [each.title for each in workloads],
        "pods": [str(each.pods) for each in workloads],
        "placed": [_or_dash(each.placed) for each in workloads],
        "pending": [_or_dash(each.pending) for each in workloads],
        "preempted": [_or_dash(each.evicted) for each in workloads],
        "already there": [_or_dash(each.existing) for each in workloads],
        "where": [_where(each) for each in workloads],
    }
    for name in ("preempted", "already there"):
        if set(columns[name]) <= {"-"}:
            del columns[name]
    rows = list(zip(*columns.values(), strict=True))
    numbers = frozenset(columns) - {"workload", "where"}
    return ReportTable(title, tuple(columns), rows, numbers)


def _groups(groups: Sequence[GroupResult]) -> ReportTable:
    """One row per group."""
    columns = ("group", "needs", "pods", "placed", "runs", "reason")
    rows = [
        (
            f"{each.namespace}/{each.name}",
            _or_dash(each.min_count),
            str(each.pods),
            _or_dash(each.placed),
            "yes" if each.runs else "no",
            each.reason,
        )
        for each in groups
    ]
    return ReportTable("Pod groups", columns, rows, frozenset({"needs", "pods", "placed"}))


def _or_dash(count: int) -> str:
    return str(count or "-")


def _where(workload: WorkloadResult) -> str:
    """A few nodes by name, many by zone."""
    nodes, zones = workload.nodes, workload.zones
    if len(nodes) <= _NAMED_NODES:
        return _listed(nodes)
    if set(zones) == {"?"}:
        return _counted(len(nodes), "node")
    return f"{_listed(zones)} on {_counted(len(nodes), 'node')}"


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(name if count == 1 else f"{name}: {count}" for name, count in counts.items())


def _reasons(answer: SimulationResult) -> Iterator[tuple[str, ...]]:
    for each in (*answer.workloads, *answer.pending_before):
        for reason in each.reasons:
            yield str(reason.pods), each.title, _reason(reason)


def _reason(reason: Reason) -> str:
    return reason.message if reason.is_decided else f"not decided: {reason.message}"


def _preempted(answer: SimulationResult, most: int | None) -> ReportTable:
    columns = ("pod", "of", "priority", "on node", "by")
    rows = [(p.pod, p.owner or "-", str(p.priority), p.node, p.by) for p in answer.preempted]
    shown = rows[:most]
    left = len(rows) - len(shown)
    note = f"and {left} more" if left else ""
    if any(p.owner for p in answer.preempted):
        note += f"{'; ' if note else ''}their owners would make new ones, which are not simulated"
    return ReportTable("Preempted", columns, shown, frozenset({"priority"}), note)


# ---------------------------------------------------------------- nodes


def _nodes(nodes: Sequence[NodeUse], most: int | None) -> ReportTable:
    """Requests of each resource before and after, and the allocatable amount."""
    shown = nodes if most is None else _notable(nodes, most)
    left = len(nodes) - len(shown)
    note = (
        f"and {_counted(left, 'node')} that {_is(left)} less full or did not change" if left else ""
    )
    has_others = any(list(_others(node)) for node in shown)
    columns = ("node", "zone", *_USUAL, *(("other",) if has_others else ()))
    rows = [_node_row(node, has_others=has_others) for node in shown]
    return ReportTable(
        "Nodes: requested before and after, of what there is", columns, rows, note=note
    )


def _notable(nodes: Iterable[NodeUse], most: int) -> list[NodeUse]:
    """The fullest of those that changed; the fullest of all if none has."""
    everyone = list(nodes)
    changed = [node for node in everyone if node.is_changed] or everyone
    return sorted(changed, key=lambda node: (-node.fullness, node.name))[:most]


def _node_row(node: NodeUse, *, has_others: bool) -> tuple[str, ...]:
    usual = [_usage(name, node.resources[name]) for name in _USUAL]
    others = ", ".join(_others(node))
    return (node.name, node.zone, *usual, *((others,) if has_others else ()))


def _others(node: NodeUse) -> Iterator[str]:
    """Texts for requests of other resources."""
    for name, usage in node.resources.items():
        if name not in _USUAL and (usage.before or usage.after):
            yield f"{name} {_usage(name, usage)}"


def _usage(name: str, usage: Usage) -> str:
    after, there = shown_amount(name, usage.after), shown_amount(name, usage.allocatable)
    if usage.before == usage.after:
        return f"{after} of {there}"
    return f"{shown_amount(name, usage.before)} → {after} of {there}"


def as_tables(answer: SimulationResult) -> RenderableType:
    """The tables with the most important rows, and the summary."""
    parts: list[RenderableType] = []
    for table in report_tables(answer, most=_MOST_ROWS):
        parts += _shown(table)
    parts += [Text(""), *map(Text, remarks(answer)), Text(summary(answer), style="bold")]
    return Group(*parts)


def _shown(content: ReportTable) -> Iterator[RenderableType]:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in content.columns:
        justify = "right" if name in content.numbers else "left"
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]  # a literal
    for row in content.rows:
        table.add_row(*map(Text, row))
    yield Text(f"\n{content.title}", style="bold")
    yield table
    if content.note:
        yield Text(f"({content.note})", style="dim")
