"""The search for devices in random clusters: what it finds holds, is what a plain search finds, and does not depend on
the past."""

import itertools
from collections import Counter

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from app.model.devices import AllocationResult
from app.model.gates import VERSIONS
from app.model.quantity import parse
from tests.core.plugins.device_world import (
    DRIVER,
    DeviceWorld,
    asked,
    claim,
    device,
    node,
    slice_of,
)

ZONE = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    ]
}
NODES = ("n1", "n2", "n3")
NUMA, MODEL = f"{DRIVER}/numa", f"{DRIVER}/model"

plain_devices = st.builds(
    lambda numa, model: {"numa": numa, "model": model}, st.integers(0, 2), st.sampled_from("ab")
)
selectors = st.sampled_from([(), (f'device.attributes["{DRIVER}"].model == "a"',)])
requests = st.builds(
    lambda count, expressions: asked(count, *expressions),
    st.sampled_from([1, 1, 2, 3, None]),
    selectors,
)
constraints = st.lists(
    st.sampled_from([NUMA, MODEL]).map(lambda name: {"matchAttribute": name}), max_size=1
)


def accepted(request, one):
    return not request["selectors"] or one["model"] == "a"


def plainly(devices, wanted, same, taken):
    """Devices by request in the order of the search, by trying everything; None if nothing will do."""
    free = [n for n in range(len(devices)) if n not in taken]
    everything = [
        [n for n in range(len(devices)) if accepted(request, devices[n])] for request in wanted
    ]

    def choices(number, request):
        if request["allocationMode"] == "All":
            return [tuple(everything[number])] if everything[number] else []
        able = [n for n in free if accepted(request, devices[n])]
        return itertools.combinations(able, request["count"])

    for chosen in itertools.product(*itertools.starmap(choices, enumerate(wanted))):
        flat = [n for each in chosen for n in each]
        distinct = len(set(flat)) == len(flat) and not taken.intersection(flat)
        alike = all(
            len({devices[n][name.partition("/")[2]] for n in flat}) <= 1
            for name in (each["matchAttribute"] for each in same)
        )
        if distinct and alike:
            return flat
    return None


@settings(deadline=None)
@given(
    devices=st.lists(plain_devices, max_size=7),
    wanted=st.lists(requests, min_size=1, max_size=3),
    same=constraints,
    taken=st.sets(st.integers(0, 6), max_size=3),
)
def test_the_first_solution_in_the_order_of_requests_and_devices(devices, wanted, same, taken):
    if any(each["allocationMode"] == "All" for each in wanted):
        same = []
    world = DeviceWorld(slice_of("s", *[device(f"d{n}", **one) for n, one in enumerate(devices)]))
    taken = {n for n in taken if n < len(devices)}
    world.use([allocated(f"d{n}") for n in taken])
    found = world.devices(claim(*wanted, constraints=same))
    expected = plainly(devices, wanted, same, taken)
    assert found == (None if expected is None else [f"d{n}" for n in expected])


def allocated(name, pool="p"):
    result = {"request": "r", "driver": DRIVER, "pool": pool, "device": name}
    return msgspec.convert({"devices": {"results": [result]}}, AllocationResult)


# ---------------------------------------------------------------- partitions and shares


SETS = ({"name": "memory", "counters": {"gib": {"value": "8"}}},)


@st.composite
def partitions(draw):
    """Devices that consume counters, some of which may be shared."""
    devices = []
    for number in range(draw(st.integers(1, 6))):
        amount, shared = draw(st.integers(0, 5)), draw(st.booleans())
        consumed = [{"counterSet": "memory", "counters": {"gib": {"value": str(amount)}}}]
        policy = {"default": "1", "validRange": {"min": "1", "step": "2"}}
        capacity = {"slots": {"value": "6", "requestPolicy": policy}}
        fields = {"allowMultipleAllocations": True, "capacity": capacity} if shared else {}
        devices.append(device(f"d{number}", consumesCounters=consumed, **fields))
    return devices


