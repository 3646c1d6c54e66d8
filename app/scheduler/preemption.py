"""Making room: what happens to the victims of a preemption, beside the scheduling of other pods.

See docs/spec/preemption.md#eviction.

All victims but one are evicted side by side, then the last one. From the beginning until the last is going the preemptor is
held out of the queues (see EvictionProgress); if anything fails it is tried again at once, and also if all victims were gone
before the preemptor waited for that.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from app.extender.chain import ExtenderChain
from app.extender.config import Verb
from app.framework.interface import Eviction
from app.kube.errors import KubeError, NotFound
from app.kube.payloads import ConditionChange
from app.model.pod import Pod
from app.observe.events import PreemptionFinished, PreemptionStarted, VictimEvicted
from app.observe.pod_events import PodEvents
from app.scheduler.parts import Parts
from app.scheduler.status_patches import StatusPatch, StatusPatcher
from app.state.queue.queued_pod import GATED
from app.state.scheduler_state import SchedulerState
from app.wire.extender_v1 import Victims

log = logging.getLogger(__name__)

#: Victims being evicted at the same time, of all preemptions together.
MAX_EVICTING: Final = 32
#: Preemptions under way beyond which the loop waits: enough to keep the server busy, and few to look at with every event.
MAX_PREEMPTING: Final = 48

_CONDITION: Final = "DisruptionTarget"
_REASON: Final = "PreemptionByScheduler"
_MESSAGE: Final = "{}: preempting to accommodate a higher priority pod"
_NOTE: Final = "Preempted by pod {} on node {}{}"
_IN_MEMORY: Final = " (in kube-scheduler memory)."


class VictimWriter(Protocol):
    """Writes what an eviction takes."""

    async def patch_pod_status(
        self,
        pod: Pod,
        *,
        condition: ConditionChange | None = None,
        nominated_node_name: str | None = None,
        now: float,
    ) -> bool:
        """Makes the status say this. Raises KubeError."""

    async def delete_pod(self, namespace: str, name: str, uid: str) -> bool:
        """Deletes this very pod; False when it was gone already. Raises KubeError."""


#: Stops a pod that is not bound yet; False if there is no such pod, or if it is too late.
Stop = Callable[[str], bool]


class Evictor:
    """Evicts pods, at most MAX_EVICTING at a time."""

    def __init__(
        self,
        parts: Parts,
        *,
        writer: VictimWriter,
        events: PodEvents,
        patcher: StatusPatcher,
        stop_unbound: Stop,
    ) -> None:
        """``stop_unbound`` is asked first."""
        self._state: Final = parts.state
        self._writer: Final = writer
        self._events: Final = events
        self._patcher: Final = patcher
        self._emit: Final = parts.sink
        self._clock: Final = parts.clock
        self._spawn: Final = parts.spawn
        self._stop_unbound: Final = stop_unbound
        self._slots: Final = asyncio.Semaphore(MAX_EVICTING)
        self._running = 0
        self._room: Final = asyncio.Event()
        self._room.set()
        self._idle: Final = asyncio.Event()
        self._idle.set()

    @property
    def running(self) -> int:
        """Preemptions under way."""
        return self._running

    def _run_more(self, delta: int) -> None:
        self._running += delta
        for event, holds in (
            (self._room, self._running < MAX_PREEMPTING),
            (self._idle, not self._running),
        ):
            if holds:
                event.set()
            else:
                event.clear()

    @property
    def has_room(self) -> bool:
        """Whether fewer than MAX_PREEMPTING preemptions are under way."""
        return self._room.is_set()

    async def wait_for_room(self) -> None:
        """Returns when there is room."""
        await self._room.wait()

    async def wait_until_idle(self) -> None:
        """Returns when no preemption is under way."""
        await self._idle.wait()

    def start(self, eviction: Eviction) -> None:
        """Starts to evict; nothing to do where all victims are on their way out, or the preemptor is gone meanwhile."""
        preemptor, victims = eviction.preemptor, eviction.victims
        if not self._waits(preemptor):
            return
        staying = [victim for victim in victims if not victim.terminating]
        if not staying:
            return
        self._emit(PreemptionStarted(preemptor, eviction.node_name, victims))
        eviction.progress.begin(preemptor.uid)
        self._run_more(1)
        self._spawn(self._run(eviction, staying), "preempt")

    def _waits(self, preemptor: Pod) -> bool:
        """Whether the pod still needs a place."""
        current = self._state.pods.get(preemptor.key)
        return (
            current is not None
            and current.uid == preemptor.uid
            and not current.node_name
            and not current.terminating
        )

    async def _run(self, eviction: Eviction, victims: Sequence[Pod]) -> None:
        uid, done, started = eviction.preemptor.uid, False, self._clock.monotonic()
        try:
            done = await self._make_room(eviction, victims)
        except Exception:
            log.exception("Error preempting for pod %s", eviction.preemptor.key)
        finally:
            free = eviction.progress.end(uid, evicted=done)
            self._run_more(-1)
            self._emit(PreemptionFinished(self._clock.monotonic() - started, succeeded=done))
        if not done or (free and self._state.queue.where(uid) is GATED):
            self._state.activate((eviction.preemptor,), self._clock.steady())

    async def _make_room(self, eviction: Eviction, victims: Sequence[Pod]) -> bool:
        """Whether all victims are gone or terminating."""
        self._clear_nominations(eviction)
        *others, last = victims
        if others:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._evict(victim, eviction)) for victim in others]
            if not all(task.result() for task in tasks):
                return False
        eviction.progress.last(eviction.preemptor.uid, last)
        return await self._evict(last, eviction)

    def _clear_nominations(self, eviction: Eviction) -> None:
        """Takes the node from pods of lower priority that it was promised to: they may not fit any longer."""
        node, now = eviction.node_name, self._clock.wall()
        for pod in self._state.nominator.pods_on(node):
            if pod.priority < eviction.preemptor.priority:
                nominated = msgspec.structs.replace(pod, nominated_node_name=node)
                self._patcher.put(nominated, StatusPatch(nominated_node=""), now)

    async def _evict(self, victim: Pod, eviction: Eviction) -> bool:
        """Whether the victim is gone or going."""
        async with self._slots:
            if self._stop_unbound(victim.uid):
                self._report(victim, eviction, _IN_MEMORY)
                return True
            try:
                if await self._write(victim, eviction.preemptor):
                    self._report(victim, eviction, "")
            except KubeError as error:
                log.error(
                    "Error preempting pod %s for pod %s: %s",
                    victim.key,
                    eviction.preemptor.key,
                    error,
                )
                return False
            return True

    async def _write(self, victim: Pod, preemptor: Pod) -> bool:
        """Marks and deletes a victim; False if it was gone already. Raises KubeError."""
        message = _MESSAGE.format(preemptor.spec.scheduler_name)
        condition = ConditionChange(_CONDITION, "True", _REASON, message)
        try:
            await self._writer.patch_pod_status(victim, condition=condition, now=self._clock.wall())
        except NotFound:
            return False
        return await self._writer.delete_pod(victim.namespace, victim.name, victim.uid)

    def _report(self, victim: Pod, eviction: Eviction, suffix: str) -> None:
        preemptor = eviction.preemptor
        self._emit(VictimEvicted(victim, preemptor, eviction.node_name))
        self._events.pod_event(
            victim,
            kind="Normal",
            reason="Preempted",
            action="Preempting",
            note=_NOTE.format(preemptor.uid, eviction.node_name, suffix),
            now=self._clock.wall(),
            reporter=preemptor.spec.scheduler_name,
        )


class ExtenderPreemption:
    """What the extenders say of the victims of a preemption (docs/spec/extenders.md#preempt)."""

    def __init__(self, chain: ExtenderChain, state: SchedulerState) -> None:
        self._chain: Final = chain
        self._state: Final = state

    def concerns(self, pod: Pod) -> bool:
        """Whether any extender wants a say in which pods are evicted for this one."""
        return bool(self._chain.concerned(pod, Verb.PREEMPT))

    async def ask(self, pod: Pod, candidates: Mapping[str, Victims]) -> Mapping[str, Victims]:
        """The victims by node that the extenders leave. Raises SchedulingError."""
        return await self._chain.preempt(pod, candidates, self._pods_on)

    def _pods_on(self, node_name: str) -> Mapping[str, Pod] | None:
        table = self._state.table
        row = table.row_of.get(node_name)
        return None if row is None or table.nodes[row] is None else table.pods[row]
