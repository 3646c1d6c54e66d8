"""Converts plugins of old files: removed names, merged extension points, scoring plugins that became strategies."""

import itertools
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from app.settings.base import V1
from app.settings.fieldtext import invalid
from app.settings.models import FIELD_OF_POINT
from app.settings.problems import Path
from app.settings.rewrite import REMOVED, Rewrite, append, mappings

_VOLUME_LIMITS: Final = "volumes of this kind are CSI volumes now, which NodeVolumeLimits counts"
_GONE: Final[Mapping[str, str]] = {
    "NodeLabel": "use NodeAffinity's addedAffinity, or node affinity in the pods",
    "ServiceAffinity": "use pod affinity in the pods",
    "NodePreferAvoidPods": "use taints with the effect PreferNoSchedule",
    "SelectorSpread": "PodTopologySpread spreads by default",
    "AzureDiskLimits": _VOLUME_LIMITS,
    "CinderLimits": _VOLUME_LIMITS,
    "EBSLimits": _VOLUME_LIMITS,
    "GCEPDLimits": _VOLUME_LIMITS,
}
"""Plugin that v1 does not have -> its replacement."""

_LEAST: Final = "NodeResourcesLeastAllocated"
_STRATEGIES: Final[Mapping[str, str]] = {
    _LEAST: "LeastAllocated",
    "NodeResourcesMostAllocated": "MostAllocated",
    "RequestedToCapacityRatio": "RequestedToCapacityRatio",
}
"""Score plugin of v1beta1 -> type of NodeResourcesFit's scoring strategy in v1."""
_FIT: Final = "NodeResourcesFit"
_KINDS: Final = ("enabled", "disabled")


class _Scorer(msgspec.Struct, frozen=True):
    """The old plugin that becomes NodeResourcesFit's scoring strategy."""

    name: str | None
    """None when NodeResourcesFit does not score."""
    origin: Path
    """The path in the file that chose it."""


_BY_DEFAULT: Final = _Scorer(_LEAST, ("apiVersion",))


def convert_profile(rewrite: Rewrite, profile: dict[str, Any], version: str) -> None:
    """Converts the plugins and pluginConfig of one profile to v1."""
    plugins = profile.get("plugins")
    if not isinstance(plugins, dict):
        plugins = {}
    _merge_unreserve(rewrite, plugins)
    _drop_gone_plugins(rewrite, plugins)
    scorer = _convert_score(rewrite, plugins.get("score"), version)
    _convert_plugin_config(rewrite, profile, scorer)
    if version == "v1beta1":
        _default_to_list(rewrite, profile)


def _name_of(entry: Any) -> str:
    """The ``name`` of an entry; empty if it is not a mapping with a text there."""
    name = entry.get("name") if isinstance(entry, dict) else None
    return name if isinstance(name, str) else ""


def _merge_unreserve(rewrite: Rewrite, plugins: dict[str, Any]) -> None:
    """Reserve plugins have undone their own work since v1beta1's second release."""
    if not isinstance(plugins.get("unreserve"), dict):
        return
    old = plugins.pop("unreserve")
    rewrite.warn(rewrite.path(old), "is part of the extension point reserve in v1")
    target = plugins.setdefault("reserve", {})
    if not isinstance(target, dict):
        return
    for kind in _KINDS:
        listed = {_name_of(entry) for _, entry in mappings(target, kind)}
        entries = old.get(kind)
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            if not isinstance(entry, dict):
                where = (*rewrite.path(old), kind, index)
                rewrite.mistakes.append(invalid(where, entry, "must be a mapping"))
            elif _name_of(entry) not in listed:
                append(target, kind, entry)


def _drop_gone_plugins(rewrite: Rewrite, plugins: Mapping[str, Any]) -> None:
    for point, kind in itertools.product(FIELD_OF_POINT, _KINDS):
        for index, entry in mappings(plugins.get(point), kind):
            name = _name_of(entry)
            if name not in _GONE:
                continue
            said = f"the plugin {name} is gone in v1 anyway"
            if kind == "enabled":
                said = f"the plugin {name} is gone in v1 and does not run: {_GONE[name]}"
            rewrite.warn(rewrite.path(entry), said)
            plugins[point][kind][index] = REMOVED


# ---------------------------------------------------------------- scoring plugins become a strategy


