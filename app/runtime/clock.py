"""Clocks and random number generators: the only module that reads the machine's time or randomness.

All other code gets a Clock and a generator, so that tests can control the time and repeat random numbers.
"""

import functools
import secrets
import time
from collections.abc import Callable
from typing import Final

import numpy as np

# Keeps counting while the machine sleeps, so that a lease is not trusted after a long sleep.
_ELAPSED: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The machine's own clocks (see app.model.clock.Clock)."""

    def __init__(self) -> None:
        #: See Clock. Unlike ``loop.time()`` of uvloop it is not cached, so it is right after the process was frozen. It
        #: is asked ten times for each pod, so no function of Python lies between.
        self.monotonic: Final[Callable[[], float]] = functools.partial(time.clock_gettime, _ELAPSED)
        #: See Clock.
        self.wall: Final[Callable[[], float]] = time.time
        self._began: Final = self.wall() - self.monotonic()

    def steady(self) -> float:
        """See Clock."""
        return self._began + time.clock_gettime(_ELAPSED)


def stopwatch() -> Callable[[], float]:
    """The cheapest clock that never goes back, for short durations; it may stop while the machine sleeps."""
    return time.perf_counter


def thread_seconds() -> float:
    """The seconds of processor time that this thread has used."""
    return time.thread_time()


def make_secret() -> str:
    """A text that cannot be guessed, for a URL."""
    return secrets.token_urlsafe(24)


def make_rng(seed: int | None = None) -> tuple[np.random.Generator, int]:
    """A generator and its seed, which is logged: the same seed gives the same random numbers."""
    chosen = secrets.randbits(63) if seed is None else seed
    return np.random.default_rng(chosen), chosen
