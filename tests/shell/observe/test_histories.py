"""The histories of pods: what is remembered, what is told once, what is forgotten, and whose calls are whose."""

import asyncio
import json

import msgspec
import numpy as np
import pytest

from app.extender.config import Verb
from app.extender.errors import CallOutcome, ErrorAnswer, ExtenderError
from app.extender.events import CallFinished, CallHeldBack, ErrorIgnored, NodesRejected
from app.framework.diagnosis import NONE, Diagnosis
from app.framework.diagnosis import FilterOutcome as Verdicts
from app.framework.testing import make_pod
from app.model.status import Code, Status, unschedulable
from app.observe.events import (
    AttemptFailed,
    AttemptStarted,
    BindingStepFinished,
    NodeSelected,
    PodBound,
    PreemptionStarted,
    ShadowAnswered,
    VictimEvicted,
)
from app.observe.histories import MAX_CALLS, MAX_VICTIMS, Histories, Rejection, rejections_of
from app.state.queue.queued_pod import ACTIVE, QueuedPod
from app.wire.extender_v1 import Body
from tests.shell.extender.fakes import extender
from tests.shell.scheduler.world import running

PROFILE = "default-scheduler"


class Wall:
    """Seconds that pass by one with each look."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        self.now += 1.0
        return self.now


@pytest.fixture
def histories():
    return Histories(Wall(), max_pods=3, max_attempts=4)


def queued(name="p", attempts=1):
    return QueuedPod(make_pod(name), 1.0, attempts=attempts)


def fail(
    histories, pod, message="0/9 nodes are available: 9 no.", *, result="unschedulable", **more
):
    diagnosis = Diagnosis(node_count=9, absent=unschedulable("no", plugin="Fit"))
    histories.on(AttemptFailed(pod, PROFILE, result, message, 0.5, diagnosis, **more))


def select(histories, pod):
    histories.on(NodeSelected(pod, PROFILE, "n3", 5, 9, 0.01, lambda: None))


def step(histories, pod, *what):
    histories.on(BindingStepFinished(pod, *what))


def attempts(histories, name="p"):
    return histories.of("default", name).attempts


def test_long_texts_make_the_oldest_pods_be_forgotten():
    """An extender may give a long reason for each of many nodes, another one in each attempt."""
    histories = Histories(Wall(), max_text=1000)
    for name in ("a", "b", "c"):
        fail(histories, queued(name), "x" * 400)
    assert histories.of("default", "a") is None
    assert (len(histories), histories.forgotten) == (2, 1)
    for number in range(10):
        fail(histories, queued("c", attempts=2), f"again and again {number % 2}")
    assert len(histories) == 2
    fail(histories, queued("c", attempts=3), "x" * 5000)
    assert len(histories) == 1
    assert attempts(histories, "c")[-1].message == "x" * 5000
    assert histories._text == sum(h.size for h in histories.latest(9))


def test_a_pod_that_is_bound(histories):
    pod = queued()
    select(histories, pod)
    assert attempts(histories)[0].result == "decided"
    step(histories, pod, "PreBind", "Success", 0.2)
    step(histories, pod, "Bind", "Success", 0.1)
    pod.place = ACTIVE
    pod.note(7.0, "Add")
    histories.on(PodBound(pod, pod.pod, PROFILE, 5, 9, 0.4, 250.0))
    (attempt,) = attempts(histories)
    assert (attempt.result, attempt.node, attempt.feasible, attempt.evaluated) == (
        "bound",
        "n3",
        5,
        9,
    )
    assert (attempt.deciding_seconds, attempt.seconds, attempt.at) == (0.01, 0.4, 250.0)
    assert [(s.name, s.status, s.seconds) for s in attempt.steps] == [
        ("PreBind", "Success", 0.2),
        ("Bind", "Success", 0.1),
    ]
    assert histories.of("default", "p").moves == [(7.0, "Add", ACTIVE)]


def test_a_binding_that_fails_ends_the_same_attempt(histories):
    pod = queued()
    select(histories, pod)
    step(histories, pod, "Bind", "Error", 0.1)
    histories.on(AttemptFailed(pod, PROFILE, "error", "the server said no", 0.2, None, ""))
    (attempt,) = attempts(histories)
    assert (attempt.result, attempt.node, attempt.message) == ("error", "n3", "the server said no")
    assert attempt.nominated_node == ""
    assert attempt.refusals == ()


def test_a_pod_that_fits_nowhere(histories):
    fail(histories, queued(), nominated_node="n4")
    (attempt,) = attempts(histories)
    assert attempt.refusals == (Rejection("Fit", "Unschedulable", ("no",), 9),)
    assert (attempt.result, attempt.evaluated, attempt.nominated_node) == ("unschedulable", 9, "n4")


def test_attempts_that_end_alike_are_told_once(histories):
    for number in (1, 2, 3):
        fail(histories, queued(attempts=number))
    (attempt,) = attempts(histories)
    assert (attempt.number, attempt.repeats) == (3, 3)
    assert attempt.first_at < attempt.at
    assert attempt.refusals[0].nodes == 9
    fail(histories, queued(attempts=4), "something else")
    assert [a.repeats for a in attempts(histories)] == [3, 1]


@pytest.mark.parametrize(
    "different",
    [
        {"message": "other"},
        {"result": "error"},
        {"nominated_node": "n1"},
    ],
)
def test_attempts_that_end_differently_are_told_apart(histories, different):
    fail(histories, queued(attempts=1))
    fail(histories, queued(attempts=2), **different)
    assert len(attempts(histories)) == 2


def test_only_the_last_attempts_are_kept(histories):
    for number in range(1, 8):
        fail(histories, queued(attempts=number), f"message {number}")
    assert [a.number for a in attempts(histories)] == [4, 5, 6, 7]


def test_the_pod_dealt_with_longest_ago_is_forgotten(histories):
    for name in ("a", "b", "c"):
        fail(histories, queued(name))
    fail(histories, queued("a", attempts=2))
    fail(histories, queued("d"))
    assert len(histories) == 3
    assert histories.of("default", "b") is None
    assert [story.name for story in histories.latest(2)] == ["d", "a"]


def test_a_pod_that_takes_a_name_over_has_a_story_of_its_own(histories):
    fail(histories, queued())
    successor = queued()
    successor.pod = msgspec.structs.replace(successor.pod, uid="another")
    select(histories, successor)
    assert [a.result for a in attempts(histories)] == ["decided"]
    for name in ("x", "y"):
        fail(histories, queued(name))
    assert histories.of("default", "p").uid == "another", "the first of that name was forgotten"


def test_an_attempt_that_came_to_nothing_does_not_become_the_next(histories):
    select(histories, queued(attempts=1))
    fail(histories, queued(attempts=2))
    assert [a.result for a in attempts(histories)] == ["decided", "unschedulable"]


def test_a_pod_that_starts_afresh_does_not_overwrite_its_past(histories):
    fail(histories, queued(attempts=1), "first life")
    fail(histories, queued(attempts=1), "second life")
    assert [a.message for a in attempts(histories)] == ["first life", "second life"]


def test_victims_belong_to_the_attempt_under_way(histories):
    """An attempt that asks no extenders begins for histories with its end."""
    victims = [make_pod(f"v{number}") for number in range(MAX_VICTIMS + 2)]
    histories.on(PreemptionStarted(make_pod("p"), "n1", victims[:2]))
    fail(histories, queued(), nominated_node="n1")
    (attempt,) = attempts(histories)
    assert (attempt.victims, attempt.victim_pods) == (2, ("default/v0", "default/v1"))
    fail(histories, queued(attempts=2), nominated_node="n1")
    (attempt,) = attempts(histories)
    assert (attempt.repeats, attempt.victims) == (2, 2)
    again = queued(attempts=3)
    histories.on(AttemptStarted(again, PROFILE))
    histories.on(PreemptionStarted(again.pod, "n2", victims))
    fail(histories, again, nominated_node="n2")
    last = attempts(histories)[-1]
    assert (last.victims, len(last.victim_pods)) == (MAX_VICTIMS + 2, MAX_VICTIMS)
    fail(histories, queued(attempts=4), "0/9 nodes are available: 9 others.")
    assert attempts(histories)[-1].victims == 0


def test_a_victim_knows_who_has_preempted_it(histories):
    victim, preemptor = make_pod("v"), make_pod("p")
    histories.on(VictimEvicted(victim, preemptor, "n1"))
    told = histories.of("default", "v").preempted
    assert (told.preemptor, told.preemptor_uid, told.node) == ("default/p", preemptor.uid, "n1")
    assert told.at > 100.0


# ---------------------------------------------------------------- extenders


def test_answers_of_extenders_in_shadow_belong_to_the_attempt(histories):
    pod = queued()
    fail(histories, pod)
    histories.on(
        ShadowAnswered(pod.pod, pod.attempts, "n1", "http://a", "filter", "same", "", 3, 2)
    )
    histories.on(ShadowAnswered(pod.pod, 9, "n1", "http://a", "filter", "same", "", 3, 2))
    histories.on(ShadowAnswered(make_pod("x"), 1, "n1", "http://a", "filter", "same", "", 3, 2))
    (attempt,) = attempts(histories)
    (told,) = attempt.shadows
    assert (told.extender, told.verb, told.result) == ("http://a", "filter", "same")
    assert (told.nodes, told.kept) == (3, 2)
    assert histories.of("default", "x") is None


def call(histories, extender, verb=Verb.FILTER, outcome=CallOutcome.SUCCESS):
    histories.on(CallFinished(extender, verb, outcome, 0.1, 10, 5))


async def test_calls_belong_to_the_attempt_of_their_task(histories):
    async def attempt(name):
        histories.on(AttemptStarted(queued(name), PROFILE))
        await asyncio.sleep(0)
        call(histories, f"http://{name}")
        histories.on(NodesRejected(f"http://{name}", 4))
        await asyncio.sleep(0)
        async with asyncio.TaskGroup() as group:
            group.create_task(score(name))

    async def score(name):
        await asyncio.sleep(0)
        call(histories, f"http://{name}", Verb.PRIORITIZE, CallOutcome.TIMEOUT)
        error = ExtenderError(
            "too slow",
            extender=f"http://{name}",
            verb=Verb.PRIORITIZE,
            outcome=CallOutcome.STATUS,
            answer=ErrorAnswer(500, "out of licences"),
        )
        histories.on(ErrorIgnored(error, make_pod(name)))

    await asyncio.gather(attempt("a"), attempt("b"))
    for name in ("a", "b"):
        filtered, scored = attempts(histories, name)[0].calls
        assert (filtered.extender, filtered.verb, filtered.dropped) == (
            f"http://{name}",
            "filter",
            4,
        )
        assert (scored.verb, scored.outcome) == ("prioritize", "timeout")
        assert scored.ignored_error == "too slow: out of licences"


async def test_errors_of_calls_count_as_texts_of_a_pod_that_is_bound():
    histories = Histories(Wall(), max_text=1000)
    for name in ("a", "b"):
        pod = queued(name)
        histories.on(AttemptStarted(pod, PROFILE))
        call(histories, "http://a")
        error = ExtenderError(
            "x" * 600, extender="http://a", verb=Verb.FILTER, outcome=CallOutcome.TIMEOUT
        )
        histories.on(ErrorIgnored(error, pod.pod))
        select(histories, pod)
        histories.on(PodBound(pod, pod.pod, PROFILE, 5, 9, 0.4, 250.0))
    assert [history.name for history in histories.latest(9)] == ["b"]


async def test_calls_made_for_nobody_are_not_told(histories):
    call(histories, "http://a")
    histories.on(NodesRejected("http://a", 4))
    assert len(histories) == 0


async def test_a_long_search_is_cut(histories):
    pod = queued()
    histories.on(AttemptStarted(pod, PROFILE))
    for _ in range(MAX_CALLS + 10):
        call(histories, "http://a")
    histories.on(CallHeldBack("http://a", Verb.FILTER))
    assert len(attempts(histories)[0].calls) == MAX_CALLS


@pytest.mark.looptime
async def test_extenders_in_the_stories_of_pods_that_are_decided_side_by_side():
    def answer(path, body):
        return {"filter": slowly, "prioritize": scores, "bind": lambda _body: {}}[path](body)

    async def slowly(body):
        name = body["Pod"]["metadata"]["name"]
        await asyncio.sleep(3 if name == "slow" else 1)
        if name == "unlucky":
            return {"NodeNames": [], "FailedNodes": {"a": "no licence"}}
        return {"NodeNames": ["a", "b"], "FailedNodes": {"c": "no licence"}}

    def scores(body):
        return [{"Host": name, "Score": 1} for name in body["NodeNames"]]

    def extenders(sink):
        return [extender(answer, sink=sink, preempt_verb="")]

    async with running("a", "b", "c", extenders=extenders) as world:
        for name in ("slow", "quick", "unlucky"):
            pod = make_pod(name)
            raw = json.dumps({"metadata": {"name": name, "namespace": "default"}}).encode()
            world.add(msgspec.structs.replace(pod, raw=raw))
        await world.settle()
        told = world.telemetry.histories
        for name, seconds in (("slow", 3.0), ("quick", 1.0)):
            (attempt,) = attempts(told, name)
            assert attempt.result == "bound"
            assert [call.verb for call in attempt.calls] == ["filter", "prioritize", "bind"]
            assert attempt.calls[0].seconds == pytest.approx(seconds, abs=0.01)
            assert [call.dropped for call in attempt.calls] == [1, 0, 0]
            assert all(call.outcome == "success" for call in attempt.calls)
        (attempt,) = attempts(told, "unlucky")
        assert [(call.verb, call.dropped) for call in attempt.calls] == [("filter", 3)]
        reasons = {(r.plugin, r.reasons, r.nodes) for r in attempt.refusals}
        assert reasons == {("Extender", ("no licence",), 1), ("Extender", (), 2)}


# ---------------------------------------------------------------- refusals


def judged():
    """Rows 0 to 5: Name, Fit for reason 0, Fit for reason 1 twice, nobody, not looked at."""
    plugin = np.array([0, 1, 1, 1, NONE, 0], np.int8)
    reasons = np.array([0, 0, 1, 1, 0, 0], np.int32)
    codes = np.where(plugin == NONE, 0, int(Code.Unschedulable)).astype(np.int8)
    texts = {0: lambda _n: ("wrong name",), 1: lambda n: (("cpu",), ("cpu", "memory"))[n]}
    considered = np.array([True] * 5 + [False])
    return Verdicts(["Name", "Fit"], plugin, codes, reasons, texts, considered)


def test_refusals_by_plugin_and_reasons_most_nodes_first():
    diagnosis = Diagnosis(node_count=6, outcome=judged(), absent=unschedulable("narrowed"))
    assert rejections_of(diagnosis) == (
        Rejection("", "Unschedulable", ("narrowed",), 2),
        Rejection("Fit", "Unschedulable", ("cpu", "memory"), 2),
        Rejection("Fit", "Unschedulable", ("cpu",), 1),
        Rejection("Name", "Unschedulable", ("wrong name",), 1),
    )
    assert diagnosis.reason_counts() == {"narrowed": 2, "cpu": 3, "memory": 2, "wrong name": 1}


def test_what_extenders_say_replaces_the_filters_and_silence_comes_last():
    diagnosis = Diagnosis(node_count=5, outcome=judged())
    diagnosis.by_row[0] = unschedulable("no licence", plugin="Extender")
    diagnosis.by_row[4] = Status(Code.UnschedulableAndUnresolvable)
    told = rejections_of(diagnosis)
    assert Rejection("Extender", "Unschedulable", ("no licence",), 1) in told
    assert told[-1] == Rejection("Extender", "UnschedulableAndUnresolvable", (), 1)
    assert "Name" not in {refusal.plugin for refusal in told}


def test_many_reasons_are_counted_as_well():
    rows = 3000
    numbers = np.arange(rows, dtype=np.int32) * 100_000
    diagnosis = Diagnosis(
        node_count=rows,
        outcome=Verdicts(
            ["Fit"],
            np.zeros(rows, np.int8),
            np.full(rows, int(Code.Unschedulable), np.int8),
            numbers % 700_000,
            {0: lambda n: (f"reason {n}",)},
            np.ones(rows, bool),
        ),
    )
    counts = diagnosis.reason_counts()
    assert sum(counts.values()) == rows
    assert set(counts) == {f"reason {n * 100_000}" for n in range(7)}


# ---------------------------------------------------------------- bodies of calls

SECRET = b'{"Pod":{"env":[{"name":"PASSWORD","value":"hunter2"}]},"NodeNames":["a"]}'


def call_about(histories, name, body=SECRET, answer=b'{"NodeNames":["a"]}'):
    """A call in an attempt of its own."""
    histories.on(AttemptStarted(queued(name), PROFILE))
    about = (CallOutcome.SUCCESS, 0.1, len(body), len(answer), make_pod(name))
    halves = Body([body[:7], body[7:]])
    histories.on(CallFinished("http://a", Verb.FILTER, *about, halves, answer))


def bodies_of(histories, name):
    return [each.bodies for attempt in attempts(histories, name) for each in attempt.calls]


def test_no_bodies_are_kept_unless_it_is_asked_for(histories):
    call_about(histories, "p")
    assert bodies_of(histories, "p") == [None]


def test_bodies_are_kept_without_secrets(histories):
    histories.keep_bodies(2, 1000)
    call_about(histories, "p")
    ((request, answer),) = [msgspec.structs.astuple(each) for each in bodies_of(histories, "p")]
    assert json.loads(request)["NodeNames"] == ["a"]
    assert '"value":"REDACTED"' in request
    assert "hunter2" not in request
    assert answer == '{"NodeNames":["a"]}'


def test_bodies_of_the_last_calls_are_kept_and_no_more_of_each_than_asked_for():
    histories = Histories(Wall())
    histories.keep_bodies(3, 10)
    for number in range(8):
        call_about(histories, f"p{number}", b"x" * 1000, b"y" * 1000)
    kept = [bodies_of(histories, f"p{number}")[0] for number in range(8)]
    assert [each is not None for each in kept] == [False] * 5 + [True] * 3
    assert {msgspec.structs.astuple(each) for each in kept[5:]} == {("x" * 10, "y" * 10)}


def test_calls_that_are_not_kept_take_no_place():
    histories = Histories(Wall())
    histories.keep_bodies(2, 10)
    call_about(histories, "p")
    for _ in range(MAX_CALLS + 5):
        about = (CallOutcome.SUCCESS, 0.1, 1, 1, make_pod("p"), Body([b"late"]), b"")
        histories.on(CallFinished("http://a", Verb.FILTER, *about))
    kept = [each for each in bodies_of(histories, "p") if each is not None]
    assert len(bodies_of(histories, "p")) == MAX_CALLS
    assert [each.request for each in kept] == ["late", "late"]
