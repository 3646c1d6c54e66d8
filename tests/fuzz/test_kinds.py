"""The description of the kinds is complete, what it makes is read, and what it harms is refused by name."""

from collections.abc import Iterator
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from app.model import devices, objects, pod_groups, storage
from app.scheduler import kinds as watched
from app.wire import pods
from app.wire.envelope import DecodeError
from tests.fuzz.kinds import BY_NAME, KINDS, META, Kind
from tests.fuzz.shapes import Field, List, Map, Obj, draw, encode

#: Fields of shared structs that these objects do not have, and what the scheduler puts into nodes itself.
_ABSENT = {
    "Node.<raw>",
    "Pod.spec.volumes[].csi.volumeHandle",
    "DeviceClass.spec.config[].requests",
}
DECODERS = watched.decoders()


def model(kind: Kind) -> type:
    """What the scheduler reads of a kind."""
    if kind.name == "Pod":
        return pods._Pod
    modules = (objects, storage, devices, pod_groups)
    return next(found for each in modules if (found := getattr(each, kind.name, None)))


def missing(shape: object, read: inspect.Type, path: str) -> Iterator[str]:
    """The fields that are read and not described."""
    if isinstance(shape, Field):
        shape = shape.shape
    if isinstance(read, inspect.UnionType):
        for each in read.types:
            yield from missing(shape, each, path)
    elif isinstance(read, inspect.VarTupleType) and isinstance(shape, List):
        yield from missing(shape.item, read.item_type, f"{path}[]")
    elif isinstance(read, inspect.DictType) and isinstance(shape, Map):
        yield from missing(shape.value, read.value_type, f"{path}{{}}")
    elif isinstance(read, inspect.StructType) and isinstance(shape, Obj):
        described = {**shape.fields, **shape.one_of}
        for field in read.fields:
            name = field.encode_name
            if name in described:
                yield from missing(described[name], field.type, f"{path}.{name}")
            elif f"{path}.{name}" not in _ABSENT:
                yield f"{path}.{name}"


def test_every_watched_kind_is_described():
    assert set(BY_NAME) == set(DECODERS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_field_that_is_read_is_described(kind):
    own = Obj({"name": META, "namespace": META, "uid": META, "resourceVersion": META})
    metadata = Obj({**META.fields, **own.fields})
    described = Obj({**kind.body.fields, "metadata": metadata})
    assert list(missing(described, inspect.type_info(model(kind)), kind.name)) == []


def drawn(kind: Kind, random: Random, harm: float) -> bytes:
    """The JSON of an object called ``o``."""
    metadata = draw(META, random, harm)
    if isinstance(metadata, dict):
        metadata |= {"name": "o", "namespace": "n"} if kind.namespaced else {"name": "o"}
    return encode({"metadata": metadata, **kind.body.valid(random, harm)})


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@given(st.randoms(use_true_random=False))
@settings(max_examples=8)
def test_valid_objects_are_read(kind, random):
    assert DECODERS[kind.name].decode(drawn(kind, random, 0.0)).name == "o"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@given(st.randoms(use_true_random=False), st.sampled_from([0.02, 0.1, 0.5]))
@settings(max_examples=25)
def test_harmed_objects_are_read_or_refused_by_name(kind, random, harm):
    text = drawn(kind, random, harm)
    try:
        DECODERS[kind.name].decode(text)
    except DecodeError as err:
        error = err
    else:
        return
    try:
        named = msgspec.json.decode(text)["metadata"]["name"] == "o"
    except (ValueError, LookupError, TypeError, RecursionError):
        named = False
    if named:
        assert error.key == ("n/o" if kind.namespaced else "o")
