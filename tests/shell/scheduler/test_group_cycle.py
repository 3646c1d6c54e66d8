"""Groups of pods are placed together, or not at all."""

import asyncio

import msgspec
import pytest

from app.framework.testing import make_object, make_pod
from app.kube.errors import Forbidden
from app.model.objects import PodCondition
from app.model.pod import LabelSet, Pod
from app.model.pod_groups import GROUP_LABEL, GroupKey, LabelledPodGroup, LabelledPodGroupStatus
from app.runtime import tasks
from app.scheduler.preemption import HOLD_SECONDS
from app.state.queue.queued_pod import ERROR_BACKOFF, GATED, OUTSIDE, UNSCHEDULABLE
from tests.shell.extender.fakes import extender
from tests.shell.kube.fakes import ok
from tests.shell.scheduler.world import CONFIG, running

pytestmark = pytest.mark.looptime


def pod(name, group="gang", cpu="1", **spec):
    spec = {
        "schedulerName": "default-scheduler",
        "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
    } | spec
    return make_pod(name, labels={GROUP_LABEL: group} if group else {}, spec=spec)


def gang(world, size, name="gang", **spec):
    manifest = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-of-{name}"},
        "spec": {"minMember": size, **spec},
    }
    group = make_object(LabelledPodGroup, manifest)
    world.change(LabelledPodGroup, None, group)
    return group


def bindings(world):
    return {
        sent.body["metadata"]["name"]: sent.body["target"]["name"]
        for sent in world.transport.sent
        if sent.path.endswith("/binding")
    }


def evictions(world):
    return [sent.path.rsplit("/", 1)[1] for sent in world.transport.sent if sent.method == "DELETE"]


def with_json(one):
    return msgspec.structs.replace(one, raw=b'{"metadata":{"name":"p","namespace":"default"}}')


def place(world, pod):
    return world.state.queue.where(pod.uid)


async def test_pods_wait_for_their_group_and_for_each_other():
    async with running("a", "b") as world:
        first, second = world.add(pod("first")), world.add(pod("second"))
        await world.settle()
        assert (place(world, first), place(world, second)) == (GATED, GATED)
        gang(world, 3)
        await world.settle()
        assert bindings(world) == {}
        world.add(pod("third"))
        await world.settle()
        assert bindings(world).keys() == {"first", "second", "third"}


async def test_a_gang_that_does_not_fit_holds_nothing():
    async with running("a") as world:
        gang(world, 5)
        pods = [world.add(pod(f"p{i}")) for i in range(5)]
        other = world.add(pod("other", group=None, cpu="4"))
        await world.settle()
        assert bindings(world) == {"other": "a"}
        assert {place(world, p) for p in pods} == {UNSCHEDULABLE, ERROR_BACKOFF}
        assert not [p for p in pods if world.state.cache.is_assumed(p.uid)]
        assert other.uid not in [p.uid for p in pods]


async def test_a_gang_runs_when_a_node_is_added():
    async with running("a") as world:
        gang(world, 5)
        for i in range(5):
            world.add(pod(f"p{i}"))
        await world.settle()
        world.add_nodes("b")
        await world.run_for(12)
        assert set(bindings(world).values()) == {"a", "b"}


async def test_pods_above_the_minimum_that_do_not_fit_wait_alone():
    async with running("a") as world:
        gang(world, 3)
        for i in range(6):
            world.add(pod(f"p{i}"))
        await world.settle()
        assert len(bindings(world)) == 4


async def test_of_two_gangs_that_need_all_room_one_runs():
    async with running("a", "b") as world:
        gang(world, 6, "one")
        gang(world, 6, "two")
        for i in range(6):
            world.add(pod(f"one-{i}", "one"))
            world.add(pod(f"two-{i}", "two"))
        await world.run_for(30)
        groups = {name.partition("-")[0] for name in bindings(world)}
        assert len(groups) == 1
        assert len(bindings(world)) == 6


async def test_a_gang_that_gets_no_room_evicts_nobody():
    async with running("a") as world:
        victim = world.add(pod("victim", group=None, cpu="4"))
        await world.settle()
        world.change(Pod, victim, victim.on("a"))
        gang(world, 5)
        for i in range(5):
            world.add(pod(f"p{i}", priority=1000))
        await world.run_for(3)
        assert evictions(world) == []


