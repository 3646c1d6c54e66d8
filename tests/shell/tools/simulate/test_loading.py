"""Dumps and workloads are read, sorted and put into a cluster."""

import json
from pathlib import Path

import pytest

from app.model.devices import FINALIZER
from app.sim import ManifestError
from app.sim.resources.kinds import (
    BY_RESOURCE,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIMS,
)
from app.tools.simulate.loader import CLUSTER_KINDS, WORKLOAD_KINDS, read
from tests.shell.tools.simulate.world import World, node, pod, workload

NAMESPACES = BY_RESOURCE["namespaces"]


# ---------------------------------------------------------------- files


def test_a_folder_as_cluster_info_dump_writes_it(tmp_path):
    (tmp_path / "shop" / "web-1").mkdir(parents=True)
    (tmp_path / "nodes.json").write_text(
        json.dumps({"kind": "NodeList", "apiVersion": "v1", "items": [node("a")]})
    )
    (tmp_path / "shop" / "pods.json").write_text(
        json.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": None})
    )
    (tmp_path / "shop" / "events.json").write_text(
        json.dumps({"kind": "EventList", "apiVersion": "v1", "items": [{"metadata": {}}] * 3})
    )
    (tmp_path / "shop" / "web-1" / "logs.txt").write_text("{ no JSON")
    reading = read([tmp_path], CLUSTER_KINDS)
    assert [found.value["metadata"]["name"] for found in reading.objects] == ["a"]
    assert reading.passed_over == {"Event": 3}


@pytest.mark.parametrize("value", ["[" * 1200 + "]" * 1200, r'"\ud800"', "1e400"])
def test_a_dump_with_what_an_api_server_hands_on_as_it_was_written(tmp_path, value):
    """In managedFields, which nobody reads here."""
    file = tmp_path / "nodes.json"
    one = json.dumps(node("a") | {"x": "@"}).replace('"@"', value)
    file.write_text(f'{{"kind": "List", "apiVersion": "v1", "items": [{one}]}}')
    (found,) = read([file], CLUSTER_KINDS).objects
    assert found.value["metadata"]["name"] == "a"


@pytest.mark.parametrize(
    "text",
    [
        *(b'{"a": "\xff"}', b"a: \xff", b"a: " + b"9" * 5000, b"a: [" * 3),
        *(level * 200_000 for level in (b"{", b"[", b"- ", b"? ", b"-\t", b"{a: ", b"- ? ")),
    ],
    ids=lambda text: ascii(text[:6]),
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, text):
    (tmp_path / "a.yaml").write_bytes(text)
    with pytest.raises(ManifestError, match=r"a\.yaml: error converting YAML to JSON: "):
        read([tmp_path], CLUSTER_KINDS)


def test_a_dash_is_standard_input(tmp_path, monkeypatch):
    piped = tmp_path / "piped"
    piped.write_text(json.dumps(node("a")))
    monkeypatch.setattr("app.tools.simulate.loader.STDIN", piped)
    assert [
        found.value["metadata"]["name"] for found in read([Path("-")], CLUSTER_KINDS).objects
    ] == ["a"]


def test_yaml_and_json_several_documents_and_other_groups(tmp_path):
    (tmp_path / "a.yml").write_text(
        "kind: Service\napiVersion: v1\nmetadata: {name: s}\n---\n"
        "kind: Service\napiVersion: serving.knative.dev/v1\nmetadata: {name: k}\n---\n"
        "kind: PodDisruptionBudget\napiVersion: policy/v1beta1\n---\n"
        "kind: Widget\napiVersion: example.com/v1\n"
    )
    (tmp_path / "b.yaml").write_text(
        '{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}}'
    )
    (tmp_path / "notes.txt").write_text("nothing")
    reading = read([tmp_path], CLUSTER_KINDS)
    assert [found.kind.kind for found in reading.objects] == ["Service", "Node"]
    assert reading.passed_over == {
        "Service (serving.knative.dev/v1)": 1,
        "PodDisruptionBudget (policy/v1beta1)": 1,
        "Widget": 1,
    }


