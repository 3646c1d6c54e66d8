"""The terms of the incoming pod, with namespace selectors resolved to namespaces."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from typing import Final

import msgspec

from app.framework.classes import Counted
from app.model.objects import Namespace
from app.model.pod import Pod, PodTemplate
from app.model.selectors import Labels, Selector
from app.state.cluster import Cluster
from app.state.columns.families import PodCounter, PodFamilies
from app.state.columns.label_index import LabelIndex
from app.state.columns.selector_index import Scope
from app.state.columns.terms import AffinityTerm, ExistingTerm, PodTerms, Terms
from app.state.weak_cache import WeakCache


class IncomingTerm(msgspec.Struct, frozen=True):
    """A term that selects the pods in ``namespaces`` (None: any) that ``selector`` matches."""

    topology_key: str
    namespaces: frozenset[str] | None
    selector: Selector

    def matches(self, namespace: str, labels: Labels) -> bool:
        """Whether the term selects a pod with these labels in this namespace."""
        in_scope = self.namespaces is None or namespace in self.namespaces
        return in_scope and self.selector.matches(labels)

    @property
    def scope(self) -> Scope:
        """The pods that the term selects."""
        return Scope(self.namespaces, self.selector)


class Incoming(msgspec.Struct, frozen=True):
    """The terms of a pod. ``preferred``: with weights, negative for anti-affinity. ``error``: why they are invalid."""

    affinity: tuple[IncomingTerm, ...] = ()
    anti_affinity: tuple[IncomingTerm, ...] = ()
    preferred: tuple[tuple[IncomingTerm, int], ...] = ()
    error: str = ""

    def matches_all_affinity(self, namespace: str, labels: Labels) -> bool:
        """Whether all required affinity terms (at least one) select such a pod."""
        return all(t.matches(namespace, labels) for t in self.affinity)


#: Of pods without terms.
NOTHING: Final = Incoming()


class IncomingTerms:
    """The terms of pods for PreFilter and PreScore, computed once per template and namespace."""

    def __init__(self, terms: Terms, cluster: Cluster, *, once: bool = False) -> None:
        """``once``: whether namespace selectors are evaluated once only, as from Kubernetes 1.37 on."""
        self._terms = terms
        self._once: Final = once
        self._namespaces = cluster.namespaces
        #: The names of namespaces by their labels.
        self._by_label: Final[LabelIndex[str]] = LabelIndex()
        for known in cluster.namespaces:
            self._namespace_changed(None, known)
        cluster.namespaces.follow(self._namespace_changed)
        #: By template and namespace: the version of the namespaces on which the terms depend (None: none), and the
        #: terms.
        self._kept: Final[WeakCache[PodTemplate, str, tuple[int | None, Incoming]]] = WeakCache()

    def _namespace_changed(self, old: Namespace | None, new: Namespace | None) -> None:
        if old is not None:
            self._by_label.remove(old.name)
        if new is not None:
            self._by_label.add(new.name, new.labels)

    def of(self, pod: Pod) -> Incoming:
        """The pod's terms with the present namespaces."""
        if not pod.template.has_affinity:
            return NOTHING
        kept = self._kept.get(pod.template, pod.namespace)
        if kept is None or kept[0] not in {None, self._namespaces.version}:
            terms = self._terms.of(pod)
            weighted = (*terms.preferred_affinity, *terms.preferred_anti_affinity)
            every = (*terms.required_affinity, *terms.required_anti_affinity, *dict(weighted))
            selects = any(not term.namespace_selector.nothing for term in every)
            version = self._namespaces.version if selects else None
            kept = self._kept.put(pod.template, pod.namespace, (version, self._expand(terms)))
        return kept[1]

    def _expand(self, terms: PodTerms) -> Incoming:
        preferred = [
            *terms.preferred_affinity,
            *((term, -weight) for term, weight in terms.preferred_anti_affinity),
        ]
        return Incoming(
            affinity=tuple(map(self._expand_term, terms.required_affinity)),
            anti_affinity=tuple(map(self._expand_term, terms.required_anti_affinity)),
            preferred=tuple((self._expand_term(term), weight) for term, weight in preferred),
            error=terms.error,
        )

    def _expand_term(self, term: AffinityTerm) -> IncomingTerm:
        """Adds the namespaces that the namespace selector matches.

        kube-scheduler 1.36 keeps the selector after that and evaluates it for a namespace without labels. So a selector
        that matches empty labels, such as the empty one, selects the pods of every namespace, existing or not. From
        1.37 on only the empty one does.
        """
        selector = term.namespace_selector
        if selector.everything or (selector.matches({}) and not self._once):
            return IncomingTerm(term.topology_key, None, term.selector)
        labels = self._by_label.items
        candidates = self._by_label.within(selector)
        selected = [name for name in candidates if selector.matches(labels[name])]
        return IncomingTerm(term.topology_key, term.namespaces.union(selected), term.selector)


# ---------------------------------------------------------------- counters


def pods_selected_by(families: PodFamilies, term: IncomingTerm) -> PodCounter:
    """The counter of the pods that a term selects, terminating ones included."""
    key = ("InterPodAffinity", term.namespaces, term.selector)
    return families.counter(
        key, lambda ns, labels, _terminating: term.matches(ns, labels), within=term.scope
    )


def pods_selected_by_all(families: PodFamilies, incoming: Incoming) -> PodCounter:
    """The counter of the pods that all required affinity terms (at least one) select."""
    if len(incoming.affinity) == 1:
        return pods_selected_by(families, incoming.affinity[0])
    key = ("InterPodAffinity", *((t.namespaces, t.selector) for t in incoming.affinity))
    return families.counter(
        key,
        lambda ns, labels, _terminating: incoming.matches_all_affinity(ns, labels),
        within=incoming.affinity[0].scope,
    )


def counted_by_key(
    incoming: Incoming, existing: Iterable[ExistingTerm], families: PodFamilies
) -> Mapping[str, Mapping[Hashable, Counted]]:
    """By topology key, and by a name of its own: all that the verdicts and scores of terms count on each row."""
    found: defaultdict[str, dict[Hashable, Counted]] = defaultdict(dict)
    for term in (*incoming.anti_affinity, *(term for term, _ in incoming.preferred)):
        counter = pods_selected_by(families, term)
        found[term.topology_key][term] = _counter_of(counter)
    if incoming.affinity:
        counter = pods_selected_by_all(families, incoming)
        for term in incoming.affinity:
            found[term.topology_key][incoming.affinity] = _counter_of(counter)
    for other in existing:
        found[other.term.topology_key][other.key] = _terms_of(other)
    return found


def _counter_of(counter: PodCounter) -> Counted:
    return lambda view: view.counts(counter)


def _terms_of(term: ExistingTerm) -> Counted:
    return lambda view: term.at(view.at)
