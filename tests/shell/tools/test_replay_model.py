"""Other configurations live through a recording: what follows from decisions is the model's."""

import json
import math
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import msgspec
import pytest
from click.testing import CliRunner

from app.cli.replay import command
from app.extender.config import Verb
from app.plugins import registry
from app.scheduler.trace import Op, TraceError
from app.tools.replay.course import recorded_course
from app.tools.replay.model import live_through
from app.tools.replay.story import read_story
from app.tools.replay.variants import VariantChoice, variant_of
from tests.core.scheduler.full_state import CONFIG
from tests.shell.tools.recordings import BEGAN, Script, configuration, node

CLASSES = registry.registry(())
PACKING = {
    "pluginConfig": [
        {
            "name": "NodeResourcesFit",
            "args": {
                "scoringStrategy": {
                    "type": "MostAllocated",
                    "resources": [{"name": "cpu", "weight": 1}],
                }
            },
        }
    ]
}
NO_PREEMPTION = configuration(
    profiles=[
        {
            "schedulerName": "default-scheduler",
            "plugins": {"postFilter": {"disabled": [{"name": "*"}]}},
        }
    ]
)
FOUR = [f"n{number}" for number in range(4)]


def lived(trace, text=None, tmp_path=None, **choice):
    """The course and the nodes by pod name."""
    if text is not None:
        path = tmp_path / "other.yaml"
        path.write_text(text)
        choice["config"] = path
    story = read_story(trace)
    variant, _ = variant_of(VariantChoice("x", **choice), story.header)
    outcome = live_through(trace, story, variant, CLASSES)
    return outcome.course, {uid.removeprefix("uid-"): name for uid, name in outcome.nodes.items()}


@pytest.fixture
def spread(tmp_path):
    """Eight pods that a scheduler has spread over four nodes."""
    script = Script(tmp_path / "trace", CONFIG, *map(node, FOUR))
    for number in range(8):
        script.pod(1.0 + number, f"p{number}")
        script.bound(1.2 + number, f"p{number}", FOUR[number % 4], tried=1.0 + number)
    return script.ends(20.0)


def test_what_was_recorded(spread):
    story = read_story(spread)
    course = recorded_course(story).course
    assert (course.pods, course.bound, course.pending) == (8, 8, 0)
    assert course.waiting["all"].p50 == pytest.approx(0.2, abs=1e-6)


@pytest.mark.parametrize(("plugins", "unfit"), [(["NodeResourcesFit"], 1), ([], 0)])
def test_errors_are_not_counted_as_unschedulable(tmp_path, plugins, unfit):
    script = Script(tmp_path / "trace", CONFIG, node("n0"))
    script.pod(1.0, "p")
    script.add(Op.POP, BEGAN + 1.0, "uid-p", False)
    script.add(Op.REJECTED, "uid-p", "why")
    script.add(Op.FAIL, BEGAN + 1.1, "uid-p", None, plugins, [])
    course = recorded_course(read_story(script.ends(20.0))).course
    assert (course.unschedulable_pods, course.pending) == (unfit, 1)


def test_another_strategy_packs(spread, tmp_path):
    before, nodes = lived(spread)
    profile = {"schedulerName": "default-scheduler"} | PACKING
    after, other = lived(spread, configuration(profiles=[profile]), tmp_path)
    assert (len(set(nodes.values())), len(set(other.values()))) == (4, 2)
    assert after.mean_nodes_in_use < before.mean_nodes_in_use
    assert before.mean_utilisation["cpu"] == after.mean_utilisation["cpu"] > 0


def test_the_same_twice(spread):
    assert lived(spread)[0].hash == lived(spread)[0].hash


def test_pods_run_as_long_as_they_ran(tmp_path):
    """One node: the second pod waits for the end of the first one, wherever that was."""
    script = Script(tmp_path / "trace", CONFIG, node("n0", cpu="1"))
    script.pod(1.0, "first")
    script.bound(3.0, "first", "n0", tried=1.0)
    script.pod(4.0, "second")
    script.gone(13.0, "first")  # ten seconds after it was bound
    script.bound(13.1, "second", "n0")
    course, nodes = lived(script.ends(40.0))
    assert nodes == {"first": "n0", "second": "n0"}
    # The model binds the first one at once, so it ends at 11 s.
    assert course.waiting["all"].longest == pytest.approx(7.0, abs=0.2)
    assert course.unschedulable_pods == 1


