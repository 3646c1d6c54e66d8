"""Runs histories in a world and checks what must hold; finds out which events are to blame."""

import asyncio
import functools
import gc
import itertools
import re
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import looptime

import app.cel.program  # noqa: F401 - loaded with the first selector otherwise, which takes longer than any object may
from app.kube.informer import Informer
from tests.fuzz.histories import Event, cut_down
from tests.fuzz.kinds import NODES
from tests.fuzz.world import (
    _LONG,
    BUDGET,
    WANTS,
    Cost,
    Violation,
    World,
    base_objects,
    running,
    same,
)

#: Virtual seconds after which a watch that ended goes on.
_RECONNECTED = 15
#: Characters of a line in the log.
LONGEST_MESSAGE = 10_000
#: A normal pod comes after this many events.
NORMAL_EVERY = 20


class Slow(Violation):
    """Something took longer than it may."""


class Figures:
    """What a run has to tell."""

    def __init__(self) -> None:
        self.events = 0
        self.attempts = 0
        self.normal = 0
        self.refused: Counter[tuple[str, str]] = Counter()
        self.results: Counter[str] = Counter()
        self.slowest: list[tuple[Cost, Event | None]] = []
        #: The highest cost by kind of object, or of what else there was.
        self.highest: dict[str, Cost] = {}
        #: The seed of what runs now.
        self.seed = 0
        #: (seed, cost) of everything above BUDGET: of one object, request or attempt; and of turns of the event loop
        #: with many.
        self.over: list[tuple[int, Cost]] = []
        self.shared: list[tuple[int, Cost]] = []

    def turns(self, costs: Iterable[Cost]) -> None:
        """Remembers turns of the event loop with many objects."""
        self.shared += [(self.seed, cost) for cost in costs if cost.seconds > BUDGET]

    def cost(self, cost: Cost, event: Event | None) -> None:
        """Remembers the cost of one thing if it is above BUDGET, among the slowest few, or the highest of its kind."""
        if cost.seconds > BUDGET:
            self.over.append((self.seed, cost))
        words = cost.what.split(" ")
        kind = words[1] if event is not None and words[0] in _TYPES else words[0]
        if kind not in self.highest or cost.seconds > self.highest[kind].seconds:
            self.highest[kind] = cost
        if len(self.slowest) < 20 or cost.seconds > self.slowest[-1][0].seconds:
            self.slowest.append((cost, event))
            self.slowest.sort(key=lambda entry: -entry[0].seconds)
            del self.slowest[20:]


_TYPES = frozenset({"ADDED", "MODIFIED", "DELETED", "LINE", "EXPIRED"})
_REFUSED = re.compile(r"^(\w+) .* cannot be read and is ignored: (.*)$", re.DOTALL)


def _common(reason: str) -> str:
    """What many reasons have in common: names of objects and numbers left out."""
    reason = re.sub(r"^\w+( \S+)?: ", "", reason[:1000])
    return re.sub(r"[0-9a-f-]{9,}|[0-9]+|\S*/\S*", "_", reason)[:120]


