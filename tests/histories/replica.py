"""The process under test: the product's own Process, with a clock, connections and extenders of the simulation.

A replica is one life of it, from start to exit; whoever keeps it running (``history``) starts the next.
"""

import asyncio
import contextlib
import functools
import logging
import math
import types
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, NamedTuple
from unittest import mock

import msgspec

from app.framework.handle import Eviction
from app.kube.connection import Connection
from app.kube.writer import KubeWriter
from app.plugins import registry
from app.runtime.limits import Limits
from app.scheduler import process
from app.scheduler.options import RunOptions
from app.scheduler.wiring import Scheduler
from app.settings.load import Loaded
from app.state.queue.queued_pod import QueuedPod
from tests.histories import apiserver
from tests.histories.apiserver import Answer, Entry, Manifest
from tests.histories.network import CONNECTS, Network, Request, SimulatedClient, Wire
from tests.histories.simulation import ProcessLoop, Simulation

#: What the wall clocks show at the beginning, in seconds since the epoch.
WALL = 1_700_000_000.0


class ProcessClock:
    """The clocks of one machine (app.runtime.clock). Each look at them takes ``cost`` seconds, as all work does."""

    def __init__(self, simulation: Simulation, *, offset: float, rate: float, cost: float) -> None:
        self._simulation = simulation
        self._offset = offset
        self._rate = rate
        self._cost = cost
        #: By how much the wall clock has been put forward.
        self.jumped = 0.0

    def look(self) -> float:
        """What ``monotonic`` shows, for those outside."""
        return self._offset + self._rate * self._simulation.now

    def monotonic(self) -> float:
        """See Clock."""
        self._simulation.now += self._cost
        return self.look()

    def wall(self) -> float:
        """See Clock."""
        return WALL + self._simulation.now + self.jumped

    def steady(self) -> float:
        """See Clock."""
        return WALL + self.look()


_FOLLOWED = frozenset({apiserver.PODS, apiserver.NODES, apiserver.DEVICE_CLAIMS})


class View:
    """What a process has been told of pods, nodes and claims for devices."""

    def __init__(self) -> None:
        #: By uid.
        self.pods: dict[str, Manifest] = {}
        #: By name.
        self.nodes: dict[str, Manifest] = {}
        #: Those for devices, by uid.
        self.claims: dict[str, Manifest] = {}

    def copy(self) -> "View":
        new = View()
        new.pods, new.nodes, new.claims = dict(self.pods), dict(self.nodes), dict(self.claims)
        return new

    def put(self, resource: tuple[str, str], items: Iterable[Manifest]) -> None:
        """Replaces all objects of a kind."""
        known, name = self.of(resource)
        known.clear()
        known.update((item["metadata"][name], item) for item in items)

    def of(self, resource: tuple[str, str]) -> tuple[dict[str, Manifest], str]:
        """The objects of a kind, and the field of their metadata by which they are known."""
        if resource == apiserver.NODES:
            return self.nodes, "name"
        return self.pods if resource == apiserver.PODS else self.claims, "uid"


class Told:
    """Follows what a process has been told, line by line, as a faultless informer would take it."""

    def __init__(self) -> None:
        self.view = View()
        #: Pages of lists that the process has, but perhaps not all of them, or has not yet looked at: by resource.
        self._pages: dict[tuple[str, str], tuple[str, list[Manifest]]] = {}
        #: The resources of which it has all pages.
        self._whole: set[tuple[str, str]] = set()

    def page(self, request: Request, answer: Answer) -> None:
        """A page of a list is in."""
        resource = apiserver.parse(request.path).resource
        if resource not in _FOLLOWED:
            return
        try:
            page = apiserver.decode(answer.body)
        except msgspec.DecodeError:
            return
        version = page["metadata"]["resourceVersion"]
        items: list[Manifest] = []
        if resource in self._pages:
            items = self._pages[resource][1]
            if "continue" not in request.params:
                if resource in self._whole:  # who lists again has looked at the last list
                    self.view.put(resource, items)
                items = []
        self._pages[resource] = (version, items + page["items"])
        self._whole.discard(resource)
        if not page["metadata"].get("continue"):
            self._whole.add(resource)

    def follows(self, request: Request) -> None:
        """A watch begins; when it begins where a list has ended, the process has taken the list over."""
        resource = apiserver.parse(request.path).resource
        version, items = self._pages.get(resource, ("", []))
        if not version or request.params.get("resourceVersion") != version:
            return
        del self._pages[resource]
        self.view.put(resource, items)

    def views(self) -> list[View]:
        """What the process may believe: with and without lists that it has perhaps not looked at."""
        if not self._pages:
            return [self.view.copy()]
        newer = self.view.copy()
        for resource, (_, items) in self._pages.items():
            newer.put(resource, items)
        return [self.view.copy(), newer]

    def line(self, request: Request, entry: Entry) -> None:
        """A line of a watch was read."""
        resource, manifest = apiserver.parse(request.path).resource, entry.stored.manifest
        if resource not in _FOLLOWED:
            return
        known, name = self.view.of(resource)
        key = manifest["metadata"][name]
        if entry.type == "DELETED":
            known.pop(key, None)
        else:
            known[key] = manifest


