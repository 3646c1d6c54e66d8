"""Starts tasks in a TaskGroup, logs their failures by name, and limits how many run and for how long without a pause.

An *eternal* task ends only when it is cancelled. If it returns or raises, that is a fault: it is logged and ends the
group.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any, Final, TypeVar

from app.model.clock import Clock

logger = logging.getLogger(__name__)

#: Seconds of work after which a task lets other tasks run.
SLICE: Final = 0.002

T = TypeVar("T")

#: Starts a coroutine as a task of this name, in the TaskGroup of the function's owner.
Spawn = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]


class Limiter:
    """Counts work in progress, at most ``limit`` of which should run; the caller asks before it starts more."""

    def __init__(self, limit: float = math.inf) -> None:
        self.count = 0
        self._limit: Final = limit
        self._below_limit: Final = asyncio.Event()
        self._below_limit.set()
        self._idle: Final = asyncio.Event()
        self._idle.set()

    def add(self, delta: int) -> None:
        """Work has started (positive) or ended (negative)."""
        before, limit = self.count, self._limit
        now = self.count = before + delta
        if (before < limit) is not (now < limit):
            _switch(self._below_limit)
        if (before == 0) is not (now == 0):
            _switch(self._idle)

    @property
    def has_room(self) -> bool:
        """Whether fewer than ``limit`` are in progress."""
        return self.count < self._limit

    async def wait_for_room(self) -> None:
        """Returns when fewer than ``limit`` are in progress."""
        await self._below_limit.wait()

    async def wait_until_idle(self) -> None:
        """Returns when nothing is in progress."""
        await self._idle.wait()


class Slots:
    """Places for ``count`` at once; who has waited longest gets the next one. As asyncio's Semaphore, without a
    coroutine while there is room."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: Final[deque[asyncio.Future[None]]] = deque()

    def take(self) -> bool:
        """Takes a place if one is free; ``wait`` for one otherwise."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def wait(self) -> None:
        """Takes the next place that is given back."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                with suppress(ValueError):  # given back meanwhile, and passed over
                    self._waiting.remove(turn)
            else:  # it had got the place
                self.give_back()
            raise

    def give_back(self) -> None:
        """Gives a place back."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.cancelled():
                turn.set_result(None)
                return
        self._free += 1


def _switch(event: asyncio.Event) -> None:
    """Sets an event that is not set, and clears one that is."""
    if event.is_set():
        event.clear()
    else:
        event.set()


class TimeSlice:
    """Lets other tasks run whenever a task has kept the event loop for SLICE seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._began = clock.monotonic()

    def begin(self) -> None:
        """Other tasks have just run."""
        self._began = self._clock.monotonic()

    async def pause(self) -> None:
        """Lets other tasks run if it is time to."""
        if self._clock.monotonic() - self._began > SLICE:
            await asyncio.sleep(0)
            self._began = self._clock.monotonic()


class EternalTaskEnded(RuntimeError):  # noqa: N818 - says what happened
    """A task that should run until it is cancelled has returned."""


async def in_steps(steps: Generator[None, None, T]) -> T:
    """Runs a generator to its end and returns its value; other tasks run between two steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what the generator returns
        await asyncio.sleep(0)


def at_once(steps: Generator[None, None, T]) -> T:
    """Runs a generator to its end without a pause and returns its value."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what the generator returns


def spawn(group: asyncio.TaskGroup, coro: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    """Starts a task that ends when its work is done. A failure is logged with the task's name, then ends the group."""
    return _start(group, _guarded(coro, name), coro, name)


def spawn_eternal(
    group: asyncio.TaskGroup, coro: Coroutine[Any, Any, object], *, name: str
) -> asyncio.Task[None]:
    """Starts a task that must run until it is cancelled. Any other end is a logged fault and ends the group."""
    return _start(group, _eternal(coro, name), coro, name)


def _start(
    group: asyncio.TaskGroup,
    outer: Coroutine[Any, Any, T],
    inner: Coroutine[Any, Any, object],
    name: str,
) -> asyncio.Task[T]:
    """Starts ``outer``. If it is cancelled before its first step it never awaits ``inner``, which is closed then."""
    task = group.create_task(outer, name=name)
    task.add_done_callback(lambda _: inner.close())
    return task


async def _guarded(coro: Coroutine[Any, Any, T], name: str) -> T:
    try:
        return await coro
    except Exception:
        logger.exception("Task %s has failed", name)
        raise


async def _eternal(coro: Coroutine[Any, Any, object], name: str) -> None:
    await _guarded(coro, name)
    logger.error("Task %s has ended, although it should run until it is cancelled", name)
    raise EternalTaskEnded(name)
