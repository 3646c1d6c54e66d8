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
