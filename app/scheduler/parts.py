"""What the scheduler is built from: the process's runtime, access to the API server, and what its own parts share."""

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from app.kube.events import EventRecorder
from app.kube.transport import Guard, Transport
from app.model.budget import ByteBudget
from app.model.clock import Clock
from app.observe.events import EventSink
from app.observe.telemetry import Telemetry
from app.runtime.tasks import Spawn
from app.state.scheduler_state import SchedulerState

if TYPE_CHECKING:  # few schedulers record
    from app.scheduler.recording import Recorder


class Budgets(NamedTuple):
    """The memory for what waits: one budget for each kind, so that none takes the room of another."""

    #: Cluster events for pods in flight.
    in_flight_events: ByteBudget
    #: Cluster events that are not applied to all waiting pods yet.
    pending_events: ByteBudget
    #: Series of API events.
    events: ByteBudget
    status_patches: ByteBudget

    @classmethod
    def within(cls, memory: int) -> "Budgets":
        """Equal budgets, together ``memory`` bytes."""
        return cls(*(ByteBudget(memory // len(cls._fields)) for _ in cls._fields))


class Runtime(msgspec.Struct, frozen=True):
    """Owner of the tasks, time, random numbers, and where events are reported. One per process.

    ``budgets``: the memory for what waits. ``recorder``: what records all that happens, if anything does.
    ``version``: of aiokube-scheduler.
    """

    group: asyncio.TaskGroup
    clock: Clock
    rng: np.random.Generator
    telemetry: Telemetry
    budgets: Budgets
    recorder: "Recorder | None" = None
    version: str = ""


class ApiServer(msgspec.Struct, frozen=True):
    """How the scheduler reads, writes and records events; ``may_write`` is asked right before each write."""

    transport: Transport
    events: EventRecorder
    may_write: Guard


class Parts(msgspec.Struct, frozen=True):
    """What every part of the scheduler gets: the state, time, random numbers, and how to start tasks and
    report events.
    """

    state: SchedulerState
    clock: Clock
    rng: np.random.Generator
    spawn: Spawn
    sink: EventSink
