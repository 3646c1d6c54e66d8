"""Counts verdicts and comparisons while a shadow runs: metrics, and the summary on the terminal."""

import functools
from collections import Counter
from typing import Final

from app.observe.metrics.series import MetricFamilies, exponential
from app.tools.shadow.comparison import WAIT_BOUNDS, Comparison, Figures
from app.tools.shadow.report import summary
from app.tools.shadow.verdict import CLASSES, Verdict
from app.tools.shadow.worlds import Worlds


class Tally:
    """Verdicts by class and plugin, the loss of score, and the lag."""

    def __init__(self, families: MetricFamilies) -> None:
        self.classes: Final[Counter[str]] = Counter()
        self.plugins: Final[Counter[str]] = Counter()
        self._verdicts: Final = families.counter(
            "aiokube_scheduler_shadow_verdicts_total",
            "Decisions of the cluster's scheduler that were judged, by class.",
            ("class",),
        )
        self._differences: Final = families.counter(
            "aiokube_scheduler_shadow_differences_total",
            "Decisions that differ, by the plugins that explain it; one may count for several.",
            ("plugin",),
        )
        self._loss: Final = families.histogram(
            "aiokube_scheduler_shadow_score_loss",
            "How much the score of the cluster's node is below the best one, if it is below.",
            exponential(1, 2, 12),
        ).labels()
        self._lag: Final = families.histogram(
            "aiokube_scheduler_shadow_lag_seconds",
            "Seconds from an outcome to the verdict on it.",
            exponential(0.05, 1.5, 14),
        ).labels()
        for kind in CLASSES:
            self._verdicts.labels(kind)

    def count(self, verdict: Verdict) -> None:
        """Counts a verdict."""
        self.classes[verdict.kind] += 1
        self._verdicts.labels(verdict.kind).inc()
        self._lag.observe(verdict.lag)
        if verdict.loss > 0:
            self._loss.observe(verdict.loss)
        if not verdict.agrees:
            self.plugins.update(verdict.plugins)
            for plugin in verdict.plugins:
                self._differences.labels(plugin).inc()

    def summary(self) -> str:
        """One sentence."""
        return summary(self.classes, self.plugins)


class WorldTally:
    """Comparisons of the real cluster (``theirs``) with the imagined one (``mine``)."""

    def __init__(self, families: MetricFamilies) -> None:
        self._worlds: Final = Worlds()
        self._last: Comparison | None = None
        self._waits: Final = families.histogram(
            "aiokube_scheduler_shadow_world_wait_seconds",
            "Seconds for which the pods waited that got a node.",
            WAIT_BOUNDS[::4],
            ("world",),
        )
        self._preempted: Final = families.counter(
            "aiokube_scheduler_shadow_world_preempted_pods_total",
            "Pods that were evicted for others.",
            ("world",),
        )
        for name, text in _GAUGES.items():
            families.computed(
                f"aiokube_scheduler_shadow_world_{name}",
                text,
                functools.partial(self._values, name),
                ("world",),
            )
        families.computed(
            "aiokube_scheduler_shadow_world_utilization",
            "How much of the allocatable amounts is requested, 0 to 1.",
            self._utilization,
            ("world", "resource"),
        )

    def count(self, told: Comparison) -> None:
        """Counts a comparison."""
        self._last = told
        self._worlds.add(told)
        for world, figures in _both(told):
            self._preempted.labels(world).inc(figures.preempted)
            waits = self._waits.labels(world)
            for bucket, number in figures.waits.items():
                waits.observe_many(WAIT_BOUNDS[min(bucket, len(WAIT_BOUNDS) - 1)], number)

    def summary(self) -> str:
        """One sentence; empty before the first comparison."""
        told = self._worlds.report()
        return "" if told is None else told.summary

    def _values(self, name: str) -> dict[tuple[str, ...], float]:
        if self._last is None:
            return {}
        return {(world,): float(getattr(figures, name)) for world, figures in _both(self._last)}

    def _utilization(self) -> dict[tuple[str, ...], float]:
        if self._last is None:
            return {}
        return {
            (world, resource): share
            for world, figures in _both(self._last)
            for resource, share in figures.utilization.items()
        }


#: Attributes of Figures -> what they are.
_GAUGES: Final = {
    "fragmentation": "The share of the free capacity that pods of the common shapes cannot use, 0 to 1.",
    "idle_nodes": "Nodes without pods, those of DaemonSets and static ones not counted.",
    "waiting": "Pods that wait for a node.",
}


def _both(told: Comparison) -> tuple[tuple[str, Figures], tuple[str, Figures]]:
    return ("theirs", told.theirs), ("mine", told.mine)
