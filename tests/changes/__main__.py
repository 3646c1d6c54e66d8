"""Plays random cases: ``python -m tests.changes --cases 300``, or ``--seed 7``."""

import argparse
import multiprocessing
import os
import sys
import traceback
from collections import Counter

from app.runtime.leaping import LeapingLoop
from tests.changes.playing import WrongSuggestionError, play


def _played(seed: int) -> tuple[int, Counter[str], str]:
    loop = LeapingLoop()
    try:
        return seed, loop.run_until_complete(play(seed)), ""
    except WrongSuggestionError as wrong:
        return seed, Counter(), str(wrong)
    except Exception:
        return seed, Counter(), traceback.format_exc()
    finally:
        loop.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.changes", description=__doc__)
    parser.add_argument("--seed", type=int, help="play this one only")
    parser.add_argument("--cases", type=int, default=300, help="how many (default: 300)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes side by side")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.cases)
    if given.seed is not None:
        seeds = range(given.seed, given.seed + 1)
    counts: Counter[str] = Counter()
    failed = 0
    with multiprocessing.Pool(given.jobs) as pool:
        for seed, counted, problem in pool.imap_unordered(_played, seeds, chunksize=4):
            counts.update(counted)
            if problem:
                failed += 1
                print(f"case {seed}: {problem}", flush=True)
    print(f"{len(seeds)} cases, {failed} wrong: {dict(sorted(counts.items()))}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
