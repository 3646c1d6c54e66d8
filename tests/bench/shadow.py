"""``python -m tests.bench.shadow agreement``, ``... burst`` and ``... cost``: a shadow beside another scheduler; prints
JSON.

``agreement`` lets a scheduler decide mixed pods with churn, preemption, taints, volumes and devices, and reports the
shadow's classes, its lag and its requests; with ``--alone`` what the scheduler does without a shadow. ``burst`` lets it
decide a backlog, beside a shadow of the same configuration and one that packs nodes. ``cost`` compares the memory and
the CPU time of a shadow with those of a standby, and measures both at a rate of decisions.

With $KUBEBUILDER_ASSETS a real API server and its kube-scheduler are used, else the embedded cluster and this
scheduler.
"""

import asyncio
import contextlib
import dataclasses
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
import psutil
import yaml

from app.kube.client import ClientLimits, KubeClient
from app.kube.errors import Conflict, KubeApiError, NotFound
from app.kube.kubeconfig import load_connection
from app.kube.watch import watch_once
from app.tools.subprocesses import child, module
from tests.bench import devices
from tests.bench.usage import usage
from tests.bench.workload import MADE
from tests.whole.harness import Process, wait_for
from tests.whole.real import ASSETS, RealApiServer

Object = dict[str, Any]

