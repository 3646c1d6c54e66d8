"""Functions of lists, sets and maps beyond the language's own: cel-go's extensions, and Kubernetes' list functions."""

import functools
import itertools
from collections.abc import Callable
from typing import Any

from app.cel.costs import LIMIT
from app.cel.declarations import Overload, declare, declare_each
from app.cel.errors import CostLimitExceeded, EvaluationError
from app.cel.standard import add, unsupported
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


# ---------------------------------------------------------------- Kubernetes' own


def _order(one: Value, other: Value) -> int:
    """As ``compare``, but what has no order among its like (not a number) is neither before nor after."""
    for it in (one, other):
        if type_name(it) not in _ORDERED.split():
            raise EvaluationError(NO_OVERLOAD)
    try:
        return compare(one, other)
    except EvaluationError:
        return 0


def _is_sorted(values: Any) -> bool:
    return all(_order(one, other) <= 0 for one, other in itertools.pairwise(values))


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


def _index_of(values: Any, wanted: Value) -> int:
    return next((place for place, it in enumerate(values) if _is(it, wanted)), -1)


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


def _equivalent(values: Any, others: Any) -> bool:
    return _includes(values, others) and _includes(others, values)


def _intersects(values: Any, others: Any) -> bool:
    return any(among(it, others) for it in values)


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


# ---------------------------------------------------------------- maps that grow


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


OVERLOADS: list[Overload] = [
    *declare_each("list<$>.isSorted(): bool", _ORDERED, _is_sorted),
    *(
        it
        for kind, zero in _ZERO.items()
        for it in declare({f"list<{kind}>.sum(): {kind}": _total(zero)})
    ),
    *declare_each("list<$>.max(): $", _ORDERED, _extreme("max", 1)),
    *declare_each("list<$>.min(): $", _ORDERED, _extreme("min", -1)),
    *declare({"list<list<T>>.flatten(): list<T>": _flatten}, guarded=False),
    *declare_each("list<$>.sort(): list<$>", _ORDERED, _sort, guarded=False),
    *declare_each(
        "list<T>.@sortByAssociatedKeys(list<$>): list<T>", _ORDERED, _sort_by_keys, guarded=False
    ),
    *declare(
        {
            "list<T>.indexOf(T): int": _index_of,
            "list<T>.lastIndexOf(T): int": _last_index_of,
            "sets.contains(list<T>, list<T>): bool": _includes,
            "sets.equivalent(list<T>, list<T>): bool": _equivalent,
            "sets.intersects(list<T>, list<T>): bool": _intersects,
            "list<T>.slice(int, int): list<T>": _slice,
            "list<dyn>.flatten(int): list<dyn>": _flatten,
            "lists.range(int): list<int>": _range,
            "list<T>.reverse(): list<T>": lambda it: tuple(reversed(it)),
            "list<T>.distinct(): list<T>": _distinct,
            "cel.@mapInsert(map<K, V>, K, V): map<K, V>": _insert,
            "cel.@mapInsert(map<K, V>, map<K, V>): map<K, V>": _insert_all,
        }
    ),
]
