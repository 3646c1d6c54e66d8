"""The image and the plain manifest: read as the programs that use them would."""

import fnmatch
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import NamedTuple

import click
import pytest
import yaml

from app.cli import main
from app.cli.run import serving_options
from app.settings.load import load
from tests.helm.kubernetes_schema import mistakes
from tests.helm.rules import unrestricted

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "config" / "manifests" / "second-scheduler.yaml"
PIN = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)


class Instruction(NamedTuple):
    name: str
    text: str

    @property
    def words(self) -> list[str]:
        """Of its exec form."""
        return json.loads(self.text)


def instructions() -> list[Instruction]:
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [Instruction(*line.split(maxsplit=1)) for line in lines]


def of(name: str) -> list[Instruction]:
    return [instruction for instruction in instructions() if instruction.name == name]


def copied() -> set[str]:
    """What is taken from the build context."""
    plain = [each.text for each in of("COPY") if "--from" not in each.text]
    return {source for text in plain for source in shlex.split(text)[:-1]}


# ---------------------------------------------------------------- the image


def test_everything_that_is_copied_exists_and_nothing_else_is_sent():
    assert all((ROOT / source).exists() for source in copied())
    ignore = (ROOT / ".dockerignore").read_text().split("\n")
    assert "*" in ignore
    assert {line[1:] for line in ignore if line.startswith("!")} == copied()
    assert any(fnmatch.fnmatch("app/__pycache__", line) for line in ignore if line)


def linted(dockerfile: str) -> str:
    """What hadolint says, one remark a line."""
    command = [Path(sys.executable).with_name("hadolint"), "--no-color", "-"]
    done = subprocess.run(
        command, input=dockerfile, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == bool(done.stdout), done.stderr
    return done.stdout


def test_hadolint_has_nothing_to_say():
    assert linted((ROOT / "Dockerfile").read_text()) == ""


def test_hadolint_would_say_something():
    careless = "FROM python\nRUN pip install numpy | cat\nUSER root\n"
    assert {"DL3006", "DL3013", "DL4006", "DL3002"} <= set(re.findall(r"DL\d+", linted(careless)))


def test_it_ends_as_somebody_without_rights():
    users = of("USER")
    assert users[-1].text == "65532:65532"
    last_stage = instructions()[instructions().index(of("FROM")[-1]) :]
    assert not [each for each in last_stage if each.name == "RUN"]


def test_it_starts_the_command_without_a_shell():
    assert of("ENTRYPOINT")[-1].words == ["aiokube-scheduler"]
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"aiokube-scheduler": "app.cli:main"}
    assert all(each.words for each in of("RUN"))


def test_both_stages_have_the_same_pinned_base():
    bases = {each.text.split()[0] for each in of("FROM")}
    assert len(bases) == 1
    assert re.fullmatch(r"python:3\.\d+-slim-\w+@sha256:[0-9a-f]{64}", bases.pop())


def test_what_is_installed_is_locked():
    installs = [each.words for each in of("RUN") if "install" in each.words]
    assert len(installs) == 3
    for words in installs:
        assert "--require-hashes" in words or "--no-index" in words, words


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-build.lock"])
def test_locks_agree_and_have_hashes(name):
    text = (ROOT / name).read_text()
    pins = dict(PIN.findall(text))
    assert pins.items() <= dict(PIN.findall((ROOT / "requirements-dev.lock").read_text())).items()
    requirements = re.split(r"\n(?=[a-z0-9])", text)
    assert all("--hash=sha256:" in requirement for requirement in requirements)


def test_the_wheel_can_be_built_from_what_is_copied(tmp_path):
    context = tmp_path / "context"
    context.mkdir()
    for source in copied():
        if (ROOT / source).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / source, context / source, ignore=ignored)
        else:
            shutil.copy(ROOT / source, context)
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=context, check=True, capture_output=True, timeout=250)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"app/cli/run.py", "app/sim/http/server.py", "extenders/licences.py"} <= set(names)
    assert not [name for name in names if name.startswith(("tests/", "docs/"))]


# ---------------------------------------------------------------- the manifest


@pytest.fixture(scope="module")
def manifest() -> list[dict]:
    return list(yaml.safe_load_all(MANIFEST.read_text()))


def one(manifest: list[dict], kind: str) -> dict:
    (found,) = [each for each in manifest if each["kind"] == kind]
    return found


def test_its_objects_are_valid(manifest):
    assert [said for each in manifest for said in mistakes(each)] == []
    pod = one(manifest, "Deployment")["spec"]["template"]
    assert unrestricted(pod["spec"]) == []
    assert (
        one(manifest, "Deployment")["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    )


def test_its_configuration_and_arguments_are_taken(manifest, tmp_path):
    file = tmp_path / "scheduler.yaml"
    file.write_text(one(manifest, "ConfigMap")["data"]["scheduler.yaml"])
    assert not load(file).warnings
    (container,) = one(manifest, "Deployment")["spec"]["template"]["spec"]["containers"]
    mount = next(m for m in container["volumeMounts"] if m["name"] == "config")["mountPath"]
    name, *arguments = container["args"]
    parameters = main.get_command(click.Context(main), name).make_context(name, arguments).params
    assert parameters["config"] == f"{mount}/{file.name}"
    ports = {port["containerPort"] for port in container["ports"]}
    assert ports == {serving_options(parameters).secure_port}


def test_its_account_may_keep_the_lease_that_is_configured(manifest, tmp_path):
    file = tmp_path / "scheduler.yaml"
    file.write_text(one(manifest, "ConfigMap")["data"]["scheduler.yaml"])
    election = load(file).settings.configuration.leader_election
    role = one(manifest, "Role")
    assert role["metadata"]["namespace"] == election.resource_namespace
    assert [election.resource_name] in [rule.get("resourceNames") for rule in role["rules"]]
    account = one(manifest, "ServiceAccount")["metadata"]
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        (subject,) = one(manifest, kind)["subjects"]
        assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])
        referred = one(manifest, one(manifest, kind)["roleRef"]["kind"])["metadata"]["name"]
        assert one(manifest, kind)["roleRef"]["name"] == referred
