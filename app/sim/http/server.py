"""The HTTP side: connections, watches that stream, faults, and the paths that name no resource."""

import asyncio
import contextlib
import functools
import ipaddress
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec
from aiohttp import web
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from app.sim.api import Api
from app.sim.errors import ApiError, bad_request, unknown_resource
from app.sim.http.discovery import (
    OPENAPI_V2,
    OPENAPI_V3,
    VERSION,
    aggregated_documents,
    groups_of,
    openapi_index,
    plain_documents,
    version_info,
)
from app.sim.http.faults import Faults
from app.sim.http.handlers import ApiCall, Handlers, json_response, make_call, status_response
from app.sim.http.negotiation import GROUP_DISCOVERY, JSON, wanted_form
from app.sim.http.openapi import document
from app.sim.http.routes import ResourcePath, parse_path
from app.sim.http.watch import Watcher, open_watch
from app.sim.listing import ListOptions

logger = logging.getLogger(__name__)

_HEALTH_PATHS: Final = ("/healthz", "/livez", "/readyz")
_BACKLOG: Final = 1024
_MAX_BODY_BYTES: Final = 3 * 1024 * 1024
"""The real server's limit for a request."""
_OPENAPI_V2_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_AGGREGATED_TYPE: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

_OWN_SITE: Final = frozenset({"same-origin", "none"})
"""Values of Sec-Fetch-Site: a page of this server, or the user."""
_LOCAL_NAMES: Final = (".localhost", ".internal", ".local", ".svc", ".svc.cluster.local")
"""Ends of host names that nobody can register: of this machine, of containers, and of a cluster's services."""

