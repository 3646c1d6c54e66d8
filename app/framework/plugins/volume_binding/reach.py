"""Which nodes can reach a volume, or a pool of storage: by node labels only, many volumes at a time.

Volumes come in thousands, each tied to one node by a label, or in a few groups, each tied to a zone. So things are grouped
by what they demand: one label having one of some values (looked up by value), or any other selector (judged once).
"""

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from app.framework.helpers.node_selector import compile_node_selector, match_node_selector
from app.model.objects import NodeSelector, NodeSelectorTerm, PersistentVolume
from app.model.selectors import LabelSelector, Requirement
from app.state.labels import Mask
from app.state.view import View

Ranks = npt.NDArray[np.int32]

#: Rank of nothing.
NOWHERE: Final = np.int32(2**31 - 1)

_LABEL_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_NO_NODE: Final = NodeSelector(())


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where something can be reached from.

    With ``key``: from nodes whose label has one of ``values``. Else: from nodes that ``selector`` matches, all for None.
    """

    key: str = ""
    values: tuple[str, ...] = ()
    selector: NodeSelector | None = None


ANYWHERE: Final = Place()


@functools.lru_cache(maxsize=8192)
def by_labels(selector: NodeSelector) -> NodeSelector | None:
    """A volume's selector without its matchFields; None if every node satisfies it.

    A volume is judged against a node of which the labels alone are known, and a node without a name satisfies any field.
    """
    terms = []
    for term in selector.node_selector_terms or ():
        if compile_node_selector(NodeSelector((term,))).errors:
            continue
        if term.match_fields and not term.match_expressions:
            return None
        terms.append(NodeSelectorTerm(term.match_expressions))
    return NodeSelector(tuple(terms))


def place_of(selector: NodeSelector | None) -> Place:
    """Where nodes that satisfy a volume's selector are; None is no selector."""
    wanted = None if selector is None else by_labels(selector)
    return ANYWHERE if wanted is None else _place(wanted)


def place_of_labels(selector: LabelSelector | None) -> Place:
    """Where nodes with matching labels are; None matches none, ``{}`` all, one that cannot be read none."""
    if selector is None:
        return Place(selector=_NO_NODE)
    labels = selector.match_labels or {}
    requirements = (
        *(Requirement(key, "In", (value,)) for key, value in labels.items()),
        *(selector.match_expressions or ()),
    )
    if not requirements:
        return ANYWHERE
    if any(r.operator not in _LABEL_OPERATORS for r in requirements):
        return Place(selector=_NO_NODE)
    return _place(NodeSelector((NodeSelectorTerm(requirements),)))


def _place(selector: NodeSelector) -> Place:
    terms = selector.node_selector_terms or ()
    requirements = (terms[0].match_expressions or ()) if len(terms) == 1 else ()
    if len(requirements) == 1 and requirements[0].operator == "In":
        if compile_node_selector(selector).errors:
            return Place(selector=_NO_NODE)
        return Place(requirements[0].key, tuple(dict.fromkeys(requirements[0].values or ())))
    return Place(selector=selector)


def reach_of(view: View, volume: PersistentVolume) -> Mask:
    """bool[n]: whether a node satisfies the volume's node affinity."""
    affinity = volume.spec.node_affinity
    required = affinity.required if affinity is not None else None
    wanted = None if required is None else by_labels(required)
    return np.ones(view.n, bool) if wanted is None else match_node_selector(view, wanted)


def first_reachable(view: View, things: Iterable[tuple[int, Place]], depth: int) -> Ranks:
    """int32[depth, n]: the ``depth`` first things that each row can reach, NOWHERE where there are fewer.

    ``things`` are ranks, ascending, and the places of what has them.
    """
    anywhere, by_value, by_selector = _grouped(things, depth)
    parts = [np.full((depth, view.n), NOWHERE)]
    parts[0][: len(anywhere)] = np.array(anywhere, np.int32)[:, None]
    parts += [_by_value(view, key, ranks, depth) for key, ranks in by_value.items()]
    for selector, ranks in by_selector.items():
        mask = match_node_selector(view, selector)
        column = np.array(ranks, np.int32)[:, None]
        parts.append(np.where(mask, column, NOWHERE))
    if len(parts) == 1:
        return parts[0]
    found: Ranks = np.sort(np.concatenate(parts), axis=0)[:depth]
    return found


_Ranked = dict[str, list[int]]


def _grouped(
    things: Iterable[tuple[int, Place]], depth: int
) -> tuple[list[int], dict[str, _Ranked], dict[NodeSelector, list[int]]]:
    """The first ``depth`` ranks anywhere, by label and value, and by selector; later ones cannot matter."""
    anywhere: list[int] = []
    by_value: dict[str, _Ranked] = {}
    by_selector: dict[NodeSelector, list[int]] = {}
    for rank, place in things:
        if place.key:
            values = by_value.setdefault(place.key, {})
            for value in place.values:
                ranks = values.setdefault(value, [])
                if len(ranks) < depth:
                    ranks.append(rank)
        elif place.selector is not None:
            ranks = by_selector.setdefault(place.selector, [])
            if len(ranks) < depth:
                ranks.append(rank)
        else:
            anywhere.append(rank)
            if len(anywhere) == depth:
                break
    return anywhere, by_value, by_selector


def _by_value(view: View, key: str, ranks: Mapping[str, list[int]], depth: int) -> Ranks:
    column, codes = view.label(key)
    best = np.full((depth, len(column.values)), NOWHERE)
    for level in range(depth):
        deep = [(column.code(v), found[level]) for v, found in ranks.items() if len(found) > level]
        if not deep:
            break
        best[level, [code for code, _ in deep]] = [rank for _, rank in deep]
    best[:, 0] = NOWHERE
    found: Ranks = best[:, codes]
    return found
