"""Bindings through extenders that lock a node for each pod, as HAMi does until the pod's devices are allocated.

Such an extender refuses a binding while the node is locked for another pod. Once one was refused so, the extender's
bindings to one node follow one another, and a refused one is tried again at the same node: at first often, later when
the lock is expected to end.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from app.extender.errors import ExtenderError

#: Seconds for which a binding is tried again once it is first at its node.
LONGEST_LOCK: Final = 60.0
#: Seconds between tries at least, and the part of the time since the first refusal.
_PAUSE: Final = 0.1
_PART: Final = 0.05
#: The part of a lock's usual time after which the next pod is tried.
_EARLY: Final = 0.9


class _Turn(msgspec.Struct, eq=False):
    """The bindings of one extender to one node. ``bound``: when the last one succeeded; ``stuck``: the last one was
    given up."""

    lock: asyncio.Lock
    users: int = 0
    bound: float = 0.0
    stuck: bool = False


class NodeLocks:
    """The extenders that were found to lock nodes, and the bindings that wait for each other."""

    def __init__(self) -> None:
        #: How long locks last, in seconds, by extender; 0 if that is not known yet.
        self._held: Final[dict[str, float]] = {}
        self._turns: Final[dict[tuple[str, str], _Turn]] = {}

    def locks(self, extender: str) -> bool:
        """Whether the extender was found to lock nodes."""
        return extender in self._held

    def found(self, extender: str) -> None:
        """The extender has refused a binding because the node is locked."""
        self._held.setdefault(extender, 0.0)

    async def bind(self, extender: str, node: str, bind: Callable[[], Awaitable[bool]]) -> bool:
        """The result of ``bind``, in turn and tried again while the node is locked. Raises what ``bind`` does.

        Once a binding was given up because the lock does not end, those that wait behind it are tried once.
        """
        turn = self._turns.setdefault((extender, node), _Turn(asyncio.Lock()))
        turn.users += 1
        try:
            async with turn.lock:
                return await self._bind(extender, turn, bind)
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[extender, node]

    async def _bind(self, extender: str, turn: _Turn, bind: Callable[[], Awaitable[bool]]) -> bool:
        now = asyncio.get_running_loop().time
        expected = turn.bound + _EARLY * self._held[extender]
        if turn.bound and now() < expected:
            await asyncio.sleep(expected - now())
        began, refused = now(), False
        while True:
            try:
                done = await bind()
            except ExtenderError as error:
                if not error.locked:
                    raise
                if turn.stuck or now() - began > LONGEST_LOCK:
                    turn.stuck = True
                    raise
            else:
                if turn.bound:
                    held = now() - turn.bound
                    self._held[extender] = held if refused else _EARLY * held
                turn.bound, turn.stuck = now(), False
                return done
            refused = True
            await asyncio.sleep(max(_PAUSE, _PART * (now() - began)))
