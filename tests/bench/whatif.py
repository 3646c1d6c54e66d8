"""Measures questions what would happen, on 5000 nodes with 50,000 pods: ``python -m tests.bench.whatif``.

Times are those of the processor, as of a machine with nothing else to do; ten questions a second are ten for each
second of processor time that the scheduler has used.
"""

import argparse
import asyncio
import gc
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import uvloop

from app.framework.testing import make_node, make_pod
from app.model.objects import Node, OwnerReference
from app.model.pod import Pod
from app.wire.whatif_v1 import WhatIfQuestion
from tests.shell.scheduler.world import World, running

Manifest = dict[str, Any]


def deployment(name: str, cpu: str, replicas: int) -> Manifest:
    """A Deployment without anything particular."""
    container = {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "128Mi"}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template,
        },
    }


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


def backlog(first: int, number: int) -> Iterator[Pod]:
    """Pods of one workload that wait."""
    requests = {"cpu": "10m", "memory": "16Mi"}
    spec = {"containers": [{"name": "main", "resources": {"requests": requests}}]}
    for each in range(first, first + number):
        yield make_pod(f"new-{each}", labels={"app": "new"}, spec=spec)


async def scheduled(world: World, pods: list[Pod], questions: int) -> tuple[float, int]:
    """Schedules pods; seconds of CPU that this took, and how many questions were answered meanwhile.

    ``questions``: how many are asked for each second of CPU.
    """
    answered = 0

    async def ask(number: int) -> None:
        nonlocal answered
        asked = [deployment(f"asked-{number}", "100m", 1)]
        await world.scheduler.whatif.ask(
            WhatIfQuestion("fits", objects=asked, timeout_seconds=50.0)
        )
        answered += 1

    for pod in pods:
        world.add(pod)
    gc.collect()
    began, work = time.process_time(), asyncio.ensure_future(world.lead())
    due, asking = 0, set[asyncio.Task[None]]()
    state = world.state
    while state.ready or world.scheduler.binder.cycles.count:
        await asyncio.sleep(0.001)
        used = time.process_time() - began
        if questions and used * questions > due and len(asking) < 16:
            due += 1
            task = asyncio.ensure_future(ask(due))
            asking.add(task)
            task.add_done_callback(asking.discard)
    used = time.process_time() - began
    work.cancel()
    await asyncio.wait([work])
    for task in tuple(asking):
        task.cancel()
    found = await asyncio.gather(*asking, return_exceptions=True)
    unexpected = [each for each in found if isinstance(each, Exception)]
    if unexpected:
        raise unexpected[0]
    for pod in pods:
        assumed = state.cache.get(pod.uid)
        if assumed is not None:
            state.forget(assumed)
        world.change(Pod, pod, None)
    return used, answered


async def lost(world: World, rounds: int, pods: int) -> None:
    """Prints the part of the CPU that ten questions a second take from scheduling."""
    some = list(backlog(0, pods))
    await scheduled(world, some, 0)
    await scheduled(world, some, 10)
    without, with_them, answered = [], [], 0
    for _ in range(rounds):
        without.append((await scheduled(world, some, 0))[0])
        used, more = await scheduled(world, some, 10)
        with_them.append(used)
        answered += more
    ratios = [b / a for a, b in zip(without, with_them, strict=True)]
    print(
        f"{pods} pods: {statistics.median(without):.3f} s, with 10 questions a second "
        f"{statistics.median(with_them):.3f} s: median of {rounds} pairs {statistics.median(ratios) - 1:+.2%}, "
        f"best of each {min(with_them) / min(without) - 1:+.2%}; {answered} answers"
    )


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
        await lost(world, given.pairs, given.backlog)
        world.scheduler.whatif.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.whatif", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument(
        "--backlog", type=int, default=3000, help="pods of one measurement of the loss"
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=6, help="pairs of measurements of the loss")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
