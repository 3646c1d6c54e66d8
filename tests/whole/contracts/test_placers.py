"""Extenders that place workloads: Intel TAS and GAS, k8s-spark-scheduler, TiDB, HiveD."""

import asyncio
from collections import Counter

import pytest

from tests.shell.extender.servers import Authority, server_context
from tests.whole.contracts.kit import Answer, Fake, HungUp, kind, requested, running

pytestmark = pytest.mark.whole


# ---------------------------------------------------------------- Intel TAS and GAS

INTEL = """\
apiVersion: kubescheduler.config.k8s.io/v1beta2
kind: KubeSchedulerConfiguration
extenders:
- urlPrefix: URL0
  filterVerb: filter
  prioritizeVerb: prioritize
  weight: 1
  enableHTTPS: true
  nodeCacheCapable: TAS_NAMES
  ignorable: true
  managedResources:
  - {name: telemetry/scheduling, ignoredByScheduler: true}
  tlsConfig: {insecure: false, certFile: CLIENT_CERT, keyFile: CLIENT_KEY}
- urlPrefix: URL1
  filterVerb: filter
  bindVerb: bind
  enableHTTPS: true
  nodeCacheCapable: true
  ignorable: false
  managedResources:
  - {name: gpu.intel.com/i915, ignoredByScheduler: true}
  tlsConfig: {insecure: false, certFile: CLIENT_CERT, keyFile: CLIENT_KEY}
"""


class Intel(Fake):
    """Both want exactly this Content-Type, and have few bytes for headers."""

    prefix = "/scheduler"

    async def answer(self, call):
        length = sum(len(k) + len(v) + 4 for k, v in call.headers.items())
        if call.headers["Content-Type"] != "application/json" or length > 1000:
            return Answer("", 404, "text/plain")
        return await super().answer(call)


class TAS(Intel):
    """Telemetry Aware Scheduling: wants whole nodes; its list of names ends with an empty one."""

    verbs = ("filter", "prioritize")

    def filter(self, call):
        if "telemetry-policy" not in call.value["Pod"]["metadata"].get("labels", {}):
            return Answer(None, 404)
        items = call.value["Nodes"]["items"]
        kept = [node for node in items if node["metadata"]["name"] != "hot"]
        names = [node["metadata"]["name"] for node in kept]
        failed = {name: "Node violates" for name in call.names if name not in names}
        return {
            "Nodes": {"items": kept},
            "NodeNames": [*names, ""],
            "FailedNodes": failed,
            "Error": "",
        }

    def prioritize(self, call):
        return [{"Host": name, "Score": 10 - i} for i, name in enumerate(sorted(call.names))]


class GAS(Intel):
    """GPU Aware Scheduling: names; errors are 404 with JSON; one lock around everything."""

    verbs = ("filter", "bind")

    def __init__(self) -> None:
        super().__init__()
        self.lock = asyncio.Lock()
        self.used: Counter[str] = Counter()

    async def filter(self, call):
        async with self.lock:
            if not call.value["NodeNames"]:
                text = "No nodes to compare. This should not happen, perhaps the extender is misconfigured"
                return Answer({"Error": text}, 404)
            kept = [name for name in call.names if self.used[name] < 2]
            failed = dict.fromkeys(set(call.names) - set(kept), "will exceed GPU capacity")
            return {"NodeNames": kept, "FailedNodes": failed, "Error": ""}

    async def bind(self, call):
        async with self.lock:
            node = call.value["Node"]
            if self.used[node] >= 2:
                return Answer({"Error": "will not fit"}, 404)
            self.used[node] += 1
            await self.annotate("default", call.pod, **{"gas-container-cards": "card0"})
            return {"Error": await self.bind_pod(call)}


