"""Changes a tree of plain values in place and finds out where each part came from."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from app.settings.problems import Finding, Path

REMOVED: Final = object()
"""Put into a list in place of an item, so that the others keep their indices until ``Rewrite.finish``."""


def mappings(owner: Any, key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The items of the list ``owner[key]`` that are mappings, with their indices; none if it is not a list."""
    items = owner.get(key) if isinstance(owner, Mapping) else None
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, dict):
            yield index, item


def append(owner: dict[str, Any], key: str, item: Any) -> None:
    """Appends to the list ``owner[key]``, which is added if missing; does nothing if it is not a list."""
    if owner.get(key) is None:
        owner[key] = []
    if isinstance(owner[key], list):
        owner[key].append(item)


class Rewrite:
    """A copy of a document that is being changed, with the record of moved parts, warnings and mistakes.

    Mappings and lists are known by identity: wherever they end up, their place in the file is that of the original.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._places: Final[dict[int, tuple[Path, Any]]] = {}
        """By identity: the path in the file, and the mapping or list itself, which is kept so that no other gets its
        identity.
        """
        self._made: Final[dict[int, tuple[Path, Any]]] = {}
        """As above, for generated ones: the path in the file that caused it."""
        self.value: Final[dict[str, Any]] = self._copied(document, ())
        self.origins: Final[dict[Path, Path]] = {}
        """For every subtree that moved: its path in ``value`` -> its path in the file. Complete after ``finish``."""
        self.causes: Final[dict[Path, Path]] = {}
        """For every generated subtree: its path in ``value`` -> the path in the file that caused it."""
        self.warnings: Final[list[Finding]] = []
        self.mistakes: Final[list[Finding]] = []

    def _copied(self, value: Any, path: Path) -> Any:
        if isinstance(value, Mapping):
            value = {key: self._copied(item, (*path, key)) for key, item in value.items()}
        elif isinstance(value, list):
            value = [self._copied(item, (*path, index)) for index, item in enumerate(value)]
        else:
            return value
        self._places[id(value)] = path, value
        return value

    def path(self, part: Any) -> Path:
        """The path in the file of a mapping or list of the document."""
        return self._places[id(part)][0]

    def moved(self, part: dict[str, Any], path: Path) -> dict[str, Any]:
        """Notes that a new mapping holds what is at ``path`` of the file."""
        self._places[id(part)] = path, part
        return part

    def made(self, part: dict[str, Any], cause: Path) -> dict[str, Any]:
        """Notes that a mapping was generated because of what is at ``cause`` of the file."""
        self._made[id(part)] = cause, part
        return part

    def warn(self, path: Path, message: str) -> None:
        """Adds a warning about a path of the file."""
        self.warnings.append(Finding(path, message))

    def refuse(self, path: Path, message: str) -> None:
        """Adds a mistake at a path of the file."""
        self.mistakes.append(Finding(path, message))

    def rename(self, owner: dict[str, Any], old: str, new: str) -> bool:
        """Renames a key unless the new one exists; returns whether the old one did."""
        if old not in owner or new in owner:
            return False
        owner[new] = owner.pop(old)
        path = self.path(owner)
        self.origins[(*path, new)] = (*path, old)
        return True

    def finish(self) -> None:
        """Drops removed items and fills ``origins`` and ``causes``."""
        self._finish(self.value, (), (), ())

    def _finish(self, part: Any, path: Path, place: Path, inferred: Path) -> None:
        """``place``: where the part is in the file; ``inferred``: what follows for it from the parts around it."""
        if id(part) in self._made:
            self.causes[path] = self._made[id(part)][0]
            place = path
        else:
            place = self._places.get(id(part), (place,))[0]
            if place != inferred:
                self.origins[path] = place
        if isinstance(part, dict):
            for key, item in part.items():
                self._finish(item, (*path, key), (*place, key), (*place, key))
        elif isinstance(part, list):
            kept = [(index, item) for index, item in enumerate(part) if item is not REMOVED]
            part[:] = (item for _, item in kept)
            for now, (index, item) in enumerate(kept):
                self._finish(item, (*path, now), (*place, index), (*place, now))
