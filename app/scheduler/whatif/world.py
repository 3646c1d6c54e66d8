"""The imagined cluster: a mirror of the state with the scheduler's own cycles, in which a bound pod is only noted.

Pods go through the same queue, the same loop and the same plugins as in the scheduler. What would be written is done to
the mirror at once: a binding is confirmed, victims are terminating. They have gone when nothing else is left to try, as
victims take longer to end than pods to be decided. Then preemptors, and whatever else waits for an event, are tried
again.
"""

import asyncio
import functools
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import msgspec
import numpy as np

from app.cycle.pod_cycle import AssumedPod
from app.extender.chain import ExtenderChain, FilterResult
from app.extender.client import HTTPExtender
from app.extender.config import Verb
from app.extender.dry_run import DryRuns
from app.extender.errors import ExtenderError
from app.framework.args import Profile
from app.framework.diagnosis import Diagnosis
from app.framework.handle import Eviction
from app.framework.runner import Framework
from app.model.clock import Clock
from app.model.devices import ConsumerReference, ResourceClaim
from app.model.features import Features
from app.model.objects import PodCondition
from app.model.pod import Pod
from app.model.pod_groups import GroupKey
from app.model.status import Code, Status
from app.observe.events import AttemptFailed, NodeSelected
from app.plugins.default_preemption import DefaultPreemption
from app.runtime.clock import thread_seconds
from app.runtime.tasks import SLICE, Limiter
from app.scheduler.binding import Binder
from app.scheduler.effects import ApiEffects
from app.scheduler.extender_cycle import ExtenderCycle
from app.scheduler.extender_retries import ExtenderRetries
from app.scheduler.failures import FailureHandler
from app.scheduler.group_cycle import GroupCycle
from app.scheduler.group_status import GroupStatusWriter
from app.scheduler.loop import PodCycle, SchedulingLoop
from app.scheduler.parts import Parts
from app.scheduler.profiles import build_state
from app.scheduler.reports import Reports
from app.scheduler.serial_extenders import HeldTurn, SerialGate, extenders_of, lanes, turn_of
from app.state.mirror import Mirror, MirrorSteps
from app.state.queue.active_queue import Admits
from app.state.queue.queued_pod import GATED, Lane, QueuedPod
from app.state.queue.scheduling_queue import SchedulingQueue
from app.state.scheduler_state import SchedulerState
from app.wire.extender_v1 import FilterAnswer, Victims

log = logging.getLogger(__name__)

#: The part of the time that questions take while pods wait and the event loop has none to spare.
_SHARE_WHEN_BUSY: Final = 0.008
#: Seconds after which a question has its turn, however much time questions have taken.
LONGEST_WAIT: Final = 30.0
#: Seconds of work that a question does at once, even if it owes them.
_AT_ONCE: Final = 0.3
#: The event loop has time to spare if one of so many turns of it takes no longer than so many seconds.
_TURNS: Final = 8
_EMPTY_TURN: Final = 0.0002
#: If it has, while pods wait, questions rest so many times as long as they work.
_RESTS: Final = 3
#: Seconds between two looks whether pods still wait.
_LOOK: Final = 0.05
#: So many looks in a row must find time to spare before the cluster is read.
_SPARE_LOOKS: Final = 5
#: Attempts of one question at most, for each of its pods: one that others keep waking is not tried for ever.
_ATTEMPTS: Final = 20
_PREEMPTION: Final = "DefaultPreemption"
#: Pods about which extenders are asked at the same time.
_PARALLELISM: Final = 32


class GivenUp(BaseException):
    """The question is over before its answer: its time is up, or nobody waits for the answer."""


