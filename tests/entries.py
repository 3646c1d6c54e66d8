"""How much can be reached from an object: to find what grows with what has gone."""

import asyncio
import collections
import functools
import importlib
import types
import weakref
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from app.cel.devices import Selectors

#: What remembers up to a limit remembers less in tests of growth, so that the limits are reached soon.
_LOWERED: dict[str, dict[str, int]] = {
    "app.framework.template_memos": {"_MEMO_BYTES": 64 * 2**10, "_MEMO_BYTES_PER_ROW": 1000},
    "app.plugins.default_preemption.candidates": {"_MAX_FAMILIES": 2},
    "app.plugins.dynamic_resources.allocator": {"_MAX_KINDS": 16, "_MAX_QUERIES": 2},
    "app.plugins.image_locality": {"_MAX_KEPT_BYTES": 4096},
    "app.plugins.node_resources_fit": {"_MAX_SETS": 8, "_MOST_REQUESTS": 8},
    "app.plugins.pod_topology_spread.counting": {"_MAX_KEPT": 64},
    "app.plugins.volume_binding.matching": {"_SPARE_TRAITS": 4},
    "app.plugins.volume_binding.volume_topology": {"_SPARE_TOPOLOGIES": 4},
    "app.state.columns.labels": {"_FEW_VALUES": 8, "_MAX_COLUMNS": 8},
    "app.state.lister": {"_LATEST": 8},
    "app.state.nominations": {"_MAX_PRIORITIES": 4},
    "app.state.nominator": {"MAX_CHANGES": 8},
    "app.state.table": {"_MAX_LATEST": 64},
    "app.state.weak_cache": {"MAX_VALUES": 8},
}

_OPAQUE = (type, types.ModuleType, weakref.ReferenceType, asyncio.TaskGroup)
_WeakMap = weakref.WeakKeyDictionary | weakref.WeakValueDictionary
#: Text counts as an entry for every so many characters.
_CHARACTERS = 1000


def lower_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has what remembers up to a limit remember less."""
    for module, limits in _LOWERED.items():
        for name, limit in limits.items():
            monkeypatch.setattr(importlib.import_module(module), name, limit)
    monkeypatch.setattr(Selectors.__init__, "__defaults__", (8, 8))


def entries(*roots: object, leaving_out: Collection[str] = ()) -> collections.Counter[str]:
    """By class and attribute: how many entries containers have, and numbers arrays; long text counts too.

    ``leaving_out``: names of attributes that are not followed.
    """
    counts: collections.Counter[str] = collections.Counter()
    seen: dict[int, object] = {}  # keeps what was seen, so that nothing else gets its id
    todo = collections.deque((type(root).__name__, root) for root in roots)
    while todo:
        way, thing = todo.popleft()
        if isinstance(thing, _OPAQUE) or id(thing) in seen:
            continue
        seen[id(thing)] = thing
        if isinstance(thing, str | bytes):
            counts[way] += len(thing) // _CHARACTERS
        elif isinstance(thing, np.ndarray):
            counts[way] += thing.size
        elif isinstance(thing, dict | types.MappingProxyType | _WeakMap):
            counts[way] += len(thing)
            for key, value in list(thing.items()):
                todo += (f"{way}{{k}}", key), (f"{way}{{v}}", value)
        elif isinstance(thing, list | tuple | set | frozenset | collections.deque):
            counts[way] += len(thing)
            todo += ((f"{way}[]", each) for each in thing)
        todo += (
            part for part in _parts(way, thing) if part[0].rpartition(".")[2] not in leaving_out
        )
    return +counts


def _parts(way: str, thing: Any) -> Iterator[tuple[str, object]]:
    """What an object refers to, and how."""
    if isinstance(thing, types.MethodType):
        yield way, thing.__self__
    elif isinstance(thing, functools.partial):
        yield from ((f"{way}()", part) for part in (thing.func, thing.args, thing.keywords))
    elif isinstance(thing, types.FunctionType):
        for cell in thing.__closure__ or ():
            yield f"{way}()", _content(cell)
    elif isinstance(thing, np.ndarray) and thing.dtype == object:
        yield f"{way}[]", thing.tolist()
    elif not isinstance(thing, _WeakMap):
        names = dict.fromkeys(getattr(thing, "__dict__", ()))
        for kind in type(thing).__mro__:
            slots = kind.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                private = name.startswith("__") and not name.endswith("__")
                names[f"_{kind.__name__.lstrip('_')}{name}" if private else name] = None
        for name in names:
            if name not in {"__dict__", "__weakref__"} and hasattr(thing, name):
                yield f"{type(thing).__name__}.{name}", getattr(thing, name)


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def grown(
    before: Mapping[str, int], after: Mapping[str, int], by: int
) -> dict[str, tuple[int, int]]:
    """What has grown by more than ``by`` entries; what is tidied up from time to time goes up and down by less."""
    return {
        way: (before.get(way, 0), count)
        for way, count in after.items()
        if count > before.get(way, 0) + by
    }
