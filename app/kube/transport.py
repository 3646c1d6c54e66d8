"""The protocol of an API client, as the rest of app.kube uses it; tests replace it by fakes."""

import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol
from urllib.parse import quote

import msgspec

JSON: Final = "application/json"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"

#: Names that need no escaping in a path: nearly all.
_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]*")

#: Asked right before a request is sent; False raises NotLeading.
Guard = Callable[[], bool]


class Response(msgspec.Struct, frozen=True):
    """An answer with a 2xx status."""

    status: int
    body: bytes


class Reader(Protocol):
    """Reads from one API server, and cannot write. Raises KubeApiError and its subclasses only."""

    async def get(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - seconds for the exchange, given to the HTTP client
    ) -> Response:
        """One GET; the whole body is read. ``path`` is already escaped; ``timeout`` None is the default."""
        ...

    def stream(
        self, path: str, *, params: Mapping[str, str], read_timeout: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """A GET whose body is read chunk by chunk; ``read_timeout`` seconds without a byte are a ConnectionFailed."""
        ...


class Transport(Reader, Protocol):
    """Requests and streams to one API server. Raises KubeApiError and its subclasses only (and NotLeading)."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        params: Mapping[str, str] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout: float | None = None,  # noqa: ASYNC109 - seconds for the exchange, given to the HTTP client
        guard: Guard | None = None,
    ) -> Response:
        """One exchange; the whole body is read. ``path`` is already escaped; ``timeout`` None is the default."""
        ...


def path_segment(name: str) -> str:
    """A name as one segment of a path."""
    return name if _PLAIN.fullmatch(name) else quote(name, safe="")
