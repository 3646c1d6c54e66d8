"""Functions beyond the language's own: those of cel-go's extensions and of Kubernetes' libraries."""

import functools
import itertools
from collections.abc import Callable
from typing import Any, Final

from app.cel.costs import LIMIT, MAX_LENGTH
from app.cel.errors import CostLimitExceeded, EvaluationError
from app.cel.standard import Signatures, add, compiled, for_each, unsupported
from app.cel.values import (
    MISSING,
    NO_OVERLOAD,
    GrowingMap,
    Map,
    Uint,
    Value,
    among,
    compare,
    equal,
    is_list,
    show,
    type_name,
)

_ORDERED = "int uint double bool string bytes"
_ZERO: dict[str, Value] = {"int": 0, "uint": Uint(0), "double": 0.0}


# ---------------------------------------------------------------- order


def _order(one: Value, other: Value) -> int:
    """``compare`` for elements of lists, where NaN counts as equal to everything."""
    for it in (one, other):
        if type_name(it) not in _ORDERED.split():
            raise EvaluationError(NO_OVERLOAD)
    try:
        return compare(one, other)
    except EvaluationError:
        return 0


def _extreme(name: str, wanted: int) -> Callable[[Any], Value]:
    def find(values: Any) -> Value:
        if not values:
            raise EvaluationError(f"{name} called on empty list")
        found = values[0]
        for it in values[1:]:
            if _order(found, it) == -wanted:
                found = it
        return found

    return find


def _total(zero: Value) -> Callable[[Any], Value]:
    return lambda values: functools.reduce(add, values, zero)


def _last_index_of(values: Any, wanted: Value) -> int:
    places = range(len(values) - 1, -1, -1)
    return next((place for place in places if _is(values[place], wanted)), -1)


def _is(value: Value, wanted: Value) -> bool:
    try:
        return equal(value, wanted)
    except EvaluationError:
        return False


# ---------------------------------------------------------------- sets


def _includes(values: Any, others: Any) -> bool:
    return all(among(it, values) for it in others)


# ---------------------------------------------------------------- lists


def _slice(values: Any, start: int, end: int) -> Value:
    if start < 0 or end < 0:
        raise EvaluationError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise EvaluationError(
            f"cannot slice({start}, {end}), start index must be less than or equal to end index"
        )
    if end > len(values):
        raise EvaluationError(f"cannot slice({start}, {end}), list is length {len(values)}")
    return tuple(values[start:end])


def _flatten(values: Any, depth: int = 1) -> Value:
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    found: list[Value] = []
    for it in values:
        if is_list(it) and depth:
            found.extend(_flatten(it, depth - 1))
        else:
            found.append(it)
        if len(found) > LIMIT:
            raise CostLimitExceeded
    return tuple(found)


def _range(count: int) -> Value:
    if count > LIMIT:
        raise CostLimitExceeded
    return tuple(range(count))


def _distinct(values: Any) -> Value:
    found: list[Value] = []
    for it in values:
        if not any(_is(it, other) for other in found):
            found.append(it)
    return tuple(found)


def _sort(values: Any) -> Value:
    if not is_list(values):
        raise unsupported(values, "sort")
    return _sort_by_keys(values, values)


def _sort_by_keys(values: Any, keys: Any) -> Value:
    if len(values) != len(keys):
        raise EvaluationError(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, "
            f"but got {len(values)} and {len(keys)} elements respectively"
        )
    if not values:
        return values
    kind = type_name(keys[0])
    if kind not in _ORDERED.split():
        raise EvaluationError("list elements must be comparable")
    if any(type_name(it) != kind for it in keys):
        raise EvaluationError("list elements must have the same type")
    order = sorted(range(len(keys)), key=lambda it: functools.cmp_to_key(_order)(keys[it]))
    return tuple(values[place] for place in order)


# ---------------------------------------------------------------- maps


def _insert(target: Map, key: Value, value: Value) -> Map:
    grown = target if type(target) is GrowingMap else GrowingMap(dict(target.entries))
    if grown.find(key) is not MISSING:
        raise EvaluationError(f"insert failed: key {show(key)} already exists")
    grown.put(key, value)
    return grown


def _insert_all(target: Map, entries: Map) -> Map:
    for key, value in entries.items():
        target = _insert(target, key, value)
    return target


# ---------------------------------------------------------------- strings

_BLANKS = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}


def _out_of_range(index: int) -> EvaluationError:
    return EvaluationError(f"index out of range: {index}")


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


def _index_in_text(text: str, part: str, start: int = 0) -> int:
    if not part:
        return start
    if start < 0:
        raise _out_of_range(start)
    return text.find(part, start)


