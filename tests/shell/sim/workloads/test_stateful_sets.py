from app.sim.controllers.workloads.plan import BURST, Create, Delete
from app.sim.controllers.workloads.stateful_sets import plan_stateful_set
from app.sim.controllers.workloads.templates import CLAIMS, REVISION_LABEL, template_hash
from app.sim.resources.kinds import PODS
from tests.shell.sim.workloads.objects import pod, scene, template, workload


def steps(plan):
    """The pods that are created and deleted, in order."""
    return [
        ("+" if isinstance(a, Create) else "-") + a.value["metadata"]["name"]
        for a in plan.actions
        if a.kind is PODS
    ]


def revision(image="app:1"):
    return f"web-{template_hash(template(image))}"


def member(ordinal, phase="Running", *, image="app:1", **parts):
    value = pod(f"web-{ordinal}", phase, **parts)
    value["metadata"]["labels"][REVISION_LABEL] = revision(image)
    return value


def stateful(image="app:1", *, current="app:1", **spec):
    status = {"currentRevision": revision(current)}
    return workload("StatefulSet", image, status=status, **({"replicas": 3} | spec))


def test_pods_are_created_one_after_the_other():
    assert steps(plan_stateful_set(scene(stateful()))) == ["+web-0"]
    unready = member(0, ready_since=None)
    assert steps(plan_stateful_set(scene(stateful(), unready))) == []
    assert steps(plan_stateful_set(scene(stateful(), member(0)))) == ["+web-1"]
    leaving = member(1, leaving=True)
    assert steps(plan_stateful_set(scene(stateful(), member(0), leaving))) == []


def test_pods_are_created_at_once_in_parallel():
    owner = stateful(podManagementPolicy="Parallel", ordinals={"start": 5})
    assert steps(plan_stateful_set(scene(owner))) == ["+web-5", "+web-6", "+web-7"]


def test_many_pods_in_parallel_are_created_and_deleted_in_parts():
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    owner = stateful(
        podManagementPolicy="Parallel", replicas=10**6, volumeClaimTemplates=[claim] * 3
    )
    assert BURST <= len(plan_stateful_set(scene(owner)).actions) < BURST + 9


def test_each_pod_has_claims_of_its_own():
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    plan = plan_stateful_set(scene(stateful(volumeClaimTemplates=[claim])))
    claims = [a for a in plan.actions if a.kind is CLAIMS]
    assert [(a.value["metadata"]["name"], a.if_absent) for a in claims] == [("data-web-0", True)]
    made = next(a.value for a in plan.actions if a.kind is PODS)
    (volume,) = made["spec"]["volumes"]
    assert volume["persistentVolumeClaim"] == {"claimName": "data-web-0"}
    assert made["spec"]["hostname"] == "web-0"


def test_surplus_pods_are_deleted_from_the_end():
    pods = [member(n) for n in range(3)]
    assert steps(plan_stateful_set(scene(stateful(replicas=1), *pods))) == ["-web-2"]
    pods[2] = member(2, leaving=True)
    assert steps(plan_stateful_set(scene(stateful(replicas=1), *pods))) == []
    owner = stateful(replicas=1, podManagementPolicy="Parallel")
    assert steps(plan_stateful_set(scene(owner, *pods[:2]))) == ["-web-1"]


def test_failed_pods_are_replaced():
    pods = [member(0, "Failed"), member(1), member(2)]
    assert steps(plan_stateful_set(scene(stateful(), *pods))) == ["-web-0"]


def test_an_update_goes_from_the_end_to_the_partition():
    owner = stateful("app:2")
    pods = [member(n) for n in range(3)]
    assert steps(plan_stateful_set(scene(owner, *pods))) == ["-web-2"]
    pods[2] = member(2, image="app:2")
    assert steps(plan_stateful_set(scene(owner, *pods))) == ["-web-1"]
    pods[2] = member(2, image="app:2", ready_since=None)
    assert steps(plan_stateful_set(scene(owner, *pods))) == []
    pods[2] = member(2, image="app:2")
    owner["spec"]["updateStrategy"] = {"rollingUpdate": {"partition": 2}}
    assert steps(plan_stateful_set(scene(owner, *pods))) == []
    owner["spec"]["updateStrategy"] = {"type": "OnDelete"}
    assert steps(plan_stateful_set(scene(owner, *pods[:2], member(2)))) == []


def test_the_status_tells_how_far_an_update_is():
    pods = [member(0), member(1), member(2, image="app:2")]
    status = plan_stateful_set(scene(stateful("app:2"), *pods)).status
    assert (status["currentReplicas"], status["updatedReplicas"]) == (2, 1)
    assert status["currentRevision"] != status["updateRevision"] == revision("app:2")
    done = [member(n, image="app:2") for n in range(3)]
    status = plan_stateful_set(scene(stateful("app:2"), *done)).status
    assert status["currentRevision"] == status["updateRevision"]


def test_the_newest_revision_is_that_of_the_template():
    plan = plan_stateful_set(scene(stateful()))
    (made,) = [a.value for a in plan.actions if a.kind.kind == "ControllerRevision"]
    assert (made["metadata"]["name"], made["revision"]) == (revision(), 1)
    assert made["data"]["spec"]["template"]["$patch"] == "replace"
    older = made | {"revision": 4}
    other = made | {
        "metadata": made["metadata"] | {"labels": {REVISION_LABEL: "x"}, "name": "web-x"},
        "revision": 5,
    }
    plan = plan_stateful_set(scene(stateful(), revisions=[older, other]))
    (update,) = [a for a in plan.actions if a.kind.kind == "ControllerRevision"]
    assert update.value["revision"] == 6
    limited = stateful(revisionHistoryLimit=0)
    plan = plan_stateful_set(scene(limited, revisions=[made | {"revision": 6}, other]))
    (gone,) = [a for a in plan.actions if isinstance(a, Delete)]
    assert gone.value["metadata"]["name"] == "web-x"
