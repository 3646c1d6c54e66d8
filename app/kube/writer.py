"""Writes bindings, pod status, deletions and volumes to the API server.

Only a leader writes: ``may_write`` is asked before each request is sent, and NotLeading is raised if it returns False.

After a binding without an answer the pod is looked up:

    bound to our node    success
    bound elsewhere      failure, with the API server's text
    gone, or recreated   failure
    not bound            the binding is sent again, a bounded number of times

Only a pod, or the API server's own 404, answers a lookup. After anything else (401 and 403 while an API server starts,
5xx, a load balancer's page) the lookup is repeated until there is an answer, or the watch shows the pod bound or gone.
Otherwise resources that may be taken would count as free. For the same reason a failure is reported only when no
request can take effect any more.
"""

import asyncio
import functools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from app.kube.backoff import Backoff
from app.kube.errors import (
    SETTLED,
    UNREADABLE,
    Conflict,
    ConnectionFailed,
    KubeApiError,
    KubeError,
    NotFound,
    ServerUnavailable,
    TooManyRequests,
    may_take_effect,
)
from app.kube.lookup import expect_object, read_object
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
from app.model.objects import Named
from app.model.pod import Pod
from app.model.status import SUCCESS, Code, Status
from app.wire.sanitize import decode

logger = logging.getLogger(__name__)

#: How often a binding is sent at most, and the waits between in seconds.
BIND_ATTEMPTS: Final = 4
BIND_RETRY: Final = 0.05
#: Longest wait between lookups in seconds.
LOOKUP_LONGEST: Final = 2.0
#: Seconds after which an unknown outcome is logged.
DOUBT_WARNING: Final = 10.0
#: How often another write is sent at most; waits of 10 ms, 50 ms, 250 ms between (docs/spec/cycle.md#status-patch).
WRITE_ATTEMPTS: Final = 4
WRITE_RETRY: Final = 0.01

_TRANSIENT: Final = (ConnectionFailed, ServerUnavailable, TooManyRequests)


class Doubt(msgspec.Struct):
    """A binding that was sent and whose outcome is unknown."""

    #: namespace/name.
    pod: str
    uid: str
    node: str
    #: When it began, in the loop's time.
    since: float
    #: The error instead of an answer.
    error: str = ""
    #: Whether it was logged.
    logged: bool = False


class _PodMeta(msgspec.Struct, frozen=True):
    uid: str = ""


class _PodSpec(msgspec.Struct, frozen=True):
    node_name: str = msgspec.field(default="", name="nodeName")


class _BoundPod(msgspec.Struct, frozen=True):
    metadata: _PodMeta = _PodMeta()
    spec: _PodSpec = _PodSpec()


_BOUND_POD: Final = msgspec.json.Decoder(_BoundPod)


