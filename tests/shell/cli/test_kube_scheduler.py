"""The program by the name kube-scheduler against facts about the original's command line (kube_scheduler.yaml)."""

import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from app.cli.kube_scheduler import KUBERNETES, command, git_version
from app.settings.load import load

FACTS = yaml.safe_load(Path(__file__).with_name("kube_scheduler.yaml").read_text())
KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""
CONFIG = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
#: A value of each kind of flag.
VALUES = {
    "bool": ["", "=true", "=false"],
    "int": ["=5"],
    "int32": ["=5"],
    "float32": ["=1.5"],
    "duration": ["=30s"],
    "ip": ["=127.0.0.1"],
    "string": ["=x"],
    "strings": ["=x,y"],
    "int32Slice": ["=29"],
    "namedCertKey": ["=a,b"],
    "stringToString": ["=a,b=c"],
    "colonSeparatedMultimapStringString": ["=GenericWorkload=true"],
    "quantity": ["=1Ki"],
    "Level": ["=2"],
    "pattern=N,...": ["=a=1"],
}
#: Flags whose values are no plain text, or that end the program.
OF_THEIR_OWN = {
    "config": ["=CFG"],
    "kubeconfig": ["=KC"],
    "write-config-to": ["=OUT"],
    "leader-elect-renew-deadline": ["=12s"],
    "leader-elect-retry-period": ["=3s"],
    "leader-elect-resource-lock": ["=leases"],
    "logging-format": ["=json"],
    "tls-min-version": ["=VersionTLS13"],
    "tls-cert-file": ["=x --tls-private-key-file=x"],
    "tls-private-key-file": ["=x --tls-cert-file=x"],
    "authorization-always-allow-paths": ["=/healthz"],
    "emulated-version": ["=1.36", "=kube=1.35"],
    "help": [],
    "version": [],
}


@pytest.fixture(autouse=True)
def _root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kc").write_text(KUBECONFIG)
    (tmp_path / "bare.yaml").write_text(CONFIG)
    named = f"{CONFIG}clientConnection: {{kubeconfig: {tmp_path / 'kc'}}}\n"
    (tmp_path / "config.yaml").write_text(named)
    return tmp_path


def run(folder: Path, *args: str) -> Result:
    places = {"KC": "kc", "CFG": "config.yaml", "BARE": "bare.yaml", "OUT": "out.yaml"}
    for place, file in places.items():
        args = tuple(re.sub(rf"={place}$", f"={folder / file}", arg) for arg in args)
    return CliRunner().invoke(command, args)


@pytest.mark.parametrize("fact", FACTS["answers"], ids=lambda fact: " ".join(fact["args"]) or "-")
def test_it_answers_like_the_original(folder, fact):
    result = run(folder, *fact["args"])
    answer = [result.exit_code, (folder / "out.yaml").exists()]
    assert answer == fact.get("here", fact["answer"]), result.output
    assert not result.exit_code or len(errors(result.stderr)) == 1, result.stderr
    assert "Traceback" not in result.output


def errors(text: str) -> list[str]:
    """Lines that are not of the log's information and warnings."""
    return [line for line in text.splitlines() if not re.match(r"[IW]\d{4} ", line)]


def test_differences_from_the_original_are_few():
    kinder = [
        fact for fact in FACTS["answers"] if fact["answer"][0] and not fact.get("here", [1])[0]
    ]
    stricter = [
        fact for fact in FACTS["answers"] if not fact["answer"][0] and fact.get("here", [0])[0]
    ]
    assert len(FACTS["answers"]) > 140
    assert (
        len(stricter) <= 7
    )  # two of them: gates that no upstream build knows, or that are not built here
    assert len(kinder) <= 24


@pytest.mark.parametrize("name", FACTS["flags"])
def test_every_flag_of_the_original_is_accepted(folder, name):
    kind, _ = FACTS["flags"][name]
    for value in OF_THEIR_OWN.get(name, VALUES[kind] if name not in OF_THEIR_OWN else []):
        (folder / "out.yaml").unlink(missing_ok=True)
        result = run(folder, *f"--{name}{value}".split(), "--write-config-to=OUT")
        assert result.exit_code == 0, result.output
        assert (folder / "out.yaml").exists()
        about = [line for line in result.stderr.splitlines() if f"--{name} " in line]
        assert len(about) <= 1, about


def test_it_has_no_flags_but_those_of_the_original():
    own = {flag.removeprefix("--") for each in command.params for flag in each.opts}
    assert own - {"-v"} == FACTS["flags"].keys() - {"help"}


