"""The envelopes of the Kubernetes API: watch lines and lists around objects of one kind.

An envelope is split without decoding its objects. Then each object is decoded on its own, so that an invalid object
does not affect the others.
"""

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from app.model.limits import MAX_NAME, MAX_UNCHECKED_BYTES
from app.model.objects import Named, ObjectMeta
from app.wire.sanitize import decode, sanitized

T = TypeVar("T")
M = TypeVar("M", bound=ObjectMeta)

#: The metadata of a BOOKMARK: ``resource_version`` and ``annotations`` (``k8s.io/initial-events-end``).
Bookmark = Named

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class ApiStatus(msgspec.Struct, frozen=True):
    """metav1.Status, as in an ERROR line or the body of a refused request."""

    code: int = 0
    reason: str = ""
    message: str = ""
    status: str = ""


class DecodeError(ValueError):
    """An object, watch line or list that cannot be decoded.

    ``named``: metadata with the identity of the object; None if that cannot be decoded either. ``event``: the type of
    the watch line. ``instead``: an object to use in its place, None for none. ``outcome``: how the object is handled,
    as in "cannot be read and is ignored".
    """

    def __init__(
        self,
        kind: str,
        problem: str,
        *,
        named: Named | None = None,
        event: str = "",
        instead: Any = None,
        outcome: str = "is ignored",
    ) -> None:
        self.kind = kind
        self.problem = problem
        self.named = named
        self.event = event
        self.instead = instead
        self.outcome = outcome
        super().__init__(f"{kind} {self.key}: {problem}" if named else f"{kind}: {problem}")

    @property
    def key(self) -> str:
        """``namespace/name``, or the name alone for cluster-scoped kinds; "" if it is not known."""
        return "" if self.named is None else self.named.key


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _ListMeta(msgspec.Struct, rename={"resource_version": "resourceVersion"}):
    resource_version: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")


