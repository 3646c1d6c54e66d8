"""``python -m tests.bench.stages``: what each stage of a pod's way costs in this process, without an API server.

For each number of nodes: CPU time and bytes per object of the lists, CPU time of each watch line of a bound pod's life,
and of a decision about a pod of a known template with the assumption that follows. Nothing else runs, so that the
figures are lower bounds of what the scheduler's process needs for these stages.
"""

import gc
import itertools
import json
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import click
import msgspec
import numpy as np

from app.cycle.attempt import Attempt
from app.kube.informer import Store
from app.kube.watch_decoder import KindFeed
from app.model.objects import Node
from app.model.pod import Pod
from app.scheduler import kinds
from app.state.scheduler_state import Change
from tests.bench import workload
from tests.core.scheduler.full_state import FullState

_encode: Final = msgspec.json.Encoder().encode
_SLICE: Final = 250
"""Objects of a list that are decoded and applied together, as in app.kube.listing."""
_ZONES: Final = 3
_FIRST_OF_BACKLOG: Final = 10_000_000
"""Uids below it are those of existing pods."""
_now: Final = time.process_time


class Cluster:
    """A scheduler's state fed with lists and watch lines, as its informers do it."""

    def __init__(self) -> None:
        self.full: Final = FullState()
        self.nodes: Final = _Kind(Node, kinds.nodes(keep_raw=False), self.full)
        self.pods: Final = _Kind(Pod, kinds.pods(keep_raw=False, keep_bound_raw=False), self.full)

    def decide(self) -> str:
        """Chooses a node for the next pod and assumes the pod there; the pod's key."""
        full = self.full
        queued = full.state.pop(full.now)
        if queued is None:
            raise LookupError("no pod is active")
        pod = queued.pod
        attempt = Attempt(
            full.framework,
            full.state.table,
            pod,
            nominated=full.state.nominated_for,
            rng=full.rng,
            nominated_node=full.state.nominator.node_of(pod.uid),
            latest=full.state.latest,
        )
        choice = attempt.choose_at_once() or attempt.choose(attempt.find())
        full.state.assume(pod, choice.node_name)
        full.state.done(pod.uid)
        return choice.node_name


class _Kind:
    """The informer of one kind."""

    def __init__(self, model: type, kind: Any, full: FullState) -> None:
        self._model: Final = model
        self._kind: Final = kind
        self._feed: Final = KindFeed(kind)
        self._store: Final[Store[Any]] = Store()
        self._full: Final = full

    def list(self, objects: Sequence[bytes]) -> None:
        """Takes over a part of a list."""
        items = self._kind.decoder.decode_all([msgspec.Raw(raw) for raw in objects])
        new = self._store.add({item.key: item for item in items})
        self._full.state.apply_new(self._model, new, self._full.now)

    def watch(self, lines: Sequence[bytes]) -> None:
        """Takes over a chunk of a watch."""
        for batch in self._feed.batches(lines, lambda: 0.0):
            for event in batch:
                for old, new in self._store.apply(event):
                    self._full.state.apply(Change(self._model, old, new), self._full.now)


def _stored(value: Mapping[str, Any], number: int, **status: Any) -> dict[str, Any]:
    """An object as an API server shows it."""
    metadata = {
        "uid": f"00000000-0000-4000-8000-{number:012d}",
        "resourceVersion": str(1_000_000 + number),
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return {
        **value,
        "metadata": value["metadata"] | metadata,
        "status": (value.get("status") or {}) | status,
    }


def _node(number: int) -> bytes:
    return _encode(_stored(workload.node(number, zones=_ZONES, shape="basic", padding=0), number))


def _existing(number: int, nodes: int) -> bytes:
    pod = workload.existing_pod(number, nodes=nodes, shape="basic")
    pod["metadata"]["name"] = f"web-5d59d67564-{number:07d}"
    return _encode(_stored(pod, number, phase="Running", startTime="2026-01-01T00:00:00Z"))


def _life(number: int, node: str, shape: str) -> dict[str, bytes]:
    """The watch lines of a pod of the backlog."""
    pod = workload.measured_pod(number, shape)
    number += _FIRST_OF_BACKLOG
    waiting = _stored(pod, number, phase="Pending")
    bound = _stored(pod, number, phase="Pending")
    bound["spec"] = bound["spec"] | {"nodeName": node}
    bound["metadata"]["resourceVersion"] = str(2_000_000 + number)
    running = _stored(pod, number, phase="Running", startTime="2026-01-01T00:00:01Z")
    running["spec"] = bound["spec"]
    running["metadata"]["resourceVersion"] = str(3_000_000 + number)
    return {
        "arrival": _line("ADDED", waiting),
        "confirmation": _line("MODIFIED", bound),
        "running": _line("MODIFIED", running),
        "deletion": _line("DELETED", running),
        "bound arrival": _line("ADDED", bound),
    }


def _line(type_: str, value: Any) -> bytes:
    return b'{"type":"' + type_.encode() + b'","object":' + _encode(value) + b"}"


def _timed(work: Callable[[], object]) -> float:
    started = _now()
    work()
    return _now() - started


def _fed(kind: _Kind, objects: Iterator[bytes]) -> tuple[float, int, int]:
    """Feeds a list slice by slice: CPU seconds, objects, and bytes that stay allocated."""
    seconds, count, before = 0.0, 0, _allocated()
    while part := list(itertools.islice(objects, _SLICE)):
        seconds += _timed(lambda part=part: kind.list(part))  # type: ignore[misc]
        count += len(part)
    del part
    return seconds, count, _allocated() - before


def _allocated() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0] if tracemalloc.is_tracing() else 0


