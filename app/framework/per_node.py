"""For plugins that would rather look at one node at a time than at columns.

A Filter plugin derives from NodeFilter and has ``filter_node``, a Score plugin derives from NodeScore and has
``score_node``; one may derive from both. Everything else of the contract stays as it is (see
``app.framework.interface``), but that a plugin without arguments needs no constructor::

    class NotOnMondays(NodeFilter):
        NAME = "NotOnMondays"

        def filter_node(self, state, pod, info):
            if info.node.labels.get("example.com/rests-on") == "monday":
                return unschedulable("node(s) were resting")
            return None

Such a plugin costs a Python call per node and pod. Deriving from ``NodeLocal`` too, where its rules allow, brings that
down to the nodes that changed.
"""

import abc
import functools
from collections.abc import Iterator, Mapping
from typing import ClassVar, Final

import numpy as np

from app.framework.interface import CycleState, Handle, Verdicts
from app.model.objects import Node
from app.model.pod import Pod
from app.model.status import Code, SchedulingError, Status
from app.state.columns.resources import Int64, offered_by, requested_by
from app.state.table import CPU_ROW, MEMORY_ROW
from app.state.view import View


class _Columns:
    """The columns of a view that NodeInfo objects read from, each made when the first of them asks."""

    def __init__(self, view: View) -> None:
        self.view: Final = view

    @functools.cached_property
    def nonzero(self) -> Int64:
        return self.view.nonzero_of_both()

    @functools.cached_property
    def pod_count(self) -> Int64:
        return self.view.pod_count()


class NodeInfo:
    """One node with what is on it, in the world of the view it was taken from. Amounts are in scheduler units.

    Scheduler units: milli-CPUs for cpu, whole units (bytes, devices) for everything else; resources of which there are
    none are left out.
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
        """How many pods are on the node."""
        return int(self._columns.pod_count[self._position])

    @property
    def requested(self) -> Mapping[str, int]:
        """What these pods ask for, by resource."""
        return requested_by(self._columns.view.pods(self._position))

    @property
    def nonzero_requested_cpu(self) -> int:
        """Milli-CPUs that these pods ask for, with stand-ins for containers that ask for nothing."""
        return int(self._columns.nonzero[CPU_ROW, self._position])

    @property
    def nonzero_requested_memory(self) -> int:
        """Bytes that these pods ask for, with stand-ins for containers that ask for nothing."""
        return int(self._columns.nonzero[MEMORY_ROW, self._position])

    @property
    def allocatable(self) -> Mapping[str, int]:
        """What the node offers, by resource; the number of pods apart."""
        return offered_by(self.node)

    @property
    def allocatable_pods(self) -> int:
        """How many pods the node takes."""
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
        """For plugins without arguments; others have a constructor of their own. Raises ValueError if there are any."""
        if args:
            raise ValueError("args: the plugin takes no arguments")


class NodeFilter(_NodeByNode):
    """Base of Filter plugins that judge node by node."""

    @abc.abstractmethod
    def filter_node(self, state: CycleState, pod: Pod, info: NodeInfo) -> Status | None:
        """None or Success where the pod may go; a rejection, or an Error that fails the whole attempt."""

    def filter(self, state: CycleState, pod: Pod, view: View) -> Verdicts | None:
        """Asks ``filter_node`` about every node. Raises SchedulingError for an answer that is none of a filter's."""
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
        """Reasons by number, in order; numbers must mean the same as long as verdicts on this pod are kept."""
        key = (self.NAME, "reasons")
        known: dict[tuple[str, ...], int] | None = state.get(key)
        if known is None:
            known = {}
            state.write(key, known)
        return known


class NodeScore(_NodeByNode):
    """Base of Score plugins that score node by node."""

    @abc.abstractmethod
    def score_node(self, state: CycleState, pod: Pod, info: NodeInfo) -> int:
        """0 to 100, unless the plugin has ``normalize``."""

    def score(self, state: CycleState, pod: Pod, view: View) -> Int64:
        """int64[n]: asks ``score_node`` about every node."""
        scores = np.zeros(view.n, np.int64)
        for position, info in node_infos(view):
            scores[position] = self.score_node(state, pod, info)
        return scores
