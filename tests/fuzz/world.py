"""A whole Scheduler on virtual time, watching an API server that keeps whatever it is given; and what must hold of it.

The base cluster is fit for work: nodes, volumes, devices. *Normal* pods are scheduled in it at any time. *Guests* are
the objects of the fuzzer.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, NamedTuple
from unittest import mock

import msgspec
import numpy as np

from app.cycle.attempt import Attempt, NoNodesError, Unfit
from app.extender.client import HTTPExtender
from app.extender.events import Sink
from app.model import devices, objects, pod_groups, storage
from app.model.pod import Pod
from app.model.status import SchedulingError
from app.observe.events import AttemptFailed, ByType, NodeSelected
from app.observe.telemetry import Telemetry
from app.scheduler.kinds import TAINT_RULES
from app.scheduler.wiring import Scheduler
from app.state.columns.resources import ResourceColumns
from app.state.scheduler_state import SchedulerState
from app.wire.kube import PodDecoder
from tests.fuzz.kinds import NODES
from tests.fuzz.server import ApiServer
from tests.shell.clock import LoopClock
from tests.shell.scheduler.world import CONFIG, GANGS
from tests.shell.scheduler.world import World as WiredWorld

#: Seconds of CPU that one object may cost.
BUDGET = 0.020
#: Virtual seconds within which nothing but what is ready happens.
_AT_ONCE = 0.0001
#: Virtual seconds after which every pod has been tried again.
_LONG = 700.0


class Cost(NamedTuple):
    """CPU seconds for one thing."""

    seconds: float
    what: str


class Violation(Exception):  # noqa: N818 - a verdict on the scheduler
    """Something that must hold does not."""


# ---------------------------------------------------------------- the base cluster


def _object(
    kind: str, name: str, namespace: str = "", **more: Any
) -> tuple[str, str, dict[str, Any]]:
    metadata = {"name": name, "uid": f"uid-{kind}-{name}", **more.pop("metadata", {})}
    if namespace:
        metadata["namespace"] = namespace
    return kind, f"{namespace}/{name}" if namespace else name, {"metadata": metadata, **more}


def base_objects() -> list[tuple[str, str, dict[str, Any]]]:
    """(kind, key, object) of the base cluster: nodes of different sizes, so that the best of them is never in doubt."""
    objects = []
    for number, name in enumerate(NODES):
        labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"z{number % 3}"}
        amounts = {"cpu": str(16 + 3 * number), "memory": f"{64 + 11 * number}Gi", "pods": "500"}
        amounts |= {"ephemeral-storage": "100Gi", "example.com/normal": "1000"}
        objects += [
            _object("Node", name, metadata={"labels": labels}, status={"allocatable": amounts}),
            _object("CSINode", name, spec={"drivers": [{"name": "csi.example.com", "nodeID": name, "allocatable": {"count": 100}}]}),
            _object(
                "ResourceSlice", f"base-{name}",
                spec={
                    "driver": "base.example.com", "nodeName": name, "pool": {"name": f"base-{name}", "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": f"dev-{i}", "attributes": {"model": {"string": "a"}}} for i in range(4)],
                },
            ),
        ]  # fmt: skip
    claim = {
        "devices": {
            "requests": [
                {
                    "name": "r",
                    "exactly": {
                        "deviceClassName": "base",
                        "allocationMode": "ExactCount",
                        "count": 1,
                    },
                }
            ]
        }
    }
    expression = "device.driver == 'base.example.com'"
    return [
        *objects,
        _object("Namespace", "normal", metadata={"labels": {"normal": "true"}}),
        _object("StorageClass", "base", provisioner="base.example.com", volumeBindingMode="WaitForFirstConsumer"),
        _object("DeviceClass", "base", spec={"selectors": [{"cel": {"expression": expression}}]}),
        *[_object("ResourceClaim", f"devices-{i}", "normal", spec=claim) for i in range(2)],
        *[
            _object(
                "PersistentVolume", f"base-{i}",
                spec={
                    "capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "base",
                    "csi": {"driver": "csi.example.com", "volumeHandle": f"base-{i}"},
                },
                status={"phase": "Available"},
            )
            for i in range(2)
        ],
        *[
            _object(
                "PersistentVolumeClaim", f"claim-{i}", "normal",
                spec={"accessModes": ["ReadWriteOnce"], "storageClassName": "base", "resources": {"requests": {"storage": "1Gi"}}},
                status={"phase": "Pending"},
            )
            for i in range(2)
        ],
    ]  # fmt: skip


def _aversion(**term: Any) -> dict[str, Any]:
    selector = {"labelSelector": {"matchLabels": {"normal": "exclusive"}}}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return {
        "podAntiAffinity": {
            required: [{"topologyKey": "kubernetes.io/hostname", **selector, **term}]
        }
    }


#: What normal pods ask for besides CPU and memory, by their kind.
WANTS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "spread": {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"normal": "spread"}},
            }
        ]
    },
    "exclusive": {"affinity": _aversion()},
    "tolerant": {"tolerations": [{"operator": "Exists"}]},
    "picky": {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {
                                    "key": "topology.kubernetes.io/zone",
                                    "operator": "In",
                                    "values": ["z0", "z1"],
                                }
                            ]
                        }
                    ]
                }
            }
        }
    },
    "social": {
        "affinity": {
            "podAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 10,
                        "podAffinityTerm": {
                            "topologyKey": "topology.kubernetes.io/zone",
                            "namespaceSelector": {},
                            "labelSelector": {"matchLabels": {"app": "web"}},
                        },
                    }
                ]
            }
        }
    },
    "storing": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "claim-0"}}]},
    "claiming": {"resourceClaims": [{"name": "d", "resourceClaimName": "devices-0"}]},
    "extended": {
        "containers": [
            {
                "name": "c",
                "image": "img:2",
                "resources": {
                    "requests": {"cpu": "100m", "example.com/normal": "1"},
                    "limits": {"example.com/normal": "1"},
                },
            }
        ]
    },
    "port": {
        "containers": [
            {"name": "c", "image": "img:2", "ports": [{"containerPort": 1, "hostPort": 8080}]}
        ]
    },
    "lowly": {"priority": -5},
}
#: What leaves no room on its node, and what has to take its place.
TIGHT: Mapping[str, Mapping[str, Any]] = {
    wants: {
        "priority": priority,
        "containers": [{"name": "c", "image": "img:2", "resources": {"requests": {"cpu": "15"}}}],
    }
    for wants, priority in (("filler", -5), ("huge", 2_000_000_000))
}


def normal_pod(name: str, wants: str, version: str, node: str = "") -> bytes:
    """The JSON of a normal pod."""
    requests = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    spec = {
        "schedulerName": "default-scheduler",
        "priority": 2_000_000_000,
        "containers": [{"name": "c", "image": "registry.example.com/app:1", "resources": requests}],
        **{**WANTS, **TIGHT}[wants],
        **({"nodeName": node} if node else {}),
    }
    labels = {"normal": wants, "app": "normal"}
    metadata = {
        "name": name,
        "namespace": "normal",
        "uid": f"uid-{name}",
        "resourceVersion": version,
        "labels": labels,
    }
    return msgspec.json.encode({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})


# ---------------------------------------------------------------- listening


class Listener(logging.Handler):
    """Keeps what is logged as a warning or worse."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def tracebacks(self) -> list[str]:
        """The messages that were logged with an exception."""
        return [_with_traceback(record) for record in self.records if record.exc_info]


