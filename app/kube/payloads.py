"""Builds the bodies of writes, as bytes."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from app.model.pod import Pod
from app.model.timestamps import format_time

_ENCODER: Final = msgspec.json.Encoder()


class ConditionChange(NamedTuple):
    """A pod condition to write; times and generation follow from the pod and the clock."""

    type: str
    status: str
    reason: str
    message: str


def binding_body(
    namespace: str, name: str, uid: str, node: str, added: Mapping[str, Mapping[str, str]]
) -> bytes:
    """A core/v1 Binding; with the uid the server rejects it for a later pod of the same name.

    ``added``: labels and annotations for the pod, by field of its metadata.
    """
    given = {field: values for field, values in added.items() if values}
    return _ENCODER.encode(
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid, **given},
            "target": {"kind": "Node", "name": node},
        }
    )


def delete_body(uid: str) -> bytes:
    """DeleteOptions with the object's own grace period, for the object with this uid only."""
    return _ENCODER.encode(
        {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
    )


def pod_status_patch(
    pod: Pod, *, condition: ConditionChange | None, nominated_node_name: str | None, now: float
) -> bytes | None:
    """A strategic merge patch of the status; None if nothing would change (docs/spec/cycle.md#status-patch).

    The server rejects it for another pod of the same name.

    ``nominated_node_name``: None keeps it, empty clears it. ``now`` is in seconds since the epoch.
    """
    status: dict[str, object] = {}
    if condition is not None:
        changed = _changed_condition(pod, condition, now)
        if changed is not None:
            status["conditions"] = [changed]
    if nominated_node_name is not None and nominated_node_name != pod.nominated_node_name:
        status["nominatedNodeName"] = nominated_node_name or None
    if not status:
        return None
    return _ENCODER.encode({"metadata": {"uid": pod.uid}, "status": status})


def _changed_condition(pod: Pod, wanted: ConditionChange, now: float) -> dict[str, object] | None:
    """The condition with its transition time, which is kept if the status is the same; None if only observedGeneration
    differs."""
    old = pod.condition(wanted.type)
    if old is not None and (old.type, old.status, old.reason, old.message) == wanted:
        return None
    same_status = old is not None and old.status == wanted.status
    kept = old.last_transition_time if old is not None and same_status else None
    changed: dict[str, object] = {
        **wanted._asdict(),
        "lastTransitionTime": kept or format_time(now),
    }
    if pod.generation:
        changed["observedGeneration"] = pod.generation
    return changed


def object_patch(resource_version: str, changes: Mapping[str, object]) -> bytes:
    """A merge patch for this version of the object only.

    ``changes`` is the patch without the version; its ``metadata`` may have more in it.
    """
    metadata = changes.get("metadata", {})
    if not isinstance(metadata, Mapping):
        raise TypeError("metadata must be a mapping")
    return _ENCODER.encode(
        {**changes, "metadata": {**metadata, "resourceVersion": resource_version}}
    )
