"""The same tests twice: against the embedded cluster, and against a real API server where there is one.

Neither has kubelets: pods that are bound stay Pending, and pods without a grace period are gone at once. Nor has either
controllers: nobody counts the pods of disruption budgets, or makes volumes.
"""

import asyncio
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

from app.kube.client import KubeClient
from app.kube.errors import NotFound
from app.kube.kubeconfig import load_connection
from app.kube.payloads import ConditionChange
from app.kube.writer import KubeWriter
from app.model.pod import Pod, make_pod
from app.model.status import Status
from extenders.kit import BindRequest, Filtered, NodesRequest, make_app
from extenders.kit.testing import serving
from tests.shell.sim import device_mistakes as devices
from tests.whole.harness import ApiServer, Process, Schedulers, pod, wait_for
from tests.whole.kubectl import NEEDS_KUBECTL, Kubectl

pytestmark = pytest.mark.whole

ALONE = {"leaderElect": False}
#: Renewed often, and not lost by a machine that is slow.
ELECTION = {
    "leaderElect": True,
    "leaseDuration": "30s",
    "renewDeadline": "20s",
    "retryPeriod": "300ms",
}
#: For tests that wait until the lease of a leader runs out.
SHORT_ELECTION = ELECTION | {"leaseDuration": "6s", "renewDeadline": "5s"}
PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
RESOURCE = "/apis/resource.k8s.io/v1"
RESOURCE_CLAIMS = f"{RESOURCE}/namespaces/default/resourceclaims"
AT_ONCE = {"terminationGracePeriodSeconds": 0}


@pytest.fixture
def cluster(server: ApiServer) -> Iterator[ApiServer]:
    """An API server with six nodes of 4 CPUs in three zones, and two priority classes."""
    furnish(server)
    yield server
    server.wipe()


def furnish(cluster: ApiServer) -> None:
    cluster.create_nodes(6)
    for name, value in (("high", 1000), ("low", 1)):
        body = {"metadata": {"name": name}, "value": value}
        cluster.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)


def bound(cluster: ApiServer, prefix: str = "") -> dict[str, str]:
    """The nodes of the pods that are bound, by pod."""
    return {
        name: found["spec"]["nodeName"]
        for name, found in cluster.pods().items()
        if name.startswith(prefix) and found["spec"].get("nodeName")
    }


def zone(node: str) -> int:
    return int(node.removeprefix("node-")) % 3


def condition(cluster: ApiServer, name: str) -> dict[str, Any]:
    """A pod's PodScheduled."""
    conditions = cluster.pods()[name]["status"].get("conditions", ())
    return next((each for each in conditions if each["type"] == "PodScheduled"), {})


def labelled(name: str, app: str, **spec: Any) -> dict[str, Any]:
    made = pod(name, **spec)
    made["metadata"]["labels"] = {"app": app}
    return made


def bound_once(cluster: ApiServer, count: int) -> bool:
    """Whether each pod has one Scheduled event and no other, for the node that it is on."""
    notes = Counter(event["note"] for event in cluster.events("Scheduled"))
    wanted = {
        f"Successfully assigned default/{name} to {node}": 1
        for name, node in bound(cluster).items()
    }
    return len(wanted) == count and notes == wanted


def test_pods_are_bound_with_event_and_condition(
    cluster: ApiServer, schedulers: Schedulers
) -> None:
    scheduler = schedulers.start(leaderElection=ALONE)
    cluster.create_pods(30)
    wait_for("30 pods bound", lambda: cluster.all_bound(30))
    wait_for("one event a pod", lambda: bound_once(cluster, 30))
    assert all(condition(cluster, f"p-{number}")["status"] == "True" for number in range(30))
    assert Counter(Counter(bound(cluster).values()).values()) == {5: 6}
    (event,) = [e for e in cluster.events("Scheduled") if e["regarding"]["name"] == "p-7"]
    assert event["regarding"]["uid"] == cluster.pods()["p-7"]["metadata"]["uid"]
    assert (event["type"], event["action"]) == ("Normal", "Binding")
    assert scheduler.stop() == 0


