"""Device claims are made from templates and freed, as kube-controller-manager would."""

import asyncio

import pytest

from app.model.devices import FINALIZER, POD_CLAIM_NAME
from app.sim import RUN_FOR, ClusterOptions, EmbeddedCluster, KubeletOptions, NodeOptions
from app.sim.features import parse_features
from app.sim.objects import key_of
from app.sim.resources.deletion import DeleteOptions, delete
from app.sim.resources.kinds import (
    EVENTS,
    NODES,
    POD_GROUPS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from app.sim.resources.pod_subresources import bind
from tests.shell.sim.client import binding, pod

REQUESTS = {
    "devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.example.com"}}]}
}
RESULT = {"request": "r", "driver": "gpu.example.com", "pool": "node-0", "device": "gpu-0"}

pytestmark = pytest.mark.looptime


@pytest.fixture
async def cluster():
    options = ClusterOptions(
        nodes=NodeOptions(count=2, devices=2),
        claims=True,
        kubelets=KubeletOptions(start_delay=1.0, grace_factor=0.1),
    )
    async with EmbeddedCluster(options) as running:
        yield running


def make_template(cluster, name="gpu", **metadata):
    spec = {"metadata": metadata, "spec": REQUESTS}
    cluster.apply(RESOURCE_CLAIM_TEMPLATES, {"metadata": {"name": name}, "spec": spec})


def make_claim(cluster, name="shared"):
    cluster.apply(RESOURCE_CLAIMS, {"metadata": {"name": name}, "spec": REQUESTS})


def make_pod(cluster, name="p", *, run_for=None, **entries):
    """``entries``: name of the entry -> template, or ``=claim``."""
    given = [
        {"name": entry, "resourceClaimName": source[1:]}
        if source.startswith("=")
        else {"name": entry, "resourceClaimTemplateName": source}
        for entry, source in entries.items()
    ]
    value = pod(name, resourceClaims=given)
    if run_for:
        value["metadata"]["annotations"] = {RUN_FOR: run_for}
    return cluster.api.create(PODS, "default", value).value


def claims(cluster):
    return [record.value for record in cluster.api.store[RESOURCE_CLAIMS.storage].ordered()]


def claim(cluster, name="shared"):
    return cluster.api.get(RESOURCE_CLAIMS, "default", name).value


def get_pod(cluster, name="p"):
    return cluster.api.get(PODS, "default", name).value


def noted(cluster, name="p"):
    """What the pod's status says of the claims made for it."""
    statuses = get_pod(cluster, name)["status"].get("resourceClaimStatuses", [])
    return {status["name"]: status.get("resourceClaimName") for status in statuses}


def consumer(value):
    return {"resource": "pods", **{part: value["metadata"][part] for part in ("name", "uid")}}


def allocate(cluster, name, *pods):
    """What a scheduler does with a claim."""
    held = {"metadata": {"finalizers": [FINALIZER]}}
    update = {"patch_type": "application/merge-patch+json"}
    cluster.api.patch(RESOURCE_CLAIMS, "default", name, held, **update)
    status = {"allocation": {"devices": {"results": [RESULT]}}}
    status["reservedFor"] = [consumer(each) for each in pods]
    cluster.api.patch(
        RESOURCE_CLAIMS, "default", name, {"status": status}, subresource="status", **update
    )


def place(cluster, name="p"):
    bind(cluster.api, "default", name, binding(name, "node-0"))


def remove(cluster, kind, name):
    delete(cluster.api, kind, "default", name, DeleteOptions(grace_period_seconds=0))


async def settle():
    await asyncio.sleep(0.01)


