"""Changes a tree of plain values and records where each part came from."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from app.settings.problems import Finding, Path


def mappings(owner: Any, key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The items of the list ``owner[key]`` that are mappings, with their indices; none if it is not a list."""
    items = owner.get(key) if isinstance(owner, Mapping) else None
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, dict):
            yield index, item


class ListItem(msgspec.Struct):
    """An item of a list that is being rebuilt."""

    value: Any
    origin: Path
    """Its path in the file; for a generated one, the path that caused it."""
    is_made: bool = False
    """Whether it was generated."""

    @property
    def name(self) -> str | None:
        """The item's ``name``, if it is a mapping with a text there."""
        name = self.value.get("name") if isinstance(self.value, dict) else None
        return name if isinstance(name, str) else None


class Rewrite(msgspec.Struct):
    """A document that is being changed, with the record of moved parts, warnings and mistakes."""

    value: dict[str, Any]
    origins: dict[Path, Path] = msgspec.field(default_factory=dict)
    causes: dict[Path, Path] = msgspec.field(default_factory=dict)
    warnings: list[Finding] = msgspec.field(default_factory=list)
    mistakes: list[Finding] = msgspec.field(default_factory=list)

    def warn(self, path: Path, message: str) -> None:
        """Adds a warning about a path of the file."""
        self.warnings.append(Finding(path, message))

    def refuse(self, path: Path, message: str) -> None:
        """Adds a mistake at a path of the file."""
        self.mistakes.append(Finding(path, message))

    def rename(self, owner: dict[str, Any], path: Path, old: str, new: str) -> bool:
        """Renames a key unless the new one exists; returns whether the old one did."""
        if old not in owner or new in owner:
            return False
        owner[new] = owner.pop(old)
        self.origins[(*path, new)] = (*path, old)
        return True

    def entries(self, owner: Mapping[str, Any], path: Path, key: str) -> list[ListItem]:
        """The items of a list with their origins, to be changed and put back with ``replace``."""
        items = owner.get(key)
        return [
            self._entry(item, (*path, key, index))
            for index, item in enumerate(items if isinstance(items, list) else ())
        ]

    def _entry(self, item: Any, path: Path) -> ListItem:
        if path in self.causes:
            return ListItem(item, self.causes[path], is_made=True)
        return ListItem(item, self.origins.get(path, path))

    def replace(self, owner: dict[str, Any], path: Path, key: str, entries: list[ListItem]) -> None:
        """Stores a changed list; an empty one removes the key, and a value that was not a list is not changed."""
        here = (*path, key)
        if not isinstance(owner.get(key), list | None):
            return
        if not entries:
            owner.pop(key, None)
            return
        owner[key] = [entry.value for entry in entries]
        for index, entry in enumerate(entries):
            table, other = (
                (self.causes, self.origins) if entry.is_made else (self.origins, self.causes)
            )
            table[(*here, index)] = entry.origin
            other.pop((*here, index), None)

    def add_plugin(
        self,
        profile: dict[str, Any],
        path: Path,
        point: str,
        kind: str,
        entry: dict[str, Any],
        cause: Path,
    ) -> None:
        """Appends to a list of plugins of a profile, which is added if missing; values of a wrong shape are not changed."""
        owner: Any = profile
        for name in ("plugins", point):
            if owner.get(name) is None:
                owner[name] = {}
            owner = owner[name]
            if not isinstance(owner, dict):
                return
        here = (*path, "plugins", point)
        entries = [*self.entries(owner, here, kind), ListItem(entry, cause, is_made=True)]
        self.replace(owner, here, kind, entries)