def test_victims_are_chosen_by_the_configuration(tmp_path):
    script = Script(tmp_path / "trace", CONFIG, node("n0", cpu="1"))
    script.pod(1.0, "low")
    script.bound(1.0, "low", "n0")
    script.pod(5.0, "high", priority=10)
    trace = script.ends(60.0)
    course, nodes = lived(trace)
    assert (course.preempted, nodes["high"]) == (1, "n0")
    course, nodes = lived(trace, NO_PREEMPTION, tmp_path)
    assert (course.preempted, course.pending, "high" in nodes) == (0, 1, False)
    assert course.pending_reasons[0].message.startswith(
        "0/1 nodes are available: 1 Insufficient cpu"
    )


def test_a_victim_would_have_run_as_long_as_others_of_its_template(tmp_path):
    script = Script(tmp_path / "trace", CONFIG, node("n0", cpu="1"))
    script.pod(1.0, "other")
    script.bound(1.0, "other", "n0")
    script.gone(5.0, "other")
    script.pod(6.0, "victim")
    script.bound(6.0, "victim", "n0")
    script.pod(7.0, "high", priority=10)
    script.add(Op.EVICT, "uid-high", "n0", ["uid-victim"])
    script.gone(7.0, "victim")
    script.bound(7.1, "high", "n0")
    course, nodes = lived(script.ends(60.0), NO_PREEMPTION, tmp_path)
    assert (course.preempted, nodes["high"]) == (0, "n0")
    # The victim ends at 10 s.
    assert course.waiting["10"].longest == pytest.approx(3.0, abs=0.2)


def evicted_before(tmp_path, victim):
    """Two pods fill a node and one of them is evicted, slowly."""
    script = Script(tmp_path / "trace", CONFIG, node("n0", cpu="2"))
    script.placed(0.0, "a", "n0")
    script.placed(0.0, "b", "n0")
    script.pod(7.0, "high", priority=10)
    script.add(Op.POP, BEGAN + 7.0, "uid-high", False)
    script.add(Op.EVICT, "uid-high", "n0", [f"uid-{victim}"])
    script.placed(7.0, victim, "n0", ends=True)
    script.gone(17.0, victim)
    script.bound(17.1, "high", "n0")
    return script


def test_victims_that_were_there_before_stay_without_preemption(tmp_path):
    trace = evicted_before(tmp_path, "a").ends(60.0)
    course, nodes = lived(trace)
    assert (course.preempted, nodes["high"]) == (1, "n0")
    assert course.waiting["10"].longest == pytest.approx(10.0, abs=0.2)
    course, nodes = lived(trace, NO_PREEMPTION, tmp_path)
    assert (course.preempted, course.pending, nodes) == (0, 1, {})


def test_what_the_recording_says_of_a_victim_of_the_model_does_not_bring_it_back(tmp_path):
    """The model evicts another pod than the recorded scheduler, and later hears of its labels."""
    trace = tmp_path / "trace"
    for victim, other in (("a", "b"), ("b", "a")):
        script = evicted_before(tmp_path / victim, victim)
        script.placed(17.5, other, "n0")
        script.pod(20.0, "second", priority=10)
        script.placed(40.0, other, "n0")
        trace = script.ends(60.0)
        course, _ = lived(trace)
        assert (course.preempted, course.bound) == (2, 2)


@pytest.mark.parametrize("time", [math.nan, math.inf, -5.0, 1e300])
def test_times_that_cannot_be_end_the_recording(tmp_path, time):
    """Else another configuration would live up to then."""
    script = Script(tmp_path / "trace", CONFIG, node("n0"))
    script.pod(1.0, "a")
    script.bound(1.0, "a", "n0")
    script.add(Op.REQUEST, BEGAN + 2.0, "POST", 201, time)
    script.add(Op.FLUSH, time)
    trace = script.ends(20.0)
    assert f"{time} is no time of a recording that began at {BEGAN}" in read_story(trace).incomplete
    assert lived(trace)[1] == {"a": "n0"}
    script.records[0] = msgspec.structs.replace(script.records[0], began=time)
    with pytest.raises(TraceError, match="is no time at which a recording begins"):
        read_story(script.ends(30.0))


