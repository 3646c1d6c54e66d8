"""Who asks, and whether they may: as kube-scheduler delegates it to the API server.

See docs/spec/endpoints.md#authentication.

Who shows a client certificate of the given authority is who the certificate says; who shows a bearer token is who the API
server says (TokenReview), or is turned away if it knows nobody with that token; anybody else is ``system:anonymous``. What they may
see beyond the health endpoints is the API server's to say as well (SubjectAccessReview). Both answers are kept for some
seconds; tokens are not: their hash stands for them.
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
#: Answers kept at most.
_CACHE_SIZE: Final = 2048

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TtlCache(Generic[K, V]):
    """Remembers answers for a while; those who ask for the same at the same time share one question."""

    def __init__(self, ttl: Callable[[V], float], size: int = _CACHE_SIZE) -> None:
        """``ttl``: how many seconds an answer is good for."""
        self._ttl: Final = ttl
        self._size: Final = size
        self._known: Final[OrderedDict[K, tuple[float, V]]] = OrderedDict()
        self._asking: Final[WeakValueDictionary[K, asyncio.Lock]] = WeakValueDictionary()

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """The answer, asked for if it is not known. What ``ask`` raises is passed on and not remembered."""
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


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """A request that is not served; ``response`` says so as the API server would."""

    def __init__(self, response: web.Response) -> None:
        super().__init__(response.reason)
        self.response: Final = response


class Authenticator:
    """Tells who makes a request."""

    def __init__(self, options: ServingOptions, reviews: Reviews | None) -> None:
        """``reviews`` None: no tokens are reviewed."""
        self._reviews: Final = None if options.authentication_skip_lookup else reviews
        self._cache: Final[TtlCache[bytes, User | None]] = TtlCache(
            lambda _user: options.authentication_token_webhook_cache_ttl
        )

    async def user(self, request: web.Request) -> User:
        """The user. Raises Refused for a token that is nobody's or cannot be reviewed."""
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
        if not token.isascii():  # no token has other characters, and not all of them can be encoded
            raise Refused(_unauthorized())
        reviews, digest = self._reviews, hashlib.sha256(token.encode()).digest()
        try:
            user = await self._cache.get(digest, lambda: reviews.who_has(token))
        except KubeError as err:
            log.error("Unable to authenticate the request: %s", err)
            user = None
        if user is None:
            raise Refused(_unauthorized())
        return user


class Authorizer:
    """Tells who may see what."""

    def __init__(self, options: ServingOptions, reviews: Reviews | None) -> None:
        """``reviews`` None: only what everybody may see is served."""
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
        """Whether everybody may see the path."""
        return path in self._open or (bool(self._open_below) and path.startswith(self._open_below))

    async def check(self, user: User, request: web.Request) -> None:
        """Returns if the user may. Raises Refused."""
        if _MASTERS in user.groups:
            return
        access = await self._ask(user, request.method.lower(), request.path)
        if not access.allowed:
            raise Refused(_forbidden(user, request, access.reason))

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
            raise Refused(web.Response(status=500, text=text)) from err


def _of_certificate(request: web.Request) -> User | None:
    """Who the client's certificate is made out to, once OpenSSL has verified it."""
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
    said = f'forbidden: User "{user.name}" cannot {request.method.lower()} path "{request.path}"'
    return status_response(403, "Forbidden", f"{said}: {reason}" if reason else said)


def status_response(code: int, reason: str, message: str) -> web.Response:
    """An error as the API server words it: a metav1.Status."""
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