def test_every_broken_file_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.yaml").write_text("a: b: c")
    (tmp_path / "b.json").write_text('{"kind": "Pod", ')
    (tmp_path / "c.yaml").write_text("name: helm-values\n")
    (tmp_path / "d.yaml").write_text("- {}\n")
    with pytest.raises(ManifestError) as caught:
        read([tmp_path, tmp_path / "none.yaml", tmp_path / "empty"], CLUSTER_KINDS)
    lines = str(caught.value).splitlines()
    expected = [
        f"{tmp_path}/a.yaml: error converting YAML to JSON",
        f"{tmp_path}/b.json: error converting YAML to JSON",
        f"{tmp_path}/c.yaml: document 1: no object of Kubernetes: kind or apiVersion is missing",
        f"{tmp_path}/d.yaml: document 1: an object is expected, not list",
        f"{tmp_path}/none.yaml: No such file or directory",
        f"{tmp_path}/empty: no *.yaml, *.yml or *.json in this folder",
    ]
    for start in expected:
        assert any(line.startswith(start) for line in lines), start


def test_many_mistakes_are_cut_short(tmp_path):
    for number in range(30):
        (tmp_path / f"{number:02d}.yaml").write_text("- x")
    with pytest.raises(ManifestError, match=r"and 10 more mistakes$"):
        read([tmp_path], WORKLOAD_KINDS)


# ---------------------------------------------------------------- dumps


def test_objects_of_a_server_stay_what_they_were(tmp_path):
    running = pod("p", phase="Running", nodeName="a", priorityClassName="lost", priority=7)
    leaving = pod("q", phase="Running", nodeName="a")
    leaving["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "uid": "s"}}
    space["metadata"] |= {"labels": {"team": "a"}, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    world = World(tmp_path, running, node("a", uid="n"), leaving, space)
    found = world.find(PODS, "p")
    assert found["metadata"]["uid"] == "uid-of-p"
    assert (found["spec"]["priority"], found["status"]["phase"]) == (7, "Running")
    assert world.find(PODS, "q")["metadata"]["deletionGracePeriodSeconds"] == 0
    kept = world.find(NAMESPACES, "shop", "")["metadata"]
    assert kept["labels"]["team"] == "a"
    assert "deletionTimestamp" not in kept
    assert not world.loader.groups


def test_a_pod_with_a_uid_and_no_status_is_pending(tmp_path):
    value = pod("p", phase="Pending")
    del value["status"]
    world = World(tmp_path, value)
    assert world.find(PODS, "p")["status"]["phase"] == "Pending"
    assert world.names() == ["p"]


def test_budgets_are_counted_anew(tmp_path):
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": {"minAvailable": 1}}
    budget["metadata"] = {"name": "b", "namespace": "shop", "uid": "u", "generation": 3}
    budget["status"] = {"observedGeneration": 3, "disruptionsAllowed": 1, "expectedPods": 2}
    found = World(tmp_path, budget).find(POD_DISRUPTION_BUDGETS, "b")
    assert found["metadata"]["generation"] == 3
    assert "observedGeneration" not in found["status"]


def test_devices_stay_allocated(tmp_path):
    metadata = {"name": "c", "namespace": "shop", "uid": "u", "finalizers": [FINALIZER]}
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    result = {"request": "r", "driver": "gpu.example.com", "pool": "a", "device": "d"}
    status = {"allocation": {"devices": {"results": [result]}}}
    status["reservedFor"] = [{"resource": "pods", "name": "p", "uid": "uid-of-p"}]
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata}
    claim |= {"spec": {"devices": {"requests": [request]}}, "status": status}
    found = World(tmp_path, claim).find(RESOURCE_CLAIMS, "c")
    assert found["metadata"]["finalizers"] == [FINALIZER]
    assert found["status"] == status


def test_plain_manifests_are_admitted(tmp_path):
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 5}
    high["metadata"] = {"name": "high"}
    world = World(tmp_path, pod("p", priorityClassName="high"), high)
    assert world.find(PODS, "p")["spec"]["priority"] == 5
    assert world.find(PRIORITY_CLASSES, "high", "") is not None


def test_pods_get_the_overhead_of_their_runtime(tmp_path):
    kata = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"}}
    kata |= {"handler": "kata", "overhead": {"podFixed": {"cpu": "250m"}}}
    world = World(tmp_path, pod("p", runtimeClassName="kata"), kata)
    assert world.find(PODS, "p")["spec"]["overhead"] == {"cpu": "250m"}


