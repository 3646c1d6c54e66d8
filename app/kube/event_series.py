"""A series of equal events: its key, its count, and how it is written.

It does no I/O; app.kube.events records here what was sent to the server.
"""

import functools
from typing import Final, Literal

import msgspec

from app.kube.transport import path_segment
from app.model.timestamps import format_micro_time, format_time

#: Bytes of a note that an API server accepts.
MAX_NOTE: Final = 1024
#: Bytes of a series without its texts, roughly.
_SERIES_BYTES: Final = 800
#: Characters of reportingInstance that an API server accepts.
MAX_INSTANCE: Final = 128

#: The two APIs that events can be written to.
EventsApi = Literal["events.k8s.io/v1", "v1"]
_ROOTS: Final[dict[EventsApi, str]] = {
    "events.k8s.io/v1": "/apis/events.k8s.io/v1",
    "v1": "/api/v1",
}

_ENCODER: Final = msgspec.json.Encoder()


class ObjectRef(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """core/v1 ObjectReference: the object of an event."""

    kind: str
    api_version: str
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class EventKey(msgspec.Struct, frozen=True):
    """The key of a series: everything except note and time (docs/spec/events.md#series)."""

    regarding: ObjectRef
    related: ObjectRef | None
    type: str
    reason: str
    action: str
    controller: str

    @property
    def namespace(self) -> str:
        """The namespace of the event; ``default`` for objects without one."""
        return self.regarding.namespace or "default"


class Series(msgspec.Struct, eq=False):
    """Occurrences with one key, and what the server knows about them. Times in seconds since the epoch."""

    key: EventKey
    #: metadata.name.
    name: str
    #: The note of the first occurrence.
    note: str
    first: float
    last: float = 0.0
    count: int = 1
    #: Whether it waits to be sent or is being sent.
    queued: bool = False
    created: bool = False
    told_count: int = 0
    #: Times of the last occurrence and the last sending, in the loop's time, because the wall clock may be set back.
    heard_at: float = 0.0
    told_at: float = 0.0

    def __post_init__(self) -> None:
        self.last = self.first

    @property
    def size(self) -> int:
        """About how many bytes of memory it takes."""
        about = self.key.regarding
        return _SERIES_BYTES + len(self.note) + len(self.name) + len(about.name) + len(about.uid)

    @property
    def news(self) -> bool:
        """Whether the server does not know the current count."""
        return self.count != self.told_count

    def collection(self, api: EventsApi) -> str:
        """The path it is created at."""
        return _collection(api, self.key.namespace)

    def path(self, api: EventsApi) -> str:
        """The path it is patched at."""
        return f"{self.collection(api)}/{path_segment(self.name)}"

    def body(self, api: EventsApi, host: str) -> bytes:
        """The whole event; ``host`` is part of reportingInstance."""
        key = self.key
        event: dict[str, object] = {
            "apiVersion": api,
            "kind": "Event",
            "metadata": {"name": self.name, "namespace": key.namespace},
            "type": key.type,
            "reason": key.reason,
            "reportingInstance": f"{key.controller}-{host}"[:MAX_INSTANCE],
        }
        if key.action:
            event["action"] = key.action
        if key.related is not None:
            event["related"] = key.related
        event |= self._modern() if api == "events.k8s.io/v1" else self._core()
        return _ENCODER.encode(event)

    def patch(self, api: EventsApi) -> bytes:
        """The count and the last time, as a strategic merge patch."""
        modern = api == "events.k8s.io/v1"
        return _ENCODER.encode({"series": self._series()} if modern else self._count())

    def _modern(self) -> dict[str, object]:
        event: dict[str, object] = {
            "eventTime": format_micro_time(self.first),
            "reportingController": self.key.controller,
            "regarding": self.key.regarding,
            "note": self.note,
        }
        if self.count > 1:
            event["series"] = self._series()
        return event

    def _core(self) -> dict[str, object]:
        return {
            "reportingComponent": self.key.controller,
            "source": {"component": self.key.controller},
            "involvedObject": self.key.regarding,
            "message": self.note,
            "firstTimestamp": format_time(self.first),
            **self._count(),
        }

    def _series(self) -> dict[str, object]:
        return {"count": self.count, "lastObservedTime": format_micro_time(self.last)}

    def _count(self) -> dict[str, object]:
        return {"count": self.count, "lastTimestamp": format_time(self.last)}


@functools.lru_cache(1024)
def _collection(api: EventsApi, namespace: str) -> str:
    return f"{_ROOTS[api]}/namespaces/{path_segment(namespace)}/events"


def truncate_note(note: str) -> str:
    """A note within the server's limit of 1024 bytes, with a mark if it was cut.

    Lone surrogates, which UTF-8 cannot encode, become question marks.
    """
    encoded = note.encode(errors="replace")
    if len(encoded) <= MAX_NOTE:
        return encoded.decode()
    suffix = " ..."
    return encoded[: MAX_NOTE - len(suffix)].decode(errors="ignore") + suffix