class Pace(Limiter):
    """Gives way to the scheduler: a question lets it run every SLICE seconds.

    While pods wait for it, questions take a part of the time in which the event loop has nothing else to do, as when
    bindings wait for the API server. If there is none, they get a small share, and one has its turn at least every
    LONGEST_WAIT seconds, as pods may wait without end.
    """

    def __init__(
        self,
        clock: Clock,
        waiting: Callable[[], bool],
        worked: Callable[[], float] = thread_seconds,
    ) -> None:
        """``waiting``: whether pods wait for the scheduler. ``worked``: seconds of CPU that this thread has used."""
        super().__init__()
        self._clock: Final = clock
        self._worked: Final = worked
        self._waiting: Final = waiting
        #: When the present question began, and until when it may last.
        self._started = 0.0
        self._ends = 0.0
        self._gone: Callable[[], bool] = bool
        #: When it was let run the last time, and what the thread had worked then.
        self._began = 0.0
        self._before = 0.0
        #: The seconds that it has worked while there was no time to spare, and those that it may be ahead.
        self._owed = 0.0
        self._ahead = _AT_ONCE
        #: When the next question has its turn, if there is no time to spare until then.
        self._due = -LONGEST_WAIT

    async def turn(self, seconds: float, *, reads: bool) -> None:
        """Waits for the turn of a question, for so many seconds at most. Raises TimeoutError.

        ``reads``: whether the cluster has to be read for it, which takes longer than questions do.
        """
        now = self._clock.monotonic()
        ends = now + seconds
        spare = 0
        if reads and self._waiting() and self._due + LONGEST_WAIT <= now:
            self._due = now + LONGEST_WAIT
        while self._waiting() and now < self._due:
            if now >= ends:
                raise TimeoutError
            if reads:
                spare = 0 if await self._busy() else spare + 1
                if spare == _SPARE_LOOKS:
                    return
            await asyncio.sleep(max(0.0, min(_LOOK, ends - now, self._due - now)))
            now = self._clock.monotonic()

    @property
    def until_turn(self) -> float:
        """Seconds until the next question has its turn if pods wait until then, at least 1."""
        return max(1.0, self._due - self._clock.monotonic() if self._waiting() else 0.0)

    def begin(self, seconds: float, gone: Callable[[], bool] = bool) -> None:
        """A question begins, which may take so long. ``gone``: whether nobody waits for the answer any longer."""
        self._resume()
        self._started = self._began
        self._ends, self._gone = self._started + seconds, gone
        self._owed, self._ahead = 0.0, _AT_ONCE

    async def end(self) -> None:
        """The question has ended."""
        work = self._worked() - self._before
        if await self._busy():
            self._owed += work
        self._due = self._clock.monotonic() + min(LONGEST_WAIT, self._owed / _SHARE_WHEN_BUSY)

    @property
    def left(self) -> float:
        """Seconds until the end, at least 0."""
        return max(0.0, self._ends - self._clock.monotonic())

    async def wait_for_room(self) -> None:
        """Pauses if it is time to. Raises GivenUp."""
        if self._clock.monotonic() - self._began > SLICE:
            await self.pause()

    async def pause(self) -> None:
        """Lets other tasks run, for as long as the question has to rest. Raises GivenUp."""
        self._check()
        work = self._worked() - self._before
        if await self._busy():
            self._owed += work
            await self._rest_from_owed()
        elif self._waiting():
            await asyncio.sleep(_RESTS * work)
        self._resume()

    def _resume(self) -> None:
        self._began, self._before = self._clock.monotonic(), self._worked()

    async def _rest_from_owed(self) -> None:
        """Rests until the share is kept again, but for what the question may be ahead, or no pod waits."""
        until = self._started + (self._owed - self._ahead) / _SHARE_WHEN_BUSY
        while (rest := until - self._clock.monotonic()) > 0:
            await asyncio.sleep(min(_LOOK, rest))
            self._check()
            if not self._waiting():
                return

    async def through(self, steps: MirrorSteps, *, to_the_end: bool = False) -> None:
        """Runs steps, and lets other tasks run between them. Raises GivenUp unless they must come to their end.

        The pauses are short, however busy the scheduler is: in long ones it would change more than a step takes over.
        """
        for _ in steps:
            if not to_the_end:
                self._check()
            if self._clock.monotonic() - self._began > SLICE:
                work = self._worked() - self._before
                if await self._busy():
                    self._owed += work
                    self._ahead += work
                self._resume()

    def _check(self) -> None:
        if self._clock.monotonic() >= self._ends or self._gone():
            raise GivenUp

    async def _busy(self) -> bool:
        """Lets other tasks run until they have nothing to do. Whether pods wait, and that does not come soon."""
        began = self._clock.monotonic()
        for _ in range(_TURNS):
            await asyncio.sleep(0)
            waiting, ended = self._waiting(), self._clock.monotonic()
            if not waiting or ended - began < _EMPTY_TURN:
                return False
            began = ended
        return True


