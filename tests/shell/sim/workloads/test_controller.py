"""The workload controllers in a cluster, on a virtual clock. Pods are bound as soon as they are created."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.sim import ClusterOptions, EmbeddedCluster, KubeletOptions, NodeOptions
from app.sim.controllers.kubelet import RUN_FOR
from app.sim.controllers.workloads.daemon_sets import pinned_to
from app.sim.controllers.workloads.jobs import TRACKING
from app.sim.controllers.workloads.plan import BURST
from app.sim.errors import ApiError
from app.sim.resources.deletion import DeleteOptions, delete
from app.sim.resources.kinds import BY_RESOURCE, EVENTS, PODS, RESOURCE_QUOTAS, Kind
from app.sim.resources.pod_subresources import bind
from app.sim.store import Object, StoreChange

pytestmark = pytest.mark.looptime

DEPLOYMENTS = BY_RESOURCE["deployments.apps"]
REPLICA_SETS = BY_RESOURCE["replicasets.apps"]
STATEFUL_SETS = BY_RESOURCE["statefulsets.apps"]
DAEMON_SETS = BY_RESOURCE["daemonsets.apps"]
JOBS = BY_RESOURCE["jobs.batch"]
REVISIONS = BY_RESOURCE["controllerrevisions.apps"]


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    loop = asyncio.get_running_loop()
    options = ClusterOptions(nodes=NodeOptions(count=2), kubelets=KubeletOptions(), workloads=True)
    async with EmbeddedCluster(options, now=lambda: 1e9 + loop.time()) as running:

        def on_pod(change: StoreChange) -> None:
            if change.type == "ADDED":
                loop.call_soon(bind_pod, *change.key)

        def bind_pod(namespace: str, name: str) -> None:
            record = running.api.find(PODS, namespace, name)
            if record is not None and not record.value["spec"].get("nodeName"):
                node = pinned_to(record.value) or "node-0"
                binding = {"metadata": {"name": name}, "target": {"name": node}}
                bind(running.api, namespace, name, binding)

        running.api.store["pods"].listeners[on_pod] = None
        yield running


def workload(name: str = "web", image: str = "app:1", **spec: Any) -> Object:
    labels = {"app": name}
    containers = [{"name": "c", "image": image}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    spec = {"selector": {"matchLabels": labels}, "template": template} | spec
    return {"metadata": {"name": name}, "spec": spec}


def pods(cluster: EmbeddedCluster) -> list[Object]:
    return [record.value for record in cluster.api.store["pods"].ordered(namespace="default")]


def get(cluster: EmbeddedCluster, kind: Kind, name: str = "web") -> Object:
    return cluster.api.get(kind, "default", name).value


async def test_a_deployment_rolls(cluster: EmbeddedCluster) -> None:
    cluster.api.create(DEPLOYMENTS, "default", workload(replicas=3))
    await asyncio.sleep(2)
    status = get(cluster, DEPLOYMENTS)["status"]
    counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    assert [status[name] for name in counts] == [3, 3, 3, 3]
    smallest, most = [], []

    def on_pod(_change: StoreChange) -> None:
        living = [p for p in pods(cluster) if "deletionTimestamp" not in p["metadata"]]
        most.append(len(living))
        smallest.append(sum(p["status"]["phase"] == "Running" for p in living))

    cluster.api.store["pods"].listeners[on_pod] = None
    cluster.api.update(DEPLOYMENTS, "default", "web", workload(image="app:2", replicas=3))
    await asyncio.sleep(10)
    assert {p["spec"]["containers"][0]["image"] for p in pods(cluster)} == {"app:2"}
    assert (min(smallest), max(most)) == (3, 4)


async def test_what_was_there_before_is_adopted(cluster: EmbeddedCluster) -> None:
    value = workload(replicas=2)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "uid": "gone", "controller": True}
    metadata = value["spec"]["template"]["metadata"]
    spec = value["spec"]["template"]["spec"]
    for name, owners in {
        "orphan": [],
        "dumped": [owner | {"name": "web"}],
        "others": [owner | {"name": "other"}],
    }.items():
        own = metadata | {"name": name} | ({"ownerReferences": owners} if owners else {})
        cluster.api.create(PODS, "default", {"metadata": own, "spec": spec})
    cluster.api.create(REPLICA_SETS, "default", value)
    await asyncio.sleep(2)
    uid = get(cluster, REPLICA_SETS)["metadata"]["uid"]
    owned = {
        p["metadata"]["name"]: p["metadata"]["ownerReferences"][0]["uid"] for p in pods(cluster)
    }
    assert owned == {"orphan": uid, "dumped": uid, "others": "gone"}


async def test_a_pod_that_no_longer_matches_is_released(cluster: EmbeddedCluster) -> None:
    cluster.api.create(REPLICA_SETS, "default", workload(replicas=1))
    await asyncio.sleep(2)
    (first,) = pods(cluster)
    changed = first | {"metadata": first["metadata"] | {"labels": {"app": "debug"}}}
    cluster.api.update(PODS, "default", first["metadata"]["name"], changed)
    await asyncio.sleep(2)
    found = {
        p["metadata"]["labels"]["app"]: p["metadata"].get("ownerReferences") for p in pods(cluster)
    }
    assert found.keys() == {"web", "debug"}
    assert found["debug"] is None


async def test_a_job_ends_by_itself(cluster: EmbeddedCluster) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}
    job = {"metadata": {"name": "web"}, "spec": {"template": {"spec": spec}}}
    job["spec"] |= {"completions": 2, "ttlSecondsAfterFinished": 60}
    cluster.api.create(JOBS, "default", job)
    await asyncio.sleep(5)
    status = get(cluster, JOBS)["status"]
    assert (status["succeeded"], status["active"]) == (2, 0)
    assert len(pods(cluster)) == 2
    await asyncio.sleep(60)
    assert cluster.api.find(JOBS, "default", "web") is None
    assert pods(cluster) == []


async def test_pods_of_a_job_are_counted_before_they_go(cluster: EmbeddedCluster) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}
    job = {"metadata": {"name": "web"}, "spec": {"template": {"spec": spec}, "completions": 6}}
    cluster.api.create(JOBS, "default", job)

    def on_pod(change: StoreChange) -> None:
        if change.record.value["status"]["phase"] == "Succeeded" and change.type != "DELETED":
            loop.call_soon(drop, change.key[1])

    def drop(name: str) -> None:
        if cluster.api.find(PODS, "default", name) is not None:
            delete(cluster.api, PODS, "default", name, DeleteOptions())

    loop = asyncio.get_running_loop()
    cluster.api.store["pods"].listeners[on_pod] = None
    await asyncio.sleep(20)
    status = get(cluster, JOBS)["status"]
    assert (status["succeeded"], status["failed"]) == (6, 0)
    assert pods(cluster) == []


@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
async def test_a_deleted_job_lets_its_pods_go(cluster: EmbeddedCluster, propagation: str) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}
    job = {"metadata": {"name": "web"}, "spec": {"template": {"spec": spec}, "parallelism": 3}}
    job["spec"]["template"]["metadata"] = {"annotations": {RUN_FOR: "1h"}}
    cluster.api.create(JOBS, "default", job)
    await asyncio.sleep(2)
    assert [each["metadata"]["finalizers"] for each in pods(cluster)] == [[TRACKING]] * 3
    delete(cluster.api, JOBS, "default", "web", DeleteOptions(propagation=propagation))
    await asyncio.sleep(60)
    assert cluster.api.find(JOBS, "default", "web") is None
    kept = pods(cluster)
    assert len(kept) == (3 if propagation == "Orphan" else 0)
    assert all("finalizers" not in each["metadata"] for each in kept)


async def test_a_plan_is_carried_out_in_parts(cluster: EmbeddedCluster) -> None:
    cluster.add_nodes(NodeOptions(count=3 * BURST, first=2))
    loop, turns = asyncio.get_running_loop(), [0]

    def on_pod(change: StoreChange) -> None:
        before = change.previous
        marked = "deletionTimestamp" in change.record.value["metadata"]
        if before is not None and (not marked or "deletionTimestamp" in before.value["metadata"]):
            return
        if turns[-1] == 0:
            loop.call_soon(turns.append, 0)
        turns[-1] += 1

    cluster.api.store["pods"].listeners[on_pod] = None
    parallel = workload("many", podManagementPolicy="Parallel", replicas=3 * BURST)
    cluster.api.create(STATEFUL_SETS, "default", parallel)
    await asyncio.sleep(5)
    assert len(pods(cluster)) == 3 * BURST
    daemons = cluster.api.create(DAEMON_SETS, "default", workload()).value
    await asyncio.sleep(5)
    assert len(pods(cluster)) == 6 * BURST + 2
    template = daemons["spec"]["template"]
    nowhere = template | {"spec": template["spec"] | {"nodeSelector": {"a": "b"}}}
    changed = daemons | {"metadata": {"name": "web"}}
    changed["spec"] = daemons["spec"] | {"template": nowhere}
    cluster.api.update(DAEMON_SETS, "default", "web", changed)
    await asyncio.sleep(60)
    assert len(pods(cluster)) == 3 * BURST
    assert max(turns) <= BURST


async def test_daemons_follow_the_nodes(cluster: EmbeddedCluster) -> None:
    cluster.api.create(DAEMON_SETS, "default", workload())
    await asyncio.sleep(1)
    assert len(pods(cluster)) == 2
    cluster.add_nodes(NodeOptions(count=1, first=2))
    await asyncio.sleep(1)
    assert len(pods(cluster)) == 3
    nodes = BY_RESOURCE["nodes"]
    delete(cluster.api, nodes, "", "node-2", DeleteOptions())
    await asyncio.sleep(3)
    assert get(cluster, DAEMON_SETS)["status"]["desiredNumberScheduled"] == 2


async def test_what_cannot_be_created_is_told_and_tried_again(cluster: EmbeddedCluster) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}
    cluster.api.create(RESOURCE_QUOTAS, "default", quota)
    cluster.api.create(REPLICA_SETS, "default", workload(replicas=3))
    await asyncio.sleep(20)
    assert get(cluster, REPLICA_SETS)["status"]["readyReplicas"] == 1
    notes = {record.value["message"] for record in cluster.api.store["events"].ordered()}
    assert any(
        "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1" in n for n in notes
    )
    assert len(cluster.api.store["events"].records) < 10
    assert get(cluster, RESOURCE_QUOTAS, "q")["status"]["used"] == {"pods": "1"}
    delete(cluster.api, RESOURCE_QUOTAS, "default", "q", DeleteOptions())
    await asyncio.sleep(40)
    assert get(cluster, REPLICA_SETS)["status"]["readyReplicas"] == 3


async def test_a_broken_object_concerns_only_itself(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Objects that are restored from a dump are not validated as strictly as new ones."""
    record = cluster.api.create(STATEFUL_SETS, "default", workload("bad"))
    broken = record.value | {"metadata": dict(record.value["metadata"])}
    broken["spec"] = record.value["spec"] | {"replicas": {"a": 1}, "updateStrategy": 7}
    with caplog.at_level(logging.WARNING):
        cluster.api.write(STATEFUL_SETS, broken)
        cluster.api.create(STATEFUL_SETS, "default", workload("good", replicas=1))
        await asyncio.sleep(5)
    assert "WorkloadController cannot reconcile StatefulSet default/bad" in caplog.text
    assert "default/good" not in caplog.text
    assert [p["metadata"]["name"] for p in pods(cluster)] == ["good-0"]
    repaired = broken | {"spec": record.value["spec"], "metadata": dict(broken["metadata"])}
    cluster.api.write(STATEFUL_SETS, repaired)
    await asyncio.sleep(1)
    assert [p["metadata"]["name"] for p in pods(cluster)] == ["bad-0", "good-0"]


