"""What the scheduler is built from: the process's runtime, access to the API server, and what its own parts share."""

import asyncio
import dataclasses

import numpy as np

from app.kube.events import EventRecorder
from app.kube.transport import Guard, Transport
from app.model.budget import ByteBudget
from app.observe.events import Sink
from app.observe.telemetry import Telemetry
from app.runtime.clock import Clock
from app.runtime.tasks import Spawn
from app.state.scheduler_state import SchedulerState


@dataclasses.dataclass(frozen=True)
class Runtime:
    """Owner of the tasks, time, random numbers, and where events are reported. One per process.

    ``budget``: the memory for what waits, cluster events and status patches.
    """

    group: asyncio.TaskGroup
    clock: Clock
    rng: np.random.Generator
    telemetry: Telemetry
    budget: ByteBudget


@dataclasses.dataclass(frozen=True)
class ApiServer:
    """How the scheduler reads, writes and records events; ``may_write`` is asked right before each write."""

    transport: Transport
    events: EventRecorder
    may_write: Guard


@dataclasses.dataclass(frozen=True)
class Parts:
    """What every part of the scheduler gets: the state, time, random numbers, and how to start tasks and report events."""

    state: SchedulerState
    clock: Clock
    rng: np.random.Generator
    spawn: Spawn
    sink: Sink
