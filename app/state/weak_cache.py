"""Values by two keys, the first of which is referenced weakly, in limited number."""

from typing import Final, Generic, TypeVar
from weakref import WeakKeyDictionary

Owner = TypeVar("Owner")
K = TypeVar("K")
V = TypeVar("V")

#: The most values of a cache.
MAX_VALUES: Final = 16_384


class WeakCache(Generic[Owner, K, V]):
    """Values by owner and key. Those of an owner are dropped with it, and all of them when there may be MAX_VALUES."""

    def __init__(self) -> None:
        self._by_owner: Final[WeakKeyDictionary[Owner, dict[K, V]]] = WeakKeyDictionary()
        #: How many values were stored since the cache was last empty.
        self._stored = 0

    def get(self, owner: Owner, key: K) -> V | None:
        """The value, or None."""
        values = self._by_owner.get(owner)
        return None if values is None else values.get(key)

    def put(self, owner: Owner, key: K, value: V) -> V:
        """Stores a value and returns it."""
        if self._stored >= MAX_VALUES:
            self.clear()
        self._stored += 1
        values = self._by_owner.get(owner)
        if values is None:
            values = self._by_owner[owner] = {}
        values[key] = value
        return value

    def clear(self) -> None:
        """Drops all values."""
        self._by_owner.clear()
        self._stored = 0