@settings(deadline=None)
@given(
    version=st.sampled_from(VERSIONS),
    devices=partitions(),
    rounds=st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=2), max_size=5),
    slots=st.integers(1, 4),
    release=st.integers(0, 10),
)
def test_nothing_is_used_twice_or_beyond_what_there_is(version, devices, rounds, slots, release):
    world = DeviceWorld(
        slice_of("counters", sharedCounters=SETS, count=2),
        slice_of("devices", *devices, count=2),
        version=version,
    )
    held = []
    for number, counts in enumerate(rounds):
        wanted = [asked(count) for count in counts]
        found = world.allocate(claim(*wanted))
        if found is not None:
            names = [(one.request, one.device) for one in found[0].devices.results]
            assert Counter(request for request, _ in names) == {
                f"r{n}": count for n, count in enumerate(counts)
            }
            assert len(set(names)) == len(names)
            held += found
            world.use(found)
        if held and number == release:
            world.in_use.remove(held.pop(0))
        check_uses(devices, held)


def check_uses(devices, held):
    results = [one for each in held for one in each.devices.results]
    own = Counter(one.device for one in results if one.share_id is None)
    assert all(count == 1 for count in own.values())
    by_name = {one["name"]: one for one in devices}
    slots = Counter()
    for one in results:
        if one.share_id is not None:
            slots[one.device] += parse(one.consumed_capacity["slots"])
    assert all(amount <= parse("6") for amount in slots.values())
    consumed = sum(
        int(by_name[name]["consumesCounters"][0]["counters"]["gib"]["value"])
        for name in {one.device for one in results}
    )
    assert consumed <= 8
    assert len({one.share_id for one in results if one.share_id}) == sum(
        one.share_id is not None for one in results
    )


# ---------------------------------------------------------------- what is kept from one attempt to the next


@st.composite
def slices(draw):
    """One of a few slices, in some state."""
    number = draw(st.integers(0, 5))
    where = draw(
        st.sampled_from(
            [*({"nodeName": name} for name in NODES), {"allNodes": True}, {"nodeSelector": ZONE}]
        )
    )
    found = draw(st.lists(plain_devices, max_size=3))
    devices = [device(f"d{n}", uuid=f"{number}-{n}", **one) for n, one in enumerate(found)]
    if draw(st.integers(0, 5)) == 0:
        devices = [{**one, "nodeName": draw(st.sampled_from(NODES))} for one in devices]
        where = {"perDeviceNodeSelection": True}
    return slice_of(
        f"s{number}",
        *devices,
        pool=f"p{number % 4}",
        generation=draw(st.integers(1, 2)),
        count=draw(st.integers(1, 2)),
        **where,
    )


changes = st.one_of(
    st.tuples(st.just("slice"), slices()),
    st.tuples(st.just("gone"), st.integers(0, 5)),
    st.tuples(st.just("node"), st.tuples(st.sampled_from(NODES), st.sampled_from("ab"))),
    st.tuples(st.just("no node"), st.sampled_from(NODES)),
    st.tuples(st.just("use"), st.integers(0, 7)),
    st.tuples(st.just("free"), st.integers(0, 7)),
)
claims = st.builds(
    lambda wanted, same: claim(*wanted, constraints=same),
    st.lists(requests, min_size=1, max_size=2),
    constraints,
)


class History:
    """A world to which one thing after the other happens."""

    def __init__(self):
        self.world = DeviceWorld(nodes=[node(name, zone="a") for name in NODES])
        self.held = []

    def happen(self, what, detail):
        world = self.world
        if what == "slice":
            world.slices.store(detail)
        elif what == "gone":
            world.slices.remove(slice_of(f"s{detail}"))
        elif what == "node":
            world.table.set_node(node(detail[0], zone=detail[1]))
        elif what == "no node" and detail in world.table.row_of:
            world.table.remove_node(detail)
        elif what == "use":
            self.held.append(allocated(f"d{detail % 2}", pool=f"p{detail % 4}"))
            world.in_use.add(self.held[-1])
        elif what == "free" and self.held:
            world.in_use.remove(self.held.pop(detail % len(self.held)))

    def answers(self, allocator, one):
        """By node: code, text and results."""
        found = self.world.search(one, allocator=allocator)
        out = {}
        for position, name in enumerate(self.world.table.names):
            if name:
                code = int(found.codes[position])
                text = "" if code else found.text(int(found.kinds[position])).partition(" pool ")[0]
                out[name] = (code, text, found.results(position) if code == 0 else None)
        return out


@settings(deadline=None, max_examples=60)
@given(history=st.lists(changes, max_size=25), asking=st.lists(claims, min_size=1, max_size=2))
def test_answers_do_not_depend_on_what_was_asked_before(history, asking):
    story = History()
    for change in history:
        story.happen(*change)
        for one in asking:
            fresh = story.answers(story.world.new_allocator(), one)
            assert story.answers(story.world.allocator, one) == fresh
