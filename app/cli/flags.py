"""kube-scheduler's flags as options of ``run`` (docs/spec/endpoints.md#flags).

Values are parsed as in Go: ``--leader-elect`` and ``--leader-elect=false``, ``-v=2``, ``1m30s``. Every flag of
kube-scheduler 1.36 is accepted, so that its manifests work; flags without effect here are listed with the reason, which
is logged.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from app.model.features import Features, check_gates, read_gates, read_version
from app.model.gates import VERSIONS
from app.model.gotext import Duration, DurationError

_POLICY: Final = (
    "policies have become profiles and extenders of a KubeSchedulerConfiguration; name its file with --config "
    "(aiokube-scheduler check-config checks it)"
)
_LOG: Final = "leave it out: the log goes to standard error"

REMOVED: Final[Mapping[str, str]] = {
    "--address": "use --bind-address",
    "--port": "leave it out: everything is served with TLS, at --secure-port",
    "--scheduler-name": "set schedulerName of a profile in the file of --config",
    "--algorithm-provider": _POLICY,
    "--policy-config-file": _POLICY,
    "--policy-configmap": _POLICY,
    "--policy-configmap-namespace": _POLICY,
    "--use-legacy-policy-config": _POLICY,
    "--hard-pod-affinity-symmetric-weight": (
        "set hardPodAffinityWeight in the arguments of InterPodAffinity, in the file of --config"
    ),
    "--lock-object-name": "use --leader-elect-resource-name",
    "--lock-object-namespace": "use --leader-elect-resource-namespace",
    "--experimental-logging-sanitization": "leave it out: secrets are never logged",
    "--add-dir-header": _LOG,
    "--alsologtostderr": _LOG,
    "--log-backtrace-at": _LOG,
    "--log-dir": _LOG,
    "--log-file": _LOG,
    "--log-file-max-size": _LOG,
    "--logtostderr": _LOG,
    "--one-output": _LOG,
    "--skip-headers": _LOG,
    "--skip-log-headers": _LOG,
    "--stderrthreshold": _LOG,
}
"""Flag -> what to do instead."""


_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_HIGHEST_PORT: Final = 65535
#: Of Go's numbers that are not decimal.
_BASES: Final = frozenset({"0x", "0o", "0b"})


class Flag(click.Option):
    """An option that belongs to a section of the help page."""

    def __init__(self, *args: Any, section: str, **attributes: Any) -> None:
        self.section: Final = section
        super().__init__(*args, **attributes)


class FlagCommand(click.Command):
    """A command whose help page has sections, and that recognizes removed flags."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Raises click.UsageError; for a removed flag with what to use instead."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            advice = REMOVED.get(error.option_name)
            if advice is None:
                raise
            message = f"{error.option_name} was removed from kube-scheduler: {advice}"
            raise click.UsageError(message, ctx) from error

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the sections in the order in which they first occur."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                sections.setdefault(getattr(parameter, "section", "Other"), []).append(record)
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl(records)


def with_dashes(name: str) -> str:
    """A flag's name with dashes for underscores, both of which kube-scheduler accepts."""
    return name.replace("_", "-")


def read_boolean(text: str) -> bool:
    """A boolean as Go parses it. Raises click.BadParameter, like the following functions."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise click.BadParameter(f"{text!r} is not true or false")


def read_seconds(text: str) -> float:
    """A duration in Go's notation, in seconds."""
    try:
        return Duration.parse(text).seconds
    except DurationError as error:
        raise click.BadParameter(str(error)) from error


def read_number(text: str) -> int:
    """A number of 32 bits, as Go parses it: ``0x10`` too."""
    try:
        number = int(text, 0 if text[:2].lower() in _BASES else 10)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not a number") from error
    if not -(2**31) <= number < 2**31:
        raise click.BadParameter(f"{text} is out of range")
    return number


def read_level(text: str) -> int:
    """A verbosity; after ``-v`` it may come with an equals sign, ``-v=2``."""
    level = read_number(text.removeprefix("="))
    if level < 0:
        raise click.BadParameter(f"{text!r} is negative")
    return level


