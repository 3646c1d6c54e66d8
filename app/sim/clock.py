"""The embedded cluster's clock, and ages as kubectl shows them."""

from time import time as wall_clock  # noqa: TID251 - the only real clock of the embedded cluster
from typing import Final

__all__ = ["human_duration", "wall_clock"]

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY


def human_duration(seconds: float) -> str:
    """An age in one or two units, as in kubectl's AGE column (``5m10s``, ``3d4h``)."""
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
