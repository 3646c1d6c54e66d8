"""How objects are shown to a client: whole, as metadata only, or as the rows of a table; and in which version.

A representation turns records into bytes. Whole objects in their stored version are the record's own bytes, shared by
everyone who reads or watches; everything else is encoded on demand.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from app.sim.http.tables import cells_of, columns_of
from app.sim.resources.event_versions import shown
from app.sim.resources.kinds import Kind
from app.sim.store import Object, Record

_encode: Final = msgspec.json.Encoder().encode

_META: Final = "meta.k8s.io/v1"
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


class Representation(Protocol):
    """Encodes records for one request."""

    def one(self, record: Record) -> bytes:
        """Encodes a single object, for GET and for a watch event."""

    def many(self, records: Sequence[Record], list_metadata: Mapping[str, Any]) -> bytes:
        """Encodes a list."""

    def bookmark(self, revision: int, *, initial_events_end: bool) -> bytes:
        """Encodes an object that has nothing but a resource version."""


class Whole:
    """Complete objects."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        opening = {"kind": kind.kind, "apiVersion": kind.group_version}
        self._skip = len(_encode(opening))
        """The offset at which an object continues after its type, which items of a list do not repeat."""

    def one(self, record: Record) -> bytes:
        if not self._kind.stored_as:
            return record.raw
        if record.views is None:
            record.views = {}
        raw = record.views.get(self._kind)
        if raw is None:
            raw = record.views[self._kind] = _encode(shown(self._kind, record.value))
        return raw

    def many(self, records: Sequence[Record], list_metadata: Mapping[str, Any]) -> bytes:
        skip, one = self._skip, self.one
        if self._kind.stored_as:
            items = b",{".join([one(record)[skip:] for record in records])
        else:
            items = b",{".join([record.raw[skip:] for record in records])
        opening = _encode(
            {
                "kind": f"{self._kind.kind}List",
                "apiVersion": self._kind.group_version,
                "metadata": list_metadata,
            }
        )
        first = b"{" if records else b""
        return b"".join((opening[:-1], b',"items":[', first, items, b"]}"))

    def bookmark(self, revision: int, *, initial_events_end: bool) -> bytes:
        type_ = {"kind": self._kind.kind, "apiVersion": self._kind.group_version}
        return _encode(type_ | {"metadata": _bookmark_metadata(revision, initial_events_end)})


class MetadataOnly:
    """``PartialObjectMetadata``: for clients that only track what exists."""

    def one(self, record: Record) -> bytes:
        return _encode(_partial(record.value))

    def many(self, records: Sequence[Record], list_metadata: Mapping[str, Any]) -> bytes:
        return _encode(
            {
                "kind": "PartialObjectMetadataList",
                "apiVersion": _META,
                "metadata": list_metadata,
                "items": [_partial(record.value) for record in records],
            }
        )

    def bookmark(self, revision: int, *, initial_events_end: bool) -> bytes:
        metadata = _bookmark_metadata(revision, initial_events_end)
        return _encode({"kind": "PartialObjectMetadata", "apiVersion": _META, "metadata": metadata})


class Table:
    """Rows with the columns that kubectl prints.

    ``include_object`` says what comes with each row: ``Metadata`` (the default), ``Object`` or ``None``. In a watch the
    column definitions are sent with the first event only, so an instance serves one request.
    """

    def __init__(self, kind: Kind, include_object: str, now: Callable[[], float]) -> None:
        self._kind = kind
        self._include_object = include_object or "Metadata"
        self._now = now
        self._columns_sent = False

    def one(self, record: Record) -> bytes:
        metadata = {"resourceVersion": str(record.revision)}
        return self._encode([record], metadata)

    def many(self, records: Sequence[Record], list_metadata: Mapping[str, Any]) -> bytes:
        return self._encode(records, list_metadata)

    def bookmark(self, revision: int, *, initial_events_end: bool) -> bytes:
        metadata = _bookmark_metadata(revision, initial_events_end)
        row = {
            "cells": [],
            "object": {"kind": self._kind.kind, "apiVersion": self._kind.group_version},
        }
        row["object"]["metadata"] = metadata  # type: ignore[index]  # a dict two lines above
        return self._table([row], {"resourceVersion": str(revision)})

    def _encode(self, records: Sequence[Record], metadata: Mapping[str, Any]) -> bytes:
        now = self._now()
        return self._table([self._row(record.value, now) for record in records], metadata)

    def _row(self, value: Object, now: float) -> Object:
        value = shown(self._kind, value)
        cells = cells_of(self._kind.resource, value, now)
        objects = {"None": None, "Object": value, "Metadata": _partial(value)}
        return {"cells": cells, "object": objects.get(self._include_object)}

    def _table(self, rows: list[Object], metadata: Mapping[str, Any]) -> bytes:
        columns = None if self._columns_sent else columns_of(self._kind.resource)
        self._columns_sent = True
        return _encode(
            {
                "kind": "Table",
                "apiVersion": _META,
                "metadata": metadata,
                "columnDefinitions": columns,
                "rows": rows,
            }
        )


def _partial(value: Object) -> Object:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": _META,
        "metadata": value["metadata"],
    }


def _bookmark_metadata(revision: int, initial_events_end: bool) -> Object:
    metadata: Object = {"resourceVersion": str(revision)}
    if initial_events_end:
        metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
    return metadata
