"""A sample extender: floating software licences, which no node has and the nodes of a zone share.

Each zone has a licence server with some seats. A pod requests seats like any extended resource::

    resources: {requests: {example.com/licence: "1"}}

A scheduler cannot count what several nodes share; this extender can. It rejects the nodes of zones without enough free
seats, prefers the zone with the largest free part, and binds the pods itself, so that two pods that are scheduled at
the same time never get the same seat. It learns from a watch of the pods which seats are taken, so a restart loses
nothing. Run it with

    python -m aiokube_scheduler.extenders.licences --seats zone-0=10 --seats zone-1=4

and configure it as config/licences.yaml shows.
"""

import argparse
import asyncio
import functools
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
from aiohttp import web
from yarl import URL

from app.model.objects import Node
from app.model.pod import Pod
from app.wire.envelope import DecodeError, ObjectDecoder
from app.wire.kube import PodDecoder, decoder_for

log = logging.getLogger("licences")

RESOURCE: Final = "example.com/licence"
ZONE: Final = "topology.kubernetes.io/zone"
HIGHEST_SCORE: Final = 10
"""The highest score of extenders; the scheduler multiplies scores by the extender's weight."""

_MAX_BODY_BYTES: Final = 16 * 1024 * 1024
#: Seconds after which the API server ends a watch, so that a connection that is dead does not go unnoticed.
_WATCH_SECONDS: Final = 120

T = TypeVar("T")


# ---------------------------------------------------------------- the books


class Holder(NamedTuple):
    """A pod that requests seats; ``node`` is empty until it is bound."""

    node: str
    seats: int


class Licences:
    """Counts the seats in use; without HTTP."""

    def __init__(self, seats: Mapping[str, int]) -> None:
        """``seats``: number of seats by zone."""
        self._seats: Final = seats
        self._zones: dict[str, str] = {}
        self._pods: dict[str, Holder] = {}
        self._promised: dict[str, Holder] = {}
        #: Pods with promised seats that were not in the last list: perhaps it was made before they were.
        self._missed: set[str] = set()

    def refusal(self, node: str, wanted: int) -> str | None:
        """Why a node cannot run a pod that needs this many seats; None if it can."""
        zone = self._zones.get(node)
        seats = self._seats.get(zone) if zone is not None else None
        if zone is None or seats is None:
            return f"no licence server in {zone or 'an unknown zone'}"
        free = seats - self.used(zone)
        if wanted <= free:
            return None
        if free <= 0:
            return f"the {seats} licences of {zone} are used up"
        return f"only {free} of the {seats} licences of {zone} are free"

    def score(self, node: str) -> int:
        """The free part of the seats in the node's zone, from 0 to 10."""
        zone = self._zones.get(node, "")
        seats = self._seats.get(zone, 0)
        return HIGHEST_SCORE * max(seats - self.used(zone), 0) // seats if seats else 0

    def used(self, zone: str) -> int:
        """The seats of a zone that are in use or promised."""
        holders = {**self._pods, **self._promised}.values()
        return sum(holder.seats for holder in holders if self._zones.get(holder.node) == zone)

    def usage(self) -> dict[str, str]:
        """The usage as text: ``{"zone-0": "3 of 10"}``."""
        return {zone: f"{self.used(zone)} of {seats}" for zone, seats in self._seats.items()}

    def note(self, pod: Pod) -> int:
        """The seats that a pod needs; the pod is recorded until its binding."""
        wanted = seats_of(pod)
        self._pods.setdefault(pod.uid, Holder("", wanted))
        return wanted

    def promise(self, uid: str, node: str) -> str | None:
        """Reserves the seats of a pod on a node; returns why not if that fails."""
        pod = self._pods.get(uid)
        if pod is None:
            return "the pod was never seen in a filter request"
        refusal = self.refusal(node, pod.seats)
        if refusal is None:
            self._promised[uid] = Holder(node, pod.seats)
        return refusal

    def take_back(self, uid: str) -> None:
        """Frees the seats of a pod that was certainly not bound."""
        self._promised.pop(uid, None)

    # ------------------------------------------------------------ what the watches say

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        """Sets all nodes."""
        self._zones = {node.name: node.labels.get(ZONE, "") for node in nodes}

    def change_node(self, change: str, node: Node) -> None:
        """One node was added, modified or deleted."""
        self._zones.pop(node.name, None)
        if change != "DELETED":
            self._zones[node.name] = node.labels.get(ZONE, "")

    def set_pods(self, pods: Iterable[Pod]) -> None:
        """Sets all pods. Promises to pods that two lists do not have end, because their deletion was missed."""
        self._pods, listed = {}, set()
        for pod in pods:
            listed.add(pod.uid)
            self.change_pod("ADDED", pod)
        missed = self._promised.keys() - listed
        for uid in missed & self._missed:
            del self._promised[uid]
        self._missed = missed

    def change_pod(self, change: str, pod: Pod) -> None:
        """One pod was added, modified or deleted. A watch event about a bound pod ends the reservation."""
        self._pods.pop(pod.uid, None)
        gone = change == "DELETED" or pod.phase in {"Succeeded", "Failed"}
        if gone or pod.node_name:
            self._promised.pop(pod.uid, None)
        if not gone and (seats := seats_of(pod)):
            self._pods[pod.uid] = Holder(pod.node_name, seats)


