"""The state and the frameworks of a shadow, without a queue that pods are popped from."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from app.framework.args import Profile as PlainProfile
from app.framework.runner import Framework
from app.model.features import RECORDED, RULES, Features, Rule
from app.model.pod import Pod
from app.plugins.args import DefaultPreemptionArgs
from app.plugins.default_preemption import DefaultPreemption
from app.plugins.registry import IN_TREE
from app.scheduler.profiles import build_framework
from app.settings.load import Loaded, Settings
from app.state.cache import Cache
from app.state.cluster import Cluster
from app.state.nominator import Nominator
from app.state.queue.scheduling_queue import QueuePlugins, SchedulingQueue
from app.state.scheduler_state import SchedulerState
from app.state.table import NodeTable
from app.tools.shadow.judge import Alternative, JudgedProfile

_PREEMPTION: Final = "DefaultPreemption"
#: All candidates are looked for, so that the chosen one is among them.
_ALL_CANDIDATES: Final = DefaultPreemptionArgs(min_candidate_nodes_percentage=100)


class _PausingPreemption(DefaultPreemption):
    """A search that lets other tasks run: the table of a shadow does not change in a pause of the judge."""

    ROWS_AT_ONCE = 256


class ShadowWorld(NamedTuple):
    """A state, and its profiles by scheduler name."""

    state: SchedulerState
    profiles: Mapping[str, JudgedProfile]


def make_world(
    profiles: Sequence[PlainProfile],
    classes: Mapping[str, type],
    rng: np.random.Generator,
    features: Features = RECORDED,
    theirs: Features | None = None,
) -> ShadowWorld:
    """An empty world. Raises PluginError.

    ``features``: the rules that hold here, ``theirs`` those of the cluster's version; None: the same.
    """
    if classes.get(_PREEMPTION) is DefaultPreemption:
        classes = {**classes, _PREEMPTION: _PausingPreemption}
    table, cluster, pods = NodeTable(), Cluster(), dict[str, Pod]()
    nominator = Nominator(pods)

    def build(
        profile: PlainProfile, plugins: Collection[str] = (), otherwise: Collection[Rule] = ()
    ) -> Framework:
        return build_framework(
            _with_all_candidates(profile),
            {**classes, **{name: IN_TREE[name] for name in plugins if name in IN_TREE}},
            table=table,
            cluster=cluster,
            nominator=nominator,
            rng=rng,
            features=msgspec.structs.replace(features, rules=features.rules ^ set(otherwise)),
        )

    changed = () if theirs is None else features.changed_to(theirs)
    made: dict[str, JudgedProfile] = {}
    for profile in profiles:
        preemption = profile.plugin_config.get(_PREEMPTION)
        made[profile.scheduler_name] = JudgedProfile(
            build(profile),
            profile.percentage_of_nodes_to_score or 0,
            [
                *(Alternative((), build(profile, (), some), some) for some in _sets(changed)),
                *_alternatives(profile, classes, build),
            ],
            preemption
            if isinstance(preemption, DefaultPreemptionArgs)
            else DefaultPreemptionArgs(),
        )
    state = SchedulerState(
        cache=Cache(table),
        cluster=cluster,
        pods=pods,
        queue=SchedulingQueue(QueuePlugins(lambda queued: queued.timestamp), nominator),
        profiles=list(made),
    )
    return ShadowWorld(state, made)


def _sets(rules: Sequence[Rule]) -> list[tuple[Rule, ...]]:
    """The rules that change decisions by plugins, each alone, then all of them."""
    deciding = tuple(rule for rule in rules if RULES[rule].plugins)
    return [*((rule,) for rule in deciding), *([deciding] if len(deciding) > 1 else [])]


def _with_all_candidates(profile: PlainProfile) -> PlainProfile:
    config = {**profile.plugin_config, _PREEMPTION: _ALL_CANDIDATES}
    return msgspec.structs.replace(profile, plugin_config=config)


def _alternatives(
    profile: PlainProfile,
    classes: Mapping[str, type],
    build: Callable[[PlainProfile, Collection[str]], Framework],
) -> list[Alternative]:
    """For each plugin that is not as by default: the profile with the default for it; then with all of these
    defaults."""
    default = Loaded(Settings()).to_plain()[0]
    names = sorted(
        name
        for name in _all_plugins(profile, default)
        if name != _PREEMPTION
        and (_differs(name, profile, default) or classes.get(name) is not IN_TREE.get(name))
    )
    sets = [(name,) for name in names] + ([tuple(names)] if len(names) > 1 else [])
    return [Alternative(some, build(_as_default(some, profile, default), some)) for some in sets]


def _all_plugins(*profiles: PlainProfile) -> set[str]:
    return {name for p in profiles for names in p.points.values() for name in names}


def _differs(name: str, profile: PlainProfile, default: PlainProfile) -> bool:
    return (
        any((name in names) != (name in default.points[at]) for at, names in profile.points.items())
        or profile.score_weights.get(name) != default.score_weights.get(name)
        or profile.plugin_config.get(name) != default.plugin_config.get(name)
    )


def _as_default(
    plugins: Sequence[str], profile: PlainProfile, default: PlainProfile
) -> PlainProfile:
    """The profile with the default settings of some plugins."""

    def names_at(point: str, names: Sequence[str]) -> tuple[str, ...]:
        wanted = [n for n in names if n not in plugins]
        wanted += [n for n in default.points[point] if n in plugins]
        order = {name: place for place, name in enumerate(default.points[point])}
        return tuple(sorted(wanted, key=lambda name: order.get(name, len(order))))

    weights = {n: w for n, w in profile.score_weights.items() if n not in plugins}
    config = {n: c for n, c in profile.plugin_config.items() if n not in plugins}
    return msgspec.structs.replace(
        profile,
        points={point: names_at(point, names) for point, names in profile.points.items()},
        score_weights=weights | {n: w for n, w in default.score_weights.items() if n in plugins},
        plugin_config=config | {n: c for n, c in default.plugin_config.items() if n in plugins},
    )
