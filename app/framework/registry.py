"""Which plugins there are: the in-tree ones, and those that installed distributions bring along.

A third-party plugin is a class (see docs/plugins.md) announced by an entry point::

    [project.entry-points."aiokube_scheduler.plugins"]
    NotOnMondays = "example_plugins:NotOnMondays"
"""

import inspect
import types
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint
from typing import Any, Final

from app.framework.interface import POINT_METHODS, points_of
from app.framework.plugins.default_binder import DefaultBinder
from app.framework.plugins.default_preemption import DefaultPreemption
from app.framework.plugins.dynamic_resources import DynamicResources
from app.framework.plugins.image_locality import ImageLocality
from app.framework.plugins.inter_pod_affinity import InterPodAffinity
from app.framework.plugins.node_affinity import NodeAffinity
from app.framework.plugins.node_declared_features import NodeDeclaredFeatures
from app.framework.plugins.node_name import NodeName
from app.framework.plugins.node_ports import NodePorts
from app.framework.plugins.node_resources_balanced_allocation import (
    NodeResourcesBalancedAllocation,
)
from app.framework.plugins.node_resources_fit import NodeResourcesFit
from app.framework.plugins.node_unschedulable import NodeUnschedulable
from app.framework.plugins.node_volume_limits import NodeVolumeLimits
from app.framework.plugins.pod_topology_spread import PodTopologySpread
from app.framework.plugins.priority_sort import PrioritySort
from app.framework.plugins.scheduling_gates import SchedulingGates
from app.framework.plugins.taint_toleration import TaintToleration
from app.framework.plugins.volume_binding import VolumeBinding
from app.framework.plugins.volume_restrictions import VolumeRestrictions
from app.framework.plugins.volume_zone import VolumeZone

#: Entry point group of third-party plugins.
GROUP: Final = "aiokube_scheduler.plugins"

PluginClass = type[Any]

_COROUTINES: Final = frozenset({"post_filter", "pre_bind", "undo_pre_bind", "bind"})
#: Methods that do nothing, or harm, without another one.
_COMPANIONS: Final = {
    "reserve": "unreserve",
    "unreserve": "reserve",
    "normalize": "score",
    "undo_pre_bind": "pre_bind",
}
_METHODS: Final = (
    *POINT_METHODS.values(),
    "normalize",
    "unreserve",
    "pre_bind_pre_flight",
    "undo_pre_bind",
    "events_to_register",
)

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
)

#: The in-tree plugin classes by name; constructed with ``(args or None, handle)``.
IN_TREE: Final[Mapping[str, PluginClass]] = types.MappingProxyType(
    {plugin.NAME: plugin for plugin in _IN_TREE}
)


class RegistryError(ValueError):
    """Third-party plugins that cannot be used; the message names each with its distribution."""


def capabilities(plugins: Mapping[str, PluginClass] = IN_TREE) -> dict[str, frozenset[str]]:
    """The extension points of each plugin, by their names in the configuration."""
    return {name: points_of(plugin) for name, plugin in plugins.items()}


def registry(entry_points: Iterable[EntryPoint] = ()) -> dict[str, PluginClass]:
    """The in-tree plugins and those behind ``entry_points``, by name.

    The shell passes ``importlib.metadata.entry_points(group=GROUP)``: finding them reads files, which is not for here.
    Raises RegistryError for all entries at once that cannot be imported, are no plugins or take a name twice.
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
    """What is wrong with one entry point."""


def _distribution(entry: EntryPoint) -> str:
    return f"distribution {entry.dist.name}" if entry.dist is not None else "no distribution"


def _where(entry: EntryPoint) -> str:
    return f'{_distribution(entry)}, entry point "{entry.name} = {entry.value}" of {GROUP}'


def _load(entry: EntryPoint) -> PluginClass:
    try:
        plugin = entry.load()
    except Exception as error:  # importing runs code of strangers
        raise _BadEntryError(f"cannot be imported: {type(error).__name__}: {error}") from error
    if not isinstance(plugin, type):
        raise _BadEntryError(f"is {_kind(plugin)}, not a class")
    fault = fault_of(plugin)
    if fault:
        raise _BadEntryError(fault)
    return plugin


def _kind(thing: object) -> str:
    return "a module" if inspect.ismodule(thing) else f"a {type(thing).__name__}"


def fault_of(plugin: PluginClass) -> str:
    """What keeps a class from being a plugin; empty if nothing does."""
    name = getattr(plugin, "NAME", None)
    if not isinstance(name, str) or not name:
        return "the class has no NAME (a non-empty string)"
    if not points_of(plugin):
        return "the class has no method of any extension point, such as filter or score"
    lacking = _lacking(plugin)
    if lacking:
        return f"the class lacks {', '.join(lacking)}"
    return _wrong_kind_of_method(plugin) or _wrong_constructor(plugin)


def _lacking(plugin: PluginClass) -> list[str]:
    """Abstract methods, and those that the methods it has cannot do without."""
    abstract: frozenset[str] = getattr(plugin, "__abstractmethods__", frozenset())
    needed = [need for have, need in _COMPANIONS.items() if hasattr(plugin, have)]
    return sorted({*abstract, *(need for need in needed if not hasattr(plugin, need))})


def _wrong_kind_of_method(plugin: PluginClass) -> str:
    for method in _METHODS:
        function = getattr(plugin, method, None)
        if not inspect.isfunction(function):
            continue
        if inspect.iscoroutinefunction(function) != (method in _COROUTINES):
            needed = "must be" if method in _COROUTINES else "must not be"
            return f"{method} {needed} a coroutine (async def)"
    return ""


def _wrong_constructor(plugin: PluginClass) -> str:
    try:
        signature = inspect.signature(plugin)
    except (TypeError, ValueError):
        return ""
    try:
        signature.bind(None, None)
    except TypeError as error:
        return f"the constructor must take (args, handle), not {signature}: {error}"
    return ""