def test_others_end_their_pods_at_the_recorded_times(tmp_path, caplog):
    script = Script(tmp_path / "trace", CONFIG, node("n0", cpu="2"))
    script.placed(0.0, "a", "n0")
    script.placed(0.0, "b", "n0")
    script.pod(5.0, "new")
    script.add(Op.POP, BEGAN + 5.0, "uid-new", False)
    script.placed(7.0, "a", "n0", ends=True)
    script.gone(10.0, "a")
    script.bound(10.1, "new", "n0")
    course, nodes = lived(script.ends(60.0))
    assert (nodes, course.left_out, caplog.records) == ({"new": "n0"}, 0, [])
    assert course.waiting["all"].longest == pytest.approx(5.0, abs=0.2)


def test_bindings_wait_for_the_limits_of_the_client(tmp_path):
    """Two at once, and then two a second."""
    script = Script(tmp_path / "trace", CONFIG, *map(node, FOUR))
    for name in "abcdef":
        script.pod(1.0, name)
        script.bound(1.0, name, "n0")
    trace = script.ends(20.0)
    assert lived(trace)[0].waiting["all"].longest == pytest.approx(0.0, abs=0.1)
    limited = configuration(clientConnection={"qps": 2, "burst": 2})
    course, _ = lived(trace, limited, tmp_path)
    assert course.waiting["all"].longest == pytest.approx(2.0, abs=0.1)
    assert course.waiting["all"].mean == pytest.approx((0.5 + 1 + 1.5 + 2) / 6, abs=0.1)


def test_what_requests_waited_for_the_limits_is_no_work(tmp_path):
    limited = configuration(clientConnection={"qps": 2, "burst": 2})
    script = Script(tmp_path / "trace", limited, *map(node, FOUR))
    for name in "abcdef":
        script.pod(1.0, name)
    for name, sent in zip("abcdef", [1.0, 1.0, 1.5, 2.0, 2.5, 3.0], strict=True):
        script.bound(sent + 0.01, name, "n0", tried=1.0, sent=sent)
    trace = script.ends(20.0)
    assert lived(trace)[0].waiting["all"].longest == pytest.approx(2.01, abs=0.02)
    unlimited = configuration(clientConnection={"qps": -1})
    course, _ = lived(trace, unlimited, tmp_path)
    assert course.waiting["all"].longest == pytest.approx(0.01, abs=0.02)


def test_what_an_attempt_waits_for_before_it_binds_is_no_work(tmp_path):
    """As for claims, which are written before."""
    script = Script(tmp_path / "trace", CONFIG, *map(node, FOUR))
    for name in "abc":
        script.pod(1.0, name)
    for name in "abc":
        script.add(Op.POP, BEGAN + 1.0, f"uid-{name}", False)
        script.add(Op.REQUEST, BEGAN + 2.0, "PATCH", 200, 0.99)
        script.bound(2.1, name, "n0", tried=1.0, sent=2.0)
    course, _ = lived(script.ends(20.0))
    assert course.waiting["all"].longest == pytest.approx(0.1, abs=0.1)


def test_attempts_that_find_no_node_take_their_own_time(tmp_path):
    script = Script(tmp_path / "trace", CONFIG, node("n0"))
    script.pod(1.0, "large", cpu="8")
    script.add(Op.POP, BEGAN + 1.0, "uid-large", False)
    script.pod(1.1, "small")
    script.add(Op.UNFIT, "uid-large", "too large")
    script.add(Op.FAIL, BEGAN + 1.5, "uid-large", None, ["NodeResourcesFit"], [])
    script.bound(1.5, "small", "n0", sent=1.5)
    course, _ = lived(script.ends(20.0))
    assert course.waiting["all"].longest == pytest.approx(0.4, abs=0.02)


# ---------------------------------------------------------------- extenders

EXTENDED = configuration(
    extenders=[
        {
            "urlPrefix": "http://ext",
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "weight": 1,
            "nodeCacheCapable": True,
        }
    ]
)


def extended(tmp_path, known=FOUR):
    """An extender that accepts n1 and n2 only and prefers n2, for two pods with the same spec."""
    script = Script(tmp_path / "trace", EXTENDED, *map(node, FOUR))
    kept = [name for name in known if name in {"n1", "n2"}]
    for number, pod in enumerate(("a", "b")):
        script.pod(1.0 + number, pod)
    answer = {
        "NodeNames": kept,
        "FailedNodes": {name: "no licence" for name in known if name not in kept},
    }
    script.call(1.5, "filter", "a", known, answer)
    scores = [{"Host": name, "Score": 10 * (name == "n2")} for name in kept]
    script.call(1.9, "prioritize", "a", kept, scores)
    script.bound(2.0, "a", "n2", tried=1.0)
    return script.ends(20.0)


