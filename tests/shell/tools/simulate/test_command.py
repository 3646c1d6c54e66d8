"""Mistakes that ``simulate`` tells before it starts anything."""

import pytest
from click.testing import CliRunner

from app.cli import main
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
