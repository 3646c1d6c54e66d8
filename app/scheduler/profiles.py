"""Builds a framework for each configured profile: looks up, instantiates and orders its plugins."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from app.framework.args import Profile
from app.framework.diagnosis import EXTENDER
from app.framework.handle import WaitingPods
from app.framework.interface import AnyPlugin, Plugin
from app.framework.probe import NULL_PROBE, Probe
from app.framework.profile import ProfilePlugins, resolve_plugins
from app.framework.runner import ANY_CHANGE, Framework, ProfileHandle
from app.model.clock import Clock
from app.model.features import RECORDED, Features, Rule
from app.model.pod import Pod
from app.plugins.gang_scheduling import GangScheduling
from app.plugins.registry import capabilities
from app.settings.load import Loaded
from app.settings.models import KubeSchedulerProfile
from app.settings.problems import Finding, Path, Problem
from app.state.cache import Cache
from app.state.cluster import Cluster
from app.state.nominator import Nominator
from app.state.queue.hints import EventRegistration, with_taint_registrations
from app.state.queue.scheduling_queue import QueuePlugins, SchedulingQueue
from app.state.scheduler_state import SchedulerState
from app.state.table import NodeTable


class PluginError(Exception):
    """A plugin cannot be instantiated; the text is kube-scheduler's."""


def with_gang_scheduling(profile: Profile) -> Profile:
    """The profile with GangScheduling at PreEnqueue, which it has unless the configuration runs it already.

    kube-scheduler has the plugin with its feature gate only, so configuration files seldom name it.
    """
    names = profile.points["preEnqueue"]
    if GangScheduling.NAME in names:
        return profile
    points = {**profile.points, "preEnqueue": (*names, GangScheduling.NAME)}
    return msgspec.structs.replace(profile, points=points)


def build_framework(
    profile: Profile,
    classes: Mapping[str, type],
    *,
    table: NodeTable,
    cluster: Cluster,
    nominator: Nominator,
    rng: np.random.Generator,
    waiting: WaitingPods | None = None,
    clock: Clock | None = None,
    probe: Probe = NULL_PROBE,
    features: Features = RECORDED,
) -> Framework:
    """The framework of one profile. Raises PluginError."""
    handle = ProfileHandle(
        table,
        cluster,
        profile.scheduler_name,
        nominator=nominator,
        rng=rng,
        waiting=waiting,
        clock=clock,
        features=features,
    )
    instances = {
        name: _make(name, profile, classes, handle) for name in sorted(plugin_names([profile]))
    }
    plugins = ProfilePlugins(
        resolve_plugins(profile.points, instances),
        profile.score_weights,
        profile.placement_weights,
    )
    framework = Framework(profile.scheduler_name, plugins, table, probe)
    handle.framework = framework
    return framework


def build_state(
    profiles: Sequence[Profile],
    classes: Mapping[str, type],
    make_queue: Callable[[QueuePlugins, Nominator], SchedulingQueue] = SchedulingQueue,
    *,
    rng: np.random.Generator,
    waiting: WaitingPods | None = None,
    clock: Clock | None = None,
    probe: Probe = NULL_PROBE,
    notify: Callable[[], None] = lambda: None,
    features: Features = RECORDED,
    extended: bool = False,
    make_state: Callable[..., SchedulerState] = SchedulerState,
) -> tuple[SchedulerState, Mapping[str, Framework]]:
    """An empty state, and the frameworks by scheduler name. Raises PluginError.

    ``notify``: see SchedulerState. ``extended``: whether there are extenders. ``make_state`` is called as
    SchedulerState.
    """
    table, cluster, pods = NodeTable(), Cluster(), dict[str, Pod]()
    nominator = Nominator(pods)
    frameworks = {
        profile.scheduler_name: build_framework(
            profile,
            classes,
            table=table,
            cluster=cluster,
            nominator=nominator,
            rng=rng,
            waiting=waiting,
            clock=clock,
            probe=probe,
            features=features,
        )
        for profile in profiles
    }
    state = make_state(
        cache=Cache(table),
        cluster=cluster,
        pods=pods,
        queue=make_queue(
            queue_plugins(frameworks, extended=extended, features=features), nominator
        ),
        profiles=list(frameworks),
        notify=notify,
    )
    return state, frameworks


def queue_plugins(
    frameworks: Mapping[str, Framework], *, extended: bool = False, features: Features = RECORDED
) -> QueuePlugins:
    """The plugins' part in the queue. ``extended``: whether there are extenders."""
    first = next(iter(frameworks.values()))
    sort: AnyPlugin = first.plugins.at("queueSort")[0]  # every profile has exactly one
    checks = {
        name: [(plugin.NAME, plugin.pre_enqueue) for plugin in framework.pre_enqueue]
        for name, framework in frameworks.items()
    }
    return QueuePlugins(
        sort.sort_key,
        lambda pod: checks.get(pod.template.spec.scheduler_name, ()),
        {
            name: _hints(framework, extended=extended, features=features)
            for name, framework in frameworks.items()
        },
        own_events=Rule.OwnEvents in features.rules,
    )


def _make(
    name: str, profile: Profile, classes: Mapping[str, type], handle: ProfileHandle
) -> Plugin:
    try:
        plugin: Plugin = classes[name](profile.plugin_config.get(name), handle)
    except Exception as error:
        raise PluginError(
            f"initializing profiles: creating profile for scheduler name {profile.scheduler_name}: "
            f'initializing plugin "{name}": {error}'
        ) from error
    return plugin


def plugin_problems(
    loaded: Loaded, classes: Mapping[str, type], features: Features = RECORDED
) -> tuple[Problem, ...]:
    """The errors that instantiating each plugin raises, most likely about its arguments.

    Raises ConfigurationError if the configuration does not determine which plugins run.
    """
    profiles = loaded.to_plain(capabilities(classes), features)
    sources = loaded.settings.configuration.profiles
    findings = [
        finding
        for index, (profile, source) in enumerate(zip(profiles, sources, strict=True))
        for finding in _errors(profile, classes, ("profiles", index), source)
    ]
    return tuple(loaded.locator.problems(findings))


def _errors(
    profile: Profile, classes: Mapping[str, type], path: Path, source: KubeSchedulerProfile
) -> Iterator[Finding]:
    handle = ProfileHandle(NodeTable(), Cluster(), profile.scheduler_name)
    places = {entry.name: index for index, entry in enumerate(source.plugin_config)}
    for name in sorted(plugin_names([profile])):
        try:
            _make(name, profile, classes, handle)
        except PluginError as error:
            at = ("pluginConfig", places[name], "args") if name in places else ("plugins",)
            yield Finding((*path, *at), str(error))


def plugin_names(profiles: Iterable[Profile]) -> frozenset[str]:
    """The names of all plugins that any profile runs."""
    return frozenset(
        name for profile in profiles for names in profile.points.values() for name in names
    )


def _hints(
    framework: Framework, *, extended: bool, features: Features
) -> tuple[EventRegistration, ...]:
    """The registrations of a profile. Extenders do not say what their pods wait for, so any event wakes these.

    See docs/spec/cluster-events.md#registration.
    """
    given = framework.queueing_hints()
    if extended:
        given += [msgspec.structs.replace(each, plugin=EXTENDER) for each in ANY_CHANGE]
    if Rule.TaintsWakeFew in features.rules:
        return tuple(given)
    return with_taint_registrations(given)
