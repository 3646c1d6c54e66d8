"""Which devices are allocated to claims, in which order, and the AllocationResults (KEP-4381)."""

import itertools

import msgspec
import pytest

from app.model.devices import MAX_RESULTS
from app.model.features import Features
from app.model.status import Unfinished
from app.plugins.dynamic_resources.allocator import (
    ALLOCATED,
    ERROR,
    FAILED,
    TIMED_OUT,
    AllocationError,
    AllocationFailed,
    AllocationTimeout,
)
from tests.core.plugins.device_world import (
    COUNTER_SET,
    DISTINCT,
    DRIVER,
    NUMA,
    DeviceWorld,
    Patience,
    asked,
    claim,
    device,
    device_class,
    node,
    slice_of,
)

IS_A = f'device.attributes["{DRIVER}"].model == "a"'


def json_of(result):
    return msgspec.json.decode(msgspec.json.encode(result))


def config(mark):
    return {"opaque": {"driver": DRIVER, "parameters": {"mark": mark}}}


def marks(result):
    """(source, requests, mark) of the configuration."""
    return [
        (each["source"], each.get("requests"), each["opaque"]["parameters"]["mark"])
        for each in json_of(result)["devices"].get("config", [])
    ]


class TestOrder:
    def test_devices_go_by_pool_then_slice_then_place(self):
        world = DeviceWorld(
            slice_of("z", device("q-z"), pool="q", count=2),
            slice_of("a", device("q-a1"), device("q-a0"), pool="q", count=2),
            slice_of("m", device("p-m"), pool="p"),
            slice_of("other", device("first"), pool="z", driver="a.example.com"),
        )
        assert world.devices(claim(asked(5))) == ["first", "p-m", "q-a1", "q-a0", "q-z"]

    def test_pools_with_binding_conditions_come_last(self):
        world = DeviceWorld(
            slice_of("a", device("slow", bindingConditions=["ready"]), device("slow2"), pool="a"),
            slice_of("b", device("quick"), pool="b"),
        )
        assert world.devices(claim(asked(3))) == ["quick", "slow", "slow2"]

    def test_every_claim_and_request_starts_over(self):
        world = DeviceWorld(
            slice_of("s", device("d0", model="b"), device("d1", model="a"), device("d2", model="b"))
        )
        assert world.devices(claim(asked(1, IS_A), asked(1)), claim(asked(1))) == [
            ["d1", "d0"],
            ["d2"],
        ]

    def test_a_choice_that_leads_nowhere_is_taken_back(self):
        world = DeviceWorld(slice_of("s", device("d0", model="a"), device("d1", model="b")))
        assert world.devices(claim(asked(1), asked(1, IS_A))) == ["d1", "d0"]

    def test_devices_in_use_are_passed_over(self):
        world = DeviceWorld(slice_of("s", device("d0"), device("d1")))
        world.use(world.allocate(claim(asked(1))))
        assert world.devices(claim(asked(1))) == ["d1"]
        world.use(world.allocate(claim(asked(1))))
        assert world.devices(claim(asked(1))) is None


class TestAlternatives:
    def test_the_first_that_can_be_had(self):
        world = DeviceWorld(slice_of("s", device("d0", model="b"), device("d1", model="b")))
        found = world.allocate(claim([asked(1, IS_A), asked(3), asked(2), asked(1)]))
        assert [one.request for one in found[0].devices.results] == ["r0/a2", "r0/a2"]

    def test_one_is_left_if_requests_behind_it_get_nothing(self):
        world = DeviceWorld(slice_of("s", device("d0"), device("d1"), device("d2")))
        found = world.allocate(claim([asked(3), asked(2)], asked(1)))
        assert [one.request for one in found[0].devices.results] == ["r0/a1", "r0/a1", "r1"]

    def test_one_is_left_if_it_makes_too_many_results(self):
        devices = [device(f"d{n}") for n in range(40)]
        world = DeviceWorld(slice_of("s", *devices))
        found = world.allocate(claim([asked(20), asked(4)], [asked(30), asked(20)]))
        requests = [one.request for one in found[0].devices.results]
        assert requests == ["r0/a1"] * 4 + ["r1/a1"] * 20