async def test_nothing_is_remembered_of_what_is_gone(cluster: EmbeddedCluster) -> None:
    controllers = [*cluster._controllers]
    before = [sizes(controller) for controller in controllers]
    cluster.api.create(DEPLOYMENTS, "default", workload(replicas=2))
    cluster.api.create(DAEMON_SETS, "default", workload("agent"))
    await asyncio.sleep(2)
    assert [sizes(controller) for controller in controllers] != before
    for kind, name in ((DEPLOYMENTS, "web"), (DAEMON_SETS, "agent")):
        delete(cluster.api, kind, "default", name, DeleteOptions())
    await asyncio.sleep(10)
    assert pods(cluster) == []
    after = [sizes(controller) for controller in controllers]
    nodes = {"_nodes": 2}
    assert [known | nodes if "_nodes" in known else known for known in before] == after


def sizes(controller: object) -> dict[str, int]:
    """The sizes of what a controller remembers."""
    return {
        name: len(part)
        for name, part in vars(controller).items()
        if isinstance(part, dict | set) and name not in ("_handlers", "_queue")
    }


# ---------------------------------------------------------------- garbage


def owned_map(cluster: EmbeddedCluster, name: str, *owners: Object, blocking: bool = True) -> None:
    references = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": blocking,
        }
        for owner in owners
    ]
    cluster.api.create(MAPS, "default", {"metadata": {"name": name, "ownerReferences": references}})