def test_a_refusal_has_kube_scheduler_s_words_and_ends_with_a_new_node(
    cluster: ApiServer, schedulers: Schedulers
) -> None:
    schedulers.start(leaderElection=ALONE)
    cluster.call("POST", PODS, pod("big", cpu="3", nodeSelector={"disk": "ssd"}))
    message = (
        "0/6 nodes are available: 6 node(s) didn't match Pod's node affinity/selector. "
        "no new claims to deallocate, preemption: 0/6 nodes are available: "
        "6 Preemption is not helpful for scheduling."
    )
    wait_for("a refusal", lambda: condition(cluster, "big").get("message") == message)
    assert condition(cluster, "big")["reason"] == "Unschedulable"
    (event,) = wait_for("an event", lambda: cluster.events("FailedScheduling"))
    assert (event["type"], event["note"]) == ("Warning", message)
    label = {"metadata": {"labels": {"disk": "ssd"}}}
    cluster.call("PATCH", "/api/v1/nodes/node-4", label, "application/merge-patch+json")
    wait_for("the pod on the node with the label", lambda: bound(cluster) == {"big": "node-4"})


def test_spreading_and_affinity(cluster: ApiServer, schedulers: Schedulers) -> None:
    schedulers.start(leaderElection=ALONE)
    spread = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    for number in range(9):
        each = labelled(f"web-{number}", "web", topologySpreadConstraints=[spread])
        cluster.call("POST", PODS, each)
    wait_for("spread pods", lambda: len(bound(cluster, "web")) == 9)
    assert Counter(map(zone, bound(cluster, "web").values())) == {0: 3, 1: 3, 2: 3}

    def near(app: str, key: str) -> dict[str, Any]:
        term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
        return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}

    apart = {"podAntiAffinity": near("alone", "kubernetes.io/hostname")}
    for number in range(7):
        cluster.call("POST", PODS, labelled(f"alone-{number}", "alone", affinity=apart))
    wait_for("a pod per node", lambda: len(bound(cluster, "alone")) == 6)
    assert len(set(bound(cluster, "alone").values())) == 6
    cluster.call("POST", PODS, labelled("first", "pair", nodeName="node-1"))
    together = {"podAffinity": near("pair", "topology.kubernetes.io/zone")}
    cluster.call("POST", PODS, labelled("second", "other", affinity=together))
    wait_for("the second", lambda: "second" in bound(cluster))
    assert zone(bound(cluster)["second"]) == 1


def test_preemption_spares_what_a_budget_protects(
    cluster: ApiServer, schedulers: Schedulers
) -> None:
    for number in range(6):
        app = "cheap" if number == 2 else "precious"
        spec = {"cpu": "3", "priorityClassName": "low", "nodeName": f"node-{number}", **AT_ONCE}
        cluster.call("POST", PODS, labelled(f"low-{number}", app, **spec))
    selector = {"matchLabels": {"app": "precious"}}
    budget = {"minAvailable": "100%", "selector": selector}
    metadata = {"name": "precious", "namespace": "default"}
    cluster.call("POST", BUDGETS, {"metadata": metadata, "spec": budget})
    schedulers.start(leaderElection=ALONE)
    cluster.call("POST", PODS, pod("high", cpu="3", priorityClassName="high"))
    wait_for("the high pod in its place", lambda: bound(cluster, "high") == {"high": "node-2"})
    assert set(bound(cluster, "low")) == {f"low-{number}" for number in (0, 1, 3, 4, 5)}
    (event,) = wait_for("an event", lambda: cluster.events("Preempted"))
    uid = cluster.pods()["high"]["metadata"]["uid"]
    assert event["note"] == f"Preempted by pod {uid} on node node-2"
    assert event["regarding"]["name"] == "low-2"


