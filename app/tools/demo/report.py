"""The demo's tables."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from app.tools.demo.scenario import ZONES, Workload
from app.tools.pod_tracker import PodTracker


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What was measured; seconds."""

    pods: int
    """Bound in the first go."""
    binding: float
    """From the first binding to the last."""
    unasked: int
    """Pods among them that the extender is not asked about."""
    unasked_binding: float
    """From the first binding to the last of these."""
    starting: float
    """From starting the scheduler's process to the first binding."""
    waking: float
    """From the late node's arrival to the last binding that it made possible."""
    woken: int
    """How many pods that were."""
    total: float

    @property
    def pods_per_second(self) -> float:
        """The rate at which pods were bound that the extender is not asked about."""
        return self.unasked / self.unasked_binding if self.unasked_binding > 0 else float("nan")


def report(
    workloads: Sequence[Workload],
    tracker: PodTracker,
    extender: Mapping[str, Any],
    figures: Figures,
) -> RenderableType:
    """Everything there is to show; ``extender``: its own statistics."""
    return Group(
        *_titled("Where the pods went", _placement(workloads, tracker)),
        *_titled("Pending, and why", _pending(workloads, tracker)),
        *_titled("What the extender refused", _refused(extender)),
        _asked(extender),
        *_lines(figures),
    )


def _titled(title: str, table: Table) -> Iterator[RenderableType]:
    yield Text(f"\n{title}", style="bold")
    yield table


def _table(*columns: tuple[str, bool]) -> Table:
    """A table without frills; a column is (title, whether it holds numbers)."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title, is_number in columns:
        table.add_column(title, justify="right" if is_number else "left", overflow="fold")
    return table


def _placement(workloads: Sequence[Workload], tracker: PodTracker) -> Table:
    numbers = ("pods", *ZONES, "pending")
    table = _table(("workload", False), *((name, True) for name in numbers), ("", False))
    total = dict.fromkeys(("pods", *ZONES, ""), 0)
    for workload in workloads:
        zones = {"pods": workload.count, **tracker.by_zone(workload.name)}
        cells = [zones.get(zone, 0) for zone in total]
        total = {
            zone: before + now for (zone, before), now in zip(total.items(), cells, strict=True)
        }
        table.add_row(workload.name, *(str(cell or "-") for cell in cells), workload.about)
    table.add_section()
    table.add_row("all", *map(str, total.values()))
    return table


def _pending(workloads: Sequence[Workload], tracker: PodTracker) -> Table:
    table = _table(("pods", True), ("workload", False), ("FailedScheduling", False))
    for workload in workloads:
        for message, count in tracker.refusals(workload.name).most_common():
            table.add_row(str(count), workload.name, message)
    return table


def _refused(extender: Mapping[str, Any]) -> Table:
    table = _table(("nodes", True), ("reason", False))
    for reason, count in sorted(extender["refusals"].items()):
        table.add_row(str(count), reason)
    return table


def _asked(extender: Mapping[str, Any]) -> Text:
    calls = ", ".join(f"{count} {verb}" for verb, count in sorted(extender["calls"].items()))
    seats = ", ".join(f"{used} in {zone}" for zone, used in extender["licences"].items())
    return Text(f"Calls: {calls}; licences in use: {seats}.")


def _lines(figures: Figures) -> Iterator[RenderableType]:
    yield Text(
        f"\n{figures.unasked} pods bound in {figures.unasked_binding:.2f} s, "
        f"{figures.pods_per_second:.0f} pods/s; the first one {figures.starting:.1f} s after the scheduler was started.\n"
        f"{figures.pods - figures.unasked} pods that the extender allows and binds, within {figures.binding:.2f} s: "
        "those whose licence was gone by then were tried again.\n"
        f"A GPU node joined: {figures.woken} pods that had waited for it were bound within "
        f"{figures.waking * 1000:.0f} ms.\n"
        f"All in all {figures.total:.1f} s."
    )
