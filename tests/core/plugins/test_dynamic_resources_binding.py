"""DynamicResources: reserving, writing and deallocating claims, and binding conditions."""

import numpy as np
import pytest

from app.framework.interface import CycleState, reject
from app.framework.profile import ProfilePlugins
from app.framework.runner import Framework
from app.model.devices import FINALIZER
from app.model.pod_groups import PodGroup
from app.model.status import Code, ConflictError, SchedulingError, unschedulable
from app.plugins.args import DynamicResourcesArgs
from app.state.nominations import NO_PODS
from tests.core.plugins.claim_world import (
    Devices,
    a_claim,
    a_slice,
    allocated,
    using,
)

AWAY = "resourceclaim not available on the node"


class TestSharedByAGroup:
    """Pods of a group that are decided together share a claim whose allocation is not written yet."""

    def setup_method(self):
        self.world = Devices(a_slice("a", "d0"), a_slice("b", "d0"), a_claim("c"))
        self.world.cluster.handle.cluster.pod_groups.watch(PodGroup, lambda: "/podgroups")
        self.pods = [
            using("c", name=name, schedulingGroup={"podGroupName": "g"}) for name in ("one", "two")
        ]
        self.states = [self.world.decide(pod, "a") for pod in self.pods]

    def test_its_devices_are_where_the_first_pod_has_them(self):
        third = using("c", name="three", schedulingGroup={"podGroupName": "g"})
        assert self.world.judge(third) == {"b": AWAY, "c": AWAY}
        assert self.world.in_use() == {"a/d0"}

    def test_other_pods_wait_until_it_is_written(self):
        for other in (
            using("c", name="other"),
            using("c", name="other", schedulingGroup={"podGroupName": "h"}),
        ):
            waits = set(self.world.judge(other).values())
            assert waits == {"resource claim default/c is in the process of being allocated"}

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    def test_the_first_that_binds_writes_the_allocation(self, order):
        for at in order:
            assert self.world.bind(self.states[at], self.pods[at], "a").ok
        claim = self.world.written()
        assert claim.status.allocation.devices.results[0].device == "d0"
        assert [c.name for c in claim.status.reserved_for] == [self.pods[at].name for at in order]
        assert self.world.tracker.in_flight("uid-of-c") is None
        assert self.world.in_use() == {"a/d0"}

    def test_it_is_given_up_with_the_last_pod(self):
        self.world.plugin.unreserve(self.states[0], self.pods[0], "a")
        assert self.world.in_use() == {"a/d0"}
        assert self.world.bind(self.states[1], self.pods[1], "a").ok
        self.world.plugin.unreserve(self.states[1], self.pods[1], "a")
        assert self.world.tracker.in_flight("uid-of-c") is None

    def test_not_with_other_devices(self):
        self.world.effects.resource_claims.store(a_claim(status=allocated("b", "d0"), version="9"))
        status = self.world.bind(self.states[0], self.pods[0], "a")
        assert "got allocated elsewhere in the meantime" in status.message


