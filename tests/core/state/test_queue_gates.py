"""PreEnqueue: pods that are kept out of the queues, and how they get in."""

import pytest

from app.model.cluster_event import (
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    UNSCHEDULABLE_TIMEOUT,
    Action,
    ClusterEvent,
    Resource,
)
from app.model.objects import SchedulingGate
from app.model.pod import PodTemplate
from app.model.status import SUCCESS, Code, Status, unresolvable, unschedulable
from app.state.queue.queued_pod import Place
from tests.core.state.queue_kit import (
    NODE_ADDED,
    NOW,
    POD_DELETED,
    PROFILE,
    Recorder,
    attempt,
    fail_next,
    make_pod,
    make_queue,
    places,
    registered,
    spec,
)

ACTIVE, PARKED, GATED = Place.ACTIVE, Place.UNSCHEDULABLE, Place.GATED
LATER = NOW + 60
GATES_GONE = ClusterEvent(Resource.Pod, Action.UpdatePodSchedulingGatesEliminated)
POD_LABELLED = ClusterEvent(Resource.Pod, Action.UpdatePodLabel)


class Gates:
    """PreEnqueue plugins that keep out the pods named in their sets; remembers who was asked, in order."""

    def __init__(self, **closed: set[str]) -> None:
        self.closed = closed
        self.asked: list[str] = []

    def __call__(self, pod):
        return [(plugin, self._check(plugin)) for plugin in self.closed]

    def _check(self, plugin):
        def check(pod):
            self.asked.append(plugin)
            return unresolvable(f"closed by {plugin}") if pod.name in self.closed[plugin] else SUCCESS  # fmt: skip

        return check


@pytest.mark.parametrize(
    "status",
    [unschedulable("no"), unresolvable("no"), Status(Code.Pending), Status(Code.Error, ("oops",))],
)
def test_anything_but_success_keeps_a_pod_out(status):
    recorder = Recorder()
    queue = make_queue(pre_enqueue=lambda pod: [("Gate", lambda pod: status)], recorder=recorder)
    queue.add(make_pod(), NOW)
    queued = queue.get("pod")
    assert queued.place is GATED
    assert (queued.gating_plugin, queued.gating_status, queued.rejectors) == ("Gate", status, {"Gate"})  # fmt: skip
    assert queued.initial_attempt_timestamp is None
    assert recorder.entered == [("unschedulable", "UnschedulablePodAdd")]
    assert recorder.gauge == {"Gate": 1}
    assert queue.pop(NOW) is None


def test_a_plugin_that_raises_keeps_the_pod_out_and_is_reported():
    def broken(pod):
        raise RuntimeError("cannot tell")

    recorder = Recorder()
    queue = make_queue(pre_enqueue=lambda pod: [("Gate", broken)], recorder=recorder)
    queue.add(make_pod(), NOW)
    assert queue.get("pod").gating_status == Status(Code.Error, ("cannot tell",), "Gate")
    assert recorder.faults == [("Gate", "PreEnqueue", "pod", "cannot tell")]


def test_the_first_plugin_that_says_no_ends_the_round():
    gates = Gates(A=set(), B={"pod"}, C={"pod"})
    queue = make_queue(pre_enqueue=gates)
    queue.add(make_pod(), NOW)
    assert gates.asked == ["A", "B"]
    assert queue.get("pod").rejectors == {"B"}


def test_the_plugin_that_gates_a_pod_is_asked_first_the_next_time():
    gates = Gates(A=set(), B={"pod"}, C=set())
    queue = make_queue([registered(NODE_ADDED, "B")], pre_enqueue=gates)
    queue.add(make_pod(), NOW)
    gates.asked.clear()
    assert queue.move_all(NODE_ADD, None, None, LATER) == 0
    assert gates.asked == ["B"]
    gates.closed["B"].clear()
    gates.asked.clear()
    assert queue.move_all(NODE_ADD, None, None, LATER) == 1
    assert list(dict.fromkeys(gates.asked)) == ["B", "A", "C"]


def test_a_pod_let_through_keeps_the_gate_among_its_rejectors_until_it_fails():
    recorder = Recorder()
    gates = Gates(Gate={"pod"})
    queue = make_queue([registered(NODE_ADDED, "Gate")], pre_enqueue=gates, recorder=recorder)
    queue.add(make_pod(), NOW)
    gates.closed["Gate"].clear()
    queue.move_all(NODE_ADD, None, None, LATER)
    queued = queue.get("pod")
    assert (queued.place, queued.gating_plugin, queued.gating_status) == (ACTIVE, "", SUCCESS)
    assert (queued.rejectors, recorder.gauge) == ({"Gate"}, {"Gate": 1})
    fail_next(queue, by=["Fit"], now=LATER)
    assert (queued.rejectors, recorder.gauge) == ({"Fit"}, {"Fit": 1})


