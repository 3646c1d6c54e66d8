"""An index of items by their labels."""

from collections.abc import Collection, Hashable, Iterable, Mapping
from itertools import chain
from typing import Final, Generic, TypeVar

from app.model.selectors import Selector

T = TypeVar("T", bound=Hashable)

#: A key is rare if at most this many items have it, or at most this share of all items.
_FEW: Final = 32
_ITEMS_PER_HOLDER: Final = 24


class LabelIndex(Generic[T]):
    """Items and their labels, by key and value.

    For rare keys it keeps the items. For others it keeps only their number, and sorts the items by value at the first
    lookup. So labels that all items have take little memory, and other labels need no pass over all items.
    """

    def __init__(self) -> None:
        self.items: Final[dict[T, Mapping[str, str]]] = {}
        #: By key: the items that have it, with their values, or their number.
        self._keys: Final[dict[str, dict[T, str] | int]] = {}
        #: For keys that are not rare: the items by value, once looked up.
        self._by_value: Final[dict[str, dict[str, dict[T, None]]]] = {}

    def __len__(self) -> int:
        return len(self.items)

    def add(self, item: T, labels: Mapping[str, str]) -> None:
        """Adds an item, which must not be in the index. Its labels must not change while it is."""
        self.items[item] = labels
        most = self._most_holders
        for key, value in labels.items():
            known = self._keys.get(key)
            if known is None:
                self._keys[key] = {item: value}
            elif isinstance(known, int):
                self._keys[key] = known + 1
                if key in self._by_value:
                    self._by_value[key].setdefault(value, {})[item] = None
            elif len(known) < most:
                known[item] = value
            else:
                self._keys[key] = len(known) + 1

    def remove(self, item: T) -> None:
        """Removes an item. Raises KeyError."""
        for key, value in self.items.pop(item).items():
            known = self._keys[key]
            if not isinstance(known, int):
                del known[item]
                if not known:
                    del self._keys[key]
                continue
            self._keys[key] = known - 1
            if key in self._by_value:
                with_value = self._by_value[key][value]
                del with_value[item]
                if not with_value:
                    del self._by_value[key][value]
            if known == 1:
                del self._keys[key]
                self._by_value.pop(key, None)

    @property
    def _most_holders(self) -> int:
        return max(_FEW, len(self.items) // _ITEMS_PER_HOLDER)

    def holders(self, key: str) -> Mapping[T, str] | None:
        """The items with a key, and their values; None if the key is not rare. Valid until an item changes."""
        known = self._keys.get(key)
        if known is None:
            return {}
        if isinstance(known, int):
            if known > self._most_holders:
                return None
            known = self._keys[key] = {
                item: labels[key] for item, labels in self.items.items() if key in labels
            }
            self._by_value.pop(key, None)
        return known

    def within(self, selector: Selector) -> Iterable[T]:
        """The items that a selector may match, by its most selective requirement. Valid until an item changes."""
        if selector.nothing:
            return ()
        choices = [self._with(key, op, values) for key, op, values in selector.requirements]
        found = [choice for choice in choices if choice is not None]
        narrowest = min(found, key=lambda some: sum(map(len, some)), default=None)
        return self.items if narrowest is None else chain.from_iterable(narrowest)

    def _with(self, key: str, operator: str, values: tuple[str, ...]) -> list[Collection[T]] | None:
        """The items that meet a requirement, in parts; None if this is not indexed or may be all items."""
        if operator not in {"In", "Exists"}:
            return None
        holders = self.holders(key)
        if operator == "Exists":
            return None if holders is None else [holders]
        if holders is not None:
            wanted = frozenset(values)
            return [[item for item, value in holders.items() if value in wanted]]
        by_value = self._by_value.get(key)
        if by_value is None:
            by_value = self._by_value[key] = {}
            for item, labels in self.items.items():
                value = labels.get(key)
                if value is not None:
                    by_value.setdefault(value, {})[item] = None
        return [by_value[value] for value in values if value in by_value]
