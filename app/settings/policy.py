"""Converts a scheduler policy (``kind: Policy``, gone since Kubernetes 1.23) to v1, for ``convert-config``.

Predicates become the plugins that filter, priorities the plugins that score, with the meaning of Kubernetes 1.22: a
list that is given is complete, one that is absent means the defaults of that time. What v1 does not have is named in a
warning.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from app.settings.base import V1
from app.settings.defaults import IN_TREE_CAPABILITIES
from app.settings.fieldtext import invalid, show
from app.settings.legacy import GROUP, OLD_WEIGHTS
from app.settings.models import Extender, ExtenderManagedResource, ExtenderTLSConfig
from app.settings.problems import Path, closest
from app.settings.rewrite import Rewrite, append, mappings

KIND: Final = "Policy"
VERSIONS: Final = ("v1", f"{GROUP}/v1")
"""The API versions that policies were written in."""

_FIT: Final = "NodeResourcesFit"
_MANDATORY: Final = ("NodeUnschedulable", "TaintToleration")
"""Plugins that filter whatever the policy lists."""
_TAINTS: Final = ("TaintToleration",)
_VOLUME_LIMITS: Final = ("NodeVolumeLimits",)
_PREDICATES: Final[Mapping[str, tuple[str, ...]]] = {
    "CheckNodeCondition": _TAINTS,
    "CheckNodeDiskPressure": _TAINTS,
    "CheckNodeMemoryPressure": _TAINTS,
    "CheckNodePIDPressure": _TAINTS,
    "CheckNodeUnschedulable": ("NodeUnschedulable",),
    "CheckVolumeBinding": ("VolumeBinding",),
    "EvenPodsSpread": ("PodTopologySpread",),
    "GeneralPredicates": (_FIT, "NodeName", "NodePorts", "NodeAffinity"),
    "HostName": ("NodeName",),
    "MatchInterPodAffinity": ("InterPodAffinity",),
    "MatchNodeSelector": ("NodeAffinity",),
    "MaxAzureDiskVolumeCount": _VOLUME_LIMITS,
    "MaxCSIVolumeCountPred": _VOLUME_LIMITS,
    "MaxCinderVolumeCount": _VOLUME_LIMITS,
    "MaxEBSVolumeCount": _VOLUME_LIMITS,
    "MaxGCEPDVolumeCount": _VOLUME_LIMITS,
    "NoDiskConflict": ("VolumeRestrictions",),
    "NoVolumeNodeConflict": ("VolumeBinding",),
    "NoVolumeZoneConflict": ("VolumeZone",),
    "PodFitsHostPorts": ("NodePorts",),
    "PodFitsPorts": ("NodePorts",),
    "PodFitsResources": (_FIT,),
    "PodToleratesNodeTaints": _TAINTS,
}
"""Predicate -> the plugins that do its work in v1."""
_FILTERS: Final = frozenset(itertools.chain(_MANDATORY, *_PREDICATES.values()))
"""Plugins that filtered only if the policy, or its default, had the predicate."""
_FILTERING_POINTS: Final = ("preFilter", "filter")
_BOUND_TO_FILTER: Final[Mapping[str, tuple[str, ...]]] = {
    "VolumeBinding": ("preScore", "score", "reserve", "preBind")
}
"""Plugin -> further points at which it ran only together with its predicate."""

_PRIORITIES: Final[Mapping[str, str]] = {
    "BalancedResourceAllocation": "NodeResourcesBalancedAllocation",
    "EvenPodsSpreadPriority": "PodTopologySpread",
    "ImageLocalityPriority": "ImageLocality",
    "InterPodAffinityPriority": "InterPodAffinity",
    "LeastRequestedPriority": _FIT,
    "MostRequestedPriority": _FIT,
    "NodeAffinityPriority": "NodeAffinity",
    "RequestedToCapacityRatioPriority": _FIT,
    "TaintTolerationPriority": "TaintToleration",
}
"""Priority -> the plugin that scores so in v1."""
_STRATEGIES: Final[Mapping[str, str]] = {
    "LeastRequestedPriority": "LeastAllocated",
    "MostRequestedPriority": "MostAllocated",
    "RequestedToCapacityRatioPriority": "RequestedToCapacityRatio",
}
_SCORING_POINTS: Final = ("preScore", "score")
_SPREADING: Final = "PodTopologySpread spreads the pods of services and replica sets by default"
_GONE: Final[Mapping[str, str]] = {
    "EqualPriority": "it scored all nodes alike",
    "NodePreferAvoidPodsPriority": "use taints with the effect PreferNoSchedule",
    "ResourceLimitsPriority": "NodeResourcesFit scores requests only",
    "SelectorSpreadPriority": _SPREADING,
    "ServiceSpreadingPriority": _SPREADING,
}
"""Priority that v1 does not have -> its replacement."""
_ARGUMENTS: Final[Mapping[str, str]] = {
    "labelsPresence": "use NodeAffinity's addedAffinity, or node affinity in the pods",
    "serviceAffinity": "use pod affinity in the pods",
    "labelPreference": "use NodeAffinity's addedAffinity, or node affinity in the pods",
    "serviceAntiAffinity": "use topologySpreadConstraints in the pods",
}
"""Argument of a predicate or priority with a name of the user's -> its replacement."""
_RATIO: Final = "requestedToCapacityRatioArguments"

