import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.sim.controllers.workloads.jobs import (
    TRACKING,
    parse_indexes,
    plan_job,
    written_indexes,
)
from app.sim.controllers.workloads.plan import BURST, Create, Delete, Replace
from app.sim.controllers.workloads.templates import INDEX_MARK
from app.sim.objects import is_true
from tests.shell.sim.workloads.objects import NOW, pod, scene, workload


def tracked(name, phase="Running", **parts):
    return pod(name, phase, finalizers=[TRACKING], **parts)


def released(plan):
    return [
        action.value["metadata"]["name"] for action in plan.actions if isinstance(action, Replace)
    ]


def job(status=None, **spec):
    return workload("Job", status=status, **({"completions": 1, "parallelism": 1} | spec))


def created(plan):
    return [action.value for action in plan.actions if isinstance(action, Create)]


def deleted(plan):
    return [
        action.value["metadata"]["name"] for action in plan.actions if isinstance(action, Delete)
    ]


@pytest.mark.parametrize(
    ("spec", "pods", "made"),
    [
        ({}, [], 1),
        ({"completions": 5, "parallelism": 3}, [], 3),
        ({"completions": 5, "parallelism": 3}, ["Running", "Succeeded"], 2),
        ({"completions": 5, "parallelism": 3}, ["Succeeded"] * 4, 1),
        ({"completions": 2, "parallelism": 3}, ["Failed"], 2),
        ({"completions": None, "parallelism": 3}, ["Running"], 2),
        ({"completions": None, "parallelism": 3}, ["Running", "Succeeded"], 0),
        ({"suspend": True}, [], 0),
        ({"parallelism": 0}, [], 0),
    ],
)
def test_how_many_pods_are_created(spec, pods, made):
    given = [pod(f"p{number}", phase) for number, phase in enumerate(pods)]
    plan = plan_job(scene(job(**spec), *given))
    assert len(created(plan)) == made
    assert not is_true({"status": plan.status}, "Complete")


def test_a_job_is_complete_when_enough_have_succeeded():
    plan = plan_job(scene(job(ttlSecondsAfterFinished=9), pod("a", "Succeeded")))
    assert is_true({"status": plan.status}, "Complete")
    assert plan.status["succeeded"] == 1
    assert plan.again == 9
    done = job(plan.status, ttlSecondsAfterFinished=9)
    assert not plan_job(scene(done, now=NOW + 8)).delete
    assert plan_job(scene(done, now=NOW + 9)).delete


def test_a_finished_job_stays_as_it_is():
    status = plan_job(scene(job(), pod("a", "Succeeded"))).status
    plan = plan_job(scene(job(status)))
    assert (plan.status, plan.actions) == (status, [])


def test_too_many_failures_end_a_job():
    pods = [pod("a", "Failed"), pod("b", "Failed"), pod("c")]
    plan = plan_job(scene(job(backoffLimit=1), *pods))
    assert is_true({"status": plan.status}, "Failed")
    assert deleted(plan) == ["c"]
    assert created(plan_job(scene(job(backoffLimit=2), *pods[:2])))


def test_a_deadline_ends_a_job():
    status = plan_job(scene(job(activeDeadlineSeconds=30))).status
    running = job(status, activeDeadlineSeconds=30)
    assert plan_job(scene(running, pod("a"), now=NOW + 10)).again == 20.0
    plan = plan_job(scene(running, pod("a"), now=NOW + 30))
    assert is_true({"status": plan.status}, "Failed")
    assert deleted(plan) == ["a"]


def test_pods_of_an_indexed_job():
    pods = [
        pod("a", "Succeeded", annotations={INDEX_MARK: "0"}),
        pod("b", annotations={INDEX_MARK: "2"}),
        pod("c", "Failed", annotations={INDEX_MARK: "1"}),
    ]
    spec = {"completions": 5, "parallelism": 3, "completionMode": "Indexed"}
    plan = plan_job(scene(job(**spec), *pods))
    indexes = [value["metadata"]["annotations"][INDEX_MARK] for value in created(plan)]
    assert indexes == ["1", "3"]
    assert plan.status["completedIndexes"] == "0"


def test_pods_are_counted_once_and_also_when_they_are_gone():
    spec = {"completions": 3, "parallelism": 1}
    status = None
    for number in range(3):
        plan = plan_job(scene(job(status, **spec), tracked(f"p{number}", "Succeeded")))
        assert released(plan) == [f"p{number}"]
        assert len(created(plan)) == (number < 2)
        assert plan.status["succeeded"] == number
        again = plan_job(scene(job(plan.status, **spec), tracked(f"p{number}", "Succeeded")))
        assert again.status == plan.status
        status = plan_job(scene(job(plan.status, **spec))).status
        assert status["succeeded"] == number + 1
        assert is_true({"status": status}, "Complete") == (number == 2)
    assert status["uncountedTerminatedPods"] == {}


def test_pods_that_are_deleted_count_as_failed():
    spec = {"completions": 3, "parallelism": 2, "backoffLimit": 1}
    pods = [tracked("a", leaving=True), tracked("b")]
    plan = plan_job(scene(job(**spec), *pods))
    assert (released(plan), len(created(plan))) == (["a"], 1)
    plan = plan_job(scene(job(plan.status, **spec), tracked("b", leaving=True), tracked("c")))
    assert (plan.status["failed"], released(plan), deleted(plan)) == (1, ["b"], ["c"])
    assert is_true({"status": plan.status}, "FailureTarget")
    assert not is_true({"status": plan.status}, "Failed")
    plan = plan_job(scene(job(plan.status, **spec), tracked("c", leaving=True)))
    assert released(plan) == ["c"]
    plan = plan_job(scene(job(plan.status, **spec)))
    assert is_true({"status": plan.status}, "Failed")
    assert plan.status["failed"] == 3


def test_many_pods_are_counted_in_parts():
    spec = {"completions": 2 * BURST, "parallelism": 2 * BURST}
    pods = [tracked(f"p{number}", "Succeeded") for number in range(2 * BURST)]
    plan = plan_job(scene(job(**spec), *pods))
    assert (len(plan.actions), created(plan)) == (BURST, [])
    left = [each for each in pods if each["metadata"]["name"] not in released(plan)]
    plan = plan_job(scene(job(plan.status, **spec), *left))
    assert (plan.status["succeeded"], len(plan.actions)) == (BURST, BURST)
    plan = plan_job(scene(job(plan.status, **spec)))
    assert plan.status["succeeded"] == 2 * BURST
    assert is_true({"status": plan.status}, "Complete")


def test_a_suspended_job_has_no_pods():
    plan = plan_job(scene(job(suspend=True), pod("a")))
    assert deleted(plan) == ["a"]
    assert is_true({"status": plan.status}, "Suspended")


@given(st.sets(st.integers(0, 200)))
def test_indexes_are_written_as_they_are_read(indexes):
    assert parse_indexes(written_indexes(indexes)) == indexes


def test_indexes_of_a_strange_status_are_bounded():
    assert len(parse_indexes("0-99999999999999")) == 100_001
