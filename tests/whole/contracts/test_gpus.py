"""Extenders that hand out GPUs: HAMi, AWS Neuron, gpushare, Elastic GPU, gpu-admission, vgpu-manager.

They pick a device for a pod while they filter or bind, write it into the pod's annotations, and bind it themselves.
"""

import asyncio
import re
import socket
from collections import Counter

import pytest

from app.sim.resources.kinds import POD_GROUPS
from tests.shell.extender.servers import Authority, server_context
from tests.whole.contracts.kit import (
    MIB,
    Answer,
    Bucket,
    Fake,
    HungUp,
    kind,
    requested,
    running,
)

pytestmark = pytest.mark.whole

V1 = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


# ---------------------------------------------------------------- HAMi

HAMI = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: hami-scheduler
extenders:
- urlPrefix: URL0
  filterVerb: filter
  bindVerb: bind
  nodeCacheCapable: true
  weight: 1
  httpTimeout: 30s
  enableHTTPS: true
  tlsConfig: {insecure: true}
  managedResources:
  - {name: nvidia.com/gpu, ignoredByScheduler: true}
  - {name: nvidia.com/gpumem, ignoredByScheduler: true}
"""
HAMI_POD = {"schedulerName": "hami-scheduler"}
#: A node of HAMi in these tests can serve so many pods.
SLOTS = 4


class HAMi(Fake):
    """Filter picks one node and keeps a GPU of it for the pod; bind locks the node until the pod has its GPU."""

    verbs = ("filter", "bind")

    def __init__(self, *, lock_seconds: float | None = None) -> None:
        """``lock_seconds``: how long a node stays locked; None for no lock."""
        super().__init__()
        self.kept: dict[str, str] = {}
        self.lock_seconds = lock_seconds
        self.locked: set[str] = set()
        self.refused = 0

    async def filter(self, call):
        if len(call.body) > MIB:  # only so much is read
            return {"Error": "unexpected EOF"}
        if call.value["Nodes"] is not None:  # the dry run of an autoscaler
            return {"Nodes": {"items": call.value["Nodes"]["items"][:1]}}
        self.kept.pop(call.pod, None)
        used = Counter(self.kept.values())
        free = [name for name in call.names if used[name] < SLOTS]
        if not free:
            return {"FailedNodes": dict.fromkeys(call.names, "CardInsufficient")}
        # It packs: the fullest node that still has room.
        chosen = max(free, key=lambda name: (used[name], name))
        self.kept[call.pod] = chosen
        namespace = call.value["Pod"]["metadata"]["namespace"]
        await self.annotate(namespace, call.pod, **{"hami.io/vgpu-node": chosen})
        return {"NodeNames": [chosen]}

    async def bind(self, call):
        node = call.value["Node"]
        if self.lock_seconds is None:
            return {"Error": await self.bind_pod(call)}
        if node in self.locked:
            self.refused += 1
            return {"Error": f"node {node} has been locked within 5m0s: node lock contention"}
        self.locked.add(node)
        error = await self.bind_pod(call)
        asyncio.get_running_loop().call_later(self.lock_seconds, self.locked.discard, node)
        return {"Error": error}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return server_context(tmp_path_factory.mktemp("tls"), Authority().issue("hami", "127.0.0.1"))


def only_names(fake):
    """No request had whole nodes, which HAMi would take for an autoscaler's dry run, and reserve nothing."""
    asked = fake.of("filter")
    assert asked
    assert all(b'"Nodes":null' in call.body and call.names for call in asked)


async def test_hami_keeps_one_node_for_a_pod_and_binds_it(certificate):
    hami = HAMi()
    async with running(
        HAMI, hami, tls=certificate, prepare=lambda w: w.nodes(["a", "b", "c"])
    ) as world:
        for number in range(3 * SLOTS):
            world.pod(f"p{number}", {"nvidia.com/gpu": "1"}, **HAMI_POD)
        world.pod("plain", **HAMI_POD)
        placed = await world.bound(3 * SLOTS + 1)
        placed.pop("plain")
        assert placed == hami.kept
        assert set(Counter(placed.values()).values()) == {SLOTS}
        assert world.get("p0")["metadata"]["annotations"]["hami.io/vgpu-node"] == placed["p0"]
    only_names(hami)
    assert len(hami.of("bind")) == len(hami.of("filter")) == 3 * SLOTS


