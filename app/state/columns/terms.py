"""The affinity and anti-affinity terms of the pods on rows: which of them match a pod, and on which rows they are.

Inter-pod affinity is symmetric: terms of a pod on a node may reject or attract a new pod. Equal terms are kept once,
with the number of their pods per row. A new pod finds the terms that match it through an index over the labels that
they require; pods with the same namespace and labels share the result until a term is added or removed.
(docs/spec/plugins/inter-pod-affinity.md#terms)
"""

import enum
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from app.model.objects import Affinity, PodAffinity, PodAffinityTerm, WeightedPodAffinityTerm
from app.model.pod import LabelSet, Pod, PodTemplate
from app.model.selectors import Labels, Selector, SelectorError, compile_selector
from app.state.columns.labels import DomainSums, LabelColumn
from app.state.columns.selector_index import Scope, SelectorIndex
from app.state.columns.sparse import SparseColumn
from app.state.weak_cache import WeakCache

# ---------------------------------------------------------------- what a pod says


class AffinityTerm(msgspec.Struct, frozen=True):
    """One parsed term. It matches pods in ``namespaces`` or whose namespace's labels ``namespace_selector`` matches."""

    topology_key: str
    namespaces: frozenset[str]
    namespace_selector: Selector
    selector: Selector

    def matches(self, namespace: str, namespace_labels: Labels, labels: Labels) -> bool:
        """Whether the term selects a pod with these labels in this namespace."""
        return (
            namespace in self.namespaces or self.namespace_selector.matches(namespace_labels)
        ) and self.selector.matches(labels)

    @property
    def scope(self) -> Scope:
        """The pods that the term may select, as far as known without namespace labels."""
        anywhere = not self.namespace_selector.nothing
        return Scope(None if anywhere else self.namespaces, self.selector)


WeightedTerms = tuple[tuple[AffinityTerm, int], ...]


class PodTerms(msgspec.Struct, frozen=True):
    """All terms of a pod. A list that cannot be read is empty, and ``error`` says why."""

    required_affinity: tuple[AffinityTerm, ...] = ()
    required_anti_affinity: tuple[AffinityTerm, ...] = ()
    preferred_affinity: WeightedTerms = ()
    preferred_anti_affinity: WeightedTerms = ()
    error: str = ""


_NO_TERMS: Final = PodTerms()
_NO_AFFINITY: Final = PodAffinity()


def parse_term(term: PodAffinityTerm, namespace: str) -> AffinityTerm:
    """Reads a term of a pod in ``namespace``. Raises SelectorError."""
    own_only = not term.namespaces and term.namespace_selector is None
    return AffinityTerm(
        topology_key=term.topology_key,
        namespaces=frozenset((namespace,) if own_only else term.namespaces or ()),
        namespace_selector=compile_selector(term.namespace_selector),
        selector=compile_selector(term.label_selector),
    )


def parse_terms(affinity: Affinity | None, namespace: str) -> PodTerms:
    """Reads all terms of a pod in ``namespace``."""
    if affinity is None:
        return _NO_TERMS
    near, far = affinity.pod_affinity or _NO_AFFINITY, affinity.pod_anti_affinity or _NO_AFFINITY
    reader = _Reader(namespace)
    return PodTerms(
        required_affinity=reader.required("requiredAffinityTerms", near.required),
        required_anti_affinity=reader.required("requiredAntiAffinityTerms", far.required),
        preferred_affinity=reader.preferred("preferredAffinityTerms", near.preferred),
        preferred_anti_affinity=reader.preferred("preferredAntiAffinityTerms", far.preferred),
        error=reader.error,
    )


class _Reader:
    """Parses a pod's terms and collects their errors, with kube-scheduler's texts."""

    def __init__(self, namespace: str) -> None:
        self._namespace: Final = namespace
        self._errors: Final[list[str]] = []

    @property
    def error(self) -> str:
        text = ", ".join(dict.fromkeys(self._errors))
        return f"[{text}]" if len(set(self._errors)) > 1 else text

    def required(
        self, name: str, terms: Iterable[PodAffinityTerm] | None
    ) -> tuple[AffinityTerm, ...]:
        try:
            return tuple(parse_term(term, self._namespace) for term in terms or ())
        except SelectorError as error:
            self._errors.append(f"{name}: {error}")
            return ()

    def preferred(
        self, name: str, terms: Iterable[WeightedPodAffinityTerm] | None
    ) -> WeightedTerms:
        terms = tuple(terms or ())
        parsed = self.required(name, [term.pod_affinity_term for term in terms])
        return tuple((one, term.weight) for one, term in zip(parsed, terms, strict=False))


# ---------------------------------------------------------------- what the pods on rows say


class TermKind(enum.Enum):
    """The kind of a term."""

    REQUIRED_AFFINITY = enum.auto()
    REQUIRED_ANTI_AFFINITY = enum.auto()
    PREFERRED_AFFINITY = enum.auto()
    PREFERRED_ANTI_AFFINITY = enum.auto()


class ExistingTerm(SparseColumn):
    """A term of pods on rows, and the number of its pods per row. ``weight`` is 0 for required terms."""

    __slots__ = ("_sums", "kind", "term", "weight")

    def __init__(self, kind: TermKind, term: AffinityTerm, weight: int, capacity: int) -> None:
        super().__init__(capacity)
        self._sums: Final = DomainSums()
        self.kind: Final = kind
        self.term: Final = term
        self.weight: Final = weight

    def add(self, row: int, amount: int) -> None:
        super().add(row, amount)
        self._sums.add(row, amount)

    def by_domain(self, column: LabelColumn) -> npt.NDArray[np.int64]:
        """int64[len(column.values)], a fresh array: the number of pods by code of a label column; 0 for MISSING."""
        return self._sums.of(column, self.column)

    @property
    def key(self) -> tuple[TermKind, AffinityTerm, int]:
        """The identity of the term."""
        return self.kind, self.term, self.weight


