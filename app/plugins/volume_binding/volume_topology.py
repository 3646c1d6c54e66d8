"""The rows that can reach volumes or storage pools, by node labels, for many volumes at a time.

There may be thousands of volumes, each tied to one node by a label, or few groups of volumes, each tied to a zone.
Therefore distinct topologies are numbered (``Topologies``), results are computed per number and then spread over the
rows: for all topologies that are one value of a label at once, by the codes of its column; for other selectors one by
one.
"""

import functools
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from app.model.objects import NodeSelector, NodeSelectorTerm
from app.model.selectors import LabelSelector, Requirement
from app.model.storage import PersistentVolume
from app.plugins.helpers.node_selector import (
    compile_node_selector,
    is_small,
    match_node_selector,
)
from app.state.columns.labels import NO_CODE, LabelColumn, Mask
from app.state.view import View

#: int32[depth, ...]: positions in some order of preference, ascending along the first axis, NOWHERE for none.
Ranks = npt.NDArray[np.int32]

NOWHERE: Final = np.int32(2**31 - 1)

#: The number of unused topologies that are kept.
_SPARE_TOPOLOGIES: Final = 1024
_LABEL_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})


class Topology(msgspec.Struct, frozen=True):
    """A set of nodes.

    With ``key``: the nodes whose label has this ``value``. Otherwise those that ``selector`` matches (None: all).
    """

    key: str = ""
    value: str = ""
    selector: NodeSelector | None = None


ANYWHERE: Final = Topology()
_NOT_AT_ALL: Final = Topology(selector=NodeSelector(()))


def topology_of(selector: NodeSelector | None) -> Topology:
    """The topology of a volume's node selector; None is no selector.

    As in kube-scheduler, the selector is evaluated with the node's labels only, so valid matchFields always match.
    """
    if selector is None:
        return ANYWHERE
    return _known_topology(selector) if is_small(selector) else _topology_of(selector)


def _topology_of(selector: NodeSelector) -> Topology:
    terms = []
    for term in selector.node_selector_terms or ():
        if compile_node_selector(NodeSelector((term,))).errors:
            continue
        if term.match_fields and not term.match_expressions:
            return ANYWHERE
        terms.append(NodeSelectorTerm(term.match_expressions))
    return _topology(tuple(terms))


_known_topology = functools.lru_cache(maxsize=8192)(_topology_of)


def topology_of_labels(selector: LabelSelector | None) -> Topology:
    """The topology of a label selector; None and invalid selectors match no node, ``{}`` all."""
    if selector is None:
        return _NOT_AT_ALL
    labels = selector.match_labels or {}
    requirements = (
        *(Requirement(key, "In", (value,)) for key, value in labels.items()),
        *(selector.match_expressions or ()),
    )
    if not requirements:
        return ANYWHERE
    if any(r.operator not in _LABEL_OPERATORS for r in requirements):
        return _NOT_AT_ALL
    return _topology((NodeSelectorTerm(requirements),))


def _topology(terms: tuple[NodeSelectorTerm, ...]) -> Topology:
    """The topology of terms without matchFields; invalid terms match no node."""
    requirements = (terms[0].match_expressions or ()) if len(terms) == 1 else ()
    if len(requirements) == 1 and requirements[0].operator == "In":
        values = set(requirements[0].values or ())
        if len(values) == 1:
            return Topology(requirements[0].key, values.pop())
    return Topology(selector=NodeSelector(terms))


def reachable(view: View, volume: PersistentVolume) -> Mask:
    """bool[n]: whether the row satisfies the volume's node affinity."""
    affinity = volume.spec.node_affinity
    topology = topology_of(affinity.required if affinity is not None else None)
    if topology.key:
        column, codes = view.label(topology.key)
        mask: Mask = codes == column.code(topology.value)
        return mask
    if topology.selector is None:
        return np.ones(view.n, bool)
    return match_node_selector(view, topology.selector)