def test_one_gate_may_follow_another():
    recorder = Recorder()
    gates = Gates(A={"pod"}, B={"pod"})
    queue = make_queue([registered(NODE_ADDED, "A"), registered(POD_DELETED, "B")], pre_enqueue=gates, recorder=recorder)  # fmt: skip
    queue.add(make_pod(), NOW)
    gates.closed["A"].clear()
    queue.move_all(NODE_ADD, None, None, LATER)
    queued = queue.get("pod")
    assert (queued.place, queued.gating_plugin, queued.rejectors) == (GATED, "B", {"A", "B"})
    assert recorder.gauge == {"A": 1, "B": 1}
    assert recorder.entered == [("unschedulable", "UnschedulablePodAdd")]
    gates.closed["B"].clear()
    assert queue.move_all(NODE_ADD, None, None, LATER) == 0
    assert queue.move_all(ASSIGNED_POD_DELETE, None, None, LATER) == 1


@pytest.mark.parametrize(
    ("event", "moves"),
    [
        pytest.param(POD_DELETED, 1, id="registered by the gating plugin"),
        pytest.param(NODE_ADD, 0, id="registered by another rejector only"),
        pytest.param(UNSCHEDULABLE_TIMEOUT, 0, id="wildcard"),
    ],
)
def test_a_gated_pod_waits_for_its_gate_whoever_else_turned_it_down(event, moves):
    gates = Gates(Gate=set())
    queue = make_queue([registered(NODE_ADDED, "Fit"), registered(POD_DELETED, "Gate")], pre_enqueue=gates)  # fmt: skip
    queued = attempt(queue, make_pod())
    gates.closed["Gate"].add("pod")
    queue.move_all(NODE_ADD, None, None, LATER)
    assert (queued.place, queued.rejectors) == (GATED, {"Fit", "Gate"})
    gates.closed["Gate"].clear()
    assert queue.move_all(event, None, None, LATER) == moves


def test_a_gate_that_registered_anything_at_all_is_asked_about_wildcards():
    gates = Gates(Gate={"pod"})
    queue = make_queue([registered(ClusterEvent(Resource.Any, Action.All), "Gate")], pre_enqueue=gates)  # fmt: skip
    queue.add(make_pod(), NOW)
    gates.closed["Gate"].clear()
    assert queue.move_all(UNSCHEDULABLE_TIMEOUT, None, None, LATER) == 1


def test_the_gates_hint_can_leave_the_pod_where_it_is():
    gates = Gates(Gate={"pod"})
    never = registered(POD_DELETED, "Gate", lambda *_: False, template_only=True)
    queue = make_queue([never], pre_enqueue=gates)
    queue.add(make_pod(), NOW)
    gates.closed["Gate"].clear()
    assert queue.move_all(ASSIGNED_POD_DELETE, None, None, LATER) == 0
    assert gates.asked == ["Gate"]


def test_while_the_gate_is_closed_no_pod_is_put_to_the_hints():
    def hint(pod, _old, _new):
        seen.append(pod.name)
        return True

    seen: list[str] = []
    gates = Gates(Gate={"a", "b"})
    queue = make_queue([registered(POD_DELETED, "Gate", hint)], pre_enqueue=gates)
    for name in "ab":
        queue.add(make_pod(name), NOW)
    gates.closed["Gate"].remove("b")
    assert queue.move_all(ASSIGNED_POD_DELETE, None, None, LATER) == 1
    assert (seen, places(queue)) == (["b"], {"a": GATED, "b": ACTIVE})


def test_a_gate_of_any_profile_makes_an_event_count():
    gates = Gates(Gate={"pod"})
    queue = make_queue(hints={PROFILE: [], "other": [registered(NODE_ADDED, "Gate")]}, pre_enqueue=gates)  # fmt: skip
    queue.add(make_pod(), NOW)
    gates.closed["Gate"].clear()
    assert queue.move_all(NODE_ADD, None, None, LATER) == 0, "its own profile has no such hint"


@pytest.mark.parametrize("by", [["Fit"], []])
def test_a_failed_pod_can_be_gated_instead_of_backing_off(by):
    recorder = Recorder()
    gates = Gates(Preemption=set())
    queue = make_queue([registered(NODE_ADDED, "Fit")], pre_enqueue=gates, recorder=recorder)
    queue.add(make_pod(), NOW)
    queued = queue.pop(NOW)
    queue.move_all(NODE_ADD, None, None, NOW)
    gates.closed["Preemption"].add("pod")
    queued.reject(by)
    assert queue.add_unschedulable_if_not_present(queued, NOW) is GATED
    assert queued.rejectors == {*by, "Preemption"}
    assert recorder.gauge == dict.fromkeys([*by, "Preemption"], 1)


