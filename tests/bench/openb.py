"""``python -m tests.bench.openb``: the experiment of "Beware of Fragmentation" (USENIX ATC '23) with this scheduler.

GPU nodes, and pods with parts of a GPU or whole ones in random order until they ask for 130 percent of all GPUs. They
come one by one, none goes, one that does not fit is dropped. Printed is the percent of the GPUs that is allocated when
the pods that have come ask for 90 to 130 percent. Each pod takes the way of any pod: the state's door, the queue, the
cycle of a pod.

How the list is made to ask for 130 percent is that of the authors' simulator: pods are drawn from the list in addition,
or taken out of it, at random. The nodes' names are in random order, which decides among equal scores. The orders of a
seed are others than theirs; those of the nodes are, for ten seeds in a row from the first one on, ten rotations of one,
so that the mean does not depend on which nodes happen to be first.
"""

import contextlib
import csv
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec
import numpy as np

from app.cycle.pod_cycle import Placed, finish, schedule, take
from app.framework.testing import make_node
from app.model.objects import Node
from app.model.pod import Pod
from app.plugins import registry
from app.scheduler.profiles import build_state
from app.settings.load import load
from app.state.scheduler_state import Change
from app.wire.kube import PodDecoder
from tests.bench.openb_drawing import drawn, mean
from tests.bench.openb_policies import PLUGINS, POLICIES, STOCK, WHOLE, GpuArgs, GpuSharing

NODES: Final = "openb_node_list_gpu_node.csv"
LOADS: Final = (90, 100, 110, 120, 130)
FIRST_SEED: Final = 42
_ROTATIONS: Final = 10
_RATIO: Final = 1.3
#: What stands for an empty field, as the authors' scripts read their lists.
_NOTHING: Final = frozenset({"", "nan", "null", "none", "na", "n/a", "<na>"})
_PODS_PER_NODE: Final = "1001"
_PROFILE: Final = "default-scheduler"
_CELL: Final = "{:.2f} ({:.2f} to {:.2f})"
_GPU: Final = GpuArgs()


class Mistake(click.ClickException):
    """The data cannot be used."""


class Shape(NamedTuple):
    """What a pod of the list asks for; ``gpu``: thousandths, ``models``: those allowed, none for all."""

    cpu: int
    memory: int
    gpu: int
    models: tuple[str, ...]


class Machine(NamedTuple):
    """A node of the list."""

    cpu: int
    memory: int
    gpus: int
    model: str


# ---------------------------------------------------------------- the lists


def _rows(file: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream)
            missing = [name for name in columns if name not in (reader.fieldnames or ())]
            if missing:
                raise Mistake(f"{file}: no column {', '.join(missing)}")
            yield from enumerate(reader, 2)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise Mistake(f"{file}: {error}") from error


def _number(file: Path, line: int, row: Mapping[str, Any], column: str, absent: int = 0) -> int:
    """A number that is not negative; ``absent`` for an empty field, or if there is no such column."""
    text = row.get(column, "")
    try:
        value = float(text.strip() or absent)
    except (AttributeError, ValueError):
        value = -1.0
    if not 0 <= value < 2**40:
        raise Mistake(f"{file}:{line}: {column} is {text!r}")
    return int(value)


def _words(row: Mapping[str, Any], column: str) -> list[str]:
    """What is between the bars of a field."""
    parts = [part.strip() for part in (row.get(column) or "").split("|")]
    return [part for part in parts if part.lower() not in _NOTHING]


def machines_of(file: Path) -> list[Machine]:
    """The nodes, by name. Raises Mistake."""
    named = {}
    for line, row in _rows(file, ("sn", "cpu_milli", "memory_mib", "gpu")):
        amounts = (_number(file, line, row, name) for name in ("cpu_milli", "memory_mib", "gpu"))
        named[row["sn"]] = Machine(*amounts, "|".join(_words(row, "model")))
    machines = [named[name] for name in sorted(named)]
    if not sum(machine.gpus for machine in machines):
        raise Mistake(f"{file}: there are no GPUs")
    return machines


