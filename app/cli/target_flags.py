"""Options of the commands that ask a running scheduler: where it is, and the credentials."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def _default_kubeconfig() -> str:
    given = os.environ.get("KUBECONFIG", "")
    usual = Path.home() / ".kube" / "config"
    return given or (str(usual) if usual.is_file() else "")


_OPTIONS: Final = (
    click.option(
        "--server",
        default="",
        metavar="URL",
        help="The scheduler's URL; by default it is read from the leader's lease.",
    ),
    click.option(
        "--kubeconfig",
        default=_default_kubeconfig,
        show_default="$KUBECONFIG or ~/.kube/config",
        metavar="FILE",
        help="The scheduler's cluster, and the token or certificate to use.",
    ),
    click.option("--context", default=None, help="The kubeconfig's context."),
    click.option(
        "--lease-namespace",
        default="kube-system",
        show_default=True,
        metavar="NAME",
        help="The namespace of the leader's lease. Its holder is sent your credentials.",
    ),
    click.option("--token", default="", help="A bearer token, instead of a kubeconfig."),
    click.option(
        "--certificate-authority",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="The authority of the scheduler's certificate; by default the certificate in the lease is trusted.",
    ),
    click.option(
        "--tls-server-name", default=None, help="The name in the scheduler's certificate."
    ),
    click.option("--insecure-skip-tls-verify", is_flag=True, help="Trust any certificate."),
)


def target_options(command: F) -> F:
    """Adds the fields of SchedulerTarget as options."""
    return functools.reduce(lambda made, option: option(made), reversed(_OPTIONS), command)
