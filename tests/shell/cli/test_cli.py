"""The command line, run in this process: what it accepts, refuses and says."""

import importlib.metadata
import json
import logging
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from rich.table import Table

from app.cli import main
from app.cli.console import console
from app.cli.flags import REMOVED, WITHOUT_EFFECT
from app.cli.process import explained
from app.cli.run import _options
from app.settings.load import Loaded, load

ROOT = Path(__file__).parents[3]
MINIMAL = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

SERVING_FLAGS = [
    "--secure-port=0",
    "--bind-address=127.0.0.1",
    "--tls-cert-file=a",
    "--tls-private-key-file=b",
    "--tls-min-version=VersionTLS12",
    "--client-ca-file=c",
    "--authentication-kubeconfig=d",
    "--authentication-skip-lookup",
    "--authentication-token-webhook-cache-ttl=1s",
    "--authorization-kubeconfig=e",
    "--authorization-always-allow-paths=/healthz",
    "--authorization-webhook-cache-authorized-ttl=1s",
    "--authorization-webhook-cache-unauthorized-ttl=1s",
]
OTHER_FLAGS = [
    "--master=http://127.0.0.1:1",
    "--kubeconfig=f",
    "--profiling=false",
    "--contention-profiling",
    "--kube-api-content-type=application/json",
    "--kube-api-qps=10",
    "--kube-api-burst=20",
    "--pod-max-in-unschedulable-pods-duration=1m30s",
    "--leader-elect",
    "--leader-elect=false",
    "--leader-elect-lease-duration=20s",
    "--leader-elect-renew-deadline=9s",
    "--leader-elect-retry-period=1s",
    "--leader-elect-resource-lock=leases",
    "--leader-elect-resource-name=n",
    "--leader-elect-resource-namespace=ns",
    "--logging-format=json",
    "--v=2",
    "-v=2",
    "-v2",
]


