"""The README does not promise what is not there."""

import re
import shlex
from pathlib import Path

import click
import pytest

from app.cli import main

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text()
LINKS = sorted({link for link in re.findall(r"\]\(([^)#]+)", TEXT) if "://" not in link})
COMMANDS = [
    line.removeprefix("$ ").partition(" #")[0].removesuffix(" &").strip()
    for block in re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
    if line.startswith("$ ")
]


@pytest.mark.parametrize("link", LINKS)
def test_what_it_links_to_exists(link):
    assert (ROOT / link).exists()


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("aiokube-scheduler ")])
def test_its_commands_are_taken(command):
    _, name, *arguments = shlex.split(command)
    found = main.get_command(click.Context(main), name)
    assert found is not None
    found.make_context(name, arguments)


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("make ")])
def test_its_targets_exist(command):
    target = shlex.split(command)[1]
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_the_files_that_its_commands_name_exist():
    named = {word for command in COMMANDS for word in shlex.split(command) if "config/" in word}
    assert named
    assert all((ROOT / name).exists() for name in named)


def test_its_benchmarks_are_taken():
    from tests.bench.__main__ import main as bench

    for command in (c for c in COMMANDS if c.startswith("make bench")):
        arguments = shlex.split(shlex.split(command)[2].removeprefix("BENCH="))
        arguments = [a for a in arguments if not a.endswith(".kubeconfig") and a != "--kubeconfig"]
        bench.make_context("bench", arguments)
