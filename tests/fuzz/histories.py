"""What happens to guests: objects of all watched kinds come, change and go, many of them harmed.

A history is a list of events, made from a seed; it can be repeated, cut down and written to a file.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

import msgspec

from tests.fuzz.kinds import KINDS, META, NAMESPACES, Kind
from tests.fuzz.shapes import LARGEST_OBJECT, draw, encode, junk

#: How often a guest is of a kind, relative to 1.
_WEIGHTS = {
    "Pod": 14,
    "Node": 4,
    "ResourceClaim": 3,
    "ResourceSlice": 3,
    "PersistentVolumeClaim": 2,
    "PersistentVolume": 2,
}
#: Probabilities of harm for each place of an object; see shapes.
_HARMS = (0.0, 0.0, 0.01, 0.02, 0.02, 0.05, 0.3)


class Event(NamedTuple):
    """One event of the watch of a kind.

    ``type`` ADDED, MODIFIED or DELETED: of the object that the server keeps as ``key``; LINE: ``text`` is sent as it
    stands, and the server keeps nothing; EXPIRED: the watch ends and a list follows.
    ``plain``: name, namespace, uid and resourceVersion are as they should be.
    """

    kind: str
    key: str
    type: str
    text: bytes
    plain: bool = True


class _Guest(NamedTuple):
    uid: str
    text: bytes
    plain: bool


class Guests:
    """Makes events, one after another, that follow from each other as those of a server do, or nearly."""

    #: How many events are lines that are nothing of the kind; half as many are ends of a watch.
    lines = 0.02

    def __init__(self, random: Random, *, harm: float | None = None) -> None:
        """``harm`` None: now this, now that."""
        self._random = random
        self._harm = harm
        self._guests: dict[tuple[str, str], _Guest] = {}
        self._number = 0
        self._weights = [_WEIGHTS.get(kind.name, 1) for kind in KINDS]

    def events(self, number: int) -> list[Event]:
        """The next events."""
        return [self._next() for _ in range(number)]

    def drawn(self, kind: Kind, harm: float) -> tuple[Any, dict[str, Any]]:
        """Metadata without a name, and the fields beside it."""
        return draw(META, self._random, harm), kind.body.valid(self._random, harm)

    def is_json(self, text: bytes) -> bool:
        """Whether a server can keep this."""
        return _is_json(text)

    def _next(self) -> Event:
        random = self._random
        kind = random.choices(KINDS, self._weights)[0]
        choice = random.random()
        if choice < self.lines:
            return Event(kind.name, "", "LINE", _line(random), plain=False)
        if choice < self.lines * 1.5:
            return Event(kind.name, "", "EXPIRED", b"")
        mine = [guest for guest in self._guests if guest[0] == kind.name]
        if mine and choice < 0.25:
            return self._go(random.choice(mine))
        key = _key(kind, random)
        return self._come(kind, key)

    def _go(self, guest: tuple[str, str]) -> Event:
        known = self._guests.pop(guest)
        return Event(guest[0], guest[1], "DELETED", known.text, known.plain)

    def _come(self, kind: Kind, key: str) -> Event:
        random = self._random
        harm = random.choice(_HARMS) if self._harm is None else self._harm
        known = self._guests.get((kind.name, key))
        again = known is not None and random.random() > 0.02
        self._number += 1
        uid = (
            known.uid
            if known is not None and again
            else f"g{self._number}-{random.randrange(2**32)}"
        )
        namespace, _, name = key.rpartition("/")
        metadata, value = self.drawn(kind, harm)
        plain = isinstance(metadata, dict)
        if isinstance(metadata, dict):
            own = {
                "name": name,
                "uid": uid,
                "resourceVersion": f"{random.randrange(10**6)}{self._number}",
            }
            if namespace:
                own["namespace"] = namespace
            else:
                metadata = {name: each for name, each in metadata.items() if name != "namespace"}
            if harm and random.random() < harm:
                plain = False
                own[random.choice(list(own))] = junk(random)
            metadata = {**metadata, **own}
        value = {"metadata": metadata, **value}
        text = encode(value)
        if b"\n" in text:  # a server writes none inside an object
            text = text.replace(b"\n", b" ")
        if len(text) > LARGEST_OBJECT:
            return self._come(kind, key)
        type_ = "MODIFIED" if again else "ADDED"
        if not self.is_json(text):  # nothing that a server can keep
            return Event(
                kind.name,
                "",
                "LINE",
                b'{"type":"%b","object":%b}\n' % (type_.encode(), text),
                plain=False,
            )
        self._guests[kind.name, key] = _Guest(uid, text, plain)
        return Event(kind.name, key, type_, text, plain)


def _is_json(text: bytes) -> bool:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(12_000)
    try:
        msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return False
    finally:
        sys.setrecursionlimit(limit)
    return True


def _key(kind: Kind, random: Random) -> str:
    name = random.choice(kind.names)
    if not kind.namespaced:
        return name
    return f"{random.choice(NAMESPACES)}/{name}"


_LINES: Sequence[bytes] = (
    b"{}", b"null", b"[]", b"", b"\0", b"\xff\xfe", b"x" * 1000, b'{"type":"ADDED"}', b'{"type":"ADDED","object":null}', b'{"type":"ADDED","object":{}}',
    b'{"type":"MODIFIED","object":{"metadata":null}}', b'{"type":"DELETED","object":{}}', b'{"type":"DELETED","object":{"metadata":{"name":"nobody","uid":"x"}}}',
    b'{"type":"BOOKMARK","object":{}}', b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"5"}}}', b'{"type":"BOOKMARK","object":null}',
    b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":7}}}', b'{"type":"ERROR","object":{}}', b'{"type":"ERROR","object":{"code":500,"message":"x"}}',
    b'{"type":"ERROR","object":null}', b'{"type":"ERROR","object":{"code":"x"}}', b'{"type":"ODD","object":{"metadata":{"name":"x","uid":"u"}}}',
    b'{"type":5,"object":{"metadata":{"name":"x"}}}', b'{"type":"ADDED","object":{"metadata":{"name":"cut off","ui', b'{"object":{"metadata":{"name":"x","uid":"u"}},"type":"DELETED"}',
    b'{"type":"ADDED","object":{"metadata":{"name":"twice"}},"object":{"metadata":{"name":"x"}}}', b'{"type":"ADDED","object":' + b"[" * 20_000,
    b'{"type":"ADDED","object":{"a":' + b'{"a":' * 9_990 + b"1" + b"}" * 9_990 + b"}}", b'{"type":"ADDED","object":{}}{"type":"ADDED","object":{}}',
    b'{"type":"ADDED","object":{"metadata":{"name":"\\ud800","uid":"\\udfff"}}}', b'{"type":"ADDED","object":{"metadata":{"name":"\xff","uid":"x"}}}',
)  # fmt: skip


def _line(random: Random) -> bytes:
    """A watch line that is nothing of the kind; with its end."""
    line = random.choice(_LINES)
    if random.random() < 0.2:
        line = bytes(random.randrange(256) for _ in range(random.randrange(60))).replace(b"\n", b"")
    return line + b"\n"


def cut_down(events: Sequence[Event], fails: "Any") -> list[Event]:
    """As few of the events as still make ``fails(events)`` true: halves, quarters and so on are left out in turn."""
    left = list(events)
    step = max(1, len(left) // 2)
    while True:
        at = 0
        while at < len(left):
            fewer = left[:at] + left[at + step :]
            if fewer and fails(fewer):
                left = fewer
            else:
                at += step
        if step == 1:
            return left
        step = max(1, step // 2)


# ---------------------------------------------------------------- files


def to_json(events: Sequence[Event], **about: Any) -> bytes:
    """A file for the corpus: ``about`` and the events; text as UTF-8, or in hexadecimal."""
    told = []
    for event in events:
        entry: dict[str, Any] = {"kind": event.kind, "type": event.type}
        if event.key:
            entry["key"] = event.key
        if not event.plain:
            entry["plain"] = False
        told.append(entry | {"text": list(_pieces(event.text))})
    return msgspec.json.format(msgspec.json.encode({**about, "events": told}), indent=1) + b"\n"


def from_json(text: bytes) -> tuple[dict[str, Any], list[Event]]:
    """What a file of the corpus tells, and its events."""
    about = msgspec.json.decode(text)
    events = [
        Event(
            entry["kind"],
            entry.get("key", ""),
            entry["type"],
            b"".join(map(_bytes, entry["text"])),
            entry.get("plain", True),
        )
        for entry in about.pop("events")
    ]
    return about, events


#: A few bytes repeated so often that it is worth saying so.
_RUN = re.compile(rb"(.{1,12}?)\1{40,}", re.DOTALL)


def _pieces(text: bytes) -> Iterator[Any]:
    """The text in pieces: strings, {hex} for what is not UTF-8, {repeat, times} for runs of the same few bytes."""
    start = 0
    for run in _RUN.finditer(text):
        unit = _readable(run[1])
        if unit is not None:
            if start < run.start():
                yield _piece(text[start : run.start()])
            yield {"repeat": unit, "times": len(run[0]) // len(run[1])}
            start = run.end()
    if start < len(text):
        yield _piece(text[start:])


def _piece(text: bytes) -> Any:
    told = _readable(text)
    return {"hex": text.hex()} if told is None else told


def _readable(text: bytes) -> str | None:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return None


def _bytes(piece: Any) -> bytes:
    if isinstance(piece, str):
        return piece.encode()
    return (
        bytes.fromhex(piece["hex"]) if "hex" in piece else piece["repeat"].encode() * piece["times"]
    )
