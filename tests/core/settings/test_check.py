import json

import msgspec
import pytest

from app.settings.check import Checked, as_object, as_text
from app.settings.defaults import IN_TREE_CAPABILITIES
from app.settings.load import load
from app.settings.plugins import NOT_LOADED
from app.settings.problems import ConfigurationError
from tests.core.settings.kit import HEAD, v1, with_extension


def checked(text, capabilities=IN_TREE_CAPABILITIES):
    try:
        loaded = load(text, capabilities=capabilities)
    except ConfigurationError as error:
        return Checked("my.yaml", text, error)
    return Checked("my.yaml", text, loaded, loaded.to_plain(capabilities))


def check(text, **kwargs):
    result = checked(text, **kwargs)
    return as_text(result), 0 if result.is_valid else 1


def mistakes(text):
    """The paths of all mistakes."""
    return [problem.path for problem in checked(text).result.problems]


def test_mistakes_and_warnings_are_printed_with_their_places():
    text, code = check(
        v1("parallelism: 0\nextenders:\n- {urlPrefix: http://a, httpTimeout: x}\n").replace(
            "io/v1", "io/v1beta3"
        )
    )
    assert code == 1
    assert text == (
        "my.yaml:1:1: apiVersion: warning: v1beta3 is no longer served by kube-scheduler; it is read as v1: "
        "write kubescheduler.config.k8s.io/v1\n"
        "     1 | apiVersion: kubescheduler.config.k8s.io/v1beta3\n"
        "       | ^\n"
        "my.yaml:5:3: extenders[0]: warning: the extender has no verb and will never be called\n"
        "     5 | - {urlPrefix: http://a, httpTimeout: x}\n"
        "       |   ^\n"
        "my.yaml:3:1: parallelism: Invalid value: 0: should be an integer value greater than zero\n"
        "     3 | parallelism: 0\n"
        "       | ^\n"
        'my.yaml:5:25: extenders[0].httpTimeout: Invalid value: "x": time: invalid duration "x"\n'
        "     5 | - {urlPrefix: http://a, httpTimeout: x}\n"
        "       |                         ^\n"
        "my.yaml: not valid: 2 mistakes, 2 warnings\n"
    )


def test_a_single_mistake():
    text, code = check(HEAD + "parallelism: 0\n")
    assert (code, text.splitlines()[-1]) == (1, "my.yaml: not valid: 1 mistake")


def test_a_valid_file_is_summed_up():
    text, code = check(
        with_extension(
            """\
            percentageOfNodesToScore: 40
            profiles:
            - plugins:
                score: {enabled: [{name: NodeResourcesFit, weight: 5}], disabled: [{name: '*'}]}
                filter: {disabled: [{name: '*'}]}
                preFilter: {disabled: [{name: '*'}]}
                preScore: {disabled: [{name: '*'}]}
                reserve: {disabled: [{name: '*'}]}
                preBind: {disabled: [{name: '*'}]}
              pluginConfig:
              - {name: InterPodAffinity, args: {hardPodAffinityWeight: 5, ignorePreferredTermsOfExistingPods: false}}
              - {name: NodeResourcesFit, args: {scoringStrategy: {type: LeastAllocated}}}
              - {name: Mine, args: {a: [1]}}
            extenders:
            - {urlPrefix: 'http://u:p@a/', filterVerb: f, bindVerb: b, managedResources: [{name: e.com/a}]}
            - {urlPrefix: http://b, prioritizeVerb: p, weight: 3, nodeCacheCapable: true, ignorable: true}
            """,
            "extenders: [{urlPrefix: http://b, serial: true}]\n",
        )
    )
    assert code == 0
    assert text == (
        "my.yaml: valid\n"
        "\n"
        "profile default-scheduler\n"
        "  preEnqueue  SchedulingGates, DynamicResources, DefaultPreemption\n"
        "  queueSort   PrioritySort\n"
        "  preFilter   -\n"
        "  filter      -\n"
        "  postFilter  DynamicResources, DefaultPreemption\n"
        "  preScore    -\n"
        "  score       NodeResourcesFit (5)\n"
        "  reserve     -\n"
        "  permit      -\n"
        "  preBind     -\n"
        "  bind        DefaultBinder\n"
        "  postBind    -\n"
        "  percentageOfNodesToScore: 40\n"
        "  InterPodAffinity.hardPodAffinityWeight: 5\n"
        "  Mine.a: [1]\n"
        "\n"
        "extenders\n"
        "  http://REDACTED@a/: filter, bind; whole nodes; timeout 5s; for e.com/a\n"
        "  http://b: prioritize (weight 3); node names; timeout 5s; ignorable; serial\n"
    )


