"""Prints what a pod passes on its way and what the code of app consists of, or records it: ``python -m
tests.figures``.
"""

import argparse
import sys

from tests.figures.bounds import BOUNDS, grown, read, record
from tests.figures.counts import Count, counts, modules
from tests.figures.ways import WAYS, Trace, follow


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.figures", description=__doc__)
    parser.add_argument("--places", action="store_true", help="where each figure comes from, too")
    parser.add_argument("--record", action="store_true", help=f"write them to {BOUNDS.name}")
    given = parser.parse_args()
    counted = counts(modules())
    traces = {way: follow(way) for way in WAYS}
    bounds = read()
    _print_counts(counted, bounds, places=given.places)
    _print_ways(traces, bounds, places=given.places)
    figures = {name: count.figure for name, count in counted.items()}
    figures |= {
        f"{way}: {what}": n for way, trace in traces.items() for what, n in trace.counts().items()
    }
    if given.record:
        record(figures)
        return 0
    problems = grown(figures, bounds)
    print(*problems, sep="\n")
    return int(bool(problems))


def _print_counts(counted: dict[str, Count], bounds: dict[str, int], *, places: bool) -> None:
    print("| | now | at most |\n|---|---|---|")
    for name, count in counted.items():
        print(f"| {name} | {count.figure} | {bounds.get(name, '')} |")
        if places:
            print(*(f"    {place}" for place in count.places), sep="\n")


def _print_ways(traces: dict[str, Trace], bounds: dict[str, int], *, places: bool) -> None:
    for way, trace in traces.items():
        now = trace.counts()
        print(
            f"| {way}: {'; '.join(now)} | {'; '.join(map(str, now.values()))} "
            f"| {'; '.join(str(bounds.get(f'{way}: {what}', '')) for what in now)} |"
        )
        if places:
            print(*(f"    {module}" for module in trace.modules()), sep="\n")


if __name__ == "__main__":
    sys.exit(main())
