"""Asks a question about a random cluster, then does on the unchanged cluster what was asked about, and compares."""

import asyncio
import contextlib
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from app.kube.errors import AlreadyExists, KubeApiError, NotFound
from app.kube.transport import MERGE_PATCH, Transport
from app.model.clock import Clock
from app.model.devices import DeviceClass, ResourceClaim, ResourceSlice
from app.model.features import Features
from app.model.objects import PodDisruptionBudget
from app.model.pod import Pod
from app.model.pod_groups import PodGroup
from app.model.storage import PersistentVolume, PersistentVolumeClaim
from app.runtime.leaping import LoopClock
from app.runtime.tasks import spawn_eternal
from app.settings.load import Settings
from app.sim import ClusterOptions, EmbeddedCluster
from app.sim.features import parse_features
from app.tools.in_process import InProcess
from app.tools.simulate.scheduling import SimulatedScheduler, Standby, standing_by
from app.wire.whatif_v1 import WhatIfAnswer, WhatIfQuestion
from tests.whatif import clusters
from tests.whatif.clusters import PRIORITIES, Manifest, RandomCluster

PODS: Final = "/api/v1/namespaces/default/pods"
NODES: Final = "/api/v1/nodes"
SETS: Final = "/apis/apps/v1/namespaces/default"
BUDGETS: Final = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
_DEVICES: Final = "/apis/resource.k8s.io/v1"
#: The paths of what pods need besides, by kind.
OTHERS: Final = {
    "PersistentVolumeClaim": "/api/v1/namespaces/default/persistentvolumeclaims",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "ResourceClaim": f"{_DEVICES}/namespaces/default/resourceclaims",
    "ResourceSlice": f"{_DEVICES}/resourceslices",
    "DeviceClass": f"{_DEVICES}/deviceclasses",
}
GROUPS: Final = f"/apis/{clusters.GROUPS}/namespaces/default/podgroups"
CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
#: Seconds for which nothing may change before a cluster counts as settled, and after which the test gives up.
QUIET: Final = 3.0
LONGEST: Final = 120.0


_OTHER_KINDS: Final = (
    PodDisruptionBudget,
    PersistentVolume,
    PersistentVolumeClaim,
    DeviceClass,
    ResourceSlice,
    ResourceClaim,
    PodGroup,
)
_GATES: Final = "GenericWorkload=true,GangScheduling=true"


class Compared(NamedTuple):
    """What became of the pods of one question."""

    question: str
    #: As was said; otherwise, where the answer says that chance decides; otherwise.
    equal: int
    ties: int
    wrong: list[str]

    @property
    def pods(self) -> int:
        """How many were compared."""
        return self.equal + self.ties + len(self.wrong)


