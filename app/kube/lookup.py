"""Reads one object from the API server, and distinguishes real answers, also to writes, from those of load balancers.

A starting API server answers 401 and 403; a load balancer in front of it answers 404 and pages of its own. These
answers say nothing about the object.
"""

from typing import Final

import msgspec

from app.kube.errors import UNREADABLE, Forbidden, KubeApiError, NotFound
from app.kube.transport import Response, Transport, path_segment
from app.wire.sanitize import decode


class _ListMeta(msgspec.Struct, frozen=True):
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _List(msgspec.Struct, frozen=True):
    kind: str = ""
    metadata: _ListMeta = _ListMeta()
    items: tuple[msgspec.Raw, ...] | None = None


_LIST: Final = msgspec.json.Decoder(_List)
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def expect_object(answer: Response) -> Response:
    """The answer to a write. Raises KubeApiError if it is no JSON object: something else than an API server has sent
    it."""
    try:
        decode(_OBJECT, answer.body)
    except UNREADABLE as err:
        raise KubeApiError(f"the answer is not an object: {err}", status=answer.status) from err
    return answer


async def read_object(transport: Transport, collection: str, name: str) -> bytes:
    """The object of this name in a collection (a path), as JSON; the caller checks its kind.

    It lists the object if getting it is not allowed. Raises NotFound if the API server says that there is none, and
    KubeApiError for anything that is not an answer.
    """
    try:
        return (await transport.request("GET", f"{collection}/{path_segment(name)}")).body
    except NotFound as err:
        if err.is_missing_object:
            raise
        raise KubeApiError(str(err), status=err.status) from err
    except Forbidden as err:
        try:
            return await _read_from_list(transport, collection, name)
        except Forbidden:
            raise err from None


async def _read_from_list(transport: Transport, collection: str, name: str) -> bytes:
    params = {"fieldSelector": f"metadata.name={name}"}
    answer = await transport.request("GET", collection, params=params)
    try:
        listed = decode(_LIST, answer.body)
    except UNREADABLE as err:
        raise KubeApiError(f"GET {collection}: the answer is not a list: {err}") from err
    if not listed.kind.endswith("List") or not listed.metadata.resource_version:
        raise KubeApiError(f"GET {collection}: the answer is not a list")
    if not listed.items:
        raise NotFound(f"{name!r} not found in {collection}", status=404, reason="NotFound")
    return bytes(listed.items[0])