@pytest.fixture(scope="module")
def mutual(tmp_path_factory):
    """A context that wants client certificates, and the words of the file."""
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority()
    cert, key = authority.issue("client")
    (folder / "client.crt").write_bytes(cert)
    (folder / "client.key").write_bytes(key)
    context = server_context(folder, authority.issue("tas", "127.0.0.1"), clients_from=authority)
    return context, {
        "CLIENT_CERT": str(folder / "client.crt"),
        "CLIENT_KEY": str(folder / "client.key"),
    }


async def test_intel_tas_and_gas_in_one_chain(mutual):
    context, words = mutual
    tas, gas = TAS(), GAS()
    policy = {"telemetry-policy": "cool"}
    telemetry, gpu = {"telemetry/scheduling": "1"}, {"gpu.intel.com/i915": "1"}
    async with running(
        INTEL,
        tas,
        gas,
        tls=context,
        prepare=lambda w: w.nodes(["a", "b", "hot"]),
        TAS_NAMES="false",
        **words,
    ) as world:
        for number in range(4):
            world.pod(f"both{number}", telemetry | gpu, labels=policy)
        world.pod("cool", telemetry, labels=policy)
        world.pod("lawless", telemetry)
        world.pod("plain")
        await world.bound(7)
        # Earlier it could take one of the four places on a and b, and a pod that may not go to hot would wait for ever.
        world.pod("gpu", gpu)
        placed = await world.bound(8)
        assert all(placed[name] != "hot" for name in placed if name.startswith(("both", "cool")))
        assert placed["cool"] == "a"
        assert placed["gpu"] == "hot"
    assert {call.pod for call in gas.of("bind")} == {"gpu", *(f"both{n}" for n in range(4))}
    assert not {"plain", "cool", "lawless"} & {call.pod for call in gas.calls}
    # Who may be ignored comes last: TAS is asked about what GAS leaves.
    full = [call for call in tas.of("filter") if "a" not in call.names]
    assert {call.pod for call in full} <= {f"both{n}" for n in range(4)}
    assert [call.pod for call in gas.of("bind") if call.value["Node"] == "hot"] == ["gpu"]
    assert all("hot" not in call.names for call in tas.of("prioritize") if call.pod != "lawless")
    assert all(call.value["NodeNames"] is None for call in tas.calls)
    assert all(call.value["Nodes"] is None for call in gas.of("filter"))


# ---------------------------------------------------------------- k8s-spark-scheduler

SPARK = """\
{
  "kind": "Policy",
  "apiVersion": "v1",
  "extenders": [
    {
      "urlPrefix": "URL0",
      "filterVerb": "predicates",
      "nodeCacheCapable": true,
      "ignorable": false,
      "httpTimeout": 30000000000,
      "enableHttps": true,
      "tlsConfig": {"insecure": true}
    }
  ]
}
"""


class Spark(Fake):
    """Reserves nodes for a driver with its executors, drivers in the order of their creation; crashes without names."""

    prefix = "/spark-scheduler"
    verbs = ("predicates",)
    room = 4

    def __init__(self) -> None:
        super().__init__()
        self.kept: Counter[str] = Counter()
        self.reserved: dict[str, list[str]] = {}
        self.drivers: list[str] = []
        self.given: dict[str, str] = {}

    def predicates(self, call):
        if call.value["NodeNames"] is None:
            raise HungUp
        meta = call.value["Pod"]["metadata"]
        app, role = meta["labels"]["spark-app-id"], meta["labels"]["spark-role"]
        if call.pod in self.given:
            return {"NodeNames": [self.given[call.pod]]}
        if role == "executor":
            free = self.reserved.get(app)
            if not free:
                return {
                    "FailedNodes": dict.fromkeys(
                        call.names, "application has no reserved resources"
                    )
                }
            self.given[call.pod] = free.pop()
            return {"NodeNames": [self.given[call.pod]]}
        wanted = 1 + int(meta["annotations"]["spark-executor-count"])
        free = [name for name in sorted(call.names) for _ in range(self.room - self.kept[name])]
        if len(free) < wanted:
            return {
                "FailedNodes": dict.fromkeys(call.names, "application does not fit to the cluster")
            }
        first, *others = free[:wanted]
        self.kept.update(free[:wanted])
        self.reserved[app] = others
        self.drivers.append(call.pod)
        self.given[call.pod] = first
        return {"NodeNames": [first]}


