"""Steps that pause, and what happens in between."""

import asyncio
import time
from types import SimpleNamespace

import msgspec

from app.cycle.pod_cycle import paused
from app.model.status import Unfinished
from app.plugins.default_preemption import DefaultPreemption
from app.plugins.dynamic_resources import budget
from app.scheduler import driving
from app.scheduler.driving import drive
from tests.fuzz.driver import in_new_loop
from tests.fuzz.world import running


async def test_a_step_is_repeated_and_others_have_their_turn():
    turn, seen = [0], []
    attempt = SimpleNamespace(may_pause=None)

    def step():
        seen.append(turn[0])
        if len(seen) < 3:
            assert attempt.may_pause
            raise Unfinished
        return "done"

    async def other():
        while True:
            turn[0] += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    assert await drive(paused(attempt, step)) == "done"
    task.cancel()
    assert seen == [0, 1, 2]


async def test_in_the_end_a_step_may_not_pause(monkeypatch):
    monkeypatch.setattr(driving, "LONGEST_STEP", -1.0)
    attempt, pauses = SimpleNamespace(may_pause=False), []

    def step():
        pauses.append(attempt.may_pause)
        if attempt.may_pause:
            raise Unfinished

    await drive(paused(attempt, step))
    assert pauses == [True, False]


def device(number):
    return {"name": f"d{number}", "attributes": {"numa": {"int": number}}}


def hard_claim(*counts, **last):
    """Asks for devices that differ; ``last`` are fields of the last request."""
    requests = [
        {
            "name": f"r{place}",
            "exactly": {"deviceClassName": "hard", "allocationMode": "ExactCount", "count": count},
        }
        for place, count in enumerate(counts)
    ]
    requests[-1]["exactly"] |= last
    constraints = [{"distinctAttribute": "hard.example.com/numa"}]
    return {"devices": {"requests": requests, "constraints": constraints}}


def pod(name, **spec):
    meta = {"name": name, "namespace": "normal", "uid": f"uid-{name}", "resourceVersion": "7"}
    spec = {"schedulerName": "default-scheduler", "containers": [{"name": "c"}], **spec}
    return msgspec.json.encode({"metadata": meta, "spec": spec})


async def add_devices(world, devices, claim):
    """Devices that all nodes reach, and a claim for them."""

    def meta(name, **more):
        return {"name": name, "uid": f"uid-{name}", "resourceVersion": "7", **more}

    told = [
        ("DeviceClass", "hard", {"metadata": meta("hard"), "spec": {"selectors": [
            {"cel": {"expression": "device.driver == 'hard.example.com'"}}]}}),
        ("ResourceSlice", "hard", {"metadata": meta("hard"), "spec": {
            "driver": "hard.example.com", "allNodes": True, "devices": [device(n) for n in range(devices)],
            "pool": {"name": "hard", "generation": 1, "resourceSliceCount": 1}}}),
        ("ResourceClaim", "normal/hard", {"metadata": meta("hard", namespace="normal"), "spec": claim}),
    ]  # fmt: skip
    for kind, key, value in told:
        await world.tell(kind, key, "ADDED", msgspec.json.encode(value))


CLAIMS = [{"name": "c", "resourceClaimName": "hard"}]


def test_a_search_for_devices_does_not_hold_up_the_event_loop(monkeypatch):
    """Seconds of CPU between two turns of another task, while a search goes on that has no end.

    It wants 25 devices of 24: there are millions of ways to try.
    """
    gaps, outcomes = [], []
    monkeypatch.setattr(budget, "SEARCH_SECONDS", 0.1)

    async def tick(world):
        before = time.process_time()
        while len(world.telemetry.outcomes) < 2:
            await asyncio.sleep(0)
            now = time.process_time()
            gaps.append(now - before)
            before = now

    async def main():
        async with running() as world:
            await add_devices(world, 24, hard_claim(12, 12, 1))
            world.server.tell("Pod", "normal/hard", "ADDED", pod("hard", resourceClaims=CLAIMS))
            world.server.tell("Pod", "normal/other", "ADDED", pod("other"))
            await tick(world)
            outcomes.extend(world.telemetry.outcomes)

    in_new_loop(main)
    assert [(key, result) for key, result, _ in outcomes] == [
        ("normal/hard", "error"),
        ("normal/other", "selected"),
    ]
    assert "timed out trying to allocate devices" in outcomes[0][2]
    assert len([gap for gap in gaps if gap > 0.008]) > 5
    assert sorted(gaps)[-3] < 0.030


def test_a_search_for_devices_pauses_in_a_preemption(monkeypatch):
    """All nodes are full, so devices are searched for the first time when a node is imagined without its pods.

    The first request may take any seven of 13 devices, of which the second one needs the first six.
    """
    outcomes, pauses = [], []
    search = DefaultPreemption._search

    def counted(*args):
        try:
            return (yield from search(*args))
        except Unfinished:
            pauses.append(None)
            raise

    monkeypatch.setattr(DefaultPreemption, "_search", counted)
    selector = {"cel": {"expression": "device.attributes['hard.example.com'].numa < 6"}}
    huge = [{"name": "c", "resources": {"requests": {"cpu": "14"}}}]

    async def main():
        async with running() as world:
            await add_devices(world, 13, hard_claim(7, 6, selectors=[selector]))
            await world.fill_up()
            text = pod("hard", resourceClaims=CLAIMS, containers=huge, priority=2_100_000_000)
            world.server.tell("Pod", "normal/hard", "ADDED", text)
            while len(world.telemetry.outcomes) < 2:
                await asyncio.sleep(1)
            outcomes.extend(world.telemetry.outcomes)
            world.check_log()

    in_new_loop(main)
    assert [(key, result) for key, result, _ in outcomes] == [
        ("normal/hard", "unschedulable"),
        ("normal/hard", "selected"),
    ]
    assert len(pauses) > 1
