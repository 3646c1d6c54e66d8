"""Checks whether an API server has a kind, in its own list of groups and resources."""

from typing import Final, Literal

import msgspec

from app.kube.errors import KubeApiError, NotFound
from app.kube.transport import Reader
from app.wire.sanitize import decode


class _Resource(msgspec.Struct):
    name: str


class _Resources(msgspec.Struct):
    kind: Literal["APIResourceList"]
    resources: tuple[_Resource, ...] | None = None


class _Version(msgspec.Struct, rename="camel"):
    group_version: str


class _Group(msgspec.Struct):
    versions: tuple[_Version, ...] | None = None


class _Groups(msgspec.Struct):
    kind: Literal["APIGroupList"]
    groups: tuple[_Group, ...] | None = None


_RESOURCES: Final = msgspec.json.Decoder(_Resources)
_GROUPS: Final = msgspec.json.Decoder(_Groups)


async def is_absent(reader: Reader, path: str) -> bool:
    """Whether the server says that it does not have the collection at ``path`` (``/apis/group/version/resource``).

    A 404 to a list alone is not sufficient: a proxy that has lost its server gives the same answer. False if the server
    cannot be asked, and for the core group, which every API server has.
    """
    _, root, *group_version, resource = path.split("/")
    if root != "apis":
        return False
    version = "/".join(group_version)
    try:
        try:
            answer = await reader.get(f"/apis/{version}")
        except NotFound:
            answer = await reader.get("/apis")
            groups = decode(_GROUPS, answer.body).groups or ()
            return all(
                it.group_version != version for group in groups for it in group.versions or ()
            )
        return all(it.name != resource for it in decode(_RESOURCES, answer.body).resources or ())
    except (KubeApiError, msgspec.DecodeError):
        return False
