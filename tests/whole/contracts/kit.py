"""The complete scheduler, an embedded cluster and a fake of somebody's extender in one process, over real connections.

A fake behaves as the extender of a named project does, as far as a scheduler can see it. The facts are those of its
source and documentation; the code is our own.
"""

import asyncio
import contextlib
import json
import ssl
import time
import types
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple
from unittest import mock

import aiohttp
import yaml
from aiohttp import web

from app.runtime.clock import SystemClock
from app.scheduler import process
from app.scheduler.options import RunOptions
from app.serving.options import ServingOptions
from app.settings.flags import Flags, apply_flags
from app.settings.load import convert_text, load
from app.sim import ClusterOptions, EmbeddedCluster, NodeOptions
from app.sim.features import ServedFeatures
from app.sim.resources.deletion import DeleteOptions, delete
from app.sim.resources.kinds import EVENTS, KINDS, NODES, PODS, Kind

#: Seconds until something must have happened.
PATIENCE = 30.0
MERGE = "application/merge-patch+json"
GANGS = frozenset({"GenericWorkload", "GangScheduling"})
MIB = 1024 * 1024


class Call(NamedTuple):
    """One request as it came in."""

    verb: str
    """The path below the urlPrefix."""
    headers: Mapping[str, str]
    body: bytes
    value: Any
    """The decoded body; None if it is not JSON."""

    @property
    def pod(self) -> str:
        """The name of the pod that it is about."""
        if "PodName" in self.value:
            return str(self.value["PodName"])
        return str(self.value["Pod"]["metadata"]["name"])

    @property
    def names(self) -> list[str]:
        """The nodes that it is about, in either form."""
        if self.value["NodeNames"] is not None:
            return list(self.value["NodeNames"])
        return [node["metadata"]["name"] for node in self.value["Nodes"]["items"]]


class Answer(NamedTuple):
    """What a fake answers; ``value`` is text or JSON."""

    value: Any
    status: int = 200
    content_type: str = "application/json"


class HungUp(Exception):  # noqa: N818 - not an error of ours
    """The handler of a Go server panics: the connection is closed without an answer."""


class Bucket:
    """client-go's default limiter: requests a second on average, and so many at once."""

    def __init__(self, rate: float = 5.0, burst: int = 10) -> None:
        self._rate, self._burst = rate, burst
        self._free_at = -burst / rate
        self._began = time.monotonic()

    async def take(self) -> None:
        """Waits for its turn."""
        now = time.monotonic() - self._began
        self._free_at = max(self._free_at, now - self._burst / self._rate) + 1 / self._rate
        await asyncio.sleep(max(0.0, self._free_at - now))