class TestBinding:
    def setup_method(self):
        self.world = Devices(a_slice("a", "d0"), a_claim("c"))
        self.pod = using("c")
        self.claims = self.world.effects.resource_claims

    def test_finalizer_first_then_allocation_and_reservation(self):
        state = self.world.decide(self.pod, "a")
        assert self.world.plugin.pre_bind_pre_flight(state, self.pod, "a").ok
        assert self.world.bind(state, self.pod, "a").ok
        assert self.claims.calls == [("patch", "default/c"), ("patch status", "default/c")]
        claim = self.world.written()
        assert claim.metadata.finalizers == (FINALIZER,)
        assert claim.status.allocation.devices.results[0].device == "d0"
        assert claim.status.allocation.allocation_timestamp == "2023-11-14T22:13:20Z"
        (consumer,) = claim.status.reserved_for
        assert (consumer.api_group, consumer.resource) == ("", "pods")
        assert (consumer.name, consumer.uid) == ("pod", self.pod.uid)

    def test_what_was_written_counts_before_the_watch_shows_it(self):
        state = self.world.decide(self.pod, "a")
        self.world.bind(state, self.pod, "a")
        assert not self.world.tracker.in_flight("uid-of-c")
        assert self.world.in_use() == {"a/d0"}
        self.world.plugin.unreserve(state, self.pod, "a")
        assert self.world.in_use() == {"a/d0"}
        self.world.effects.show()
        assert self.world.in_use() == {"a/d0"}

    def test_a_second_pod_is_added_to_the_consumers(self):
        self.world.bind(self.world.decide(self.pod, "a"), self.pod, "a")
        other = using("c", name="other")
        assert self.world.bind(self.world.decide(other, "a"), other, "a").ok
        assert [c.name for c in self.world.written().status.reserved_for] == ["pod", "other"]
        assert len(self.claims.calls) == 3

    def test_nothing_is_written_for_a_claim_that_is_reserved_already(self):
        status = allocated("a", "d0", reserved=[self.pod.uid])
        self.world.cluster.store(a_claim(status=status, version="6"))
        assert self.world.bind(self.world.decide(self.pod, "a"), self.pod, "a").ok
        assert self.claims.calls == []

    def test_a_claim_that_changed_meanwhile_is_read_again(self):
        state = self.world.decide(self.pod, "a")
        self.claims.store(a_claim("c", version="900", annotations={"by": "somebody"}))
        assert self.world.bind(state, self.pod, "a").ok
        assert self.world.written().annotations == {"by": "somebody"}

    @pytest.mark.parametrize(
        ("fields", "text"),
        [
            ({"status": allocated("b", "d0")}, "got allocated elsewhere in the meantime"),
            ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, "got deleted in the meantime"),
        ],
    )
    def test_not_if_it_is_somebody_else_s_by_now(self, fields, text):
        state = self.world.decide(self.pod, "a")
        self.claims.store(a_claim("c", version="900", **fields))
        status = self.world.bind(state, self.pod, "a")
        assert (status.code, status.message) == (Code.Error, f"claim default/c {text}")
        self.world.undo(state, self.pod, "a")
        assert "a/d0" not in self.world.in_use()

    def test_not_if_it_was_deallocated(self):
        self.world.cluster.store(a_claim(status=allocated("a", "d0"), version="6"))
        state = self.world.decide(self.pod, "a")
        self.claims.store(a_claim("c", version="900"))
        assert self.world.bind(state, self.pod, "a").message == (
            "claim default/c got deallocated elsewhere in the meantime"
        )

    def test_not_if_it_has_other_devices_by_now(self):
        self.world.cluster.store(a_claim("c", status=allocated("a", "d0")))
        state = self.world.decide(self.pod, "a")
        elsewhere = a_claim("c", version="900", status=allocated("b", "d0", reserved=["x"]))
        self.claims.store(elsewhere)
        assert self.world.bind(state, self.pod, "a").message == (
            "claim default/c got allocated elsewhere in the meantime"
        )
        assert self.world.written() is elsewhere

    def test_conflicts_come_to_an_end(self):
        state, conflict = self.world.decide(self.pod, "a"), ConflictError("changed")

        async def never(*_args, **_kwargs):
            raise conflict

        self.claims.add_finalizer = never
        status = self.world.bind(state, self.pod, "a")
        assert status.message == "add finalizer to claim default/c: changed"
        assert self.world.in_use() == {"a/d0"}
        self.world.undo(state, self.pod, "a")
        assert self.world.in_use() == set()

    def test_an_allocation_whose_answer_was_lost_is_looked_up(self):
        state, patch = self.world.decide(self.pod, "a"), self.claims.patch

        async def lose(claim, changes, *, status=False):
            written = await patch(claim, changes, status=status)
            if status:
                raise SchedulingError("connection reset")
            return written

        self.claims.patch = lose
        status = self.world.bind(state, self.pod, "a")
        said = "add allocation and reservation to claim default/c: connection reset"
        assert status.message == said
        assert self.world.in_use() == {"a/d0"}
        self.world.undo(state, self.pod, "a")
        assert not self.world.tracker.in_flight("uid-of-c")
        assert self.world.in_use() == {"a/d0"}
        assert self.world.written().status.reserved_for == ()
        assert self.world.judge(self.pod) == {"b": AWAY, "c": AWAY}

    def test_a_claim_that_is_gone(self):
        state = self.world.decide(self.pod, "a")
        self.claims.objects.clear()
        assert self.world.bind(state, self.pod, "a").message == (
            'add finalizer to claim default/c: resourceclaims.resource.k8s.io "c" not found'
        )

    def test_taken_back_the_claim_keeps_its_devices_but_not_the_pod(self):
        state = self.world.decide(self.pod, "a")
        self.world.bind(state, self.pod, "a")
        self.world.undo(state, self.pod, "a")
        assert self.claims.calls[2:] == [("patch status", "default/c")]
        assert self.world.written().status.reserved_for == ()
        assert self.world.judge(self.pod) == {"b": AWAY, "c": AWAY}

    @pytest.mark.parametrize("done", [True, False])
    def test_it_is_known_whether_the_reservation_was_taken_back(self, done):
        """If a late write removed it, the pod's next attempt would rely on a reservation that is gone."""
        state, patch, failures = self.world.decide(self.pod, "a"), self.claims.patch, []

        async def lose(claim, changes, *, status=False):
            if failures:
                return await patch(claim, changes, status=status)
            failures.append(claim)
            if done:
                await patch(claim, changes, status=status)
            raise SchedulingError("connection reset")

        self.world.bind(state, self.pod, "a")
        self.claims.patch = lose
        self.world.undo(state, self.pod, "a")
        assert failures
        assert self.world.written().status.reserved_for == ()
        known = self.world.tracker.claims.get("c", "default")
        assert known.status.reserved_for == ()

    def test_a_reservation_that_cannot_be_taken_back(self):
        state, refused = self.world.decide(self.pod, "a"), []

        async def refuse(*_args, **_kwargs):
            refused.append(1)
            raise SchedulingError("forbidden")

        self.world.bind(state, self.pod, "a")
        self.claims.patch = refuse
        with pytest.raises(SchedulingError, match="forbidden"):
            self.world.undo(state, self.pod, "a")
        assert len(refused) == 5

    def test_a_reservation_that_comes_back_each_time(self):
        state, patches, sleeps = self.world.decide(self.pod, "a"), [], []

        async def change_nothing(claim, _changes, *, status=False):
            patches.append(status)
            return claim

        async def sleep(seconds):
            sleeps.append(seconds)

        self.world.bind(state, self.pod, "a")
        self.claims.patch, self.world.effects.sleep = change_nothing, sleep
        with pytest.raises(SchedulingError, match="claim default/c is still reserved for pod"):
            self.world.undo(state, self.pod, "a")
        assert (len(patches), len(sleeps)) == (5, 4)

    def test_nothing_to_take_back_before_anything_was_written(self):
        state = self.world.decide(self.pod, "a")
        self.world.undo(state, self.pod, "a")
        assert self.claims.calls == []
        assert self.world.in_use() == set()


