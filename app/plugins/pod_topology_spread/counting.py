"""Counts of matching pods by row, and the rows that are counted for a constraint.

A row is counted for a constraint if its node has the topology keys and the node inclusion policies include it.
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
from app.state.columns.arrays import Int64
from app.state.columns.families import PodCounter, PodFamilies
from app.state.columns.labels import MISSING, Mask
from app.state.columns.selector_index import Scope
from app.state.view import View

# ---------------------------------------------------------------- counters


def matching_pods(
    families: PodFamilies, namespace: str, constraint: Constraint
) -> PodCounter | None:
    """The counter of the pods of a namespace that a constraint's selector matches and that are not terminating.

    None for the selector that matches everything, unless that counts: as in kube-scheduler it counts nothing.
    """
    selector = constraint.selector
    if selector.everything and not constraint.empty_counts:
        return None

    def counts(pod_namespace: str, labels: Labels, terminating: bool) -> bool:
        return pod_namespace == namespace and not terminating and selector.matches(labels)

    key = ("PodTopologySpread", namespace, selector)
    return families.counter(key, counts, within=Scope(frozenset((namespace,)), selector))


@functools.lru_cache(maxsize=128)
def moved_pods(namespace: str, selector: Selector) -> PodCounter:
    """The predicate of the pods that a dry run counts when it adds or removes them.

    As in kube-scheduler, they differ from those of ``matching_pods``: terminating pods are counted, and so are those
    of the selector that matches everything.
    """

    def counts(pod_namespace: str, labels: Labels, _terminating: bool) -> bool:
        return pod_namespace == namespace and selector.matches(labels)

    return PodCounter(counts, 0)


# ---------------------------------------------------------------- rows that count

#: The number of results of a template on a taint list that are kept.
_MAX_KEPT: Final = 2**20


class _Policies:
    """The node affinity and the tolerations of a template."""

    __slots__ = ("affinity", "taints")

    def __init__(self, template: PodTemplate) -> None:
        self.affinity: Final = RequiredNodeAffinity.of(template.spec)
        self.taints: Final = TaintTable(template.spec.tolerations or ())


class Inclusion:
    """Node inclusion policies, compiled once per template; recently used ones are kept."""

    def __init__(self) -> None:
        self._policies: WeakKeyDictionary[PodTemplate, _Policies] = WeakKeyDictionary()

    def of(self, pod: Pod, everything: View) -> "IncludedRows":
        """The policies of a pod for the view of all rows."""
        policies = self._policies.get(pod.template)
        if policies is None:
            lists = len(everything.table.taints.values)
            if len(self._policies) * lists > _MAX_KEPT:
                self._policies.clear()
            policies = self._policies[pod.template] = _Policies(pod.template)
        return IncludedRows(policies, everything)


class IncludedRows:
    """The policies of a pod as masks over all rows, each computed at most once."""

    def __init__(self, policies: _Policies, everything: View) -> None:
        self._policies = policies
        self._view = everything
        self._by_policy: dict[tuple[bool, bool], Mask | None] = {}

    def by(self, constraint: Constraint) -> Mask | None:
        """bool[n]: whether the constraint's policies include the row; None if all rows are included."""
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
    """bool[n]: whether the row has every topology key of the constraints."""
    mask: Mask | None = None
    for key in dict.fromkeys(c.topology_key for c in constraints):
        present: Mask = view.label(key)[1] != MISSING
        mask = present if mask is None else mask & present
    return np.ones(view.n, bool) if mask is None else mask


def both(some: Mask | None, others: Mask | None) -> Mask | None:
    """The conjunction of two masks; None stands for all rows."""
    if some is None or others is None:
        return others if some is None else some
    return some & others


def row_counts(view: View, counter: PodCounter | None) -> Int64:
    """int64[n]: the number of pods per row that ``matching_pods`` counts."""
    return np.zeros(view.n, np.int64) if counter is None else view.counts(counter)
