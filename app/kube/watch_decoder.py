"""From the chunks of a watch to events of one kind. Nothing here waits or touches the network."""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from app.kube.errors import KubeApiError, error_from_status
from app.model.objects import Named
from app.wire.envelope import ApiStatus, Bookmark, DecodeError, ListPage

logger = logging.getLogger(__name__)

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"
BOOKMARK: Final = "BOOKMARK"
ERROR: Final = "ERROR"

#: Objects that could not be read are named in the log once each, up to this many.
MAX_REPORTED: Final = 1000


class KubeObject(Protocol):
    """What is asked of a decoded object."""

    @property
    def key(self) -> str:
        """``namespace/name``, or the name alone."""
        ...

    @property
    def uid(self) -> str:
        """metadata.uid."""
        ...

    @property
    def resource_version(self) -> str:
        """metadata.resourceVersion."""
        ...


T = TypeVar("T", bound=KubeObject)
T_co = TypeVar("T_co", bound=KubeObject, covariant=True)

#: An event's type and object. A BOOKMARK comes with a Bookmark, a DELETED perhaps with a mere Named.
Event = tuple[str, T | Bookmark]


class Decoder(Protocol[T_co]):
    """Reads the objects of one kind (app.wire.kube.ObjectDecoder)."""

    def decode_line(self, line: bytes) -> tuple[str, T_co | Bookmark | ApiStatus]:
        """A watch line as (type, object)."""
        ...

    def split_list(self, body: bytes) -> ListPage:
        """A list whose objects are still to be decoded."""
        ...

    def decode_all(
        self, objects: Sequence[msgspec.Raw], skipped: list[DecodeError]
    ) -> Sequence[T_co]:
        """Those objects of a list that can be read; the errors of the others are put into ``skipped``."""
        ...


@dataclasses.dataclass(frozen=True)
class ResourceKind(Generic[T]):
    """A kind to be watched: ``name`` (``Pod``), where its collection is, how its objects are read."""

    name: str
    path: str
    decoder: Decoder[T]
    field_selector: str = ""

    @property
    def params(self) -> dict[str, str]:
        """The query parameters that select the objects."""
        return {"fieldSelector": self.field_selector} if self.field_selector else {}


class ListPart(NamedTuple, Generic[T]):
    """Some objects of a list, by key. The last part has ``keys``: those of all that exist, the undecodable ones included."""

    items: Mapping[str, T]
    keys: AbstractSet[str] | None = None


class LineSplitter:
    """Cuts a stream of chunks into lines of any length, in time linear in the bytes.

    >>> splitter = LineSplitter()
    >>> splitter.feed(b"one\\ntw"), splitter.feed(b"o"), splitter.feed(b"\\n\\nthree\\n")
    ([b'one'], [], [b'two', b'three'])
    """

    def __init__(self) -> None:
        self._begun: Final[list[bytes]] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, empty ones left out. The rest waits for its end."""
        first, *others = chunk.split(b"\n")
        self._begun.append(first)
        if not others:
            return []
        lines = [b"".join(self._begun), *others]
        self._begun.clear()
        self._begun.append(lines.pop())
        return [line for line in lines if line]


class _AnyObject(msgspec.Struct):
    type: str
    object: Named


_ANY_OBJECT: Final = msgspec.json.Decoder(_AnyObject)


class Feed(Generic[T]):
    """How far the watch of one kind has got, and what it has met on the way."""

    def __init__(self, kind: ResourceKind[T]) -> None:
        self.kind: Final = kind
        #: Where to resume: that of the last event, bookmark or list.
        self.resource_version = ""
        #: Loop time when anything was last heard from the server, None before.
        self.heard_at: float | None = None
        #: Whether the server had this kind when last asked.
        self.served = True
        self.lists = 0
        self.reconnects = 0
        self.decode_errors = 0
        #: Keys of objects that exist but could not be read when last seen.
        self.unreadable: Final[set[str]] = set()
        self._reported: Final[set[str]] = set()

    def read(self, lines: list[bytes]) -> tuple[list[Event[T]], KubeApiError | None]:
        """Decodes lines and moves on. What cannot be read is counted and skipped; an ERROR line ends the reading."""
        decode = self.kind.decoder.decode_line
        events: list[Event[T]] = []
        for line in lines:
            try:
                kind, item = decode(line)
            except Exception as err:  # noqa: BLE001 - whatever a decoder raises concerns this one object
                self._unreadable(line, err, events)
                continue
            if isinstance(item, ApiStatus):
                return events, self._error(item)
            self.resource_version = item.resource_version or self.resource_version
            if self.unreadable:
                self.unreadable.discard(item.key)
            events.append((kind, item))
        return events, None

    def skip(self, key: str, err: Exception) -> None:
        """Counts an object that cannot be read, and logs it the first time."""
        self.decode_errors += 1
        self.unreadable.add(key)
        if key in self._reported or len(self._reported) >= MAX_REPORTED:
            return
        self._reported.add(key)
        logger.error("%s %s cannot be read and is ignored: %s", self.kind.name, key, err)

    def _unreadable(self, line: bytes, err: Exception, events: list[Event[T]]) -> None:
        """An object may be gone though its content makes no sense: its name is enough for that."""
        try:
            event = _ANY_OBJECT.decode(line)
        except msgspec.MsgspecError:
            self.skip("in a watch line without metadata", err)
            return
        self.skip(event.object.key, err)
        self.resource_version = event.object.resource_version or self.resource_version
        if event.type == DELETED:
            self.unreadable.discard(event.object.key)
            events.append((DELETED, event.object))

    def _error(self, status: ApiStatus) -> KubeApiError:
        message = status.message or f"watch {self.kind.path}: error {status.code}"
        return error_from_status(status.code, message=message, reason=status.reason)
