"""Follows pods through a whole Scheduler and counts what they pass: modules, functions, and changes from one to
another.

Each way begins with a line of the pod watch and ends when nothing is left to do, on virtual time, against an API server
that agrees to everything. The templates of the pods are known: such a pod has been bound before.
"""

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import looptime

import app
from app.extender.client import HTTPExtender
from app.extender.events import Sink
from app.framework.testing import make_object
from app.model.pod_groups import GROUP_LABEL, LabelledPodGroup
from tests.figures.counts import package
from tests.shell.extender.fakes import extender
from tests.shell.kube.fakes import FakeTransport, Sent, line, ok, page
from tests.shell.scheduler.world import GANGS, World, running

_ROOT: Final = f"{Path(app.__file__).parent}/"
_PODS: Final = "/api/v1/pods"
_NODES: Final = 20
#: Virtual seconds after which a pod has been tried and its outcome written; no timer of the queue is due so early.
_SETTLED: Final = 0.1

Counts = Mapping[str, int]


class Call(NamedTuple):
    """A call of a function of app, or the resumption of a generator or coroutine."""

    module: str
    function: str


class Trace:
    """The calls of functions of app while ``recording``."""

    def __init__(self) -> None:
        self._calls: Final[list[Call]] = []

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Records for the length of the block, in this thread."""
        sys.setprofile(self._seen)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _seen(self, frame: FrameType, event: str, _arg: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(_ROOT):
            self._calls.append(Call(code.co_filename.removeprefix(_ROOT), code.co_qualname))

    def counts(self) -> Counts:
        """How many modules and functions were entered, and how often the next call was in another module or package."""
        modules = [call.module for call in self._calls]
        return {
            "modules": len(set(modules)),
            "functions": len(set(self._calls)),
            "changes of module": _changes(modules),
            "changes of package": _changes([package(module) for module in modules]),
        }

    def modules(self) -> list[str]:
        """The modules in the order in which they are first entered."""
        return list(dict.fromkeys(call.module for call in self._calls))


def _changes(names: list[str]) -> int:
    return sum(one != other for one, other in itertools.pairwise(names))


class _Server(FakeTransport):
    """Has no objects at first, sends what ``tell`` says to the watch of the pods, and agrees to every write."""

    def __init__(self) -> None:
        super().__init__(handler=_agree)
        self._told: Final[dict[str, asyncio.Queue[bytes]]] = {}

    def tell(self, pod: dict[str, Any], kind: str = "ADDED") -> None:
        self._lines(_PODS).put_nowait(line(kind, pod))

    def _lines(self, path: str) -> "asyncio.Queue[bytes]":
        return self._told.setdefault(path, asyncio.Queue())

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], read_timeout: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        async def chunks() -> AsyncIterator[bytes]:
            while True:
                yield await self._lines(path).get()

        yield chunks()

    def written(self) -> list[tuple[str, str]]:
        """The methods of all writes so far and the last parts of their paths."""
        return [(s.method, s.path.rsplit("/", 1)[1]) for s in self.sent if s.method != "GET"]


def _agree(sent: Sent) -> Any:
    return page(version=1) if sent.method == "GET" else ok(status=201)


class _Stage(NamedTuple):
    world: World
    server: _Server
    trace: Trace

    async def tell(self, *pods: dict[str, Any], kind: str = "ADDED") -> None:
        for pod in pods:
            self.server.tell(pod, kind)
        await asyncio.sleep(_SETTLED)

    async def follow(self, pod: dict[str, Any]) -> list[tuple[str, str]]:
        """Records the way of this pod; returns what is written meanwhile."""
        before = len(self.server.written())
        with self.trace.recording():
            await self.tell(pod)
        return self.server.written()[before:]


@asynccontextmanager
async def _stage(nodes: int = _NODES, **options: Any) -> AsyncIterator[_Stage]:
    server = _Server()
    async with running(*(f"node-{n}" for n in range(nodes)), transport=server, **options) as world:
        work = [asyncio.ensure_future(each.run()) for each in world.scheduler.informers]
        try:
            await world.scheduler.wait_synced()
            work.append(asyncio.ensure_future(world.lead()))
            yield _Stage(world, server, Trace())
        finally:
            for task in work:
                task.cancel()
            await asyncio.wait(work)


def _pod(name: str, *, cpu: str = "1", group: str = "", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "resourceVersion": "2",
            "labels": {GROUP_LABEL: group} if group else {"app": "web"},
        },
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
            **spec,
        },
    }


async def _plain() -> Trace:
    async with _stage(features=()) as stage:
        await stage.tell(_pod("before"))
        assert await stage.follow(_pod("pod")) == [("POST", "binding")]
    return stage.trace


async def _with_extender() -> Trace:
    asked: list[HTTPExtender] = []

    def extenders(sink: Sink) -> list[HTTPExtender]:
        asked.append(extender(_answer, sink=sink, bind_verb="", preempt_verb=""))
        return asked

    async with _stage(features=(), extenders=extenders) as stage:
        await stage.tell(_pod("before"))
        requests = asked[0].fake.requests
        requests.clear()
        assert await stage.follow(_pod("pod")) == [("POST", "binding")]
        assert [verb for verb, _ in requests] == ["filter", "prioritize"]
    return stage.trace


def _answer(verb: str, sent: dict[str, Any]) -> Any:
    names = sent["NodeNames"]
    return {"NodeNames": names} if verb == "filter" else [{"Host": n, "Score": 1} for n in names]


async def _preemption() -> Trace:
    async with _stage(1, features=()) as stage:
        victim = _pod("victim", cpu="4", priority=0)
        await stage.tell(victim)
        victim["spec"]["nodeName"], victim["metadata"]["resourceVersion"] = "node-0", "3"
        await stage.tell(victim, kind="MODIFIED")
        written = await stage.follow(_pod("pod", cpu="4", priority=1000))
        assert ("DELETE", "victim") in written
    return stage.trace


async def _gang() -> Trace:
    async with _stage(features=GANGS) as stage:
        manifest = {
            "metadata": {"name": "gang", "namespace": "default", "uid": "uid-gang"},
            "spec": {"minMember": 3},
        }
        group = make_object(LabelledPodGroup, manifest)
        stage.world.change(LabelledPodGroup, None, group)
        await stage.tell(*(_pod(f"before-{n}") for n in range(3)))
        await stage.tell(*(_pod(f"pod-{n}", group="gang") for n in range(2)))
        written = await stage.follow(_pod("pod-2", group="gang"))
        assert written.count(("POST", "binding")) == 3
    return stage.trace


WAYS: Final[Mapping[str, Callable[[], Any]]] = {
    "a plain pod": _plain,
    "a pod with an extender": _with_extender,
    "a preemption": _preemption,
    "a gang of three": _gang,
}


def follow(way: str) -> Trace:
    """Runs one of WAYS on a loop of its own."""
    with asyncio.Runner(loop_factory=lambda: looptime.new_event_loop(noop_cycles=0)) as runner:
        trace: Trace = runner.run(WAYS[way]())
    return trace