def seats_of(pod: Pod) -> int:
    """The seats that a pod asks for."""
    return dict(pod.resources.requested).get(RESOURCE, 0)


# ---------------------------------------------------------------- the API server


class NotBoundError(Exception):
    """The API server has refused a binding."""


class ApiServer:
    """The little that is needed of the API server: following two kinds, and bindings."""

    def __init__(self, session: aiohttp.ClientSession, *, pause_seconds: float = 1.0) -> None:
        """``pause_seconds``: before a collection is listed again."""
        self._session: Final = session
        self._pause: Final = pause_seconds

    async def follow(
        self,
        path: str,
        decoder: ObjectDecoder[T],
        replace: Callable[[Iterable[T]], None],
        change: Callable[[str, T], None],
        listed: asyncio.Event,
    ) -> None:
        """Lists and watches a collection until cancelled; begins again after any error. ``listed`` is set after the
        first list.

        Objects that cannot be read are logged and ignored.
        """
        while True:
            try:
                unreadable: list[DecodeError] = []
                async with self._session.get(path) as answer:
                    items, version, _ = decoder.decode_list(await answer.read(), unreadable)
                for problem in unreadable:
                    log.warning("ignored: %s", problem)
                replace(items)
                listed.set()
                async for kind, item in self._watch(path, version, decoder):
                    change(kind, item)
            except (aiohttp.ClientError, TimeoutError, DecodeError) as error:
                log.warning("watching %s: %r", path, error)
            except Exception:
                log.exception("watching %s", path)
            await asyncio.sleep(self._pause)

    async def _watch(
        self, path: str, version: str, decoder: ObjectDecoder[T]
    ) -> AsyncIterator[tuple[str, T]]:
        seconds = _WATCH_SECONDS
        params = {"watch": "true", "resourceVersion": version, "timeoutSeconds": str(seconds)}
        limits = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=seconds + 10)
        async with self._session.get(path, params=params, timeout=limits) as answer:
            while line := await answer.content.readline():
                try:
                    kind, item = decoder.decode_line(line)
                except DecodeError as error:
                    if error.named is None or error.event == "DELETED":
                        raise
                    log.warning("ignored: %s", error)
                    continue
                if kind in {"ADDED", "MODIFIED", "DELETED"}:
                    yield kind, item  # type: ignore[misc]  # these kinds come with an object
                elif kind == "ERROR":
                    return

    async def bind(self, namespace: str, pod: str, uid: str, node: str) -> None:
        """Raises NotBoundError with the API server's words, and aiohttp.ClientError or TimeoutError if it gives no
        answer.
        """
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}/binding"
        url = URL(path, encoded=True)
        async with self._session.post(url, json=body, raise_for_status=False) as answer:
            if answer.status < 300:
                return
            said = f"{answer.status}: {(await answer.text(errors='replace'))[:500]}"
            raise NotBoundError(said) if answer.status < 500 else aiohttp.ClientError(said)


# ---------------------------------------------------------------- the webhook


class FilterRequest(msgspec.Struct):
    """ExtenderArgs, as far as it is read; both filter and prioritize get it."""

    Pod: msgspec.Raw
    NodeNames: list[str] | None = None


class BindRequest(msgspec.Struct):
    """ExtenderBindingArgs."""

    PodName: str
    PodNamespace: str
    PodUID: str
    Node: str


