"""The most that each figure may be, in bounds.json: ``python -m tests.figures --record`` writes the present figures."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

BOUNDS: Final = Path(__file__).with_name("bounds.json")

#: How many times its bound a number of changes may be: the order of sets, which differs from process to process, counts
#: a little.
_SLACK: Final = 1.01


def read() -> dict[str, int]:
    """Name of a figure -> bound."""
    bounds: dict[str, int] = json.loads(BOUNDS.read_text(encoding="utf-8"))
    return bounds


def record(figures: Mapping[str, int]) -> None:
    """Makes these figures the bounds."""
    BOUNDS.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def grown(figures: Mapping[str, int], bounds: Mapping[str, int]) -> list[str]:
    """A sentence for each figure above its bound, or without one."""
    return [
        f"{name}: {figure} is more than the {bounds.get(name, 'missing bound')} of {BOUNDS.name}. "
        "Make it smaller; if the growth is worth it, run python -m tests.figures --record"
        for name, figure in figures.items()
        if name not in bounds or figure > bounds[name] * (_SLACK if "changes" in name else 1)
    ]
