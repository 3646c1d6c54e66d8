"""Shapes and types: what pydantic finds, in kube-scheduler's words."""

from contextlib import suppress
from random import Random

import msgspec
import pytest

from app.settings.extension import AiokubeSchedulerConfiguration
from app.settings.mistakes import find_mistakes
from app.settings.models import ExtenderTLSConfig, KubeSchedulerConfiguration
from app.settings.problems import Locator, Problem, closest, render_path
from tests.core.settings.kit import loaded, mistakes, v1
from tests.fuzz.configurations import EXTENSION, MAIN

SHAPES = {
    "integer": ("parallelism: x", '3: parallelism: Invalid value: "x": must be an integer'),
    "quoted integer": (
        "parallelism: '16'",
        '3: parallelism: Invalid value: "16": must be an integer',
    ),
    "whole float": ("parallelism: 5.0", "3: parallelism: Invalid value: 5.0: must be an integer"),
    "boolean for integer": (
        "parallelism: true",
        "3: parallelism: Invalid value: true: must be an integer",
    ),
    "int32": (
        "parallelism: 2147483648",
        "3: parallelism: Invalid value: 2147483648: must be less than or equal to 2147483647",
    ),
    "int64": (
        "podMaxBackoffSeconds: -9223372036854775809",
        "3: podMaxBackoffSeconds: Invalid value: -9223372036854775809: "
        "must be greater than or equal to -9223372036854775808",
    ),
    "boolean": (
        "enableProfiling: 'true'",
        '3: enableProfiling: Invalid value: "true": must be true or false',
    ),
    "number": (
        "clientConnection: {qps: '5'}",
        '3: clientConnection.qps: Invalid value: "5": must be a number',
    ),
    "infinite": (
        "clientConnection: {qps: .inf}",
        "3: clientConnection.qps: Invalid value: Infinity: must be a finite number",
    ),
    "string": (
        "leaderElection: {resourceName: 5}",
        "3: leaderElection.resourceName: Invalid value: 5: must be a string",
    ),
    "list": ("extenders: {}", "3: extenders: Invalid value: {}: must be a list"),
    "mapping": (
        "leaderElection: [1]",
        "3: leaderElection: Invalid value: [1]: must be a mapping",
    ),
    "mapping in a list": (
        "profiles: [x]",
        '3: profiles[0]: Invalid value: "x": must be a mapping',
    ),
    "null in a list": (
        "extenders:\n-\n- {urlPrefix: http://a, filterVerb: f}\n",
        "4: extenders[0]: Invalid value: null: must be a mapping",
    ),
    "duration as a number": (
        "leaderElection: {leaseDuration: 15}",
        '3: leaderElection.leaseDuration: Invalid value: 15: must be a duration such as "5s" or "1m30s"',
    ),
    "duration without unit": (
        "leaderElection: {leaseDuration: '15'}",
        '3: leaderElection.leaseDuration: Invalid value: "15": time: missing unit in duration "15"',
    ),
    "timeout as a fraction": (
        "extenders: [{urlPrefix: http://a, filterVerb: f, httpTimeout: 1.5}]",
        '3: extenders[0].httpTimeout: Invalid value: 1.5: must be a duration such as "5s" or "1m30s"',
    ),
    "base64": (
        "extenders: [{urlPrefix: http://a, filterVerb: f, tlsConfig: {caData: '?'}}]",
        '3: extenders[0].tlsConfig.caData: Invalid value: "?": must be base64',
    ),
    "a key that is no base64 is not shown": (
        "extenders: [{urlPrefix: http://a, filterVerb: f, tlsConfig: {keyData: 'my secret'}}]",
        "3: extenders[0].tlsConfig.keyData: Invalid value: must be base64",
    ),
    "nor is a key in the wrong place": (
        "extenders: {tlsConfig: {keyData: my secret}}",
        '3: extenders: Invalid value: {"tlsConfig":{"keyData":"REDACTED"}}: must be a list',
    ),
    "a long value is cut": (
        f"parallelism: {'x' * 300}",
        f'3: parallelism: Invalid value: "{"x" * 199}...: must be an integer',
    ),
    "unknown field": ("foo: 1", '3: foo: unknown field "foo"'),
    "another case": (
        "Parallelism: 1",
        '3: Parallelism: unknown field "Parallelism"; did you mean "parallelism"?',
    ),
    "python's name": (
        "leader_election: {}",
        '3: leader_election: unknown field "leader_election"; did you mean "leaderElection"?',
    ),
    "unknown extension point": (
        "profiles: [{plugins: {scores: {}}}]",
        '3: profiles[0].plugins.scores: unknown field "profiles[0].plugins.scores"; did you mean "score"?',
    ),
    "the KEP's spelling": (
        "extenders: [{urlPrefix: http://a, filterVerb: f, enableHttps: true}]",
        '3: extenders[0].enableHttps: unknown field "extenders[0].enableHttps"; did you mean "enableHTTPS"?',
    ),
    "inside arguments": (
        """\
        profiles:
        - pluginConfig:
          - name: NodeAffinity
          - name: NodeResourcesFit
            args:
              scoringStrategy:
                type: MostAllocated
                resources:
                - Name: cpu
        """,
        "11: profiles[0].pluginConfig[1].args.scoringStrategy.resources[0].Name: unknown field "
        '"profiles[0].pluginConfig[1].args.scoringStrategy.resources[0].Name"; did you mean "name"?',
    ),
    "another plugin's argument is no hint": (
        "profiles: [{pluginConfig: [{name: InterPodAffinity, args: {bindTimeoutSecond: 1}}]}]",
        "3: profiles[0].pluginConfig[0].args.bindTimeoutSecond: unknown field "
        '"profiles[0].pluginConfig[0].args.bindTimeoutSecond"',
    ),
    "arguments as a list": (
        "profiles: [{pluginConfig: [{name: InterPodAffinity, args: [1]}]}]",
        "3: profiles[0].pluginConfig[0].args: Invalid value: [1]: must be a mapping",
    ),
    "list of strings": (
        "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {ignoredResources: [a, 1, {}]}}]}]",
        "3: profiles[0].pluginConfig[0].args.ignoredResources[1]: Invalid value: 1: must be a string",
        "3: profiles[0].pluginConfig[0].args.ignoredResources[2]: Invalid value: {}: must be a string",
    ),
}


