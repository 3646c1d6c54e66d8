"""Merging of plugin sets: kube-scheduler's rules, its errors, and what must hold whatever is configured."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.settings.defaults import DEFAULT_MULTI_POINT, EXTENSION_POINTS, IN_TREE_CAPABILITIES
from app.settings.models import KubeSchedulerProfile, Plugin, Plugins, PluginSet
from app.settings.plugins import (
    NOT_LOADED,
    merge_plugin_set,
    merge_plugins,
    overflows,
    resolve,
    score_weights,
)
from app.settings.problems import ConfigurationError, render_path
from tests.core.settings.kit import loaded, short

DEFAULTS = tuple(name for name, _ in DEFAULT_MULTI_POINT)

CAPABILITIES = {
    **IN_TREE_CAPABILITIES,
    "Foo": frozenset({"filter", "score"}),
    "Bar": frozenset({"score"}),
    "Sort": frozenset({"queueSort"}),
    "Bind": frozenset({"bind"}),
    "Everything": frozenset(EXTENSION_POINTS) - {"queueSort"},
}


def entries(*items):
    return tuple(
        Plugin(name=item[0], weight=item[1]) if isinstance(item, tuple) else Plugin(name=item)
        for item in items
    )


def plugin_set(enabled=(), disabled=()):
    return PluginSet(enabled=entries(*enabled), disabled=entries(*disabled))


def listed(merged):
    """A set's enabled plugins as (name, weight), or the name alone without a weight."""
    return [(p.name, p.weight) if p.weight else p.name for p in merged.enabled]


def points(**sets):
    """The lists of a profile with these sets, by extension point."""
    profile = KubeSchedulerProfile(scheduler_name="s", plugins=Plugins(**sets))
    resolution = resolve([profile], CAPABILITIES)
    assert resolution.findings == ()
    return resolution.profiles[0].points


def errors(*profiles):
    """What is wrong with profiles given by their sets: (path, text without the wrapping)."""
    named = [
        KubeSchedulerProfile(scheduler_name=f"s{index}", plugins=Plugins(**sets))
        for index, sets in enumerate(profiles)
    ]
    return [
        (
            render_path(finding.path),
            finding.message.removeprefix("initializing profiles: ").removeprefix(
                "creating profile for scheduler name s0: "
            ),
        )
        for finding in resolve(named, CAPABILITIES).findings
    ]


# ---------------------------------------------------------------- the defaults
# See docs/spec/configuration.md#default-plugins-by-extension-point.


def test_default_order_of_every_extension_point():
    assert points() == {
        "preEnqueue": ("SchedulingGates", "DynamicResources", "DefaultPreemption"),
        "queueSort": ("PrioritySort",),
        "preFilter": (
            "NodeAffinity",
            "NodePorts",
            "NodeResourcesFit",
            "VolumeRestrictions",
            "NodeVolumeLimits",
            "VolumeBinding",
            "VolumeZone",
            "PodTopologySpread",
            "InterPodAffinity",
            "DynamicResources",
            "NodeDeclaredFeatures",
        ),
        "filter": (
            "NodeUnschedulable",
            "NodeName",
            "TaintToleration",
            "NodeAffinity",
            "NodePorts",
            "NodeResourcesFit",
            "VolumeRestrictions",
            "NodeVolumeLimits",
            "VolumeBinding",
            "VolumeZone",
            "PodTopologySpread",
            "InterPodAffinity",
            "DynamicResources",
            "NodeDeclaredFeatures",
        ),
        "postFilter": ("DynamicResources", "DefaultPreemption"),
        "preScore": (
            "TaintToleration",
            "NodeAffinity",
            "NodeResourcesFit",
            "VolumeBinding",
            "PodTopologySpread",
            "InterPodAffinity",
            "NodeResourcesBalancedAllocation",
        ),
        "score": (
            "TaintToleration",
            "NodeAffinity",
            "NodeResourcesFit",
            "VolumeBinding",
            "PodTopologySpread",
            "InterPodAffinity",
            "DynamicResources",
            "NodeResourcesBalancedAllocation",
            "ImageLocality",
        ),
        "reserve": ("VolumeBinding", "DynamicResources"),
        "permit": (),
        "preBind": ("VolumeBinding", "DynamicResources"),
        "bind": ("DefaultBinder",),
        "postBind": (),
        "placementGenerate": (),
        "placementScore": ("NodeResourcesFit",),
    }


