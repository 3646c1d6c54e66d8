"""The second document."""

import pytest

from app.model.gotext import Duration
from app.settings.extension import BreakerOptions
from app.settings.load import load
from tests.core.settings.kit import HEAD, mistakes, warnings, with_extension

EXTENDERS = """\
extenders:
- urlPrefix: https://gpu/
  filterVerb: f
  enableHTTPS: true
- urlPrefix: http://other
  filterVerb: f
"""


def both(extension):
    return with_extension(EXTENDERS, extension)


def test_defaults():
    extension = load(HEAD).settings.extension
    assert extension.max_bindings_in_flight == 32
    assert extension.refuse_insecure_tls is False
    assert extension.requeue_endpoint.enabled is False
    assert extension.extenders == ()
    assert (extension.extender_bodies.calls, extension.extender_bodies.max_bytes) == (0, 16384)
    assert BreakerOptions() == BreakerOptions(
        failures=3, open_seconds=Duration.of(5), max_open_seconds=Duration.of(60)
    )


def test_everything_is_read():
    settings = load(
        both("""\
            maxBindingsInFlight: 8
            requeueEndpoint: {enabled: true}
            extenderBodies: {calls: 20, maxBytes: 1000}
            extenders:
            - urlPrefix: https://gpu
              serial: true
              bearerTokenFile: /token
              breaker: {failures: 0, openSeconds: 1.5, maxOpenSeconds: 2m}
            """)
    ).settings
    assert settings.extension.max_bindings_in_flight == 8
    assert settings.extension.requeue_endpoint.enabled is True
    bodies = settings.extension.extender_bodies
    assert (bodies.calls, bodies.max_bytes) == (20, 1000)
    (gpu, options), (other, no_options) = settings.extenders
    assert (gpu.url_prefix, other.url_prefix) == ("https://gpu/", "http://other")
    assert (options.serial, options.bearer_token_file) == (True, "/token")
    assert options.breaker == BreakerOptions(
        failures=0, open_seconds=Duration.of(1.5), max_open_seconds=Duration.of(120)
    )
    assert (no_options.serial, no_options.bearer_token_file) == (None, "")


