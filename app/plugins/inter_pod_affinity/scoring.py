"""Scores by preferred terms of the incoming pod and of existing pods, and by required affinity of existing pods.

See docs/spec/plugins/inter-pod-affinity.md#score.
"""

from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from app.framework.interface import MAX_NODE_SCORE
from app.plugins.helpers.domains import by_row, totals
from app.plugins.inter_pod_affinity.incoming import Incoming, pods_selected_by
from app.state.columns.labels import MISSING
from app.state.columns.resources import Int64
from app.state.columns.terms import ExistingTerm, TermKind
from app.state.view import View


class _ScoredTerm(msgspec.Struct, frozen=True):
    """A term with its weight (negative for anti-affinity) and the pods that it counts."""

    topology_key: str
    weight: int
    counted: ExistingTerm | Int64

    def add_to(self, column: Int64, weight: int) -> None:
        """Adds ``weight`` per counted pod to int64[n] by row."""
        if isinstance(self.counted, ExistingTerm):
            self.counted.add_to(column, weight)
        else:
            column += self.counted * weight


class TopologyScores:
    """The sums of the weights by domain: for each topology key int64 by code of the label column.

    ``nothing``: no term counts a pod on a node with the term's key.
    """

    def __init__(
        self,
        incoming: Incoming,
        matching: Iterable[ExistingTerm],
        hard_affinity_weight: int,
        everything: View,
    ) -> None:
        pulls = [
            *_of_incoming(incoming, everything),
            *_of_existing(matching, hard_affinity_weight),
        ]
        columns: dict[str, Int64] = {}
        for pull in pulls:
            column = columns.get(pull.topology_key)
            if column is None:
                column = columns[pull.topology_key] = np.zeros(everything.n, np.int64)
            pull.add_to(column, pull.weight)
        self._by_code = {
            key: totals(*everything.label(key), column) for key, column in columns.items()
        }
        self.nothing = not any(scores.any() for scores in self._by_code.values()) and not any(
            _concerns_any_node(pull, everything) for pull in pulls
        )

    def of(self, view: View) -> Int64:
        """int64[n]: the sum over the topology keys that each row has."""
        total = np.zeros(view.n, np.int64)
        for key, by_code in self._by_code.items():
            total += by_row(by_code, view.label(key)[1])
        return total


def _of_incoming(incoming: Incoming, everything: View) -> Iterator[_ScoredTerm]:
    families = everything.table.families
    for term, weight in incoming.preferred:
        counter = pods_selected_by(families, term)
        if counter.total:
            yield _ScoredTerm(term.topology_key, weight, everything.counts(counter))


def _of_existing(
    matching: Iterable[ExistingTerm], hard_affinity_weight: int
) -> Iterator[_ScoredTerm]:
    for existing in matching:
        weight = {
            TermKind.REQUIRED_AFFINITY: hard_affinity_weight,
            TermKind.PREFERRED_AFFINITY: existing.weight,
            TermKind.PREFERRED_ANTI_AFFINITY: -existing.weight,
        }[existing.kind]
        if weight or existing.kind is not TermKind.REQUIRED_AFFINITY:
            yield _ScoredTerm(existing.term.topology_key, weight, existing)


def _concerns_any_node(pull: _ScoredTerm, everything: View) -> bool:
    """Whether the term counts a pod on any node with the topology key, even if the weights cancel out."""
    column = np.zeros(everything.n, np.int64)
    pull.add_to(column, 1)
    return bool(column[everything.label(pull.topology_key)[1] != MISSING].any())


def normalize(scores: Int64) -> Int64:
    """int64[n]: scaled from 0 (lowest) to 100 (highest) in floating point and truncated, as in kube-scheduler."""
    if not len(scores):
        return scores
    lowest = scores.min()
    spread = int(scores.max() - lowest)
    if not spread:
        return np.zeros_like(scores)
    share = (scores - lowest) / float(spread)
    stretched: Int64 = (float(MAX_NODE_SCORE) * share).astype(np.int64)
    return stretched