def _with_traceback(record: logging.LogRecord) -> str:
    return logging.Formatter("%(levelname)s %(name)s: %(message)s").format(record)


class Clock(LoopClock):
    """The loop's time, and on top the CPU time used: what limits its own time does so."""

    def monotonic(self) -> float:
        return super().monotonic() + time.process_time()


class TimedTelemetry(Telemetry):
    """Notes the CPU time of each attempt, from the last time that other tasks could run, and how each ended."""

    def __init__(self, clock: LoopClock, rng: np.random.Generator) -> None:
        super().__init__(clock, rng)
        self.costs: list[Cost] = []
        #: (key of the pod, result, message or node).
        self.outcomes: list[tuple[str, str, str]] = []
        #: The CPU time, seconds.
        self.now: Callable[[], float] = time.thread_time
        self._mark = 0.0
        own = ByType({NodeSelected: self._selected, AttemptFailed: self._failed})
        self.on.handlers.update(ByType.together(self.on, own).handlers)

    def start(self) -> float:
        """The next attempt, or the rest of one, begins now at the earliest."""
        self._mark = self.now()
        return self._mark

    def _selected(self, event: NodeSelected) -> None:
        self._ends(event.queued.pod.key, "selected", event.node)

    def _failed(self, event: AttemptFailed) -> None:
        self._ends(event.queued.pod.key, event.result, event.message)

    def _ends(self, key: str, result: str, message: str) -> None:
        now = self.now()
        self.costs.append(Cost(now - self._mark, f"attempt of {key[:80]}"))
        self.outcomes.append((key, result, message))
        self._mark = now


