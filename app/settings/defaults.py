"""kube-scheduler 1.36's default plugins: the multiPoint list, and what each implements.

See docs/spec/configuration.md#default-plugins.
"""

from collections.abc import Mapping
from typing import Final

EXTENSION_POINTS: Final = (
    "preFilter",
    "filter",
    "postFilter",
    "reserve",
    "preScore",
    "score",
    "preBind",
    "bind",
    "postBind",
    "permit",
    "preEnqueue",
    "queueSort",
    "placementGenerate",
    "placementScore",
)
"""All extension points by their names in the file, in the order in which kube-scheduler builds and checks them."""

DEFAULT_MULTI_POINT: Final[tuple[tuple[str, int], ...]] = (
    ("SchedulingGates", 0),
    ("PrioritySort", 0),
    ("NodeUnschedulable", 0),
    ("NodeName", 0),
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodePorts", 0),
    ("NodeResourcesFit", 1),
    ("VolumeRestrictions", 0),
    ("NodeVolumeLimits", 0),
    ("VolumeBinding", 0),
    ("VolumeZone", 0),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("DynamicResources", 2),
    ("DefaultPreemption", 0),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("DefaultBinder", 0),
    ("NodeDeclaredFeatures", 0),
)
"""The default plugins in order, with their weights; 0 is an unset weight and counts as 1."""

GATED_PLUGINS: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    "TopologyAwareWorkloadScheduling": (
        ("TopologyPlacementGenerator", 0),
        ("PodGroupPodsCount", 1),
    ),
}
"""Feature gate -> the default plugins that it adds, as in DEFAULT_MULTI_POINT."""

DEFAULT_WEIGHTS: Final = dict(DEFAULT_MULTI_POINT)

Capabilities = Mapping[str, frozenset[str]]
"""Plugin name -> the extension points it implements."""

_FILTER: Final = frozenset({"preFilter", "filter"})
_FILTER_AND_SCORE: Final = _FILTER | {"preScore", "score"}

IN_TREE_CAPABILITIES: Final[Capabilities] = {
    "SchedulingGates": frozenset({"preEnqueue"}),
    "PrioritySort": frozenset({"queueSort"}),
    "NodeUnschedulable": frozenset({"filter"}),
    "NodeName": frozenset({"filter"}),
    "TaintToleration": frozenset({"filter", "preScore", "score"}),
    "NodeAffinity": _FILTER_AND_SCORE,
    "NodePorts": _FILTER,
    "NodeResourcesFit": _FILTER_AND_SCORE | {"placementScore"},
    "VolumeRestrictions": _FILTER,
    "NodeVolumeLimits": _FILTER,
    "VolumeBinding": _FILTER_AND_SCORE | {"reserve", "preBind"},
    "VolumeZone": _FILTER,
    "PodTopologySpread": _FILTER_AND_SCORE,
    "InterPodAffinity": _FILTER_AND_SCORE,
    "DynamicResources": _FILTER | {"preEnqueue", "postFilter", "score", "reserve", "preBind"},
    "DefaultPreemption": frozenset({"preEnqueue", "postFilter"}),
    "NodeResourcesBalancedAllocation": frozenset({"preScore", "score"}),
    "ImageLocality": frozenset({"score"}),
    "DefaultBinder": frozenset({"bind"}),
    "NodeDeclaredFeatures": _FILTER,
    "GangScheduling": frozenset({"preEnqueue", "permit"}),
    "TopologyPlacementGenerator": frozenset({"placementGenerate"}),
    "PodGroupPodsCount": frozenset({"placementScore"}),
}
"""What kube-scheduler's own plugins implement; the running scheduler passes its registry's map instead."""

_FILTER_NEEDS: Final = {"filter": "preFilter"}
_SCORE_NEEDS: Final = {"score": "preScore"}

PREPARED_AT: Final[Mapping[str, Mapping[str, str]]] = {
    "TaintToleration": _SCORE_NEEDS,
    "NodePorts": _FILTER_NEEDS,
    "NodeResourcesFit": _FILTER_NEEDS,
    "VolumeRestrictions": _FILTER_NEEDS,
    "VolumeBinding": dict.fromkeys(("filter", "reserve", "preBind"), "preFilter"),
    "PodTopologySpread": _FILTER_NEEDS | _SCORE_NEEDS,
    "InterPodAffinity": _FILTER_NEEDS | _SCORE_NEEDS,
    "DynamicResources": dict.fromkeys(("filter", "score", "reserve", "preBind"), "preFilter"),
    "NodeDeclaredFeatures": _FILTER_NEEDS,
}
"""Plugin name -> a point at which it fails every pod unless it runs at that other point too."""

REMOVED_PLUGINS: Final = ("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits")
"""Plugins that were removed from v1, which rejects them by name."""