TOPOLOGY = {"TopologyAwareWorkloadScheduling"}


def placing(features=TOPOLOGY, **sets):
    """The plugins of both points for placements with this gate, and their weights."""
    profile = KubeSchedulerProfile(scheduler_name="s", plugins=Plugins(**sets))
    [resolved] = resolve([profile], CAPABILITIES, features).profiles
    generators, scorers = (resolved.points[f"placement{end}"] for end in ("Generate", "Score"))
    return generators, {name: resolved.placement_weights[name] for name in scorers}


def test_a_feature_gate_adds_default_plugins():
    assert placing(()) == ((), {"NodeResourcesFit": 1})
    scorers = {"NodeResourcesFit": 1, "PodGroupPodsCount": 1}
    assert placing() == (("TopologyPlacementGenerator",), scorers)


def test_plugins_of_a_feature_gate_can_be_disabled_and_weighted():
    off = plugin_set((), ["TopologyPlacementGenerator"])
    assert placing(multi_point=off)[0] == ()
    assert placing(placement_generate=off)[0] == ()
    weighted = plugin_set([("PodGroupPodsCount", 7)], ["NodeResourcesFit"])
    assert placing(placement_score=weighted)[1] == {"PodGroupPodsCount": 7}
    both = plugin_set([("NodeResourcesFit", 3), ("PodGroupPodsCount", 5)])
    assert placing(multi_point=both)[1] == {"NodeResourcesFit": 3, "PodGroupPodsCount": 5}


def test_weights_of_placements_can_overflow_too():
    [(path, said)] = errors(
        {"placement_score": plugin_set([("NodeResourcesFit", -1), "PodGroupPodsCount"])}
    )
    assert path == "profiles[0].plugins.placementScore.enabled[0].weight"
    assert said.startswith("placement score plugins: total score of Score plugins could overflow")


def test_default_weights():
    (profile,) = loaded().to_plain()
    assert profile.score_weights == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "VolumeBinding": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "DynamicResources": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
    }


# ---------------------------------------------------------------- step A


@pytest.mark.parametrize(
    ("default", "custom", "expected"),
    [
        pytest.param(plugin_set(["A", "B"]), plugin_set(), ["A", "B"], id="nothing"),
        pytest.param(plugin_set(["A"]), plugin_set(["X", "Y"]), ["A", "X", "Y"], id="appended"),
        pytest.param(
            plugin_set([("A", 1), ("B", 2)]),
            plugin_set(["X", ("A", 5)]),
            [("A", 5), ("B", 2), "X"],
            id="replaced in place",
        ),
        pytest.param(
            plugin_set([("A", 3)]), plugin_set(["A"]), ["A"], id="listed again: weight lost"
        ),
        pytest.param(
            plugin_set(["A", "B"]),
            plugin_set([("A", 1), ("A", 2)]),
            [("A", 2), "B", ("A", 1)],
            id="the last one replaces, the others stay for the error",
        ),
        pytest.param(plugin_set(["A", "B"]), plugin_set([], ["A", "Z"]), ["B"], id="disabled"),
        pytest.param(plugin_set(["A", "B"]), plugin_set(["X"], ["*"]), ["X"], id="star"),
        pytest.param(
            plugin_set(["A", "B"]),
            plugin_set([("A", 9)], ["A"]),
            ["B", ("A", 9)],
            id="disabled and enabled: at the end",
        ),
        pytest.param(
            plugin_set(["A", "B"], ["B"]), plugin_set(), ["A"], id="disabled by the defaults"
        ),
    ],
)
def test_merging_with_the_defaults(default, custom, expected):
    assert listed(merge_plugin_set(default, custom)) == expected


def test_disabled_names_are_kept_for_step_b():
    merged = merge_plugin_set(plugin_set(["A"], ["D"]), plugin_set([], [("B", 3), "*"]))
    assert merged.disabled == entries("B", "*", "D")


# ---------------------------------------------------------------- step B


