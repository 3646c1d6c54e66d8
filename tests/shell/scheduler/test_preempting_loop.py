"""Preemption through loop, queue and evictions, on the virtual clock, with an API server that is a dictionary."""

import asyncio
import json

import msgspec
import numpy as np
import pytest

from app.extender.chain import ExtenderChain
from app.framework.testing import make_node
from app.kube.errors import NotFound, NotLeading, ServerUnavailable
from app.model.objects import Node, PodCondition
from app.model.pod import Pod
from app.model.status import SUCCESS
from app.observe.events import ignore
from app.plugins import registry
from app.scheduler.binding import Binder
from app.scheduler.extender_cycle import ExtenderCycle
from app.scheduler.failures import FailureHandler
from app.scheduler.loop import PodCycle, QueueFlusher, SchedulingLoop
from app.scheduler.parts import Parts
from app.scheduler.permits import WaitingPodsMap
from app.scheduler.preemption import Evictor, ExtenderPreemption
from app.scheduler.profiles import build_state
from app.scheduler.releases import Releases
from app.scheduler.reports import Reports
from app.scheduler.serial_extenders import SerialGate
from app.scheduler.status_patches import StatusPatcher
from app.settings.load import load
from app.wire.kube import PodDecoder
from tests.shell.extender.fakes import extender
from tests.shell.scheduler.world import LoopWorld

pytestmark = pytest.mark.looptime

PROFILE = "default-scheduler"
PODS = PodDecoder(keep_raw=True)
CONFIGURATION = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
LATENCY = 0.01


class World(LoopWorld):
    """``grace``: seconds between the deletion of a pod and its end."""

    def __init__(self, *extenders, grace=0.0):
        super().__init__()
        self.grace = grace
        self.attempts, self.messages, self.notes, self.bound = [], [], [], {}
        self.faults = []
        self.status_latency = LATENCY
        rng = np.random.default_rng(0)
        chain = ExtenderChain(extenders)
        self.waiting = WaitingPodsMap()
        self.state, frameworks = build_state(
            load(CONFIGURATION).to_plain(),
            registry.IN_TREE,
            rng=rng,
            waiting=self.waiting,
            notify=self._notify,
        )
        self.flusher = QueueFlusher(self.state, self.clock, self._wake)
        parts = Parts(self.state, self.clock, rng, self._spawn, ignore)
        patcher = StatusPatcher(self, self._spawn)
        reports = Reports(self, patcher)
        failures = FailureHandler(parts, self, reports)
        self.agreement = ExtenderPreemption(chain, self.state)
        self.evictor = Evictor(
            parts,
            writer=self,
            events=self,
            patcher=patcher,
            stop_unbound=lambda _uid: False,
            decided=lambda _eviction: None,
        )
        binder = Binder(
            parts,
            effects=self,
            extenders=None,
            waiting=self.waiting,
            reports=reports,
            undo=failures.undo,
            max_writing=8,
        )
        cycle = None
        if chain:
            cycle = ExtenderCycle(
                chain,
                self.state.table,
                percentages={},
                rng=rng,
                retries=None,
                serial=SerialGate(chain.extenders, self.flusher.notify),
                before_asking=Releases(chain.extenders, self._spawn, None).before_asking,
            )
        self.loop = SchedulingLoop(
            parts,
            PodCycle(parts, frameworks, binder=binder, failures=failures, extenders=cycle),
            extenders=cycle,
            parallelism=4,
            limits=(binder.writes, self.evictor.preemptions),
        )

    # -------------------------------------------------- driving it

    def node(self, name, cpu="4"):
        status = {"allocatable": {"cpu": cpu, "memory": "16Gi", "pods": "110"}}
        self.apply(Node, None, make_node(name, status=status))

    def pod(self, name, cpu, *, priority=0, on=""):
        requests = {"cpu": cpu}
        manifest = {
            "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"},
            "spec": {
                "schedulerName": PROFILE,
                "priority": priority,
                "nodeName": on,
                "containers": [{"name": "main", "resources": {"requests": requests}}],
            },
        }
        pod = PODS.decode(json.dumps(manifest).encode())
        self.apply(Pod, None, pod)
        return pod

    def changed(self, name, **fields):
        """The watch brings a new version of a pod."""
        old = self.state.pods[f"ns/{name}"]
        version = str(int(old.resource_version) + 1)
        self.apply(Pod, old, msgspec.structs.replace(old, resource_version=version, **fields))

    # -------------------------------------------------- what would be written

    async def _answer(self):
        await asyncio.sleep(LATENCY)
        if self.faults:
            raise self.faults.pop(0)

    async def patch_pod_status(self, pod, *, condition=None, nominated_node_name=None, now):
        if condition is None or condition.type == "PodScheduled":
            await asyncio.sleep(self.status_latency)
            if nominated_node_name is not None and pod.key in self.state.pods:
                self.changed(pod.name, nominated_node_name=nominated_node_name)
            return True
        await self._answer()
        if pod.key not in self.state.pods:
            raise NotFound("gone")
        self.changed(pod.name, conditions=(PodCondition(*condition),))
        return True

    async def delete_pod(self, namespace, name, uid):
        await self._answer()
        if f"{namespace}/{name}" not in self.state.pods:
            return False
        if self.grace:
            self.changed(name, deletion_timestamp="now")
        asyncio.get_running_loop().call_later(self.grace, self._gone, f"{namespace}/{name}")
        return True

    def _gone(self, key):
        if key in self.state.pods:  # two preemptors may have evicted it
            self.apply(Pod, self.state.pods[key], None)

    async def bind(self, pod, node_name):
        self.bound[pod.name] = (node_name, self.clock.monotonic())
        return SUCCESS

    def pod_event(self, pod, *, kind, reason, action, note, now, reporter="", related=None):
        self.notes.append((pod.name, reason, note))

    def failures_of(self, name):
        return [
            note for who, reason, note in self.notes if (who, reason) == (name, "FailedScheduling")
        ]

    # -------------------------------------------------- effects

    def asks_about_victims(self, pod):
        return self.agreement.concerns(pod)

    async def agree_on_victims(self, pod, candidates):
        return await self.agreement.ask(pod, candidates)

    def evict(self, eviction):
        self.evictor.start(eviction)


