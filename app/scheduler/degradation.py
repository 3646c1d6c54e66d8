"""Readiness checks that report problems without failing: silent watches, shortages, extenders not called, drops.

If they failed, the Service would lose the pod, and with it the metrics, just when people need them. So they only
report: in ``/readyz?verbose``, in the log when they change, and with the reason at their own paths.
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
from app.serving.checks import Check

#: Seconds without any data from a watch. A connection lives for two minutes at most, so several must have failed.
SILENT_SECONDS: Final = 180.0
#: Seconds for which a drop is reported.
RECENT_SECONDS: Final = 300.0
#: A process that uses more than this part of its memory limit is short of memory.
FULL: Final = 0.9


def watches(informers: Callable[[], Iterable[InformerStatistics]]) -> Iterator[Check]:
    """Whether every watch delivers data, and every object can be decoded and used."""

    def silent() -> str | None:
        late = {i.kind: i.age for i in informers() if i.age is not None and i.age > SILENT_SECONDS}
        return _listed(f"{kind}: no data for {age:.0f} s" for kind, age in late.items())

    def unreadable() -> str | None:
        counts = {i.kind: i.unreadable + i.refused for i in informers()}
        return _listed(
            f"{count} of {kind} cannot be used" for kind, count in counts.items() if count
        )

    yield _reported("watch-age", silent)
    yield _reported("objects", unreadable)


def resources(limits: Limits, shortages: Shortages) -> Iterator[Check]:
    """Whether the process has enough file descriptors and memory."""

    def memory() -> str | None:
        used = resident_memory()
        if used < FULL * limits.memory:
            return None
        return f"{used >> 20} MiB of {limits.memory >> 20} MiB are in use"

    yield _reported("descriptors", lambda: shortages.reason(asyncio.get_running_loop().time()))
    yield _reported("memory", memory)


def extenders(found: Iterable[HTTPExtender]) -> Iterator[Check]:
    """Whether all extenders are called."""

    def not_called() -> str | None:
        return _listed(
            f"{extender.name}: {verb.value} is not called"
            for extender in found
            for verb in Verb
            if extender.supports(verb) and extender.state(verb) is State.OPEN
        )

    yield _reported("extenders", not_called)


def drops(**counts: Callable[[], float]) -> Iterator[Check]:
    """Whether nothing was dropped lately; ``counts`` return how much has been dropped so far, by what it is."""
    yield _reported("drops", _Drops(counts).problem)


class _Drops:
    """Remembers when each count last grew."""

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
            if now - grown < RECENT_SECONDS
        )


def _reported(name: str, problem: Callable[[], str | None]) -> Check:
    return Check(name, problem, fatal=False)


def _listed(problems: Iterable[str]) -> str | None:
    return "; ".join(problems) or None
