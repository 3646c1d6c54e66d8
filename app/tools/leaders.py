"""Finds the leading schedulers of a cluster and connects to them, directly or with ``kubectl port-forward``.

A leader writes its address and certificate into its lease (app.kube.leaders). If the address is only reachable inside
the cluster, port-forward to its pod goes through the API server.
"""

import asyncio
import contextlib
import ipaddress
import re
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from app.kube.connection import normalize_server
from app.kube.errors import UNREADABLE, ConnectionSettingsError, KubeError
from app.kube.leaders import Leader, LeaderLease, leader_leases
from app.kube.transport import Transport, path_segment
from app.tools.subprocesses import ChildFailed, child
from app.wire.sanitize import decode

#: Timeout of a connection in seconds; addresses of other networks often do not answer at all.
CONNECT_SECONDS: Final = 2.0
#: Timeout in seconds until kubectl forwards.
FORWARD_SECONDS: Final = 20.0
#: Seconds to wait for a leader that has started only now to name its endpoints, and between two looks at its lease.
STARTING_SECONDS: Final = 20.0
STARTING_PAUSE: Final = 0.2

_PROGRAM: Final = "aiokube-scheduler"
_FORWARDING: Final = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) ")


class NotReached(Exception):  # noqa: N818 - says what happened
    """No scheduler was found or reached; the text says what was tried."""


class Kubectl(NamedTuple):
    """Options of kubectl: a kubeconfig, or several joined by ``:``, and one of its contexts."""

    kubeconfig: str
    context: str | None = None

    def command(self, *arguments: str) -> list[str]:
        """A command line."""
        context = [] if self.context is None else ["--context", self.context]
        return ["kubectl", *context, *arguments]


class _Metadata(msgspec.Struct, frozen=True):
    namespace: str = ""
    name: str = ""


class _Container(msgspec.Struct, frozen=True):
    image: str = ""
    command: list[str] | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    containers: list[_Container] = []
    host_network: bool = False
    scheduler_name: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec

    @property
    def is_on_host_network(self) -> bool:
        """Whether it is a scheduler on the host network, where its host name is the node's."""
        words = [word for c in self.spec.containers for word in (c.image, *(c.command or ()))]
        return self.spec.host_network and any(_PROGRAM in word for word in words)


class _Pods(msgspec.Struct, frozen=True):
    items: list[_Pod] | None = None


_POD: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(_Pod)
_PODS: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(_Pods)


async def scheduler_name_of(api: Transport, namespace: str, pod: str) -> str | None:
    """The pod's schedulerName; None if the pod cannot be read."""
    path = f"/api/v1/namespaces/{path_segment(namespace)}/pods/{path_segment(pod)}"
    try:
        answer = await api.request("GET", path)
        found: _Pod = decode(_POD, answer.body)
    except (KubeError, *UNREADABLE):
        return None
    return found.spec.scheduler_name


async def find_leaders(
    api: Transport, scheduler_name: str | None, namespace: str
) -> list[LeaderLease]:
    """The leases of this scheduler in a namespace; if profiles of some have the given name, only those.

    Waits up to STARTING_SECONDS if none of them has named its endpoints yet. Raises NotReached.
    """
    where = f"in namespace {namespace} (--lease-namespace)"
    loop = asyncio.get_running_loop()
    until = loop.time() + STARTING_SECONDS
    while True:
        try:
            leases = await leader_leases(api, namespace)
        except (KubeError, *UNREADABLE) as error:
            raise NotReached(f"the leases {where} cannot be listed: {error}") from error
        if not leases:
            raise NotReached(f"no lease {where} is that of an aiokube-scheduler")
        named = [e for e in leases if e.leader and scheduler_name in e.leader.scheduler_names]
        found = named or leases
        leaders = [e.leader for e in found if e.leader]
        starting = any(e.starting for e in leaders) and not any(e.server for e in leaders)
        if not starting or loop.time() >= until:
            return found
        await asyncio.sleep(STARTING_PAUSE)


