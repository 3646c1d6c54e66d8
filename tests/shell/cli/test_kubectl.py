"""The plugin of kubectl, its completion, and ``why``."""

import json
import subprocess
import sys
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner

from app.cli import kubectl, why
from app.cli.root import main
from app.kube.kubeconfig import namespace_of
from app.observe.histories import AttemptRecord
from app.tools.scheduler_client import NotAnswered
from tests.shell.cli.test_explain import EXPLANATION

QUEUED = {
    "pod": "shop/cart-0",
    "uid": "u",
    "place": "unschedulable",
    "attempts": 3,
    "timestamp": 5.0,
    "rejectors": ["NodeResourcesFit"],
    "gatingPlugin": "",
    "gatingMessage": "",
}
QUEUE = [
    QUEUED,
    {**QUEUED, "pod": "shop/cart-1", "timestamp": 4.0},
    {**QUEUED, "pod": "shop/cart-2"},
    {**QUEUED, "pod": "shop/cart-3"},
    {**QUEUED, "pod": "ml/a", "place": "error backoff", "rejectors": []},
    {
        **QUEUED,
        "pod": "ml/b\x1b[31m",
        "place": "gated",
        "rejectors": [],
        "gatingPlugin": "SchedulingGates",
        "gatingMessage": "waits",
    },
]


def asked(monkeypatch: pytest.MonkeyPatch, answer: bytes, *arguments: str) -> str:
    async def queue(_target: object) -> bytes:
        return answer

    async def story(*_: object) -> bytes:
        return answer

    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(why, "_queue", queue)
    monkeypatch.setattr(why, "story_of", story)
    done = CliRunner().invoke(kubectl.command, ["why", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_pods_that_wait_for_the_same_share_a_row(monkeypatch):
    text = asked(monkeypatch, json.dumps({"pods": QUEUE}).encode())
    rows = [" ".join(line.split()) for line in text.splitlines()[3:] if line]
    assert rows == [
        "4 unschedulable rejected by NodeResourcesFit shop/cart-1, shop/cart-0, shop/cart-2, ...",
        "1 error backoff an error ml/a",
        r"1 gated SchedulingGates: waits ml/b\x1b[31m",
    ]


def test_only_those_of_a_namespace(monkeypatch):
    answer = json.dumps({"pods": QUEUE}).encode()
    assert "shop/" not in asked(monkeypatch, answer, "-n", "ml")
    assert asked(monkeypatch, answer, "-n", "other") == "No pod is pending.\n"


def test_one_pod_takes_two_lines(monkeypatch):
    message = "0/2 nodes are available: 2 Insufficient cpu."
    attempt = AttemptRecord(1, "default-scheduler", 1.0, 1.0, message=message)
    told = msgspec.structs.replace(EXPLANATION, attempts=[attempt])
    answer = msgspec.json.encode(told)
    first, second = asked(monkeypatch, answer, "shop/cart-0").splitlines()
    assert first.startswith("shop/cart-0: waits for a cluster event, ")
    assert first.endswith("; rejected by NodeResourcesFit")
    assert second == f"  {message}"


@pytest.mark.parametrize("answer", [b"{}", b"[]", b'{"pods": [{}]}', b"<html>"])
def test_what_is_no_scheduler_is_said(monkeypatch, answer):
    with pytest.raises(NotAnswered, match="no aiokube-scheduler of this version"):
        why._waiting(answer)


def test_the_plugin_has_the_commands_that_ask():
    done = CliRunner().invoke(kubectl.command, ["--help"])
    assert "Usage: kubectl aiokube " in done.output
    names = kubectl.command.list_commands(click.Context(kubectl.command))
    assert {"why", "explain", "top"} <= set(names) <= set(main.list_commands(click.Context(main)))
    assert CliRunner().invoke(kubectl.command, ["run"]).exit_code == 2


def test_links_to_the_program_are_the_plugin_and_its_completion(tmp_path: Path):
    program = Path(sys.executable).with_name("aiokube-scheduler")
    for name in ("kubectl-aiokube", "kubectl_complete-aiokube"):
        (tmp_path / name).symlink_to(program)

    def called(name: str, *arguments: str) -> str:
        command = [tmp_path / name, *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    assert called("kubectl-aiokube", "version").startswith("aiokube-scheduler ")
    *found, directive = called("kubectl_complete-aiokube", "wh").splitlines()
    assert ([line.partition("\t")[0] for line in found], directive) == (["why"], ":4")


def test_completion_of_options(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-aiokube", "explain", "--cont"])
    kubectl.completion()
    assert capsys.readouterr().out.startswith("--context\tThe kubeconfig's context.\n")
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-aiokube"])
    kubectl.completion()
    assert "\ntop\t" in capsys.readouterr().out


@pytest.mark.parametrize(("context", "namespace"), [("", "shop"), ("other", "default")])
def test_the_namespace_is_that_of_the_context(tmp_path: Path, context, namespace):
    file = tmp_path / "kubeconfig"
    contexts = [
        {"name": "one", "context": {"cluster": "c", "user": "", "namespace": "shop"}},
        {"name": "other", "context": {"cluster": "c", "user": ""}},
    ]
    clusters = [{"name": "c", "cluster": {"server": "https://127.0.0.1"}}]
    config = {"current-context": "one", "contexts": contexts, "clusters": clusters}
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **config}))
    assert namespace_of(str(file), context or None) == namespace