MAPS = BY_RESOURCE["configmaps"]


def names(cluster: EmbeddedCluster) -> list[str]:
    found = cluster.api.store["configmaps"].ordered(namespace="default")
    return [record.name for record in found if record.name != "kube-root-ca.crt"]


async def test_dependents_go_with_their_last_owner(cluster: EmbeddedCluster) -> None:
    first, second = (
        cluster.api.create(MAPS, "default", {"metadata": {"name": name}}).value
        for name in ("a", "b")
    )
    owned_map(cluster, "both", first, second)
    owned_map(cluster, "one", first)
    owned_map(cluster, "unknown", first | {"metadata": {"name": "never", "uid": "x"}})
    delete(cluster.api, MAPS, "default", "a", DeleteOptions())
    await asyncio.sleep(1)
    assert names(cluster) == ["b", "both", "unknown"]
    (left,) = get(cluster, MAPS, "both")["metadata"]["ownerReferences"]
    assert left["name"] == "b"
    delete(cluster.api, MAPS, "default", "b", DeleteOptions())
    await asyncio.sleep(1)
    assert names(cluster) == ["unknown"]


async def test_an_owner_in_the_foreground_waits(cluster: EmbeddedCluster) -> None:
    owner = cluster.api.create(MAPS, "default", {"metadata": {"name": "a"}}).value
    owned_map(cluster, "held", owner)
    owned_map(cluster, "free", owner, blocking=False)
    held = get(cluster, MAPS, "held")
    finalizers = {"finalizers": ["example.com/keep"]}
    cluster.api.update(MAPS, "default", "held", held | {"metadata": held["metadata"] | finalizers})
    delete(cluster.api, MAPS, "default", "a", DeleteOptions(propagation="Foreground"))
    await asyncio.sleep(1)
    assert names(cluster) == ["a", "held"]
    held = get(cluster, MAPS, "held")
    freed = {name: part for name, part in held["metadata"].items() if name != "finalizers"}
    cluster.api.update(MAPS, "default", "held", held | {"metadata": freed})
    await asyncio.sleep(1)
    assert names(cluster) == []


