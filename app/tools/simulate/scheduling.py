"""The scheduler of a simulation: its own parts on the objects of an embedded cluster, in this process
and in its time.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from app.extender.memory import AnswerMemory
from app.kube.events import EventRecorder
from app.kube.transport import Transport
from app.model.clock import Clock
from app.model.features import Features
from app.model.selectors import Labels
from app.observe.telemetry import Telemetry
from app.plugins import registry
from app.runtime.clock import make_rng
from app.runtime.distributions import entry_points
from app.runtime.limits import take_limits
from app.runtime.tasks import spawn_eternal
from app.scheduler.extenders import make_chain
from app.scheduler.parts import ApiServer, Budgets, Runtime
from app.scheduler.wiring import Scheduler
from app.settings.load import Loaded, Settings

#: The part of the memory limit for what waits, as in a scheduler's process.
_PART_FOR_WAITING: Final = 8


class SimulatedScheduler:
    """A scheduler that runs, and what it still has to do."""

    def __init__(self, scheduler: Scheduler, telemetry: Telemetry, events: EventRecorder) -> None:
        self._scheduler: Final = scheduler
        self._telemetry: Final = telemetry
        self._events: Final = events

    def is_idle(self, retrying: int = 0) -> bool:
        """Whether it does nothing, and will do nothing without a change from outside.

        ``retrying``: pods that may be in backoff all the same.
        """
        scheduler = self._scheduler
        queue, cache = scheduler.state.queue.statistics(), scheduler.state.cache.statistics()
        return (
            scheduler.synced
            and queue.backoff + queue.error_backoff <= retrying
            and not queue.active
            and not queue.in_flight
            and not cache.unconfirmed_pods
            and not scheduler.binder.cycles.count
            and not scheduler.evictor.preemptions.count
            and not self._telemetry.extender_metrics.prioritizing()
            and not len(scheduler.patcher)
            and not self._events.statistics().queued
        )


@contextlib.asynccontextmanager
async def scheduling(
    settings: Settings, transport: Transport, clock: Clock, *, features: Features
) -> AsyncIterator[SimulatedScheduler]:
    """Schedules for the length of the block, by these rules. Raises ConfigurationError, PluginError."""
    async with standing_by(settings, transport, clock, features=features) as (scheduler, group):
        telemetry, events = scheduler.telemetry, scheduler.events
        work = [
            spawn_eternal(group, events.run(), name="events"),
            spawn_eternal(group, scheduler.parts.loop.run(), name="schedule"),
        ]
        yield SimulatedScheduler(scheduler.parts, telemetry, events)
        work[-1].cancel()
        await scheduler.parts.wind_down(0.0)


class Standby(NamedTuple):
    """A scheduler whose caches are filled, and that schedules nothing."""

    parts: Scheduler
    telemetry: Telemetry
    events: EventRecorder


@contextlib.asynccontextmanager
async def standing_by(
    settings: Settings, transport: Transport, clock: Clock, *, features: Features
) -> AsyncIterator[tuple[Standby, asyncio.TaskGroup]]:
    """Follows a cluster for the length of the block. Raises ConfigurationError, PluginError."""
    rng, _ = make_rng()
    telemetry = Telemetry(clock, rng.spawn(1)[0])
    limits = take_limits()
    budgets = Budgets.within(limits.memory // _PART_FOR_WAITING)
    running: list[Scheduler] = []

    def labels_of(namespace: str) -> Labels | None:
        found = running[0].state.cluster.namespaces.get(namespace) if running else None
        return None if found is None else found.labels

    sinks = (telemetry.on_extender, telemetry.on_shadow)
    chain = make_chain(settings, sinks, lambda: True, AnswerMemory(limits.memory), labels_of)
    telemetry.expect(chain.all)
    events = EventRecorder(transport, host="simulation", rng=rng, budget=budgets.events)
    try:
        async with asyncio.TaskGroup() as group:
            scheduler = Scheduler(
                Loaded(settings),
                registry.registry(entry_points(group=registry.GROUP)),
                runtime=Runtime(group, clock, rng.spawn(1)[0], telemetry, budgets),
                api=ApiServer(transport, events, lambda: True),
                chain=chain,
                features=features,
            )
            running.append(scheduler)
            scheduler.start_watching()
            await scheduler.wait_synced()
            yield Standby(scheduler, telemetry, events), group
            raise _Finished  # noqa: TRY301 - ends the eternal tasks of the group
    except* _Finished:
        pass
    finally:
        await chain.close()
        for scheduler in running:
            scheduler.whatif.close()


class _Finished(Exception):  # noqa: N818 - ends a TaskGroup with eternal tasks
    pass
