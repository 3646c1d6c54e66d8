"""Scores by preferred terms of the incoming pod and of existing pods, and by required affinity of existing pods.

See docs/spec/plugins/inter-pod-affinity.md#score.
"""

from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from app.framework.interface import MAX_NODE_SCORE
from app.plugins.helpers.domains import by_row
from app.plugins.inter_pod_affinity.incoming import Incoming, pods_selected_by
from app.state.columns.arrays import Int64
from app.state.columns.families import PodCounter
from app.state.columns.terms import ExistingTerm, TermKind
from app.state.table import NodeTable
from app.state.view import View


class _ScoredTerm(msgspec.Struct, frozen=True):
    """A term with its weight (negative for anti-affinity) and what counts its pods."""

    topology_key: str
    weight: int
    counted: ExistingTerm | PodCounter


class TopologyScores:
    """The sums of the weights by domain: for each topology key int64 by code of the label column.

    ``nothing``: no term counts a pod on a node with the term's key.
    """

    def __init__(
        self,
        incoming: Incoming,
        matching: Iterable[ExistingTerm],
        hard_affinity_weight: int,
        table: NodeTable,
    ) -> None:
        self.nothing = True
        self._by_code: dict[str, Int64] = {}
        for term in (
            *_of_incoming(incoming, table),
            *_of_existing(matching, hard_affinity_weight),
        ):
            sums = term.counted.by_domain(table.labels.column(term.topology_key))
            self.nothing = self.nothing and not sums.any()
            sums *= term.weight
            known = self._by_code.get(term.topology_key)
            if known is None:
                self._by_code[term.topology_key] = sums
            else:
                known += sums

    def of(self, view: View) -> Int64:
        """int64[n]: the sum over the topology keys that each row has."""
        total = np.zeros(view.n, np.int64)
        for key, by_code in self._by_code.items():
            total += by_row(by_code, view.label(key)[1])
        return total


def _of_incoming(incoming: Incoming, table: NodeTable) -> Iterator[_ScoredTerm]:
    for term, weight in incoming.preferred:
        counter = pods_selected_by(table.families, term)
        if counter.total:
            yield _ScoredTerm(term.topology_key, weight, counter)


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
