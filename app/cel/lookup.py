"""Members of lists, maps and optional values."""

from typing import Final

from app.cel.errors import EvaluationError
from app.cel.values import MISSING, NONE, Map, Optional, Uint, Value, is_list, show, type_name

KEYS: Final = frozenset({str, int, Uint, bool, float})
"""Types of values that may be looked up."""


def look_up(value: Value, key: Value) -> Value:
    """``value[key]``; of an optional value, an optional member. Raises EvaluationError."""
    if isinstance(value, Map):
        found = value.find(key)
        if found is not MISSING:
            return found
    elif is_list(value):
        place = _place(key)
        if 0 <= place < len(value):
            return value[place]
        raise EvaluationError(f"index out of bounds: {show(key)}")
    elif type(value) is Optional:
        return look_up_optional(value, key)
    raise EvaluationError(f"no such key: {show(key)}")


def look_up_optional(value: Value, key: Value) -> Optional:
    """``value[?key]``."""
    if type(value) is Optional:
        if value is NONE:
            return NONE
        value = value.value
    found = find(value, key)
    return NONE if found is MISSING else Optional(found)


def find(value: Value, key: Value) -> Value:
    """A member, or MISSING; other values than lists and maps have none."""
    if isinstance(value, Map):
        return value.find(key)
    if is_list(value):
        place = _place(key)
        return value[place] if 0 <= place < len(value) else MISSING
    return MISSING


def _place(key: Value) -> int:
    if type(key) is int or type(key) is Uint:
        return int(key)
    if type(key) is float:
        if key.is_integer():
            return int(key)
        raise EvaluationError(f"unsupported index value {show(key)} in list")
    raise EvaluationError(f"unsupported index type '{type_name(key)}' in list")
