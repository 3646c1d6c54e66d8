"""Evicting the victims of a preemption: order, faults, and what everybody is told."""

import asyncio
import logging
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from app.cycle.attempt import Choice
from app.cycle.pod_cycle import AssumedPod
from app.extender.chain import ExtenderChain
from app.framework.handle import Eviction
from app.framework.interface import CycleState
from app.framework.profile import ProfilePlugins
from app.framework.runner import Framework
from app.kube.errors import KubeApiError, NotFound, ServerUnavailable
from app.kube.event_series import ObjectRef
from app.kube.payloads import ConditionChange
from app.model.objects import Node, ObjectMeta, PodSpec
from app.model.pod import make_pod
from app.model.pod_groups import PodGroup
from app.model.status import SUCCESS, Code, Status
from app.observe.events import PreemptionFinished, PreemptionStarted, ignore
from app.runtime.tasks import spawn
from app.scheduler.binding import Binder
from app.scheduler.parts import Parts
from app.scheduler.permits import WaitingPodsMap
from app.scheduler.preemption import (
    FAILURE_PAUSE,
    MAX_EVICTING,
    MAX_PREEMPTING,
    Evictor,
    ExtenderPreemption,
)
from app.scheduler.status_patches import StatusPatcher
from app.state.cluster import Cluster
from app.state.nominator import Nominator
from app.state.queue.queued_pod import BACKOFF, GATED
from app.state.table import NodeTable
from app.wire.extender_v1 import Victims
from tests.shell.clock import WALL, StoppedClock

pytestmark = pytest.mark.looptime

NOW = WALL
#: How long the server takes to answer, seconds.
LATENCY = 1.0


def pod(name, priority=0, *, scheduler="default-scheduler", **fields):
    spec = PodSpec(priority=priority, scheduler_name=scheduler)
    return make_pod(spec, namespace="ns", name=name, uid=f"uid-{name}", **fields)


BOSS = pod("boss", 10, scheduler="fast")

CHOICE = Choice(0, "node-1", 1, 1)


class Server:
    """A writer that takes its time; ``faults``: (verb, pod name) -> exception."""

    def __init__(self):
        self.faults = {}
        self.gone = set()
        self.calls = []
        self.conditions = {}
        self.patches = {}
        self.under_way = self.most_under_way = 0

    async def _answer(self, verb, name):
        self.calls.append((asyncio.get_running_loop().time(), verb, name))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(LATENCY)
        self.under_way -= 1
        fault = self.faults.get((verb, name))
        if fault is not None:
            raise fault

    async def patch_pod_status(self, pod, *, condition=None, nominated_node_name=None, now):
        assert now == NOW
        if nominated_node_name is not None:
            self.patches[pod.name] = (condition, nominated_node_name)
            return True
        await self._answer("patch", pod.name)
        self.conditions[pod.name] = condition
        return True

    async def delete_pod(self, namespace, name, uid):
        assert (namespace, uid) == ("ns", f"uid-{name}")
        await self._answer("delete", name)
        return name not in self.gone

    def times(self, verb):
        return {name: at for at, each, name in self.calls if each == verb}


class Progress:
    def __init__(self):
        self.steps, self.outcomes = [], []
        self.free = False

    def begin(self, uid):
        self.steps.append(("begin", uid))

    def last(self, uid, victim):
        self.steps.append(("last", uid, victim.name))

    def end(self, uid, *, evicted):
        self.steps.append(("end", uid))
        self.outcomes.append(evicted)
        return self.free

    def waits_for(self, _uid, _victim):
        return False


