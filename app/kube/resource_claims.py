"""Reads and writes ResourceClaims (resource.k8s.io/v1), with the verbs of kube-scheduler's role.

Only a leader writes: ``may_write`` is asked before each request is sent, and NotLeading is raised if it returns False.
All methods raise KubeApiError for rejected requests; those that change a version of a claim raise Conflict if there is
a newer one.
"""

import asyncio
import logging
import math
from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np

from app.kube.backoff import Backoff
from app.kube.errors import (
    SETTLED,
    UNREADABLE,
    Conflict,
    KubeApiError,
    KubeError,
    NotFound,
    may_take_effect,
)
from app.kube.lookup import expect_object, read_object
from app.kube.payloads import delete_body, object_patch
from app.kube.transport import (
    JSON,
    MERGE_PATCH,
    PROTOBUF,
    Guard,
    Transport,
    path_segment,
)
from app.model.devices import ResourceClaim
from app.wire.envelope import DecodeError
from app.wire.kube import decoder_for
from app.wire.protobuf import resource_version, with_finalizer
from app.wire.sanitize import decode

logger = logging.getLogger(__name__)

#: Seconds between lookups of a claim.
LOOKUP_FIRST: Final = 0.05
LOOKUP_LONGEST: Final = 2.0
#: Seconds without an answer after which the log says so.
LOOKUP_WARNING: Final = 10.0

_API_VERSION: Final = "resource.k8s.io/v1"
_OK: Final = 200
_INVALID: Final = 422
_DECODER: Final = decoder_for(ResourceClaim)


class _Metadata(msgspec.Struct, frozen=True):
    uid: str = ""


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


_METADATA: Final = msgspec.json.Decoder(_Object)


class ResourceClaimRequests:
    """Reads and writes claims one by one."""

    def __init__(self, transport: Transport, *, may_write: Guard, rng: np.random.Generator) -> None:
        self._transport: Final = transport
        self._may_write: Final = may_write
        self._rng: Final = rng
        #: By path: the claim's version of a write without an answer, and when it can no longer take effect.
        self._unanswered: Final[dict[str, tuple[str, float]]] = {}

    async def get(self, namespace: str, name: str) -> ResourceClaim:
        """The current claim. Retries until there is an answer: a claim or NotFound.

        A write without an answer may take effect late; while the claim has the version of that write, this is waited
        for. Reads do not need leadership. Raises KubeApiError for a claim that cannot be decoded.
        """
        path = _path(namespace, name)
        waits = Backoff(self._rng, initial=LOOKUP_FIRST, factor=4.0, cap=LOOKUP_LONGEST)
        loop = asyncio.get_running_loop()
        while True:
            claim = await self._look_up(namespace, name)
            version, settled_at = self._unanswered.get(path, ("", -math.inf))
            if claim.resource_version != version or loop.time() >= settled_at:
                self._unanswered.pop(path, None)
                return claim
            await asyncio.sleep(min(waits.next(), settled_at - loop.time()))

    async def _look_up(self, namespace: str, name: str) -> ResourceClaim:
        waits = Backoff(self._rng, initial=LOOKUP_FIRST, factor=4.0, cap=LOOKUP_LONGEST)
        loop = asyncio.get_running_loop()
        warn_at = loop.time() + LOOKUP_WARNING
        while True:
            try:
                body = await read_object(self._transport, _path(namespace), name)
                if decode(_METADATA, body).metadata.uid:
                    break
                problem = "the answer is not a ResourceClaim"
            except NotFound:
                raise
            except (KubeApiError, *UNREADABLE) as err:
                problem = str(err)
            if loop.time() >= warn_at:
                warn_at = math.inf
                logger.warning(
                    "What became of ResourceClaim %s/%s is not known, its devices stay in use: %s",
                    namespace,
                    name,
                    problem,
                )
            await asyncio.sleep(waits.next())
        return _decoded(body, f"GET {_path(namespace, name)}")

    async def create(self, claim: ResourceClaim) -> ResourceClaim:
        """Creates a claim with this metadata and spec; returns it with its generated name."""
        body = msgspec.to_builtins(claim)
        body.pop("status", None)
        manifest = {"apiVersion": _API_VERSION, "kind": "ResourceClaim", **body}
        return await self._send("POST", _path(claim.namespace), msgspec.json.encode(manifest))

    async def patch(
        self, claim: ResourceClaim, changes: Mapping[str, object], *, status: bool
    ) -> ResourceClaim:
        """Changes this version of a claim by a merge patch of its status or the rest; returns it."""
        path = _path(claim.namespace, claim.name) + ("/status" if status else "")
        body = object_patch(claim.resource_version, changes)
        return await self._change(claim, "PATCH", path, body, MERGE_PATCH)

    async def _change(
        self, claim: ResourceClaim, method: str, path: str, body: bytes, content_type: str
    ) -> ResourceClaim:
        """Sends a change of this version of a claim, and records it if there is no answer."""
        try:
            return await self._send(method, path, body, content_type)
        except KubeError as error:
            if may_take_effect(error):
                self._remember(claim)
            raise
        except asyncio.CancelledError:
            self._remember(claim)
            raise

    def _remember(self, claim: ResourceClaim) -> None:
        now = asyncio.get_running_loop().time()
        for path, (_, settled_at) in list(self._unanswered.items()):
            if settled_at <= now:
                del self._unanswered[path]
        path = _path(claim.namespace, claim.name)
        self._unanswered[path] = claim.resource_version, now + SETTLED

    async def add_finalizer(self, claim: ResourceClaim, finalizer: str) -> ResourceClaim:
        """Adds a finalizer to this version of a claim; returns it.

        In protobuf if the server takes a JSON patch for a change of the spec, because JSON does not preserve it byte
        for byte.
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
        return await self._change(claim, "PUT", path, changed, PROTOBUF)

    async def delete(self, claim: ResourceClaim) -> None:
        """Deletes the claim with this uid."""
        answer = await self._transport.request(
            "DELETE",
            _path(claim.namespace, claim.name),
            body=delete_body(claim.uid),
            content_type=JSON,
            guard=self._may_write,
        )
        expect_object(answer)

    async def _send(
        self, method: str, path: str, body: bytes | None = None, content_type: str = JSON
    ) -> ResourceClaim:
        answer = await self._transport.request(
            method, path, body=body, content_type=content_type, guard=self._may_write
        )
        return _decoded(answer.body, f"{method} {path}")


def _decoded(body: bytes, request: str) -> ResourceClaim:
    """The claim in an answer. Raises KubeApiError for anything else."""
    try:
        claim = _DECODER.decode(body)
    except DecodeError as error:
        problem = f"{request}: the answer is not a ResourceClaim: {error}"
        raise KubeApiError(problem, status=_OK) from error
    if not claim.uid:
        raise KubeApiError(f"{request}: the answer is not a ResourceClaim", status=_OK)
    return claim


def _path(namespace: str, name: str = "") -> str:
    claims = f"/apis/{_API_VERSION}/namespaces/{path_segment(namespace)}/resourceclaims"
    return f"{claims}/{path_segment(name)}" if name else claims
