"""ReplicaSets and ReplicationControllers: as many pods as ``spec.replicas`` says."""

from typing import Any, Final

from app.sim.controllers.workloads.plan import (
    BURST,
    Create,
    Delete,
    Plan,
    Scene,
    counted,
    is_active,
    is_ready,
)
from app.sim.controllers.workloads.templates import pod_of
from app.sim.objects import is_being_deleted, labels_of
from app.sim.resources.kinds import PODS
from app.sim.store import Object

_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"


def plan_replica_set(scene: Scene) -> Plan:
    """Creates missing pods, or deletes those that are surplus."""
    owner = scene.workload
    spec = owner["spec"]
    active = [pod for pod in scene.pods if is_active(pod)]
    missing = spec["replicas"] - len(active)
    counts = counted(active, spec.get("minReadySeconds", 0), scene.now)
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    status: Object = {
        "replicas": counts.replicas,
        "fullyLabeledReplicas": sum(_has_labels(pod, labels) for pod in active),
        "readyReplicas": counts.ready,
        "availableReplicas": counts.available,
        "terminatingReplicas": sum(is_being_deleted(pod) for pod in scene.pods),
        "observedGeneration": owner["metadata"].get("generation", 1),
    }
    plan = Plan(status, again=counts.soonest)
    if missing > 0:
        plan.actions += [Create(PODS, pod_of(owner)) for _ in range(min(missing, BURST))]
    elif missing < 0:
        surplus = sorted(active, key=_deletion_order)[: min(-missing, BURST)]
        plan.actions += [Delete(PODS, pod) for pod in surplus]
    return plan


def _has_labels(pod: Object, labels: dict[str, str]) -> bool:
    return labels.items() <= labels_of(pod).items()


def _deletion_order(pod: Object) -> tuple[Any, ...]:
    """Pods without a node go first, then pending ones, those that are not ready, cheap ones, and young ones."""
    cost = pod["metadata"].get("annotations", {}).get(_DELETION_COST, "0")
    return (
        bool(pod["spec"].get("nodeName")),
        pod["status"].get("phase") == "Running",
        is_ready(pod),
        int(cost) if cost.lstrip("-").isdecimal() else 0,
        _Reversed(pod["metadata"]["creationTimestamp"]),
        pod["metadata"]["name"],
    )


class _Reversed(str):
    """A text that sorts in the opposite order."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)
