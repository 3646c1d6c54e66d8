"""Converts plugins of old files: removed names, merged extension points, scoring plugins that became strategies."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from app.settings.base import V1
from app.settings.models import FIELD_OF_POINT
from app.settings.problems import Path
from app.settings.rewrite import ListItem, Rewrite, mappings

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


class _Scorer(NamedTuple):
    """The old plugin that becomes NodeResourcesFit's scoring strategy."""

    name: str | None
    """None when NodeResourcesFit does not score."""
    origin: Path
    """The path in the file that chose it."""


_BY_DEFAULT: Final = _Scorer(_LEAST, ("apiVersion",))


def convert_profile(rewrite: Rewrite, path: Path, profile: dict[str, Any], version: str) -> None:
    """Converts the plugins and pluginConfig of one profile to v1."""
    plugins = profile.get("plugins")
    if isinstance(plugins, dict):
        _merge_unreserve(rewrite, (*path, "plugins"), plugins)
        _drop_gone_plugins(rewrite, (*path, "plugins"), plugins)
    scorer = _convert_score(rewrite, path, profile, version)
    _convert_plugin_config(rewrite, path, profile, scorer)
    _default_to_list(rewrite, path, profile, version)


def _merge_unreserve(rewrite: Rewrite, path: Path, plugins: dict[str, Any]) -> None:
    """Reserve plugins have undone their own work since v1beta1's second release."""
    if not isinstance(plugins.get("unreserve"), dict):
        return
    old = plugins.pop("unreserve")
    rewrite.warn((*path, "unreserve"), "is part of the extension point reserve in v1")
    target = plugins.setdefault("reserve", {})
    if not isinstance(target, dict):
        return
    for kind in ("enabled", "disabled"):
        entries = rewrite.entries(target, (*path, "reserve"), kind)
        listed = {entry.name for entry in entries}
        entries += [
            entry
            for entry in rewrite.entries(old, (*path, "unreserve"), kind)
            if entry.name not in listed
        ]
        rewrite.replace(target, (*path, "reserve"), kind, entries)


