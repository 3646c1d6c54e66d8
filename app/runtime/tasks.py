"""Tasks with an owner, a name and a guard.

Every task belongs to a TaskGroup, which no task outlives. An *eternal* task is one that ends only when it is cancelled; one
that ends in any other way has failed at its job, even when it returned quietly, and takes the group down with it.
"""

import asyncio
import logging
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")


class EternalTaskEnded(RuntimeError):  # noqa: N818 - says what happened
    """A task that should run for ever has returned."""


async def in_steps(steps: Generator[None, None, T]) -> T:
    """What steps come to that each take a short time; other tasks have their turn after each."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what the generator returns
        await asyncio.sleep(0)


def at_once(steps: Generator[None, None, T]) -> T:
    """The same for those who have the time."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what the generator returns


def spawn(group: asyncio.TaskGroup, coro: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
    """Starts a task that ends when its work is done. A failure is logged with the task's name, then ends the group."""
    return group.create_task(_guarded(coro, name), name=name)


def spawn_eternal(
    group: asyncio.TaskGroup, coro: Coroutine[Any, Any, object], *, name: str
) -> asyncio.Task[None]:
    """Starts a task that must run until it is cancelled. Any other end is a logged fault and ends the group."""
    return group.create_task(_eternal(coro, name), name=name)


async def _guarded(coro: Coroutine[Any, Any, T], name: str) -> T:
    try:
        return await coro
    except Exception:
        logger.exception("Task %s has failed", name)
        raise


async def _eternal(coro: Coroutine[Any, Any, object], name: str) -> None:
    await _guarded(coro, name)
    logger.error("Task %s has ended, which it never should", name)
    raise EternalTaskEnded(name)
