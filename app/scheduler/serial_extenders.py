"""Calls extenders that reserve nodes while they filter for one pod at a time.

Some extenders do not filter: they choose a node, reserve it, and return only that one. They rely on kube-scheduler's order, in
which each pod is sent what the earlier pods have left. Their answers show it: the pods of an extender that returns one node of
several are tried one after another, until it returns several again; so are those of an extender that has not answered yet.
``serial`` in the configuration overrides this.

A pod that has to wait stays in the activeQ, in the lane of the pods with the same extenders (app.state.queue.active_queue), and
delays no other pod.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from app.extender.chain import FilterResult
from app.extender.client import HTTPExtender
from app.extender.config import Verb
from app.extender.errors import ExtenderError
from app.model.pod import Pod
from app.state.queue.active_queue import Admits
from app.state.queue.queued_pod import Lane
from app.wire.extender_v1 import FilterAnswer

#: Seconds for which the pods of an ignorable extender wait for its first answer. After that it is more likely to hang than to
#: choose, and each further pod would wait for its timeout in turn.
_FIRST_ANSWER_SECONDS: Final = 1.0


#: Is in the lane of pods that belong to a group and concern extenders, besides their names: one group at a time is tried.
GROUP: Final = "pod group"
_GROUP: Final[Lane] = frozenset((GROUP,))


def lanes(
    extenders: Iterable[HTTPExtender], group_of: Callable[[Pod], object]
) -> Callable[[Pod], Lane]:
    """A function that returns a pod's lane in the queue: ``extenders_of``, with GROUP if ``group_of`` the pod is not None."""
    extenders = tuple(extenders)
    concerned = extenders_of(extenders, group_of)
    if not extenders:
        return concerned

    def lane(pod: Pod) -> Lane:
        names = concerned(pod)
        return names | _GROUP if names and group_of(pod) is not None else names

    return lane


def extenders_of(
    extenders: Iterable[HTTPExtender], group_of: Callable[[Pod], object]
) -> Callable[[Pod], Lane]:
    """A function that returns the names of the extenders that filter or prioritize for a pod; for one of a group, also by group."""
    extenders = tuple(extenders)
    asked = tuple(e for e in extenders if e.supports(Verb.FILTER) or e.supports(Verb.PRIORITIZE))
    whole = tuple(e for e in extenders if e.supports(Verb.GROUP) and e not in asked)
    always = frozenset(e.name for e in asked if e.concerns_all)
    choosy = tuple(e for e in asked if not e.concerns_all)

    def lane(pod: Pod) -> Lane:
        names = always
        for extender in choosy:
            if extender.is_interested(pod):
                names |= {extender.name}
        if whole and group_of(pod) is not None:
            names = names.union(e.name for e in whole if e.is_interested(pod))
        return names

    return lane