async def test_spark_drivers_first_and_executors_where_they_are_reserved(tmp_path):
    spark = Spark()
    tls = server_context(tmp_path, Authority().issue("localhost", "127.0.0.1"))
    async with running(
        SPARK, spark, tls=tls, prepare=lambda w: w.nodes(["n0", "n1", "n2"])
    ) as world:
        for app in ("a", "b", "c"):
            labels = {"spark-app-id": app, "spark-role": "driver"}
            world.pod(f"{app}-driver", labels=labels, annotations={"spark-executor-count": "3"})
        await world.bound(3)
        assert spark.drivers == ["a-driver", "b-driver", "c-driver"]
        for app in ("c", "a", "b"):
            for number in range(3):
                labels = {"spark-app-id": app, "spark-role": "executor"}
                world.pod(f"{app}-{number}", labels=labels)
        assert await world.bound(12) == spark.given
        labels = {"spark-app-id": "d", "spark-role": "executor"}
        world.pod("stray", labels=labels)
        await world.told("FailedScheduling", "3 application has no reserved resources")
    assert set(spark.kept.values()) == {4}
    assert Counter(call.pod for call in spark.calls if call.pod != "stray") == dict.fromkeys(
        spark.given, 1
    )


# ---------------------------------------------------------------- TiDB

TIDB = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
profiles:
- schedulerName: tidb-scheduler
extenders:
- urlPrefix: URL0
  filterVerb: filter
  preemptVerb: preempt
  weight: 1
  httpTimeout: 30s
  enableHTTPS: false
"""


class TiDB(Fake):
    """Spreads the members of a store; agrees to preemption only where it would let the pod run."""

    prefix = "/scheduler"
    verbs = ("filter", "preempt")

    def filter(self, call):
        nodes = [n for n in call.value["Nodes"]["items"] if n["metadata"]["name"] != "taken"]
        failed = {name: "a member runs there" for name in call.names if name == "taken"}
        return {
            "Nodes": {"metadata": {}, "items": nodes},
            "NodeNames": None,
            "FailedNodes": failed,
            "Error": "",
        }

    def preempt(self, call):
        victims = call.value["NodeNameToVictims"]
        agreed = {
            node: {
                "Pods": [{"UID": pod["metadata"]["uid"]} for pod in each["Pods"]],
                "NumPDBViolations": each["NumPDBViolations"],
            }
            for node, each in victims.items()
            if node != "taken"
        }
        return {"NodeNameToMetaVictims": agreed}


def high(world):
    world.cluster.api.create(
        kind("PriorityClass"), "", {"metadata": {"name": "high"}, "value": 1000}
    )


async def test_tidb_has_a_say_in_preemption():
    def prepare(world):
        high(world)
        world.nodes(["free", "taken"])
        for node in ("free", "taken"):
            for number in range(2):
                world.pod(
                    f"{node}-{number}", {"cpu": "31"}, nodeName=node, schedulerName="tidb-scheduler"
                )

    tidb = TiDB()
    async with running(TIDB, tidb, prepare=prepare) as world:
        world.pod("p", {"cpu": "30"}, priorityClassName="high", schedulerName="tidb-scheduler")
        await world.until("nominated", lambda: world.get("p")["status"].get("nominatedNodeName"))
        assert world.get("p")["status"]["nominatedNodeName"] == "free"
        await world.until("evicted", lambda: victims_of(world))
        assert all(name.startswith("free-") for name in victims_of(world))
        world.remove(*victims_of(world))
        assert (await world.bound(4))["p"] == "free"
    (asked,) = tidb.of("preempt")
    assert set(asked.value["NodeNameToVictims"]) == {"free", "taken"}
    assert asked.value["NodeNameToMetaVictims"] is None
    for each in asked.value["NodeNameToVictims"].values():
        assert all(pod["spec"]["nodeName"] for pod in each["Pods"])


def victims_of(world):
    """The pods that are being evicted."""
    return [name for name in world.placed() if "deletionTimestamp" in world.get(name)["metadata"]]


# ---------------------------------------------------------------- HiveD

HIVED = """\
apiVersion: v1
kind: Policy
extenders:
- urlPrefix: URL0
  filterVerb: filter
  preemptVerb: preempt
  bindVerb: bind
  enableHttps: false
  httpTimeout: 5000000000
  nodeCacheCapable: true
  ignorable: false
  managedResources:
  - name: hivedscheduler.microsoft.com/pod-scheduling-enable
    ignoredByScheduler: true
