"""Slots for attempts that wait for extenders: so many pieces of work at a time, in order."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from app.model.clock import Clock
from app.runtime.tasks import Spawn

Work = Coroutine[Any, Any, object]

#: Seconds for which pieces of work may follow each other in a slot before the event loop runs: some never wait for
#: anything.
_LONGEST_TURN: Final = 0.01


class Slots:
    """Runs pieces of work, at most ``number`` at a time, in the order given."""

    def __init__(
        self,
        number: int,
        *,
        more: Callable[[], Work | None],
        freed: Callable[[], None],
        clock: Clock,
        spawn: Spawn,
    ) -> None:
        """``more`` supplies the next piece if none waits for a free slot; ``freed`` is called if it supplies none."""
        self.number: Final = number
        self._free = number
        self._more: Final = more
        self._freed: Final = freed
        self._clock: Final = clock
        self._spawn: Final = spawn
        self._waiting: Final[deque[tuple[Work, asyncio.Future[None]]]] = deque()
        #: When work stops following on work until the event loop has run (monotonic); None before the first has.
        self._turn_ends: float | None = None

    @property
    def has_room(self) -> bool:
        """Whether a slot is free."""
        return self._free > 0

    @property
    def idle(self) -> bool:
        """Whether no work is in progress."""
        return self._free == self.number

    async def start(self, work: Work, name: str) -> None:
        """Starts a piece of work as soon as a slot is free; returns when it is started. ``name``: of the task."""
        if self._free:
            self._free -= 1
            task = self._spawn(self._work(work), name)
            # A task that is cancelled before its first step never awaits the work.
            task.add_done_callback(lambda _: work.close())
            return
        started = asyncio.get_running_loop().create_future()
        self._waiting.append((work, started))
        try:
            await started
        finally:
            if started.cancelled():
                self._waiting.remove((work, started))
                work.close()

    async def _work(self, work: Work | None) -> None:
        try:
            while work is not None:
                await work
                work = self._next()
        finally:
            self._free += 1
            self._freed()

    def _next(self) -> Work | None:
        if self._waiting:
            work, started = self._waiting.popleft()
            started.set_result(None)
            return work
        now = self._clock.monotonic()
        if self._turn_ends is None:
            self._turn_ends = now + _LONGEST_TURN
            asyncio.get_running_loop().call_soon(self._new_turn)
        return self._more() if now < self._turn_ends else None

    def _new_turn(self) -> None:
        self._turn_ends = None
