"""Compares two clusters with the same nodes and pods: utilisation, fragmentation, waiting times, preemptions."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from app.model.requests import CPU, MEMORY, PODS
from app.state.table import NodeTable

#: Upper bounds of the buckets of waiting times, in seconds; one more bucket has all that is longer.
WAIT_BOUNDS: Final = tuple(round(0.01 * 1.3**power, 6) for power in range(56))
#: Resources besides cpu, memory and pods that are compared.
_OTHERS: Final = 16
#: Owners of pods that every node has.
_OF_EVERY_NODE: Final = frozenset({"DaemonSet", "Node"})

Floats = npt.NDArray[np.float64]


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What pods request."""

    requests: Mapping[str, int]
    """By resource: thousandths of cpu, bytes, or units."""
    pods: int
    """The pods in the real cluster that request this, waiting ones included."""


class Figures(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One cluster at one moment, and what happened since the last one."""

    nodes: int
    idle_nodes: int
    """Nodes without pods, those of DaemonSets and static ones not counted."""
    pods: int
    """Pods with a node."""
    waiting: int
    """Pods that wait for a node."""
    utilization: Mapping[str, float]
    """By resource: how much of the allocatable amounts is requested, 0 to 1."""
    fragmentation: float
    """The share of the free capacity that pods of the common shapes cannot use because it is divided among the nodes."""
    room: list[int]
    """For each shape: how many more pods fit."""
    preempted: int
    """Pods that were evicted for others since the last moment."""
    waits: Mapping[int, int] = {}
    """Pods that got a node since the last moment, by the number of the bucket of WAIT_BOUNDS of their waiting time."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The real cluster beside the imagined one. A line of the journal."""

    at: float
    """In seconds since the epoch."""
    shapes: list[Shape]
    """The requests of most pods."""
    theirs: Figures
    mine: Figures


def figures(
    table: NodeTable,
    shapes: Iterable[Shape],
    *,
    waiting: int,
    waits: Mapping[int, int],
    preempted: int,
) -> Figures:
    """The figures of the cluster with this table."""
    shapes = list(shapes)
    rows = table.live_rows()
    room, fragmentation = _room(table, shapes)
    return Figures(
        nodes=len(rows),
        idle_nodes=sum(_is_idle(table, row) for row in rows.tolist()),
        pods=int(table.pod_count[rows].sum()),
        waiting=waiting,
        utilization=_utilization(table, rows),
        fragmentation=round(fragmentation, 5),
        room=room,
        preempted=preempted,
        waits=dict(sorted(waits.items())),
    )


def _is_idle(table: NodeTable, row: int) -> bool:
    return all(
        pod.owner is not None and pod.owner.kind in _OF_EVERY_NODE
        for pod in table.pods[row].values()
    )


def _allocatable(table: NodeTable, name: str) -> Floats:
    amounts = table.allocatable_pods if name == PODS else table.allocatable.column(name)
    return amounts[: table.size].astype(np.float64)


def _requested(table: NodeTable, name: str) -> Floats:
    amounts = table.pod_count if name == PODS else table.requested.column(name)
    return amounts[: table.size].astype(np.float64)


def _utilization(table: NodeTable, rows: npt.NDArray[np.intp]) -> dict[str, float]:
    others = sorted(set(table.allocatable.names) - {CPU, MEMORY})[:_OTHERS]
    found = {}
    for name in (CPU, MEMORY, PODS, *others):
        offered = _allocatable(table, name)[rows].sum()
        if offered > 0:
            found[name] = round(float(_requested(table, name)[rows].sum() / offered), 5)
    return found


def _room(table: NodeTable, shapes: Iterable[Shape]) -> tuple[list[int], float]:
    """For each shape the number of pods that fit, and the fragmentation.

    Each shape has the free capacity to itself. The fragmentation of a shape compares the pods that fit with those that
    would fit if the same capacity were one node; the mean of the shapes is weighted by their pods. Only what is free on
    nodes that take pods counts; their taints and labels do not.
    """
    open_rows = table.live_rows()
    open_rows = open_rows[~table.unschedulable[open_rows]]
    room, lost, weights = [], 0.0, 0
    for shape in shapes:
        wanted = {name: amount for name, amount in shape.requests.items() if amount > 0}
        wanted[PODS] = 1
        free = np.array(
            [(_allocatable(table, n) - _requested(table, n))[open_rows] for n in wanted]
        ).clip(0.0)
        amounts = np.array(list(wanted.values()), np.float64)
        fit = float((free // amounts[:, None]).min(axis=0).sum()) if len(open_rows) else 0.0
        whole = float((free.sum(axis=1) // amounts).min()) if len(open_rows) else 0.0
        room.append(int(fit))
        if whole > 0:
            lost += (1.0 - fit / whole) * shape.pods
            weights += shape.pods
    return room, lost / weights if weights else 0.0
