"""Reads a recording as the story of the objects of its cluster, without a scheduler's state.

``records`` gives the records of all files in order, each part of the story once; ``Objects`` follows the objects, and
can make the JSON of each as an API server has it, as far as it was recorded.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from app.scheduler.trace import Header, Op, PodRecord, TraceError, files_of, read_records

#: Seconds of a pod that is being deleted; how many are left is not recorded.
_GRACE: Final = 30
#: Seconds that a recording may last: another configuration lives through all of them.
_DAY: Final = 86400.0
_LONGEST: Final = 366 * _DAY
#: Seconds since the epoch up to which years have four digits.
_LAST_TIME: Final = 253_402_300_799.0
#: Records of a checkpoint, which a file that follows another without a gap repeats.
_REPEATED: Final = frozenset({Op.ROWS, Op.OBJECT, Op.POD, Op.ASSUMED, Op.NOMINATED, Op.CHECKPOINT})


class TraceRecord(NamedTuple):
    """A record of a recording; a file's header is ``fields`` of a Header alone."""

    file: Path
    #: The how-manieth of the recording, from 1.
    number: int
    fields: list[Any]
    #: Whether it belongs to a checkpoint that says what the records before say, too.
    repeated: bool

    @property
    def header(self) -> Header | None:
        """The header, if it is one."""
        first = self.fields[0] if len(self.fields) == 1 else None
        return first if isinstance(first, Header) else None


def records(trace: Path) -> Iterator[TraceRecord]:
    """The records of a recording's files. Raises TraceError at the first byte that is not right."""
    number, continues, begun = 0, False, False
    for file in files_of(trace):
        for fields in read_records(file):
            number += 1
            if not fields:
                raise TraceError(f"{file}: record {number} is empty")
            repeated = continues and type(fields[0]) is str and fields[0] in _REPEATED
            record = TraceRecord(file, number, fields, repeated)
            if (header := record.header) is not None:
                if not 0.0 <= header.began <= _LAST_TIME - _LONGEST:
                    raise TraceError(
                        f"{file}: {header.began} is no time at which a recording begins"
                    )
                continues, begun = begun and not header.gap and not header.first, True
            yield record


class SeenPod(NamedTuple):
    """A version of a pod."""

    record: PodRecord
    #: Its spec as JSON, without the node.
    spec: bytes
    labels: Mapping[str, str]


class Seen(NamedTuple):
    """A version of an object, or that it has gone (``new`` is None)."""

    #: Seconds since the epoch.
    time: float
    kind: str
    key: str
    #: JSON, and a SeenPod for a pod.
    new: SeenPod | bytes | None


