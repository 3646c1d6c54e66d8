"""Steps of an attempt that take longer than the event loop may be held up."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from app.model.status import Unfinished
from app.scheduler.attempt import Attempt

T = TypeVar("T")

#: Seconds after which a step has to come to an end with what it has found.
LONGEST_STEP: Final = 2.0


async def in_turns(attempt: Attempt, step: Callable[[], T]) -> T:
    """The result of ``step``, a method of the attempt, which is repeated as long as it has not finished.

    Other tasks run in between, and the last call has no await after it: the result is that of the table as it is. Raises what
    ``step`` raises.
    """
    now = asyncio.get_running_loop().time
    end = now() + LONGEST_STEP
    while True:
        attempt.may_pause = now() < end
        try:
            return step()
        except Unfinished:
            await asyncio.sleep(0)
