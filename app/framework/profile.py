"""The plugins of one profile by extension point, in running order, and the weights of their scores.

A profile may disable a plugin at preFilter or preScore alone. If kube-scheduler's plugin of that name needs this step
later, an _UnpreparedPlugin takes its place, which fails with the same error (docs/spec/framework.md#cycle-state)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from app.framework.handle import Effects
from app.framework.interface import AnyPlugin, CycleState, NodeLocal, Plugin, Verdicts, reject
from app.framework.optional import (
    AcceptsAll,
    ByTraits,
    ColumnScore,
    IgnoresOtherPods,
    OnlyNarrows,
    UndecidedOnly,
    ZeroNormalized,
)
from app.framework.plugin_class import acts_at, has, method_of, needs_of
from app.model.pod import Pod, PodTemplate
from app.model.status import Code, SchedulingError, Status
from app.state.columns.arrays import Int64
from app.state.view import View


class ProfilePlugins(msgspec.Struct, frozen=True):
    """The plugin instances by extension point (configuration names), and the weights of Score and PlacementScore
    plugins."""

    by_point: Mapping[str, Sequence[Any]]
    weights: Mapping[str, int]
    placement_weights: Mapping[str, int] = {}

    def at(self, point: str) -> Sequence[AnyPlugin]:
        """The plugins of an extension point, in running order."""
        plugins: Sequence[AnyPlugin] = self.by_point.get(point, ())
        return plugins


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
) -> "Iterator[Plugin | _UnpreparedPlugin]":
    """The plugin, its replacement, or nothing."""
    need = needs_of(plugin).get(point)
    if need is not None and plugin.NAME not in points.get(need.point, ()):
        yield _UnpreparedPlugin(plugin.NAME, need.error)
    elif acts_at(plugin, point):
        yield plugin


class Scorer(msgspec.Struct, frozen=True):
    """A Score plugin of a profile, and what it offers."""

    plugin: AnyPlugin
    weight: int
    #: The plugin again if the profile runs its PreScore.
    pre_score: AnyPlugin | None
    normalizes: bool
    #: The weighted score of every node if all raw scores are 0; None if ``normalize`` has to compute it.
    zero: int | None
    column: ColumnScore | None
    by_traits: ByTraits | None
    concerns: Callable[[PodTemplate], bool] | None

    def applies_to(self, template: PodTemplate) -> bool:
        """Whether the plugin is called for pods of a template."""
        return self.concerns is None or self.concerns(template)


class FilterHooks(msgspec.Struct, frozen=True):
    """What a Filter plugin offers."""

    undecided_only: bool
    accepts_all: AcceptsAll | None
    only_narrows: OnlyNarrows | None
    by_traits: ByTraits | None


def scorers_of(plugins: ProfilePlugins) -> list[Scorer]:
    """The Score plugins of a profile, in running order."""
    prepared = {plugin.NAME: plugin for plugin in plugins.at("preScore")}
    return [
        _scorer(plugin, plugins.weights.get(plugin.NAME, 1) or 1, prepared.get(plugin.NAME))
        for plugin in plugins.at("score")
    ]


def _scorer(plugin: AnyPlugin, weight: int, pre_score: AnyPlugin | None) -> Scorer:
    return Scorer(
        plugin,
        weight,
        pre_score,
        has(plugin, "normalize"),
        weight * plugin.ZERO_NORMALIZED if isinstance(plugin, ZeroNormalized) else None,
        plugin if isinstance(plugin, ColumnScore) else None,
        plugin if isinstance(plugin, ByTraits) else None,
        method_of(plugin, "concerns"),
    )


def hooks_of(plugin: AnyPlugin) -> FilterHooks:
    """What a Filter plugin offers."""
    return FilterHooks(
        isinstance(plugin, UndecidedOnly),
        plugin if isinstance(plugin, AcceptsAll) else None,
        plugin if isinstance(plugin, OnlyNarrows) else None,
        plugin if isinstance(plugin, ByTraits) else None,
    )


class _UnpreparedPlugin(NodeLocal, IgnoresOtherPods):
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
