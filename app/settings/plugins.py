"""Resolves the plugins of each extension point, their order and weights.

First the user's sets are merged with the default ones, then multiPoint is expanded to the extension points, both as in
kube-scheduler 1.36 (docs/spec/configuration.md#merging-with-the-defaults). What each plugin implements is an argument.
All mistakes of all profiles are reported together, with the texts of kube-scheduler's start-up errors.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from app.settings.defaults import (
    DEFAULT_MULTI_POINT,
    EXTENSION_POINTS,
    GATED_PLUGINS,
    Capabilities,
)
from app.settings.fieldtext import show
from app.settings.models import FIELD_OF_POINT, KubeSchedulerProfile, Plugin, Plugins, PluginSet
from app.settings.problems import Finding, Path, closest

MAX_NODE_SCORE: Final = 100
MAX_TOTAL_SCORE: Final = 2**63 - 1

NOT_LOADED: Final = (
    "plugins in Go, built into other schedulers, cannot be loaded: take it out, or install one in Python by that name "
    "(docs/plugins.md)"
)
#: Names of third-party plugins have similar words: Coscheduling is not a misspelt SchedulingGates.
_MISSPELT: Final = 0.8


class ResolvedPlugins(msgspec.Struct, frozen=True):
    """The plugins of one profile."""

    points: Mapping[str, tuple[str, ...]]
    """Extension point -> plugin names in the order in which they run; every point is a key."""
    score_weights: Mapping[str, int]
    """Plugin name -> weight, for each name in ``points["score"]``."""
    placement_weights: Mapping[str, int]
    """Plugin name -> weight, for each name in ``points["placementScore"]``."""


class Resolution(msgspec.Struct, frozen=True):
    """The plugins of every profile, in order, or the mistakes."""

    profiles: tuple[ResolvedPlugins, ...]
    findings: tuple[Finding, ...]


# ---------------------------------------------------------------- step A: merging with the defaults


def merge_plugin_set(default: PluginSet, custom: PluginSet) -> PluginSet:
    """The default set with the user's changes.

    A default keeps its place unless it is disabled; the user's entry of the same name (the last one) replaces it
    there. What else the user enables follows in order. ``*`` disables all defaults.
    """
    disabled = {plugin.name for plugin in (*custom.disabled, *default.disabled)}
    last = {plugin.name: index for index, plugin in enumerate(custom.enabled)}
    kept = (
        []
        if "*" in disabled
        else [plugin for plugin in default.enabled if plugin.name not in disabled]
    )
    replaced = {last[plugin.name] for plugin in kept if plugin.name in last}
    return PluginSet(
        enabled=(
            *(custom.enabled[last[p.name]] if p.name in last else p for p in kept),
            *(plugin for index, plugin in enumerate(custom.enabled) if index not in replaced),
        ),
        disabled=tuple(Plugin(name=p.name) for p in (*custom.disabled, *default.disabled)),
    )


def default_plugins(features: Collection[str] = ()) -> PluginSet:
    """The default plugins, which are all in multiPoint, with these feature gates."""
    entries = list(DEFAULT_MULTI_POINT)
    for gate, plugins in GATED_PLUGINS.items():
        entries += plugins if gate in features else ()
    return PluginSet(enabled=tuple(Plugin(name=name, weight=weight) for name, weight in entries))


def merge_plugins(custom: Plugins, features: Collection[str] = ()) -> Plugins:
    """The user's sets merged with the default ones."""
    defaults = default_plugins(features)
    sets = {
        field: merge_plugin_set(
            defaults if point == "multiPoint" else PluginSet(), custom.at(point)
        )
        for point, field in FIELD_OF_POINT.items()
    }
    return Plugins(**sets)


def enabled_names(plugins: Plugins) -> frozenset[str]:
    """Every plugin enabled at some point of merged sets."""
    return frozenset(
        plugin.name for point in FIELD_OF_POINT for plugin in plugins.at(point).enabled
    )


# ---------------------------------------------------------------- step B: the extension points


