"""docs/install.md and the chart's README: their commands and examples are run as far as can be."""

import re
import shlex
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from app.cli.kube_scheduler import command
from app.settings.load import load
from tests.helm.chart import CHART, ROOT, Helm, Object
from tests.helm.kubernetes_schema import mistakes

GUIDE: Final = ROOT / "docs" / "install.md"
README: Final = CHART / "README.md"
_BLOCK: Final = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def blocks(file: Path, language: str) -> list[str]:
    """The code blocks of one language."""
    return [text for _, found, text in _BLOCK.findall(file.read_text()) if found == language]


def commands(file: Path, program: str) -> list[list[str]]:
    """The commands of a program, as words."""
    text = "\n".join(blocks(file, "console")).replace("\\\n", " ")
    lines = [line.strip().removeprefix("$ ") for line in text.splitlines()]
    return [shlex.split(line) for line in lines if line.split()[:1] == [program]]


HELM: Final = [
    words
    for file in (GUIDE, README)
    for words in commands(file, "helm")
    if words[1] in {"install", "upgrade"}
]
OPTIONS: Final = {"--reset-then-reuse-values"}
"""Of ``helm upgrade``, and not of ``helm template``."""


@pytest.mark.parametrize("words", HELM, ids=" ".join)
def test_what_is_installed_can_be_rendered(
    helm: Helm, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    (values,) = [text for text in blocks(GUIDE, "yaml") if text.startswith("# values.yaml")]
    own = tmp_path / "values.yaml"
    own.write_text(values)
    arguments = [str(own) if word == own.name else word for word in words[2:]]
    done = helm.run("template", *(word for word in arguments if word not in OPTIONS))
    assert done.returncode == 0, done.stderr
    assert "kind: Deployment" in done.stdout
    keeps = bool(OPTIONS & set(words))
    assert "REGISTRY/aiokube-scheduler:" in done.stdout or keeps, "the image is forgotten"


def test_there_are_commands_to_run() -> None:
    assert len(HELM) >= 7
    assert {words[1] for words in commands(GUIDE, "helm")} == {
        *("install", "upgrade", "rollback", "test", "uninstall"),
    }


@pytest.mark.parametrize("words", commands(GUIDE, "helm"), ids=" ".join)
def test_helm_knows_the_options(helm: Helm, words: list[str]) -> None:
    described = helm.run(words[1], "--help").stdout
    given = {word for word in words[2:] if word.startswith("--")}
    assert {option for option in given if not re.search(rf"{option}\b", described)} == set()


def test_configurations_that_are_checked_are_valid() -> None:
    for words in commands(GUIDE, "aiokube-scheduler"):
        assert words[1] == "check-config"
        assert load(ROOT / words[2]).settings


def pods() -> list[Object]:
    found = [yaml.safe_load(text) for text in blocks(GUIDE, "yaml")]
    return [each for each in found if each.get("kind") == "Pod"]


def test_pods_are_valid() -> None:
    assert len(pods()) == 2
    assert [said for each in pods() for said in mistakes(each)] == []


def test_a_static_pod_s_command_is_understood() -> None:
    (static,) = [each for each in pods() if each["metadata"]["name"] == "kube-scheduler"]
    program, *flags = static["spec"]["containers"][0]["command"]
    assert program == "kube-scheduler"
    parsed = command.make_context("kube-scheduler", list(flags)).params
    assert parsed["kubeconfig"] == "/etc/kubernetes/scheduler.conf"
    assert parsed["bind_address"] == "127.0.0.1"
    assert parsed["leader_elect"] is True


def test_the_readme_s_values_are_valid(helm: Helm) -> None:
    for text in blocks(README, "yaml"):
        values: dict[str, Any] = yaml.safe_load(text)
        assert helm.render(values) != helm.render()
