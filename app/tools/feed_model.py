"""What the feed of a scheduler says, put together from its messages (see app.observe.feed)."""

import dataclasses
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from typing import Annotated, Any, Final, NamedTuple, NotRequired, TypedDict

import msgspec

from app.kube.errors import UNREADABLE

#: Entries that are kept of the streams.
MAX_DECISIONS: Final = 200
MAX_PREEMPTIONS: Final = 50
MAX_POINTS: Final = 600
#: The flag of a node that takes no pods (app.observe.feed, which is slow to import).
UNSCHEDULABLE_FLAG: Final = 1
#: Bytes of an event at most.
MAX_EVENT: Final = 64 * 1024 * 1024
_STREAMS: Final[Mapping[str, int]] = {
    "decisions": MAX_DECISIONS,
    "preemptions": MAX_PREEMPTIONS,
    "series": MAX_POINTS,
}


class Event(NamedTuple):
    """A server-sent event."""

    kind: str
    number: str
    data: bytes


async def events_of(chunks: AsyncIterable[bytes]) -> AsyncGenerator[Event, None]:
    """The events of a body of text/event-stream. Raises ValueError if one is too long."""
    rest = bytearray()
    async for chunk in chunks:
        searched = max(0, len(rest) - 1)
        rest += chunk
        if len(rest) > MAX_EVENT:
            raise ValueError(f"an event has more than {MAX_EVENT} bytes")
        if (end := rest.rfind(b"\n\n", searched)) >= 0:
            for text in bytes(rest[:end]).split(b"\n\n"):
                yield _event(text)
            del rest[: end + 2]


def _event(text: bytes) -> Event:
    fields = {"event": b"message", "id": b"", "data": b""}
    for line in text.split(b"\n"):
        name, _, value = line.partition(b":")
        fields[name.decode(errors="replace")] = value.removeprefix(b" ")
    return Event(
        fields["event"].decode(errors="replace"),
        fields["id"].decode(errors="replace"),
        fields["data"],
    )


# ---------------------------------------------------------------- messages

_Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Latency = tuple[float | None, float | None]
"""Seconds: p50 and p99; None without calls."""


class _Scheduler(TypedDict):
    leading: bool
    identity: str
    holder: str
    version: str


class _Queue(TypedDict):
    active: _Whole
    in_flight: _Whole
    backoff: _Whole
    error_backoff: _Whole
    unschedulable: _Whole
    gated: _Whole


class _Rates(TypedDict):
    perSecond: dict[str, float]
    attempt: Latency


class _Extender(TypedDict):
    extender: str
    verb: str
    breaker: str
    limit: NotRequired[_Whole]
    inFlight: _Whole
    outcomes: dict[str, _Whole]
    dropped: _Whole
    latency: Latency


class Decision(NamedTuple):
    """The end of an attempt."""

    #: Seconds since the epoch, as far as calendars go.
    at: Annotated[float, msgspec.Meta(ge=0, le=250_000_000_000)]
    pod: str
    result: str
    node: str
    seconds: float | None
    attempts: _Whole
    message: str = ""


class _Column(TypedDict):
    """Values as their numbers by row; 0 is none."""

    values: list[Any]
    codes: list[_Whole]


class _Columns(TypedDict):
    """All nodes."""

    names: list[str]
    flags: list[_Whole]
    labels: dict[str, _Column]
    taints: _Column
    allocatable: dict[str, _Whole | list[_Whole]]
    requested: dict[str, _Whole | list[_Whole]]


class _Rows(TypedDict, total=False):
    """The nodes that changed."""

    objects: list[tuple[_Whole, str, _Whole, dict[str, str], list[list[str]], dict[str, _Whole]]]
    rows: list[_Whole]
    requested: dict[str, _Whole | list[_Whole]]


class _Sections(TypedDict, total=False):
    scheduler: _Scheduler
    queue: _Queue
    rates: _Rates
    extenders: list[_Extender]
    kubeletRejections: dict[str, _Whole]
    health: list[tuple[str, str, bool]]
    waiting: list[dict[str, Any]]
    reasons: list[tuple[str, _Whole]]
    decisions: list[Decision]
    preemptions: list[Any]
    series: list[Any]