def test_warnings_do_not_fail_the_check():
    text, code = check(HEAD + "extenders: [{urlPrefix: http://a}]\n")
    assert code == 0
    assert text.splitlines()[:4] == [
        "my.yaml:3:13: extenders[0]: warning: the extender has no verb and will never be called",
        "     3 | extenders: [{urlPrefix: http://a}]",
        "       |             ^",
        "my.yaml: valid, 1 warning",
    ]


def test_plugins_that_the_scheduler_does_not_have_fail_the_check():
    text = HEAD + "profiles: [{plugins: {score: {enabled: [{name: Mine}]}}}]\n"
    printed, code = check(text)
    assert code == 1
    assert printed == (
        "my.yaml:3:41: profiles[0].plugins.score.enabled[0]: initializing profiles: creating profile for scheduler "
        f'name default-scheduler: ScorePlugin "Mine" does not exist; {NOT_LOADED}\n'
        "     3 | profiles: [{plugins: {score: {enabled: [{name: Mine}]}}}]\n"
        "       |                                         ^\n"
        "my.yaml: not valid: 1 mistake\n"
    )
    known = {**IN_TREE_CAPABILITIES, "Mine": frozenset({"score"})}
    assert check(text, capabilities=known)[1] == 0


NEGATIVE = "profiles: [{plugins: {score: {enabled: [{name: NodeResourcesFit, weight: -5}]}}}]\n"


def test_mistakes_of_plugins_are_reported_with_all_others():
    assert mistakes(HEAD + NEGATIVE + "parallelism: 0\nextenders: [{weight: x}]\n") == [
        "profiles[0].plugins.score.enabled[0].weight",
        "parallelism",
        "extenders[0].urlPrefix",
        "extenders[0].weight",
    ]
    said = "could overflow: NodeResourcesFit has the weight -5\n"
    assert said in check(HEAD + NEGATIVE)[0]


@pytest.mark.parametrize(
    ("plugins", "expected"),
    [
        ("[]", ["profiles[0].plugins"]),
        ("{bind: {disabled: [{name: '*'}]}, score: 5}", ["profiles[0].plugins.score"]),
        (
            "{score: {enabled: [{name: SelectorSpread}, {name: SelectorSpread}]}}",
            [f"profiles[0].plugins.score.enabled[{number}]" for number in (0, 1)],
        ),
    ],
)
def test_what_follows_from_a_mistake_is_not_reported(plugins, expected):
    assert mistakes(HEAD + f"profiles: [{{plugins: {plugins}}}]\n") == expected


def excerpt(text):
    """The lines below the first mistake."""
    return [line for line in check(text)[0].splitlines() if " | " in line]


def test_a_long_line_is_cut_around_the_place():
    filler = "a" * 40
    names = ", ".join(f"{{name: {filler}}}" for _ in range(5))
    line = f"extenders: [{{urlPrefix: 'http://a', filterVerb: f, managedResources: [{names}]}}]"
    shown, mark = excerpt(HEAD + line + "\n")[:2]
    assert len(shown) < 110
    assert shown.endswith(" ...")
    assert shown[mark.index("^") :].startswith("name: aaa")


@pytest.mark.parametrize(
    "line",
    [
        "extenders: [{urlPrefix: 'http://u:hunter2@a', weight: x}]",
        "extenders: [{urlPrefix: http://a, tlsConfig: {keyData: hunter2, insecure: x}}]",
        f"parallelism: {'hunter2' * 8}",
    ],
)
def test_lines_with_secrets_are_not_shown(line):
    text, code = check(HEAD + line + "\n")
    assert code == 1
    assert " | " not in text


def test_other_characters_than_text_are_not_shown():
    shown, _ = excerpt(HEAD + 'parallelism: "\\x1b"  # \u202e\n')
    assert shown.isprintable()


def test_for_programs():
    text = HEAD + "parallelism: 0\nextenders: [{urlPrefix: http://a}]\n"
    told = json.loads(msgspec.json.encode(as_object(checked(text))))
    assert told["file"] == "my.yaml"
    assert not told["valid"]
    assert told["mistakes"] == [
        {
            "line": 3,
            "column": 1,
            "path": "parallelism",
            "message": "Invalid value: 0: should be an integer value greater than zero",
        }
    ]
    assert [warning["line"] for warning in told["warnings"]] == [4]
    assert as_object(checked(HEAD)) == {
        "file": "my.yaml",
        "valid": True,
        "mistakes": [],
        "warnings": [],
    }
