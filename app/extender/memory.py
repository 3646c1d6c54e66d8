"""A common limit for the memory that large answers of extenders take while they are read.

Answers of up to a megabyte, of four for one with whole nodes, are read in one go and take no place. Larger ones are read as they come, so
that each needs no more than PLACE_BYTES whatever its length. They wait for a place in the order in which they came, for as
long as the time for their call lasts; the extender waits with them, as nothing more is read from the connection.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from app.extender.failures import no_memory

#: Bytes that a large answer may take: what is kept of it, what has been read ahead, what is being decoded.
PLACE_BYTES: Final = 24 * 1024 * 1024
#: Large answers that are read at a time, however much memory there is.
MOST: Final = 16


class AnswerMemory:
    """The places for large answers."""

    def __init__(self, memory: int) -> None:
        """``memory``: bytes that the process may have. A quarter of them is for large answers, for MOST at most and one at least."""
        self.places: Final = min(MOST, max(1, memory // 4 // PLACE_BYTES))
        self._places: Final = asyncio.Semaphore(self.places)
        self.reading = 0
        self.waiting = 0
        #: How many large answers got a place, and how many did not in time.
        self.taken = 0
        self.given_up = 0

    @asynccontextmanager
    async def place(self, deadline: float) -> AsyncIterator[None]:
        """A place for the length of the block. Raises TransportError if there is none until ``deadline``, in the loop's time."""
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
