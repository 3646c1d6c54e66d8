"""The selector of default constraints, from the Services and the controller of a pod.

See docs/spec/plugins/pod-topology-spread.md#default-selector.
"""

from collections.abc import Mapping
from typing import Final

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
from app.state.weak_cache import WeakCache

_KINDS: Final[Mapping[tuple[str, str], type[Named]]] = {
    ("v1", "ReplicationController"): ReplicationController,
    ("apps/v1", "ReplicaSet"): ReplicaSet,
    ("apps/v1", "StatefulSet"): StatefulSet,
}


_NO_REQUIREMENTS: Final[tuple[dict[str, str], Selector]] = ({}, from_map({}))


class DefaultSelectors:
    """The default selectors of pods; kept until the Services or the controller change."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: By labels of pods, and by namespace or owner.
        self._by_services: Final[WeakCache[LabelSet, str, tuple[dict[str, str], Selector]]] = (
            WeakCache()
        )
        self._kept: Final[
            WeakCache[LabelSet, tuple[str, OwnerReference], tuple[Named, Selector]]
        ] = WeakCache()
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
        """The requirements of all Services that select the pod and of its controller; empty if there are none."""
        controller = self._controller(pod)
        if pod.owner is None or controller is None:
            return self._services(pod)[1]
        key = (pod.namespace, pod.owner)
        kept = self._kept.get(pod.labels, key)
        if kept is None or kept[0] is not controller:
            selector = _merge(self._services(pod)[0], controller)
            kept = self._kept.put(pod.labels, key, (controller, selector))
        return kept[1]

    def _services(self, pod: Pod) -> tuple[dict[str, str], Selector]:
        """The joint requirements of all Services that select the pod."""
        if not self._names:
            return _NO_REQUIREMENTS
        kept = self._by_services.get(pod.labels, pod.namespace)
        if kept is None:
            pairs: dict[str, str] = {}
            for namespace, name in self._names.candidates(pod.namespace, pod.labels):
                service = self._cluster.services.get(name, namespace)
                selector = None if service is None else service.spec.selector
                if selector is not None and selector.items() <= pod.labels.items():
                    pairs.update(selector)
            kept = self._by_services.put(pod.labels, pod.namespace, (pairs, from_map(pairs)))
        return kept

    def _controller(self, pod: Pod) -> Named | None:
        """The object of the controlling owner reference, if its kind has a selector."""
        kind = None if pod.owner is None else _KINDS.get((pod.owner.api_version, pod.owner.kind))
        if pod.owner is None or kind is None:
            return None
        return self._cluster.lister(kind).get(pod.owner.name, pod.namespace)


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