async def test_hami_refuses_while_a_node_is_locked(certificate):
    hami = HAMi(lock_seconds=0.1)
    config = HAMI + "podMaxBackoffSeconds: 1\n"
    async with running(
        config, hami, tls=certificate, prepare=lambda w: w.nodes(["a", "b"])
    ) as world:
        for number in range(2 * SLOTS):
            world.pod(f"p{number}", {"nvidia.com/gpu": "1"}, **HAMI_POD)
        placed = await world.bound(2 * SLOTS)
        assert set(Counter(placed.values()).values()) == {SLOTS}
        assert placed == hami.kept
    only_names(hami)


async def test_hami_keeps_nothing_for_a_shadow(certificate):
    """Whole nodes are a dry run to it: it names a node, and gives it to nobody."""
    hami = HAMi()
    dry = "dryRun: {filterVerb: filter, nodeCacheCapable: false}"
    shadow = f"extenders:\n- {{urlPrefix: URL0, shadow: true, {dry}}}\n"
    config = HAMI.replace("  bindVerb: bind\n", "").replace("ignoredByScheduler: true", "")
    nodes = lambda w: w.nodes(["a", "b"], resources={"nvidia.com/gpu": "4"})  # noqa: E731
    async with running(config, hami, tls=certificate, extension=shadow, prepare=nodes) as world:
        world.pod("p", {"nvidia.com/gpu": "1"}, **HAMI_POD)
        await world.bound(1)
        await world.until("the shadow was asked", lambda: hami.of("filter"))
        assert "hami.io/vgpu-node" not in world.get("p")["metadata"].get("annotations", {})
    assert all(call.value["Nodes"]["items"] for call in hami.of("filter"))
    assert hami.kept == {}


async def test_hami_gets_no_nodes_when_a_call_is_repeated(certificate):
    """Its first answers get lost, and it says no once."""

    class Restarting(HAMi):
        async def filter(self, call):
            if len(self.calls) == 1:
                raise HungUp
            if len(self.calls) == 2:
                return {"FailedNodes": dict.fromkeys(call.names, "CardInsufficient")}
            return await super().filter(call)

    hami = Restarting()
    async with running(HAMI, hami, tls=certificate, prepare=lambda w: w.nodes(["a"])) as world:
        world.pod("p", {"nvidia.com/gpu": "1"}, **HAMI_POD)
        await world.told("FailedScheduling", "CardInsufficient")
        world.nodes(["b"])
        assert await world.bound(1) == hami.kept
    assert len(hami.of("filter")) >= 3
    only_names(hami)


@pytest.mark.parametrize("group_verb", ["", "group"])
async def test_hami_gets_no_nodes_with_gangs(certificate, group_verb):
    """With a groupVerb, which HAMi answers with 404, the gang is not scheduled, and nothing has whole nodes."""
    hami = HAMi()
    extension = "extenders:\n- {urlPrefix: URL0, groupVerb: group}\n" if group_verb else ""
    async with running(
        HAMI,
        hami,
        tls=certificate,
        extension=extension,
        prepare=lambda w: w.nodes(["a"]),
        gangs=True,
    ) as world:
        gang = {"schedulingPolicy": {"gang": {"minCount": 3}}}
        group = {"metadata": {"name": "g", "namespace": "default"}, "spec": gang}
        world.cluster.api.create(world.cluster.api.kinds.by_storage[POD_GROUPS], "default", group)
        for number in range(3):
            member = {"schedulingGroup": {"podGroupName": "g"}, **HAMI_POD}
            world.pod(f"p{number}", {"nvidia.com/gpu": "1"}, **member)
        if group_verb:
            await world.until("the group verb", lambda: hami.of("group"))
            await world.told("FailedScheduling", "404")
            assert not world.placed()
        else:
            assert await world.bound(3) == hami.kept
    if not group_verb:
        only_names(hami)
    for call in hami.calls:
        assert not re.search(rb'"(Nodes|items)":[^n]', call.body)