Extra = Callable[[str, str, bytes], web.Response | None]
"""(method, path, body) -> the answer, or None if the path is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchLimits:
    """The limits of watches."""

    bookmark_seconds: float = 60.0
    """Seconds between two bookmarks."""
    timeout_seconds: float = 3000.0
    """Seconds after which a watch ends, unless its client asks for another time."""
    buffer_bytes: int = 32 * 1024 * 1024
    """Pending events after which a watch is closed."""


class UnsentCall(NamedTuple):
    """A request that no connection brings."""

    method: str
    path: str
    """As in a URL, without the query."""
    query: Mapping[str, str]
    body: bytes = b""
    content_type: str = JSON
    accept: str = JSON

    def on(self, target: ResourcePath) -> ApiCall:
        """The call of the resource that the path names."""
        return ApiCall(
            self.method, target, self.query, self.body, self.content_type, self.accept, token=""
        )


@dataclass(frozen=True, slots=True)
class Discovery:
    """The documents of discovery, by path."""

    version: int = -1
    """The version of the table of kinds from which they were built."""
    plain: Mapping[str, bytes] = field(default_factory=dict)
    aggregated: Mapping[str, bytes] = field(default_factory=dict)


class Server:
    """Speaks HTTP for an Api on one address. Needs a running loop from ``start`` on."""

    def __init__(
        self,
        api: Api,
        handlers: Handlers,
        *,
        faults: Faults,
        limits: WatchLimits,
        hosts: Collection[str] = (),
        extra: Extra | None = None,
    ) -> None:
        """``hosts``: further names under which it may be asked for."""
        self._api = api
        self._handlers = handlers
        self._faults = faults
        self._limits = limits
        self._hosts = {each.lower() for each in hosts}
        self._extra = extra
        self._watchers: set[Watcher] = set()
        self._web_server: web.Server | None = None
        self._listener: asyncio.Server | None = None
        self._address = ""
        self._discovery = Discovery()
        self._schemas: dict[tuple[str, int], asyncio.Future[bytes]] = {}
        """(group and version, version of the table of kinds) -> the OpenAPI document."""

    async def start(self, host: str, port: int) -> int:
        """Begins to listen and returns the port. Raises OSError."""
        self._web_server = web.Server(
            self._handle,
            request_factory=self._make_request,
            handler_cancellation=True,
            access_log=None,
            max_line_size=64 * 1024,
            max_field_size=64 * 1024,
        )
        bound = await self.listen(host, port)
        self._address = f"{host}:{bound}"
        return bound

    async def listen(self, host: str, port: int) -> int:
        """Accepts connections (again) and returns the port. Raises OSError."""
        if self._web_server is None:
            raise RuntimeError("the server has not been started")
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(
            self._web_server, host, port, reuse_address=True, backlog=_BACKLOG
        )
        self._listener = listener
        bound: int = listener.sockets[0].getsockname()[1]
        return bound

    def stop_listening(self) -> None:
        """Refuses new connections; those that are open stay."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def cut_connections(self) -> int:
        """Aborts every connection at once. Returns their number."""
        connections = self._web_server.connections if self._web_server is not None else []
        for connection in connections:
            if connection.transport is not None:
                connection.transport.abort()
        return len(connections)

    async def stop(self) -> None:
        """Stops listening, ends the watches and closes all connections."""
        self.stop_listening()
        for watcher in tuple(self._watchers):
            watcher.close()
        if self._web_server is not None:
            await self._web_server.shutdown(timeout=1.0)
            self._web_server = None

    @property
    def watcher_count(self) -> int:
        return len(self._watchers)

    def _make_request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: Any,
        task: "asyncio.Task[None]",
    ) -> web.BaseRequest:
        loop = asyncio.get_running_loop()
        return web.BaseRequest(
            message, payload, protocol, writer, task, loop, client_max_size=_MAX_BODY_BYTES
        )

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        fault = self._faults.take(request.method, request.path) if self._faults else None
        try:
            self._refuse_pages(request.headers)
            if fault is not None:
                await self._faults.suffer(fault)
            response = await self._respond(request)
        except ApiError as error:
            response = status_response(error)
        except web.HTTPRequestEntityTooLarge:
            message = f"Request entity too large: limit is {_MAX_BODY_BYTES}"
            response = status_response(ApiError(413, "RequestEntityTooLarge", message))
        except RecursionError:
            response = status_response(bad_request("the object provided is nested too deeply"))
        except Exception as error:
            logger.exception("Request failed: %s %s", request.method, request.path)
            response = status_response(ApiError(500, "InternalError", f"Internal error: {error!r}"))
        if fault is not None and fault.drop_answer and request.transport is not None:
            request.transport.abort()
        return response

    def _refuse_pages(self, headers: Mapping[str, str]) -> None:
        """Refuses what a page of another site makes a browser send, and requests for names that may lead here by DNS
        rebinding.

        Addresses are no names, and other clients send neither Origin nor Sec-Fetch-Site. Raises 403.
        """
        host, origin = headers.get("Host", ""), headers.get("Origin")
        name = _host_name(host)
        if not (name in self._hosts or _is_local(name)):
            raise ApiError(403, "Forbidden", f"this server is not asked for as {name!r:.300}")
        site = headers.get("Sec-Fetch-Site")
        if site is not None:
            own = site in _OWN_SITE
        else:
            own = origin is None or origin in {f"http://{host}", f"https://{host}"}
        if not own:
            raise ApiError(403, "Forbidden", "requests of pages of other sites are not answered")

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        target = parse_path(path, self._api.kinds.by_path)
        if target is None:
            return await self._other(request, path)
        body = await request.read() if request.can_read_body else b""
        call = make_call(request, target, body)
        options = self._handlers.watch_options(call)
        if options is not None:
            return await self._watch(request, call, options)
        return self._handlers.answer(call)

    async def _other(self, request: web.BaseRequest, path: str) -> web.Response:
        """Discovery, health and version."""
        path = path.rstrip("/") or "/"
        accept = request.headers.get("Accept", "")
        discovery = self._present_discovery()
        if path in discovery.aggregated and wanted_form(accept) == GROUP_DISCOVERY:
            headers = {"Content-Type": _AGGREGATED_TYPE}
            return web.Response(body=discovery.aggregated[path], headers=headers)
        if path in discovery.plain:
            return json_response(discovery.plain[path])
        if path.startswith(f"{OPENAPI_V3}/"):
            return await self._openapi(path.removeprefix(f"{OPENAPI_V3}/"))
        if path in _HEALTH_PATHS or path.startswith(("/livez/", "/readyz/", "/healthz/")):
            return web.Response(text="ok")
        if path == "/version":
            return json_response(msgspec.json.encode(version_info(self._api.features.kubernetes)))
        if path == "/openapi/v2":
            return web.Response(body=OPENAPI_V2, headers={"Content-Type": _OPENAPI_V2_TYPE})
        extra = self._extra(request.method, path, await request.read()) if self._extra else None
        if extra is not None:
            return extra
        if path.startswith(("/api/", "/apis/")):
            raise unknown_resource()
        return web.Response(status=404, text="404 page not found\n")

    def _present_discovery(self) -> "Discovery":
        """The documents of discovery for the kinds that are served now."""
        kinds = self._api.kinds
        if self._discovery.version != kinds.version:
            plain = plain_documents(kinds, self._address) | {OPENAPI_V3: openapi_index(kinds)}
            self._discovery = Discovery(kinds.version, plain, aggregated_documents(kinds))
        return self._discovery

    async def _openapi(self, name: str) -> web.Response:
        """The OpenAPI v3 document of a group and version. It is built in a thread, once."""
        kinds = self._api.kinds
        root, _, group_version = name.partition("/")
        groups = groups_of(kinds)
        members = groups.get(group_version)
        if members is None or (root == "api") == ("/" in group_version):
            raise unknown_resource()
        custom = {kind: kinds.schemas[kind] for kind in members if kind in kinds.schemas}
        key = group_version, kinds.version if custom else 0
        building = self._schemas.get(key)
        if building is None:
            for known in list(self._schemas):
                if known[0] == group_version or known[0] not in groups:
                    del self._schemas[known]
            loop = asyncio.get_running_loop()
            building = loop.run_in_executor(None, document, members, custom, VERSION)
            self._schemas[key] = building
        return json_response(await asyncio.shield(building))

    async def _watch(
        self, request: web.BaseRequest, call: ApiCall, options: ListOptions
    ) -> web.StreamResponse:
        """Streams a watch until its time is over, its client closes it or the server stops."""
        with self._opened(call, options) as watcher:
            return await _stream(request, watcher)

    @contextlib.contextmanager
    def _opened(self, call: ApiCall, options: ListOptions) -> Iterator[Watcher]:
        watcher = open_watch(
            self._api.store,
            call.kind,
            call.target.namespace,
            options,
            self._handlers.representation(call),
            buffer_limit=self._limits.buffer_bytes,
        )
        clock = _WatchClock(self._api, watcher, self._limits, options)
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            clock.stop()
            watcher.close()
            self._watchers.discard(watcher)

    # ------------------------------------------------------------ without connections

    def answer(self, call: UnsentCall) -> web.Response:
        """The answer to a request of this process, which is no watch."""
        try:
            target = parse_path(unquote(call.path), self._api.kinds.by_path)
            if target is None:
                documents = self._present_discovery().plain
                if call.path not in documents:
                    raise unknown_resource()
                return json_response(documents[call.path])
            return self._handlers.answer(call.on(target))
        except ApiError as error:
            return status_response(error)

    @contextlib.contextmanager
    def watching(self, path: str, query: Mapping[str, str]) -> Iterator[Watcher]:
        """A watch of this process. Raises ApiError."""
        target = parse_path(unquote(path), self._api.kinds.by_path)
        if target is None:
            raise unknown_resource()
        call = UnsentCall("GET", path, query).on(target)
        options = self._handlers.watch_options(call)
        if options is None:
            raise bad_request("this is no watch")
        with self._opened(call, options) as watcher:
            yield watcher


