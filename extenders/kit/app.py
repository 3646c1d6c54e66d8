"""Makes a web application from functions::

    async def suits(request: NodesRequest) -> Filtered: ...
    def score(request: NodesRequest) -> dict[str, int]: ...

    run(make_app(filter=suits, prioritize=score), port=8888)

Functions may be plain or ``async``. They raise Refusal to answer with an error that schedulers show. An invalid request
is answered with 400, any other exception of a function with 500, both with the reason in the body.
"""

import functools
import inspect
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import web

from .types import (  # noqa: TID252 - so that the folder can be copied
    BindRequest,
    Filtered,
    GroupAnswer,
    GroupRequest,
    NodesRequest,
    PreemptRequest,
    Refusal,
    ReleaseRequest,
    Victims,
    error_answer,
    group_answer,
    preempt_answer,
    scores_answer,
)

log = logging.getLogger("extender")

T = TypeVar("T")

Filter = Callable[[NodesRequest], Filtered | Awaitable[Filtered]]
Prioritize = Callable[[NodesRequest], Mapping[str, int] | Awaitable[Mapping[str, int]]]
Preempt = Callable[[PreemptRequest], Mapping[str, Victims] | Awaitable[Mapping[str, Victims]]]
Bind = Callable[[BindRequest], Awaitable[None] | None]
Release = Callable[[ReleaseRequest], Awaitable[None] | None]
Group = Callable[[GroupRequest], Sequence[GroupAnswer] | Awaitable[Sequence[GroupAnswer]]]

#: Bytes of a request at most: 5000 whole nodes of 13 KB; a scheduler with more should send names.
MAX_BODY_BYTES: Final = 64 * 1024 * 1024


def make_app(
    *,
    filter: Filter | None = None,  # noqa: A002 - the verb's name
    prioritize: Prioritize | None = None,
    preempt: Preempt | None = None,
    bind: Bind | None = None,
    release: Release | None = None,
    group: Group | None = None,
    max_body_bytes: int = MAX_BODY_BYTES,
) -> web.Application:
    """The paths /filter, /prioritize, /preempt, /bind, /release and /group for the functions given, and /healthz."""
    app = web.Application(client_max_size=max_body_bytes, middlewares=[_in_words])
    app.router.add_get("/healthz", _healthz)
    if filter is not None:
        app.router.add_post("/filter", _filter_handler(filter))
    if prioritize is not None:
        app.router.add_post("/prioritize", _prioritize_handler(prioritize))
    if preempt is not None:
        app.router.add_post("/preempt", _preempt_handler(preempt))
    if bind is not None:
        app.router.add_post("/bind", _told_handler(BindRequest.read, bind))
    if release is not None:
        app.router.add_post("/release", _told_handler(ReleaseRequest.read, release))
    if group is not None:
        app.router.add_post("/group", _group_handler(group))
    return app


def run(
    app: web.Application,
    *,
    host: str = "127.0.0.1",
    port: int = 8888,
    cert: str = "",
    key: str = "",
) -> None:
    """Serves until SIGTERM or SIGINT; port 0 takes any free one. With ``cert`` and ``key`` (PEM files) over TLS."""
    context = None
    if cert:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(cert, key or None)
    web.run_app(
        app,
        host=host,
        port=port,
        ssl_context=context,
        access_log=None,
        shutdown_timeout=5.0,
        print=functools.partial(print, flush=True),
    )


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _filter_handler(function: Filter) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        asked = NodesRequest.read(await request.read())
        try:
            filtered = await _called(function, asked)
        except Refusal as refusal:
            return _json(error_answer(str(refusal)))
        headers = {}
        if filtered.retry_after is not None and len(filtered.passed) < len(asked.names):
            headers["Retry-After"] = str(filtered.retry_after)
        return _json(asked.answer(filtered), headers)

    return handle


def _prioritize_handler(function: Prioritize) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        asked = NodesRequest.read(await request.read())
        return _json(scores_answer(await _called(function, asked)))

    return handle


def _preempt_handler(function: Preempt) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        asked = PreemptRequest.read(await request.read())
        return _json(preempt_answer(await _called(function, asked)))

    return handle


def _group_handler(function: Group) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        asked = GroupRequest.read(await request.read())
        try:
            return _json(group_answer(await _called(function, asked)))
        except Refusal as refusal:
            return _json(error_answer(str(refusal)))

    return handle


def _told_handler(
    read: Callable[[bytes], T], function: Callable[[T], Awaitable[None] | None]
) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        asked = read(await request.read())
        try:
            await _called(function, asked)
        except Refusal as refusal:
            return _json(error_answer(str(refusal)))
        return _json(error_answer(""))

    return handle


async def _called(function: Callable[[Any], T | Awaitable[T]], argument: Any) -> T:
    result = function(argument)
    if inspect.isawaitable(result):
        return await result
    return result


async def _healthz(_request: web.Request) -> web.Response:
    return web.Response(text="ok")


@web.middleware
async def _in_words(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answers errors with their text in the body, which the scheduler shows."""
    try:
        return await handler(request)
    except msgspec.MsgspecError as error:
        return _json(error_answer(f"{request.path}: {error}"), status=400)
    except Refusal as refusal:
        return _json(error_answer(str(refusal)), status=500)
    except web.HTTPException:
        raise
    except Exception as error:
        log.exception("Error answering %s", request.path)
        return _json(error_answer(f"{type(error).__name__}: {error}"), status=500)


def _json(
    body: bytes, headers: Mapping[str, str] | None = None, *, status: int = 200
) -> web.Response:
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")