_HOST: Final = "kubernetes.io/hostname"
_ZONE: Final = "topology.kubernetes.io/zone"
_POOL: Final = "bench/pool"
_PODS: Final = "/api/v1/namespaces/default/pods"
_CLAIMS: Final = "/api/v1/namespaces/default/persistentvolumeclaims"
_VOLUMES: Final = "/api/v1/persistentvolumes"
_CLASSES: Final = "/apis/storage.k8s.io/v1/storageclasses"
_PRIORITIES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
_RESOURCE: Final = "/apis/resource.k8s.io/v1"
_SELECTED: Final = "volume.kubernetes.io/selected-node"
_MERGE: Final = "application/merge-patch+json"
_MANIFEST: Final = Path(__file__).parents[2] / "config" / "manifests" / "shadow.yaml"
_ACCOUNT: Final = "aiokube-scheduler-shadow"
_USER: Final = f"system:serviceaccount:kube-system:{_ACCOUNT}"
_READING: Final = {"get", "list", "watch"}
#: Of the nodes, those in a pool that is full of pods of low priority.
_FULL: Final = 20
#: The first nodes have devices.
_WITH_DEVICES: Final = 100
#: Seconds of a peak, and between two.
_PEAK_SECONDS: Final = 10.0
#: Seconds for which outcomes may follow the last pod.
_AFTERWARDS: Final = 120.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is decided."""

    nodes: int
    pods: int
    rate: float
    """Pods created a second."""
    burst: int
    """Pods created together; 1 for an even rate."""
    lifetime: float
    """Seconds for which half of the bound pods live; the others stay."""
    mix: str = "hard"
    """How many pods are hard to decide: a key of ``_MIXES``."""
    peak: float = 0.0
    """Pods created a second in every other ten seconds; 0 for ``rate``."""
    existing: int = 0
    """Bound pods at the start."""
    seed: int = 1


# ------------------------------------------------------------ the cluster


class Place:
    """An API server, and the command line of the scheduler that decides."""

    def __init__(self, kubeconfig: Path, folder: Path, real: RealApiServer | None) -> None:
        self.kubeconfig: Final = kubeconfig
        self.folder: Final = folder
        self.real: Final = real
        self._shadow_kubeconfig: Path | None = None

    def scheduler(self, name: str, percentage: int, *, leader_elect: bool = False) -> list[str]:
        """The command of the scheduler that decides."""
        config = self.folder / f"{name}.yaml"
        config.write_text(self.configuration(percentage, leader_elect=leader_elect))
        if self.real is None:
            return module("app", "run", f"--config={config}", "--secure-port=0")
        return [f"{ASSETS}/kube-scheduler", f"--config={config}", "--secure-port=0"]

    def configuration(self, percentage: int, *, leader_elect: bool = False) -> str:
        document: Object = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self.kubeconfig), "qps": 5000, "burst": 5000},
            "parallelism": os.cpu_count() or 1,
            "leaderElection": {"leaderElect": leader_elect},
        }
        if percentage:
            document["percentageOfNodesToScore"] = percentage
        return yaml.safe_dump(document)

    def shadow_kubeconfig(self) -> Path:
        """Credentials with the rights of the manifest; everything on the embedded cluster, which has no rights."""
        if self.real is None:
            return self.kubeconfig
        if self._shadow_kubeconfig is not None:
            return self._shadow_kubeconfig
        call = self.real.call
        where = {
            "ServiceAccount": "/api/v1/namespaces/kube-system/serviceaccounts",
            "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        }
        for made in yaml.safe_load_all(_MANIFEST.read_text()):
            if made["kind"] in where:
                call("POST", where[made["kind"]], made)
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        told = call("POST", f"{where['ServiceAccount']}/{_ACCOUNT}/token", asked)
        self._shadow_kubeconfig = self.real.write_kubeconfig("shadow", told["status"]["token"])
        return self._shadow_kubeconfig


@contextlib.asynccontextmanager
async def _place(folder: Path) -> AsyncIterator[Place]:
    if ASSETS:
        with RealApiServer(folder).running() as real:
            yield Place(real.kubeconfig, folder, real)
        return
    kubeconfig = folder / "kubeconfig"
    command = module("app", "apiserver", "--port=0", "--no-kubelets", "--no-volumes")
    command += ["--kubeconfig-out", str(kubeconfig)]
    async with child(command, log=folder / "apiserver.log", name="the embedded cluster") as server:
        await server.wait_url()
        yield Place(kubeconfig, folder, None)


class Client:
    """Writes objects as an administrator."""

    def __init__(self, client: KubeClient) -> None:
        self.transport: Final = client

    async def call(
        self, method: str, path: str, body: Object | None = None, kind: str = "application/json"
    ) -> Object:
        data = None if body is None else json.dumps(body).encode()
        answer = await self.transport.request(method, path, body=data, content_type=kind)
        told: Object = json.loads(answer.body or b"{}")
        return told

    async def many(self, path: str, objects: Iterator[Object]) -> None:
        async def worker() -> None:
            for made in objects:
                await self.call("POST", path, made)

        async with asyncio.TaskGroup() as group:
            for _ in range(32):
                group.create_task(worker())


@contextlib.asynccontextmanager
async def _connected(place: Place) -> AsyncIterator[Client]:
    connection = load_connection(kubeconfig=str(place.kubeconfig), wall=time.time)
    async with KubeClient(
        connection, agent="bench", limits=ClientLimits(exchanges=128, timeout=120.0)
    ) as client:
        yield Client(client)


# ------------------------------------------------------------ what is decided


def _node(number: int, load: Load) -> Object:
    """Three sizes, three zones; every tenth has a taint, and some form a pool that is full."""
    name = f"node-{number:05}"
    full = number % _FULL == 7
    amounts = {
        "cpu": "4" if full else str((8, 16, 32)[number % 3]),
        "memory": f"{(32, 64, 64)[number % 3]}Gi",
        "pods": "110",
    }
    labels = {_HOST: name, _ZONE: f"zone-{number // 3 % 3}", _POOL: "full" if full else "open"}
    labels["disk"] = ("ssd", "hdd", "ssd", "none")[number % 4]
    spec: Object = {}
    if full:
        spec["taints"] = [{"key": "pool", "value": "full", "effect": "NoSchedule"}]
    elif number % 10 == 3:
        spec["taints"] = [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]
    elif number % 10 == 6:
        spec["taints"] = [{"key": "spot", "effect": "PreferNoSchedule"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def _pod(name: str, family: int, cpu: str, memory: str = "200Mi") -> Object:
    resources = {"requests": {"cpu": cpu, "memory": memory}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"app": f"app-{family}"},
        },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "registry/app:1", "resources": resources}],
        },
    }


def _kinds(common_times: int) -> list[Callable[[Object, int], None]]:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"

    def app(pod: Object) -> Object:
        return {"labelSelector": {"matchLabels": {"app": pod["metadata"]["labels"]["app"]}}}

    def plain(_pod: Object, _number: int) -> None:
        pass

    def selecting(pod: Object, _number: int) -> None:
        pod["spec"]["nodeSelector"] = {"disk": "ssd"}

    def tolerating(pod: Object, _number: int) -> None:
        pod["spec"]["tolerations"] = [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]

    def spread(pod: Object, _number: int) -> None:
        constraint = {"maxSkew": 5, "topologyKey": _ZONE, "whenUnsatisfiable": "DoNotSchedule"}
        pod["spec"]["topologySpreadConstraints"] = [constraint | app(pod)]

    def rather_apart(pod: Object, _number: int) -> None:
        term = {"weight": 10, "podAffinityTerm": {"topologyKey": _HOST, **app(pod)}}
        pod["spec"]["affinity"] = {"podAntiAffinity": {preferred: [term]}}

    def apart(pod: Object, number: int) -> None:
        pod["metadata"]["labels"]["app"] = f"apart-{number % 50}"
        term = {"topologyKey": _HOST, **app(pod)}
        pod["spec"]["affinity"] = {"podAntiAffinity": {required: [term]}}

    def zones(pod: Object, _number: int) -> None:
        where = {"key": _ZONE, "operator": "In", "values": ["zone-1", "zone-2"]}
        term = {"weight": 5, "preference": {"matchExpressions": [where]}}
        pod["spec"]["affinity"] = {"nodeAffinity": {preferred: [term]}}

    def large(pod: Object, _number: int) -> None:
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "4"

    def hopeless(pod: Object, _number: int) -> None:
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "100"

    def device(pod: Object, number: int) -> None:
        claim = {"name": "device", "resourceClaimName": f"devices-{number:06}"}
        pod["spec"]["resourceClaims"] = [claim]
        pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "device"}]

    def preempting(pod: Object, _number: int) -> None:
        pod["spec"] |= {"priorityClassName": "bench-high", "nodeSelector": {_POOL: "full"}}
        pod["spec"]["tolerations"] = [{"key": "pool", "value": "full", "effect": "NoSchedule"}]
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "900m"

    def volume(pod: Object, number: int) -> None:
        claim = {"claimName": f"claim-{number:06}"}
        pod["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": claim}]

    common = [plain] * 6 + [selecting, tolerating, spread, rather_apart, zones, large]
    rare = [spread, rather_apart, apart, volume, volume, preempting, large, device, hopeless]
    return [*common * (common_times - 1), *rare, *common]


_SIMPLE: Final = ("plain", "selecting", "tolerating", "zones", "large")
#: How often the common kinds come for each time that the rare ones do. kube-scheduler binds 100 pods a second to 5000
#: nodes only if all of them are simple.
_MIXES: Final = {
    "hard": tuple(_kinds(3)),
    "light": tuple(_kinds(12)),
    "simple": tuple(kind for kind in _kinds(12) if kind.__name__ in _SIMPLE),
}
#: Of each so many volumes, the first is made for the claim, the others are there.
_PROVISIONED: Final = 2


def _measured(number: int, mix: str) -> tuple[Object, str]:
    kinds = _MIXES[mix]
    family = number % len(kinds)
    kind = kinds[family]
    pod = _pod(f"pod-{number:06}", family, f"{(100, 250, 500)[family % 3]}m")
    kind(pod, number)
    return pod, kind.__name__


def _claim(number: int) -> Object:
    storage = {"requests": {"storage": "1Gi"}}
    name = "made" if number % _PROVISIONED else "there"
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": f"claim-{number:06}", "namespace": "default"},
        "spec": {"storageClassName": name, "accessModes": ["ReadWriteOnce"], "resources": storage},
    }


def _device_claim(number: int) -> Object:
    request = {"name": "device", "exactly": {"deviceClassName": devices.CLASS}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": f"devices-{number:06}", "namespace": "default"},
        "spec": {"devices": {"requests": [request]}},
    }


def _volume(name: str, claim: Object | None, term: Object, storage_class: str) -> Object:
    spec: Object = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "persistentVolumeReclaimPolicy": "Delete",
        "csi": {"driver": "bench", "volumeHandle": name},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
    }
    if claim is not None:
        meta = claim["metadata"]
        spec["claimRef"] = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            **{key: meta[key] for key in ("name", "namespace", "uid", "resourceVersion")},
        }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": spec,
    }


# ------------------------------------------------------------ controllers


class Cluster:
    """Creates the pods of a load, deletes some, and does what the controllers of volumes do."""

    def __init__(self, client: Client, load: Load) -> None:
        self._client: Final = client
        self._load: Final = load
        self._random: Final = random.Random(load.seed)
        self.bound: Final[dict[str, float]] = {}
        self.created: Final[dict[str, float]] = {}
        self.kinds: Final[Counter[str]] = Counter()
        self._tasks: Final[set[asyncio.Task[None]]] = set()

    async def fill(self) -> None:
        """Nodes, classes, and the pods that fill a pool."""
        load, client = self._load, self._client
        for name, value in (("bench-high", 1000), ("bench-low", 1)):
            made = {"metadata": {"name": name}, "value": value}
            await client.call("POST", _PRIORITIES, made)
        for name, how in (
            ("made", "bench.example.com/made"),
            ("there", "kubernetes.io/no-provisioner"),
        ):
            made = {
                "metadata": {"name": name},
                "provisioner": how,
                "volumeBindingMode": "WaitForFirstConsumer",
            }
            await client.call("POST", _CLASSES, made)
        labels = {MADE: "devices"}
        made = devices.device_class(labels)
        await client.call("POST", f"{_RESOURCE}/deviceclasses", made)
        some = min(load.nodes, _WITH_DEVICES)
        await client.many(f"{_RESOURCE}/resourceslices", devices.slices(some, labels))
        await client.many("/api/v1/nodes", (_node(n, load) for n in range(load.nodes)))
        volumes = sum(1 for n in range(load.pods) if _measured(n, load.mix)[1] == "volume")
        await client.many(_VOLUMES, (self._there(n) for n in range(volumes)))
        await client.many(_PODS, self._existing())

    def _there(self, number: int) -> Object:
        zone = {"key": _ZONE, "operator": "In", "values": [f"zone-{number % 3}"]}
        return _volume(f"there-{number:06}", None, zone, "there")

    def _existing(self) -> Iterator[Object]:
        number = 0
        for node in range(self._load.nodes):
            if node % _FULL != 7:
                continue
            for _ in range(4):
                pod = _pod(f"low-{number:06}", 0, "900m")
                pod["spec"] |= {"priorityClassName": "bench-low", "nodeName": f"node-{node:05}"}
                pod["spec"]["tolerations"] = [{"operator": "Exists"}]
                yield pod
                number += 1
        for number in range(self._load.existing):
            pod = _pod(f"old-{number:06}", number % 20, "100m")
            pod["spec"]["nodeName"] = f"node-{number % self._load.nodes:05}"
            yield pod

    async def create(self) -> None:
        """The pods at their rate; returns when the last one is there."""
        load = self._load
        started = time.monotonic()
        due = 0.0
        for first in range(0, load.pods, load.burst):
            ahead = started + due - time.monotonic()
            if ahead > 0:
                await asyncio.sleep(ahead)
            for number in range(first, min(first + load.burst, load.pods)):
                self._spawn("make", self._make, number)
            peaking = load.peak and int(due / _PEAK_SECONDS) % 2
            due += load.burst / (load.peak if peaking else load.rate)
        while self._tasks and any(task.get_name() == "make" for task in self._tasks):
            await asyncio.sleep(0.05)

    async def _make(self, number: int) -> None:
        pod, kind = _measured(number, self._load.mix)
        if kind == "volume":
            await self._client.call("POST", _CLAIMS, _claim(number))
        if kind == "device":
            path = f"{_RESOURCE}/namespaces/default/resourceclaims"
            await self._client.call("POST", path, _device_claim(number))
        self.kinds[kind] += 1
        name = pod["metadata"]["name"]
        self.created[name] = time.monotonic()
        await self._client.call("POST", _PODS, pod)
        if kind == "hopeless":
            self._spawn("end", self._end, name)

    def _spawn(self, name: str, work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        task = asyncio.create_task(self._guarded(work, *arguments), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @staticmethod
    async def _guarded(work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        try:
            await work(*arguments)
        except (NotFound, Conflict):
            return
        except KubeApiError as error:
            click.echo(f"the load: {error}", err=True)

    async def follow_pods(self) -> None:
        """Notes bindings, and deletes half of the pods after a while."""

        async def on(kind: str, pod: Object) -> None:
            name = pod["metadata"]["name"]
            if kind == "DELETED" or not pod["spec"].get("nodeName") or name in self.bound:
                return
            self.bound[name] = time.monotonic()
            if self._random.random() < 0.5 and name.startswith("pod-"):
                self._spawn("end", self._end, name)

        await self._follow(_PODS, on)

    async def _end(self, name: str) -> None:
        await asyncio.sleep(self._random.uniform(0.2, 2.0) * self._load.lifetime)
        await self._client.call("DELETE", f"{_PODS}/{name}")

    async def follow_claims(self) -> None:
        """Makes the volumes of claims that name a node."""

        async def on(kind: str, claim: Object) -> None:
            node = claim["metadata"].get("annotations", {}).get(_SELECTED)
            if kind != "DELETED" and node and not claim["spec"].get("volumeName"):
                self._spawn("provision", self._provision, claim, node)

        await self._follow(_CLAIMS, on)

    async def _provision(self, claim: Object, node: str) -> None:
        term = {"key": _HOST, "operator": "In", "values": [node]}
        name = f"made-{claim['metadata']['uid']}"
        volume = _volume(name, claim, term, "made")
        await self._client.call("POST", _VOLUMES, volume)

    async def follow_volumes(self) -> None:
        """Binds claims to the volumes that name them."""

        async def on(kind: str, volume: Object) -> None:
            ref = volume["spec"].get("claimRef")
            if kind != "DELETED" and ref and volume.get("status", {}).get("phase") != "Bound":
                self._spawn("bind", self._bind, volume, ref)

        await self._follow(_VOLUMES, on)

    async def _bind(self, volume: Object, ref: Object) -> None:
        claim = f"{_CLAIMS}/{ref['name']}"
        name = volume["metadata"]["name"]
        notes = {"pv.kubernetes.io/bind-completed": "yes"}
        patch: Object = {"metadata": {"annotations": notes}, "spec": {"volumeName": name}}
        await self._client.call("PATCH", claim, patch, _MERGE)
        status = {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}
        await self._client.call("PATCH", f"{claim}/status", status, _MERGE)
        await self._client.call(
            "PATCH", f"{_VOLUMES}/{name}/status", {"status": {"phase": "Bound"}}, _MERGE
        )

    async def relabel(self) -> None:
        """Taints a node and frees it again, and changes labels, until cancelled."""
        while True:
            await asyncio.sleep(1.0)
            number = self._random.randrange(self._load.nodes)
            if number % _FULL == 7 or number % 10 in {3, 6}:
                continue
            node = f"/api/v1/nodes/node-{number:05}"
            await self._client.call("PATCH", node, {"spec": {"unschedulable": True}}, _MERGE)
            await asyncio.sleep(1.0)
            await self._client.call("PATCH", node, {"spec": {"unschedulable": None}}, _MERGE)

    def watch(self) -> list[asyncio.Task[None]]:
        """Starts what goes on beside the creation of pods."""
        works = (self.follow_pods, self.follow_claims, self.follow_volumes, self.relabel)
        return [asyncio.create_task(work()) for work in works]

    async def end(self, watching: list[asyncio.Task[None]]) -> None:
        """Cancels what is under way."""
        tasks = [*watching, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    async def _follow(self, path: str, on: Callable[[str, Object], Awaitable[None]]) -> None:
        since = (await self._client.call("GET", f"{path}?limit=1"))["metadata"]["resourceVersion"]
        while True:
            params = {"resourceVersion": since, "allowWatchBookmarks": "true"}
            async with contextlib.aclosing(
                watch_once(self._client.transport, path, params, np.random.default_rng(0))
            ) as batches:
                async for lines in batches:
                    for line in lines:
                        event = json.loads(line)
                        since = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] != "BOOKMARK":
                            await on(event["type"], event["object"])

    def rates(self) -> dict[str, float]:
        """Pods bound: in all, and a second in the best second, in the best ten and on the whole."""
        times = sorted(at for name, at in self.bound.items() if name in self.created)
        if len(times) < 2:
            return {"bound": len(times)}

        def best(seconds: float) -> float:
            return max(bisect_left(times, t + seconds) - n for n, t in enumerate(times)) / seconds

        first = min(self.created.values())
        waits = sorted(self.bound[n] - at for n, at in self.created.items() if n in self.bound)
        return {
            "bound": len(times),
            "podsPerSecond": round(len(times) / (times[-1] - first), 1),
            "peakPodsPerSecond": best(10.0),
            "peakOfOneSecond": best(1.0),
            "secondsToBind50": round(waits[len(waits) // 2], 4),
            "secondsToBind99": round(waits[len(waits) * 99 // 100], 4),
        }


# ------------------------------------------------------------ a run


async def _agreement(load: Load, percentage: int, folder: Path, *, shadowed: bool) -> Object:
    async with _place(folder) as place, _connected(place) as client:
        cluster = Cluster(client, load)
        await cluster.fill()
        journal = folder / "journal"
        config = folder / "shadow.yaml"
        config.write_text(place.configuration(percentage))
        shadow = scheduler = None
        try:
            if shadowed:
                shadow = _start_shadow(place, config, journal)
            log = folder / "scheduler.log"
            async with child(place.scheduler("scheduler", percentage), log=log) as running:
                scheduler = running
                await _settled(client)
                before = _cpu(scheduler.pid, shadow)
                watching = cluster.watch()
                await asyncio.sleep(0.5)
                began = time.monotonic()
                await cluster.create()
                await _quiet(cluster, watching)
                lasted = time.monotonic() - began
                after = _cpu(scheduler.pid, shadow)
                if shadow is not None:
                    await _judged(cluster, journal)
                await cluster.end(watching)
        finally:
            if shadow is not None:
                shadow.stop()
        return _told(load, percentage, cluster, place, journal, before, after, lasted, shadow)


def _start_shadow(place: Place, config: Path, journal: Path, *more: str) -> Process:
    arguments = ["app", "shadow", f"--config={config}", f"--kubeconfig={place.shadow_kubeconfig()}"]
    arguments += [f"--journal={journal}", "--secure-port=0", "--summary-interval=5", *more]
    shadow = Process(arguments, place.folder / "shadow.log")
    wait_for("the shadow is ready", lambda: "nothing is written" in shadow.output(), 300)
    return shadow


async def _settled(client: Client) -> None:
    """Waits until the scheduler decides."""
    for number in range(3):
        await client.call("POST", _PODS, _pod(f"first-{number}", number, "10m"))
    while True:
        pods = [await client.call("GET", f"{_PODS}/first-{n}") for n in range(3)]
        if all(pod["spec"].get("nodeName") for pod in pods):
            return
        await asyncio.sleep(0.2)


async def _quiet(cluster: Cluster, watching: list[asyncio.Task[None]]) -> None:
    """Returns when no pod has been bound for a while."""
    deadline = time.monotonic() + _AFTERWARDS
    while time.monotonic() < deadline:
        for task in watching:
            if task.done():
                task.result()
        last = max(cluster.bound.values(), default=0.0)
        if time.monotonic() - max(last, *cluster.created.values()) > 8.0:
            return
        await asyncio.sleep(0.2)


async def _judged(cluster: Cluster, journal: Path) -> None:
    """Waits a while until the shadow has judged all pods that were bound."""
    deadline = time.monotonic() + _AFTERWARDS
    while _not_judged(cluster, journal) and time.monotonic() < deadline:
        await asyncio.sleep(0.5)


def _not_judged(cluster: Cluster, journal: Path) -> list[str]:
    judged = {verdict["pod"].partition("/")[2] for verdict in _verdicts(journal)}
    return sorted((cluster.bound.keys() & cluster.created.keys()) - judged)


def _cpu(scheduler: int, shadow: Process | None) -> dict[str, float]:
    found = {"scheduler": usage(scheduler).cpu}
    if shadow is not None:
        found["shadow"] = usage(shadow.pid).cpu
        found["shadowMiB"] = round(usage(shadow.pid).peak_memory / 2**20, 1)
    return found


def _told(
    load: Load,
    percentage: int,
    cluster: Cluster,
    place: Place,
    journal: Path,
    before: dict[str, float],
    after: dict[str, float],
    lasted: float,
    shadow: Process | None,
) -> Object:
    told: Object = dataclasses.asdict(load) | {
        "percentageOfNodesToScore": percentage,
        "server": "real" if place.real is not None else "embedded",
        "seconds": round(lasted, 1),
        "kinds": dict(cluster.kinds),
        **cluster.rates(),
        "schedulerCpuSeconds": round(after["scheduler"] - before["scheduler"], 2),
    }
    if shadow is None:
        return told | {"shadow": False}
    report = _report(journal)
    total = max(report["pods"], 1)
    told |= {
        "shadow": True,
        "shadowCpuSeconds": round(after["shadow"] - before["shadow"], 2),
        "shadowCpuShare": round((after["shadow"] - before["shadow"]) / lasted, 4),
        "shadowMiB": after["shadowMiB"],
        "verdicts": report["pods"],
        "verdictsPerSecond": round(report["pods"] / lasted, 1),
        "classes": {name: n for name, n in report["classes"].items() if n},
        "percent": {
            n: round(100 * report["classes"][n] / total, 3) for n in ("race", "unexplained")
        },
        "byPlugin": report["byPlugin"],
        "lagSeconds": report["lagSeconds"],
        "summary": report["summary"],
        "boundWithoutVerdict": _not_judged(cluster, journal)[:20],
    }
    if place.real is not None:
        events = place.real.audited(_USER)
        told["requests"] = dict(Counter(event["verb"] for event in events))
        told["writes"] = sum(event["verb"] not in _READING for event in events)
    return told


def _report(journal: Path) -> Object:
    arguments = ["-m", "app", "shadow", "report", f"--journal={journal}", "--output=json"]
    done = subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
    told: Object = json.loads(done.stdout)
    return told


def _verdicts(journal: Path) -> Iterator[Object]:
    for file in sorted(journal.glob("*.jsonl")):
        with file.open() as lines:
            told = (json.loads(line) for line in lines if line.endswith("\n"))
            yield from told


# ------------------------------------------------------------ a burst

#: What the second shadow of a burst has that the cluster's scheduler has not.
_PACKING: Final = {
    "schedulerName": "default-scheduler",
    "pluginConfig": [
        {
            "name": "NodeResourcesFit",
            "args": {
                "scoringStrategy": {
                    "type": "MostAllocated",
                    "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}],
                }
            },
        }
    ],
}


async def _burst(load: Load, percentage: int, folder: Path, shadows: tuple[str, ...]) -> Object:
    """The pods are there when the scheduler starts. All shadows are there before."""
    async with _place(folder) as place, _connected(place) as client:
        cluster = Cluster(client, load)
        await cluster.fill()
        told: Object = dataclasses.asdict(load) | {
            "percentageOfNodesToScore": percentage,
            "server": "real" if place.real is not None else "embedded",
        }
        with contextlib.ExitStack() as stack:
            running = {}
            for name in shadows:
                document = yaml.safe_load(place.configuration(percentage))
                if name == "packing":
                    document["profiles"] = [_PACKING]
                config = folder / f"{name}.yaml"
                config.write_text(yaml.safe_dump(document))
                running[name] = _start_shadow(place, config, folder / name)
                stack.callback(running[name].kill)
            watching = cluster.watch()
            await cluster.create()
            await asyncio.sleep(2.0)
            began = time.monotonic()
            command = place.scheduler("scheduler", percentage)
            async with child(command, log=folder / "scheduler.log"):
                await _quiet(cluster, watching)
                bound = sorted(cluster.bound.values())
                told["bound"] = len(cluster.bound.keys() & cluster.created.keys())
                told["secondsToBind"] = round(bound[-1] - began, 1)
                told["shadows"] = {
                    name: await _told_of_burst(cluster, folder / name, shadow, bound[-1])
                    for name, shadow in running.items()
                }
            await cluster.end(watching)
        return told


async def _told_of_burst(cluster: Cluster, journal: Path, shadow: Process, last: float) -> Object:
    await _judged(cluster, journal)
    report = _report(journal)
    total = max(report["pods"], 1)
    return {
        "verdicts": report["pods"],
        "boundWithoutVerdict": len(_not_judged(cluster, journal)),
        "secondsAfterTheLastBinding": round(_last_verdict(journal) - last, 1),
        "classes": {name: n for name, n in report["classes"].items() if n},
        "percent": {
            n: round(100 * report["classes"][n] / total, 3) for n in ("race", "unexplained")
        },
        "byPlugin": report["byPlugin"],
        "lagSeconds": report["lagSeconds"],
        "cpuSeconds": round(usage(shadow.pid).cpu, 2),
    }


def _last_verdict(journal: Path) -> float:
    """When the last verdict was written (monotonic)."""
    written = max(file.stat().st_mtime for file in journal.glob("*.jsonl"))
    return time.monotonic() - (time.time() - written)


# ------------------------------------------------------------ cost


class _Watched:
    """A process, and what it has used since the last look."""

    def __init__(self, pid: int) -> None:
        self._process: Final = psutil.Process(pid)
        self._cpu = self._seconds()

    def _seconds(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def look(self, seconds: float) -> Object:
        """CPU since the last look, as a share of a core, and memory."""
        before, self._cpu = self._cpu, self._seconds()
        return {
            "cpuShare": round((self._cpu - before) / seconds, 4),
            "rssMiB": round(self._process.memory_info().rss / 2**20, 1),
            "peakMiB": round(usage(self._process.pid).peak_memory / 2**20, 1),
        }


async def _cost(load: Load, percentage: int, folder: Path, idle: float) -> Object:
    async with _place(folder) as place, _connected(place) as client:
        cluster = Cluster(client, load)
        await cluster.fill()
        leader = place.scheduler("leader", percentage, leader_elect=True)
        async with child(leader, log=folder / "leader.log") as scheduler:
            await _settled(client)
            config = folder / "standby.yaml"
            config.write_text(place.configuration(percentage, leader_elect=True))
            arguments = ["app", "run", f"--config={config}", "--secure-port=0"]
            standby = Process(arguments, folder / "standby.log")
            shadow = None
            try:
                shadow = _start_shadow(place, config, folder / "journal")
                return {
                    **dataclasses.asdict(load),
                    "percentageOfNodesToScore": percentage,
                    "server": "real" if place.real is not None else "embedded",
                    **await _phases(
                        cluster, idle, scheduler.pid, standby.pid, shadow.pid, folder / "journal"
                    ),
                }
            finally:
                for process in (shadow, standby):
                    if process is not None:
                        process.kill()


async def _phases(
    cluster: Cluster, idle: float, scheduler: int, standby: int, shadow: int, journal: Path
) -> Object:
    """What the processes use while nothing happens, and while pods are decided."""
    await asyncio.sleep(5.0)
    processes = {
        "scheduler": _Watched(scheduler),
        "standby": _Watched(standby),
        "shadow": _Watched(shadow),
    }
    began = time.monotonic()
    await asyncio.sleep(idle)
    told: Object = {"idle": _looks(processes, began)}
    watching = cluster.watch()
    await asyncio.sleep(0.5)
    began = time.monotonic()
    await cluster.create()
    told["deciding"] = _looks(processes, began) | cluster.rates()
    await asyncio.sleep(
        2.0
    )  # a journal is written twice a second, an outcome is held back for less than one
    seconds, verdicts = told["deciding"]["seconds"], sum(1 for _ in _verdicts(journal))
    told["deciding"]["verdictsPerSecond"] = round(verdicts / seconds, 1)
    await cluster.end(watching)
    for phase in ("idle", "deciding"):
        standing, shadowing = told[phase]["standby"], told[phase]["shadow"]
        told[phase]["shadowPerStandby"] = {
            name: round(shadowing[name] / standing[name], 3) for name in standing if standing[name]
        }
    return told


def _looks(processes: dict[str, _Watched], began: float) -> Object:
    seconds = time.monotonic() - began
    return {"seconds": round(seconds, 1)} | {n: each.look(seconds) for n, each in processes.items()}


# ------------------------------------------------------------ command line


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True)
        yield keep.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="aiokube-scheduler-bench-") as temporary:
        yield Path(temporary)


_POSITIVE: Final = click.IntRange(min=1)
_KEEP: Final = click.option(
    "--keep", type=click.Path(path_type=Path), help="A new folder in which all files stay."
)


@click.group()
def main() -> None:
    """Measure a shadow beside another scheduler."""


@main.command(context_settings={"show_default": True})
@click.option("--nodes", type=_POSITIVE, default=1000)
@click.option("--pods", type=_POSITIVE, default=10_000)
@click.option("--rate", default=120.0, help="Pods created a second.")
@click.option("--burst", type=_POSITIVE, default=10, help="Pods created together.")
@click.option("--peak", default=0.0, help="Pods created a second in every other ten seconds.")
@click.option("--mix", type=click.Choice(list(_MIXES)), default="hard", help="Of kinds of pods.")
@click.option("--lifetime", default=20.0, help="Seconds; half of the bound pods end.")
@click.option("--percentage", default=100, help="percentageOfNodesToScore; 0 is adaptive.")
@click.option("--seed", default=1)
@click.option("--alone", is_flag=True, help="Without a shadow, to compare the throughput.")
@_KEEP
def agreement(percentage: int, alone: bool, keep: Path | None, **load: Any) -> None:
    """Let a scheduler decide, and report what a shadow of the same configuration says."""
    with _folder(keep) as folder:
        told = asyncio.run(_agreement(Load(**load), percentage, folder, shadowed=not alone))
    click.echo(json.dumps(told))


@main.command(context_settings={"show_default": True})
@click.option("--nodes", type=_POSITIVE, default=300)
@click.option("--pods", type=_POSITIVE, default=2000)
@click.option("--mix", type=click.Choice(list(_MIXES)), default="light", help="Of kinds of pods.")
@click.option("--lifetime", default=20.0, help="Seconds; half of the bound pods end.")
@click.option("--percentage", default=100, help="percentageOfNodesToScore; 0 is adaptive.")
@click.option("--existing", default=0, help="Pods that run already.")
@click.option("--seed", default=1)
@click.option("--shadow", "shadows", multiple=True, default=("same",), help="same, packing.")
@_KEEP
def burst(percentage: int, shadows: tuple[str, ...], keep: Path | None, **load: Any) -> None:
    """Let a scheduler decide pods that wait when it starts, and report what shadows say."""
    with _folder(keep) as folder:
        some = Load(**load, rate=2000.0, burst=50)
        told = asyncio.run(_burst(some, percentage, folder, shadows))
    click.echo(json.dumps(told))


@main.command(context_settings={"show_default": True})
@click.option("--nodes", type=_POSITIVE, default=5000)
@click.option("--existing", type=_POSITIVE, default=50_000, help="Pods that run already.")
@click.option("--pods", type=_POSITIVE, default=6000, help="Pods to decide.")
@click.option("--rate", default=100.0, help="Pods created a second.")
@click.option("--burst", type=_POSITIVE, default=10, help="Pods created together.")
@click.option("--peak", default=0.0, help="Pods created a second in every other ten seconds.")
@click.option("--mix", type=click.Choice(list(_MIXES)), default="hard", help="Of kinds of pods.")
@click.option("--lifetime", default=20.0, help="Seconds; half of the bound pods end.")
@click.option("--percentage", default=0, help="percentageOfNodesToScore; 0 is adaptive.")
@click.option("--idle", default=30.0, help="Seconds without a change.")
@click.option("--seed", default=1)
@_KEEP
def cost(percentage: int, idle: float, keep: Path | None, **load: Any) -> None:
    """Compare memory and CPU time with those of a standby."""
    with _folder(keep) as folder:
        told = asyncio.run(_cost(Load(**load), percentage, folder, idle))
    click.echo(json.dumps(told))


if __name__ == "__main__":
    main()