class World:
    """An Evictor with everything around it written down."""

    def __init__(self, group):
        self.server = Server()
        self.progress = Progress()
        self.nominator = Nominator()
        self.pods = {BOSS.key: BOSS}
        self.activated = []
        self.activated_at = []
        self.events = []
        self.preempting = []
        self.preempted = []
        self.unbound = set()
        self.stopped = []
        self.place = GATED
        state = SimpleNamespace(
            queue=SimpleNamespace(where=lambda _uid: self.place),
            activate=self._activate,
            nominator=self.nominator,
            pods=self.pods,
            cluster=Cluster(),
            needs_node=self._needs_node,
        )
        state.cluster.pod_groups.watch(
            PodGroup, lambda: "/apis/scheduling.k8s.io/v1alpha2/podgroups"
        )

        def start(coroutine, name):
            return spawn(group, coroutine, name=name)

        self.evictor = Evictor(
            Parts(state, StoppedClock(), None, start, self._on),
            writer=self.server,
            events=SimpleNamespace(pod_event=self._event),
            patcher=StatusPatcher(self.server, start),
            stop_unbound=self._stop,
            decided=lambda _eviction: None,
        )

    def _on(self, event):
        match event:
            case PreemptionStarted(preemptor, node, victims):
                self.preempting.append((preemptor, node, len(victims)))
            case PreemptionFinished(succeeded=succeeded):
                self.preempted.append(succeeded)

    def _activate(self, pods, now):
        assert now == NOW
        self.activated += [each.name for each in pods]
        self.activated_at.append(asyncio.get_running_loop().time())

    def _needs_node(self, pod):
        current = self.pods.get(pod.key)
        return (
            current is not None
            and current.uid == pod.uid
            and not (current.node_name or current.terminating)
        )

    def _event(self, pod, **fields):
        self.events.append((pod.name, fields))

    def _stop(self, uid):
        if uid not in self.unbound:
            return False
        self.stopped.append(uid)
        return True

    async def evict(self, *victims):
        self.evictor.start(Eviction(BOSS, "node-1", victims, self.progress))
        await self.evictor.preemptions.wait_until_idle()

    def noted(self):
        return [(name, fields["note"]) for name, fields in self.events]


@asynccontextmanager
async def world():
    async with asyncio.TaskGroup() as group:
        yield World(group)


NOTE = "Preempted by pod uid-boss on node node-1"


async def test_the_last_victim_goes_when_all_others_have():
    async with world() as w:
        await w.evict(pod("a"), pod("b"), pod("c"))
    assert w.server.times("patch") == {"a": 0.0, "b": 0.0, "c": 2.0}
    assert w.server.times("delete") == {"a": 1.0, "b": 1.0, "c": 3.0}
    assert w.progress.steps == [
        ("begin", "uid-boss"),
        ("last", "uid-boss", "c"),
        ("end", "uid-boss"),
    ]
    assert w.preempting == [(BOSS, "node-1", 3)]
    assert w.preempted == [True]
    assert not w.activated


async def test_victims_are_marked_and_told():
    async with world() as w:
        await w.evict(pod("a"))
    message = "fast: preempting to accommodate a higher priority pod"
    condition = ConditionChange("DisruptionTarget", "True", "PreemptionByScheduler", message)
    assert w.server.conditions == {"a": condition}
    fields = {
        "kind": "Normal",
        "reason": "Preempted",
        "action": "Preempting",
        "note": NOTE,
        "now": NOW,
        "reporter": "fast",
        "related": None,
    }
    assert w.events == [("a", fields)]


async def test_victims_of_a_group_are_told_so_and_its_pods_wait_together():
    async with world() as w:
        mate, gone = pod("mate", 10, scheduler="fast"), pod("gone", 10)
        w.pods[mate.key] = mate
        w.progress.free = True
        metadata = ObjectMeta(name="group", namespace="ns", uid="uid-group", resource_version="7")
        group = PodGroup(metadata=metadata)
        eviction = Eviction(
            gone, "cluster", (pod("a"),), w.progress, group=group, mates=(BOSS, mate)
        )
        w.evictor.start(eviction)
        await w.evictor.preemptions.wait_until_idle()
        assert w.progress.steps[0] == ("begin", "uid-group")
        assert w.noted() == [("a", "Preempted by podgroup uid-group on node cluster")]
        assert w.events[0][1]["related"] == ObjectRef(
            kind="PodGroup",
            api_version="scheduling.k8s.io/v1alpha2",
            name="group",
            namespace="ns",
            uid="uid-group",
            resource_version="7",
        )
        message = w.server.conditions["a"].message
        assert message.endswith("preempting to accommodate a higher priority podgroup")
        assert {"boss", "mate"} <= set(w.activated)


