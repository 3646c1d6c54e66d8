"""The README shows what the program prints. Its links, commands and paths are checked by test_references.py."""

import itertools
import re
import shlex
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


#: Options whose file a command writes; the others read theirs.
WRITTEN = {">", "--kubeconfig-out", "--page"}


def test_files_that_commands_read_exist_or_were_written_before():
    written = {"scheduler.yaml"}  # the reader's own, with the mistake that is shown
    lines = [line for text in CONSOLES for line in re.sub(r" *\\\n *", " ", text).splitlines()]
    for line in lines:
        words = shlex.split(line.removeprefix("$ "), comments=True) if line[:2] == "$ " else []
        for before, word in itertools.pairwise(words):
            if before in WRITTEN:
                written.add(word)
            elif re.search(r"\.(yaml|json|html)$|^kubeconfig$", word.partition("=")[2] or word):
                name = word.partition("=")[2] or word
                known = name in written or (ROOT / name).is_file() or "live." in name
                assert known, line