class Failed(msgspec.Struct, frozen=True):
    """Why a pod was not placed in its last attempt."""

    reason: str
    message: str
    diagnosis: Diagnosis | None = None


class Fates:
    """What became of the pods of a question, by uid."""

    def __init__(self) -> None:
        #: On their nodes, in the order of the decisions.
        self.placed: Final[dict[str, AssumedPod]] = {}
        self.failed: Final[dict[str, Failed]] = {}
        #: Whether chance decided, here or for a pod before.
        self.tied: Final[dict[str, bool]] = {}
        #: The pods that were evicted for it.
        self.preempts: Final[dict[str, list[Pod]]] = {}
        self.attempts = 0
        #: The uids of the claims that were allocated for one of them.
        self.allocated: Final[set[str]] = set()
        #: Whether several pods waited while victims went: then it matters when each of these ends. Or whether a pod
        #: shares a claim that was allocated for another one: it would wait until that is written, and others not.
        self.by_timing = False


class ImaginedCluster:
    """One imagined cluster, for one question at a time."""

    def __init__(
        self,
        original: SchedulerState,
        profiles: Sequence[Profile],
        classes: Mapping[str, type],
        *,
        clock: Clock,
        pace: Pace,
        rng: np.random.Generator,
        features: Features,
        chain: ExtenderChain | None = None,
    ) -> None:
        """``rng``: of questions only. ``chain``: whose extenders are asked by their dry runs, if a question wants it.

        Raises PluginError.
        """
        if classes.get(_PREEMPTION) is DefaultPreemption and not (chain and chain.dry_runs):
            classes = {**classes, _PREEMPTION: _PausingPreemption}
        self.clock: Final = clock
        self.outcomes = Fates()
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        #: Whether it is as it was before the last question.
        self.intact = True
        #: Those that have not begun yet.
        self._evicting: Final[list[Eviction]] = []
        self._evictions: Final[list[Eviction]] = []
        #: The pods for which Reserve has run.
        self._reserved: Final[list[AssumedPod]] = []
        self._most_attempts = 0
        #: Without extenders, and with them.
        self._loops: tuple[SchedulingLoop, ...] = ()
        self._loop: SchedulingLoop | None = None
        self._dry_runs: Final = None if chain is None else DryRuns(chain)
        dry = ExtenderChain(() if chain is None else chain.dry_runs)
        self._dry: Final = dry
        self.state: SchedulerState
        self.frameworks: Mapping[str, Framework]
        self.state, self.frameworks = build_state(
            profiles,
            classes,
            functools.partial(SchedulingQueue, lane=lanes(dry.extenders, self._group_of)),
            rng=rng,
            clock=clock,
            notify=self._notify,
            features=features,
        )
        self.mirror: Final = Mirror(original, self.state)
        self.pace: Final = pace
        parts = Parts(self.state, clock, rng, self._spawn, self._on_event)
        effects = cast("ApiEffects", _Effects(self))
        failures = FailureHandler(parts, effects, cast("Reports", _Reports(self)))
        binder = cast("Binder", _Binder(self, failures))
        percentages = {p.scheduler_name: p.percentage_of_nodes_to_score or 0 for p in profiles}
        self._loops = tuple(
            self._make_loop(parts, effects, failures, binder, extenders)
            for extenders in (
                None,
                ExtenderCycle(
                    dry,
                    self.state.table,
                    percentages=percentages,
                    rng=rng,
                    retries=cast("ExtenderRetries", _NoRetries()),
                    serial=cast("SerialGate", _OpenGate(dry, self._group_of)),
                    before_asking=_nothing,
                ),
            )
        )

    def _make_loop(
        self,
        parts: Parts,
        effects: ApiEffects,
        failures: FailureHandler,
        binder: Binder,
        extenders: ExtenderCycle | None,
    ) -> SchedulingLoop:
        return SchedulingLoop(
            parts,
            PodCycle(parts, self.frameworks, binder=binder, failures=failures, extenders=extenders),
            groups=GroupCycle(
                parts,
                effects=effects,
                extenders=extenders,
                binder=binder,
                failures=failures,
                status=cast("GroupStatusWriter", _NoStatus()),
            ),
            extenders=extenders,
            parallelism=_PARALLELISM,
            limits=(self.pace,),
        )

    def _group_of(self, pod: Pod) -> GroupKey | None:
        return self.state.cluster.pod_groups.key_of(pod)

    def not_asked(self, pod: Pod) -> tuple[str, ...]:
        """The names of the extenders that decide about the pod and have no dry run."""
        return () if self._dry_runs is None else self._dry_runs.not_asked(pod)

    def concerned(self, pod: Pod) -> bool:
        """Whether any extender with a dry run filters or prioritizes for the pod."""
        return bool(
            self._dry.concerned(pod, Verb.FILTER) or self._dry.concerned(pod, Verb.PRIORITIZE)
        )

    @property
    def asks_extenders(self) -> bool:
        """Whether extenders are asked in this question."""
        return bool(self._loops) and self._loop is self._loops[1]

    def concerns_preemption(self, pod: Pod) -> bool:
        """Whether extenders are asked about the victims of a pod."""
        dry = self._dry
        return self.asks_extenders and bool(dry.concerned(pod, Verb.PREEMPT))

    async def agree_on_victims(
        self, pod: Pod, candidates: Mapping[str, Victims]
    ) -> Mapping[str, Victims]:
        """The candidates of a preemption that extenders accept in their dry run. Raises SchedulingError."""
        if self._dry_runs is None:
            return candidates
        until = asyncio.get_running_loop().time() + self.pace.left
        return await self._dry_runs.preempt(pod, candidates, self._pods_on, until)

    def _pods_on(self, node_name: str) -> Mapping[str, Pod] | None:
        table = self.state.table
        row = table.row_of.get(node_name)
        return None if row is None or table.nodes[row] is None else table.pods[row]

    @asynccontextmanager
    async def question(
        self, seconds: float, gone: Callable[[], bool] = bool, *, extenders: bool = False
    ) -> AsyncIterator["ImaginedCluster"]:
        """The world as the cluster is now; whatever is done to it during the block is taken back after it.

        ``extenders``: whether extenders are asked.

        Raises GivenUp and MirrorBrokenError. Afterwards it can be used again if it is ``intact``.
        """
        self.pace.begin(seconds, gone)
        self._loop = self._loops[extenders]
        self.intact = False
        try:
            await self.pace.through(self.mirror.update(self.now))
        except GivenUp:
            self.intact = True
            await self.pace.end()
            raise
        try:
            yield self
        finally:
            await self._restore()
            self.intact = True
            await self.pace.end()

    async def again(self) -> None:
        """Takes everything back, within a question."""
        await self._restore()

    async def _restore(self) -> None:
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.pace.through(self._forget_assumed(), to_the_end=True)
        self.outcomes = Fates()
        self._evicting.clear()
        for eviction in self._evictions:
            eviction.progress.lapse(eviction.uid)
        self._evictions.clear()
        self._reserved.clear()
        self._most_attempts = 0
        await self.pace.through(self.mirror.take_back(self.now), to_the_end=True)

    def _forget_assumed(self) -> MirrorSteps:
        for assumed in reversed(self._reserved):
            try:
                assumed.framework.commit.unreserve(
                    assumed.cycle_state, assumed.pod, assumed.pod.node_name
                )
            except Exception:
                log.exception("Error in Unreserve for pod %s of a question", assumed.pod.key)
            yield
        for pod in list(self.state.cache.assumed_pods()):
            self.state.forget(pod)
            yield

    @property
    def now(self) -> float:
        """The time for the queue."""
        return self.clock.steady()

    # ------------------------------------------------------------ what a question does

    def change(self, kind: type, old: Any, new: Any) -> None:
        """Changes an object of the imagined cluster. Raises ValueError if it is refused."""
        self.mirror.change(kind, old, new, self.now)
        if kind is Pod and new is not None and not new.node_name:
            self._most_attempts += _ATTEMPTS

    async def settle(self) -> None:
        """Schedules until nothing is left to try. Raises GivenUp.

        Victims are terminating when all pods have been tried, and then go one after another: that takes longer than
        decisions.
        """
        await self._schedule()
        while self._evicting and self.outcomes.attempts <= self._most_attempts:
            waiting = self.outcomes.failed.keys() - self.outcomes.placed.keys()
            self.outcomes.by_timing |= len(waiting) > 1
            dying: dict[str, Pod] = {}
            for eviction in self._evicting:
                self._begin_to_end(eviction, dying)
            self._evicting.clear()
            await self._schedule()
            for pod in dying.values():
                self.change(Pod, pod, None)
                await self._schedule()
            preempting = self.outcomes.preempts.keys() - self.outcomes.placed.keys()
            queued = map(self.state.queue.get, preempting)
            self.state.activate([each.pod for each in queued if each is not None], self.now)
            await self._schedule()

    async def _schedule(self) -> None:
        loop = self._loop
        if loop is None:
            return
        try:
            async with asyncio.timeout(self.pace.left if self.asks_extenders else None):
                await loop.settle()
        except TimeoutError:
            raise GivenUp from None

    def _begin_to_end(self, eviction: Eviction, dying: dict[str, Pod]) -> None:
        """The victims of an eviction are terminating."""
        known = (self.state.cache.get(victim.uid) for victim in eviction.victims)
        staying = [pod for pod in known if pod is not None]
        if staying:
            eviction.progress.last(eviction.uid, staying[-1])
        for pod in staying:
            if not pod.terminating:
                if self.outcomes.placed.pop(pod.uid, None) is not None:
                    text = f"evicted for {eviction.preemptor.key}"
                    self.outcomes.failed[pod.uid] = Failed("Preempted", text)
                conditions = (*pod.conditions, _EVICTED)
                new = msgspec.structs.replace(pod, deletion_timestamp="now", conditions=conditions)
                self.mirror.change(Pod, pod, new, self.now)
                dying[pod.uid] = new
        eviction.progress.end(eviction.uid, evicted=True)

    def fate(self, pod: Pod) -> Failed | None:
        """Why a pod of the question has no node; None if it has one."""
        uid = pod.uid
        if uid in self.outcomes.placed:
            return None
        queued = self.state.queue.get(uid)
        if queued is not None and queued.place is GATED and queued.gating_plugin:
            return Failed("Gated", f"{queued.gating_plugin}: {queued.gating_status.message}")
        return self.outcomes.failed.get(uid) or Failed("NotDecided", "it was not decided in time")

    # ------------------------------------------------------------ what the cycles report

    def _notify(self) -> None:
        if self._loop is not None:
            self._loop.wake()

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        fault = None if task.cancelled() else task.exception()
        if fault is not None and not isinstance(fault, GivenUp):
            log.error("Error in a question", exc_info=fault)

    def _on_event(self, event: object) -> None:
        outcomes = self.outcomes
        match event:
            case NodeSelected(queued=queued, ties=ties):
                outcomes.attempts += 1
                outcomes.tied[queued.pod.uid] = ties() > 0 or outcomes.tied.get(
                    queued.pod.uid, False
                )
            case AttemptFailed(queued=queued):
                outcomes.attempts += 1
                reason = "Unschedulable" if event.result == "unschedulable" else "SchedulerError"
                outcomes.failed[queued.pod.uid] = Failed(reason, event.message, event.diagnosis)
                if outcomes.attempts > self._most_attempts:
                    raise GivenUp
            case _:
                pass

    def bound(self, assumed: AssumedPod) -> None:
        """A pod would be bound."""
        uid = assumed.pod.uid
        self.outcomes.placed[uid] = assumed
        self._reserved.append(assumed)
        self.outcomes.failed.pop(uid, None)
        self.state.done(uid)
        self.state.finish_binding(uid)
        before = self.state.pods[assumed.pod.key]
        self._allocate(assumed.pod)
        self.mirror.change(Pod, before, assumed.pod, self.now)

    def _allocate(self, pod: Pod) -> None:
        """The claims that the pod names would be allocated, and reserved for it: other pods may share them."""
        devices = self.state.cluster.devices
        for named in pod.spec.resource_claims or ():
            claim = devices.claims.get(named.resource_claim_name or "", pod.namespace)
            pending = None if claim is None else devices.in_flight(claim.uid)
            if claim is None or (pending is not None and pending.group is not None):
                continue
            self.outcomes.by_timing |= claim.uid in self.outcomes.allocated
            if pending is not None:
                self.outcomes.allocated.add(claim.uid)
            status = claim.status
            allocation = status.allocation if pending is None else pending.allocation
            user = ConsumerReference(resource="pods", name=pod.name, uid=pod.uid)
            if allocation is not None and user not in (status.reserved_for or ()):
                users = (*(status.reserved_for or ()), user)
                status = msgspec.structs.replace(status, allocation=allocation, reserved_for=users)
                new = msgspec.structs.replace(claim, status=status)
                self.mirror.change(ResourceClaim, claim, new, self.now)
                devices.release(claim.uid)

    def nominated(self, pod: Pod, node_name: str) -> None:
        """The nomination in a pod's status would be changed."""
        current = self.state.pods.get(pod.key)
        if current is None or current.uid != pod.uid or current.nominated_node_name == node_name:
            return
        version = str(int(current.resource_version or 0) + 1)
        new = msgspec.structs.replace(
            current, nominated_node_name=node_name, resource_version=version
        )
        self.mirror.change(Pod, current, new, self.now)

    def evict(self, eviction: Eviction) -> None:
        """Pods would be evicted."""
        staying = [
            pod
            for victim in eviction.victims
            if (pod := self.state.cache.get(victim.uid)) is not None and not pod.terminating
        ]
        preempts = self.outcomes.preempts.setdefault(eviction.preemptor.uid, [])
        preempts += [pod for pod in staying if pod not in preempts]
        for mate in eviction.mates:
            self.outcomes.preempts.setdefault(mate.uid, [])
        if eviction.tied:
            self.outcomes.tied[eviction.preemptor.uid] = True
        if staying:
            self._evictions.append(eviction)
            self._evicting.append(eviction)
            eviction.progress.begin(eviction.uid)


