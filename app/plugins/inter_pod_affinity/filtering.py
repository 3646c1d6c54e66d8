"""Required terms: the incoming pod's affinity and anti-affinity, and the anti-affinity of existing pods."""

import functools
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np

from app.model.pod import Pod, PodTemplate
from app.model.selectors import Labels
from app.plugins.helpers.domains import by_row
from app.plugins.inter_pod_affinity.incoming import (
    Incoming,
    pods_selected_by,
    pods_selected_by_all,
)
from app.state.columns.arrays import Int64
from app.state.columns.families import PodCounter
from app.state.columns.labels import MISSING, Mask
from app.state.columns.terms import ExistingTerm, Terms
from app.state.view import View


class _Domains(msgspec.Struct, frozen=True):
    """The number of pods (or terms) by domain of a topology key. ``by_code``: int64, 0 for MISSING."""

    topology_key: str
    by_code: Int64

    @classmethod
    def count(
        cls, everything: View, topology_key: str, counted: Iterable[PodCounter | ExistingTerm]
    ) -> "_Domains":
        """The sums of some counts by domain."""
        column = everything.table.labels.column(topology_key)
        sums = np.zeros(len(column.values), np.int64)
        for each in counted:
            sums += each.by_domain(column)
        return cls(topology_key, sums)

    def present(self, view: View) -> Mask:
        """bool[n]: whether the row has the key."""
        mask: Mask = view.label(self.topology_key)[1] != MISSING
        return mask

    def occupied(self, view: View, delta: Int64 | None) -> Mask:
        """bool[n]: whether the row's domain has a count above 0; ``delta`` is the dry-run change on the row itself."""
        codes = view.label(self.topology_key)[1]
        if delta is None:
            return by_row(self.by_code > 0, codes)
        mask: Mask = (by_row(self.by_code, codes) + delta > 0) & (codes != MISSING)
        return mask


class IncomingAffinity:
    """The pods that all required affinity terms of the incoming pod select, by domain of each term's key."""

    def __init__(self, incoming: Incoming, pod: Pod, everything: View) -> None:
        self._counter: Final = pods_selected_by_all(everything.table.families, incoming)
        keys = dict.fromkeys(term.topology_key for term in incoming.affinity)
        self._domains: Final = [_Domains.count(everything, key, [self._counter]) for key in keys]
        self._own: Final = incoming.matches_all_affinity(pod.namespace, pod.labels)

    def failed(self, view: View) -> Mask:
        """bool[n]: whether such pods are missing in a domain of the row, unless the pod would be the first."""
        delta = view.count_delta(self._counter)
        met = _all(domains.occupied(view, delta) for domains in self._domains)
        if self._own:
            keys = _all(domains.present(view) for domains in self._domains)
            met |= keys & self._none_selected(view, delta)
        return ~met

    def _none_selected(self, view: View, delta: Int64 | None) -> Mask | bool:
        """Whether no pod on any row with a key is selected; by row in a dry run."""
        known = sum(int(domains.by_code.sum()) for domains in self._domains)
        if delta is None:
            return known == 0
        here = sum(
            (delta * domains.present(view) for domains in self._domains),
            start=np.zeros(view.n, np.int64),
        )
        none: Mask = known + here == 0
        return none


class IncomingAntiAffinity:
    """The pods that each required anti-affinity term of the incoming pod selects, by domain of the term's key."""

    def __init__(self, incoming: Incoming, everything: View) -> None:
        self._terms: Final[list[tuple[_Domains, PodCounter]]] = []
        for term in incoming.anti_affinity:
            counter = pods_selected_by(everything.table.families, term)
            domains = _Domains.count(everything, term.topology_key, [counter])
            self._terms.append((domains, counter))

    def failed(self, view: View) -> Mask:
        """bool[n]: whether a domain of the row has a pod that a term selects."""
        return _any(
            (domains.occupied(view, view.count_delta(counter)) for domains, counter in self._terms),
            view.n,
        )


