"""Content negotiation: the media types of requests and answers."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from app.sim.errors import bad_request, not_acceptable, unsupported_media_type
from app.sim.http.protobuf import PROTOBUF, decode_protobuf
from app.sim.http.representation import MetadataOnly, Representation, Table, Whole
from app.sim.manifests import UNDECODABLE, ManifestError, load_yaml
from app.sim.resources.kinds import Kind

JSON: Final = "application/json"
YAML: Final = "application/yaml"
_BODY_TYPES: Final = (JSON, YAML, PROTOBUF)
_ANY_JSON: Final = (JSON, "application/*", "*/*", "")

TABLE: Final = "Table"
METADATA_ONLY: Final = "PartialObjectMetadata"
METADATA_LIST: Final = "PartialObjectMetadataList"
GROUP_DISCOVERY: Final = "APIGroupDiscoveryList"
_FORMS: Final = {
    (TABLE, "meta.k8s.io", "v1"): TABLE,
    (METADATA_ONLY, "meta.k8s.io", "v1"): METADATA_ONLY,
    (METADATA_LIST, "meta.k8s.io", "v1"): METADATA_ONLY,
    (GROUP_DISCOVERY, "apidiscovery.k8s.io", "v2"): GROUP_DISCOVERY,
}
"""(as, group, version) -> form of the answer."""

_decode: Final = msgspec.json.Decoder().decode


@functools.lru_cache(maxsize=256)
def wanted_form(accept: str) -> str:
    """The first supported form in an Accept header; "" is plain JSON. Raises 406."""
    for clause in accept.split(","):
        media_type, *parameters = (part.strip() for part in clause.split(";"))
        if media_type not in _ANY_JSON:
            continue
        given = dict(parameter.split("=", 1) for parameter in parameters if "=" in parameter)
        if "as" not in given:
            return ""
        form = _FORMS.get((given["as"], given.get("g", ""), given.get("v", "")))
        if form is not None:
            return form
    raise not_acceptable()


@functools.lru_cache(maxsize=256)
def _whole(kind: Kind) -> Whole:
    return Whole(kind)


def representation_for(
    kind: Kind, accept: str, query: Mapping[str, str], now: Callable[[], float]
) -> Representation:
    """Chooses how objects are shown to a client. Raises 406."""
    form = wanted_form(accept)
    if form == TABLE:
        return Table(kind, query.get("includeObject", ""), now)
    if form == METADATA_ONLY:
        return MetadataOnly()
    return _whole(kind)


def decode_body(body: bytes, content_type: str, kind: str) -> Any:
    """Decodes the object in a request. Raises 400 or 415."""
    if content_type in (JSON, ""):
        try:
            return _decode(body)
        except UNDECODABLE as error:
            raise bad_request(_undecodable(kind, f"json parse error: {error}")) from error
    if content_type == PROTOBUF:
        return decode_protobuf(body)
    if content_type == YAML:
        try:
            return load_yaml(body)
        except ManifestError as error:
            raise bad_request(_undecodable(kind, str(error))) from error
    raise unsupported_media_type(_BODY_TYPES)


def _undecodable(kind: str, why: str) -> str:
    return f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; {why}"


def decode_patch(body: bytes) -> Any:
    """Decodes a patch, which for server-side apply may be YAML. Raises 400."""
    try:
        return _decode(body)
    except UNDECODABLE as error:
        problem = error
    try:
        return load_yaml(body)
    except ManifestError:
        raise bad_request(f"error decoding patch: {problem}") from problem
