"""Groups that preempt as a whole, and that are preempted as a whole: what is written, and what may go wrong."""

import msgspec
import pytest

from app.framework.testing import make_object
from app.kube.errors import ServerUnavailable
from app.model.pod import LabelSet, Pod, PodCondition
from app.model.pod_groups import LabelledPodGroup, PodGroup
from app.plugins.default_preemption import plugin
from app.state.queue.queued_pod import GATED
from tests.shell.kube.fakes import ok
from tests.shell.scheduler.test_group_cycle import bindings, evictions, place
from tests.shell.scheduler.test_group_cycle import pod as any_pod
from tests.shell.scheduler.world import GANGS, running

pytestmark = pytest.mark.looptime

WHOLE = GANGS | {"WorkloadAwarePreemption"}
SERVED = "/apis/scheduling.k8s.io/v1alpha2/podgroups"
NOT_ALONE = "preemption: not eligible due to workload aware preemption enabled"


def pod(name, group="gang", cpu="1", **spec):
    named = {"schedulingGroup": {"podGroupName": group}} if group else {}
    return any_pod(name, None, cpu, **named, **spec)


def cluster(*nodes, **fields):
    return running(*nodes, features=WHOLE, **fields)


def gang(world, size, name="gang", priority=1000, mode="Pod"):
    world.state.cluster.pod_groups.watch(PodGroup, lambda: SERVED)
    manifest = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-of-{name}"},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": size}},
            "disruptionMode": mode,
            "priority": priority,
        },
    }
    group = make_object(PodGroup, manifest)
    world.change(PodGroup, None, group)
    return group


def occupy(world, node, *pods):
    """These pods run on a node."""
    bound = []
    for one in pods:
        world.change(Pod, None, one.on(node))
        bound.append(one.on(node))
    return bound


def workers(world, count, priority=1000, **spec):
    return [world.add(pod(f"p{i}", priority=priority, **spec)) for i in range(count)]


def marked(one):
    """A victim as it is while it ends."""
    condition = PodCondition("DisruptionTarget", "True", "PreemptionByScheduler", "")
    return msgspec.structs.replace(
        one, deletion_timestamp="2026-01-01T00:00:00Z", conditions=(condition,)
    )


def statuses(world):
    """What was written about the group, and about pods by name."""
    groups = [
        sent.body["status"]["conditions"][0]["message"]
        for sent in world.transport.sent
        if "podgroups" in sent.path
    ]
    pods = {
        sent.path.split("/")[-2]: sent.body["status"]
        for sent in world.transport.sent
        if "/pods/" in sent.path and sent.path.endswith("/status")
    }
    return groups, pods


async def test_a_gang_evicts_what_it_needs_waits_and_runs():
    async with cluster("a", "b") as world:
        gang(world, 5)
        victims = occupy(world, "a", pod("v", None, "4")) + occupy(world, "b", pod("w", None, "3"))
        pods = workers(world, 5)
        await world.run_for(0.01)
        assert evictions(world) == ["v"]
        assert [world.state.nominator.node_of(one.uid) for one in pods].count("a") == 4
        groups, written = statuses(world)
        assert groups == ["pod group is unschedulable"]
        (mark,) = written["v"]["conditions"]
        assert mark["message"].endswith("preempting to accommodate a higher priority podgroup")
        assert any(NOT_ALONE in str(status) for status in written.values())
        world.change(Pod, victims[0], None)
        await world.run_for(15)
        assert bindings(world).keys() == {one.name for one in pods}
        assert evictions(world) == ["v"]


async def test_pods_are_gated_until_the_last_victim_is_leaving():
    async with cluster("a") as world:
        gang(world, 2)
        (victim,) = occupy(world, "a", pod("v", None, "4"))
        pods = workers(world, 2)
        await world.run_for(30)
        assert evictions(world) == ["v"]
        world.state.activate(pods, world.clock.steady())
        assert {place(world, one) for one in pods} == {GATED}
        held = plugin_of(world).pre_enqueue(pods[0])
        assert held.message == "waiting for the preemption for this pod group to be finished"
        world.change(Pod, victim, None)
        await world.run_for(15)
        assert len(bindings(world)) == 2


def plugin_of(world):
    return world.scheduler.frameworks["default-scheduler"].commit.pod_group_post_filter


async def test_a_gang_that_gets_no_room_evicts_nothing_and_says_so():
    async with cluster("a") as world:
        gang(world, 5)
        occupy(world, "a", pod("v", None, "3"))
        workers(world, 5)
        await world.run_for(30)
        assert evictions(world) == []
        assert set(statuses(world)[0]) == {"pod group is unschedulable, pod group is unschedulable"}


