"""DynamicResources: which pods wait, which nodes are feasible, decisions and queueing hints."""

import msgspec
import numpy as np
import pytest

from app.framework.diagnosis import Diagnosis
from app.framework.interface import CycleState
from app.framework.profile import ProfilePlugins
from app.framework.runner import Framework
from app.framework.testing import FakeCluster, make_node, make_pod
from app.model import devices
from app.model.objects import PodResourceClaimStatus
from app.model.status import SKIP, Code, SchedulingError
from app.plugins.dynamic_resources import DynamicResources
from app.plugins.dynamic_resources.budget import TURN_SECONDS, Budget
from app.state.view import View
from app.wire.kube import decoder_for
from tests.core.framework.coroutines import finish
from tests.core.plugins.claim_world import (
    Clock,
    Devices,
    a_claim,
    a_class,
    a_slice,
    allocated,
    exactly,
    using,
)

CANNOT = "cannot allocate all claims"
AWAY = "resourceclaim not available on the node"


def from_template(claim="pod-e-x", owner="uid-of-default-pod"):
    """A pod whose claim was made from a template, and the claim as it was made for ``owner``."""
    pod = make_pod(
        spec={"resourceClaims": [{"name": "e", "resourceClaimTemplateName": "gpus"}]},
    )
    made = msgspec.structs.replace(pod, claim_statuses=(PodResourceClaimStatus("e", claim),))
    reference = {"kind": "Pod", "name": "pod", "uid": owner, "controller": True}
    return pod, made, a_claim("pod-e-x", ownerReferences=[reference])