class Meter:
    """Measures the turns of an event loop, in each of which nothing else can run: CPU seconds without the work of
    fakes.
    """

    def __init__(self, server: ApiServer, telemetry: TimedTelemetry) -> None:
        self._server = server
        self._telemetry = telemetry
        telemetry.now = self.now
        #: The longest turn since this was set to 0, without the attempts that ended in it.
        self.longest = 0.0
        #: Turns in which several attempts ended.
        self.shared: list[Cost] = []

    def now(self) -> float:
        """The CPU time of this thread, seconds."""
        return time.thread_time() - self._server.spent

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """Measures all turns but those of the current task, which is the test's."""
        mine, run, telemetry = asyncio.current_task(), asyncio.Handle._run, self._telemetry

        def timed(handle: asyncio.Handle) -> None:
            if getattr(handle._callback, "__self__", None) is mine:
                run(handle)
                return
            known, started = len(telemetry.costs), telemetry.start()
            run(handle)
            seconds, attempts = self.now() - started, telemetry.costs[known:]
            rest = seconds - sum(cost.seconds for cost in attempts)
            self.longest = max(self.longest, rest)
            if len(attempts) > 1:
                self.shared.append(Cost(seconds, f"turn with {len(attempts)} attempts"))

        with mock.patch.object(asyncio.Handle, "_run", timed):
            yield


class FirstOfAll(np.random.Generator):
    """Chooses the first of equals, so that two runs cannot differ by the number of choices made before."""

    def integers(self, low: Any, high: Any = None, *args: Any, **kwargs: Any) -> Any:
        return (
            super().integers(low, high, *args, **kwargs)
            if args or kwargs
            else 0
            if high is None
            else low
        )


# ---------------------------------------------------------------- the world


