"""How pods are spread now: counts per row from the counting columns, summed over domains.

Rows count for a constraint if their node has the topology keys in question and the pod's inclusion policies let it in.
"""

import functools
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np

from app.model.pod import Pod, PodTemplate
from app.model.selectors import Labels, Selector
from app.plugins.helpers.node_selector import RequiredNodeAffinity
from app.plugins.helpers.tolerations import TaintTable
from app.plugins.pod_topology_spread.constraints import Constraint, Constraints
from app.state.columns.families import PodCounter, PodFamilies
from app.state.columns.labels import MISSING, Mask
from app.state.columns.resources import Int64
from app.state.columns.selector_index import Scope
from app.state.view import View

# ---------------------------------------------------------------- counters


def matching_pods(families: PodFamilies, namespace: str, selector: Selector) -> PodCounter | None:
    """Counts the pods of a namespace that a selector matches and that are not being deleted.

    None for the selector that matches everything: it counts nothing, as in kube-scheduler.
    """
    if selector.everything:
        return None

    def counts(pod_namespace: str, labels: Labels, terminating: bool) -> bool:
        return pod_namespace == namespace and not terminating and selector.matches(labels)

    key = ("PodTopologySpread", namespace, selector)
    return families.counter(key, counts, within=Scope(frozenset((namespace,)), selector))


@functools.lru_cache(maxsize=128)
def moved_pods(namespace: str, selector: Selector) -> PodCounter:
    """Says which pods change the count when they are imagined added or removed.

    As in kube-scheduler these are not quite the ones that ``matching_pods`` counts: pods being deleted are among them, and
    the selector that matches everything does match.
    """

    def counts(pod_namespace: str, labels: Labels, _terminating: bool) -> bool:
        return pod_namespace == namespace and selector.matches(labels)

    return PodCounter(counts, 0)


# ---------------------------------------------------------------- rows that count

#: How many judgements of a template on a list of taints are kept.
_MAX_KEPT: Final = 2**20


class _Policies:
    """Which nodes a template's node affinity and tolerations let in."""

    __slots__ = ("affinity", "taints")

    def __init__(self, template: PodTemplate) -> None:
        self.affinity: Final = RequiredNodeAffinity.of(template.spec)
        self.taints: Final = TaintTable(template.spec.tolerations or ())


class Inclusion:
    """Node inclusion policies, compiled once per template and kept for a while."""

    def __init__(self) -> None:
        self._policies: WeakKeyDictionary[PodTemplate, _Policies] = WeakKeyDictionary()

    def of(self, pod: Pod, everything: View) -> "IncludedRows":
        """The policies of one pod over the view of all rows."""
        policies = self._policies.get(pod.template)
        if policies is None:
            lists = len(everything.table.taints.values)
            if len(self._policies) * lists > _MAX_KEPT:
                self._policies.clear()
            policies = self._policies[pod.template] = _Policies(pod.template)
        return IncludedRows(policies, everything)


class IncludedRows:
    """The policies of one pod as masks over all rows, each worked out at most once."""

    def __init__(self, policies: _Policies, everything: View) -> None:
        self._policies = policies
        self._view = everything
        self._by_policy: dict[tuple[bool, bool], Mask | None] = {}

    def by(self, constraint: Constraint) -> Mask | None:
        """bool[n]: the rows that the constraint's policies let in; None if those are all."""
        key = (constraint.honor_affinity, constraint.honor_taints)
        if key not in self._by_policy:
            self._by_policy[key] = self._judge(constraint)
        return self._by_policy[key]

    def _judge(self, constraint: Constraint) -> Mask | None:
        mask: Mask | None = None
        if constraint.honor_affinity and not self._policies.affinity.everything:
            mask = self._policies.affinity.matches(self._view)
        if constraint.honor_taints:
            repelled = self._policies.taints.nonzero(self._view)
            if repelled is not None:
                mask = ~repelled if mask is None else mask & ~repelled
        return mask


def with_all_keys(view: View, constraints: Constraints) -> Mask:
    """bool[n]: the rows whose node has every topology key of the constraints."""
    mask: Mask | None = None
    for key in dict.fromkeys(c.topology_key for c in constraints):
        present: Mask = view.label(key)[1] != MISSING
        mask = present if mask is None else mask & present
    return np.ones(view.n, bool) if mask is None else mask


def row_counts(view: View, counter: PodCounter | None) -> Int64:
    """int64[n]: pods per row that ``matching_pods`` counts."""
    return np.zeros(view.n, np.int64) if counter is None else view.counts(counter)
