"""Objects with one list or map filled to the brim: as many entries as an API server takes in one object.

``python -m tests.fuzz.brims [KIND...]`` prints what each of them costs.
"""

import sys
from collections.abc import Iterator
from random import Random
from typing import Any

from tests.fuzz.driver import forget, in_new_loop
from tests.fuzz.kinds import KINDS, META, Kind
from tests.fuzz.shapes import Field, List, Map, Obj, Shape, encode
from tests.fuzz.world import Cost, running

#: Bytes of an object that an API server takes from anyone: etcd takes 1.5 MB.
_ROOM = 1_400_000

#: Fields by which the entries of a list differ.
_NAMES = ("name", "key", "uid", "topologyKey", "containerPort", "driver", "request")

Path = tuple[str, ...]


def containers(kind: Kind) -> Iterator[Path]:
    """The paths of all lists and maps of a kind: names of fields, ``[]`` for an entry of a list, ``{}`` for one of a
    map.
    """
    yield from _containers(Obj({"metadata": META, **kind.body.fields}), ())


def _containers(shape: Shape | Field, path: Path) -> Iterator[Path]:
    if isinstance(shape, Field):
        shape = shape.shape
    match shape:
        case List():
            yield path
            yield from _containers(shape.item, (*path, "[]"))
        case Map():
            yield path
            yield from _containers(shape.value, (*path, "{}"))
        case Obj():
            for name, inner in {**shape.fields, **shape.one_of}.items():
                yield from _containers(inner, (*path, name))


def full(kind: Kind, path: Path, entries: int) -> dict[str, Any]:
    """A valid object whose list or map at this path has so many different entries, as far as there is room."""
    random = Random(1)
    shape = Obj({"metadata": META, **kind.body.fields})
    made = shape.valid(random, 0)
    return _fill(shape, made, path, entries, random)


def _fill(shape: Shape | Field, value: Any, path: Path, entries: int, random: Random) -> Any:
    if isinstance(shape, Field):
        shape = shape.shape
    if not path:
        return _entries(shape, entries, random)
    step, *rest = path
    match shape:
        case List():
            return [_fill(shape.item, shape.item.valid(random, 0), tuple(rest), entries, random)]
        case Map():
            key = shape.key.valid(random, 0)
            return {
                key: _fill(shape.value, shape.value.valid(random, 0), tuple(rest), entries, random)
            }
        case Obj():
            inner = shape.fields.get(step) or shape.one_of[step]
            plain = inner.shape if isinstance(inner, Field) else inner
            if step in shape.one_of:
                value = {name: each for name, each in value.items() if name not in shape.one_of}
            known = value.get(step)
            if known is None:
                known = plain.valid(random, 0)
            return {**value, step: _fill(plain, known, tuple(rest), entries, random)}
    raise TypeError(f"nothing below {shape}")


def _entries(shape: Shape, entries: int, random: Random) -> Any:
    assert isinstance(shape, Map | List)
    value = (shape.value if isinstance(shape, Map) else shape.item).valid(random, 0)
    numbers = range(min(entries, _ROOM // (len(encode(value)) + 12)))
    if isinstance(shape, Map):
        return {f"k{i}": value for i in numbers}
    if isinstance(value, str):
        return [f"{value[:10]}-{i}" for i in numbers]
    name = next((n for n in _NAMES if isinstance(value, dict) and n in value), None)
    if name is None:
        return [value for _ in numbers]
    is_text = isinstance(value[name], str)
    return [{**value, name: f"n{i}" if is_text else i + 1} for i in numbers]


def _text(kind: Kind, path: Path, entries: int) -> tuple[str, bytes]:
    """The key and the JSON of a full object; a pod waits to be scheduled."""
    value = full(kind, path, entries)
    own = {"name": "big", "uid": "g-big", "resourceVersion": "5"}
    value["metadata"] = {**value["metadata"], **own}
    value["metadata"].pop("deletionTimestamp", None)
    if "managedFields" not in path:
        value["metadata"].pop("managedFields", None)
    if kind.namespaced:
        value["metadata"]["namespace"] = "default"
    if kind.name == "Pod":
        value["spec"] = {**value["spec"], "schedulerName": "default-scheduler"}
        for field in {"nodeName", "schedulingGates"}.difference(path):
            value["spec"].pop(field, None)
    return "default/big" if kind.namespaced else "big", encode(value)


async def _costs(kind: Kind, key: str, text: bytes) -> list[Cost]:
    async with running() as world:
        costs = await world.tell(kind.name, key, "ADDED", text)
        await world.add_normal()
        costs += world.telemetry.costs
        costs += await world.tell(kind.name, key, "DELETED", text)
        world.check_log()
    return costs


def measure(kind: Kind, path: Path, entries: int = 200_000) -> Cost:
    """The most that such an object costs: to come, to go, an attempt of its own or of a normal pod. Raises
    Violation.
    """
    costs: list[Cost] = []
    key, text = _text(kind, path, entries)

    async def main() -> None:
        costs.extend(await _costs(kind, key, text))

    forget()
    in_new_loop(main)
    most = max(costs)
    return Cost(most.seconds, f"{kind.name}.{'.'.join(path)}, {len(text)} bytes: {most.what}")


def main() -> None:
    """Prints what each costs; the arguments are names of kinds."""
    kinds = [kind for kind in KINDS if kind.name in sys.argv[1:] or not sys.argv[1:]]
    found = [measure(kind, path) for kind in kinds for path in containers(kind)]
    for cost in sorted(found, reverse=True):
        print(f"{cost.seconds * 1000:8.1f} ms  {cost.what}")


if __name__ == "__main__":
    main()