def _host_name(host: str) -> str:
    """The name or address in a Host header, in lower case."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].rstrip(".").lower()


@functools.lru_cache(maxsize=256)
def _is_local(name: str) -> bool:
    """Whether no site can make a browser look up this name here: an address, one label, or the end of a
    private name.
    """
    if "." not in name or name.endswith(_LOCAL_NAMES):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


async def _stream(request: web.BaseRequest, watcher: Watcher) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": JSON})
    response.enable_chunked_encoding()
    await response.prepare(request)
    try:
        while (batch := await watcher.next_batch()) is not None:
            await response.write(batch)
        await response.write_eof()
    except ConnectionError:
        logger.debug("The client of a watch is gone: %s", request.path)
    return response


class _WatchClock:
    """Sends bookmarks at their times and ends a watch at its own."""

    def __init__(
        self, api: Api, watcher: Watcher, limits: WatchLimits, options: ListOptions
    ) -> None:
        self._api = api
        self._watcher = watcher
        self._bookmarks = options.bookmarks
        self._period = limits.bookmark_seconds
        loop = asyncio.get_running_loop()
        timeout = options.timeout_seconds or limits.timeout_seconds
        self._timers = [loop.call_later(timeout, self._end)]
        if self._bookmarks:
            self._timers.append(loop.call_later(self._period, self._tick))

    def stop(self) -> None:
        for timer in self._timers:
            timer.cancel()

    def _tick(self) -> None:
        self._watcher.bookmark(self._api.store.revision)
        self._timers[-1] = asyncio.get_running_loop().call_later(self._period, self._tick)

    def _end(self) -> None:
        if self._bookmarks:
            self._watcher.bookmark(self._api.store.revision)
        self._watcher.close()
