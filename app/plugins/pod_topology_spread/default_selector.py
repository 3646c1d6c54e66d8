"""The selector of default constraints: what the Services and the controller of a pod select.

See docs/spec/plugins/pod-topology-spread.md#default-selector.
"""

from collections.abc import Mapping
from typing import Final

from app.model.objects import (
    Named,
    OwnerReference,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
)
from app.model.pod import LabelSet, Pod
from app.model.selectors import Selector, SelectorError, compile_selector, from_map
from app.state.cluster import Cluster

_MAX_KEPT: Final = 4096
_KINDS: Final[Mapping[tuple[str, str], type[Named]]] = {
    ("v1", "ReplicationController"): ReplicationController,
    ("apps/v1", "ReplicaSet"): ReplicaSet,
    ("apps/v1", "StatefulSet"): StatefulSet,
}


class DefaultSelectors:
    """Selectors of pods by what selects them; answers are kept until the Services or the controller change."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._services_version = -1
        self._by_services: dict[tuple[str, LabelSet], tuple[dict[str, str], Selector]] = {}
        self._kept: dict[tuple[str, LabelSet, OwnerReference], tuple[Named, Selector]] = {}

    def of(self, pod: Pod) -> Selector:
        """Everything that Services in the pod's namespace and its controller select by; the empty selector if nothing."""
        if self._services_version != self._cluster.services.version:
            self._services_version = self._cluster.services.version
            self._by_services.clear()
            self._kept.clear()
        controller = self._controller(pod)
        if pod.owner is None or controller is None:
            return self._services(pod)[1]
        key = (pod.namespace, pod.labels, pod.owner)
        kept = self._kept.get(key)
        if kept is None or kept[0] is not controller:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            kept = self._kept[key] = (controller, _merge(self._services(pod)[0], controller))
        return kept[1]

    def _services(self, pod: Pod) -> tuple[dict[str, str], Selector]:
        """The selectors of all Services that select the pod, as one."""
        key = (pod.namespace, pod.labels)
        kept = self._by_services.get(key)
        if kept is None:
            pairs: dict[str, str] = {}
            for service in self._cluster.services.in_namespace(pod.namespace).values():
                selector = service.spec.selector
                if selector is not None and selector.items() <= pod.labels.items():
                    pairs.update(selector)
            if len(self._by_services) >= _MAX_KEPT:
                self._by_services.clear()
            kept = self._by_services[key] = (pairs, from_map(pairs))
        return kept

    def _controller(self, pod: Pod) -> Named | None:
        """The object that the controlling owner reference names, if it is of a kind that counts."""
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
