from hypothesis import given
from hypothesis import strategies as st

from app.sim.controllers.workloads.deployments import (
    REVISION,
    Size,
    plan_deployment,
    rolling_sizes,
)
from app.sim.controllers.workloads.plan import Create, Delete, Replace, scaled
from app.sim.controllers.workloads.templates import HASH_LABEL, replica_set_of, template_hash
from app.sim.objects import find_condition
from tests.shell.sim.workloads.objects import NOW, scene, template, workload


def replica_set(image="app:1", revision=1, *, replicas=0, available=None, leaving=0):
    owner = workload("Deployment", image)
    digest = template_hash(template(image))
    metadata = {"name": f"web-{digest}", "annotations": {REVISION: str(revision)}}
    value = replica_set_of(owner, metadata, digest, replicas)
    count = replicas if available is None else available
    status = {"replicas": replicas, "availableReplicas": count, "readyReplicas": count}
    return value | {"status": status | {"terminatingReplicas": leaving}}


def sizes(plan):
    """The ReplicaSets that the plan resizes or creates: image -> replicas."""
    return {
        action.value["spec"]["template"]["spec"]["containers"][0]["image"]: action.value["spec"][
            "replicas"
        ]
        for action in plan.actions
        if isinstance(action, Create | Replace)
    }


def test_the_first_replica_set():
    plan = plan_deployment(scene(workload("Deployment", replicas=3)))
    (action,) = plan.actions
    value = action.value
    digest = value["metadata"]["labels"][HASH_LABEL]
    assert value["metadata"]["name"] == f"web-{digest}"
    assert value["metadata"]["annotations"] == {REVISION: "1"}
    assert value["spec"]["replicas"] == 3
    assert value["spec"]["selector"]["matchLabels"] == {"app": "web", HASH_LABEL: digest}
    assert plan.annotations == {REVISION: "1"}
    assert (
        find_condition({"status": plan.status}, "Progressing")["reason"] == "NewReplicaSetCreated"
    )


def test_a_finished_deployment_is_left_alone():
    known = replica_set(replicas=2)
    plan = plan_deployment(scene(workload("Deployment", replicas=2), replica_sets=[known]))
    assert plan.actions == []
    finished = find_condition({"status": plan.status}, "Progressing")
    assert (finished["status"], finished["reason"]) == ("True", "NewReplicaSetAvailable")
    assert find_condition({"status": plan.status}, "Available")["status"] == "True"


def test_a_new_template_starts_with_the_surge():
    old = replica_set(replicas=4)
    owner = workload("Deployment", "app:2", replicas=4)
    plan = plan_deployment(scene(owner, replica_sets=[old]))
    assert sizes(plan) == {"app:2": 1}
    assert plan.annotations == {REVISION: "2"}


def test_an_old_template_that_comes_back_is_the_newest_revision():
    sets = [replica_set("app:1", 1), replica_set("app:2", 2, replicas=1)]
    plan = plan_deployment(scene(workload("Deployment", "app:1"), replica_sets=sets))
    (update,) = [action for action in plan.actions if isinstance(action, Replace)]
    assert update.value["metadata"]["annotations"][REVISION] == "3"
    assert sizes(plan) == {"app:1": 1}


def test_recreate_waits_until_the_old_pods_are_gone():
    owner = workload("Deployment", "app:2", replicas=2, strategy={"type": "Recreate"})
    new = replica_set("app:2", 2)
    for old, expected in (
        (replica_set(replicas=2), {"app:1": 0}),
        (replica_set(leaving=1), {}),
        (replica_set(), {"app:2": 2}),
    ):
        assert sizes(plan_deployment(scene(owner, replica_sets=[old, new]))) == expected


def test_a_paused_deployment_is_scaled_but_not_rolled():
    owner = workload("Deployment", "app:2", replicas=5, paused=True)
    plan = plan_deployment(scene(owner, replica_sets=[replica_set(replicas=2)]))
    assert sizes(plan) == {"app:1": 5}
    assert find_condition({"status": plan.status}, "Progressing")["status"] == "Unknown"


