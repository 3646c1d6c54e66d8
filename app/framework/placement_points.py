"""Runs PlacementGenerate and PlacementScore, which decide where the pods of a group go together."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from app.framework.interface import MAX_NODE_SCORE
from app.framework.placements import Placements
from app.framework.plugin_class import has
from app.framework.probe import PLACEMENT_GENERATE, PLACEMENT_SCORE, Stopwatch
from app.framework.profile import ProfilePlugins
from app.model.pod import Pod
from app.model.pod_groups import GroupKey
from app.model.status import SchedulingError
from app.state.columns.arrays import Int64
from app.state.columns.labels import Mask


class PlacementPoints:
    """The extension points of a profile that concern the placements of a pod group."""

    def __init__(self, plugins: ProfilePlugins, watch: Stopwatch) -> None:
        self._watch: Final = watch
        self._generate = plugins.at("placementGenerate")[:1]
        self._score = plugins.at("placementScore")
        self._normalizing = [p for p in self._score if has(p, "normalize_placements")]
        self._weights: Final = plugins.placement_weights
        #: The name of the plugin that generates placements; empty without one.
        self.generator: Final = self._generate[0].NAME if self._generate else ""

    def generate(self, key: GroupKey) -> Placements | None:
        """The placements of a group; None if it may use all nodes. Raises SchedulingError."""
        if not self._generate:
            return None
        return self._watch.point(PLACEMENT_GENERATE, self._run_generate, key)

    def _run_generate(self, key: GroupKey) -> Placements | None:
        return self._watch.one(self._generate[0]).generate_placements(key)

    def grows(self, pods: Sequence[Pod]) -> bool:
        """Whether a placement never scores less with more of these pods."""
        return all(plugin.grows(pods) for plugin in self._score)

    def score(self, placements: Placements, pods: Sequence[Pod], placed: Mask) -> Int64:
        """int64[k]: the weighted total of each placement, if it takes the pods where ``placed`` (bool[k, pods]) is
        True.

        Raises SchedulingError.
        """
        return self._watch.point(PLACEMENT_SCORE, self._run_score, placements, pods, placed)

    def _run_score(self, placements: Placements, pods: Sequence[Pod], placed: Mask) -> Int64:
        total = np.zeros(len(placements), np.int64)
        for plugin in self._score:
            timed = self._watch.one(plugin)
            scores = timed.score_placements(placements, pods, placed)
            if plugin in self._normalizing:
                scores = timed.normalize_placements(scores)
            wrong = scores[(scores < 0) | (scores > MAX_NODE_SCORE)]
            if len(wrong):
                raise SchedulingError(
                    f'applying score defaultWeights on PlacementScore plugins: plugin "{plugin.NAME}" returns '
                    f"an invalid score {wrong[0]}, it should in the range of [0, {MAX_NODE_SCORE}] after normalizing"
                )
            total += scores * self._weights.get(plugin.NAME, 1)
        return total
