"""Reports the outcome of an attempt as an API event and the PodScheduled condition.

See docs/spec/cycle.md#failed-attempts.
"""

from collections.abc import Callable
from typing import Final

from app.model.pod import Pod
from app.observe.pod_events import PodEvents
from app.scheduler.status_patches import StatusPatch, StatusPatcher


class Reports:
    """Reports outcomes; ``now`` is in seconds since the epoch."""

    def __init__(
        self,
        events: PodEvents,
        patcher: StatusPatcher,
        told_already: Callable[[str], bool] = lambda _message: False,
    ) -> None:
        """``told_already``: whether an event of another pod has said what this message of an attempt says."""
        self._events: Final = events
        self._told_already: Final = told_already
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
        if not self._told_already(message):
            self._failed_event(pod, message, now)
        self._patcher.put(pod, StatusPatch(reason, message, nominated_node), now)

    def skipped_deleting(self, pod: Pod, now: float) -> None:
        """A pod that is being deleted was popped and is not tried."""
        self._failed_event(pod, f"skip schedule deleting pod: {pod.key}", now)

    def nominated(self, pod: Pod, node_name: str, now: float) -> None:
        """The pod will be bound to this node once Permit and PreBind are done; "": its nomination is cleared."""
        self._patcher.put(pod, StatusPatch(nominated_node=node_name), now)

    async def withdraw(self, pod: Pod) -> None:
        """Drops the pod's patches, because it is about to be bound; returns when none is being written."""
        await self._patcher.withdraw(pod)

    def _failed_event(self, pod: Pod, message: str, now: float) -> None:
        self._events.pod_event(
            pod,
            kind="Warning",
            reason="FailedScheduling",
            action="Scheduling",
            note=message,
            now=now,
        )