async def test_orphans_stay(cluster: EmbeddedCluster) -> None:
    owner = cluster.api.create(MAPS, "default", {"metadata": {"name": "a"}}).value
    owned_map(cluster, "child", owner)
    delete(cluster.api, MAPS, "default", "a", DeleteOptions(propagation="Orphan"))
    await asyncio.sleep(1)
    assert names(cluster) == ["child"]
    assert "ownerReferences" not in get(cluster, MAPS, "child")["metadata"]


async def test_large_families_go_in_batches(cluster: EmbeddedCluster) -> None:
    owner = cluster.api.create(MAPS, "default", {"metadata": {"name": "a"}}).value
    for number in range(450):
        owned_map(cluster, f"child-{number}", owner)
    delete(cluster.api, MAPS, "default", "a", DeleteOptions())
    await asyncio.sleep(1)
    assert names(cluster) == []


# ---------------------------------------------------------------- quotas


async def test_a_quota_counts_by_scope(cluster: EmbeddedCluster) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}, "scopes": ["BestEffort"]}}
    cluster.api.create(RESOURCE_QUOTAS, "default", quota)
    plain = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    with pytest.raises(ApiError, match="exceeded quota: q"):
        cluster.api.create(PODS, "default", plain)
    plain["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    cluster.api.create(PODS, "default", plain)


async def test_any_kind_can_be_counted(cluster: EmbeddedCluster) -> None:
    hard = {"count/deployments.apps": "1", "configmaps": "2"}
    quota = {"metadata": {"name": "q"}, "spec": {"hard": hard}}
    cluster.api.create(RESOURCE_QUOTAS, "default", quota)
    await asyncio.sleep(1)
    cluster.api.create(DEPLOYMENTS, "default", workload("a", replicas=0))
    with pytest.raises(ApiError, match=r"count/deployments\.apps=1"):
        cluster.api.create(DEPLOYMENTS, "default", workload("b"))
    cluster.api.create(MAPS, "default", {"metadata": {"name": "m"}})
    with pytest.raises(ApiError, match="configmaps=1, used: configmaps=2"):
        cluster.api.create(MAPS, "default", {"metadata": {"name": "n"}})
    assert not cluster.api.store[EVENTS.storage].records


# ---------------------------------------------------------------- budgets


async def test_a_budget_expects_what_the_workload_asks_for(cluster: EmbeddedCluster) -> None:
    budgets = BY_RESOURCE["poddisruptionbudgets.policy"]
    spec = {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": "50%"}
    cluster.api.create(budgets, "default", {"metadata": {"name": "b"}, "spec": spec})
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "3"}}}
    cluster.api.create(RESOURCE_QUOTAS, "default", quota)
    cluster.api.create(DEPLOYMENTS, "default", workload(replicas=8))
    await asyncio.sleep(3)
    status = get(cluster, budgets, "b")["status"]
    assert (status["expectedPods"], status["currentHealthy"]) == (8, 3)
    assert (status["desiredHealthy"], status["disruptionsAllowed"]) == (4, 0)