class _TermsAgainst:
    """The topology keys of other pods' required anti-affinity terms that select the incoming pod, by template."""

    def __init__(self, pod: Pod, namespace_labels: Labels, terms: Terms) -> None:
        self._pod: Final = pod
        self._namespace_labels: Final = namespace_labels
        self._terms: Final = terms
        self._known: Final[dict[tuple[PodTemplate, str], tuple[str, ...]]] = {}

    def keys(self, other: Pod) -> tuple[str, ...]:
        """One topology key per term of ``other`` that selects the incoming pod."""
        if not other.template.has_affinity:
            return ()
        family = (other.template, other.namespace)
        known = self._known.get(family)
        if known is None:
            known = self._known[family] = tuple(
                term.topology_key
                for term in self._terms.of(other).required_anti_affinity
                if term.matches(self._pod.namespace, self._namespace_labels, self._pod.labels)
            )
        return known


class _DryRunTerms(PodCounter):
    """A counter for dry runs: counts the required anti-affinity terms of a pod that select the incoming pod.

    With ``inside`` the terms with one of these topology keys, else those with any other key. It has no counts by row
    (``_Domains`` has those): views use it only to count the pods that a dry run adds or removes.
    """

    __slots__ = ("_against", "_inside", "_keys")

    def __init__(self, against: _TermsAgainst, keys: frozenset[str], *, inside: bool) -> None:
        super().__init__(lambda *_: False, 0)
        self._against = against
        self._keys = keys
        self._inside = inside

    def times(self, pod: Pod) -> int:
        """The number of terms of ``pod`` that are counted."""
        return sum((key in self._keys) is self._inside for key in self._against.keys(pod))


class ExistingAntiAffinity:
    """The required anti-affinity terms of pods on rows that select the incoming pod, by domain of the terms' keys."""

    def __init__(
        self, matching: Iterable[ExistingTerm], pod: Pod, namespace_labels: Labels, everything: View
    ) -> None:
        self._against: Final = _TermsAgainst(pod, namespace_labels, everything.table.terms)
        by_key: defaultdict[str, list[ExistingTerm]] = defaultdict(list)
        for existing in matching:
            by_key[existing.term.topology_key].append(existing)
        self._domains: Final = [
            (
                _Domains.count(everything, key, terms),
                _DryRunTerms(self._against, frozenset((key,)), inside=True),
            )
            for key, terms in by_key.items()
        ]
        self._keys: Final = frozenset(by_key)
        self._elsewhere: Final = _DryRunTerms(self._against, self._keys, inside=False)

    def __bool__(self) -> bool:
        """Whether any domain has such a term."""
        return any(np.count_nonzero(domains.by_code) for domains, _ in self._domains)

    def failed(self, view: View) -> Mask:
        """bool[n]: whether a term excludes the incoming pod from a domain of the row."""
        failed = _any(
            (d.occupied(view, view.count_delta(terms)) for d, terms in self._domains), view.n
        )
        elsewhere = view.count_delta(self._elsewhere)
        if elsewhere is not None and np.count_nonzero(elsewhere):
            failed |= self._failed_elsewhere(view)
        return failed

    def _failed_elsewhere(self, view: View) -> Mask:
        """The same for topology keys that only pods added by the dry run have."""
        failed = np.zeros(view.n, bool)
        for position, pod, _added in view.changes():
            for key in set(self._against.keys(pod)) - self._keys:
                failed[position] |= view.label(key)[1][position] != MISSING
        return failed


def _all(masks: Iterable[Mask]) -> Mask:
    """The conjunction of the masks (at least one)."""
    return functools.reduce(np.logical_and, masks)


def _any(masks: Iterable[Mask], n: int) -> Mask:
    """The disjunction of the masks."""
    some = [*masks]
    return functools.reduce(np.logical_or, some) if some else np.zeros(n, bool)
