"""Whether a pod may preempt at all (docs/spec/preemption.md#eligibility)."""

from collections.abc import Iterable
from typing import Final

from app.model.pod import Pod

NEVER: Final = "not eligible due to preemptionPolicy=Never."
TERMINATING: Final = "not eligible due to a terminating pod on the nominated node."

_DISRUPTION_TARGET: Final = "DisruptionTarget"
#: Reason of the DisruptionTarget condition that a scheduler gives to its victims.
PREEMPTION_BY_SCHEDULER: Final = "PreemptionByScheduler"


def why_not(pod: Pod, on_nominated_node: Iterable[Pod]) -> str:
    """Why a pod may not preempt; empty if it may.

    ``on_nominated_node``: the pods on the node that is nominated for it already, none where preemption cannot help that node.
    """
    if pod.spec.preemption_policy == "Never":
        return NEVER
    if any(
        other.priority < pod.priority and _being_preempted(other) for other in on_nominated_node
    ):
        return TERMINATING
    return ""


def _being_preempted(pod: Pod) -> bool:
    """Whether a scheduler has evicted the pod and it is on its way out; the first condition of the type decides."""
    if not pod.terminating:
        return False
    condition = pod.condition(_DISRUPTION_TARGET)
    return (
        condition is not None
        and condition.status == "True"
        and condition.reason == PREEMPTION_BY_SCHEDULER
    )
