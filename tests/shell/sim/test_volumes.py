"""Claims are bound and volumes made up, as a volume controller and a storage driver would."""

import asyncio

import pytest

from app.model.claims import BIND_COMPLETED, SELECTED_NODE
from app.sim import ClusterOptions, EmbeddedCluster, NodeOptions
from app.sim.resources.deletion import DeleteOptions, delete
from app.sim.resources.kinds import BY_RESOURCE, PODS, STORAGE_CLASSES

ZONE = "topology.kubernetes.io/zone"
CLAIMS = BY_RESOURCE["persistentvolumeclaims"]
VOLUMES = BY_RESOURCE["persistentvolumes"]
CSI_NODES = BY_RESOURCE["csinodes.storage.k8s.io"]
DRIVER = "disk.example.com"

pytestmark = pytest.mark.looptime


@pytest.fixture
async def cluster():
    options = ClusterOptions(nodes=NodeOptions(count=3), volumes=True)
    async with EmbeddedCluster(options) as running:
        yield running


def make_class(cluster, name="fast", *, waits=False, provisioner=DRIVER, **fields):
    mode = "WaitForFirstConsumer" if waits else "Immediate"
    metadata = {"name": name, "annotations": fields.pop("annotations", {})}
    value = {"metadata": metadata, "provisioner": provisioner, "volumeBindingMode": mode}
    cluster.apply(STORAGE_CLASSES, value | fields)


def make_claim(cluster, name="data", *, size="1Gi", modes=("ReadWriteOnce",), notes=None, **spec):
    spec = {"storageClassName": "fast", "accessModes": list(modes), **spec}
    spec["resources"] = {"requests": {"storage": size}}
    metadata = {"name": name, "annotations": notes or {}}
    cluster.apply(CLAIMS, {"metadata": metadata, "spec": spec})


def make_volume(cluster, name, *, size="1Gi", labels=None, **spec):
    spec = {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], **spec}
    spec |= {"capacity": {"storage": size}, "hostPath": {"path": "/x"}}
    cluster.apply(VOLUMES, {"metadata": {"name": name, "labels": labels or {}}, "spec": spec})


def claim(cluster, name="data"):
    return cluster.api.get(CLAIMS, "default", name).value


def volume_of(cluster, name="data"):
    """The volume that a claim is bound to, both ways; None if it is not."""
    found = claim(cluster, name)
    if found["status"]["phase"] != "Bound":
        assert BIND_COMPLETED not in found["metadata"].get("annotations", {})
        return None
    assert found["metadata"]["annotations"][BIND_COMPLETED] == "yes"
    volume = cluster.api.get(VOLUMES, "", found["spec"]["volumeName"]).value
    assert volume["status"]["phase"] == "Bound"
    assert volume["spec"]["claimRef"]["uid"] == found["metadata"]["uid"]
    assert found["status"]["capacity"] == volume["spec"]["capacity"]
    return volume


def reach(volume):
    """The labels that a volume demands of nodes."""
    affinity = volume["spec"].get("nodeAffinity")
    if affinity is None:
        return {}
    (term,) = affinity["required"]["nodeSelectorTerms"]
    return {each["key"]: each["values"] for each in term["matchExpressions"]}


async def settle():
    await asyncio.sleep(0.01)


async def test_immediate_claims_are_provisioned(cluster):
    make_class(cluster, reclaimPolicy="Delete")
    make_claim(cluster, size="5Gi")
    await settle()
    volume = volume_of(cluster)
    assert volume["spec"]["csi"]["driver"] == DRIVER
    assert volume["spec"]["capacity"] == {"storage": "5Gi"}
    assert reach(volume) == {}


async def test_a_claim_waits_for_its_class(cluster):
    make_claim(cluster)
    await settle()
    assert volume_of(cluster) is None
    make_class(cluster)
    await settle()
    assert volume_of(cluster) is not None


async def test_the_first_consumer_is_waited_for(cluster):
    allowed = [
        {"matchLabelExpressions": [{"key": ZONE, "values": ["zone-0"]}]},
        {"matchLabelExpressions": [{"key": ZONE, "values": ["zone-1", "zone-2"]}]},
    ]
    make_class(cluster, waits=True, allowedTopologies=allowed)
    make_claim(cluster)
    make_volume(cluster, "free")  # for the scheduler to choose, or not
    await settle()
    assert volume_of(cluster) is None
    assert cluster.api.get(VOLUMES, "", "free").value["status"]["phase"] == "Available"
    patch = {"metadata": {"annotations": {SELECTED_NODE: "node-2"}}}
    cluster.api.patch(CLAIMS, "default", "data", patch, patch_type="application/merge-patch+json")
    await settle()
    assert reach(volume_of(cluster)) == {ZONE: ["zone-2"]}


@pytest.mark.parametrize("node", ["node-9", "node-0"], ids=["unknown", "not allowed"])
async def test_a_node_that_no_volume_can_be_made_for(cluster, node):
    allowed = [{"matchLabelExpressions": [{"key": ZONE, "values": ["zone-1"]}]}]
    make_class(cluster, waits=True, allowedTopologies=allowed)
    make_claim(cluster, notes={SELECTED_NODE: node})
    await settle()
    assert volume_of(cluster) is None


