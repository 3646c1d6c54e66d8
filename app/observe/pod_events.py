"""Records API events about pods (docs/spec/cycle.md#failed-attempts)."""

from typing import Final

from app.kube.event_series import ObjectRef
from app.kube.events import EventRecorder
from app.model.pod import Pod

UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"


class PodEvents:
    """Records events about pods with an EventRecorder."""

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
        related: ObjectRef | None = None,
    ) -> None:
        """Records one event, reported by this scheduler name, else by the pod's own; ``now`` in seconds since the
        epoch.
        """
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
            reporting_controller=reporter or pod.template.spec.scheduler_name,
            now=now,
            related=related,
        )
