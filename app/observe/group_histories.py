"""Keeps how the last cycles of pod groups ended, and says in a sentence what a group waits for."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from app.framework.placements import DomainRoom
from app.model.pod_groups import AnyPodGroup, GroupKey
from app.observe.events import ByType, GroupAttempted

MAX_GROUPS: Final = 4096
#: Cycles kept of a group.
MAX_CYCLES: Final = 5
#: Characters kept of a message.
MAX_MESSAGE: Final = 1000


class GroupCycleRecord(msgspec.Struct, rename="camel"):
    """One cycle of a group, or the last of ``repeats`` cycles that ended in the same way.

    Times are seconds since the epoch.
    """

    at: float
    first_at: float
    #: ``scheduled``, ``unschedulable``, ``waiting_on_preemption`` or ``error``.
    result: str
    message: str
    #: How many pods were tried, and how many of them had a node at once.
    tried: int
    placed: int
    #: The first message of a pod that had none.
    because: str
    seconds: float
    repeats: int = 1
    domains: tuple[DomainRoom, ...] = ()

    def same_end(self, other: "GroupCycleRecord") -> bool:
        """Whether both ended in the same way."""
        return (
            (self.result, self.message, self.because)
            == (other.result, other.message, other.because)
            and self.tried == other.tried
            and (self.placed, self.domains) == (other.placed, other.domains)
        )


class GroupHistories:
    """The last cycles of the groups decided last."""

    def __init__(self, wall: Callable[[], float], *, max_groups: int = MAX_GROUPS) -> None:
        """``wall`` returns the time in seconds since the epoch."""
        self._wall: Final = wall
        self._max_groups: Final = max_groups
        self._by_key: Final[OrderedDict[GroupKey, list[GroupCycleRecord]]] = OrderedDict()
        #: Records the end of a cycle.
        self.on: Final = ByType({GroupAttempted: self._attempted})

    def of(self, key: GroupKey) -> Sequence[GroupCycleRecord]:
        """The last cycles of a group, the oldest first."""
        return self._by_key.get(key, ())

    def _attempted(self, event: GroupAttempted) -> None:
        now = self._wall()
        record = GroupCycleRecord(
            now,
            now,
            event.result,
            event.message[:MAX_MESSAGE],
            event.tried,
            event.placed,
            event.because[:MAX_MESSAGE],
            event.seconds,
            domains=tuple(
                msgspec.structs.replace(each, because=each.because[:MAX_MESSAGE])
                for each in event.domains
            ),
        )
        cycles = self._by_key.setdefault(event.key, [])
        self._by_key.move_to_end(event.key)
        if cycles and record.same_end(cycles[-1]):
            record.first_at, record.repeats = cycles[-1].first_at, cycles[-1].repeats + 1
            cycles.pop()
        cycles.append(record)
        del cycles[:-MAX_CYCLES]
        if len(self._by_key) > self._max_groups:
            self._by_key.popitem(last=False)


def waits_for(
    key: GroupKey, group: AnyPodGroup | None, pods: int, last: GroupCycleRecord | None
) -> str:
    """What a group waits for, of which ``pods`` exist and whose last cycle is ``last``; empty if it does not wait."""
    if group is None:
        return f"pod group {key.name} does not exist"
    if group.min_count is not None and pods < group.min_count:
        return f"pod group {key.name}: {pods} of {group.min_count} pods exist"
    if last is None or last.result == "scheduled":
        return ""
    if last.result == "unschedulable":
        found = f"pod group {key.name}: room for {last.placed} of {last.tried} pods"
        return f"{found}; another: {last.because}" if last.because else found
    return f"pod group {key.name}: {last.message}"
