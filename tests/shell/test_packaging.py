"""The image and the plain manifest: read as the programs that use them would."""

import ast
import asyncio.base_events
import email.message
import fnmatch
import importlib.util
import json
import logging
import marshal
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
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
from hatch_build import belongs, rewritten
from image import compile_library
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
    plugin = ("kubectl-aiokube", "kubectl_complete-aiokube")
    assert scripts == dict.fromkeys(("aiokube-scheduler", *plugin), "aiokube_scheduler.cli:main")
    assert all(each.words for each in of("RUN"))


def test_both_stages_have_the_same_pinned_base():
    bases = {each.text.split()[0] for each in of("FROM")}
    assert len(bases) == 1
    assert re.fullmatch(r"python:3\.\d+-slim-\w+@sha256:[0-9a-f]{64}", bases.pop())


def test_modules_of_the_standard_library_are_compiled_for_good(tmp_path):
    """The base has none, and nobody may write them when the scheduler starts."""
    compile_library(Path(sys.executable), tmp_path)
    for module in (asyncio.base_events, email.message, logging):
        content = (tmp_path / module.__spec__.cached.removeprefix("/")).read_bytes()
        assert content[:4] == importlib.util.MAGIC_NUMBER
        assert int.from_bytes(content[4:8], "little") == 1  # not compared with the source
        assert marshal.loads(content[16:]).co_filename == module.__file__
    assert not list(tmp_path.rglob("app"))
    assert len([each for each in of("COPY") if each.text == "--from=build /library /"]) == 2


def test_what_is_installed_is_locked():
    words = [each.words for each in of("RUN") if "install" in each.words]
    installs = [each for each in words if each[0] != "apt-get"]
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


def built(context: Path, target: str, to: Path) -> Path:
    """The distribution made of a folder."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "-d", str(to)]
    subprocess.run(command, cwd=context, check=True, capture_output=True, timeout=250)
    (made,) = to.iterdir()
    return made


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("app/tools/dashboard/static/main.js", True),
        ("app/new/data.bin", True),
        ("app/cli/__pycache__/run.pyc", False),
        ("extenders/kit/app.py", True),
        ("extenders/kit/py.typed", True),
        ("extenders/kit/README.md", False),
        ("extenders/go/main.go", False),
        ("extenders/typescript/src/main.ts", False),
    ],
)
def test_what_is_in_the_wheel(file, expected):
    assert belongs(Path(file), ROOT) is expected


@pytest.mark.parametrize("name", ["requirements-docs.lock", "requirements-sbom.lock"])
def test_tools_with_a_lock_of_their_own_are_not_installed_for_development(name):
    text = (ROOT / name).read_text()
    assert all("--hash=sha256:" in each for each in re.split(r"\n(?=[a-z0-9])", text))
    (tool,) = set(dict(PIN.findall(text))) & {"mkdocs-material", "cyclonedx-bom"}
    assert tool not in dict(PIN.findall((ROOT / "requirements-dev.lock").read_text()))


def test_the_wheel_of_what_is_copied_is_the_one_of_the_sdist(tmp_path):
    context = tmp_path / "context"
    context.mkdir()
    for source in copied():
        if (ROOT / source).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / source, context / source, ignore=ignored)
        else:
            shutil.copy(ROOT / source, context)
    wheel = built(context, "wheel", tmp_path / "wheel")
    sdist = built(ROOT, "sdist", tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert built(unpacked, "wheel", tmp_path / "again").read_bytes() == wheel.read_bytes()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    return zipfile.ZipFile(built(ROOT, "wheel", tmp_path_factory.mktemp("wheel")))


def test_the_wheel_has_one_package_with_all_modules(wheel):
    names = set(wheel.namelist())
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"aiokube_scheduler"}
    files = (p for p in (ROOT / "app").rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    own = {f"aiokube_scheduler/{p.relative_to(ROOT / 'app')}" for p in files}
    samples = {f"aiokube_scheduler/{p.relative_to(ROOT)}" for p in ROOT.glob("extenders/**/*.py")}
    assert {name for name in names if ".dist-info/" not in name} == own | samples
    assert "aiokube_scheduler/py.typed" in names


def test_modules_in_the_wheel_differ_in_the_names_of_imports_only(wheel):
    changed = 0
    for name in (name for name in wheel.namelist() if name.endswith(".py")):
        inner = name.removeprefix("aiokube_scheduler/")
        source = (ROOT if inner.startswith("extenders/") else ROOT / "app") / inner
        pairs = zip(source.read_bytes().splitlines(), wheel.read(name).splitlines(), strict=True)
        for number, (here, there) in enumerate(pairs, 1):
            if here != there:
                changed += 1
                assert re.match(rb"\s*from (app|extenders)[. ]", here), (name, number)
        for node in ast.walk(ast.parse(wheel.read(name))):
            if isinstance(node, ast.ImportFrom) and not node.level:
                assert str(node.module).partition(".")[0] not in {"app", "extenders"}, name
    assert changed > 500


def test_an_import_that_cannot_be_renamed_is_refused():
    assert rewritten("from app.x import y  # from app.x\n") == (
        "from aiokube_scheduler.x import y  # from app.x\n"
    )
    assert rewritten('def f():\n    from extenders import kit\n"from app.x import y"\n') == (
        'def f():\n    from aiokube_scheduler.extenders import kit\n"from app.x import y"\n'
    )
    for source in ("from apple import y\n", "from . import app\n", "import os\n"):
        assert rewritten(source) == source
    with pytest.raises(ValueError, match=r"line 2: write 'from', not 'import app\.x'"):
        rewritten("import os\nimport app.x\n")


def test_in_a_checkout_the_installed_names_are_the_same_modules():
    api = importlib.import_module("aiokube_scheduler.framework.api")
    assert api is importlib.import_module("app.framework.api")
    assert api.__spec__.name == "app.framework.api"
    kit = importlib.import_module("aiokube_scheduler.extenders.kit")
    assert kit is importlib.import_module("extenders.kit")
    with pytest.raises(ModuleNotFoundError, match=r"aiokube_scheduler\.nothing"):
        importlib.import_module("aiokube_scheduler.nothing")


@pytest.mark.parametrize("name", ["aiokube_scheduler", "app"])
def test_the_program_runs_as_a_module(name):
    command = [sys.executable, "-m", name, "--version"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert re.fullmatch(r"aiokube-scheduler, version \d+\.\d+\.\d+\n", done.stdout), done.stderr


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
        reference = one(manifest, kind)["roleRef"]
        roles = [each for each in manifest if each["kind"] == reference["kind"]]
        assert reference["name"] in {each["metadata"]["name"] for each in roles}