"""
ENABLED = {"hivedscheduler.microsoft.com/pod-scheduling-enable": "1"}


class HiveD(Fake):
    """A gang of its own: lets nobody pass until all are there; evicts when asked; binds with an annotation."""

    prefix = "/v1/extender"
    verbs = ("filter", "preempt", "bind")
    size = 3

    def __init__(self) -> None:
        super().__init__()
        self.members: list[str] = []

    def filter(self, call):
        if call.pod not in self.members:
            self.members.append(call.pod)
        if len(self.members) < self.size:
            return {
                "FailedNodes": dict.fromkeys(call.names, "Pod is waiting for its affinity group")
            }
        return {"NodeNames": [sorted(call.names)[self.members.index(call.pod) % len(call.names)]]}

    def preempt(self, call):
        assert call.value["NodeNameToVictims"] is None
        victims = call.value["NodeNameToMetaVictims"]
        return {
            "NodeNameToMetaVictims": {node: each for node, each in victims.items() if node == "n1"}
        }

    async def bind(self, call):
        annotation = {"hivedscheduler.microsoft.com/pod-leaf-cell-isolation": "0,1"}
        await self.annotate("default", call.pod, **annotation)
        return {"Error": await self.bind_pod(call)}


async def test_hived_waits_in_filter_and_binds_with_an_isolation():
    hived = HiveD()
    async with running(HIVED, hived, prepare=lambda w: w.nodes(["n0", "n1", "n2"])) as world:
        world.pod("m0", ENABLED)
        world.pod("m1", ENABLED)
        await world.told("FailedScheduling", "3 Pod is waiting for its affinity group")
        assert not world.placed()
        world.pod("m2", ENABLED)
        placed = await world.bound(3)
        assert Counter(placed.values()) == {"n0": 1, "n1": 1, "n2": 1}
        annotations = world.get("m1")["metadata"]["annotations"]
        assert annotations["hivedscheduler.microsoft.com/pod-leaf-cell-isolation"] == "0,1"
    assert len(hived.of("bind")) == 3


async def test_hived_is_asked_by_uid_about_victims():
    def prepare(world):
        high(world)
        world.nodes(["n0", "n1"])
        for node in ("n0", "n1"):
            world.pod(f"low-{node}", {"cpu": "60"}, nodeName=node)

    hived = HiveD()
    hived.size = 1
    async with running(HIVED, hived, prepare=prepare) as world:
        world.pod("p", {"cpu": "30", **ENABLED}, priorityClassName="high")
        assert requested(world.get("p"), next(iter(ENABLED))) == 1
        await world.until("evicted", lambda: victims_of(world))
        assert victims_of(world) == ["low-n1"]
    (asked,) = hived.of("preempt")
    victims = asked.value["NodeNameToMetaVictims"]
    assert victims["n0"]["Pods"] == [{"UID": world.get("low-n0")["metadata"]["uid"]}]
