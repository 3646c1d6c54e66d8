"""The changes around the moment at which a pod was decided: applied ones, which can be undone, and those to come.

A scheduler decides a pod some time before its binding shows, and bindings of several pods are written side by side. So the
table at the moment of the decision differs from the table at the moment of the binding: pods that were decided earlier may
be bound later, and changes that were seen before the binding may have come after the decision. A Timeline holds changes
back for a while, so that later bindings are known, and can undo those that were applied lately.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from app.model.objects import Node
from app.model.pod import Pod
from app.state.scheduler_state import Change, Command, SchedulerState

#: Seconds by which watches may differ.
_SKEW: Final = 0.1


class Entry(msgspec.Struct, frozen=True, eq=False):
    """A change from a watch."""

    #: Ascending in the order of arrival.
    number: int
    #: When it arrived, in seconds.
    at: float
    change: Change
    #: For an outcome: the number and the time of the entry with which the pod entered the queue; None if it was tried
    #: before, or unknown.
    queued: int | None = None
    queued_at: float = 0.0

    @property
    def binds(self) -> bool:
        """Whether the change gives a node to a pod that had none."""
        kind, old, new = self.change
        return (
            kind is Pod
            and old is not None
            and new is not None
            and not old.node_name
            and bool(new.node_name)
        )

    @property
    def node_name(self) -> str:
        """The node that the change concerns; empty if there is none."""
        kind, old, new = self.change
        either = new or old
        if kind is Node:
            return str(either.name)
        if kind is Pod:
            return str(either.node_name)
        return ""


def is_refused(pod: Pod | None) -> bool:
    """Whether the pod's condition says that it is unschedulable."""
    condition = None if pod is None else pod.condition("PodScheduled")
    return (
        condition is not None
        and condition.status == "False"
        and condition.reason == "Unschedulable"
    )


def shows_refusal(old: Pod | None, new: Pod | None) -> bool:
    """Whether a change of a pod shows a failed attempt: another message, or a nomination."""
    if new is None or new.node_name or not is_refused(new):
        return False
    before = None if old is None else old.condition("PodScheduled")
    after = new.condition("PodScheduled")
    if before is None or after is None or before.message != after.message:
        return True
    nominated = new.nominated_node_name
    return bool(nominated) and old is not None and nominated != old.nominated_node_name


def precedes(one: Entry, other: Entry) -> bool | None:
    """Whether the first pod was decided before the second one; None if the order in the queue does not tell.

    Pods that wait together are tried by priority, then in the order in which they entered the queue.
    """
    if one.queued is None or other.queued is None:
        return None
    first, second = one.change.new.priority, other.change.new.priority
    if first >= second and one.queued < other.queued:
        return True
    if second >= first and other.queued < one.queued:
        return False
    return None


def may_be_later(change: Entry, outcome: Entry) -> bool:
    """Whether an applied change may have come after the decision that ``outcome`` shows.

    That decision came after the pod had entered the queue. Changes of other kinds arrive by other watches, at other times.
    """
    if outcome.queued is None:
        return True
    if change.change.kind is Pod:
        return change.number > outcome.queued
    return change.at > outcome.queued_at - _SKEW


class Timeline:
    """Applies changes to a state in order, undoes and repeats them."""

    def __init__(self, state: SchedulerState, *, window: float, limit: int) -> None:
        """``window``: seconds for which an applied change can be undone; ``limit``: the number of such changes."""
        self.state: Final = state
        self._window: Final = window
        #: Applied changes, oldest first.
        self.behind: Final[deque[Entry]] = deque(maxlen=limit)
        #: Changes that are not applied yet, oldest first.
        self.ahead: Final[deque[Entry]] = deque()
        self._number = 0
        self._queued: Final[dict[str, tuple[int, float]]] = {}

    def push(self, change: Change, now: float) -> None:
        """Adds a change that has arrived."""
        self._number += 1
        queued, at = (None, 0.0)
        if change.kind is Pod:
            queued, at = self._note(change.old, change.new, now)
        self.ahead.append(Entry(self._number, now, change, queued, at))

    def _note(self, old: Pod | None, new: Pod | None, now: float) -> tuple[int | None, float]:
        """Keeps when pods entered the queue; returns it for a pod that is bound, refused or gone."""
        unknown = None, 0.0
        if new is None or new.node_name:
            uid = (new or old).uid  # type: ignore[union-attr]  # a change has one of them
            return self._queued.pop(uid, unknown)
        if not self.state.responsible_for(new):
            return unknown
        if shows_refusal(old, new):
            return self._queued.pop(new.uid, unknown)
        if not new.spec.scheduling_gates and (old is None or old.spec.scheduling_gates):
            self._queued[new.uid] = (self._number, now)
        return unknown

    def advance(self) -> Sequence[Command]:
        """Applies the next change; there must be one."""
        entry = self.ahead.popleft()
        self.behind.append(entry)
        while self.behind[0].at < entry.at - self._window:
            self.behind.popleft()
        return self.state.apply(entry.change, entry.at)

    @contextmanager
    def moved(self, undone: Iterable[Entry], pulled: Iterable[Entry]) -> Iterator[None]:
        """The state without some applied changes, and with some bindings to come, for the length of the block.

        Later changes of the same objects are undone as well.
        """
        back = self._with_later(undone)
        for entry in reversed(back):
            kind, old, new = entry.change
            self.state.apply(Change(kind, new, old), entry.at)
        forward = [change for entry in pulled if (change := self._pull(entry)) is not None]
        try:
            yield
        finally:
            for kind, old, new in reversed(forward):
                self.state.apply(Change(kind, new, old), 0.0)
            for entry in back:
                self.state.apply(entry.change, entry.at)

    def _with_later(self, chosen: Iterable[Entry]) -> list[Entry]:
        first: dict[tuple[type, Any], int] = {}
        for entry in chosen:
            key = _key(entry)
            first[key] = min(entry.number, first.get(key, entry.number))
        if not first:
            return []
        return [e for e in self.behind if e.number >= first.get(_key(e), self._number + 1)]

    def _pull(self, entry: Entry) -> Change | None:
        bound = entry.change.new
        current = self.state.pods.get(bound.key)
        if current is None or current.uid != bound.uid or current.node_name:
            return None
        change = Change(Pod, current, bound)
        self.state.apply(change, entry.at)
        return change


def _key(entry: Entry) -> tuple[type, Any]:
    kind, old, new = entry.change
    return kind, (new or old).key