def test_extenders_answer_as_recorded(tmp_path):
    course, nodes = lived(extended(tmp_path))
    assert nodes == {"a": "n2", "b": "n2"}
    # Two questions about the first pod are those that were asked, two are about its sibling.
    assert course.questions == {"exact": 2, "composed": 2}
    # Each answer takes half a second.
    assert course.waiting["all"].p50 == pytest.approx(1.0, abs=0.05)


def at_a_time(calls):
    options = {"extenders": [{"urlPrefix": "http://ext", "parallelism": calls}]}
    kind = {"apiVersion": "aiokube-scheduler.io/v1alpha1", "kind": "AiokubeSchedulerConfiguration"}
    return f"{EXTENDED}\n---\n{json.dumps(kind | options)}"


def test_less_parallelism_shows_its_size(tmp_path):
    """Half a second for each of two questions about four pods: 1, 2, 3 and 4 s if it is one pod at a time.

    With four at a time 1 s for the first, and 1.5 s for those that wait for the extender's first answer.
    """
    script = Script(tmp_path / "trace", at_a_time(4), *map(node, FOUR))
    for name in "abcd":
        script.pod(1.0, name)
    for name in "abcd":
        script.call(1.5, "filter", name, FOUR, {"NodeNames": FOUR})
        script.call(2.0, "prioritize", name, FOUR, [{"Host": each, "Score": 1} for each in FOUR])
        script.bound(2.0, name, "n2", tried=1.0)
    trace = script.ends(30.0)
    before, _ = lived(trace)
    after, _ = lived(trace, at_a_time(1), tmp_path)
    assert before.waiting["all"].mean == pytest.approx(1.375, abs=0.05)
    assert after.waiting["all"].mean == pytest.approx(2.5, abs=0.05)


def test_questions_that_nobody_asked_are_counted(tmp_path):
    course, _ = lived(extended(tmp_path, ["n1", "n2"]))
    assert course.questions["unknown"] >= 1


def asked_before(tmp_path, outcome):
    """A pod that asks at 10 s and, when that had this outcome, at 15 s, about other nodes than in the model."""
    script = Script(tmp_path / "trace", EXTENDED, *map(node, FOUR))
    script.pod(1.0, "first")
    script.call(1.5, "filter", "first", FOUR, {"NodeNames": FOUR})
    script.call(2.0, "prioritize", "first", FOUR, [{"Host": each, "Score": 1} for each in FOUR])
    script.bound(2.0, "first", "n2", tried=1.0)
    script.pod(10.0, "second")
    script.add(Op.POP, BEGAN + 10.0, "uid-second", True)
    status = 503 if outcome == "status" else 200
    script.call(10.5, "filter", "second", ["n0"], {"Error": "no"}, outcome=outcome, status=status)
    script.pod(12.0, "third", cpu="2")
    script.call(15.5, "filter", "second", ["n0"], {"NodeNames": ["n0"]})
    script.call(16.0, "prioritize", "second", ["n0"], [{"Host": "n0", "Score": 1}])
    return script.ends(60.0)


@pytest.mark.parametrize(("outcome", "others"), [("status", True), ("error", False)])
def test_a_failing_extender_fails_whatever_it_is_asked(tmp_path, outcome, others):
    """All pods while it is away, and only the pod that is not to its liking."""
    trace = asked_before(tmp_path, outcome)
    course, nodes = lived(trace)
    assert nodes.keys() == {"first", "second", "third"}
    assert course.waiting["all"].longest > 2.0
    story = read_story(trace)
    failures = [
        story.cassette.failure("http://ext", Verb.FILTER, f"uid-{name}", BEGAN + at)
        for name, at in [("second", 10.0), ("third", 12.0), ("third", 14.0), ("first", 1.0)]
    ]
    assert [failure is not None for failure in failures] == [True, others, False, False]


@pytest.mark.parametrize(("score", "unknown"), [(1, 0), (2, 1)])
def test_what_is_said_of_all_nodes_is_known_of_another(tmp_path, score, unknown):
    script = Script(tmp_path / "trace", EXTENDED, *map(node, FOUR))
    known = FOUR[:2]
    script.pod(1.0, "a")
    script.pod(5.0, "b")
    script.call(1.5, "filter", "a", known, {"NodeNames": known})
    scores = [{"Host": "n0", "Score": 1}, {"Host": "n1", "Score": score}]
    script.call(1.9, "prioritize", "a", known, scores)
    script.bound(2.0, "a", "n0", tried=1.0)
    course, nodes = lived(script.ends(20.0))
    assert nodes.keys() == {"a", "b"}
    assert course.questions.get("unknown", 0) == 2 * unknown


