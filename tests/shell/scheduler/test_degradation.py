"""What readiness tells of a scheduler that works and does not hold all that it promises."""

import asyncio
import errno

import msgspec
import numpy as np
import pytest

from app.extender.breaker import State
from app.kube.informer import InformerStatistics
from app.observe.telemetry import Telemetry
from app.runtime.limits import Limits
from app.runtime.shortages import CALM, Shortages
from app.scheduler import degradation
from app.scheduler.degradation import RECENT_SECONDS
from tests.shell.clock import LoopClock
from tests.shell.extender.fakes import URL, extender

pytestmark = pytest.mark.looptime

FINE = InformerStatistics(
    kind="Pod",
    synced=True,
    served=True,
    objects=3,
    heard_at=0.0,
    age=179.0,
    lists=1,
    reconnects=0,
    decode_errors=0,
    unreadable=0,
    handler_errors=0,
    refused=0,
)


def problems(checks):
    checks = list(checks)
    assert not any(check.fatal for check in checks)
    return {check.name: check.problem() for check in checks}


def informers(**changes):
    other = msgspec.structs.replace(FINE, kind="Node", age=None, heard_at=None)
    return lambda: [msgspec.structs.replace(FINE, **changes), other]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, {"watch-age": None, "objects": None}),
        ({"age": 200.0}, {"watch-age": "Pod: no data for 200 s", "objects": None}),
        (
            {"unreadable": 1, "refused": 2},
            {"watch-age": None, "objects": "3 of Pod cannot be used"},
        ),
    ],
)
async def test_watches(changes, told):
    assert problems(degradation.watches(informers(**changes))) == told


async def test_descriptors():
    shortages = Shortages()
    checks = list(degradation.resources(Limits(1 << 40, 64), shortages))
    assert problems(checks)["descriptors"] is None
    error = OSError(errno.EMFILE, "Too many open files")
    assert shortages.noted(error, "connect", 0.0)
    assert problems(checks)["descriptors"] == "cannot connect: Too many open files"
    shortages._last = -CALM
    assert problems(checks)["descriptors"] is None


@pytest.mark.parametrize(("used", "told"), [(89, None), (91, "91 MiB of 100 MiB are in use")])
async def test_memory(monkeypatch, used, told):
    monkeypatch.setattr(degradation, "resident_memory", lambda: used << 20)
    checks = degradation.resources(Limits(100 << 20, 64), Shortages())
    assert problems(checks)["memory"] == told


async def test_extenders(monkeypatch):
    ext = extender(preempt_verb="")
    assert problems(degradation.extenders([ext])) == {"extenders": None}
    monkeypatch.setattr(ext, "state", lambda _verb: State.OPEN)
    told = problems(degradation.extenders([ext]))["extenders"]
    assert told.split("; ") == [
        f"{URL}: {verb} is not called" for verb in ("filter", "prioritize", "bind")
    ]


async def test_drops():
    lost = {"events": 0, "patches": 0}
    checks = list(degradation.drops(events=lambda: lost["events"], patches=lambda: lost["patches"]))
    assert problems(checks) == {"drops": None}
    lost["events"] = 7
    assert problems(checks) == {"drops": "events: 7 dropped so far"}
    await asyncio.sleep(RECENT_SECONDS - 1)
    assert problems(checks) == {"drops": "events: 7 dropped so far"}
    lost["patches"] = 1
    await asyncio.sleep(1)
    assert problems(checks) == {"drops": "patches: 1 dropped so far"}


async def test_a_drop_after_a_reset_of_the_metrics_is_noticed():
    telemetry = Telemetry(LoopClock(), np.random.default_rng(0))
    checks = list(degradation.drops(events=lambda: telemetry.queue.dropped))
    telemetry.queue.events_dropped(9)
    problems(checks)
    await asyncio.sleep(RECENT_SECONDS)
    assert problems(checks) == {"drops": None}
    telemetry.families.reset()
    telemetry.queue.events_dropped(3)
    assert problems(checks) == {"drops": "events: 12 dropped so far"}