def _sets(plugins: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The extension points that the profile mentions, with their sets."""
    for point in FIELD_OF_POINT:
        plugin_set = plugins.get(point)
        if isinstance(plugin_set, dict):
            yield point, plugin_set


def _drop_gone_plugins(rewrite: Rewrite, path: Path, plugins: dict[str, Any]) -> None:
    for point, plugin_set in _sets(plugins):
        for kind in ("enabled", "disabled"):
            kept = []
            for entry in rewrite.entries(plugin_set, (*path, point), kind):
                instead = _GONE.get(entry.name or "")
                if instead is None:
                    kept.append(entry)
                elif kind == "enabled":
                    said = f"the plugin {entry.name} is gone in v1 and does not run: {instead}"
                    rewrite.warn(entry.origin, said)
                else:
                    rewrite.warn(entry.origin, f"the plugin {entry.name} is gone in v1 anyway")
            rewrite.replace(plugin_set, (*path, point), kind, kept)


# ---------------------------------------------------------------- scoring plugins become a strategy


def _convert_score(rewrite: Rewrite, path: Path, profile: dict[str, Any], version: str) -> _Scorer:
    """Replaces the scoring plugins by NodeResourcesFit; returns the one that becomes its strategy.

    In v1beta1 NodeResourcesLeastAllocated was on by default and NodeResourcesFit did not score; later versions did
    not know the old names.
    """
    plugins = profile.get("plugins")
    score = plugins.get("score") if isinstance(plugins, dict) else None
    here = (*path, "plugins", "score")
    if not isinstance(score, dict):
        return _BY_DEFAULT
    enabled = rewrite.entries(score, here, "enabled")
    disabled = rewrite.entries(score, here, "disabled")
    is_off = version == "v1beta1" and bool({"*", _LEAST} & {entry.name for entry in disabled})
    chosen = _choose(rewrite, enabled, default_is_on=version == "v1beta1" and not is_off)
    enabled = [
        _as_fit(rewrite, entry) if entry.name in _STRATEGIES else entry
        for entry in enabled
        if entry.name not in _STRATEGIES or (chosen is not None and entry.name == chosen.name)
    ]
    fit_is_off = is_off and chosen is None
    rewrite.replace(score, here, "enabled", enabled)
    rewrite.replace(score, here, "disabled", list(_still_disabled(rewrite, disabled, fit_is_off)))
    return _Scorer(None, ()) if fit_is_off else chosen or _BY_DEFAULT


def _choose(rewrite: Rewrite, enabled: list[ListItem], *, default_is_on: bool) -> _Scorer | None:
    """The scoring plugin that becomes NodeResourcesFit's strategy: the first one enabled."""
    scoring = [entry for entry in enabled if entry.name in _STRATEGIES]
    if not scoring:
        return None
    first = scoring[0]
    for other in scoring[1:]:
        said = f"NodeResourcesFit has one scoring strategy in v1: {first.name} is enabled too"
        rewrite.refuse(other.origin, f"{said}; keep one of them")
    if default_is_on and first.name != _LEAST:
        said = f"{_LEAST} no longer scores beside {first.name}: a profile has one scoring strategy in v1"
        rewrite.warn(first.origin, said)
    return _Scorer(first.name, first.origin)


def _as_fit(rewrite: Rewrite, entry: ListItem) -> ListItem:
    strategy = _STRATEGIES[str(entry.name)]
    said = f"{entry.name} is NodeResourcesFit with scoringStrategy.type {strategy} in v1"
    rewrite.warn(entry.origin, said)
    return ListItem({**entry.value, "name": _FIT}, entry.origin)


def _still_disabled(
    rewrite: Rewrite, disabled: list[ListItem], fit_is_off: bool
) -> Iterator[ListItem]:
    """Disabling LeastAllocated without a successor means that NodeResourcesFit does not score."""
    for entry in disabled:
        if entry.name not in _STRATEGIES:
            yield entry
        elif entry.name == _LEAST and fit_is_off:
            rewrite.warn(entry.origin, f"{_LEAST} is NodeResourcesFit in v1")
            yield ListItem({**entry.value, "name": _FIT}, entry.origin)
        else:
            rewrite.warn(entry.origin, f"the plugin {entry.name} is gone in v1 anyway")


# ---------------------------------------------------------------- pluginConfig


def _convert_plugin_config(
    rewrite: Rewrite, path: Path, profile: dict[str, Any], scorer: _Scorer
) -> None:
    entries = rewrite.entries(profile, path, "pluginConfig")
    old = next((entry for entry in entries if scorer.name and entry.name == scorer.name), None)
    kept = list(_still_configured(rewrite, entries, scorer.name))
    if scorer.name is not None and (old is not None or scorer is not _BY_DEFAULT):
        kept = _with_strategy(rewrite, (*path, "pluginConfig"), kept, scorer, old)
    rewrite.replace(profile, path, "pluginConfig", kept)
    for _, entry in mappings(profile, "pluginConfig"):
        _modernise_type(entry.get("args"))


def _still_configured(
    rewrite: Rewrite, entries: list[ListItem], strategy: str | None
) -> Iterator[ListItem]:
    for entry in entries:
        if entry.name in _GONE:
            said = f"the plugin {entry.name} is gone in v1: its arguments are ignored"
            rewrite.warn(entry.origin, said)
        elif entry.name not in _STRATEGIES:
            yield entry
        elif entry.name == strategy:
            said = f"the arguments of {entry.name} are NodeResourcesFit's scoringStrategy in v1"
            rewrite.warn(entry.origin, said)
        else:
            said = f"{entry.name} does not score in this profile: its arguments are ignored"
            rewrite.warn(entry.origin, said)


def _with_strategy(
    rewrite: Rewrite, path: Path, entries: list[ListItem], scorer: _Scorer, old: ListItem | None
) -> list[ListItem]:
    """The entries with the old arguments inside NodeResourcesFit's, which is added if needed."""
    index = next((i for i, entry in enumerate(entries) if entry.name == _FIT), len(entries))
    if index == len(entries):
        made = ListItem({"name": _FIT}, scorer.origin, is_made=True)
        entries = [*entries, ListItem({"name": _FIT}, old.origin) if old else made]
    fit = entries[index].value
    args = fit["args"] = fit.get("args") or {}
    if isinstance(args, dict) and "scoringStrategy" not in args:
        target = (*path, index, "args", "scoringStrategy")
        args["scoringStrategy"] = _strategy(rewrite, target, scorer, old)
    return entries


def _strategy(
    rewrite: Rewrite, target: Path, scorer: _Scorer, old: ListItem | None
) -> dict[str, Any]:
    """NodeResourcesFit's strategy from the old plugin's arguments; unknown ones are kept so that they are rejected."""
    made: dict[str, Any] = {"type": _STRATEGIES[scorer.name or _LEAST]}
    if old is None:
        rewrite.causes[target] = scorer.origin
        return made
    rewrite.origins[target] = (*old.origin, "args")
    given = old.value.get("args")
    for name, value in given.items() if isinstance(given, dict) else ():
        if name == "shape" and made["type"] == "RequestedToCapacityRatio":
            made["requestedToCapacityRatio"] = {"shape": value}
            moved = (*target, "requestedToCapacityRatio", "shape")
            rewrite.origins[moved] = (*old.origin, "args", "shape")
        elif name not in {"apiVersion", "kind"}:
            made[name] = value
    return made


def _modernise_type(args: Any) -> None:
    """Arguments may name their own API version, which follows that of the file."""
    if isinstance(args, dict) and str(args.get("apiVersion", "")).startswith(f"{V1}beta"):
        args["apiVersion"] = V1


def _default_to_list(rewrite: Rewrite, path: Path, profile: dict[str, Any], version: str) -> None:
    """Sets ``defaultingType: List``, which constraints implied in v1beta1."""
    for index, entry in mappings(profile, "pluginConfig"):
        args = entry.get("args")
        if (
            version != "v1beta1"
            or entry.get("name") != "PodTopologySpread"
            or not isinstance(args, dict)
        ):
            continue
        if args.get("defaultConstraints") and not args.get("defaultingType"):
            args["defaultingType"] = "List"
            here = (*path, "pluginConfig", index)
            origin = rewrite.origins.get(here, here)
            said = "need defaultingType: List in v1, which is assumed"
            rewrite.warn((*origin, "args", "defaultConstraints"), said)
