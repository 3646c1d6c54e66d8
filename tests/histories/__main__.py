"""Plays histories: ``python -m tests.histories --seed 7`` or
``python -m tests.histories --histories 10000 --table``."""

import argparse
import functools
import itertools
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from tests.histories.bugs import BUGS, GANG_BUGS
from tests.histories.history import Outcome
from tests.histories.playing import play, table, told
from tests.histories.shape import EXTENDERS, draw

#: Seeds that one worker plays in one go.
_BATCH = 50


def _batch(seeds: Sequence[int], bug: str, without: list[str], contests: bool) -> list[Outcome]:
    """The histories of some seeds, without their stories."""
    played = play(seeds, bug=bug, without=without, contests=contests)
    return [o._replace(story=[]) for o in played]


def seeds_from(first: int, extenders: Collection[str]) -> Iterator[int]:
    """All seeds from ``first`` on whose histories have one of these extenders; of none given, all."""
    for seed in itertools.count(first):
        if not extenders or not set(extenders).isdisjoint(draw(seed).extenders):
            yield seed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.histories", description=__doc__)
    parser.add_argument("--seed", type=int, help="play this one and print its story")
    parser.add_argument("--histories", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes side by side")
    parser.add_argument("--table", action="store_true", help="which faults hit which requests")
    parser.add_argument(
        "--bug", choices=sorted(BUGS | GANG_BUGS), default="", help="plant this one"
    )
    parser.add_argument(
        "--without", action="append", default=[], metavar="FAULT", help="leave out this fault"
    )
    parser.add_argument("--contests", action="store_true", help="contests of gangs")
    parser.add_argument(
        "--extender",
        action="append",
        choices=sorted(EXTENDERS),
        default=[],
        help="only histories with this one; may be given several times: with one of these",
    )
    given = parser.parse_args()
    if given.contests and given.extender:
        parser.error("contests have extenders of their own")
    how = {"bug": given.bug, "without": given.without, "contests": given.contests}
    if given.seed is not None:
        [outcome] = play([given.seed], **how)
        print(told(outcome))
        return int(bool(outcome.violations))
    seeds = itertools.islice(seeds_from(given.first, given.extender), given.histories)
    batches = iter(lambda: list(itertools.islice(seeds, _BATCH)), [])
    counts: Counter[tuple[str, str]] = Counter()
    failed = 0
    with multiprocessing.Pool(given.jobs) as pool:
        batch = functools.partial(_batch, **how)
        for outcomes in pool.imap_unordered(batch, batches):
            for outcome in outcomes:
                counts.update(outcome.counts)
                if outcome.violations:
                    failed += 1
                    print(f"history {outcome.seed}: {outcome.violations[0]}", flush=True)
    if given.table:
        print(table(counts))
    print(f"{given.histories} histories, {failed} of them broke a rule")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