def test_claims_are_bound_with_their_pods(cluster: ApiServer, schedulers: Schedulers) -> None:
    for name, provisioner in (("local", "kubernetes.io/no-provisioner"), ("made", "example.com/p")):
        storage_class = {"metadata": {"name": name}, "provisioner": provisioner}
        mode = {"volumeBindingMode": "WaitForFirstConsumer"}
        cluster.call("POST", CLASSES, storage_class | mode)
        cluster.call("POST", CLAIMS, claim(name))
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-3"]}
    there = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    disk = volume("disk", "local", local={"path": "/disk"}, nodeAffinity=there)
    made = cluster.call("POST", VOLUMES, disk)
    available = made | {"status": {"phase": "Available"}}
    cluster.call("PUT", f"{VOLUMES}/disk/status", available)
    schedulers.start(leaderElection=ALONE)
    for name in ("local", "made"):
        source = {"persistentVolumeClaim": {"claimName": name}}
        cluster.call("POST", PODS, pod(f"with-{name}", volumes=[{"name": "v", **source}]))

    def claimed() -> dict[str, Any]:
        reference: dict[str, Any] = cluster.call("GET", f"{VOLUMES}/disk")["spec"].get("claimRef")
        return reference

    assert wait_for("the disk to be claimed", claimed)["name"] == "local"
    bind_claim(cluster, "local", "disk")
    selected = "volume.kubernetes.io/selected-node"

    def chosen() -> str:
        found = cluster.call("GET", f"{CLAIMS}/made")["metadata"].get("annotations", {})
        return str(found.get(selected, ""))

    node = wait_for("a node for the provisioner", chosen)
    uid = cluster.call("GET", f"{CLAIMS}/made")["metadata"]["uid"]
    reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "made"}
    new = volume("new", "made", hostPath={"path": "/new"}, claimRef={**reference, "uid": uid})
    cluster.call("POST", VOLUMES, new)
    bind_claim(cluster, "made", "new")
    wait_for("both pods", lambda: bound(cluster) == {"with-local": "node-3", "with-made": node})