def test_a_star_at_a_point_leaves_only_its_own_plugins():
    assert points(score=plugin_set(["Foo"], ["*"]))["score"] == ("Foo",)
    assert points(score=plugin_set([], ["*"]))["score"] == ()
    assert "TaintToleration" in points(score=plugin_set([], ["*"]))["filter"]


def test_overrides_come_first_then_multi_point_then_the_rest():
    score = points(score=plugin_set(["Foo", "ImageLocality", "Bar", "NodeAffinity"]))["score"]
    assert score[:2] == ("ImageLocality", "NodeAffinity")
    assert score[-2:] == ("Foo", "Bar")
    assert score[2] == "TaintToleration"


def test_disabled_at_one_point_only():
    lists = points(filter=plugin_set([], ["NodeAffinity"]))
    assert "NodeAffinity" not in lists["filter"]
    assert "NodeAffinity" in lists["score"]


def test_enabled_and_disabled_at_a_point_runs_last():
    assert points(filter=plugin_set(["NodeAffinity"], ["NodeAffinity"]))["filter"][-1] == (
        "NodeAffinity"
    )


def test_multi_point_spreads_a_plugin_over_what_it_implements():
    lists = points(multi_point=plugin_set(["Foo"]))
    assert [point for point, names in lists.items() if "Foo" in names] == ["filter", "score"]


def test_everything_disabled_and_built_anew():
    lists = points(
        multi_point=plugin_set(["Foo"], ["*"]),
        queue_sort=plugin_set(["Sort"]),
        bind=plugin_set(["Bind"]),
    )
    assert {point: names for point, names in lists.items() if names} == {
        "queueSort": ("Sort",),
        "bind": ("Bind",),
        "filter": ("Foo",),
        "score": ("Foo",),
    }


@pytest.mark.parametrize(
    ("sets", "name", "weight"),
    [
        ({"score": plugin_set([("Foo", 7)])}, "Foo", 7),
        ({"score": plugin_set(["Foo"])}, "Foo", 1),
        ({"multi_point": plugin_set([("Foo", 4)])}, "Foo", 4),
        ({"score": plugin_set([("Foo", 7)]), "multi_point": plugin_set([("Foo", 4)])}, "Foo", 7),
        ({"score": plugin_set(["TaintToleration"])}, "TaintToleration", 1),
        ({"multi_point": plugin_set([("TaintToleration", 9)])}, "TaintToleration", 9),
        ({"score": plugin_set([("Foo", -2)])}, "Foo", -2),
    ],
)
def test_weights(sets, name, weight):
    profile = KubeSchedulerProfile(scheduler_name="s", plugins=Plugins(**sets))
    assert resolve([profile], CAPABILITIES).profiles[0].score_weights[name] == weight


def test_the_total_score_may_not_overflow():
    largest = (2**63 - 1) // 100
    assert not overflows([largest])
    assert overflows([largest, 1])
    assert not overflows([])
    assert overflows([-1, 1])
    assert not overflows([1, -2])


def test_a_negative_weight_before_others_is_refused():
    plugins = Plugins(score=plugin_set([("ImageLocality", -3)]))
    profile = KubeSchedulerProfile(scheduler_name="s", plugins=plugins)
    (finding,) = resolve([profile], CAPABILITIES).findings
    assert finding.message == (
        "initializing profiles: creating profile for scheduler name s: "
        "score plugins: total score of Score plugins could overflow: ImageLocality has the weight -3"
    )


# ---------------------------------------------------------------- errors


