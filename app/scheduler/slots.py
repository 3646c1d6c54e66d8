"""Slots: how many attempts wait for extenders at the same time.

Whoever has finished an attempt begins the next one in the same breath. Freed and taken anew, a slot would stay empty until
the event loop has been through everything else twice, once for the scheduling loop and once for the new task: a sixth of
the time, where extenders take ten milliseconds.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from app.runtime.clock import Clock
from app.runtime.spawn import Spawn

Work = Coroutine[Any, Any, None]

#: For so long, in seconds, work may follow on work before the event loop gets its turn: not all work waits for something.
_LONGEST_TURN: Final = 0.01


class Slots:
    """Runs pieces of work, so many at a time, in the order in which they are given."""

    def __init__(
        self,
        number: int,
        *,
        more: Callable[[], Work | None],
        freed: Callable[[], None],
        clock: Clock,
        spawn: Spawn,
    ) -> None:
        """``more`` is asked for the next piece when none has been waiting for its slot; ``freed`` hears that there was none."""
        self._free = number
        self._more: Final = more
        self._freed: Final = freed
        self._clock: Final = clock
        self._spawn: Final = spawn
        self._waiting: Final[deque[tuple[Work, asyncio.Future[None]]]] = deque()
        #: When the event loop is to get its turn; None while nothing has followed on anything in this one.
        self._turn_ends: float | None = None

    @property
    def has_room(self) -> bool:
        """Whether work that is given now starts at once."""
        return self._free > 0

    async def start(self, work: Work, name: str) -> None:
        """Starts a piece of work as soon as there is a slot; returns when it is started. ``name``: of the task, for logs."""
        if self._free:
            self._free -= 1
            self._spawn(self._work(work), name)
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
