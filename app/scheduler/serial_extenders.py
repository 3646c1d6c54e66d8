"""Whose pods are decided one after the other.

Some extenders do not filter: they pick a node, reserve it, and leave that one only. They rely on kube-scheduler's order, in
which each pod is shown what the pods before have left. The configuration does not say so, but their answers do: an extender that leaves
one node of several has its pods decided one after the other, until it leaves several again. So it is at the beginning, too,
for as long as nothing is known. ``serial`` in the configuration settles it either way.

A pod that would have to wait stays in the queue, in the lane of those that concern the same extenders (app.state.queue.active_queue),
and holds up no other pod.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final
from weakref import WeakKeyDictionary

from app.extender.chain import FilterResult
from app.extender.client import HTTPExtender
from app.extender.config import Verb
from app.model.pod import Pod, PodTemplate
from app.state.queue.active_queue import Admits
from app.state.queue.queued_pod import Lane

#: For so long, in seconds, the pods of an ignorable extender wait for its first word. Then it is more likely to hang than to
#: choose, and each pod asked about later would wait for its timeout later.
_PATIENCE: Final = 1.0


def extenders_of(extenders: Iterable[HTTPExtender]) -> Callable[[Pod], Lane]:
    """Tells the names of those that filter or prioritize for a pod: its lane."""
    asked = tuple(e for e in extenders if e.supports(Verb.FILTER) or e.supports(Verb.PRIORITIZE))
    known: WeakKeyDictionary[PodTemplate, Lane] = WeakKeyDictionary()

    def lane(pod: Pod) -> Lane:
        names = known.get(pod.template)
        if names is None:
            names = frozenset(e.name for e in asked if e.is_interested(pod))
            known[pod.template] = names
        return names

    return lane


class SerialGate:
    """The extenders that are to be asked about one pod at a time now, and how many pods they are asked about."""

    def __init__(self, extenders: Sequence[HTTPExtender], opened: Callable[[], None]) -> None:
        """``opened`` is called whenever pods that had to wait need not any more."""
        filters = [e for e in extenders if e.supports(Verb.FILTER)]
        self._opened: Final = opened
        #: Those that are watched.
        self._watched: Final = {e.name for e in filters if e.config.serial is None}
        self._strict: Final = self._watched | {e.name for e in extenders if e.config.serial}
        #: Attempts under way, by extender.
        self._under_way: Final[Counter[str]] = Counter()
        #: Those whose first answer is awaited for at most _PATIENCE, until it has come.
        self._unheard: Final = {e.name for e in filters if e.ignorable} & self._watched
        self._patience: Final[dict[str, asyncio.TimerHandle]] = {}

    def gate(self, *, room: bool) -> Admits | None:
        """Which pods may be tried now, None for all; without ``room`` only those that concern no extender.

        A pod that has to wait keeps those after it that need the same extender from overtaking it.
        """
        if room and not self._strict:
            return None
        closed = {name for name in self._strict if self._under_way[name]}

        def admits(lane: Lane) -> bool:
            needed = lane & self._strict
            if room and closed.isdisjoint(needed):
                return True
            closed.update(needed)
            return not lane

        return admits

    def begin(self, lane: Lane) -> None:
        """An attempt for a pod of this lane begins."""
        for name in lane:
            self._under_way[name] += 1
            if name in self._unheard and name not in self._patience:
                loop = asyncio.get_running_loop()
                self._patience[name] = loop.call_later(_PATIENCE, self._lose_patience, name)

    def end(self, lane: Lane) -> None:
        """It has ended."""
        for name in lane:
            self._under_way[name] -= 1
            if name in self._patience and not self._under_way[name]:
                self._patience.pop(name).cancel()
        if not lane.isdisjoint(self._strict):
            self._opened()

    def learn(self, result: FilterResult) -> None:
        """Notes what the extenders have left of the nodes that they were shown; one that fails tells nothing."""
        if not self._watched:
            return
        failed = [error.extender for error in result.ignored]
        if result.error is not None:
            failed.append(result.error.extender)
        lax = self._watched.intersection((*failed, *result.left_several))
        self._unheard.difference_update(lax, result.left_one)
        self._relax(lax)
        self._strict.update(self._watched.intersection(result.left_one))

    def _lose_patience(self, name: str) -> None:
        del self._patience[name]
        self._relax({name} & self._unheard)
        self._unheard.discard(name)

    def _relax(self, names: set[str]) -> None:
        """The pods of these extenders need not wait for each other any more."""
        if not names.isdisjoint(self._strict):
            self._strict.difference_update(names)
            self._opened()