def measure(nodes: int, existing: int, pods: int, shape: str, *, memory: bool) -> dict[str, Any]:
    """The figures for one size. With ``memory`` bytes per object instead of CPU times."""
    cluster = Cluster()
    if memory:
        tracemalloc.start()
    gc.disable()
    try:
        seconds, count, size = _fed(cluster.nodes, map(_node, range(nodes)))
        found: dict[str, Any] = {"nodes": nodes, "existing": existing, "shape": shape}
        found["node list"] = _per(seconds, count, size, memory=memory)
        seconds, count, size = _fed(cluster.pods, (_existing(i, nodes) for i in range(existing)))
        found["pod list"] = _per(seconds, count, size, memory=memory)
        if not memory:
            found |= _lives(cluster, pods, shape)
    finally:
        gc.enable()
        tracemalloc.stop()
    return found


def _per(seconds: float, count: int, size: int, *, memory: bool) -> float:
    if not count:
        return 0.0
    return round(size / count) if memory else round(1e6 * seconds / count, 1)


def _lives(cluster: Cluster, pods: int, shape: str) -> dict[str, float]:
    """CPU microseconds per pod of each stage, after a tenth of the pods to warm up."""
    found: dict[str, list[float]] = {}
    for number in range(pods):
        arrival = _life(number, "", shape)["arrival"]
        took = {"arrival": _timed(lambda line=arrival: cluster.pods.watch([line]))}  # type: ignore[misc]
        node = ""

        def decide() -> None:
            nonlocal node
            node = cluster.decide()

        took["decision"] = _timed(decide)
        lines = _life(number, node, shape)
        for name in ("confirmation", "running"):
            took[name] = _timed(lambda line=lines[name]: cluster.pods.watch([line]))  # type: ignore[misc]
        if number >= pods // 10:
            for name, seconds in took.items():
                found.setdefault(name, []).append(seconds)
    size = len(cluster.full.state.table.names)
    for number in range(pods):
        lines = _life(pods + number, f"node-{number % size:05d}", "basic")
        for name in ("bound arrival", "running", "deletion"):
            seconds = _timed(lambda line=lines[name]: cluster.pods.watch([line]))  # type: ignore[misc]
            found.setdefault(f"bound pod's {name.removeprefix('bound ')}", []).append(seconds)
    return {name: round(1e6 * float(np.mean(some)), 1) for name, some in found.items()}


@click.command(context_settings={"show_default": True})
@click.option("--nodes", type=click.IntRange(min=1), multiple=True, default=(5000, 20_000, 100_000))
@click.option("--existing-per-node", type=click.IntRange(min=0), default=10)
@click.option("--pods", type=click.IntRange(min=10), default=2000, help="Decided one by one.")
@click.option("--shape", type=click.Choice(workload.SHAPES), multiple=True, default=("basic",))
@click.option("--memory", is_flag=True, help="Bytes per object instead of CPU times.")
def main(
    nodes: Iterable[int],
    existing_per_node: int,
    pods: int,
    shape: Iterable[str],
    *,
    memory: bool,
) -> None:
    """Print a line of JSON for each size and shape: CPU microseconds per object and stage, or bytes per object."""
    for one in shape:
        for count in nodes:
            click.echo(
                json.dumps(measure(count, existing_per_node * count, pods, one, memory=memory))
            )


if __name__ == "__main__":
    sys.exit(main())