class World(WiredWorld):
    """See ``running``."""

    def __init__(
        self, group: Any, config: str, extenders: Callable[[Sink], list[HTTPExtender]]
    ) -> None:
        self.server = ApiServer()
        self.listener = Listener()
        super().__init__(
            group,
            extenders,
            config,
            transport=self.server,
            clock=Clock(),
            rng=FirstOfAll(np.random.PCG64(7)),
            telemetry=TimedTelemetry,
            features=GANGS | {TAINT_RULES, pod_groups.CLAIMS},
        )
        self.meter = Meter(self.server, self.telemetry)
        #: What the last ``quiet`` has returned.
        self.cost = Cost(0.0, "")
        self._normal = 0
        self._probes = [
            PodDecoder(keep_raw=True).decode(normal_pod(f"probe-{wants}", wants, "1"))
            for wants in WANTS
        ]

    def fill(self) -> None:
        """Gives the server the base cluster."""
        for kind, key, value in base_objects():
            value["metadata"]["resourceVersion"] = self.server.next_version()
            self.server.objects[kind][key] = msgspec.json.encode(value)

    async def restore(self) -> None:
        """Takes back what was written to the base cluster: claims are free again."""
        for kind, key, value in base_objects():
            if kind in {"ResourceClaim", "PersistentVolume", "PersistentVolumeClaim"}:
                value["metadata"]["resourceVersion"] = self.server.next_version()
                await self.tell(kind, key, "MODIFIED", msgspec.json.encode(value))

    # ------------------------------------------------------------ time

    async def quiet(self, seconds: float = _AT_ONCE) -> Cost:
        """Returns when nothing is ready any longer, ``seconds`` (virtual) later.

        The cost is that of the longest turn of the event loop, without attempts and the API server's answers.
        """
        del self.telemetry.costs[:]
        self.meter.longest = 0.0
        await asyncio.sleep(seconds)
        self.cost = Cost(self.meter.longest, "")
        return self.cost

    # ------------------------------------------------------------ what happens

    async def tell(self, kind: str, key: str, type_: str, text: bytes) -> list[Cost]:
        """One event of a watch, and what it cost: itself, then each attempt that followed."""
        self.server.tell(kind, key, type_, text)
        cost = await self.quiet()
        return [Cost(cost.seconds, f"{type_} {kind} {key[:80]}"), *self.telemetry.costs]

    async def list_again(self, kind: str) -> None:
        """The watch of a kind expires."""
        self.server.expire(kind)
        await self.quiet(10)

    async def add_normal(self, wants: str = "plain") -> str:
        """A normal pod comes and is tried; its key."""
        self._normal += 1
        key = f"normal/normal-{self._normal}"
        text = normal_pod(f"normal-{self._normal}", wants, self.server.next_version())
        await self.tell("Pod", key, "ADDED", text)
        return key

    async def fill_up(self) -> None:
        """Pods of low priority are bound that leave no room for huge ones."""
        for number, name in enumerate(NODES * 2):
            key = f"normal/filler-{number}"
            if key not in self.server.objects["Pod"]:
                text = normal_pod(f"filler-{number}", "filler", self.server.next_version(), name)
                self.server.bindings[key] = name
                await self.tell("Pod", key, "ADDED", text)

    async def remove(self, kind: str, key: str) -> None:
        """An object that the server has is deleted."""
        text = self.server.objects[kind].get(key)
        if text is not None:
            await self.tell(kind, key, "DELETED", text)

    async def remove_normal(self) -> None:
        """All normal pods are deleted."""
        for key in [key for key in self.server.objects["Pod"] if key.startswith("normal/")]:
            await self.remove("Pod", key)

    # ------------------------------------------------------------ what must hold

    def check_log(self) -> None:
        """No exception was logged."""
        for text in self.listener.tracebacks():
            raise Violation(f"an exception was logged: {text}")

    def verdicts(self) -> dict[str, Any]:
        """What would be decided about one more normal pod of each kind: per node the refusal, or the scores."""
        return {probe.name: judge(self.scheduler, self.state, probe) for probe in self._probes}

    @property
    def assuming(self) -> bool:
        """Whether any pod is assumed."""
        return any(self.state.cache.is_assumed(pod.uid) for pod in self.state.cache)

    def check_state(self) -> None:
        """What is known is what the watches have shown, whatever the way to it."""
        fresh = rebuilt(self)
        same("the table", facts(self.state), facts(fresh.state))
        mine, others = self.verdicts(), fresh.verdicts()
        if self.assuming:  # volumes and devices set aside for pods are in no object yet
            for wants in ("storing", "claiming"):
                mine.pop(f"probe-{wants}"), others.pop(f"probe-{wants}")
        for name, verdict in mine.items():
            same(f"the verdict on {name}", verdict, others[name])


def same(what: str, mine: Any, others: Any) -> None:
    if mine == others:
        return
    if isinstance(mine, dict) and isinstance(others, dict):
        names = [name for name in {**mine, **others} if mine.get(name) != others.get(name)]
        told = "; ".join(
            f"{name}: {mine.get(name)} after changes, {others.get(name)} at once"
            for name in names[:3]
        )
    else:
        told = f"{mine} after changes, {others} at once"
    raise Violation(f"{what} differs from one rebuilt: {told[:3000]}")


