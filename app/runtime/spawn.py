"""How the runtime's parts start tasks: through their owner, so that every task is named, guarded and ended."""

from collections.abc import Coroutine
from typing import Any, Protocol


class Spawn(Protocol):
    """Starts a coroutine as an owned, named task."""

    def __call__(self, coroutine: Coroutine[Any, Any, None], name: str) -> object:
        """Starts it."""
