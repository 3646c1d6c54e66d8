"""Guests made by changing valid objects at a few places, which is much faster than drawing each anew; and histories of
very many.

An object is told to the informer directly, between two turns of the event loop, and its CPU time is measured on its
own.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from random import Random
from typing import Any

import msgspec

from app.kube.errors import KubeApiError
from tests.fuzz.driver import Figures, History, in_new_loop
from tests.fuzz.histories import Event, Guests
from tests.fuzz.kinds import KINDS, META, Kind
from tests.fuzz.shapes import LARGEST_OBJECT, encode, junk
from tests.fuzz.world import BUDGET, Cost, running

#: Valid objects of each kind that are changed.
_VALID = 60
#: Events between two rounds.
ROUND = 1000
#: How many places of an object are changed.
_PLACES = (0, 0, 0, 1, 1, 1, 1, 2, 3, 8)
_NUMBERS = (0, 1, -1, 64, 65, 1000, 1001, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, 2**63, -(2**63))
_TEXTS = (
    "",
    "0",
    "-1",
    "1e3",
    "9" * 400,
    "1E",
    "0.1n",
    "x" * 64,
    "x" * 5000,
    "a/b",
    "\u00fc",
    "a b",
)
_TIMES = (2, 3, 65, 257, 1001, 20_000)


class MutatedGuests(Guests):
    """Makes the same events as Guests, from changed objects."""

    #: A list for each of them takes most of the time.
    lines = 0.002

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._random = random
        self._corpus = {kind.name: list(_valid(kind, random)) for kind in KINDS}
        self._everything = [each for some in self._corpus.values() for each in some]

    def drawn(self, kind: Kind, harm: float) -> tuple[Any, dict[str, Any]]:
        random = self._random
        value = random.choice(self._corpus[kind.name])
        for _ in range(random.choice(_PLACES)):
            value = self._changed(value)
        value = value if isinstance(value, dict) else {}
        return value.get("metadata", {}), {k: v for k, v in value.items() if k != "metadata"}

    def is_json(self, text: bytes) -> bool:
        try:
            text.decode()
            msgspec.json.decode(text, type=msgspec.Raw)
        except (ValueError, RecursionError):
            return False
        return True

    def _changed(self, value: Any, depth: int = 0) -> Any:
        """A copy with one place changed; the rest is shared."""
        random = self._random
        if isinstance(value, dict) and value and (depth == 0 or random.random() < 0.8):
            key = random.choice(list(value))
            if depth and random.random() < 0.1:
                return self._other_keys(value, key)
            return {**value, key: self._changed(value[key], depth + 1)}
        if isinstance(value, list) and value and random.random() < 0.75:
            if random.random() < 0.15:
                return self._other_items(value)
            place = random.randrange(len(value))
            return [*value[:place], self._changed(value[place], depth + 1), *value[place + 1 :]]
        return self._other(value)

    def _other(self, value: Any) -> Any:
        random = self._random
        choice = random.random()
        if choice < 0.3:
            return junk(random)
        if choice < 0.45:
            return self._from_elsewhere()
        match value:
            case bool():
                return not value
            case int():
                return random.choice((*_NUMBERS, value + 1, -value))
            case str():
                return random.choice((*_TEXTS, value + "x", value.upper(), value[1:]))
        return random.choice((None, [value], {"x": value}))

    def _other_keys(self, value: dict[str, Any], key: str) -> dict[str, Any]:
        random = self._random
        fewer = {name: each for name, each in value.items() if name != key}
        match random.randrange(4):
            case 0:
                return fewer
            case 1:
                return fewer | {random.choice(_TEXTS): value[key]}
            case 2:
                number = _fitting(random.choice(_TIMES), value[key])
                return value | {f"{key}{i}": value[key] for i in range(number)}
        return value | {key: self._from_elsewhere()}

    def _other_items(self, value: list[Any]) -> list[Any]:
        random = self._random
        if random.random() < 0.5:
            return value * _fitting(random.choice(_TIMES), value)
        items = [*value, self._from_elsewhere()]
        random.shuffle(items)
        return items

    def _from_elsewhere(self) -> Any:
        """Any part of any object."""
        random = self._random
        value = random.choice(self._everything)
        while isinstance(value, dict | list) and value and random.random() < 0.7:
            value = random.choice(list(value.values()) if isinstance(value, dict) else value)
        return value


def _valid(kind: Kind, random: Random) -> Iterator[dict[str, Any]]:
    for _ in range(_VALID):
        yield {"metadata": META.valid(random, 0), **kind.body.valid(random, 0)}


def _fitting(number: int, value: Any) -> int:
    return max(1, min(number, LARGEST_OBJECT // 2 // (len(encode(value)) + 20)))


class DirectHistory(History):
    """Tells objects to the informers directly. Costs beyond the budget are kept in ``slow``, by number of the event and
    what it was.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._number = 0
        #: Kinds of which the watch has told what a list would not.
        self._contradicted: set[str] = set()
        self.slow: dict[tuple[int, str], tuple[Cost, Event | None]] = {}

    def spent(self, cost: Cost, event: Event | None) -> None:
        self._figures.cost(cost, event)
        if cost.seconds > self._budget:
            self.slow[self._number, cost.what] = cost, event

    async def rounds(self, events: Sequence[Event]) -> None:
        """Between two rounds all guests go, and all normal pods are bound."""
        for start in range(0, len(events), ROUND):
            await super().rounds(events[start : start + ROUND])
            for kind, key in self.guests():
                text = self._world.server.objects[kind][key]
                await self.happens(Event(kind, key, "DELETED", text))
            for kind in self._contradicted:
                await self._world.list_again(kind)
            self._contradicted.clear()
            await self.all_normal()
            await self._world.remove_normal()
            await self._world.restore()

    async def happens(self, event: Event) -> None:
        self._number += 1
        if not event.plain or event.type not in {"ADDED", "MODIFIED", "DELETED"}:
            self._contradicted.add(event.kind)
            await super().happens(event)
            return
        self._figures.events += 1
        server, informer = self._world.server, self._informer(event.kind)
        refused = self._refused(event.kind)
        if event.type == "DELETED":
            server.objects[event.kind].pop(event.key, None)
        else:
            server.objects[event.kind][event.key] = event.text
        line = b'{"type":"%b","object":%b}' % (event.type.encode(), event.text)
        started = time.thread_time()
        try:
            for told in informer._feed.read([line]):
                for change in informer._store.apply(told):
                    informer._handle(*change)
        except KubeApiError:
            server.expire(event.kind)
            await self._world.quiet(15)
            return
        seconds = time.thread_time() - started
        self.spent(Cost(seconds, f"{event.type} {event.kind} {event.key[:80]}"), event)
        self._taken_or_refused(event, refused)


class _AtOnce(ThreadPoolExecutor):
    """Runs everything at once: virtual time would pass, and objects be told, while a thread still reads a list."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(function(*args, **more))
        except Exception as error:
            done.set_exception(error)
        return done


def run(
    seed: int, number: int, figures: Figures, *, budget: float = BUDGET
) -> list[tuple[Cost, Event | None]]:
    """So many events in a world; what was too slow in it, and again when all was repeated. Raises Violation."""
    events = MutatedGuests(Random(seed)).events(number)
    slow = _run(events, figures, budget)
    if not slow:
        return []
    again = _run(events, Figures(), budget)
    return [slow[each] for each in slow if each in again]


def _run(
    events: Sequence[Event], figures: Figures, budget: float
) -> dict[tuple[int, str], tuple[Cost, Event | None]]:
    histories: list[DirectHistory] = []

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(_AtOnce())
        async with running() as world:
            histories.append(DirectHistory(world, figures, budget=budget))
            await histories[0].run(events)

    in_new_loop(main)
    return histories[0].slow
