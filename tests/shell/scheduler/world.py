"""A whole Scheduler with its telemetry and a fake API server that agrees to everything, on whatever clock the loop
has.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any

import numpy as np

from app.extender.chain import ExtenderChain
from app.extender.client import HTTPExtender
from app.extender.events import Sink
from app.framework.testing import make_node
from app.kube.events import EventRecorder
from app.kube.transport import Transport
from app.model.budget import UNLIMITED
from app.model.objects import Node
from app.model.pod import Pod
from app.model.pod_groups import PodGroup
from app.observe.telemetry import Telemetry
from app.plugins import registry
from app.scheduler.election.elector import LeaseElector
from app.scheduler.endpoints import Endpoints
from app.scheduler.parts import ApiServer, Budgets, Runtime
from app.scheduler.wiring import Scheduler
from app.settings.load import load
from app.state.scheduler_state import Change
from tests.shell.clock import LoopClock
from tests.shell.kube.fakes import FakeTransport, ok

#: The feature gates for PodGroups of scheduling.k8s.io.
GANGS = frozenset({"GenericWorkload", "GangScheduling"})
CONFIG = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


class World:
    """``scheduler`` with a few nodes; ``transport`` has what was written."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        extenders: Callable[[Sink], list[HTTPExtender]],
        config: str,
        *,
        transport: Transport | None = None,
        clock: LoopClock | None = None,
        rng: np.random.Generator | None = None,
        telemetry: type[Telemetry] = Telemetry,
        memory: int = UNLIMITED,
        features: Collection[str] = GANGS,
    ) -> None:
        self.clock, rng = clock or LoopClock(), rng or np.random.default_rng(7)
        self.telemetry = telemetry(self.clock, rng)
        sink = self.telemetry.on_extender
        self.transport = transport or FakeTransport(handler=lambda _sent: ok(status=201))
        self.loaded = load(config)
        self.budgets = Budgets.within(memory)
        events = EventRecorder(self.transport, host="here", rng=rng, api="events.k8s.io/v1")
        self.scheduler = Scheduler(
            self.loaded,
            registry.registry(),
            runtime=Runtime(group, self.clock, rng, self.telemetry, self.budgets),
            api=ApiServer(self.transport, events, lambda: True),
            chain=ExtenderChain(extenders(sink), sink),
            features=features,
        )
        self.state = self.scheduler.state
        if "GenericWorkload" in features:
            self.serve_groups("v1alpha2")

    def serve_groups(self, version: str) -> None:
        """The API server has PodGroups of scheduling.k8s.io in this version."""
        path = f"/apis/scheduling.k8s.io/{version}/podgroups"
        self.state.cluster.pod_groups.watch(PodGroup, lambda: path)

    def add_nodes(self, *names: str, **fields) -> None:
        for name in names:
            self.change(Node, None, make_node(name, **fields))

    def add(self, pod: Pod) -> Pod:
        self.change(Pod, None, pod)
        return pod

    def change(self, kind: type, old: object, new: object) -> None:
        self.scheduler.carry_out(self.state.apply(Change(kind, old, new), self.clock.steady()))

    async def lead(self) -> None:
        """Does what a process does that leads, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.scheduler.flusher.run())
            group.create_task(self.scheduler.loop.run())

    async def run_for(self, seconds: float) -> None:
        """Leads for so long; no watch reports anything, not even what was written."""
        work = asyncio.ensure_future(self.lead())
        await asyncio.sleep(seconds)
        work.cancel()
        await asyncio.wait([work])

    def endpoints(self, elector: LeaseElector | None = None, **options: Any) -> Endpoints:
        """What would be served about it."""
        given = {"stopping": lambda: False, "flags": {}, "version": "1"} | options
        return Endpoints(self.scheduler, self.telemetry, elector, **given)

    async def settle(self) -> None:
        """Schedules until nothing is active or being bound."""
        work = asyncio.ensure_future(self.lead())
        try:
            await asyncio.sleep(0)
            while (
                self.state.queue.statistics().active
                or self.state.queue.statistics().in_flight
                or self.scheduler.binder.cycles.count
            ):
                await asyncio.sleep(0.001)
            await self.scheduler.patcher.finish()
        finally:
            work.cancel()
            await asyncio.wait([work])


class LoopWorld:
    """Drives a ``state`` with the ``loop`` and the ``flusher`` that a subclass puts together, without a Scheduler."""

    def __init__(self):
        self.clock = LoopClock()
        self.group = asyncio.TaskGroup()

    @contextlib.asynccontextmanager
    async def running(self):
        async with self.group:
            tasks = [self.group.create_task(t) for t in (self.loop.run(), self.flusher.run())]
            yield self
            self.close()
            for task in tasks:
                task.cancel()

    def close(self):
        """Called before the loop ends."""

    def _spawn(self, coroutine, name):
        return self.group.create_task(coroutine, name=name)

    def _wake(self):
        self.loop.wake()

    def _notify(self):
        self.flusher.notify()

    def apply(self, kind, old, new):
        self.state.apply(Change(kind, old, new), self.clock.steady())


@contextlib.asynccontextmanager
async def running(
    *nodes: str,
    extenders: Callable[[Sink], list[HTTPExtender]] = lambda _sink: [],
    config: str = CONFIG,
    memory: int = UNLIMITED,
    transport: Transport | None = None,
    features: Collection[str] = GANGS,
) -> AsyncIterator[World]:
    """A world for the length of the block, which must leave no task behind."""
    async with asyncio.TaskGroup() as group:
        world = World(
            group, extenders, config, memory=memory, transport=transport, features=features
        )
        world.add_nodes(*nodes)
        yield world
