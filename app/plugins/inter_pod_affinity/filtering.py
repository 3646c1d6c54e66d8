"""Required terms, both ways: what the pod demands of its neighbours, and what pods on nodes hold against it."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np

from app.model.pod import Pod, PodTemplate
from app.model.selectors import Labels
from app.plugins.helpers.domains import by_row, totals
from app.plugins.inter_pod_affinity.incoming import (
    Incoming,
    pods_meant,
    pods_meant_by_all,
)
from app.state.columns.families import PodCounter
from app.state.columns.labels import MISSING, Mask
from app.state.columns.resources import Int64
from app.state.columns.terms import ExistingTerm, Terms
from app.state.view import View


class _Domains(msgspec.Struct, frozen=True):
    """Pods (or terms) by domain of a topology key. ``by_code``: int64, 0 for MISSING."""

    topology_key: str
    by_code: Int64

    @classmethod
    def count(cls, everything: View, topology_key: str, amounts: Int64) -> "_Domains":
        """Sums what lies on each row of the table."""
        column, codes = everything.label(topology_key)
        return cls(topology_key, totals(column, codes, amounts))

    def present(self, view: View) -> Mask:
        """bool[n]: the rows that have the key."""
        mask: Mask = view.label(self.topology_key)[1] != MISSING
        return mask

    def occupied(self, view: View, delta: Int64 | None) -> Mask:
        """bool[n]: the rows with anything in their domain, ``delta`` (by row, if any) being imagined on the row itself."""
        codes = view.label(self.topology_key)[1]
        if delta is None:
            return by_row(self.by_code > 0, codes)
        mask: Mask = (by_row(self.by_code, codes) + delta > 0) & (codes != MISSING)
        return mask


class IncomingAffinity:
    """The pods that all required affinity terms mean, by domain of each term's key."""

    def __init__(self, incoming: Incoming, pod: Pod, everything: View) -> None:
        self._counter: Final = pods_meant_by_all(everything.table.families, incoming)
        counts = everything.counts(self._counter)
        keys = dict.fromkeys(term.topology_key for term in incoming.affinity)
        self._domains: Final = [_Domains.count(everything, key, counts) for key in keys]
        self._own: Final = incoming.matches_all_affinity(pod.namespace, pod.labels)

    def failed(self, view: View) -> Mask:
        """bool[n]: the rows that lack such neighbours, unless the pod would be the first of its kind."""
        delta = view.count_delta(self._counter)
        met = _all(domains.occupied(view, delta) for domains in self._domains)
        if self._own:
            keys = _all(domains.present(view) for domains in self._domains)
            met |= keys & self._nobody(view, delta)
        return ~met

    def _nobody(self, view: View, delta: Int64 | None) -> Mask | bool:
        """Whether no pod is meant anywhere (in a place that has any of the keys); by row where worlds differ."""
        known = sum(int(domains.by_code.sum()) for domains in self._domains)
        if delta is None:
            return known == 0
        here = sum(
            (delta * domains.present(view) for domains in self._domains),
            start=np.zeros(view.n, np.int64),
        )
        nobody: Mask = known + here == 0
        return nobody


class IncomingAntiAffinity:
    """The pods that each required anti-affinity term means, by domain of the term's key."""

    def __init__(self, incoming: Incoming, everything: View) -> None:
        self._terms: Final[list[tuple[_Domains, PodCounter]]] = []
        for term in incoming.anti_affinity:
            counter = pods_meant(everything.table.families, term)
            domains = _Domains.count(everything, term.topology_key, everything.counts(counter))
            self._terms.append((domains, counter))

    def failed(self, view: View) -> Mask:
        """bool[n]: the rows with a neighbour that some term means."""
        return _any(
            (domains.occupied(view, view.count_delta(counter)) for domains, counter in self._terms),
            view.n,
        )