class TestAll:
    def test_all_means_all_that_selectors_accept(self):
        world = DeviceWorld(
            slice_of("s", device("d0", model="a"), device("d1", model="b"), device("d2", model="a"))
        )
        assert world.devices(claim(asked(None, IS_A))) == ["d0", "d2"]

    def test_one_in_use_is_one_too_few(self):
        world = DeviceWorld(slice_of("s", device("d0"), device("d1")))
        world.use(world.allocate(claim(asked(1))))
        assert world.devices(claim(asked(None))) is None

    def test_none_at_all_will_not_do(self):
        world = DeviceWorld(slice_of("s"))
        assert world.devices(claim(asked(None))) is None

    def test_devices_that_cannot_be_known_are_an_error(self):
        world = DeviceWorld(slice_of("s", device("d0"), count=2))
        with pytest.raises(AllocationError) as caught:
            world.allocate(claim(asked(None)))
        assert str(caught.value) == (
            "claim ns/c, request r0: asks for all devices, but resource pool "
            f"{DRIVER}/p is currently being updated"
        )

    def test_a_device_that_breaks_a_constraint_is_an_error(self):
        world = DeviceWorld(slice_of("s", device("d0", numa=0), device("d1", numa=1)))
        with pytest.raises(
            AllocationError, match=f"cannot add device {DRIVER}/p/d1 because a claim"
        ):
            world.allocate(claim(asked(None), constraints=[{"matchAttribute": f"{DRIVER}/numa"}]))


class TestPools:
    def test_only_the_newest_generation_counts(self):
        world = DeviceWorld(
            slice_of("old", device("old")), slice_of("new", device("new"), generation=2)
        )
        assert world.devices(claim(asked(1))) == ["new"]
        assert world.devices(claim(asked(2))) is None

    def test_nothing_is_taken_from_a_pool_that_is_being_replaced(self):
        world = DeviceWorld(
            slice_of("old", device("old"), nodeName="n1", count=2),
            slice_of("new", device("new"), nodeName="n2", generation=2),
            nodes=("n1", "n2"),
        )
        assert world.devices(claim(asked(1)), on="n1") is None
        assert world.devices(claim(asked(None)), on="n1") is None
        assert world.devices(claim(asked(1)), on="n2") == ["new"]

    def test_a_pool_is_complete_with_slices_of_other_nodes(self):
        world = DeviceWorld(
            slice_of("a", device("a"), nodeName="n1", count=2),
            slice_of("b", device("b"), nodeName="n2", count=2),
            nodes=("n1", "n2"),
        )
        assert world.devices(claim(asked(1)), on="n1") == ["a"]
        assert world.devices(claim(asked(None)), on="n2") == ["b"]

    def test_nothing_is_taken_from_an_incomplete_pool(self):
        world = DeviceWorld(
            slice_of("a", device("a"), count=2), slice_of("b", device("b"), pool="q")
        )
        assert world.devices(claim(asked(1))) == ["b"]
        assert world.devices(claim(asked(2))) is None

    def test_nothing_is_taken_from_an_invalid_pool_and_it_is_said(self):
        twice = slice_of("a", device("a"), device("a"))
        world = DeviceWorld(twice, slice_of("b", device("b"), pool="q"))
        assert world.devices(claim(asked(1))) == ["b"]
        with pytest.raises(AllocationFailed, match="invalid resource pools were encountered"):
            world.allocate(claim(asked(2)))
        with pytest.raises(
            AllocationError, match=r"asks for all devices, but resource pool .* invalid"
        ):
            world.allocate(claim(asked(None)))

    def test_a_change_of_a_slice_is_seen(self):
        world = DeviceWorld(slice_of("s", device("d0")))
        assert world.devices(claim(asked(1))) == ["d0"]
        world.slices.store(slice_of("s", device("d1"), generation=2))
        assert world.devices(claim(asked(1))) == ["d1"]
        world.slices.remove(slice_of("s"))
        assert world.devices(claim(asked(1))) is None


