"""KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1), complete, with kube-scheduler 1.36's defaults.

The models hold what the user wrote with the simple defaults filled in; the default plugins are merged in later, by
``app.settings.plugins``, because that needs the user's own lists. Rules that span fields are in
``app.settings.validation``. (docs/spec/configuration.md, docs/spec/extenders.md#configuration)
"""

import base64
from typing import Annotated, Any, Final

import msgspec

from app.model.gotext import Duration
from app.model.objects import Int32, Int64
from app.settings.args import ARGS, PluginArgs
from app.settings.base import (
    V1,
    Base64,
    Float,
    GoDuration,
    Model,
    UnsetMeans,
)

DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"


class _Unnamed(str):
    """An empty name that was not given."""

    __slots__ = ()


_UNNAMED: Final = _Unnamed()


class LeaderElectionConfiguration(Model, frozen=True):
    """Leader election among replicas. Durations of 0 mean the default."""

    leader_elect: bool = True
    """Schedule only while holding the lease. Default: true."""
    lease_duration: Annotated[GoDuration, UnsetMeans(Duration.of(15))] = Duration.of(15)
    """How long others wait after the last renewal they saw before they take the lease. Default: 15s."""
    renew_deadline: Annotated[GoDuration, UnsetMeans(Duration.of(10))] = Duration.of(10)
    """How long the holder tries to renew before it gives up; less than leaseDuration. Default: 10s."""
    retry_period: Annotated[GoDuration, UnsetMeans(Duration.of(2))] = Duration.of(2)
    """The pause between attempts to acquire or renew. Default: 2s."""
    resource_lock: Annotated[str, UnsetMeans("leases")] = "leases"
    """The kind of lock; only ``leases`` is supported."""
    resource_name: Annotated[str, UnsetMeans("kube-scheduler")] = "kube-scheduler"
    """The Lease's name; give a second scheduler its own. Default: kube-scheduler."""
    resource_namespace: Annotated[str, UnsetMeans("kube-system")] = "kube-system"
    """The Lease's namespace. Default: kube-system."""


class ClientConnectionConfiguration(Model, frozen=True):
    """How to reach the API server."""

    kubeconfig: str = ""
    """Path of a kubeconfig file. Default: none, the pod's own service account."""
    accept_content_types: str = ""
    """Accepted for compatibility; JSON is always requested."""
    content_type: Annotated[str, UnsetMeans("application/vnd.kubernetes.protobuf")] = (
        "application/vnd.kubernetes.protobuf"
    )
    """Accepted for compatibility; JSON is always sent."""
    qps: Annotated[Float, UnsetMeans(50.0)] = 50.0
    """Requests per second, on average; negative for no limit. Default: 50 (also for 0)."""
    burst: Annotated[Int32, UnsetMeans(100)] = 100
    """Requests that may exceed the average at once. Default: 100 (also for 0)."""


class Plugin(Model, frozen=True):
    """A plugin by name."""

    name: str = ""
    """The plugin's name; in ``disabled`` also ``*`` for all."""
    weight: Int32 = 0
    """The weight of its score; used only in score and multiPoint. Default: 1 (also for 0)."""


class PluginSet(Model, frozen=True):
    """Plugins to enable in addition to the default plugins, and default plugins to disable."""

    enabled: tuple[Plugin, ...] = ()
    """Plugins to run, in this order; naming a default plugin again replaces its weight."""
    disabled: tuple[Plugin, ...] = ()
    """Default plugins not to run; ``*`` stands for all of them."""


