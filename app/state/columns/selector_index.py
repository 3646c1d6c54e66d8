"""Finds what may concern a pod without asking every selector.

Items (counters, affinity terms of existing pods) are filed under one requirement of their selector: the one whose drawer
is emptiest when the item comes. A pod's labels then lead to a few candidates, whatever the number of items.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from app.model.selectors import EVERYTHING, Selector

T = TypeVar("T")

#: Label key and value; the value is None for any value. ``_ANY`` is the drawer of selectors that demand no label.
_Drawer = tuple[str, str | None]
_ANY: Final[_Drawer] = ("", None)


class Scope(NamedTuple):
    """Which pods can be concerned at all: those in ``namespaces`` (None: in any) that ``selector`` matches."""

    namespaces: frozenset[str] | None
    selector: Selector


#: The scope of all namespaces.
EVERY_POD: Final = Scope(None, EVERYTHING)


class SelectorIndex(Generic[T]):
    """Items by scope. Items are told apart by identity or by their own hash; each has one scope at a time."""

    def __init__(self) -> None:
        self._spaces: dict[str | None, dict[_Drawer, dict[T, None]]] = {}
        self._places: dict[T, list[tuple[str | None, _Drawer]]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def add(self, item: T, scope: Scope) -> None:
        """Files an item."""
        spaces: list[str | None] = [None] if scope.namespaces is None else [*scope.namespaces]
        drawers = [] if scope.selector.nothing else self._emptiest(scope.selector, spaces)
        places = [(space, drawer) for space in spaces for drawer in drawers]
        for space, drawer in places:
            self._spaces.setdefault(space, {}).setdefault(drawer, {})[item] = None
        self._places[item] = places

    def remove(self, item: T) -> None:
        """Takes an item out. Raises KeyError."""
        for space, drawer in self._places.pop(item):
            drawers = self._spaces[space]
            del drawers[drawer][item]
            if not drawers[drawer]:
                del drawers[drawer]
                if not drawers:
                    del self._spaces[space]

    def candidates(self, namespace: str, labels: Mapping[str, str]) -> Iterator[T]:
        """The items whose scope may cover a pod, each once; whether it does is for the caller to find out."""
        for space in (namespace, None):
            drawers = self._spaces.get(space)
            if drawers is None:
                continue
            yield from drawers.get(_ANY, ())
            for key, value in labels.items():
                yield from drawers.get((key, value), ())
                yield from drawers.get((key, None), ())

    def _emptiest(self, selector: Selector, spaces: list[str | None]) -> list[_Drawer]:
        choices = [_drawers(*requirement) for requirement in selector.requirements]
        return min(filter(None, choices), key=lambda c: self._load(c, spaces), default=[_ANY])

    def _load(self, drawers: list[_Drawer], spaces: list[str | None]) -> tuple[int, bool]:
        """How many items lie there; between equals, a value is narrower than a mere key."""
        known = [self._spaces[space] for space in spaces if space in self._spaces]
        items = sum(len(space.get(drawer, ())) for space in known for drawer in drawers)
        return items, drawers[0][1] is None


def _drawers(key: str, operator: str, values: tuple[str, ...]) -> list[_Drawer]:
    """Where a pod that meets the requirement will look; empty if it may lack the label."""
    if operator == "In":
        return [(key, value) for value in values]
    return [] if operator in {"NotIn", "DoesNotExist"} else [(key, None)]