def claim(name: str) -> dict[str, Any]:
    """For a volume of the class of the same name."""
    request = {"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": name}
    return {"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], **request}}


def volume(name: str, storage_class: str, **spec: Any) -> dict[str, Any]:
    common = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    return {
        "metadata": {"name": name},
        "spec": {**common, "storageClassName": storage_class, **spec},
    }


def bind_claim(cluster: ApiServer, name: str, volume_name: str) -> None:
    """What the controller of volumes does at the end."""
    found = cluster.call("GET", f"{CLAIMS}/{name}")
    annotations = {"pv.kubernetes.io/bind-completed": "yes"}
    change = {"metadata": {"annotations": annotations}, "spec": {"volumeName": volume_name}}
    found = cluster.call("PATCH", f"{CLAIMS}/{name}", change, "application/merge-patch+json")
    cluster.call("PUT", f"{CLAIMS}/{name}/status", found | {"status": {"phase": "Bound"}})


class Extender:
    """Wants the nodes of zone 1, the last of them first, and binds."""

    def __init__(self, cluster: ApiServer) -> None:
        self._cluster = cluster
        self.asked_to_bind: list[str] = []

    def filter(self, request: NodesRequest) -> Filtered:
        passed = [name for name in request.names if zone(name) == 1]
        others = [name for name in request.names if zone(name) != 1]
        return Filtered(passed, dict.fromkeys(others, "not in zone 1"))

    def prioritize(self, request: NodesRequest) -> dict[str, int]:
        return {name: 10 if name == "node-4" else 0 for name in request.names}

    def bind(self, request: BindRequest) -> None:
        self.asked_to_bind.append(request.pod_name)
        target = {"apiVersion": "v1", "kind": "Node", "name": request.node}
        metadata = {"name": request.pod_name, "uid": request.pod_uid}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        self._cluster.call("POST", f"{PODS}/{request.pod_name}/binding", binding)


@pytest.mark.parametrize("capable", [True, False], ids=["names", "nodes"])
def test_an_extender_decides_and_binds(
    cluster: ApiServer, schedulers: Schedulers, capable: bool
) -> None:
    mine = Extender(cluster)
    app = make_app(filter=mine.filter, prioritize=mine.prioritize, bind=mine.bind)
    with serving(app) as url:
        verbs = {f"{verb}Verb": verb for verb in ("filter", "prioritize", "bind")}
        given = {"nodeCacheCapable": capable, "weight": 100, "httpTimeout": "60s"}
        extender = {"urlPrefix": url, **given, **verbs}
        scheduler = schedulers.start(leaderElection=ALONE, extenders=[extender])
        cluster.create_pods(12)
        cluster.call("POST", PODS, pod("elsewhere", nodeSelector={"none": "such"}))
        wait_for("12 pods bound", lambda: len(bound(cluster)) == 12)
        wait_for("a refusal", lambda: condition(cluster, "elsewhere").get("message"))
        assert set(bound(cluster).values()) == {"node-4"}
        assert sorted(mine.asked_to_bind) == sorted(bound(cluster))
        assert scheduler.stop() == 0
    wait_for("one event a pod", lambda: bound_once(cluster, 12))


# ---------------------------------------------------------------- election


def leader_and_standbys(
    schedulers: Schedulers, count: int, election: dict[str, object] = ELECTION
) -> tuple[Process, list[Process]]:
    """Starts candidates and waits until one leads and the others know it."""
    started = [schedulers.start(leaderElection=election) for _ in range(count)]
    wait_for("candidates", lambda: all("New leader elected" in p.output() for p in started))
    acquired = "Successfully acquired lease"
    (leader,) = wait_for("a leader", lambda: [p for p in started if acquired in p.output()])
    return leader, [each for each in started if each is not leader]


class Load:
    """Creates pods, one after another, until it is enough."""

    def __init__(self, cluster: ApiServer) -> None:
        self._cluster = cluster
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.created = 0

    def _run(self) -> None:
        while not self._enough.wait(0.02):
            self._cluster.call("POST", PODS, pod(f"load-{self.created}", cpu="1m"))
            self.created += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join()


@pytest.mark.parametrize(
    ("way", "status"),
    [(signal.SIGTERM, 0), (signal.SIGKILL, -9), (signal.SIGSTOP, 1)],
    ids=["stopped", "killed", "frozen and thawed"],
)
def test_of_three_replicas_another_goes_on(
    cluster: ApiServer, schedulers: Schedulers, way: signal.Signals, status: int
) -> None:
    election = ELECTION if way is signal.SIGTERM else SHORT_ELECTION
    leader, standbys = leader_and_standbys(schedulers, 3, election)
    old = cluster.holder()
    with Load(cluster) as load:
        wait_for("pods of the leader", lambda: len(bound(cluster)) >= 10)
        leader.send(way)
        wait_for("another leader", lambda: cluster.holder() not in {old, ""})
        since = load.created + 1
        wait_for("pods of its successor", lambda: f"load-{since + 10}" in bound(cluster))
        if way is signal.SIGSTOP:
            leader.send(signal.SIGCONT)
        wait_for("its end", lambda: leader.status is not None)
    assert leader.status == status, leader.output()
    wait_for("all pods bound", lambda: cluster.all_bound(load.created))
    names = {f"load-{number}" for number in range(since, load.created)}
    wait_for("an event for each of them", lambda: names <= told(cluster).keys())
    # The old leader may owe events, but none may be about another node than the pod's.
    assert told(cluster).items() <= bound(cluster).items()
    if way is signal.SIGTERM:
        assert "Released lease" in leader.output()
        wait_for("one event a pod", lambda: bound_once(cluster, load.created))
    assert [each.stop() for each in standbys] == [0, 0]
    assert cluster.holder() == ""


def told(cluster: ApiServer) -> dict[str, str]:
    """The nodes of pods as events tell them, of which a pod must have no more than one."""
    found: dict[str, str] = {}
    for event in cluster.events("Scheduled"):
        name, node = event["note"].removeprefix("Successfully assigned default/").split(" to ")
        assert found.setdefault(name, node) == node, "bound twice"
    return found


def test_a_lease_that_was_deleted_is_made_anew_by_its_holder(
    cluster: ApiServer, schedulers: Schedulers
) -> None:
    leader, (standby,) = leader_and_standbys(schedulers, 2)
    cluster.call("DELETE", f"{LEASES}/kube-scheduler")
    # Who was faster? A leader that does not know yet that it was the other binds pods, and takes their events with it.
    wait_for(
        "a lease of the leader's, or its end",
        lambda: (
            leader.status is not None
            or ((holder := cluster.holder()) and f" as {holder}" in leader.output())
        ),
    )
    ended = [each.status for each in (leader, standby) if each.status is not None]
    cluster.create_pods(5)
    wait_for("pods bound", lambda: cluster.all_bound(5))
    wait_for("one event a pod", lambda: bound_once(cluster, 5))
    assert ended in ([], [1])


def test_nothing_is_written_to_another_pod_of_the_same_name(cluster: ApiServer) -> None:
    """What comes late is refused, with an error that is understood."""
    replaced = cluster.call("POST", PODS, pod("web-0", schedulerName="nobody"))
    cluster.call("DELETE", f"{PODS}/web-0", {"gracePeriodSeconds": 0})
    successor = cluster.call("POST", PODS, pod("web-0", schedulerName="nobody"))
    earlier = make_pod(namespace="default", name="web-0", uid=replaced["metadata"]["uid"])
    outcomes = asyncio.run(write_late(cluster, earlier))
    assert [type(outcome) for outcome in outcomes] == [NotFound, NotFound, bool, Status]
    assert outcomes[2] is False
    assert not outcomes[3].ok
    found = cluster.call("GET", f"{PODS}/web-0")
    assert found["metadata"]["resourceVersion"] == successor["metadata"]["resourceVersion"]


async def write_late(cluster: ApiServer, earlier: Pod) -> list[Any]:
    """What comes of each write about a pod that is gone."""
    connection = load_connection(kubeconfig=str(cluster.kubeconfig), wall=time.time)
    async with KubeClient(connection, agent="test/1") as client:
        writer = KubeWriter(client, may_write=lambda: True, rng=np.random.default_rng(1))
        condition = ConditionChange("PodScheduled", "False", "Unschedulable", "late")
        return await asyncio.gather(
            writer.patch_pod_status(earlier, condition=condition, now=time.time()),
            writer.patch_pod_status(earlier, nominated_node_name="node-0", now=time.time()),
            writer.delete_pod("default", "web-0", earlier.uid),
            writer.bind("default", "web-0", earlier.uid, "node-0"),
            return_exceptions=True,
        )


# ---------------------------------------------------------------- what people see


@NEEDS_KUBECTL
def test_kubectl_shows_who_has_scheduled_and_why_not(
    cluster: ApiServer, schedulers: Schedulers, tmp_path: Path
) -> None:
    kubectl = Kubectl(cluster.kubeconfig, tmp_path)
    schedulers.start(leaderElection=ELECTION)
    kubectl.apply(pod("fits"), pod("too-big", cpu="64"))
    wait_for("a binding", lambda: "fits" in bound(cluster))
    wait_for(
        "two events", lambda: cluster.events("Scheduled") and cluster.events("FailedScheduling")
    )
    described = kubectl("describe", "pod", "fits")
    assert "default-scheduler" in described
    assert f"Successfully assigned default/fits to {bound(cluster)['fits']}" in described
    assert "6 Insufficient cpu" in kubectl("describe", "pod", "too-big")
    lease = kubectl("-n", "kube-system", "get", "lease", "kube-scheduler")
    assert cluster.holder() in lease


# ---------------------------------------------------------------- devices


def offer(cluster: ApiServer, *nodes: str) -> None:
    """A class, and two devices on each of these nodes."""
    selector = {"cel": {"expression": f"device.driver == '{devices.DRIVER}'"}}
    body: dict[str, Any] = {"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}}
    cluster.call("POST", f"{RESOURCE}/deviceclasses", body)
    for node in nodes:
        spec = devices.offering(devices.device("d-0"), devices.device("d-1"))
        spec |= {"nodeName": node, "pool": spec["pool"] | {"name": node}}
        body = {"metadata": {"name": f"{node}-gpu"}, "spec": spec}
        cluster.call("POST", f"{RESOURCE}/resourceslices", body)


def device_claim(cluster: ApiServer, name: str, **wish: Any) -> dict[str, Any]:
    """A claim of this name, and what a pod has to say to use it."""
    spec = devices.asking(devices.request(deviceClassName="gpu", **wish))
    cluster.call("POST", RESOURCE_CLAIMS, {"metadata": {"name": name}, "spec": spec})
    return {"resourceClaims": [{"name": "gpu", "resourceClaimName": name}]}


def test_pods_get_the_devices_that_they_claim(cluster: ApiServer, schedulers: Schedulers) -> None:
    offer(cluster, "node-1", "node-4")
    shared = device_claim(cluster, "pair", count=2)
    for name, spec in (
        ("a", shared),
        ("b", shared),
        *((n, device_claim(cluster, n)) for n in "cde"),
    ):
        cluster.call("POST", PODS, pod(name, **AT_ONCE, **spec))
    schedulers.start(leaderElection=ALONE)
    wait_for("four of five pods", lambda: len(bound(cluster)) == 4)
    (left,) = cluster.pods().keys() - bound(cluster).keys()
    assert left in "cde"
    wait_for("a word on the fifth", lambda: condition(cluster, left).get("message"))
    assert "cannot allocate all claims" in condition(cluster, left)["message"]
    where, given = bound(cluster), allocations(cluster)
    assert {node for node, _ in given["pair"]} == {where["a"]} == {where["b"]}
    singles = given.keys() - {"pair"}
    assert {name: where[name] for name in singles} == {n: given[n][0][0] for n in singles}
    assert sorted(each for results in given.values() for each in results) == [
        (node, device) for node in ("node-1", "node-4") for device in ("d-0", "d-1")
    ]


def allocations(cluster: ApiServer) -> dict[str, list[tuple[str, str]]]:
    """(pool, device) of each device of the claims that are allocated and reserved, by claim."""
    return {
        item["metadata"]["name"]: [
            (result["pool"], result["device"])
            for result in item["status"]["allocation"]["devices"]["results"]
        ]
        for item in cluster.call("GET", RESOURCE_CLAIMS)["items"]
        if item["status"].get("reservedFor")
    }


def test_mistakes_in_devices_are_told_alike(cluster: ApiServer) -> None:
    collections = {
        "resourceclaims": (RESOURCE_CLAIMS, "spec.devices.", devices.BAD_REQUESTS),
        "deviceclasses": (f"{RESOURCE}/deviceclasses", "", devices.BAD_CLASSES),
        "resourceslices": (f"{RESOURCE}/resourceslices", "spec.", devices.BAD_SLICES),
    }
    for path, root, table in collections.values():
        for spec, wrong in table:
            _, answer = cluster.answer("POST", path, {"metadata": {"name": "x"}, "spec": spec})
            assert devices.told(answer) == devices.expected(wrong, root), spec
    for spec in devices.GOOD_SLICES:
        path = f"{RESOURCE}/resourceslices"
        cluster.call("POST", path, {"metadata": {"name": "x"}, "spec": spec})
        cluster.call("DELETE", f"{path}/x")


def test_mistakes_in_what_is_allocated_are_told_alike(cluster: ApiServer) -> None:
    spec = devices.asking(devices.request("a"), devices.alternatives("s"))
    body = {"metadata": {"name": "x"}, "spec": spec}
    where, patch = f"{RESOURCE_CLAIMS}/x", "application/merge-patch+json"
    cluster.call("POST", RESOURCE_CLAIMS, body)
    for status, wrong in devices.BAD_STATUS:
        _, answer = cluster.answer("PATCH", f"{where}/status", {"status": status}, patch)
        assert devices.told(answer) == devices.expected(wrong, "status."), status
    for status in devices.GOOD_STATUS:
        cluster.call("PATCH", f"{where}/status", {"status": status}, patch)
        cluster.call("DELETE", where)
        cluster.call("POST", RESOURCE_CLAIMS, body)