def read_port(text: str) -> int:
    """A port to listen on, or 0."""
    port = read_number(text)
    if not 0 <= port <= _HIGHEST_PORT:
        raise click.UsageError(
            f"--secure-port {port} must be between 0 and {_HIGHEST_PORT}, inclusive. "
            "0 for turning off secure port"
        )
    return port


def boolean_flag(name: str, section: str, text: str) -> Flag:
    """An option that is true, or the value after ``=``."""
    return Flag(
        [name],
        section=section,
        type=read_boolean,
        is_flag=False,
        flag_value="true",
        help=text,
        metavar="[=true|false]",
    )


def text_flag(name: str, section: str, text: str, **attributes: Any) -> Flag:
    """An option with a value."""
    return Flag([name], section=section, help=text, **attributes)


def joined(_context: click.Context, _flag: click.Parameter, values: tuple[str, ...]) -> str | None:
    """The callback of a flag with a list: values that are given one by one are joined, None without any."""
    return ",".join(values) if values else None


_FILES: Final = "Configuration"
_API: Final = "API server"
_RULES: Final = "Rules"
_ELECTION: Final = "Leader election (wins over the configuration file)"
_SERVING: Final = "Serving"
_LOGS: Final = "Logs"
_DEFAULT: Final = "default: what the file says, or"


def flags() -> list[click.Parameter]:
    """All options except those of serving: first those with effect, then the others, hidden."""
    return [
        *_file_flags(),
        *_api_flags(),
        *version_flags(),
        *_election_flags(),
        *_other_flags(),
        *_without_effect(),
    ]


def _file_flags() -> Iterator[Flag]:
    yield text_flag(
        "--config", _FILES, "KubeSchedulerConfiguration; all defaults without.", metavar="FILE"
    )
    yield text_flag(
        "--write-config-to", _FILES, "Write the complete configuration and exit.", metavar="FILE"
    )


def _api_flags() -> Iterator[Flag]:
    yield text_flag(
        "--kubeconfig", _API, "Used when the configuration file names none.", metavar="FILE"
    )
    yield text_flag(
        "--master", _API, "Address of the API server; overrides the kubeconfig's.", default=""
    )
    only = "Only without --config; "
    yield text_flag("--kube-api-qps", _API, f"{only}requests per second (50).", type=float)
    yield text_flag("--kube-api-burst", _API, f"{only}requests at once (100).", type=read_number)
    yield text_flag("--kube-api-content-type", _API, f"{only}no effect: JSON is used.")


def version_flags() -> Iterator[Flag]:
    """The flags that choose the rules."""
    yield text_flag(
        "--emulated-version",
        _RULES,
        f"Decide as this version of kube-scheduler: {', '.join(VERSIONS)}; default: that of the API server.",
        multiple=True,
        callback=joined,
        metavar="VERSION",
    )
    yield text_flag(
        "--feature-gates",
        _RULES,
        "kube-scheduler's feature gates.",
        multiple=True,
        callback=joined,
        metavar="NAME=true,...",
    )


def _election_flags() -> Iterator[Flag]:
    yield boolean_flag("--leader-elect", _ELECTION, "Lead before scheduling (true).")
    for name, text in {
        "--leader-elect-lease-duration": "How long a lease is valid without renewal (15s).",
        "--leader-elect-renew-deadline": "How long a leader tries to renew before it gives up (10s).",
        "--leader-elect-retry-period": "Time between two attempts (2s).",
    }.items():
        yield text_flag(name, _ELECTION, text, metavar="DURATION")
    for name, text in {
        "--leader-elect-resource-lock": "Kind of the lock: leases.",
        "--leader-elect-resource-name": "Name of the lease (kube-scheduler).",
        "--leader-elect-resource-namespace": "Namespace of the lease (kube-system).",
    }.items():
        yield text_flag(name, _ELECTION, text)


def _other_flags() -> Iterator[Flag]:
    yield text_flag(
        "--pod-max-in-unschedulable-pods-duration",
        "Scheduling",
        "After this time a pod that waits for an event is tried again without one (5m).",
        type=read_seconds,
        metavar="DURATION",
        default="5m",
    )
    yield boolean_flag("--profiling", _SERVING, "Only without --config; serve profiles (true).")
    yield boolean_flag("--contention-profiling", _SERVING, "Only without --config; no effect.")
    yield Flag(
        ["-v", "--v", "verbosity"],
        section=_LOGS,
        type=read_level,
        default="0",
        metavar="LEVEL",
        show_default=True,
        help="How much to log: 4 and more are for debugging.",
    )
    yield text_flag(
        "--logging-format",
        _LOGS,
        "",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
    )


