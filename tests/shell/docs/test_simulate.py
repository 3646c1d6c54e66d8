"""docs/simulate.md says what there is."""

import re
import shlex
from pathlib import Path

import click
import msgspec
import pytest

from app.cli import main
from app.sim.resources.kinds import BY_RESOURCE, is_stored
from app.tools.simulate import result as answer
from app.tools.simulate.loader import CLUSTER_KINDS
from app.tools.simulate.workloads import EXPANDED

TEXT = (Path(__file__).parents[3] / "docs" / "simulate.md").read_text()
COMMANDS = [
    line.removeprefix("$ ").partition(" | ")[0]
    for block in re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)
    for line in re.sub(r"\\\n +", " ", block).splitlines()
    if line.startswith("$ ")
]
STRUCTS = [each for each in vars(answer).values() if isinstance(each, type)]


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("aiokube-scheduler")])
def test_its_commands_are_taken(command):
    _, name, *arguments = shlex.split(command)
    found = main.get_command(click.Context(main), name)
    assert found is not None
    found.make_context(name, arguments)


def test_the_dump_has_everything_that_is_read():
    (command,) = [shlex.split(c) for c in COMMANDS if c.startswith("kubectl get")]
    kinds = {kind.plural: kind.kind for kind in BY_RESOURCE.values() if is_stored(kind)}
    few_clusters_have = {"PodGroup", "Workload", "DeviceTaintRule"}
    assert {kinds[plural] for plural in command[2].split(",")} == CLUSTER_KINDS - few_clusters_have
    assert "podgroups.scheduling.x-k8s.io" in TEXT


@pytest.mark.parametrize("struct", [s for s in STRUCTS if issubclass(s, answer._JsonStruct)])
def test_every_field_of_the_json_is_described(struct):
    for field in msgspec.structs.fields(struct):
        assert f"`{field.encode_name}`" in TEXT


def test_every_kind_of_workload_is_described():
    assert all(re.search(rf"^\| .*\b{kind}\b.* \|", TEXT, re.MULTILINE) for kind in EXPANDED)
