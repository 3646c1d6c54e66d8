"""Lanes: who is next when some pods wait for more than their turn."""

from app.model.objects import Container, ResourceRequirements
from app.model.pod import PodTemplate
from app.state.queue.queued_pod import ACTIVE, BACKOFF
from tests.core.state.queue_kit import (
    NODE_ADDED,
    NOW,
    make_pod,
    make_queue,
    pop_all,
    registered,
    spec,
)


def lane(pod):
    """What stands before the dash in a pod's name, letter by letter."""
    needed, dash, _ = pod.name.partition("-")
    return frozenset(needed if dash else "")


def open_to(*lanes):
    return lambda queued: queued.lane in map(frozenset, lanes)


def filled(*names, **options):
    queue = make_queue(lane=lane, **options)
    for number, name in enumerate(names):
        queue.add(make_pod(name), NOW + number)
    return queue


def test_without_a_gate_the_lanes_do_not_matter():
    names = ["a-1", "plain", "b-1", "ab-1", "a-2"]
    queue = filled(*names)
    assert [pod.name for pod in queue.pending_pods()] == names
    assert queue.count(ACTIVE) == len(queue) == 5
    assert pop_all(queue) == names


def test_the_first_pod_of_an_open_lane_is_next():
    queue = filled("a-1", "a-2", "b-1", "plain")
    assert queue.peek(open_to("b", "")).pod.name == "b-1"
    assert queue.pop(NOW, open_to("b", "")).pod.name == "b-1"
    assert queue.pop(NOW, open_to("b", "")).pod.name == "plain"
    assert queue.pop(NOW, open_to("b", "")) is None
    assert pop_all(queue) == ["a-1", "a-2"]


def test_lanes_are_asked_about_in_the_order_of_their_first_pods():
    queue, asked = filled("b-1", "a-1", "b-2"), []
    queue.add(make_pod("plain"), NOW - 1)
    assert queue.pop(NOW, asked.append) is None
    assert [queued.lane for queued in asked] == [frozenset(), frozenset("b"), frozenset("a")]


def test_no_pod_passes_one_of_higher_priority():
    queue = filled("a-1", "plain")
    queue.add(make_pod("a-high", priority=5), NOW)
    assert queue.peek(open_to("")) is None
    queue.add(make_pod("b-higher", priority=6), NOW)
    assert queue.pop(NOW, open_to("b", "")).pod.name == "b-higher"
    assert queue.pop(NOW, open_to("b", "")) is None
    assert queue.pop(NOW, open_to("a")).pod.name == "a-high"
    assert queue.pop(NOW, open_to("")).pod.name == "plain"


def test_whether_all_pods_need_something_besides_their_turn():
    queue = filled("a-1", "b-1")
    assert queue.all_in_lanes
    plain = make_pod("plain")
    queue.add(plain, NOW)
    assert not queue.all_in_lanes
    queue.delete(plain)
    assert queue.all_in_lanes
    assert len(pop_all(queue)) == 2
    assert not queue.all_in_lanes


def test_a_pod_that_changes_keeps_its_place_and_one_that_needs_something_else_changes_lanes():
    def asks(pod):
        return frozenset(c.name for c in pod.spec.containers)

    def of(name, *needed, **fields):
        containers = tuple(Container(name=n, resources=ResourceRequirements()) for n in needed)
        return make_pod(name, template=PodTemplate(spec(containers=containers)), **fields)

    queue = make_queue(lane=asks)
    first, second = of("first", "a"), of("second", "a")
    queue.add(first, NOW)
    queue.add(second, NOW + 1)
    queue.update(first, of("first", "a", labels={"x": "y"}), NOW + 2)
    queue.update(second, of("second", "b"), NOW + 2)
    assert queue.pop(NOW, open_to("b")).pod.name == "second"
    queue.delete(first)
    assert queue.pop(NOW) is None


def test_a_rejected_pod_is_tried_early_only_if_its_lane_is_open_and_nobody_is_active():
    queue = filled("a-1", hints={"default-scheduler": [registered(NODE_ADDED, "Fit")]})
    queued = queue.pop(NOW)
    queued.reject(["Fit"])
    queue.add_unschedulable_if_not_present(queued, NOW)
    queue.move_all(NODE_ADDED, None, None, NOW)
    assert queue.where("a-1") is BACKOFF
    assert queue.pop(NOW, open_to("")) is None
    queue.add(make_pod("b-1"), NOW)
    assert queue.pop(NOW, open_to("a")) is None
    queue.delete(queue.get("b-1").pod)
    assert queue.pop(NOW, open_to("a")) is queued