@contextlib.asynccontextmanager
async def reached(lease: LeaderLease, api: Transport, kubectl: Kubectl) -> AsyncIterator[str]:
    """A URL of the endpoints of the lease's holder, valid during the block. Raises NotReached."""
    where, leader = f"lease {lease.namespace}/{lease.name}", lease.leader
    if leader is None:
        holder = f"{lease.holder}, which is no aiokube-scheduler" if lease.holder else "no process"
        raise NotReached(f"{where} is held by {holder}")
    if not leader.server:
        why = "has not named its endpoints yet" if leader.starting else "serves no endpoints"
        raise NotReached(f"{where} is held by {leader.identity}, which {why}")
    try:
        normalize_server(leader.server)
    except ConnectionSettingsError as error:
        raise NotReached(f"{where} has no address of endpoints: {error}") from error
    problem = await _connect(leader)
    if problem is None:
        yield leader.server
        return
    try:
        pod = await _pod_of(leader, lease.namespace, api)
        port = urlsplit(leader.server).port or 443
        async with _forwarded(kubectl, pod, port) as forwarded:
            yield f"{urlsplit(leader.server).scheme}://127.0.0.1:{forwarded}"
    except (ChildFailed, _ForwardError) as error:
        raise NotReached(
            f"{where} is held by {leader.identity}\n{leader.server}: {problem}\n{error}"
        ) from error


async def _connect(leader: Leader) -> str | None:
    """Why no connection to the leader's address can be made; None if one can."""
    url = urlsplit(leader.server)
    host, port = url.hostname or "", url.port or 443
    if is_loopback(host) and leader.host != socket.gethostname():
        return f"an address of {leader.host}, and this machine is {socket.gethostname()}"
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return f"no connection within {CONNECT_SECONDS:.0f} s"
    except OSError as error:
        return error.strerror or str(error)
    writer.close()
    return None


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine's own."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# ---------------------------------------------------------------- port-forward


class _ForwardError(Exception):
    """kubectl cannot forward to the leader; the text says why."""


async def _pod_of(leader: Leader, namespace: str, api: Transport) -> _Metadata:
    """The leader's pod, by its host name. Raises _ForwardError."""
    host = leader.host
    try:
        pods = await _pods(api, f"metadata.name={host}")
        if not pods:
            on_node = await _pods(api, f"spec.nodeName={host}")
            pods = [pod for pod in on_node if pod.is_on_host_network]
    except (KubeError, *UNREADABLE) as error:
        raise _ForwardError(f"its pod cannot be looked for: {error}") from error
    found = [pod.metadata for pod in pods]
    beside = [each for each in found if each.namespace == namespace]
    if len(beside or found) != 1:
        raise _ForwardError(f"{len(beside or found) or 'no'} pods could be the one on host {host}")
    return (beside or found)[0]


async def _pods(api: Transport, selector: str) -> list[_Pod]:
    answer = await api.request("GET", "/api/v1/pods", params={"fieldSelector": selector})
    pods: _Pods = decode(_PODS, answer.body)
    return pods.items or []


@contextlib.asynccontextmanager
async def _forwarded(kubectl: Kubectl, pod: _Metadata, port: int) -> AsyncIterator[str]:
    """A port of this machine that leads to the pod's. Raises _ForwardError, ChildFailed."""
    if shutil.which("kubectl") is None:
        raise _ForwardError("no port-forward either: there is no kubectl on the PATH")
    arguments = ("port-forward", "--address=127.0.0.1", f"--namespace={pod.namespace}")
    command = kubectl.command(*arguments, f"pod/{pod.name}", f":{port}")
    with tempfile.TemporaryDirectory(prefix="aiokube-scheduler-forward-") as folder:
        log = Path(folder, "log")
        env = {"KUBECONFIG": kubectl.kubeconfig}
        async with child(command, log=log, name=" ".join(command), env=env) as running:
            found = await running.wait_output(_FORWARDING, "did not forward", FORWARD_SECONDS)
            yield found[1]
