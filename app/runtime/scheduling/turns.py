"""Whose pods are decided one after the other.

Some extenders do not filter: they pick a node, reserve it, and leave that one only. They rely on kube-scheduler's order, in
which each pod is shown what the pods before have left. Nobody can ask them, but their answers tell: an extender that leaves
one node of several has its pods decided one after the other, until it leaves several again. So it is at the beginning, too,
for as long as nothing is known. ``serial`` in the configuration settles it either way.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Final

from app.extender.chain import ChainFilterResult
from app.extender.client import HTTPExtender
from app.extender.config import Verb
from app.model.pod import Pod


class Turns:
    """The extenders that are to be asked about one pod at a time now."""

    def __init__(self, extenders: Iterable[HTTPExtender]) -> None:
        self._extenders: Final = tuple(
            e for e in extenders if e.supports(Verb.FILTER) or e.supports(Verb.PRIORITIZE)
        )
        self._locks: Final = {e.name: asyncio.Lock() for e in self._extenders}
        #: Those that are watched.
        self._watched: Final = {
            e.name for e in self._extenders if e.config.serial is None and e.supports(Verb.FILTER)
        }
        self._strict: Final = self._watched | {e.name for e in self._extenders if e.config.serial}

    def concern(self, pod: Pod) -> bool:
        """Whether this pod may have to wait for its turn."""
        return bool(self._strict) and bool(self._concerned(pod))

    @contextlib.asynccontextmanager
    async def taken(self, pod: Pod) -> AsyncIterator[None]:
        """Waits until it is this pod's turn; the next one's comes when the context is left."""
        async with contextlib.AsyncExitStack() as held:
            for name in self._concerned(pod):
                lock = self._locks[name]
                await lock.acquire()
                if name in self._strict:
                    held.callback(lock.release)
                else:  # the answer to another pod has shown meanwhile that there is no need
                    lock.release()
            yield

    def _concerned(self, pod: Pod) -> list[str]:
        """Always in the same order, each once."""
        names = [e.name for e in self._extenders if e.name in self._strict and e.is_interested(pod)]
        return list(dict.fromkeys(names))

    def learn(self, result: ChainFilterResult) -> None:
        """Notes what the extenders have left of the nodes that they were shown; one that fails tells nothing."""
        if not self._watched:
            return
        failed = [error.extender for error in result.ignored]
        if result.error is not None:
            failed.append(result.error.extender)
        self._strict.difference_update(self._watched.intersection((*failed, *result.left_several)))
        self._strict.update(self._watched.intersection(result.left_one))
