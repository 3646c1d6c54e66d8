"""What becomes of a pod whose attempt or binding failed: undone, told, and given back to the queue.

See docs/spec/cycle.md#failed-attempts.
"""

import logging
from typing import Final

from app.framework.diagnosis import Diagnosis
from app.model.pod import Pod
from app.model.status import Code, Status
from app.observe.events import AttemptFailed
from app.observe.pod_events import SCHEDULER_ERROR, UNSCHEDULABLE
from app.scheduler.binding import Decided
from app.scheduler.parts import Parts
from app.scheduler.reports import Reports
from app.state.queue.queued_pod import QueuedPod

log = logging.getLogger(__name__)


class FailureHandler:
    """Takes back what was decided and gives pods back to the queue, with event and condition."""

    def __init__(
        self,
        parts: Parts,
        reports: Reports,
    ) -> None:
        self._state: Final = parts.state
        self._reports: Final = reports
        self._emit: Final = parts.sink
        self._clock: Final = parts.clock

    def skipped_deleting(self, pod: Pod) -> None:
        """A pod that is being deleted was popped."""
        self._reports.skipped_deleting(pod, self._clock.wall())

    def error(self, queued: QueuedPod, profile: str, message: str, *, started: float) -> None:
        """The attempt ended in a fault."""
        self.give_back(
            queued,
            profile,
            reason=SCHEDULER_ERROR,
            message=message,
            nominated_node="",
            started=started,
        )

    def undo(self, decided: Decided, status: Status) -> None:
        """A decided pod cannot be bound: gives back what was reserved, forgets the pod, wakes others, requeues it.

        A rejection is reported like one by the only node there was; a fault as it is.
        """
        pod = decided.assumed
        try:
            decided.framework.unreserve(decided.cycle_state, pod, pod.node_name)
        except Exception:
            log.exception("Error in Unreserve for pod %s", pod.key)
        self._state.forget(pod)
        if not status.code.rejected:
            self._state.freed(pod, self._clock.steady())
            self.error(
                decided.queued,
                decided.framework.profile_name,
                status.message,
                started=decided.started,
            )
            return
        diagnosis = Diagnosis(node_count=1, absent=status)
        pending = {status.plugin} if status.code is Code.Pending else set()
        self.give_back(
            decided.queued,
            decided.framework.profile_name,
            reason=UNSCHEDULABLE,
            message=diagnosis.message(),
            plugins={status.plugin} - pending,
            pending=pending,
            diagnosis=diagnosis,
            nominated_node="",
            started=decided.started,
        )
        self._state.freed(pod, self._clock.steady(), but=pod.uid)

    def give_back(
        self,
        queued: QueuedPod,
        profile: str,
        *,
        reason: str,
        message: str,
        plugins: set[str] | None = None,
        pending: set[str] | None = None,
        diagnosis: Diagnosis | None = None,
        nominated_node: str | None,
        started: float,
    ) -> None:
        """Requeues a pod, keeps or changes its nomination, and reports."""
        queued.reject(plugins or (), pending or ())
        failure = self._state.fail(queued, self._clock.steady(), nominated_node=nominated_node)
        result = "unschedulable" if reason == UNSCHEDULABLE else "error"
        seconds = self._clock.monotonic() - started
        self._emit(
            AttemptFailed(queued, profile, result, message, seconds, diagnosis, nominated_node)
        )
        if failure.report:
            self._reports.failed(
                failure.pod,
                reason=reason,
                message=message,
                nominated_node=nominated_node,
                now=self._clock.wall(),
            )
