"""Workloads become the pods that their controllers would make."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.sim import ManifestError
from app.tools.simulate.workloads import CLAIMS, REPLICA_SETS, pod_name, template_hash
from tests.shell.tools.simulate.world import World, node, pod, workload


def owner_of(made):
    (owner,) = made["metadata"]["ownerReferences"]
    assert owner["controller"] is True
    return owner["kind"], owner["name"], owner["uid"]


def labels(made):
    return made["metadata"]["labels"]


# ---------------------------------------------------------------- names


@given(st.text("abc-", min_size=1, max_size=70), st.sets(st.integers(0, 27**5 - 1), max_size=20))
def test_pods_of_one_owner_have_different_names(prefix, numbers):
    names = {pod_name(prefix, number) for number in numbers}
    assert len(names) == len(numbers)
    assert all(len(name) <= 63 and name.startswith(prefix[:58]) for name in names)


def test_ten_thousand_replicas():
    assert len({pod_name("web-", number) for number in range(10_000)}) == 10_000


def test_the_hash_is_that_of_the_template_whatever_the_order():
    one, other = {"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}
    assert template_hash(one) == template_hash(other) != template_hash({"a": 1})


# ---------------------------------------------------------------- replicas


def test_a_deployment_makes_a_replica_set_that_makes_pods(tmp_path):
    world = World(tmp_path)
    pods = world.add(workload("Deployment", replicas=3))
    kind, name, uid = owner_of(pods[0])
    made = world.find(REPLICA_SETS, name)
    digest = labels(pods[0])["pod-template-hash"]
    assert (kind, name, uid) == ("ReplicaSet", f"web-{digest}", made["metadata"]["uid"])
    assert owner_of(made)[:2] == ("Deployment", "web")
    assert made["spec"]["selector"]["matchLabels"] == {"app": "web", "pod-template-hash": digest}
    assert len(pods) == 3
    assert all(p["metadata"]["name"].startswith(f"{name}-") for p in pods)
    assert pods[0]["metadata"]["annotations"] == {"note": "kept"}
    assert labels(pods[0]) == {"app": "web", "pod-template-hash": digest}


@pytest.mark.parametrize("kind", ["ReplicaSet", "ReplicationController"])
def test_replicas(tmp_path, kind):
    world = World(tmp_path)
    pods = world.add(workload(kind, replicas=2))
    assert {owner_of(p)[:2] for p in pods} == {(kind, "web")}
    assert len(pods) == 2
    assert labels(pods[0]) == {"app": "web"}


def test_one_replica_unless_it_says_otherwise(tmp_path):
    assert len(World(tmp_path).add(workload("Deployment"))) == 1


def test_names_are_the_same_in_every_run(tmp_path):
    def names():
        return [p["metadata"]["name"] for p in World(tmp_path).add(workload("Deployment"))]

    assert names() == names()


# ---------------------------------------------------------------- what is there already


def test_a_deployment_of_the_cluster_is_scaled(tmp_path):
    def replica_set(name, revision):
        labels = {"app": "web", "pod-template-hash": name[4:]}
        value = workload("ReplicaSet", name, replicas=2, uid=f"u-{name}")
        value["spec"]["selector"] = {"matchLabels": labels}
        value["spec"]["template"]["metadata"] = {"labels": labels}
        value["metadata"] |= {
            "labels": {"pod-template-hash": name[4:]},
            "annotations": {"deployment.kubernetes.io/revision": revision},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "x"}
                | {"controller": True}
            ],
        }
        return value

    world = World(
        tmp_path,
        replica_set("web-old", "9"),
        replica_set("web-new", "10"),
        pod("web-old-1", phase="Running", nodeName="n", owner="ReplicaSet/web-old"),
        pod("web-new-1", phase="Running", nodeName="n", owner="ReplicaSet/web-new"),
        pod("web-new-2", phase="Failed", nodeName="n", owner="ReplicaSet/web-new"),
    )
    pods = world.add(workload("Deployment", replicas=5))
    assert {owner_of(p)[:2] for p in pods} == {("ReplicaSet", "web-new")}
    assert {labels(p)["pod-template-hash"] for p in pods} == {"new"}
    assert len(pods) == 3
    assert world.loader.groups[-1].existing == 2


def test_nothing_is_scaled_down(tmp_path):
    running = [
        pod(f"web-{i}", phase="Running", nodeName="n", owner="ReplicaSet/web") for i in range(3)
    ]
    assert World(tmp_path, *running).add(workload("ReplicaSet", replicas=1)) == []


# ---------------------------------------------------------------- StatefulSets


def stateful(**spec):
    template = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    return workload("StatefulSet", "db", volumeClaimTemplates=[template], serviceName="dbs", **spec)


def test_stateful_pods_are_numbered_and_have_claims(tmp_path):
    world = World(tmp_path)
    pods = world.add(stateful(replicas=2, ordinals={"start": 5}))
    assert [p["metadata"]["name"] for p in pods] == ["db-5", "db-6"]
    first = pods[0]
    assert labels(first)["statefulset.kubernetes.io/pod-name"] == "db-5"
    assert labels(first)["apps.kubernetes.io/pod-index"] == "5"
    assert (first["spec"]["hostname"], first["spec"]["subdomain"]) == ("db-5", "dbs")
    (volume,) = first["spec"]["volumes"]
    assert volume == {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-5"}}
    assert world.find(CLAIMS, "data-db-6")["metadata"]["labels"] == {"app": "db"}


def test_claims_that_exist_are_used(tmp_path):
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    claim["metadata"] = {"name": "data-db-1", "namespace": "shop", "uid": "old"}
    running = pod("db-0", phase="Running", nodeName="n", owner="StatefulSet/db")
    world = World(tmp_path, claim | {"spec": {"volumeName": "pv"}}, running)
    (made,) = world.add(stateful(replicas=2))
    assert made["metadata"]["name"] == "db-1"
    assert world.find(CLAIMS, "data-db-1")["metadata"]["uid"] == "old"
    assert world.find(CLAIMS, "data-db-0") is None


# ---------------------------------------------------------------- Jobs


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({}, 1),
        ({"parallelism": 3}, 3),
        ({"parallelism": 3, "completions": 2}, 2),
        ({"parallelism": 3, "completions": 9}, 3),
        ({"parallelism": 0}, 0),
        ({"parallelism": 3, "suspend": True}, 0),
    ],
)
def test_a_job_makes_the_pods_that_run_at_the_same_time(tmp_path, spec, count):
    pods = World(tmp_path).add(workload("Job", template={"restartPolicy": "Never"}, **spec))
    assert len(pods) == count
    for made in pods:
        assert owner_of(made)[:2] == ("Job", "web")
        assert labels(made)["batch.kubernetes.io/job-name"] == "web"
        assert labels(made)["controller-uid"] == owner_of(made)[2]


def test_an_indexed_job(tmp_path):
    job = workload("Job", parallelism=2, completions=2, completionMode="Indexed")
    pods = World(tmp_path).add(job)
    mark = "batch.kubernetes.io/job-completion-index"
    assert sorted(labels(p)[mark] for p in pods) == ["0", "1"]
    assert all(p["metadata"]["name"].startswith(f"web-{labels(p)[mark]}-") for p in pods)
    assert pods[0]["metadata"]["annotations"][mark] == labels(pods[0])[mark]


# ---------------------------------------------------------------- DaemonSets


def pinned_to(made):
    affinity = made["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (field,) = term["matchFields"]
    return field["values"][0]


def test_daemons_go_where_they_are_allowed(tmp_path):
    taint = {"key": "gpu", "effect": "NoSchedule"}
    soft = {"key": "old", "effect": "PreferNoSchedule"}
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    world = World(
        tmp_path,
        node("a"),
        node("elsewhere", zone="y"),
        node("tainted", taints=[taint]),
        node("soft", taints=[soft]),
        node("cordoned", unschedulable=True, taints=[cordon]),
        node("full", cpu="0"),
    )
    selector = {"nodeSelector": {"topology.kubernetes.io/zone": "z"}}
    pods = world.add(workload("DaemonSet", "agent", template=selector))
    assert {pinned_to(p) for p in pods} == {"a", "soft", "cordoned", "full"}
    assert {owner_of(p)[:2] for p in pods} == {("DaemonSet", "agent")}
    keys = {t["key"] for t in pods[0]["spec"]["tolerations"]}
    assert "node.kubernetes.io/disk-pressure" in keys
    assert "node.kubernetes.io/network-unavailable" not in keys


def test_daemons_by_affinity_and_toleration(tmp_path):
    taint = {"key": "gpu", "effect": "NoExecute"}
    world = World(tmp_path, node("a"), node("b", taints=[taint]), node("c", zone="y"))
    expression = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    preferred = [{"weight": 1, "preference": {"matchExpressions": [expression]}}]
    affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": terms,
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    }
    template = {
        "hostNetwork": True,
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {"nodeAffinity": affinity},
    }
    pods = world.add(workload("DaemonSet", "agent", template=template))
    assert {pinned_to(p) for p in pods} == {"a", "b"}
    kept = pods[0]["spec"]["affinity"]["nodeAffinity"]
    assert kept["preferredDuringSchedulingIgnoredDuringExecution"] == preferred
    keys = {t["key"] for t in pods[0]["spec"]["tolerations"]}
    assert "node.kubernetes.io/network-unavailable" in keys


def test_a_node_that_has_its_daemon(tmp_path):
    running = pod("agent-x", phase="Running", nodeName="a", owner="DaemonSet/agent")
    world = World(tmp_path, node("a"), node("b"), running)
    (made,) = world.add(workload("DaemonSet", "agent"))
    assert pinned_to(made) == "b"


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (workload("Deployment", selector={"matchLabels": {"app": "other"}}), "does not match"),
        (workload("DaemonSet", selector=None), "spec.selector: Required"),
        (workload("Job", template={"containers": []}), "spec.template.spec.containers: Required"),
        (workload("StatefulSet", volumeClaimTemplates=[{}]), "a field is missing"),
        (workload("Deployment", replicas="three"), "spec.replicas: Invalid value"),
    ],
    ids=["selector", "no selector", "no containers", "claim without a name", "replicas"],
)
def test_workloads_that_cannot_be_unfolded(tmp_path, value, problem):
    with pytest.raises(ManifestError, match=problem) as caught:
        World(tmp_path).add(value)
    place = f"{tmp_path / 'workload.json'}: document 1, items[0]: {value['kind']} shop/web: "
    assert str(caught.value).startswith(place)
