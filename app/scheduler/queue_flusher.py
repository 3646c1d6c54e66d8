"""Moves pods whose time has come back to the active queue: after their backoff, or when they have waited for too long."""

import asyncio
import math
from collections.abc import Callable
from typing import Final

from app.runtime.clock import Clock
from app.state.queue.scheduling_queue import SchedulingQueue


class QueueFlusher:
    """Sleeps until the first pod is due, however often the queue changes; must be told of every change by ``poke``."""

    def __init__(self, queue: SchedulingQueue, clock: Clock, wake: Callable[[], None]) -> None:
        """``wake`` is called when there may be active pods."""
        self._queue: Final = queue
        self._clock: Final = clock
        self._wake: Final = wake
        self._sooner: Final = asyncio.Event()
        #: When the queue is looked at again if nothing happens, by the steady clock.
        self._at = math.inf

    def poke(self) -> None:
        """Something changed that may have put pods into the active or the backoff queue."""
        if self._queue.ready:
            self._wake()
        due = self._queue.next_flush_time(self._clock.steady())
        if due is not None and due < self._at:
            self._sooner.set()

    async def run(self) -> None:
        """Flushes until cancelled."""
        while True:
            await self._wait_until_due()
            now = self._clock.steady()
            woken = self._queue.continue_waking()
            if woken + self._queue.flush_backoff(now) + self._queue.flush_unschedulable(now):
                self._wake()
            await asyncio.sleep(0)

    async def _wait_until_due(self) -> None:
        while True:
            self._sooner.clear()
            now = self._clock.steady()
            due = self._queue.next_flush_time(now)
            self._at = math.inf if due is None else due
            if due is not None and due <= now:
                return
            try:
                async with asyncio.timeout(None if due is None else due - now + 0.001):
                    await self._sooner.wait()
            except TimeoutError:
                return
