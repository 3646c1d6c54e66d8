"""The benchmark suite: its workloads can be run, and its table has a row for each."""

import json

import pytest
from click.testing import CliRunner

from app.sim.resources.kinds import PODS
from tests.bench import suite, workload
from tests.bench.measuring import Load
from tests.bench.results import Measured, Result
from tests.bench.test_server import filled

WORKLOADS = suite.read(suite.WORKLOADS)


def result(rate: float) -> Result:
    at = [number / rate for number in range(3)]
    measured = Measured(0.0, at, ["n"] * 3, ["a", "b", "c"], [], 0.1, 0.4, 2**26)
    about = {"shape": "basic", "nodes": 1, "pods": 3, "existing": 0, "extender": ""}
    return Result(**about, **measured.figures())


def test_each_workload_has_a_name_and_a_known_shape():
    loads = [Load(**{k: v for k, v in each.items() if k != "name"}) for each in WORKLOADS]
    assert {load.shape for load in loads} == set(workload.SHAPES)
    assert len({each["name"] for each in WORKLOADS}) == len(WORKLOADS)


@pytest.mark.parametrize(
    ("shape", "reason"), [("gated", "SchedulingGated"), ("unschedulable", None)]
)
def test_as_many_pods_wait_as_are_measured(shape, reason):
    api = filled(shape, existing=0)
    pods = [record.value for record in api.store[PODS.storage].ordered()]
    waiting = [pod for pod in pods if pod["metadata"]["name"].startswith("waiting-")]
    assert (len(pods), len(waiting)) == (4, 2)
    reasons = {c["reason"] for pod in waiting for c in pod["status"].get("conditions", ())}
    assert reasons == ({reason} if reason else set())


def test_a_row_has_the_ratios_of_the_medians():
    [row] = suite.told("plain", {"ours": [result(20.0)], "theirs": [result(10.0)]}, "text")
    assert (
        row
        == "| plain | 20.0 | 10.0 | 2.0 | 100.0 | 100.0 | 1.0 | - | 0.5 | 1.0 | 1.0 | - | - | - |"
    )


def test_without_another_scheduler_there_are_no_ratios():
    [row] = suite.told("plain", {"ours": [result(20.0)]}, "text")
    assert row == "| plain | 20.0 | - | - | 100.0 | - | - | - | - | - | - | - | - | - |"


def test_as_json_each_scheduler_has_a_line():
    lines = suite.told("plain", {"ours": [result(20.0)], "theirs": [result(10.0)]}, "json")
    assert [json.loads(line)["scheduler"] for line in lines] == ["ours", "theirs"]
    assert {json.loads(line)["workload"] for line in lines} == {"plain"}


@pytest.mark.parametrize("name", ["a DaemonSet", "bound volumes", "churn", "200 pods/s in bursts"])
def test_a_workload_runs_from_start_to_end(name):
    arguments = ["--only", name, "--nodes", "60", "--pods", "8", "--output", "json"]
    ran = CliRunner().invoke(suite.main, arguments, catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    [line] = ran.output.splitlines()
    assert json.loads(line)["bound"] == 8


def test_a_workload_that_is_not_bound_fails():
    arguments = ["--only", "^devices$", "--nodes", "1", "--pods", "9", "--timeout", "3"]
    ran = CliRunner().invoke(suite.main, arguments, catch_exceptions=False)
    assert ran.exit_code == 1
    assert "| devices |" in ran.output