async def test_a_gang_evicts_for_all_of_its_pods_and_then_runs():
    async with running("a") as world:
        victim = world.add(pod("victim", group=None, cpu="4"))
        await world.settle()
        world.change(Pod, victim, bound := victim.on("a"))
        gang(world, 4)
        pods = [world.add(pod(f"p{i}", priority=1000)) for i in range(4)]
        await world.run_for(3)
        assert evictions(world) == ["victim"]
        assert {world.state.nominator.node_of(p.uid) for p in pods} == {"a"}
        assert not any(world.state.cache.is_assumed(p.uid) for p in pods)
        world.change(Pod, bound, None)
        await world.run_for(12)
        assert bindings(world).keys() == {"victim", "p0", "p1", "p2", "p3"}


async def test_a_gang_keeps_the_room_of_its_first_victim_until_the_last_one_has_gone():
    async with running("a", "b") as world:
        victims = [world.add(pod(f"victim-{i}", group=None, cpu="4")) for i in range(2)]
        await world.settle()
        nodes = bindings(world)
        on_nodes = [victim.on(nodes[victim.name]) for victim in victims]
        for victim, bound in zip(victims, on_nodes, strict=True):
            world.change(Pod, victim, bound)
        gang(world, 2)
        for i in range(2):
            world.add(pod(f"p{i}", cpu="4", priority=1000))
        await world.run_for(3)
        assert sorted(evictions(world)) == ["victim-0", "victim-1"]
        ending = [
            msgspec.structs.replace(
                victim,
                deletion_timestamp="2026-01-01T00:00:00Z",
                conditions=(PodCondition("DisruptionTarget", "True", "PreemptionByScheduler"),),
                resource_version="9",
            )
            for victim in on_nodes
        ]
        for victim, ends in zip(on_nodes, ending, strict=True):
            world.change(Pod, victim, ends)
        other = world.add(pod("other", group=None, cpu="4"))
        await world.run_for(12)
        world.change(Pod, ending[0], None)
        await world.run_for(12)
        assert place(world, other) == UNSCHEDULABLE
        world.change(Pod, ending[1], None)
        await world.run_for(15)
        assert bindings(world).keys() == {"victim-0", "victim-1", "p0", "p1"}
        assert len(evictions(world)) == 2


async def test_pods_of_several_schedulers_are_no_group():
    profiles = "profiles: [{schedulerName: default-scheduler}, {schedulerName: other}]\n"
    async with running("a", config=CONFIG + profiles) as world:
        gang(world, 2)
        world.add(pod("p0"))
        world.add(pod("p1", schedulerName="other"))
        await world.settle()
        assert bindings(world) == {}
        text = 'the same .spec.schedulerName set, got: "default-scheduler" and "other"'
        assert any(text in str(sent.body) for sent in world.transport.sent)


async def test_labels_mean_nothing_without_the_kind():
    async with running("a") as world:
        world.state.cluster.pod_groups.watch(LabelledPodGroup, lambda: False)
        world.add(pod("p0"))
        await world.settle()
        assert bindings(world) == {"p0": "a"}


async def test_the_status_says_how_far_the_group_is():
    async with running("a") as world:
        gang(world, 5)
        for i in range(5):
            world.add(pod(f"p{i}"))
        await world.run_for(3)
        world.add_nodes("b")
        await world.run_for(12)
        written = [s.body["status"] for s in world.transport.sent if "podgroups" in s.path]
        assert written[0] == {"phase": "Scheduling", "scheduled": 0}
        assert written[-1] == {"phase": "Scheduled", "scheduled": 5}


async def test_a_pod_that_goes_while_its_gang_is_decided_leaves_nothing():
    async with running(*"abcdefgh") as world:
        gang(world, 8)
        pods = [world.add(pod(f"p{i}", cpu="4")) for i in range(8)]
        gone = world.state.cluster.pod_groups
        reserve = world.scheduler.frameworks["default-scheduler"].commit.reserve

        def reserve_and_lose(state, one, node):
            if one.name == "p7":
                world.change(Pod, pods[0], None)
            return reserve(state, one, node)

        world.scheduler.frameworks["default-scheduler"].commit.reserve = reserve_and_lose
        await world.run_for(3)
        assert bindings(world) == {}
        assert world.state.cache.statistics().pods == 0
        key = GroupKey(LabelledPodGroup, "default", "gang")
        assert len(gone.members(key)) == 7


