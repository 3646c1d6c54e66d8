"""Durations in Go's notation, exact to the nanosecond (spec: Go package time, ParseDuration and Duration.String)."""

import dataclasses
import re
from typing import Final, Self

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
    """The text is no Go duration; the message is Go's."""


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A signed length of time; false when zero."""

    nanoseconds: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``1h15m30.5s``; ``0`` needs no unit. Raises ``DurationError``."""
        sign, rest = (-1 if text.startswith("-") else 1), text.removeprefix("-")
        if sign > 0:
            rest = rest.removeprefix("+")
        if rest == "0":
            return cls(0)
        nanoseconds = sign * _sum_of_terms(rest, text)
        if not -_MAX - 1 <= nanoseconds <= _MAX:
            raise DurationError(f"time: invalid duration {_quote(text)}")
        return cls(nanoseconds)

    @classmethod
    def of(cls, seconds: float) -> Self:
        """The duration of that many seconds, rounded to the nanosecond."""
        return cls(round(seconds * _SECOND))

    @property
    def seconds(self) -> float:
        """The length in seconds."""
        return self.nanoseconds / _SECOND

    def __bool__(self) -> bool:
        return self.nanoseconds != 0

    def __str__(self) -> str:
        """Go's own notation: ``15s``, ``1h0m0s``, ``1.5ms``; ``0s`` for zero."""
        if not self.nanoseconds:
            return "0s"
        sign = "-" if self.nanoseconds < 0 else ""
        size = abs(self.nanoseconds)
        return sign + (_short(size) if size < _SECOND else _long(size))


def _sum_of_terms(rest: str, text: str) -> int:
    """The nanoseconds of an unsigned sequence of terms such as ``1h15m``."""
    if not rest:
        raise DurationError(f"time: invalid duration {_quote(text)}")
    total, position = 0, 0
    while position < len(rest):
        match = _TERM.match(rest, position)
        if match is None or (not match["whole"] and not (match["fraction"] or "")[1:]):
            raise DurationError(f"time: invalid duration {_quote(text)}")
        total += _term(match, text)
        position = match.end()
    return total


def _term(match: re.Match[str], text: str) -> int:
    """The nanoseconds of one number with its unit; fractions of a nanosecond are cut off."""
    name = match["unit"]
    if not name:
        raise DurationError(f"time: missing unit in duration {_quote(text)}")
    unit = _UNITS.get(name)
    if unit is None:
        raise DurationError(f"time: unknown unit {_quote(name)} in duration {_quote(text)}")
    digits = (match["fraction"] or "")[1:]
    scale: int = 10 ** len(digits)
    return int(match["whole"] or "0") * unit + int(digits or "0") * unit // scale


def _short(size: int) -> str:
    """Less than a second: one number, in the largest unit that leaves a whole part."""
    name = "ns" if size < _UNITS["us"] else "µs" if size < _UNITS["ms"] else "ms"
    return _decimal(size, _UNITS[name]) + name


def _long(size: int) -> str:
    """A second or more: hours, minutes and seconds, without leading zero parts."""
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


def _quote(text: str) -> str:
    """The text in double quotes, as in Go's messages."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
