from app.settings.check import render_check
from app.settings.defaults import IN_TREE_CAPABILITIES
from app.settings.load import load
from app.settings.plugins import NOT_LOADED
from app.settings.problems import ConfigurationError
from tests.core.settings.kit import HEAD, v1, with_extension


def check(text, **kwargs):
    try:
        result = load(text)
    except ConfigurationError as error:
        result = error
    return render_check("my.yaml", result, **kwargs)


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
        "my.yaml:5:3: extenders[0]: warning: the extender has no verb and will never be called\n"
        "my.yaml:3:1: parallelism: Invalid value: 0: should be an integer value greater than zero\n"
        'my.yaml:5:25: extenders[0].httpTimeout: Invalid value: "x": time: invalid duration "x"\n'
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
    assert text.splitlines()[:2] == [
        "my.yaml:3:13: extenders[0]: warning: the extender has no verb and will never be called",
        "my.yaml: valid, 1 warning",
    ]


def test_plugins_that_the_scheduler_does_not_have_fail_the_check():
    text = HEAD + "profiles: [{plugins: {score: {enabled: [{name: Mine}]}}}]\n"
    printed, code = check(text)
    assert code == 1
    assert printed == (
        "my.yaml:3:41: profiles[0].plugins.score.enabled[0]: initializing profiles: creating profile for scheduler "
        f'name default-scheduler: ScorePlugin "Mine" does not exist; {NOT_LOADED}\n'
        "my.yaml: not valid: 1 mistake\n"
    )
    known = {**IN_TREE_CAPABILITIES, "Mine": frozenset({"score"})}
    assert check(text, capabilities=known)[1] == 0