class Nowhere:
    """Rejects some nodes, before DynamicResources has its turn."""

    NAME = "Nowhere"

    def __init__(self, *rows):
        self.rows = rows

    def filter(self, state, pod, view):
        return reject(np.isin(view.rows, self.rows), Code.UnschedulableAndUnresolvable, "nowhere")


class TestDeallocation:
    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            ((), "deallocation of ResourceClaim completed"),
            ((1,), "deallocation of ResourceClaim completed"),
            ((1, 2), "still not schedulable"),
            ((0, 1, 2), "still not schedulable"),
        ],
    )
    def test_only_for_nodes_that_are_in_question(self, rows, message):
        world, pod = Devices(a_claim(status=allocated("a", "d0"))), using("c")
        plugin = world.plugin
        first = Nowhere(*rows)
        plugins = {"preFilter": [plugin], "filter": [first, plugin], "postFilter": [plugin]}
        framework = Framework("default", ProfilePlugins(plugins, {}), world.cluster.handle.table)
        memo = framework.memo(pod)
        state = CycleState(memo.local.state)
        framework.filter(state, pod, memo, NO_PODS)
        assert world.after(state, pod) == unschedulable(message)

    def after(self, world, pod):
        status = world.after(world.find(pod), pod)
        assert status.code is Code.Unschedulable
        return status.message

    def test_frees_a_claim_that_nobody_else_uses(self):
        pod = using("c", "d")
        for reserved in ([], [pod.uid]):
            world = Devices(
                a_slice("a", "d0"),
                a_slice("b", "d0"),
                a_claim("c", status=allocated("a", "d0", reserved=reserved)),
                a_claim("d", status=allocated("b", "d0", reserved=["another"])),
            )
            assert self.after(world, pod) == "deallocation of ResourceClaim completed"
            assert world.written("c").status.allocation is None
            assert world.written("c").status.reserved_for is None
            assert world.in_use() == {"b/d0"}

    def test_leaves_a_claim_that_others_use(self):
        status = allocated("x", "d0", reserved=["another", "uid-of-default-pod"])
        world = Devices(a_claim("c", status=status))
        assert self.after(world, using("c")) == "still not schedulable"

    def test_leaves_claims_that_were_not_in_the_way(self):
        world = Devices(a_claim("c"))
        assert self.after(world, using("c")) == "still not schedulable"

    def test_fails_if_the_claim_has_changed(self):
        world = Devices(a_claim("c", status=allocated("x", "d0")))
        state = world.find(using("c"))
        world.effects.resource_claims.store(a_claim("c", version="900"))
        assert world.after(state, using("c")).code is Code.Error

    @pytest.mark.parametrize("done", [True, False])
    @pytest.mark.parametrize("shown", ["never", "before the next attempt", "during it"])
    def test_no_pod_is_bound_by_a_reservation_that_a_lost_deallocation_removed(self, done, shown):
        pod = using("c")
        claim = a_claim("c", status=allocated("a", "d0", reserved=[pod.uid]))
        world = Devices(a_slice("a", "d0"), claim)
        claims = world.effects.resource_claims
        patch = claims.patch

        async def lose(claim, changes, *, status=False):
            if done:
                await patch(claim, changes, status=status)
            raise SchedulingError("connection reset")

        claims.patch = lose
        status = world.after(world.find(pod), pod)
        assert (status.code, status.message) == (Code.Error, "connection reset")
        claims.patch = patch
        if shown == "before the next attempt":
            world.effects.show()
        state = world.decide(pod, "a")
        if shown == "during it":
            world.effects.show()
        bound = world.bind(state, pod, "a")
        consumers = [each.uid for each in world.written().status.reserved_for or ()]
        assert bound.ok is (consumers == [pod.uid])
        if shown == "before the next attempt" or not done:
            assert bound.ok
        else:
            assert bound.message == "claim default/c got deallocated elsewhere in the meantime"
            world.undo(state, pod, "a")
            world.effects.show()
            assert world.in_use() == set()
            assert world.bind(world.decide(pod, "a"), pod, "a").ok

    def test_nor_to_a_node_that_the_devices_of_a_looked_up_claim_are_not_on(self):
        pod = using("c")
        world = Devices(
            a_claim("c", status=allocated("a", "d0", reserved=[pod.uid])), a_slice("a", "d0")
        )
        state = world.find(pod)
        elsewhere = a_claim("c", version="900", status=allocated("b", "d0", reserved=["x"]))
        world.effects.resource_claims.store(elsewhere)
        assert world.after(state, pod).code is Code.Error
        assert world.bind(world.decide(pod, "a"), pod, "a").message == (
            "claim default/c got allocated elsewhere in the meantime"
        )
        assert world.written() is elsewhere


