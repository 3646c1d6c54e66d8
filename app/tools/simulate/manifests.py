"""Reads manifests from files and folders: objects of the relevant kinds, and counts of the others."""

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from app.sim.manifests import ManifestError, Placed, read_objects
from app.sim.resources.kinds import BY_GROUP_KIND, Kind, is_stored

_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
#: File name for standard input, as for kubectl.
STDIN: Path = Path("/dev/stdin")
#: Errors reported at most; more usually have one cause.
_MOST_MISTAKES: Final = 20


class Manifest(NamedTuple):
    """An object of a relevant kind."""

    kind: Kind
    value: dict[str, Any]
    place: str
    """Where it was found, for messages: file, document and item."""


@dataclasses.dataclass(frozen=True, slots=True)
class Manifests:
    """The objects that were read."""

    objects: list[Manifest] = dataclasses.field(default_factory=list)
    passed_over: Counter[str] = dataclasses.field(default_factory=Counter)
    """The number of objects of other kinds."""

    def of(self, kind: str) -> Iterator[Manifest]:
        """The objects of one kind."""
        return (found for found in self.objects if found.kind.kind == kind)


class ManifestErrors:
    """Collects the errors of several files or objects, to report them together."""

    def __init__(self) -> None:
        self._texts: Final[list[str]] = []

    def add(self, text: str) -> None:
        """Adds an error; the text says where it is."""
        self._texts.append(text)

    def check(self) -> None:
        """Raises ManifestError with all errors, if there are any."""
        shown, more = self._texts[:_MOST_MISTAKES], len(self._texts) - _MOST_MISTAKES
        if more > 0:
            shown.append(f"and {more} more mistakes")
        if shown:
            raise ManifestError("\n".join(shown))


def read(paths: Iterable[Path], kinds: Collection[str]) -> Manifests:
    """Reads the objects of these kinds, lists unpacked. Raises ManifestError with all errors."""
    reading, mistakes = Manifests(), ManifestErrors()
    for path in paths:
        try:
            files = list(_files(path))
        except ManifestError as error:
            mistakes.add(str(error))
            continue
        for file in files:
            try:
                for placed in read_objects(file):
                    _sort(placed, kinds, reading)
            except ManifestError as error:
                mistakes.add(str(error))
    mistakes.check()
    return reading


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield STDIN if str(path) == "-" else path
        return
    found = sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
    if not found:
        raise ManifestError(f"{path}: no *.yaml, *.yml or *.json in this folder")
    yield from found


def _sort(placed: Placed, kinds: Collection[str], reading: Manifests) -> None:
    """Keeps an object or counts it. Raises ManifestError if it is not an object."""
    value, place = placed
    name, version = value.get("kind"), value.get("apiVersion")
    if not isinstance(name, str) or not isinstance(version, str) or not name or not version:
        raise ManifestError(f"{place}: no object of Kubernetes: kind or apiVersion is missing")
    kind = BY_GROUP_KIND.get((version, name))
    if name in kinds and kind is not None and is_stored(kind):
        reading.objects.append(Manifest(kind, value, place))
    else:
        reading.passed_over[f"{name} ({version})" if name in kinds else name] += 1
