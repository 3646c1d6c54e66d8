"""The envelopes of the Kubernetes API: watch lines and lists around objects of one kind.

Decoding is lazy where it pays: an envelope is split without looking into the objects, then each object is decoded on
its own, so that one object that cannot be read costs itself only.
"""

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from app.model.objects import Named

T = TypeVar("T")

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
    """An object, watch line or list that cannot be read.

    ``namespace`` and ``name`` are those of the object when they could still be made out, else empty.
    """

    def __init__(self, kind: str, problem: str, *, namespace: str = "", name: str = "") -> None:
        self.kind = kind
        self.problem = problem
        self.namespace = namespace
        self.name = name
        super().__init__(f"{kind} {self.key}: {problem}" if name else f"{kind}: {problem}")

    @property
    def key(self) -> str:
        """``namespace/name``, or the name alone for cluster-scoped kinds."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _ListMeta(msgspec.Struct, rename={"resource_version": "resourceVersion"}):
    resource_version: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")


class _List(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


class ListPage(NamedTuple):
    """A list, or a page of one: the JSON of its objects, its resourceVersion, and the token for the next page or ""."""

    objects: list[msgspec.Raw]
    resource_version: str
    continue_token: str


class _Key(msgspec.Struct):
    namespace: Any = ""
    name: Any = ""


class _Keyed(msgspec.Struct):
    metadata: _Key


# The lines that API servers write. What lies between the two parts is one object only if it can be decoded as one.
_USUAL = re.compile(rb'\{"type":"(ADDED|MODIFIED|DELETED)","object":(\{.*\})\}\s*', re.DOTALL)

_UNREADABLE = (msgspec.MsgspecError, ValueError)

_LINE = msgspec.json.Decoder(_Line)
_LIST = msgspec.json.Decoder(_List)
_BOOKMARK = msgspec.json.Decoder(Named)
_STATUS = msgspec.json.Decoder(ApiStatus)
_KEYED = msgspec.json.Decoder(_Keyed)


class ObjectDecoder(Generic[T]):
    """Decodes objects of one kind: alone, in watch lines and in lists.

    ``kind`` is the name for messages; ``decode_object`` turns one object's JSON into the model and raises
    msgspec.DecodeError or a ValueError for what it cannot read.
    """

    def __init__(self, kind: str, decode_object: Callable[[msgspec.Raw], T]) -> None:
        self.kind = kind
        self._decode_object = decode_object

    def decode(self, body: bytes | msgspec.Raw) -> T:
        """Decodes one object. Fields that are null count as absent. Raises DecodeError."""
        raw = body if isinstance(body, msgspec.Raw) else msgspec.Raw(body)
        try:
            return self._decode_object(raw)
        except msgspec.ValidationError as err:
            return self._decode_again(raw, err)
        except _UNREADABLE as err:
            raise self._error(raw, err) from err

    def decode_line(self, line: bytes) -> tuple[str, T | Bookmark | ApiStatus]:
        """Decodes one watch line into (type, object).

        The object is a Bookmark for BOOKMARK, an ApiStatus for ERROR. Raises DecodeError, which names the object
        when only the object is at fault.
        """
        return self._decode_usual_line(line) or self._decode_any_line(line)

    def split_list(self, body: bytes) -> ListPage:
        """Takes a list apart without looking into its objects. Raises DecodeError."""
        try:
            page = _LIST.decode(body)
        except _UNREADABLE as err:
            raise DecodeError(self.kind, f"unreadable list: {err}") from err
        meta = page.metadata
        return ListPage(page.items or [], meta.resource_version, meta.continue_ or "")

    def decode_list(
        self, body: bytes, skipped: list[DecodeError] | None = None
    ) -> tuple[list[T], str, str]:
        """Decodes a list into (items, resourceVersion, continue token or "").

        Objects that cannot be read are left out and their errors put into ``skipped``; without it the first one is
        raised. Raises DecodeError when the list itself cannot be read.
        """
        page = self.split_list(body)
        return self.decode_all(page.objects, skipped), page.resource_version, page.continue_token

    def decode_all(
        self, objects: Sequence[msgspec.Raw], skipped: list[DecodeError] | None = None
    ) -> list[T]:
        """Decodes the objects of a list. ``skipped`` as for decode_list; raises DecodeError without it."""
        try:
            return list(map(self._decode_object, objects))
        except _UNREADABLE:
            return [item for raw in objects for item in self._decoded(raw, skipped)]

    def _decoded(self, raw: msgspec.Raw, skipped: list[DecodeError] | None) -> tuple[T, ...]:
        """The object, or nothing."""
        try:
            return (self.decode(raw),)
        except DecodeError as err:
            if skipped is None:
                raise
            skipped.append(err)
            return ()

    def _decode_usual_line(self, line: bytes) -> tuple[str, T] | None:
        """Spares a pass over the object; None for an unusual line as for an object that cannot be read."""
        usual = _USUAL.fullmatch(line)
        if usual is None:
            return None
        try:
            return sys.intern(usual[1].decode()), self._decode_object(msgspec.Raw(usual[2]))
        except _UNREADABLE:
            return None

    def _decode_any_line(self, line: bytes) -> tuple[str, T | Bookmark | ApiStatus]:
        try:
            event = _LINE.decode(line)
            if event.type == "BOOKMARK":
                return event.type, _BOOKMARK.decode(event.object)
            if event.type == "ERROR":
                return event.type, _STATUS.decode(event.object)
        except _UNREADABLE as err:
            raise DecodeError(self.kind, f"unreadable watch line: {err}") from err
        return event.type, self.decode(event.object)

    def _decode_again(self, raw: msgspec.Raw, first: msgspec.ValidationError) -> T:
        """Reads an object with explicit nulls, which Go takes for absent fields."""
        try:
            plain = _without_nulls(msgspec.json.decode(raw))
            return self._decode_object(msgspec.Raw(msgspec.json.encode(plain)))
        except _UNREADABLE as err:
            raise self._error(raw, first) from err

    def _error(self, raw: msgspec.Raw, err: Exception) -> DecodeError:
        try:
            key = _KEYED.decode(raw).metadata
        except _UNREADABLE:
            key = _Key()
        return DecodeError(self.kind, str(err), namespace=str(key.namespace), name=str(key.name))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
