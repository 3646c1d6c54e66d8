"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386)."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from app.sim.errors import ApiError, bad_request, unprocessable

_INDEX_AT_END: Final = "-"


def apply_merge_patch(target: Any, patch: Any) -> Any:
    """Returns ``target`` with ``patch`` merged in; null removes a key, lists are replaced whole."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply_merge_patch(result.get(key), value)
    return result


def apply_json_patch(target: Any, operations: Any) -> Any:
    """Applies the operations to ``target`` itself and returns the result (a new one if the root is replaced).

    Raises 400 for a malformed patch and 422 for one that does not fit the object.
    """
    if not isinstance(operations, list):
        raise bad_request("error decoding patch: a JSON patch is a list of operations")
    document = {"": target}
    for number, operation in enumerate(operations):
        _apply(document, operation, number)
    return document[""]


def _apply(document: dict[str, Any], operation: Any, number: int) -> None:
    if not isinstance(operation, dict):
        raise bad_request(f"error decoding patch: operation {number} is not an object")
    handler = _OPERATIONS.get(str(operation.get("op")))
    if handler is None:
        raise unprocessable(f"operation {number}: unknown op {operation.get('op')!r}")
    try:
        handler(document, operation)
    except ApiError:
        raise
    except (KeyError, IndexError, ValueError, TypeError) as error:
        text = f"operation {number}: {operation['op']} {operation.get('path')!r} does not fit the object"
        raise unprocessable(text) from error


def _tokens(pointer: str) -> list[str]:
    """Splits a JSON pointer; the first token is always the empty one that leads from the document to its root."""
    if pointer and not pointer.startswith("/"):
        raise ValueError(pointer)
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")]


def _parent(document: Any, pointer: str) -> tuple[Any, str]:
    """Finds the container of the value at ``pointer`` and the last token."""
    *path, last = _tokens(pointer)
    container = document
    for token in path:
        container = container[int(token)] if isinstance(container, list) else container[token]
    return container, last


def _get(document: Any, pointer: str) -> Any:
    container, last = _parent(document, pointer)
    return container[_index(last)] if isinstance(container, list) else container[last]


def _index(token: str) -> int:
    if not token.isdigit():
        raise ValueError(token)
    return int(token)


def _insert(document: Any, pointer: str, value: Any) -> None:
    container, last = _parent(document, pointer)
    if not isinstance(container, list):
        container[last] = value
    elif last == _INDEX_AT_END:
        container.append(value)
    elif _index(last) > len(container):
        raise IndexError(last)
    else:
        container.insert(_index(last), value)


def _add(document: Any, operation: Mapping[str, Any]) -> None:
    _insert(document, operation["path"], operation["value"])


def _remove(document: Any, operation: Mapping[str, Any]) -> None:
    container, last = _parent(document, operation["path"])
    del container[_index(last) if isinstance(container, list) else last]


def _replace(document: Any, operation: Mapping[str, Any]) -> None:
    _get(document, operation["path"])
    container, last = _parent(document, operation["path"])
    container[_index(last) if isinstance(container, list) else last] = operation["value"]


def _move(document: Any, operation: Mapping[str, Any]) -> None:
    value = _get(document, operation["from"])
    _remove(document, {"path": operation["from"]})
    _insert(document, operation["path"], value)


def _copy(document: Any, operation: Mapping[str, Any]) -> None:
    _insert(document, operation["path"], _deep_copy(_get(document, operation["from"])))


def _deep_copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _deep_copy(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_deep_copy(part) for part in value]
    return value


def _test(document: Any, operation: Mapping[str, Any]) -> None:
    found = _get(document, operation["path"])
    if found != operation["value"]:
        raise unprocessable(f"testing value {operation['path']} failed")


_OPERATIONS: Final[Mapping[str, Callable[[Any, Mapping[str, Any]], None]]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}