async def until(condition, seconds=120.0):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


SHORT = "0/1 nodes are available: 1 Insufficient cpu."


async def test_a_pod_takes_the_place_of_others():
    async with World().running() as world:
        world.node("n1")
        for number in range(4):
            world.pod(f"low-{number}", "1", on="n1")
        world.pod("boss", "3", priority=10)
        await until(lambda: "boss" in world.bound)
    assert world.bound["boss"][0] == "n1"
    assert world.failures_of("boss") == [SHORT]
    preempted = [who for who, reason, _ in world.notes if reason == "Preempted"]
    assert len(preempted) == 3
    assert not world.evictor.preemptions.count


async def test_a_preemptor_is_not_tried_before_its_victims_have_gone():
    async with World(grace=30.0).running() as world:
        world.node("n1")
        for number in range(4):
            world.pod(f"low-{number}", "1", on="n1")
        boss = world.pod("boss", "3", priority=10)
        await until(lambda: world.failures_of("boss"))
        assert world.evictor.preemptions.count
        world.state.queue.activate([boss], world.clock.wall())
        assert world.state.queue.where("boss").value == "gated"
        await world.evictor.preemptions.wait_until_idle()
        await asyncio.sleep(1.0)
        world.state.queue.activate([boss], world.clock.wall())
        world.loop.wake()
        await until(lambda: len(world.failures_of("boss")) == 2)
        assert "boss" not in world.bound
        await until(lambda: "boss" in world.bound)
    again = "preemption: not eligible due to a terminating pod on the nominated node."
    first, *later = world.failures_of("boss")
    assert first == SHORT
    assert set(later) == {f"{SHORT} no new claims to deallocate, {again}"}
    assert world.bound["boss"][1] > 30.0
    assert len([n for n in world.notes if n[1] == "Preempted"]) == 3


async def test_a_preemptor_whose_eviction_failed_is_tried_again_at_once():
    async with World().running() as world:
        world.faults = [ServerUnavailable("away"), ServerUnavailable("away")]
        world.node("n1")
        for number in range(4):
            world.pod(f"low-{number}", "1", on="n1")
        world.pod("boss", "3", priority=10)
        await until(lambda: "boss" in world.bound)
    assert world.bound["boss"][1] < 1.5
    assert len([n for n in world.notes if n[1] == "Preempted"]) == 3


async def test_a_process_that_does_not_lead_evicts_with_pauses():
    async with World().running() as world:
        world.faults = [NotLeading("PATCH", "/status")] * 10
        world.node("n1")
        world.pod("low", "4", on="n1")
        world.pod("boss", "3", priority=10)
        await until(lambda: "boss" in world.bound)
    assert world.bound["boss"][1] == pytest.approx(10.0, abs=1.0)


async def test_a_preemptor_whose_victims_leave_by_themselves_is_not_forgotten():
    """The news that its last victim has left comes while it is held back for the others."""
    async with World().running() as world:
        world.node("n1")
        for number in range(4):
            world.pod(f"low-{number}", "1", on="n1")
        world.pod("boss", "3", priority=10)
        await until(lambda: world.evictor.preemptions.count)
        for number in range(4):
            world._gone(f"ns/low-{number}")
        assert world.state.queue.where("boss").value == "gated"
        await until(lambda: "boss" in world.bound, seconds=5)
    assert world.failures_of("boss") == [SHORT]


async def test_a_binding_comes_behind_the_patch_that_is_under_way():
    """Else the patch would say of a bound pod that it is unschedulable."""
    async with World().running() as world:
        world.status_latency = 3.0
        world.node("n1")
        world.pod("low", "4", on="n1")
        boss = world.pod("boss", "3", priority=10)
        await until(lambda: "boss" in world.bound)
        assert world.state.pods[boss.key].nominated_node_name == "n1"
    assert world.bound["boss"][1] == pytest.approx(3.0, abs=0.1)


