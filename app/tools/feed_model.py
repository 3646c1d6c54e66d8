"""What the feed of a scheduler says, put together from its messages (see app.observe.feed)."""

import dataclasses
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

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


@dataclasses.dataclass(slots=True)
class NodeRow:
    """A node. Amounts are in the scheduler's units, by resource; ``pods`` is the number of pods."""

    name: str
    flags: int = 0
    labels: dict[str, str] = dataclasses.field(default_factory=dict)
    taints: list[list[str]] = dataclasses.field(default_factory=list)
    allocatable: dict[str, int] = dataclasses.field(default_factory=dict)
    requested: dict[str, int] = dataclasses.field(default_factory=dict)


class FeedModel:
    """``sections`` as they are now, and the nodes by row."""

    def __init__(self) -> None:
        self.sections: dict[str, Any] = {}
        self.nodes: dict[int, NodeRow] = {}
        self.streams: Final = {name: deque[Any](maxlen=most) for name, most in _STREAMS.items()}

    def apply(self, kind: str, data: bytes) -> None:
        """Takes in a ``snapshot`` or a ``change``. Raises msgspec.DecodeError."""
        message: dict[str, Any] = msgspec.json.decode(data)
        nodes = message.pop("nodes", None)
        if kind == "snapshot":
            self.sections.clear()
            self.nodes = dict(_rows(nodes))
            for stream in self.streams.values():
                stream.clear()
        elif nodes:
            self._change(nodes)
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
                node.requested = _some({name: column[at] for name, column in requested.items()})


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
                    if amount := column if isinstance(column, int) else column[row]:
                        amounts[resource] = amount
            found.append((row, node))
    return found


def _some(amounts: Mapping[str, int]) -> dict[str, int]:
    """The amounts other than 0."""
    return {name: amount for name, amount in amounts.items() if amount}
