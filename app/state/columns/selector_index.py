"""An index of selectors: finds the ones that may match a pod.

An item (a counter, or an affinity term of existing pods) is stored in the bucket of one requirement of its selector:
the one with the fewest items at that time. A pod's labels then lead to few candidates, whatever the number of items.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Generic, TypeVar

import msgspec

from app.model.selectors import EVERYTHING, Selector

T = TypeVar("T")

#: Label key and value (None: any value). ``_ANY`` is the bucket of selectors that require no label.
_Bucket = tuple[str, str | None]
_ANY: Final[_Bucket] = ("", None)


class Scope(msgspec.Struct, frozen=True):
    """A set of pods: those in ``namespaces`` (None: any) that ``selector`` matches."""

    namespaces: frozenset[str] | None
    selector: Selector


#: The scope of all namespaces.
EVERY_POD: Final = Scope(None, EVERYTHING)


class SelectorIndex(Generic[T]):
    """Items by scope. Items must be hashable; each has one scope."""

    def __init__(self) -> None:
        self._spaces: dict[str | None, dict[_Bucket, dict[T, None]]] = {}
        self._places: dict[T, list[tuple[str | None, _Bucket]]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def add(self, item: T, scope: Scope) -> None:
        """Adds an item."""
        spaces: list[str | None] = [None] if scope.namespaces is None else [*scope.namespaces]
        buckets = [] if scope.selector.nothing else self._emptiest(scope.selector, spaces)
        places = [(space, bucket) for space in spaces for bucket in buckets]
        for space, bucket in places:
            self._spaces.setdefault(space, {}).setdefault(bucket, {})[item] = None
        self._places[item] = places

    def remove(self, item: T) -> None:
        """Removes an item. Raises KeyError."""
        for space, bucket in self._places.pop(item):
            buckets = self._spaces[space]
            del buckets[bucket][item]
            if not buckets[bucket]:
                del buckets[bucket]
                if not buckets:
                    del self._spaces[space]

    def candidates(self, namespace: str, labels: Mapping[str, str]) -> Iterator[T]:
        """The items whose scope may contain a pod, each once; the caller must check each."""
        for space in (namespace, None):
            buckets = self._spaces.get(space)
            if buckets is None:
                continue
            yield from buckets.get(_ANY, ())
            for key, value in labels.items():
                yield from buckets.get((key, value), ())
                yield from buckets.get((key, None), ())

    def _emptiest(self, selector: Selector, spaces: list[str | None]) -> list[_Bucket]:
        choices = [_buckets(*requirement) for requirement in selector.requirements]
        return min(filter(None, choices), key=lambda c: self._load(c, spaces), default=[_ANY])

    def _load(self, buckets: list[_Bucket], spaces: list[str | None]) -> tuple[int, bool]:
        """The sort key of a bucket: its number of items; of equal ones, one with a value comes first."""
        known = [self._spaces[space] for space in spaces if space in self._spaces]
        items = sum(len(space.get(bucket, ())) for space in known for bucket in buckets)
        return items, buckets[0][1] is None


def _buckets(key: str, operator: str, values: tuple[str, ...]) -> list[_Bucket]:
    """The buckets that cover all pods which meet the requirement; empty if such a pod may lack the label."""
    if operator == "In":
        return [(key, value) for value in values]
    return [] if operator in {"NotIn", "DoesNotExist"} else [(key, None)]
