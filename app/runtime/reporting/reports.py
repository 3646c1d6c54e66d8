"""What pods and people are told: events and the PodScheduled condition (spec: service.md 4.6 to 4.8)."""

from typing import Final, Protocol

from app.kube.event_series import ObjectRef
from app.kube.events import EventRecorder
from app.model.pod import Pod
from app.runtime.reporting.status_patches import StatusPatch, StatusPatcher

UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"


class PodEvents(Protocol):
    """Records events about pods; synchronous, cheap, never in the way."""

    def pod_event(
        self,
        pod: Pod,
        *,
        kind: str,
        reason: str,
        action: str,
        note: str,
        now: float,
        reporter: str = "",
    ) -> None:
        """Records one event, reported by this scheduler name, else by the pod's own."""


class PodEventRecorder:
    """PodEvents that an EventRecorder writes."""

    def __init__(self, events: EventRecorder) -> None:
        self._events: Final = events

    def pod_event(
        self,
        pod: Pod,
        *,
        kind: str,
        reason: str,
        action: str,
        note: str,
        now: float,
        reporter: str = "",
    ) -> None:
        """See PodEvents."""
        self._events.record(
            ObjectRef(
                kind="Pod",
                api_version="v1",
                name=pod.name,
                namespace=pod.namespace,
                uid=pod.uid,
                resource_version=pod.resource_version,
            ),
            type=kind,
            reason=reason,
            action=action,
            note=note,
            reporting_controller=reporter or pod.spec.scheduler_name,
            now=now,
        )


class Reports:
    """Turns outcomes into events and status patches."""

    def __init__(self, events: PodEvents, patcher: StatusPatcher) -> None:
        self._events: Final = events
        self._patcher: Final = patcher

    def scheduled(self, pod: Pod, now: float) -> None:
        """The pod is bound to ``pod.node_name``."""
        self._events.pod_event(
            pod,
            kind="Normal",
            reason="Scheduled",
            action="Binding",
            note=f"Successfully assigned {pod.key} to {pod.node_name}",
            now=now,
        )

    def failed(
        self, pod: Pod, *, reason: str, message: str, nominated_node: str | None, now: float
    ) -> None:
        """An attempt failed; ``reason`` is UNSCHEDULABLE or SCHEDULER_ERROR."""
        self._failed_event(pod, message, now)
        self._patcher.put(pod, StatusPatch(reason, message, nominated_node), now)

    def skipped_deleting(self, pod: Pod, now: float) -> None:
        """A pod that is being deleted was popped and left alone."""
        self._failed_event(pod, f"skip schedule deleting pod: {pod.key}", now)

    def nominated(self, pod: Pod, node_name: str, now: float) -> None:
        """The pod will be bound to this node once its volumes or permits are there."""
        self._patcher.put(pod, StatusPatch(nominated_node=node_name), now)

    async def withdraw(self, pod: Pod) -> None:
        """Returns when no condition and no nomination of the pod is being written or ever will be: it is about to be bound."""
        await self._patcher.withdraw(pod.uid)

    def _failed_event(self, pod: Pod, message: str, now: float) -> None:
        self._events.pod_event(
            pod,
            kind="Warning",
            reason="FailedScheduling",
            action="Scheduling",
            note=message,
            now=now,
        )
