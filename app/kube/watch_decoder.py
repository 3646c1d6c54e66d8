"""Decodes the chunks of a watch into events of one kind; without I/O."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from app.kube.errors import KubeApiError, error_from_status
from app.wire.envelope import ApiStatus, Bookmark, DecodeError, ObjectDecoder

logger = logging.getLogger(__name__)

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"
BOOKMARK: Final = "BOOKMARK"
ERROR: Final = "ERROR"

#: Number of unreadable objects that are named in the log, once each.
MAX_REPORTED: Final = 1000

#: Bytes of a line of a watch. An API server sends at most 2 MiB to etcd for an object; as JSON, with every character
#: escaped and the names of fields, these are at most about ten times as many.
MAX_LINE: Final = 64 * 1024 * 1024

#: Seconds of work after which other tasks run.
TURN: Final = 0.005


class KubeObject(Protocol):
    """What every decoded object has."""

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


#: Characters of a name or a reason in the log.
_MAX_SHOWN: Final = 1024

T = TypeVar("T", bound=KubeObject)

#: An event's type and object: a Bookmark for BOOKMARK, perhaps only a Named for DELETED.
WatchEvent = tuple[str, T | Bookmark]


class ResourceKind(msgspec.Struct, Generic[T], frozen=True):
    """A kind to watch: ``name`` (``Pod``), the path of its collection, and the decoder of its objects."""

    name: str
    path: str
    decoder: ObjectDecoder[T]
    field_selector: str = ""
    #: Whether the scheduler also runs without the right to read the kind; it then counts as absent.
    optional: bool = False
    #: The paths in other versions of the API, the newest first: for servers that do not have ``path``.
    older: tuple[str, ...] = ()

    @property
    def params(self) -> dict[str, str]:
        """The query parameters that select the objects."""
        return {"fieldSelector": self.field_selector} if self.field_selector else {}


class ListPart(msgspec.Struct, Generic[T], frozen=True):
    """Some objects of a list, by key. The last part has the ``keys`` of all existing objects, including undecodable
    ones."""

    items: Mapping[str, T]
    keys: AbstractSet[str] | None = None


class LineSplitter:
    """Cuts a stream of chunks into lines, in time linear in the bytes.

    >>> splitter = LineSplitter()
    >>> splitter.feed(b"one\\ntw"), splitter.feed(b"o"), splitter.feed(b"\\n\\nthree\\n")
    ([b'one'], [], [b'two', b'three'])
    """

    def __init__(self) -> None:
        self._begun: Final[list[bytes]] = []
        self._begun_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without empty ones. An incomplete line is kept.

        Raises KubeApiError for one of more than MAX_LINE bytes.
        """
        first, *others = chunk.split(b"\n")
        self._begun.append(first)
        self._begun_bytes += len(first)
        if self._begun_bytes > MAX_LINE:
            raise KubeApiError(f"watch: a line of more than {MAX_LINE} bytes")
        if not others:
            return []
        lines = [b"".join(self._begun), *others]
        self._begun.clear()
        self._begun.append(lines.pop())
        self._begun_bytes = len(self._begun[0])
        return [line for line in lines if line]


class KindFeed(Generic[T]):
    """The state of the watch of one kind: its resourceVersion, times, and unusable objects."""

    def __init__(self, kind: ResourceKind[T]) -> None:
        #: The kind in the version that is watched.
        self.kind = kind
        self._versions: Final = (kind.path, *kind.older)
        #: The resourceVersion of the last event, bookmark or list, from which to resume.
        self.resource_version = ""
        #: Loop time when data last arrived from the server, None before.
        self.heard_at: float | None = None
        #: Whether the server had this kind when it was last asked.
        self.served = True
        #: Whether the server ever had this kind.
        self.known = False
        self.lists = 0
        self.reconnects = 0
        self.decode_errors = 0
        #: Keys of objects that exist and could not be decoded when last seen.
        self.unreadable: Final[set[str]] = set()
        self.handler_errors = 0
        #: Keys of objects that exist and were rejected by the handler when last seen.
        self.refused: Final[set[str]] = set()
        self._reported: Final[set[str]] = set()

    def try_older(self) -> bool:
        """Turns to the next older version of the kind; False after the oldest, when the newest is next."""
        at = self._versions.index(self.kind.path) + 1
        path = self._versions[at % len(self._versions)]
        self.kind = msgspec.structs.replace(self.kind, path=path)
        return at < len(self._versions)

    def read(self, lines: Iterable[bytes]) -> Iterator[WatchEvent[T]]:
        """Yields the decoded events of lines; each advances ``resource_version``.

        An object that cannot be decoded is counted and skipped. Raises KubeApiError for an ERROR line, and for a line
        that is not an event: its change is lost, so that another list is necessary.
        """
        decode = self.kind.decoder.decode_line
        for line in lines:
            try:
                kind, item = decode(line)
            except DecodeError as err:
                yield from self._unreadable(err)
                continue
            if isinstance(item, ApiStatus):
                raise self._error(item)
            self.resource_version = item.resource_version or self.resource_version
            if self.unreadable:
                self.unreadable.discard(item.key)
            yield kind, item

    def batches(
        self, lines: Iterable[bytes], now: Callable[[], float]
    ) -> Iterator[list[WatchEvent[T]]]:
        """The events in batches that take about TURN seconds to decode by this clock; at least one batch.

        Raises KubeApiError as ``read`` does, after the events that came before.
        """
        events: list[WatchEvent[T]] = []
        until = now() + TURN
        try:
            for event in self.read(lines):
                events.append(event)
                if now() >= until:
                    yield events
                    events, until = [], now() + TURN
        except KubeApiError:
            yield events
            raise
        yield events

    def skip(self, err: DecodeError) -> None:
        """Counts an object that cannot be decoded, and logs it the first time."""
        self.decode_errors += 1
        key = err.key
        self.unreadable.add(key)
        if self._to_be_reported(key):
            logger.error(
                "%s %s cannot be read and %s: %s",
                self.kind.name,
                _shown(key) or "without a name",
                err.outcome,
                _shown(err.problem),
            )

    def refuse(self, key: str, err: Exception, *, exists: bool = True) -> None:
        """Counts an object that the handler has rejected, and logs it the first time."""
        self.handler_errors += 1
        if exists:
            self.refused.add(key)
        if self._to_be_reported(key):
            logger.error("%s %s cannot be used: %r", self.kind.name, _shown(key), err, exc_info=err)

    def _to_be_reported(self, key: str) -> bool:
        if key in self._reported or len(self._reported) >= MAX_REPORTED:
            return False
        self._reported.add(key)
        return True

    def _unreadable(self, err: DecodeError) -> Iterator[WatchEvent[T]]:
        """Handles an undecodable object; a deletion needs only its name."""
        if err.named is None:
            self.decode_errors += 1
            raise KubeApiError(f"watch {self.kind.path}: {err}") from err
        self.skip(err)
        self.resource_version = err.named.resource_version or self.resource_version
        if err.event == DELETED:
            self.unreadable.discard(err.key)
            yield DELETED, err.named
        elif err.instead is not None:
            yield err.event, err.instead

    def _error(self, status: ApiStatus) -> KubeApiError:
        message = status.message or f"watch {self.kind.path}: error {status.code}"
        return error_from_status(status.code, message=message, reason=status.reason)


def _shown(text: str) -> str:
    """The text for the log: names that no API server accepts can have any length."""
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
