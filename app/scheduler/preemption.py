"""Evicts the victims of preemptions, as tasks beside the scheduling of other pods (docs/spec/preemption.md#eviction).

All victims except one are evicted concurrently, then the last one. Until the last one is terminating the preemptor is
kept out of the queue (see EvictionProgress). If an eviction fails, the preemptor is tried again after a pause; at once
if all victims had gone before it began to wait for them.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from app.extender.chain import ExtenderChain
from app.extender.config import Verb
from app.framework.handle import Eviction
from app.kube.errors import KubeError, NotFound, NotLeading
from app.kube.event_series import ObjectRef
from app.kube.payloads import ConditionChange
from app.kube.writer import KubeWriter
from app.model.pod import Pod
from app.observe.events import PreemptionFinished, PreemptionStarted, VictimEvicted
from app.observe.pod_events import PodEvents
from app.runtime.tasks import Limiter
from app.scheduler.parts import Parts
from app.scheduler.status_patches import StatusPatch, StatusPatcher
from app.state.queue.queued_pod import GATED
from app.state.scheduler_state import SchedulerState
from app.wire.extender_v1 import Victims

if TYPE_CHECKING:
    from app.scheduler.recording import Recorder

log = logging.getLogger(__name__)

#: Victims being evicted at the same time, of all preemptions together.
MAX_EVICTING: Final = 32
#: The loop waits while this many preemptions are in progress. They keep the server busy, and each event checks all of
#: them.
MAX_PREEMPTING: Final = 48

#: Seconds from a failed eviction until the preemptor is tried again, which would probably fail again at once.
FAILURE_PAUSE: Final = 1.0
#: Seconds for which a preemptor is held at most after its victims were evicted, until the watch shows that the last one
#: ends, and seconds between two looks. The watch shows it at once; one whose connection is dead is noticed after 60 s
#: (app.kube.client) and made again. If it still does not show, something else than the API server has answered, or what
#: it wrote is lost.
HOLD_SECONDS: Final = 90.0
_LOOK: Final = 1.0

_CONDITION: Final = "DisruptionTarget"
_REASON: Final = "PreemptionByScheduler"
_MESSAGE: Final = "{}: preempting to accommodate a higher priority {}"
_NOTE: Final = "Preempted by {} {} on node {}{}"
_IN_MEMORY: Final = " (in kube-scheduler memory)."


class Evictor:
    """Evicts pods, at most MAX_EVICTING at a time. ``preemptions`` counts those in progress, and limits the loop."""

    def __init__(
        self,
        parts: Parts,
        *,
        writer: KubeWriter,
        events: PodEvents,
        patcher: StatusPatcher,
        stop_unbound: Callable[[str], bool],
        decided: Callable[[Eviction], None],
        recorder: "Recorder | None" = None,
    ) -> None:
        """``stop_unbound`` stops a pod, by uid, that is not bound yet; it returns False if there is none or it is too
        late.

        ``decided`` is called before an eviction starts.
        """
        self._state: Final = parts.state
        self._writer: Final = writer
        self._events: Final = events
        self._patcher: Final = patcher
        self._emit: Final = parts.sink
        self._clock: Final = parts.clock
        self._spawn: Final = parts.spawn
        self._stop_unbound: Final = stop_unbound
        self._decided: Final = decided
        self._recorder: Final = recorder
        self._slots: Final = asyncio.Semaphore(MAX_EVICTING)
        self.preemptions: Final = Limiter(MAX_PREEMPTING)

    def start(self, eviction: Eviction) -> None:
        """Starts to evict; does nothing if all victims are terminating already or the preemptor no longer needs a
        node."""
        preemptor, victims = eviction.preemptor, eviction.victims
        if not any(map(self._state.needs_node, (preemptor, *eviction.mates))):
            return
        staying = [victim for victim in victims if not victim.terminating]
        if not staying:
            return
        self._decided(eviction)
        if self._recorder is not None:
            eviction = self._recorder.evicting(eviction)
        self._emit(PreemptionStarted(preemptor, eviction.node_name, victims))
        eviction.progress.begin(eviction.uid)
        self.preemptions.add(1)
        self._spawn(self._run(eviction, staying), "preempt")

    async def _run(self, eviction: Eviction, victims: Sequence[Pod]) -> None:
        done = False
        try:
            done = await self._make_room(eviction, victims)
            if not done:
                await asyncio.sleep(FAILURE_PAUSE)
        finally:
            free = eviction.progress.end(eviction.uid, evicted=done)
        if done and not free:
            free = await self._lapses(eviction, victims[-1])
        where = self._state.queue.where
        pods = (eviction.preemptor, *eviction.mates)
        woken = [pod for pod in pods if not done or (free and where(pod.uid) is GATED)]
        if woken:
            self._state.activate(woken, self._clock.steady())

    async def _lapses(self, eviction: Eviction, last: Pod) -> bool:
        """Ends the preemptor's hold after HOLD_SECONDS; False if the watch shows before that the last victim ends."""
        progress, until = eviction.progress, self._clock.monotonic() + HOLD_SECONDS
        while progress.waits_for(eviction.uid, last):
            if self._clock.monotonic() >= until:
                log.warning("Pod %s was evicted, but does not end: trying again", last.key)
                progress.lapse(eviction.uid)
                return True
            await asyncio.sleep(_LOOK)
        return False

    async def _make_room(self, eviction: Eviction, victims: Sequence[Pod]) -> bool:
        """Whether all victims are gone or terminating."""
        done, started = False, self._clock.monotonic()
        try:
            done = await self._evict_all(eviction, victims)
        except Exception:
            log.exception("Error preempting for pod %s", eviction.preemptor.key)
        finally:
            self.preemptions.add(-1)
            self._emit(PreemptionFinished(self._clock.monotonic() - started, succeeded=done))
        return done

    async def _evict_all(self, eviction: Eviction, victims: Sequence[Pod]) -> bool:
        """Evicts the last victim after all others. Returns whether all are gone or terminating."""
        self._clear_nominations(eviction)
        *others, last = victims
        if others:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._evict(victim, eviction)) for victim in others]
            if not all(task.result() for task in tasks):
                return False
        eviction.progress.last(eviction.uid, last)
        return await self._evict(last, eviction)

    def _clear_nominations(self, eviction: Eviction) -> None:
        """Clears the nominations of pods of lower priority to this node: they may no longer fit."""
        node, now = eviction.node_name, self._clock.wall()
        for pod in self._state.nominator.pods_on(node):
            if pod.priority < eviction.preemptor.priority:
                nominated = msgspec.structs.replace(pod, nominated_node_name=node)
                self._patcher.put(nominated, StatusPatch(nominated_node=""), now)

    async def _evict(self, victim: Pod, eviction: Eviction) -> bool:
        """Whether the victim is gone or terminating."""
        async with self._slots:
            if self._stop_unbound(victim.uid):
                self._report(victim, eviction, _IN_MEMORY)
                return True
            try:
                if await self._write(victim, eviction):
                    self._report(victim, eviction, "")
            except NotLeading:
                return False  # The process ends soon.
            except KubeError as error:
                log.error(
                    "Error preempting pod %s for pod %s: %s",
                    victim.key,
                    eviction.preemptor.key,
                    error,
                )
                return False
            return True

    async def _write(self, victim: Pod, eviction: Eviction) -> bool:
        """Marks and deletes a victim; False if it was gone already. Raises KubeError."""
        message = _MESSAGE.format(eviction.preemptor.spec.scheduler_name, eviction.kind)
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
            note=_NOTE.format(eviction.kind, eviction.uid, eviction.node_name, suffix),
            now=self._clock.wall(),
            reporter=preemptor.spec.scheduler_name,
            related=self._group(eviction),
        )

    def _group(self, eviction: Eviction) -> ObjectRef | None:
        """The group that preempts. (kube-scheduler's events do not name a pod that does.)"""
        group = eviction.group
        if group is None:
            return None
        path = self._state.cluster.pod_groups.path_of(type(group))
        version = path.removeprefix("/apis/").rpartition("/")[0]
        return ObjectRef(
            kind="PodGroup",
            api_version=version,
            name=group.name,
            namespace=group.namespace,
            uid=group.uid,
            resource_version=group.resource_version,
        )


class ExtenderPreemption:
    """Asks the extenders about the victims of a preemption (docs/spec/extenders.md#preempt)."""

    def __init__(self, chain: ExtenderChain, state: SchedulerState) -> None:
        self._chain: Final = chain
        self._state: Final = state

    def concerns(self, pod: Pod) -> bool:
        """Whether any extender with a preempt verb is interested in this pod."""
        return bool(self._chain.concerned(pod, Verb.PREEMPT))

    async def ask(self, pod: Pod, candidates: Mapping[str, Victims]) -> Mapping[str, Victims]:
        """The nodes that the extenders leave, with the victims on each. Raises SchedulingError."""
        return await self._chain.preempt(pod, candidates, self._pods_on)

    def _pods_on(self, node_name: str) -> Mapping[str, Pod] | None:
        table = self._state.table
        row = table.row_of.get(node_name)
        return None if row is None or table.nodes[row] is None else table.pods[row]