async def test_hami_reads_one_mebibyte(certificate):
    """What it answers then is what users see, and the next pod that is asked about fewer nodes is scheduled."""
    hami = HAMi()
    long = [f"{number:04}-" + "n" * 58 + ("." + "n" * 60) * 3 for number in range(4400)]
    config = HAMI + "percentageOfNodesToScore: 100\n"
    async with running(
        config, hami, tls=certificate, prepare=lambda w: w.nodes([*long, "short"])
    ) as world:
        world.pod("p", {"nvidia.com/gpu": "1"}, **HAMI_POD)
        await world.told("FailedScheduling", "unexpected EOF")
        world.pod(
            "q",
            {"nvidia.com/gpu": "1"},
            nodeSelector={"kubernetes.io/hostname": "short"},
            **HAMI_POD,
        )
        assert await world.bound(1) == {"q": "short"}
    only_names(hami)
    assert max(len(call.body) for call in hami.of("filter", "p")) > MIB


# ---------------------------------------------------------------- AWS Neuron

NEURON = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: my-scheduler
extenders:
- urlPrefix: URL0
  filterVerb: filter
  bindVerb: bind
  enableHTTPS: false
  nodeCacheCapable: true
  managedResources:
  - {name: aws.amazon.com/neuron, ignoredByScheduler: false}
  - {name: aws.amazon.com/neuroncore, ignoredByScheduler: false}
  - {name: aws.amazon.com/neurondevice, ignoredByScheduler: false}
  ignorable: false
leaderElection:
  leaderElect: true
  resourceNamespace: kube-system
  resourceName: my-scheduler
"""
CORE = "aws.amazon.com/neuroncore"


class Neuron(Fake):
    """Hands out cores that follow one another; crashes without NodeNames."""

    verbs = ("filter", "bind")
    cores = 8

    def __init__(self) -> None:
        super().__init__()
        self.taken: dict[str, dict[int, str]] = {}
        self.wanted: dict[str, int] = {}

    def filter(self, call):
        if call.value["NodeNames"] is None:
            raise HungUp
        self.wanted[call.pod] = wanted = requested(call.value["Pod"], CORE)
        kept = [name for name in call.names if self.room(name, wanted) is not None]
        failed = {name: "not enough contiguous cores" for name in call.names if name not in kept}
        return {"NodeNames": kept, "FailedNodes": failed, "Error": ""}

    async def bind(self, call):
        node, wanted = call.value["Node"], self.wanted[call.pod]
        first = self.room(node, wanted)
        if first is None:
            return {"Error": "no contiguous cores left"}
        cores = range(first, first + wanted)
        self.taken.setdefault(node, {}).update(dict.fromkeys(cores, call.pod))
        ids = ",".join(map(str, cores))
        await self.annotate("default", call.pod, NEURON_CORE_IDS=ids)
        return {"Error": await self.bind_pod(call)}

    def room(self, node, wanted):
        taken = self.taken.get(node, {})
        starts = range(self.cores - wanted + 1)
        return next((s for s in starts if not any(c in taken for c in range(s, s + wanted))), None)


async def test_neuron_hands_out_contiguous_cores():
    neuron = Neuron()
    nodes = lambda w: w.nodes(["trn-0", "trn-1"], resources={CORE: "8"})  # noqa: E731
    async with running(NEURON, neuron, prepare=nodes, elect=True) as world:
        for number, cores in enumerate(["4", "4", "2", "2", "2", "2"]):
            world.pod(f"p{number}", {CORE: cores}, schedulerName="my-scheduler")
        world.pod("plain", schedulerName="my-scheduler")
        placed = await world.bound(7)
        lease = world.cluster.api.get(kind("Lease"), "kube-system", "my-scheduler").value
        assert lease["spec"]["holderIdentity"]
        for name in (f"p{number}" for number in range(6)):
            ids = [
                int(c)
                for c in world.get(name)["metadata"]["annotations"]["NEURON_CORE_IDS"].split(",")
            ]
            assert ids == list(range(ids[0], ids[0] + len(ids)))
            assert all(neuron.taken[placed[name]][core] == name for core in ids)
    assert sum(len(each) for each in neuron.taken.values()) == 16
    assert not [call for call in neuron.calls if call.pod == "plain"]


# ---------------------------------------------------------------- gpushare and Elastic GPU

GPUSHARE = """\
apiVersion: kubescheduler.config.k8s.io/v1beta2
kind: KubeSchedulerConfiguration
extenders:
- urlPrefix: URL0
  filterVerb: filter
  bindVerb: bind
  enableHTTPS: false
  nodeCacheCapable: true
  managedResources:
  - {name: aliyun.com/gpu-mem, ignoredByScheduler: false}
  ignorable: false