def condition(kind, status="True"):
    return {"type": kind, "status": status, "reason": "Because", "message": "so it is"}


class TestBindingConditions:
    NEEDS = {"bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]}  # noqa: RUF012

    def waiting(self, *conditions, timestamp="2023-11-14T22:13:20Z"):
        status = allocated("a", "d0", timestamp=timestamp, **self.NEEDS)
        device = {"driver": "gpu.example.com", "pool": "a", "device": "d0"}
        if conditions:
            status["devices"] = [device | {"conditions": list(conditions)}]
        return status

    def world(self, *conditions, timeout=60.0, **fields):
        world = Devices(
            a_slice("a", {"name": "d0", **self.NEEDS}),
            a_claim(status=self.waiting(*conditions, **fields)),
            args=DynamicResourcesArgs(binding_timeout=timeout),
        )
        return world, using("c")

    def test_the_pod_waits_until_they_hold(self):
        world, pod = self.world()
        state = world.decide(pod, "a")
        naps = []

        async def nap(seconds):
            naps.append(seconds)
            if len(naps) == 3:
                status = self.waiting(condition("Ready"))
                world.cluster.store(a_claim(status=status, version="5000"))

        world.effects.sleep = nap
        assert world.bind(state, pod, "a").ok
        assert naps == [5.0, 5.0, 5.0]
        assert [(reason, note) for _, reason, note in world.effects.events] == [
            ("BindingConditionsPending", "waiting for binding conditions for device on node a")
        ]
        assert world.plugin.conditions_awaited == {("gpu.example.com", "success"): 1}

    def test_a_failure_ends_the_wait(self):
        world, pod = self.world()
        state = world.decide(pod, "a")
        failed = self.waiting(condition("Broken"), condition("Ready"))
        world.cluster.store(a_claim(status=failed, version="5000"))
        assert world.bind(state, pod, "a").message == (
            'device binding failed: claim=c, reason=Because, message="so it is"'
        )
        assert world.plugin.conditions_awaited == {("gpu.example.com", "failure"): 1}

    def test_the_wait_has_an_end(self):
        world, pod = self.world(timestamp="2023-11-14T22:13:30Z")
        state = world.decide(pod, "a")
        status = world.bind(state, pod, "a")
        assert status.message == "device binding timeout: context deadline exceeded"
        assert world.plugin.conditions_awaited == {("gpu.example.com", "timeout"): 1}

    @pytest.mark.parametrize(("timeout", "looks"), [(60.0, 12), (12.0, 3)])
    def test_there_is_no_look_at_the_last_moment(self, timeout, looks):
        world, pod = self.world(timeout=timeout)
        state = world.decide(pod, "a")
        naps = []

        async def nap(seconds):
            naps.append(seconds)
            if len(naps) == looks:
                status = self.waiting(condition("Ready"))
                world.cluster.store(a_claim(status=status, version="5000"))

        world.effects.sleep = nap
        status = world.bind(state, pod, "a")
        assert status.message == "device binding timeout: context deadline exceeded"
        assert sum(naps) == timeout

    def test_the_end_counts_from_the_allocation(self):
        world, pod = self.world(timestamp="2023-11-14T22:12:30Z")
        state = world.decide(pod, "a")
        assert world.bind(state, pod, "a").message == "device binding timeout: claim=c"

    @pytest.mark.parametrize(
        ("conditions", "seconds", "fits"),
        [
            ((), 59.0, True),
            ((), 61.0, False),
            ((condition("Ready"),), 61.0, True),
            ((condition("Ready", "False"),), 61.0, False),
            ((condition("Broken"),), 0.0, False),
            ((condition("Broken", "False"),), 0.0, True),
        ],
    )
    def test_what_failed_or_took_too_long_is_freed(self, conditions, seconds, fits):
        world, pod = self.world(*conditions)
        world.clock.now += seconds
        said = world.judge(pod)
        assert said == {"b": AWAY, "c": AWAY} | ({} if fits else {"a": AWAY})
        if not fits:
            status = world.after(world.find(pod), pod)
            assert status.message == "deallocation of ResourceClaim completed"

    def test_without_conditions_nobody_waits(self):
        world = Devices(a_slice("a", "d0"), a_claim("c"))
        pod = using("c")
        assert world.bind(world.decide(pod, "a"), pod, "a").ok
        assert world.effects.events == []
