"""The plugins of one profile by extension point, in running order, and the weights of their scores.

A profile may disable a plugin at preFilter or preScore alone. If kube-scheduler's plugin of that name needs this step
later, an UnpreparedPlugin takes its place, which fails with the same error (docs/spec/framework.md#cycle-state)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from app.framework.handle import Effects
from app.framework.interface import (
    CycleState,
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
    """The plugin instances by extension point (configuration names), and the weights of Score and PlacementScore plugins."""

    by_point: Mapping[str, Sequence[Plugin]]
    weights: Mapping[str, int]
    placement_weights: Mapping[str, int] = {}

    def at(self, point: str) -> Sequence[Any]:
        """The plugins of an extension point, in running order."""
        return self.by_point.get(point, ())


def resolve_plugins(
    points: Mapping[str, Sequence[str]], plugins: Mapping[str, Plugin]
) -> dict[str, list[Any]]:
    """The plugins of each extension point, without those that are idle there."""
    return {
        point: [one for name in names for one in _at(point, plugins[name], points)]
        for point, names in points.items()
    }


def _at(
    point: str, plugin: Plugin, points: Mapping[str, Sequence[str]]
) -> "Iterator[Plugin | UnpreparedPlugin]":
    """The plugin, its replacement, or nothing."""
    need = needs_of(plugin).get(point)
    if need is not None and plugin.NAME not in points.get(need.point, ()):
        yield UnpreparedPlugin(plugin.NAME, need.error)
    elif acts_at(plugin, point):
        yield plugin


class UnpreparedPlugin(NodeLocal):
    """Fails at every extension point with ``error``, the text of kube-scheduler's plugin."""

    def __init__(self, name: str, error: str) -> None:
        self.NAME: Final = name
        self._error: Final = error

    def filter(self, _state: CycleState, _pod: Pod, view: View) -> Verdicts | None:
        return reject(np.ones(view.n, bool), Code.Error, self._error)

    def score(self, _state: CycleState, _pod: Pod, _view: View) -> Int64 | None:
        said = f'plugin "{self.NAME}" failed with: {self._error}'
        raise SchedulingError(f"running Score plugins: {said}")

    def reserve(self, _state: CycleState, _pod: Pod, _node_name: str) -> Status:
        return Status(Code.Error, (self._error,))

    def unreserve(self, _state: CycleState, _pod: Pod, _node_name: str) -> None:
        """Does nothing."""

    def pre_bind_pre_flight(self, _state: CycleState, _pod: Pod, _node_name: str) -> Status:
        return Status(Code.Error, (self._error,))

    async def pre_bind(
        self, _state: CycleState, _pod: Pod, _node_name: str, _effects: Effects
    ) -> Status:
        return Status(Code.Error, (self._error,))
