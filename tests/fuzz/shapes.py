"""Shapes of JSON values, and how to draw one from a seeded generator: a valid one, or with something wrong in it.

A shape describes one place of an object in one line; kinds.py describes the watched kinds with them.
``draw(shape, random, harm)`` makes a value. ``harm`` is the probability, for each place by itself, that what stands
there is not what belongs there: 0 gives what an API server takes, 0.02 about one fault per object.

What JSON libraries do not write (lone surrogates, invalid UTF-8, NaN, keys that occur twice, numbers of 5000 digits,
nesting of 10,000 levels) is in the value as ``msgspec.Raw``, which msgspec writes as it stands.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple, Protocol

import msgspec

#: etcd takes no larger request.
LARGEST_OBJECT = 1_500_000


def encode(value: Any) -> bytes:
    """The JSON of a drawn value."""
    return msgspec.json.encode(value)


class Shape(Protocol):
    """What may stand in one place."""

    def valid(self, random: Random, harm: float) -> Any:
        """What belongs there; ``harm`` is for the places inside."""

    def wrong(self, random: Random) -> Any:
        """What does not, but looks like it: for this shape more telling than any other value."""


def draw(shape: Shape, random: Random, harm: float = 0.0) -> Any:
    """A value, wrong with probability ``harm``."""
    if harm and random.random() < harm:
        return shape.wrong(random) if random.random() < 0.6 else junk(random)
    return shape.valid(random, harm)


def _long(random: Random) -> str:
    return "x" * random.choice([300, 5000, 70_000, 1_000_000])


#: How deep values are nested: API servers take 10,000 levels.
DEPTHS = (50, 900, 1200, 5000, 9_990)


def nested(random: Random) -> msgspec.Raw:
    """Arrays or objects inside each other, up to the depth of 10,000 that an API server takes."""
    depth = random.choice(DEPTHS)
    head, tail = random.choice([(b"[", b"]"), (b'{"a":', b"}")])
    return msgspec.Raw(head * depth + b"1" + tail * depth)


def _many(random: Random) -> Any:
    number = random.choice([100, 3000, 10_000])
    make: Callable[[int], Any] = random.choice([str, lambda i: {}, lambda i: None, lambda i: i])
    if random.random() < 0.5:
        return [make(i) for i in range(number)]
    return {f"k{i}": make(i) for i in range(number)}


_PLAIN: Sequence[Any] = (
    None, True, False, 0, -1, 1, 1.5, -0.0, 1e308, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1,
    "", " ", "\0", "0", "-1", "\u00fc\U0001f600", "a b", "a/b/c", "../..", "null", "true", "*", "\n", "\u202e", "{}",
    [], {}, [None], [[]], [{}], {"": ""}, {"": None}, {"a": None}, {"\0": 1}, [1, "a", None, {}], ["", ""],
)  # fmt: skip
_RAW: Sequence[bytes] = (
    b'"\\ud800"', b'"a\\udfff\\ud800b"', b'"\\u0000"', b'"\xff\xfe"', b'"\xed\xa0\x80"', b"NaN", b"-Infinity", b"1e400", b"1E5",
    b"1e-400", b"-0", b"18446744073709551616", b"9" * 5000, b"0." + b"1" * 5000, b'{"a":1,"a":[]}', b'{"name":1,"name":"x"}',
    b'"\t"', b"tru", b"'x'", b"[1,]", b'{"a"}', b"", b"01", b"+1", b'{"\\u006eame":"x"}', b" null ",
)  # fmt: skip


def junk(random: Random) -> Any:
    """Any value at all, the usual troublemakers mostly."""
    choice = random.random()
    if choice < 0.7:
        return random.choice(_PLAIN)
    if choice < 0.93:
        return msgspec.Raw(random.choice(_RAW))
    return random.choice([nested, _many, _long])(random)


def _fitting(number: int, value: Any) -> int:
    """How often a value may be there, at most ``number`` times, in an object that etcd takes."""
    return max(1, min(number, LARGEST_OBJECT // 2 // (len(encode(value)) + 10)))


# ---------------------------------------------------------------- leaves


class Leaf(NamedTuple):
    """One of some values; ``odd`` are those of the right type that are wrong all the same."""

    values: Sequence[Any]
    odd: Sequence[Any] = ("", " ", "\0", "x" * 300, "\u00fc", -1, 0)

    def valid(self, random: Random, harm: float) -> Any:
        return random.choice(self.values)

    def wrong(self, random: Random) -> Any:
        return random.choice(self.odd)


class Number(NamedTuple):
    """An integer from ``low`` to ``high``, mostly a small one or an end."""

    low: int
    high: int

    def valid(self, random: Random, harm: float) -> Any:
        if random.random() < 0.2:
            return random.choice([self.low, self.high])
        return random.randint(self.low, min(self.high, self.low + random.choice([3, 10, 1000])))

    def wrong(self, random: Random) -> Any:
        near = [self.low - 1, self.high + 1, -self.high, 2**63, -(2**63), 2**31, 1.5, 1e18, "1"]
        return random.choice([*near, msgspec.Raw(b"1e3"), msgspec.Raw(b"9" * 400)])


class Made(NamedTuple):
    """What a function draws; ``odd`` as for Leaf."""

    make: Callable[[Random], Any]
    odd: Sequence[Any]

    def valid(self, random: Random, harm: float) -> Any:
        return self.make(random)

    def wrong(self, random: Random) -> Any:
        return random.choice(self.odd)


# ---------------------------------------------------------------- containers


class List(NamedTuple):
    """``least`` to ``most`` of the same shape."""

    item: Shape
    most: int = 3
    least: int = 0

    def valid(self, random: Random, harm: float) -> Any:
        number = random.randint(self.least, self.most)
        return [draw(self.item, random, harm) for _ in range(number)]

    def wrong(self, random: Random) -> Any:
        items = [self.item.valid(random, 0) for _ in range(random.randint(1, 20))]
        match random.randrange(6):
            case 0:
                return [*items, None]
            case 1:
                return dict(enumerate(map(str, items)))
            case 2:
                return items * _fitting(random.choice([300, 10_000]) // len(items), items)
            case 3:
                return [items]
            case 4:
                return items[0]
        return items + items


class Map(NamedTuple):
    """An object with any keys of a shape."""

    key: Shape
    value: Shape
    most: int = 3
    least: int = 0

    def valid(self, random: Random, harm: float) -> Any:
        number = random.randint(self.least, self.most)
        return {_key(self.key, random, harm): draw(self.value, random, harm) for _ in range(number)}

    def wrong(self, random: Random) -> Any:
        match random.randrange(5):
            case 0:
                value = self.value.valid(random, 0)
                return {
                    f"k{i}": value for i in range(_fitting(random.choice([300, 10_000]), value))
                }
            case 1:
                return {f"example.com/k{i}": self.value.valid(random, 0) for i in range(300)}
            case 2:
                return [[self.key.valid(random, 0), self.value.valid(random, 0)]]
            case 3:
                key, value = self.key.valid(random, 0), self.value.valid(random, 0)
                pair = encode(str(key)) + b":" + encode(value)
                return msgspec.Raw(b"{%b,%b}" % (pair, pair))
        return {"": self.value.valid(random, 0), "\0": None}


def _key(shape: Shape, random: Random, harm: float) -> str:
    """Keys are text, whatever was drawn."""
    key = draw(shape, random, harm)
    return key if isinstance(key, str) else repr(key)[:300]


class Field(NamedTuple):
    """A field of an object: how likely it is there."""

    shape: Shape
    chance: float


def must(shape: Shape) -> Field:
    """A field that a valid object has."""
    return Field(shape, 1.0)


def often(shape: Shape) -> Field:
    """A field that most objects have."""
    return Field(shape, 0.7)


def rare(shape: Shape) -> Field:
    """A field that few objects have."""
    return Field(shape, 0.06)


_USUAL = 0.3


class Obj:
    """An object with these fields. A bare shape is a field that is there now and then; of ``one_of`` exactly one is."""

    def __init__(
        self,
        fields: Mapping[str, Shape | Field],
        one_of: Mapping[str, Shape] | None = None,
        finish: Callable[[dict[str, Any], Random], None] | None = None,
    ) -> None:
        """``finish`` makes fields agree with each other, in valid objects only."""
        self.fields = {
            name: field if isinstance(field, Field) else Field(field, _USUAL)
            for name, field in fields.items()
        }
        self.one_of = dict(one_of or {})
        self._finish = finish

    def valid(self, random: Random, harm: float) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, field in self.fields.items():
            chance = field.chance
            if harm and chance == 1.0:
                chance = 1.0 - harm
            if random.random() < chance:
                made[name] = draw(field.shape, random, harm)
        if self.one_of:
            names = list(self.one_of)
            for name in random.choices(names, k=2 if harm and random.random() < harm else 1):
                made[name] = draw(self.one_of[name], random, harm)
        if self._finish is not None and not harm:
            self._finish(made, random)
        return made

    def wrong(self, random: Random) -> Any:
        made = self.valid(random, 0)
        names = [*self.fields, *self.one_of, "x"]
        match random.randrange(5):
            case 0:
                return made | {f"x{i}": i for i in range(random.choice([1, 10_000]))}
            case 1:
                return dict.fromkeys(names)
            case 2:
                return made | {random.choice(names): junk(random)}
            case 3 if made:
                pairs = [encode(name) + b":" + encode(value) for name, value in made.items()]
                return msgspec.Raw(b"{%b}" % b",".join(pairs + pairs))
        return [made]