class _LabelTopologies:
    """The topologies that are values of one label, with their numbers and their codes in the label's column."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._values: list[str] = []
        self._numbers: list[int] = []
        #: The codes and numbers that have been looked up.
        self._codes: npt.NDArray[np.intp] = np.zeros(0, np.intp)
        self._at: npt.NDArray[np.intp] = np.zeros(0, np.intp)
        self._epoch, self._seen = -1, 0

    def add(self, number: int, value: str) -> None:
        self._numbers.append(number)
        self._values.append(value)

    def _look_up(self, column: LabelColumn) -> None:
        """Updates the codes; values that no node had are looked up again when nodes have new values."""
        if self._epoch != column.epoch:
            self._epoch, self._codes = column.epoch, np.zeros(0, np.intp)
        known = len(self._codes)
        if known < len(self._values):
            fresh = [column.code(value) for value in self._values[known:]]
            self._codes = np.concatenate((self._codes, np.array(fresh, np.intp)))
            self._at = np.array(self._numbers, np.intp)
        if self._seen != len(column.values):
            self._seen = len(column.values)
            for position in np.flatnonzero(self._codes == NO_CODE).tolist():
                self._codes[position] = column.code(self._values[position])

    def spread(self, view: View, ranks: Ranks) -> Ranks:
        """int32[depth, n] from int32[depth, topologies]."""
        column, codes = view.label(self._key)
        self._look_up(column)
        # One more entry than codes, at the end, for NO_CODE: no row uses it.
        by_code = np.full((len(ranks), len(column.values) + 1), NOWHERE)
        by_code[:, self._codes] = ranks[:, self._at]
        found: Ranks = by_code[:, codes]
        return found


class Topologies:
    """Numbers for topologies. Numbers are never released: see ``is_wasteful``."""

    def __init__(self) -> None:
        self._numbers: dict[Topology, int] = {ANYWHERE: 0}
        self._labels: dict[str, tuple[int, _LabelTopologies]] = {}
        #: The owners of topologies: one for all values of a label, one for each other selector (with its number).
        self._owners: list[_LabelTopologies | tuple[int, NodeSelector] | None] = [None]
        #: By number: the position of the owner. The same as an array, once used.
        self._owner_of: list[int] = [0]
        self._column: npt.NDArray[np.intp] | None = None

    def __len__(self) -> int:
        return len(self._numbers)

    def is_wasteful(self, used: int) -> bool:
        """Whether many more topologies have numbers than are ``used``, so that numbering should start again."""
        return len(self._numbers) > _SPARE_TOPOLOGIES + 2 * used

    def number(self, topology: Topology) -> int:
        """The number of a topology; a new topology gets one."""
        number = self._numbers.get(topology)
        if number is None:
            number = self._numbers[topology] = len(self._numbers)
            self._owner_of.append(self._owner(topology, number))
            self._column = None
        return number

    def _owner(self, topology: Topology, number: int) -> int:
        if topology.key:
            if topology.key not in self._labels:
                self._labels[topology.key] = len(self._owners), _LabelTopologies(topology.key)
                self._owners.append(self._labels[topology.key][1])
            at, labelled = self._labels[topology.key]
            labelled.add(number, topology.value)
            return at
        if topology.selector is None:
            return 0
        self._owners.append((number, topology.selector))
        return len(self._owners) - 1

    def spread(self, view: View, ranks: Ranks) -> Ranks:
        """int32[depth, n]: the ``depth`` lowest ranks that each row can reach, from the ranks at each topology.

        ``ranks``: int32[depth, len(self)], each rank at one topology only.
        """
        depth = len(ranks)
        parts = [np.repeat(ranks[:, :1], view.n, axis=1)]
        if self._column is None:
            self._column = np.array(self._owner_of, np.intp)
        concerned = np.zeros(len(self._owners), bool)
        concerned[self._column[ranks[0] != NOWHERE]] = True
        for at in np.flatnonzero(concerned).tolist():
            owner = self._owners[at]
            if isinstance(owner, _LabelTopologies):
                parts.append(owner.spread(view, ranks))
            elif owner is not None:
                number, selector = owner
                mask = match_node_selector(view, selector)
                parts.append(np.where(mask, ranks[:, number : number + 1], NOWHERE))
        if depth == 1:
            return functools.reduce(np.minimum, parts)
        found: Ranks = np.sort(np.concatenate(parts), axis=0)[:depth]
        return found
