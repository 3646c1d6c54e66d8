"""Asks the API server for users and their rights: TokenReview and SubjectAccessReview."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import msgspec
import numpy as np

from app.kube.backoff import Backoff
from app.kube.client import ClientLimits, KubeClient, Observer
from app.kube.connection import Connection
from app.kube.credentials import CredentialFailures
from app.kube.errors import (
    ConnectionFailed,
    KubeApiError,
    ServerUnavailable,
)
from app.kube.kubeconfig import load_connection
from app.kube.transport import Transport
from app.wire.sanitize import decode

_TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
_ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
#: Timeout of a review in seconds, including repetitions, and how often it is sent at most
#: (docs/spec/endpoints.md#authentication).
TIMEOUT: Final = 10.0
ATTEMPTS: Final = 5

T = TypeVar("T")


class User(msgspec.Struct, frozen=True):
    """An authenticated user."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class Access(msgspec.Struct, frozen=True):
    """The result of a SubjectAccessReview, with the server's reason."""

    allowed: bool
    reason: str = ""


class _UserInfo(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...]] | None = None


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _UserInfo = _UserInfo()
    error: str = ""


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False
    denied: bool = False
    reason: str = ""


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


class Reviews:
    """Makes reviews, without a cache."""

    def __init__(self, transport: Transport, rng: np.random.Generator) -> None:
        self._transport: Final = transport
        self._rng: Final = rng

    async def who_has(self, token: str) -> User | None:
        """The user of a bearer token, None for an unknown token. Raises KubeApiError."""
        status = (
            await self._post(_TOKEN_REVIEWS, "TokenReview", {"token": token}, _TokenReview)
        ).status
        if not status.authenticated:
            return None
        user = status.user
        return User(user.username, user.groups or (), user.uid, user.extra or {})

    async def may(self, user: User, verb: str, path: str) -> Access:
        """Whether ``user`` may do ``verb`` (a lower-case HTTP method) on a non-resource path. Raises KubeApiError."""
        spec = {
            "user": user.name,
            "groups": user.groups,
            "uid": user.uid,
            "extra": user.extra,
            "nonResourceAttributes": {"verb": verb, "path": path},
        }
        review = await self._post(_ACCESS_REVIEWS, "SubjectAccessReview", spec, _AccessReview)
        status = review.status
        return Access(status.allowed and not status.denied, status.reason)

    async def _post(self, path: str, kind: str, spec: Mapping[str, Any], answer: type[T]) -> T:
        group = path.split("/")[2]
        body = msgspec.json.encode({"apiVersion": f"{group}/v1", "kind": kind, "spec": spec})
        try:
            async with asyncio.timeout(TIMEOUT):
                return decode(msgspec.json.Decoder(answer), await self._answer(path, body))
        except TimeoutError as err:
            raise KubeApiError(f"POST {path}: no answer in time") from err
        except (msgspec.DecodeError, ValueError) as err:
            raise KubeApiError(f"POST {path}: the answer is not a {kind}: {err}") from err

    async def _answer(self, path: str, body: bytes) -> bytes:
        waits = Backoff(self._rng, initial=0.5, factor=1.5, cap=3.0, jitter=0.2)
        for _ in range(ATTEMPTS - 1):
            try:
                return (await self._transport.request("POST", path, body=body)).body
            except (ConnectionFailed, ServerUnavailable):
                await asyncio.sleep(waits.next())
        return (await self._transport.request("POST", path, body=body)).body


@asynccontextmanager
async def reviewing(
    connection: Connection,
    kubeconfig: str,
    *,
    agent: str,
    rng: np.random.Generator,
    wall: Callable[[], float],
    observer: Callable[[str], Observer],
    failures: CredentialFailures,
) -> AsyncIterator[Reviews]:
    """Reviews by the API server of ``kubeconfig``, by default that of ``connection``. Raises ConnectionSettingsError.

    ``observer`` gets the server's address; ``failures`` counts what happens to this process's own credentials.
    """
    if kubeconfig:
        connection = load_connection(kubeconfig=kubeconfig, wall=wall)
    client = KubeClient(
        connection,
        agent=agent,
        limits=ClientLimits(exchanges=8),
        observer=observer(connection.server),
        failures=failures,
    )
    async with client:
        yield Reviews(client, rng)
