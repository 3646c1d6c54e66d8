"""Writes to the API server: bindings, pod status, deletions, volumes.

Only a leader writes: ``may_write`` is asked before each request leaves, and NotLeading raised when it says no.

A binding whose answer was lost is not guessed about and not blindly repeated. The pod is looked up:

    bound to our node    success (ours, or the same decision repeated: there is no difference)
    bound elsewhere      failure, in the words of the API server
    gone, or recreated   failure
    not bound            the binding is sent again, a bounded number of times

The lookup itself goes on until there is an answer. While the server is away nobody else can bind the pod either, and to
give up would mean to treat as free what may be taken.
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
    NotFound,
    NotLeading,
    ServerUnavailable,
    TooManyRequests,
)
from app.kube.payloads import (
    ConditionChange,
    binding_body,
    delete_body,
    object_patch,
    pod_status_patch,
)
from app.kube.transport import (
    JSON,
    MERGE_PATCH,
    STRATEGIC_MERGE_PATCH,
    Guard,
    Response,
    Transport,
    path_segment,
)
from app.model.pod import Pod

logger = logging.getLogger(__name__)

#: How often a binding is sent at most, and the waits between, seconds.
BIND_ATTEMPTS: Final = 4
BIND_RETRY: Final = 0.05
#: Longest wait between lookups of a pod whose binding is in doubt, seconds.
LOOKUP_LONGEST: Final = 2.0
#: How often a status patch is sent at most; waits of 10 ms, 50 ms, 250 ms between (docs/spec/cycle.md#status-patch).
PATCH_ATTEMPTS: Final = 4
PATCH_RETRY: Final = 0.01

_TRANSIENT: Final = (ConnectionFailed, ServerUnavailable, TooManyRequests)


class BindResult(msgspec.Struct, frozen=True):
    """How a binding ended. ``message`` says why it failed; ``error`` is what the last request raised, if it did."""

    bound: bool
    message: str = ""
    error: KubeApiError | None = None
    #: Bindings sent.
    attempts: int = 1
    #: Whether the pod had to be looked up to know.
    looked_up: bool = False


class _PodMeta(msgspec.Struct, frozen=True):
    uid: str = ""


class _PodSpec(msgspec.Struct, frozen=True):
    node_name: str = msgspec.field(default="", name="nodeName")


class _BoundPod(msgspec.Struct, frozen=True):
    metadata: _PodMeta = _PodMeta()
    spec: _PodSpec = _PodSpec()


_BOUND_POD: Final = msgspec.json.Decoder(_BoundPod)


class KubeWriter:
    """Writes what the scheduler decides."""

    def __init__(self, transport: Transport, *, may_write: Guard, rng: np.random.Generator) -> None:
        self._transport: Final = transport
        self._may_write: Final = may_write
        self._rng: Final = rng

    # ------------------------------------------------------------ bindings

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> BindResult:
        """Binds a pod to a node. Raises NotLeading; what the server refuses is a BindResult."""
        path = f"{_pod_path(namespace, name)}/binding"
        body = binding_body(namespace, name, uid, node)
        waits = Backoff(self._rng, initial=BIND_RETRY, factor=4.0, cap=LOOKUP_LONGEST)
        looked_up = False
        for attempt in range(1, BIND_ATTEMPTS + 1):
            if attempt > 1:
                await asyncio.sleep(waits.next())
            try:
                await self._write("POST", path, body)
                return BindResult(True, attempts=attempt, looked_up=looked_up)
            except (Conflict, *_TRANSIENT) as err:
                error: KubeApiError = err
            except KubeApiError as err:
                return BindResult(False, str(err), err, attempt, looked_up)
            if not _in_doubt(error):
                continue
            looked_up = True
            verdict = await self._verdict(namespace, name, uid, node, error)
            if verdict is not None:
                return msgspec.structs.replace(verdict, attempts=attempt)
        return BindResult(False, str(error), error, BIND_ATTEMPTS, looked_up)

    async def _verdict(
        self, namespace: str, name: str, uid: str, node: str, error: KubeApiError
    ) -> BindResult | None:
        """What a lookup says about a binding in doubt; None: not bound, so it may be sent again."""
        try:
            pod = await self._look_up(namespace, name)
        except KubeApiError as err:
            return BindResult(False, str(err), err, looked_up=True)
        if pod.metadata.uid != uid:
            message = f'pods "{name}" not found: another pod has taken the name'
            return BindResult(False, message, error, looked_up=True)
        if pod.spec.node_name == node:
            return BindResult(True, looked_up=True)
        if pod.spec.node_name:
            taken = f'pod {name} is already assigned to node "{pod.spec.node_name}"'
            message = f'Operation cannot be fulfilled on pods/binding "{name}": {taken}'
            return BindResult(False, message, error, looked_up=True)
        if isinstance(error, Conflict):
            return BindResult(False, str(error), error, looked_up=True)
        return None

    async def _look_up(self, namespace: str, name: str) -> _BoundPod:
        """The pod as the server has it now. Goes on until there is an answer; raises NotFound and refusals."""
        waits = Backoff(self._rng, initial=BIND_RETRY, factor=4.0, cap=LOOKUP_LONGEST)
        path = _pod_path(namespace, name)
        while True:
            if not self._may_write():
                raise NotLeading("GET", path)
            try:
                answer = await self._transport.request("GET", path)
                return _BOUND_POD.decode(answer.body)
            except _TRANSIENT as err:
                logger.debug("Lookup of pod %s/%s failed: %s", namespace, name, err)
            except msgspec.MsgspecError as err:
                raise KubeApiError(f"GET {path}: the answer is no pod: {err}") from err
            await asyncio.sleep(waits.next())

    async def bound_to(self, pod: Pod) -> str | None:
        """The node that this very pod is bound to, None for none. Goes on until there is an answer; raises KubeApiError."""
        found = await self._look_up(pod.namespace, pod.name)
        if found.metadata.uid != pod.uid:
            raise NotFound(f'pods "{pod.name}" not found: another pod has taken the name')
        return found.spec.node_name or None

    # ------------------------------------------------------------ pods

    async def patch_pod_status(
        self,
        pod: Pod,
        *,
        condition: ConditionChange | None = None,
        nominated_node_name: str | None = None,
        now: float,
    ) -> bool:
        """Makes the status say this; False when it does already. See bodies.pod_status_patch.

        Raises NotLeading, and KubeApiError once trouble that may pass has been tried often enough.
        """
        patch = pod_status_patch(
            pod, condition=condition, nominated_node_name=nominated_node_name, now=now
        )
        if patch is None:
            return False
        await self._patch_status(pod, patch)
        return True

    async def patch_extended_claim_status(self, pod: Pod, status: Mapping[str, object]) -> None:
        """Makes status.extendedResourceClaimStatus say this. Raises like ``patch_pod_status``."""
        await self._patch_status(
            pod, msgspec.json.encode({"status": {"extendedResourceClaimStatus": status}})
        )

    async def _patch_status(self, pod: Pod, patch: bytes) -> None:
        path = f"{_pod_path(pod.namespace, pod.name)}/status"
        waits = Backoff(self._rng, initial=PATCH_RETRY, factor=5.0, cap=1.0, jitter=0.1)
        for attempt in range(1, PATCH_ATTEMPTS + 1):
            try:
                await self._write("PATCH", path, patch, STRATEGIC_MERGE_PATCH)
            except (Conflict, *_TRANSIENT):
                if attempt == PATCH_ATTEMPTS:
                    raise
            else:
                return
            await asyncio.sleep(waits.next())

    async def delete_pod(self, namespace: str, name: str, uid: str) -> bool:
        """Deletes this very pod with its own grace period; False when it was gone already.

        A conflict may mean that another pod has taken the name, or anything else: the pod is looked up. Raises NotLeading
        and KubeApiError.
        """
        try:
            await self._write("DELETE", _pod_path(namespace, name), delete_body(uid))
        except NotFound:
            return False
        except Conflict:
            if await self._exists(namespace, name, uid):
                raise
            return False
        return True

    async def _exists(self, namespace: str, name: str, uid: str) -> bool:
        try:
            return (await self._look_up(namespace, name)).metadata.uid == uid
        except NotFound:
            return False

    # ------------------------------------------------------------ volumes

    async def patch_persistent_volume(
        self, name: str, *, resource_version: str, changes: Mapping[str, object]
    ) -> bytes:
        """Changes this version of a volume (``spec.claimRef``); the object as it is then.

        Raises NotLeading, Conflict when there is a newer version, and KubeApiError.
        """
        path = f"/api/v1/persistentvolumes/{path_segment(name)}"
        return await self._patch_object(path, resource_version, changes)

    async def patch_persistent_volume_claim(
        self, namespace: str, name: str, *, resource_version: str, changes: Mapping[str, object]
    ) -> bytes:
        """Changes this version of a claim (the selected-node annotation); the object as it is then.

        Raises NotLeading, Conflict when there is a newer version, and KubeApiError.
        """
        claims = f"/api/v1/namespaces/{path_segment(namespace)}/persistentvolumeclaims"
        return await self._patch_object(f"{claims}/{path_segment(name)}", resource_version, changes)

    async def _patch_object(
        self, path: str, resource_version: str, changes: Mapping[str, object]
    ) -> bytes:
        body = object_patch(resource_version, changes)
        return (await self._write("PATCH", path, body, MERGE_PATCH)).body

    async def _write(
        self, method: str, path: str, body: bytes, content_type: str = JSON
    ) -> Response:
        return await self._transport.request(
            method, path, body=body, content_type=content_type, guard=self._may_write
        )


def _pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{path_segment(namespace)}/pods/{path_segment(name)}"


def _in_doubt(error: KubeApiError) -> bool:
    """Whether a binding that ended so may have taken effect: not when it was never sent, or refused unread."""
    if isinstance(error, ConnectionFailed):
        return error.sent
    return not isinstance(error, TooManyRequests)