_ALWAYS: Final = "alwaysCheckAllPredicates"
_HARD_WEIGHT: Final = "hardPodAffinitySymmetricWeight"
_FIELDS: Final = frozenset(
    {"apiVersion", "kind", "metadata", "predicates", "priorities", "extenders"}
) | {_ALWAYS, _HARD_WEIGHT}
_FLAGS: Final = (
    "a policy said nothing about the scheduler's name, leader election and the API server: "
    "give schedulerName, leaderElection and clientConnection if flags did (--scheduler-name, --lock-object-name)"
)


def is_policy(value: Any) -> bool:
    """Whether a document is a policy."""
    return (
        isinstance(value, Mapping)
        and value.get("kind") == KIND
        and value.get("apiVersion") in VERSIONS
    )


def convert_policy(value: Mapping[str, Any]) -> Rewrite:
    """The policy as a KubeSchedulerConfiguration of v1."""
    rewrite = Rewrite(value)
    policy = rewrite.value
    rewrite.warn(("kind",), _FLAGS)
    for name in policy.keys() - _FIELDS:
        hint = closest(name, _FIELDS)
        more = f"; did you mean {show(hint)}?" if hint else ""
        rewrite.warn((name,), f"is not a field of a Policy and is left out{more}")
    if policy.get(_ALWAYS):
        said = "is gone in v1: the filters of a node end with the first that rejects it; only fewer reasons are given"
        rewrite.warn((_ALWAYS,), said)
    profile: dict[str, Any] = rewrite.made({"plugins": {}, "pluginConfig": []}, ("kind",))
    _convert_predicates(rewrite, policy, profile["plugins"])
    _convert_priorities(rewrite, policy, profile)
    _convert_hard_weight(rewrite, policy, profile)
    _convert_extenders(rewrite, policy)
    extenders = policy.get("extenders")
    policy.clear()
    policy |= {"apiVersion": V1, "kind": "KubeSchedulerConfiguration"}
    profile = {name: part for name, part in profile.items() if part}
    if profile:
        policy["profiles"] = [rewrite.made(profile, ("kind",))]
    if extenders:
        policy["extenders"] = extenders
    rewrite.finish()
    return rewrite


