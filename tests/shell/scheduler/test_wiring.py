"""The scheduler wakes itself: a pod that failed is tried again though nothing else happens in the cluster."""

import asyncio
import json

import msgspec
import pytest

from app.framework.testing import make_object, make_pod
from app.model.devices import ResourceClaim
from app.model.objects import Namespace
from app.model.pod import Pod
from app.model.selectors import from_map
from app.model.storage import StorageClass, VolumeAttachment
from app.scheduler.status_patches import StatusPatch
from app.state.queue.queued_pod import Place
from app.state.queue.unschedulable_pods import MAX_STEP
from tests.shell.clock import LoopClock
from tests.shell.extender.fakes import extender
from tests.shell.scheduler.world import running

pytestmark = pytest.mark.looptime


class Script:
    """An extender of which each filter call is answered by the next of some functions, and then by the last."""

    def __init__(self, *replies, **fields):
        self.calls = 0
        self._fields = fields
        self._replies = replies

    def _reply(self, _verb, _sent):
        self.calls += 1
        return self._replies[min(self.calls, len(self._replies)) - 1]()

    def __call__(self, sink):
        others = {"prioritize_verb": "", "preempt_verb": "", "bind_verb": ""}
        return [extender(self._reply, sink=sink, **others, **self._fields)]


def pod_for_extenders():
    raw = json.dumps({"metadata": {"name": "p", "namespace": "default"}}).encode()
    return msgspec.structs.replace(make_pod("p"), raw=raw)


def bindings(world):
    return [sent.body["target"]["name"] for sent in world.transport.sent if "binding" in sent.path]


async def test_events_for_pods_in_flight_take_no_room_of_status_patches():
    async with running("a", memory=40_000) as world:
        pod = world.add(make_pod("p"))
        queued = world.state.queue.pop(world.clock.steady())
        for number in range(100):
            world.add_nodes(f"n{number}", labels={"l": "x" * 100})
        used = world.budgets.in_flight_events
        assert used.left < used.limit / 2
        world.scheduler.patcher.put(pod, StatusPatch("Unschedulable", "no room"), 0.0)
        await world.scheduler.patcher.finish()
        assert world.scheduler.patcher.dropped == 0
        assert any(sent.method == "PATCH" for sent in world.transport.sent)
        world.state.queue.done(queued.pod.uid)


async def test_a_pod_that_met_an_error_is_tried_again_after_its_backoff():
    script = Script(
        *[lambda: {"error": "not yet"}] * 3,
        lambda: {"nodenames": ["a"]},
    )
    async with running("a", "b", extenders=script) as world:
        world.add(pod_for_extenders())
        await world.run_for(1 + 2 + 4 + 5)
    assert bindings(world) == ["a"]
    assert script.calls == 4


async def test_a_pod_is_tried_again_for_what_happened_while_it_was_being_refused():
    other = make_pod("other").on("a")

    async def refuse_while_a_pod_goes():
        world.change(Pod, other, None)
        await asyncio.sleep(0.1)
        return {"nodenames": [], "failedNodes": {"a": "no"}}

    script = Script(refuse_while_a_pod_goes, lambda: {"nodenames": ["a"]})
    async with running("a", extenders=script) as world:
        world.add(other)
        world.add(pod_for_extenders())
        await world.run_for(3)
    assert bindings(world) == ["a"]


@pytest.mark.parametrize(("kind", "calls"), [(StorageClass, 2), (VolumeAttachment, 1)])
async def test_what_a_pod_that_extenders_turned_down_is_tried_again_for(kind, calls):
    gone = make_object(kind, {"metadata": {"name": "x"}})
    script = Script(lambda: {"nodenames": [], "failedNodes": {"a": "no"}})
    async with running("a", extenders=script) as world:
        world.add(pod_for_extenders())
        await world.run_for(1)
        world.change(kind, gone, None)
        await world.run_for(3)
    assert script.calls == calls


async def test_winding_down_waits_for_bindings():
    async with running("a") as world:
        world.transport.latency = 3
        world.add(make_pod("p"))
        await world.run_for(1)
        assert world.scheduler.binder.cycles.count == 1
        await world.scheduler.wind_down(10)
        assert world.scheduler.binder.cycles.count == 0
    assert bindings(world) == ["a"]


