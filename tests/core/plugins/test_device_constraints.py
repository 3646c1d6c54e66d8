"""Constraints, shared counters and shared devices of claims (KEP-4381, KEP-4815, KEP-5075)."""

import pytest

from app.plugins.dynamic_resources.allocator import (
    AllocationError,
    AllocationFailed,
)
from tests.core.plugins.device_world import (
    COUNTER_SET,
    DISTINCT,
    DRIVER,
    NUMA,
    DeviceWorld,
    asked,
    claim,
    device,
    slice_of,
)

POLICY = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi", "max": "4Gi"}}
MEMORY = {"mem": {"value": "5Gi", "requestPolicy": POLICY}}


class TestConstraints:
    def test_equal_attributes(self):
        world = DeviceWorld(
            slice_of(
                "s", device("d0", numa=0), device("d1", numa=1), device("d2"), device("d3", numa=1)
            )
        )
        assert world.devices(claim(asked(2), constraints=[NUMA])) == ["d1", "d3"]
        assert world.devices(claim(asked(2))) == ["d0", "d1"]

    def test_values_of_other_types_differ(self):
        world = DeviceWorld(
            slice_of("s", device("d0", numa=1), device("d1", numa="1"), device("d2", numa=True))
        )
        assert world.devices(claim(asked(2), constraints=[NUMA])) is None

    def test_of_some_requests(self):
        world = DeviceWorld(
            slice_of("s", device("d0", numa=0), device("d1", numa=1), device("d2", numa=1))
        )
        some = {**NUMA, "requests": ["r1", "r2/a0"]}
        requests = asked(1), asked(1), [asked(1)]
        assert world.devices(claim(*requests, constraints=[some])) == ["d0", "d1", "d2"]

    def test_distinct_attributes(self):
        world = DeviceWorld(
            slice_of("s", device("d0", numa=0), device("d1", numa=0), device("d2", numa=1))
        )
        assert world.devices(claim(asked(1), asked(1), constraints=[DISTINCT])) == ["d0", "d2"]

    def test_a_name_without_a_domain_is_the_drivers_own(self):
        world = DeviceWorld(
            slice_of(
                "s",
                {"name": "d0", "attributes": {f"{DRIVER}/numa": {"int": 1}}},
                device("d1", numa=1),
            ),
            slice_of("t", device("d2", numa=1), driver="other.example.com"),
        )
        assert world.devices(claim(asked(2), constraints=[NUMA])) == ["d0", "d1"]
        assert world.devices(claim(asked(3), constraints=[NUMA])) is None


class TestCounters:
    def part(self, name, amount, **fields):
        consumed = [{"counterSet": "memory", "counters": {"gib": {"value": str(amount)}}}]
        return device(name, consumesCounters=consumed, **fields)

    def world(self, *devices, pool="p"):
        return DeviceWorld(
            slice_of("counters", sharedCounters=COUNTER_SET, count=2),
            slice_of("devices", *devices, count=2, pool=pool),
        )

    def test_no_more_than_there_is(self):
        world = self.world(self.part("d0", 3), self.part("d1", 2), self.part("d2", 1))
        assert world.devices(claim(asked(2))) == ["d0", "d2"]
        assert world.devices(claim(asked(3))) is None

    def test_what_is_in_use_is_consumed(self):
        world = self.world(self.part("d0", 3), self.part("d1", 2), self.part("d2", 1))
        world.use(world.allocate(claim(asked(1))))
        assert world.devices(claim(asked(1))) == ["d2"]

    def test_devices_of_other_nodes_consume_as_well(self):
        world = DeviceWorld(
            slice_of("counters", sharedCounters=COUNTER_SET, count=3),
            slice_of("a", self.part("d0", 3), nodeName="n1", count=3),
            slice_of("b", self.part("d1", 2), nodeName="n2", count=3),
            nodes=("n1", "n2"),
        )
        world.use(world.allocate(claim(asked(1)), on="n1"))
        assert world.devices(claim(asked(1)), on="n2") is None

    def test_pools_of_one_name_share_an_account_whatever_their_driver(self):
        def pools(name, *others):
            there = {"nodeName": name, "count": 2}
            return [
                slice_of(f"{name}-c", sharedCounters=COUNTER_SET, pool=name, **there),
                slice_of(f"{name}-d", self.part("d0", 3), pool=name, **there),
                slice_of(f"{name}-x", self.part("x0", 3), driver="x", pool=others[0], **there),
                slice_of(
                    f"{name}-y", sharedCounters=COUNTER_SET, driver="x", pool=others[0], **there
                ),
            ]

        world = DeviceWorld(*pools("n1", "n1"), *pools("n2", "other"), nodes=("n1", "n2"))
        assert world.search(claim(asked(2))).codes.tolist() == [1, 0]

    def test_a_set_that_does_not_exist_makes_the_pool_invalid(self):
        lost = device(
            "d0", consumesCounters=[{"counterSet": "x", "counters": {"y": {"value": "1"}}}]
        )
        with pytest.raises(AllocationFailed):
            self.world(lost).allocate(claim(asked(1)))

    def test_a_broken_pool_of_counters_concerns_every_node(self):
        world = DeviceWorld(
            slice_of("counters", sharedCounters=COUNTER_SET, nodeName="n1", count=3),
            slice_of("d", self.part("d0", 1), nodeName="n1", count=3),
            nodes=("n1", "n2"),
        )
        with pytest.raises(AllocationError, match="currently being updated"):
            world.allocate(claim(asked(None)), on="n2")


class TestShares:
    def shared(self, name="d0"):
        return device(name, capacity=MEMORY, allowMultipleAllocations=True)

    def wanting(self, amount):
        return asked(1, capacity={"requests": {"mem": amount}})

    def test_shares_have_ids_and_round_up(self):
        world = DeviceWorld(slice_of("s", self.shared()))
        found = world.allocate(claim(self.wanting("1500Mi"), asked(1)))[0].devices.results
        assert [(one.device, one.share_id, one.consumed_capacity) for one in found] == [
            ("d0", "share-1", {"mem": "2Gi"}),
            ("d0", "share-2", {"mem": "1Gi"}),
        ]

    def test_together_no_more_than_there_is(self):
        world = DeviceWorld(slice_of("s", self.shared(), self.shared("d1")))
        world.use(world.allocate(claim(self.wanting("4Gi"))))
        assert world.devices(claim(self.wanting("2Gi"), self.wanting("1Gi"))) == ["d1", "d0"]
        assert world.devices(claim(self.wanting("4Gi"), self.wanting("2Gi"))) is None

    def test_more_than_the_policy_allows_is_not_to_be_had(self):
        world = DeviceWorld(slice_of("s", self.shared()))
        assert world.devices(claim(self.wanting("5Gi"))) is None

    def test_a_capacity_that_the_device_does_not_have(self):
        world = DeviceWorld(slice_of("s", device("d0"), device("d1", capacity={"mem": "8Gi"})))
        assert world.devices(claim(self.wanting("8Gi"))) == ["d1"]
        assert world.devices(claim(self.wanting("9Gi"))) is None

    def test_one_request_gets_devices_not_shares(self):
        world = DeviceWorld(slice_of("s", self.shared()))
        assert world.devices(claim(asked(2))) is None
