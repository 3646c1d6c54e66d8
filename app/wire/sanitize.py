"""JSON that Go accepts and msgspec does not, rewritten so that both do.

API servers pass on some values as written: managedFields, the parameters of devices. These may have lone surrogates
(``"\\ud800"``), which are not valid Unicode, and 10,000 levels, which the decoder does not support. Nothing here
recurses; the time is about 10 ns per byte.
"""

import json
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

T = TypeVar("T")

#: Levels of arrays and objects that are kept. The kinds that are decoded have about a dozen, and the decoder follows
#: at least 900.
MAX_DEPTH: Final = 300

#: Fills emptied values. API servers write no blanks in these values, so blanks mark that something was removed.
EMPTIED: Final = b"\r"
#: Bytes that are looked at together.
_BLOCK: Final = 64 * 1024

_Text = npt.NDArray[np.uint8]
_Positions = npt.NDArray[np.intp]
_Mask = npt.NDArray[np.bool_]


def sanitized(body: bytes, max_depth: int = MAX_DEPTH) -> bytes:
    """The document with arrays and objects at ``max_depth`` levels emptied and lone surrogates replaced by U+FFFD.

    The other bytes keep their positions. Invalid JSON stays invalid.
    """
    text = np.frombuffer(body, np.uint8).copy()
    quotes = text == ord('"')
    if b"\\" in body:
        runs = _Backslashes(text)
        at = np.flatnonzero(quotes)
        quotes[at[runs.escape(at)]] = False
        _replace_lone_surrogates(text, runs)
    _empty_deep_containers(text, quotes, max_depth)
    return text.tobytes()


def decode(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw) -> T:
    """Decodes a document, sanitized if necessary. Raises msgspec.DecodeError."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, RecursionError):
        pass
    return decoder.decode(sanitized(bytes(body)))


def encode(value: Any) -> bytes:
    """A value as JSON; in texts with lone surrogates everything beyond ASCII is escaped."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value, str_keys=True)).encode()


def is_emptied(value: bytes) -> bool:
    """Whether ``sanitized`` has emptied anything in this part of a document."""
    return b"[" + EMPTIED in value or b"{" + EMPTIED in value


class _Backslashes:
    """Runs of backslashes: a character after an odd number of them is escaped."""

    def __init__(self, text: _Text) -> None:
        slashes = text == ord("\\")
        firsts = slashes.copy()
        firsts[1:] &= ~slashes[:-1]
        self._slashes: Final = slashes
        self._firsts: Final = np.flatnonzero(firsts)

    def escape(self, at: _Positions) -> _Mask:
        """bool[len(at)]: whether the characters at these positions (ascending, none a backslash) are escaped."""
        escaped: _Mask = (at > 0) & self._slashes[at - 1]
        behind = at[escaped]
        first = self._firsts[np.searchsorted(self._firsts, behind) - 1]
        escaped[escaped] = (behind - first) % 2 == 1
        return escaped


def _replace_lone_surrogates(text: _Text, runs: _Backslashes) -> None:
    letters = np.flatnonzero(text[:-4] == ord("u"))
    letters = letters[text[letters + 1] | 0x20 == ord("d")]
    codes = letters[runs.escape(letters)]
    second = text[codes + 2] | 0x20
    high = codes[(second | 1 == ord("9")) | (second == ord("a")) | (second == ord("b"))]
    low = codes[(second >= ord("c")) & (second <= ord("f"))]
    lone = np.concatenate(
        (
            high[~np.isin(high + 6, low, assume_unique=True)],
            low[~np.isin(low - 6, high, assume_unique=True)],
        )
    )
    for offset, digit in enumerate(b"fffd", start=1):
        text[lone + offset] = digit


def _empty_deep_containers(text: _Text, quotes: _Mask, max_depth: int) -> None:
    """Works block by block, so that the arrays stay in the processor's cache."""
    depth, quoted, deep_before = 0, False, False
    for start in range(0, text.size, _BLOCK):
        block = text[start : start + _BLOCK]
        outside = np.bitwise_xor.accumulate(quotes[start : start + _BLOCK]) == quoted
        quoted = not outside[-1]
        bracket = block | 0x20  # "[" becomes "{", and "]" becomes "}"
        opens = (bracket == ord("{")) & outside
        closes = (bracket == ord("}")) & outside
        steps = opens.view(np.int8) - closes.view(np.int8)
        depths = np.cumsum(steps, dtype=np.int32)
        # A container at the limit stays, with nothing between its brackets.
        deep = depths >= max_depth - depth
        depth += int(depths[-1])
        block[0] = EMPTIED[0] if deep_before and deep[0] else block[0]
        np.copyto(block[1:], np.uint8(EMPTIED[0]), where=deep[:-1] & deep[1:])
        deep_before = bool(deep[-1])