async def test_owners_in_a_circle_end_nothing(cluster: EmbeddedCluster) -> None:
    budgets = BY_RESOURCE["poddisruptionbudgets.policy"]
    selector = {"matchLabels": {"app": "web"}}
    budget = {"metadata": {"name": "b"}, "spec": {"selector": selector, "maxUnavailable": 1}}
    cluster.api.create(budgets, "default", budget)
    sets = [
        cluster.api.create(REPLICA_SETS, "default", workload("web", replicas=1)),
        cluster.api.create(REPLICA_SETS, "default", workload("other", replicas=0)),
    ]
    for mine, owner in (sets, sets[::-1]):
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner.name}
        reference |= {"uid": owner.value["metadata"]["uid"], "controller": True}
        metadata = mine.value["metadata"] | {"ownerReferences": [reference]}
        cluster.api.write(REPLICA_SETS, mine.value | {"metadata": metadata})
    await asyncio.sleep(3)
    assert get(cluster, budgets, "b")["status"]["observedGeneration"] == 1
    delete(cluster.api, REPLICA_SETS, "default", "web", DeleteOptions())
    await asyncio.sleep(3)
    assert not cluster.api.store[REPLICA_SETS.storage].records


# ---------------------------------------------------------------- dumps


async def test_a_dump_keeps_its_pods(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """Loaded objects have other uids, so that owners are found by their names."""
    cluster.api.create(DEPLOYMENTS, "default", workload(replicas=2))
    cluster.api.create(STATEFUL_SETS, "default", workload("db", replicas=2))
    cluster.api.create(DAEMON_SETS, "default", workload("agent"))
    await asyncio.sleep(3)
    cluster.api.update(DEPLOYMENTS, "default", "web", workload(image="app:2", replicas=2))
    await asyncio.sleep(10)
    names = sorted(p["metadata"]["name"] for p in pods(cluster))
    kinds = (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, DAEMON_SETS, REVISIONS, PODS)
    items = [
        record.value
        for kind in kinds
        for record in cluster.api.store[kind.storage].ordered(namespace="default")
    ]
    dump = tmp_path / "dump.json"
    dump.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items}))
    options = ClusterOptions(
        nodes=NodeOptions(count=2), kubelets=KubeletOptions(), workloads=True, load=(dump,)
    )
    async with EmbeddedCluster(options) as other:
        await asyncio.sleep(5)
        assert sorted(p["metadata"]["name"] for p in pods(other)) == names
        assert len(other.api.store[REPLICA_SETS.storage].records) == 2
        assert len(other.api.store[REVISIONS.storage].records) == 2
        delete(other.api, DEPLOYMENTS, "default", "web", DeleteOptions())
        await asyncio.sleep(5)
        left = {p["metadata"]["labels"]["app"] for p in pods(other)}
        assert left == {"db", "agent"}
