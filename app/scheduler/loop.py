"""The scheduling loop: pops pods, decides, hands decided pods to their binding.

Without extenders a decision is one synchronous step and pods are decided strictly in queue order. With extenders up to
``parallelism`` attempts wait for webhooks at the same time, and each decides on the table as it is when its last answer
has come (docs/architecture.md, "Cycles overlap and decide late").
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Protocol

from app.framework.diagnosis import Diagnosis
from app.framework.interface import Effects
from app.framework.runner import Framework
from app.model.pod import Pod
from app.model.status import Code, SchedulingError, Status
from app.observe.events import AttemptStarted, NodeSelected
from app.observe.pod_events import UNSCHEDULABLE
from app.runtime import logs
from app.runtime.clock import Clock
from app.runtime.spawn import Spawn
from app.scheduler.attempt import Attempt, Choice, NoNodesError, Unfit
from app.scheduler.binding import Binder, Decided
from app.scheduler.extender_cycle import ExtenderCycle
from app.scheduler.failures import FailureHandler
from app.scheduler.parts import Parts
from app.state.cache import CacheError
from app.state.queue.active_queue import Admits
from app.state.queue.queued_pod import QueuedPod

Work = Coroutine[Any, Any, None]

#: For so long, in seconds, work may follow on work before the event loop gets its turn: not all work waits for something.
_LONGEST_TURN: Final = 0.01


class Slots:
    """Runs pieces of work, so many at a time, in the order in which they are given."""

    def __init__(
        self,
        number: int,
        *,
        more: Callable[[], Work | None],
        freed: Callable[[], None],
        clock: Clock,
        spawn: Spawn,
    ) -> None:
        """``more`` supplies the next piece when none waits for the slot; ``freed`` is called if there is none."""
        self._free = number
        self._more: Final = more
        self._freed: Final = freed
        self._clock: Final = clock
        self._spawn: Final = spawn
        self._waiting: Final[deque[tuple[Work, asyncio.Future[None]]]] = deque()
        #: When the event loop is to get its turn; None while nothing has followed on anything in this one.
        self._turn_ends: float | None = None

    @property
    def has_room(self) -> bool:
        """Whether work that is given now starts at once."""
        return self._free > 0

    async def start(self, work: Work, name: str) -> None:
        """Starts a piece of work as soon as there is a slot; returns when it is started. ``name``: of the task, for logs."""
        if self._free:
            self._free -= 1
            self._spawn(self._work(work), name)
            return
        started = asyncio.get_running_loop().create_future()
        self._waiting.append((work, started))
        try:
            await started
        finally:
            if started.cancelled():
                self._waiting.remove((work, started))
                work.close()

    async def _work(self, work: Work | None) -> None:
        try:
            while work is not None:
                await work
                work = self._next()
        finally:
            self._free += 1
            self._freed()

    def _next(self) -> Work | None:
        if self._waiting:
            work, started = self._waiting.popleft()
            started.set_result(None)
            return work
        now = self._clock.monotonic()
        if self._turn_ends is None:
            self._turn_ends = now + _LONGEST_TURN
            asyncio.get_running_loop().call_soon(self._new_turn)
        return self._more() if now < self._turn_ends else None

    def _new_turn(self) -> None:
        self._turn_ends = None


log = logging.getLogger(__name__)

#: The loop lets other tasks run after deciding for this long, in seconds.
_SLICE: Final = 0.002


class Room(Protocol):
    """Work that goes on beside the loop, and that the loop must not run away from."""

    @property
    def has_room(self) -> bool:
        """Whether more of it may be started."""

    async def wait_for_room(self) -> None:
        """Returns when more of it may be started."""


class SchedulingLoop:
    """Runs while this process leads."""

    def __init__(
        self,
        parts: Parts,
        *,
        frameworks: Mapping[str, Framework],
        search: ExtenderCycle | None,
        binder: Binder,
        failures: FailureHandler,
        effects: Effects,
        parallelism: int,
        evictor: Room | None = None,
    ) -> None:
        """``parallelism``: attempts waiting for extenders at the same time; ``evictor``: where room is being made."""
        self._state: Final = parts.state
        self._frameworks: Final = frameworks
        self._search: Final = search
        self._binder: Final = binder
        self._failures: Final = failures
        self._effects: Final = effects
        self._emit: Final = parts.sink
        self._clock: Final = parts.clock
        self._rng: Final = parts.rng
        self._rooms: Final = (binder,) if evictor is None else (binder, evictor)
        self._in_order: Final = parallelism == 1
        self._slots: Final = Slots(
            parallelism,
            more=self._next_to_ask,
            freed=self.wake,
            clock=parts.clock,
            spawn=parts.spawn,
        )
        self._wake: Final = asyncio.Event()
        self._running = False

    def wake(self) -> None:
        """Something may have entered the active queue, or need not wait there any longer."""
        self._wake.set()

    async def run(self) -> None:
        """Schedules until cancelled."""
        self._running = True
        try:
            await self._run()
        finally:
            self._running = False

    async def _run(self) -> None:
        yielded_at = self._clock.monotonic()
        while True:
            for room in self._rooms:
                await room.wait_for_room()
            queued = self._pop()
            if queued is None:
                self._wake.clear()
                await self._wake.wait()
                yielded_at = self._clock.monotonic()
                continue
            await self._take(queued)
            if self._clock.monotonic() - yielded_at > _SLICE:
                await asyncio.sleep(0)
                yielded_at = self._clock.monotonic()

    def _pop(self) -> QueuedPod | None:
        """The first pod that need not wait for an extender or for a slot; with one slot all wait for it, to keep the order."""
        room = self._slots.has_room
        if self._in_order and not room:
            return None
        return self._state.pop(self._clock.steady(), self._gate(room=room))

    async def _take(self, queued: QueuedPod) -> None:
        attempt = self._attempt(queued)
        if attempt is None:
            return
        if self._search is not None and self._search.concerns(queued.pod):
            self._search.begin(queued.pod)
            work = self._schedule(queued, attempt, self._search)
            await self._slots.start(work, f"schedule {queued.pod.key} and those that follow")
        else:
            await self._schedule(queued, attempt, None)

    def _gate(self, *, room: bool) -> Admits | None:
        """Which pods may be tried now, None for all."""
        return None if self._search is None else self._search.gate(room=room)

    def _next_to_ask(self) -> Work | None:
        """An attempt for the pod that is next, popped now.

        None if there is none, no extender is to be asked about it, or the loop has to wait for room.
        """
        while (
            self._search is not None
            and self._running
            and all(room.has_room for room in self._rooms)
        ):
            queued = self._state.peek(self._gate(room=True))
            if queued is None or not self._search.concerns(queued.pod):
                return None
            self._state.pop(self._clock.steady(), self._gate(room=True))
            attempt = self._attempt(queued)
            if attempt is not None:
                self._search.begin(queued.pod)
                return self._schedule(queued, attempt, self._search)
        return None

    def _attempt(self, queued: QueuedPod) -> Attempt | None:
        """An attempt for a pod that was popped; None if it is not to be tried."""
        pod = queued.pod
        framework = self._frameworks.get(pod.spec.scheduler_name)
        if framework is None or self._skip(pod):
            self._state.drop(pod)
            return None
        if logs.enabled(3):
            logs.info(log, "Attempting to schedule pod", v=3, pod=pod.key)
        return Attempt(
            framework,
            self._state.table,
            pod,
            nominated=self._state.nominated_for,
            rng=self._rng,
            nominated_node=self._state.nominator.node_of(pod.uid),
        )

    def _skip(self, pod: Pod) -> bool:
        """Whether the pod is not to be tried: it is being deleted, or decided already."""
        if pod.terminating:
            self._failures.skipped_deleting(pod)
            return True
        return self._state.cache.is_assumed(pod.uid)

    async def _schedule(
        self, queued: QueuedPod, attempt: Attempt, search: ExtenderCycle | None
    ) -> None:
        started = self._clock.monotonic()
        profile = attempt.framework.profile_name
        if self._search is not None:
            self._emit(AttemptStarted(queued, profile))
        try:
            choice = (
                attempt.choose(attempt.find()) if search is None else await search.choose(attempt)
            )
        except Unfit as unfit:
            work = self._unfit(queued, attempt, unfit.diagnosis, started)
            if search is None and self._asks_about_victims(queued.pod):
                await self._slots.start(work, f"preempt for {queued.pod.key}")
            else:
                await work
        except NoNodesError as error:
            self._failures.give_back(
                queued,
                profile,
                reason=UNSCHEDULABLE,
                message=str(error),
                nominated_node="",
                started=started,
            )
        except SchedulingError as error:
            self._failures.error(queued, profile, str(error), started=started)
        except Exception as error:
            log.exception("Error scheduling pod %s", queued.pod.key)
            self._failures.error(
                queued, profile, f"{type(error).__name__}: {error}", started=started
            )
        else:
            self._emit(
                NodeSelected(
                    queued,
                    profile,
                    choice.node_name,
                    choice.feasible,
                    choice.evaluated,
                    self._clock.monotonic() - started,
                    attempt.scores,
                )
            )
            self._commit(queued, attempt, choice, started)

    def _asks_about_victims(self, pod: Pod) -> bool:
        """Whether extenders will be asked if the pod has to preempt others: other pods should not wait for them."""
        return self._search is not None and self._effects.asks_about_victims(pod)

    async def _unfit(
        self, queued: QueuedPod, attempt: Attempt, diagnosis: Diagnosis, started: float
    ) -> None:
        """No node is feasible: runs the PostFilter plugins, then gives the pod back."""
        message, nominated = "", None
        try:
            result = await attempt.framework.post_filter(
                attempt.state, queued.pod, diagnosis, self._effects
            )
        except Exception as error:
            log.exception("Error in PostFilter for pod %s", queued.pod.key)
            message = f"{type(error).__name__}: {error}"
        else:
            if result is None:
                nominated = ""
            else:
                nominated = result.nominated_node
                message = "" if result.status.ok else result.status.message
        self._failures.give_back(
            queued,
            attempt.framework.profile_name,
            reason=UNSCHEDULABLE,
            message=diagnosis.message(message),
            plugins=diagnosis.unschedulable_plugins,
            pending=diagnosis.pending_plugins,
            diagnosis=diagnosis,
            nominated_node=nominated,
            started=started,
        )

    def _commit(self, queued: QueuedPod, attempt: Attempt, choice: Choice, started: float) -> None:
        """Assumes the pod, runs Reserve and Permit, starts the binding. Nothing in here waits."""
        pod, framework, node = queued.pod, attempt.framework, choice.node_name
        current = self._state.pods.get(pod.key)
        if current is None or current.uid != pod.uid or current.node_name or current.terminating:
            self._state.drop(pod)
            return
        try:
            assumed = self._state.assume(pod, node)
        except CacheError as error:
            self._failures.error(queued, framework.profile_name, str(error), started=started)
            return
        decided = Decided(queued, assumed, choice, framework, attempt.state, started)
        status, waits = _reserve_and_permit(decided)
        if status.ok or status.code is Code.Wait:
            self._binder.start(decided, waits)
        else:
            self._failures.undo(decided, status)


def _reserve_and_permit(decided: Decided) -> tuple[Status, dict[str, float]]:
    """As Framework.permit; what a plugin raises is an Error."""
    framework, state, pod = decided.framework, decided.cycle_state, decided.assumed
    try:
        status = framework.reserve(state, pod, pod.node_name)
        if status.ok and framework.has_permit:
            return framework.permit(state, pod, pod.node_name)
    except Exception as error:
        log.exception("Error in Reserve or Permit for pod %s", pod.key)
        status = Status(Code.Error, (f"{type(error).__name__}: {error}",))
    return status, {}
