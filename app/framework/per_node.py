"""Base classes of plugins that evaluate one node at a time instead of columns.

A Filter plugin derives from NodeFilter and has ``filter_node``, a Score plugin derives from NodeScore and has
``score_node``; one may derive from both. The rest of the interface is the same (``app.framework.interface``), except
that a plugin without arguments needs no constructor::

    class NotOnMondays(NodeFilter):
        NAME = "NotOnMondays"

        def filter_node(self, state, pod, info):
            if info.node.labels.get("example.com/rests-on") == "monday":
                return unschedulable("node(s) were resting")
            return None

Such a plugin costs a Python call per node and pod. If it also derives from ``NodeLocal``, whose rules it must then
keep, only nodes that changed are evaluated.
"""

import abc
import functools
from collections.abc import Iterator, Mapping
from typing import ClassVar, Final

import numpy as np

from app.framework.handle import Handle
from app.framework.interface import CycleState, Verdicts
from app.model.objects import Node
from app.model.pod import Pod
from app.model.status import Code, SchedulingError, Status
from app.state.columns.arrays import Int64
from app.state.columns.resources import offered_by, requested_by
from app.state.table import CPU_ROW, MEMORY_ROW
from app.state.view import View


class _Columns:
    """The columns of a view that NodeInfo objects read, each computed at its first use."""

    def __init__(self, view: View) -> None:
        self.view: Final = view

    @functools.cached_property
    def nonzero(self) -> Int64:
        return self.view.nonzero_of_both()

    @functools.cached_property
    def pod_count(self) -> Int64:
        return self.view.pod_count()


class NodeInfo:
    """One node and its pods, with the changes of a dry run if the view has any. Amounts are in scheduler units.

    Scheduler units: milli-CPUs for cpu, whole units (bytes, devices) for other resources; resources with amount 0 are
    left out.
    """

    __slots__ = ("_columns", "_position", "node")

    def __init__(self, columns: _Columns, position: int, node: Node) -> None:
        self._columns = columns
        self._position = position
        #: The node object.
        self.node: Final = node

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name

    @property
    def pods(self) -> tuple[Pod, ...]:
        """The pods on the node, assumed ones included, in no particular order."""
        return tuple(self._columns.view.pods(self._position))

    @property
    def pod_count(self) -> int:
        """The number of pods on the node."""
        return int(self._columns.pod_count[self._position])

    @property
    def requested(self) -> Mapping[str, int]:
        """The sum of the pods' requests, by resource."""
        return requested_by(self._columns.view.pods(self._position))

    @property
    def nonzero_requested_cpu(self) -> int:
        """Requested milli-CPUs, with kube-scheduler's default for containers without a request."""
        return int(self._columns.nonzero[CPU_ROW, self._position])

    @property
    def nonzero_requested_memory(self) -> int:
        """Requested bytes, with kube-scheduler's default for containers without a request."""
        return int(self._columns.nonzero[MEMORY_ROW, self._position])

    @property
    def allocatable(self) -> Mapping[str, int]:
        """The node's allocatable amounts by resource, without the number of pods."""
        return offered_by(self.node)

    @property
    def allocatable_pods(self) -> int:
        """The allocatable number of pods."""
        return int(self._columns.view.allocatable_pods()[self._position])


def node_infos(view: View) -> Iterator[tuple[int, NodeInfo]]:
    """(position, node) for every row of a view that has a node object."""
    columns = _Columns(view)
    nodes = view.table.nodes
    for position, row in enumerate(view.rows.tolist()):
        node = nodes[row]
        if node is not None:
            yield position, NodeInfo(columns, position, node)


class _NodeByNode(abc.ABC):
    NAME: ClassVar[str]

    def __init__(self, args: object = None, _handle: Handle | None = None) -> None:
        """For plugins without arguments. Raises ValueError if arguments are given."""
        if args:
            raise ValueError("args: the plugin takes no arguments")


class NodeFilter(_NodeByNode):
    """Base of Filter plugins that evaluate one node at a time."""

    @abc.abstractmethod
    def filter_node(self, state: CycleState, pod: Pod, info: NodeInfo) -> Status | None:
        """None or Success if the node is feasible; a rejection; or an Error, which fails the whole attempt."""

    def filter(self, state: CycleState, pod: Pod, view: View) -> Verdicts | None:
        """Calls ``filter_node`` for every node. Raises SchedulingError for a code that a filter must not return."""
        known = self._known_reasons(state)
        codes = np.zeros(view.n, np.int8)
        reasons = np.zeros(view.n, np.int32)
        for position, info in node_infos(view):
            status = self.filter_node(state, pod, info)
            if status is None or status.ok:
                continue
            if not status.code.rejected and status.code is not Code.Error:
                raise SchedulingError(
                    f'running "{self.NAME}" filter plugin: {status.code.name} is no answer of a filter'
                )
            codes[position] = status.code
            reasons[position] = known.setdefault(status.reasons, len(known))
        if not np.count_nonzero(codes):
            return None
        return Verdicts(codes, reasons, lambda number: tuple(known)[number])

    def _known_reasons(self, state: CycleState) -> dict[tuple[str, ...], int]:
        """Reason texts and their numbers; a number must not change while verdicts on this pod are kept."""
        key = (self.NAME, "reasons")
        known: dict[tuple[str, ...], int] | None = state.get(key)
        if known is None:
            known = {}
            state.write(key, known)
        return known


class NodeScore(_NodeByNode):
    """Base of Score plugins that evaluate one node at a time."""

    @abc.abstractmethod
    def score_node(self, state: CycleState, pod: Pod, info: NodeInfo) -> int:
        """0 to 100, unless the plugin has ``normalize``."""

    def score(self, state: CycleState, pod: Pod, view: View) -> Int64:
        """int64[n]: calls ``score_node`` for every node."""
        scores = np.zeros(view.n, np.int64)
        for position, info in node_infos(view):
            scores[position] = self.score_node(state, pod, info)
        return scores
