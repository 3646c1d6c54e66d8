"""Measures questions what would happen, on 5000 nodes with 50,000 pods: ``python -m tests.bench.whatif``.

Times are those of the processor, as of a machine with nothing else to do. What scheduling loses meanwhile is measured by
``python -m tests.bench --questions 0 --questions 10``.
"""

import argparse
import asyncio
import gc
import statistics
import sys
import time
from typing import Any

import msgspec
import uvloop

from app.framework.testing import make_node, make_pod
from app.model.objects import Node, OwnerReference
from app.model.pod import Pod
from app.wire.whatif_v1 import WhatIfQuestion
from tests.bench.asking import deployment
from tests.shell.scheduler.world import World, running


def fill(world: World, nodes: int, pods: int) -> None:
    """Nodes of 8 CPUs, and bound pods of 20 workloads."""
    offered = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    for number in range(nodes):
        labels = {"kubernetes.io/hostname": f"n{number}", "zone": f"z{number % 3}"}
        node = make_node(f"n{number}", labels=labels, status={"allocatable": offered})
        world.change(Node, None, node)
    owner = OwnerReference(kind="ReplicaSet", name="its", uid="its", controller=True)
    found = {}
    for number in range(pods):
        requests = {"cpu": f"{100 + number * 7 % 400}m", "memory": "256Mi"}
        spec = {
            "nodeName": f"n{number % nodes}",
            "containers": [{"name": "main", "resources": {"requests": requests}}],
        }
        pod = make_pod(f"there-{number}", labels={"app": f"a{number % 20}"}, spec=spec)
        found[pod.key] = msgspec.structs.replace(pod, owner=owner)
    world.state.apply_new(Pod, found, world.clock.steady())


async def timed(world: World, name: str, rounds: int, **question: Any) -> None:
    """Prints how long a question takes."""
    seconds = []
    for number in range(rounds + 1):
        given = dict(question)
        if "objects" in given:
            given["objects"] = [
                deployment(f"{name}-{number}-{i}", f"{cpu + number}m", replicas)
                for i, (cpu, replicas) in enumerate(given["objects"])
            ]
        began = time.process_time()
        answer = await world.scheduler.whatif.ask(
            WhatIfQuestion(timeout_seconds=50.0, limit=10_000, **given)
        )
        if number:
            seconds.append(time.process_time() - began)
        assert not answer.truncated
    seconds.sort()
    last = seconds[min(len(seconds) - 1, int(len(seconds) * 0.99))]
    print(
        f"{name}: median {statistics.median(seconds) * 1000:.1f} ms, p99 {last * 1000:.1f} ms of CPU"
    )


async def _main(given: argparse.Namespace) -> None:
    async with running() as world:
        for informer in world.scheduler.informers:
            informer.synced.set()
        fill(world, given.nodes, given.pods)
        gc.collect()
        gc.freeze()
        began = time.process_time()
        await world.scheduler.whatif.ask(
            WhatIfQuestion("fits", objects=[deployment("first", "100m", 1)], timeout_seconds=50.0)
        )
        print(f"the first question: {time.process_time() - began:.3f} s of CPU")
        rounds = given.rounds
        shapes = [(500, 1), (1000, 1), (2000, 1), (3000, 1), (7000, 1)]
        nodes = [f"n{number}" for number in range(50)]
        await timed(world, "fits-1", 5 * rounds, question="fits", objects=[(100, 1)])
        await timed(world, "fits-100", 5 * rounds, question="fits", objects=[(100, 100)])
        await timed(world, "how-many-5-shapes", rounds, question="how-many", objects=shapes)
        await timed(world, "drain-50", rounds, question="drain", nodes=nodes)
        world.scheduler.whatif.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.whatif", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=20)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
