"""The changes around the moment at which a pod was decided: applied ones, which can be undone, and those to come.

A scheduler decides a pod some time before its binding shows, and bindings of several pods are written side by side. So
the table at the moment of the decision differs from the table at the moment of the binding: pods that were decided
earlier may be bound later, and changes that were seen before the binding may have come after the decision.

A Timeline holds the changes that have arrived until they are taken over (``ahead``), however long that takes; brings
the outcomes among them into the order in which they were decided (``put_in_order``), so that the state is mostly that
of the decision when an outcome is first (``ahead[0]``); and can undo those that were taken over lately (``behind``).
"""

import heapq
import sys
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

import msgspec

from app.model.claims import claim_keys, fully_bound
from app.model.objects import Node
from app.model.pod import Pod
from app.state.scheduler_state import Change, Command, ReportProblem, SchedulerState
from app.tools.shadow.outcomes import (
    Outcomes,
    PodOutcome,
    QueuePosition,
    ends_waiting,
    is_eviction,
    precedes,
)
from app.tools.shadow.preparation import Preparation, preparation

T = TypeVar("T")

#: Seconds by which watches of different kinds may differ, on a busy machine.
_SKEW: Final = 1.0
#: Changes to come that are looked at, in number and in seconds after the first one: more than outcomes are held back.
_NEAR: Final = 2000
_NEAR_SECONDS: Final = 1.0
#: Seconds after which a decision whose binding waits for something is taken to have failed, if nothing shows: the
#: bindTimeoutSeconds of kube-scheduler, 600 s, and a minute.
_LONGEST_BINDING: Final = 660.0
#: Two bindings may show in another order than they were decided in if not more seconds, or not more changes, lie
#: between them. On a machine with 20 to 30 processes for 2 cores kube-scheduler 1.36.2 had bindings under way for more
#: than 3 s.
_IN_FLIGHT_SECONDS: Final = 10.0
_IN_FLIGHT: Final = 1000
#: Before all known places in the queue.
_NOWHERE: Final[QueuePosition] = (0, "")