def _convert_score(rewrite: Rewrite, score: Any, version: str) -> _Scorer:
    """Replaces the scoring plugins by NodeResourcesFit; returns the one that becomes its strategy.

    In v1beta1 NodeResourcesLeastAllocated was on by default and NodeResourcesFit did not score; later versions did
    not know the old names.
    """
    if not isinstance(score, dict):
        return _BY_DEFAULT
    disabled = {_name_of(entry) for _, entry in mappings(score, "disabled")}
    is_off = version == "v1beta1" and bool({"*", _LEAST} & disabled)
    chosen = _choose(rewrite, score, default_is_on=version == "v1beta1" and not is_off)
    for index, entry in mappings(score, "enabled"):
        name = _name_of(entry)
        if name in _STRATEGIES and chosen is not None and name == chosen.name:
            said = f"{name} is {_FIT} with scoringStrategy.type {_STRATEGIES[name]} in v1"
            rewrite.warn(rewrite.path(entry), said)
            entry["name"] = _FIT
        elif name in _STRATEGIES:
            score["enabled"][index] = REMOVED
    fit_is_off = is_off and chosen is None
    for index, entry in mappings(score, "disabled"):
        name = _name_of(entry)
        if name == _LEAST and fit_is_off:  # without a successor, NodeResourcesFit does not score
            rewrite.warn(rewrite.path(entry), f"{_LEAST} is {_FIT} in v1")
            entry["name"] = _FIT
        elif name in _STRATEGIES:
            rewrite.warn(rewrite.path(entry), f"the plugin {name} is gone in v1 anyway")
            score["disabled"][index] = REMOVED
    return _Scorer(None, ()) if fit_is_off else chosen or _BY_DEFAULT


def _choose(rewrite: Rewrite, score: dict[str, Any], *, default_is_on: bool) -> _Scorer | None:
    """The scoring plugin that becomes NodeResourcesFit's strategy: the first one enabled."""
    scoring = [
        _Scorer(name, rewrite.path(entry))
        for _, entry in mappings(score, "enabled")
        if (name := _name_of(entry)) in _STRATEGIES
    ]
    if not scoring:
        return None
    first = scoring[0]
    for other in scoring[1:]:
        said = f"NodeResourcesFit has one scoring strategy in v1: {first.name} is enabled too"
        rewrite.refuse(other.origin, f"{said}; keep one of them")
    if default_is_on and first.name != _LEAST:
        said = f"{_LEAST} no longer scores beside {first.name}: a profile has one scoring strategy in v1"
        rewrite.warn(first.origin, said)
    return first


# ---------------------------------------------------------------- pluginConfig


def _convert_plugin_config(rewrite: Rewrite, profile: dict[str, Any], scorer: _Scorer) -> None:
    old = None
    for index, entry in mappings(profile, "pluginConfig"):
        name = _name_of(entry)
        if name in _GONE:
            said = f"the plugin {name} is gone in v1: its arguments are ignored"
        elif name not in _STRATEGIES:
            _modernise_type(entry.get("args"))
            continue
        elif name == scorer.name:
            old = old or entry
            said = f"the arguments of {name} are {_FIT}'s scoringStrategy in v1"
        else:
            said = f"{name} does not score in this profile: its arguments are ignored"
        rewrite.warn(rewrite.path(entry), said)
        profile["pluginConfig"][index] = REMOVED
    if scorer.name is not None and (old is not None or scorer is not _BY_DEFAULT):
        _set_strategy(rewrite, profile, scorer, old)


def _set_strategy(
    rewrite: Rewrite, profile: dict[str, Any], scorer: _Scorer, old: dict[str, Any] | None
) -> None:
    """Puts the old arguments into NodeResourcesFit's, which are added if needed."""
    entries = (entry for _, entry in mappings(profile, "pluginConfig"))
    fit = next((entry for entry in entries if _name_of(entry) == _FIT), None)
    if fit is None:
        fit = {"name": _FIT}
        if old is None:
            rewrite.made(fit, scorer.origin)
        else:
            rewrite.moved(fit, rewrite.path(old))
        append(profile, "pluginConfig", fit)
    args = fit["args"] = fit.get("args") or {}
    if isinstance(args, dict) and "scoringStrategy" not in args:
        args["scoringStrategy"] = _strategy(rewrite, scorer, old)


def _strategy(rewrite: Rewrite, scorer: _Scorer, old: dict[str, Any] | None) -> dict[str, Any]:
    """NodeResourcesFit's strategy from the old plugin's arguments; unknown ones are kept so that they are rejected."""
    made: dict[str, Any] = {"type": _STRATEGIES[scorer.name or _LEAST]}
    if old is None:
        return rewrite.made(made, scorer.origin)
    place = (*rewrite.path(old), "args")
    given = old.get("args")
    for name, value in given.items() if isinstance(given, dict) else ():
        if name == "shape" and made["type"] == "RequestedToCapacityRatio":
            made["requestedToCapacityRatio"] = rewrite.moved({"shape": value}, place)
        elif name not in {"apiVersion", "kind"}:
            made[name] = value
    return rewrite.moved(made, place)


def _modernise_type(args: Any) -> None:
    """Arguments may name their own API version, which follows that of the file."""
    if isinstance(args, dict) and str(args.get("apiVersion", "")).startswith(f"{V1}beta"):
        args["apiVersion"] = V1


def _default_to_list(rewrite: Rewrite, profile: dict[str, Any]) -> None:
    """Sets ``defaultingType: List``, which constraints implied in v1beta1."""
    for _, entry in mappings(profile, "pluginConfig"):
        args = entry.get("args")
        if entry.get("name") != "PodTopologySpread" or not isinstance(args, dict):
            continue
        if args.get("defaultConstraints") and not args.get("defaultingType"):
            args["defaultingType"] = "List"
            said = "need defaultingType: List in v1, which is assumed"
            rewrite.warn((*rewrite.path(entry), "args", "defaultConstraints"), said)