def test_pending_pods_are_decided_about_anew(tmp_path):
    waiting = [pod(f"web-{i}", phase="Pending", owner="ReplicaSet/web") for i in range(2)]
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    other = {"type": "Other", "status": "True"}
    waiting[0]["status"] |= {"conditions": [other, condition], "nominatedNodeName": "a"}
    lonely = pod("lonely", phase="Pending")
    foreign = pod("foreign", phase="Pending", schedulerName="volcano")
    ended = pod("ended", phase="Succeeded")
    world = World(tmp_path, *waiting, lonely, foreign, ended)
    status = world.find(PODS, "web-0")["status"]
    assert (status["conditions"], status["nominatedNodeName"]) == ([other], "a")
    assert [group.title for group in world.loader.groups] == [
        "ReplicaSet shop/web (pending in the cluster)",
        "Pod shop/lonely (pending in the cluster)",
    ]
    assert world.names(0) == ["web-0", "web-1"]
    assert world.loader.other_schedulers == {"volcano": 1}


def test_broken_objects_are_named_all_of_them(tmp_path):
    bad_amount = node("a")
    bad_amount["metadata"]["labels"] = {"zone": 1}
    broken = pod("p", phase="Running")
    broken["spec"]["containers"] = "none"
    unreadable = pod("q", phase="Running", nodeSelector={"zone": 1})
    with pytest.raises(ManifestError) as caught:
        World(tmp_path, bad_amount, broken, unreadable, node("good"))
    first, second, third = str(caught.value).splitlines()
    place = f"{tmp_path / 'dump.json'}: document 1, items"
    assert first.startswith(f"{place}[0]: Node a: metadata.labels must be a map of strings")
    assert second.startswith(f"{place}[1]: Pod shop/p: ")
    assert third.startswith(f"{place}[2]: Pod shop/q: ")


# ---------------------------------------------------------------- workloads


def test_what_pods_need_comes_before_them(tmp_path):
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 5}
    high["metadata"] = {"name": "high"}
    (made,) = World(tmp_path).add(pod("p", priorityClassName="high"), high)
    assert made["spec"]["priority"] == 5


def test_pods_from_a_server_are_placed_anew(tmp_path):
    exported = pod("p", phase="Running", nodeName="gone")
    by_hand = pod("q", nodeName="a")
    first, second = World(tmp_path, node("a")).add(exported, by_hand)
    assert "nodeName" not in first["spec"]
    assert first["status"]["phase"] == "Pending"
    assert second["spec"]["nodeName"] == "a"


def test_what_an_owner_in_the_files_makes_is_not_made_twice(tmp_path):
    deployment = workload("Deployment", replicas=1)
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u"}
    replica_set = workload("ReplicaSet", "web-1", replicas=1)
    replica_set["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    mine, orphan = pod("web-1-x", owner="ReplicaSet/web-1"), pod("o", owner="ReplicaSet/other")
    world = World(tmp_path)
    assert len(world.add(deployment, replica_set, mine, orphan)) == 2
    assert [g.title for g in world.loader.groups] == ["Deployment shop/web", "Pod shop/o"]


def test_generated_names_and_other_schedulers(tmp_path):
    generated = pod("x")
    generated["metadata"] = {"generateName": "run-"}
    foreign = [pod("f", schedulerName="volcano"), workload("Job", template={"schedulerName": "v"})]
    world = World(tmp_path)
    made = world.add(generated, *foreign)
    names = [each["metadata"]["name"] for each in made]
    assert any(name.startswith("run-") and len(name) == 9 for name in names)
    assert world.loader.other_schedulers == {"volcano": 1, "v": 1}
    assert [group.kind for group in world.loader.groups] == ["Pod", "Job"]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (pod("here"), "the cluster has a pod of this name already"),
        (pod("p", priorityClassName="none"), "no PriorityClass with name none was found"),
        (pod("p", cpu="much"), "quantities must match"),
        (pod("P"), "a lowercase RFC 1123 subdomain"),
    ],
    ids=["exists", "priority", "quantity", "name"],
)
def test_pods_that_cannot_be_created(tmp_path, value, problem):
    world = World(tmp_path, pod("here", phase="Running", nodeName="a"))
    with pytest.raises(ManifestError, match=problem):
        world.add(value)


def test_nodes_of_the_workload_join(tmp_path):
    world = World(tmp_path)
    world.add(node("new"))
    assert world.find(NODES, "new") is not None


def test_a_gated_pod_of_a_dump_stays_decided(tmp_path):
    """No scheduler would say so again; its gate is not removed, and nothing waits for it."""
    gated = pod("gated", phase="Pending", schedulingGates=[{"name": "example.com/approval"}])
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    gated["status"]["conditions"] = [condition | {"message": "blocked"}]
    world = World(tmp_path, node("n"), gated)
    assert world.find(PODS, "gated")["status"]["conditions"] == [condition | {"message": "blocked"}]