def shapes_of(file: Path) -> list[Shape]:
    """The pods, by name. Raises Mistake.

    Columns may be missing, and fields empty: without memory_mib a pod asks for no memory, without gpu_milli for whole
    GPUs, and without gpu_spec for any model. A pod without a GPU takes any node, whatever model it names.
    """
    named = {}
    for line, row in _rows(file, ("name", "cpu_milli", "num_gpu")):
        number = _number(file, line, row, "num_gpu")
        milli = min(_number(file, line, row, "gpu_milli", WHOLE), WHOLE)
        if number > 1 and 0 < milli < WHOLE:
            raise Mistake(f"{file}:{line}: a pod that shares GPUs may have one only")
        models = set(_words(row, "gpu_spec"))
        named[row["name"]] = Shape(
            _number(file, line, row, "cpu_milli"),
            _number(file, line, row, "memory_mib"),
            number * milli,
            tuple(sorted(models)) if number * milli else (),
        )
    shapes = [named[name] for name in sorted(named)]
    if not any(shape.gpu for shape in shapes):
        raise Mistake(f"{file}: no pod asks for a GPU")
    return shapes


def arrivals(shapes: Sequence[Shape], gpus: int, rng: np.random.Generator) -> list[Shape]:
    """The pods of a seed in the order in which they come: 130 percent of so many thousandths of GPUs."""
    out = [shapes[i] for i in rng.permutation(len(shapes))]
    asked, limit = sum(shape.gpu for shape in out), _RATIO * gpus
    while asked > limit:
        asked -= out.pop(int(rng.integers(len(out)))).gpu
    while asked < limit:
        drawn = shapes[int(rng.integers(len(shapes)))]
        if asked + min(drawn.gpu, WHOLE) > limit:
            break
        asked += drawn.gpu
        out.append(drawn)
    return out


# ---------------------------------------------------------------- the experiment


class FirstByName(np.random.Generator):
    """Draws that take the first of equals. The rows of the node table are in the order of the names."""

    def random(self, *_args: Any, **_kwargs: Any) -> Any:
        return 0.0


def configuration(policy: str, shapes: Sequence[Shape]) -> str:
    """The KubeSchedulerConfiguration of a policy, as JSON."""
    enabled: dict[str, Any] = {"multiPoint": {"enabled": [{"name": GpuSharing.NAME}]}}
    config = []
    if policy in STOCK:
        args = {"apiVersion": _VERSION, "kind": "NodeResourcesFitArgs"} | dict(STOCK[policy])
        config.append({"name": "NodeResourcesFit", "args": args})
    else:
        weights = POLICIES[policy]
        enabled["score"] = {"disabled": [{"name": "*"}]}
        scores = [{"name": name, "weight": weight} for name, weight in weights.items()]
        enabled["multiPoint"]["enabled"] += scores
        enabled["score"]["enabled"] = scores
        if "GpuFragmentation" in weights:
            config.append({"name": "GpuFragmentation", "args": {"typicalPods": _typical(shapes)}})
    profile = {"schedulerName": _PROFILE, "plugins": enabled, "pluginConfig": config}
    kind = {"apiVersion": _VERSION, "kind": "KubeSchedulerConfiguration"}
    return json.dumps(kind | {"profiles": [profile]})


_VERSION: Final = "kubescheduler.config.k8s.io/v1"


def _typical(shapes: Sequence[Shape]) -> list[dict[str, Any]]:
    counts = Counter((shape.cpu, shape.gpu, shape.models) for shape in shapes)
    return [
        {"cpuMilli": cpu, "gpuMilli": gpu, "models": list(models), "count": count}
        for (cpu, gpu, models), count in counts.items()
    ]