async def test_what_is_not_finished_in_time_is_told_by_what_it_is(caplog):
    async with running("a") as world:
        world.transport.latency = 3
        world.add(make_pod("p"))
        await world.run_for(1)
        await world.scheduler.wind_down(1)
    told = "Not finished within 1 s: 1 bindings, 0 preemptions, 0 status patches"
    assert told in caplog.messages


def claim(name):
    return make_object(ResourceClaim, {"metadata": {"name": name, "namespace": "default"}})


async def test_events_do_not_pile_up_while_another_process_leads():
    async def stand_by():
        async with running() as world:
            world.scheduler.informers.clear()
            world.scheduler.start_watching()
            for number in range(2 * MAX_STEP):
                claims = [{"name": "c", "resourceClaimName": f"missing-{number}"}]
                world.add(make_pod(f"p{number}", spec={"resourceClaims": claims}))
            assert world.state.queue.count(Place.GATED) == 2 * MAX_STEP
            for number in range(20):
                world.change(ResourceClaim, None, claim(f"other-{number}"))
            pending.append(world.state.next_flush_time(world.clock.steady()))
            await asyncio.sleep(1)
            pending.append(world.state.next_flush_time(world.clock.steady()))
            asyncio.current_task().cancel()
            await asyncio.sleep(0)

    pending = []
    await asyncio.wait([asyncio.ensure_future(stand_by())])
    assert pending == [pytest.approx(LoopClock().steady() - 1), None]


async def test_objects_that_are_refused_keep_no_others_out():
    """Neither one by one nor in a list; pods are scheduled as if these objects were not there."""

    def fail(old, new):
        if new is not None and new.name.startswith("bad"):
            raise RuntimeError("no good")

    async with running("a") as world:
        scheduler = world.scheduler
        scheduler.state.cluster.lister(StorageClass).follow(fail)
        classes = {
            name: make_object(StorageClass, {"metadata": {"name": name}})
            for name in ("bad-1", "good", "bad-2")
        }
        assert list(scheduler._list_handler(StorageClass)(classes)) == ["bad-1", "bad-2"]
        with pytest.raises(RuntimeError, match="no good"):
            scheduler._handler(StorageClass)(classes["bad-1"], classes["bad-1"])
        world.add(make_pod("p"))
        await world.run_for(1)
        assert [it.name for it in scheduler.state.cluster.lister(StorageClass)] == ["good"]
    assert bindings(world) == ["a"]


async def test_a_pod_that_was_rejected_is_tried_again_when_the_labels_of_its_namespace_change():
    selected = {"default": {"licences": "yes"}}
    script = Script(
        lambda: {"nodenames": [], "failedNodes": {"a": "no"}},
        namespace_selector=from_map({"licences": "yes"}),
        labels_of=selected.get,
    )
    async with running("a", extenders=script) as world:
        before, after = (
            make_object(Namespace, {"metadata": {"name": "default", "labels": labels}})
            for labels in ({"licences": "yes"}, {})
        )
        watch = world.scheduler._handler(Namespace)
        watch(None, before)
        world.add(pod_for_extenders())
        await world.run_for(20)
        assert (script.calls, bindings(world)) == (1, [])
        selected["default"] = {}
        watch(before, after)
        await world.run_for(1)
    assert (script.calls, bindings(world)) == (1, ["a"])


async def test_pods_that_an_extender_rejected_are_tried_after_a_waiting_pod_has_gone():
    """It may have reserved for that pod."""
    script = Script(lambda: {"nodenames": []}, lambda: {"nodenames": ["a"]})
    async with running("a", extenders=script) as world:
        other = world.add(make_pod("other", spec={"schedulingGates": [{"name": "wait"}]}))
        world.add(pod_for_extenders())
        await world.run_for(20)
        assert bindings(world) == []
        handle = world.scheduler._handler(Pod)
        handle(other, None)
        await world.run_for(20)
        assert bindings(world) == ["a"]
