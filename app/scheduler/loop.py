"""The scheduling loop: pops pods, chooses their nodes, and starts the binding cycles.

Without extenders an attempt is one synchronous step, unless a long search for devices pauses, and pods are tried
strictly in queue order. With extenders up to ``parallelism`` attempts wait for webhooks at the same time, and each
chooses from the node table as it is when its last answer has arrived (docs/architecture.md, "Cycles overlap and decide
late").
"""

import asyncio
import functools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from app.cycle.attempt import Attempt, Choice
from app.cycle.pod_cycle import Gone, Outcome, Placed, Preempt, Rejected, schedule, take
from app.framework.runner import Framework
from app.model.clock import Clock
from app.model.pod_groups import GroupKey
from app.model.status import Code
from app.observe.events import AttemptStarted, NodeSelected
from app.runtime import logs
from app.runtime.tasks import Limiter, TimeSlice
from app.scheduler.binding import Binder
from app.scheduler.driving import awaited, drive
from app.scheduler.extender_cycle import Choose, ExtenderCycle
from app.scheduler.failures import GONE, FailureHandler
from app.scheduler.group_cycle import GroupCycle
from app.scheduler.parts import Parts
from app.scheduler.shadow_extenders import ShadowExtenders
from app.scheduler.slots import Slots, Work
from app.state.queue.active_queue import Admits
from app.state.queue.queued_pod import QueuedPod
from app.state.scheduler_state import SchedulerState

if TYPE_CHECKING:
    from app.scheduler.recording import Recorder

log = logging.getLogger(__name__)


class SchedulingLoop:
    """Tries one pod after another while this process leads."""

    def __init__(
        self,
        parts: Parts,
        pods: "PodCycle",
        *,
        groups: GroupCycle | None = None,
        extenders: ExtenderCycle | None,
        parallelism: int,
        limits: Sequence[Limiter],
        active: asyncio.Event | None = None,
    ) -> None:
        """``parallelism``: attempts that may wait for extenders at the same time. No attempt starts beyond any of
        ``limits``. ``active`` is set when a pod may have entered the activeQ, as by ``wake``.
        """
        self._state: Final = parts.state
        self._pods: Final = pods
        self._groups: Final = groups
        self._extenders: Final = extenders
        self._clock: Final = parts.clock
        self._limits: Final = limits
        self._in_order: Final = parallelism == 1
        self._slots: Final = Slots(
            parallelism,
            more=self._next_to_ask,
            freed=self.wake,
            clock=parts.clock,
            spawn=parts.spawn,
        )
        self._wake: Final = asyncio.Event() if active is None else active
        #: Set once every pod that was there has been tried.
        self.caught_up: Final = asyncio.Event()
        self._running = False

    @property
    def has_waiting(self) -> bool:
        """Whether it schedules, and pods wait for it."""
        return self._running and self._state.ready

    def wake(self) -> None:
        """A pod may have entered the activeQ, or a pod there need not wait any longer."""
        if self._slots.has_room or not self._state.queue.all_in_lanes:
            self._wake.set()  # else all pods wait for a slot, and the next one that is free wakes the loop

    async def run(self) -> None:
        """Schedules until cancelled."""
        self._running = True
        try:
            await self._run()
        finally:
            self._running = False

    async def _run(self) -> None:
        turn = TimeSlice(self._clock)
        while True:
            for limit in self._limits:
                await limit.wait_for_room()
            queued = self._pop()
            if queued is None:
                self.caught_up.set()
                self._wake.clear()
                await self._wake.wait()
                turn.begin()
                continue
            await self._take(queued)
            await turn.pause()

    async def settle(self) -> None:
        """Schedules until no pod is active and none waits for extenders; instead of ``run``."""
        self._running = True
        try:
            while True:
                for limit in self._limits:
                    await limit.wait_for_room()
                self._wake.clear()
                queued = self._pop()
                if queued is not None:
                    await self._take(queued)
                elif self._slots.idle:
                    return
                else:
                    await self._wake.wait()
        finally:
            self._running = False

    def _pop(self) -> QueuedPod | None:
        """The first pod that need not wait for an extender or a slot; with a single slot all pods wait, to keep their
        order.
        """
        room = self._slots.has_room
        if self._in_order and not room:
            return None
        return self._state.pop(self._clock.steady(), self._gate(room=room))

    async def _take(self, queued: QueuedPod) -> None:
        groups = self._groups
        group = None if groups is None else groups.group_of(queued.pod)
        if groups is not None and group is not None:
            await self._take_group(groups, group, queued)
            return
        attempt = self._pods.attempt(queued)
        if attempt is None:
            return
        choose = None
        if self._extenders is not None and queued.lane:
            choose = self._extenders.begin(queued.lane)
        work = self._pods.schedule(queued, attempt, choose)
        if choose is not None:
            await self._slots.start(work, f"schedule {queued.pod.key} and those that follow")
        elif (preemption := await work) is not None:
            await self._slots.start(preemption, f"preempt for {queued.pod.key}")

    async def _take_group(self, groups: GroupCycle, group: GroupKey, first: QueuedPod) -> None:
        pods = groups.pop(first, group)
        work = groups.schedule(group, pods, self._pods.attempt, self._slots)
        if groups.asks_extenders(pods):
            await self._slots.start(work, f"schedule pod group {group.namespace}/{group.name}")
        else:
            await work

    def _gate(self, *, room: bool) -> Admits | None:
        """Which lanes of the activeQ are open now; None for all."""
        return None if self._extenders is None else self._extenders.gate(room=room)

    def _next_to_ask(self) -> Work | None:
        """An attempt for the next pod, which is popped.

        None if there is no pod, if no extender concerns it, or if a limit is reached.
        """
        while self._extenders is not None and self._running:
            for limit in self._limits:
                if not limit.has_room:
                    return None
            gate = self._extenders.gate(room=True)
            queued = self._state.peek(gate)
            if (
                queued is None
                or not queued.lane
                or (self._groups is not None and self._groups.group_of(queued.pod) is not None)
            ):
                return None
            again = None if gate is None else self._extenders.gate(room=True)
            self._state.pop(self._clock.steady(), again)
            attempt = self._pods.attempt(queued)
            if attempt is not None:
                choose = self._extenders.begin(queued.lane)
                return self._pods.schedule(queued, attempt, choose)
        return None


