from app.sim.controllers.workloads.daemon_sets import pinned_to, plan_daemon_set
from app.sim.controllers.workloads.plan import Create, Delete
from app.sim.resources.kinds import PODS
from tests.shell.sim.workloads.objects import pod, scene, workload


def created(plan):
    return [a.value for a in plan.actions if isinstance(a, Create) and a.kind is PODS]


def deleted(plan):
    return {a.value["metadata"]["name"] for a in plan.actions if isinstance(a, Delete)}


def daemons(**spec):
    return workload("DaemonSet", **spec)


def test_a_pod_for_each_node_that_has_none():
    plan = plan_daemon_set(scene(daemons(), pod("a", node="n1"), nodes=["n1", "n2", "n3"]))
    assert [pinned_to(value) for value in created(plan)] == ["n2", "n3"]
    tolerated = {each["key"] for each in created(plan)[0]["spec"]["tolerations"]}
    assert "node.kubernetes.io/unschedulable" in tolerated
    assert plan.status["desiredNumberScheduled"] == 3
    assert (plan.status["numberAvailable"], plan.status["numberUnavailable"]) == (1, 2)


def test_pods_on_other_nodes_are_deleted():
    pods = [pod("a", node="n1"), pod("b", node="n2"), pod("c", "Pending", node="n1")]
    plan = plan_daemon_set(scene(daemons(), *pods, nodes=["n1"]))
    assert deleted(plan) == {"b", "c"}
    assert plan.status["numberMisscheduled"] == 1


def test_a_failed_pod_is_deleted_and_then_replaced():
    failed = pod("a", "Failed", node="n1")
    assert deleted(plan_daemon_set(scene(daemons(), failed, nodes=["n1"]))) == {"a"}


def test_an_update_keeps_to_what_may_be_unavailable():
    old = [pod(f"p{n}", node=f"n{n}", image="app:0") for n in range(4)]
    nodes = [f"n{n}" for n in range(4)]
    for bound, count in ((1, 1), ("50%", 2), (9, 4)):
        spec = {"updateStrategy": {"rollingUpdate": {"maxUnavailable": bound}}}
        plan = plan_daemon_set(scene(daemons(**spec), *old, nodes=nodes))
        assert len(deleted(plan)) == count
    waiting = [*old[:3], pod("p3", node="n3", ready_since=None)]
    assert deleted(plan_daemon_set(scene(daemons(), *waiting, nodes=nodes))) == set()
    broken = [*old[:3], pod("p3", node="n3", ready_since=None, image="app:0")]
    assert deleted(plan_daemon_set(scene(daemons(), *broken, nodes=nodes))) == {"p3"}


def test_pods_are_left_alone_when_they_are_replaced_on_deletion_only():
    owner = daemons(updateStrategy={"type": "OnDelete"})
    plan = plan_daemon_set(scene(owner, pod("a", node="n1", image="app:0"), nodes=["n1"]))
    assert deleted(plan) == set()
    assert plan.status["updatedNumberScheduled"] == 0