class _TermsAgainst:
    """The required anti-affinity terms of any pod that mean a certain pod: their topology keys, once per template."""

    def __init__(self, pod: Pod, namespace_labels: Labels, terms: Terms) -> None:
        self._pod: Final = pod
        self._namespace_labels: Final = namespace_labels
        self._terms: Final = terms
        self._known: Final[dict[tuple[PodTemplate, str], tuple[str, ...]]] = {}

    def keys(self, other: Pod) -> tuple[str, ...]:
        """One topology key per term of ``other``."""
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


class _ImaginedTerms(PodCounter):
    """Counts for imagined pods only: the required anti-affinity terms of a pod that mean the incoming one.

    With ``inside`` those with one of these topology keys, else those with any other key. It has no counts by row (those of
    pods on rows are in ``_Domains``): views ask it, as any counter, how often it counts each pod that they imagine.
    """

    __slots__ = ("_against", "_inside", "_keys")

    def __init__(self, against: _TermsAgainst, keys: frozenset[str], *, inside: bool) -> None:
        super().__init__(lambda *_: False, 0)
        self._against = against
        self._keys = keys
        self._inside = inside

    def times(self, pod: Pod) -> int:
        """How many terms of ``pod`` are counted."""
        return sum((key in self._keys) is self._inside for key in self._against.keys(pod))


class ExistingAntiAffinity:
    """Required anti-affinity terms of pods on rows that mean the pod, by domain of the terms' keys."""

    def __init__(
        self, matching: Iterable[ExistingTerm], pod: Pod, namespace_labels: Labels, everything: View
    ) -> None:
        self._against: Final = _TermsAgainst(pod, namespace_labels, everything.table.terms)
        by_key: defaultdict[str, list[ExistingTerm]] = defaultdict(list)
        for existing in matching:
            by_key[existing.term.topology_key].append(existing)
        self._domains: Final = [
            (
                _Domains.count(everything, key, _sum(terms, everything.n)),
                _ImaginedTerms(self._against, frozenset((key,)), inside=True),
            )
            for key, terms in by_key.items()
        ]
        self._keys: Final = frozenset(by_key)
        self._elsewhere: Final = _ImaginedTerms(self._against, self._keys, inside=False)

    def __bool__(self) -> bool:
        """Whether any term holds anywhere."""
        return any(np.count_nonzero(domains.by_code) for domains, _ in self._domains)

    def failed(self, view: View) -> Mask:
        """bool[n]: the rows in a domain that some term keeps the pod out of."""
        failed = _any(
            (d.occupied(view, view.count_delta(terms)) for d, terms in self._domains), view.n
        )
        elsewhere = view.count_delta(self._elsewhere)
        if elsewhere is not None and np.count_nonzero(elsewhere):
            failed |= self._failed_elsewhere(view)
        return failed

    def _failed_elsewhere(self, view: View) -> Mask:
        """The same for topology keys that no term on a row has: only pods imagined on the row itself bring them."""
        failed = np.zeros(view.n, bool)
        for position, pod, _added in view.changes():
            for key in set(self._against.keys(pod)) - self._keys:
                failed[position] |= view.label(key)[1][position] != MISSING
        return failed


def _sum(terms: Iterable[ExistingTerm], rows: int) -> Int64:
    column = np.zeros(rows, np.int64)
    for term in terms:
        term.add_to(column, 1)
    return column


def _all(masks: Iterable[Mask]) -> Mask:
    """Rows where each of the masks (at least one, all fresh) is true."""
    out: Mask | None = None
    for mask in masks:
        out = mask if out is None else np.logical_and(out, mask, out=out)
    assert out is not None  # noqa: S101 - the callers have at least one
    return out


def _any(masks: Iterable[Mask], n: int) -> Mask:
    """Rows where one of the fresh masks is true."""
    out: Mask | None = None
    for mask in masks:
        out = mask if out is None else np.logical_or(out, mask, out=out)
    return np.zeros(n, bool) if out is None else out
