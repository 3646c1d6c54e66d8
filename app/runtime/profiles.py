"""From configured profiles to frameworks that run: plugin classes are looked up, instantiated once each, and ordered."""

from collections.abc import Iterable, Mapping

import numpy as np

from app.framework.args import Profile
from app.framework.interface import Handle, Plugin, WaitingPods
from app.framework.runner import Framework, ProfilePlugins
from app.state.cluster import Cluster
from app.state.nominator import Nominator
from app.state.table import NodeTable


class PluginError(Exception):
    """A plugin that cannot be set up; the text is kube-scheduler's."""


def build_framework(
    profile: Profile,
    classes: Mapping[str, type],
    *,
    table: NodeTable,
    cluster: Cluster,
    nominator: Nominator,
    rng: np.random.Generator,
    waiting: WaitingPods | None = None,
) -> Framework:
    """One profile's framework. Raises PluginError."""
    handle = Handle(
        table, cluster, profile.scheduler_name, nominator=nominator, rng=rng, waiting=waiting
    )
    instances: dict[str, Plugin] = {}
    for name in {name for names in profile.points.values() for name in names}:
        try:
            instances[name] = classes[name](profile.plugin_config.get(name), handle)
        except Exception as error:
            raise PluginError(
                f"initializing profiles: creating profile for scheduler name {profile.scheduler_name}: "
                f'initializing plugin "{name}": {error}'
            ) from error
    by_point = {
        point: [instances[name] for name in names] for point, names in profile.points.items()
    }
    framework = Framework(
        profile.scheduler_name, ProfilePlugins(by_point, profile.score_weights), table
    )
    handle.framework = framework
    return framework


def plugin_names(profiles: Iterable[Profile]) -> frozenset[str]:
    """The names of all plugins that any profile runs."""
    return frozenset(
        name for profile in profiles for names in profile.points.values() for name in names
    )