async def test_a_claim_is_made_from_the_template_for_each_entry(cluster):
    make_template(cluster, labels={"team": "a"}, annotations={"why": "x"})
    owner = make_pod(cluster, left="gpu", right="gpu")
    await settle()
    made = {each["metadata"]["annotations"][POD_CLAIM_NAME]: each for each in claims(cluster)}
    assert noted(cluster) == {entry: made[entry]["metadata"]["name"] for entry in made}
    assert made.keys() == {"left", "right"}
    for entry, each in made.items():
        metadata = each["metadata"]
        assert metadata["name"].startswith(f"p-{entry}-")
        assert metadata["labels"] == {"team": "a"}
        assert metadata["annotations"] == {"why": "x", POD_CLAIM_NAME: entry}
        assert metadata["ownerReferences"] == [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "controller": True,
                "name": "p",
                "uid": owner["metadata"]["uid"],
            }
        ]
        assert "finalizers" not in metadata
        (request,) = each["spec"]["devices"]["requests"]
        assert request["exactly"]["deviceClassName"] == "gpu.example.com"


async def test_long_names_are_shortened_in_proportion(cluster):
    make_template(cluster)
    make_pod(cluster, "p" * 60, **{"e" * 30: "gpu"})
    await settle()
    (made,) = claims(cluster)
    # 60 and 30 of 92 letters, two hyphens among them, where 57 are allowed; five letters follow.
    assert made["metadata"]["generateName"] == "p" * 37 + "-" + "e" * 18
    assert len(made["metadata"]["name"]) == 37 + 1 + 18 + 5


async def test_a_pod_waits_for_its_template_and_hears_of_it(cluster):
    make_template(cluster)
    make_pod(cluster, left="gpu", right="late")
    await settle()
    assert noted(cluster) == {}  # not until there are all
    (event,) = (record.value for record in cluster.api.store[EVENTS.storage].ordered())
    assert (event["type"], event["reason"]) == ("Warning", "FailedResourceClaimCreation")
    assert event["count"] == 2  # again when the first claim was there
    why = 'resourceclaimtemplate.resource.k8s.io "late" not found'
    assert event["message"] == f'PodResourceClaim right: resource claim template "late": {why}'
    (left,) = claims(cluster)
    make_template(cluster, "late")
    await settle()
    assert noted(cluster).keys() == {"left", "right"}
    assert noted(cluster)["left"] == left["metadata"]["name"]  # not made again


async def test_nothing_is_made_for_entries_that_need_nothing(cluster):
    make_template(cluster)
    make_claim(cluster)
    make_pod(cluster, own="=shared")
    await settle()
    assert [key_of(each) for each in claims(cluster)] == [("default", "shared")]
    assert noted(cluster) == {}
    waiting = make_pod(cluster, "q", gpu="late")
    status = waiting["status"] | {"resourceClaimStatuses": [{"name": "gpu"}]}
    cluster.api.write(PODS, waiting | {"metadata": dict(waiting["metadata"]), "status": status})
    make_template(cluster, "late")
    await settle()
    assert len(claims(cluster)) == 1
    assert noted(cluster, "q") == {"gpu": None}


async def test_a_claim_that_was_deleted_is_made_again(cluster):
    make_template(cluster)
    make_pod(cluster, gpu="gpu")
    await settle()
    first = noted(cluster)["gpu"]
    remove(cluster, RESOURCE_CLAIMS, first)
    await settle()
    (made,) = claims(cluster)
    assert noted(cluster)["gpu"] == made["metadata"]["name"] != first


async def test_a_claim_that_somebody_made_for_the_pod_is_taken(cluster):
    owner = make_pod(cluster, gpu="late")
    reference = {part: owner["metadata"][part] for part in ("name", "uid")}
    owned = {"apiVersion": "v1", "kind": "Pod", "controller": True, **reference}
    metadata = {"name": "found", "annotations": {POD_CLAIM_NAME: "gpu"}, "ownerReferences": [owned]}
    await settle()
    cluster.apply(RESOURCE_CLAIMS, {"metadata": metadata, "spec": REQUESTS})
    await settle()
    assert noted(cluster) == {"gpu": "found"}


