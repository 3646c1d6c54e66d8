"""The results of plugins: a rejection is a Status, an internal error is an exception.

Codes are kube-scheduler's seven, by number and by name (docs/spec/framework.md#status-codes).
"""

import enum
from collections.abc import Iterable

import msgspec


class Code(enum.IntEnum):
    """The code of a plugin's result; its name is the label in metrics."""

    Success = 0
    Error = 1
    Unschedulable = 2
    UnschedulableAndUnresolvable = 3
    Wait = 4
    Skip = 5
    Pending = 6

    @property
    def rejected(self) -> bool:
        """Whether the pod was rejected (rather than accepted, skipped or failed)."""
        return self in _REJECTED


_REJECTED = frozenset({Code.Unschedulable, Code.UnschedulableAndUnresolvable, Code.Pending})


class Status(msgspec.Struct, frozen=True):
    """A code with reasons and, for a rejection, the plugin."""

    code: Code
    reasons: tuple[str, ...] = ()
    plugin: str = ""

    @property
    def message(self) -> str:
        """All reasons, as they appear in events."""
        return ", ".join(self.reasons)

    @property
    def ok(self) -> bool:
        """Whether this is Success."""
        return self.code is Code.Success

    def by(self, plugin: str) -> "Status":
        """The same status with this plugin."""
        return msgspec.structs.replace(self, plugin=plugin)


SUCCESS = Status(Code.Success)
SKIP = Status(Code.Skip)


def unschedulable(*reasons: str, plugin: str = "") -> Status:
    """A rejection that preemption may resolve."""
    return Status(Code.Unschedulable, reasons, plugin)


def unresolvable(*reasons: str, plugin: str = "") -> Status:
    """A rejection that preemption cannot resolve."""
    return Status(Code.UnschedulableAndUnresolvable, reasons, plugin)


class SchedulingError(Exception):
    """An internal error in a scheduling attempt (not a rejection); its text is the text of the event."""


class Unfinished(Exception):  # noqa: N818 - it says what happened
    """Filter has not finished in the time that it may take at once. The attempt is repeated after others have had their
    turn.

    What it has found so far must be remembered, so that it takes less time then.
    """


class ConflictError(SchedulingError):
    """An object was not written because another client has changed it meanwhile."""


def histogram(counts: Iterable[tuple[str, int]]) -> str:
    """Joins reason counts as kube-scheduler does: ``3 a, 10 b`` sorted as strings.

    See docs/spec/cycle.md#failedscheduling-message.
    """
    return ", ".join(sorted(f"{count} {reason}" for reason, count in counts if count))
