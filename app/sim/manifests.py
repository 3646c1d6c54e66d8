"""YAML manifests, as kubectl reads them: several documents in a file, lists unpacked."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from app.settings.yaml import load_documents
from app.sim.resources.kinds import NODES, Kind, is_stored
from app.sim.store import Object
from app.wire.sanitize import decode

UNDECODABLE: Final = (msgspec.DecodeError, ValueError, RecursionError)
"""What msgspec raises for text that is no JSON, no UTF-8, or nested too deeply."""

_JSON: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder()


class ManifestError(ValueError):
    """A manifest that cannot be used; the message names the file and the place in it."""


class LocatedObject(NamedTuple):
    """An object, and where it was found for messages: file, document and item."""

    value: Object
    place: str


def load_yaml(text: bytes | str) -> Any:
    """Reads one YAML document (JSON is YAML too). Raises ManifestError."""
    documents = load_all_yaml(text)
    if len(documents) != 1:
        raise ManifestError(f"one YAML document expected, found {len(documents)}")
    return documents[0]


def load_all_yaml(text: bytes | str) -> list[Any]:
    """Reads all YAML documents that are not empty. Raises ManifestError."""
    try:
        return load_documents(text)
    except (ValueError, TypeError) as error:
        raise ManifestError(f"error converting YAML to JSON: {error}") from error
    except RecursionError as error:
        raise ManifestError("error converting YAML to JSON: it is nested too deeply") from error


def read_manifests(
    path: Path, kinds: Mapping[tuple[str, str], Kind]
) -> Iterator[tuple[Kind, Object]]:
    """Yields the objects in a file, those in lists one by one. Raises ManifestError, naming file and document.

    ``kinds``: (apiVersion, kind) -> kind. An object that is yielded may define the kinds of those behind it.
    """
    for value, place in read_objects(path):
        yield _kind_of(value, place, kinds), value


def read_objects(path: Path) -> Iterator[LocatedObject]:
    """Yields the objects in a file, also those of kinds that are not served. Raises ManifestError."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ManifestError(f"{path}: {error.strerror}") from error
    try:
        documents = _documents(text)
    except ManifestError as error:
        raise ManifestError(f"{path}: {error}") from error
    for number, document in enumerate(documents, start=1):
        yield from _unpacked(document, f"{path}: document {number}")


def _documents(text: bytes) -> list[Any]:
    """Reads a file that is JSON as JSON, which is a hundred times faster than as YAML. Large dumps are JSON.

    Fields that API servers hand on as they were written may be nested deeply; below some levels they are left out.
    """
    if text.lstrip()[:1] in (b"{", b"["):
        try:
            return [decode(_JSON, text)]
        except UNDECODABLE:
            pass  # flow style, or several documents
    return load_all_yaml(text)


def _unpacked(
    document: Any, place: str, inherited: Object | None = None
) -> Iterator[LocatedObject]:
    """Yields the objects in a document; items of a typed list (``PodList``) take their type from it."""
    if not isinstance(document, dict):
        raise ManifestError(f"{place}: an object is expected, not {type(document).__name__}")
    document = (inherited or {}) | document
    kind = str(document.get("kind", ""))
    items = document.get("items")
    if kind.endswith("List") and "items" in document and isinstance(items, list | None):
        item_type: Object = {"apiVersion": document.get("apiVersion")}
        item_type["kind"] = kind.removesuffix("List")
        for number, item in enumerate(items or ()):
            defaults = {} if kind == "List" else item_type
            yield from _unpacked(item, f"{place}, items[{number}]", defaults)
    else:
        yield LocatedObject(document, place)


def _kind_of(document: Object, place: str, kinds: Mapping[tuple[str, str], Kind]) -> Kind:
    version, name = document.get("apiVersion", ""), document.get("kind", "")
    kind = kinds.get((version, name))
    if kind is None or not is_stored(kind):
        raise ManifestError(f"{place}: kind {name!r} in apiVersion {version!r} is not served")
    if not (document.get("metadata") or {}).get("name") and kind is NODES:
        raise ManifestError(f"{place}: {name} without metadata.name")
    return kind
