"""One JSON value of a Go type, read from chunks in short steps and without ever holding much of it.

Only the containers that the type knows are opened. Where their members end is found by counting brackets outside strings,
with arrays over a window of the text at a time; the members are then decoded some at a time. So a step takes some milliseconds at
most, whatever the text holds, and memory is what is kept of it. What the type does not know is skipped without being checked.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from app.wire import go_json
from app.wire.go_json import GoJSONError, GoType, ListOf, MapOf, StructOf, Where

#: Bytes looked at in one step, and bytes that are decoded Go's way, which takes some 100 ns each, in one step.
WINDOW: Final = 32 * 1024
SLOWLY: Final = 2 * WINDOW
#: Bytes of one member, of all that is kept, and members of one struct: none of extender/v1 has nearly as many.
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


#: What both brackets of a kind have in common once this bit is set.
_BIT: Final = 0x20
#: By byte: by how much it changes the depth.
_STEP: Final = np.zeros(256, np.int8)
_STEP[list(_OPENERS)] = 1
_STEP[list(_CLOSERS.values())] = -1

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]
Ints = np.ndarray[tuple[int], np.dtype[np.int64]]


class _Marks(NamedTuple):
    """The brackets and commas outside strings in a window: where they are, which they are, and the depth behind each."""

    at: Ints
    byte: Bytes
    depth: Ints


class _Members:
    """An array or a map that is open: its members are decoded some at a time."""

    def __init__(self, kind: "ListOf | MapOf", where: Where, opener: int) -> None:
        self._kind: Final = kind
        self._where: Final = where
        self._brackets: Final = bytes((opener,)), bytes((_CLOSERS[opener],))
        self.closer: Final = _CLOSERS[opener]
        self.count = 0
        self.value: Any = [] if isinstance(kind, ListOf) else {}

    def take(self, text: bytes, *, last: bool) -> Any:
        """Decodes members; what was added to the value. Raises GoJSONError."""
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
    """A struct that is open, or what is around the root (``kind`` None): fields come one at a time."""

    def __init__(self, kind: StructOf | None, where: Where) -> None:
        self.kind: Final = kind
        self.where: Final = where
        self.closer: Final = b"}"[0]
        self.count = 0
        self.value: dict[str, Any] = {}
        #: The field whose value is read, None between fields; "" for one that is not known.
        self.field: str | None = None


class Stream:
    """Reads one value. ``feed`` it until it is ``done`` or the text ends, then ``finish`` it."""

    def __init__(self, into: GoType, *, most: int) -> None:
        """``most``: members that an array or a map may have. Beyond that, and for other limits, GoJSONError is raised."""
        self._into: Final = into
        self._most: Final = most
        self._frames: Final[list[_Fields | _Members]] = [_Fields(None, Where())]
        self._in_string = False
        self._depth = 0
        self._kept = 0
        #: What was fed and cannot be told apart yet: half an escape.
        self._carry = b""
        #: The beginning of the member that is being read.
        self._held: list[bytes] = []
        self._held_size = 0
        #: Whether the whole value has been read; what follows does not matter.
        self.done = False
        self._value: Any = None

    def feed(self, chunk: bytes) -> Iterator[None]:
        """Takes in the next chunk; a step each time it is advanced. Raises GoJSONError."""
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
        """The value, as ``GoType.read`` gives it. Raises GoJSONError when the text ended too early."""
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
        """Reads what there is of an array or a map; where its parent goes on, None if the window is used up."""
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
        """Reads up to the next bracket or comma of a struct; where to go on, None if the window is used up."""
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
        """A bracket opens the value of a field."""
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
        """A comma or the struct's end comes after a field."""
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
        """What was held and this."""
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
    """About how many bytes a value takes."""
    if isinstance(value, str):
        return 50 + len(value)
    if isinstance(value, dict):
        return 60 + sum(50 + len(key) + _size(item) for key, item in value.items())
    if isinstance(value, list):
        return 8 * len(value) + sum(map(_size, value))
    return 16
