"""``explain``: asks a running scheduler why a pod is where it is, or why it is pending."""

import dataclasses
import ipaddress
import json
import os
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click
import msgspec
from rich.console import Console

from app.cli.process import explained, run_loop
from app.cli.story_view import render
from app.kube.client import KubeClient, user_agent
from app.kube.connection import (
    Connection,
    Identity,
    fixed_source,
    normalize_server,
    read_file,
)
from app.kube.errors import (
    ConfigurationError,
    ConnectionFailed,
    Forbidden,
    KubeApiError,
    Unauthorized,
)
from app.kube.kubeconfig import load_connection
from app.kube.transport import path_segment
from app.observe.explain import Explanation
from app.runtime.clock import SystemClock

DEFAULT_SERVER: Final = "https://localhost:10259"
_DISTRIBUTION: Final = "aiokube-scheduler"
#: Who asks without a token, or with a client certificate of an authority that the scheduler was not told of.
_NOBODY: Final = "system:anonymous"
_FORWARD: Final = (
    "name the scheduler with --server; to reach one inside the cluster, run "
    "'kubectl -n NAMESPACE port-forward deploy/aiokube-scheduler 10259' beside this"
)


class ExplainError(Exception):
    """No answer; the text says why and what to do."""


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """Which scheduler to ask, and as whom."""

    server: str = DEFAULT_SERVER
    kubeconfig: str = ""
    context: str | None = None
    token: str = ""
    certificate_authority: Path | None = None
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool = False

    def connection(self) -> Connection:
        """The settings for asking it. Raises ConfigurationError, ExplainError."""
        server = normalize_server(self.server)
        identify = fixed_source(Identity())
        if self.token:
            identify = fixed_source(Identity(f"Bearer {self.token}"))
        elif self.kubeconfig:
            identify = load_connection(
                kubeconfig=self.kubeconfig, context=self.context, wall=SystemClock().wall
            ).identify
        if self.token or self.kubeconfig:
            _check_confidential(server)
        ca = self.certificate_authority
        return Connection(
            server,
            identify,
            ca=None if ca is None else read_file(ca, "certificate authority"),
            verify=not self.insecure_skip_tls_verify,
            tls_server_name=self.tls_server_name,
        )


def _check_confidential(server: str) -> None:
    """Raises ExplainError where credentials would be sent for everybody to read."""
    parts = urlsplit(server)
    if parts.scheme == "https" or _is_loopback(parts.hostname or ""):
        return
    raise ExplainError(
        f"credentials are not sent to {server}, which is neither this machine nor https; "
        "use https, or --kubeconfig='' to ask as nobody"
    )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def ask(target: Target, namespace: str, name: str) -> bytes:
    """The scheduler's answer, JSON. Raises ExplainError, ConfigurationError."""
    agent = user_agent(version(_DISTRIBUTION), "explain")
    path = f"/debug/pods/{path_segment(namespace)}/{path_segment(name)}"
    try:
        async with KubeClient(target.connection(), agent=agent, max_throttled=0) as client:
            return (await client.request("GET", path)).body
    except ConnectionFailed as err:
        raise ExplainError(_unreachable(target, err)) from err
    except Unauthorized as err:
        raise ExplainError(
            f"{target.server} does not accept these credentials ({err}); give others with --token or --kubeconfig"
        ) from err
    except Forbidden as err:
        raise ExplainError(_forbidden(err)) from err
    except KubeApiError as err:
        raise ExplainError(str(err)) from err


def _forbidden(err: Forbidden) -> str:
    right = 'It takes the right to "get" the nonResourceURL /debug/pods/*'
    if _NOBODY not in str(err):
        return f"{err}. {right}"
    return (
        f"{err}. The scheduler knows no client certificates but those of its --client-ca-file: "
        f'give a token, such as --token "$(kubectl create token ACCOUNT)". {right}'
    )


def _unreachable(target: Target, err: ConnectionFailed) -> str:
    text = str(err)
    if "certificate verify failed" in text.lower():
        return (
            f"the certificate of {target.server} is not trusted ({text}); give its authority with "
            "--certificate-authority, or --insecure-skip-tls-verify for a self-signed one"
        )
    return f"{target.server} cannot be asked ({text}); {_FORWARD}"


def split_name(pod: str, namespace: str) -> tuple[str, str]:
    """NAMESPACE/POD, or POD in ``namespace``.

    >>> split_name("shop/cart-0", "default")
    ('shop', 'cart-0')
    """
    before, slash, after = pod.rpartition("/")
    where, name = (before, after) if slash else (namespace, pod)
    if not where or not name or "/" in where:
        raise click.BadParameter(f"{pod!r} is not NAMESPACE/POD")
    return where, name


def _default_kubeconfig() -> str:
    given = os.environ.get("KUBECONFIG", "")
    usual = Path.home() / ".kube" / "config"
    return given or (str(usual) if usual.is_file() else "")


@click.command("explain")
@click.argument("pod", metavar="NAMESPACE/POD")
@click.option("-n", "--namespace", default="default", show_default=True)
@click.option("--server", default=DEFAULT_SERVER, show_default=True, help="The scheduler's URL.")
@click.option(
    "--kubeconfig",
    default=_default_kubeconfig,
    show_default="$KUBECONFIG or ~/.kube/config",
    metavar="FILE",
    help="Whose token or certificate to present.",
)
@click.option("--context", default=None, help="The kubeconfig's context.")
@click.option("--token", default="", help="A bearer token, in place of a kubeconfig.")
@click.option(
    "--certificate-authority",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The authority of the scheduler's certificate.",
)
@click.option("--tls-server-name", default=None, help="The name in the scheduler's certificate.")
@click.option(
    "--insecure-skip-tls-verify", is_flag=True, help="Trust whatever certificate it shows."
)
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
def _explain(*, pod: str, namespace: str, output: str, **target: Any) -> None:
    """Say why a pod is where it is, or why it is pending.

    Asks a running scheduler: what was tried, what each plugin and extender refused, the best nodes with their scores, and
    what the pod waits for. Exits with 1 if the scheduler knows nothing of the pod.
    """
    where, name = split_name(pod, namespace)
    with explained(ExplainError, ConfigurationError):
        answer = run_loop(ask(Target(**target), where, name))
    if output == "json":
        click.echo(json.dumps(json.loads(answer), indent=2))
        return
    explanation = msgspec.json.decode(answer, type=Explanation)
    console = Console(highlight=False, markup=False, emoji=False)
    render(explanation, console, SystemClock().wall())


command: Final = _explain
