"""Authenticates and authorizes requests, delegated to the API server as in kube-scheduler.

See docs/spec/endpoints.md#authentication.

A client certificate of the given authority names the user. A bearer token is reviewed by the API server (TokenReview);
an unknown token is rejected with 401. Any other client is ``system:anonymous``. Access to anything except the health
endpoints is reviewed too (SubjectAccessReview). Answers are cached for some seconds; the cache has hashes of the
tokens, not the tokens.
"""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any, Final, Generic, TypeVar
from weakref import WeakValueDictionary

import msgspec
from aiohttp import web

from app.kube.errors import KubeError
from app.kube.reviews import Access, Reviews, User
from app.serving.options import ServingOptions

log = logging.getLogger(__name__)

ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",))
_AUTHENTICATED: Final = "system:authenticated"
_MASTERS: Final = "system:masters"
#: Largest number of answers in a cache.
_CACHE_SIZE: Final = 2048

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TtlCache(Generic[K, V]):
    """Caches answers for a time; concurrent callers with the same key share one request."""

    def __init__(self, ttl: Callable[[V], float], size: int = _CACHE_SIZE) -> None:
        """``ttl``: seconds for which an answer is cached."""
        self._ttl: Final = ttl
        self._size: Final = size
        self._known: Final[OrderedDict[K, tuple[float, V]]] = OrderedDict()
        self._asking: Final[WeakValueDictionary[K, asyncio.Lock]] = WeakValueDictionary()

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """The cached answer, or that of ``ask``. What ``ask`` raises is passed on and not cached."""
        lock = self._asking.get(key)
        if lock is None:
            lock = self._asking[key] = asyncio.Lock()
        async with lock:
            now = asyncio.get_running_loop().time
            known = self._known.get(key)
            if known is not None and now() < known[0]:
                return known[1]
            answer = await ask()
            self._known[key] = (now() + self._ttl(answer), answer)
            self._known.move_to_end(key)
            if len(self._known) > self._size:
                self._known.popitem(last=False)
            return answer


class RequestRejected(Exception):  # noqa: N818 - an answer, not a fault
    """The request is rejected; ``response`` has the reason in the API server's form."""

    def __init__(self, response: web.Response) -> None:
        super().__init__(response.reason)
        self.response: Final = response


class Authenticator:
    """Finds the user of a request."""

    def __init__(self, options: ServingOptions, reviews: Reviews | None) -> None:
        """``reviews`` None: no tokens are reviewed."""
        self._reviews: Final = None if options.authentication_skip_lookup else reviews
        self._cache: Final[TtlCache[bytes, User | None]] = TtlCache(
            lambda _user: options.authentication_token_webhook_cache_ttl
        )

    async def user(self, request: web.Request) -> User:
        """The user. Raises RequestRejected for a token that is unknown or cannot be reviewed."""
        user = _of_certificate(request)
        if user is None:
            user = await self._of_token(_bearer_token(request))
        if user is None:
            return ANONYMOUS
        if _AUTHENTICATED in user.groups:
            return user
        return User(user.name, (*user.groups, _AUTHENTICATED), user.uid, user.extra)

    async def _of_token(self, token: str) -> User | None:
        if not token or self._reviews is None:
            return None
        if (
            not token.isascii()
        ):  # valid tokens are ASCII, and some other characters cannot be encoded
            raise RequestRejected(_unauthorized())
        reviews, digest = self._reviews, hashlib.sha256(token.encode()).digest()
        try:
            user = await self._cache.get(digest, lambda: reviews.who_has(token))
        except KubeError as err:
            log.error("Unable to authenticate the request: %s", err)
            user = None
        if user is None:
            raise RequestRejected(_unauthorized())
        return user


class Authorizer:
    """Checks whether users may access paths."""

    def __init__(self, options: ServingOptions, reviews: Reviews | None) -> None:
        """``reviews`` None: only the paths that are always allowed are served."""
        self._reviews: Final = reviews
        self._open: Final = frozenset(
            p for p in options.authorization_always_allow_paths if p[-1:] != "*"
        )
        self._open_below: Final = tuple(
            p[:-1] for p in options.authorization_always_allow_paths if p[-1:] == "*"
        )
        ttl = {
            True: options.authorization_webhook_cache_authorized_ttl,
            False: options.authorization_webhook_cache_unauthorized_ttl,
        }
        self._cache: Final[TtlCache[tuple[Hashable, ...], Access]] = TtlCache(
            lambda access: ttl[access.allowed]
        )

    def is_open(self, path: str) -> bool:
        """Whether all users may access the path."""
        return path in self._open or (bool(self._open_below) and path.startswith(self._open_below))

    async def check(self, user: User, request: web.Request) -> None:
        """Returns if the user has access. Raises RequestRejected."""
        if _MASTERS in user.groups:
            return
        access = await self._ask(user, request.method.lower(), request.path)
        if not access.allowed:
            raise RequestRejected(_forbidden(user, request, access.reason))

    async def _ask(self, user: User, verb: str, path: str) -> Access:
        reviews = self._reviews
        if reviews is None:
            return Access(allowed=False)
        key = (user.name, user.uid, user.groups, tuple(user.extra.items()), verb, path)
        try:
            return await self._cache.get(key, lambda: reviews.may(user, verb, path))
        except KubeError as err:
            log.error("Unable to authorize a request for %r: %s", path, err)
            text = f"Internal Server Error: {msgspec.json.encode(path).decode()}: {err}\n"
            raise RequestRejected(web.Response(status=500, text=text)) from err


def _of_certificate(request: web.Request) -> User | None:
    """The user named by the client certificate, which OpenSSL has verified."""
    certificate = request.get_extra_info("peercert")
    if not certificate:
        return None
    subject = [pair for name in certificate["subject"] for pair in name]
    names = [value for field, value in subject if field == "commonName"]
    groups = tuple(value for field, value in subject if field == "organizationName")
    return User(names[0], groups) if names else None


def _bearer_token(request: web.Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _unauthorized() -> web.Response:
    return status_response(401, "Unauthorized", "Unauthorized")


def _forbidden(user: User, request: web.Request, reason: str) -> web.Response:
    message = f'forbidden: User "{user.name}" cannot {request.method.lower()} path "{request.path}"'
    return status_response(403, "Forbidden", f"{message}: {reason}" if reason else message)


def status_response(code: int, reason: str, message: str) -> web.Response:
    """An error in the API server's form, a metav1.Status."""
    status: Mapping[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        **({"details": {}} if code == 403 else {}),
        "code": code,
    }
    return web.Response(
        status=code, body=msgspec.json.encode(status), content_type="application/json"
    )
