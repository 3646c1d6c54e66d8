"""Runs the binding cycles of pods as tasks beside the next attempts (docs/spec/cycle.md#binding-cycle)."""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from app.cycle.pod_cycle import AssumedPod
from app.framework.handle import Effects
from app.framework.interface import AnyPlugin
from app.kube.errors import KubeError
from app.model.pod import Pod
from app.model.status import Code, SchedulingError, Status
from app.observe.events import BindingStepFinished, PodBound
from app.observe.metrics.series import MetricFamilies
from app.runtime.tasks import Limiter
from app.scheduler.extender_cycle import ChainBinder
from app.scheduler.parts import Parts
from app.scheduler.permits import WaitingPodEntry, WaitingPodsMap
from app.scheduler.reports import Reports

log = logging.getLogger(__name__)

PREEMPTED: Final = "preempted by DefaultPreemption"


class Binder:
    """Runs binding cycles as tasks. ``cycles`` counts them; ``writes`` counts those that are about to write, and limits
    the loop."""

    def __init__(
        self,
        parts: Parts,
        *,
        effects: Effects,
        extenders: ChainBinder | None,
        waiting: WaitingPodsMap,
        reports: Reports,
        undo: Callable[[AssumedPod, Status], None],
        max_writing: int,
    ) -> None:
        self._state: Final = parts.state
        self._effects: Final = effects
        self._extenders: Final = extenders
        binds = extenders is not None and extenders.chain.binds
        self._announce: Final = extenders.announce if extenders is not None and binds else None
        self._waiting: Final = waiting
        self._reports: Final = reports
        self._emit: Final = parts.sink
        self._clock: Final = parts.clock
        self._spawn: Final = parts.spawn
        self._undo: Final = undo
        self.cycles: Final = Limiter()
        self.writes: Final = Limiter(max_writing)
        #: Pods (uids) whose binding is being written, or was when its task was cancelled: they may become bound.
        self.unsettled: Final[set[str]] = set()
        self._preparing: Final[dict[str, asyncio.Timeout]] = {}
        #: By uid: pods whose binding is about to be written.
        self._writing: Final[dict[str, AssumedPod]] = {}
        #: Pods that were decided again because pods of other schedulers had filled their nodes.
        self.decided_again = 0

    def register(self, families: MetricFamilies) -> None:
        """Adds its figures to the metrics."""
        families.computed(
            "aiokube_scheduler_pods_decided_again_total",
            "Pods that were decided again before they were bound, because pods of other schedulers had filled "
            "their nodes.",
            lambda: {(): self.decided_again},
            counter=True,
        )

    def preempt(self, uid: str) -> bool:
        """Stops a pod in PreBind; False if there is none by this uid."""
        scope = self._preparing.pop(uid, None)
        if scope is None:
            return False
        scope.reschedule(asyncio.get_running_loop().time())
        return True

    def start(self, assumed: AssumedPod, waits: Mapping[str, float]) -> None:
        """Starts the binding cycle of a pod; ``waits`` as from Framework.permit."""
        self.cycles.add(1)
        self.writes.add(1)
        pod = assumed.pod
        waiting = self._waiting.hold(pod, pod.node_name, waits) if waits else None
        arrived = None
        if self._announce is not None and waiting is None:
            arrived = self._announce(pod)
        self._spawn(self._run(assumed, waiting, arrived), "bind")

    async def _run(
        self,
        assumed: AssumedPod,
        waiting: WaitingPodEntry | None,
        arrived: Callable[[], None] | None,
    ) -> None:
        try:
            await self._bind(assumed, waiting, arrived)
        except (SchedulingError, KubeError) as error:
            await self._take_back(assumed, Status(Code.Error, (str(error),)))
        except _Failed as error:
            await self._take_back(assumed, error.status)
        except _NodeFilled as filled:
            self.decided_again += 1
            await self._take_back(assumed, filled.status)
            self._state.activate((assumed.pod,), self._clock.steady())
        except Exception as error:
            log.exception("Error binding pod %s", assumed.pod.key)
            fault = Status(Code.Error, (f"{type(error).__name__}: {error}",))
            await self._take_back(assumed, fault)
        finally:
            if waiting is not None:
                self._waiting.release(waiting)
            if arrived is not None:
                arrived()
            self.writes.add(-1)
            self.cycles.add(-1)

    async def _bind(
        self,
        assumed: AssumedPod,
        waiting: WaitingPodEntry | None,
        arrived: Callable[[], None] | None,
    ) -> None:
        pod, framework, cycle_state = assumed.pod, assumed.framework, assumed.cycle_state
        node = pod.node_name
        work = framework.commit.pre_bind_work(cycle_state, pod, node)
        if work or waiting is not None:
            if arrived is not None:
                arrived()
            self._reports.nominated(assumed.queued.pod, node, self._clock.wall())
            self.writes.add(-1)
            try:
                if waiting is not None:
                    await self._wait_for_permit(assumed, waiting)
                self._state.done(pod.uid)
                await self._prepare(assumed, work)
            finally:
                self.writes.add(1)
        else:
            self._state.done(pod.uid)
        await self._reports.withdraw(pod)
        self.unsettled.add(pod.uid)
        self._writing[pod.uid] = assumed
        try:
            await self._step(assumed, "Bind", self._write_binding(assumed))
        except Exception:
            self.unsettled.discard(pod.uid)
            raise
        finally:
            del self._writing[pod.uid]
        self.unsettled.discard(pod.uid)
        self._bound(assumed)

    async def _take_back(self, assumed: AssumedPod, status: Status) -> None:
        pod = assumed.pod
        try:
            await assumed.framework.commit.undo_pre_bind(
                assumed.cycle_state, pod, pod.node_name, self._effects
            )
        except* SchedulingError as faults:
            told = "; ".join(map(str, faults.exceptions))
            log.error("Cannot take back what was written for pod %s: %s", pod.key, told)
        except* Exception:
            log.exception("Error taking back what was written for pod %s", pod.key)
        self._undo(assumed, status)

    async def _prepare(self, assumed: AssumedPod, work: list[AnyPlugin]) -> None:
        """Runs PreBind, which ``preempt`` may stop."""
        pod, framework = assumed.pod, assumed.framework
        steps = framework.commit.pre_bind(
            assumed.cycle_state, pod, pod.node_name, self._effects, work
        )
        try:
            async with asyncio.timeout(None) as scope:
                self._preparing[pod.uid] = scope
                await self._step(assumed, "PreBind", steps)
        except TimeoutError:
            if pod.uid in self._preparing:
                raise
        finally:
            stopped = self._preparing.pop(pod.uid, None) is None
        if stopped:
            raise SchedulingError(PREEMPTED)

    def look_again(self, uid: str) -> None:
        """Takes a last look at the node before a binding is sent; raises if pods of other schedulers have filled it.

        The pod is then decided again at once. A node to which no such pod has come since it was chosen is not looked
        at.
        """
        assumed = self._writing.get(uid)
        if assumed is None:
            return
        node = assumed.pod.node_name
        if self._state.arrivals(node) == assumed.arrivals:
            return
        row = self._state.table.row_of.get(node)
        counted = self._state.cache.get(uid)
        if row is None or counted is None or not self._state.cache.is_assumed(uid):
            return
        status = assumed.framework.why_unfit(counted, row)
        if status is not None:
            raise _NodeFilled(status)

    async def _write_binding(self, assumed: AssumedPod) -> None:
        pod, node = assumed.pod, assumed.pod.node_name
        if self._extenders is not None:
            self.look_again(pod.uid)
            again = functools.partial(self._extender_again, pod)
            if await self._extenders.bind(pod, node, self.writes.add, again):
                return
        status = await assumed.framework.commit.bind(assumed.cycle_state, pod, node, self._effects)
        if status.code is not Code.Success:
            raise _Failed(status)

    def _extender_again(self, pod: Pod) -> bool:
        """Whether an extender is asked to bind the pod, which has waited; False if it is bound. Raises if it cannot be
        bound there."""
        state = self._state
        row = state.table.row_of.get(pod.node_name)
        if row is None or state.table.nodes[row] is None:
            raise SchedulingError(f'node "{pod.node_name}" not found')
        if not state.cache.is_assumed(pod.uid):
            if state.cache.get(pod.uid) is not None:
                return False
            raise SchedulingError(f'pod "{pod.name}" not found')
        self.look_again(pod.uid)
        return True

    async def _step(self, assumed: AssumedPod, step: str, work: Awaitable[None]) -> None:
        started, status = self._clock.monotonic(), "Error"
        try:
            await work
            status = "Success"
        finally:
            seconds = self._clock.monotonic() - started
            self._emit(BindingStepFinished(assumed.queued, step, status, seconds))

    async def _wait_for_permit(self, assumed: AssumedPod, waiting: WaitingPodEntry) -> None:
        started = self._clock.monotonic()
        status = await self._waiting.wait(waiting)
        seconds, code = self._clock.monotonic() - started, status.code.name
        self._emit(BindingStepFinished(assumed.queued, "WaitOnPermit", code, seconds))
        if not status.ok:
            raise _Failed(status)

    def _bound(self, assumed: AssumedPod) -> None:
        pod = assumed.pod
        self._state.finish_binding(pod.uid)
        self._reports.scheduled(pod, self._clock.wall())
        self._emit(
            PodBound(
                assumed.queued,
                pod,
                assumed.framework.profile_name,
                assumed.choice.feasible,
                assumed.choice.evaluated,
                self._clock.monotonic() - assumed.started,
                self._clock.steady(),
            )
        )
        try:
            assumed.framework.commit.post_bind(assumed.cycle_state, pod, pod.node_name)
        except Exception:
            log.exception("Error in PostBind for pod %s", pod.key)


class _Failed(Exception):  # noqa: N818 - a rejection, not a fault
    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


class _NodeFilled(Exception):  # noqa: N818 - a rejection, not a fault
    """Pods of other schedulers have filled the chosen node."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        text = f"filled by pods that another scheduler has bound: {status.message}"
        self.status = msgspec.structs.replace(status, reasons=(text,))
