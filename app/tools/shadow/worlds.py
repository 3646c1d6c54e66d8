"""Sums up comparisons of the real cluster with the imagined one: means, waiting times, and one sentence."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec

from app.model.requests import CPU, MEMORY
from app.observe.metrics.series import quantile
from app.tools.shadow.comparison import WAIT_BOUNDS, Comparison, Figures, Shape


class WaitSeconds(msgspec.Struct, frozen=True):
    """Of the waiting times of the pods that got a node; 0 if there are none."""

    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0


class WorldReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One of the clusters. Where nothing else is said: the mean over the comparisons."""

    utilization: dict[str, float]
    """By resource, 0 to 1."""
    fragmentation: float
    """0 to 1."""
    idle_nodes: float
    waiting: float
    bound: int
    """All pods that got a node."""
    wait_seconds: WaitSeconds
    preempted: int
    """All pods that were evicted for others."""
    room: list[int]
    """For each shape: how many more pods fitted at the end."""


class WorldsReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The real cluster (``theirs``) beside the one in which the configuration's own placements add up (``mine``)."""

    comparisons: int
    first: float
    """When the first and the last comparison were made, in seconds since the epoch."""
    last: float
    largest_difference: dict[str, float]
    """By resource: the largest difference of the utilisation in any comparison, 0 to 1."""
    shapes: list[Shape]
    """The requests of most pods at the end."""
    theirs: WorldReport
    mine: WorldReport
    summary: str


class _Sum:
    """Of one cluster's figures."""

    def __init__(self) -> None:
        self._number = 0
        self._utilization: Final[Counter[str]] = Counter()
        self._numbers: Final[Counter[str]] = Counter()
        self._waits: Final[Counter[int]] = Counter()
        self._preempted = 0
        self._room: list[int] = []

    def add(self, figures: Figures) -> None:
        self._number += 1
        self._utilization.update(figures.utilization)
        for name in ("fragmentation", "idle_nodes", "waiting"):
            self._numbers[name] += getattr(figures, name)
        self._waits.update(figures.waits)
        self._preempted += figures.preempted
        self._room = figures.room

    def report(self) -> WorldReport:
        return WorldReport(
            utilization=self._means(self._utilization),
            **self._means(self._numbers),
            bound=self._waits.total(),
            wait_seconds=_wait_seconds(self._waits),
            preempted=self._preempted,
            room=self._room,
        )

    def _means(self, sums: Mapping[str, float]) -> dict[str, float]:
        return {name: round(total / self._number, 5) for name, total in sums.items()}


class Worlds:
    """The sum of comparisons; keeps none of them."""

    def __init__(self) -> None:
        self.number = 0
        self._first = self._last = 0.0
        self._largest: Final[dict[str, float]] = {}
        self._shapes: list[Shape] = []
        self._theirs: Final = _Sum()
        self._mine: Final = _Sum()

    def add(self, told: Comparison) -> None:
        """Adds a comparison; later ones follow earlier ones."""
        self._first = self._first if self.number else told.at
        self._last, self._shapes = told.at, told.shapes
        self.number += 1
        self._theirs.add(told.theirs)
        self._mine.add(told.mine)
        for name, share in told.theirs.utilization.items():
            difference = round(abs(told.mine.utilization.get(name, 0.0) - share), 5)
            self._largest[name] = max(difference, self._largest.get(name, 0.0))

    def report(self) -> WorldsReport | None:
        """None without a comparison."""
        if not self.number:
            return None
        theirs, mine = self._theirs.report(), self._mine.report()
        return WorldsReport(
            comparisons=self.number,
            first=self._first,
            last=self._last,
            largest_difference=self._largest,
            shapes=self._shapes,
            theirs=theirs,
            mine=mine,
            summary=_summary(theirs, mine),
        )


def _wait_seconds(waits: Mapping[int, int]) -> WaitSeconds:
    counts = [waits.get(bucket, 0) for bucket in range(len(WAIT_BOUNDS) + 1)]
    p50, p90, p99 = (round(quantile(WAIT_BOUNDS, counts, q) or 0.0, 3) for q in (0.5, 0.9, 0.99))
    return WaitSeconds(p50, p90, p99)


def _summary(theirs: WorldReport, mine: WorldReport) -> str:
    used = " and ".join(
        f"{_percent(mine.utilization[name])} ({_percent(theirs.utilization.get(name, 0.0))}) of {name}"
        for name in (CPU, MEMORY)
        if name in mine.utilization
    )
    return (
        f"With its own placements (the cluster in brackets) this configuration uses {used}, leaves "
        f"{mine.idle_nodes:.1f} ({theirs.idle_nodes:.1f}) nodes idle and {_percent(mine.fragmentation)} "
        f"({_percent(theirs.fragmentation)}) of what is free fragmented; 90 % of the pods got a node within "
        f"{mine.wait_seconds.p90:g} s ({theirs.wait_seconds.p90:g} s), {mine.waiting:.1f} ({theirs.waiting:.1f}) waited on "
        f"average, and {mine.preempted} ({theirs.preempted}) were preempted."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
