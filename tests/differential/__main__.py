"""Compares a long-lived state with new ones: ``python -m tests.differential --sequences 10000``, or ``--seed 7``."""

import argparse
import multiprocessing
import os
import sys
import traceback
from collections import Counter

from tests.differential.playing import Difference, play


def _played(seed: int) -> tuple[int, Counter[str], str]:
    try:
        return seed, play(seed), ""
    except Difference as difference:
        return seed, Counter(), str(difference)
    except Exception:
        return seed, Counter(), traceback.format_exc()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--seed", type=int, help="play this one only")
    parser.add_argument("--sequences", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes side by side")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.sequences)
    if given.seed is not None:
        seeds = range(given.seed, given.seed + 1)
    counts: Counter[str] = Counter()
    failed = 0
    with multiprocessing.Pool(given.jobs) as pool:
        for seed, compared, problem in pool.imap_unordered(_played, seeds, chunksize=8):
            counts.update(compared)
            if problem:
                failed += 1
                print(f"sequence {seed}: {problem}", flush=True)
    print(f"{len(seeds)} sequences, {failed} with a difference: {dict(sorted(counts.items()))}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