class SerialGate:
    """Knows which extenders are called for one pod at a time, and how many attempts call each."""

    def __init__(
        self,
        extenders: Sequence[HTTPExtender],
        opened: Callable[[], None],
        group_of: Callable[[Pod], object] = lambda _pod: None,
    ) -> None:
        """``opened`` is called whenever pods that had to wait may go on. ``group_of`` returns a pod's group."""
        #: The names of the extenders that a pod needs.
        self.extenders_of: Final = extenders_of(extenders, group_of)
        filters = [e for e in extenders if e.supports(Verb.FILTER)]
        self._opened: Final = opened
        #: Extenders whose answers decide whether their pods are tried one after another.
        self._observed: Final = {e.name for e in filters if e.config.serial is None}
        #: Extenders whose pods are tried one after another now.
        self._serial: Final = self._observed | {e.name for e in extenders if e.config.serial}
        #: Attempts that wait outside the queue.
        self._waiting: list[asyncio.Future[None]] = []
        #: The numbers of attempts in progress, by extender; without those that have none.
        self._attempts: Final[Counter[str]] = Counter()
        #: Ignorable extenders without an answer so far, and the timers of those that are called.
        self._unanswered: Final = {e.name for e in filters if e.ignorable} & self._observed
        self._timers: Final[dict[str, asyncio.TimerHandle]] = {}

    def gate(self, *, room: bool) -> Admits | None:
        """Which lanes of the activeQ are open now, None for all; without ``room`` only that of pods without extenders.

        A pod that has to wait is not overtaken by later pods that need the same extender.
        """
        closed = self._serial & self._attempts.keys()
        if room and not closed:
            return None  # the first pod need not wait, and no other one is asked for

        def admits(lane: Lane) -> bool:
            needed = lane & self._serial
            if room and closed.isdisjoint(needed):
                return True
            closed.update(needed)
            return not lane

        return admits

    @contextmanager
    def only_group(self) -> Iterator[None]:
        """During the block, the lanes of pods of groups are closed (GROUP)."""
        self._serial.add(GROUP)
        self.begin(_GROUP)
        try:
            yield
        finally:
            self.end(_GROUP)
            self._serial.discard(GROUP)

    async def wait(self, lane: Lane) -> None:
        """Returns when no other attempt calls an extender of this lane that is called for one pod at a time."""
        while not self._attempts.keys().isdisjoint(lane & self._serial):
            freed = asyncio.get_running_loop().create_future()
            self._waiting.append(freed)
            await freed

    def begin(self, lane: Lane) -> None:
        """An attempt for a pod of this lane begins."""
        for name in lane:
            self._attempts[name] += 1
            if name in self._unanswered and name not in self._timers:
                loop = asyncio.get_running_loop()
                self._timers[name] = loop.call_later(
                    _FIRST_ANSWER_SECONDS, self._give_up_waiting, name
                )

    def end(self, lane: Lane) -> None:
        """An attempt for a pod of this lane has ended."""
        for name in lane:
            self._attempts[name] -= 1
            if not self._attempts[name]:
                del self._attempts[name]
                if name in self._timers:
                    self._timers.pop(name).cancel()
        if not lane.isdisjoint(self._serial):
            self._tell()

    def observe(self, result: FilterResult) -> None:
        """Takes note of how many nodes each extender returned; one that failed counts as one that filters."""
        if not self._observed:
            return
        failed = [error.extender for error in result.ignored]
        if result.error is not None:
            failed.append(result.error.extender)
        self._note((*failed, *result.left_several), result.left_one)

    def observe_answer(
        self, extender: HTTPExtender, sent: int, answer: FilterAnswer | ExtenderError
    ) -> None:
        """As ``observe``, for one answer about ``sent`` nodes."""
        kept = 2 if isinstance(answer, ExtenderError) else len(answer.kept)
        self._note(
            (extender.name,) if kept > 1 else (), (extender.name,) if kept == 1 < sent else ()
        )

    def may_overlap(self, lane: Lane) -> bool:
        """Whether the extenders of this lane may be called for several pods at a time."""
        return self._serial.isdisjoint(lane)

    def attempts(self, lane: Lane) -> int:
        """How many attempts in progress call the extenders of this lane; of several, the one with the fewest counts."""
        return min((self._attempts[name] for name in lane), default=0)

    def serial(self, lane: Lane) -> Lane:
        """The extenders of this lane whose pods are tried one after another now."""
        return lane & self._serial

    def _note(self, left_several: Iterable[str], left_one: Iterable[str]) -> None:
        overlapping = self._observed.intersection(left_several)
        chosen = self._observed.intersection(left_one)
        self._unanswered.difference_update(overlapping, chosen)
        self._let_overlap(overlapping)
        self._serial.update(chosen)

    def _give_up_waiting(self, name: str) -> None:
        del self._timers[name]
        self._let_overlap({name} & self._unanswered)
        self._unanswered.discard(name)

    def _let_overlap(self, names: set[str]) -> None:
        """Lets the pods of these extenders be tried at the same time."""
        if not names.isdisjoint(self._serial):
            self._serial.difference_update(names)
            self._tell()

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for freed in waiting:
            if not freed.done():
                freed.set_result(None)
        self._opened()
