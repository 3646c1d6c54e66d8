"""A mirror decides as the state that it follows, whatever has happened there and whatever questions have changed in
between."""

import random

import msgspec
import pytest

from app.framework.testing import make_node, make_object, make_pod
from app.model.objects import Node, PodDisruptionBudget
from app.model.pod import Pod
from app.runtime.tasks import at_once
from app.state.mirror import Mirror, MirrorBrokenError
from app.state.scheduler_state import Change
from tests.core.scheduler.full_state import FullState
from tests.differential.playing import Difference, Sequence, _attempt

NOW = 1_800_000_000.0


class Mirrored(Sequence):
    """A random sequence whose state a mirror follows; a question changes the mirror before each comparison."""

    def __init__(self, seed):
        super().__init__(seed)
        self._copy = FullState()
        self._mirror = Mirror(self._live.state, self._copy.state)
        self._asked = random.Random(seed)

    def _decide(self):
        at_once(self._mirror.update(NOW))
        self._question()
        pod = self._new_pod()
        at_once(self._mirror.update(NOW))
        # The mirror has no pods that wait, but those that are nominated.
        self._equal(
            "mirrored",
            pod,
            self._decision(_attempt(self._copy, pod)),
            self._decision(_attempt(self._live, pod)),
        )
        self._same_pods()
        super()._decide()

    def _same_pods(self):
        for full in (self._live, self._copy):
            table = full.state.table
            pods = {name: sorted(table.pods[row]) for name, row in table.row_of.items()}
            full.seen = pods, full.state.table.node_count
        self._equal("pods of", make_pod("all"), self._copy.seen, self._live.seen)

    def _question(self):
        """Drains, evicts and adds, and takes it back."""
        state, mirror, rng = self._copy.state, self._mirror, self._asked
        for number in range(rng.randrange(4)):
            nodes = [node for node in state.table.nodes if node is not None]
            pods = list(state.cache)
            match rng.randrange(4):
                case 0 if nodes:
                    node = rng.choice(nodes)
                    spec = msgspec.structs.replace(node.spec, unschedulable=True)
                    cordoned = msgspec.structs.replace(node, spec=spec)
                    mirror.change(Node, node, rng.choice([None, cordoned]), NOW)
                case 1 if pods:
                    mirror.change(Pod, rng.choice(pods), None, NOW)
                case 2:
                    pod = make_pod(f"asked-{number}")
                    mirror.change(Pod, None, pod, NOW)
                    if nodes:
                        mirror.change(Pod, pod, pod.on(rng.choice(nodes).name), NOW)
                case _:
                    mirror.change(Node, None, make_node(f"asked-{number}"), NOW)
        at_once(mirror.take_back(NOW))
        assert not state.queue.all_pods()


@pytest.mark.parametrize("seed", range(10))
def test_a_mirror_decides_as_the_original(seed):
    counts = Mirrored(seed).play()
    assert counts["comparisons"] > 0


def test_a_difference_would_be_found():
    broken = Mirrored(1)
    broken._mirror.update = lambda _now: iter(())
    with pytest.raises(Difference):
        broken.play()


def full(nodes=3):
    live, copy = FullState(), FullState()
    for number in range(nodes):
        live.node(f"n{number}")
    return live, copy, Mirror(live.state, copy.state)


def test_a_large_state_is_read_in_steps_and_changes_in_between_are_not_missed():
    live, copy, mirror = full(400)
    steps = mirror.update(NOW)
    next(steps)
    late = make_pod("late", spec={"nodeName": "n0"})
    live.store(late)
    live.node("new")
    for _ in steps:
        pass
    assert copy.state.cache.get(late.uid).node_name == "n0"
    assert copy.state.table.node_count == 401


def test_a_nominated_pod_holds_room_and_is_never_tried():
    live, copy, mirror = full()
    pod = make_pod("waits")
    live.store(pod)
    live.state.nominate(pod, "n1")
    at_once(mirror.update(NOW))
    assert [(each.name, node) for each, node in copy.state.nominator.all_nominations()] == [
        ("waits", "n1")
    ]
    assert copy.state.pop(NOW) is None
    live.store(msgspec.structs.replace(pod, node_name="n1", resource_version="2"))
    at_once(mirror.update(NOW))
    assert list(copy.state.nominator.all_nominations()) == []
    assert copy.state.cache.get(pod.uid).node_name == "n1"


def test_pods_come_in_the_order_of_the_original():
    live, copy, mirror = full(1)
    at_once(mirror.update(NOW))
    for number in range(40):
        live.store(make_pod(f"p{number * 7 % 40}", spec={"nodeName": "n0"}))
    at_once(mirror.update(NOW))
    found = [[pod.name for pod in each.state.table.pods_on("n0")] for each in (live, copy)]
    assert found[0] == found[1]


def test_what_the_mirror_refuses_is_said():
    live, copy, mirror = full()
    copy.state.table.index(Refusing, Refusing)
    live.store(make_pod("bad", spec={"nodeName": "n0"}))
    with pytest.raises(MirrorBrokenError, match="bad"):
        at_once(mirror.update(NOW))


class Refusing:
    """An index that takes no pods."""

    def add(self, pod, row):
        raise ValueError("no")

    def remove(self, pod, row):
        pass

    def grow(self, capacity):
        pass


def budget(number, label="a"):
    return make_object(
        PodDisruptionBudget,
        {"metadata": {"name": f"b{number}", "namespace": "default"},
         "spec": {"selector": {"matchLabels": {"app": label}}}},
    )  # fmt: skip


def budgets_of(full):
    lister = full.state.cluster.lister(PodDisruptionBudget)
    return {each.name: each for each in lister}


@pytest.mark.parametrize("changed", [3, 3000])
def test_objects_that_come_change_and_go_are_followed(changed):
    live, copy, mirror = full()
    for number in range(changed):
        live.store(budget(number))
    at_once(mirror.update(NOW))
    assert budgets_of(copy) == budgets_of(live)
    for number in range(changed - 1):
        live.store(budget(number, "b"))
    last = budgets_of(live)[f"b{changed - 1}"]
    live.state.apply(Change(PodDisruptionBudget, last, None), NOW)
    live.store(budget("new"))
    at_once(mirror.update(NOW))
    assert budgets_of(copy) == budgets_of(live)
    assert "bnew" in budgets_of(copy)


def test_what_was_not_read_to_its_end_is_read_the_next_time():
    live, copy, mirror = full()
    for number in range(5000):
        live.store(budget(number))
    steps = mirror.update(NOW)
    next(steps)
    steps.close()
    assert len(budgets_of(copy)) < 5000
    at_once(mirror.update(NOW))
    assert budgets_of(copy) == budgets_of(live)