async def test_nobody_is_evicted_for_a_group_whose_pods_have_gone():
    async with world() as w:
        eviction = Eviction(pod("x"), "cluster", (pod("a"),), w.progress, mates=(pod("y"),))
        w.evictor.start(eviction)
        await w.evictor.preemptions.wait_until_idle()
        assert not w.server.calls


async def test_those_that_are_leaving_are_left_alone():
    async with world() as w:
        await w.evict(pod("a"), pod("b", deletion_timestamp="now"))
    assert [(verb, name) for _, verb, name in w.server.calls] == [("patch", "a"), ("delete", "a")]
    assert w.preempting == [(BOSS, "node-1", 2)]


async def test_nothing_begins_where_everybody_is_leaving():
    async with world() as w:
        await w.evict(pod("a", deletion_timestamp="now"))
    assert not w.server.calls
    assert not w.progress.steps
    assert not w.preempting


@pytest.mark.parametrize("verb", ["patch", "delete"])
async def test_a_failure_spares_the_last_victim_and_activates_the_preemptor(verb, caplog):
    async with world() as w:
        w.server.faults[verb, "a"] = ServerUnavailable("no")
        await w.evict(pod("a"), pod("b"), pod("c"))
    assert "c" not in w.server.times("patch")
    assert "b" in w.server.times("delete")
    assert w.progress.steps == [("begin", "uid-boss"), ("end", "uid-boss")]
    assert w.activated == ["boss"]
    assert w.noted() == [("b", NOTE)]
    assert "Error preempting pod ns/a for pod ns/boss: no" in caplog.text
    assert w.preempted == [False]


async def test_a_preemptor_is_held_for_a_pause_after_a_failure_which_delays_no_other():
    async with world() as w:
        w.server.faults["patch", "a"] = KubeApiError("refused")
        await w.evict(pod("a"))
        assert w.preempted == [False]
        assert w.evictor.preemptions.has_room
        assert w.progress.steps[-1] == ("last", "uid-boss", "a")
    assert w.progress.steps[-1] == ("end", "uid-boss")
    assert w.activated_at == [LATENCY + FAILURE_PAUSE]


async def test_a_failure_with_the_last_victim_activates_the_preemptor(caplog):
    async with world() as w:
        w.server.faults["delete", "b"] = KubeApiError("refused")
        await w.evict(pod("a"), pod("b"))
    assert w.progress.steps[-1] == ("end", "uid-boss")
    assert w.activated == ["boss"]
    assert "refused" in caplog.text


async def test_a_bug_is_logged_and_holds_nobody_up(caplog):
    async with world() as w:
        w.server.faults["patch", "a"] = ZeroDivisionError("a bug")
        with caplog.at_level(logging.ERROR):
            await w.evict(pod("a"), pod("b"))
    assert "Error preempting for pod ns/boss" in caplog.text
    assert w.progress.steps == [("begin", "uid-boss"), ("end", "uid-boss")]
    assert w.activated == ["boss"]


@pytest.mark.parametrize("when", ["patched", "deleted"])
async def test_a_victim_that_is_gone_is_as_good_as_evicted(when):
    async with world() as w:
        if when == "patched":
            w.server.faults["patch", "a"] = NotFound("gone")
        else:
            w.server.gone.add("a")
        await w.evict(pod("a"), pod("b"))
    assert w.noted() == [("b", NOTE)]
    assert not w.activated


@pytest.mark.parametrize(
    ("free", "place", "activated"),
    [(True, GATED, ["boss"]), (True, BACKOFF, []), (False, GATED, [])],
)
async def test_a_preemptor_that_nothing_will_wake_is_activated(free, place, activated):
    async with world() as w:
        w.progress.free, w.place = free, place
        await w.evict(pod("a"), pod("b"))
    assert w.progress.outcomes == [True]
    assert w.activated == activated