async def test_a_claim_of_that_name_of_somebody_else_is_not_taken(cluster):
    make_template(cluster)
    make_pod(cluster, gpu="gpu")
    await settle()
    name = noted(cluster)["gpu"]
    free = {"metadata": {"ownerReferences": None}}
    cluster.api.patch(
        RESOURCE_CLAIMS, "default", name, free, patch_type="application/merge-patch+json"
    )
    await settle()
    assert noted(cluster)["gpu"] != name
    assert len(claims(cluster)) == 2


@pytest.mark.parametrize("end", ["finished", "deleted"])
async def test_the_claim_of_a_pod_goes_with_it(cluster, end):
    make_template(cluster)
    make_pod(cluster, run_for="5s", gpu="gpu")
    await settle()
    allocate(cluster, noted(cluster)["gpu"], get_pod(cluster))
    place(cluster)
    await asyncio.sleep(1.5)
    assert get_pod(cluster)["status"]["phase"] == "Running"
    assert len(claims(cluster)) == 1
    if end == "deleted":
        remove(cluster, PODS, "p")
    await asyncio.sleep(5.0)
    assert claims(cluster) == []
    if end == "finished":
        assert get_pod(cluster)["status"]["phase"] == "Succeeded"


async def test_a_shared_claim_is_freed_by_its_last_pod(cluster):
    make_claim(cluster)
    pods = [make_pod(cluster, name, own="=shared") for name in ("a", "b")]
    allocate(cluster, "shared", *pods)
    place(cluster, "b")
    await settle()
    remove(cluster, PODS, "a")
    await settle()
    assert claim(cluster)["status"]["reservedFor"] == [consumer(pods[1])]
    assert "allocation" in claim(cluster)["status"]
    assert claim(cluster)["metadata"]["finalizers"] == [FINALIZER]
    remove(cluster, PODS, "b")
    await settle()
    assert claim(cluster)["status"] == {}
    assert "finalizers" not in claim(cluster)["metadata"]


async def test_another_pod_of_the_same_name_does_not_keep_a_reservation(cluster):
    make_claim(cluster)
    first = make_pod(cluster, own="=shared")
    allocate(cluster, "shared", first)
    remove(cluster, PODS, "p")
    make_pod(cluster, own="=shared")
    await settle()
    assert claim(cluster)["status"] == {}


async def test_what_was_allocated_without_being_reserved_stays(cluster):
    make_claim(cluster)
    allocate(cluster, "shared")
    await settle()
    assert "allocation" in claim(cluster)["status"]
    remove(cluster, RESOURCE_CLAIMS, "shared")
    assert "deletionTimestamp" in claim(cluster)["metadata"]
    await settle()
    assert claims(cluster) == []


async def test_a_claim_in_use_outlives_its_deletion(cluster):
    make_claim(cluster)
    allocate(cluster, "shared", make_pod(cluster, own="=shared"))
    remove(cluster, RESOURCE_CLAIMS, "shared")
    await settle()
    assert "allocation" in claim(cluster)["status"]
    remove(cluster, PODS, "p")
    await settle()
    assert claims(cluster) == []


async def test_other_consumers_are_left_alone(cluster):
    make_claim(cluster)
    allocate(cluster, "shared", make_pod(cluster, own="=shared"))
    group = {"apiGroup": "x.example.com", "resource": "gangs", "name": "g", "uid": "1"}
    value = claim(cluster)
    status = value["status"] | {"reservedFor": [*value["status"]["reservedFor"], group]}
    cluster.api.update(
        RESOURCE_CLAIMS, "default", "shared", value | {"status": status}, subresource="status"
    )
    remove(cluster, PODS, "p")
    await settle()
    assert claim(cluster)["status"]["reservedFor"] == [group]
    assert "allocation" in claim(cluster)["status"]


async def test_a_pod_that_was_bound_by_hand_gets_its_reservation_and_runs(cluster):
    make_claim(cluster)
    value = make_pod(cluster, own="=shared")
    place(cluster)
    await asyncio.sleep(5.0)
    assert get_pod(cluster)["status"]["phase"] == "Pending"  # nothing is allocated
    allocate(cluster, "shared")
    await settle()
    assert claim(cluster)["status"]["reservedFor"] == [consumer(value)]
    await asyncio.sleep(1.5)
    assert get_pod(cluster)["status"]["phase"] == "Running"