@pytest.mark.parametrize(
    ("extension", "expected"),
    [
        ("maxBindingsInFlight: 0", "12: maxBindingsInFlight: Invalid value: 0: must be greater than zero"),
        ("maxBindings: 1", '12: maxBindings: unknown field "maxBindings"; did you mean "maxBindingsInFlight"?'),
        (
            "extenderBodies: {calls: -1}",
            "12: extenderBodies.calls: Invalid value: -1: must be zero (none are kept) or positive",
        ),
        (
            "extenderBodies: {maxBytes: 0}",
            "12: extenderBodies.maxBytes: Invalid value: 0: must be greater than zero",
        ),
        (
            "extenderBodies: {calls: 257}",
            "12: extenderBodies.calls: Invalid value: 257: calls * maxBytes must not be more than 4194304: "
            "at most 256 calls of 16384 bytes",
        ),
        ("requeueEndpoint: true", "12: requeueEndpoint: Invalid value: true: must be a mapping"),
        ("extenders: [{serial: true}]", "12: extenders[0].urlPrefix: Required value"),
        (
            "extenders:\n- urlPrefix: http://other\n- urlPrefix: http://other/\n",
            '14: extenders[1].urlPrefix: Duplicate value: "http://other"',
        ),
        (
            "extenders: [{urlPrefix: http://othr}]",
            '12: extenders[0].urlPrefix: Invalid value: "http://othr": '
            'no extender of the first document has this urlPrefix; did you mean "http://other"?',
        ),
        (
            "extenders: [{urlPrefix: http://other, breaker: {failures: -1}}]",
            "12: extenders[0].breaker.failures: Invalid value: -1: must be zero (no breaker) or positive",
        ),
        (
            "extenders: [{urlPrefix: http://other, breaker: {openSeconds: 0}}]",
            '12: extenders[0].breaker.openSeconds: Invalid value: "0s": must be greater than zero',
        ),
        (
            "extenders: [{urlPrefix: http://other, breaker: {openSeconds: 90}}]",
            '12: extenders[0].breaker.maxOpenSeconds: Invalid value: "1m0s": must not be less than openSeconds (1m30s)',
        ),
        (
            "extenders: [{urlPrefix: http://other, breaker: {openSeconds: 1e300}}]",
            '12: extenders[0].breaker.openSeconds: Invalid value: 1e+300: must be a duration such as "5s" or "1m30s"',
        ),
        (
            "extenders: [{urlPrefix: http://other, breaker: {openSeconds: -.inf}}]",
            '12: extenders[0].breaker.openSeconds: Invalid value: -Infinity: must be a duration such as "5s" or "1m30s"',
        ),
        (
            "extenders: [{urlPrefix: http://other, breaker: {openSeconds: .nan}}]",
            '12: extenders[0].breaker.openSeconds: Invalid value: NaN: must be a duration such as "5s" or "1m30s"',
        ),
        (
            "extenders: [{urlPrefix: http://other, breaker: {openSeconds: 9223372037}}]",
            '12: extenders[0].breaker.openSeconds: Invalid value: 9223372037: must be a duration such as "5s" or "1m30s"',
        ),
        (
            "extenders: [{urlPrefix: http://other, breaker: {openSeconds: true}}]",
            '12: extenders[0].breaker.openSeconds: Invalid value: true: must be a duration such as "5s" or "1m30s"',
        ),
        (
            "extenders: [{urlPrefix: http://other, profiles: [default-schedule]}]",
            '12: extenders[0].profiles[0]: Invalid value: "default-schedule": no profile of the first document has this '
            'schedulerName; did you mean "default-scheduler"?',
        ),
        (
            "extenders: [{urlPrefix: http://other, profiles: [default-scheduler, default-scheduler]}]",
            '12: extenders[0].profiles[1]: Duplicate value: "default-scheduler"',
        ),
        (
            "extenders: [{urlPrefix: http://other, podSelector: {matchExpressions: [{key: a, operator: Gt, values: ['1']}]}}]",
            '12: extenders[0].podSelector.matchExpressions[0].operator: Unsupported value: "Gt": supported values: '
            '"In", "NotIn", "Exists", "DoesNotExist"',
        ),
        (
            "extenders: [{urlPrefix: http://other, namespaceSelector: {matchExpressions: [{key: a, operator: In}]}}]",
            "12: extenders[0].namespaceSelector.matchExpressions[0].values: Invalid value: null: "
            "for 'in', 'notin' operators, values set can't be empty",
        ),
        (
            "extenders: [{urlPrefix: http://other, podSelector: {matchLabels: {a: 'b c'}}}]",
            '12: extenders[0].podSelector.matchLabels.a: Invalid value: "b c": a valid label must be an empty string or '
            "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
            "(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
            "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ),
        (
            "extenders: [{urlPrefix: http://other, podSelectors: {}}]",
            '12: extenders[0].podSelectors: unknown field "extenders[0].podSelectors"; did you mean "podSelector"?',
        ),
        (
            "refuseInsecureTLS: true",
            "6: extenders[0].enableHTTPS: Forbidden: the certificate of extender https://gpu/ is not verified "
            "(enableHTTPS without a CA), and refuseInsecureTLS is set; name a CA in tlsConfig",
        ),
    ],
)  # fmt: skip
def test_mistakes(extension, expected):
    assert mistakes(both(extension)) == [expected]


def test_the_version_and_kind_are_checked():
    text = both("").replace("v1alpha1", "v1")
    assert mistakes(text) == [
        "10: apiVersion: of the second document must be aiokube-scheduler.io/v1alpha1, not aiokube-scheduler.io/v1"
    ]
    text = both("").replace("kind: AiokubeSchedulerConfiguration", "kind: Aiokube")
    assert mistakes(text) == [
        "11: kind: of the second document must be AiokubeSchedulerConfiguration, not Aiokube"
    ]


def test_there_is_one_second_document():
    extension = both("").partition("---\n")[2]
    assert mistakes(f"{both('')}---\n{extension}") == [
        "13: : the file holds a second AiokubeSchedulerConfiguration; merge it into the first"
    ]


def test_mistakes_of_both_documents_are_reported_together():
    text = with_extension("parallelism: 0\n", "maxBindingsInFlight: 0\n")
    assert mistakes(text) == [
        "3: parallelism: Invalid value: 0: should be an integer value greater than zero",
        "7: maxBindingsInFlight: Invalid value: 0: must be greater than zero",
    ]


def test_refusing_insecure_tls_replaces_the_warning():
    assert len(warnings(both(""))) == 1
    safe = EXTENDERS.replace("enableHTTPS: true", "tlsConfig: {caFile: /ca}")
    assert warnings(with_extension(safe, "refuseInsecureTLS: true")) == []


def test_extenders_that_cannot_be_read_make_no_unknown_prefixes():
    text = with_extension("extenders: 5\n", "extenders: [{urlPrefix: http://a}]")
    assert mistakes(text) == ["3: extenders: Invalid value: 5: must be a list"]


MANAGING = """\
profiles: [{schedulerName: a}, {schedulerName: b}]
extenders:
- urlPrefix: http://one
  filterVerb: f
  managedResources: [{name: e.com/gpu, ignoredByScheduler: true}]
- {urlPrefix: http://two, bindVerb: b}
- {urlPrefix: http://three, bindVerb: b}
"""
_APART = "- {urlPrefix: http://two, profiles: [a]}\n- {urlPrefix: http://three, profiles: [b]}\n"


def ignored(options):
    profiles = load(with_extension(MANAGING, f"extenders:\n{options}{_APART}")).to_plain()
    return [
        bool(profile.plugin_config["NodeResourcesFit"].ignored_resources) for profile in profiles
    ]


def test_resources_are_ignored_only_where_their_extender_is_asked():
    assert ignored("") == [True, True]
    assert ignored("- {urlPrefix: http://one, profiles: [b]}\n") == [False, True]
    assert ignored("- {urlPrefix: http://one, shadow: true}\n") == [False, False]


def test_several_binders_need_different_profiles():
    text = with_extension(MANAGING, f"extenders:\n{_APART.replace('[b]', '[b, a]')}")
    assert mistakes(text) == [
        '4: extenders: Invalid value: "found 2 extenders implementing bind": only one extender can implement bind; '
        "several can if each has managedResources, or if the second document gives them different profiles"
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            "podSelector: {matchLabels: {a: b}}",
            "15: extenders[0].podSelector: nothing checks e.com/gpu of pods that are not selected (ignoredByScheduler)",
        ),
        (
            "shadow: true",
            "15: extenders[0].shadow: NodeResourcesFit checks e.com/gpu, because a shadow decides nothing",
        ),
    ],
)
def test_warnings_about_resources_that_only_the_extender_checks(options, expected):
    text = with_extension(MANAGING, f"extenders:\n- urlPrefix: http://one\n  {options}\n{_APART}")
    assert expected in warnings(text)