async def test_groups_leave_nothing_behind():
    async with running("a") as world:
        group = gang(world, 2)
        pods = [world.add(pod(f"p{i}")) for i in range(2)]
        await world.settle()
        for one in pods:
            world.change(Pod, one, bound := one.on("a"))
            world.change(Pod, bound, None)
        world.change(LabelledPodGroup, group, None)
        groups = world.state.cluster.pod_groups
        assert not groups.groups()
        assert not len(groups.listers[LabelledPodGroup])


@pytest.mark.parametrize("size", [1, 2, 7])
async def test_a_gang_is_bound_whole_with_an_extender(size):
    def choose(verb, sent):
        return (
            {"nodenames": sent.get("nodenames", sent.get("NodeNames"))} if verb == "filter" else []
        )

    async with running(
        "a", "b", extenders=lambda sink: [extender(choose, sink=sink, bind_verb="")]
    ) as world:
        gang(world, size)
        for i in range(size):
            world.add(with_json(pod(f"p{i}")))
        await world.run_for(5)
        assert len(bindings(world)) == size


async def test_a_gang_that_may_fit_on_other_nodes_is_tried_again_without_an_event():
    """Its first pod has the choice of two equal nodes, of which its second needs one."""
    async with running() as world:
        for i in range(8):
            world.add_nodes(f"{i}-a", labels={"pair": str(i), "first": str(i)})
            world.add_nodes(f"{i}-b", labels={"pair": str(i)})
            gang(world, 2, f"gang-{i}")
            pair = {"priority": 1, "nodeSelector": {"pair": str(i)}}
            world.add(pod(f"{i}-small", f"gang-{i}", **pair))
            world.add(pod(f"{i}-large", f"gang-{i}", cpu="4", nodeSelector={"first": str(i)}))
        await world.run_for(200)
        assert len(bindings(world)) == 16


async def test_a_later_phase_is_its_controller_s():
    async with running("a") as world:
        group = gang(world, 2)
        status = LabelledPodGroupStatus(phase="Running")
        world.change(LabelledPodGroup, group, msgspec.structs.replace(group, status=status))
        for i in range(2):
            world.add(pod(f"p{i}"))
        await world.settle()
        assert len(bindings(world)) == 2
        assert not [sent for sent in world.transport.sent if "podgroups" in sent.path]


async def test_an_unforeseen_error_requeues_only_what_is_not_settled(monkeypatch):
    async with running("a") as world:
        gang(world, 2)
        pods = [world.add(pod(f"p{i}")) for i in range(2)]
        start, started = world.scheduler.binder.start, []

        def start_once(assumed, waits):
            if started:
                raise RuntimeError("unforeseen")
            started.append(assumed.pod.uid)
            start(assumed, waits)

        monkeypatch.setattr(world.scheduler.binder, "start", start_once)
        await world.run_for(0.5)
        (bound,) = [p for p in pods if p.uid in started]
        (other,) = [p for p in pods if p.uid not in started]
        assert bindings(world).keys() == {bound.name}
        assert place(world, bound) == OUTSIDE
        assert place(world, other) != OUTSIDE


async def test_what_a_gang_gives_up_does_not_wake_its_own_pods():
    """Two gangs with extenders, and room for neither: each is tried again after its backoff only."""
    asked = []

    def choose(verb, sent):
        asked.append(verb)
        return (
            {"nodenames": sent.get("nodenames", sent.get("NodeNames"))} if verb == "filter" else []
        )

    async with running(
        "a", extenders=lambda sink: [extender(choose, sink=sink, bind_verb="")]
    ) as world:
        for name in ("one", "two"):
            gang(world, 5, name)
            for i in range(5):
                world.add(with_json(pod(f"{name}-{i}", name)))
        await world.run_for(60)
        assert bindings(world) == {}
        assert asked.count("filter") < 400


@pytest.fixture
def pausing(monkeypatch):
    """A group's cycle lets other tasks run after every pod."""
    monkeypatch.setattr(tasks, "SLICE", -1)


def turns_of(world):
    """Counts the turns of the event loop between the writes of a group."""
    turns = []

    async def count():
        while True:
            turns.append(len(bindings(world)))
            await asyncio.sleep(0)

    return turns, asyncio.ensure_future(count())


async def test_other_tasks_run_while_the_bindings_of_a_gang_start(pausing):
    async with running("a", "b", "c") as world:
        gang(world, 12)
        for i in range(12):
            world.add(pod(f"p{i}"))
        turns, counting = turns_of(world)
        leading = asyncio.ensure_future(world.lead())
        while len(bindings(world)) < 12:
            await asyncio.sleep(0)
        for task in (counting, leading):
            task.cancel()
        assert len({n for n in turns if n}) > 6


