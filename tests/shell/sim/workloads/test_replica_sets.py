from app.sim.controllers.workloads.plan import Create, Delete
from app.sim.controllers.workloads.replica_sets import BURST, plan_replica_set
from tests.shell.sim.workloads.objects import pod, scene, workload


def deleted(plan):
    return [
        action.value["metadata"]["name"] for action in plan.actions if isinstance(action, Delete)
    ]


def test_missing_pods_are_created_from_the_template():
    plan = plan_replica_set(scene(workload("ReplicaSet", replicas=3), pod("a")))
    assert [type(action) for action in plan.actions] == [Create, Create]
    made = plan.actions[0].value
    assert made["metadata"]["generateName"] == "web-"
    assert made["metadata"]["labels"] == {"app": "web"}
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("ReplicaSet", "u-web", True)
    assert made["spec"]["containers"] == [{"name": "c", "image": "app:1"}]


def test_many_pods_are_created_in_bursts():
    plan = plan_replica_set(scene(workload("ReplicaSet", replicas=10 * BURST)))
    assert len(plan.actions) == BURST


def test_ended_and_leaving_pods_are_replaced():
    pods = [pod("a", "Failed"), pod("b", "Succeeded"), pod("c", leaving=True), pod("d")]
    plan = plan_replica_set(scene(workload("ReplicaSet", replicas=2), *pods))
    assert [type(action) for action in plan.actions] == [Create]
    assert (plan.status["replicas"], plan.status["terminatingReplicas"]) == (1, 1)


def test_surplus_pods_are_deleted_the_least_useful_first():
    cheap = {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-5"}}
    young = {"creationTimestamp": "2027-01-15T08:00:00Z"}
    pods = [
        pod("ready"),
        pod("young", **young),
        pod("cheap", **cheap),
        pod("unready", ready_since=None),
        pod("starting", "Pending"),
        pod("unbound", "Pending", node=""),
    ]
    for left in range(len(pods)):
        plan = plan_replica_set(scene(workload("ReplicaSet", replicas=left), *pods))
        order = ["unbound", "starting", "unready", "cheap", "young", "ready"]
        assert deleted(plan) == order[: len(pods) - left]


def test_pods_are_available_some_time_after_they_are_ready():
    owner = workload("ReplicaSet", replicas=3, minReadySeconds=10)
    pods = [pod("old", ready_since=30), pod("new", ready_since=4), pod("not", ready_since=None)]
    plan = plan_replica_set(scene(owner, *pods))
    counts = [plan.status[f"{name}Replicas"] for name in ("ready", "available")]
    assert counts == [2, 1]
    assert plan.status["observedGeneration"] == 3
    assert plan.again == 6.0
