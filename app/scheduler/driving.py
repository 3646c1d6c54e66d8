"""Drives the steps of a cycle on the event loop: awaits what they wait for."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from app.cycle.attempt import Attempt, Choice
from app.cycle.pod_cycle import Pause, Steps

T = TypeVar("T")

#: Seconds after its first pause when a step has to come to an end with what it has found.
LONGEST_STEP: Final = 2.0


async def drive(steps: Steps[T]) -> T:
    """The result of the steps. Raises what they raise. There is no await after the last request."""
    ends = 0.0
    try:
        request = next(steps)
        while True:
            if isinstance(request, Pause):
                now = asyncio.get_running_loop().time
                if request.first:
                    ends = now() + LONGEST_STEP
                await asyncio.sleep(0)
                request = steps.send(now() < ends)
                continue
            try:
                answer = await request
            except Exception as error:  # noqa: BLE001 - the steps handle it
                request = steps.throw(error)
            else:
                request = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()


def awaited(
    choose: Callable[[Attempt], Coroutine[Any, Any, Choice]], attempt: Attempt
) -> Steps[Choice]:
    """The result of a coroutine, as steps."""
    choice: Choice = yield choose(attempt)
    return choice
