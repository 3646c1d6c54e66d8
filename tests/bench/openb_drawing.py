"""Draws the courses of tests.bench.openb as SVG: the percent of GPUs allocated over the percent that the pods have
asked for.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 830, 440
_LEFT, _TOP, _RIGHT, _BOTTOM = 52, 34, 590, 392
_FIRST_LOAD, _LAST_LOAD = 80, 130
_LINE: Final = 17
_COLOURS: Final = (
    "#0b6e4f",
    "#1f77b4",
    "#d62728",
    "#9467bd",
    "#e67e00",
    "#17becf",
    "#7f7f7f",
    "#8c564b",
    "#c2185b",
    "#6b8e23",
)


def mean(courses: Iterable[Mapping[int, float]]) -> dict[int, float]:
    """The mean of the courses of several seeds at the loads that all of them have."""
    first, *others = courses
    loads = [load for load in first if all(load in other for other in others)]
    return {
        load: sum(c[load] for c in (first, *others)) / (1 + len(others)) for load in sorted(loads)
    }


def drawn(title: str, courses: Mapping[str, Mapping[int, float]]) -> str:
    """An SVG document with one line for each policy, named beside its end, the best one first."""
    shown = {
        policy: {load: value for load, value in course.items() if _FIRST_LOAD <= load <= _LAST_LOAD}
        for policy, course in courses.items()
    }
    shown = {policy: course for policy, course in shown.items() if course}
    ends = {policy: course[max(course)] for policy, course in shown.items()}
    best_first = sorted(shown, key=lambda policy: -ends[policy])
    lowest = min((min(course.values()) for course in shown.values()), default=0.0)
    bottom = min(int(lowest) // 5 * 5, 95)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="13">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="20" font-size="14">{escape(title)}</text>',
        *_axes(bottom),
    ]
    labels = _spread([_y(ends[policy], bottom) for policy in best_first])
    for colour, policy, label in zip(itertools.cycle(_COLOURS), best_first, labels, strict=False):
        points = " ".join(
            f"{_x(load):.1f},{_y(value, bottom):.1f}"
            for load, value in sorted(shown[policy].items())
        )
        parts.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="1.8" points="{points}"/>'
        )
        text = f"{policy} {ends[policy]:.1f}"
        parts.append(
            f'<text x="{_RIGHT + 8}" y="{label + 4:.1f}" fill="{colour}">{escape(text)}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def _axes(bottom: int) -> list[str]:
    parts = []
    for value in range(bottom, 101, 5):
        y = _y(value, bottom)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value}</text>')
    parts += [
        f'<text x="{_x(load):.1f}" y="{_BOTTOM + 18}" text-anchor="middle">{load}</text>'
        for load in range(_FIRST_LOAD, _LAST_LOAD + 1, 10)
    ]
    middle = (_LEFT + _RIGHT) / 2
    axis = "percent of the GPUs that the pods have asked for; up: percent of the GPUs that is allocated"
    return [*parts, f'<text x="{middle}" y="{_BOTTOM + 38}" text-anchor="middle">{axis}</text>']


def _x(load: float) -> float:
    return _LEFT + (load - _FIRST_LOAD) / (_LAST_LOAD - _FIRST_LOAD) * (_RIGHT - _LEFT)


def _y(value: float, bottom: int) -> float:
    return _BOTTOM - (value - bottom) / (100 - bottom) * (_BOTTOM - _TOP)


def _spread(places: Sequence[float]) -> list[float]:
    """The places, ascending, moved down where two are nearer than a line, and up again where that goes too far."""
    out: list[float] = []
    for place in places:
        out.append(max(place, out[-1] + _LINE) if out else place)
    limit = float(_BOTTOM)
    for number in range(len(out) - 1, -1, -1):
        out[number] = min(out[number], limit)
        limit = out[number] - _LINE
    return out