@pytest.mark.parametrize(
    ("option", "named"),
    [("serial: true", "serial: true"), ("releaseVerb: r", "releaseVerb")],
)
def test_an_extender_that_reserves_is_asked_about_each_pod(option, named):
    text = with_extension(
        "extenders: [{urlPrefix: http://a, filterVerb: f}]\n",
        f"extenders:\n- {{urlPrefix: http://a, answersForTemplate: true, {option}}}\n",
    )
    [mistake] = mistakes(text)
    assert "extenders[0].answersForTemplate: Invalid value: true: is for" in mistake
    assert f"{named} is for extenders that reserve" in mistake
    assert not mistakes(text.replace(option, "serial: false"))


def test_odd_release_verbs():
    text = with_extension(
        "extenders: [{urlPrefix: http://a, bindVerb: b}, {urlPrefix: http://b, filterVerb: f}]\n",
        "extenders:\n- {urlPrefix: http://a, releaseVerb: r}\n- {urlPrefix: http://b, releaseVerb: r, shadow: true, dryRun: {filterVerb: f}}\n",
    )
    assert warnings(text) == [
        "8: extenders[0].releaseVerb: the extender has neither a filterVerb nor a prioritizeVerb: it hears of no placement",
        "9: extenders[1].shadow: the releaseVerb of a shadow is never called",
    ]


def test_the_bind_verb_of_a_shadow_is_not_called():
    text = with_extension(
        "extenders: [{urlPrefix: http://a, bindVerb: b}, {urlPrefix: http://b, bindVerb: b}]\n",
        "extenders: [{urlPrefix: http://a, shadow: true}]\n",
    )
    assert warnings(text) == [
        "3: extenders: several extenders have a bindVerb; kube-scheduler refuses this",
        "7: extenders[0].shadow: the bindVerb of a shadow is never called",
    ]


_PLAIN = "extenders: [{urlPrefix: http://a, filterVerb: f, prioritizeVerb: p, weight: 1}]\n"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            "{nodeCacheCapable: false}",
            "8: extenders[0].dryRun.nodeCacheCapable: Invalid value: false: says how a dry run is asked, and no verb is named: "
            "name a filterVerb beside it",
        ),
        (
            "{filterVerb: f, preemptVerb: x}",
            '8: extenders[0].dryRun.preemptVerb: Invalid value: "x": the extender has no preemptVerb',
        ),
    ],
)
def test_dry_runs_that_cannot_be_asked(given, expected):
    text = with_extension(_PLAIN, f"extenders:\n- {{urlPrefix: http://a, dryRun: {given}}}\n")
    assert mistakes(text) == [expected]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("dryRun: {filterVerb: f, prioritizeVerb: p}", []),
        ("shadow: true, dryRun: {filterVerb: f, prioritizeVerb: p}, serial: true", []),
        ("dryRun: {filterVerb: other, prioritizeVerb: p}, releaseVerb: r", []),
        ("dryRun: {filterVerb: f, prioritizeVerb: p, nodeCacheCapable: true}, serial: true", []),
        (
            "dryRun: {filterVerb: f, prioritizeVerb: p}, serial: true, releaseVerb: r",
            [
                "8: extenders[0].dryRun.filterVerb: is the call that counts, and serial: true and releaseVerb are for extenders "
                "that reserve in it"
            ],
        ),
        (
            "dryRun: {prioritizeVerb: p}",
            ["8: extenders[0].dryRun.filterVerb: is missing: a dry run does not filter"],
        ),
        (
            "dryRun: {filterVerb: f}",
            ["8: extenders[0].dryRun.prioritizeVerb: is missing: a dry run does not prioritize"],
        ),
        (
            "shadow: true",
            [
                "8: extenders[0].shadow: is never called: dryRun does not name the verbs that reserve nothing"
            ],
        ),
    ],
)
def test_warnings_about_dry_runs(given, expected):
    text = with_extension(_PLAIN, f"extenders:\n- {{urlPrefix: http://a, {given}}}\n")
    assert warnings(text) == expected