def facts(state: SchedulerState) -> dict[str, Any]:
    """By node name: room and pods."""
    table = state.table
    return {
        name: (
            bool(table.exists[row]),
            _amounts(table.requested, row),
            _amounts(table.allocatable, row),
            _amounts(table.nonzero, row),
            int(table.pod_count[row]),
            int(table.allocatable_pods[row]),
            bool(table.unschedulable[row]),
            sorted(table.pods[row]),
        )
        for name, row in table.row_of.items()
    }


def _amounts(columns: ResourceColumns, row: int) -> dict[str, int]:
    amounts = {name: int(columns.column(name)[row]) for name in columns.names}
    return {name: amount for name, amount in amounts.items() if amount}


def judge(scheduler: Scheduler, state: SchedulerState, pod: Pod) -> Any:
    """By node name, why the pod may not go there or its scores; or why it can go nowhere."""
    framework = scheduler.frameworks["default-scheduler"]
    attempt = Attempt(
        framework, state.table, pod, nominated=state.nominated_for, rng=np.random.default_rng(1)
    )
    try:
        rows = attempt.find()
    except (NoNodesError, SchedulingError) as error:
        return f"{type(error).__name__}: {error}"
    except Unfit as unfit:
        table, found = state.table, {}
        for row in table.live_rows().tolist():
            status = unfit.diagnosis.status(row)
            found[table.names[row]] = (status.plugin, status.code.name, status.reasons)
        return found
    names = attempt.names(rows)
    scores = {name: column.tolist() for name, column in attempt.plugin_scores(rows).items()}
    diagnosis = attempt.diagnosis()
    found = {}
    for row in state.table.live_rows().tolist():
        name = state.table.names[row]
        if name not in names:
            status = diagnosis.status(row)
            found[name] = (status.plugin, status.code.name, status.reasons)
    return found | {
        name: {plugin: column[at] for plugin, column in scores.items()}
        for at, name in enumerate(names)
    }


def rebuilt(world: World) -> World:
    """A scheduler that is told at once what the informers hold, and where pods are assumed to be; it is not run."""
    fresh, cache = World(_NoTasks(), CONFIG, _no_extenders), world.state.cache
    for informer in world.scheduler.informers:
        kind = informer.kind.name
        modules = (objects, storage, devices, pod_groups)
        model = next((found for m in modules if (found := getattr(m, kind, None))), Pod)
        known = dict(informer.objects)
        if model is Pod:
            assumed = {pod.key: pod for pod in cache if cache.is_assumed(pod.uid)}
            known |= {key: pod for key, pod in assumed.items() if key in known}
        fresh.state.apply_new(model, known, world.clock.steady())
    return fresh


class _NoTasks:
    """A task group for a scheduler that is not run."""

    def create_task(self, coroutine: Any, **_more: Any) -> None:
        coroutine.close()


def _no_extenders(_sink: Sink) -> list[HTTPExtender]:
    return []


@contextlib.asynccontextmanager
async def running(
    config: str = CONFIG, extenders: Callable[[Sink], list[HTTPExtender]] = _no_extenders
) -> AsyncIterator[World]:
    """A scheduler at work in the base cluster. Raises Violation when one of its tasks ends."""
    try:
        async with asyncio.TaskGroup() as group:
            world = World(group, config, extenders)
            root = logging.getLogger()
            root.addHandler(world.listener)
            try:
                world.fill()
                world.scheduler.start_watching()
                await world.scheduler.wait_synced()
                work = group.create_task(world.scheduler.loop.run(), name="schedule")
                with world.meter.measuring():
                    await world.quiet(1)
                    yield world
                await world.scheduler.wind_down(1)
            finally:
                root.removeHandler(world.listener)
            work.cancel()
            raise _Finished  # noqa: TRY301 - ends the eternal tasks of the group
    except* _Finished:
        pass


class _Finished(Exception):  # noqa: N818 - the way out of a TaskGroup with eternal tasks in it
    pass