def test_without_extenders(tmp_path):
    course, nodes = lived(extended(tmp_path), extenders="none")
    assert course.questions == {}
    assert len(nodes) == 2


class _Only(BaseHTTPRequestHandler):
    """An extender that accepts one node, and answers after 50 ms."""

    asked: ClassVar[list[str]] = []

    def do_POST(self):
        args = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(self.path)
        threading.Event().wait(0.05)
        names = args["NodeNames"]
        if self.path == "/filter":
            answer = {"NodeNames": ["n3"], "FailedNodes": {n: "no" for n in names if n != "n3"}}
        else:
            answer = [{"Host": name, "Score": 1} for name in names]
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args):
        pass


def test_extenders_are_called_live(tmp_path):
    """One that runs, at another address, answers otherwise than the recorded one, and takes its own time."""
    _Only.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Only) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        live = EXTENDED.replace("http://ext", f"http://127.0.0.1:{server.server_port}")
        course, nodes = lived(extended(tmp_path), live, tmp_path, extenders="live")
        server.shutdown()
    assert nodes == {"a": "n3", "b": "n3"}
    assert _Only.asked.count("/filter") == 2
    assert course.questions == {}
    assert 0.05 <= course.waiting["all"].p50 < 0.5


def test_live_extenders_that_cannot_be_reached_fail(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    live = EXTENDED.replace("http://ext", f"http://127.0.0.1:{port}")
    _, nodes = lived(extended(tmp_path), live, tmp_path, extenders="live")
    assert nodes == {}


def test_extenders_that_failed(tmp_path):
    script = Script(tmp_path / "trace", EXTENDED, *map(node, FOUR))
    script.pod(1.0, "a")
    script.call(1.5, "filter", "a", FOUR, {}, outcome="unreachable", status=0)
    script.add("o", 1_000_001.0, "uid-a", True)
    course, nodes = lived(script.ends(1.9))
    assert (nodes, course.questions["exact"]) == ({}, 1)


# ---------------------------------------------------------------- the command


def test_the_command_compares(spread, tmp_path):
    profile = {"schedulerName": "default-scheduler"} | PACKING
    other = tmp_path / "packing.yaml"
    other.write_text(configuration(profiles=[profile]))
    page = tmp_path / "page.html"
    arguments = [str(spread), "--config", str(other), "-o", "json", "--page", str(page)]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [each["name"] for each in found["courses"]] == ["as recorded", "packing.yaml"]
    [difference] = found["differences"]
    assert difference["moved"] > 0
    assert difference["nodesInUse"] < 0
    assert {move["pod"] for move in difference["moves"]} <= {f"default/p{n}" for n in range(8)}
    assert "<svg" in page.read_text()
    text = CliRunner().invoke(command, [str(spread), "--emulated-version", "1.37"])
    assert "rules of 1.37" in text.output


def test_a_configuration_that_is_not_valid(spread, tmp_path):
    other = tmp_path / "bad.yaml"
    other.write_text("kind: Nonsense\n")
    result = CliRunner().invoke(command, [str(spread), "--config", str(other)])
    assert (result.exit_code, result.output.startswith("Error: ")) == (2, True)


def test_a_recording_that_is_cut_off(spread, tmp_path):
    file = next(spread.iterdir())
    cut = tmp_path / "cut.aktrace"
    cut.write_bytes(file.read_bytes()[:-20])
    result = CliRunner().invoke(command, [str(cut), "--extenders", "none"])
    assert "cut off" in result.output


# ---------------------------------------------------------------- a shadow's recording


def test_the_recording_of_a_shadow(tmp_path):
    """It has objects only: another scheduler has decided about pods that a configuration would decide about."""
    script = Script(tmp_path / "trace", CONFIG, *map(node, FOUR))
    script.records[0] = msgspec.structs.replace(script.records[0], observed=True)
    for number in range(4):
        script.pod(1.0 + number, f"p{number}")
        script.add(Op.POD_BOUND, BEGAN + 1.5 + number, f"uid-p{number}", "n0", "9")
    course, nodes = lived(script.ends(20.0))
    assert (course.pods, course.bound) == (4, 4)
    assert set(nodes) == {"p0", "p1", "p2", "p3"}
    assert len(set(nodes.values())) > 1
