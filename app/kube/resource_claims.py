"""Requests about ResourceClaims (resource.k8s.io/v1), with the verbs that kube-scheduler's role has.

Only a leader writes: ``may_write`` is asked before each request leaves, and NotLeading raised when it says no. All methods
raise KubeApiError for what the server refuses; one that changes a version of a claim raises Conflict when there is a newer one.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np

from app.kube.backoff import Backoff
from app.kube.errors import (
    Conflict,
    ConnectionFailed,
    KubeApiError,
    ServerUnavailable,
    TooManyRequests,
)
from app.kube.payloads import object_patch
from app.kube.transport import (
    JSON,
    MERGE_PATCH,
    PROTOBUF,
    STRATEGIC_MERGE_PATCH,
    Guard,
    Transport,
    path_segment,
)
from app.model.devices import ResourceClaim
from app.wire.envelope import DecodeError
from app.wire.kube import decoder_for
from app.wire.protobuf import resource_version, with_finalizer

logger = logging.getLogger(__name__)

#: Waits between lookups of a claim, seconds.
LOOKUP_FIRST: Final = 0.05
LOOKUP_LONGEST: Final = 2.0

_API_VERSION: Final = "resource.k8s.io/v1"
_INVALID: Final = 422
_DECODER: Final = decoder_for(ResourceClaim)


class ResourceClaimRequests:
    """Reads and writes claims one by one."""

    def __init__(self, transport: Transport, *, may_write: Guard, rng: np.random.Generator) -> None:
        self._transport: Final = transport
        self._may_write: Final = may_write
        self._rng: Final = rng

    async def get(self, namespace: str, name: str) -> ResourceClaim:
        """The claim as the server has it now. Goes on until there is an answer."""
        waits = Backoff(self._rng, initial=LOOKUP_FIRST, factor=4.0, cap=LOOKUP_LONGEST)
        while True:
            try:
                return await self._send("GET", _path(namespace, name))
            except (ConnectionFailed, ServerUnavailable, TooManyRequests) as err:
                logger.debug("Lookup of claim %s/%s failed: %s", namespace, name, err)
            await asyncio.sleep(waits.next())

    async def create(self, claim: ResourceClaim) -> ResourceClaim:
        """Creates a claim with this metadata and spec; as it is then, with the name that was made for it."""
        body = msgspec.to_builtins(claim)
        body.pop("status", None)
        manifest = {"apiVersion": _API_VERSION, "kind": "ResourceClaim", **body}
        return await self._send("POST", _path(claim.namespace), msgspec.json.encode(manifest))

    async def patch(
        self, claim: ResourceClaim, changes: Mapping[str, object], *, status: bool
    ) -> ResourceClaim:
        """Changes this version of a claim by a merge patch, its status or the rest; as it is then."""
        path = _path(claim.namespace, claim.name) + ("/status" if status else "")
        body = object_patch(claim.resource_version, changes)
        return await self._send("PATCH", path, body, MERGE_PATCH)

    async def add_finalizer(self, claim: ResourceClaim, finalizer: str) -> ResourceClaim:
        """Adds a finalizer to this version of a claim; as it is then.

        Where the server takes a patch for a change of the spec, which JSON does not carry byte for byte, in protobuf.
        """
        finalizers = [*(claim.metadata.finalizers or ()), finalizer]
        try:
            return await self.patch(claim, {"metadata": {"finalizers": finalizers}}, status=False)
        except KubeApiError as error:
            if error.status != _INVALID:
                raise
        path = _path(claim.namespace, claim.name)
        stored = await self._transport.request("GET", path, accept=PROTOBUF, guard=self._may_write)
        try:
            if resource_version(stored.body) != claim.resource_version:
                raise Conflict(f"GET {path}: the claim has changed", status=409, reason="Conflict")
            changed = with_finalizer(stored.body, finalizer)
        except DecodeError as error:
            raise KubeApiError(f"GET {path}: {error}") from error
        return await self._send("PUT", path, changed, PROTOBUF)

    async def drop_consumer(self, claim: ResourceClaim, uid: str) -> ResourceClaim:
        """Takes a consumer out of status.reservedFor, whatever version of the claim is there."""
        patch = {
            "metadata": {"uid": claim.uid},
            "status": {"reservedFor": [{"$patch": "delete", "uid": uid}]},
        }
        path = f"{_path(claim.namespace, claim.name)}/status"
        return await self._send("PATCH", path, msgspec.json.encode(patch), STRATEGIC_MERGE_PATCH)

    async def delete(self, claim: ResourceClaim) -> None:
        """Deletes this very claim."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": claim.uid},
        }
        await self._transport.request(
            "DELETE",
            _path(claim.namespace, claim.name),
            body=msgspec.json.encode(options),
            content_type=JSON,
            guard=self._may_write,
        )

    async def _send(
        self, method: str, path: str, body: bytes | None = None, content_type: str = JSON
    ) -> ResourceClaim:
        answer = await self._transport.request(
            method, path, body=body, content_type=content_type, guard=self._may_write
        )
        try:
            return _DECODER.decode(answer.body)
        except DecodeError as error:
            raise KubeApiError(
                f"{method} {path}: the answer is no ResourceClaim: {error}"
            ) from error


def _path(namespace: str, name: str = "") -> str:
    claims = f"/apis/{_API_VERSION}/namespaces/{path_segment(namespace)}/resourceclaims"
    return f"{claims}/{path_segment(name)}" if name else claims