class KubeWriter:
    """Writes for the scheduler."""

    def __init__(
        self,
        transport: Transport,
        *,
        may_write: Guard,
        rng: np.random.Generator,
        pods: Mapping[str, Pod] | None = None,
    ) -> None:
        """``pods``: all pods by namespace/name, as the watch shows them; None without a watch."""
        self._transport: Final = transport
        self._may_write: Final = may_write
        self._rng: Final = rng
        self._pods: Final = pods
        #: By the pod's uid.
        self._doubts: Final[dict[str, Doubt]] = {}

    @property
    def doubts(self) -> Sequence[Doubt]:
        """The bindings whose outcome is unknown, the oldest first."""
        return list(self._doubts.values())

    def describe_doubts(self) -> list[Mapping[str, Any]]:
        """The same, for the debug page."""
        now = asyncio.get_running_loop().time()
        return [
            {
                "pod": doubt.pod,
                "uid": doubt.uid,
                "node": doubt.node,
                "seconds": round(now - doubt.since, 3),
                "error": doubt.error,
            }
            for doubt in self.doubts
        ]

    # ------------------------------------------------------------ bindings

    async def bind(
        self,
        namespace: str,
        name: str,
        uid: str,
        node: str,
        before_sending: Callable[[str], None] = lambda _uid: None,
        added: Mapping[str, Mapping[str, str]] = {},
    ) -> Status:
        """Binds a pod to a node. Raises NotLeading; a rejection is an Error with the server's text.

        ``before_sending`` is called with the pod's uid right before the first request is sent; what it raises is
        raised. ``added``: what the API server adds to the pod, by field of its metadata: labels, annotations.

        Returns when the outcome is final, which may take as long as the API server is not available.
        """
        path = f"{_pod_path(namespace, name)}/binding"
        body = binding_body(namespace, name, uid, node, added)

        def guard() -> bool:
            before_sending(uid)
            return self._may_write()

        try:
            request = self._transport.request("POST", path, body=body, guard=guard)
            expect_object(await request)
        except KubeError as err:
            error = err.with_traceback(None)
        else:
            return SUCCESS
        doubt = Doubt(f"{namespace}/{name}", uid, node, asyncio.get_running_loop().time())
        try:
            return await self._settle(namespace, name, doubt, error, path, body)
        finally:
            self._doubts.pop(uid, None)

    async def _settle(
        self, namespace: str, name: str, doubt: Doubt, error: KubeError, path: str, body: bytes
    ) -> Status:
        """The outcome of a binding whose first request ended with ``error``."""
        loop = asyncio.get_running_loop()
        waits = Backoff(self._rng, initial=BIND_RETRY, factor=4.0, cap=LOOKUP_LONGEST)
        settled_at, attempt = -math.inf, 1
        while True:
            if _in_doubt(error):
                if may_take_effect(error):
                    settled_at = loop.time() + SETTLED
                verdict = await self._verdict(namespace, name, doubt, error)
                if verdict is not None:
                    return verdict
            if attempt == BIND_ATTEMPTS or not _may_be_repeated(error):
                break
            await asyncio.sleep(waits.next())
            attempt += 1
            try:
                await self._write("POST", path, body)
            except KubeError as err:
                error = err.with_traceback(None)
            else:
                return SUCCESS
        while loop.time() < settled_at:
            await asyncio.sleep(min(waits.next(), settled_at - loop.time()))
            verdict = await self._verdict(namespace, name, doubt, error)
            if verdict is not None:
                return verdict
        if not isinstance(error, KubeApiError):
            raise error
        return _failed(str(error))

    async def _verdict(
        self, namespace: str, name: str, doubt: Doubt, error: KubeError
    ) -> Status | None:
        """What a lookup says about a binding that ended with ``error``; None if not bound."""
        try:
            node = await self._look_up(namespace, name, doubt, error)
        except NotFound as err:
            return _failed(str(err))
        if node == doubt.node:
            return SUCCESS
        if node:
            taken = f'pod {name} is already assigned to node "{node}"'
            return _failed(f'Operation cannot be fulfilled on pods/binding "{name}": {taken}')
        return None

    async def _look_up(
        self, namespace: str, name: str, doubt: Doubt, error: KubeError | None = None
    ) -> str:
        """The node that the pod with this uid is bound to, empty for none. Retries until that is known; raises
        NotFound."""
        waits = Backoff(self._rng, initial=BIND_RETRY, factor=4.0, cap=LOOKUP_LONGEST)
        self._doubts[doubt.uid] = doubt
        if error is not None:
            doubt.error = str(error)
        while True:
            try:
                return await self._ask_node(namespace, name, doubt.uid)
            except NotFound:
                raise
            except KubeApiError as err:
                doubt.error = str(err)
            shown = self._shown_node(doubt)
            if shown:
                return shown
            self._report(doubt)
            await asyncio.sleep(waits.next())

    async def _ask_node(self, namespace: str, name: str, uid: str) -> str:
        """The node by the server. Raises NotFound if it has no such pod, KubeApiError for anything that is not an
        answer."""
        body = await read_object(self._transport, _pods_path(namespace), name)
        try:
            pod = decode(_BOUND_POD, body)
        except UNREADABLE as err:
            raise KubeApiError(f"the answer is not a pod: {err}") from err
        if not pod.metadata.uid:
            raise KubeApiError("the answer is not a pod")
        if pod.metadata.uid != uid:
            raise _gone(name, ": another pod has taken the name")
        return pod.spec.node_name

    def _shown_node(self, doubt: Doubt) -> str:
        """The node by the watch, empty for none yet. Raises NotFound."""
        if self._pods is None:
            return ""
        pod = self._pods.get(doubt.pod)
        if pod is None:
            raise _gone(doubt.pod.partition("/")[2])
        if pod.uid != doubt.uid:
            raise _gone(pod.name, ": another pod has taken the name")
        return pod.node_name

    def _report(self, doubt: Doubt) -> None:
        seconds = asyncio.get_running_loop().time() - doubt.since
        if seconds >= DOUBT_WARNING and not doubt.logged:
            doubt.logged = True
            logger.warning(
                "Whether pod %s is bound to node %s is not known for %.0f s, its place stays taken: %s",
                doubt.pod,
                doubt.node,
                seconds,
                doubt.error,
            )

    async def bound_to(self, pod: Pod, node: str, *, settle: float = 0.0) -> str | None:
        """The node that the pod with this uid is bound to, None for none.

        ``node``: the node that an extender was to bind it to, and may still for ``settle`` seconds, which are waited
        for. Retries until there is an answer; raises NotFound.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        waits = Backoff(self._rng, initial=BIND_RETRY, factor=4.0, cap=LOOKUP_LONGEST)
        doubt = Doubt(pod.key, pod.uid, node, began)
        try:
            while True:
                settled = (
                    loop.time() >= began + settle
                )  # an answer may be late, and was true when it was asked for
                found = await self._look_up(pod.namespace, pod.name, doubt)
                if found or settled:
                    return found or None
                left = began + settle - loop.time()
                await asyncio.sleep(max(0.0, min(waits.next(), left)))
        finally:
            self._doubts.pop(pod.uid, None)

    # ------------------------------------------------------------ pods

    async def patch_pod_status(
        self,
        pod: Pod,
        *,
        condition: ConditionChange | None = None,
        nominated_node_name: str | None = None,
        now: float,
    ) -> bool:
        """Patches the pod's status; False if it is so already. See payloads.pod_status_patch.

        Raises NotLeading, and KubeApiError after repeated temporary errors.
        """
        patch = pod_status_patch(
            pod, condition=condition, nominated_node_name=nominated_node_name, now=now
        )
        if patch is None:
            return False
        await self._patch_status(pod, patch)
        return True

    async def patch_extended_claim_status(self, pod: Pod, status: Mapping[str, object]) -> None:
        """Patches status.extendedResourceClaimStatus. Raises like ``patch_pod_status``."""
        patch = {"metadata": {"uid": pod.uid}, "status": {"extendedResourceClaimStatus": status}}
        await self._patch_status(pod, msgspec.json.encode(patch))

    async def _patch_status(self, pod: Pod, patch: bytes) -> None:
        path = f"{_pod_path(pod.namespace, pod.name)}/status"
        again = (Conflict, *_TRANSIENT)
        try:
            await self._write_repeatedly("PATCH", path, patch, STRATEGIC_MERGE_PATCH, again)
        except NotFound:
            raise
        except KubeApiError as err:
            if _is_about_uid(err) or (
                isinstance(err, Conflict) and await self._is_gone(pod.namespace, pod.name, pod.uid)
            ):
                raise _gone(pod.name, ": another pod has taken the name") from err
            raise

    async def patch_status(
        self, obj: Named, path: str, status: Mapping[str, object], content_type: str
    ) -> None:
        """Patches the status of the object with this uid; ``path`` is where the API server serves the kind.

        Raises NotLeading, NotFound and KubeApiError.
        """
        api, _, plural = path.rpartition("/")
        collection = f"{api}/namespaces/{path_segment(obj.namespace)}/{plural}"
        patch = msgspec.json.encode({"metadata": {"uid": obj.uid}, "status": status})
        path = f"{collection}/{path_segment(obj.name)}/status"
        await self._write_repeatedly("PATCH", path, patch, content_type, _TRANSIENT)

    async def delete_pod(self, namespace: str, name: str, uid: str) -> bool:
        """Deletes the pod with this uid with its own grace period; False if it was gone already.

        After a conflict, which may mean that another pod has the name, the pod is looked up. Raises NotLeading
        and KubeApiError.
        """
        path = _pod_path(namespace, name)
        try:
            await self._write_repeatedly("DELETE", path, delete_body(uid), JSON, _TRANSIENT)
        except NotFound:
            return False
        except Conflict:
            if await self._is_gone(namespace, name, uid):
                return False
            raise
        return True

    async def _is_gone(self, namespace: str, name: str, uid: str) -> bool:
        """Whether the server says that there is no such pod; also False if it cannot be asked."""
        try:
            await self._ask_node(namespace, name, uid)
        except NotFound:
            return True
        except KubeApiError as err:
            logger.debug("Lookup of pod %s/%s failed: %s", namespace, name, err)
        return False

    async def _write_repeatedly(
        self,
        method: str,
        path: str,
        body: bytes,
        content_type: str,
        again: tuple[type[KubeApiError], ...],
    ) -> None:
        """Sends an idempotent write, repeated after the errors ``again``. Raises NotLeading and KubeApiError.

        NotFound is only raised for the API server's own 404.
        """
        waits = Backoff(self._rng, initial=WRITE_RETRY, factor=5.0, cap=1.0, jitter=0.1)
        for attempt in range(1, WRITE_ATTEMPTS + 1):
            try:
                await self._write(method, path, body, content_type)
            except NotFound as err:
                if not err.is_missing_object:
                    raise KubeApiError(str(err), status=err.status) from err
                raise
            except again:
                if attempt == WRITE_ATTEMPTS:
                    raise
            else:
                return
            await asyncio.sleep(waits.next())

    # ------------------------------------------------------------ volumes

    async def patch_persistent_volume(
        self, name: str, *, resource_version: str, changes: Mapping[str, object]
    ) -> bytes:
        """Changes this version of a volume (``spec.claimRef``); returns the object.

        Raises NotLeading, Conflict if there is a newer version, and KubeApiError.
        """
        path = f"/api/v1/persistentvolumes/{path_segment(name)}"
        return await self._patch_object(path, resource_version, changes)

    async def patch_persistent_volume_claim(
        self, namespace: str, name: str, *, resource_version: str, changes: Mapping[str, object]
    ) -> bytes:
        """Changes this version of a claim (the selected-node annotation); returns the object.

        Raises NotLeading, Conflict if there is a newer version, and KubeApiError.
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
        """Sends one request. Raises NotLeading, and KubeApiError, also for an answer that is no JSON object."""
        request = self._transport.request(
            method, path, body=body, content_type=content_type, guard=self._may_write
        )
        return expect_object(await request)


def _failed(message: str) -> Status:
    return Status(Code.Error, (message,))


@functools.lru_cache(1024)
def _pods_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{path_segment(namespace)}/pods"


def _pod_path(namespace: str, name: str) -> str:
    return f"{_pods_path(namespace)}/{path_segment(name)}"


def _in_doubt(error: KubeError) -> bool:
    """Whether a binding that failed with this error may have taken effect: not if it was not sent, or was rejected."""
    return isinstance(error, Conflict) or may_take_effect(error)


def _may_be_repeated(error: KubeError) -> bool:
    """Whether a binding that ended so, and has not taken effect, is worth another attempt."""
    return not isinstance(error, Conflict) and (
        may_take_effect(error) or isinstance(error, _TRANSIENT)
    )


def _is_about_uid(error: KubeApiError) -> bool:
    """Whether a patch was refused because another pod has taken the name."""
    return any(cause.field == "metadata.uid" for cause in error.details.causes or ())


def _gone(name: str, why: str = "") -> NotFound:
    return NotFound(f'pods "{name}" not found{why}', status=404, reason="NotFound")
