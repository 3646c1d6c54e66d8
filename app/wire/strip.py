"""Removes the parts of an object's JSON that kube-scheduler does not send to extenders."""

import msgspec

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


def strip_for_extender(raw: bytes | msgspec.Raw) -> bytes:
    """The object's JSON without kind, apiVersion and metadata.managedFields, spliced from its own bytes.

    Key order and values are unchanged. Raises msgspec.DecodeError.
    """
    parts = _OBJECT.decode(raw)
    parts.pop("kind", None)
    parts.pop("apiVersion", None)
    metadata = parts.get("metadata")
    if metadata is not None and bytes(metadata) != b"null":
        fields = _OBJECT.decode(metadata)
        if fields.pop("managedFields", None) is not None:
            parts["metadata"] = msgspec.Raw(msgspec.json.encode(fields))
    return msgspec.json.encode(parts)
