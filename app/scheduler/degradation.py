"""What does not hold at the moment although the process works: readiness checks that are told and do not fail.

A scheduler that is not ready is not restarted, but its endpoints lose it, its metrics among them, just when people want to
see them. So these checks only tell: in ``/readyz?verbose``, in the log when they change, and with the reason at their own paths.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from app.extender.breaker import State
from app.extender.client import HTTPExtender
from app.extender.config import Verb
from app.kube.informer import InformerStatistics
from app.runtime.limits import Limits, resident_memory
from app.runtime.shortages import Shortages
from app.serving.health import Check

#: Seconds without a word from a watch: connections live for two minutes at most, so some must have failed.
SILENT: Final = 180.0
#: Seconds for which a drop is told.
LATELY: Final = 300.0
#: The part of its memory beyond which a process is short of it.
FULL: Final = 0.9


def watches(informers: Callable[[], Iterable[InformerStatistics]]) -> Iterator[Check]:
    """Whether every watch is heard of, and every object can be read and taken over."""

    def silent() -> str | None:
        late = {i.kind: i.age for i in informers() if i.age is not None and i.age > SILENT}
        return _listed(f"{kind}: nothing heard for {age:.0f} s" for kind, age in late.items())

    def unreadable() -> str | None:
        counts = {i.kind: i.unreadable + i.refused for i in informers()}
        return _listed(
            f"{count} of {kind} cannot be used" for kind, count in counts.items() if count
        )

    yield _told("watch-age", silent)
    yield _told("objects", unreadable)


def resources(limits: Limits, shortages: Shortages) -> Iterator[Check]:
    """Whether the system gives the process what it asks for."""

    def memory() -> str | None:
        used = resident_memory()
        if used < FULL * limits.memory:
            return None
        return f"{used >> 20} MiB of {limits.memory >> 20} MiB are in use"

    yield _told("descriptors", lambda: shortages.reason(asyncio.get_running_loop().time()))
    yield _told("memory", memory)


def extenders(found: Iterable[HTTPExtender]) -> Iterator[Check]:
    """Whether all extenders are called."""

    def left_alone() -> str | None:
        return _listed(
            f"{extender.name}: {verb.value} is not called"
            for extender in found
            for verb in Verb
            if extender.supports(verb) and extender.state(verb) is State.OPEN
        )

    yield _told("extenders", left_alone)


def drops(**counts: Callable[[], float]) -> Iterator[Check]:
    """Whether nothing was dropped lately; ``counts`` tell how much has been, by what it is."""
    yield _told("drops", _Drops(counts).problem)


class _Drops:
    """Remembers when counts have grown."""

    def __init__(self, counts: dict[str, Callable[[], float]]) -> None:
        self._counts: Final = counts
        self._last: Final = dict.fromkeys(counts, 0.0)
        self._grown: Final[dict[str, float]] = {}

    def problem(self) -> str | None:
        now = asyncio.get_running_loop().time()
        for what, count in self._counts.items():
            total = count()
            if total > self._last[what]:
                self._grown[what] = now
            self._last[what] = total
        return _listed(
            f"{what}: {self._last[what]:.0f} dropped so far"
            for what, grown in self._grown.items()
            if now - grown < LATELY
        )


def _told(name: str, problem: Callable[[], str | None]) -> Check:
    return Check(name, problem, fatal=False)


def _listed(problems: Iterable[str]) -> str | None:
    return "; ".join(problems) or None