def missing(kind, name):
    return f'{kind} "{name}" does not exist; {NOT_LOADED}'


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        pytest.param(
            {"score": plugin_set(["Nope"])},
            [("profiles[0].plugins.score.enabled[0]", missing("ScorePlugin", "Nope"))],
            id="unknown at a point",
        ),
        pytest.param(
            {"multi_point": plugin_set(["Foo", "Nope"])},
            [
                (
                    "profiles[0].plugins.multiPoint.enabled[1]",
                    missing("PreFilterPlugin", "Nope"),
                )
            ],
            id="unknown in multiPoint: named after the first point",
        ),
        pytest.param(
            {"multi_point": plugin_set(["Nope"]), "pre_filter": plugin_set([], ["*"])},
            [("profiles[0].plugins.multiPoint.enabled[0]", missing("FilterPlugin", "Nope"))],
            id="unknown in multiPoint, first point closed",
        ),
        pytest.param(
            {"score": plugin_set(["NodeName"])},
            [
                (
                    "profiles[0].plugins.score.enabled[0]",
                    'plugin "NodeName" does not extend ScorePlugin plugin',
                )
            ],
            id="wrong point",
        ),
        pytest.param(
            {"score": plugin_set(["Foo", "Bar", "Foo"])},
            [
                (
                    "profiles[0].plugins.score.enabled[2]",
                    'plugin "Foo" already registered as "ScorePlugin"',
                )
            ],
            id="twice at a point",
        ),
        pytest.param(
            {"multi_point": plugin_set(["Foo", "Foo"])},
            [
                (
                    "profiles[0].plugins.multiPoint.enabled[1]",
                    'plugin "Foo" already registered as "FilterPlugin"',
                )
            ],
            id="twice in multiPoint",
        ),
        pytest.param(
            {"queue_sort": plugin_set([], ["*"])},
            [
                (
                    "profiles[0].plugins.queueSort",
                    'only one queue sort plugin required for profile with scheduler name "s0", but got 0',
                )
            ],
            id="no queue sort",
        ),
        pytest.param(
            {"queue_sort": plugin_set(["Sort"])},
            [
                (
                    "profiles[0].plugins.queueSort",
                    'only one queue sort plugin required for profile with scheduler name "s0", but got 2',
                )
            ],
            id="two queue sorts",
        ),
        pytest.param(
            {"multi_point": plugin_set([], ["DefaultBinder"])},
            [
                (
                    "profiles[0].plugins.bind",
                    'at least one bind plugin is needed for profile with scheduler name "s0"',
                )
            ],
            id="no bind",
        ),
        pytest.param(
            {
                "score": plugin_set(["Nope", "NodeName"]),
                "multi_point": plugin_set(["Nada"], ["PrioritySort", "DefaultBinder"]),
            },
            [
                (
                    "profiles[0].plugins.multiPoint.enabled[0]",
                    missing("PreFilterPlugin", "Nada"),
                ),
                ("profiles[0].plugins.score.enabled[0]", missing("ScorePlugin", "Nope")),
                (
                    "profiles[0].plugins.score.enabled[1]",
                    'plugin "NodeName" does not extend ScorePlugin plugin',
                ),
                (
                    "profiles[0].plugins.queueSort",
                    'only one queue sort plugin required for profile with scheduler name "s0", but got 0',
                ),
                (
                    "profiles[0].plugins.bind",
                    'at least one bind plugin is needed for profile with scheduler name "s0"',
                ),
            ],
            id="all at once",
        ),
        pytest.param(
            {
                "queue_sort": plugin_set(["Coscheduling"], ["*"]),
                "permit": plugin_set(["Coscheduling"]),
                "score": plugin_set(["ImageLocalty"]),
            },
            [
                (
                    "profiles[0].plugins.score.enabled[0]",
                    'ScorePlugin "ImageLocalty" does not exist; did you mean "ImageLocality"?',
                ),
                (
                    "profiles[0].plugins.permit.enabled[0]",
                    missing("PermitPlugin", "Coscheduling"),
                ),
                (
                    "profiles[0].plugins.queueSort.enabled[0]",
                    'QueueSortPlugin "Coscheduling" does not exist',
                ),
            ],
            id="what to do is said once, what follows is not",
        ),
    ],
)
def test_errors(sets, expected):
    assert errors(sets) == expected


def test_profiles_must_sort_alike():
    other = {"queue_sort": plugin_set(["Sort"], ["PrioritySort"])}
    assert errors({}, other) == [
        (
            "profiles[1].plugins.queueSort",
            'different queue sort plugins for profile "s1": "Sort", first: "PrioritySort"',
        )
    ]


def test_errors_stand_in_the_file_and_are_wrapped_as_by_kube_scheduler():
    config = loaded("""\
        profiles:
        - schedulerName: mine
          plugins:
            filter:
              enabled:
              - name: Nope
        """)
    with pytest.raises(ConfigurationError) as caught:
        config.to_plain()
    assert [short(problem) for problem in caught.value.problems] == [
        "8: profiles[0].plugins.filter.enabled[0]: initializing profiles: creating profile for scheduler name mine: "
        + missing("FilterPlugin", "Nope")
    ]