class PodCycle:
    """Runs the cycles of single pods (app.cycle.pod_cycle), and does what follows from their outcomes."""

    def __init__(
        self,
        parts: Parts,
        frameworks: Mapping[str, Framework],
        *,
        binder: Binder,
        failures: FailureHandler,
        extenders: ExtenderCycle | None,
        asking: np.random.Generator | None = None,
        shadows: ShadowExtenders | None = None,
        recorder: "Recorder | None" = None,
    ) -> None:
        """``asking``: from which attempts that ask extenders draw, so that they do not change the draws of others."""
        self._state: Final = parts.state
        self._frameworks: Final = frameworks
        self._binder: Final = binder
        self._failures: Final = failures
        self._extenders: Final = extenders
        self._shadows: Final = shadows
        self._emit: Final = parts.sink
        self._clock: Final = parts.clock
        self._rng: Final = parts.rng
        self._asking: Final = parts.rng if asking is None else asking
        self._recorder: Final = recorder

    def attempt(self, queued: QueuedPod) -> Attempt | None:
        """An attempt for a popped pod; None if the pod must not be tried."""
        pod = queued.pod
        rng = self._asking if queued.lane else self._rng
        attempt = take(self._state, self._frameworks, queued, rng)
        if attempt is not None:
            if logs.enabled(3):
                logs.info(log, "Attempting to schedule pod", v=3, pod=pod.key)
        elif pod.terminating:
            self._failures.skipped_deleting(pod)
        return attempt

    async def schedule(
        self, queued: QueuedPod, attempt: Attempt, choose: Choose | None
    ) -> Work | None:
        """Tries a pod. ``choose`` asks extenders; None if the pod concerns none.

        Returns a preemption that asks extenders and for which other pods must not wait, if there is one to be run.
        """
        started = self._clock.monotonic()
        profile = attempt.framework.profile_name
        if choose is not None or (
            self._extenders is not None and self._extenders.calls_otherwise(queued.pod)
        ):
            self._emit(AttemptStarted(queued, profile))

        chosen = functools.partial(self._chosen, queued, attempt, started)
        extenders = None if choose is None else functools.partial(awaited, choose)
        steps = schedule(
            self._state, queued, attempt, started=started, chosen=chosen, extenders=extenders
        )
        outcome = await drive(steps)
        if not isinstance(outcome, Preempt):
            self._settle(queued, profile, outcome, started)
        elif choose is None and self._failures.asks_about_victims(attempt.pod):
            before = self._state.changes
            return self._preempt_later(queued, attempt, outcome, started, chosen, before)
        else:
            self._note_unfit(queued, outcome)
            await self._failures.unfit(queued, attempt, outcome.diagnosis, started)
        return None

    async def _preempt_later(
        self,
        queued: QueuedPod,
        attempt: Attempt,
        outcome: Outcome,
        started: float,
        chosen: Callable[[Choice], None],
        before: tuple[int, ...],
    ) -> None:
        """Runs a preemption. If anything has changed since the pod was rejected, its whole cycle is run again before.

        Its plugins know nodes and pods as they were then, but the victims would be chosen as things are now.
        """
        if self._state.changes != before:
            steps = schedule(self._state, queued, attempt, started=started, chosen=chosen)
            outcome = await drive(steps)
        if isinstance(outcome, Preempt):
            self._note_unfit(queued, outcome)
            await self._failures.unfit(queued, attempt, outcome.diagnosis, started)
        else:
            self._settle(queued, attempt.framework.profile_name, outcome, started)

    def _note_unfit(self, queued: QueuedPod, outcome: Preempt) -> None:
        if self._recorder is not None:
            self._recorder.unfit(queued, outcome.diagnosis)

    def _settle(self, queued: QueuedPod, profile: str, outcome: Outcome, started: float) -> None:
        match outcome:
            case Placed(assumed, waits):
                self._binder.start(assumed, waits)
            case Rejected():
                if self._recorder is not None:
                    self._recorder.rejected(queued, outcome.status.message)
                self._rejected(queued, profile, outcome, started)
            case Gone(pod):
                self._failures.given_up(pod, GONE)

    def _rejected(
        self, queued: QueuedPod, profile: str, rejected: Rejected, started: float
    ) -> None:
        status, assumed, fault = rejected.status, rejected.assumed, rejected.fault
        if fault is not None:
            step = "scheduling" if assumed is None else "in Reserve or Permit for"
            log.error("Error %s pod %s", step, queued.pod.key, exc_info=fault)
        if assumed is not None:
            self._failures.undo(assumed, status)
        elif status.code is Code.Error:
            self._failures.error(queued, profile, status.message, started=started)
        else:
            self._failures.no_nodes(queued, profile, started=started)

    def _chosen(self, queued: QueuedPod, attempt: Attempt, started: float, choice: Choice) -> None:
        self._emit(
            NodeSelected(
                queued,
                attempt.framework.profile_name,
                choice.node_name,
                choice.feasible,
                choice.evaluated,
                self._clock.monotonic() - started,
                attempt.scores,
                attempt.ties,
            )
        )
        if self._shadows is not None:
            self._shadows.placed(queued, attempt, choice)