async def test_a_pod_that_is_not_bound_yet_is_stopped_in_memory():
    async with world() as w:
        w.unbound.add("uid-a")
        await w.evict(pod("a"), pod("b"))
    assert w.stopped == ["uid-a"]
    assert set(w.server.times("patch")) == {"b"}
    assert w.noted() == [("a", f"{NOTE} (in kube-scheduler memory)."), ("b", NOTE)]


async def test_pods_of_lower_priority_lose_the_promise_of_the_node():
    async with world() as w:
        for name, priority, node in (
            ("low", 5, "node-1"),
            ("equal", 10, "node-1"),
            ("elsewhere", 5, "node-2"),
        ):
            w.nominator.add(pod(name, priority), node)
        await w.evict(pod("a"))
    assert w.server.patches == {"low": (None, "")}


async def test_only_so_many_are_evicted_at_once():
    async with world() as w:
        victims = [pod(f"v{number}") for number in range(2 * MAX_EVICTING + 1)]
        await w.evict(*victims, pod("last"))
    assert w.server.most_under_way == MAX_EVICTING
    assert w.server.times("patch")["last"] == 6.0
    assert len(w.server.times("delete")) == len(victims) + 1


async def test_counts_what_is_under_way_and_ends_what_is_given_up():
    seen = []

    async def interrupted():
        async with world() as w:
            seen.append(w)
            for _ in range(2):
                w.evictor.start(Eviction(BOSS, "node-1", (pod("a"),), w.progress))
            assert w.evictor.preemptions.count == 2
            await asyncio.sleep(LATENCY / 2)
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await interrupted()
    (w,) = seen
    assert w.evictor.preemptions.count == 0
    assert w.progress.steps.count(("end", "uid-boss")) == 2
    assert not w.activated


@pytest.mark.parametrize(
    "current",
    [
        pytest.param(None, id="gone"),
        pytest.param(pod("boss", deletion_timestamp="now"), id="being deleted"),
        pytest.param(pod("boss", node_name="elsewhere"), id="bound"),
    ],
)
async def test_nobody_is_evicted_for_a_pod_that_needs_no_place(current):
    async with world() as w:
        w.pods.clear()
        if current is not None:
            w.pods[BOSS.key] = current
        await w.evict(pod("a"))
    assert not w.server.calls
    assert not w.preempting


async def test_the_loop_waits_while_many_preemptions_are_under_way():
    loop = asyncio.get_running_loop()
    async with world() as w:
        for _ in range(MAX_PREEMPTING):
            await w.evictor.preemptions.wait_for_room()
            assert loop.time() == 0.0
            w.evictor.start(Eviction(BOSS, "node-1", (pod("a"),), w.progress))
        await w.evictor.preemptions.wait_for_room()
        assert loop.time() == 2 * LATENCY
        await w.evictor.preemptions.wait_until_idle()
    assert w.progress.steps.count(("end", "uid-boss")) == MAX_PREEMPTING


class OneExtender:
    """An extender with a preempt verb for pods named boss."""

    ignorable = concerns_all = False

    def __init__(self):
        self.asked = []

    def supports(self, _verb):
        return True

    def is_interested(self, pod):
        return pod.name == "boss"

    async def preempt(self, pod, victims, pods_on):
        self.asked.append((pod, victims, pods_on))
        return dict(victims)


async def test_extenders_are_asked_with_the_pods_as_they_are():
    table, extender = NodeTable(), OneExtender()
    table.set_node(Node(metadata=ObjectMeta(name="n")))
    table.add_pod(pod("a", node_name="n"))
    table.add_pod(pod("b", node_name="ghost"))
    chain = ExtenderChain([extender])
    agreement = ExtenderPreemption(chain, SimpleNamespace(table=table))
    assert agreement.concerns(BOSS)
    assert not agreement.concerns(pod("other"))
    candidates = {"n": Victims((table.pods[0]["uid-a"],))}
    assert await agreement.ask(BOSS, candidates) == candidates
    ((asked, shown, pods_on),) = extender.asked
    assert (asked, shown) == (BOSS, candidates)
    assert list(pods_on("n")) == ["uid-a"]
    assert pods_on("ghost") is None
    assert pods_on("nowhere") is None


