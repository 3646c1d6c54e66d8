"""Times as Kubernetes writes them: RFC 3339 in UTC, whole seconds, or microseconds where it says MicroTime."""

import functools
from datetime import UTC, datetime
from time import time as wall_clock  # noqa: TID251 - the only real clock of the embedded cluster
from typing import Final

__all__ = ["human_duration", "parse_time", "rfc3339", "rfc3339_micro", "wall_clock"]

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY


@functools.lru_cache(maxsize=1024)
def _format_second(second: int) -> str:
    return datetime.fromtimestamp(second, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339(seconds: float) -> str:
    """Formats seconds since the epoch as metav1.Time does (``2026-01-31T12:00:00Z``)."""
    return _format_second(int(seconds))


def rfc3339_micro(seconds: float) -> str:
    """Formats seconds since the epoch as metav1.MicroTime does (six decimals)."""
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@functools.lru_cache(maxsize=1024)
def parse_time(text: str) -> float:
    """Reads an RFC 3339 time into seconds since the epoch. Raises ValueError."""
    return datetime.fromisoformat(text).timestamp()


def human_duration(seconds: float) -> str:
    """Shortens an age to its two most telling units, as kubectl's AGE column does (``5m10s``, ``3d4h``)."""
    total = int(seconds)
    if total < -1:
        return "<invalid>"
    total = max(total, 0)
    if total < 2 * _MINUTE:
        return f"{total}s"
    for limit, unit, name, part, part_name in _STEPS:
        if total < limit:
            rest = (total % unit) // part if part else 0
            return f"{total // unit}{name}" + (f"{rest}{part_name}" if rest else "")
    return f"{total // _YEAR}y"


_STEPS: Final = (
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, _MINUTE, "m", 0, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (2 * _DAY, _HOUR, "h", 0, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
    (2 * _YEAR, _DAY, "d", 0, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
)
"""(below this age, unit, its letter, the second unit or 0, its letter), in seconds."""
