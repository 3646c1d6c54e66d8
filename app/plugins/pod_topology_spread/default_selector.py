"""The selector of default constraints, from the Services and the controller of a pod.

See docs/spec/plugins/pod-topology-spread.md#default-selector.
"""

from collections.abc import Mapping
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from app.model.objects import (
    Named,
    OwnerReference,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from app.model.pod import LabelSet, Pod
from app.model.selectors import Selector, SelectorError, compile_selector, from_map
from app.state.cluster import Cluster
from app.state.columns.selector_index import Scope, SelectorIndex

K = TypeVar("K")
V = TypeVar("V")

#: The number of label sets for which selectors are kept, and of selectors for each of them.
_MAX_KEPT: Final = 4096
_KINDS: Final[Mapping[tuple[str, str], type[Named]]] = {
    ("v1", "ReplicationController"): ReplicationController,
    ("apps/v1", "ReplicaSet"): ReplicaSet,
    ("apps/v1", "StatefulSet"): StatefulSet,
}


class DefaultSelectors:
    """The default selectors of pods; kept until the Services or the controller change."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: By labels of pods, and by namespace or owner.
        self._by_services: WeakKeyDictionary[
            LabelSet, dict[str, tuple[dict[str, str], Selector]]
        ] = WeakKeyDictionary()
        self._kept: WeakKeyDictionary[
            LabelSet, dict[tuple[str, OwnerReference], tuple[Named, Selector]]
        ] = WeakKeyDictionary()
        #: The names of the Services with a selector, by their scope.
        self._names: Final[SelectorIndex[tuple[str, str]]] = SelectorIndex()
        for known in cluster.services:
            self._service_changed(None, known)
        cluster.services.follow(self._service_changed)

    def _service_changed(self, old: Service | None, new: Service | None) -> None:
        self._by_services.clear()
        self._kept.clear()
        if old is not None and old.spec.selector:
            self._names.remove((old.namespace, old.name))
        if new is not None and new.spec.selector:
            scope = Scope(frozenset((new.namespace,)), from_map(new.spec.selector))
            self._names.add((new.namespace, new.name), scope)

    def of(self, pod: Pod) -> Selector:
        """The requirements of all Services that select the pod and of its controller; the empty selector if there are
        none."""
        controller = self._controller(pod)
        if pod.owner is None or controller is None:
            return self._services(pod)[1]
        key = (pod.namespace, pod.owner)
        by_owner = _entry(self._kept, pod.labels)
        kept = by_owner.get(key)
        if kept is None or kept[0] is not controller:
            kept = by_owner[key] = (controller, _merge(self._services(pod)[0], controller))
        return kept[1]

    def _services(self, pod: Pod) -> tuple[dict[str, str], Selector]:
        """The joint requirements of all Services that select the pod."""
        by_namespace = _entry(self._by_services, pod.labels)
        kept = by_namespace.get(pod.namespace)
        if kept is None:
            pairs: dict[str, str] = {}
            for namespace, name in self._names.candidates(pod.namespace, pod.labels):
                service = self._cluster.services.get(name, namespace)
                selector = None if service is None else service.spec.selector
                if selector is not None and selector.items() <= pod.labels.items():
                    pairs.update(selector)
            kept = by_namespace[pod.namespace] = (pairs, from_map(pairs))
        return kept

    def _controller(self, pod: Pod) -> Named | None:
        """The object of the controlling owner reference, if its kind has a selector."""
        kind = None if pod.owner is None else _KINDS.get((pod.owner.api_version, pod.owner.kind))
        if pod.owner is None or kind is None:
            return None
        return self._cluster.lister(kind).get(pod.owner.name, pod.namespace)


def _entry(kept: WeakKeyDictionary[LabelSet, dict[K, V]], labels: LabelSet) -> dict[K, V]:
    """The kept selectors for pods with these labels, below the limit."""
    entry = kept.get(labels)
    if entry is None:
        if len(kept) >= _MAX_KEPT:
            kept.clear()
        entry = kept[labels] = {}
    if len(entry) >= _MAX_KEPT:
        entry.clear()
    return entry


def _merge(services: dict[str, str], controller: Named) -> Selector:
    if isinstance(controller, ReplicationController):
        return from_map({**services, **(controller.spec.selector or {})})
    selector = from_map(services)
    if isinstance(controller, ReplicaSet | StatefulSet):
        try:
            own = compile_selector(controller.spec.selector)
        except SelectorError:
            return selector
        return Selector(tuple(sorted({*selector.requirements, *own.requirements})))
    return selector