def resolve(
    profiles: Sequence[KubeSchedulerProfile],
    capabilities: Capabilities,
    features: Collection[str] = (),
) -> Resolution:
    """The plugin lists of every profile, given what each plugin implements and which feature gates are on."""
    findings: list[Finding] = []
    resolved: list[ResolvedPlugins] = []
    for index, profile in enumerate(profiles):
        builder = _Builder(profile, ("profiles", index), capabilities, features)
        resolved.append(builder.build())
        findings += builder.findings
    findings += _different_queue_sorts(profiles, resolved)
    return Resolution(tuple(resolved), tuple(findings))


class _Builder:
    """Builds the lists of one profile and collects mistakes."""

    def __init__(
        self,
        profile: KubeSchedulerProfile,
        path: Path,
        capabilities: Capabilities,
        features: Collection[str],
    ) -> None:
        self.findings: list[Finding] = []
        self._name = profile.scheduler_name
        self._custom = profile.plugins
        self._plugins = merge_plugins(profile.plugins, features)
        self._path = path
        self._capabilities = capabilities
        self._reported: set[str] = set()
        self._missing: set[str] = set()

    def build(self) -> ResolvedPlugins:
        points = {point: self._point(point) for point in EXTENSION_POINTS}
        self._check_counts(points)
        weights = self._weights("score")
        placement_weights = self._weights("placementScore")
        return ResolvedPlugins(
            points,
            {name: weights.get(name, 1) for name in points["score"]},
            {name: placement_weights.get(name, 1) for name in points["placementScore"]},
        )

    def _weights(self, point: str) -> Mapping[str, int]:
        weights = score_weights(self._plugins, self._capabilities, point)
        if overflows(weights.values()):
            self._overflow(weights, point)
        return weights

    def _point(self, point: str) -> tuple[str, ...]:
        explicit = self._explicit(point)
        if any(plugin.name == "*" for plugin in self._plugins.at(point).disabled):
            return explicit
        overridden, expanded = self._expansion(point, explicit)
        return (
            *(name for name in explicit if name in overridden),
            *expanded,
            *(name for name in explicit if name not in overridden),
        )

    def _explicit(self, point: str) -> tuple[str, ...]:
        """The plugins listed at the point itself, without those that cannot be there."""
        kind, names = _kind(point), []
        for index, plugin in enumerate(self._plugins.at(point).enabled):
            path = (*self._path, "plugins", point, "enabled", index)
            if plugin.name not in self._capabilities:
                self._fail(path, self._does_not_exist(kind, plugin.name))
            elif point not in self._capabilities[plugin.name]:
                self._fail(path, f"plugin {show(plugin.name)} does not extend {kind} plugin")
            elif plugin.name in names:
                self._fail(path, f"plugin {show(plugin.name)} already registered as {show(kind)}")
            else:
                names.append(plugin.name)
        return tuple(names)

    def _expansion(self, point: str, explicit: tuple[str, ...]) -> tuple[set[str], list[str]]:
        """Which explicit plugins override multiPoint, and which plugins multiPoint adds."""
        disabled = {plugin.name for plugin in self._plugins.at(point).disabled}
        overridden: set[str] = set()
        expanded: list[str] = []
        for plugin in self._plugins.multi_point.enabled:
            name = plugin.name
            if name not in self._capabilities:
                self._fail_once(name, self._does_not_exist(_kind(point), name))
            elif point not in self._capabilities[name] or name in disabled:
                continue
            elif name in explicit:
                overridden.add(name)
            elif name in expanded:
                kind = show(_kind(point))
                self._fail_once(name, f"plugin {show(name)} already registered as {kind}")
            else:
                expanded.append(name)
        return overridden, expanded

    def _does_not_exist(self, kind: str, name: str) -> str:
        """kube-scheduler's text; for the first mistake of a plugin in a profile with advice."""
        said = f"{kind} {show(name)} does not exist"
        if name in self._missing:
            return said
        self._missing.add(name)
        hint = closest(name, self._capabilities, similarity=_MISSPELT)
        return f"{said}; did you mean {show(hint)}?" if hint else f"{said}; {NOT_LOADED}"

    def _overflow(self, weights: Mapping[str, int], score: str) -> None:
        """Report the weight that leaves the least room: a negative one, else the largest."""
        name = min(weights, key=lambda each: (weights[each] >= 0, -weights[each]))
        said = f"total score of Score plugins could overflow: {name} has the weight {weights[name]}"
        path: Path = (*self._path, "plugins")
        for point in (score, "multiPoint"):
            entries = self._custom.at(point).enabled
            listed = [i for i, entry in enumerate(entries) if entry.name == name]
            if listed:
                path = (*path, point, "enabled", listed[-1], "weight")
                break
        kind = "score" if score == "score" else "placement score"
        self._fail(path, f"{kind} plugins: {said}")

    def _check_counts(self, points: Mapping[str, Sequence[str]]) -> None:
        name, path = show(self._name), (*self._path, "plugins")
        sorters, generators = len(points["queueSort"]), len(points["placementGenerate"])
        sorts = {plugin.name for plugin in self._plugins.queue_sort.enabled}
        if sorters != 1 and not sorts & self._missing:  # else the missing plugin is reported
            said = "only one queue sort plugin required for profile with scheduler name"
            self._fail((*path, "queueSort"), f"{said} {name}, but got {sorters}")
        if not points["bind"]:
            said = "at least one bind plugin is needed for profile with scheduler name"
            self._fail((*path, "bind"), f"{said} {name}")
        if generators > 1:
            said = (
                "at most one placement generate plugin is allowed for profile with scheduler name"
            )
            self._fail((*path, "placementGenerate"), f"{said} {name}, but got {generators}")

    def _fail(self, path: Path, message: str) -> None:
        wrapped = (
            f"initializing profiles: creating profile for scheduler name {self._name}: {message}"
        )
        self.findings.append(Finding(path, wrapped))

    def _fail_once(self, name: str, message: str) -> None:
        """Report a plugin of multiPoint at the first extension point where it fails, where the user listed it last."""
        if name in self._reported:
            return
        self._reported.add(name)
        listed = [i for i, p in enumerate(self._custom.multi_point.enabled) if p.name == name]
        path = (*self._path, "plugins", "multiPoint", "enabled")
        self._fail((*path, listed[-1]) if listed else path, message)


