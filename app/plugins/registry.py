"""The registry of plugin classes: in-tree ones, and those of installed distributions.

A third-party plugin is a class (see docs/plugins.md) announced by an entry point::

    [project.entry-points."aiokube_scheduler.plugins"]
    NotOnMondays = "example_plugins:NotOnMondays"
"""

import inspect
import types
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from app.framework.plugin_class import PluginClass, fault_of, points_of
from app.plugins.default_binder import DefaultBinder
from app.plugins.default_preemption import DefaultPreemption
from app.plugins.dynamic_resources import DynamicResources
from app.plugins.gang_scheduling import GangScheduling
from app.plugins.image_locality import ImageLocality
from app.plugins.inter_pod_affinity import InterPodAffinity
from app.plugins.node_affinity import NodeAffinity
from app.plugins.node_declared_features import NodeDeclaredFeatures
from app.plugins.node_name import NodeName
from app.plugins.node_ports import NodePorts
from app.plugins.node_resources_balanced_allocation import (
    NodeResourcesBalancedAllocation,
)
from app.plugins.node_resources_fit import NodeResourcesFit
from app.plugins.node_unschedulable import NodeUnschedulable
from app.plugins.node_volume_limits import NodeVolumeLimits
from app.plugins.pod_group_pods_count import PodGroupPodsCount
from app.plugins.pod_topology_spread import PodTopologySpread
from app.plugins.priority_sort import PrioritySort
from app.plugins.scheduling_gates import SchedulingGates
from app.plugins.taint_toleration import TaintToleration
from app.plugins.topology_placement_generator import TopologyPlacementGenerator
from app.plugins.volume_binding import VolumeBinding
from app.plugins.volume_restrictions import VolumeRestrictions
from app.plugins.volume_zone import VolumeZone

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: Entry point group of third-party plugins.
GROUP: Final = "aiokube_scheduler.plugins"

_IN_TREE: Final[tuple[PluginClass, ...]] = (
    SchedulingGates,
    PrioritySort,
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
    DynamicResources,
    DefaultPreemption,
    NodeResourcesBalancedAllocation,
    ImageLocality,
    DefaultBinder,
    NodeDeclaredFeatures,
    GangScheduling,
    TopologyPlacementGenerator,
    PodGroupPodsCount,
)

#: The in-tree plugin classes by name; constructed with ``(args or None, handle)``.
IN_TREE: Final[Mapping[str, PluginClass]] = types.MappingProxyType(
    {plugin.NAME: plugin for plugin in _IN_TREE}
)


class RegistryError(ValueError):
    """Some third-party plugins cannot be used; the message names each with its distribution."""


def capabilities(plugins: Mapping[str, PluginClass] = IN_TREE) -> dict[str, frozenset[str]]:
    """The extension points of each plugin, by their names in the configuration."""
    return {name: points_of(plugin) for name, plugin in plugins.items()}


def registry(entry_points: Iterable["EntryPoint"] = ()) -> dict[str, PluginClass]:
    """The in-tree plugins and those of ``entry_points``, by name.

    The shell passes ``entry_points(group=GROUP)`` of app.runtime.distributions, which reads files. Raises
    RegistryError with all entries that cannot be imported, are not plugins, or use a name twice.
    """
    plugins = dict(IN_TREE)
    owners = dict.fromkeys(IN_TREE, "aiokube-scheduler itself")
    problems = []
    for entry in entry_points:
        where = _where(entry)
        try:
            plugin = _load(entry)
        except _BadEntryError as error:
            problems.append(f"{where}: {error}")
            continue
        if plugin.NAME in plugins:
            problems.append(
                f'{where}: the name "{plugin.NAME}" is taken by {owners[plugin.NAME]}; rename the plugin'
            )
            continue
        plugins[plugin.NAME] = plugin
        owners[plugin.NAME] = _distribution(entry)
    if problems:
        raise RegistryError("\n".join(problems))
    return plugins


class _BadEntryError(Exception):
    """One entry point cannot be used."""


def _distribution(entry: "EntryPoint") -> str:
    return f"distribution {entry.dist.name}" if entry.dist is not None else "no distribution"


def _where(entry: "EntryPoint") -> str:
    return f'{_distribution(entry)}, entry point "{entry.name} = {entry.value}" of {GROUP}'


def _load(entry: "EntryPoint") -> PluginClass:
    try:
        plugin = entry.load()
    except Exception as error:  # importing runs third-party code
        raise _BadEntryError(f"cannot be imported: {type(error).__name__}: {error}") from error
    if not isinstance(plugin, type):
        kind = "a module" if inspect.ismodule(plugin) else f"a {type(plugin).__name__}"
        raise _BadEntryError(f"is {kind}, not a class")
    fault = fault_of(plugin)
    if fault:
        raise _BadEntryError(fault)
    return plugin