@pytest.mark.parametrize(
    ("move", "counted"),
    [
        (lambda queue, _: queue.move_all(NODE_ADD, None, None, LATER), ["NodeAdd"]),
        (lambda queue, _: queue.flush_unschedulable(NOW + 301), ["UnschedulableTimeout"]),
        (lambda queue, pod: queue.activate([pod], LATER), []),
        (lambda queue, pod: queue.update(pod, make_pod(labels={"a": "b"}), LATER), []),
    ],
    ids=["event", "timeout", "activation", "update"],
)
def test_a_pod_that_is_gated_on_its_way_out_is_counted_once_more(move, counted):
    recorder, gates = Recorder(), Gates(Gate=set())
    queue = make_queue([registered(NODE_ADDED, "Fit"), registered(POD_LABELLED, "Fit")], pre_enqueue=gates, recorder=recorder)  # fmt: skip
    pod = attempt(queue, make_pod()).pod
    gates.closed["Gate"].add("pod")
    recorder.entered.clear()
    move(queue, pod)
    assert queue.where("pod") is GATED
    assert recorder.entered == [("unschedulable", event) for event in counted]


def test_a_rejected_pod_is_parked_without_asking_the_gates():
    gates = Gates(Preemption=set())
    queue = make_queue(pre_enqueue=gates)
    queue.add(make_pod(), NOW)
    queued = queue.pop(NOW)
    gates.closed["Preemption"].add("pod")
    queued.reject(["Fit"])
    assert queue.add_unschedulable_if_not_present(queued, NOW) is PARKED
    assert gates.asked == ["Preemption"]


def test_activation_stops_at_the_gate():
    gates = Gates(Preemption=set())
    queue = make_queue(pre_enqueue=gates)
    pod = attempt(queue, make_pod()).pod
    gates.closed["Preemption"].add("pod")
    assert queue.activate([pod], NOW) == 0
    assert queue.where("pod") is GATED
    gates.closed["Preemption"].clear()
    assert queue.activate([pod], NOW) == 1
    assert queue.where("pod") is ACTIVE


def test_activation_asks_the_plugin_that_gates_the_pod_first():
    gates = Gates(A=set(), B={"pod"}, C=set())
    queue = make_queue(pre_enqueue=gates)
    pod = make_pod()
    queue.add(pod, NOW)
    gates.asked.clear()
    assert queue.activate([pod], NOW) == 0
    assert gates.asked == ["B"]
    gates.closed["B"].clear()
    gates.asked.clear()
    assert queue.activate([pod], NOW) == 1
    assert gates.asked == ["B", "A", "C"]


def test_the_timeout_stops_at_the_gate():
    gates = Gates(Preemption=set())
    queue = make_queue(pre_enqueue=gates)
    attempt(queue, make_pod())
    gates.closed["Preemption"].add("pod")
    assert queue.flush_unschedulable(NOW + 301) == 1
    assert queue.where("pod") is GATED
    assert queue.flush_unschedulable(NOW + 602) == 0


def test_a_gated_pod_whose_gates_are_removed_gets_in():
    def gates(pod):
        yield "SchedulingGates", lambda pod: unresolvable("gates") if pod.spec.scheduling_gates else SUCCESS  # fmt: skip

    queue = make_queue([registered(GATES_GONE, "SchedulingGates", lambda pod, old, new: pod.uid == new.uid)], pre_enqueue=gates)  # fmt: skip
    two, one, none = [
        make_pod(template=PodTemplate(spec(scheduling_gates=tuple(map(SchedulingGate, names)))))
        for names in (["a", "b"], ["a"], [])
    ]
    queue.add(two, NOW)
    queue.update(two, one, NOW + 1)
    assert places(queue) == {"pod": GATED}
    queue.update(one, none, NOW + 2)
    assert places(queue) == {"pod": ACTIVE}
    assert queue.get("pod").initial_attempt_timestamp == NOW + 2


def test_a_gated_pod_that_was_updated_is_still_found_and_can_be_deleted():
    gates = Gates(Gate={"pod"})
    queue = make_queue([registered(NODE_ADDED, "Gate")], pre_enqueue=gates)
    old, new = make_pod(), make_pod(labels={"a": "b"})
    queue.add(old, NOW)
    queue.update(old, new, NOW)
    gates.closed["Gate"].clear()
    assert queue.move_all(NODE_ADD, None, None, NOW) == 1
    queue.delete(new)
    assert queue.statistics().gated == len(queue) == 0


def test_the_gate_is_shown_only_the_pods_that_an_event_can_help():
    gates = Gates(Gate={"a", "b", "c"})
    only = registered(NODE_ADDED, "Gate", lambda *_: True, narrow=lambda *_: ["b"])
    queue = make_queue([only], pre_enqueue=gates)
    template = PodTemplate(spec())
    for name in "abc":
        queue.add(make_pod(name, template=template), NOW)
    gates.asked.clear()
    gates.closed["Gate"].clear()
    assert queue.move_all(NODE_ADD, None, None, LATER) == 1
    assert queue.get("b").place is ACTIVE
    assert gates.asked == ["Gate", "Gate"]