ZONE_A = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    ]
}
RACK = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "Exists"}]}]}
ONLY_N1 = {
    "nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    ]
}


class TestNodes:
    NODES = (node("n1", zone="a", rack="1"), node("n2", zone="a"), node("n3", zone="b"))

    def where(self, *slices):
        world = DeviceWorld(*slices, nodes=self.NODES)
        return [world.devices(claim(asked(1)), on=name) for name in ("n1", "n2", "n3")]

    def test_by_name_selector_or_everywhere(self):
        assert self.where(slice_of("s", device("d"), nodeName="n2")) == [None, ["d"], None]
        assert self.where(slice_of("s", device("d"), nodeSelector=ZONE_A)) == [["d"], ["d"], None]
        assert self.where(slice_of("s", device("d"), allNodes=True)) == [["d"]] * 3

    def test_device_by_device(self):
        devices = (
            device("named", nodeName="n3"),
            device("selected", nodeSelector=ZONE_A),
            device("nowhere"),
        )
        found = self.where(slice_of("s", *devices, perDeviceNodeSelection=True))
        assert found == [["selected"], ["selected"], ["named"]]

    def test_labels_that_change(self):
        world = DeviceWorld(slice_of("s", device("d"), nodeSelector=ZONE_A), nodes=self.NODES)
        assert world.devices(claim(asked(1)), on="n3") is None
        world.table.set_node(node("n3", zone="a"))
        assert world.devices(claim(asked(1)), on="n3") == ["d"]
        world.table.remove_node("n3")
        world.table.set_node(node("n4", zone="b"))
        assert world.devices(claim(asked(1)), on="n4") is None

    def selector(self, *slices, count=1):
        world = DeviceWorld(*slices, nodes=self.NODES)
        return json_of(world.allocate(claim(asked(count)))[0]).get("nodeSelector")

    def test_the_result_names_the_nodes_that_reach_all_devices(self):
        here = slice_of("here", device("x"), pool="x", nodeName="n1")
        zone = slice_of("zone", device("y"), pool="y", nodeSelector=ZONE_A)
        rack = slice_of("rack", device("z"), pool="z", nodeSelector=RACK)
        again = slice_of("again", device("v"), pool="v", nodeSelector=RACK)
        assert self.selector(slice_of("all", device("w"))) is None
        assert self.selector(zone) == ZONE_A
        assert self.selector(zone, here, count=2) == ONLY_N1
        assert self.selector(again, zone, rack, count=3) == {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {"key": "rack", "operator": "Exists"},
                        {"key": "zone", "operator": "In", "values": ["a"]},
                    ]
                }
            ]
        }

    def test_a_device_that_binds_to_its_node_is_tied_to_it(self):
        assert self.selector(slice_of("s", device("d", bindsToNode=True))) == ONLY_N1


