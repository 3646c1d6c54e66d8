"""Who stands at each extension point of a profile: the plugins, or stand-ins for those whose preparation the profile leaves out.

A profile may disable a plugin at preFilter or preScore alone. Some of kube-scheduler's plugins manage without; others then meet an
error at every later point that would read what they had prepared, and the pod stays pending
(docs/spec/framework.md#cycle-state). No pod may be placed as if such a plugin had had nothing against it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

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
) -> "Iterator[Plugin | Unprepared]":
    """The plugin, its replacement, or None."""
    need = needs_of(plugin).get(point)
    if need is not None and plugin.NAME not in points.get(need.point, ()):
        yield Unprepared(plugin.NAME, need.error)
    elif acts_at(plugin, point):
        yield plugin


class Unprepared(NodeLocal):
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