class _Snapshot(_Sections):
    nodes: _Columns


class _Change(_Sections, total=False):
    nodes: _Rows


#: Sections of every snapshot.
_NEEDED: Final = frozenset({"scheduler", "queue", "rates", "health", "nodes"})


@dataclasses.dataclass(slots=True)
class NodeRow:
    """A node. Amounts are in the scheduler's units, by resource; ``pods`` is the number of pods."""

    name: str
    flags: int = 0
    labels: dict[str, str] = dataclasses.field(default_factory=dict)
    taints: list[list[str]] = dataclasses.field(default_factory=list)
    allocatable: dict[str, int] = dataclasses.field(default_factory=dict)
    requested: dict[str, int] = dataclasses.field(default_factory=dict)


def _checked(data: bytes, kind: Any) -> dict[str, Any]:
    """A message whose known fields are those of its kind. Raises MsgspecError, RecursionError."""
    message: dict[str, Any] = msgspec.json.decode(data)
    msgspec.convert(message, kind)
    return message


class FeedModel:
    """``sections`` as they are now, and the nodes by row."""

    def __init__(self) -> None:
        self.sections: dict[str, Any] = {}
        self.nodes: dict[int, NodeRow] = {}
        self.streams: Final = {name: deque[Any](maxlen=most) for name, most in _STREAMS.items()}

    def apply(self, kind: str, data: bytes) -> None:
        """Takes in a ``snapshot`` or a ``change``; others are ignored.

        Raises ValueError for what no feed of this version says.
        """
        try:
            if kind == "snapshot":
                self._snapshot(_checked(data, _Snapshot))
            elif kind == "change" and self.sections:
                message = _checked(data, _Change)
                self._change(message.pop("nodes", {}))
                self._take(message)
        except (*UNREADABLE, LookupError) as err:
            raise ValueError(
                f"what answers is no aiokube-scheduler of this version: {err}"
            ) from err

    def _snapshot(self, message: dict[str, Any]) -> None:
        if missing := _NEEDED - message.keys():
            raise ValueError(f"the snapshot lacks {', '.join(sorted(missing))}")
        self.nodes = dict(_rows(message.pop("nodes")))
        self.sections.clear()
        for stream in self.streams.values():
            stream.clear()
        self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        for name, stream in self.streams.items():
            stream.extend(message.pop(name, ()))
        self.sections |= message

    def _change(self, nodes: Mapping[str, Any]) -> None:
        for row, name, flags, labels, taints, allocatable in nodes.get("objects", ()):
            if not name:
                self.nodes.pop(row, None)
                continue
            known = self.nodes.get(row)
            requested = known.requested if known is not None else {}
            self.nodes[row] = NodeRow(name, flags, labels, taints, _some(allocatable), requested)
        requested = nodes.get("requested", {})
        for at, row in enumerate(nodes.get("rows", ())):
            node = self.nodes.get(row)
            if node is not None:
                node.requested = _some(
                    {name: _amount(column, at) for name, column in requested.items()}
                )


def _rows(nodes: Mapping[str, Any]) -> "list[tuple[int, NodeRow]]":
    """The rows of a snapshot's columns."""
    found = []
    taints = nodes["taints"]
    for row, name in enumerate(nodes["names"]):
        if name:
            node = NodeRow(name, nodes["flags"][row])
            code = taints["codes"][row]
            node.taints = taints["values"][code - 1] if code else []
            for key, column in nodes["labels"].items():
                if code := column["codes"][row]:
                    node.labels[key] = column["values"][code - 1]
            for amounts, columns in (
                (node.allocatable, nodes["allocatable"]),
                (node.requested, nodes["requested"]),
            ):
                for resource, column in columns.items():
                    if amount := _amount(column, row):
                        amounts[resource] = amount
            found.append((row, node))
    return found


def _amount(column: list[int] | int, at: int) -> int:
    """One number of a column, which is a number itself if all are equal."""
    return column if isinstance(column, int) else column[at]


def _some(amounts: Mapping[str, int]) -> dict[str, int]:
    """The amounts other than 0."""
    return {name: amount for name, amount in amounts.items() if amount}
