"""The command ``explain``: asks a running scheduler why a pod is where it is, or why it is pending."""

import dataclasses
import ipaddress
import json
import os
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click
import msgspec

from app.cli.console import console
from app.cli.explain_view import render
from app.cli.process import explained, run_loop
from app.kube.client import KubeClient, user_agent
from app.kube.connection import (
    Connection,
    Identify,
    Identity,
    anonymous,
    fixed_source,
    normalize_server,
    read_file,
)
from app.kube.errors import (
    ConfigurationError,
    ConnectionFailed,
    Forbidden,
    KubeApiError,
    NotFound,
    Unauthorized,
)
from app.kube.kubeconfig import load_connection
from app.kube.leaders import LeaderLease
from app.kube.transport import path_segment
from app.observe.explain import Explanation
from app.runtime.clock import SystemClock
from app.tools.leaders import Kubectl, NotReached, find_leaders, reached, scheduler_name_of

DEFAULT_SERVER: Final = "https://localhost:10259"
_DISTRIBUTION: Final = "aiokube-scheduler"
#: The user of requests without a token, or with a client certificate of an authority that the scheduler does not know.
_ANONYMOUS: Final = "system:anonymous"


class ExplainError(Exception):
    """No scheduler answered; the text says why and what to do."""


class _UnknownPodError(ExplainError):
    """A scheduler answered that it does not know the pod."""


@dataclasses.dataclass(frozen=True, slots=True)
class SchedulerTarget:
    """The scheduler to ask, and the credentials."""

    server: str = ""
    """Its URL; empty for the leader in the kubeconfig's cluster."""
    kubeconfig: str = ""
    context: str | None = None
    token: str = ""
    certificate_authority: Path | None = None
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool = False

    def api_server(self) -> Connection:
        """The connection to the API server. Raises ConfigurationError."""
        connection = load_connection(
            kubeconfig=self.kubeconfig, context=self.context, wall=SystemClock().wall
        )
        if self.token:
            return msgspec.structs.replace(connection, identify=self._identify())
        return connection

    def connection(self, address: str, certificate: str = "") -> Connection:
        """The connection to the scheduler at ``address``; ``certificate`` (PEM) is the one it must have, if given.

        Raises ConfigurationError, ExplainError.
        """
        server = normalize_server(address)
        if self.token or self.kubeconfig:
            _check_confidential(server)
        ca = self.certificate_authority
        pinned = certificate.encode() or None
        return Connection(
            server,
            self._identify(),
            ca=pinned if ca is None else read_file(ca, "certificate authority"),
            check_hostname=ca is not None or pinned is None,
            verify=not self.insecure_skip_tls_verify,
            tls_server_name=self.tls_server_name,
        )

    def _identify(self) -> Identify:
        if self.token:
            return fixed_source(Identity(f"Bearer {self.token}"))
        if self.kubeconfig:
            return self.api_server().identify
        return anonymous


def _check_confidential(server: str) -> None:
    """Raises ExplainError if credentials would be sent without encryption to another machine."""
    parts = urlsplit(server)
    if parts.scheme == "https" or _is_loopback(parts.hostname or ""):
        return
    raise ExplainError(
        f"credentials are not sent to {server}, which is neither this machine nor https; "
        "use https, or --kubeconfig='' to ask without credentials"
    )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def ask(target: SchedulerTarget, namespace: str, name: str) -> bytes:
    """A scheduler's answer as JSON. Raises ExplainError, ConfigurationError."""
    if target.server or not target.kubeconfig:
        return await _ask(target.connection(target.server or DEFAULT_SERVER), namespace, name)
    async with _client(target.api_server()) as api:
        try:
            leases = await find_leaders(api, await scheduler_name_of(api, namespace, name))
        except NotReached as err:
            return await _ask_this_machine(target, namespace, name, str(err))
        return await _ask_leaders(target, leases, api, namespace, name)