_EVICTED: Final = PodCondition(
    type="DisruptionTarget", status="True", reason="PreemptionByScheduler"
)


class _PausingPreemption(DefaultPreemption):
    """A search that lets other tasks run. The mirror does not change in a pause, as no attempt waits for extenders."""

    ROWS_AT_ONCE = 256


class _Binder:
    """Notes the pods that would be bound (see Binder)."""

    def __init__(self, world: ImaginedCluster, failures: FailureHandler) -> None:
        self._world: Final = world
        self._failures: Final = failures

    def start(self, assumed: AssumedPod, waits: Mapping[str, float]) -> None:
        """See Binder. A pod that a Permit plugin delays counts as allowed."""
        del waits
        try:
            self._world.bound(assumed)
        except ValueError as error:
            self._failures.undo(assumed, Status(Code.Error, (str(error),)))


class _Effects:
    """What plugins of a question may do (see Effects): evict in the imagined cluster, and nothing else."""

    def __init__(self, world: ImaginedCluster) -> None:
        self.latest: Final = world.state.latest
        self.evict: Final = world.evict
        self.now: Final = world.clock.wall
        self.asks_about_victims: Final = world.concerns_preemption
        self.agree_on_victims: Final = world.agree_on_victims
        self.resource_claims: Final = _UnwrittenClaims()
        self._pace: Final = world.pace

    def event(self, pod: Pod, *, reason: str, action: str, note: str) -> None:
        """See Effects."""

    async def sleep(self, _seconds: float) -> None:
        """See Effects."""
        await self._pace.pause()


