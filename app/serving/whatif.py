"""Serves ``POST /whatif``, which says what would happen (docs/whatif.md), and the OpenAPI document that describes it.

It requires the verb ``post`` on the non-resource URL ``/whatif``, and ``get`` on ``/whatif/openapi`` for the document.
"""

import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

import msgspec
from aiohttp import web

from app.serving.access import RequestRejected, status_response
from app.serving.pages import JSON
from app.serving.requests import bad_request
from app.wire.sanitize import encode
from app.wire.whatif_v1 import RefusedError, WhatIfAnswer, WhatIfQuestion

PATH: Final = "/whatif"
OPENAPI: Final = "/whatif/openapi"
#: Bytes of a question at most; larger ones are answered with 413.
MAX_BODY: Final = 1 << 20
#: The path of filter, as extenders have it, and the bytes of its body at most: 4000 whole nodes.
FILTER: Final = "/whatif/filter"
MAX_NODES_BODY: Final = 32 << 20
#: Bytes of all bodies that are held at the same time; what would be more is answered with 429.
MAX_HELD: Final = 64 << 20

_DECODER: Final = msgspec.json.Decoder(WhatIfQuestion)


class Ask(Protocol):
    """Answers a question."""

    def __call__(
        self, question: WhatIfQuestion, gone: Callable[[], bool]
    ) -> Awaitable[WhatIfAnswer]:
        """``gone``: whether nobody waits for the answer any longer. Raises RefusedError."""
        ...


class FilterNodes(Protocol):
    """Answers a call of filter."""

    def __call__(
        self, body: bytes, gone: Callable[[], bool]
    ) -> Awaitable[tuple[bytes, tuple[str, ...]]]:
        """The answer, and the extenders that were not asked. ``gone`` as for Ask. Raises RefusedError."""
        ...


class WhatIfPages:
    """The endpoint for questions."""

    def __init__(self, ask: Ask, filter_: FilterNodes, version: str) -> None:
        """``version``: of aiokube-scheduler."""
        self._ask: Final = ask
        self._filter: Final = filter_
        self._version: Final = version
        self._held = 0

    def routes(self) -> list[web.RouteDef]:
        """The pages."""
        return [
            web.post(PATH, self._question),
            web.post(FILTER, self._nodes),
            web.get(OPENAPI, self._openapi),
        ]

    async def _nodes(self, request: web.Request) -> web.Response:
        async with self._body_of(request, MAX_NODES_BODY) as body:
            try:
                answer, not_asked = await self._filter(body, functools.partial(_has_gone, request))
            except RefusedError as refused:
                raise RequestRejected(refused_response(refused)) from refused
        response = web.Response(body=answer, content_type=JSON)
        if not_asked:
            names = ", ".join(not_asked)
            response.headers["Warning"] = f'299 - "not asked, for want of a dry run: {names}"'
        return response

    async def _question(self, request: web.Request) -> web.Response:
        async with self._body_of(request, MAX_BODY) as body:
            try:
                question = _DECODER.decode(body)
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                bad_request(str(error))
        try:
            answer = await self._ask(question, functools.partial(_has_gone, request))
        except RefusedError as refused:
            raise RequestRejected(refused_response(refused)) from refused
        return web.Response(body=encode(answer), content_type=JSON)

    @asynccontextmanager
    async def _body_of(self, request: web.Request, limit: int) -> AsyncIterator[bytes]:
        """The body of a request, up to ``limit`` bytes, which are held for the block. Raises RequestRejected."""
        parts: list[bytes] = []
        size = 0
        try:
            async for part in request.content.iter_any():
                size += len(part)
                self._held += len(part)
                if size > limit:
                    text = f"a question may have {limit} bytes at most"
                    raise RequestRejected(status_response(413, "RequestEntityTooLarge", text))
                if self._held > MAX_HELD:
                    text = "other questions are too large for this one beside them"
                    raise RequestRejected(
                        refused_response(RefusedError(429, "TooManyRequests", text, 1))
                    )
                parts.append(part)
            yield b"".join(parts)
        except web.RequestPayloadError:
            bad_request("the body of the request is malformed")
        finally:
            self._held -= size

    async def _openapi(self, _request: web.Request) -> web.Response:
        return web.Response(body=encode(openapi(self._version)), content_type=JSON)


def _has_gone(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


def refused_response(refused: RefusedError) -> web.Response:
    """The answer to a question that is refused."""
    response = status_response(refused.status, refused.reason, str(refused))
    if refused.retry_after:
        response.headers["Retry-After"] = str(refused.retry_after)
    return response


@functools.cache
def openapi(version: str) -> dict[str, Any]:
    """The OpenAPI document."""
    schemas, components = msgspec.json.schema_components(
        (WhatIfQuestion, WhatIfAnswer), ref_template="#/components/schemas/{name}"
    )
    question, answer = schemas
    refusals = {
        "400": "The question cannot be read.",
        "401": "The credentials are not valid.",
        "403": 'The right to "post" on the nonResourceURL /whatif is missing.',
        "404": "A node that is named does not exist.",
        "413": "The question is too large.",
        "422": "The question can be read, but not be answered.",
        "429": "Too many questions are waiting.",
        "503": "The scheduler cannot answer now.",
        "504": "The time was over before there was an answer.",
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "aiokube-scheduler: what would happen",
            "version": version,
            "description": "Questions to the running scheduler. Nothing is written.",
        },
        "paths": {
            PATH: {
                "post": {
                    "operationId": "whatIf",
                    "requestBody": {
                        "required": True,
                        "content": {JSON: {"schema": question}},
                    },
                    "responses": {
                        "200": {
                            "description": "The answer.",
                            "content": {JSON: {"schema": answer}},
                        },
                        **{
                            code: {
                                "description": text,
                                "content": {
                                    JSON: {"schema": {"$ref": "#/components/schemas/Status"}}
                                },
                            }
                            for code, text in refusals.items()
                        },
                    },
                }
            }
        },
        "components": {"schemas": {**components, "Status": _STATUS}},
    }


_STATUS: Final = {
    "type": "object",
    "description": "metav1.Status of Kubernetes.",
    "properties": {
        "status": {"type": "string"},
        "reason": {"type": "string"},
        "message": {"type": "string"},
        "code": {"type": "integer"},
    },
}