def deeply_nested(obj):
    """The object as it is read with parameters of 100,000 levels."""
    deep = msgspec.Raw(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    fields = msgspec.to_builtins(obj)
    devices_of = fields["spec"].get("devices", fields["spec"])
    devices_of["config"][0]["opaque"]["parameters"] = deep
    return decoder_for(type(obj)).decode(msgspec.json.encode(fields))


class TestPodsWithoutClaims:
    def test_cost_nothing_and_score_nothing(self):
        world = Devices()
        assert world.judge(make_pod()) == {}
        assert world.plugin.pre_filter(CycleState(), make_pod()) == SKIP
        assert world.cluster.score(world.plugin, make_pod()) == {"a": 0, "b": 0, "c": 0}
        world.cluster.check(world.plugin, make_pod())

    def test_the_score_is_shown(self):
        cluster = FakeCluster(make_node("a"), make_node("b"))
        plugin, table, pod = (
            DynamicResources(None, cluster.handle),
            cluster.handle.table,
            make_pod(),
        )
        plugins = ProfilePlugins({"score": [plugin]}, {plugin.NAME: 2})
        framework = Framework("default-scheduler", plugins, table)
        memo = framework.memo(pod)
        shown = framework.scoring.plugin_scores(
            CycleState(memo.local.state), pod, memo, View.everything(table)
        )
        assert list(shown) == ["DynamicResources"]
        assert np.array_equal(shown["DynamicResources"], [0, 0])

    def test_words_after_a_failed_attempt(self):
        plugin, state, pod = DynamicResources(None, FakeCluster().handle), CycleState(), make_pod()

        def after():
            result = finish(plugin.post_filter(state, pod, Diagnosis(node_count=2), None))
            return result.status.code, result.status.message

        assert after() == (Code.Error, "not found")
        plugin.pre_filter(state, pod)
        assert after() == (Code.Unschedulable, "no new claims to deallocate")


class TestPodsThatWait:
    def gate(self, world, pod):
        status = world.plugin.pre_enqueue(pod)
        assert status.ok or status.code is Code.UnschedulableAndUnresolvable
        return status.message

    def test_until_their_claim_is_there(self):
        world = Devices()
        assert self.gate(world, make_pod()) == ""
        assert self.gate(world, using("c")) == 'could not find ResourceClaim "default/c"'
        world.cluster.store(a_claim())
        assert self.gate(world, using("c")) == ""

    def test_while_their_claim_goes(self):
        world = Devices(a_claim(deletionTimestamp="2026-01-01T00:00:00Z"))
        assert self.gate(world, using("c")) == 'resourceclaim "c" is being deleted'

    def test_until_a_claim_is_made_from_the_template(self):
        pod, made, claim = from_template()
        world = Devices(claim)
        assert self.gate(world, pod) == 'pod "default/pod": ResourceClaim not created yet'
        assert self.gate(world, made) == ""

    def test_if_the_claim_was_made_for_another_pod(self):
        _, made, claim = from_template(owner="another")
        assert self.gate(Devices(claim), made) == (
            "ResourceClaim default/pod-e-x was not created for Pod default/pod (Pod is not owner)"
        )

    def test_not_where_no_claim_is_needed(self):
        _, none, _ = from_template(claim=None)
        world = Devices(a_slice("a", "d0"))
        assert self.gate(world, none) == ""
        assert world.judge(none) == {}
        assert world.plugin.pre_filter(CycleState(), none) == SKIP

    def test_if_an_entry_names_neither(self):
        pod = make_pod(spec={"resourceClaims": [{"name": "e"}]})
        assert self.gate(Devices(), pod) == (
            'pod "default/pod", spec.resourceClaim "e": none of the supported fields are set'
        )

    def test_siblings_have_claims_of_their_own(self):
        """Pods of one template are told apart by their status alone."""
        _, first, claim = from_template()
        second = msgspec.structs.replace(first, claim_statuses=(PodResourceClaimStatus("e", "x"),))
        assert first.template is second.template
        world = Devices(claim, a_slice("a", "d0"))
        assert world.judge(first) == {"b": CANNOT, "c": CANNOT}
        assert set(world.judge(second).values()) == {'could not find ResourceClaim "default/x"'}


class TestNodes:
    def test_need_the_devices(self):
        world = Devices(
            a_slice("a", "d0", "d1"), a_slice("b", "d0"), a_claim("c", exactly(count=2))
        )
        assert world.judge(using("c")) == {"b": CANNOT, "c": CANNOT}
        world.cluster.check(world.plugin, using("c"), make_pod())

    def test_several_claims_share_what_there_is(self):
        world = Devices(a_slice("a", "d0", "d1"), a_slice("b", "d0"), a_claim("c"), a_claim("d"))
        assert world.judge(using("c", "d")) == {"b": CANNOT, "c": CANNOT}
        assert world.judge(using("c", "c")) == {"c": CANNOT}

    def test_must_reach_what_is_allocated(self):
        world = Devices(a_slice("b", "d0"), a_claim(status=allocated("b", "d0")))
        assert world.judge(using("c")) == {"a": AWAY, "c": AWAY}

    def test_what_one_claim_has_no_other_gets(self):
        world = Devices(
            a_slice("a", "d0"), a_claim("c"), a_claim("other", status=allocated("a", "d0"))
        )
        assert set(world.judge(using("c"))) == {"a", "b", "c"}

    @pytest.mark.parametrize(
        ("request_", "reason"),
        [
            (exactly(device_class="tpu"), "request r: device class tpu does not exist"),
            (
                {"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "tpu"}]},
                "request r/s: device class tpu does not exist",
            ),
            ({"name": "r"}, "resource claim default/c, request r: unknown request type"),
        ],
    )
    def test_requests_that_nothing_can_serve(self, request_, reason):
        world = Devices(a_claim("c", request_))
        assert set(world.judge(using("c")).values()) == {reason}

    def test_a_search_that_takes_too_long_fails_the_attempt(self):
        world = Devices(a_slice("a", *(f"d{n}" for n in range(8))), a_claim("c", exactly(count=9)))
        world.clock.monotonic = iter(range(0, 10**9, 3)).__next__
        with pytest.raises(SchedulingError, match="timed out trying to allocate devices"):
            world.judge(using("c"))

    def test_a_wrong_selector_fails_the_attempt(self):
        broken = exactly(selectors=[{"cel": {"expression": "device.driver =="}}])
        world = Devices(a_slice("a", "d0"), a_claim("c", broken))
        with pytest.raises(SchedulingError):
            world.judge(using("c"))

    def test_the_earlier_alternative_scores_more(self):
        request = {
            "name": "r",
            "firstAvailable": [
                {"name": name, "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": n}
                for name, n in (("two", 2), ("one", 1))
            ],
        }
        world = Devices(a_slice("a", "d0"), a_slice("b", "d0", "d1"), a_claim("c", request))
        assert world.cluster.score(world.plugin, using("c")) == {"a": 87, "b": 100}


class TestBudget:
    def test_time_counts_between_start_and_stop(self):
        clock = Clock()
        budget = Budget(clock, 1.0)
        for _ in range(2):
            clock.seconds += 5
            budget.start()
            clock.seconds += 0.4 * TURN_SECONDS
            assert not budget.expired()
            budget.stop()
        budget.start()
        clock.seconds += 0.4 * TURN_SECONDS
        assert budget.expired()

    @pytest.mark.parametrize(("timeout", "limit"), [(0.0, 2.0), (10.0, 2.0), (0.5, 0.5)])
    def test_a_search_is_limited_in_any_case(self, timeout, limit):
        assert Budget(Clock(), timeout).limit == limit


class TestDecisions:
    def test_two_in_a_row_see_each_other(self):
        world = Devices(a_slice("a", "d0", "d1"), a_claim("c"), a_claim("d"), a_claim("e"))
        first = world.decide(using("c", name="p"), "a")
        world.decide(using("d", name="q"), "a")
        assert world.in_use() == {"a/d0", "a/d1"}
        assert set(world.judge(using("e"))) == {"a", "b", "c"}
        world.plugin.unreserve(first, using("c", name="p"), "a")
        assert world.judge(using("e")) == {"b": CANNOT, "c": CANNOT}

    def test_of_one_profile_bind_the_others(self):
        world = Devices(a_slice("a", "d0"), a_claim("c"), a_claim("d"))
        other = DynamicResources(None, world.cluster.handle)
        world.decide(using("c"), "a")
        assert set(world.cluster.judge(other, using("d"))) == {"a", "b", "c"}

    def test_a_claim_in_flight_is_waited_for(self):
        world = Devices(a_slice("a", "d0"), a_claim("c"))
        world.decide(using("c", name="p"), "a")
        said = "resource claim default/c is in the process of being allocated"
        assert set(world.judge(using("c", name="q")).values()) == {said}

    def test_what_another_pod_has_reserved_is_not_given_back(self):
        world = Devices(a_slice("a", "d0"), a_claim("c"))
        pod, other = using("c", name="p"), using("c", name="q")
        state = world.decide(pod, "a")
        world.plugin.unreserve(state, pod, "a")
        world.decide(other, "a")
        world.plugin.unreserve(state, pod, "a")
        assert world.in_use() == {"a/d0"}

    @pytest.mark.parametrize("of_class", [True, False])
    def test_a_driver_does_not_get_other_parameters_than_it_was_to_get(self, of_class):
        """Those that are nested too deeply are emptied as they are read."""
        config = (devices.DeviceConfiguration(opaque=devices.OpaqueConfiguration("d")),)
        device_class, claim = a_class(), a_claim()
        if of_class:
            spec = msgspec.structs.replace(device_class.spec, config=config)
            device_class = deeply_nested(msgspec.structs.replace(device_class, spec=spec))
        else:
            asked = msgspec.structs.replace(claim.spec.devices, config=config)
            spec = msgspec.structs.replace(claim.spec, devices=asked)
            claim = deeply_nested(msgspec.structs.replace(claim, spec=spec))
        world = Devices(a_slice("a", "d0"), claim, device_class)
        pod = using("c")
        status = world.plugin.reserve(world.find(pod), pod, "a")
        assert (status.code, status.message) == (
            Code.Error,
            "parameters of devices are nested too deeply",
        )
        assert not world.in_use()

    def test_nothing_to_reserve_for_what_is_allocated(self):
        world = Devices(a_slice("a", "d0"), a_claim(status=allocated("a", "d0")))
        world.decide(using("c"), "a")
        assert world.in_use() == {"a/d0"}


class TestHints:
    def setup_method(self):
        self.world = Devices(a_claim("c"), a_claim("d"))
        self.pod = using("c")

    def wakes(self, old, new, pod=None):
        return self.world.cluster.wakes(self.world.plugin, pod or self.pod, old=old, new=new)

    def test_claims_of_the_pod(self):
        assert self.wakes(None, a_claim("c"))
        assert not self.wakes(None, a_claim("d"))
        assert self.wakes(a_claim("c"), a_claim("c", status=allocated("a", "d0")))
        assert not self.wakes(a_claim("c"), a_claim("c", finalizers=["f"]))
        assert not self.wakes(a_claim("d"), a_claim("d", status=allocated("a", "d0")))

    def test_devices_that_are_freed(self):
        assert self.wakes(a_claim("d", status=allocated("a", "d0")), a_claim("d"))

    def test_not_while_the_pod_lacks_a_claim(self):
        pod = using("c", "missing")
        assert not self.wakes(None, a_claim("c"), pod)
        assert not self.wakes(a_claim("d", status=allocated("a", "d0")), a_claim("d"), pod)

    def test_claims_named_in_the_pod_s_status(self):
        pod, made, claim = from_template()
        assert not self.wakes(pod, made, pod)
        self.world.cluster.store(claim)
        assert self.wakes(pod, made, pod)
        assert not self.wakes(pod, made, using("c", name="another"))

    def test_devices_in_flight_that_are_released(self):
        unbound = using("d", name="another").on("a")
        assert self.wakes(unbound, None)
        assert not self.wakes(using(name="another").on("a"), None)
        self.world.cluster.store(a_claim("d", status=allocated("a", "d0")))
        assert not self.wakes(unbound, None)
        assert not self.wakes(using("missing", name="another").on("a"), None)

    def test_classes_slices_and_nodes(self):
        assert self.wakes(None, a_class("other"))
        assert self.wakes(a_class(), a_class())
        assert self.wakes(None, a_slice("a", "d0"))
        assert self.wakes(a_slice("a", "d0"), a_slice("a", "d0"))
        assert not self.wakes(a_slice("a", "d0"), None)
        assert self.wakes(None, make_node("new"))
        assert self.wakes(make_node("a"), make_node("a", labels={"x": "y"}))
        assert not self.wakes(make_node("a"), make_node("a", annotations={"x": "y"}))