async def _ask_leaders(
    target: SchedulerTarget,
    leases: Sequence[LeaderLease],
    api: KubeClient,
    namespace: str,
    name: str,
) -> bytes:
    """The answer of the first leader that knows the pod. Raises ExplainError, ConfigurationError."""
    problems: list[str] = []
    kubectl = Kubectl(target.kubeconfig, target.context)
    for lease in leases:
        try:
            async with reached(lease, api, kubectl) as server:
                certificate = "" if lease.leader is None else lease.leader.certificate
                return await _ask(target.connection(server, certificate), namespace, name)
        except NotReached as err:
            problems.append(f"{err}")
        except _UnknownPodError as err:
            problems.append(f"lease {lease.namespace}/{lease.name}: {err}")
    raise ExplainError("\n".join(problems))


async def _ask_this_machine(
    target: SchedulerTarget, namespace: str, name: str, problem: str
) -> bytes:
    """The answer of a scheduler without a lease. Raises ExplainError, ConfigurationError."""
    try:
        return await _ask(target.connection(DEFAULT_SERVER), namespace, name)
    except _UnknownPodError:
        raise
    except ExplainError as err:
        raise ExplainError(f"{problem}\n{err}") from err


def _client(connection: Connection) -> KubeClient:
    agent = user_agent(version(_DISTRIBUTION), "explain")
    return KubeClient(connection, agent=agent, max_throttled=0)


async def _ask(connection: Connection, namespace: str, name: str) -> bytes:
    path = f"/debug/pods/{path_segment(namespace)}/{path_segment(name)}"
    server = connection.server
    try:
        async with _client(connection) as client:
            return (await client.request("GET", path)).body
    except ConnectionFailed as err:
        raise ExplainError(_unreachable(server, err)) from err
    except Unauthorized as err:
        raise ExplainError(
            f"{server} does not accept these credentials ({err}); give others with --token or --kubeconfig"
        ) from err
    except Forbidden as err:
        raise ExplainError(_forbidden(err)) from err
    except NotFound as err:
        raise _UnknownPodError(str(err)) from err
    except KubeApiError as err:
        raise ExplainError(str(err)) from err


def _forbidden(err: Forbidden) -> str:
    right = 'It takes the right to "get" the nonResourceURL /debug/pods/*'
    if _ANONYMOUS not in str(err):
        return f"{err}. {right}"
    return (
        f"{err}. The scheduler knows no client certificates but those of its --client-ca-file: "
        f'give a token, such as --token "$(kubectl create token ACCOUNT)". {right}'
    )


def _unreachable(server: str, err: ConnectionFailed) -> str:
    text = str(err)
    if "certificate verify failed" in text.lower():
        return (
            f"the certificate of {server} is not trusted ({text}); give its authority with "
            "--certificate-authority, or --insecure-skip-tls-verify for a self-signed one"
        )
    return f"{server} cannot be asked ({text}); name the scheduler with --server"


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
@click.option(
    "--server",
    default="",
    metavar="URL",
    help="The scheduler's URL; by default it is read from the leader's lease.",
)
@click.option(
    "--kubeconfig",
    default=_default_kubeconfig,
    show_default="$KUBECONFIG or ~/.kube/config",
    metavar="FILE",
    help="The scheduler's cluster, and the token or certificate to use.",
)
@click.option("--context", default=None, help="The kubeconfig's context.")
@click.option("--token", default="", help="A bearer token, instead of a kubeconfig.")
@click.option(
    "--certificate-authority",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The authority of the scheduler's certificate; by default the certificate in the lease is trusted.",
)
@click.option("--tls-server-name", default=None, help="The name in the scheduler's certificate.")
@click.option("--insecure-skip-tls-verify", is_flag=True, help="Trust any certificate.")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
def _explain(*, pod: str, namespace: str, output: str, **target: Any) -> None:
    """Say why a pod is where it is, or why it is pending.

    Asks the running scheduler: its attempts, what each plugin and extender rejected, the best nodes with their scores, and what
    the pod waits for. Exits with 1 if the scheduler knows nothing of the pod.
    """
    where, name = split_name(pod, namespace)
    with explained(ExplainError, ConfigurationError):
        answer = run_loop(ask(SchedulerTarget(**target), where, name))
    if output == "json":
        click.echo(json.dumps(json.loads(answer), indent=2))
        return
    explanation = msgspec.json.decode(answer, type=Explanation)
    render(explanation, console(), SystemClock().wall())


command: Final = _explain