async def test_the_claim_of_extended_resources_goes_with_its_pod(cluster):
    owner = pod("p")
    owner["spec"]["containers"][0]["resources"] = {"requests": {"example.com/gpu": "1"}}
    owner = cluster.api.create(PODS, "default", owner).value
    reference = {part: owner["metadata"][part] for part in ("name", "uid")}
    owned = {"apiVersion": "v1", "kind": "Pod", "controller": True, **reference}
    metadata = {"name": "extended", "ownerReferences": [owned]}
    cluster.apply(RESOURCE_CLAIMS, {"metadata": metadata, "spec": REQUESTS})
    mapping = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "r"}
    status = {"resourceClaimName": "extended", "requestMappings": [mapping]}
    cluster.api.patch(
        PODS,
        "default",
        "p",
        {"status": {"extendedResourceClaimStatus": status}},
        patch_type="application/merge-patch+json",
        subresource="status",
    )
    allocate(cluster, "extended", owner)
    await settle()
    assert "allocation" in claim(cluster, "extended")["status"]
    remove(cluster, PODS, "p")
    await settle()
    assert claims(cluster) == []


async def test_a_claim_whose_pod_is_not_there_goes(cluster):
    owned = {"apiVersion": "v1", "kind": "Pod", "controller": True, "name": "p", "uid": "1"}
    metadata = {"name": "left", "ownerReferences": [owned]}
    cluster.apply(RESOURCE_CLAIMS, {"metadata": metadata, "spec": REQUESTS})
    make_claim(cluster)
    await settle()
    assert [key_of(each) for each in claims(cluster)] == [("default", "shared")]


async def test_the_devices_of_made_up_nodes_go_with_them(cluster):
    slices = cluster.api.store[RESOURCE_SLICES.storage]
    offered = {record.value["spec"]["nodeName"]: record.value for record in slices.ordered()}
    assert offered.keys() == {"node-0", "node-1"}
    spec = offered["node-0"]["spec"]
    assert [device["name"] for device in spec["devices"]] == ["gpu-0", "gpu-1"]
    assert spec["pool"] == {"name": "node-0", "generation": 1, "resourceSliceCount": 1}
    delete(cluster.api, NODES, "", "node-0", DeleteOptions())
    await asyncio.sleep(0)
    assert [record.value["spec"]["nodeName"] for record in slices.ordered()] == ["node-1"]


async def test_many_devices_take_several_slices():
    async with EmbeddedCluster(ClusterOptions(nodes=NodeOptions(count=1, devices=130))) as cluster:
        slices = [
            record.value["spec"] for record in cluster.api.store[RESOURCE_SLICES.storage].ordered()
        ]
        assert [len(spec["devices"]) for spec in slices] == [128, 2]
        assert [spec["pool"]["resourceSliceCount"] for spec in slices] == [2, 2]
        names = [device["name"] for spec in slices for device in spec["devices"]]
        assert names == [f"gpu-{number}" for number in range(130)]


SHARED = parse_features(
    ["GenericWorkload=true,DRAWorkloadResourceClaims=true"],
    ["scheduling.k8s.io/v1beta1=true"],
    "1.37",
)
ENTRY = {"name": "gpu", "resourceClaimTemplateName": "gpu"}
OWN = {"name": "own", "resourceClaimName": "shared"}
ALIKE = {"name": "gpu", "resourceClaimTemplateName": "other"}


@pytest.fixture
async def grouping():
    """A cluster whose groups have claims, with a group that has one from a template."""
    options = ClusterOptions(
        nodes=NodeOptions(count=2, devices=2),
        claims=True,
        features=SHARED,
        kubelets=KubeletOptions(start_delay=1.0, grace_factor=0.1),
    )
    async with EmbeddedCluster(options) as running:
        make_template(running)
        make_group(running)
        await settle()
        yield running


