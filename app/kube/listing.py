"""All objects of one kind at one moment: streamed where the server can do that, in pages elsewhere.

A streaming list (KEP-3157) is a watch that begins with everything there is and says when that is complete. Servers without
it refuse its parameters; the answer is remembered for all kinds.

Pages are read at the newest resourceVersion. (client-go's first list takes any version, ``resourceVersion=0``, for which
servers ignore the page size: the answer is one body as large as the cluster. A scheduler starts too seldom for the server
to mind, and must not start from the past.)
"""

import asyncio
import dataclasses
from collections.abc import AsyncGenerator
from typing import Final, TypeVar

from app.kube.errors import Gone, KubeApiError, KubeError
from app.kube.feed import BOOKMARK, DELETED, Event, Feed, KubeObject, Snapshot
from app.kube.transport import Transport
from app.model.objects import Named
from app.wire.envelope import INITIAL_EVENTS_END, DecodeError

T = TypeVar("T", bound=KubeObject)

PAGE_SIZE: Final = 500
#: Seconds for one page, or between two chunks of a streaming list.
LIST_PATIENCE: Final = 30.0

STREAMING: Final = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}


class ListInterrupted(KubeError):  # noqa: N818 - an ordinary outcome
    """A streaming list is not to be had now; pages are."""


@dataclasses.dataclass(slots=True)
class ServerFeatures:
    """What one server has turned out to offer; shared by all who talk to it. None: not known yet."""

    streaming_lists: bool | None = None


def is_refusal(err: KubeApiError) -> bool:
    """Whether a server that cannot stream lists has said so (and did not merely forbid the watch)."""
    if err.status == 403:
        return any(word in err.message for word in STREAMING)
    return err.status in {400, 422}


async def collect_initial_events(
    batches: AsyncGenerator[list[Event[T]], None], feed: Feed[T]
) -> tuple[Snapshot[T], list[Event[T]]]:
    """Reads a streaming list to its end; what came behind the end in the same batch is returned beside it.

    Raises TimeoutError when the server falls silent, ListInterrupted when it hangs up before the end.
    """
    loop = asyncio.get_running_loop()
    objects: dict[str, T] = {}
    feed.unreadable.clear()
    async with asyncio.timeout(LIST_PATIENCE) as patience:
        async for events in batches:
            patience.reschedule(loop.time() + LIST_PATIENCE)
            for position, event in enumerate(events):
                if _is_end(event):
                    feed.lists += 1
                    snapshot = Snapshot(list(objects.values()), frozenset(feed.unreadable))
                    return snapshot, events[position + 1 :]
                _note(objects, event)
    raise ListInterrupted("the server ended a streaming list before it was complete")


def _is_end(event: Event[T]) -> bool:
    kind, item = event
    return kind == BOOKMARK and isinstance(item, Named) and INITIAL_EVENTS_END in item.annotations


def _note(objects: dict[str, T], event: Event[T]) -> None:
    kind, item = event
    if kind == DELETED:
        objects.pop(item.key, None)
    elif kind != BOOKMARK:
        objects[item.key] = item  # type: ignore[assignment]  # only a BOOKMARK comes with a Bookmark


async def list_pages(transport: Transport, feed: Feed[T]) -> Snapshot[T]:
    """Reads the list in pages; when its continue token grows too old in between, once more and in one piece."""
    loop = asyncio.get_running_loop()
    try:
        snapshot = await _pages(transport, feed, {"limit": str(PAGE_SIZE)})
    except Gone:
        snapshot = await _pages(transport, feed, {})
    feed.heard_at = loop.time()
    feed.lists += 1
    return snapshot


async def _pages(transport: Transport, feed: Feed[T], limit: dict[str, str]) -> Snapshot[T]:
    objects: list[T] = []
    skipped: list[DecodeError] = []
    params = {**feed.kind.params, **limit}
    while True:
        page = await transport.request("GET", feed.kind.path, params=params, timeout=LIST_PATIENCE)
        try:
            items, version, token = feed.kind.decoder.decode_list(page.body, skipped)
        except DecodeError as err:
            raise KubeApiError(f"GET {feed.kind.path}: {err}", status=page.status) from err
        objects += items
        if not token:
            break
        params["continue"] = token
    feed.resource_version = version
    feed.unreadable.clear()
    for broken in skipped:
        feed.skip(broken.key, broken)
    return Snapshot(objects, frozenset(feed.unreadable))
