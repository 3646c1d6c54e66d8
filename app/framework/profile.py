"""The plugins of one profile: which instances run at which extension point, in which order, and what their scores weigh."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from app.framework.interface import (
    CycleState,
    Effects,
    NodeLocal,
    Plugin,
    Verdicts,
    acts_at,
    needs_of,
    reject,
)
from app.model.pod import Pod
from app.model.status import Code, SchedulingError, Status
from app.state.columns.resources import Int64
from app.state.view import View


class ProfilePlugins(msgspec.Struct, frozen=True):
    """The plugin instances of a profile by extension point (configuration names), and the weights of Score plugins by name."""

    by_point: Mapping[str, Sequence[Plugin]]
    weights: Mapping[str, int]

    def at(self, point: str) -> Sequence[Any]:
        """The plugins of a point, in running order; none for a point that is not given."""
        return self.by_point.get(point, ())


def resolve_plugins(
    points: Mapping[str, Sequence[str]], plugins: Mapping[str, Plugin]
) -> dict[str, list[Any]]:
    """The plugins of each point in order, from the names there (``points``); those that are only idle at a point are left out."""
    return {
        point: [one for name in names for one in _at(point, plugins[name], points)]
        for point, names in points.items()
    }


def _at(
    point: str, plugin: Plugin, points: Mapping[str, Sequence[str]]
) -> "Iterator[Plugin | UnpreparedPlugin]":
    """The plugin, its replacement, or None."""
    need = needs_of(plugin).get(point)
    if need is not None and plugin.NAME not in points.get(need.point, ()):
        yield UnpreparedPlugin(plugin.NAME, need.error)
    elif acts_at(plugin, point):
        yield plugin


class UnpreparedPlugin(NodeLocal):
    """Meets an error wherever it is asked; ``error`` is how kube-scheduler's plugin puts it."""

    def __init__(self, name: str, error: str) -> None:
        self.NAME: Final = name
        self._error: Final = error

    def filter(self, _state: CycleState, _pod: Pod, view: View) -> Verdicts | None:
        """An error on every row."""
        return reject(np.ones(view.n, bool), Code.Error, self._error)

    def score(self, _state: CycleState, _pod: Pod, _view: View) -> Int64 | None:
        """Raises SchedulingError."""
        said = f'plugin "{self.NAME}" failed with: {self._error}'
        raise SchedulingError(f"running Score plugins: {said}")

    def reserve(self, _state: CycleState, _pod: Pod, _node_name: str) -> Status:
        """An error."""
        return Status(Code.Error, (self._error,))

    def unreserve(self, _state: CycleState, _pod: Pod, _node_name: str) -> None:
        """Has nothing to give back."""

    def pre_bind_pre_flight(self, _state: CycleState, _pod: Pod, _node_name: str) -> Status:
        """An error."""
        return Status(Code.Error, (self._error,))

    async def pre_bind(
        self, _state: CycleState, _pod: Pod, _node_name: str, _effects: Effects
    ) -> Status:
        """An error."""
        return Status(Code.Error, (self._error,))
