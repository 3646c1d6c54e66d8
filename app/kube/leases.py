"""Reads and writes the Lease for leader election (coordination.k8s.io/v1)."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Final

import msgspec
import numpy as np

from app.kube.errors import UNREADABLE, KubeApiError, NotFound, error_from_status
from app.kube.leaders import ANNOTATION, LABELS
from app.kube.transport import Response, Transport, path_segment
from app.kube.watch import watch_once
from app.kube.watch_decoder import DELETED, ERROR
from app.wire.sanitize import decode

#: Largest leaseDurationSeconds and leaseTransitions.
MAX_INT32: Final = 2**31 - 1


class LeaseRecord(msgspec.Struct, frozen=True):
    """The spec of a lease."""

    #: Empty when the lease is free.
    holder: str = ""
    #: 0 if it is missing or not usable.
    duration_seconds: int = 0
    #: As in the lease, by the holder's clock; empty when absent. Nothing is computed from them.
    acquire_time: str = ""
    renew_time: str = ""
    transitions: int = 0
    #: Fields of coordinated leader election, kept unchanged.
    strategy: str = ""
    preferred_holder: str = ""


def _metadata(manifest: dict[str, Any]) -> dict[str, Any]:
    """metadata; empty if it is missing or not an object."""
    metadata = manifest.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


class Lease(msgspec.Struct, frozen=True):
    """A lease as last read or written: its record, and the whole object for the next update."""

    record: LeaseRecord
    manifest: dict[str, Any]

    @property
    def uid(self) -> str:
        """metadata.uid."""
        return str(_metadata(self.manifest).get("uid", ""))

    @property
    def resource_version(self) -> str:
        """metadata.resourceVersion."""
        return str(_metadata(self.manifest).get("resourceVersion", ""))


def record_from_spec(spec: object) -> LeaseRecord:
    """Reads a spec. Invalid numbers count as absent, because anyone who may write the lease chooses them.

    Raises TypeError if it is not an object, or if the holder is not a text.
    """
    if not isinstance(spec, dict):
        raise TypeError(f"spec is not an object: {spec!r:.100}")
    holder = spec.get("holderIdentity")
    if not isinstance(holder, str | None):
        raise TypeError(f"holderIdentity is not a text: {holder!r:.100}")
    return LeaseRecord(
        holder=holder or "",
        duration_seconds=_count(spec.get("leaseDurationSeconds")),
        acquire_time=_text(spec.get("acquireTime")),
        renew_time=_text(spec.get("renewTime")),
        transitions=_count(spec.get("leaseTransitions")),
        strategy=_text(spec.get("strategy")),
        preferred_holder=_text(spec.get("preferredHolder")),
    )


def _count(value: object) -> int:
    """A number from 0 to the largest int32; 0 for anything else."""
    return value if type(value) is int and 0 <= value <= MAX_INT32 else 0


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def spec_from_record(record: LeaseRecord) -> dict[str, Any]:
    """The spec to write; strategy and preferredHolder only when there are any (docs/spec/election.md#lease)."""
    spec: dict[str, Any] = {
        "holderIdentity": record.holder,
        "leaseDurationSeconds": record.duration_seconds,
        "acquireTime": record.acquire_time or None,
        "renewTime": record.renew_time or None,
        "leaseTransitions": record.transitions,
    }
    if record.strategy:
        spec["strategy"] = record.strategy
    if record.preferred_holder:
        spec["preferredHolder"] = record.preferred_holder
    return spec


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: dict[str, Any]


_EVENT: Final = msgspec.json.Decoder(_Event)
_MANIFEST: Final = msgspec.json.Decoder(dict[str, Any])


class LeaseClient:
    """Reads, writes and watches one lease.

    ``annotations`` is called at each write for the holder's annotations (app.kube.leaders).
    """

    def __init__(
        self,
        transport: Transport,
        *,
        namespace: str,
        name: str,
        annotations: Callable[[], dict[str, str]] = dict,
    ) -> None:
        self.namespace: Final = namespace
        self._annotations: Final = annotations
        self.name: Final = name
        self._transport: Final = transport
        self._collection: Final = (
            f"/apis/coordination.k8s.io/v1/namespaces/{path_segment(namespace)}/leases"
        )
        self._path: Final = f"{self._collection}/{path_segment(name)}"

    async def get(self) -> Lease | None:
        """The lease, None when the API server says that there is none. Raises KubeApiError."""
        try:
            return self._lease(await self._transport.request("GET", self._path))
        except NotFound as err:
            if err.is_missing_object:
                return None
            raise KubeApiError(str(err), status=err.status) from err

    async def create(self, record: LeaseRecord) -> Lease:
        """Creates the lease. Raises AlreadyExists if another process was faster, and KubeApiError."""
        metadata = {"name": self.name, "namespace": self.namespace}
        manifest = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": self._signed(metadata, record),
            "spec": spec_from_record(record),
        }
        body = msgspec.json.encode(manifest)
        return self._lease(await self._transport.request("POST", self._collection, body=body))

    async def update(self, lease: Lease, record: LeaseRecord) -> Lease:
        """Replaces the record of the lease as last seen. Raises Conflict if it has changed since, and KubeApiError."""
        metadata = self._signed(_metadata(lease.manifest), record)
        spec = spec_from_record(record)
        body = msgspec.json.encode({**lease.manifest, "metadata": metadata, "spec": spec})
        return self._lease(await self._transport.request("PUT", self._path, body=body))

    def _signed(self, metadata: dict[str, Any], record: LeaseRecord) -> dict[str, Any]:
        """The metadata with the holder's annotations; without them for a released lease."""
        said = self._annotations() if record.holder else {}
        annotations = metadata.get("annotations") or {}
        if not said and ANNOTATION not in annotations:
            return metadata
        kept = {key: text for key, text in annotations.items() if key != ANNOTATION}
        labels = {**(metadata.get("labels") or {}), **LABELS}
        return {**metadata, "labels": labels, "annotations": {**kept, **said}}

    async def changes(self, rng: np.random.Generator) -> AsyncGenerator[LeaseRecord | None, None]:
        """Yields the record, now and after each change, while one connection lasts; None once the lease is deleted.

        Raises KubeApiError.
        """
        params = {"fieldSelector": f"metadata.name={self.name}"}
        lines = watch_once(self._transport, self._collection, params, rng)
        async with aclosing(lines):
            async for batch in lines:
                for line in batch:
                    event = self._event(line)
                    if _metadata(event.object).get("name") == self.name:
                        yield None if event.type == DELETED else self._record(event.object)

    def _event(self, line: bytes) -> _Event:
        try:
            event = decode(_EVENT, line)
        except UNREADABLE as err:
            raise KubeApiError(f"GET {self._collection}: unreadable watch line: {err}") from err
        if event.type == ERROR:
            code, message = event.object.get("code"), event.object.get("message")
            raise error_from_status(
                code if isinstance(code, int) else 0, message=str(message or "no reason given")
            )
        return event

    def _lease(self, response: Response) -> Lease:
        try:
            manifest = decode(_MANIFEST, response.body)
        except UNREADABLE as err:
            raise KubeApiError(f"{self._path}: the answer is not a lease: {err}") from err
        lease = Lease(self._record(manifest), manifest)
        if not lease.resource_version:
            raise KubeApiError(f"{self._path}: the answer is not a lease")
        return lease

    def _record(self, manifest: dict[str, Any]) -> LeaseRecord:
        try:
            return record_from_spec(manifest.get("spec") or {})
        except TypeError as err:
            raise KubeApiError(f"{self._path}: the lease cannot be read: {err}") from err
