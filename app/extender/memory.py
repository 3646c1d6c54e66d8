"""Limits the memory for large answers of extenders while they are read.

Answers of up to one megabyte, four with whole nodes, are read as a whole and need no place. Larger ones are decoded
while they are read, so that each needs at most PLACE_BYTES. They wait for a place in order of arrival until the timeout
of their call; meanwhile nothing more is read from the connection.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from app.extender.failures import no_memory

#: Bytes that a large answer may need: decoded parts, data read ahead, and the part that is being decoded.
PLACE_BYTES: Final = 24 * 1024 * 1024
#: Large answers that are read at a time at most.
MOST: Final = 16


class AnswerMemory:
    """The places for large answers."""

    def __init__(self, memory: int) -> None:
        """``memory``: the process's limit in bytes. A quarter is for large answers: at least one, at most MOST at a
        time."""
        self.places: Final = min(MOST, max(1, memory // 4 // PLACE_BYTES))
        self._places: Final = asyncio.Semaphore(self.places)
        self.reading = 0
        self.waiting = 0
        #: Numbers of large answers that got a place, and that did not in time.
        self.taken = 0
        self.given_up = 0

    @asynccontextmanager
    async def place(self, deadline: float) -> AsyncIterator[None]:
        """A place for the length of the block. Raises TransportError if there is none until ``deadline``, in the loop's
        time."""
        self.waiting += 1
        try:
            async with asyncio.timeout_at(deadline):
                await self._places.acquire()
        except TimeoutError as err:
            self.given_up += 1
            raise no_memory(self.places) from err
        finally:
            self.waiting -= 1
        self.taken += 1
        self.reading += 1
        try:
            yield
        finally:
            self.reading -= 1
            self._places.release()