"""
MEMORY = "aliyun.com/gpu-mem"


class GPUShare(Fake):
    """Picks the GPU in bind, with two requests to the API server; a failure of bind is status 500 with JSON."""

    prefix = "/gpushare-scheduler"
    verbs = ("filter", "bind")
    gpus, memory = 4, 16

    def __init__(self, *, limiter: Bucket | None = None) -> None:
        super().__init__()
        self.limiter = limiter
        self.used: Counter[tuple[str, int]] = Counter()
        self.wanted: dict[str, int] = {}
        #: Pods whose first binding fails.
        self.conflicts: set[str] = set()

    def filter(self, call):
        self.wanted[call.pod] = wanted = requested(call.value["Pod"], MEMORY)
        kept = [name for name in call.names if self.gpu(name, wanted) is not None]
        failed = {
            name: "insufficient GPU Memory in one device" for name in call.names if name not in kept
        }
        return {"Nodes": None, "NodeNames": kept, "FailedNodes": failed, "Error": ""}

    async def bind(self, call):
        node, wanted = call.value["Node"], self.wanted[call.pod]
        gpu = self.gpu(node, wanted)
        if gpu is None or call.pod in self.conflicts:
            self.conflicts.discard(call.pod)
            return Answer({"Error": "the object has been modified; please apply your changes"}, 500)
        self.used[node, gpu] += wanted
        await self.annotate("default", call.pod, ALIYUN_COM_GPU_MEM_IDX=str(gpu))
        error = await self.bind_pod(call)
        return Answer({"Error": error}, 500 if error else 200)

    def gpu(self, node, wanted):
        fitting = [g for g in range(self.gpus) if self.used[node, g] + wanted <= self.memory]
        return max(fitting, key=lambda g: self.used[node, g], default=None)


async def test_gpushare_is_limited_to_five_requests_a_second():
    gpushare = GPUShare(limiter=Bucket())
    nodes = lambda w: w.nodes([f"n{i}" for i in range(4)], resources={MEMORY: "64"})  # noqa: E731
    async with running(GPUSHARE, gpushare, prepare=nodes) as world:
        for number in range(12):
            world.pod(f"p{number:02}", {MEMORY: "8"})
        placed = await world.bound(12)
        for name in placed:
            gpu = int(world.get(name)["metadata"]["annotations"]["ALIYUN_COM_GPU_MEM_IDX"])
            assert gpushare.used[placed[name], gpu]
        assert not list(world._events("FailedScheduling", ""))
    assert max(gpushare.used.values()) <= gpushare.memory
    assert Counter(call.pod for call in gpushare.of("bind")) == dict.fromkeys(placed, 1)
    assert all(b'"Nodes":null' in call.body for call in gpushare.of("filter"))


async def test_gpushare_answers_500_and_the_reason_is_shown():
    gpushare = GPUShare()
    gpushare.conflicts.add("p")
    nodes = lambda w: w.nodes(["n"], resources={MEMORY: "64"})  # noqa: E731
    async with running(GPUSHARE, gpushare, prepare=nodes) as world:
        world.pod("p", {MEMORY: "16"})
        await world.bound(1)
        await world.told("FailedScheduling", "failed bind with extender at URL")
        await world.told("ExtenderFailed", "the object has been modified")
    assert len(gpushare.of("bind", "p")) == 2


ELASTIC = """\
apiVersion: kubescheduler.config.k8s.io/v1beta2
kind: KubeSchedulerConfiguration
extenders:
- urlPrefix: URL0
  filterVerb: filter
  prioritizeVerb: priorities
  bindVerb: bind
  weight: 1
  enableHTTPS: false
  nodeCacheCapable: true
  managedResources:
  - name: elasticgpu.io/gpu-memory
  - name: elasticgpu.io/gpu-core
  ignorable: false