class Arena:
    """A cluster behind an API server, and a scheduler of it."""

    def __init__(self, transport: Transport, standby: Standby, group: asyncio.TaskGroup) -> None:
        self._transport: Final = transport
        self._standby: Final = standby
        self._scheduler: Final = standby.parts
        self._group: Final = group

    async def _call(self, method: str, path: str, value: Any = None, **more: Any) -> Any:
        body = None if value is None else msgspec.json.encode(value)
        return json.loads((await self._transport.request(method, path, body=body, **more)).body)

    # ------------------------------------------------------------ the cluster

    async def fill(self, cluster: RandomCluster) -> None:
        """Creates its objects."""
        for value in {*PRIORITIES}:
            for name, policy in (
                (f"p{value}", "PreemptLowerPriority"),
                (f"p{value}-never", "Never"),
            ):
                made = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
                with contextlib.suppress(AlreadyExists):
                    await self._call("POST", CLASSES, made)
        for node in cluster.nodes:
            await self._call("POST", NODES, node)
            # API servers taint new nodes, whose conditions nobody reports here.
            await self._call(
                "PATCH",
                f"{NODES}/{node['metadata']['name']}",
                {"spec": {"taints": node["spec"].get("taints")}},
                content_type=MERGE_PATCH,
            )
        for each in (*cluster.volumes, *cluster.devices):
            await self._call("POST", OTHERS[each["kind"]], each)
        owners = {kind: await self._owner(kind) for kind in ("ReplicaSet", "DaemonSet")}
        for pod in cluster.pods:
            kind = cluster.owners[pod["metadata"]["name"]]
            if kind:
                pod["metadata"]["ownerReferences"] = [owners[kind]]
            await self._call("POST", PODS, pod)
        for budget in cluster.budgets:
            made = await self._call("POST", BUDGETS, budget)
            status = {**made, "status": budget["status"]}
            await self._call("PUT", f"{BUDGETS}/{budget['metadata']['name']}/status", status)
        await self._seen(len(cluster.nodes), {pod["metadata"]["name"] for pod in cluster.pods})
        others = len(cluster.budgets) + len(cluster.volumes) + len(cluster.devices)
        await self._until(lambda: self._others == others)

    async def _owner(self, kind: str) -> Manifest:
        labels = {"owner": kind.lower()}
        container = {"name": "main", "image": "registry.example.com/app:1"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        spec: Manifest = {"selector": {"matchLabels": labels}, "template": template}
        if kind == "ReplicaSet":
            spec["replicas"] = 0
        value = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "its"}, "spec": spec}
        made = await self._call("POST", f"{SETS}/{kind.lower()}s", value)
        return {
            "apiVersion": "apps/v1",
            "kind": kind,
            "name": "its",
            "uid": made["metadata"]["uid"],
            "controller": True,
        }

    async def _seen(self, nodes: int, pods: Iterable[str]) -> None:
        """Returns when the scheduler knows so many nodes, and these pods."""
        state, wanted = self._scheduler.state, {f"default/{name}" for name in pods}
        await self._until(lambda: state.table.node_count == nodes and state.pods.keys() == wanted)

    @property
    def _others(self) -> int:
        """How many objects beside nodes and pods the scheduler knows."""
        cluster = self._scheduler.state.cluster
        return sum(len(cluster.lister(kind)) for kind in _OTHER_KINDS)

    @staticmethod
    async def _until(known: Callable[[], bool]) -> None:
        async with asyncio.timeout(LONGEST):
            while not known():
                await asyncio.sleep(0.01)

    async def ask(self, question: Mapping[str, Any]) -> WhatIfAnswer:
        """The scheduler's answer."""
        return await self._scheduler.whatif.ask(msgspec.convert(dict(question), WhatIfQuestion))

    # ------------------------------------------------------------ what was asked about

    async def carry_out(self, cluster: RandomCluster, answer: WhatIfAnswer) -> None:
        """Does it, in the order of the answer where the question gives none."""
        question = cluster.question
        nodes = {node["metadata"]["name"] for node in cluster.nodes}
        there = {pod["metadata"]["name"]: pod for pod in cluster.pods}
        match question["question"]:
            case "fits":
                new = [each for each in question["objects"] if each["kind"] == "Pod"]
                others = [each for each in question["objects"] if each["kind"] != "Pod"]
                wanted = self._others + len(others)
                for each in others:
                    await self._call("POST", OTHERS.get(each["kind"], GROUPS), each)
                await self._until(lambda: self._others == wanted)
            case "how-many":
                new = self._copies(question["objects"][0], answer)
            case "drain":
                for name in question["nodes"]:
                    await self._cordon(name)
                new = self._made_again(there, answer)
                await self._delete(PODS, [row.name for row in answer.pods])
                for row in answer.pods:
                    there.pop(row.name)
            case _:
                key, _, value = question["label"].partition("=")
                lost = {
                    node["metadata"]["name"]
                    for node in cluster.nodes
                    if node["metadata"]["labels"].get(key) == value
                }
                new = self._made_again(there, answer)
                gone = [name for name, pod in there.items() if pod["spec"]["nodeName"] in lost]
                await self._delete(PODS, gone)
                await self._delete(NODES, sorted(lost))
                nodes -= lost
                for name in gone:
                    there.pop(name)
        await self._seen(len(nodes), there)
        for pod in new:
            await self._call("POST", PODS, pod)
        await self._seen(len(nodes), {*there, *(pod["metadata"]["name"] for pod in new)})

    @staticmethod
    def _copies(pod: Manifest, answer: WhatIfAnswer) -> list[Manifest]:
        name = pod["spec"].get("priorityClassName", "p0")
        spec = {**pod["spec"], "priorityClassName": f"{name}-never"}
        count = (answer.count or 0) + 3
        return [
            {**pod, "metadata": {**pod["metadata"], "name": f"new-{i}"}, "spec": spec}
            for i in range(count)
        ]

    @staticmethod
    def _made_again(there: Mapping[str, Manifest], answer: WhatIfAnswer) -> list[Manifest]:
        names = sorted(row.name for row in answer.pods if row.reason != "Unmanaged")
        return [{**there[n], "spec": {**there[n]["spec"], "nodeName": ""}} for n in names]

    async def _cordon(self, name: str) -> None:
        node = await self._call("GET", f"{NODES}/{name}")
        taints = [
            *(node["spec"].get("taints") or ()),
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        ]
        taints = list({each["key"]: each for each in taints}.values())
        change = {"spec": {"unschedulable": True, "taints": taints}}
        await self._call("PATCH", f"{NODES}/{name}", change, content_type=MERGE_PATCH)

    async def _delete(self, path: str, names: Iterable[str]) -> None:
        for name in names:
            with contextlib.suppress(NotFound):
                await self._call("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0})

    async def settle(self) -> None:
        """Schedules until nothing changes any more; what is terminating ends."""
        simulated = SimulatedScheduler(
            self._scheduler, self._standby.telemetry, self._standby.events
        )
        work = [
            spawn_eternal(self._group, self._standby.events.run(), name="events"),
            spawn_eternal(self._group, self._scheduler.loop.run(), name="schedule"),
        ]
        pods, since = self._scheduler.state.pods, 0.0
        now = asyncio.get_running_loop().time
        before: Any = None
        try:
            async with asyncio.timeout(LONGEST):
                while True:
                    await asyncio.sleep(0.05)
                    dying = [pod.name for pod in pods.values() if pod.terminating]
                    await self._delete(PODS, dying)
                    seen = {pod.key: pod.node_name for pod in pods.values()}
                    busy = dying or not simulated.is_idle(len(seen))
                    if busy or seen != before:
                        before, since = seen, now()
                    elif now() - since > QUIET:
                        return
        finally:
            work[-1].cancel()
            await self._scheduler.wind_down(5.0)
            work[0].cancel()

    # ------------------------------------------------------------ what happened

    def compare(self, cluster: RandomCluster, answer: WhatIfAnswer) -> Compared:
        """The pods as they are now, with what was said."""
        name = cluster.question["question"]
        pods = self._scheduler.state.pods
        if name == "how-many":
            return self._compare_count(answer, pods)
        wrong: list[str] = []
        equal = ties = 0
        chance = any(row.tie for row in answer.pods)
        evicted = {f"{each.namespace}/{each.name}" for row in answer.pods for each in row.preempts}
        #: Pods with equal specs are interchangeable: by spec, where they were said to be and are.
        alike: dict[bytes, tuple[Counter[str], Counter[str]]] = {}
        for row in answer.pods:
            if row.reason == "Unmanaged":
                continue
            real = pods.get(f"{row.namespace}/{row.name}")
            node = "gone" if real is None else real.node_name
            told = "gone" if row.reason == "Preempted" else row.node
            said, found = alike.setdefault(self._kind(cluster, row.name), (Counter(), Counter()))
            said[told] += 1
            found[node] += 1
        for said, found in alike.values():
            equal += (said & found).total()
            if said != found and chance:
                ties += (said - found).total()
            elif said != found:
                wrong += [f"{dict(said)}, and it was {dict(found)}"] * (said - found).total()
        staying = evicted & pods.keys() if not chance else set()
        wrong += [f"{key} was to be evicted" for key in staying]
        return Compared(name, equal, ties, wrong)

    @staticmethod
    def _kind(cluster: RandomCluster, name: str) -> bytes:
        asked = cluster.question.get("objects", ())
        pod = next(p for p in (*asked, *cluster.pods) if p["metadata"]["name"] == name)
        spec = {part: value for part, value in pod["spec"].items() if part != "nodeName"}
        return msgspec.json.encode([spec, pod["metadata"]["labels"]])

    @staticmethod
    def _compare_count(answer: WhatIfAnswer, pods: Mapping[str, Pod]) -> Compared:
        [told] = answer.counts
        real = sum(bool(pod.node_name) for pod in pods.values() if pod.name.startswith("new-"))
        most = told.count if told.at_least else real
        if told.at_least and real >= told.count:
            return Compared("how-many", real, 0, [])
        wrong = [f"{told.count} have room, and it were {real}"] * abs(told.count - most)
        return Compared("how-many", min(real, told.count), 0, wrong)


@contextlib.asynccontextmanager
async def embedded() -> AsyncIterator[tuple[Transport, Clock]]:
    """An API server in this process, without controllers and kubelets."""
    clock = LoopClock()
    options = ClusterOptions(
        listen=False,
        kubelets=None,
        keep_budgets=False,
        features=parse_features([_GATES], [f"{clusters.GROUPS}=true"]),
    )
    async with EmbeddedCluster(options, now=clock.wall) as cluster:
        yield InProcess(cluster), clock


async def play(seed: int, transport: Transport, clock: Clock, *, groups: bool = False) -> Compared:
    """One cluster, on an empty API server. ``groups``: whether it has PodGroups."""
    cluster = RandomCluster(seed, groups=groups)
    features = Features.of(
        "1.36", dict.fromkeys(("GenericWorkload", "GangScheduling"), True) if groups else {}
    )
    async with standing_by(Settings(), transport, clock, features=features) as (standby, group):
        arena = Arena(transport, standby, group)
        await arena.fill(cluster)
        answer = await arena.ask(cluster.question)
        await arena.carry_out(cluster, answer)
        await arena.settle()
        return arena.compare(cluster, answer)


async def wipe(transport: Transport) -> None:
    """Deletes what ``play`` has created."""
    collections = (
        PODS,
        NODES,
        BUDGETS,
        *OTHERS.values(),
        f"{SETS}/replicasets",
        f"{SETS}/daemonsets",
    )
    for path in collections:
        items = json.loads((await transport.request("GET", path)).body)["items"]
        for item in items:
            where = f"{path}/{item['metadata']['name']}"
            if item["metadata"].get("finalizers"):  # no controller that removes them is running
                none = msgspec.json.encode({"metadata": {"finalizers": None}})
                await transport.request("PATCH", where, body=none, content_type=MERGE_PATCH)
            body = msgspec.json.encode({"gracePeriodSeconds": 0})
            with contextlib.suppress(KubeApiError):
                await transport.request("DELETE", where, body=body)


async def play_embedded(seed: int) -> Compared:
    """One cluster in this process."""
    async with embedded() as (transport, clock):
        return await play(seed, transport, clock, groups=True)


def seeds(first: int, number: int) -> Iterable[int]:
    """So many seeds."""
    return itertools.islice(itertools.count(first), number)