# ---------------------------------------------------------------- pods in PreBind


class Volumes:
    """A PreBind plugin that waits for a volume."""

    NAME = "Volumes"

    def __init__(self, seconds):
        self.seconds = seconds
        self.cancelled = False

    async def pre_bind(self, state, pod, node_name, effects):
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return SUCCESS


class Bindings:
    """A Binder around one profile, and what became of its pods."""

    def __init__(self, group, plugin):
        self.bound, self.undone = [], []
        by_point = {"preBind": [plugin], "bind": [self]}
        self.framework = Framework("p", ProfilePlugins(by_point, {}), NodeTable())
        state = SimpleNamespace(
            done=lambda uid: None, finish_binding=lambda uid: None, arrivals=lambda _node: 0
        )

        def start(coroutine, name):
            return spawn(group, coroutine, name=name)

        self.binder = Binder(
            Parts(state, StoppedClock(), None, start, ignore),
            effects=None,
            extenders=None,
            waiting=WaitingPodsMap(),
            reports=SimpleNamespace(
                nominated=lambda *_: None, scheduled=lambda *_: None, withdraw=self._withdraw
            ),
            undo=lambda assumed, status: self.undone.append((assumed.pod.name, status)),
            max_writing=5,
        )

    async def _withdraw(self, pod):
        pass  # nothing waits to be written

    NAME = "Bind"

    async def bind(self, state, pod, node_name, effects):
        await asyncio.sleep(LATENCY)
        self.bound.append(pod.name)
        return SUCCESS

    def start(self, victim):
        self.binder.start(
            AssumedPod(
                SimpleNamespace(pod=victim), victim, CHOICE, self.framework, CycleState(), 0.0
            ),
            {},
        )


async def test_a_pod_in_pre_bind_can_be_stopped():
    plugin, victim = Volumes(10.0), pod("a", node_name="node-1")
    async with asyncio.TaskGroup() as group:
        bindings = Bindings(group, plugin)
        bindings.start(victim)
        await asyncio.sleep(3.0)
        assert bindings.binder.preempt(victim.uid)
        assert not bindings.binder.preempt(victim.uid)
        await bindings.binder.cycles.wait_until_idle()
    assert asyncio.get_running_loop().time() == 3.0
    assert plugin.cancelled
    assert bindings.undone == [("a", Status(Code.Error, ("preempted by DefaultPreemption",)))]
    assert not bindings.bound


async def test_a_pod_that_was_just_prepared_is_not_bound_after_all():
    plugin, victim = Volumes(1.0), pod("a", node_name="node-1")
    async with asyncio.TaskGroup() as group:
        bindings = Bindings(group, plugin)
        asyncio.get_running_loop().call_at(1.0, bindings.binder.preempt, victim.uid)
        bindings.start(victim)
    assert [name for name, _ in bindings.undone] == ["a"]
    assert not bindings.bound


async def test_a_pod_that_is_being_bound_cannot_be_stopped():
    victim = pod("a", node_name="node-1")
    async with asyncio.TaskGroup() as group:
        bindings = Bindings(group, Volumes(1.0))
        bindings.start(victim)
        await asyncio.sleep(1.5)
        assert not bindings.binder.preempt(victim.uid)
        assert not bindings.binder.preempt("nobody")
    assert bindings.bound == ["a"]
    assert not bindings.undone


async def test_a_time_limit_of_the_plugins_own_is_no_preemption(caplog):
    class Impatient:
        NAME = "Impatient"

        async def pre_bind(self, state, pod, node_name, effects):
            raise TimeoutError("no volume")

    async with asyncio.TaskGroup() as group:
        bindings = Bindings(group, Impatient())
        bindings.start(pod("a", node_name="node-1"))
    ((_, status),) = bindings.undone
    assert "TimeoutError" in status.message