"""


class ElasticGPU(GPUShare):
    """As gpushare, and scores: the node with the least room first."""

    prefix = "/scheduler"
    verbs = ("filter", "bind", "priorities")

    def priorities(self, call):
        return [{"Host": n, "Score": 10 if n == "n2" else 0} for n in call.names]

    def filter(self, call):
        self.wanted[call.pod] = requested(call.value["Pod"], "elasticgpu.io/gpu-memory")
        return {"NodeNames": call.names, "FailedNodes": {}}


async def test_elastic_gpu_scores_and_binds():
    elastic = ElasticGPU()
    elastic.conflicts.add("p1")
    resources = {"elasticgpu.io/gpu-memory": "64"}
    async with running(
        ELASTIC, elastic, prepare=lambda w: w.nodes(["n1", "n2", "n3"], resources=resources)
    ) as world:
        for number in range(3):
            world.pod(f"p{number}", {"elasticgpu.io/gpu-memory": "8"})
        assert set((await world.bound(3)).values()) == {"n2"}
    assert [len(elastic.of("bind", f"p{number}")) for number in range(3)] == [1, 2, 1]


# ---------------------------------------------------------------- gpu-admission

ADMISSION = """\
{
  "kind": "Policy",
  "apiVersion": "v1",
  "predicates": [
    {"name": "PodFitsHostPorts"},
    {"name": "PodFitsResources"},
    {"name": "NoDiskConflict"},
    {"name": "MatchNodeSelector"},
    {"name": "HostName"}
  ],
  "priorities": [
    {"name": "BalancedResourceAllocation", "weight": 1},
    {"name": "ServiceSpreadingPriority", "weight": 1}
  ],
  "extenders": [
    {"urlPrefix": "URL0", "filterVerb": "filter", "nodeCacheCapable": true},
    {
      "urlPrefix": "URL1",
      "apiVersion": "v1beta1",
      "filterVerb": "predicates",
      "enableHttps": false,
      "nodeCacheCapable": false
    }
  ],
  "hardPodAffinitySymmetricWeight": 10,
  "alwaysCheckAllPredicates": false
}
"""


class Racks(Fake):
    """An extender before it that leaves out a node."""

    verbs = ("filter",)

    def filter(self, call):
        failed = {"n1": "wrong rack"}
        return {"NodeNames": [n for n in call.names if n != "n1"], "FailedNodes": failed}


class GPUAdmission(Fake):
    """Chooses exactly one node, patches the pod, and fails if it is asked about it again."""

    prefix = "/scheduler"
    verbs = ("predicates",)

    def __init__(self) -> None:
        super().__init__()
        self.chosen: dict[str, str] = {}

    async def predicates(self, call):
        if call.pod in self.chosen:
            return {"error": f"pod {call.pod} had been predicated!"}
        items = call.value["Nodes"]["items"]
        used = Counter(self.chosen.values())
        node = min(items, key=lambda each: used[each["metadata"]["name"]])
        self.chosen[call.pod] = node["metadata"]["name"]
        await self.annotate("default", call.pod, **{"tencent.com/gpu-assigned": "false"})
        failed = {n: "not chosen" for n in call.names if n != self.chosen[call.pod]}
        return {"nodes": {"items": [node]}, "failedNodes": failed}


async def test_gpu_admission_is_the_last_and_is_asked_once_about_a_pod():
    racks, admission = Racks(), GPUAdmission()
    async with running(
        ADMISSION, racks, admission, prepare=lambda w: w.nodes(["n0", "n1", "n2"])
    ) as world:
        for number in range(6):
            world.pod(f"p{number}")
        assert await world.bound(6) == admission.chosen
    assert Counter(admission.chosen.values()) == {"n0": 3, "n2": 3}
    assert len(racks.of("filter")) == len(admission.of("predicates")) == 6
    assert all("n1" not in call.names for call in admission.calls)
    assert all(b'"NodeNames":null' in call.body for call in admission.calls)


# ---------------------------------------------------------------- vgpu-manager

VGPU = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  resourceName: vgpu-scheduler
  resourceNamespace: kube-system
profiles:
- schedulerName: vgpu-scheduler
extenders:
- urlPrefix: URL0
  filterVerb: filter
  bindVerb: bind
  preemptVerb: preempt
  nodeCacheCapable: true
  httpTimeout: 30s
  managedResources:
  - {name: nvidia.com/vgpu-number, ignoredByScheduler: true}
"""
VGPU_POD = {"schedulerName": "vgpu-scheduler"}


