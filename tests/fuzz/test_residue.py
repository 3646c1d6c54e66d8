"""Nothing grows with what has gone: the same history again and again, under other names each time."""

import functools
import gc
import operator
from collections.abc import Iterable
from random import Random

import pytest

from app.observe.metrics import scheduler as scheduler_metrics
from tests.entries import entries, grown, lower_limits
from tests.fuzz.driver import Figures, History, in_new_loop
from tests.fuzz.histories import Event, Guests
from tests.fuzz.world import running

ROUNDS = 16
#: Parts of the scheduler.
HELD = ("state", "frameworks", "informers", "waiting", "binder", "evictor", "patcher", "failures", "loop")  # fmt: skip
#: Attributes not followed: fakes, which remember every call, the event recorder, which does not run here, and random
#: numbers.
NOT_HELD = ("_api", "_reader", "_server", "_transport", "_events", "_samples")

_NAMES = (
    *(b"example.com", b"guest-", b"claim-", b"volume-", b"pod-", b"img:", b"registry.", b"team-", b"slice-", b"svc-", b"devices-", b"dev-", b"busybox"),
    *(b'"app"', b'"tier"', b'"z0"', b'"uid":"g', b"csi.", b"k0"),
)  # fmt: skip


def renamed(events: Iterable[Event], number: int) -> list[Event]:
    """The same history under other names: of objects, labels, resources, images, drivers."""
    salt = f"s{number}".encode()

    def rename(text: bytes) -> bytes:
        for name in _NAMES:
            text = text.replace(name, b"%b%b%b" % (name[:-1], salt, name[-1:]))
        return text

    return [
        event._replace(key=rename(event.key.encode()).decode(), text=rename(event.text))
        for event in events
    ]


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_grows_with_what_has_gone(seed, monkeypatch):
    lower_limits(monkeypatch)
    monkeypatch.setattr(scheduler_metrics, "SAMPLED", 1.0)  # so that no series is late by chance
    events = [event for event in Guests(Random(seed), harm=0.0).events(80) if event.plain]
    counts = []

    async def main():
        async with running() as world:
            world.telemetry.histories._max_pods = 8
            held = [getattr(world.scheduler, name) for name in HELD]
            for number in range(ROUNDS):
                await History(world, Figures(), budget=1.0).run(renamed(events, 1000 + number))
                gc.collect()
                counts.append(entries(*held, leaving_out=NOT_HELD))

    in_new_loop(main)
    assert counts[0].total() > 1000
    before, after = (functools.reduce(operator.or_, half) for half in (counts[4:10], counts[10:]))
    assert not grown(before, after, by=3)
