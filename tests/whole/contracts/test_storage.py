"""Extenders that know where storage is: TopoLVM, Stork, LINSTOR, Open-Local, CSI-baremetal."""

import asyncio

import pytest

from app.settings.load import load
from tests.whole.contracts.kit import Answer, Fake, running, scheduling

pytestmark = pytest.mark.whole

GIB = 1024**3


# ---------------------------------------------------------------- TopoLVM

TOPOLVM = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: true}
extenders:
- urlPrefix: URL0
  filterVerb: predicate
  prioritizeVerb: prioritize
  nodeCacheCapable: false
  weight: 1
  managedResources:
  - {name: topolvm.io/capacity, ignoredByScheduler: true}
"""
ROOM = "capacity.topolvm.io/ssd"


class TopoLVM(Fake):
    """Reads annotations of whole nodes; its keys are in lower case; no scores, ``null``, for a pod without the
    annotation.
    """

    verbs = ("predicate", "prioritize")

    def predicate(self, call):
        if call.value["Nodes"] is None:
            return Answer("nodes are nil", 400, "text/plain")
        wanted = int(call.value["Pod"]["metadata"].get("annotations", {}).get(ROOM, 0))
        kept, failed = [], {}
        for node in call.value["Nodes"]["items"]:
            if self.room(node) >= wanted:
                kept.append(node)
            else:
                failed[node["metadata"]["name"]] = "out of VG free space"
        return {"nodes": {"items": kept}, "failedNodes": failed}

    def prioritize(self, call):
        if ROOM not in call.value["Pod"]["metadata"].get("annotations", {}):
            return None
        items = call.value["Nodes"]["items"]
        return [
            {"host": n["metadata"]["name"], "score": min(10, self.room(n) // GIB)} for n in items
        ]

    def room(self, node):
        return int(node["metadata"]["annotations"].get(ROOM, 0))


def volume_nodes(world):
    for name, gigabytes in (("small", 1), ("large", 9), ("medium", 5)):
        world.nodes([name], annotations={ROOM: str(gigabytes * GIB), "note": '\\"ö"'})


async def test_topolvm_reads_annotations_of_whole_nodes():
    topolvm = TopoLVM()
    capacity = {"topolvm.io/capacity": "1"}
    async with running(TOPOLVM, topolvm, prepare=volume_nodes) as world:
        world.pod("p", capacity, annotations={ROOM: str(4 * GIB)})
        world.pod("anywhere", capacity)
        world.pod("plain")
        assert (await world.bound(3))["p"] == "large"
        world.pod("huge", capacity, annotations={ROOM: str(20 * GIB)})
        await world.told("FailedScheduling", "3 out of VG free space")
    assert {call.pod for call in topolvm.calls} == {"p", "anywhere", "huge"}
    for call in topolvm.calls:
        assert call.value["NodeNames"] is None
        nodes = {n["metadata"]["name"]: n["metadata"] for n in call.value["Nodes"]["items"]}
        assert nodes["large"]["annotations"] == {ROOM: str(9 * GIB), "note": '\\"ö"'}
    assert topolvm.of("prioritize", "p")


# ---------------------------------------------------------------- Stork and LINSTOR

STORK = """\
apiVersion: kubescheduler.config.k8s.io/v1beta3
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  resourceNamespace: kube-system
  resourceName: stork-scheduler
profiles:
- schedulerName: stork
  plugins:
    filter:
      enabled:
      - {name: NodeUnschedulable}
      - {name: TaintToleration}
      - {name: NodeResourcesFit}
      - {name: EBSLimits}
      - {name: GCEPDLimits}
      - {name: AzureDiskLimits}
      - {name: NodeVolumeLimits}
extenders:
- urlPrefix: URL0
  filterVerb: filter
  prioritizeVerb: prioritize
  weight: 5
  enableHTTPS: false
  nodeCacheCapable: false
  httpTimeout: TIMEOUT
