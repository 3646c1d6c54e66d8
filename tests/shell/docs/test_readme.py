"""The README shows what the program prints. Its links, commands and paths are checked by test_references.py."""

import re
import tomllib
from pathlib import Path

from click.testing import CliRunner

from app.cli import main
from app.tools.demo.scenario import Scenario
from tests.markdown import ROOT, blocks

README = ROOT / "README.md"
CONSOLES = [block.text for block in blocks(README) if block.language == "console"]


def output(command: str) -> str:
    """What the README shows below a command."""
    (text,) = [text for text in CONSOLES if text.startswith(f"$ {command}\n")]
    return text.split("\n", 1)[1]


def test_the_mistake_is_reported_as_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [
        "apiVersion: kubescheduler.config.k8s.io/v1",
        "kind: KubeSchedulerConfiguration",
        "extenders:",
        "- urlPrefix: http://127.0.0.1:8888",
        "  filterVerb: filter",
        "  prioritizeVerb: prioritize",
        "  weight: 0",
    ]
    Path("scheduler.yaml").write_text("\n".join(lines))
    result = CliRunner().invoke(main, ["check-config", "scheduler.yaml"])
    assert result.exit_code == 1
    assert result.output == output("aiokube-scheduler check-config scheduler.yaml")


def test_the_workloads_of_the_demo_are_those_shown():
    shown = output("make demo").partition("Where the pods went\n")[2].partition("\n\n")[0]
    known = {workload.name: workload for workload in Scenario().workloads}
    rows = [line for line in shown.splitlines()[2:] if line != "..."]
    assert len(rows) == 3
    for row in rows:
        name, pods, *_ = row.split()
        assert int(pods) == known[name].count
        assert row.endswith(known[name].about)


def test_as_many_contracts_are_kept_as_there_are():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (kept,) = re.findall(r"^Contracts: (\d+) kept, 0 broken\.$", output("make test"), re.MULTILINE)
    assert int(kept) == len(config["tool"]["importlinter"]["contracts"])