class Entry(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A change from a watch."""

    #: Ascending in the order of arrival.
    number: int
    #: When it arrived, in seconds.
    at: float
    change: Change
    outcome: PodOutcome | None
    #: The object that changes.
    key: tuple[type, str]
    #: The node that the change concerns; empty if there is none.
    node_name: str
    #: Whether the change shows a decision for a node: a binding or a nomination.
    places: bool
    #: Whether the change shows that a scheduler evicts a pod with a node.
    evicts: bool
    #: What the change chooses for a claim; None if it chooses nothing.
    prepares: Preparation | None


def _entry(number: int, at: float, change: Change, outcome: PodOutcome | None) -> Entry:
    kind, old, new = change
    either = new or old
    node = either.name if kind is Node else either.node_name if kind is Pod else ""
    return Entry(
        number=number,
        at=at,
        change=change,
        outcome=outcome,
        key=(kind, either.key),
        node_name=node,
        places=outcome is not None and bool(outcome.node),
        evicts=is_eviction(change),
        prepares=preparation(change),
    )


def decided_before(one: Entry, other: Entry) -> bool | None:
    """Whether the queue says that the pod of one outcome was decided before that of the other; None if it says
    nothing."""
    if one.outcome is None or other.outcome is None:
        return None
    return precedes(one.outcome, other.outcome)


def may_be_later(change: Entry, outcome: PodOutcome) -> bool:
    """Whether an applied change may have come after the decision that ``outcome`` shows.

    That decision came after the pod had entered the queue. Changes of other kinds arrive by other watches, at other
    times.
    """
    if not outcome.queued:
        return True
    if change.change.kind is Pod:
        return change.number > outcome.queued
    return change.at > outcome.queued_at - _SKEW


def _side_by_side(one: Entry, other: Entry) -> bool:
    return (
        abs(one.at - other.at) <= _IN_FLIGHT_SECONDS or abs(one.number - other.number) <= _IN_FLIGHT
    )


class _Pending:
    """The decisions for a node that are near, by their place in the queue."""

    def __init__(self) -> None:
        #: Those that are not near yet, in the order of arrival.
        self._far: Final[deque[Entry]] = deque()
        #: By priority: heaps of place in the queue, number and entry. Those that were taken over are removed when they
        #: are first.
        self._near: Final[dict[int, list[tuple[QueuePosition, int, Entry]]]] = {}
        #: The numbers of all that are not taken over.
        self._numbers: Final[set[int]] = set()

    def add(self, entry: Entry) -> None:
        if entry.places:
            self._far.append(entry)
            self._numbers.add(entry.number)

    def remove(self, entry: Entry) -> None:
        """The entry is taken over."""
        self._numbers.discard(entry.number)

    def reorder(self) -> None:
        """Places have changed."""
        near = [entry for heap in self._near.values() for _, _, entry in heap]
        self._near.clear()
        for entry in near:
            self._push(entry)

    def _push(self, entry: Entry) -> None:
        outcome = entry.outcome
        if outcome is not None and outcome.was_queued and entry.number in self._numbers:
            place = (outcome.place or _NOWHERE, entry.number, entry)
            heapq.heappush(self._near.setdefault(outcome.pod.priority, []), place)

    def first(self, entry: Entry, until: float) -> Entry:
        """The decision that was made first, by the queue, among an outcome and those that have arrived ``until`` then
        (seconds)."""
        while self._far and self._far[0].at <= until:
            self._push(self._far.popleft())
        found, outcome = entry, entry.outcome
        place = None if outcome is None else outcome.place
        if outcome is None or place is None:
            return entry
        for priority, heap in list(self._near.items()):
            while heap and heap[0][1] not in self._numbers:
                heapq.heappop(heap)
            if not heap:
                del self._near[priority]
            elif heap[0][0] < place and priority >= outcome.pod.priority:
                place, _, found = heap[0]
            elif heap[0][0] == place and priority > outcome.pod.priority:
                found = heap[0][2]
        return found


class _Placed:
    """The applied decisions for a node that can be undone, by their place in the queue."""

    def __init__(self) -> None:
        self._places: list[tuple[QueuePosition, int]] = []
        self._entries: Final[dict[int, Entry]] = {}

    def add(self, entry: Entry) -> None:
        if entry.places:
            insort(self._places, _place_of(entry))
            self._entries[entry.number] = entry

    def remove(self, entry: Entry) -> None:
        if self._entries.pop(entry.number, None) is not None:
            del self._places[bisect_left(self._places, _place_of(entry))]

    def reorder(self) -> None:
        """Places have changed."""
        self._places = sorted(map(_place_of, self._entries.values()))

    def after(self, entry: Entry) -> Iterator[Entry]:
        """Those that were decided after an outcome, by the queue."""
        if entry.outcome is None or entry.outcome.place is None:
            return
        start = bisect_right(self._places, (entry.outcome.place, sys.maxsize))
        for _, number in self._places[start:]:
            if decided_before(entry, self._entries[number]):
                yield self._entries[number]


def _place_of(entry: Entry) -> tuple[QueuePosition, int]:
    assert entry.outcome is not None  # noqa: S101 - it places
    return entry.outcome.place or _NOWHERE, entry.number


class Timeline:
    """Applies changes to a state in order, undoes and repeats them."""

    def __init__(self, state: SchedulerState, *, window: float, limit: int) -> None:
        """``window``: seconds for which an applied change can be undone; ``limit``: the number of such changes."""
        self.state: Final = state
        self._window: Final = window
        self._limit: Final = limit
        self._outcomes: Final = Outcomes(state)
        self._number = 0
        #: Applied changes that can be undone, oldest first.
        self.behind: Final[deque[Entry]] = deque()
        #: The same by number, and by object, then in the order of arrival.
        self._applied: Final[dict[int, Entry]] = {}
        self._of_object: Final[dict[tuple[type, str], list[Entry]]] = {}
        #: The decisions for a node among them.
        self._placed: Final = _Placed()
        #: Changes that are not applied yet, the next one first.
        self.ahead: Final[deque[Entry]] = deque()
        #: The same by object.
        self._to_come: Final[dict[tuple[type, str], deque[Entry]]] = {}
        #: The decisions for a node among them.
        self._pending: Final = _Pending()
        #: The decisions for a node in ``behind`` and ``ahead``, by node, in the order of arrival.
        self._decided_for: Final[dict[str, list[Entry]]] = {}
        #: Those of ``behind`` and ``ahead`` that evict or prepare, in the order of arrival.
        self._effects: Final[dict[int, Entry]] = {}
        #: By uid: pods whose binding waits for something, and when they were put on their node; the oldest first.
        self._early: Final[dict[str, tuple[Pod, float]]] = {}
        #: By the number of an applied change that ended such a wait: the pod on its node.
        self._ended: Final[dict[int, Pod]] = {}

    def push(self, change: Change, now: float) -> None:
        """Adds a change that has arrived."""
        self._number += 1
        reordered = self._outcomes.reordered
        outcome = self._outcomes.of(change, self._number, now)
        if self._outcomes.reordered != reordered:
            self._pending.reorder()
            self._placed.reorder()
        entry = _entry(self._number, now, change, outcome)
        self.ahead.append(entry)
        self._to_come.setdefault(entry.key, deque()).append(entry)
        self._pending.add(entry)
        if entry.places and outcome is not None:
            self._decided_for.setdefault(outcome.node, []).append(entry)
        if entry.evicts or entry.prepares is not None:
            self._effects[entry.number] = entry

    # ------------------------------------------------------------ what is still to come

    def awaits_earlier(self, entry: Entry) -> bool:
        """Whether pods that were decided before that of an outcome, by the order in the queue, show no outcome yet."""
        return entry.outcome is not None and self._outcomes.awaits_earlier(entry.outcome)

    def awaits_bindings(self, entry: Entry, age: float) -> bool:
        """Whether bindings may still show that were decided before that of an outcome, which arrived ``age`` seconds
        ago."""
        outcome = entry.outcome
        return outcome is not None and outcome.is_unordered and age < _IN_FLIGHT_SECONDS

    def stop_awaiting(self, entry: Entry) -> None:
        """An outcome was held back long enough: the pods for which it waited hold back no other outcome."""
        if entry.outcome is not None:
            self._outcomes.stop_awaiting(entry.outcome)

    def awaits_preparation(self, entry: Entry) -> bool:
        """Whether it does not show yet what the claims of a pod get whose binding waits for them."""
        outcome = entry.outcome
        if outcome is None or not outcome.early or not self._has_open_claims(outcome.pod):
            return False
        return next(self.preparations(outcome.pod), None) is None

    def _has_open_claims(self, pod: Pod) -> bool:
        if pod.spec.resource_claims:
            return True
        found = (self.state.cluster.claims.get(name, space) for space, name in claim_keys(pod))
        return any(claim is not None and not fully_bound(claim) for claim in found)

    # ------------------------------------------------------------ order

    def near(self) -> Iterator[Entry]:
        """The changes to come that may concern the decision on the first one, in order."""
        for number, entry in enumerate(self.ahead):
            if number >= _NEAR or entry.at > self.ahead[0].at + _NEAR_SECONDS:
                return
            yield entry

    def later(self, number: int) -> Iterator[Entry]:
        """The applied changes that arrived after the one with this number, the last one first."""
        if self._number - number < len(self._applied):
            for each in range(self._number, number, -1):
                entry = self._applied.get(each)
                if entry is not None:
                    yield entry
        else:
            yield from (e for e in reversed(self.behind) if e.number > number)

    def last_at(self, moment: float, after: int) -> int:
        """The number of the last change that had arrived at a moment, or ``after`` if that one is later."""
        numbers = [e.number for e in self.near() if e.at <= moment]
        applied = next((e.number for e in self.later(after) if e.at <= moment), after)
        return max(applied, *numbers) if numbers else applied

    def decided_after(self, entry: Entry) -> Iterator[Entry]:
        """The applied decisions for a node that were made after that of an outcome, by the order in the queue."""
        return self._placed.after(entry)

    def in_flight(self, entry: Entry, nodes: Iterable[str], *, applied: bool) -> Iterator[Entry]:
        """The decisions for some nodes whose binding may have been under way when that of an outcome was: either may
        have been first.

        ``applied``: of those that are applied, or of those to come.
        """
        for node in nodes:
            for other in self._decided_for.get(node, ()):
                if (
                    other is not entry
                    and _side_by_side(other, entry)
                    and (other.number in self._applied) is applied
                    and other.outcome is not None
                    and other.outcome.queued < entry.number
                    and decided_before(entry, other) is not (not applied)
                    and decided_before(other, entry) is not applied
                ):
                    yield other

    def lately(self, entry: Entry, nodes: Container[str]) -> Iterator[Entry]:
        """The applied changes of some nodes, other than decisions, that may have come when the decision was made
        already."""
        for other in reversed(self.behind):
            if not _side_by_side(other, entry) and other.number < entry.number:
                return
            if other.node_name in nodes and not other.places:
                yield other

    def put_in_order(self) -> None:
        """Brings the pod that was decided first to the front, if the next entry is an outcome and the queue tells.

        The decision on it came before that of the entry that was first: what arrived after that outcome was not seen.
        So the state is that of the decision, or of a moment before. The changes of one object keep their order.
        """
        first = self._pending.first(self.ahead[0], self.ahead[0].at + _NEAR_SECONDS)
        if first is self.ahead[0]:
            return
        chosen = self._with_earlier([first])
        for entry in chosen:
            self.ahead.remove(entry)
        self.ahead.extendleft(reversed(chosen))

    def advance(self) -> Sequence[Command]:
        """Applies the next change; there must be one."""
        entry = self.ahead.popleft()
        to_come = self._to_come[entry.key]
        to_come.popleft()
        if not to_come:
            del self._to_come[entry.key]
        self._pending.remove(entry)
        self.behind.append(entry)
        self._applied[entry.number] = entry
        self._of_object.setdefault(entry.key, []).append(entry)
        self._placed.add(entry)
        while len(self.behind) > self._limit or self.behind[0].at < entry.at - self._window:
            self._forget(self.behind.popleft())
        self._give_up(entry.at)
        return self._apply(entry)

    def _forget(self, entry: Entry) -> None:
        """An applied change can no longer be undone."""
        del self._applied[entry.number]
        self._effects.pop(entry.number, None)
        self._placed.remove(entry)
        if entry.places and entry.outcome is not None:
            _remove(self._decided_for, entry.outcome.node, entry)
        _remove(self._of_object, entry.key, entry)

    def _give_up(self, now: float) -> None:
        """Takes out pods that were put on a node so long ago that their binding must have failed."""
        while self._early:
            uid, (assumed, since) = next(iter(self._early.items()))
            if now < since + _LONGEST_BINDING:
                break
            del self._early[uid]
            self._take_out(assumed)

    # ------------------------------------------------------------ effects of decisions

    def preparations(self, pod: Pod) -> Iterator[Entry]:
        """The changes that choose something for a claim of the pod, applied or near, oldest first."""
        for entry in self._effects.values():
            chosen = entry.prepares
            if chosen is not None and chosen.concerns(pod) and not self._is_far(entry):
                yield entry

    def evictions(self, node: str, *, behind_only: bool = False) -> Iterator[Entry]:
        """The changes that show that a pod on the node is evicted, applied or near, oldest first."""
        for entry in self._effects.values():
            if entry.evicts and entry.node_name == node:
                if behind_only and entry.number not in self._applied:
                    continue
                if not self._is_far(entry):
                    yield entry

    def _is_far(self, entry: Entry) -> bool:
        """Whether a change is one to come that is not near."""
        return bool(self.ahead) and entry.at > self.ahead[0].at + _NEAR_SECONDS

    # ------------------------------------------------------------ other orders

    @contextmanager
    def moved(self, undone: Iterable[Entry], pulled: Iterable[Entry]) -> Iterator[None]:
        """The state without some applied changes, and with some changes to come, for the length of the block.

        Later changes of the same objects are undone as well, and earlier ones are pulled as well.
        """
        back = self._with_later(undone)
        forward = self._with_earlier(pulled)
        for entry in reversed(back):
            self._undo(entry)
        for entry in forward:
            self._apply(entry)
        try:
            yield
        finally:
            for entry in reversed(forward):
                self._undo(entry)
            for entry in back:
                self._apply(entry)

    @contextmanager
    def counted_otherwise(self) -> Iterator[None]:
        """The state with pods in a resize counted by the other version's rule, for the length of the block."""
        changed = [
            (pod, msgspec.structs.replace(pod, resized=pod.otherwise))
            for pod in self.state.pods.values()
            if pod.otherwise is not None and pod.node_name
        ]
        now = self.behind[-1].at if self.behind else 0.0
        for pod, other in changed:
            self.state.apply(Change(Pod, pod, other), now)
        try:
            yield
        finally:
            for pod, other in reversed(changed):
                self.state.apply(Change(Pod, other, pod), now)

    def _with_later(self, chosen: Iterable[Entry]) -> list[Entry]:
        first: dict[tuple[type, str], int] = {}
        for entry in chosen:
            first[entry.key] = min(entry.number, first.get(entry.key, entry.number))
        found = [
            e
            for key, number in first.items()
            for e in self._of_object.get(key, ())
            if e.number >= number
        ]
        return sorted(found, key=lambda e: e.number)

    def _with_earlier(self, chosen: Iterable[Entry]) -> list[Entry]:
        last: dict[tuple[type, str], int] = {}
        for entry in chosen:
            last[entry.key] = max(entry.number, last.get(entry.key, 0))
        found = [
            e
            for key, number in last.items()
            for e in self._to_come.get(key, ())
            if e.number <= number
        ]
        return sorted(found, key=lambda e: e.number)

    def _apply(self, entry: Entry) -> Sequence[Command]:
        """Applies a change. A pod whose binding waits for something is put on its node, or taken out if that has
        failed."""
        commands = self.state.apply(entry.change, entry.at)
        outcome = entry.outcome
        if outcome is not None and outcome.early:
            return [*commands, *self._put_on(outcome.pod, outcome.node, entry.at)]
        kind, old, new = entry.change
        uid = (new or old).uid if kind is Pod else ""
        if uid in self._early and ends_waiting(old, new):
            assumed, _ = self._early.pop(uid)
            self._ended[entry.number] = assumed
            if len(self._ended) > _NEAR:
                del self._ended[next(iter(self._ended))]
            if new is not None and not new.node_name:
                self._take_out(assumed)
        return commands

    def _undo(self, entry: Entry) -> None:
        kind, old, new = entry.change
        if entry.outcome is not None and entry.outcome.early:
            known = self._early.pop(entry.outcome.pod.uid, None)
            if known is not None:
                self._take_out(known[0])
        self.state.apply(Change(kind, new, old), entry.at)
        ended = self._ended.pop(entry.number, None)
        if ended is not None:
            self._put_on(ended, ended.node_name, entry.at)

    def _put_on(self, pod: Pod, node: str, now: float) -> Sequence[Command]:
        """Counts a pod on the node that was chosen for it."""
        if not self.state.is_unbound(pod) or self.state.cache.get(pod.uid) is not None:
            return ()
        try:
            assumed = self.state.assume(self.state.latest(pod), node)
        except Exception as error:  # noqa: BLE001 - any exception concerns this pod only
            return (ReportProblem(f"pod {pod.key} cannot be put on node {node}: {error}"),)
        self._early[pod.uid] = (assumed, now)
        return ()

    def _take_out(self, assumed: Pod) -> None:
        """Takes out a pod that was put on a node before its binding showed."""
        known = self.state.cache.get(assumed.uid)
        if known is not None and self.state.cache.is_assumed(assumed.uid):
            self.state.forget(known)


def _remove(entries: dict[T, list[Entry]], key: T, entry: Entry) -> None:
    known = entries[key]
    known.remove(entry)
    if not known:
        del entries[key]
