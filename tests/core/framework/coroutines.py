"""Coroutines in tests of the core, where there is no event loop."""

from collections.abc import Coroutine
from typing import Any


def finish(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns that never really waits, as those of plugins do with fake effects."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waits")
