"""The binding and eviction subresources of pods."""

from typing import Any, Final

from app.sim.api import Api
from app.sim.errors import (
    ApiError,
    Cause,
    bad_request,
    details_of,
    forbidden,
    internal,
    required,
    too_many_requests,
    uid_mismatch,
    unsupported_value,
)
from app.sim.objects import has_ended, is_being_deleted, is_true, labels_of, with_condition
from app.sim.resources.deletion import DeleteOptions, delete, parse_delete_options
from app.sim.resources.kinds import POD_DISRUPTION_BUDGETS, PODS
from app.sim.selectors import selects_labels
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


_REFUSED: Final = "Cannot evict pod as it would violate the pod's disruption budget."
_RETRY_AFTER_SECONDS: Final = 10


def evict(api: Api, namespace: str, name: str, eviction: Any) -> None:
    """Deletes the pod if its disruption budget allows it. Raises 400, 404, 409, or 429 if it does not."""
    options = _options(eviction, name)
    pod = api.get(PODS, namespace, name).value
    if not _needs_no_budget(pod):
        budget = _budget_of(api, namespace, pod)
        if budget is not None and not _is_surplus(pod, budget.value):
            _spend(api, budget, pod, dry_run=options.dry_run)
    delete(api, PODS, namespace, name, options)


def _options(eviction: Any, name: str) -> DeleteOptions:
    if not isinstance(eviction, dict):
        raise bad_request("the object provided is unrecognized (must be of type Eviction)")
    if (eviction.get("metadata") or {}).get("name") not in (name, None):
        raise bad_request("name in URL does not match name in Eviction object")
    return parse_delete_options(eviction.get("deleteOptions"), {})


def _needs_no_budget(pod: Object) -> bool:
    """Whether the eviction of a pod disrupts nothing: it does not run, or is being deleted."""
    pending = pod["status"].get("phase") == "Pending"
    return pending or has_ended(pod) or is_being_deleted(pod)


def _budget_of(api: Api, namespace: str, pod: Object) -> Record | None:
    labels = labels_of(pod)
    found = [
        record
        for record in api.store[POD_DISRUPTION_BUDGETS.storage].ordered(namespace=namespace)
        if selects_labels(record.value["spec"].get("selector"))(labels)
    ]
    if len(found) > 1:
        message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise ApiError(500, "InternalError", message)
    return found[0] if found else None


def _is_surplus(pod: Object, budget: Object) -> bool:
    """Whether a pod that is not ready can be evicted: the budget is met without it, or allows that."""
    if is_true(pod, "Ready"):
        return False
    status = budget["status"]
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    return bool(status["currentHealthy"] >= status["desiredHealthy"] > 0)


def _spend(api: Api, budget: Record, pod: Object, *, dry_run: bool) -> None:
    """Consumes one allowed disruption of the budget. Raises 429 if there is none, 403 if the number is negative."""
    value, name = budget.value, budget.name
    status = value["status"]
    allowed = status["disruptionsAllowed"]
    if status.get("observedGeneration", 0) < value["metadata"]["generation"]:
        cause = f"The disruption budget {name} is still being processed by the server."
        raise too_many_requests(_REFUSED, cause, retry_after=_RETRY_AFTER_SECONDS)
    if allowed < 0:
        raise forbidden(POD_DISRUPTION_BUDGETS, name, "pdb disruptions allowed is negative")
    if allowed == 0:
        cause = (
            f"The disruption budget {name} needs {status['desiredHealthy']} healthy pods "
            f"and has {status['currentHealthy']} currently"
        )
        raise too_many_requests(_REFUSED, cause)
    disrupted = status.get("disruptedPods", {}) | {pod["metadata"]["name"]: api.timestamp()}
    spent = status | {"disruptedPods": disrupted, "disruptionsAllowed": allowed - 1}
    if allowed == 1:
        spent["conditions"] = with_condition(status.get("conditions", []), _exhausted(api, value))
    api.write_status(POD_DISRUPTION_BUDGETS, value, spent, dry_run=dry_run)


def _exhausted(api: Api, budget: Object) -> Object:
    return {
        "type": "DisruptionAllowed",
        "status": "False",
        "observedGeneration": budget["metadata"].get("generation", 1),
        "lastTransitionTime": api.timestamp(),
        "reason": "InsufficientPods",
        "message": "",
    }