async def test_other_tasks_run_while_a_gang_is_given_up(pausing):
    async with running("a", "b") as world:
        gang(world, 9)
        pods = [world.add(pod(f"p{i}")) for i in range(9)]
        leading = asyncio.ensure_future(world.lead())
        seen = set()
        while not any(place(world, p) in (UNSCHEDULABLE, ERROR_BACKOFF) for p in pods):
            await asyncio.sleep(0)
        while any(place(world, p) not in (UNSCHEDULABLE, ERROR_BACKOFF) for p in pods):
            seen.add(sum(world.state.cache.is_assumed(p.uid) for p in pods))
            await asyncio.sleep(0)
        leading.cancel()
        assert len(seen) > 6


async def test_a_pod_that_goes_while_its_mates_are_bound_is_left_out(pausing):
    async with running("a", "b") as world:
        gang(world, 3)
        pods = [world.add(pod(f"p{i}")) for i in range(8)]
        leading = asyncio.ensure_future(world.lead())
        while not bindings(world):
            await asyncio.sleep(0)
        last = next(p for p in reversed(pods) if world.state.cache.is_assumed(p.uid))
        world.change(Pod, last, None)
        await asyncio.sleep(1)
        leading.cancel()
        assert bindings(world).keys() == {p.name for p in pods} - {last.name}
        assert not world.state.cache.is_assumed(last.uid)


async def test_a_gang_whose_bindings_have_begun_is_bound_whole_if_the_process_stops(pausing):
    async with running("a", "b") as world:
        gang(world, 8)
        for i in range(8):
            world.add(pod(f"p{i}"))
        leading = asyncio.ensure_future(world.lead())
        while not bindings(world):
            await asyncio.sleep(0)
        assert len(bindings(world)) < 8
        leading.cancel()
        await asyncio.wait([leading])
        await world.scheduler.wind_down(5)
        assert len(bindings(world)) == 8


async def test_the_outcome_of_a_gang_is_not_written_to_its_successor():
    """One patch of a group takes long; meanwhile another group is scheduled, goes, and is made again without pods."""
    async with running("a") as world:
        world.transport.latency = 0.1
        gang(world, 5, "slow")
        for i in range(5):
            world.add(pod(f"s{i}", "slow"))
        await world.run_for(0.01)
        first = gang(world, 1, "train")
        one = world.add(pod("t", "train"))
        await world.run_for(0.01)
        assert bindings(world) == {"t": "a"}
        world.change(Pod, one, None)
        world.change(LabelledPodGroup, first, None)
        second = msgspec.structs.replace(first.metadata, uid="uid-of-the-second")
        world.change(LabelledPodGroup, None, msgspec.structs.replace(first, metadata=second))
        await world.run_for(5)
        assert [sent.path for sent in world.transport.sent if "podgroups/train" in sent.path] == []


# ---------------------------------------------------------------- nominations of groups that are no longer complete


def remake(world, group, size):
    """The group changes its minimum."""
    spec = msgspec.structs.replace(group.spec, min_member=size)
    world.change(LabelledPodGroup, group, msgspec.structs.replace(group, spec=spec))


def delete(world, pod):
    world.change(Pod, world.state.pods[pod.key], None)


REDUCED = {
    "its PodGroup is deleted": lambda world, group, _pods: world.change(
        LabelledPodGroup, group, None
    ),
    "its minimum is raised": lambda world, group, _pods: remake(world, group, 3),
    "a pod is deleted": lambda world, _group, pods: delete(world, pods[1]),
    "a pod leaves it": lambda world, _group, pods: world.change(
        Pod, world.state.pods[pods[1].key], relabelled(pods[1], "another")
    ),
}


def relabelled(one, group):
    """The pod with another group, as the API server has it: its nomination was written."""
    labels = LabelSet({GROUP_LABEL: group})
    return msgspec.structs.replace(
        one, labels=labels, nominated_node_name="a", resource_version="later"
    )


def written_nominations(world):
    """The nominations that were written last, by pod."""
    found = {}
    for sent in world.transport.sent:
        if "/pods/" in sent.path and "nominatedNodeName" in sent.body.get("status", {}):
            found[sent.path.split("/")[-2]] = sent.body["status"]["nominatedNodeName"]
    return found


