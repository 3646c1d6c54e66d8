"""Converts the configuration to plain structs, for the parts of the program that know nothing of files."""

from typing import Any, Final, TypeVar

import msgspec

from app.framework.args import Profile
from app.model.gotext import Duration
from app.plugins import args as plain
from app.settings import args as models
from app.settings.base import Model, as_json
from app.settings.models import KubeSchedulerConfiguration, KubeSchedulerProfile
from app.settings.plugins import ResolvedPlugins

S = TypeVar("S")


def to_profile(
    profile: KubeSchedulerProfile,
    config: KubeSchedulerConfiguration,
    resolved: ResolvedPlugins,
    *,
    ignored: frozenset[str],
) -> Profile:
    """One profile for the framework; ``ignored``: resources that extenders check instead of NodeResourcesFit."""
    own = profile.percentage_of_nodes_to_score
    percentage = config.percentage_of_nodes_to_score if own is None else own
    given = profile.args
    plugin_config: dict[str, Any] = {
        name: to_args(given.get(name) or model()) for name, model in models.ARGS.items()
    }
    if ignored:
        fit = plugin_config["NodeResourcesFit"]
        plugin_config["NodeResourcesFit"] = msgspec.structs.replace(fit, ignored_resources=ignored)
    opaque = {name: value for name, value in given.items() if name not in models.ARGS}
    return Profile(
        scheduler_name=profile.scheduler_name,
        percentage_of_nodes_to_score=percentage or None,
        points=resolved.points,
        score_weights=resolved.score_weights,
        placement_weights=resolved.placement_weights,
        plugin_config=plugin_config | opaque,
    )


def to_args(args: models.PluginArgs) -> plain.InTreeArgs:
    """The arguments of an in-tree plugin."""
    match args:
        case models.NodeAffinityArgs(added_affinity=models.NodeAffinity() as added):
            return plain.NodeAffinityArgs(as_json(added))
        case models.NodeResourcesFitArgs():
            strategy = args.scoring_strategy
            ratio = strategy.requested_to_capacity_ratio
            return to_struct(
                args,
                plain.NodeResourcesFitArgs,
                strategy=strategy.type,
                resources=strategy.resources,
                shape=() if ratio is None else ratio.shape,
            )
        case models.VolumeBindingArgs():
            return to_struct(args, plain.VolumeBindingArgs, shape=args.shape or ())
    return to_struct(args, _STRUCTS[type(args)])


def to_struct(model: Model, kind: type[S], **changes: object) -> S:
    """A struct or dataclass with the model's values of its fields, and with ``changes``. Durations become seconds."""
    values = {
        name: value.seconds if isinstance(value, Duration) else value
        for name, value in msgspec.structs.asdict(model).items()
    }
    return msgspec.convert(values | changes, kind, from_attributes=True)


_STRUCTS: Final[dict[type[models.PluginArgs], type[plain.InTreeArgs]]] = {
    models.DefaultPreemptionArgs: plain.DefaultPreemptionArgs,
    models.DynamicResourcesArgs: plain.DynamicResourcesArgs,
    models.InterPodAffinityArgs: plain.InterPodAffinityArgs,
    models.NodeAffinityArgs: plain.NodeAffinityArgs,
    models.NodeResourcesBalancedAllocationArgs: plain.BalancedAllocationArgs,
    models.PodTopologySpreadArgs: plain.PodTopologySpreadArgs,
}