def _last_index_in_text(text: str, part: str, start: int | None = None) -> int:
    if start is None:
        return text.rfind(part)
    if not part:
        return start
    if start < 0:
        raise _out_of_range(start)
    return -1 if start >= len(text) else text.rfind(part, 0, start + len(part))


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    found = text.count(old) if old else len(text) + 1
    found = found if count < 0 else min(found, count)
    if len(text) + found * len(new) > MAX_LENGTH:
        raise CostLimitExceeded
    return text.replace(old, new, found)


def _split(text: str, separator: str, count: int = -1) -> tuple[str, ...]:
    if count == 0:
        return ()
    if separator:
        return tuple(text.split(separator, count - 1 if count > 0 else -1))
    if 0 < count < len(text):
        return (*text[: count - 1], text[count - 1 :])
    return tuple(text)


def _substring(text: str, start: int, end: int | None = None) -> str:
    if end is not None and start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, end):
        if index is not None and not 0 <= index <= len(text):
            raise _out_of_range(index)
    return text[start:end]


def _join(parts: Any, separator: str = "") -> str:
    for it in parts:
        if type(it) is not str:
            raise EvaluationError(f"join: invalid input: {it}")
    if sum(map(len, parts)) + len(separator) * len(parts) > MAX_LENGTH:
        raise CostLimitExceeded
    return separator.join(parts)


# ---------------------------------------------------------------- regular expressions


def _find(text: str, pattern: str) -> str:
    """The first match, or an empty string."""
    match = _search(pattern).search(text)
    return str(match[0]) if match else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> tuple[str, ...]:
    """All matches that do not overlap, without an empty match right after another match."""
    regex = _search(pattern)
    found: list[str] = []
    at, before = 0, -1
    while at <= len(text) and (limit < 0 or len(found) < limit):
        match = regex.search(text, at)
        if match is None:
            break
        start, end = match.span()
        empty_behind = end == at and start == before
        at = at + 1 if end == at else end
        before = end
        if not empty_behind:
            found.append(match[0])
    return tuple(found)


def _search(pattern: str) -> Any:
    try:
        return compiled(pattern)
    except EvaluationError as error:
        raise EvaluationError(f"Illegal regex: {error}") from None


UNTYPED: Final[Signatures] = {
    "list<list<T>>.flatten(): list<T>": _flatten,
    **for_each(_ORDERED, "list<$>.sort(): list<$>", _sort),
    **for_each(_ORDERED, "list<T>.@sortByAssociatedKeys(list<$>): list<T>", _sort_by_keys),
}
TYPED: Final[Signatures] = {
    **for_each(
        _ORDERED,
        "list<$>.isSorted(): bool",
        lambda it: all(_order(*pair) <= 0 for pair in itertools.pairwise(it)),
    ),
    **{f"list<{kind}>.sum(): {kind}": _total(zero) for kind, zero in _ZERO.items()},
    **for_each(_ORDERED, "list<$>.max(): $", _extreme("max", 1)),
    **for_each(_ORDERED, "list<$>.min(): $", _extreme("min", -1)),
    "list<T>.indexOf(T): int": lambda values, wanted: next(
        (place for place, it in enumerate(values) if _is(it, wanted)), -1
    ),
    "list<T>.lastIndexOf(T): int": _last_index_of,
    "sets.contains(list<T>, list<T>): bool": _includes,
    "sets.equivalent(list<T>, list<T>): bool": lambda one, other: (
        _includes(one, other) and _includes(other, one)
    ),
    "sets.intersects(list<T>, list<T>): bool": lambda one, other: any(
        among(it, other) for it in one
    ),
    "list<T>.slice(int, int): list<T>": _slice,
    "list<dyn>.flatten(int): list<dyn>": _flatten,
    "lists.range(int): list<int>": _range,
    "list<T>.reverse(): list<T>": lambda it: tuple(reversed(it)),
    "list<T>.distinct(): list<T>": _distinct,
    "cel.@mapInsert(map<K, V>, K, V): map<K, V>": _insert,
    "cel.@mapInsert(map<K, V>, map<K, V>): map<K, V>": _insert_all,
    "string.charAt(int): string": _char_at,
    "string.indexOf(string): int": _index_in_text,
    "string.indexOf(string, int): int": _index_in_text,
    "string.lastIndexOf(string): int": _last_index_in_text,
    "string.lastIndexOf(string, int): int": _last_index_in_text,
    "string.lowerAscii(): string": lambda it: it.translate(_LOWER),
    "string.upperAscii(): string": lambda it: it.translate(_UPPER),
    "string.replace(string, string): string": _replace,
    "string.replace(string, string, int): string": _replace,
    "string.split(string): list<string>": _split,
    "string.split(string, int): list<string>": _split,
    "string.substring(int): string": _substring,
    "string.substring(int, int): string": _substring,
    "string.trim(): string": lambda it: it.strip(_BLANKS),
    "list<string>.join(): string": _join,
    "list<string>.join(string): string": _join,
    "string.find(string): string": _find,
    "string.findAll(string): list<string>": _find_all,
    "string.findAll(string, int): list<string>": _find_all,
}