class History:
    """One history in one world."""

    def __init__(self, world: World, figures: Figures, *, budget: float = BUDGET) -> None:
        self._world = world
        self._figures = figures
        self._budget = budget
        self._wants = itertools.cycle(WANTS)
        #: Whether two pods had the same uid, of which only one can be counted.
        self._contradictory = False

    async def run(self, events: Sequence[Event]) -> None:
        """All events, with normal pods in between; then all guests go. Raises Violation."""
        started = self._world.verdicts()
        await self.rounds(events)
        await self.end(started)

    async def rounds(self, events: Sequence[Event]) -> None:
        """All events, with normal pods in between."""
        for number, event in enumerate(events, start=1):
            await self.happens(event)
            if number % NORMAL_EVERY == 0:
                await self.normal()

    async def end(self, started: dict[str, Any]) -> None:
        """All guests go. ``started``: what would have been decided at the start. Raises Violation."""
        world = self._world
        for _ in WANTS:
            await self.normal()
        world.check_log()
        await world.quiet(30)
        world.check_log()
        if not self._contradictory:
            world.check_state()
        await self.clear()
        await self.all_normal()
        await world.remove_normal()
        await world.restore()
        await world.quiet(30)
        world.check_log()
        world.check_state()
        self._nothing_left()
        same("what is decided after all is gone", world.verdicts(), started)

    async def happens(self, event: Event) -> None:
        """One event. Raises Slow."""
        world, figures = self._world, self._figures
        figures.events += 1
        refused = self._refused(event.kind)
        world.server.happens(event)
        cost = await world.quiet()
        told = f"{event.type} {event.kind} {event.key[:80]}"
        costs = [Cost(cost.seconds, told), *world.telemetry.costs]
        if event.type == "EXPIRED":  # the list is of more than one object
            cost = await world.quiet(_RECONNECTED)
            figures.turns([Cost(cost.seconds, told)])
            costs = []
        if not event.plain:
            await world.quiet(_RECONNECTED)
        for cost in costs:
            self.spent(cost, event)
        figures.turns(world.meter.shared)
        world.meter.shared.clear()
        figures.attempts += len(costs[1:])
        self._taken_or_refused(event, refused)
        self.read_log()

    def spent(self, cost: Cost, event: Event | None) -> None:
        """Notes what an event or an attempt has cost. Raises Slow."""
        self._figures.cost(cost, event)
        if cost.seconds > self._budget:
            raise Slow(f"{cost.seconds * 1000:.0f} ms of CPU: {cost.what}")

    def _informer(self, kind: str) -> Informer[Any]:
        return next(i for i in self._world.scheduler.informers if i.kind.name == kind)

    def _refused(self, kind: str) -> int:
        return self._informer(kind).statistics().decode_errors

    def _taken_or_refused(self, event: Event, refused: int) -> None:
        if event.kind == "Pod":
            pods = self._world.scheduler.watched("Pod").values()
            self._contradictory |= len({pod.uid for pod in pods}) < len(pods)
        if not event.plain or event.type not in {"ADDED", "MODIFIED"}:
            return
        text = self._world.server.objects[event.kind].get(event.key)
        if text is None or self._refused(event.kind) > refused:
            return
        known = self._world.scheduler.watched(event.kind).get(event.key)
        if known is None or b'"resourceVersion":"%b"' % known.resource_version.encode() not in text:
            raise Violation(
                f"{event.kind} {event.key} is neither known nor refused: known is {known}"
            )

    def read_log(self) -> None:
        """Counts what was refused, and drops what was logged about it."""
        records = self._world.listener.records
        kept = []
        for record in records:
            if record.exc_info:
                kept.append(record)
                continue
            told = record.getMessage()
            if len(told) > LONGEST_MESSAGE:
                raise Violation(f"{len(told)} characters were logged: {told[:1000]}")
            match = _REFUSED.match(told)
            kind, reason = (match[1], match[2]) if match is not None else ("log", told)
            self._figures.refused[kind, _common(reason)] += 1
        records[:] = kept
        self._world.check_log()

    async def normal(self) -> None:
        """A normal pod comes and is tried. Raises Violation when the attempt has no proper end."""
        world = self._world
        del world.telemetry.outcomes[:]
        wants = next(self._wants)
        key = await world.add_normal(wants)
        self._figures.normal += 1
        for cost in world.telemetry.costs:
            self.spent(cost._replace(what=f"{cost.what} ({wants})"), None)
        ends = [outcome for outcome in world.telemetry.outcomes if outcome[0] == key]
        if not ends:
            raise Violation(f"{key} ({wants}) was not tried; {world.state.queue.statistics()}")
        for _, result, message in ends:
            self._figures.results[result] += 1
            if result == "error":
                raise Violation(f"the attempt of {key} ({wants}) failed: {message}")
        self.read_log()

    def guests(self) -> list[tuple[str, str]]:
        """Kinds and keys of all guests."""
        keep = {(kind, key) for kind, key, _ in base_objects()}
        return [
            (kind, key)
            for kind, objects in self._world.server.objects.items()
            for key in objects
            if (kind, key) not in keep and not key.startswith("normal/")
        ]

    async def clear(self) -> None:
        """All guests go: some one by one, the rest by a list that does not have them."""
        world = self._world
        for number, (kind, key) in enumerate(self.guests()):
            if number % 2:
                del world.server.objects[kind][key]
            else:
                await world.remove(kind, key)
        for kind in world.server.objects:
            await world.list_again(kind)
        self.read_log()

    async def all_normal(self) -> None:
        """Every normal pod is bound once there are no guests, or has been evicted."""
        world = self._world
        await world.quiet(_LONG)
        self.read_log()
        names = [key for key in world.server.objects["Pod"] if key.startswith("normal/")]
        unbound = [key for key in names if key not in world.server.bindings]
        if unbound:
            pod = world.scheduler.watched("Pod").get(unbound[0])
            outcomes = [outcome for outcome in world.telemetry.outcomes if outcome[0] == unbound[0]]
            raise Violation(
                f"{len(unbound)} of {len(names)} normal pods are not bound: {unbound[0]} {pod and pod.labels} {outcomes[-1:]}"
            )

    def _nothing_left(self) -> None:
        world = self._world
        table = world.state.table
        left = [
            *set(table.row_of).difference(NODES),
            *world.state.cache,
            *world.state.queue.pending_pods(),
            *world.state.pods,
        ]
        if left:
            raise Violation(f"left behind when all was gone: {left[:5]}")


