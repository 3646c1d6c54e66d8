"""Whatever a file holds, it is valid or its mistakes are listed; nothing else comes out."""

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.settings.check import Checked, as_text
from app.settings.dump import to_yaml
from app.settings.load import load
from app.settings.problems import ConfigurationError

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 101),
    st.just(2**70),
    st.just(1.5),
    st.sampled_from(
        ["", "*", "5s", "-1s", "x", "List", "MostAllocated", "In", "http://a", "e.com/a"]
    ),
)
PLUGIN_NAMES = st.sampled_from(
    [
        "NodeResourcesFit",
        "NodeAffinity",
        "PodTopologySpread",
        "NodeResourcesLeastAllocated",
        "NodeResourcesMostAllocated",
        "RequestedToCapacityRatio",
        "SelectorSpread",
        "EBSLimits",
        "Mine",
        "*",
    ]
)
KEYS = st.sampled_from(
    [
        "apiVersion",
        "kind",
        "parallelism",
        "leaderElection",
        "leaseDuration",
        "clientConnection",
        "profiles",
        "schedulerName",
        "plugins",
        "score",
        "filter",
        "multiPoint",
        "unreserve",
        "reserve",
        "enabled",
        "disabled",
        "name",
        "weight",
        "pluginConfig",
        "args",
        "scoringStrategy",
        "type",
        "resources",
        "shape",
        "utilization",
        "requestedToCapacityRatio",
        "addedAffinity",
        "defaultConstraints",
        "maxSkew",
        "extenders",
        "urlPrefix",
        "prioritizeVerb",
        "bindVerb",
        "enableHttps",
        "enableHTTPS",
        "tlsConfig",
        "caData",
        "keyData",
        "httpTimeout",
        "managedResources",
        "ignoredByScheduler",
        "healthzBindAddress",
        "disablePreemption",
        "resourceLock",
        "ignoredResources",
        "breaker",
        "foo",
    ]
)
JSON = st.recursive(
    SCALARS | PLUGIN_NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def plausible(values):
    """Documents that look like a configuration down to a random depth."""
    plugin = st.fixed_dictionaries({"name": PLUGIN_NAMES | values}, optional={"weight": values})
    plugin_set = st.fixed_dictionaries(
        {},
        optional={"enabled": st.lists(plugin, max_size=3) | values, "disabled": st.lists(plugin)},
    )
    config = st.fixed_dictionaries({"name": PLUGIN_NAMES | values}, optional={"args": values})
    profile = st.fixed_dictionaries(
        {},
        optional={
            "schedulerName": values,
            "plugins": st.dictionaries(
                st.sampled_from(["score", "filter", "multiPoint", "reserve", "unreserve"]),
                plugin_set | values,
                max_size=3,
            ),
            "pluginConfig": st.lists(config | values, max_size=3),
        },
    )
    return st.fixed_dictionaries(
        {
            "apiVersion": st.sampled_from(["v1", "v1beta1", "v1beta2", "v1beta3"]).map(
                "kubescheduler.config.k8s.io/{}".format
            ),
            "kind": st.just("KubeSchedulerConfiguration"),
        },
        optional={
            "profiles": st.lists(profile | values, max_size=3) | values,
            "extenders": st.lists(st.dictionaries(KEYS, values, max_size=5) | values, max_size=2),
            "leaderElection": values,
            "disablePreemption": values,
            "healthzBindAddress": values,
        },
    )


def outcome(text):
    try:
        return load(text)
    except ConfigurationError as error:
        return error


def in_full(checked):
    """With its profiles, or what is wrong with their plugins."""
    try:
        profiles = checked.result.to_plain()
    except ConfigurationError as error:
        return msgspec.structs.replace(checked, result=error)
    return msgspec.structs.replace(checked, profiles=profiles)


@given(plausible(JSON))
@settings(max_examples=100)
def test_documents(document):
    result = outcome(json.dumps(document))
    checked = Checked("f", json.dumps(document), result)
    text = as_text(checked if isinstance(result, ConfigurationError) else in_full(checked))
    if isinstance(result, ConfigurationError):
        assert result.problems
        assert all(problem.message and problem.render("f") in text for problem in result.problems)
    else:
        assert load(to_yaml(result.settings, redact=False)).settings.extension is not None


@given(JSON)
@settings(max_examples=40)
def test_any_json(document):
    assert isinstance(outcome(json.dumps(document)), ConfigurationError)


@given(st.text(max_size=60))
@settings(max_examples=60)
def test_any_text(text):
    assert isinstance(outcome(text), ConfigurationError)


@pytest.mark.parametrize(
    "text", ["\x00", "a\n b\n: c", "%YAML 9.9\n---\n", "{", "}", "'", "- - -", "&a"]
)
def test_some_texts(text):
    assert isinstance(outcome(text), ConfigurationError)
