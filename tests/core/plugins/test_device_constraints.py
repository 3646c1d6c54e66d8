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
    device_class,
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


class TestRulesOf137:
    """What Kubernetes 1.37 changes (docs/spec/kubernetes-1.37.md)."""

    def part(self, name, amount, **fields):
        consumed = [{"counterSet": "memory", "counters": {"gib": {"value": str(amount)}}}]
        return device(name, consumesCounters=consumed, **fields)

    def world(self, *devices, version="1.37"):
        counters = slice_of("counters", sharedCounters=COUNTER_SET, count=2)
        return DeviceWorld(counters, slice_of("devices", *devices, count=2), version=version)

    def found(self, *requests, devices, version, **claimed):
        return self.world(*devices, version=version).devices(claim(*requests, **claimed))

    @pytest.mark.parametrize(("version", "found"), [("1.36", [1]), ("1.37", [0])])
    def test_drivers_with_a_pool_of_one_name_have_counters_of_their_own(self, version, found):
        there = {"pool": "p", "count": 2}
        pools = [
            one
            for driver in (DRIVER, "x")
            for one in (
                slice_of(f"{driver}-c", sharedCounters=COUNTER_SET, driver=driver, **there),
                slice_of(f"{driver}-d", self.part("d0", 3), driver=driver, **there),
            )
        ]
        world = DeviceWorld(*pools, version=version)
        assert world.search(claim(asked(2))).codes.tolist() == found

    @pytest.mark.parametrize(("version", "found"), [("1.36", None), ("1.37", ["d1", "d2"])])
    def test_a_device_that_a_taint_forbids_gives_its_counters_back(self, version, found):
        taint = {"key": "k", "effect": "NoSchedule"}
        devices = self.part("d0", 2, taints=[taint]), self.part("d1", 2), self.part("d2", 2)
        assert self.found(asked(2), devices=devices, version=version) == found

    @pytest.mark.parametrize(("version", "found"), [("1.36", None), ("1.37", ["d1", "d2"])])
    def test_a_device_that_a_constraint_forbids_gives_its_counters_back(self, version, found):
        devices = self.part("d0", 1), self.part("d1", 2, numa=1), self.part("d2", 2, numa=1)
        constrained = {"constraints": [NUMA]}
        assert self.found(asked(2), devices=devices, version=version, **constrained) == found

    @pytest.mark.parametrize(("version", "found"), [("1.36", None), ("1.37", ["d1", "d2"])])
    def test_a_shared_device_that_is_given_up_gives_its_counters_back(self, version, found):
        """The first request takes the shared device, and the second one lacks its counters; then it takes another
        one."""
        shared = self.part("d0", 3, allowMultipleAllocations=True)
        devices = shared, self.part("d1", 1), self.part("d2", 2, kind="b")
        second = asked(1, f'device.attributes["{DRIVER}"].?kind.orValue("") == "b"')
        assert self.found(asked(1), second, devices=devices, version=version) == found

    @pytest.mark.parametrize(("version", "found"), [("1.36", None), ("1.37", ["d0", "d0"])])
    def test_shares_of_a_device_without_capacities_take_the_counters_once(self, version, found):
        world = self.world(self.part("d0", 3, allowMultipleAllocations=True), version=version)
        world.use(world.allocate(claim(asked(1))))
        assert world.devices(claim(asked(1), asked(1))) == found

    @pytest.mark.parametrize(
        ("version", "used", "found"),
        [("1.36", "1", ["d1"]), ("1.37", "1", None), ("1.37", "0", ["d0", "d1"])],
    )
    def test_all_devices_are_all_that_could_serve_an_empty_cluster(self, version, used, found):
        """One without the capacity, or with too little of it when nothing is in use, does not count."""
        slots = [
            device(f"d{n}", allowMultipleAllocations=True, capacity={"slots": "2"})
            for n in range(2)
        ]
        small = device("d2", allowMultipleAllocations=True, capacity={"slots": "1"})
        world = DeviceWorld(slice_of("s", *slots, small, device("d3")), version=version)
        world.use(world.allocate(claim(asked(1, capacity={"requests": {"slots": used}}))))
        every = claim(asked(None, capacity={"requests": {"slots": "2"}}))
        assert world.devices(every) == found

    @pytest.mark.parametrize(
        ("version", "values", "found"),
        [
            ("1.36", (0, 1, 0), ["d0", "d1", "d2"]),
            ("1.37", (0, 1, 0), None),
            ("1.37", (0, 1, 2), ["d0", "d1", "d2"]),
            # Not compared with those that come after one of another type.
            ("1.37", ("0", 1, 1), ["d0", "d1", "d2"]),
        ],
    )
    def test_distinct_attributes_of_one_request(self, version, values, found):
        devices = [device(f"d{n}", numa=value) for n, value in enumerate(values)]
        world = DeviceWorld(slice_of("s", *devices), version=version)
        assert world.devices(claim(asked(3), constraints=[DISTINCT])) == found

    def test_nodes_with_other_types_of_attributes_are_asked_apart(self):
        def numbered(name, *values):
            devices = [device(f"d{n}", numa=value) for n, value in enumerate(values)]
            return slice_of(name, *devices, pool=name, nodeName=name)

        slices = numbered("n1", "0", 1, 1), numbered("n2", 0, 1, 1)
        world = DeviceWorld(*slices, nodes=("n1", "n2"), version="1.37")
        found = world.search(claim(asked(3), constraints=[DISTINCT]))
        assert found.codes.tolist() == [0, 1]

    @pytest.mark.parametrize(
        ("version", "expected"),
        [
            ("1.36", [["r0"], ["r0", "r1"], ["r0", "r1"], ["r0"], None]),
            ("1.37", [["r0"], None, ["r0"], None]),
        ],
    )
    def test_configurations_are_listed_once_and_name_no_requests_if_they_are_for_all(
        self, version, expected
    ):
        opaque = {"opaque": {"driver": DRIVER, "parameters": {}}}
        classes = device_class(config=[opaque]), device_class("other")
        world = DeviceWorld(
            slice_of("s", device("d0"), device("d1")), classes=classes, version=version
        )
        named = [{"requests": each, **opaque} for each in (["r0", "r1"], ["r0"], [])]
        (found,) = world.allocate(claim(asked(1), asked(1, device_class="other"), config=named))
        told = [each.requests and list(each.requests) for each in found.devices.config]
        assert told == expected

    @pytest.mark.parametrize(
        ("version", "where", "hint"),
        [
            ("1.36", "", ""),
            (
                "1.37",
                f" on device {DRIVER}/p/d0",
                ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() "
                "for optional fields",
            ),
        ],
    )
    def test_an_error_of_a_selector_names_the_device(self, version, where, hint):
        missing, wrong = f'device.attributes["{DRIVER}"].x == 1', "1 / 0 == 1"
        told = "CEL runtime error: no such key: x"
        for owner, request, classes in (
            ("claim ns/c", asked(1, missing), ()),
            ("class other", asked(1, device_class="other"), [device_class("other", missing)]),
        ):
            world = DeviceWorld(slice_of("s", device("d0")), classes=classes, version=version)
            with pytest.raises(AllocationError) as raised:
                world.allocate(claim(request))
            assert str(raised.value) == f"{owner}: selector #0{where}: {told}{hint}"
        world = DeviceWorld(slice_of("s", device("d0")), version=version)
        with pytest.raises(AllocationError) as raised:
            world.allocate(claim(asked(1, wrong)))
        assert (
            str(raised.value)
            == f"claim ns/c: selector #0{where}: CEL runtime error: division by zero"
        )