class _List(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


class ListPage(msgspec.Struct, frozen=True):
    """A list, or a page of one: the JSON of its objects, its resourceVersion, and the token for the next page or ""."""

    objects: list[msgspec.Raw]
    resource_version: str
    continue_token: str


class BareMeta(msgspec.Struct, rename="camel"):
    """The metadata that identifies an object."""

    name: str
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None

    def full(self, kind: type[M]) -> M:
        """Metadata with these fields only."""
        return kind(
            name=self.name,
            namespace=self.namespace or "",
            uid=self.uid or "",
            resource_version=self.resource_version or "",
        )


class Bare(msgspec.Struct):
    """The identity of an object of any kind."""

    metadata: BareMeta


# The lines that API servers write. What lies between the two parts is one object only if it can be decoded as one.
_USUAL = re.compile(rb'\{"type":"(ADDED|MODIFIED|DELETED)","object":(\{.*\})\}\s*', re.DOTALL)

_TYPES = frozenset({"ADDED", "MODIFIED", "DELETED"})

_LINE = msgspec.json.Decoder(_Line)
_LIST = msgspec.json.Decoder(_List)
_BOOKMARK = msgspec.json.Decoder(Named)
_STATUS = msgspec.json.Decoder(ApiStatus)
_BARE = msgspec.json.Decoder(Bare)

#: Bytes of the largest object in which explicit nulls are looked for: it takes up to 300 ns a byte.
_MAX_WITH_NULLS = 32 * 1024


#: An object, and what becomes of the one in whose place it is used.
Instead = tuple[T, str]


def nothing_instead_of(_raw: msgspec.Raw) -> None:
    """For kinds without a replacement for invalid objects."""


class ObjectDecoder(Generic[T]):
    """Decodes objects of one kind: alone, in watch lines and in lists.

    ``kind``: the name in messages. ``decode_object`` decodes one object's JSON; any exception concerns this object
    only. ``check_size`` raises ValueError for large objects of which too much would be decoded. ``instead_of``
    returns, for an invalid object of any size, an object to use in its place and a text for the log; None for none.
    It may raise as well.
    """

    def __init__(
        self,
        kind: str,
        decode_object: Callable[[msgspec.Raw], T],
        check_size: Callable[[msgspec.Raw], None],
        instead_of: Callable[[msgspec.Raw], Instead[T] | None] = nothing_instead_of,
    ) -> None:
        self.kind = kind
        self._decode_object = decode_object
        self._check_size = check_size
        self._instead_of = instead_of

    def decode(self, body: bytes | msgspec.Raw) -> T:
        """Decodes one object. Null fields count as absent. Raises DecodeError."""
        raw = body if isinstance(body, msgspec.Raw) else msgspec.Raw(body)
        try:
            return self._read(raw)
        except Exception as err:  # noqa: BLE001 - see above
            return self._decode_again(raw, err)

    def _read(self, raw: msgspec.Raw) -> T:
        """Decodes one object unless too much of it would be read."""
        if len(raw) > MAX_UNCHECKED_BYTES:
            self._check_size(raw)
        return self._decode_object(raw)

    def decode_line(self, line: bytes) -> tuple[str, T | Bookmark | ApiStatus]:
        """Decodes one watch line into (type, object).

        The object is a Bookmark for BOOKMARK, an ApiStatus for ERROR. Raises DecodeError, which names the object
        when only the object is at fault.
        """
        if len(line) > MAX_UNCHECKED_BYTES:
            return self._decode_any_line(line)
        return self._decode_usual_line(line) or self._decode_any_line(line)

    def split_list(self, body: bytes) -> ListPage:
        """Splits a list without decoding its objects. Raises DecodeError.

        JSON that Go accepts and msgspec does not is an error here: ``sanitized`` is slow for a long list.
        """
        try:
            page = _LIST.decode(body)
        except (msgspec.DecodeError, ValueError, RecursionError) as err:
            raise DecodeError(self.kind, f"unreadable list: {err}") from err
        meta = page.metadata
        return ListPage(page.items or [], meta.resource_version, meta.continue_ or "")

    def decode_list(
        self, body: bytes, skipped: list[DecodeError] | None = None
    ) -> tuple[list[T], str, str]:
        """Decodes a list into (items, resourceVersion, continue token or "").

        Invalid objects are left out and their errors appended to ``skipped``; if it is None, the first one is raised.
        Raises DecodeError if the list itself is invalid.
        """
        page = self.split_list(body)
        return self.decode_all(page.objects, skipped), page.resource_version, page.continue_token

    def decode_all(
        self, objects: Sequence[msgspec.Raw], skipped: list[DecodeError] | None = None
    ) -> list[T]:
        """Decodes the objects of a list. ``skipped`` as for decode_list; raises DecodeError without it."""
        if max(map(len, objects), default=0) <= MAX_UNCHECKED_BYTES:
            try:
                return list(map(self._decode_object, objects))
            except Exception:  # noqa: BLE001, S110 - the invalid object is found below
                pass
        return [item for raw in objects for item in self._decoded(raw, skipped)]

    def _decoded(self, raw: msgspec.Raw, skipped: list[DecodeError] | None) -> tuple[T, ...]:
        """The decoded object, or None."""
        try:
            return (self.decode(raw),)
        except DecodeError as err:
            if skipped is None:
                raise
            skipped.append(err)
            return () if err.instead is None else (err.instead,)

    def _decode_usual_line(self, line: bytes) -> tuple[str, T] | None:
        """Decodes a line in the usual format in one pass; None for other lines and for invalid objects."""
        usual = _USUAL.fullmatch(line)
        if usual is None:
            return None
        try:
            return sys.intern(usual[1].decode()), self._decode_object(msgspec.Raw(usual[2]))
        except Exception:  # noqa: BLE001 - as in ``decode``, which is asked next
            return None

    def _decode_any_line(self, line: bytes) -> tuple[str, T | Bookmark | ApiStatus]:
        try:
            event = decode(_LINE, line)
            if event.type == "BOOKMARK":
                return event.type, decode(_BOOKMARK, event.object)
            if event.type == "ERROR":
                return event.type, decode(_STATUS, event.object)
        except (msgspec.DecodeError, ValueError) as err:
            raise DecodeError(self.kind, f"unreadable watch line: {err}") from err
        if event.type not in _TYPES:
            raise DecodeError(self.kind, f"unknown type of watch line: {event.type[:64]!r}")
        try:
            return event.type, self.decode(event.object)
        except DecodeError as err:
            err.event = event.type
            raise

    def _decode_again(self, raw: msgspec.Raw, first: Exception) -> T:
        """Decodes what Go accepts as well: lone surrogates, deep nesting, and explicit nulls, which are absent
        fields."""
        if isinstance(first, msgspec.ValidationError):
            rewrites = [_without_nulls]
        elif isinstance(first, msgspec.DecodeError | RecursionError):
            rewrites = [_sanitized, _without_nulls]
        else:
            rewrites = []
        for rewrite in rewrites:
            try:
                raw = rewrite(raw)
                return self._read(raw)
            except Exception:  # noqa: BLE001, S112 - the first error says what is wrong
                continue
        raise self._error(raw, first) from first

    def _error(self, raw: msgspec.Raw, err: Exception) -> DecodeError:
        error = DecodeError(self.kind, str(err) or type(err).__name__)
        try:
            named = Named(decode(_BARE, raw).metadata.full(ObjectMeta))
            error = DecodeError(self.kind, error.problem, named=named)
            named_in_full = max(map(len, (named.key, named.uid))) <= 2 * MAX_NAME
            found = self._instead_of(raw) if named_in_full else None
            if found is not None:
                error.instead, error.outcome = found
        except Exception:  # noqa: BLE001, S110 - then there is less to say of it
            pass
        return error


def _sanitized(raw: msgspec.Raw) -> msgspec.Raw:
    return msgspec.Raw(sanitized(bytes(raw)))


def _without_nulls(raw: msgspec.Raw) -> msgspec.Raw:
    if len(raw) > _MAX_WITH_NULLS or b"null" not in bytes(raw):
        raise ValueError("too large, or without nulls")
    return msgspec.Raw(msgspec.json.encode(_pruned(msgspec.json.decode(raw))))


def _pruned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _pruned(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_pruned(item) for item in value]
    return value
