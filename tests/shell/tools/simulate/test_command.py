"""Mistakes that ``simulate`` tells before it starts anything, and how it shows what others wrote."""

import json

import pytest
from click.testing import CliRunner

from app.cli import main
from app.cli import simulate as simulate_command
from app.tools.simulate.result import (
    NodeUse,
    PreemptedPod,
    Reason,
    SimulationResult,
    Usage,
    WorkloadResult,
)
from tests.shell.tools.simulate.world import node, pod, write

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("--workload {w}", "give a dump with --cluster PATH, or make nodes with --nodes N"),
        ("--nodes=1", "Missing option '--workload'"),
        ("--nodes=1 --workload {w} --timeout=0", "Invalid value for '--timeout'"),
        ("--nodes=1 --workload {w} --node-cpu=much", "--node-cpu much: quantities must match"),
        ("--nodes=1 --workload {none}", "none.yaml: No such file or directory"),
        ("--cluster {w} --workload {w}", "the cluster has no nodes"),
        ("--cluster {n} --workload {w} --config {bad}", "bad.yaml:3:1: parallelism"),
        ("--cluster {n} --workload {w} --page {folder}/no/page.html", "there is no folder"),
    ],
    ids=[
        "no cluster",
        "no workload",
        "timeout",
        "quantity",
        "no file",
        "no nodes",
        "config",
        "page",
    ],
)
def test_no_answer(tmp_path, arguments, problem):
    (tmp_path / "bad.yaml").write_text(f"{HEAD}parallelism: 0\n")
    files = {
        "w": write(tmp_path / "w.json", pod("p")),
        "n": write(tmp_path / "n.json", node("n")),
        "none": tmp_path / "none.yaml",
        "bad": tmp_path / "bad.yaml",
        "folder": tmp_path,
    }
    given = arguments.format(**files).split()
    result = CliRunner().invoke(main, ["simulate", *given])
    assert result.exit_code == 2, result.output
    assert problem in result.output


def test_other_commands_end_with_1():
    assert CliRunner().invoke(main, ["apiserver", "--port=x"]).exit_code == 1


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_terminal_is_not_told_what_to_do(monkeypatch, output):
    """Names and messages come from whoever wrote the dump, and from extenders."""
    hostile = "\x1b]0;title\x07\x9b2J"
    reason = Reason(pods=1, message=hostile, is_decided=True)
    workload = WorkloadResult(
        **dict.fromkeys(("kind", "namespace", "name"), hostile),
        **dict.fromkeys(("existing", "placed", "evicted"), 0),
        **{key: {hostile: 1} for key in ("zones", "nodes")},
        pods=1,
        pending=1,
        placements=[],
        reasons=[reason],
    )
    use = NodeUse(
        name=hostile,
        zone=hostile,
        resources=dict.fromkeys(
            ("cpu", "memory", "pods", hostile), Usage(allocatable=2, before=0, after=1)
        ),
    )
    victim = PreemptedPod(pod=hostile, owner=hostile, priority=1, node=hostile, by=hostile)
    answer = SimulationResult(
        is_complete=True,
        seconds=1.0,
        workloads=[workload],
        pending_before=[],
        preempted=[victim],
        nodes=[use],
        other_schedulers={hostile: 1},
        passed_over={hostile: 1},
        extenders_left_out=[hostile],
        warnings=[hostile],
    )

    async def simulated(_options, _errors):
        return answer

    monkeypatch.setenv("COLUMNS", "200")  # no line is broken
    monkeypatch.setattr(simulate_command, "simulate", simulated)
    monkeypatch.setattr(simulate_command, "configured", lambda *_given, **_options: None)
    result = CliRunner().invoke(main, ["simulate", "--nodes=1", "--workload=w", "-o", output])
    assert result.exit_code == 1, result.output
    assert not {"\x1b", "\x07", "\x9b"} & set(result.output)
    if output == "json":
        assert json.loads(result.stdout)["nodes"][0]["name"] == hostile
    else:
        assert result.stdout.count("\\x1b]0;title\\x07\\x9b2J") >= 10
