"""Serves ``GET /recording``: the files of ``--record`` that have the last minutes (docs/replay.md).

It requires the verb ``get`` on the non-resource URL ``/recording``, which no other right covers.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import BinaryIO, Final, NamedTuple

from aiohttp import web

from app.model.gotext import Duration, DurationError
from app.serving.access import RequestRejected, status_response
from app.serving.pages import UnfinishedError
from app.serving.requests import bad_request

PATH: Final = "/recording"
_TYPE: Final = "application/octet-stream"
#: How much is sent unless ``?last=`` says otherwise, and at most, in seconds.
_USUAL: Final = 300.0
_LONGEST: Final = 7 * 86400.0
_CHUNK: Final = 256 << 10


class RecordedFile(NamedTuple):
    """An open file of a recording, of which the first ``size`` bytes are whole."""

    file: BinaryIO
    size: int


class NotRecordedError(Exception):
    """There is nothing to send now; the text is for the user."""


Latest = Callable[[float], Awaitable[Sequence[RecordedFile]]]
"""The files that have the last so many seconds, the oldest first. Raises NotRecordedError, OSError."""


class RecordingPages:
    """The endpoint."""

    def __init__(self, latest: Latest | None) -> None:
        """``latest`` None: nothing is recorded."""
        self._latest: Final = latest
        self._sending = False

    def routes(self) -> list[web.RouteDef]:
        """The page."""
        return [web.get(PATH, self._send, allow_head=False)]

    async def _send(self, request: web.Request) -> web.StreamResponse:
        seconds = _seconds(request.query.get("last", ""))
        if self._latest is None:
            text = "this scheduler does not record: start it with --record DIR"
            raise RequestRejected(status_response(404, "NotFound", text))
        if self._sending:
            text = "the recording is being sent to somebody else"
            raise RequestRejected(status_response(429, "TooManyRequests", text))
        self._sending = True
        files: Sequence[RecordedFile] = ()
        try:
            try:
                files = await self._latest(seconds)
            except (NotRecordedError, OSError) as error:
                rejected = status_response(503, "ServiceUnavailable", str(error))
                raise RequestRejected(rejected) from error
            return await _sent(request, files)
        finally:
            self._sending = False
            for each in files:
                each.file.close()


async def _sent(request: web.Request, files: Sequence[RecordedFile]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": _TYPE, "Cache-Control": "no-store"})
    response.content_length = sum(each.size for each in files)
    await response.prepare(request)
    for file, size in files:
        left = size
        while left:
            chunk = await asyncio.to_thread(file.read, min(left, _CHUNK))
            if not chunk:
                raise UnfinishedError from EOFError(f"{file.name} has become shorter")
            left -= len(chunk)
            await response.write(chunk)
    await response.write_eof()
    return response


def _seconds(text: str) -> float:
    if not text:
        return _USUAL
    try:
        seconds = Duration.parse(text).seconds
    except DurationError:
        seconds = math.nan
    if not 0 < seconds <= _LONGEST:
        bad_request("last must be a duration such as 5m, of a week at most")
    return seconds
