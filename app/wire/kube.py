"""Decoders from the JSON of the Kubernetes API to the model: one per kind, for objects, watch lines and lists.

>>> decoder = decoder_for(Service)
>>> decoder.decode_line(b'{"type":"DELETED","object":{"metadata":{"name":"web","namespace":"shop"}}}')[1].key
'shop/web'
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from app.model.devices import AllocationResult, ClaimMeta, ResourceClaim, ResourceClaimStatus
from app.model.limits import MAX_RESULT_FIELDS
from app.model.objects import Named, Node, NodeSpec, ObjectMeta
from app.wire.envelope import (
    INITIAL_EVENTS_END,
    ApiStatus,
    Bare,
    Bookmark,
    DecodeError,
    Instead,
    ObjectDecoder,
    nothing_instead_of,
)
from app.wire.pods import PodDecoder
from app.wire.sanitize import decode
from app.wire.size import size_check
from app.wire.strip import strip_for_extender

__all__ = [
    "INITIAL_EVENTS_END",
    "ApiStatus",
    "Bookmark",
    "DecodeError",
    "NodeDecoder",
    "ObjectDecoder",
    "PodDecoder",
    "decoder_for",
    "strip_for_extender",
]

K = TypeVar("K", bound=Named)


class NodeDecoder(ObjectDecoder[Node]):
    """Decodes nodes; ``keep_raw`` keeps each one's JSON in ``Node.raw`` as strip_for_extender leaves it."""

    def __init__(self, *, keep_raw: bool = False) -> None:
        super().__init__("Node", self._node, size_check(Node), self._unusable)
        self._keep_raw: Final = keep_raw
        self._node_decoder: Final = msgspec.json.Decoder(Node)

    def _node(self, raw: msgspec.Raw) -> Node:
        node = self._node_decoder.decode(raw)
        if self._keep_raw:
            msgspec.structs.force_setattr(node, "raw", strip_for_extender(raw))
        return node

    @staticmethod
    def _unusable(raw: msgspec.Raw) -> Instead[Node]:
        """A node with this name on which no pod fits."""
        meta = decode(_BARE, raw).metadata.full(ObjectMeta)
        return Node(metadata=meta, spec=NodeSpec(unschedulable=True)), "takes no pods"


class _Results(msgspec.Struct, frozen=True):
    results: msgspec.Raw = msgspec.Raw()


class _Devices(msgspec.Struct):
    devices: _Results = _Results()


class _Allocation(msgspec.Struct):
    allocation: msgspec.Raw


class _AllocatedClaim(Bare):
    status: _Allocation


_BARE: Final = msgspec.json.Decoder(Bare)
_ALLOCATED_CLAIM: Final = msgspec.json.Decoder(_AllocatedClaim)
_DEVICES: Final = msgspec.json.Decoder(_Devices)
_ALLOCATION: Final = msgspec.json.Decoder(AllocationResult)


def _allocation_of(raw: msgspec.Raw) -> Instead[ResourceClaim]:
    """A claim with its allocation only: its devices are in use even if the rest is invalid.

    Raises msgspec.DecodeError, and ValueError for results with more fields than MAX_RESULT_FIELDS.
    """
    claim = decode(_ALLOCATED_CLAIM, raw)
    text = claim.status.allocation
    if bytes(decode(_DEVICES, text).devices.results).count(b'":') > MAX_RESULT_FIELDS:
        raise ValueError("too many fields")
    allocated = ResourceClaim(
        metadata=claim.metadata.full(ClaimMeta),
        status=ResourceClaimStatus(allocation=decode(_ALLOCATION, text)),
    )
    return allocated, "keeps its devices"


_INSTEAD_OF: Final[dict[type[Named], Callable[[msgspec.Raw], Any]]] = {
    ResourceClaim: _allocation_of
}


def decoder_for(kind: type[K]) -> ObjectDecoder[K]:
    """A decoder for any of the kinds in app.model.objects and app.model.devices."""
    return ObjectDecoder(
        kind.__name__,
        msgspec.json.Decoder(kind).decode,
        size_check(kind),
        _INSTEAD_OF.get(kind, nothing_instead_of),
    )