async def test_a_driver_tells_its_topology(cluster):
    for number in range(3):
        driver = {"name": DRIVER, "nodeID": "x", "topologyKeys": [ZONE]}
        spec = {"drivers": [driver]}
        cluster.apply(CSI_NODES, {"metadata": {"name": f"node-{number}"}, "spec": spec})
    make_class(cluster, "late", waits=True)
    make_claim(cluster, "late", storageClassName="late", notes={SELECTED_NODE: "node-1"})
    make_class(cluster)
    for number in range(20):
        make_claim(cluster, f"early-{number}")
    await settle()
    assert reach(volume_of(cluster, "late")) == {ZONE: ["zone-1"]}
    zones = {reach(volume_of(cluster, f"early-{number}"))[ZONE][0] for number in range(20)}
    assert zones == {"zone-0", "zone-1", "zone-2"}


async def test_the_smallest_volume_that_will_do(cluster):
    make_class(cluster, provisioner="kubernetes.io/no-provisioner")
    make_volume(cluster, "small")
    make_volume(cluster, "large", size="100Gi")
    make_volume(cluster, "good", size="10Gi")
    make_volume(cluster, "raw", size="9Gi", volumeMode="Block")
    make_volume(cluster, "other", size="9Gi", storageClassName="slow")
    make_volume(cluster, "shared", size="50Gi", accessModes=["ReadWriteMany", "ReadWriteOnce"])
    make_volume(cluster, "ssd", size="60Gi", labels={"disk": "ssd"})
    make_claim(cluster, size="8Gi")
    make_claim(cluster, "many", modes=["ReadWriteMany"])
    make_claim(cluster, "chosen", selector={"matchLabels": {"disk": "ssd"}})
    make_claim(cluster, "huge", size="1Ti")
    await settle()
    names = ["data", "many", "chosen"]
    assert [volume_of(cluster, name)["metadata"]["name"] for name in names] == [
        "good",
        "shared",
        "ssd",
    ]
    assert volume_of(cluster, "huge") is None


async def test_volumes_and_claims_that_name_each_other(cluster):
    make_class(cluster, waits=True)
    reference = {"namespace": "default", "name": "data"}
    make_volume(cluster, "reserved", claimRef=reference)
    make_volume(cluster, "wanted", size="2Gi")
    make_claim(cluster)
    make_claim(cluster, "picky", volumeName="wanted")
    make_claim(cluster, "late", volumeName="reserved")
    await settle()
    assert volume_of(cluster)["metadata"]["name"] == "reserved"
    assert volume_of(cluster, "picky")["metadata"]["name"] == "wanted"
    assert volume_of(cluster, "late") is None


@pytest.mark.parametrize(("policy", "left"), [("Delete", None), ("Retain", "Released")])
async def test_what_becomes_of_the_volume(cluster, policy, left):
    make_class(cluster, reclaimPolicy=policy)
    make_claim(cluster)
    await settle()
    name = volume_of(cluster)["metadata"]["name"]
    delete(cluster.api, CLAIMS, "default", "data", DeleteOptions())
    record = cluster.api.find(VOLUMES, "", name)
    assert (record and record.value["status"]["phase"]) == left
    make_claim(cluster)
    await settle()
    assert volume_of(cluster)["metadata"]["name"] != name


async def test_ephemeral_volumes_come_and_go_with_their_pod(cluster):
    make_class(cluster, annotations={"storageclass.kubernetes.io/is-default-class": "true"})
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    volumes = [{"name": "tmp", "ephemeral": {"volumeClaimTemplate": template}}]
    spec = {"containers": [{"name": "c", "image": "i"}], "volumes": volumes}
    pod = cluster.apply(PODS, {"metadata": {"name": "p"}, "spec": spec}).value
    await settle()
    made = claim(cluster, "p-tmp")
    assert made["metadata"]["labels"] == {"a": "b"}
    assert made["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
    assert volume_of(cluster, "p-tmp")["spec"]["storageClassName"] == "fast"
    delete(cluster.api, PODS, "default", "p", DeleteOptions())
    assert cluster.api.find(CLAIMS, "default", "p-tmp") is None


async def test_the_default_class_is_the_newest(cluster):
    mark = {"storageclass.kubernetes.io/is-default-class": "true"}
    for name in ("b", "a"):
        make_class(cluster, name, annotations=mark)
    make_class(cluster, "c")
    metadata = {"name": "data"}
    cluster.apply(CLAIMS, {"metadata": metadata, "spec": {}})
    make_claim(cluster, "none", storageClassName="")
    assert claim(cluster)["spec"]["storageClassName"] == "a"
    assert claim(cluster, "none")["spec"]["storageClassName"] == ""


async def test_nothing_happens_without_the_party():
    async with EmbeddedCluster(ClusterOptions()) as plain:
        make_class(plain)
        make_claim(plain)
        await settle()
        assert volume_of(plain) is None
