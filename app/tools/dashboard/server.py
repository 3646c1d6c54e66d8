"""Serves the page on this machine, and passes on what the scheduler says (docs/dashboard.md, docs/security.md).

The page can only read: every path is a GET of /debug, or a question (POST /whatif), which changes nothing. The address
has a secret of this run, and requests of other sites or for other host names are refused, so that no page of another
site can use the user's credentials.
"""

import asyncio
import contextlib
import os
import secrets
import sys
import tempfile
import webbrowser
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from app.kube.errors import ConnectionFailed, ConnectionSettingsError, KubeError
from app.kube.transport import path_segment
from app.runtime.clock import make_secret
from app.settings.yaml import load_documents
from app.tools.dashboard import TYPES, static_files
from app.tools.feed_model import Event
from app.tools.leaders import NotReached
from app.tools.scheduler_client import (
    Link,
    NotAnswered,
    SchedulerTarget,
    UnknownObject,
)

#: Seconds until the scheduler is looked for again.
RETRY_SECONDS: Final = 1.0
_WHATIF: Final = "/whatif"
#: Seconds until an answer to a question.
_QUESTION_SECONDS: Final = 30.0
#: The route of the page itself.
_PAGE: Final = "page"
#: Seconds in which a browser must have read the file that leads it to the page.
_READ_SECONDS: Final = 30.0
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class Dashboard:
    """The pages."""

    def __init__(self, link: Link, secret: str) -> None:
        self._link: Final = link
        self._secret: Final = secret
        self._files: Final = static_files()
        #: The host names and ports under which the page may be asked for.
        self.hosts: frozenset[str] = frozenset()

    def application(self) -> web.Application:
        """The application."""
        made = web.Application(middlewares=[self._guarded])
        made.add_routes(
            [
                web.get("/{secret}/", self._file, name=_PAGE),
                web.get("/{secret}/feed", self._feed),
                web.get("/{secret}/pods/{namespace}/{name}", self._pod),
                web.get("/{secret}/nodes/{name}", self._node),
                web.post("/{secret}/whatif", self._question),
                web.get("/{secret}/{file}", self._file),
            ]
        )
        return made

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        refused = self._refusal(request)
        response = web.Response(status=403, text=refused) if refused else await handler(request)
        if not response.prepared:
            response.headers.update(_HEADERS)
        return response

    def _refusal(self, request: web.Request) -> str:
        """Why a request is refused: another host name (DNS rebinding), another site, or not the secret."""
        host, origin = request.headers.get("Host", ""), request.headers.get("Origin")
        if host not in self.hosts:
            return "This page is served for this machine only.\n"
        own = request.headers.get("Sec-Fetch-Site", "none") in {"same-origin", "none"}
        if origin not in {None, f"http://{host}"} or not (own or _opens_page(request)):
            return "Requests of other sites are not answered.\n"
        given = request.match_info.get("secret", "")
        if not secrets.compare_digest(given.encode(), self._secret.encode()):
            return "Open the address that the command has printed.\n"
        return ""

    async def _file(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info.get("file", "index.html")
        body = self._files.get(name)
        if body is None:
            raise web.HTTPNotFound
        kind = TYPES[name.rpartition(".")[2]]
        response = web.Response(body=body, content_type=kind, charset="utf-8")
        response.enable_compression()
        return response

    async def _pod(self, request: web.Request) -> web.StreamResponse:
        path = f"/debug/pods/{_segment(request, 'namespace')}/{_segment(request, 'name')}"
        return await self._answer(path, "/debug/pods/*")

    async def _node(self, request: web.Request) -> web.StreamResponse:
        path = f"/debug/nodes/{_segment(request, 'name')}"
        return await self._answer(path, "/debug/nodes/*")

    async def _answer(self, path: str, resource: str) -> web.StreamResponse:
        try:
            body = await self._link.get(path, resource)
        except UnknownObject as error:
            return web.Response(status=404, text=str(error))
        except (NotAnswered, ConnectionSettingsError, KubeError, ValueError) as error:
            return web.Response(status=502, text=str(error))
        return web.Response(body=body, content_type="application/json")

    async def _question(self, request: web.Request) -> web.StreamResponse:
        """A question, in which manifests are a text."""
        if request.content_type != "application/json":
            return web.Response(status=415, text="A question is application/json.\n")
        try:
            body = await asyncio.to_thread(_question_of, await request.read())
            answer = await self._link.post(_WHATIF, body, _QUESTION_SECONDS)
        except _MistakenError as error:
            return web.Response(status=400, text=str(error))
        except (NotAnswered, ConnectionSettingsError, KubeError, ValueError) as error:
            return web.Response(status=502, text=str(error))
        return web.Response(body=answer, content_type="application/json")

    async def _feed(self, request: web.Request) -> web.StreamResponse:
        """The feed, and a ``problem`` whenever there is none; ends when the page is closed."""
        headers = {"Content-Type": "text/event-stream", **_HEADERS}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        await response.write(b"retry: 1000\n\n")
        with contextlib.suppress(ConnectionError):  # the page was closed
            await self._pass_on(response, request.headers.get("Last-Event-ID", ""))
        return response

    async def _pass_on(self, response: web.StreamResponse, after: str) -> None:
        while True:
            try:
                async with contextlib.aclosing(self._link.events(after)) as events:
                    async for event in events:
                        after = event.number
                        await response.write(_encoded(event))
            except (
                NotAnswered,
                NotReached,
                ConnectionSettingsError,
                ConnectionFailed,
                ValueError,
            ) as error:
                problem = msgspec.json.encode({"text": str(error)})
                await response.write(_encoded(Event("problem", after, problem)))
            await asyncio.sleep(RETRY_SECONDS)


class _Question(msgspec.Struct, forbid_unknown_fields=True):
    """What the page asks."""

    question: Literal["fits", "drain"]
    manifest: str = ""
    pods: list[str] = []
    nodes: list[str] = []
    copies: int | None = None


class _MistakenError(Exception):
    """What was typed is no question; the text says why."""


def _question_of(body: bytes) -> bytes:
    """The question for the scheduler. Raises _MistakenError."""
    try:
        asked = msgspec.json.decode(body, type=_Question)
        read = load_documents(asked.manifest)
        if not all(isinstance(each, dict) for each in read):
            raise _MistakenError("This is no manifest of an object: it has no fields.")
        whole = msgspec.json.encode(
            {
                "question": asked.question,
                "objects": read,
                "pods": asked.pods,
                "nodes": asked.nodes,
                "copies": asked.copies,
                "changes": asked.question == "fits",
            }
        )
    except (msgspec.MsgspecError, ValueError, RecursionError, TypeError) as error:
        raise _MistakenError(f"This cannot be read: {error}") from error
    return whole


def _opens_page(request: web.Request) -> bool:
    """Whether a window is about to show the page itself, as ``open_browser`` makes it do from a file.

    Another site that opens it in a window learns nothing: Cross-Origin-Opener-Policy parts the windows.
    """
    return (
        request.match_info.route.name == _PAGE
        and request.headers.get("Sec-Fetch-Mode") == "navigate"
        and request.headers.get("Sec-Fetch-Dest") == "document"
    )


def _segment(request: web.Request, key: str) -> str:
    """A name in the path of a request. Raises HTTPNotFound for one that would lead to another path."""
    name = request.match_info[key]
    if name in {".", ".."}:
        raise web.HTTPNotFound
    return path_segment(name)


def _encoded(event: Event) -> bytes:
    return b"event: %b\nid: %b\ndata: %b\n\n" % (
        event.kind.encode(),
        event.number.encode(),
        event.data,
    )


@contextlib.asynccontextmanager
async def serving_page(target: SchedulerTarget, port: int = 0) -> AsyncIterator[str]:
    """Serves the page on this machine during the block; its URL. Port 0 is any free one. Raises OSError."""
    link, secret = Link(target, "dashboard"), make_secret()
    dashboard = Dashboard(link, secret)
    runner = web.AppRunner(
        dashboard.application(), access_log=None, handle_signals=False, shutdown_timeout=0.1
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        found: int = runner.addresses[0][1]
        dashboard.hosts = frozenset({f"127.0.0.1:{found}", f"localhost:{found}"})
        yield f"http://127.0.0.1:{found}/{secret}/"
    finally:
        await runner.cleanup()
        await link.aclose()


async def open_browser(url: str) -> None:
    """Opens the page in a browser with windows, if there is one; returns when it has had time to read the address.

    Other users see command lines: the browser's has the name of a file that only this user can read.
    """
    if not has_windows(os.environ, sys.platform):
        return
    with leading_to(url) as file, contextlib.suppress(webbrowser.Error):
        await asyncio.to_thread(webbrowser.open, file.as_uri())
        await asyncio.sleep(_READ_SECONDS)


@contextlib.contextmanager
def leading_to(url: str) -> Iterator[Path]:
    """A file that leads a browser to an address. Raises OSError."""
    with tempfile.TemporaryDirectory(prefix="aiokube-scheduler-") as folder:
        file = Path(folder, "dashboard.html")
        file.touch(mode=0o600)
        file.write_text(f'<meta http-equiv="refresh" content="0; url={url}">\n')
        yield file


def has_windows(environ: Mapping[str, str], platform: str) -> bool:
    """Whether programs with windows can be opened."""
    return platform in {"darwin", "win32"} or bool(
        environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY")
    )