class _UnwrittenClaims:
    """What PostFilter asks of claims (see ResourceClaimEffects): they stay as they are, and what is said remains."""

    async def patch(
        self, claim: ResourceClaim, _changes: object, *, status: bool = False
    ) -> ResourceClaim:
        """See ResourceClaimEffects."""
        del status
        return claim

    async def delete(self, claim: ResourceClaim) -> None:
        """See ResourceClaimEffects."""


class _Reports:
    """Writes nominations to the pods of the imagined cluster, and nothing else (see Reports)."""

    def __init__(self, world: ImaginedCluster) -> None:
        self._world: Final = world

    def failed(self, pod: Pod, *, nominated_node: str | None, **_told: object) -> None:
        """See Reports."""
        if nominated_node is not None:
            self._world.nominated(pod, nominated_node)

    def skipped_deleting(self, pod: Pod, now: float) -> None:
        """See Reports."""


class _NoStatus:
    """Writes no status of groups (see GroupStatusWriter)."""

    def put(self, key: GroupKey, result: str, text: str, *, uid: str) -> None:
        """See GroupStatusWriter."""


class _NoRetries:
    """Nothing is tried again later (see ExtenderRetries)."""

    def gone(self, uid: str) -> None:
        """See ExtenderRetries."""

    def rejected(self, pod: Pod, extenders: Iterable[str], retry_after: float | None) -> None:
        """See ExtenderRetries."""

    def failed(self, pod: Pod, error: ExtenderError) -> None:
        """See ExtenderRetries."""


