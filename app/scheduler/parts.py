"""What every part of the scheduler is built with."""

import dataclasses

import numpy as np

from app.observe.events import Sink
from app.runtime.clock import Clock
from app.runtime.spawn import Spawn
from app.state.scheduler_state import SchedulerState


@dataclasses.dataclass(frozen=True)
class Parts:
    """The state, and the ways to tell time, draw numbers, start tasks and report. One per scheduler."""

    state: SchedulerState
    clock: Clock
    rng: np.random.Generator
    spawn: Spawn
    sink: Sink