@pytest.mark.parametrize("held", [True, False], ids=["held by its preemption", "tried again"])
@pytest.mark.parametrize("reduce", REDUCED.values(), ids=REDUCED.keys())
async def test_nominations_of_a_gang_that_is_not_complete_any_longer_are_cleared(reduce, held):
    async with running("a") as world:
        group = gang(world, 2)
        victim = pod("victim", group=None, cpu="4").on("a")
        world.change(Pod, None, victim)
        pods = [world.add(pod(f"p{i}", cpu="2", priority=10)) for i in range(2)]
        await world.run_for(0.1 if held else 2)
        assert evictions(world) == ["victim"]
        assert [world.state.nominator.node_of(one.uid) for one in pods] == ["a", "a"]
        if not held:
            for one in pods:
                nominated = {"nominated_node_name": "a", "resource_version": "2"}
                world.change(Pod, one, msgspec.structs.replace(one, **nominated))
        world.add(pod("other", group=None, cpu="4"))
        reduce(world, group, pods)
        world.change(Pod, victim, None)
        await world.run_for(15)
        assert bindings(world) == {"other": "a"}
        left = [one for one in pods if one.key in world.state.pods]
        assert {place(world, one) for one in left} == {GATED}
        assert not [one for one in left if world.state.nominator.node_of(one.uid)]
        assert not any(written_nominations(world).get(one.name) for one in left)


async def test_a_gated_pod_of_a_gang_does_not_get_the_nomination_of_its_status():
    """It was written before a restart."""
    async with running("a") as world:
        one = world.add(msgspec.structs.replace(pod("p0"), nominated_node_name="a"))
        await world.run_for(1)
        later = msgspec.structs.replace(one, resource_version="2")
        world.change(Pod, one, later)
        assert place(world, one) is GATED
        assert not world.state.nominator.node_of(one.uid)


# ---------------------------------------------------------------- evictions that never show


@pytest.mark.parametrize("size", [None, 2], ids=["a pod", "a gang"])
async def test_a_preemptor_is_tried_again_if_its_victim_does_not_end(size):
    """The eviction was answered, but the watch never shows it; meanwhile there is room elsewhere."""
    async with running("a") as world:
        group = "gang" if size else None
        if size:
            gang(world, size)
        world.change(Pod, None, pod("victim", group=None, cpu="4").on("a"))
        for i in range(size or 1):
            world.add(pod(f"p{i}", group, "2", priority=10))
        await world.run_for(5)
        assert evictions(world) == ["victim"]
        world.add_nodes("b")
        await world.run_for(HOLD_SECONDS - 10)
        assert bindings(world) == {}
        await world.run_for(20)
        assert set(bindings(world).values()) == {"b"}
        assert len(bindings(world)) == (size or 1)
        assert evictions(world) == ["victim"]


async def test_a_pod_that_joins_a_gang_while_it_is_being_bound_does_not_complete_it():
    """Its binding is refused in the end: the gang must not have been bound one short."""

    def answer(sent):
        if sent.path.endswith("/joiner/binding"):
            return Forbidden("no", status=403)
        return ok(status=201)

    async with running("a") as world:
        world.transport.handler = answer
        world.transport.latency = 1.0
        gang(world, 3)
        joiner = world.add(pod("joiner", group=None))
        await world.run_for(0.1)
        assert world.state.cache.is_assumed(joiner.uid)
        world.change(Pod, joiner, relabelled(joiner, "gang"))
        world.add(pod("p0"))
        world.add(pod("p1"))
        await world.run_for(0.5)
        assert world.state.cache.is_assumed(joiner.uid)
        assert not [name for name in bindings(world) if name != "joiner"]


async def test_a_gang_is_not_held_up_by_a_further_pod_that_preempts():
    """It would never run if the eviction always failed. (kube-scheduler's group waits until it is tried again.)"""

    def answer(sent):
        return Forbidden("no", status=403) if sent.method == "DELETE" else ok(status=201)

    async with running("a", "b") as world:
        world.transport.handler = answer
        gang(world, 2)
        world.change(Pod, None, pod("victim", group=None, cpu="4").on("b"))
        for i in range(2):
            world.add(pod(f"p{i}", cpu="2", priority=50))
        world.add(pod("further", cpu="3", priority=10))
        await world.run_for(0.1)
        assert bindings(world) == {"p0": "a", "p1": "a"}
        await world.run_for(30)
        assert set(evictions(world)) == {"victim"}
        assert "further" not in bindings(world)