def run(
    events: Sequence[Event], figures: Figures | None = None, *, budget: float = BUDGET, **how: Any
) -> None:
    """A history in a world of its own. Raises Violation."""

    async def main() -> None:
        async with running(**how) as world:
            await History(world, figures or Figures(), budget=budget).run(events)

    in_new_loop(main)


def in_new_loop(main: Any) -> None:
    """Runs a coroutine function on a loop with virtual time. Raises what it raises, out of its groups."""
    gc.collect()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=lambda: looptime.new_event_loop(noop_cycles=0)) as runner:
            runner.run(main())
    except BaseExceptionGroup as group:
        raise only(group) from None
    finally:
        gc.enable()


def only(error: BaseException) -> BaseException:
    """The first error of a group of groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def what_fails(events: Sequence[Event], **how: Any) -> BaseException | None:
    """What goes wrong in a history, None if nothing does. What is slow has to be slow three times, with nothing
    remembered.
    """
    error: BaseException | None = None
    for _ in range(3):
        forget()
        try:
            run(events, **how)
        except Slow as slow:
            error = slow
        except Exception as err:
            return err
        else:
            return None
    return error


def forget() -> None:
    """Empties the caches of all functions."""
    for thing in gc.get_objects():
        if isinstance(thing, functools._lru_cache_wrapper) and thing.__module__.startswith("app."):
            thing.cache_clear()


def same_kind(one: BaseException | None, other: BaseException | None) -> bool:
    """Whether two failures are alike: of the same type, raised in the same place, or worded alike."""
    if one is None or other is None or type(one) is not type(other):
        return False
    return _shape(one) == _shape(other)


def _shape(error: BaseException) -> str:
    if isinstance(error, Slow):
        return re.sub(r"^[0-9]+|\S*[0-9/]\S*", "", str(error))[:40]
    text = re.sub(r"[0-9]+", "", str(error))
    lines = [line for line in text.splitlines() if ", in " in line]
    return lines[-1] if lines else text[:30]


def reduced(
    events: Sequence[Event], error: BaseException, *, seconds: float = 120, **how: Any
) -> list[Event]:
    """The events to blame for an error."""
    end = time.monotonic() + seconds

    def fails(fewer: Sequence[Event]) -> bool:
        return time.monotonic() < end and same_kind(what_fails(fewer, **how), error)

    return cut_down(events, fails)


# ---------------------------------------------------------------- what is refused changes nothing


def refused_objects_change_nothing(events: Sequence[Event]) -> int:
    """Runs a history twice, the second time without the objects that were refused in the first; how many those were.

    Raises Violation unless everyone goes to the same nodes. Objects that are known in part, such as bound pods, may
    matter and stay.
    """
    events = [event for event in events if event.plain]
    bindings, refused = _bindings(events, frozenset())
    others, _ = _bindings(events, refused)
    same("who was bound where, without the refused objects,", bindings, others)
    return len(refused)


def _bindings(
    events: Sequence[Event], left_out: frozenset[int]
) -> tuple[dict[str, str], frozenset[int]]:
    """Node names by pod, and the places of the events whose objects were refused. Time passes for events left out as
    well.
    """
    bindings: dict[str, str] = {}
    refused: set[int] = set()

    async def main() -> None:
        async with running() as world:
            wants = itertools.cycle(WANTS)
            for place, event in enumerate(events):
                world.listener.records.clear()
                if place not in left_out:
                    world.server.happens(event)
                await world.quiet()
                told = [record.getMessage() for record in world.listener.records]
                if event.type in {"ADDED", "MODIFIED"} and any("is ignored" in it for it in told):
                    refused.add(place)
                if event.type == "EXPIRED":
                    await world.quiet(_RECONNECTED)
                if place % NORMAL_EVERY == 0:
                    await world.add_normal(next(wants))
            await world.quiet(30)
            bindings.update(world.server.bindings)

    in_new_loop(main)
    return bindings, frozenset(refused)