def _entries(
    rewrite: Rewrite, policy: Mapping[str, Any], field: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The names and entries of a list; what is none is a mistake."""
    items = policy[field]
    if not isinstance(items, list):
        rewrite.mistakes.append(invalid((field,), items, "must be a list"))
        return
    for index, item in enumerate(items):
        name = item.get("name") if isinstance(item, dict) else None
        if isinstance(name, str) and name:
            yield name, item
        else:
            said = "must be a mapping with a name"
            rewrite.mistakes.append(invalid((field, index), item, said))


def _disable(
    rewrite: Rewrite, plugins: dict[str, Any], name: str, points: tuple[str, ...], cause: Path
) -> None:
    for point in points:
        if point in IN_TREE_CAPABILITIES[name]:
            entry = rewrite.made({"name": name}, cause)
            append(plugins.setdefault(point, {}), "disabled", entry)


def _left_out(rewrite: Rewrite, entry: dict[str, Any], why: str) -> None:
    rewrite.warn(rewrite.path(entry), f"{show(entry['name'])} is not carried over: {why}")


def _custom(entry: Mapping[str, Any]) -> str:
    """What to use instead of an entry with an argument; empty if it has none that is known."""
    argument = entry.get("argument")
    given = argument if isinstance(argument, dict) else {}
    return next((use for name, use in _ARGUMENTS.items() if given.get(name)), "")


# ---------------------------------------------------------------- predicates


def _convert_predicates(
    rewrite: Rewrite, policy: Mapping[str, Any], plugins: dict[str, Any]
) -> None:
    """Disables the plugins whose predicates are not listed."""
    if policy.get("predicates") is None:
        return
    wanted = set(_MANDATORY)
    for name, entry in _entries(rewrite, policy, "predicates"):
        if why := _custom(entry):
            _left_out(rewrite, entry, why)
        elif name in _PREDICATES:
            wanted.update(_PREDICATES[name])
            if name.startswith("Max") and name != "MaxCSIVolumeCountPred":
                said = f"{name} is NodeVolumeLimits in v1: volumes of this kind are CSI volumes now"
                rewrite.warn(rewrite.path(entry), said)
        else:
            _left_out(rewrite, entry, _unknown("predicate", name, _PREDICATES))
    for name in sorted(_FILTERS - wanted):
        points = _FILTERING_POINTS + _BOUND_TO_FILTER.get(name, ())
        _disable(rewrite, plugins, name, points, ("predicates",))


def _unknown(what: str, name: str, known: Mapping[str, object]) -> str:
    hint = closest(name, known)
    said = f"Kubernetes 1.22 had no {what} of this name"
    return f"{said}; did you mean {show(hint)}?" if hint else said


# ---------------------------------------------------------------- priorities


def _convert_priorities(
    rewrite: Rewrite, policy: Mapping[str, Any], profile: dict[str, Any]
) -> None:
    """Lists the plugins of the priorities with their weights, and disables the others."""
    plugins = profile["plugins"]
    if policy.get("priorities") is None:
        for name, weight in OLD_WEIGHTS.items():
            entry = rewrite.made({"name": name, "weight": weight}, ("kind",))
            append(plugins.setdefault("multiPoint", {}), "enabled", entry)
        said = "without priorities the default score weights of Kubernetes 1.22 are kept"
        rewrite.warn(("kind",), f"{said}; see multiPoint")
        return
    chosen: dict[str, str] = {}
    for name, entry in _entries(rewrite, policy, "priorities"):
        plugin = _PRIORITIES.get(name)
        if why := _custom(entry) or _GONE.get(name, ""):
            _left_out(rewrite, entry, why)
        elif plugin is None:
            _left_out(rewrite, entry, _unknown("priority", name, {**_PRIORITIES, **_GONE}))
        elif plugin in chosen:
            said = f"in v1 it is {plugin}, which scores once and is {chosen[plugin]} already"
            _left_out(rewrite, entry, said)
        else:
            chosen[plugin] = name
            _check_weight(rewrite, entry)
            listed = {"name": plugin, "weight": entry.get("weight")}
            rewrite.moved(listed, rewrite.path(entry))
            append(plugins.setdefault("score", {}), "enabled", listed)
            if name in _STRATEGIES and name != "LeastRequestedPriority":
                profile["pluginConfig"].append(_fit_args(rewrite, entry))
    for plugin in sorted(set(_PRIORITIES.values()) - chosen.keys()):
        _disable(rewrite, plugins, plugin, _SCORING_POINTS, ("priorities",))


def _check_weight(rewrite: Rewrite, entry: dict[str, Any]) -> None:
    weight = entry.get("weight")
    if not isinstance(weight, int) or isinstance(weight, bool) or weight <= 0:
        path = (*rewrite.path(entry), "weight")
        rewrite.mistakes.append(invalid(path, weight, "must be a positive number"))


def _fit_args(rewrite: Rewrite, entry: dict[str, Any]) -> dict[str, Any]:
    """NodeResourcesFit's arguments for a priority."""
    place = rewrite.path(entry)
    strategy: dict[str, Any] = {"type": _STRATEGIES[entry["name"]]}
    argument = entry.get("argument")
    given = argument.get(_RATIO) if isinstance(argument, dict) else None
    if isinstance(given, dict):
        place = rewrite.path(given)
        for name, value in given.items():
            if name == "shape":
                shape = rewrite.moved({"shape": value}, place)
                strategy["requestedToCapacityRatio"] = shape
            else:
                strategy[name] = value
    return rewrite.made(
        {"name": _FIT, "args": {"scoringStrategy": rewrite.moved(strategy, place)}},
        rewrite.path(entry),
    )


def _convert_hard_weight(
    rewrite: Rewrite, policy: Mapping[str, Any], profile: dict[str, Any]
) -> None:
    weight = policy.get(_HARD_WEIGHT)
    if weight:  # 0 meant the default, which is still 1
        args = rewrite.made({"hardPodAffinityWeight": weight}, (_HARD_WEIGHT,))
        profile["pluginConfig"].append({"name": "InterPodAffinity", "args": args})


# ---------------------------------------------------------------- extenders


def _spellings(model: type[Any]) -> dict[str, str]:
    """Field in lower case -> as v1 spells it."""
    names = [field.encode_name for field in msgspec.structs.fields(model)]
    return {name.lower(): name for name in names}


_EXTENDER: Final = _spellings(Extender)
_TLS: Final = _spellings(ExtenderTLSConfig)
_RESOURCE: Final = _spellings(ExtenderManagedResource)


def _convert_extenders(rewrite: Rewrite, policy: Mapping[str, Any]) -> None:
    """Spells the fields of extenders as v1 does: policies were read in any case."""
    for _, extender in mappings(policy, "extenders"):
        if "apiVersion" in extender:
            rewrite.warn((*rewrite.path(extender), "apiVersion"), "is gone in v1 and left out")
            del extender["apiVersion"]
        _spell(rewrite, extender, _EXTENDER)
        tls = extender.get("tlsConfig")
        if isinstance(tls, dict):
            _spell(rewrite, tls, _TLS)
        for _, resource in mappings(extender, "managedResources"):
            _spell(rewrite, resource, _RESOURCE)


def _spell(rewrite: Rewrite, part: dict[str, Any], spellings: Mapping[str, str]) -> None:
    for name in list(part):
        spelling = spellings.get(name.lower(), name)
        if spelling != name and rewrite.rename(part, name, spelling):
            rewrite.warn((*rewrite.path(part), name), f"is spelt {spelling} in v1")
