"""The configuration as plain values, for everything that must not know pydantic."""

import dataclasses
from collections.abc import Callable
from typing import Any, Final

from app.framework import args as plain
from app.settings import args as models
from app.settings.extension import Breaker, ExtenderOptions
from app.settings.models import (
    Extender,
    ExtenderTLSConfig,
    KubeSchedulerConfiguration,
    KubeSchedulerProfile,
)
from app.settings.plugins import ResolvedPlugins


@dataclasses.dataclass(frozen=True, slots=True)
class TLS:
    """How to trust an extender, and how to be trusted by it. Data win over files."""

    insecure: bool = False
    """The certificate is not verified."""
    server_name: str = ""
    """Name to ask for and to verify; empty for the URL's host."""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: bytes | None = None
    """PEM."""
    key_data: bytes | None = dataclasses.field(default=None, repr=False)
    """PEM; never shown."""
    ca_data: bytes | None = None
    """PEM."""


@dataclasses.dataclass(frozen=True, slots=True)
class ExtenderSettings:
    """One extender: its entry in the first document joined with its options in the second."""

    url_prefix: str
    """Without slashes at the end."""
    filter_verb: str
    preempt_verb: str
    prioritize_verb: str
    bind_verb: str
    weight: int
    tls: TLS
    http_timeout: float
    """Seconds for a whole call."""
    node_cache_capable: bool
    managed_resources: frozenset[str]
    """Empty: the extender is asked for every pod."""
    ignorable: bool
    serial: bool
    """Never two calls in flight."""
    bearer_token_file: str
    """Empty for none."""
    breaker_failures: int
    """Failures in a row that open the breaker; 0 for no breaker."""
    breaker_open_seconds: float


# ---------------------------------------------------------------- profiles


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
        plugin_config["NodeResourcesFit"] = dataclasses.replace(fit, ignored_resources=ignored)
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


# ---------------------------------------------------------------- extenders


def to_extender(extender: Extender, options: ExtenderOptions | None) -> ExtenderSettings:
    """One extender for its client."""
    breaker = options.breaker if options is not None else Breaker()
    return ExtenderSettings(
        url_prefix=extender.url_prefix.rstrip("/"),
        filter_verb=extender.filter_verb,
        preempt_verb=extender.preempt_verb,
        prioritize_verb=extender.prioritize_verb,
        bind_verb=extender.bind_verb,
        weight=extender.weight,
        tls=to_tls(extender.tls_config, enable_https=extender.enable_https),
        http_timeout=extender.http_timeout.seconds,
        node_cache_capable=extender.node_cache_capable,
        managed_resources=frozenset(resource.name for resource in extender.managed_resources),
        ignorable=extender.ignorable,
        serial=options is not None and options.serial,
        bearer_token_file=options.bearer_token_file if options is not None else "",
        breaker_failures=breaker.failures,
        breaker_open_seconds=breaker.open_seconds.seconds,
    )


def to_tls(config: ExtenderTLSConfig | None, *, enable_https: bool) -> TLS:
    """The TLS of an extender; enableHTTPS without a CA means that nothing is verified (spec: service.md 2.5)."""
    if config is None:
        return TLS(insecure=enable_https)
    return TLS(
        insecure=config.insecure or (enable_https and not config.has_ca),
        server_name=config.server_name,
        cert_file=config.cert_file,
        key_file=config.key_file,
        ca_file=config.ca_file,
        cert_data=config.pem("cert_data"),
        key_data=config.pem("key_data"),
        ca_data=config.pem("ca_data"),
    )