def test_a_pause_leaves_a_rollout_where_it_is():
    owner = workload("Deployment", "app:2", replicas=4, paused=True)
    sets = [replica_set(replicas=3), replica_set("app:2", 2, replicas=2, available=1)]
    assert sizes(plan_deployment(scene(owner, replica_sets=sets))) == {}
    sets = [replica_set(replicas=1), replica_set("app:2", 2, replicas=4)]
    assert sizes(plan_deployment(scene(owner, replica_sets=sets))) == {"app:1": 0}
    owner["spec"]["strategy"] = {"type": "Recreate"}
    sets = [replica_set(replicas=3), replica_set("app:2", 2, replicas=2)]
    assert sizes(plan_deployment(scene(owner, replica_sets=sets))) == {}


@given(
    wanted=st.integers(0, 30),
    surge=st.sampled_from([0, 1, 7, "25%", "100%"]),
    present=st.lists(st.integers(0, 30), min_size=2, max_size=4),
)
def test_a_paused_deployment_keeps_to_its_surge(wanted, surge, present):
    strategy = {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": 1}}
    owner = workload("Deployment", "app:0", replicas=wanted, paused=True, strategy=strategy)
    sets = [replica_set(f"app:{n}", n + 1, replicas=size) for n, size in enumerate(present)]
    planned = {f"app:{n}": size for n, size in enumerate(present)}
    planned |= sizes(plan_deployment(scene(owner, replica_sets=sets)))
    allowed = wanted + scaled(surge, wanted, round_up=True)
    assert wanted <= sum(planned.values()) <= allowed or sum(map(bool, present)) < 2
    assert min(planned.values()) >= 0


def test_old_replica_sets_are_forgotten():
    sets = [replica_set(f"app:{n}", n) for n in range(1, 5)]
    sets.append(replica_set("app:9", 9, replicas=1))
    owner = workload("Deployment", "app:9", revisionHistoryLimit=2)
    plan = plan_deployment(scene(owner, replica_sets=sets))
    gone = [action.value for action in plan.actions if isinstance(action, Delete)]
    assert [value["metadata"]["annotations"][REVISION] for value in gone] == ["1", "2"]


def test_a_rollout_that_makes_no_progress_is_late():
    new = replica_set(replicas=1, available=0)
    owner = workload("Deployment", progressDeadlineSeconds=60)
    owner["status"] = plan_deployment(scene(owner)).status
    before = scene(owner, replica_sets=[new], now=NOW + 1)
    owner["status"] = plan_deployment(before).status
    assert plan_deployment(scene(owner, replica_sets=[new], now=NOW + 31)).again == 30.0
    plan = plan_deployment(scene(owner, replica_sets=[new], now=NOW + 62))
    late = find_condition({"status": plan.status}, "Progressing")
    assert (late["status"], late["reason"]) == ("False", "ProgressDeadlineExceeded")


_COUNTS = st.integers(0, 12)


@st.composite
def _sizes(draw):
    replicas = draw(_COUNTS)
    return Size(replicas, draw(st.integers(0, replicas)))


@given(_COUNTS, _COUNTS, _COUNTS, _sizes(), st.lists(_sizes(), max_size=3))
def test_rolling_keeps_within_its_bounds(wanted, surge, unavailable, new, olds):
    slack = unavailable if surge or unavailable else 1
    size, others = rolling_sizes(wanted, surge, slack, new, olds)
    total = new.replicas + sum(old.replicas for old in olds)
    assert size + sum(others) <= max(total, wanted + surge)
    assert all(0 <= after <= old.replicas for after, old in zip(others, olds, strict=True))
    assert size <= max(wanted, new.replicas)
    available = new.available + sum(old.available for old in olds)
    kept = min(size, new.available) + sum(
        min(after, old.available) for after, old in zip(others, olds, strict=True)
    )
    assert kept >= min(available, wanted - slack, wanted)


@given(st.integers(0, 12), _COUNTS, _COUNTS, st.lists(_COUNTS, min_size=1, max_size=3))
def test_rolling_comes_to_its_end_if_pods_become_available(wanted, surge, unavailable, olds):
    slack = unavailable if surge or unavailable else 1
    size = 0
    for _ in range(100):
        size, olds = rolling_sizes(
            wanted, surge, slack, Size(size, size), [Size(old, old) for old in olds]
        )
    assert (size, sum(olds)) == (wanted, 0)
