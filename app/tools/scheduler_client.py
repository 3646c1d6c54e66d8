"""Finds a running scheduler and asks it, with the user's credentials: for ``explain``, ``why``, ``dashboard`` and
``top``.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from app.kube.client import ClientLimits, KubeClient
from app.kube.connection import (
    Connection,
    Identify,
    Identity,
    anonymous,
    fixed_source,
    normalize_server,
    read_file,
    user_agent,
)
from app.kube.errors import (
    ConnectionFailed,
    Forbidden,
    KubeApiError,
    NotFound,
    Unauthorized,
)
from app.kube.kubeconfig import load_connection, namespace_of
from app.kube.leaders import LeaderLease
from app.kube.transport import path_segment
from app.runtime.clock import SystemClock
from app.runtime.distributions import version
from app.tools.feed_model import Event, events_of
from app.tools.leaders import (
    Kubectl,
    NotReached,
    find_leaders,
    is_loopback,
    reached,
    scheduler_name_of,
)

#: Seconds without data after which a connection to the feed counts as broken; the scheduler sends twice a second.
SILENT_SECONDS: Final = 10.0
#: Seconds until an event must be complete, also over a slow network.
EVENT_SECONDS: Final = 60.0
DEFAULT_SERVER: Final = "https://localhost:10259"
_DISTRIBUTION: Final = "aiokube-scheduler"
#: The user of requests without a token, or with a client certificate of an authority that the scheduler does not know.
_ANONYMOUS: Final = "system:anonymous"


class NotAnswered(Exception):  # noqa: N818 - says what happened
    """No scheduler answered; the text says why and what to do."""


class Unreachable(NotAnswered):
    """There was no answer, not even an error: the scheduler may be elsewhere by now."""


class UnknownObject(NotAnswered):
    """A scheduler answered that it does not know the object."""


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
    lease_namespace: str = "kube-system"

    def api_server(self) -> Connection:
        """The connection to the API server. Raises ConnectionSettingsError."""
        connection = load_connection(
            kubeconfig=self.kubeconfig, context=self.context, wall=SystemClock().wall
        )
        if self.token:
            return msgspec.structs.replace(connection, identify=self._identify())
        return connection

    def namespace(self) -> str:
        """That of the kubeconfig's context, or ``default``. Raises ConnectionSettingsError."""
        return namespace_of(self.kubeconfig, self.context) if self.kubeconfig else "default"

    def connection(self, address: str, certificate: str = "") -> Connection:
        """The connection to the scheduler at ``address``; ``certificate`` (PEM) is the one it must have, if given.

        Raises ConnectionSettingsError, NotAnswered.
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
    """Raises NotAnswered if credentials would be sent without encryption to another machine."""
    parts = urlsplit(server)
    if parts.scheme == "https" or is_loopback(parts.hostname or ""):
        return
    raise NotAnswered(
        f"credentials are not sent to {server}, which is neither this machine nor https; "
        "use https, or --kubeconfig='' to ask without credentials"
    )


def _client(connection: Connection, purpose: str) -> KubeClient:
    agent = user_agent(version(_DISTRIBUTION), purpose)
    return KubeClient(connection, agent=agent, limits=ClientLimits(throttled=0))


@contextlib.asynccontextmanager
async def some_scheduler(target: SchedulerTarget, purpose: str) -> AsyncIterator[KubeClient]:
    """A client of the server that the target names, or else of the first leader that can be reached.

    ``purpose`` is part of the User-Agent. Raises NotAnswered, ConnectionSettingsError.
    """
    async with contextlib.AsyncExitStack() as stack:
        connection = await _found(target, purpose, stack)
        yield await stack.enter_async_context(_client(connection, purpose))


async def _found(
    target: SchedulerTarget, purpose: str, stack: contextlib.AsyncExitStack
) -> Connection:
    """How to connect, as long as ``stack`` is open."""
    if target.server or not target.kubeconfig:
        return target.connection(target.server or DEFAULT_SERVER)
    api = await stack.enter_async_context(_client(target.api_server(), purpose))
    try:
        leases = await find_leaders(api, None, target.lease_namespace)
    except NotReached:
        return target.connection(DEFAULT_SERVER)
    problems: list[str] = []
    for lease in leases:
        try:
            return await stack.enter_async_context(_reached(target, lease, api))
        except NotReached as err:
            problems.append(str(err))
    raise NotAnswered("\n".join(problems))


@contextlib.asynccontextmanager
async def _reached(
    target: SchedulerTarget, lease: LeaderLease, api: KubeClient
) -> AsyncIterator[Connection]:
    """How to connect to the lease's holder during the block.

    Raises NotReached, NotAnswered, ConnectionSettingsError.
    """
    async with reached(lease, api, Kubectl(target.kubeconfig, target.context)) as server:
        certificate = "" if lease.leader is None else lease.leader.certificate
        yield target.connection(server, certificate)


@contextlib.asynccontextmanager
async def last_recorded(target: SchedulerTarget, last: str) -> AsyncIterator[AsyncIterator[bytes]]:
    """The bytes of the recording's files that have the last minutes; ``last``: a duration as 5m.

    Raises NotAnswered, ConnectionSettingsError, also while they are read.
    """
    async with some_scheduler(target, "record") as client:
        with answered(client.server, "/recording"):
            params = {"last": last}
            stream = client.stream("/recording", params=params, read_timeout=SILENT_SECONDS)
            async with stream as chunks:
                yield chunks


# ---------------------------------------------------------------- stories of pods


async def story_of(target: SchedulerTarget, namespace: str, name: str) -> bytes:
    """What a scheduler knows about a pod, as JSON. Raises NotAnswered, ConnectionSettingsError."""
    async with _knowing(target, namespace, name) as (_, story):
        return story


async def stories_of(
    target: SchedulerTarget, namespace: str, name: str, pause: float
) -> AsyncGenerator[bytes | NotAnswered, None]:
    """What a scheduler knows about a pod, again every ``pause`` seconds, or why there is no answer now.

    Keeps the connection while it works. Raises NotAnswered if there was no answer yet, ConnectionSettingsError.
    """
    known = False
    while True:
        try:
            async with _knowing(target, namespace, name) as (client, story):
                known = True
                answer: bytes | NotAnswered = story
                while True:
                    yield answer
                    await asyncio.sleep(pause)
                    try:
                        answer = await _story(client, namespace, name)
                    except Unreachable:
                        raise
                    except NotAnswered as err:
                        answer = err
        except NotAnswered as err:
            if not known:
                raise
            yield err
        await asyncio.sleep(pause)


@contextlib.asynccontextmanager
async def _knowing(
    target: SchedulerTarget, namespace: str, name: str
) -> AsyncIterator[tuple[KubeClient, bytes]]:
    """A client of a scheduler that knows the pod, and what it said. Raises NotAnswered, ConnectionSettingsError."""
    async with contextlib.AsyncExitStack() as stack:
        if target.server or not target.kubeconfig:
            yield await _asked(stack, target, target.server or DEFAULT_SERVER, namespace, name)
            return
        api = await stack.enter_async_context(_client(target.api_server(), "explain"))
        try:
            scheduler = await scheduler_name_of(api, namespace, name)
            leases = await find_leaders(api, scheduler, target.lease_namespace)
        except NotReached as err:
            yield await _asked_on_this_machine(stack, target, str(err), namespace, name)
            return
        yield await _asked_leaders(stack, target, api, leases, namespace, name)


async def _asked_leaders(
    stack: contextlib.AsyncExitStack,
    target: SchedulerTarget,
    api: KubeClient,
    leases: Sequence[LeaderLease],
    namespace: str,
    name: str,
) -> tuple[KubeClient, bytes]:
    """The first leader that knows the pod, open as long as ``stack``. Raises NotAnswered, ConnectionSettingsError."""
    problems: list[str] = []
    for lease in leases:
        try:
            async with contextlib.AsyncExitStack() as own:
                connection = await own.enter_async_context(_reached(target, lease, api))
                client = await own.enter_async_context(_client(connection, "explain"))
                found = client, await _story(client, namespace, name)
                await stack.enter_async_context(own.pop_all())
                return found
        except NotReached as err:
            problems.append(str(err))
        except UnknownObject as err:
            problems.append(f"lease {lease.namespace}/{lease.name}: {err}")
    raise NotAnswered("\n".join(problems))


async def _asked_on_this_machine(
    stack: contextlib.AsyncExitStack,
    target: SchedulerTarget,
    problem: str,
    namespace: str,
    name: str,
) -> tuple[KubeClient, bytes]:
    """A scheduler without a lease. Raises NotAnswered, ConnectionSettingsError."""
    try:
        return await _asked(stack, target, DEFAULT_SERVER, namespace, name)
    except UnknownObject:
        raise
    except NotAnswered as err:
        raise NotAnswered(f"{problem}\n{err}") from err


async def _asked(
    stack: contextlib.AsyncExitStack,
    target: SchedulerTarget,
    server: str,
    namespace: str,
    name: str,
) -> tuple[KubeClient, bytes]:
    client = await stack.enter_async_context(_client(target.connection(server), "explain"))
    return client, await _story(client, namespace, name)


async def _story(client: KubeClient, namespace: str, name: str) -> bytes:
    path = f"/debug/pods/{path_segment(namespace)}/{path_segment(name)}"
    with answered(client.server, "/debug/pods/*"):
        return (await client.request("GET", path)).body


@contextlib.contextmanager
def answered(server: str, resource: str, verb: str = "get") -> Iterator[None]:
    """Raises errors of requests to a scheduler as NotAnswered; ``resource`` and ``verb``: the nonResourceURL and the
    verb of the right that they take.
    """
    try:
        yield
    except ConnectionFailed as err:
        raise Unreachable(_unreachable(server, err)) from err
    except Unauthorized as err:
        raise NotAnswered(
            f"{server} does not accept these credentials ({err}); give others with --token or --kubeconfig"
        ) from err
    except Forbidden as err:
        raise NotAnswered(_forbidden(err, resource, verb)) from err
    except NotFound as err:
        raise UnknownObject(str(err)) from err
    except KubeApiError as err:
        raise NotAnswered(str(err)) from err


def _forbidden(err: Forbidden, resource: str, verb: str) -> str:
    right = f'It takes the right to "{verb}" the nonResourceURL {resource}'
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


# ---------------------------------------------------------------- the feed


@dataclasses.dataclass(slots=True, eq=False)
class _Opened:
    """A client with what it needs, and how many requests use it."""

    client: KubeClient
    stack: contextlib.AsyncExitStack
    users: int = 0


class Link:
    """The connection to the scheduler, shared by all requests; looks for the scheduler again once it does not answer.

    Requests that still get answers over the earlier connection keep it.
    """

    def __init__(self, target: SchedulerTarget, purpose: str) -> None:
        """``purpose`` is part of the User-Agent."""
        self._target: Final = target
        self._purpose: Final = purpose
        self._turn: Final = asyncio.Lock()
        self._opened: _Opened | None = None

    async def _open(self) -> _Opened:
        """The present connection. Raises NotAnswered, ConnectionSettingsError."""
        async with self._turn:
            if self._opened is None:
                async with contextlib.AsyncExitStack() as stack:
                    client = await stack.enter_async_context(
                        some_scheduler(self._target, self._purpose)
                    )
                    self._opened = _Opened(client, stack.pop_all())
            return self._opened

    @contextlib.asynccontextmanager
    async def _asking(self, resource: str, verb: str = "get") -> AsyncIterator[KubeClient]:
        """The client, for one request; ``resource`` as for ``answered``.

        Raises NotAnswered, ConnectionSettingsError.
        """
        opened = await self._open()
        opened.users += 1
        try:
            with answered(opened.client.server, resource, verb):
                yield opened.client
        except Unreachable:
            if self._opened is opened:
                self._opened = None
            raise
        finally:
            opened.users -= 1
            if self._opened is not opened and not opened.users:
                await opened.stack.aclose()

    async def aclose(self) -> None:
        """Closes the connection."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.stack.aclose()

    async def get(self, path: str, resource: str) -> bytes:
        """An answer. Raises NotAnswered, ConnectionSettingsError."""
        async with self._asking(resource) as client:
            return (await client.request("GET", path)).body

    async def post(self, path: str, body: bytes, seconds: float) -> bytes:
        """The answer to a body, within so many seconds. Raises NotAnswered, ConnectionSettingsError."""
        async with self._asking(path, "post") as client:
            return (await client.request("POST", path, body=body, timeout=seconds)).body

    async def events(self, after: str) -> AsyncGenerator[Event, None]:
        """The feed from an event on, over answers that follow one another until one is empty.

        Raises NotAnswered, ConnectionSettingsError, and ValueError for an event that is too long.
        """
        async with self._asking("/debug/feed") as client:
            before = None
            while before != after:
                before = after
                async with contextlib.aclosing(_events(client, after)) as events:
                    while event := await _next(events):
                        after = event.number
                        yield event


async def _next(events: AsyncGenerator[Event, None]) -> Event | None:
    """The next event; None after the last. Raises ConnectionFailed if it is not complete in time."""
    try:
        async with asyncio.timeout(EVENT_SECONDS):
            return await anext(events, None)
    except TimeoutError as err:
        raise ConnectionFailed(
            f"no complete event within {EVENT_SECONDS:.0f} s", sent=True
        ) from err


async def _events(client: KubeClient, after: str) -> AsyncGenerator[Event, None]:
    """The events of one answer."""
    params = {"after": after} if after else {}
    stream = client.stream("/debug/feed", params=params, read_timeout=SILENT_SECONDS)
    async with stream as chunks:
        async for event in events_of(chunks):
            if event.data:
                yield event