async def test_a_preemptor_that_was_held_takes_other_room_while_its_victims_take_their_time():
    async with World(grace=600.0).running() as world:
        world.node("n1")
        for number in range(4):
            world.pod(f"low-{number}", "1", on="n1")
        boss = world.pod("boss", "3", priority=10)
        await until(lambda: world.failures_of("boss"))
        world.state.queue.activate([boss], world.clock.wall())
        assert world.state.queue.where("boss").value == "gated"
        await world.evictor.preemptions.wait_until_idle()
        await asyncio.sleep(1.0)
        world.node("n2")
        await until(lambda: "boss" in world.bound, seconds=5)
    assert world.bound["boss"][0] == "n2"


async def test_no_room_is_kept_for_a_preemptor_that_is_being_deleted_when_its_turn_comes():
    async with World(grace=5.0).running() as world:
        world.node("n1")
        for number in range(4):
            world.pod(f"low-{number}", "1", on="n1")
        world.pod("boss", "3", priority=10)
        await until(lambda: world.state.nominator.node_of("boss") == "n1")
        world.changed("boss", deletion_timestamp="now", nominated_node_name="n1")
        await until(lambda: sum(bool(pod.node_name) for pod in world.state.pods.values()) == 1)
        world.pod("next", "3")
        await until(lambda: "next" in world.bound, seconds=5)
    assert "boss" not in world.bound


async def test_two_preemptors_do_not_take_the_same_place():
    async with World(grace=5.0).running() as world:
        for name in ("n1", "n2"):
            world.node(name)
            for number in range(4):
                world.pod(f"low-{name}-{number}", "1", on=name)
        for number in range(2):
            world.pod(f"boss-{number}", "3", priority=10)
        await until(lambda: len(world.bound) == 2)
    assert {node for node, _ in world.bound.values()} == {"n1", "n2"}
    assert len([n for n in world.notes if n[1] == "Preempted"]) == 6


async def test_a_preemptor_that_is_deleted_leaves_its_room_to_others():
    async with World(grace=10.0).running() as world:
        world.node("n1")
        for number in range(4):
            world.pod(f"low-{number}", "1", on="n1")
        world.pod("boss", "3", priority=10)
        await until(lambda: any(pod.terminating for pod in world.state.pods.values()))
        world._gone("ns/boss")
        world.pod("next", "3", priority=5)
        await until(lambda: "next" in world.bound)
        await world.evictor.preemptions.wait_until_idle()
        assert world.state.nominator.node_of("boss") is None
        assert not world.state.queue.pending_pods()
    assert "boss" not in world.bound


async def test_of_many_that_want_one_node_as_many_get_it_as_it_holds():
    async with World().running() as world:
        world.node("n1")
        for number in range(4):
            world.pod(f"low-{number}", "1", on="n1")
        for number in range(6):
            world.pod(f"boss-{number}", "2", priority=10)
        await until(lambda: len(world.bound) == 2)
        await asyncio.sleep(30)
        assert len(world.bound) == 2
        assert len(world.state.queue.pending_pods()) == 4
    assert {node for node, _ in world.bound.values()} == {"n1"}
    preempted = {who for who, reason, _ in world.notes if reason == "Preempted"}
    assert preempted == {f"low-{number}" for number in range(4)}


async def test_a_nomination_is_taken_from_a_pod_of_lower_priority():
    async with World(grace=20.0).running() as world:
        world.node("n1")
        for number in range(4):
            world.pod(f"low-{number}", "1", on="n1")
        world.pod("middle", "3", priority=5)
        await until(lambda: world.state.pods["ns/middle"].nominated_node_name == "n1")
        world.pod("boss", "3", priority=10)
        await until(lambda: world.state.nominator.node_of("boss") == "n1")
        await until(lambda: not world.state.pods["ns/middle"].nominated_node_name)
        await until(lambda: "boss" in world.bound)
        assert "middle" not in world.bound


async def test_nobody_waits_for_extenders_that_are_asked_about_somebody_elses_victims():
    async def agree(request):
        await asyncio.sleep(4.0)
        return {"NodeNameToMetaVictims": request["NodeNameToMetaVictims"]}

    slow = extender(
        lambda _verb, request: agree(request),
        filter_verb="",
        prioritize_verb="",
        bind_verb="",
        node_cache_capable=True,
    )
    async with World(slow).running() as world:
        world.node("n1")
        for number in range(4):
            world.pod(f"low-{number}", "900m", on="n1")
        world.pod("boss", "3", priority=10)
        world.pod("small", "100m")
        await until(lambda: "small" in world.bound)
        assert world.bound["small"][1] < 1.0
        await until(lambda: "boss" in world.bound)
    assert world.bound["boss"][1] > 4.0
    assert [verb for verb, _ in slow.fake.requests] == ["preempt"]