class _OpenGate:
    """Lets pods overlap (see SerialGate): dry runs reserve nothing, and their clients keep to the servers' limits."""

    def __init__(self, chain: ExtenderChain, group_of: Callable[[Pod], object]) -> None:
        self.extenders_of: Final = extenders_of(chain.extenders, group_of)
        self._attempts: Final[Counter[str]] = Counter()

    def gate(self, *, room: bool) -> Admits | None:
        """See SerialGate."""
        return None if room else lambda queued: not queued.lane

    def hold(self, pods: Sequence[QueuedPod]) -> HeldTurn:
        """See SerialGate."""
        return HeldTurn(frozenset(), min(map(turn_of, pods)))

    def give_up(self, held: HeldTurn) -> None:
        """See SerialGate."""

    async def wait(self, lane: Lane) -> None:
        """See SerialGate."""

    def begin(self, lane: Lane) -> None:
        """See SerialGate."""
        self._attempts.update(lane)

    def end(self, lane: Lane) -> None:
        """See SerialGate."""
        self._attempts.subtract(lane)

    def attempts(self, lane: Lane) -> int:
        """See SerialGate."""
        return min((self._attempts[name] for name in lane), default=0)

    def may_overlap(self, _lane: Lane) -> bool:
        """See SerialGate."""
        return True

    has_room = may_overlap

    def serial(self, _lane: Lane) -> Lane:
        """See SerialGate."""
        return frozenset()

    def observe(self, result: FilterResult) -> None:
        """See SerialGate."""

    def observe_answer(
        self, extender: HTTPExtender, sent: int, answer: FilterAnswer | ExtenderError
    ) -> None:
        """See SerialGate."""


async def _nothing(_uid: str) -> None:
    """Nothing has to be done before extenders are asked."""