@pytest.fixture(autouse=True)
def _root_logger() -> Iterator[None]:
    """Commands configure logging for their process, which here is everybody's."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def written(tmp_path: Path, *arguments: str) -> Loaded:
    """The configuration that ``run`` would start with."""
    file = tmp_path / "written.yaml"
    result = run("run", *arguments, f"--write-config-to={file}")
    assert result.exit_code == 0, result.output
    return load(file)


def file_with(tmp_path: Path, text: str) -> str:
    file = tmp_path / "scheduler.yaml"
    file.write_text(text)
    return str(file)


# ---------------------------------------------------------------- the program


def test_the_help_names_every_command():
    result = run("--help")
    assert result.exit_code == 0
    names = main.list_commands(click.Context(main))
    assert {"run", "apiserver", "explain"} <= set(names)
    for name in names:
        assert f"  {name} " in result.output
        assert run(name, "--help").exit_code == 0


def test_help_is_a_command_too():
    assert run("help").output == run("--help").output
    assert run("help", "explain").output == run("explain", "--help").output
    assert run("help", "explian").exit_code == 1


def test_version_is_a_command_too():
    text = run("version").output
    assert re.fullmatch(r"aiokube-scheduler \d+\.\d+\.\d+ \(Python 3\.\S+, \w+ \w+\)\n", text)


def test_the_version_for_programs():
    known = json.loads(run("version", "-o", "json").output)
    assert known["version"] == importlib.metadata.version("aiokube-scheduler")
    assert known.keys() == {"version", "python", "platform"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell):
    text = run("completion", shell).output
    assert "_AIOKUBE_SCHEDULER_COMPLETE" in text
    if shell == "bash":
        assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0


def test_completion_knows_commands_and_options():
    words = {"COMP_WORDS": "aiokube-scheduler exp", "COMP_CWORD": "1"}
    variables = {"_AIOKUBE_SCHEDULER_COMPLETE": "bash_complete", **words}
    result = CliRunner().invoke(main, [], env=variables, prog_name="aiokube-scheduler")
    assert result.output == "plain,explain\n"


@pytest.mark.parametrize("arguments", [["--version"], ["run", "--version"]])
def test_the_version(arguments):
    result = run(*arguments)
    assert result.exit_code == 0
    assert result.output.startswith("aiokube-scheduler, version ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nonsense"], "No such command 'nonsense'.\n"),
        (["explian", "x"], "No such command 'explian'. Did you mean 'explain'?"),
        (["run", "--nonsense"], "No such option '--nonsense'"),
        (["run", "config.yaml"], "unexpected extra argument (config.yaml)"),
        (["run", "--leader-elect=maybe"], "'maybe' is not true or false"),
        (["run", "-v=much"], "is not a number"),
        (["run", "--logging-format=xml"], "'xml' is not one of"),
        (["run", "--pod-max-in-unschedulable-pods-duration=5"], 'missing unit in duration "5"'),
        (
            ["run", "--secure-port=65536"],
            "--secure-port 65536 must be between 0 and 65535, inclusive. 0 for turning off secure port",
        ),
        (["check-config"], "Missing argument 'FILE...'"),
        (["apiserver", "--nodes=1", "--node-cpu=much"], "--node-cpu much: quantities must match"),
    ],
)
def test_mistakes_on_the_command_line_end_with_1(arguments, said):
    result = run(*arguments)
    assert result.exit_code == 1
    assert "Error: " in result.stderr
    assert said in result.stderr


def test_options_without_a_command_are_those_of_run(tmp_path):
    file = tmp_path / "written.yaml"
    assert run("--leader-elect=false", f"--write-config-to={file}").exit_code == 0
    assert load(file).settings.configuration.leader_election.leader_elect is False


# ---------------------------------------------------------------- run


@pytest.mark.parametrize("flag", [*SERVING_FLAGS, *OTHER_FLAGS])
def test_flags_of_kube_scheduler_are_taken(tmp_path, flag):
    name, equals, value = flag.partition("=")
    assert "has no effect" not in run("run", flag, f"--write-config-to={tmp_path / 'a'}").stderr
    underscores = "--" + name[2:].replace("-", "_") if name.startswith("--") else name
    result = run("run", underscores + equals + value, f"--write-config-to={tmp_path / 'b'}")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--feature-gates=GenericWorkload=true,GangScheduling=true", ""),
        ("--feature-gates=StorageCapacityScoring=true,SidecarContainers=true", ""),
        ("--feature-gates=GangScheduling=false, SidecarContainers=true", ""),
        ("--feature-gates=RotateKubeletServerCertificate=true", ""),
        (
            "--feature-gates=SchedulerAsyncPreemption=false",
            "SchedulerAsyncPreemption to false: here it is always on",
        ),
        ("--feature-gates=Nonsense=true", "unrecognized feature gate: Nonsense"),
        (
            "--emulated-version=1.37 --feature-gates=SidecarContainers=true",
            "unrecognized feature gate: SidecarContainers",
        ),
        (
            "--emulated-version=1.37 --feature-gates=NodeDeclaredFeatures=false",
            "cannot set feature gate NodeDeclaredFeatures to false, feature is locked to true",
        ),
        ("--emulated-version=kube=1.38", ""),
        ("--emulated-version=1.39", "emulation version 1.39 is not between [1.33, 1.38]"),
        ("--emulated-version=1.37.2", "patch version not allowed, got: kube=1.37.2"),
    ],
)
def test_rules_are_chosen_by_flags(tmp_path, flags, said):
    first, *rest = re.split(" (?=--)", flags)
    result = run("run", first, *rest, f"--write-config-to={tmp_path / 'a'}")
    assert result.exit_code == bool(said), result.output
    assert said in result.stderr


@pytest.mark.parametrize("flag", sorted(WITHOUT_EFFECT))
def test_flags_that_mean_nothing_here_are_taken_with_a_warning(tmp_path, flag):
    result = run("run", f"{flag}=true", f"--write-config-to={tmp_path / 'a'}")
    assert result.exit_code == 0, result.output
    assert f"{flag} has no effect: {WITHOUT_EFFECT[flag]}" in result.stderr


@pytest.mark.parametrize("flag", sorted(REMOVED))
def test_flags_that_kube_scheduler_no_longer_has_are_refused_with_the_way_out(flag):
    result = run("run", f"{flag}=x")
    assert result.exit_code == 1
    assert f"Error: {flag} was removed from kube-scheduler: {REMOVED[flag]}" in result.stderr


def test_flags_are_shown_as_they_are_typed():
    given = main.get_command(click.Context(main), "run").make_context(
        "run", ["-v=2", "--leader-elect", "--bind-address=::", "--leader-elect-lease-duration=1m"]
    )
    flags = _options(given.params).flags
    assert flags["v"] == "2"
    assert flags["leader-elect"] == "true"
    assert flags["bind-address"] == "::"
    assert flags["leader-elect-lease-duration"] == "1m"
    assert flags["pod-max-in-unschedulable-pods-duration"] == "5m0s"
    assert flags["authorization-always-allow-paths"] == "[/healthz,/readyz,/livez]"
    assert flags["authentication-token-webhook-cache-ttl"] == "10s"
    assert "leader-elect-retry-period" not in flags
    assert {f"--{name}" for name in flags} <= {o for p in given.command.params for o in p.opts}


def test_flags_of_the_election_win_over_the_file(tmp_path):
    config = file_with(
        tmp_path, MINIMAL + "leaderElection: {leaseDuration: 30s, resourceName: mine}\n"
    )
    loaded = written(
        tmp_path, f"--config={config}", "--leader_elect_lease_duration", "45s", "--leader-elect"
    )
    election = loaded.settings.configuration.leader_election
    assert str(election.lease_duration) == "45s"
    assert (election.leader_elect, election.resource_name) == (True, "mine")


def test_the_kubeconfig_flag_fills_what_the_file_leaves_open(tmp_path):
    config = file_with(tmp_path, MINIMAL)
    loaded = written(tmp_path, f"--config={config}", "--kubeconfig=/mine")
    assert loaded.settings.configuration.client_connection.kubeconfig == "/mine"


def test_the_kubeconfig_of_the_file_stays(tmp_path):
    config = file_with(tmp_path, MINIMAL + "clientConnection: {kubeconfig: /file}\n")
    arguments = ["run", f"--config={config}", "--kubeconfig=/mine"]
    result = run(*arguments, f"--write-config-to={tmp_path / 'written'}")
    assert "--kubeconfig is ignored because there is a configuration file" in result.stderr
    assert "/file" in (tmp_path / "written").read_text()


def test_every_mistake_of_a_file_is_told_with_its_line(tmp_path):
    config = file_with(tmp_path, MINIMAL + "parallelism: 0\nfoo: 1\n")
    result = run("run", f"--config={config}")
    assert result.exit_code == 1
    first, second = result.stderr.splitlines()
    assert first.startswith(f"Error: {config}:3:1: parallelism: Invalid value: 0")
    assert second.strip() == f'{config}:4:1: foo: unknown field "foo"'


def test_warnings_come_before_the_mistakes_that_they_may_explain(tmp_path):
    old = MINIMAL.replace("/v1\n", "/v1beta3\n") + "parallelism: 0\n"
    result = run("run", f"--config={file_with(tmp_path, old)}")
    assert result.exit_code == 1
    warning, mistake = result.stderr.splitlines()
    assert "v1beta3 is no longer served by kube-scheduler" in warning
    assert "parallelism: Invalid value" in mistake


def test_a_file_that_is_not_there(tmp_path):
    result = run("run", f"--config={tmp_path / 'nothing'}")
    assert result.exit_code == 1
    assert (
        result.stderr.splitlines()[-1]
        == f"Error: {tmp_path / 'nothing'}: cannot be read: No such file or directory"
    )


def test_nowhere_to_connect_to(monkeypatch):
    for name in ("KUBERNETES_MASTER", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    result = run("run", "--secure-port=0")
    assert result.exit_code == 1
    assert "Error: invalid configuration: no configuration has been provided" in result.stderr


def test_a_plugin_that_does_not_exist(tmp_path):
    text = MINIMAL + "profiles: [{plugins: {multiPoint: {enabled: [{name: Nonsense}]}}}]\n"
    config = file_with(tmp_path, text)
    result = run("run", f"--config={config}", "--master=http://127.0.0.1:1", "--secure-port=0")
    assert result.exit_code == 1
    assert "Error: " in result.stderr
    assert "Nonsense" in result.stderr.splitlines()[-1]


def test_a_configuration_that_cannot_be_written(tmp_path):
    result = run("run", f"--write-config-to={tmp_path / 'no' / 'where'}")
    assert result.exit_code == 1
    assert "No such file or directory" in result.stderr


# ---------------------------------------------------------------- the others


def test_check_config_says_what_a_file_amounts_to(tmp_path):
    result = run("check-config", file_with(tmp_path, MINIMAL))
    assert result.exit_code == 0
    assert "valid" in result.stdout
    assert "profile default-scheduler" in result.stdout


def test_check_config_shows_the_plugins_of_feature_gates(tmp_path):
    file = file_with(tmp_path, MINIMAL)
    assert "placement" not in run("check-config", file).output
    gates = "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true"
    shown = run("check-config", gates, file).output
    assert "  placementGenerateTopologyPlacementGenerator\n" in shown.replace(": ", "").replace(
        " T", "T"
    )
    assert "NodeResourcesFit (1), PodGroupPodsCount (1)\n" in shown


def test_check_config_names_the_line_of_a_mistake(tmp_path):
    config = file_with(tmp_path, MINIMAL + "parallelism: -1\n")
    result = run("check-config", config)
    assert result.exit_code == 1
    assert f"{config}:3:1: parallelism: " in result.stdout


def test_check_config_takes_several_files_and_standard_input(tmp_path):
    good = file_with(tmp_path, MINIMAL)
    result = CliRunner().invoke(
        main, ["check-config", good, "-", f"{good}.not"], input=MINIMAL + "parallelism: -1\n"
    )
    assert result.exit_code == 1
    assert f"{good}: valid\n" in result.stdout
    assert "\n<stdin>:3:1: parallelism: " in result.stdout
    assert f"\n{good}.not: cannot be read: No such file or directory\n" in result.stdout


def test_check_config_for_programs(tmp_path):
    good = file_with(tmp_path, MINIMAL)
    result = CliRunner().invoke(
        main, ["check-config", "-o", "json", good, "-"], input=MINIMAL + "parallelism: -1\n"
    )
    assert result.exit_code == 1
    valid, invalid = json.loads(result.stdout)
    assert valid == {"file": good, "valid": True, "mistakes": [], "warnings": []}
    assert invalid["mistakes"][0]["path"] == "parallelism"


def test_convert_config_writes_v1_and_says_what_changed(tmp_path):
    policy = tmp_path / "policy.cfg"
    policy.write_text('{"kind": "Policy", "apiVersion": "v1", "predicates": [{"name": "Zoned"}]}')
    assert "convert-config" in run("check-config", str(policy)).stdout
    result = run("convert-config", str(policy))
    assert result.exit_code == 0
    assert f'{policy}:1:55: predicates[0]: warning: "Zoned" is not carried over' in result.stderr
    written = tmp_path / "v1.yaml"
    written.write_text(result.stdout)
    checked = run("check-config", str(written))
    assert (checked.exit_code, "convert-config" in checked.stdout) == (0, False)


def test_convert_config_writes_nothing_of_a_file_with_mistakes():
    old = MINIMAL.replace("/v1\n", "/v1beta3\n") + "extenders: {}\n"
    result = CliRunner().invoke(main, ["convert-config", "-"], input=old)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "<stdin>:3:1: extenders: Invalid value" in result.stderr
    assert run("convert-config", "nowhere").exit_code == 1


def test_check_config_recommends_to_convert_old_versions(tmp_path):
    old = file_with(tmp_path, MINIMAL.replace("/v1\n", "/v1beta3\n"))
    shown = run("check-config", old).stdout
    assert shown.endswith(
        f"{old}: aiokube-scheduler convert-config writes it as kubescheduler.config.k8s.io/v1\n"
    )


def test_check_config_is_coloured_on_terminals(tmp_path):
    config = file_with(tmp_path, MINIMAL + "parallelism: -1\n")
    result = CliRunner().invoke(main, ["check-config", config], color=True)
    assert "\x1b[31mnot valid\x1b[0m: 1 mistake" in result.stdout
    assert "\x1b" not in CliRunner().invoke(main, ["check-config", config]).stdout


def test_the_embedded_cluster_names_a_manifest_that_it_cannot_use(tmp_path):
    manifest = tmp_path / "manifest.yaml"
    manifest.write_text("kind: Nonsense\napiVersion: v1\n")
    result = run("apiserver", "--port=0", f"--load={manifest}")
    assert result.exit_code == 1
    assert f"Error: {manifest}: document 1: kind 'Nonsense'" in result.stderr


def test_the_demo_says_how_many_pods_it_needs():
    result = run("demo", "--nodes=60", "--pods=11")
    assert result.exit_code == 1
    assert "11 is not in the range x>=12" in result.stderr


def test_a_port_that_is_taken_comes_with_what_to_do():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = run("apiserver", f"--port={taken.getsockname()[1]}")
    assert result.exit_code == 1
    assert "address already in use; choose another --port, or --port 0" in result.stderr


# ---------------------------------------------------------------- tables


def table():
    found = Table(box=None)
    for number in range(3):
        found.add_column(f"column {number}")
    found.add_row(*("some words " * 10,) * 3)
    return found


def test_tables_are_folded_on_terminals_only(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    console().print(table())
    heading, row = capsys.readouterr().out.splitlines()
    assert len(row) > 300
    assert heading == heading.rstrip()
    monkeypatch.setenv("COLUMNS", "80")
    console().print(table())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 2
    assert max(map(len, lines)) <= 80


# ---------------------------------------------------------------- errors in groups


def test_expected_errors_in_groups_are_told_once_each():
    group = ExceptionGroup("", [ValueError("one"), ExceptionGroup("", [ValueError("two\nthree")])])
    with pytest.raises(click.ClickException) as caught, explained(ValueError):
        raise ExceptionGroup("", [group, ValueError("one")])
    assert caught.value.message.split() == ["one", "two", "three"]


def test_other_errors_are_not_hidden():
    with pytest.raises(ExceptionGroup) as caught, explained(ValueError):
        raise ExceptionGroup("", [KeyError("bug"), ValueError("mistake")])
    assert isinstance(caught.value.exceptions[0], KeyError)


def test_the_scheduler_starts_without_what_the_first_binding_does_not_need():
    code = (
        "import sys, app.cli.run\n"
        "slow = {'rich', 'cryptography', 'kubernetes_asyncio', 're2', 'opentelemetry',\n"
        "        'prometheus_client', 'aiohttp', 'app.sim', 'app.tools', 'app.cel.program'}\n"
        "print(sorted(slow & sys.modules.keys()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_few_modules_are_imported_until_the_first_binding():
    """Importing them is most of the time until then: see CONTRIBUTING.md for what is imported later."""
    code = (
        "import app.cli.root, sys\n"
        "app.cli.root.main.get_command(None, 'run')\n"
        "print(*sorted({name for name in sys.modules if 'cython' not in name}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    modules = done.stdout.split()
    assert len([name for name in modules if name.partition(".")[0] == "app"]) <= 300
    libraries = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names
    assert {name for name in libraries if not name.startswith("_")} == {
        *(
            "aiohappyeyeballs",
            "app",
            "click",
            "httptools",
            "msgspec",
            "multidict",
        ),
        *(
            "numpy",
            "typing_extensions",  # for msgspec
            "uvloop",
        ),
    }
    late = {
        "difflib",
        "email",
        "importlib.metadata",
        "tempfile",
        "app.plugins.volume_binding.finding",
        "app.scheduler.recording",
        "app.scheduler.whatif",
    }
    assert not late & set(modules)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted on Linux")
def test_the_scheduler_starts_no_threads_for_algebra():
    code = (
        "import os, app.cli.root\n"
        "app.cli.root.main.get_command(None, 'run')\n"
        "print(len(os.listdir('/proc/self/task')))\n"
    )
    env = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    assert done.stdout == "1\n"
