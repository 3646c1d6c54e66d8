"""The objects of one kind, and the callbacks that follow their changes."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, Generic, TypeVar

from app.model.objects import Named

T = TypeVar("T", bound=Named)

#: ``follower(old, new)``: ``old`` is None for an added object, ``new`` for a deleted one.
Follower = Callable[[T | None, T | None], None]

#: So many changes can be told apart.
_LATEST: Final = 1024


def notify(followers: Iterable[Follower[T]], old: T | None, new: T | None) -> None:
    """Calls all followers; then raises the last exception that any of them raised."""
    failure: Exception | None = None
    for follower in followers:
        try:
            follower(old, new)
        except Exception as error:  # noqa: BLE001 - it is raised below
            failure = error
    if failure is not None:
        raise failure


class Lister(Generic[T]):
    """The objects of one kind by namespace and name (namespace "" for cluster-scoped kinds)."""

    def __init__(self) -> None:
        #: By (namespace, name).
        self._objects: dict[tuple[str, str], T] = {}
        self._followers: list[Follower[T]] = []
        #: Incremented with every change.
        self.version = 0
        #: What the latest changes were about.
        self._latest: Final[deque[tuple[str, str]]] = deque(maxlen=_LATEST)

    def changed_since(self, version: int) -> Iterable[tuple[str, str]] | None:
        """The (namespace, name) of what has changed since a version; None if it is too long ago."""
        changes = self.version - version
        if changes > len(self._latest):
            return None
        return dict.fromkeys(islice(self._latest, len(self._latest) - changes, None))

    def get(self, name: str, namespace: str = "") -> T | None:
        """The object, or None if it does not exist."""
        return self._objects.get((namespace, name))

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    def __len__(self) -> int:
        return len(self._objects)

    def follow(self, follower: Follower[T]) -> None:
        """Calls ``follower(old, new)`` after every change from now on."""
        self._followers.append(follower)

    def store(self, obj: T) -> None:
        """Adds or updates an object."""
        key = obj.namespace, obj.name
        old = self._objects.get(key)
        self._objects[key] = obj
        self.version += 1
        self._latest.append(key)
        notify(self._followers, old, obj)

    def remove(self, obj: T) -> None:
        """Removes an object; does nothing if it does not exist."""
        key = obj.namespace, obj.name
        old = self._objects.pop(key, None)
        self.version += 1
        self._latest.append(key)
        if old is not None:
            notify(self._followers, old, None)
