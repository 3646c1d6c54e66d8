"""From the bytes of the Kubernetes API to the model: one decoder per kind, for objects, watch lines and lists.

>>> decoder = decoder_for(Service)
>>> decoder.decode_line(b'{"type":"DELETED","object":{"metadata":{"name":"web","namespace":"shop"}}}')[1].key
'shop/web'
"""

from typing import Final, TypeVar

import msgspec

from app.model.objects import Named, Node
from app.wire.envelope import (
    INITIAL_EVENTS_END,
    ApiStatus,
    Bookmark,
    DecodeError,
    ObjectDecoder,
)
from app.wire.pods import PodDecoder
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
        super().__init__("Node", self._node)
        self._keep_raw: Final = keep_raw
        self._node_decoder: Final = msgspec.json.Decoder(Node)

    def _node(self, raw: msgspec.Raw) -> Node:
        node = self._node_decoder.decode(raw)
        if self._keep_raw:
            msgspec.structs.force_setattr(node, "raw", strip_for_extender(raw))
        return node


def decoder_for(kind: type[K]) -> ObjectDecoder[K]:
    """A decoder for any of the kinds in app.model.objects."""
    return ObjectDecoder(kind.__name__, msgspec.json.Decoder(kind).decode)