async def test_pods_above_the_minimum_preempt_one_by_one():
    async with cluster("a", "b") as world:
        gang(world, 4)
        (victim,) = occupy(world, "b", pod("v", None, "4"))
        workers(world, 6)
        await world.run_for(5)
        assert len(bindings(world)) == 4
        assert evictions(world) == ["v"]
        world.change(Pod, victim, None)
        await world.run_for(15)
        assert len(bindings(world)) == 6


async def test_a_gang_of_the_labelled_kind_has_the_priority_of_its_least_important_pod():
    async with cluster("a") as world:
        occupy(world, "a", pod("v", None, "4", priority=5))
        manifest = {"metadata": {"name": "g", "namespace": "default"}, "spec": {"minMember": 2}}

        world.change(LabelledPodGroup, None, make_object(LabelledPodGroup, manifest))
        world.add(any_pod("p0", "g", priority=1000))
        world.add(any_pod("p1", "g", priority=5))
        await world.run_for(5)
        assert evictions(world) == []


async def test_a_victim_that_cannot_be_deleted_does_not_keep_the_gang_waiting():
    failures = 1

    def answer(sent):
        nonlocal failures
        if sent.method == "DELETE" and failures:
            failures -= 1
            return ServerUnavailable("no", status=503)
        return ok(status=201)

    async with cluster("a", "b") as world:
        world.transport.handler = answer
        gang(world, 8)
        occupy(world, "a", pod("v", None, "4"))
        occupy(world, "b", pod("w", None, "4"))
        pods = workers(world, 8)
        await world.run_for(60)
        assert set(evictions(world)) == {"v", "w"}
        assert len(evictions(world)) > 2
        assert not any(world.state.cache.is_assumed(one.uid) for one in pods)


async def test_nothing_is_evicted_again_while_victims_take_their_time():
    async with cluster("a", "b") as world:
        gang(world, 4)
        (victim, _) = occupy(world, "a", pod("v", None, "4"), pod("x", None, "0"))
        occupy(world, "b", pod("w", None, "4", priority=1))
        workers(world, 4)
        await world.run_for(1)
        assert evictions(world) == ["v"]
        world.change(Pod, victim, ending := marked(victim))
        await world.run_for(400)
        assert evictions(world) == ["v"]
        assert bindings(world) == {}
        world.change(Pod, ending, None)
        await world.run_for(15)
        assert len(bindings(world)) == 4


async def test_a_gang_that_goes_while_it_is_planned_evicts_nothing(monkeypatch):
    monkeypatch.setattr(plugin, "_SLICE", -1.0)
    async with cluster("a") as world:
        gang(world, 2)
        occupy(world, "a", pod("v", None, "4"))
        pods = workers(world, 2)
        planner, gone = plugin_of(world)._planner, []
        plan = planner.plan

        def plan_and_lose(*request):
            steps = plan(*request)
            yield next(steps)
            if not gone:
                gone.append(pods[0])
                world.change(Pod, pods[0], None)
            return (yield from steps)

        monkeypatch.setattr(planner, "plan", plan_and_lose)
        await world.run_for(5)
        assert gone
        assert evictions(world) == []


async def test_a_plan_is_made_again_if_its_node_changes_meanwhile(monkeypatch):
    monkeypatch.setattr(plugin, "_SLICE", -1.0)
    async with cluster("a", "b") as world:
        gang(world, 2)
        (victim,) = occupy(world, "a", pod("v", None, "4"))
        occupy(world, "b", pod("w", None, "4", priority=1))
        workers(world, 2, cpu="2")
        planner, plans = plugin_of(world)._planner, []
        plan = planner.plan

        def plan_and_change(*request):
            steps = plan(*request)
            yield next(steps)
            plans.append(request)
            if len(plans) == 1:
                world.change(Pod, None, pod("important", None, "0", priority=5000).on("a"))
                world.change(Pod, victim, None)
                world.change(Pod, None, pod("big", None, "4", priority=5000).on("a"))
            return (yield from steps)

        monkeypatch.setattr(planner, "plan", plan_and_change)
        await world.run_for(1)
        assert len(plans) > 1
        assert evictions(world) == ["w"]


async def test_the_last_pods_of_a_gang_go_while_its_victims_are_evicted():
    async with cluster("a") as world:
        gang(world, 2)
        (victim,) = occupy(world, "a", pod("v", None, "4"))
        pods = workers(world, 2)
        await world.run_for(1)
        for one in pods:
            world.change(Pod, world.state.pods[one.key], None)
        world.change(Pod, victim, None)
        await world.run_for(5)
        assert evictions(world) == ["v"]
        assert not len(plugin_of(world)._running)


