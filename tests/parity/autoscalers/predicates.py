"""What autoscalers conclude from a pod: functions of our own after the sources of Karpenter and Cluster Autoscaler
(August 2026).

Both look at nothing but the pod as the API server has it. What they conclude is all that a scheduler can do to them.
"""

from collections.abc import Container, Mapping
from typing import Any, Final

Pod = Mapping[str, Any]

#: Cluster Autoscaler's --expendable-pods-priority-cutoff: nothing is added for pods below it.
CUTOFF: Final = -10


def karpenter_provisions(pod: Pod) -> bool:
    """Whether Karpenter looks for a node for the pod (``IsProvisionable``)."""
    condition = _scheduled(pod)
    return (
        condition.get("reason") == "Unschedulable"
        and not pod["spec"].get("nodeName")
        and not pod["status"].get("nominatedNodeName")
        and not _owned(pod, ("apps/v1", "DaemonSet"), ("v1", "Node"))
    )


def cluster_autoscaler(pod: Pod, bypassed: Container[str] = ()) -> str:
    """What Cluster Autoscaler does about the pod.

    ``placed``: it counts on its node, or on the nominated one. ``scale up``: it is tried on new nodes. ``nothing``: the
    pod is ignored. ``bypassed``: names of schedulers whose pods are taken before the scheduler has looked at them
    (--bypassed-scheduler-names).
    """
    if pod["spec"].get("nodeName"):
        return "placed"
    if not (_unschedulable(pod) or _unprocessed(pod, bypassed)):
        return "nothing"
    if pod["spec"].get("priority", 0) < CUTOFF or _owned(pod, ("apps/v1", "DaemonSet")):
        return "nothing"
    return "placed" if pod["status"].get("nominatedNodeName") else "scale up"


def _unschedulable(pod: Pod) -> bool:
    condition = _scheduled(pod)
    said = condition.get("status"), condition.get("reason")
    return said == ("False", "Unschedulable") and "deletionTimestamp" not in pod["metadata"]


def _unprocessed(pod: Pod, bypassed: Container[str]) -> bool:
    if pod["spec"].get("schedulerName") not in bypassed or "deletionTimestamp" in pod["metadata"]:
        return False
    condition = _scheduled(pod)
    return not condition or (condition["status"], condition.get("reason", "")) == ("False", "")


def _scheduled(pod: Pod) -> Mapping[str, str]:
    """The condition PodScheduled; empty if there is none."""
    conditions = pod["status"].get("conditions") or ()
    return next((each for each in conditions if each["type"] == "PodScheduled"), {})


def _owned(pod: Pod, *owners: tuple[str, str]) -> bool:
    found = pod["metadata"].get("ownerReferences") or ()
    return any((each["apiVersion"], each["kind"]) in owners for each in found)
