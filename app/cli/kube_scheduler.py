"""The command ``kube-scheduler``: what ``run`` does, with the command line and the exit statuses of kube-scheduler
1.36.

It is the program itself under another name: a link or a copy, which the image has at /usr/local/bin/kube-scheduler.
Here it differs from ``run`` (docs/spec/endpoints.md#flags): ``--version`` has kube-scheduler's form, booleans take no
separate value, ``--kubeconfig`` is ignored with ``--config``, an address is an IP address, and being
stopped without leader election is a failure. Every mistake is one line and status 1.
"""

import difflib
import ipaddress
import logging
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import click

from app.cli.flags import (
    FlagCommand,
    attribute,
    flags,
    read_boolean,
    read_number,
    read_seconds,
    text_flag,
    with_dashes,
)
from app.cli.process import explained
from app.cli.root import PROGRAM
from app.cli.run import EXPECTED, configuration, serving_flags, serving_options, start
from app.runtime import logs
from app.runtime.distributions import version
from app.settings.load import Loaded

log = logging.getLogger(__name__)

NAME: Final = "kube-scheduler"
KUBERNETES: Final = "1.36.2"
"""The version of kube-scheduler whose decisions and command line these are."""

#: Not flags of kube-scheduler.
_OWN: Final = frozenset({"--insecure-http"})
#: Flags without effect whose values are not any text -> how they are read.
_VALUES: Final[Mapping[str, Callable[[str], object]]] = {
    "--http2-max-streams-per-connection": read_number,
    "--log-flush-frequency": read_seconds,
}
#: Versions of TLS that kube-scheduler takes, and that OpenSSL no longer offers.
_OLD_TLS: Final = frozenset({"VersionTLS10", "VersionTLS11"})


def git_version() -> str:
    """The version as Kubernetes' components print theirs; ours comes behind a plus sign, as distributions write it.

    >>> git_version().partition("+")[0]
    'v1.36.2'
    """
    return f"v{KUBERNETES}+aiokube{version(PROGRAM)}"


def _show_version(context: click.Context, _flag: click.Parameter, value: str | None) -> None:
    """Prints the version and exits, unless it is asked not to. Raises click.BadParameter."""
    if value is None or value.startswith("v"):  # the version to report, which we do not pretend
        return
    if value == "raw":
        major, minor, _ = KUBERNETES.split(".")
        shown = {
            "Major": major,
            "Minor": minor,
            "GitVersion": git_version(),
            "Platform": f"{sys.platform}/{_architecture()}",
        }
        pairs = ", ".join(f'{name}:"{text}"' for name, text in shown.items())
        click.echo(f"version.Info{{{pairs}}}")
    elif read_boolean(value):
        click.echo(f"Kubernetes {git_version()}")
    else:
        return
    context.exit(0)


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


class _KubeScheduler(FlagCommand):
    """Reads the command line as kube-scheduler does, and reports a mistake in one line."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        *further: Any,
        **extra: Any,
    ) -> Any:
        """Runs the command and ends the process."""
        try:
            extra |= {"standalone_mode": False}
            status = super().main(args, prog_name or NAME, *further, **extra)
        except click.ClickException as error:
            click.echo(f"Error: {error.format_message()}", err=True)
            status = 1
        except click.Abort:
            status = 1
        sys.exit(status)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See FlagCommand."""
        try:
            return super().parse_args(ctx, list(self._with_values(args)))
        except click.NoSuchOption as error:
            name = error.option_name
            if not name.startswith("--"):
                raise click.UsageError(f"unknown shorthand flag: {name[1:]!r} in {name}") from error
            nearest = difflib.get_close_matches(name, self._names(), n=1, cutoff=0.0)
            raise click.UsageError(f"unknown flag: {name}, did you mean {nearest[0]}?") from error

    def _with_values(self, args: Sequence[str]) -> Iterator[str]:
        """The arguments without empty ones; a boolean without ``=`` is true, and what follows is no value of it."""
        booleans = {name for flag in self.params for name in flag.opts if _is_boolean(flag)}
        rest = iter(args)
        for arg in rest:
            if arg == "--":
                yield from (arg, *rest)
            elif arg:
                yield f"{arg}=true" if with_dashes(arg) in booleans else arg

    def _names(self) -> list[str]:
        return [name for flag in self.params for name in flag.opts if name.startswith("--")]

    def invoke(self, ctx: click.Context) -> Any:
        """See click.Command."""
        if ctx.args:
            given = " ".join(f'"{arg}"' for arg in ctx.args)
            raise click.UsageError(f'"{NAME}" does not take any arguments, got [{given}]', ctx)
        return super().invoke(ctx)


def _is_boolean(flag: click.Parameter) -> bool:
    return isinstance(flag, click.Option) and flag.flag_value == "true"


def _run(**given: Any) -> None:
    logs.configure(logging_format=given["logging_format"], verbosity=given["verbosity"])
    given |= dict(_as_there(given))
    _check_values(given)
    with explained(*EXPECTED):
        serving_options(given)
        loaded = configuration(given)
        status = start(loaded, given)
    if not status and not given["write_config_to"] and not _elects(loaded):
        raise click.ClickException("finished without leader elect")
    click.get_current_context().exit(status)


def _check_values(given: Mapping[str, Any]) -> None:
    """Raises click.BadParameter for a value that kube-scheduler would not read."""
    for flag, read in _VALUES.items():
        if (value := given[attribute(flag)]) is not None:
            try:
                read(value)
            except click.BadParameter as error:
                raise click.BadParameter(error.message, param_hint=flag) from error


def _elects(loaded: Loaded) -> bool:
    return loaded.settings.configuration.leader_election.leader_elect


def _as_there(given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Flags with other values than were given: name -> value. Raises click.UsageError."""
    yield "insecure_http", None
    if given["kubeconfig"] is not None and given["config"]:
        log.warning(
            "--kubeconfig is ignored because there is a configuration file; set clientConnection.kubeconfig there"
        )
        yield "kubeconfig", None
    if given["tls_min_version"] in _OLD_TLS:
        log.warning(
            "--tls-min-version %s: nothing below TLS 1.2 is offered", given["tls_min_version"]
        )
        yield "tls_min_version", "VersionTLS12"
    if (address := given["bind_address"]) is not None:
        yield "bind_address", _address(address)


def _address(text: str) -> str | None:
    """An IP address, None for the default. Raises click.UsageError."""
    try:
        return str(ipaddress.ip_address(text.strip())) if text.strip() else None
    except ValueError as error:
        message = (
            f'invalid argument "{text}" for "--bind-address" flag: failed to parse IP: "{text}"'
        )
        raise click.UsageError(message) from error


def _params() -> Iterator[click.Parameter]:
    for flag in (*flags(), *serving_flags()):
        if not _OWN.intersection(flag.opts):
            yield flag
    yield text_flag(
        "--version",
        "Global",
        "Print the version and exit; --version=raw prints more of it.",
        is_flag=False,
        flag_value="true",
        is_eager=True,
        expose_value=False,
        callback=_show_version,
        metavar="[=true|raw]",
    )


command: Final = _KubeScheduler(
    NAME,
    callback=_run,
    params=list(_params()),
    help=f"aiokube-scheduler in the place of kube-scheduler {KUBERNETES}: the same flags, defaults, exit statuses and "
    "endpoints.\n\nFlags without a meaning here are accepted with a warning.",
    context_settings={
        "token_normalize_func": with_dashes,
        "help_option_names": ["-h", "--help"],
        "allow_extra_args": True,
    },
)