class Decision(NamedTuple):
    """A pod was given a node: the how-manieth decision it was, and what the process knew then."""

    number: int
    node: str
    views: list[View]


class Watcher:
    """What looks on (checker)."""

    def sent(self, request: Request) -> None:
        """A replica sends a request."""

    def waits(self, request: Request, seconds: float) -> None:
        """The server of a request lets it wait."""

    def received(self, request: Request, answer: Answer) -> None:
        """A replica has got an answer."""

    def assumed(self, replica: "Replica", uid: str) -> None:
        """A replica has decided about a pod."""

    def begins_to_bind(self, replica: "Replica", uid: str) -> None:
        """A replica starts the binding cycle of a pod."""

    def pops(self, replica: "Replica", queued: QueuedPod) -> None:
        """A replica begins to try a pod."""

    def preempts(self, replica: "Replica", eviction: Eviction) -> None:
        """A replica starts to evict pods."""

    def complains(self, replica: "Replica", text: str) -> None:
        """Something happened in a replica that never should."""


class Replica(process.Process):
    """One life of the scheduler's process."""

    def __init__(
        self,
        name: str,
        simulation: Simulation,
        network: Network,
        watcher: Watcher,
        tell: Callable[[str, str], None],
        loaded: Loaded,
        options: RunOptions,
        clock: ProcessClock,
    ) -> None:
        self.name = name
        self.network = network
        self.watcher = watcher
        self.clock = clock
        self._told_to = tell
        self.loop = ProcessLoop(simulation)
        self.loop.replica = self
        self.loop.set_exception_handler(self._lost_exception)
        self.loop.on_restless = lambda: watcher.complains(self, "is busy without end")
        self.told = Told()
        #: Nothing goes through to or from this process until then.
        self.cut_off_until = -math.inf
        #: Until when, by its own clock, it holds the lease as far as it can know; inf where there is none.
        self.trusted_until = (
            -math.inf if loaded.settings.configuration.leader_election.leader_elect else math.inf
        )
        #: By uid of the pod.
        self.decisions: dict[str, Decision] = {}
        self._decided = 0
        #: The pods that it has given a node and has not taken back, by uid.
        self.placed: set[str] = set()
        #: Those of them whose gang had enough pods with a node when the first binding of the gang was started.
        self.complete: set[str] = set()
        self.killed = False
        self.scheduler: Scheduler | None = None
        self.stop = asyncio.Event()
        super().__init__(loaded, options, self.stop, clock)
        self.task = self.loop.create_task(self.run(), name="process")

    def tell(self, what: str) -> None:
        """Puts something into the story."""
        self._told_to(self.name, what)

    @property
    def alive(self) -> bool:
        return not self.killed and not self.task.done()

    @property
    def leads(self) -> bool:
        """Whether it may write, by its own clock."""
        return self.clock.look() < self.trusted_until

    def kill(self) -> None:
        """As by SIGKILL."""
        self.killed = True
        self.loop.freeze(math.inf)
        self.cut_off_until = math.inf
        for each in list(self.network.open):
            if each.request.sender is self:
                each.give_up()

    # ------------------------------------------------------------ looking on

    def sends(self, request: Request) -> None:
        """A request leaves."""
        request.sent_at = self.clock.look()
        request.intended_uid = _intended.get(asyncio.current_task(self.loop), "")
        if request.kind == "update lease" and b'"holderIdentity":""' in request.body:
            self.trusted_until = -math.inf
        self.watcher.sent(request)

    def receives(self, request: Request, answer: Answer) -> None:
        """An answer is in."""
        self.watcher.received(request, answer)
        if answer.status >= 300:
            return
        if request.kind == "list":
            self.told.page(request, answer)
        elif request.kind in {"create lease", "update lease"}:
            spec = apiserver.decode(request.body)["spec"]
            if spec["holderIdentity"]:
                deadline = self._settings.configuration.leader_election.renew_deadline
                self.trusted_until = max(self.trusted_until, request.sent_at + deadline.seconds)

    def _assumed(self, uid: str, node: str) -> None:
        self._decided += 1
        self.decisions[uid] = Decision(self._decided, node, self.told.views())
        self.placed.add(uid)
        self.complete.discard(uid)
        self.watcher.assumed(self, uid)

    def _lost_exception(self, _loop: object, context: dict[str, Any]) -> None:
        self.watcher.complains(self, f"{context.get('message')}: {context.get('exception')!r}")

    # ------------------------------------------------------------ parts of Process

    @functools.cached_property
    def _connection(self) -> Connection:
        return Connection("http://apiserver")

    @contextlib.asynccontextmanager
    async def _endpoints(self, *_parts: object) -> AsyncIterator[None]:
        yield

    def _make_scheduler(self, *args: Any) -> Scheduler:
        scheduler = self.scheduler = super()._make_scheduler(*args)
        assume, forget = scheduler.state.assume, scheduler.state.forget

        def noted(pod, node_name):
            assumed = assume(pod, node_name)
            self._assumed(pod.uid, node_name)
            return assumed

        def started(eviction):
            self.watcher.preempts(self, eviction)
            decided(eviction)

        def taken_back(assumed):
            self.placed.discard(assumed.uid)
            return forget(assumed)

        def begins(assumed, waits):
            self.watcher.begins_to_bind(self, assumed.pod.uid)
            begin(assumed, waits)

        def pops(*args):
            queued = pop(*args)
            if queued is not None:
                self.watcher.pops(self, queued)
            return queued

        pop, scheduler.state.pop = scheduler.state.pop, pops
        begin, scheduler.binder.start = scheduler.binder.start, begins
        decided, scheduler.evictor._decided = scheduler.evictor._decided, started
        scheduler.state.assume = noted
        scheduler.state.forget = taken_back
        return scheduler