_IN_MEMORY: Final = "a self-signed certificate is kept in memory; give --tls-cert-file for another"
_CIPHERS: Final = "OpenSSL's default ciphers and curves are used"
_ONE_CERTIFICATE: Final = "one certificate is served; it may be valid for several names"
_OWN_REVIEWS: Final = (
    "the scheduler's own credentials are used for reviews; a review that fails is an error"
)
_NO_FRONT_PROXY: Final = "users are not taken from headers"
_NO_MINIMUM: Final = "features are those of --emulated-version"
_HTTP2: Final = "HTTP/2 is not supported"
_METRICS: Final = "all metrics are served, with all their labels"
_LOGGING: Final = "the log is written line by line, at one verbosity"
_NO_SHARING: Final = "an address is shared only with connections that wait for their end"
_KUBECONFIG: Final = "the API server is the one of the kubeconfig"

WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "--cert-dir": _IN_MEMORY,
    "--tls-cipher-suites": _CIPHERS,
    "--tls-curve-preferences": _CIPHERS,
    "--tls-sni-cert-key": _ONE_CERTIFICATE,
    "--disable-http2-serving": _HTTP2,
    "--http2-max-streams-per-connection": _HTTP2,
    "--permit-address-sharing": _NO_SHARING,
    "--authentication-tolerate-lookup-failure": _OWN_REVIEWS,
    "--requestheader-client-ca-file": _NO_FRONT_PROXY,
    "--requestheader-allowed-names": _NO_FRONT_PROXY,
    "--requestheader-username-headers": _NO_FRONT_PROXY,
    "--requestheader-group-headers": _NO_FRONT_PROXY,
    "--requestheader-extra-headers-prefix": _NO_FRONT_PROXY,
    "--requestheader-uid-headers": _NO_FRONT_PROXY,
    "--min-compatibility-version": _NO_MINIMUM,
    "--show-hidden-metrics-for-version": _METRICS,
    "--disabled-metrics": _METRICS,
    "--allow-metric-labels": _METRICS,
    "--allow-metric-labels-manifest": _METRICS,
    "--vmodule": _LOGGING,
    "--log-flush-frequency": _LOGGING,
    "--log-text-split-stream": _LOGGING,
    "--log-text-info-buffer-size": _LOGGING,
    "--log-json-split-stream": _LOGGING,
    "--log-json-info-buffer-size": _LOGGING,
    "--unsupported-kube-api-over-localhost": _KUBECONFIG,
}
"""kube-scheduler's flags (the last one is OpenShift's) that are accepted and do nothing: name -> why."""


def chosen(given: Mapping[str, Any]) -> tuple[str | None, Mapping[str, bool]]:
    """What --emulated-version and --feature-gates say: the version, None without one, and the gates.

    Raises FeaturesError, also for gates that no version takes.
    """
    text = given["emulated_version"]
    version = None if text is None else read_version(text)
    gates = read_gates(given["feature_gates"])
    if version is not None:
        Features.of(version, gates)
    else:
        check_gates(gates)
    return version, gates


_BOOLEANS: Final = frozenset(
    {
        "--disable-http2-serving",
        "--permit-address-sharing",
        "--authentication-tolerate-lookup-failure",
        "--log-text-split-stream",
        "--log-json-split-stream",
        "--unsupported-kube-api-over-localhost",
    }
)


def attribute(flag: str) -> str:
    """The name of click's parameter for a flag."""
    return flag.removeprefix("--").replace("-", "_")


def _without_effect() -> Iterator[Flag]:
    for name in WITHOUT_EFFECT:
        value: dict[str, Any] = {}
        if name in _BOOLEANS:
            value = {"is_flag": False, "flag_value": "true", "type": read_boolean}
        yield Flag([name], section="", hidden=True, **value)