class Plugins(Model, frozen=True):
    """A plugin set per extension point; multiPoint stands for every point that a plugin implements."""

    pre_enqueue: PluginSet = PluginSet()
    """Before a pod enters the active queue."""
    queue_sort: PluginSet = PluginSet()
    """The order of the queue: exactly one plugin, the same in all profiles."""
    pre_filter: PluginSet = PluginSet()
    """Once per pod, before the nodes are filtered."""
    filter: PluginSet = PluginSet()
    """Which nodes can run the pod."""
    post_filter: PluginSet = PluginSet()
    """When no node can: preemption."""
    pre_score: PluginSet = PluginSet()
    """Once per pod, before scoring."""
    score: PluginSet = PluginSet()
    """How good each node is; weights count here."""
    reserve: PluginSet = PluginSet()
    """When a node has been chosen, and when it has to be given up."""
    permit: PluginSet = PluginSet()
    """May delay the binding."""
    pre_bind: PluginSet = PluginSet()
    """Before the pod is bound."""
    bind: PluginSet = PluginSet()
    """Binds the pod; the first plugin that does not decline decides."""
    post_bind: PluginSet = PluginSet()
    """After the pod has been bound."""
    multi_point: PluginSet = PluginSet()
    """At every extension point that the plugin implements; all default plugins are enabled here."""
    placement_generate: PluginSet = PluginSet()
    """Topology-aware workload scheduling (its feature gate is off): candidates of placements."""
    placement_score: PluginSet = PluginSet()
    """Topology-aware workload scheduling (its feature gate is off): how good each placement is."""

    def at(self, point: str) -> PluginSet:
        """The set of an extension point by its name in the file, such as ``preFilter``."""
        plugin_set: PluginSet = getattr(self, FIELD_OF_POINT[point])
        return plugin_set


FIELD_OF_POINT: Final = {field.encode_name: field.name for field in msgspec.structs.fields(Plugins)}
"""Extension point as in the file -> attribute of ``Plugins``."""


class PluginConfig(Model, frozen=True):
    """Arguments for one plugin."""

    name: str = ""
    """The plugin's name."""
    args: Any = msgspec.field(default_factory=dict)
    """Its arguments, those of an in-tree plugin as a model; absent, null and empty mean the defaults."""

    def __post_init__(self) -> None:
        """Reads the arguments of an in-tree plugin. Raises ValueError, ValidationError."""
        model, given = ARGS.get(self.name), {} if self.args is None else self.args
        if model is not None and not isinstance(given, PluginArgs):
            given = msgspec.convert(given, model)
        msgspec.structs.force_setattr(self, "args", given)


class KubeSchedulerProfile(Model, frozen=True):
    """A scheduler name that pods may request, with its plugins."""

    scheduler_name: str = _UNNAMED
    """Pods with this ``spec.schedulerName`` are scheduled by the profile. Default: default-scheduler, with one
    profile.
    """
    percentage_of_nodes_to_score: Int32 | None = None
    """Overrides the field of the same name at the top. Default: that one."""
    plugins: Plugins = Plugins()
    """Changes to the default plugins."""
    plugin_config: tuple[PluginConfig, ...] = ()
    """Arguments of plugins, at most one entry for each."""

    @property
    def args(self) -> dict[str, PluginArgs | Any]:
        """The arguments given, by plugin name."""
        return {entry.name: entry.args for entry in self.plugin_config}


class ExtenderTLSConfig(Model, frozen=True):
    """TLS settings for an extender. Data override files."""

    insecure: bool = False
    """Do not verify the extender's certificate; not together with a CA. Default: false."""
    server_name: str = ""
    """The server name (SNI) to request and verify. Default: the host of urlPrefix."""
    cert_file: str = ""
    """Path of the client certificate (PEM)."""
    key_file: str = ""
    """Path of the client certificate's key (PEM)."""
    ca_file: str = ""
    """Path of the certificates to trust (PEM). Default: the system's."""
    cert_data: Base64 = ""
    """The client certificate itself: PEM, base64."""
    key_data: Base64 = ""
    """The key itself: PEM, base64. Never shown in dumps and logs."""
    ca_data: Base64 = ""
    """The certificates to trust themselves: PEM, base64."""

    def __repr__(self) -> str:
        """Without the key."""
        shown = (name for name in self.__struct_fields__ if name != "key_data")
        given = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__name__}({given})"

    @property
    def has_ca(self) -> bool:
        """Whether it has a CA."""
        return bool(self.ca_file or self.ca_data)

    @property
    def cert_pem(self) -> bytes:
        """``certData`` decoded."""
        return base64.b64decode(self.cert_data)

    @property
    def key_pem(self) -> bytes:
        """``keyData`` decoded."""
        return base64.b64decode(self.key_data)

    @property
    def ca_pem(self) -> bytes:
        """``caData`` decoded."""
        return base64.b64decode(self.ca_data)