def group_kind(cluster):
    return cluster.api.kinds.by_storage[POD_GROUPS]


def make_group(cluster):
    spec = {"schedulingPolicy": {"basic": {}}, "resourceClaims": [ENTRY, OWN]}
    cluster.api.create(group_kind(cluster), "default", {"metadata": {"name": "g"}, "spec": spec})


def get_group(cluster):
    return cluster.api.get(group_kind(cluster), "default", "g").value


def make_member(cluster, name, entry=ENTRY):
    spec = {"resourceClaims": [entry], "schedulingGroup": {"podGroupName": "g"}}
    cluster.api.create(PODS, "default", pod(name, **spec))


def group_consumer(cluster):
    group = {part: get_group(cluster)["metadata"][part] for part in ("name", "uid")}
    return {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", **group}


async def test_the_pods_of_a_group_share_its_claim(grouping):
    (made,) = claims(grouping)
    name, group = made["metadata"]["name"], get_group(grouping)
    assert name.startswith("g-gpu-")
    assert made["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "controller": True,
            "name": "g",
            "uid": group["metadata"]["uid"],
        }
    ]
    assert group["status"]["resourceClaimStatuses"] == [{"name": "gpu", "resourceClaimName": name}]
    for each in ("p", "q"):
        make_member(grouping, each)
    await settle()
    assert noted(grouping, "p") == noted(grouping, "q") == {"gpu": name}
    assert len(claims(grouping)) == 1


async def test_an_entry_that_the_group_does_not_have_is_the_pods_own(grouping):
    make_template(grouping, "other")
    make_member(grouping, "p", ALIKE)
    await settle()
    assert len(claims(grouping)) == 2
    assert noted(grouping)["gpu"].startswith("p-gpu-")


async def test_a_group_that_comes_late_and_its_template(grouping):
    remove(grouping, group_kind(grouping), "g")
    remove(grouping, RESOURCE_CLAIM_TEMPLATES, "gpu")
    await settle()
    make_member(grouping, "p")
    await settle()
    assert not claims(grouping)
    make_group(grouping)
    await settle()
    (event,) = (
        record.value
        for record in grouping.api.store[EVENTS.storage].ordered()
        if record.value["involvedObject"]["kind"] == "PodGroup"
    )
    assert event["message"] == (
        'PodGroupResourceClaim gpu: resource claim template "gpu": '
        'resourceclaimtemplate.resource.k8s.io "gpu" not found'
    )
    make_template(grouping)
    await settle()
    (made,) = claims(grouping)
    assert noted(grouping) == {"gpu": made["metadata"]["name"]}


async def test_a_pod_runs_with_a_claim_that_is_reserved_for_its_group(grouping):
    make_member(grouping, "p")
    await settle()
    allocate(grouping, noted(grouping)["gpu"])
    place(grouping)
    await asyncio.sleep(2)
    (made,) = claims(grouping)
    assert made["status"]["reservedFor"] == [group_consumer(grouping)]
    assert get_pod(grouping)["status"]["phase"] == "Running"


async def test_a_groups_reservation_outlives_its_pods_and_goes_with_it(grouping):
    make_claim(grouping)
    make_member(grouping, "p", OWN)
    allocate(grouping, "shared")
    status = {"status": {"reservedFor": [group_consumer(grouping)]}}
    update = {"patch_type": "application/merge-patch+json", "subresource": "status"}
    grouping.api.patch(RESOURCE_CLAIMS, "default", "shared", status, **update)
    remove(grouping, PODS, "p")
    await settle()
    assert claim(grouping)["status"]["reservedFor"] == status["status"]["reservedFor"]
    remove(grouping, group_kind(grouping), "g")
    await asyncio.sleep(1)
    assert claim(grouping).get("status", {}).get("allocation") is None
    assert FINALIZER not in claim(grouping)["metadata"].get("finalizers", ())
    assert [each["metadata"]["name"] for each in claims(grouping)] == ["shared"], "its own one went"