@pytest.mark.parametrize(
    ("body", "expected"),
    [pytest.param(body, expected, id=name) for name, (body, *expected) in SHAPES.items()],
)
def test_shape(body, expected):
    assert mistakes(v1(body)) == expected


def test_nulls_count_as_absent_but_not_in_opaque_arguments():
    config = loaded("""\
        parallelism: ~
        leaderElection: {leaderElect: ~}
        profiles:
        - schedulerName: ~
          plugins: ~
          pluginConfig:
          - {name: NodeResourcesFit, args: ~}
          - {name: NodeAffinity, args: {addedAffinity: ~}}
          - {name: Mine, args: {a: ~, b: [~]}}
          - {name: Other, args: ~}
        """).settings.configuration
    assert config.parallelism == 16
    assert config.leader_election.leader_elect is True
    assert config.profiles[0].scheduler_name == "default-scheduler"
    assert config.profiles[0].args["Mine"] == {"a": None, "b": [None]}
    assert config.profiles[0].args["Other"] == {}


def test_arguments_may_be_null():
    config = loaded("profiles: [{pluginConfig: [{name: Other, args: ~}]}]").settings.configuration
    assert config.profiles[0].args == {"Other": {}}


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("enablehttps", ["enableHTTPS", "enabled"], "enableHTTPS"),
        ("wieght", ["weight", "name"], "weight"),
        ("x", ["weight"], None),
        ("weight", [], None),
    ],
)
def test_hints(name, known, hint):
    assert closest(name, known) == hint


def test_paths_have_kube_schedulers_notation():
    assert (
        render_path(("profiles", 0, "pluginConfig", 1, "args"))
        == "profiles[0].pluginConfig[1].args"
    )
    assert render_path(()) == ""


def test_a_problem_without_a_place_is_rendered_without_one():
    assert Problem(3, 5, "a.b", "no").render("f") == "f:3:5: a.b: no"
    assert Problem(0, 0, "a.b", "no").render("f") == "f: a.b: no"
    assert Problem(0, 0, "", "no").render("f") == "f: no"


def test_a_locator_maps_the_longest_moved_prefix():
    locator = Locator(
        marks={}, origins={("a",): ("b",), ("a", "x"): ("c", 1), ("a", "x", 0): ("d",)}
    )
    assert locator.origin(("a", "y")) == ("b", "y")
    assert locator.origin(("a", "x", 1)) == ("c", 1, 1)
    assert locator.origin(("a", "x", 0, "z")) == ("d", "z")
    assert locator.origin(("q",)) == ("q",)


def without_nulls(value):
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def documents(shape):
    random = Random(1)
    for harm in (0.0, 0.002, 0.02) * 100:
        with suppress(RecursionError):
            text = msgspec.json.encode(shape.valid(random, harm))
            yield without_nulls(msgspec.json.decode(text))


@pytest.mark.parametrize(
    ("model", "shape"),
    [(KubeSchedulerConfiguration, MAIN), (AiokubeSchedulerConfiguration, EXTENSION)],
)
def test_what_is_read_at_once_is_what_is_read_in_search_of_mistakes(model, shape):
    """A document is read without pydantic exactly if pydantic finds nothing wrong, and as the same model."""
    outcomes = set()
    for value in documents(shape):
        found, findings, _ = find_mistakes(model, value, Locator.nowhere())
        try:
            read = msgspec.convert(value, model)
        except msgspec.ValidationError:
            assert findings, value
        else:
            assert (read, findings) == (found, ()), value
        outcomes.add(bool(findings))
    assert outcomes == {True, False}


def test_a_key_is_not_shown_where_its_settings_are():
    config = ExtenderTLSConfig(key_data="bXkgc2VjcmV0", server_name="there")
    assert "bXkgc2VjcmV0" not in repr(config)
    assert "server_name='there'" in repr(config)