class _MatchingTerms(msgspec.Struct, frozen=True):
    """The terms of pods on rows that select a given pod."""

    required_anti_affinity: tuple[ExistingTerm, ...]
    #: The terms that are scored: required affinity, preferred affinity and preferred anti-affinity.
    scoring: tuple[ExistingTerm, ...]


class _Carrier:
    """The pods on rows with one template in one namespace: their terms, one entry per term of the pod."""

    __slots__ = ("pods", "terms")

    def __init__(self, terms: tuple[ExistingTerm, ...]) -> None:
        self.terms: Final = terms
        self.pods = 0


class Terms:
    """The terms of all pods on rows (a PodIndex), and the parsed terms of any pod."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        #: The number of pods with terms that came or went.
        self.changes = 0
        self._carriers: dict[tuple[PodTemplate, str], _Carrier] = {}
        self._terms: dict[tuple[TermKind, AffinityTerm, int], ExistingTerm] = {}
        self._index: SelectorIndex[ExistingTerm] = SelectorIndex()
        self._parsed: Final[WeakCache[PodTemplate, str, PodTerms]] = WeakCache()
        #: By labels and namespace of pods.
        self._matching: Final[WeakCache[LabelSet, str, tuple[Labels, _MatchingTerms]]] = WeakCache()

    def __len__(self) -> int:
        return len(self._terms)

    def of(self, pod: Pod) -> PodTerms:
        """The parsed terms of a pod, on a row or not."""
        if not pod.template.has_affinity:
            return _NO_TERMS
        return self._parsed.get(pod.template, pod.namespace) or self._parsed.put(
            pod.template, pod.namespace, parse_terms(pod.spec.affinity, pod.namespace)
        )

    def matching(self, pod: Pod, namespace_labels: Labels) -> _MatchingTerms:
        """The terms of pods on rows that select ``pod``, whose namespace has these labels."""
        known = self._matching.get(pod.labels, pod.namespace)
        if known is None or known[0] != namespace_labels:
            matching = self._find(pod.namespace, namespace_labels, pod.labels)
            known = self._matching.put(pod.labels, pod.namespace, (namespace_labels, matching))
        return known[1]

    def _find(self, namespace: str, namespace_labels: Labels, labels: Labels) -> _MatchingTerms:
        anti: list[ExistingTerm] = []
        scoring: list[ExistingTerm] = []
        for one in self._index.candidates(namespace, labels):
            if one.term.matches(namespace, namespace_labels, labels):
                (anti if one.kind is TermKind.REQUIRED_ANTI_AFFINITY else scoring).append(one)
        return _MatchingTerms(tuple(anti), tuple(scoring))

    # ------------------------------------------------------------ pods that come and go

    def add(self, pod: Pod, row: int) -> None:
        """Adds the terms of a pod on a row."""
        if not pod.template.has_affinity:
            return
        self.changes += 1
        key = (pod.template, pod.namespace)
        carrier = self._carriers.get(key)
        if carrier is None:
            carrier = self._carriers[key] = _Carrier(self._existing(self.of(pod)))
        carrier.pods += 1
        for term in carrier.terms:
            term.add(row, 1)

    def remove(self, pod: Pod, row: int) -> None:
        """Removes the terms of a pod from a row; they must have been added."""
        if not pod.template.has_affinity:
            return
        self.changes += 1
        key = (pod.template, pod.namespace)
        carrier = self._carriers[key]
        carrier.pods -= 1
        for term in carrier.terms:
            term.add(row, -1)
        if not carrier.pods:
            del self._carriers[key]
            for term in dict.fromkeys(carrier.terms):
                self._drop_if_unused(term)

    def grow(self, capacity: int) -> None:
        """Makes room for more rows."""
        self._capacity = capacity
        for term in self._terms.values():
            term.grow(capacity)

    def _existing(self, terms: PodTerms) -> tuple[ExistingTerm, ...]:
        lists: Mapping[TermKind, Iterable[tuple[AffinityTerm, int]]] = {
            TermKind.REQUIRED_AFFINITY: ((t, 0) for t in terms.required_affinity),
            TermKind.REQUIRED_ANTI_AFFINITY: ((t, 0) for t in terms.required_anti_affinity),
            TermKind.PREFERRED_AFFINITY: terms.preferred_affinity,
            TermKind.PREFERRED_ANTI_AFFINITY: terms.preferred_anti_affinity,
        }
        return tuple(
            self._intern(kind, term, weight)
            for kind, pairs in lists.items()
            for term, weight in pairs
        )

    def _intern(self, kind: TermKind, term: AffinityTerm, weight: int) -> ExistingTerm:
        known = self._terms.get((kind, term, weight))
        if known is None:
            known = ExistingTerm(kind, term, weight, self._capacity)
            self._terms[known.key] = known
            self._index.add(known, term.scope)
            self._matching.clear()
        return known

    def _drop_if_unused(self, term: ExistingTerm) -> None:
        if not term.used:
            del self._terms[term.key]
            self._index.remove(term)
            self._matching.clear()