async def test_a_pod_evicts_a_group_in_mode_podgroup_whole_or_not_at_all():
    async with cluster("a", "b", "c") as world:
        gang(world, 2, "whole", priority=5, mode="PodGroup")
        occupy(world, "a", pod("w0", "whole", "4", priority=5))
        occupy(world, "b", pod("w1", "whole", "4", priority=5))
        occupy(world, "c", pod("v", None, "4", priority=7))
        world.add(pod("boss", None, priority=6))
        await world.run_for(5)
        assert sorted(evictions(world)) == ["w0", "w1"]


async def test_a_pod_prefers_a_single_pod_to_a_group_in_mode_podgroup():
    async with cluster("a", "b", "c") as world:
        gang(world, 2, "whole", priority=5, mode="PodGroup")
        occupy(world, "a", pod("w0", "whole", "4", priority=5))
        occupy(world, "b", pod("w1", "whole", "4", priority=5))
        occupy(world, "c", pod("v", None, "4", priority=5))
        world.add(pod("boss", None, priority=6))
        await world.run_for(5)
        assert evictions(world) == ["v"]


async def test_a_group_in_mode_podgroup_that_is_as_important_as_a_pod_stays():
    async with cluster("a", "b") as world:
        gang(world, 2, "whole", priority=6, mode="PodGroup")
        occupy(world, "a", pod("w0", "whole", "4", priority=5))
        occupy(world, "b", pod("w1", "whole", "4", priority=5))
        world.add(pod("boss", None, priority=6))
        await world.run_for(5)
        assert evictions(world) == []


async def test_the_rest_of_a_group_follows_if_its_eviction_failed_half_way():
    async with cluster("a", "b", "c") as world:
        gang(world, 2)
        gang(world, 2, "whole", priority=5, mode="PodGroup")
        occupy(world, "a", marked(pod("w0", "whole", "4", priority=5)))
        occupy(world, "b", pod("w1", "whole", "4", priority=5))
        occupy(world, "c", pod("v", None, "4"))
        workers(world, 2, cpu="4")
        await world.run_for(5)
        assert evictions(world) == ["w1"]


async def test_without_default_preemption_groups_do_not_preempt():
    config = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{plugins: {postFilter: {disabled: [{name: DefaultPreemption}]}}}]\n"
    )
    async with cluster("a", config=config) as world:
        gang(world, 1)
        occupy(world, "a", pod("v", None, "4"))
        workers(world, 1)
        await world.run_for(5)
        assert evictions(world) == []
        (text,) = statuses(world)[0]
        assert text.endswith("workload aware preemption is disabled")


async def test_pods_that_keep_apart_preempt_one_by_one_and_only_together():
    """InterPodAffinity looks at other nodes, so no plan is made for the group."""
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
    spec = {"affinity": {"podAntiAffinity": required}}
    async with cluster() as world:
        for name in ("a", "b", "c"):
            world.add_nodes(name, labels={"kubernetes.io/hostname": name})
        gang(world, 3)
        (first,) = occupy(world, "a", pod("v", None, "4"))
        occupy(world, "b", pod("w", None, "4"))
        occupy(world, "c", pod("x", None, "4", priority=2000))
        pods = []
        for i in range(3):
            one = pod(f"p{i}", priority=1000, **spec)
            one = msgspec.structs.replace(one, labels=LabelSet({"a": "b"}))
            pods.append(world.add(one))
        await world.run_for(5)
        assert evictions(world) == []
        world.change(Pod, first, None)
        world.add_nodes("d", labels={"kubernetes.io/hostname": "d"})
        await world.run_for(30)
        assert evictions(world) == ["w"]


async def test_evictions_go_on_when_the_api_server_is_back():
    async with cluster("a", "b") as world:
        back = world.clock.monotonic() + 40

        def answer(sent):
            if world.clock.monotonic() < back:
                return ServerUnavailable("no", status=503)
            return ok(status=201)

        world.transport.handler = answer
        gang(world, 8)
        victims = occupy(world, "a", pod("v", None, "4")) + occupy(world, "b", pod("w", None, "4"))
        workers(world, 8)
        await world.run_for(100)
        assert {"v", "w"} <= set(evictions(world))
        for victim in victims:
            world.change(Pod, victim, None)
        await world.run_for(30)
        assert len(bindings(world)) == 8
