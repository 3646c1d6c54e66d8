"""What a scheduler holds: how many entries each of its containers has, by the way to it. Nothing may grow with what has gone."""

import gc
import types
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec
import numpy as np

from tests.fuzz.histories import Event
from tests.fuzz.world import World

_SKIPPED = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.CodeType,
    str,
    bytes,
    int,
    float,
    bool,
    complex,
    type(None),
)
_MAPPINGS = (Mapping, WeakKeyDictionary, WeakValueDictionary)


def census(world: World) -> Counter[str]:
    """Entries of containers, and elements of arrays, by path.

    What is remembered of templates is limited by its bytes, whatever it is of; it is forgotten first.
    """
    for framework in world.scheduler.frameworks.values():
        framework._memos.clear()
    gc.collect()
    counts: Counter[str] = Counter()
    seen: set[int] = set()
    scheduler = world.scheduler
    roots = {
        "state": world.state,
        "frameworks": scheduler.frameworks,
        "informers": scheduler.informers,
        "waiting": scheduler.waiting,
        "binder": scheduler.binder,
        "evictor": scheduler.evictor,
        "patcher": scheduler.patcher,
        "failures": scheduler.failures,
        "loop": scheduler.loop,
    }
    for name, root in roots.items():
        _count(root, name, counts, seen)
    return counts


def _count(thing: Any, path: str, counts: Counter[str], seen: set[int]) -> None:
    stack = [(thing, path)]
    while stack:
        thing, path = stack.pop()
        if isinstance(thing, _SKIPPED) or id(thing) in seen or _foreign(thing):
            continue
        seen.add(id(thing))
        if isinstance(thing, np.ndarray):
            counts[path] += thing.size
        elif isinstance(thing, _MAPPINGS):
            counts[path] += len(thing)
            stack.extend((value, f"{path}{{}}") for value in list(thing.values()))
            stack.extend((key, f"{path}<>") for key in list(thing) if not isinstance(key, str))
        elif isinstance(thing, list | tuple | set | frozenset | deque):
            counts[path] += len(thing)
            stack.extend((each, f"{path}[]") for each in thing)
        elif isinstance(thing, types.MethodType):
            stack.append((thing.__self__, path))
        else:
            stack.extend((value, f"{path}.{name}") for name, value in _attributes(thing))


def _foreign(thing: Any) -> bool:
    """What is no part of the state: loops, tasks, generators, clocks, metrics, events (they are not sent), the test itself."""
    module = type(thing).__module__
    return (
        not module.startswith("app.")
        and module not in {"builtins", "collections", "numpy", "types", "weakref", "functools"}
    ) or module.startswith(("app.observe", "app.kube.events", "app.kube.transport"))


def _attributes(thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, msgspec.Struct):
        names: list[str] = list(thing.__struct_fields__)
    else:
        names = list(getattr(thing, "__dict__", ()))
        for cls in type(thing).__mro__:
            slots = cls.__dict__.get("__slots__", ())
            names += [slots] if isinstance(slots, str) else list(slots)
    for name in names:
        value = getattr(thing, name, None)
        if value is not None:
            yield name, value


_NAMES = (
    *(b"example.com", b"guest-", b"claim-", b"volume-", b"pod-", b"img:", b"registry.", b"team-", b"slice-", b"svc-", b"devices-", b"dev-", b"busybox"),
    *(b'"app"', b'"tier"', b'"z0"', b'"uid":"g', b"csi.", b"k0"),
)  # fmt: skip


def renamed(events: Iterable[Event], number: int) -> list[Event]:
    """The same history under other names: of objects, labels, resources, images, drivers."""
    salt = f"s{number}".encode()

    def rename(text: bytes) -> bytes:
        for name in _NAMES:
            text = text.replace(name, b"%b%b%b" % (name[:-1], salt, name[-1:]))
        return text

    return [
        event._replace(key=rename(event.key.encode()).decode(), text=rename(event.text))
        for event in events
    ]


def grown(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """The containers that have more entries than before."""
    return {
        path: (before.get(path, 0), number)
        for path, number in after.items()
        if number > before.get(path, 0)
    }
