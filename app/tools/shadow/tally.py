"""Counts verdicts while a shadow runs: metrics, and the summary on the terminal."""

from collections import Counter
from typing import Final

from app.observe.metrics.series import MetricFamilies, exponential
from app.tools.shadow.report import summary
from app.tools.shadow.verdict import CLASSES, Verdict


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
