"""What top shows, and that it follows a scheduler that comes and goes."""

import contextlib
import io
import json

import pytest
from rich.console import Console

from app.cli import top as module
from app.cli.top import follow
from app.cli.top_view import view
from app.framework.testing import make_node
from app.tools.feed_model import Event, FeedModel
from app.tools.scheduler_client import NotAnswered, SchedulerTarget
from tests.shell.observe.test_feed import Studio, asking, bound, failed


def studio():
    made = Studio()
    for number in range(4):
        labels = {"zone": f"z{number % 2}"}
        spec = {"unschedulable": number == 3}
        made.table.set_node(make_node(f"n{number}", labels=labels, spec=spec))
    made.table.add_pod(asking("p", cpu="2").on("n0"))
    made.telemetry.on(bound("q", node="n2"))
    made.telemetry.on(failed("r"))
    return made


def shown(model, problem="", width=160, height=60):
    text = io.StringIO()
    Console(file=text, width=width).print(view(model, "zone", (width, height), problem))
    return text.getvalue()


def test_all_of_it():
    said = shown(studio().open())
    assert "✓ healthy  me" in said
    assert "0 pods wait: active 0" in said
    (z0,) = [line for line in said.splitlines() if line.startswith("z0")]
    (z1,) = [line for line in said.splitlines() if line.startswith("z1")]
    assert "25% 6 free" in z0
    assert "2 (1 unschedulable)" in z1
    assert "default/r" in said
    assert "1 Insufficient cpu" in said


def test_states():
    made = studio()
    model = made.open()
    assert "✗ not connected: gone" in shown(model, "gone")
    model.sections["scheduler"]["leading"] = False
    assert "standby; me leads" in shown(model)
    model.sections["scheduler"]["leading"] = True
    model.sections["health"] = [["watch-age", "Pod: no data for 200 s", False]]
    assert "▲ degraded" in shown(model)
    assert "Pod: no data for 200 s" in shown(model)
    model.sections["health"] = [["shutdown", "process is shutting down", True]]
    assert "✗ not ready" in shown(model)
    assert "kubelets" not in shown(model)
    model.sections["kubeletRejections"] = {"OutOfcpu": 1200, "NodeAffinity": 1}
    assert "pods that kubelets rejected: OutOfcpu 1,200, NodeAffinity 1" in shown(model)


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("height", [10, 24, 100])
def test_it_fits(width, height):
    made = studio()
    model, seen = made.open(), made.feed.version
    for number in range(50):
        made.telemetry.on(failed(f"a-rather-long-name-of-a-pod-{number}", "no " * 100))
    made.advance()
    made.follow(model, seen)
    lines = shown(model, width=width, height=height).splitlines()
    assert len(lines) <= max(height, 30)
    assert max(map(len, lines)) <= width


def test_a_cluster_without_nodes():
    assert "all" in shown(Studio().open())


async def test_it_goes_on_when_the_scheduler_comes_back(monkeypatch):
    made = studio()
    made.feed.open()
    made.advance()
    snapshot = Event("snapshot", "1-1", made.snapshot())
    rounds = [[snapshot], NotAnswered("gone"), [], [snapshot], KeyboardInterrupt()]
    asked = []

    class FakeLink:
        def __init__(self, target, purpose):
            pass

        async def aclose(self):
            asked.append("closed")

        async def events(self, after):
            asked.append(after)
            found = rounds.pop(0)
            if not isinstance(found, list):
                raise found
            for event in found:
                yield event

    monkeypatch.setattr(module, "Link", FakeLink)
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    told = []
    with contextlib.suppress(KeyboardInterrupt):
        await follow(SchedulerTarget(), lambda _model, problem: told.append(problem), once=False)
    assert told[0] == ""
    assert "gone" in told
    assert told.count("") == 2
    assert asked == ["", "1-1", "1-1", "1-1", "1-1", "closed"]
    rounds[:] = [NotAnswered("nobody")]
    with pytest.raises(NotAnswered):
        await follow(SchedulerTarget(), lambda _model, problem: None, once=False)


def good():
    made = studio()
    made.feed.open()
    made.advance()
    return json.loads(made.snapshot())


def without(*path):
    message = good()
    within = message
    for key in path[:-1]:
        within = within[key]
    del within[path[-1]]
    return message


def having(value, *path):
    message = good()
    within = message
    for key in path[:-1]:
        within = within[key]
    within[path[-1]] = value
    return message


FOREIGN = [
    [],
    {},
    "text",
    None,
    {"nodes": {}},
    *(without(name) for name in ("scheduler", "queue", "rates", "health", "nodes")),
    without("queue", "active"),
    without("nodes", "names"),
    having("x", "queue", "active"),
    having(10**30, "queue", "active"),
    having([1], "rates", "attempt"),
    having({"cpu": [1]}, "nodes", "allocatable"),
    having({"values": [], "codes": [1, 1, 1, 1]}, "nodes", "taints"),
    having({"values": [], "codes": []}, "nodes", "taints"),
    having([[1e300, "p", "bound", "n", 0.1, 1]], "decisions"),
    having([[1, "p"]], "decisions"),
    having([["a", "b"]], "reasons"),
    having([{"extender": "e"}], "extenders"),
]
CHANGES = [
    [],
    {"queue": {}},
    {"nodes": {"rows": [0], "requested": {"cpu": []}}},
    {"nodes": {"objects": [[0]]}},
    {"nodes": []},
]


@pytest.mark.parametrize("kind", ["snapshot", "change"])
def test_feeds_of_others_are_refused(kind):
    for message in CHANGES if kind == "change" else FOREIGN:
        model = studio().open()
        before = shown(model)
        with pytest.raises(ValueError, match="no aiokube-scheduler of this version"):
            model.apply(kind, json.dumps(message).encode())
        assert shown(model) == before, message


def test_what_is_not_known_is_ignored():
    model = studio().open()
    model.apply("news", b"{}")
    model.apply("snapshot", json.dumps(good() | {"weather": 1}).encode())
    empty = FeedModel()
    empty.apply("change", b'{"queue": {}}')
    assert not empty.sections


@pytest.mark.parametrize("events", [[], [Event("change", "1", b"{}")], [Event("hello", "", b"x")]])
async def test_a_feed_without_a_snapshot(monkeypatch, events):
    class FakeLink:
        def __init__(self, target, purpose):
            pass

        async def aclose(self):
            pass

        async def events(self, _after):
            for event in events:
                yield event

    monkeypatch.setattr(module, "Link", FakeLink)
    for once in (True, False):
        with pytest.raises(NotAnswered, match="has ended the feed before it said anything"):
            await follow(SchedulerTarget(), lambda model, _problem: shown(model), once=once)
