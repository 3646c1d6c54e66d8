"""A client of an embedded cluster in the same process: requests are calls, and watches are queues."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from typing import Final

from app.kube.errors import NotLeading, error_from_response, error_from_status
from app.kube.transport import JSON, Guard, Response
from app.sim import EmbeddedCluster, UnsentCall
from app.sim.errors import ApiError
from app.sim.http.watch import Watcher

_NO_PARAMS: Final[Mapping[str, str]] = {}


class InProcess:
    """A Transport (app.kube.transport). No request takes any time."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster: Final = cluster

    async def get(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - see Transport
    ) -> Response:
        """See Reader."""
        return await self.request("GET", path, params=params, timeout=timeout)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        params: Mapping[str, str] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout: float | None = None,  # noqa: ASYNC109, ARG002 - see Transport
        guard: Guard | None = None,
    ) -> Response:
        """See Transport."""
        await asyncio.sleep(0)
        if guard is not None and not guard():
            raise NotLeading(method, path)
        call = UnsentCall(method, path, params or _NO_PARAMS, body or b"", content_type, accept)
        answer = self._cluster.answer(call)
        found = answer.body
        content = found if isinstance(found, bytes) else b""
        if not 200 <= answer.status < 300:
            raise error_from_response(
                method, path, answer.status, content, answer.headers.get("Retry-After")
            )
        return Response(answer.status, content)

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        params: Mapping[str, str],
        read_timeout: float,  # noqa: ARG002 - see Reader
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """See Reader."""
        with ExitStack() as opened:
            try:
                watcher = opened.enter_context(self._cluster.watching(path, params))
            except ApiError as error:
                raise error_from_status(
                    error.code, message=error.message, reason=error.reason
                ) from error
            yield _batches(watcher)


async def _batches(watcher: Watcher) -> AsyncIterator[bytes]:
    while (batch := await watcher.next_batch()) is not None:
        yield batch