class Fake:
    """An extender. A subclass has a method for each of its ``verbs``, named as the path."""

    prefix = ""
    verbs: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.url = ""
        self.cluster: EmbeddedCluster | None = None
        self.limiter: Bucket | None = None
        self._client: aiohttp.ClientSession | None = None

    def of(self, verb: str, pod: str = "") -> list[Call]:
        """The calls of a verb, about one pod or all."""
        return [c for c in self.calls if c.verb == verb and (not pod or c.pod == pod)]

    @contextlib.asynccontextmanager
    async def serving(
        self, cluster: EmbeddedCluster, tls: ssl.SSLContext | None = None
    ) -> AsyncIterator[None]:
        """Listens on a port of its own."""
        self.cluster = cluster
        app = web.Application(client_max_size=64 * MIB)
        app.router.add_post("/{path:.*}", self._handle)
        runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
        )
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        port = runner.addresses[0][1]
        self.url = f"http{'s' * bool(tls)}://127.0.0.1:{port}{self.prefix}"
        try:
            async with aiohttp.ClientSession(cluster.url) as self._client:
                yield
        finally:
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        verb = request.path.removeprefix(f"{self.prefix}/")
        try:
            value = json.loads(body)
        except ValueError:
            value = None
        call = Call(verb, dict(request.headers), body, value)
        self.calls.append(call)
        self.running[verb] += 1
        self.most[verb] = max(self.most[verb], self.running[verb])
        try:
            answer = await self.answer(call)
        except HungUp:
            assert request.transport is not None
            request.transport.abort()
            answer = Answer(None)
        finally:
            self.running[verb] -= 1
        text = answer.value if isinstance(answer.value, str) else json.dumps(answer.value)
        return web.Response(text=text, status=answer.status, content_type=answer.content_type)

    async def answer(self, call: Call) -> Answer:
        """What a call is answered; 404 for verbs that it does not have."""
        if call.verb not in self.verbs:
            return Answer("404 page not found", 404, "text/plain")
        found = getattr(self, call.verb)(call)
        if isinstance(found, Awaitable):
            found = await found
        return found if isinstance(found, Answer) else Answer(found)

    # ------------------------------------------------------------ what it does to the cluster

    async def ask(
        self, method: str, path: str, body: Any = None, kind: str = "application/json"
    ) -> tuple[int, Any]:
        """One request to the API server, through the limiter; the status and the answer."""
        if self.limiter is not None:
            await self.limiter.take()
        assert self._client is not None
        sent = None if body is None else json.dumps(body)
        async with self._client.request(
            method, path, data=sent, headers={"Content-Type": kind}
        ) as answer:
            return answer.status, await answer.json()

    async def annotate(self, namespace: str, pod: str, **annotations: str) -> int:
        """Patches the annotations of a pod; the status."""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        patch = {"metadata": {"annotations": annotations}}
        return (await self.ask("PATCH", path, patch, MERGE))[0]

    async def bind_pod(self, call: Call) -> str:
        """Binds the pod of a bind call as it is asked to; the error, or nothing."""
        asked = call.value
        meta = {
            "name": asked["PodName"],
            "namespace": asked["PodNamespace"],
            "uid": asked["PodUID"],
        }
        path = f"/api/v1/namespaces/{asked['PodNamespace']}/pods/{asked['PodName']}/binding"
        target = {"kind": "Node", "name": asked["Node"]}
        status, answer = await self.ask("POST", path, {"metadata": meta, "target": target})
        return "" if status < 300 else str(answer["message"])


def kind(name: str) -> Kind:
    """A kind of the embedded cluster by its name."""
    return next(each for each in KINDS if each.kind == name)


def requested(pod: Mapping[str, Any], resource: str) -> int:
    """What the containers of a pod request of a resource."""
    containers = pod["spec"]["containers"]
    return sum(
        int((c.get("resources", {}).get("requests") or {}).get(resource, 0)) for c in containers
    )


