"""The log of a scheduler that runs: kube-scheduler's lines at its verbosities, in a form that its tools can read."""

import collections
import io
import json
import logging
import re

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cycle.attempt import Attempt
from app.extender.breaker import State
from app.extender.config import Verb
from app.extender.errors import CallOutcome
from app.extender.events import BreakerChanged, CallFinished
from app.framework.testing import make_pod
from app.observe.events import NodeSelected
from app.observe.telemetry import log_event, log_scores, without_secrets
from app.runtime import logs
from app.state.queue.queued_pod import QueuedPod
from app.wire.extender_v1 import Body
from tests.shell.extender.fakes import extender
from tests.shell.scheduler.world import running

#: How tools that compare schedulers read scores.
SCORE = re.compile(
    r'"(Plugin scored node for pod|Calculated node\'s final score for pod)".*? pod="([^"]+)"'
    r'(?: plugin="([^"]+)")? node="([^"]+)" score=(-?\d+)'
)


@pytest.fixture
def written(monkeypatch):
    """Starts logging into a text at some verbosity, and puts everything back."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stream = io.StringIO()

    def start(verbosity):
        monkeypatch.setattr("sys.stderr", stream)
        logs.configure(verbosity=verbosity)
        return stream

    yield start
    root.handlers[:] = before
    logs.set_verbosity(0)
    root.setLevel(level)


def unfit():
    return make_pod("unfit", spec={"nodeSelector": {"no": "where"}})


async def test_at_verbosity_0_nothing_is_said_of_single_pods(written):
    stream = written(0)
    async with running("a", "b") as world:
        for pod in (make_pod("fits"), unfit()):
            world.add(pod)
        await world.settle()
    assert "fits" not in stream.getvalue()
    assert "unfit" not in stream.getvalue()


async def test_at_verbosity_2_outcomes(written):
    stream = written(2)
    async with running("a", "b") as world:
        for pod in (make_pod("fits"), unfit()):
            world.add(pod)
        await world.settle()
    text = stream.getvalue()
    assert re.search(
        r'"Successfully bound pod to node" pod="default/fits" node="[ab]" evaluatedNodes=2 feasibleNodes=2\n',
        text,
    )
    assert '"Unable to schedule pod; no fit; waiting" pod="default/unfit" err="0/2 nodes' in text
    assert not SCORE.search(text)


async def test_errors_are_always_said(written):
    stream = written(0)
    async with running("a") as world:
        world.transport.handler = lambda sent: None
        world.add(make_pod("p"))
        await world.settle()
    assert '"Error scheduling pod; retrying" pod="default/p" err="' in stream.getvalue()


async def test_at_verbosity_10_every_score(written):
    stream = written(10)
    async with running("a", "b", "c") as world:
        for name in ("p", "q"):
            world.add(make_pod(name))
        world.add(unfit())
        await world.settle()
    plugins, totals = collections.defaultdict(dict), {}
    for line in stream.getvalue().splitlines():
        found = SCORE.search(line)
        if found:
            _, pod, plugin, node, score = found.groups()
            if plugin:
                plugins[pod, node][plugin] = int(score)
            else:
                totals[pod, node] = int(score)
    assert set(totals) == {(f"default/{p}", n) for p in "pq" for n in "abc"}
    for key, total in totals.items():
        assert sum(plugins[key].values()) == total
        assert plugins[key]["TaintToleration"] == 300, "weighted"


async def test_a_pod_with_one_node_is_not_scored(written):
    stream = written(10)
    async with running("a") as world:
        world.add(make_pod("p"))
        await world.settle()
    assert "Successfully bound" in stream.getvalue()
    assert not SCORE.search(stream.getvalue())


async def test_the_extenders_share_is_in_the_total():
    async with running("a", "b") as world:
        framework = world.scheduler.frameworks["default-scheduler"]
        attempt = Attempt(
            framework,
            world.state.table,
            make_pod("p"),
            nominated=world.state.nominated_for,
            rng=np.random.default_rng(0),
        )
        rows = attempt.find()
        choice = attempt.choose(rows, np.array([0, 1000], np.int64))
        names, by_plugin, totals = attempt.scores()
    assert (names, choice.node_name) == (["a", "b"], "b")
    assert totals[1] - sum(scores[1] for scores in by_plugin.values()) == 1000


FILTERED = {"NodeNames": ["a", "b"]}
SCORED = [{"Host": "b", "Score": 7}, {"Host": "a", "Score": 3}]
SECRET = [{"name": "PASSWORD", "value": 'hunter2\\" \\\\'}, {"name": "b", "value": "hunter2"}]


async def lines_with_an_extender(written, verbosity):
    """What is logged of a pod with a secret that an extender is asked about."""
    stream = written(verbosity)

    def extenders(sink):
        def reply(verb, _body):
            return FILTERED if verb == "filter" else SCORED

        return [extender(reply, sink=sink, preempt_verb="", bind_verb="", weight=2)]

    raw = json.dumps({"env": SECRET}, separators=(",", ":")).encode()
    async with running("a", "b", extenders=extenders) as world:
        world.add(msgspec.structs.replace(make_pod("p"), raw=raw))
        await world.settle()
    return stream.getvalue().splitlines()


async def test_at_verbosity_5_calls_to_extenders(written):
    lines = await lines_with_an_extender(written, 5)
    calls = [line.partition('] "Called extender" ')[2] for line in lines if "Called ext" in line]
    assert [re.sub(r"(seconds|sent)=\S+", r"\1=N", call) for call in calls] == [
        f'pod="default/p" extender="http://ext.test" verb="{verb}" outcome="success" seconds=N sent=N received={size}'
        for verb, size in (("filter", 25), ("prioritize", 54))
    ]
    assert not [line for line in lines if "NodeNames" in line]


async def test_at_verbosity_10_scores_of_extenders_as_they_gave_them(written):
    lines = await lines_with_an_extender(written, 10)
    scores = [line.partition('] "Extender scored node for pod" ')[2] for line in lines]
    assert [score for score in scores if score] == [
        f'pod="default/p" extender="http://ext.test" node="{node}" score={score}'
        for node, score in (("b", 7), ("a", 3))
    ]


@pytest.mark.parametrize(("verbosity", "limit"), [(7, None), (8, 1024), (9, 10240), (10, 65536)])
async def test_bodies_at_high_verbosities_without_secrets(written, verbosity, limit):
    lines = await lines_with_an_extender(written, verbosity)
    bodies = [line for line in lines if '"Request to extender"' in line]
    answers = [line for line in lines if '"Answer of extender"' in line]
    assert len(bodies) == len(answers) == (0 if limit is None else 2)
    for line in bodies:
        assert r"\"name\":\"PASSWORD\",\"value\":\"REDACTED\"" in line
        assert r"\"NodeNames\":[\"a\",\"b\"]" in line
    assert all("Score" in line or "NodeNames" in line for line in answers)
    assert "hunter2" not in "".join(lines)


async def test_long_bodies_are_cut(written):
    stream = written(8)
    body = Body([b"x" * 600, b"y" * 600, b"z" * 600])
    about = (CallOutcome.SUCCESS, 0.1, body.size, 5000, make_pod("p"), body, b"w" * 5000)
    log_event(CallFinished("http://a", Verb.FILTER, *about))
    request, answer = stream.getvalue().splitlines()[1:]
    assert f'body="{"x" * 600}{"y" * 424}"' in request
    assert f'body="{"w" * 1024}"' in answer


@given(st.text(), st.integers(0, 400))
def test_no_part_of_a_secret_is_left_wherever_a_body_is_cut(text, size):
    value = f"hunter2{text}hunter2"
    pod = {"env": [{"name": "A", "value": value}], "kind": "Pod"}
    last = "kubectl.kubernetes.io/last-applied-configuration"
    raw = json.dumps({"annotations": {last: json.dumps(pod)}, **pod}, separators=(",", ":"))
    shown = without_secrets(raw.encode()[:size])
    assert "hunter2" not in shown
    if size >= len(raw):
        assert json.loads(shown)["kind"] == "Pod"


async def test_scores_that_cannot_be_had_do_not_stop_the_scheduler(written):
    stream = written(10)

    def broken():
        raise ValueError("no scores today")

    log_scores(NodeSelected(QueuedPod(make_pod("p"), 1.0), "profile", "a", 2, 2, 0.1, broken))
    assert "no scores today" in stream.getvalue()


async def test_breakers_are_heard_of(written):
    stream = written(0)
    async with running() as world:
        for state in (State.OPEN, State.CLOSED):
            world.telemetry.on_extender(BreakerChanged("http://a", Verb.FILTER, state))
    lines = stream.getvalue().splitlines()
    assert [line[0] for line in lines] == ["W", "I"]
    assert "the breaker of filter is open" in lines[0]


async def test_no_metric_is_registered_twice():
    async with running() as world, running() as other:
        assert world.telemetry.registry is not other.telemetry.registry
        with pytest.raises(ValueError, match="there are two metrics"):
            world.telemetry.families.counter("scheduler_schedule_attempts_total", "")