# ---------------------------------------------------------------- whatever is configured

NAMES = st.sampled_from(["Foo", "Bar", "Everything", "Nope", *DEFAULTS[:6], "ImageLocality"])
PLUGINS = st.builds(Plugin, name=NAMES, weight=st.integers(-3, 5))
UNIQUE = st.lists(PLUGINS, max_size=6, unique_by=lambda plugin: plugin.name).map(tuple)
DISABLED = st.lists(st.sampled_from(["*", "Foo", "Nope", *DEFAULTS]), max_size=4).map(
    lambda names: entries(*names)
)
ANY_SET = st.builds(PluginSet, enabled=st.lists(PLUGINS, max_size=6).map(tuple), disabled=DISABLED)
UNIQUE_SET = st.builds(PluginSet, enabled=UNIQUE, disabled=DISABLED)
ANY_PLUGINS = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("filter", "score", "pre_score", "multi_point", "bind"), ANY_SET),
).map(lambda sets: Plugins(**sets))


@given(UNIQUE_SET, UNIQUE_SET)
def test_merging_twice_changes_nothing(default, custom):
    once = merge_plugin_set(default, custom)
    assert merge_plugin_set(default, once).enabled == once.enabled


@given(UNIQUE_SET, ANY_SET)
def test_merging_loses_no_entry_and_keeps_the_defaults_order(default, custom):
    merged = merge_plugin_set(default, custom)
    disabled = {plugin.name for plugin in merged.disabled}
    kept = [p.name for p in default.enabled if not {p.name, "*"} & disabled]
    assert [p.name for p in merged.enabled][: len(kept)] == kept
    for plugin in custom.enabled:
        assert merged.enabled.count(plugin) >= custom.enabled.count(plugin)
    replaced = set(kept) & {plugin.name for plugin in custom.enabled}
    assert len(merged.enabled) == len(kept) + len(custom.enabled) - len(replaced)


@given(ANY_PLUGINS)
@settings(max_examples=50)
def test_lists_hold_what_was_asked_for_once_each(plugins):
    profile = KubeSchedulerProfile(scheduler_name="s", plugins=plugins)
    resolved = resolve([profile], CAPABILITIES).profiles[0]
    merged = merge_plugins(plugins)
    multi = {plugin.name for plugin in merged.multi_point.enabled}
    for point in EXTENSION_POINTS:
        explicit = {plugin.name for plugin in merged.at(point).enabled}
        disabled = {plugin.name for plugin in merged.at(point).disabled}
        wanted = explicit | (set() if "*" in disabled else multi - disabled)
        able = {name for name in wanted if point in CAPABILITIES.get(name, ())}
        assert set(resolved.points[point]) == able
        assert len(resolved.points[point]) == len(able)
    assert resolved.score_weights.keys() == set(resolved.points["score"])
    assert 0 not in resolved.score_weights.values()


@given(ANY_PLUGINS)
@settings(max_examples=50)
def test_weights_come_from_the_first_mention(plugins):
    merged = merge_plugins(plugins)
    weights = score_weights(merged, CAPABILITIES)
    for name, weight in weights.items():
        mentions = [
            plugin
            for plugin in (*merged.score.enabled, *merged.multi_point.enabled)
            if plugin.name == name
        ]
        assert weight == (mentions[0].weight or 1)


@given(ANY_PLUGINS)
@settings(max_examples=50)
def test_spelling_the_merged_sets_out_means_the_same(plugins):
    spelt_out = merge_plugins(plugins)
    names = [plugin.name for plugin in plugins.multi_point.enabled]
    if len(names) != len(set(names)):
        return
    given_profile = KubeSchedulerProfile(scheduler_name="s", plugins=plugins)
    full_profile = KubeSchedulerProfile(scheduler_name="s", plugins=spelt_out)
    assert (
        resolve([given_profile], CAPABILITIES).profiles
        == resolve([full_profile], CAPABILITIES).profiles
    )
