"""Profiles as plain values, for the framework, which must not know pydantic."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from app.framework import args as plain
from app.settings import args as models
from app.settings.models import KubeSchedulerConfiguration, KubeSchedulerProfile
from app.settings.plugins import ResolvedPlugins


def to_profile(
    profile: KubeSchedulerProfile, config: KubeSchedulerConfiguration, resolved: ResolvedPlugins
) -> plain.Profile:
    """One profile for the framework."""
    own = profile.percentage_of_nodes_to_score
    percentage = config.percentage_of_nodes_to_score if own is None else own
    given = profile.args
    plugin_config: dict[str, Any] = {
        name: _PLAIN[model](given.get(name, model())) for name, model in models.ARGS.items()
    }
    if ignored := config.ignored_by_scheduler:
        fit = plugin_config["NodeResourcesFit"]
        plugin_config["NodeResourcesFit"] = msgspec.structs.replace(fit, ignored_resources=ignored)
    opaque = {name: value for name, value in given.items() if name not in models.ARGS}
    return plain.Profile(
        scheduler_name=profile.scheduler_name,
        percentage_of_nodes_to_score=percentage or None,
        points=resolved.points,
        score_weights=resolved.score_weights,
        plugin_config=plugin_config | opaque,
    )


def _default_preemption(args: models.DefaultPreemptionArgs) -> plain.DefaultPreemptionArgs:
    return plain.DefaultPreemptionArgs(
        args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute
    )


def _dynamic_resources(args: models.DynamicResourcesArgs) -> plain.DynamicResourcesArgs:
    return plain.DynamicResourcesArgs(args.filter_timeout.seconds, args.binding_timeout.seconds)


def _inter_pod_affinity(args: models.InterPodAffinityArgs) -> plain.InterPodAffinityArgs:
    return plain.InterPodAffinityArgs(
        args.hard_pod_affinity_weight, args.ignore_preferred_terms_of_existing_pods
    )


def _node_affinity(args: models.NodeAffinityArgs) -> plain.NodeAffinityArgs:
    added = args.added_affinity
    return plain.NodeAffinityArgs(
        None if added is None else added.model_dump(by_alias=True, exclude_none=True, mode="json")
    )


def _resources(specs: tuple[models.ResourceSpec, ...]) -> tuple[plain.ResourceSpec, ...]:
    return tuple(plain.ResourceSpec(spec.name, spec.weight) for spec in specs)


def _resources_fit(args: models.NodeResourcesFitArgs) -> plain.NodeResourcesFitArgs:
    strategy = args.scoring_strategy
    ratio = strategy.requested_to_capacity_ratio
    return plain.NodeResourcesFitArgs(
        ignored_resources=frozenset(args.ignored_resources),
        ignored_resource_groups=frozenset(args.ignored_resource_groups),
        strategy=strategy.type,
        resources=_resources(strategy.resources),
        shape=tuple(
            plain.UtilizationShapePoint(point.utilization, point.score)
            for point in (ratio.shape if ratio is not None else ())
        ),
    )


def _balanced_allocation(
    args: models.NodeResourcesBalancedAllocationArgs,
) -> plain.BalancedAllocationArgs:
    return plain.BalancedAllocationArgs(_resources(args.resources))


def _pod_topology_spread(args: models.PodTopologySpreadArgs) -> plain.PodTopologySpreadArgs:
    return plain.PodTopologySpreadArgs(
        args.defaulting_type,
        tuple(
            plain.DefaultConstraint(
                max_skew=constraint.max_skew,
                topology_key=constraint.topology_key,
                when_unsatisfiable=constraint.when_unsatisfiable,
                min_domains=constraint.min_domains,
                node_affinity_policy=constraint.node_affinity_policy,
                node_taints_policy=constraint.node_taints_policy,
                match_label_keys=constraint.match_label_keys,
            )
            for constraint in args.default_constraints
        ),
    )


def _volume_binding(args: models.VolumeBindingArgs) -> plain.VolumeBindingArgs:
    return plain.VolumeBindingArgs(args.bind_timeout_seconds)


_PLAIN: Final[dict[type[models.PluginArgs], Callable[[Any], plain.InTreeArgs]]] = {
    models.DefaultPreemptionArgs: _default_preemption,
    models.DynamicResourcesArgs: _dynamic_resources,
    models.InterPodAffinityArgs: _inter_pod_affinity,
    models.NodeAffinityArgs: _node_affinity,
    models.NodeResourcesBalancedAllocationArgs: _balanced_allocation,
    models.NodeResourcesFitArgs: _resources_fit,
    models.PodTopologySpreadArgs: _pod_topology_spread,
    models.VolumeBindingArgs: _volume_binding,
}
