"""Functions of lists, sets and maps beyond the language's own: cel-go's extensions, and Kubernetes' list functions."""

import functools
import itertools
from collections.abc import Callable
from typing import Any

from app.cel.costs import LIMIT
from app.cel.declarations import Overload, function, method, operator
from app.cel.errors import CostLimitExceeded, EvaluationError
from app.cel.standard import OVERLOADS as STANDARD
from app.cel.standard import unsupported
from app.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    list_of,
    map_of,
    parameter,
)
from app.cel.values import (
    MISSING,
    Duration,
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

T = parameter("T")
LIST = list_of(T)
_ORDERED = (INT, UINT, DOUBLE, BOOL, DURATION, TIMESTAMP, STRING, BYTES)
_ZERO: dict[Type, Value] = {INT: 0, UINT: Uint(0), DOUBLE: 0.0, DURATION: Duration(0)}
_ADD = next(it.call for it in STANDARD if it.name == "_+_")


# ---------------------------------------------------------------- Kubernetes' own


def _is_sorted(values: Any) -> bool:
    return all(compare(one, other) <= 0 for one, other in itertools.pairwise(values))


def _extreme(name: str, wanted: int) -> Callable[[Any], Value]:
    def find(values: Any) -> Value:
        if not values:
            raise EvaluationError(f"{name} called on empty list")
        found = values[0]
        for it in values[1:]:
            if compare(found, it) == -wanted:
                found = it
        return found

    return find


def _total(zero: Value) -> Callable[[Any], Value]:
    return lambda values: functools.reduce(_ADD or max, values, zero)


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
    if kind not in {it.name for it in _ORDERED}:
        raise EvaluationError("list elements must be comparable")
    if any(type_name(it) != kind for it in keys):
        raise EvaluationError("list elements must have the same type")
    order = sorted(range(len(keys)), key=lambda it: functools.cmp_to_key(compare)(keys[it]))
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


_MAP = map_of(parameter("K"), parameter("V"))
OVERLOADS: list[Overload] = [
    *(
        method("isSorted", f"list_{it.name}_is_sorted", (list_of(it),), BOOL, _is_sorted)
        for it in _ORDERED
    ),
    *(
        method("sum", f"list_{it.name}_sum", (list_of(it),), it, _total(zero))
        for it, zero in _ZERO.items()
    ),
    *(
        method("max", f"list_{it.name}_max", (list_of(it),), it, _extreme("max", 1))
        for it in _ORDERED
    ),
    *(
        method("min", f"list_{it.name}_min", (list_of(it),), it, _extreme("min", -1))
        for it in _ORDERED
    ),
    method("indexOf", "list_a_index_of_int", (LIST, T), INT, _index_of),
    method("lastIndexOf", "list_a_last_index_of_int", (LIST, T), INT, _last_index_of),
    function("sets.contains", "list_sets_contains_list", (LIST, LIST), BOOL, _includes),
    function("sets.equivalent", "list_sets_equivalent_list", (LIST, LIST), BOOL, _equivalent),
    function("sets.intersects", "list_sets_intersects_list", (LIST, LIST), BOOL, _intersects),
    method("slice", "list_slice", (LIST, INT, INT), LIST, _slice),
    Overload(
        "flatten", "list_flatten", (list_of(LIST),), LIST, _flatten, method=True, guarded=False
    ),
    method("flatten", "list_flatten_int", (list_of(DYN), INT), list_of(DYN), _flatten),
    *operator(
        "sort",
        tuple((f"list_{it.name}_sort", (list_of(it),), list_of(it)) for it in _ORDERED),
        _sort,
        methods=True,
    ),
    *operator(
        "@sortByAssociatedKeys",
        tuple((f"list_{it.name}_sortBy", (LIST, list_of(it)), LIST) for it in _ORDERED),
        _sort_by_keys,
        methods=True,
    ),
    function("lists.range", "lists_range", (INT,), list_of(INT), _range),
    method("reverse", "list_reverse", (LIST,), LIST, lambda it: tuple(reversed(it))),
    method("distinct", "list_distinct", (LIST,), LIST, _distinct),
    function(
        "cel.@mapInsert",
        "map_insert_key_value",
        (_MAP, parameter("K"), parameter("V")),
        _MAP,
        _insert,
    ),
    function("cel.@mapInsert", "map_insert_map", (_MAP, _MAP), _MAP, _insert_all),
]
