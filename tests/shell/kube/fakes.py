"""Stand-ins for the network: a transport that follows a script, on whatever clock the event loop has."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from app.kube.errors import ConnectionFailed, KubeApiError, NotFound, NotLeading, error_from_status
from app.kube.transport import JSON, PROTOBUF, Guard, Response
from app.kube.watch_decoder import ResourceKind
from app.model.objects import Service
from app.wire.kube import decoder_for

SERVICES = ResourceKind("Service", "/api/v1/services", decoder_for(Service))


class Sent(NamedTuple):
    """One request as it was made."""

    method: str
    path: str
    body: Any
    params: dict[str, str]
    content_type: str
    accept: str


class Silence(NamedTuple):
    """A pause in a stream, seconds."""

    seconds: float


class Hang:
    """A stream that stays open without a reason."""


Step = bytes | Silence | Hang | Exception
Answer = Response | Exception
Handler = Callable[[Sent], "Answer | None"]


class Requests:
    """What reads by requests."""

    async def get(self, path: str, **options: Any) -> Response:
        return await self.request("GET", path, **options)


class FakeTransport(Requests):
    """Answers requests from a queue, then by ``handler``; plays one list of steps per stream, then hangs.

    A stream reads like one of aiohttp: silence beyond its read_timeout breaks it.
    """

    def __init__(self, *streams: list[Step] | Exception, handler: Handler | None = None) -> None:
        self.sent: list[Sent] = []
        self.streamed: list[dict[str, str]] = []
        self.answers: deque[Answer] = deque()
        self.streams = deque(streams)
        self.handler = handler
        #: How long answers take, in seconds.
        self.latency = 0.0
        self.open_streams = 0

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        params: Mapping[str, str] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout: float | None = None,
        guard: Guard | None = None,
    ) -> Response:
        if guard is not None and not guard():
            raise NotLeading(method, path)
        parsed: Any = body
        if body is not None and content_type != PROTOBUF:
            parsed = json.loads(body)
        sent = Sent(method, path, parsed, dict(params or {}), content_type, accept)
        self.sent.append(sent)
        await asyncio.sleep(self.latency)
        answer = self.handler(sent) if self.handler is not None else None
        if answer is None:
            answer = self.answers.popleft() if self.answers else NotFound("nothing here")
        if isinstance(answer, Exception):
            raise answer
        return answer

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], read_timeout: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        self.streamed.append(dict(params))
        script = self.streams.popleft() if self.streams else [Hang()]
        await asyncio.sleep(0)
        if isinstance(script, Exception):
            raise script
        self.open_streams += 1
        try:
            yield _Chunks(script, read_timeout)
        finally:
            self.open_streams -= 1


class _Chunks:
    def __init__(self, script: list[Step], read_timeout: float) -> None:
        self._steps = deque(script)
        self._read_timeout = read_timeout

    def __aiter__(self) -> "_Chunks":
        return self

    async def __anext__(self) -> bytes:
        while self._steps:
            step = self._steps.popleft()
            if isinstance(step, bytes):
                return step
            if isinstance(step, Exception):
                raise step
            silence = step.seconds if isinstance(step, Silence) else float("inf")
            await asyncio.sleep(min(silence, self._read_timeout))
            if silence > self._read_timeout:
                raise ConnectionFailed("GET stream: no answer in time", sent=True)
        raise StopAsyncIteration


def ok(body: Any = None, status: int = 200) -> Response:
    """An answer with a JSON body."""
    return Response(status, json.dumps(body or {}).encode())


def refused(status: int, message: str = "no", reason: str = "", **more: Any) -> KubeApiError:
    """The exception for a status."""
    return error_from_status(status, message=message, reason=reason, **more)


def service(name: str, version: int, *, uid: str | None = None, **more: Any) -> dict[str, Any]:
    """A Service as JSON; its uid follows from its name."""
    return {
        "metadata": {
            "namespace": "shop",
            "name": name,
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
        },
        **more,
    }


def line(kind: str, item: dict[str, Any]) -> bytes:
    """A watch line."""
    return json.dumps({"type": kind, "object": item}, separators=(",", ":")).encode() + b"\n"


def added(name: str, version: int, **more: Any) -> bytes:
    """An ADDED line."""
    return line("ADDED", service(name, version, **more))


def modified(name: str, version: int, **more: Any) -> bytes:
    """A MODIFIED line."""
    return line("MODIFIED", service(name, version, **more))


def deleted(name: str, version: int, **more: Any) -> bytes:
    """A DELETED line."""
    return line("DELETED", service(name, version, **more))


def bookmark(version: int, *, end: bool = False) -> bytes:
    """A BOOKMARK line; ``end`` marks the end of a streaming list."""
    annotations = {"annotations": {"k8s.io/initial-events-end": "true"}} if end else {}
    return line("BOOKMARK", {"metadata": {"resourceVersion": str(version), **annotations}})


def error_line(code: int, reason: str = "Expired") -> bytes:
    """An ERROR line."""
    return line(
        "ERROR",
        {
            "kind": "Status",
            "status": "Failure",
            "code": code,
            "reason": reason,
            "message": "too old",
        },
    )


def page(*items: dict[str, Any], version: int, token: str = "") -> Response:
    """One page of a list."""
    metadata = {"resourceVersion": str(version), **({"continue": token} if token else {})}
    return ok({"kind": "ServiceList", "metadata": metadata, "items": list(items)})