class ExtenderManagedResource(Model, frozen=True):
    """An extended resource that an extender manages."""

    name: str = ""
    """The resource's name, such as ``example.com/gpu``."""
    ignored_by_scheduler: bool = False
    """NodeResourcesFit does not check it: the extender does. Default: false."""


class Extender(Model, frozen=True):
    """A webhook that is called while pods are scheduled (KEP-1819)."""

    url_prefix: str = ""
    """Where the extender is: each verb is appended with a slash between."""
    filter_verb: str = ""
    """Which nodes can run the pod. Default: not called."""
    preempt_verb: str = ""
    """Which victims a preemption may have. Default: not called."""
    prioritize_verb: str = ""
    """How good each node is. Default: not called."""
    weight: Int64 = 0
    """Multiplies the extender's scores; positive if there is a prioritizeVerb."""
    bind_verb: str = ""
    """Binds the pod instead of the scheduler. Default: not called."""
    enable_https: bool = msgspec.field(default=False, name="enableHTTPS")
    """Without a CA, disables the verification of the certificate; urlPrefix decides on HTTPS."""
    tls_config: ExtenderTLSConfig | None = None
    """Certificates. Default: the system's trust store."""
    http_timeout: Annotated[GoDuration, UnsetMeans(Duration.of(5))] = Duration.of(5)
    """Timeout of a call, including its answer. Default: 5s (also for 0)."""
    node_cache_capable: bool = False
    """Send node names instead of whole nodes. Default: false."""
    managed_resources: tuple[ExtenderManagedResource, ...] = ()
    """Call it only for pods that request one of these. Default: for all pods."""
    ignorable: bool = False
    """Ignore the extender if it fails. Default: false."""


def _at_least_one(profiles: tuple[KubeSchedulerProfile, ...]) -> tuple[KubeSchedulerProfile, ...]:
    """No profile means one; a single profile need not be named."""
    if not profiles:
        return (KubeSchedulerProfile(scheduler_name=DEFAULT_SCHEDULER_NAME),)
    if len(profiles) == 1 and profiles[0].scheduler_name is _UNNAMED:
        return (msgspec.structs.replace(profiles[0], scheduler_name=DEFAULT_SCHEDULER_NAME),)
    return profiles


class KubeSchedulerConfiguration(Model, frozen=True):
    """The file that kube-scheduler reads."""

    api_version: str = V1
    """``kubescheduler.config.k8s.io/v1``; required in a file."""
    kind: str = "KubeSchedulerConfiguration"
    """``KubeSchedulerConfiguration``; required in a file."""
    parallelism: Int32 = 16
    """Cycles that may wait for extenders at the same time; 1 keeps a strict order. Default: 16."""
    leader_election: LeaderElectionConfiguration = LeaderElectionConfiguration()
    """Leader election among replicas."""
    client_connection: ClientConnectionConfiguration = ClientConnectionConfiguration()
    """How to reach the API server."""
    enable_profiling: bool = True
    """Serve the debugging endpoints. Default: true."""
    enable_contention_profiling: bool = None  # type: ignore[assignment]  # see __post_init__
    """Accepted for compatibility. Default: as enableProfiling."""
    percentage_of_nodes_to_score: Int32 = 0
    """Percent of the nodes that are sent to extenders at a time, 0 to 100; 0 for kube-scheduler's adaptive number."""
    pod_initial_backoff_seconds: Int64 = 1
    """Seconds a pod waits after its first failed attempt; doubled with each. Default: 1."""
    pod_max_backoff_seconds: Int64 = 10
    """The longest such wait in seconds. Default: 10."""
    profiles: tuple[KubeSchedulerProfile, ...] = (
        KubeSchedulerProfile(scheduler_name=DEFAULT_SCHEDULER_NAME),
    )
    """The scheduler names served. Default: one profile, default-scheduler."""
    extenders: tuple[Extender, ...] = ()
    """Webhooks, shared by all profiles."""
    delay_cache_until_active: bool = False
    """Fill the caches only after becoming leader. Default: false."""

    def __post_init__(self) -> None:
        """Fills in the defaults that depend on other values."""
        msgspec.structs.force_setattr(self, "profiles", _at_least_one(self.profiles))
        if self.enable_contention_profiling not in {True, False}:
            msgspec.structs.force_setattr(
                self, "enable_contention_profiling", self.enable_profiling
            )
