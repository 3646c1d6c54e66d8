"""Text as Go's standard library reads and writes it: quoted strings and durations.

Used for messages that must equal kube-scheduler's, and for values in the configuration.
"""

import dataclasses
import re
from typing import Final, Self

# ---------------------------------------------------------------- strings

_ESCAPES: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def quote(text: str) -> str:
    r"""The text in double quotes, on one line, as ``strconv.Quote`` and ``%q`` write it.

    >>> quote("a\tb")
    '"a\\tb"'
    """
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# ---------------------------------------------------------------- durations

_UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_SECOND: Final = _UNITS["s"]
_MAX: Final = 2**63 - 1
_TERM: Final = re.compile(r"(?P<whole>[0-9]*)(?P<fraction>\.[0-9]*)?(?P<unit>[^0-9.]*)")


class DurationError(ValueError):
    """Text that is not a Go duration. The message is Go's."""


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A signed duration, exact to the nanosecond. Zero is false."""

    nanoseconds: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads a duration such as ``1h15m30.5s``; only ``0`` needs no unit. Raises DurationError."""
        sign, rest = (-1 if text.startswith("-") else 1), text.removeprefix("-")
        if sign > 0:
            rest = rest.removeprefix("+")
        if rest == "0":
            return cls(0)
        nanoseconds = sign * _sum_of_terms(rest, text)
        if not -_MAX - 1 <= nanoseconds <= _MAX:
            raise DurationError(f"time: invalid duration {quote(text)}")
        return cls(nanoseconds)

    @classmethod
    def of(cls, seconds: float) -> Self:
        """A duration in seconds, rounded to the nanosecond."""
        return cls(round(seconds * _SECOND))

    @property
    def seconds(self) -> float:
        """The length in seconds."""
        return self.nanoseconds / _SECOND

    def __bool__(self) -> bool:
        return self.nanoseconds != 0

    def __str__(self) -> str:
        """Go's notation: ``15s``, ``1h0m0s``, ``1.5ms``; ``0s`` for zero."""
        if not self.nanoseconds:
            return "0s"
        sign = "-" if self.nanoseconds < 0 else ""
        size = abs(self.nanoseconds)
        return sign + (_short(size) if size < _SECOND else _long(size))


def _sum_of_terms(rest: str, text: str) -> int:
    """The nanoseconds of an unsigned duration such as ``1h15m``. ``text`` is for errors."""
    if not rest:
        raise DurationError(f"time: invalid duration {quote(text)}")
    total, position = 0, 0
    while position < len(rest):
        match = _TERM.match(rest, position)
        if match is None or (not match["whole"] and not (match["fraction"] or "")[1:]):
            raise DurationError(f"time: invalid duration {quote(text)}")
        total += _term(match, text)
        position = match.end()
    return total


def _term(match: re.Match[str], text: str) -> int:
    """The nanoseconds of one number with its unit. Fractions of a nanosecond are dropped."""
    name = match["unit"]
    if not name:
        raise DurationError(f"time: missing unit in duration {quote(text)}")
    unit = _UNITS.get(name)
    if unit is None:
        raise DurationError(f"time: unknown unit {quote(name)} in duration {quote(text)}")
    digits = (match["fraction"] or "")[1:]
    scale: int = 10 ** len(digits)
    return int(match["whole"] or "0") * unit + int(digits or "0") * unit // scale


def _short(size: int) -> str:
    """A duration of less than a second: one number, in the largest unit that leaves a whole part."""
    name = "ns" if size < _UNITS["us"] else "µs" if size < _UNITS["ms"] else "ms"
    return _decimal(size, _UNITS[name]) + name


def _long(size: int) -> str:
    """A duration of a second or more: hours, minutes and seconds, without leading zeros."""
    hours, rest = divmod(size, _UNITS["h"])
    minutes, rest = divmod(rest, _UNITS["m"])
    text = _decimal(rest, _SECOND) + "s"
    if size >= _UNITS["m"]:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text


def _decimal(size: int, unit: int) -> str:
    """``size / unit`` exactly, without trailing zeros."""
    whole, rest = divmod(size, unit)
    if not rest:
        return str(whole)
    digits = len(str(unit)) - 1
    return f"{whole}.{str(rest).zfill(digits).rstrip('0')}"
