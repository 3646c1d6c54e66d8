"""docs/distributions.md against the program: the manifests that it names are run, its values and flags exist."""

import re
import tomllib

import pytest
import yaml

from app.cli.flags import REMOVED
from app.cli.kube_scheduler import KUBERNETES
from tests.markdown import ROOT, commands

PAGE = ROOT / "docs" / "distributions.md"
TEXT = PAGE.read_text()
VALUES = yaml.safe_load((ROOT / "helm" / "aiokube-scheduler" / "values.yaml").read_text())


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize(
    "name",
    ["kubeadm", "kubespray", "k3s", "RKE2", "k0s", "Talos", "EKS", "GKE", "AKS", "OpenShift"],
)
def test_every_distribution_has_a_section_and_a_way_back(name):
    text = section(name)
    managed = text.strip().startswith("As EKS.")
    assert managed or "Back: " in text or name == "k0s"


def test_what_was_run_is_what_the_test_runs():
    rows = re.findall(r"^\| `([\w-]+)` \|", section("What was run"), re.MULTILINE)
    files = {file.stem for file in (ROOT / "tests" / "manifests" / "schedulers").glob("*.yaml")}
    assert sorted(rows) == sorted(files)


def test_tags_are_those_of_a_release():
    number = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    named = set(re.findall(r"aiokube-scheduler:([\w.-]+)`", TEXT))
    assert named == {number, f"v{KUBERNETES}", f"v{KUBERNETES}-aiokube{number}"}
    stages = re.findall(r"^FROM .* AS (\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    for command in commands(PAGE):
        if match := re.search(r"docker build .*--target (\S+)", command):
            assert match[1] in stages


def test_values_that_are_set_exist():
    found = [each for line in commands(PAGE) for each in re.findall(r"--set ([\w.]+)=", line)]
    found += re.findall(r"`--set ([\w.]+)=", TEXT)
    assert len(found) >= 4
    for path in found:
        value = VALUES
        for key in path.split("."):
            assert key in value, path
            value = value[key]


def test_flags_that_cannot_work_are_those_that_are_refused():
    text = (
        section("Charts that run kube-scheduler")
        .split("What cannot work")[1]
        .split("What works")[0]
    )
    for flag in re.findall(r"`(--[\w-]+)`", text):
        assert flag in REMOVED, flag
