"""Lists all objects of one kind at one resourceVersion, in pages.

The next page is requested before the current one is decoded, and decoded objects are passed on at once, so that server
and scheduler work concurrently. (docs/decisions/0004: why not a streaming list, KEP-3157.)

Pages are read at the newest resourceVersion. (client-go's first list takes any version, ``resourceVersion=0``, for
which servers ignore the page size: the answer is one body as large as the cluster. A scheduler starts rarely, and must
not start from old data.)
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from typing import Final, TypeVar

import msgspec

from app.kube.errors import Expired, KubeApiError
from app.kube.transport import Reader
from app.kube.watch_decoder import KindFeed, KubeObject, ListPart, ResourceKind
from app.wire.envelope import DecodeError, ListPage
from app.wire.sanitize import sanitized

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=KubeObject)

PAGE_SIZE: Final = 2000
#: Objects, and bytes, that are decoded before other tasks run.
SLICE: Final = 250
SLICE_BYTES: Final = 1 << 20
#: Timeout of one page in seconds.
LIST_PATIENCE: Final = 30.0


async def list_pages(reader: Reader, feed: KindFeed[T]) -> AsyncGenerator[ListPart[T], None]:
    """The list in parts; if its continue token expires, it begins again with a single page."""
    limited = {**feed.kind.params, "limit": str(PAGE_SIZE)}
    try:
        async with aclosing(_parts(reader, feed, limited)) as parts:
            async for part in parts:
                yield part
    except Expired:
        async with aclosing(_parts(reader, feed, feed.kind.params)) as parts:
            async for part in parts:
                yield part


async def _parts(
    reader: Reader, feed: KindFeed[T], params: dict[str, str]
) -> AsyncGenerator[ListPart[T], None]:
    keys: set[str] = set()
    feed.unreadable.clear()
    coming = _ask(reader, feed.kind, params)
    try:
        while True:
            page = await coming
            feed.heard_at = asyncio.get_running_loop().time()
            if page.continue_token:
                following = {**params, "continue": page.continue_token}
                coming = _ask(reader, feed.kind, following)
            for some in _slices(page.objects):
                items = _decoded(feed, some)
                keys.update(items)
                yield ListPart(items)
            if not page.continue_token:
                break
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
        del coming  # its exception has this frame: no cycle
    feed.resource_version = page.resource_version
    feed.lists += 1
    keys |= feed.unreadable
    yield ListPart({}, keys)


def _ask(reader: Reader, kind: ResourceKind[T], params: dict[str, str]) -> asyncio.Task[ListPage]:
    return asyncio.create_task(_page(reader, kind, params), name=f"list {kind.name}")


async def _page(reader: Reader, kind: ResourceKind[T], params: dict[str, str]) -> ListPage:
    answer = await reader.get(kind.path, params=params, timeout=LIST_PATIENCE)
    try:
        return kind.decoder.split_list(answer.body)
    except DecodeError:
        logger.debug("%s: the list is not what msgspec reads", kind.name)
    try:
        return kind.decoder.split_list(await asyncio.to_thread(sanitized, answer.body))
    except DecodeError as err:
        raise KubeApiError(f"GET {kind.path}: {err}", status=answer.status) from err


def _slices(objects: list[msgspec.Raw]) -> Iterator[list[msgspec.Raw]]:
    some: list[msgspec.Raw] = []
    size = 0
    for each in objects:
        some.append(each)
        size += len(each)
        if len(some) == SLICE or size >= SLICE_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def _decoded(feed: KindFeed[T], objects: list[msgspec.Raw]) -> Mapping[str, T]:
    """The objects that can be decoded, by key."""
    skipped: list[DecodeError] = []
    items = feed.kind.decoder.decode_all(objects, skipped)
    for err in skipped:
        feed.skip(err)
    return {item.key: item for item in items}
