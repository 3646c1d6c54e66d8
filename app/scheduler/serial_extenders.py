"""Admits pods to extenders, in the queue's order: as many at a time as each server takes, or one after another.

How many attempts and bindings there are at a server is limited by what it is found to take (app.extender.limit).

Some extenders do not filter: they choose a node, reserve it, and return only that one. They rely on kube-scheduler's
order, in which each pod is sent what the earlier pods have left. Their answers show it: the pods of an extender that
returns one node of several are tried one after another, until it returns several again; so are those of an extender
that has not answered yet. ``serial`` in the configuration overrides this.

A pod that has to wait stays in the activeQ, in the lane of the pods with the same extenders
(app.state.queue.active_queue), and delays no other pod.
"""

import asyncio
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from app.extender.chain import FilterResult
from app.extender.client import HTTPExtender
from app.extender.config import Verb
from app.extender.errors import ExtenderError
from app.extender.limit import Places
from app.model.pod import Pod
from app.state.queue.active_queue import Admits
from app.state.queue.queued_pod import Lane, QueuedPod, no_lane
from app.wire.extender_v1 import FilterAnswer

#: Seconds for which the pods of an ignorable extender wait for its first answer. After that it is more likely to hang
#: than to choose, and each further pod would wait for its timeout in turn.
_FIRST_ANSWER_SECONDS: Final = 1.0


#: Lanes whose servers are remembered.
_MOST_LANES: Final = 1000
#: Is in the lane of pods that belong to a group and concern extenders, besides their names: one group at a time is
#: tried.
GROUP: Final = "pod group"
_GROUP: Final[Lane] = frozenset((GROUP,))


def lanes(
    extenders: Iterable[HTTPExtender], group_of: Callable[[Pod], object]
) -> Callable[[Pod], Lane]:
    """A function that returns a pod's lane in the queue: ``extenders_of``, with GROUP if ``group_of`` the pod is not
    None."""
    extenders = tuple(extenders)
    if not extenders:
        return no_lane
    concerned = extenders_of(extenders, group_of)

    def lane(pod: Pod) -> Lane:
        names = concerned(pod)
        return names | _GROUP if names and group_of(pod) is not None else names

    return lane


def extenders_of(
    extenders: Iterable[HTTPExtender], group_of: Callable[[Pod], object]
) -> Callable[[Pod], Lane]:
    """A function that returns the names of the extenders that filter or prioritize for a pod; for one of a group, also
    by group."""
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


#: When it is a pod's turn: the one with the lowest value is first (``turn_of``).
Turn: TypeAlias = tuple[int, float]


def turn_of(queued: QueuedPod) -> Turn:
    """The highest priority is first, then the longest wait."""
    return -queued.pod.priority, queued.timestamp


class HeldTurn(msgspec.Struct, eq=False, frozen=True):
    """The turn of a group whose pods were popped, and the extenders that they need."""

    lane: Lane
    turn: Turn


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
        self._places_by_name: Final = {e.name: e.places for e in extenders}
        self._places_by_lane: Final[dict[Lane, frozenset[Places]]] = {}
        self._places: Final = tuple(dict.fromkeys(self._places_by_name.values()))
        for places in self._places:
            places.opened = self._tell
        self._serial: Final = (
            self._observed | _GROUP | {e.name for e in extenders if e.config.serial}
        )
        #: Attempts that wait outside the queue.
        self._waiting: list[asyncio.Future[None]] = []
        #: The turns of groups.
        self._held: Final[list[HeldTurn]] = []
        #: The numbers of attempts in progress, by extender; without those that have none.
        self._attempts: Final[Counter[str]] = Counter()
        #: Ignorable extenders without an answer so far, and the timers of those that are called.
        self._unanswered: Final = {e.name for e in filters if e.ignorable} & self._observed
        self._timers: Final[dict[str, asyncio.TimerHandle]] = {}

    @functools.cached_property
    def _now(self) -> Callable[[], float]:
        """The time of the event loop, which is looked up once: that takes a system call."""
        return asyncio.get_running_loop().time

    def gate(self, *, room: bool) -> Admits | None:
        """Which active pods may be tried now, None for all; without ``room`` only those without extenders.

        A pod that has to wait, or a group, is not overtaken by later pods that need the same extender.
        """
        now = self._now()
        left = {places: places.left(now) for places in self._places}
        waits = not self._serial.isdisjoint(self._attempts)
        if room and not waits and min(left.values(), default=1) > 0:
            return None  # the first pod need not wait, and no other one is asked for
        closed = self._serial & self._attempts.keys()

        def admits(queued: QueuedPod) -> bool:
            needed, there = queued.lane & self._serial, self._places_of(queued.lane)
            free = room and closed.isdisjoint(needed) and all(left[places] > 0 for places in there)
            if free and not self._is_held(needed, there, left, turn_of(queued)):
                return True
            closed.update(needed)
            for places in there:
                places.refused = True
                left[places] -= 1  # kept for this pod: those behind it take others, if any
            return not queued.lane

        return admits

    def _is_held(
        self, needed: Lane, there: Iterable[Places], left: Mapping[Places, int], turn: Turn
    ) -> bool:
        """Whether an extender, or the last place at a server, is kept for a group that comes before this turn."""
        for held in self._held:
            if turn >= held.turn:
                if needed & held.lane:
                    return True
                theirs = self._places_of(held.lane)
                if any(left[places] <= 1 and places in theirs for places in there):
                    return True
        return False

    def _places_of(self, lane: Lane) -> frozenset[Places]:
        found = self._places_by_lane.get(lane)
        if found is None:
            by_name = self._places_by_name
            found = frozenset(by_name[name] for name in lane if name in by_name)
            if len(self._places_by_lane) >= _MOST_LANES:
                self._places_by_lane.clear()
            self._places_by_lane[lane] = found
        return found

    def has_room(self, lane: Lane) -> bool:
        """Whether an attempt may begin at the servers of this lane."""
        now, places = self._now(), self._places_of(lane)
        if all(each.left(now) > 0 for each in places):
            return True
        for each in places:
            each.refused = True
        return False

    def hold(self, pods: Sequence[QueuedPod]) -> "HeldTurn":
        """The pods of a group were popped: until ``give_up`` it is their turn, and no other group's.

        Pods in the queue that come after the group are not tried with the extenders that it needs one after another.
        """
        lane = _GROUP.union(*(self.extenders_of(queued.pod) for queued in pods))
        held = HeldTurn(lane, min(map(turn_of, pods)))
        self._held.append(held)
        self.begin(_GROUP)
        return held

    def give_up(self, held: "HeldTurn") -> None:
        """The cycle of the group has ended."""
        self._held.remove(held)
        self.end(_GROUP)

    async def wait(self, lane: Lane) -> None:
        """Returns when an attempt may begin with the extenders of this lane. For a pod of a group whose turn is
        held."""
        while not self._attempts.keys().isdisjoint(lane & self._serial) or not self.has_room(lane):
            freed = asyncio.get_running_loop().create_future()
            self._waiting.append(freed)
            await freed

    def begin(self, lane: Lane) -> None:
        """An attempt for a pod of this lane begins."""
        for places in self._places_of(lane):
            places.take()
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
            others = self._attempts[name] - 1
            if others:
                self._attempts[name] = others
                continue
            del self._attempts[name]
            if name in self._timers:
                self._timers.pop(name).cancel()
        now = self._now()
        for places in self._places_of(lane):
            places.give_back(now)
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