class VGPUManager(Fake):
    """One filter at a time, which keeps one node; nothing until it is ready and its own scheduler leads."""

    prefix = "/scheduler"
    verbs = ("filter", "bind", "preempt")
    slots = 2

    def __init__(self) -> None:
        super().__init__()
        self.lock = asyncio.Lock()
        self.kept: dict[str, str] = {}
        self.not_ready = 2

    async def answer(self, call):
        lease = self.cluster.api.find(kind("Lease"), "kube-system", "vgpu-scheduler")
        holder = lease.value["spec"]["holderIdentity"] if lease else ""
        self.not_ready -= 1
        if self.not_ready >= 0 or not holder.startswith(socket.gethostname()):
            return Answer("not ready", 503, "text/plain")
        if len(call.body) > 7 * MIB:
            return Answer("http: request body too large", 413, "text/plain")
        return await super().answer(call)

    async def filter(self, call):
        async with self.lock:
            self.most["locked"] = max(self.most["locked"], 1)
            self.kept.pop(call.pod, None)
            used = Counter(self.kept.values())
            free = [n for n in call.names if used[n] < self.slots]
            if not free:
                return {"NodeNames": [], "FailedNodes": dict.fromkeys(call.names, "no vGPU left")}
            self.kept[call.pod] = free[0]
            await self.annotate("default", call.pod, **{"nvidia.com/predicate-node": free[0]})
            return {"NodeNames": free[:1]}

    async def bind(self, call):
        if self.kept.get(call.pod) != call.value["Node"]:
            return {"Error": "predicate node does not match"}
        return {"Error": await self.bind_pod(call)}

    def preempt(self, call):
        """Agrees, and frees what the victims of the first node have."""
        victims = call.value["NodeNameToMetaVictims"]
        assert call.value["NodeNameToVictims"] is None
        return {"NodeNameToMetaVictims": victims}


async def test_vgpu_manager_follows_the_lease_and_agrees_to_preemption():
    vgpu = VGPUManager()
    async with running(VGPU, vgpu, prepare=lambda w: w.nodes(["n0", "n1"]), elect=True) as world:
        for number in range(4):
            world.pod(f"p{number}", {"nvidia.com/vgpu-number": "1"}, **VGPU_POD)
        placed = await world.bound(4)
        assert placed == vgpu.kept
        assert set(Counter(placed.values()).values()) == {2}
        await world.told("FailedScheduling", "code 503")
        # Nodes without room for the pod itself: the scheduler asks whether it may evict.
        world.cluster.api.create(
            kind("PriorityClass"), "", {"metadata": {"name": "high"}, "value": 1000}
        )
        world.pod(
            "big",
            {"nvidia.com/vgpu-number": "1", "cpu": "63950m"},
            priorityClassName="high",
            **VGPU_POD,
        )
        asked = await world.until("preempt", lambda: vgpu.of("preempt", "big"))
        victims = asked[0].value["NodeNameToMetaVictims"]
        assert set(victims) <= {"n0", "n1"}
        uids = {world.get(name)["metadata"]["uid"] for name in placed}
        for meta in victims.values():
            assert {pod["UID"] for pod in meta["Pods"]} <= uids
    assert len(vgpu.of("bind")) == 4
