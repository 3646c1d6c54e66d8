"""Decodes one JSON value of a Go type from chunks, in short steps and with little memory.

Only containers that belong to the type are opened. The ends of their members are found by counting brackets outside
strings, with arrays over a window of the text; then the members are decoded in groups. So a step takes a few
milliseconds at most, whatever the text, and memory is needed only for the result. Unknown fields are skipped without
validation.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np

from app.wire import go_json
from app.wire.go_json import GoJSONError, GoType, ListOf, MapOf, StructOf, Where

#: Bytes scanned in one step, and bytes decoded in Go's way in one step (about 100 ns each).
WINDOW: Final = 32 * 1024
SLOWLY: Final = 2 * WINDOW
#: Limits: bytes of one member, bytes of the result, and members of one struct.
MAX_MEMBER: Final = 2 * 1024 * 1024
MAX_KEPT: Final = 16 * 1024 * 1024
MAX_FIELDS: Final = 1000

#: As in Go.
_MAX_DEPTH: Final = 10_000
_QUOTE: Final = ord('"')
_COMMA: Final = ord(",")
_OPENERS: Final = b"{["
_CLOSERS: Final = {b"{"[0]: b"}"[0], b"["[0]: b"]"[0]}
_BLANK: Final = b" \t\r\n"
_KEY: Final = re.compile(rb'[ \t\r\n]*+("(?:[^"\\\x00-\x1f]|\\.)*+")[ \t\r\n]*+:[ \t\r\n]*+')


#: With this bit set, "[" equals "{" and "]" equals "}".
_BIT: Final = 0x20
#: The change of depth by byte.
_STEP: Final = np.zeros(256, np.int8)
_STEP[list(_OPENERS)] = 1
_STEP[list(_CLOSERS.values())] = -1

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]
Ints = np.ndarray[tuple[int], np.dtype[np.int64]]


class _Marks(msgspec.Struct, frozen=True):
    """The brackets and commas outside strings in a window: positions, bytes, and the depth after each."""

    at: Ints
    byte: Bytes
    depth: Ints


class _Members:
    """An open array or map: its members are decoded in groups."""

    def __init__(self, kind: "ListOf | MapOf", where: Where, opener: int) -> None:
        self._kind: Final = kind
        self._where: Final = where
        self._brackets: Final = bytes((opener,)), bytes((_CLOSERS[opener],))
        self.closer: Final = _CLOSERS[opener]
        self.count = 0
        self.value: Any = [] if isinstance(kind, ListOf) else {}

    def take(self, text: bytes, *, last: bool) -> Any:
        """Decodes members; returns what was added. Raises GoJSONError."""
        if not text.strip(_BLANK):
            if last and not self.count:
                return ()
            found = chr(self.closer) if last else ","
            wanted = "value" if isinstance(self._kind, ListOf) else "object key string"
            raise GoJSONError(f"invalid character '{found}' looking for beginning of {wanted}")
        whole = self._brackets[0] + text + self._brackets[1]
        members = None if self._kind.fast is None else self._kind.fast(whole)
        if members is None:
            if len(text) > SLOWLY:
                raise GoJSONError(f"a value of {len(text)} bytes that is not as it should be")
            members = self._kind.read(go_json.first_value(whole), self._where)
        if isinstance(self._kind, ListOf):
            self.value.extend(members)
        else:
            self.value.update(members)
        return members


class _Fields:
    """An open struct, or the level around the root (``kind`` None)."""

    def __init__(self, kind: StructOf | None, where: Where) -> None:
        self.kind: Final = kind
        self.where: Final = where
        self.closer: Final = b"}"[0]
        self.count = 0
        self.value: dict[str, Any] = {}
        #: The field whose value is being read, None between fields; "" for an unknown field.
        self.field: str | None = None


class Stream:
    """Decodes one value: call ``feed`` until ``done`` or the end of the text, then ``finish``."""

    def __init__(self, into: GoType, *, most: int) -> None:
        """``most``: the limit for members of an array or map. Exceeding a limit raises GoJSONError."""
        self._into: Final = into
        self._most: Final = most
        self._frames: Final[list[_Fields | _Members]] = [_Fields(None, Where())]
        self._in_string = False
        self._depth = 0
        self._kept = 0
        #: The end of the last chunk that cannot be interpreted yet: an incomplete escape.
        self._carry = b""
        #: The start of the member that is being read.
        self._held: list[bytes] = []
        self._held_size = 0
        #: Whether the value is complete; further text is ignored.
        self.done = False
        self._value: Any = None

    def feed(self, chunk: bytes) -> Iterator[None]:
        """Decodes the next chunk, one step per iteration. Raises GoJSONError."""
        data = self._carry + chunk if self._carry else chunk
        start = 0
        while start < len(data) and not self.done:
            window = data[start : start + WINDOW]
            if (len(window) - len(window.rstrip(b"\\"))) % 2:
                window = window[:-1]
            if not window:
                break
            start += len(window)
            yield from self._read(window)
            yield
        self._carry = data[start:]

    def finish(self) -> Any:
        """The value, as returned by ``GoType.read``. Raises GoJSONError if the text is incomplete."""
        if self.done:
            return self._value
        if len(self._frames) == 1:
            return go_json.unmarshal(self._text(self._carry), self._into)
        raise GoJSONError("unexpected EOF")

    # ------------------------------------------------------------ one window

    def _read(self, window: bytes) -> Iterator[None]:
        marks = self._marks(window)
        begin = mark = 0
        while not self.done:
            frame = self._frames[-1]
            step = self._members if isinstance(frame, _Members) else self._field
            moved = step(frame, window, marks, begin, mark)  # type: ignore[arg-type]  # the frame's own step
            if moved is None:
                return
            begin, mark = moved
            yield

    def _marks(self, window: bytes) -> _Marks:
        if b"\\" in window:
            window = window.replace(b"\\\\", b"  ").replace(b'\\"', b"  ")
        codes = np.frombuffer(window, np.uint8)
        low = codes | _BIT
        marked = (low == _OPENERS[0]) | (low == _CLOSERS[_OPENERS[0]])
        at = np.flatnonzero(marked | (codes == _QUOTE) | (codes == _COMMA))
        byte = codes[at]
        quotes = byte == _QUOTE
        inside = np.logical_xor.accumulate(quotes) ^ self._in_string
        if len(inside):
            self._in_string = bool(inside[-1])
        outside = ~(quotes | inside)
        at, byte = at[outside], byte[outside]
        depth = np.cumsum(_STEP[byte], dtype=np.int64) + self._depth
        if len(depth):
            self._depth = int(depth[-1])
            if depth.max() > _MAX_DEPTH:
                raise GoJSONError("exceeded max depth")
        return _Marks(at, byte, depth)

    def _members(
        self, frame: _Members, window: bytes, marks: _Marks, begin: int, mark: int
    ) -> tuple[int, int] | None:
        """Reads an array or a map; returns the position after it, None at the end of the window."""
        level = len(self._frames) - 1
        depth = marks.depth[mark:]
        below = np.flatnonzero(depth < level)
        end = int(below[0]) if len(below) else len(depth)
        commas = np.flatnonzero((marks.byte[mark : mark + end] == _COMMA) & (depth[:end] == level))
        if len(commas):
            cut = int(marks.at[mark + commas[-1]])
            self._take(frame, self._text(window[begin:cut]), last=False)
            frame.count += len(commas)
            begin = cut + 1
        if frame.count >= self._most:
            raise GoJSONError(f"the answer has more than {self._most} entries in one list")
        if end == len(depth):
            self._hold(window[begin:])
            return None
        closer = mark + end
        stop = int(marks.at[closer])
        self._take(frame, self._text(window[begin:stop]), last=True)
        self._close(frame, int(marks.byte[closer]))
        return stop + 1, closer + 1

    def _field(
        self, frame: _Fields, window: bytes, marks: _Marks, begin: int, mark: int
    ) -> tuple[int, int] | None:
        """Reads up to the next bracket or comma of a struct; returns the next position, None at the end of the
        window."""
        level = len(self._frames) - 1
        depth, byte = marks.depth[mark:], marks.byte[mark:]
        found = np.flatnonzero((depth <= level) | ((depth == level + 1) & (_STEP[byte] > 0)))
        if not len(found):
            if frame.field != "":
                self._hold(window[begin:])
            return None
        this = mark + int(found[0])
        stop, char = int(marks.at[this]), int(marks.byte[this])
        text = self._text(window[begin:stop])
        if char in _OPENERS:
            self._open(frame, text, char)
        elif char == _COMMA or marks.depth[this] < level:
            self._end_field(frame, text, char)
            if char != _COMMA:
                self._close(frame, char)
        return stop + 1, this + 1

    def _open(self, frame: _Fields, text: bytes, char: int) -> None:
        """Handles a bracket that opens the value of a field."""
        kind, where = self._into, frame.where
        if frame.kind is None:
            _must_be_blank(text, char)
        elif frame.field is not None:
            raise GoJSONError(f"invalid character '{chr(char)}' after object key:value pair")
        else:
            name = frame.kind.field(_key(text, char))
            frame.field = name or ""
            if name is None:
                return
            kind = frame.kind.fields[name]
            where = Where(frame.kind.name, (*frame.where.path, name))
        if char == b"{"[0] and isinstance(kind, StructOf):
            self._frames.append(_Fields(kind, where))
        elif isinstance(kind, MapOf if char == b"{"[0] else ListOf):
            self._frames.append(_Members(kind, where, char))
        else:
            kind.read({} if char == b"{"[0] else [], where)
            raise GoJSONError("invalid JSON")

    def _end_field(self, frame: _Fields, text: bytes, char: int) -> None:
        """Handles a comma or the struct's end after a field."""
        frame.count += 1
        if frame.count > MAX_FIELDS:
            raise GoJSONError(f"the answer has more than {MAX_FIELDS} fields in one object")
        if frame.kind is None:
            raise GoJSONError(
                go_json.syntax_error(text[:SLOWLY] + bytes((char,))) or "invalid JSON"
            )
        if frame.field is not None:
            _must_be_blank(text, char)
        elif text.strip(_BLANK) or char == _COMMA or frame.count > 1:
            if len(text) > SLOWLY:
                raise GoJSONError(f"a value of {len(text)} bytes where a short one belongs")
            if not text.strip(_BLANK):
                raise GoJSONError(
                    f"invalid character '{chr(char)}' looking for beginning of object key string"
                )
            field = frame.kind.read(go_json.first_value(b"{" + text + b"}"), frame.where) or {}
            self._keep(field)
            frame.value.update(field)
        frame.field = None

    def _close(self, frame: "_Fields | _Members", char: int) -> None:
        if char != frame.closer or len(self._frames) == 1:
            raise GoJSONError(f"invalid character '{chr(char)}' after value")
        self._frames.pop()
        parent = self._frames[-1]
        assert isinstance(parent, _Fields)  # noqa: S101 - members are decoded, not opened
        if parent.kind is None:
            self._value = frame.value
            self.done = True
        elif parent.field:
            parent.value[parent.field] = frame.value

    # ------------------------------------------------------------ what is held and kept

    def _take(self, frame: _Members, text: bytes, *, last: bool) -> None:
        self._keep(frame.take(text, last=last))

    def _keep(self, value: Any) -> None:
        self._kept += _size(value)
        if self._kept > MAX_KEPT:
            raise GoJSONError(f"the answer has more than {MAX_KEPT} bytes of names and reasons")

    def _hold(self, text: bytes) -> None:
        self._held.append(text)
        self._held_size += len(text)
        if self._held_size > MAX_MEMBER:
            raise GoJSONError(f"the answer has a value of more than {MAX_MEMBER} bytes")

    def _text(self, text: bytes) -> bytes:
        """The kept text and this."""
        if self._held:
            text = b"".join((*self._held, text))
            self._held.clear()
            self._held_size = 0
        return text


def _key(text: bytes, char: int) -> str:
    match = _KEY.fullmatch(text)
    if match is None:
        said = go_json.syntax_error(b"{" + text[:SLOWLY] + bytes((char,)))
        raise GoJSONError(said or "invalid JSON")
    key = go_json.first_value(match[1])
    return key if isinstance(key, str) else ""


def _must_be_blank(text: bytes, char: int) -> None:
    if text.strip(_BLANK):
        said = go_json.syntax_error(text[:SLOWLY] + bytes((char,)))
        raise GoJSONError(said or "invalid JSON")


def _size(value: Any) -> int:
    """The approximate size of a value in bytes."""
    if isinstance(value, str):
        return 50 + len(value)
    if isinstance(value, dict):
        return 60 + sum(50 + len(key) + _size(item) for key, item in value.items())
    if isinstance(value, list):
        return 8 * len(value) + sum(map(_size, value))
    return 16
