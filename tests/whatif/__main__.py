"""Asks about random clusters, does what was asked about, and compares:
``python -m tests.whatif --clusters 500 --real 50``."""

import argparse
import asyncio
import contextlib
import sys
import tempfile
from collections import Counter
from pathlib import Path

from app.kube.client import ClientLimits, KubeClient
from app.kube.kubeconfig import load_connection
from app.runtime.clock import SystemClock
from app.runtime.leaping import LeapingLoop
from tests.whatif.playing import Compared, play, play_embedded, seeds, wipe

#: The part of the pods that must be as was said, or a tie that says so.
ENOUGH = 0.999


def _embedded(seed: int) -> Compared:
    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        return runner.run(play_embedded(seed))


async def _real(first: int, number: int, kubeconfig: Path, tell) -> None:
    clock = SystemClock()
    connection = load_connection(kubeconfig=str(kubeconfig), wall=clock.wall)
    limits = ClientLimits(qps=5000, burst=5000, exchanges=64)
    async with KubeClient(connection, agent="what-if", limits=limits) as client:
        for seed in seeds(first, number):
            await wipe(client)
            tell(seed, await play(seed, client, clock))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.whatif", description=__doc__)
    parser.add_argument("--clusters", type=int, default=500, help="in this process (default: 500)")
    parser.add_argument(
        "--real", type=int, default=0, help="on a real API server ($KUBEBUILDER_ASSETS)"
    )
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    given = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()

    def tell(seed: int, found: Compared) -> None:
        counts[found.question, "equal"] += found.equal
        counts[found.question, "ties"] += found.ties
        counts[found.question, "wrong"] += len(found.wrong)
        counts[found.question, "clusters"] += 1
        for text in found.wrong:
            print(f"cluster {seed} ({found.question}): {text}", flush=True)

    for seed in seeds(given.first, given.clusters):
        tell(seed, _embedded(seed))
    if given.real:
        from tests.whole.real import RealApiServer

        with contextlib.ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            server = stack.enter_context(RealApiServer(directory).running())
            asyncio.run(_real(given.first, given.real, server.kubeconfig, tell))
    for question in sorted({question for question, _ in counts}):
        parts = {what: counts[question, what] for what in ("clusters", "equal", "ties", "wrong")}
        print(question, parts)
    total = sum(n for (_, what), n in counts.items() if what != "clusters")
    wrong = sum(n for (_, what), n in counts.items() if what == "wrong")
    print(f"{total - wrong} of {total} pods are as was said, or a tie that says so")
    return int(total == 0 or (total - wrong) / total < ENOUGH)


if __name__ == "__main__":
    sys.exit(main())