_intended: dict[Any, str] = {}


def extender_pool(*_connector: object, **_settings: object) -> Wire:
    """Where connections to one extender are kept."""
    return Wire(asyncio.get_running_loop().replica, CONNECTS[3])


class _Log(logging.Handler):
    """Puts errors into the story of the process that logs them; what was logged with a traceback is a defect."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            replica = asyncio.get_running_loop().replica
        except (RuntimeError, AttributeError):
            return
        replica.tell(f"log: {record.levelname} {record.getMessage()}")
        if record.exc_info:
            replica.watcher.complains(replica, f"{record.getMessage()}: {record.exc_info[1]!r}")


@contextlib.contextmanager
def simulated() -> Iterator[None]:
    """Puts the simulation in the place of what the product's process uses of the machine."""
    log, handler = logging.getLogger("app"), _Log(logging.WARNING)
    before = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.WARNING)
    log.propagate = False
    patch_pod_status = KubeWriter.patch_pod_status

    async def patch_noted(self, pod, **more):
        task = asyncio.current_task()
        _intended[task] = pod.uid
        try:
            return await patch_pod_status(self, pod, **more)
        finally:
            del _intended[task]

    try:
        with _patched(patch_noted):
            yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before[0])
        log.propagate = before[1]


@contextlib.contextmanager
def _patched(patch_noted: Any) -> Iterator[None]:
    nothing = types.SimpleNamespace(freeze=lambda: None, set_threshold=lambda *_: None)
    with (
        mock.patch.object(process, "KubeClient", SimulatedClient),
        mock.patch("app.extender.transport.Pool", extender_pool),
        mock.patch.object(process, "entry_points", _no_entries),
        mock.patch.object(registry, "capabilities", _capabilities),
        mock.patch.object(process, "take_limits", _limits),
        mock.patch.object(process, "return_free_memory", _keep_memory),
        mock.patch.object(process, "gc", nothing),
        mock.patch.object(KubeWriter, "patch_pod_status", patch_noted),
        # How often they look whether there is something to do.
        mock.patch("app.observe.metrics.process.LAG_INTERVAL", 30.0),
        mock.patch("app.kube.events.LOOK", 0.5),
    ):
        yield


# Plain functions: a Mock would remember each call.


def _no_entries(**_group: str) -> tuple[()]:
    """Nobody has installed a plugin."""
    return ()


_POINTS = registry.capabilities()


def _capabilities(_plugins: object) -> dict[str, frozenset[str]]:
    """The plugins' extension points, worked out once."""
    return _POINTS


def _limits() -> Limits:
    """What the machine allows."""
    return Limits(memory=2**31, descriptors=2**16)


async def _keep_memory() -> None:
    """Returns nothing to the system."""
    await asyncio.get_running_loop().create_future()
