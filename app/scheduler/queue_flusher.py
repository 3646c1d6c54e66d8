"""Moves pods to the active queue when their time has come: after their backoff, or when they have waited too long."""

import asyncio
import math
from collections.abc import Callable
from typing import Final

from app.runtime.clock import Clock
from app.state.scheduler_state import SchedulerState


class QueueFlusher:
    """Sleeps until the first pod is due; ``notify`` tells it that this may be sooner than it was."""

    def __init__(self, state: SchedulerState, clock: Clock, wake: Callable[[], None]) -> None:
        """``wake`` is called when there may be active pods."""
        self._state: Final = state
        self._clock: Final = clock
        self._wake: Final = wake
        self._sooner: Final = asyncio.Event()
        #: When the queue is looked at again if nothing happens, by the steady clock.
        self._at = math.inf

    def notify(self) -> None:
        """The queue changed (SchedulerState calls this)."""
        if self._state.ready:
            self._wake()
        due = self._state.next_flush_time(self._clock.steady())
        if due is not None and due < self._at:
            self._sooner.set()

    async def run(self) -> None:
        """Flushes until cancelled."""
        while True:
            await self._wait_until_due()
            if self._state.flush(self._clock.steady()):
                self._wake()
            await asyncio.sleep(0)

    async def _wait_until_due(self) -> None:
        while True:
            self._sooner.clear()
            now = self._clock.steady()
            due = self._state.next_flush_time(now)
            self._at = math.inf if due is None else due
            if due is not None and due <= now:
                return
            try:
                async with asyncio.timeout(None if due is None else due - now + 0.001):
                    await self._sooner.wait()
            except TimeoutError:
                return
