"""Time and chance for the shell: the only place that asks the machine for either.

Everything else is given a Clock and a generator, so that tests can turn the hands and repeat the dice.
"""

import secrets
import time
from collections.abc import Callable
from typing import Final, Protocol

import numpy as np

# Keeps counting while a machine sleeps, as a lease that was held before must not be believed in after.
_ELAPSED: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Tells the time, in seconds."""

    def monotonic(self) -> float:
        """Since some moment in the past; never goes back, and never stands still. Not the event loop's time."""
        ...

    def wall(self) -> float:
        """Since the epoch; may jump."""
        ...

    def steady(self) -> float:
        """Since the epoch as the wall clock had it when this clock was made; never jumps. For spans whose ends people see."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def __init__(self) -> None:
        self._began: Final = self.wall() - self.monotonic()

    def monotonic(self) -> float:
        """See Clock. Unlike ``loop.time()`` under uvloop it is never one that was read before the process was frozen."""
        return time.clock_gettime(_ELAPSED)

    def wall(self) -> float:
        """See Clock."""
        return time.time()

    def steady(self) -> float:
        """See Clock."""
        return self._began + self.monotonic()


def stopwatch() -> Callable[[], float]:
    """The cheapest clock that never goes back, for spans too short for anybody to freeze the process in."""
    return time.perf_counter


def make_rng(seed: int | None = None) -> tuple[np.random.Generator, int]:
    """A generator and its seed, which belongs in the log: the same seed gives the same run."""
    chosen = secrets.randbits(63) if seed is None else seed
    return np.random.default_rng(chosen), chosen