def score_weights(
    merged: Plugins, capabilities: Capabilities, point: str = "score"
) -> dict[str, int]:
    """The weight of every plugin enabled at ``point``, whose own entry wins over multiPoint's; 0 counts as 1."""
    weights: dict[str, int] = {}
    for plugin in (*merged.at(point).enabled, *merged.multi_point.enabled):
        if point in capabilities.get(plugin.name, ()):
            weights.setdefault(plugin.name, plugin.weight or 1)
    return weights


def overflows(weights: Iterable[int]) -> bool:
    """Whether the best possible total score leaves the range that kube-scheduler can add up.

    It works out how much room each weight, in order, has left in 64 bits: a total below zero leaves none for the next
    one.
    """
    total = 0
    for weight in weights:
        if total < 0 or total + weight * MAX_NODE_SCORE > MAX_TOTAL_SCORE:
            return True
        total += weight * MAX_NODE_SCORE
    return False


def _kind(point: str) -> str:
    """kube-scheduler's name for a plugin of the point: ``preFilter`` -> ``PreFilterPlugin``."""
    return f"{point[0].upper()}{point[1:]}Plugin"


def _different_queue_sorts(
    profiles: Sequence[KubeSchedulerProfile], resolved: Sequence[ResolvedPlugins]
) -> Iterator[Finding]:
    """All profiles share one queue, so they must sort it alike."""
    first: str | None = None
    first_args: object = None
    for index, (profile, plugins) in enumerate(zip(profiles, resolved, strict=True)):
        if len(plugins.points["queueSort"]) != 1:
            continue
        name = plugins.points["queueSort"][0]
        args = profile.args.get(name)
        path = ("profiles", index, "plugins", "queueSort")
        said = f"for profile {show(profile.scheduler_name)}"
        if first is None:
            first, first_args = name, args
        elif name != first:
            message = f"different queue sort plugins {said}: {show(name)}, first: {show(first)}"
            yield Finding(path, f"initializing profiles: {message}")
        elif args != first_args:
            yield Finding(path, f"initializing profiles: different queue sort plugin args {said}")
