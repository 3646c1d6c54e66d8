import pytest

from app.framework.interface import CycleState
from app.framework.per_node import NodeFilter, NodeScore, node_infos
from app.framework.plugin_class import points_of
from app.model.status import SKIP, Code, SchedulingError, Status, unresolvable, unschedulable
from app.state.view import View
from tests.core.framework.worlds import World, check_filter, check_score, verdict
from tests.core.plugins.twins import node_resources as twin

RESOURCES = ("cpu", "memory", "ephemeral-storage", "example.com/gpu", "hugepages-2Mi")


class Picky(NodeFilter, NodeScore):
    """Wants free cpu and few pods; names the node when it rejects it."""

    NAME = "Picky"

    def filter_node(self, state, pod, info):
        free = info.allocatable.get("cpu", 0) - info.requested.get("cpu", 0)
        if info.node.spec.unschedulable:
            return unresolvable("cordoned")
        if free < 1000:
            return unschedulable(f"{info.name} is busy", "and so on")
        return None if info.pod_count else Status(Code.Success)

    def score_node(self, state, pod, info):
        return len(info.pods)


def expected(pod, scene):
    free = twin.allocatable(scene, "cpu") - twin.requested_on(scene, "cpu")
    if scene.node.spec.unschedulable:
        return Code.UnschedulableAndUnresolvable, ("cordoned",)
    if free < 1000:
        return Code.Unschedulable, (f"{scene.node.name} is busy", "and so on")
    return None


def test_extends_the_points_it_has_methods_for():
    assert points_of(Picky) == {"filter", "score"}


def test_filter_and_score_over_views():
    rejected, scores = 0, set()
    for seed in range(6):
        world = World(seed)
        rejected += check_filter(world, Picky(), world.random_pod(), expected)
        pod, state = world.random_pod(), CycleState()
        scores |= set(check_score(world, Picky(), pod, lambda _, s: len(s.pods), state=state))
    assert rejected
    assert len(scores) > 3


def test_node_info_shows_the_world_of_its_view():
    for seed in range(6):
        world = World(seed)
        for seen in world.views():
            infos = dict(node_infos(seen.view))
            assert set(infos) == {i for i, scene in enumerate(seen.scenes) if scene is not None}
            for position, info in infos.items():
                compare(info, seen.scenes[position])


def compare(info, scene):
    assert info.node is scene.node
    assert {pod.uid for pod in info.pods} == {pod.uid for pod in scene.pods}
    assert info.pod_count == len(scene.pods)
    assert info.allocatable_pods == twin.allocatable(scene, "pods")
    assert info.nonzero_requested_cpu == twin.nonzero_on(scene, "cpu")
    assert info.nonzero_requested_memory == twin.nonzero_on(scene, "memory")
    for name in RESOURCES:
        assert info.allocatable.get(name, 0) == twin.allocatable(scene, name)
        assert info.requested.get(name, 0) == twin.requested_on(scene, name)
    assert 0 not in info.requested.values()


def test_reason_numbers_stay_what_they_were():
    world = World(3)
    plugin, state, pod = Picky(), CycleState(), world.random_pod()
    view = View.everything(world.table)
    first = plugin.filter(state, pod, view)
    said = [verdict(first, position) for position in range(view.n)]
    later = plugin.filter(CycleState(state), pod, view.take(world.table.live_rows()[::-1]))
    for position, words in enumerate(said):
        if words is not None:
            assert later.text(int(first.reasons[position])) == words[1]


class Confused(NodeFilter):
    NAME = "Confused"

    def filter_node(self, state, pod, info):
        return SKIP


class Broken(NodeFilter):
    NAME = "Broken"

    def filter_node(self, state, pod, info):
        return Status(Code.Error, ("out of order",))


def test_an_answer_that_is_none_of_a_filters():
    world = World(0)
    view = View.everything(world.table)
    with pytest.raises(SchedulingError, match='running "Confused" filter plugin: Skip is no'):
        Confused().filter(CycleState(), world.random_pod(), view)


def test_errors_are_passed_on():
    world = World(0)
    verdicts = Broken().filter(CycleState(), world.random_pod(), View.everything(world.table))
    row = int(world.table.live_rows()[0])
    assert verdict(verdicts, row) == (Code.Error, ("out of order",))


def test_nothing_turned_down():
    class Easy(NodeFilter):
        NAME = "Easy"

        def filter_node(self, state, pod, info):
            return None

    world = World(0)
    assert Easy().filter(CycleState(), world.random_pod(), View.everything(world.table)) is None