"""


class Stork(Fake):
    """Scores to 100 and more; what has to wait for a volume is status 400 in plain text."""

    verbs = ("filter", "prioritize")
    local = "n2"

    def __init__(self) -> None:
        super().__init__()
        self.unbound: set[str] = set()
        self.silent: set[str] = set()

    async def filter(self, call):
        if call.pod in self.silent:
            await asyncio.get_running_loop().create_future()
        if call.pod in self.unbound:
            self.unbound.discard(call.pod)
            text = "Waiting for PVC to be bound"
            return Answer(text, 400, "text/plain")
        return {"Nodes": call.value["Nodes"], "FailedNodes": None, "Error": ""}

    def prioritize(self, call):
        scores = {name: 100 if name == self.local else 10 for name in call.names}
        return [{"Host": name, "Score": score} for name, score in scores.items()]


def stork_nodes(world):
    world.nodes(["n0", "n1", "n2"])
    # So full that every plugin prefers the others.
    for number in range(10):
        world.pod(f"full-{number}", {"cpu": "6"}, nodeName="n2")


async def test_stork_outweighs_the_plugins_and_lets_pods_wait():
    stork = Stork()
    stork.unbound.add("waits")
    config = STORK.replace("TIMEOUT", "5m0s")
    async with running(config, stork, prepare=stork_nodes) as world:
        for name in ("p0", "p1", "waits"):
            world.pod(name, schedulerName="stork")
        placed = await world.bound(13)
        assert {placed[name] for name in ("p0", "p1", "waits")} == {"n2"}
        await world.told("ExtenderFailed", "Waiting for PVC to be bound")
    assert len(stork.of("filter", "waits")) == 2
    assert len(stork.of("filter", "p0")) == 1


async def test_an_answer_of_stork_that_takes_minutes_holds_up_nobody():
    stork = Stork()
    stork.silent.add("hangs")
    config = STORK.replace("TIMEOUT", "5m0s")
    async with running(config, stork, prepare=lambda w: w.nodes(["n0", "n2"])) as world:
        world.pod("first", schedulerName="stork")
        await world.bound(1)  # which shows that it does not choose a node itself
        world.pod("hangs", schedulerName="stork")
        await world.until("it is asked", lambda: stork.of("filter", "hangs"))
        for number in range(5):
            world.pod(f"p{number}", schedulerName="stork")
        assert set(await world.bound(6)) == {"first", *(f"p{number}" for number in range(5))}
        assert len(stork.of("filter", "hangs")) == 1


async def test_a_timeout_of_83_hours_does_not_keep_linstor_from_stopping():
    """The scheduler ends although a call has not been answered, and the next one schedules the pod."""
    linstor = Stork()
    linstor.silent.add("p")
    config = STORK.replace("TIMEOUT", "300000s").replace("stork", "linstor")
    (said,) = [
        w for w in load(config.replace("URL0", "http://a")).warnings if "httpTimeout" in w.path
    ]
    assert "83h20m0s" in said.message
    async with running(config, linstor, prepare=lambda w: w.nodes(["n0", "n2"])) as world:
        world.pod("p", schedulerName="linstor")
        await world.until("it is asked", lambda: linstor.of("filter"))
        began = asyncio.get_running_loop().time()
        world.stop.set()
        assert await world.task == 0
        assert asyncio.get_running_loop().time() - began < 10
        world.stop.clear()
        linstor.silent.clear()
        async with scheduling(world, config.replace("URL0", linstor.url)):
            assert await world.bound(1) == {"p": "n2"}


# ---------------------------------------------------------------- Open-Local

OPEN_LOCAL = """\
apiVersion: kubescheduler.config.k8s.io/v1beta1
kind: KubeSchedulerConfiguration
extenders:
- urlPrefix: URL0
  filterVerb: predicates
  prioritizeVerb: priorities
  preemptVerb: ""
  bindVerb: ""
  weight: 10
  enableHTTPS: false
  nodeCacheCapable: true
  ignorable: true
"""


class OpenLocal(Fake):
    """One call at a time, under a lock; nodes without storage are refused."""

    prefix = "/scheduler"
    verbs = ("predicates", "priorities")

    def __init__(self) -> None:
        super().__init__()
        self.lock = asyncio.Lock()

    async def predicates(self, call):
        async with self.lock:
            await asyncio.sleep(0.005)
            kept = [name for name in call.names if name != "bare"]
            return {"NodeNames": kept, "FailedNodes": {"bare": "no volume group"}, "Error": ""}

    async def priorities(self, call):
        async with self.lock:
            return [{"Host": name, "Score": 10 if name == "n1" else 1} for name in call.names]


async def test_open_local_with_empty_verbs_and_one_call_at_a_time():
    local = OpenLocal()
    async with running(OPEN_LOCAL, local, prepare=lambda w: w.nodes(["bare", "n0", "n1"])) as world:
        for number in range(10):
            world.pod(f"p{number}")
        assert set((await world.bound(10)).values()) == {"n1"}
    assert {call.verb for call in local.calls} == {"predicates", "priorities"}
    assert all(b'"Nodes":null' in call.body for call in local.calls)


async def test_open_local_is_ignored_while_it_is_away():
    class Away(OpenLocal):
        async def answer(self, call):
            return Answer("upstream connect error", 503, "text/plain")

    async with running(OPEN_LOCAL, Away(), prepare=lambda w: w.nodes(["bare"])) as world:
        world.pod("p")
        assert await world.bound(1) == {"p": "bare"}


# ---------------------------------------------------------------- CSI-baremetal

BAREMETAL = """\
apiVersion: kubescheduler.config.k8s.io/v1beta1
kind: KubeSchedulerConfiguration
extenders:
- urlPrefix: URL0
  filterVerb: filter
  prioritizeVerb: prioritize
  weight: 1
  enableHTTPS: false
  nodeCacheCapable: false
  ignorable: true
  httpTimeout: 15s
"""


class Baremetal(Fake):
    """Makes a reservation in the first round, and lets nodes pass once a controller has granted it."""

    verbs = ("filter", "prioritize")

    def __init__(self) -> None:
        super().__init__()
        self.reservations: dict[str, str] = {}

    def filter(self, call):
        state = self.reservations.setdefault(call.pod, "REQUESTED")
        items = call.value["Nodes"]["items"]
        if state == "REQUESTED":
            asyncio.get_running_loop().call_later(
                0.05, self.reservations.__setitem__, call.pod, "n1"
            )
            failed = dict.fromkeys(call.names, "reservation is not ready")
            return {"Nodes": {"items": []}, "FailedNodes": failed}
        kept = [node for node in items if node["metadata"]["name"] == state]
        failed = {name: "no reservation there" for name in call.names if name != state}
        return {"Nodes": {"items": kept}, "FailedNodes": failed}

    def prioritize(self, call):
        return [{"Host": name, "Score": 10} for name in call.names]


async def test_csi_baremetal_refuses_until_its_reservation_is_ready():
    baremetal = Baremetal()
    async with running(BAREMETAL, baremetal, prepare=lambda w: w.nodes(["n0", "n1"])) as world:
        world.pod("p")
        await world.told("FailedScheduling", "2 reservation is not ready")
        await world.until("a reservation", lambda: baremetal.reservations["p"] == "n1")
        # Its controller changes the node's annotations, as its agent does all the time.
        world.touch("n0", a="b")
        assert await world.bound(1) == {"p": "n1"}
    assert 2 <= len(baremetal.of("filter")) <= 3