class QueueFlusher:
    """Moves pods to the activeQ when their backoff has ended or they have waited too long, and wakes the loop."""

    def __init__(self, state: SchedulerState, clock: Clock, wake: Callable[[], None]) -> None:
        """``wake`` is called when the activeQ may have pods."""
        self._state: Final = state
        self._clock: Final = clock
        self._wake: Final = wake
        self._sooner: Final = asyncio.Event()
        #: When the next pod is due, by the steady clock.
        self._at = math.inf

    def notify(self) -> None:
        """The queue changed: pods may be active, or due earlier (SchedulerState calls this)."""
        if self._state.ready:
            self._wake()
        due = self._state.next_flush_time(self._clock.steady())
        if due is not None and due < self._at:
            self._sooner.set()

    async def run(self) -> None:
        """Flushes until cancelled."""
        while True:
            await self._wait_until_due()
            if self._state.flush(self._clock.steady()):
                self._wake()
            await asyncio.sleep(0)

    async def _wait_until_due(self) -> None:
        while True:
            self._sooner.clear()
            now = self._clock.steady()
            due = self._state.next_flush_time(now)
            self._at = math.inf if due is None else due
            if due is not None and due <= now:
                return
            try:
                async with asyncio.timeout(None if due is None else due - now + 0.001):
                    await self._sooner.wait()
            except TimeoutError:
                return
