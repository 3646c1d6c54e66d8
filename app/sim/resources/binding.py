"""The binding subresource: a pod gets its node, once."""

from typing import Any

from app.sim.api import Api
from app.sim.errors import (
    ApiError,
    Cause,
    bad_request,
    details_of,
    internal,
    required,
    uid_mismatch,
    unsupported_value,
)
from app.sim.objects import is_being_deleted, with_condition
from app.sim.resources.kinds import PODS
from app.sim.store import Object, Record


def bind(api: Api, namespace: str, name: str, binding: Any, *, dry_run: bool = False) -> Record:
    """Sets the pod's node and its PodScheduled condition, and removes its nominated node.

    That the node exists is not checked, as in the real server. Raises 400, 404, or 409 if the pod is bound, gated,
    being deleted or another than the binding's uid says.
    """
    target = _target(binding)
    record = api.get(PODS, namespace, name)
    uid = binding["metadata"].get("uid")
    if uid and uid != record.value["metadata"]["uid"]:
        found = record.value["metadata"]["uid"]
        raise uid_mismatch(PODS, namespace, name, wanted=uid, found=found)
    _check_bindable(record.value, name)
    return api.write(PODS, _bound(record.value, target, binding, api.timestamp()), dry_run=dry_run)


def binding_name(binding: Any) -> str:
    """The name of the pod in a Binding posted to the ``bindings`` resource. Raises 400."""
    name = _metadata(binding).get("name")
    if not name:
        raise bad_request("the Binding has no metadata.name")
    return str(name)


def _metadata(binding: Any) -> Object:
    metadata = binding.get("metadata") if isinstance(binding, dict) else None
    if not isinstance(metadata, dict):
        raise bad_request("the object provided is unrecognized (must be of type Binding)")
    return metadata


def _target(binding: Any) -> str:
    """The node's name. The real server answers mistakes here with 500."""
    _metadata(binding)
    target = binding.get("target") or {}
    kind = target.get("kind", "")
    if kind not in ("", "Node"):
        raise _mistake(unsupported_value("target.kind", f'"{kind}"', ["Node", "<empty>"]))
    if not target.get("name"):
        raise _mistake(required("target.name"))
    return str(target["name"])


def _mistake(cause: Cause) -> ApiError:
    return internal(f"{cause.field}: {cause.message}")


def _check_bindable(pod: Object, name: str) -> None:
    if is_being_deleted(pod):
        raise _conflict(name, f"pod {name} is being deleted, cannot be assigned to a host")
    node = pod["spec"].get("nodeName")
    if node:
        raise _conflict(name, f'pod {name} is already assigned to node "{node}"')
    if pod["spec"].get("schedulingGates"):
        raise _conflict(name, f"pod {name} has non-empty .spec.schedulingGates")


def _conflict(name: str, why: str) -> ApiError:
    message = f'Operation cannot be fulfilled on pods/binding "{name}": {why}'
    details = details_of(PODS, name) | {"kind": "pods/binding"}
    return ApiError(409, "Conflict", message, details=details)


def _bound(pod: Object, node: str, binding: Object, timestamp: str) -> Object:
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": timestamp}
    status = pod["status"] | {
        "conditions": with_condition(pod["status"].get("conditions", []), condition)
    }
    status.pop("nominatedNodeName", None)
    metadata = dict(pod["metadata"])
    for field in ("labels", "annotations"):
        given = binding["metadata"].get(field)
        if given:
            metadata[field] = metadata.get(field, {}) | given
    return pod | {"metadata": metadata, "spec": pod["spec"] | {"nodeName": node}, "status": status}