class Experiment:
    """One seed of one policy."""

    def __init__(
        self,
        policy: str,
        machines: Sequence[Machine],
        shapes: Sequence[Shape],
        *,
        seed: int,
        ties: str,
    ) -> None:
        self._rng: Final = np.random.default_rng(seed)
        self._ties: Final = FirstByName(np.random.PCG64(0)) if ties == "name" else self._rng
        classes = dict(registry.IN_TREE) | dict(PLUGINS)
        loaded = load(configuration(policy, shapes))
        profiles = loaded.to_plain(registry.capabilities(classes))
        self._now = 1_800_000_000.0
        self.state, self._frameworks = build_state(
            profiles,
            classes,
            rng=self._rng,
        )
        self._gpus: Final = sum(machine.gpus for machine in machines) * WHOLE
        block, turn = divmod(seed - FIRST_SEED, _ROTATIONS)
        order = np.random.default_rng([FIRST_SEED, abs(block)]).permutation(len(machines))
        order = np.roll(order, turn * len(machines) // _ROTATIONS)
        for number, index in enumerate(order):
            self.state.apply(Change(Node, None, _node(number, machines[index])), self._now)
        self._shapes: Final = arrivals(shapes, self._gpus, self._rng)
        self._decoder: Final = PodDecoder()
        self._made: Final[dict[Shape, Pod]] = {}

    def run(self) -> dict[int, float]:
        """The percent of GPUs allocated by load, a percent: the mean of what follows the pods whose load rounds to
        it.
        """
        asked = allocated = 0
        by_load: dict[int, list[int]] = {}
        for number, shape in enumerate(self._shapes):
            asked += shape.gpu
            if self._place(number, shape):
                allocated += shape.gpu
            by_load.setdefault(round(100 * asked / self._gpus), []).append(allocated)
        return {load: 100 * sum(some) / len(some) / self._gpus for load, some in by_load.items()}

    def _place(self, number: int, shape: Shape) -> bool:
        """A pod comes and is decided; whether it has a node now. If not it goes."""
        state = self.state
        pod = msgspec.structs.replace(self._pod(shape), name=f"p-{number}", uid=f"u-{number}")
        state.apply(Change(Pod, None, pod), self._now)
        queued = state.pop(self._now)
        assert queued is not None
        attempt = take(state, self._frameworks, queued, self._ties)
        assert attempt is not None
        steps = schedule(state, queued, attempt, started=self._now, chosen=lambda _choice: None)
        outcome = finish(steps)
        if isinstance(outcome, Placed):
            state.done(pod.uid)
            bound = msgspec.structs.replace(pod, node_name=outcome.assumed.pod.node_name)
            state.apply(Change(Pod, pod, bound), self._now)
            return True
        state.drop(pod)
        state.apply(Change(Pod, pod, None), self._now)
        return False

    def _pod(self, shape: Shape) -> Pod:
        known = self._made.get(shape)
        if known is None:
            known = self._made[shape] = self._decoder.decode(msgspec.json.encode(_manifest(shape)))
        return known


def _node(number: int, machine: Machine) -> Node:
    allocatable = {
        "cpu": f"{machine.cpu}m",
        "memory": f"{machine.memory}Mi",
        _GPU.resource: str(machine.gpus * WHOLE),
        "pods": _PODS_PER_NODE,
    }
    labels = {_GPU.model_label: machine.model} if machine.model else {}
    return make_node(f"node-{number:05d}", labels=labels, status={"allocatable": allocatable})


def _manifest(shape: Shape) -> dict[str, Any]:
    requests = {"cpu": f"{shape.cpu}m", "memory": f"{shape.memory}Mi"}
    if shape.gpu:
        requests[_GPU.resource] = str(shape.gpu)
    container = {"name": "main", "image": "registry.example.com/app:1"}
    container |= {"resources": {"requests": requests, "limits": requests}}
    spec: dict[str, Any] = {"schedulerName": _PROFILE, "containers": [container]}
    if shape.models:
        models = {"key": _GPU.model_label, "operator": "In", "values": list(shape.models)}
        required = {"nodeSelectorTerms": [{"matchExpressions": [models]}]}
        affinity = {"requiredDuringSchedulingIgnoredDuringExecution": required}
        spec["affinity"] = {"nodeAffinity": affinity}
    return {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": spec}


# ---------------------------------------------------------------- the command


def summary(courses: Sequence[Mapping[int, float]]) -> dict[str, list[float] | None]:
    """[mean, minimum, maximum] of the seeds by load; None where a seed never came near this load."""
    out: dict[str, list[float] | None] = {}
    for load_ in LOADS:
        found = [_at(course, load_) for course in courses]
        some = [value for value in found if value is not None]
        out[str(load_)] = None
        if len(some) == len(found):
            figures = sum(some) / len(some), min(some), max(some)
            out[str(load_)] = [round(figure, 2) for figure in figures]
    return out


def _at(course: Mapping[int, float], load_: int) -> float | None:
    """The value at a load, or the mean of those next to it."""
    if load_ in course:
        return course[load_]
    near = [course[each] for each in (load_ - 1, load_ + 1) if each in course]
    return sum(near) / len(near) if near else None


class _Run(NamedTuple):
    policy: str
    machines: Sequence[Machine]
    shapes: Sequence[Shape]
    seed: int
    ties: str


def _course(run: _Run) -> tuple[dict[int, float], float]:
    """The course of a seed, and the seconds of CPU that it took."""
    began = time.process_time()
    policy, machines, shapes, seed, ties = run
    course = Experiment(policy, machines, shapes, seed=seed, ties=ties).run()
    return course, time.process_time() - began


def _file(data: Path, pods: str) -> Path:
    for file in (Path(pods), data / pods, data / f"{pods}.csv"):
        if file.is_file():
            return file
    raise Mistake(f"there is no {pods}, nor in {data}")


@click.command(context_settings={"show_default": True})
@click.option("--data", type=click.Path(path_type=Path, exists=True), required=True, metavar="DIR")
@click.option("--pods", default="openb_pod_list_default.csv", metavar="FILE")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice([*POLICIES, *STOCK]),
    help="One or several; without it all of them.",
)
@click.option("--seeds", type=click.IntRange(1, 1000), default=10, help=f"From {FIRST_SEED} on.")
@click.option("--ties", type=click.Choice(["name", "random"]), default="name")
@click.option(
    "--jobs",
    type=click.IntRange(1, 64),
    default=lambda: os.cpu_count() or 1,
    show_default="one each processor",
    help="Seeds that run side by side.",
)
@click.option("--output", type=click.Choice(["text", "json"]), default="text")
@click.option(
    "--svg",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Draws the courses.",
)
def main(
    data: Path,
    pods: str,
    policies: tuple[str, ...],
    seeds: int,
    ties: str,
    jobs: int,
    output: str,
    svg: Path | None,
) -> None:
    """Runs the experiment on the trace in DIR, and prints the percent of GPUs allocated by load."""
    file = _file(data, pods)
    machines, shapes = machines_of(data / NODES), shapes_of(file)
    if output == "text":
        click.echo(f"{file.stem}, {seeds} seeds, ties by {ties}: mean (min to max) at load")
        click.echo(f"{'':26}" + "".join(f"{load_:>26}" for load_ in LOADS))
    courses = {}
    with contextlib.ExitStack() as stack:
        run = map
        if min(jobs, seeds) > 1:
            context = multiprocessing.get_context("spawn")
            pool = ProcessPoolExecutor(min(jobs, seeds), mp_context=context)
            run = stack.enter_context(pool).map
        for policy in policies or (*POLICIES, *STOCK):
            runs = [_Run(policy, machines, shapes, FIRST_SEED + i, ties) for i in range(seeds)]
            results = [*run(_course, runs)]
            _tell(policy, file.stem, results, output)
            courses[policy] = mean(course for course, _ in results)
    if svg is not None:
        order = "by name" if ties == "name" else "at random"
        title = f"{file.stem}: mean of {seeds} seeds, ties {order}"
        svg.write_text(drawn(title, courses), encoding="utf-8")


def _tell(
    policy: str, workload: str, results: Sequence[tuple[dict[int, float], float]], output: str
) -> None:
    allocated = summary([course for course, _ in results])
    if output == "json":
        head = {"policy": policy, "workload": workload, "seeds": len(results)}
        click.echo(json.dumps(head | {"allocated": allocated}))
        return
    cells = ["-" if some is None else _CELL.format(*some) for some in allocated.values()]
    click.echo(f"{policy:26}" + "".join(f"{cell:>26}" for cell in cells))
    seconds = sum(spent for _, spent in results) / len(results)
    print(f"{policy}: {seconds:.1f} s of CPU a seed", file=sys.stderr)


if __name__ == "__main__":
    main()
