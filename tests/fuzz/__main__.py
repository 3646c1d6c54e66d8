"""The long run: histories from seeds until the time is up.
``python -m tests.fuzz --seconds 600 [--seed N] [--found DIR]``

``--objects N`` instead of ``--seconds`` runs until so many objects and answers were judged. Its objects are made by
changing valid ones (mutations.py), in histories of 10,000.

Prints what it met, also when it is interrupted: objects per second, the slowest, and what was refused. Each kind of
failure is cut down to the events to blame and written to a file for the corpus (tests/fuzz/corpus), once. The exit
status is 1 if there was any.
"""

import argparse
import contextlib
import hashlib
import re
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.fuzz import asking, calling, configurations, driver, electing, mutations, selecting
from tests.fuzz.driver import Figures
from tests.fuzz.histories import Event, Guests, to_json
from tests.fuzz.world import BUDGET, Cost

_DOORS = (
    ("answers", 30, asking.run),
    ("bytes of answers", 100, asking.run_calls),
    ("requests", 100, calling.run),
    ("configurations", 20, configurations.run),
    ("leases", 20, electing.run),
    ("selectors", 100, selecting.run),
)
#: Events of a history of changed objects.
_EVENTS = 10_000


class Run:
    """One long run."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._figures = Figures()
        self._known: list[BaseException] = []
        #: How often something was too slow twice.
        self._slow = 0

    def run(self) -> int:
        """Runs until the time is up; the exit status."""
        options = self._options
        started, seed = time.monotonic(), options.seed
        with contextlib.suppress(KeyboardInterrupt):
            while not self._done(time.monotonic() - started):
                self._figures.seed = seed
                if options.objects:
                    self._mutations(seed)
                    self._doors(seed)
                    print(
                        f"{self._figures.events} after {time.monotonic() - started:.0f} s",
                        flush=True,
                    )
                else:
                    self._history(seed)
                    if seed % 10 == 0:
                        self._doors(seed)
                seed += 1
        self._report(time.monotonic() - started, seed - options.seed)
        return 1 if self._known or self._slow else 0

    def _done(self, seconds: float) -> bool:
        objects = self._options.objects
        return self._figures.events >= objects if objects else seconds >= self._options.seconds

    def _mutations(self, seed: int) -> None:
        """A history of changed objects; what was too slow in it is written to files."""
        try:
            slow = mutations.run(seed, _EVENTS, self._figures, budget=self._options.budget)
        except Exception as error:
            error = driver.only(error)
            if not any(driver.same_kind(error, known) for known in self._known):
                self._known.append(error)
                print(f"seed {seed}, mutations: {_brief(error)}", flush=True)
                traceback.print_exception(error)
            return
        for cost, event in slow:
            self._slow += 1
            print(f"seed {seed}: {cost.seconds * 1000:.1f} ms: {cost.what}", flush=True)
            if event is not None:
                self._write([event], cost.what)

    def _doors(self, seed: int) -> None:
        """The other doors: answers of extenders, requests to the endpoints, configuration files, selectors of
        devices.
        """
        for name, number, door in _DOORS:
            try:
                door(seed, number, self._figures)
            except Exception as error:
                error = driver.only(error)
                if not any(driver.same_kind(error, known) for known in self._known):
                    self._known.append(error)
                    print(f"seed {seed}, {name}: {_brief(error)}", flush=True)

    def _history(self, seed: int) -> None:
        guests = Guests(Random(seed), harm=self._options.harm)
        for _ in range(5):
            events = guests.events(self._options.events)
            try:
                driver.run(events, self._figures, budget=self._options.budget)
            except Exception as error:
                self._found(events, error, seed)
                return

    def _found(self, events: Sequence[Event], error: Exception, seed: int) -> None:
        if any(driver.same_kind(error, known) for known in self._known):
            return
        budget = self._options.budget
        confirmed = driver.what_fails(events, budget=budget)
        if confirmed is None:
            print(f"seed {seed}: not seen again: {_brief(error)}", flush=True)
            return
        self._known.append(confirmed)
        blamed = driver.reduced(events, confirmed, seconds=self._options.reduce, budget=budget)
        name = self._write(blamed, _brief(confirmed))
        print(
            f"seed {seed}: {len(blamed)} of {len(events)} events, {name}\n  {_brief(confirmed)}",
            flush=True,
        )

    def _print_readings(self, what: str, readings: Sequence[tuple[int, Cost]]) -> None:
        print(f"{len(readings)} readings over {BUDGET * 1000:.0f} ms, {what}:")
        for seed, cost in sorted(readings, key=lambda each: -each[1].seconds)[:40]:
            print(f"  {cost.seconds * 1000:7.1f}  seed {seed}: {cost.what}")

    def _write(self, events: Sequence[Event], what: str) -> str:
        """Writes events to a file; its name."""
        text = to_json(events, what=what)
        name = f"{what.split(':', maxsplit=1)[0].split(' ', maxsplit=1)[0]}-{hashlib.sha256(text).hexdigest()[:8]}.json".lower()
        self._options.found.mkdir(parents=True, exist_ok=True)
        (self._options.found / name).write_bytes(text)
        return name

    def _report(self, seconds: float, histories: int) -> None:
        figures = self._figures
        print(
            f"{figures.events} objects, {figures.attempts} attempts of guests and {figures.normal} normal pods in {histories} "
            f"histories, {seconds:.0f} s: {figures.events / seconds:.0f} objects a second"
        )
        print(f"normal pods: {dict(figures.results)}")
        print("slowest, ms of CPU:")
        for cost, event in figures.slowest:
            size = (
                ""
                if event is None
                else f", {len(event.text)} bytes: {repr(event.text[:100])[2:-1]}"
            )
            print(f"  {cost.seconds * 1000:7.1f}  {cost.what}{size}")
        print("slowest of each kind, ms of CPU:")
        for kind, cost in sorted(figures.highest.items(), key=lambda each: -each[1].seconds):
            print(f"  {cost.seconds * 1000:7.1f}  {kind}")
        self._print_readings("one object, request or attempt", figures.over)
        self._print_readings("a turn of the event loop with many", figures.shared)
        print("refused:")
        for (kind, reason), number in figures.refused.most_common(60):
            print(f"  {number:7}  {kind}: {reason}")


def _brief(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    told = lines[0] if len(lines) == 1 else f"{lines[0]} ... {lines[-2].strip()} ... {lines[-1]}"
    return re.sub(r"\s+", " ", f"{type(error).__name__}: {told}")[:600]


def main() -> int:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--objects", type=int, default=0, help="instead of --seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--events", type=int, default=300, help="in one world")
    parser.add_argument(
        "--harm",
        type=float,
        default=None,
        help="probability for each place of an object; varied by default",
    )
    parser.add_argument(
        "--budget", type=float, default=BUDGET, help="seconds of CPU for one object"
    )
    parser.add_argument(
        "--reduce", type=float, default=60, help="seconds for cutting a failure down"
    )
    parser.add_argument(
        "--found", type=Path, default=Path("fuzz-found"), help="where failures are written"
    )
    return Run(parser.parse_args()).run()


if __name__ == "__main__":
    sys.exit(main())