class TestAccess:
    def test_admin_access_takes_nothing_and_shares_with_all(self):
        world = DeviceWorld(slice_of("s", device("d0")))
        world.use(world.allocate(claim(asked(1))))
        found = world.allocate(claim(asked(1, adminAccess=True)))
        assert [(one.device, one.admin_access) for one in found[0].devices.results] == [
            ("d0", True)
        ]
        world.use(found)
        assert world.devices(claim(asked(2, adminAccess=True))) is None

    def test_taints_need_to_be_tolerated(self):
        taints = [{"key": "sick", "value": "yes", "effect": "NoSchedule"}]
        advice = [{"key": "old", "effect": "None"}]
        world = DeviceWorld(slice_of("s", device("d0", taints=taints), device("d1", taints=advice)))
        assert world.devices(claim(asked(1))) == ["d1"]
        for tolerated, tolerations in (
            (True, [{"key": "sick", "operator": "Equal", "value": "yes"}]),
            (True, [{"operator": "Exists"}]),
            (True, [{"key": "sick", "operator": "Exists", "effect": "NoSchedule"}]),
            (False, [{"key": "sick", "operator": "Exists", "effect": "NoExecute"}]),
            (False, [{"key": "sick", "operator": "Equal", "value": "no"}]),
            (False, [{"key": "well", "operator": "Exists"}]),
        ):
            found = world.allocate(claim(asked(1, tolerations=tolerations)))[0].devices.results[0]
            assert found.device == ("d0" if tolerated else "d1")
            assert json_of(found)["tolerations"] == tolerations

    def test_binding_conditions_are_copied(self):
        conditions = {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
        world = DeviceWorld(slice_of("s", device("d0", **conditions)))
        found = json_of(world.allocate(claim(asked(1)))[0].devices.results[0])
        assert conditions.items() <= found.items()


class TestConfiguration:
    CLASSES = (device_class(config=[config("class 1"), config("class 2")]), device_class("plain"))

    def test_of_classes_once_and_of_claims_by_request(self):
        world = DeviceWorld(slice_of("s", *map(device, "abcd")), classes=self.CLASSES)
        found = world.allocate(
            claim(
                asked(1),
                [asked(9), asked(1)],
                asked(1, device_class="plain"),
                config=[
                    {"requests": ["r2"], **config("r2")},
                    config("everybody"),
                    {"requests": ["r1/a1", "r0"], **config("two")},
                    {"requests": ["r1/a0"], **config("nobody")},
                ],
            )
        )
        assert marks(found[0]) == [
            ("FromClass", ["r0", "r1/a1"], "class 1"),
            ("FromClass", ["r0", "r1/a1"], "class 2"),
            ("FromClaim", ["r2"], "r2"),
            ("FromClaim", None, "everybody"),
            ("FromClaim", ["r1/a1", "r0"], "two"),
            ("FromClaim", ["r1/a1", "r0"], "two"),
        ]

    def test_claims_have_their_own(self):
        world = DeviceWorld(slice_of("s", *map(device, "ab")), classes=self.CLASSES)
        plain = claim(asked(1, device_class="plain"), name="plain")
        found = world.allocate(claim(asked(1)), plain)
        assert [len(marks(each)) for each in found] == [2, 0]


class TestErrors:
    def error(self, *claims, world=None):
        with pytest.raises(AllocationError) as caught:
            (world or DeviceWorld(slice_of("s", device("d0")))).allocate(*claims)
        return str(caught.value)

    def test_more_devices_than_a_claim_holds(self):
        asking = claim(asked(MAX_RESULTS), [asked(2), asked(1)])
        assert self.error(asking) == (
            "claim ns/c: number of requested devices 33 exceeds the claim limit of 32"
        )
        newer = DeviceWorld(slice_of("s", device("d0")), version="1.37")
        assert self.error(asking, world=newer) == (
            "claim ns/c, request r1: adding 1 devices exceeds the claim limit of 32, "
            "with 32 already accounted for"
        )

    @pytest.mark.parametrize(("mode", "name"), [("ExactCount", "d/p/x"), ("All", "x")])
    def test_an_amount_that_cannot_be_rounded(self, mode, name):
        """The device that is too small is an error only once it is tried."""
        steps = {"default": "1", "validRange": {"min": "1", "step": "2"}}
        most = str(2**63)
        small = {"memory": {"value": "8", "requestPolicy": steps}}
        world = DeviceWorld(slice_of("p", device("x", capacity=small), driver="d"), version="1.37")
        wanted = asked(1, allocationMode=mode, capacity={"requests": {"memory": most}})
        assert self.error(claim(wanted), world=world) == (
            f"claim ns/c, request r0: checking capacity for device {name}: "
            'capacity "memory": capacity request cannot be represented in the device\'s range arithmetic: '
            f"request {most} exceeds MaxInt64"
        )
        older = DeviceWorld(slice_of("p", device("x", capacity=small), driver="d"))
        assert older.allocate(claim(wanted)) is None

    def test_a_class_that_does_not_exist(self):
        assert self.error(claim(asked(1, device_class="x"))) == (
            "claim ns/c, request r0: could not retrieve device class x: "
            'deviceclass.resource.k8s.io "x" not found'
        )

    def test_a_mode_or_a_constraint_of_a_kind_unknown_here(self):
        assert self.error(claim({**asked(1), "allocationMode": "Some"})) == (
            "claim ns/c, request r0: unsupported count mode Some"
        )
        assert self.error(claim(asked(1), constraints=[{}])) == (
            "claim ns/c, constraint #0: empty constraint (unsupported constraint type?)"
        )

    def test_selectors_that_fail(self):
        missing = f'device.attributes["{DRIVER}"].missing == "x"'
        assert self.error(claim(asked(1, missing))) == (
            "claim ns/c: selector #0: CEL runtime error: no such key: missing"
        )
        world = DeviceWorld(
            slice_of("s", device("d0")), classes=[device_class("gpu", "true", missing)]
        )
        assert self.error(claim(asked(1)), world=world) == (
            "class gpu: selector #1: CEL runtime error: no such key: missing"
        )

    def test_selectors_fail_only_on_devices_that_are_looked_at(self):
        world = DeviceWorld(slice_of("s", device("d0", model="a"), device("d1")))
        assert world.devices(claim(asked(1, IS_A))) == ["d0"]
        world.use(world.allocate(claim(asked(1, IS_A))))
        assert self.error(claim(asked(1, IS_A)), world=world).endswith("no such key: model")


class TestTime:
    def test_a_search_that_takes_too_long_is_given_up(self):
        devices = [device(f"d{n}", numa=n) for n in range(24)]
        world = DeviceWorld(slice_of("s", *devices))
        hard = claim(asked(12), asked(12), asked(1), constraints=[DISTINCT])
        with pytest.raises(AllocationTimeout):
            world.allocate(hard, budget=Patience(3))

    @pytest.mark.parametrize(
        "fields",
        [
            {},
            {"allowMultipleAllocations": True, "capacity": {"mem": "8Gi"}},
            {"consumesCounters": [{"counterSet": "memory", "counters": {"gib": {"value": "1m"}}}]},
        ],
        ids=["plain", "shared", "partition"],
    )
    def test_devices_that_are_alike_are_not_tried_in_each_others_place(self, fields):
        devices = [device(f"d{n}", uuid=f"u{n}", **fields) for n in range(24)]
        counters = slice_of("counters", sharedCounters=COUNTER_SET, count=2)
        world = DeviceWorld(slice_of("devices", *devices, count=2), counters)
        in_vain = claim(asked(8), asked(8), asked(1, "false"))
        assert world.allocate(in_vain, budget=Patience(100)) is None

    def test_what_timed_out_is_tried_again_later_or_when_something_has_changed(self):
        devices = [device(f"d{n}", numa=n) for n in range(24)]
        world = DeviceWorld(slice_of("s", *devices))
        hard = claim(asked(12), asked(12), asked(1), constraints=[DISTINCT])

        def looks(now):
            budget = Patience(50, now)
            assert world.search(hard, budget=budget).codes.tolist() == [TIMED_OUT]
            return 50 - budget.looks

        assert looks(0.0) == 51
        assert looks(29.0) == 0
        assert looks(30.0) == 51
        world.use([world.allocate(claim(asked(1)))[0]])
        assert looks(31.0) == 51

    @pytest.mark.parametrize("looks", [1, 2, 7])
    def test_a_search_goes_on_where_it_has_paused(self, looks):
        """Until it has an answer, which is that of a search in one go; but only for as long as it may take."""
        devices = [device(f"d{n}", numa=n % 5) for n in range(16)]
        puzzles = [
            claim(asked(3), asked(3), asked(1), constraints=[DISTINCT]),
            claim(asked(3), asked(1), constraints=[DISTINCT]),
            claim(asked(4), asked(3), constraints=[{"matchAttribute": f"{DRIVER}/numa"}]),
        ]
        for puzzle in puzzles:
            at_once = DeviceWorld(slice_of("s", *devices)).search(puzzle).codes.tolist()
            world, pauses = DeviceWorld(slice_of("s", *devices)), 0
            while True:
                budget = Patience(looks)
                budget.may_pause, budget.limit = True, 1.0
                try:
                    found = world.search(puzzle, budget=budget)
                    break
                except Unfinished:
                    pauses += 1
            assert found.codes.tolist() == at_once
            assert pauses
        assert pauses

    def test_a_search_does_not_pause_for_ever(self):
        devices = [device(f"d{n}", numa=n) for n in range(24)]
        world, pauses = DeviceWorld(slice_of("s", *devices)), 0
        hard = claim(asked(12), asked(12), asked(1), constraints=[DISTINCT])
        times = itertools.count()
        while True:
            budget = Patience(20)
            budget.may_pause, budget.limit = True, 5.0
            budget.now = lambda: next(times)
            try:
                codes = world.search(hard, budget=budget).codes.tolist()
                break
            except Unfinished:
                pauses += 1
        assert codes == [TIMED_OUT]
        assert 1 < pauses <= 5

    @pytest.mark.parametrize("looks", [1, 3])
    def test_what_nodes_see_is_found_out_in_turns(self, looks):
        """Also if slices and nodes change meanwhile."""
        names = [f"n{n}" for n in range(12)]
        slices = [slice_of(name, device("d"), pool=name, nodeName=name) for name in names]
        everywhere = slice_of("shared", device("s"), pool="shared")
        changed = [
            slice_of("n3", device("other"), pool="moved", nodeName="n3"),
            slice_of("n9", device("d"), device("d2"), pool="n9", nodeName="n9"),
        ]
        later = [*(one for one in slices if one.name not in {"n3", "n5", "n9"}), *changed]
        expected = DeviceWorld(*later, everywhere, nodes=[*names, "new"])
        world = DeviceWorld(*slices, nodes=names)
        steps = [
            lambda: world.slices.store(changed[0]),
            lambda: world.slices.remove(slices[5]),
            lambda: world.slices.store(everywhere),
            lambda: world.table.set_node(node("new")),
            lambda: world.slices.store(changed[1]),
        ]
        wanted = claim(asked(2))
        while True:
            budget = Patience(looks)
            budget.may_pause, budget.limit = True, 1e9
            try:
                found = world.search(wanted, budget=budget)
                break
            except Unfinished:
                if steps:
                    steps.pop()()
        assert not steps
        assert found.codes.tolist() == expected.search(wanted).codes.tolist()
        for position, code in enumerate(found.codes.tolist()):
            if code == ALLOCATED:
                at_once = expected.allocate(wanted, on=world.table.names[position])
                assert json_of(found.results(position)) == json_of(at_once)

    def test_what_was_not_begun_is_begun_the_next_time(self):
        world = DeviceWorld(slice_of("s", device("d0")))
        assert world.search(claim(asked(1)), budget=Patience(1)).codes.tolist() == [TIMED_OUT]
        assert world.search(claim(asked(1)), budget=Patience(1)).codes.tolist() == [0]

    def test_nodes_that_there_was_no_time_to_look_at_come_later(self):
        names = [f"n{n}" for n in range(20)]
        slices = [slice_of(name, device("d"), pool=name, nodeName=name) for name in names]
        world = DeviceWorld(*slices, nodes=names)
        # One look at the clock per device, and one per search.
        for _ in range(2):
            found = world.search(claim(asked(1)), budget=Patience(8))
            assert set(found.codes.tolist()) == {TIMED_OUT}
        assert world.search(claim(asked(1)), budget=Patience(5)).codes.tolist() == [0] * 20


class TestRows:
    def test_one_search_for_nodes_that_look_alike(self):
        names = [f"n{n}" for n in range(20)]
        slices = [
            slice_of(
                f"s-{name}",
                device("a", uuid=f"{name}-a"),
                device("b", uuid=f"{name}-b"),
                pool=name,
                nodeName=name,
            )
            for name in names
        ]
        world = DeviceWorld(*slices, nodes=names)
        # One look at the clock per device that is new, and one per search.
        found = world.search(claim(asked(2)), budget=Patience(41))
        assert found.codes.tolist() == [0] * 20
        assert [one.pool for one in found.results(7)[0].devices.results] == ["n7", "n7"]
        world.use(found.results(7))
        found = world.search(claim(asked(2)), budget=Patience(1))
        assert found.codes.tolist() == [0] * 7 + [1] + [0] * 12
        assert len(set(found.kinds.tolist())) == 2
        assert world.search(claim(asked(2), name="other"), budget=Patience(0)).codes.sum() == 1

    def test_nodes_look_alike_if_the_same_attributes_are_equal(self):
        def numa(name, *values):
            devices = [device(f"d{n}", numa=value) for n, value in enumerate(values)]
            return slice_of(name, *devices, pool=name, nodeName=name)

        world = DeviceWorld(
            numa("n1", 0, 1, 0),
            numa("n2", 7, 5, 7),
            numa("n3", 0, 0, 1),
            numa("n4", 0, 1, 2),
            nodes=("n1", "n2", "n3", "n4"),
        )
        found = world.search(claim(asked(2), constraints=[NUMA]))
        assert found.codes.tolist() == [0, 0, 0, 1]
        assert found.kinds[0] == found.kinds[1]
        assert len(set(found.kinds.tolist())) == 3
        chosen = [[d.device for d in found.results(n)[0].devices.results] for n in range(3)]
        assert chosen == [["d0", "d2"], ["d0", "d2"], ["d0", "d1"]]

    def test_uses_belong_to_their_pools(self):
        def pool(driver, name):
            return slice_of(
                f"{driver}-{name}", device("d"), driver=driver, pool=name, nodeName=name
            )

        world = DeviceWorld(
            pool("a", "n1"), pool("b", "n1"), pool("b", "n2"), pool("a", "n2"), nodes=("n1", "n2")
        )
        either = {name: claim(asked(1, f'device.driver == "{name}"')) for name in "ab"}
        world.use(world.allocate(either["a"], on="n1"))
        world.use(world.allocate(either["b"], on="n2"))
        assert world.search(either["a"]).codes.tolist() == [1, 0]
        assert world.search(either["b"]).codes.tolist() == [0, 1]

    def test_a_pool_that_all_nodes_share(self):
        world = DeviceWorld(slice_of("s", device("a"), device("b")), nodes=("n1", "n2", "n3"))
        found = world.search(claim(asked(2)))
        assert found.codes.tolist() == [0, 0, 0]
        world.use(found.results(1))
        assert world.search(claim(asked(1))).codes.tolist() == [1, 1, 1]

    def test_reasons(self):
        world = DeviceWorld(
            slice_of("a", device("x"), device("x"), nodeName="n1"),
            slice_of("b", device("y"), pool="q", nodeName="n2", count=2),
            nodes=("n1", "n2"),
        )
        found = world.search(claim(asked(1)))
        assert found.codes.tolist() == [FAILED, 1]
        assert found.text(found.kinds[0]) == "invalid resource pools were encountered"
        found = world.search(claim(asked(None)))
        assert found.codes.tolist() == [ERROR, ERROR]
        text = f"{DRIVER}/q is currently being updated"
        assert found.text(found.kinds[1]).endswith(text)
        world.rules = Features.of("1.38").rules
        world.allocator = world.new_allocator()
        newer = world.search(claim(asked(None)))
        assert newer.codes.tolist() == [FAILED, FAILED]
        assert newer.text(newer.kinds[1]).endswith(text)
        with pytest.raises(LookupError):
            found.results(0)