class Webhook:
    """Answers the scheduler."""

    def __init__(self, licences: Licences, api: ApiServer) -> None:
        self._licences: Final = licences
        self._api: Final = api
        self._pods: Final = PodDecoder()
        self._calls: Final[Counter[str]] = Counter()
        self._refusals: Final[Counter[str]] = Counter()

    def application(self) -> web.Application:
        """The paths below the extender's urlPrefix."""
        application = web.Application(client_max_size=_MAX_BODY_BYTES, middlewares=[_bad_requests])
        application.router.add_post("/filter", self.filter)
        application.router.add_post("/prioritize", self.prioritize)
        application.router.add_post("/bind", self.bind)
        application.router.add_get("/statistics", self.statistics)
        return application

    async def filter(self, request: web.Request) -> web.Response:
        """Which nodes can have the pod; of the others, why not."""
        self._calls["filter"] += 1
        pod, names = await self._read(request)
        wanted = self._licences.note(pod)
        refusals = {name: self._licences.refusal(name, wanted) for name in names}
        failed = {name: reason for name, reason in refusals.items() if reason is not None}
        self._refusals.update(failed.values())
        passed = [name for name, reason in refusals.items() if reason is None]
        return _answer({"NodeNames": passed, "FailedNodes": failed, "Error": ""})

    async def prioritize(self, request: web.Request) -> web.Response:
        """Where most seats are free."""
        self._calls["prioritize"] += 1
        _, names = await self._read(request)
        return _answer([{"Host": name, "Score": self._licences.score(name)} for name in names])

    async def bind(self, request: web.Request) -> web.Response:
        """Hands out the seats and binds, or says why not."""
        self._calls["bind"] += 1
        args = msgspec.json.decode(await request.read(), type=BindRequest)
        refusal = self._licences.promise(args.PodUID, args.Node)
        if refusal is None:
            try:
                await self._api.bind(args.PodNamespace, args.PodName, args.PodUID, args.Node)
            except NotBoundError as error:
                self._licences.take_back(args.PodUID)
                refusal = str(error)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                # The pod may be bound: the promise holds until the watch shows it, bound or gone.
                refusal = str(error) or type(error).__name__
        return _answer({"Error": refusal or ""})

    async def statistics(self, _request: web.Request) -> web.Response:
        """For people: calls by verb, nodes refused by reason, seats in use."""
        return _answer(
            {
                "calls": self._calls,
                "refusals": self._refusals,
                "licences": self._licences.usage(),
            }
        )

    async def _read(self, request: web.Request) -> tuple[Pod, Sequence[str]]:
        """The pod and the node names: the extender is nodeCacheCapable, so no nodes are sent."""
        args = msgspec.json.decode(await request.read(), type=FilterRequest)
        return self._pods.decode(args.Pod), args.NodeNames or ()


@web.middleware
async def _bad_requests(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """A request that cannot be read is the caller's mistake, in words."""
    try:
        return await handler(request)
    except (msgspec.MsgspecError, DecodeError, RecursionError) as error:
        raise web.HTTPBadRequest(text=f"{request.path}: {error}\n") from error


def _answer(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


# ---------------------------------------------------------------- the process


async def make_application(seats: Mapping[str, int], server: str) -> web.Application:
    """The extender; begins to listen once it knows all nodes and pods of the API server at ``server``."""
    licences = Licences(seats)
    session = aiohttp.ClientSession(server, raise_for_status=True, read_bufsize=_MAX_BODY_BYTES)
    api = ApiServer(session)

    async def followed(_application: web.Application) -> AsyncIterator[None]:
        nodes, pods = asyncio.Event(), asyncio.Event()
        tasks = [
            asyncio.create_task(
                api.follow(
                    "/api/v1/nodes",
                    decoder_for(Node),
                    licences.set_nodes,
                    licences.change_node,
                    nodes,
                )
            ),
            asyncio.create_task(
                api.follow(
                    "/api/v1/pods", PodDecoder(), licences.set_pods, licences.change_pod, pods
                )
            ),
        ]
        try:
            await nodes.wait()
            await pods.wait()
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await session.close()

    application = Webhook(licences, api).application()
    application.cleanup_ctx.append(followed)
    return application


def _seats(text: str) -> tuple[str, int]:
    zone, _, number = text.partition("=")
    if not zone or not number.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not ZONE=NUMBER")
    return zone, int(number)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m aiokube_scheduler.extenders.licences")
    parser.add_argument(
        "--seats", type=_seats, action="append", required=True, metavar="ZONE=NUMBER"
    )
    parser.add_argument(
        "--apiserver",
        default="http://127.0.0.1:8001",
        metavar="URL",
        help="API server over plain HTTP; in a cluster, a kubectl proxy beside this program (default: %(default)s)",
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8888, help="0 takes any free port")
    return parser.parse_args()


def main() -> None:
    """The command."""
    arguments = _arguments()
    logging.basicConfig(level=logging.INFO)
    web.run_app(
        make_application(dict(arguments.seats), arguments.apiserver),
        host=arguments.host,
        port=arguments.port,
        access_log=None,
        shutdown_timeout=1.0,
        print=functools.partial(print, flush=True),
    )


if __name__ == "__main__":
    main()
