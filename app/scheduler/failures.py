"""Handles failed attempts and bindings: undoes what was done, requeues the pod, reports the failure.

See docs/spec/cycle.md#failed-attempts.
"""

import logging
from collections.abc import Callable
from typing import Final

from app.cycle.attempt import NO_NODES, Attempt
from app.cycle.pod_cycle import AssumedPod
from app.framework.diagnosis import Diagnosis
from app.framework.handle import Effects
from app.model.pod import Pod
from app.model.status import Code, Status
from app.observe.events import AttemptFailed
from app.observe.pod_events import SCHEDULER_ERROR, UNSCHEDULABLE
from app.scheduler.parts import Parts
from app.scheduler.reports import Reports
from app.state.queue.queued_pod import QueuedPod

log = logging.getLogger(__name__)

#: Why a placement is given up if the pod needs none any longer.
GONE: Final = "the pod is gone"


class FailureHandler:
    """Gives pods back to the queue, with an event and a condition; ``started`` is always monotonic, in seconds."""

    def __init__(
        self,
        parts: Parts,
        effects: Effects,
        reports: Reports,
        given_up: Callable[[Pod, str], None] = lambda _pod, _reason: None,
    ) -> None:
        """``given_up`` is called with a pod that will not be bound to the node chosen for it, and why."""
        self._state: Final = parts.state
        self._effects: Final = effects
        self._reports: Final = reports
        self.given_up: Final = given_up
        self._emit: Final = parts.sink
        self._clock: Final = parts.clock
        #: How many times a pod was requeued because no node takes it.
        self.rejections = 0

    def skipped_deleting(self, pod: Pod) -> None:
        """A pod that is being deleted was popped."""
        self._reports.skipped_deleting(pod, self._clock.wall())

    def asks_about_victims(self, pod: Pod) -> bool:
        """Whether a preemption for the pod calls extenders."""
        return self._effects.asks_about_victims(pod)

    async def unfit(
        self, queued: QueuedPod, attempt: Attempt, diagnosis: Diagnosis, started: float
    ) -> None:
        """No node is feasible: runs the PostFilter plugins, then requeues the pod."""
        message, nominated = await self.post_filter(attempt, diagnosis, self._effects)
        profile = attempt.framework.profile_name
        self.requeue(queued, profile, message, started, diagnosis, nominated_node=nominated)

    async def post_filter(
        self, attempt: Attempt, diagnosis: Diagnosis, effects: Effects
    ) -> tuple[str, str | None]:
        """Runs the PostFilter plugins. Returns the message of the failed attempt, and the nomination as for
        ``requeue``."""
        try:
            result = await attempt.framework.commit.post_filter(
                attempt.state, attempt.pod, diagnosis, effects
            )
        except Exception as error:
            log.exception("Error in PostFilter for pod %s", attempt.pod.key)
            return diagnosis.message(f"{type(error).__name__}: {error}"), None
        if result is None:
            return diagnosis.message(), ""
        return diagnosis.message(result.status.message), result.nominated_node

    def no_nodes(self, queued: QueuedPod, profile: str, *, started: float) -> None:
        """The cluster has no nodes."""
        self.requeue(queued, profile, NO_NODES, started, None)

    def error(self, queued: QueuedPod, profile: str, message: str, *, started: float) -> None:
        """The attempt ended with an error, not with a rejection."""
        self.requeue(queued, profile, message, started, None, reason=SCHEDULER_ERROR)

    def take_back(self, assumed: AssumedPod, reason: str, *, tell: bool = True) -> Pod:
        """Unreserves and forgets an assumed pod, and tells extenders. Returns the version that was counted."""
        pod = assumed.pod
        try:
            assumed.framework.commit.unreserve(assumed.cycle_state, pod, pod.node_name)
        except Exception:
            log.exception("Error in Unreserve for pod %s", pod.key)
        if tell:
            self.given_up(pod, reason)
        return self._state.forget(pod)

    def undo(self, assumed: AssumedPod, status: Status) -> None:
        """A pod with a chosen node cannot be bound: unreserves, forgets the assumed pod, wakes other pods, requeues it.

        A rejection is reported as if the node were the only one; an error as it is.
        """
        pod, profile = assumed.pod, assumed.framework.profile_name
        counted = self.take_back(assumed, status.message)
        if not status.code.rejected:
            self._state.freed(counted, self._clock.steady())
            self.error(assumed.queued, profile, status.message, started=assumed.started)
            return
        diagnosis = Diagnosis(node_count=1, absent=status)
        if status.code is Code.Pending:
            diagnosis.pending_plugins.add(status.plugin)
        else:
            diagnosis.unschedulable_plugins.add(status.plugin)
        self.requeue(assumed.queued, profile, diagnosis.message(), assumed.started, diagnosis)
        self._state.freed(counted, self._clock.steady(), but=(pod.uid,))

    def requeue(
        self,
        queued: QueuedPod,
        profile: str,
        message: str,
        started: float,
        diagnosis: Diagnosis | None,
        *,
        reason: str = UNSCHEDULABLE,
        nominated_node: str | None = "",
    ) -> None:
        """Requeues a pod, sets its nomination ("" clears it, None keeps it), and reports."""
        if diagnosis is None:
            queued.reject((), ())
        else:
            self.rejections += 1
            queued.reject(diagnosis.unschedulable_plugins, diagnosis.pending_plugins)
        failure = self._state.fail(queued, self._clock.steady(), nominated_node=nominated_node)
        result = "unschedulable" if reason == UNSCHEDULABLE else "error"
        seconds = self._clock.monotonic() - started
        nominated_node = failure.nominated_node
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