class Objects:
    """The objects of a recording's cluster as its records say them one after the other."""

    def __init__(self) -> None:
        self.now = self._began = 0.0
        #: (kind, namespace/name) -> the latest version.
        self.present: Final[dict[tuple[str, str], SeenPod | bytes]] = {}
        #: The pods of ``present`` by uid.
        self.pods: Final[dict[str, SeenPod]] = {}
        self._specs: dict[int, bytes] = {}
        self._labels: dict[int, dict[str, str]] = {}

    def take(self, record: TraceRecord) -> list[Seen]:
        """What a record says of objects, at the time of the latest record that has one. Raises TraceError."""
        header = record.header
        if header is not None:
            self._specs, self._labels = {}, {}
            if not self.now:
                self._began = self.now = header.began
            return []
        try:
            seen = self._take(record.fields) if not record.repeated else []
        except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
            where = f"{record.file}: record {record.number} ({record.fields[0]})"
            raise TraceError(f"{where}: {type(error).__name__}: {error}") from error
        for each in seen:
            if each.new is None:
                gone = self.present.pop((each.kind, each.key), None)
                if isinstance(gone, SeenPod):
                    self.pods.pop(gone.record.uid, None)
                continue
            self.present[each.kind, each.key] = each.new
            if isinstance(each.new, SeenPod):
                self.pods[each.new.record.uid] = each.new
        return seen

    def _take(self, fields: list[Any]) -> list[Seen]:
        if len(fields) > 1 and type(fields[1]) is float:
            self._pass(fields[1])
        match fields:
            case [Op.TEMPLATE, int(number), bytes(spec)]:
                self._specs[number] = spec
            case [Op.LABELS, int(number), dict(labels)]:
                self._labels[number] = labels
            case [Op.OBJECT, str(kind), bytes(text)]:
                return [self._object(kind, text)]
            case [Op.POD, list(pod)]:
                return [self._pod(pod)]
            case [Op.CHANGED, float(), str(kind), bytes(text)]:
                return [self._object(kind, text)]
            case [Op.POD_CHANGED, float(), list(pod)]:
                return [self._pod(pod)]
            case [Op.POD_BOUND, float(), str(uid), str(node), str(version)]:
                return [self._bound(uid, node, version)]
            case [Op.LISTED, float(), str(kind), list(texts), *_]:
                return [self._object(kind, text) for text in texts]
            case [Op.LISTED_PODS, float(), list(pods), *_]:
                return [self._pod(pod) for pod in pods]
            case [Op.DELETED, float(), str(kind), str(key)]:
                return [Seen(self.now, kind, key, None)]
        return []

    def _pass(self, now: float) -> None:
        """Lets time pass, also back: clocks are set. Raises ValueError."""
        if not -_DAY <= now - self._began <= _LONGEST:
            raise ValueError(f"{now} is no time of a recording that began at {self._began}")
        self.now = now

    def _object(self, kind: str, text: bytes) -> Seen:
        metadata = _NAMED.decode(text).metadata
        key = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
        return Seen(self.now, kind, key, text)

    def _pod(self, fields: list[Any]) -> Seen:
        told = msgspec.convert(fields, PodRecord)
        pod = SeenPod(told, self._specs[told.template], self._labels[told.labels])
        return Seen(self.now, "Pod", f"{told.namespace}/{told.name}", pod)

    def _bound(self, uid: str, node: str, version: str) -> Seen:
        known = self.pods[uid]
        told = msgspec.structs.replace(known.record, node_name=node, resource_version=version)
        pod = known._replace(record=told)
        return Seen(self.now, "Pod", f"{told.namespace}/{told.name}", pod)


class _Metadata(msgspec.Struct):
    name: str
    namespace: str = ""


class _Named(msgspec.Struct):
    metadata: _Metadata


_NAMED: Final = msgspec.json.Decoder(_Named)


def pod_json(pod: SeenPod) -> dict[str, Any]:
    """The pod as an API server has it, as far as it was recorded. Raises ValueError."""
    told = pod.record
    spec: dict[str, Any] = msgspec.json.decode(pod.spec)
    spec.setdefault("containers", [])
    if told.node_name:
        spec["nodeName"] = told.node_name
    if told.pod_group_name:
        spec["schedulingGroup"] = {"podGroupName": told.pod_group_name}
    metadata: dict[str, Any] = {
        "name": told.name,
        "namespace": told.namespace,
        "uid": told.uid,
        "generation": told.generation,
        "creationTimestamp": "2000-01-01T00:00:00Z",
        "labels": dict(pod.labels),
    }
    if told.owner is not None:
        metadata["ownerReferences"] = [msgspec.to_builtins(told.owner)]
    if told.deletion_timestamp:
        metadata["deletionTimestamp"] = told.deletion_timestamp
        metadata["deletionGracePeriodSeconds"] = _GRACE
    status: dict[str, Any] = {"phase": told.phase or "Pending"}
    if told.conditions:
        status["conditions"] = msgspec.to_builtins(told.conditions)
    if told.nominated_node_name:
        status["nominatedNodeName"] = told.nominated_node_name
    if told.claim_statuses:
        status["resourceClaimStatuses"] = msgspec.to_builtins(told.claim_statuses)
    if told.extended_claim_status:
        status["extendedResourceClaimStatus"] = msgspec.json.decode(told.extended_claim_status)
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status}