def test_the_defaults_are_the_originals(folder):
    assert run(folder, "--write-config-to=OUT").exit_code == 0
    config = load(folder / "out.yaml").settings.configuration
    assert [profile.scheduler_name for profile in config.profiles] == ["default-scheduler"]
    election = config.leader_election
    found = {
        "leader-elect": election.leader_elect,
        "leader-elect-lease-duration": election.lease_duration,
        "leader-elect-renew-deadline": election.renew_deadline,
        "leader-elect-retry-period": election.retry_period,
        "leader-elect-resource-lock": election.resource_lock,
        "leader-elect-resource-name": election.resource_name,
        "leader-elect-resource-namespace": election.resource_namespace,
        "kube-api-qps": config.client_connection.qps,
        "kube-api-burst": config.client_connection.burst,
        "profiling": config.enable_profiling,
    }
    for name, value in found.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        assert text.removesuffix(".0") == FACTS["flags"][name][1], name


def test_the_version_has_the_originals_form(folder):
    assert run(folder, "--version").output == f"Kubernetes {git_version()}\n"
    assert re.fullmatch(rf"v{re.escape(KUBERNETES)}\+aiokube\d+\.\d+\.\d+", git_version())
    raw = run(folder, "--version=raw").output
    assert raw.startswith('version.Info{Major:"1", Minor:"36", GitVersion:"v1.36.2+aiokube')


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("--verzion", "--version"),
        ("--leader-elect-lease-duraton=3s", "--leader-elect-lease-duration"),
        ("--kubeconfg=x", "--kubeconfig"),
        ("--bind_adress=x", "--bind-address"),
    ],
)
def test_an_unknown_flag_is_answered_with_the_nearest(folder, given, nearest):
    result = run(folder, given)
    name = given.partition("=")[0].replace("_", "-")
    assert result.exit_code == 1
    assert result.stderr == f"Error: unknown flag: {name}, did you mean {nearest}?\n"


def test_lists_that_are_given_one_by_one_are_joined(folder):
    gates = ("--feature-gates=kube:GenericWorkload=true", "--feature-gates=GangScheduling=true")
    assert run(folder, *gates, "--write-config-to=OUT").exit_code == 0
    alone = run(folder, gates[1], "--write-config-to=OUT")
    assert alone.exit_code == 1
    assert "depends on features that are disabled: [GenericWorkload]" in alone.stderr


def test_kubeconfig_is_ignored_with_a_file(folder):
    result = run(folder, "--config=BARE", "--kubeconfig=KC", "--write-config-to=OUT")
    assert "--kubeconfig is ignored because there is a configuration file" in result.stderr
    assert not load(folder / "out.yaml").settings.configuration.client_connection.kubeconfig


# ---------------------------------------------------------------- as a process, by its name


@pytest.fixture
def program(tmp_path: Path) -> Path:
    link = tmp_path / "kube-scheduler"
    link.symlink_to(Path(sys.executable).with_name("aiokube-scheduler"))
    return link


def ended(program: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """A run without a home, an environment and a place to write."""
    return subprocess.run(
        [program, *args], cwd="/", env={}, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_link_with_its_name_is_the_command(program):
    done = ended(program, "--version")
    assert (done.returncode, done.stdout) == (0, f"Kubernetes {git_version()}\n")


def test_what_cannot_be_used_is_one_line_and_status_1(program, folder, tmp_path):
    unreadable = tmp_path / "not-a-kubeconfig"
    unreadable.write_bytes(b"\xff\xfe")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        kubeconfig = f"--kubeconfig={folder / 'kc'}"
        cases = {
            "--config=/nowhere/config.yaml": "/nowhere/config.yaml: cannot be read",
            "--kubeconfig=/nowhere/scheduler.conf": "/nowhere/scheduler.conf: no such file",
            f"--kubeconfig={unreadable}": "not a kubeconfig",
            f"{kubeconfig} --bind-address=127.0.0.1 --secure-port={port}": f"127.0.0.1:{port}",
            f"{kubeconfig} --tls-cert-file=/nowhere --tls-private-key-file=/nowhere": "/nowhere",
            f"{kubeconfig} --client-ca-file=/nowhere --bind-address=127.0.0.1": "/nowhere",
            f"{kubeconfig} --authentication-kubeconfig=/nowhere --bind-address=127.0.0.1": "/nowhere",
        }
        for arguments, expected in cases.items():
            done = ended(program, *arguments.split())
            assert done.returncode == 1, (arguments, done.stderr)
            (line,) = errors(done.stderr)
            assert expected in line, (arguments, line)


@pytest.mark.parametrize(("election", "status"), [("true", 0), ("false", 1)])
def test_the_statuses_of_a_process_that_is_stopped(program, folder, tmp_path, election, status):
    arguments = [f"--kubeconfig={folder / 'kc'}", "--secure-port=0", f"--leader-elect={election}"]
    with subprocess.Popen(
        [program, *arguments], cwd="/", env={}, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "Starting aiokube-scheduler" in line:
                break
        # From here on it handles signals.
        os.kill(process.pid, signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(60) == status, rest
    assert ("Error: finished without leader elect" in rest) is (election == "false")
