"""An API server that believes everything: it keeps objects as JSON text, readable or not, and tells the watches of
them.

A Transport (app.kube.transport) for a Scheduler. It carries out what the scheduler writes where it can: bindings,
deletions, merge patches and creations; all else it agrees to.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

import msgspec

from app.kube.errors import KubeApiError, NotFound
from app.kube.transport import JSON, PROTOBUF, Response
from app.sim.patches.json_patch import apply_merge_patch
from tests.fuzz.histories import Event
from tests.fuzz.kinds import BY_NAME, KINDS, Kind
from tests.shell.kube.fakes import Requests

_ENDS = None
_COLLECTIONS = {(kind.api_version, kind.plural): kind for kind in KINDS}
_API_GROUPS = msgspec.json.encode(
    {
        "kind": "APIGroupList",
        "groups": [{"versions": [{"groupVersion": kind.api_version} for kind in KINDS]}],
    }
)
_METADATA = msgspec.json.Decoder(dict[str, msgspec.Raw])


class ApiServer(Requests):
    """Objects by kind and key (``namespace/name``), as they would come in a list."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, bytes]] = {kind.name: {} for kind in KINDS}
        #: Node names by pod key, of bindings in the order they were made.
        self.bindings: dict[str, str] = {}
        #: Pods that were evicted.
        self.evicted: list[str] = []
        #: Seconds of CPU time for the answers so far: what a scheduler does not spend.
        self.spent = 0.0
        self._watches: dict[str, list[asyncio.Queue[bytes | None]]] = {}
        self._version = 1000

    def next_version(self) -> str:
        """A resourceVersion that no object has yet."""
        self._version += 1
        return str(self._version)

    # ------------------------------------------------------------ what happens in the cluster

    def happens(self, event: Event) -> None:
        """What an event of a history says."""
        match event.type:
            case "LINE":
                self.send(event.kind, event.text)
            case "EXPIRED":
                self.expire(event.kind)
            case _:
                self.tell(event.kind, event.key, event.type, event.text)

    def tell(self, kind: str, key: str, type_: str, text: bytes) -> None:
        """An object (its JSON) is added, modified or deleted; watches hear of it."""
        if type_ == "DELETED":
            self.objects[kind].pop(key, None)
        else:
            self.objects[kind][key] = text
        self.send(kind, b'{"type":"%b","object":%b}\n' % (type_.encode(), text))

    def send(self, kind: str, chunk: bytes) -> None:
        """Bytes for the watches of a kind, whatever they are."""
        for watch in self._watches.get(BY_NAME[kind].path, ()):
            watch.put_nowait(chunk)

    def expire(self, kind: str) -> None:
        """Ends the watches of a kind; its history is gone, so a list follows."""
        status = b'{"kind":"Status","status":"Failure","code":410,"reason":"Expired","message":"x"}'
        self.send(kind, b'{"type":"ERROR","object":%b}\n' % status)

    def _change(self, kind: str, key: str, type_: str, value: Any) -> bytes:
        metadata = value.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        value["metadata"] = {**metadata, "resourceVersion": self.next_version()}
        text = msgspec.json.encode(value)
        self.tell(kind, key, type_, text)
        return text

    # ------------------------------------------------------------ Transport

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        **_: object,
    ) -> Response:
        await asyncio.sleep(0)
        started = time.thread_time()
        try:
            return self._answer(
                method, path, body or b"{}", binary=PROTOBUF in {accept, content_type}
            )
        finally:
            self.spent += time.thread_time() - started

    def _answer(self, method: str, path: str, body: bytes, *, binary: bool) -> Response:
        kind, key, sub = _target(path)
        if path == "/apis":
            return Response(200, _API_GROUPS)
        if kind is None and method == "GET" and path.startswith("/apis/"):
            raise NotFound(f"{method} {path}: not found", status=404, reason="NotFound")
        if kind is None or binary:
            return Response(201, b"{}")
        if method == "GET" and not key:
            return Response(200, self._list(kind))
        if method == "POST":
            return self._post(kind, key, sub, body)
        text = self.objects[kind.name].get(key)
        if text is None:
            raise NotFound(f"{method} {path}: not found", status=404, reason="NotFound")
        if method == "DELETE":
            self.evicted.append(key)
            self.tell(kind.name, key, "DELETED", text)
        elif method == "PATCH" and kind.name == "Pod":
            text = self._patch_status(key, text, body)
        elif method in {"PATCH", "PUT"}:
            text = self._write(kind, key, text, body)
            if kind.name == "PersistentVolume":
                self._bind_volume(key, text)
        return Response(200, text)

    def _list(self, kind: Kind) -> bytes:
        items = b",".join(self.objects[kind.name].values())
        return b'{"metadata":{"resourceVersion":"%d"},"items":[%b]}' % (self._version, items)

    def _post(self, kind: Kind, key: str, sub: str, body: bytes) -> Response:
        sent = msgspec.json.decode(body)
        if sub == "binding":
            self.bind(key, sent["target"]["name"])
        elif not sub and kind.name == "ResourceClaim":
            metadata = sent["metadata"]
            name = metadata.get("name") or f"{metadata.get('generateName', '')}{self._version}"
            metadata |= {"name": name, "uid": f"uid-{self._version}"}
            made = self._change(kind.name, f"{metadata['namespace']}/{name}", "ADDED", sent)
            return Response(201, made)
        return Response(201, b"{}")

    def bind(self, key: str, node: str) -> None:
        """A pod is bound. Raises KubeApiError for one that is none."""
        text = self.objects["Pod"].get(key)
        try:
            pod = msgspec.json.decode(text or b"")
            pod["spec"]["nodeName"] = node
        except (ValueError, RecursionError, TypeError, KeyError) as error:
            raise KubeApiError(
                f"cannot bind {key}: {error}", status=422, reason="Invalid"
            ) from error
        self.bindings[key] = node
        self._change("Pod", key, "MODIFIED", pod)

    def _write(self, kind: Kind, key: str, text: bytes, body: bytes) -> bytes:
        try:
            return self._change(
                kind.name,
                key,
                "MODIFIED",
                apply_merge_patch(msgspec.json.decode(text), msgspec.json.decode(body)),
            )
        except (ValueError, RecursionError, TypeError, AttributeError):
            return text

    def _patch_status(self, key: str, text: bytes, body: bytes) -> bytes:
        """A strategic merge patch of a pod's status: conditions by type."""
        try:
            pod, changes = msgspec.json.decode(text), msgspec.json.decode(body)["status"]
            status = pod.setdefault("status", {})
            known = {condition["type"]: condition for condition in status.get("conditions") or ()}
            known |= {condition["type"]: condition for condition in changes.pop("conditions", ())}
            pod["status"] = apply_merge_patch(
                {**status, "conditions": list(known.values())}, changes
            )
        except (ValueError, RecursionError, TypeError, AttributeError, LookupError):
            return text
        return self._change("Pod", key, "MODIFIED", pod)

    def _bind_volume(self, name: str, text: bytes) -> None:
        """What the controller of volumes does about one that was given to a claim."""
        try:
            claim = msgspec.json.decode(text)["spec"]["claimRef"]
            key = f"{claim['namespace']}/{claim['name']}"
            bound = msgspec.json.decode(self.objects["PersistentVolumeClaim"][key])
            bound["spec"]["volumeName"] = name
            bound["status"] = {"phase": "Bound"}
            bound["metadata"].setdefault("annotations", {})["pv.kubernetes.io/bind-completed"] = (
                "yes"
            )
        except (ValueError, RecursionError, TypeError, LookupError, AttributeError):
            return
        self._change("PersistentVolumeClaim", key, "MODIFIED", bound)

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], read_timeout: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        watches = self._watches.setdefault(path, [])
        watches.append(queue)
        try:
            yield _chunks(queue)
        finally:
            watches.remove(queue)


async def _chunks(queue: "asyncio.Queue[bytes | None]") -> AsyncIterator[bytes]:
    while (chunk := await queue.get()) is not _ENDS:
        yield chunk


def _target(path: str) -> tuple[Kind | None, str, str]:
    """Kind, ``namespace/name`` (or what of it there is) and subresource of a path; no kind for paths of others."""
    parts = [unquote(part) for part in path.split("/")]
    start = 3 if parts[1] == "api" else 4
    version = "/".join(parts[2:start])
    namespace = ""
    if len(parts) > start + 2 and parts[start] == "namespaces":
        namespace, start = parts[start + 1], start + 2
    kind = _COLLECTIONS.get((version, parts[start])) if len(parts) > start else None
    name = parts[start + 1] if len(parts) > start + 1 else ""
    sub = parts[start + 2] if len(parts) > start + 2 else ""
    return kind, f"{namespace}/{name}" if namespace and name else name, sub