class World:
    """A cluster with a scheduler, for the length of a test."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.task: asyncio.Task[int] | None = None
        self.stop = asyncio.Event()

    def nodes(
        self,
        names: Iterable[str],
        *,
        annotations: Mapping[str, str] | None = None,
        resources: Mapping[str, str] | None = None,
    ) -> None:
        """Nodes that are ready, with these extended resources."""
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", **(resources or {})}
        for name in names:
            metadata = {
                "name": name,
                "labels": {"kubernetes.io/hostname": name[:63]},
                "annotations": dict(annotations or {}),
            }
            status = {"capacity": amounts, "allocatable": amounts}
            self.cluster.api.create(NODES, "", {"metadata": metadata, "status": status})

    def pod(
        self,
        name: str,
        resources: Mapping[str, str] | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> None:
        """A pod that requests this."""
        amounts = {"cpu": "100m", **(resources or {})}
        container = {
            "name": "c",
            "image": "i",
            "resources": {"requests": amounts, "limits": amounts},
        }
        metadata = {
            "name": name,
            "namespace": "default",
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
        }
        body = {"metadata": metadata, "spec": {"containers": [container], **spec}}
        self.cluster.api.create(PODS, "default", body)

    def get(self, name: str) -> dict[str, Any]:
        """A pod as it is now."""
        return self.cluster.api.get(PODS, "default", name).value

    def remove(self, *names: str) -> None:
        """What a kubelet does with pods that are being deleted."""
        for name in names:
            delete(self.cluster.api, PODS, "default", name, DeleteOptions(grace_period_seconds=0))

    def touch(self, node: str, **annotations: str) -> None:
        """Changes the annotations of a node."""
        patch = {"metadata": {"annotations": annotations}}
        self.cluster.api.patch(NODES, "", node, patch, patch_type=MERGE)

    def placed(self) -> dict[str, str]:
        """The nodes of the pods that are bound, by pod."""
        records = self.cluster.api.store[PODS.storage].records.values()
        pods = [record.value for record in records]
        return {
            p["metadata"]["name"]: p["spec"]["nodeName"] for p in pods if p["spec"].get("nodeName")
        }

    async def bound(self, count: int, seconds: float = PATIENCE) -> dict[str, str]:
        """The same, once there are so many."""
        await self.until(f"{count} pods bound", lambda: len(self.placed()) >= count, seconds)
        return self.placed()

    async def told(self, reason: str, text: str) -> dict[str, Any]:
        """An event with this reason whose note has this text, once there is one."""
        return await self.until(f"{reason}: {text}", lambda: next(self._events(reason, text), None))

    def _events(self, reason: str, text: str) -> Any:
        for record in self.cluster.api.store[EVENTS.storage].records.values():
            event = record.value
            note = event.get("note") or event.get("message", "")
            if event.get("reason") == reason and text in note:
                yield event

    async def until(self, what: str, check: Callable[[], Any], seconds: float = PATIENCE) -> Any:
        """What ``check`` returns as soon as it is true. These tests live in real time; nothing else in them waits."""
        deadline = time.monotonic() + seconds
        while not (found := check()):
            assert self.task is None or not self.task.done(), "the scheduler has ended"
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds} s: {what}; bound: {self.placed()}")
            await asyncio.sleep(0.01)
        return found


@contextlib.asynccontextmanager
async def running(
    config: str,
    *fakes: Fake,
    tls: ssl.SSLContext | None = None,
    extension: str = "",
    elect: bool = False,
    prepare: Callable[[World], None] = lambda _world: None,
    gangs: bool = False,
    **texts: str,
) -> AsyncIterator[World]:
    """A world with a complete scheduler that reads ``config``, in which URL0 stands for the first fake, and so on.

    A policy is converted first. ``prepare`` makes the nodes; ``texts`` replace further words of the file.
    """
    features = ServedFeatures(gates=GANGS, versions=frozenset({"scheduling.k8s.io/v1alpha2"}))
    options = ClusterOptions(
        nodes=NodeOptions(count=0), features=features if gangs else ServedFeatures()
    )
    async with EmbeddedCluster(options) as cluster, contextlib.AsyncExitStack() as stack:
        for number, fake in enumerate(fakes):
            await stack.enter_async_context(fake.serving(cluster, tls))
            texts[f"URL{number}"] = fake.url
        for word, value in texts.items():
            config, extension = config.replace(word, value), extension.replace(word, value)
        world = World(cluster)
        prepare(world)
        async with scheduling(world, config, extension, elect=elect, gangs=gangs):
            yield world


@contextlib.asynccontextmanager
async def scheduling(
    world: World, config: str, extension: str = "", *, elect: bool = False, gangs: bool = False
) -> AsyncIterator[None]:
    """A scheduler for the length of the block, which must end in time and well."""
    if "Policy" in config:
        config = yaml.safe_dump_all(convert_text(config, "policy", None).documents)
    if extension:
        head = "apiVersion: aiokube-scheduler.io/v1alpha1\nkind: AiokubeSchedulerConfiguration\n"
        config = f"{config}\n---\n{head}{extension}"
    loaded = apply_flags(load(config), Flags(leader_elect=elect))
    run_options = RunOptions(
        master=world.cluster.url,
        serving=ServingOptions(secure_port=0),
        seed=1,
        shutdown_seconds=2.0,
        features=GANGS if gangs else frozenset(),
    )
    nothing = types.SimpleNamespace(freeze=lambda: None, set_threshold=lambda *_: None)
    with mock.patch.object(process, "gc", nothing):
        running_process = process.Process(loaded, run_options, world.stop, SystemClock())
        world.task = asyncio.create_task(running_process.run(), name="scheduler")
        try:
            yield
        finally:
            world.stop.set()
            status = await asyncio.wait_for(world.task, PATIENCE)
        assert status == 0
