"""A shadow's connection to the API server: what the server says about itself may be anything."""

import asyncio
import gc
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from app.cli.root import main
from app.framework.testing import make_node, make_pod
from app.kube.errors import UNREADABLE, ConnectionFailed, KubeApiError
from app.kube.transport import Response
from app.model.objects import Node
from app.model.pod import Pod
from app.runtime.clock import SystemClock
from app.scheduler.api_version import server_version
from app.settings.load import Loaded, Settings
from app.state.scheduler_state import Change
from app.tools.shadow.run import Shadow, ShadowOptions
from app.tools.shadow.verdict import Verdict
from tests.shell.clock import LoopClock


class Server:
    """Answers ``/version``."""

    def __init__(self, answer: bytes | Exception) -> None:
        self.answer = answer

    async def get(self, path, *, params=None, timeout=None):
        assert path == "/version"
        if isinstance(self.answer, Exception):
            raise self.answer
        return Response(200, self.answer)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b'{"gitVersion": "v1.36.2"}', "API server v1.36.2;"),
        (b"[]", "API server unknown"),
        (b"null", "API server unknown"),
        (b'{"gitVersion": 7}', "API server unknown"),
        (b'{"gitVersion": ["v1"]}', "API server unknown"),
        (b"<html>", "API server unknown"),
        (b"\xff\xfe", "API server unknown"),
        (b"[" * 100_000, "API server unknown"),
        (b"", "API server unknown"),
        (b"{}", "API server ;"),
        (ConnectionFailed("no answer", sent=False), "API server unknown (no answer)"),
    ],
)
async def test_a_strange_version_is_told(answer, said):
    lines = []
    try:
        told = await server_version(Server(answer))
    except (KubeApiError, *UNREADABLE) as error:
        told = f"unknown ({error})"
    Shadow(Loaded(Settings()), ShadowOptions(), SystemClock(), lines.append, told)._greet()
    assert lines[0].startswith(said)
    assert lines[-1].endswith("nothing is written")


def test_warnings_of_the_configuration_are_logged(tmp_path, monkeypatch):
    config = Path(tmp_path, "odd.yaml")
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "extenders: [{urlPrefix: 'http://extender'}]\n"
    )
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    result = CliRunner().invoke(
        main, ["shadow", f"--config={config}", f"--kubeconfig={tmp_path / 'none'}", "-v=0"]
    )
    assert result.exit_code == 1
    assert "the extender has no verb and will never be called" in result.stderr


@pytest.mark.parametrize("output", ["text", "json", "html"])
def test_what_pods_write_does_not_reach_the_terminal(tmp_path, output):
    hostile = "\x1b]0;title\x07[/red]<b>"
    with Path(tmp_path, "verdicts-00000001.jsonl").open("wb") as lines:
        verdict = Verdict(
            pod="default/p", kind="other-message", message=hostile, message_here=hostile
        )
        lines.write(msgspec.json.encode(verdict) + b"\n")
    result = CliRunner().invoke(
        main, ["shadow", "report", f"--journal={tmp_path}", "--output", output]
    )
    assert result.exit_code == 0
    assert "default/p" in result.stdout
    if output != "html":  # a browser ignores them
        assert "\x1b" not in result.stdout
        assert "\x07" not in result.stdout
    assert ("<b>" in result.stdout) == (output != "html")


@pytest.mark.looptime
async def test_changes_that_come_one_after_another_are_taken_over_together(monkeypatch):
    """A change costs less than the process waking up for it. None is held back for much longer."""
    shadow = Shadow(Loaded(Settings()), ShadowOptions(), LoopClock(), lambda _: None)
    clock, held, wakes = LoopClock(), [], []
    advance, catch_up = shadow.timeline.advance, shadow._catch_up

    def advancing():
        held.append(clock.steady() - shadow.timeline.ahead[0].at)
        return advance()

    async def catching_up():
        wakes.append(clock.steady())
        await catch_up()

    for name in ("freeze", "set_threshold"):  # of the test's process
        monkeypatch.setattr(gc, name, lambda *_: None)
    monkeypatch.setattr(shadow.timeline, "advance", advancing)
    monkeypatch.setattr(shadow, "_catch_up", catching_up)
    running = asyncio.create_task(shadow._run())
    await asyncio.sleep(0.001)
    for number in range(500):
        shadow._take(Change(Pod, None, make_pod(f"p{number}")))
        await asyncio.sleep(0.002)
    await asyncio.sleep(1.0)
    running.cancel()
    assert len(held) == 500
    assert min(held) >= 0.15
    assert max(held) < 0.2
    assert len(wakes) < 50


@pytest.mark.looptime
async def test_an_outcome_is_judged_however_late_it_is():
    """The report says how far behind the shadow is."""
    lines = []
    shadow = Shadow(Loaded(Settings()), ShadowOptions(), LoopClock(), lines.append)
    for name in "ab":
        shadow._take(Change(Node, None, make_node(name)))
    shadow._live = True
    pod = make_pod("p")
    shadow._take(Change(Pod, None, pod))
    shadow._take(Change(Pod, pod, msgspec.structs.replace(pod, node_name="a")))
    await asyncio.sleep(300.0)
    shadow._show_summary()
    assert lines == ["No pod was judged. 2 changes, the oldest 300 s old, wait."]
    await shadow._catch_up()
    assert shadow.tally.classes == {"tie": 1}
