"""RuntimeClass admission: the overhead of a pod's runtime, and the nodes that have it (KEP-585, KEP-688)."""

from typing import Any

from app.model.quantity import parse
from app.sim.errors import forbidden
from app.sim.lookup import Lookup
from app.sim.resources.kinds import PODS
from app.sim.store import Object


def admit_runtime_class(pod: Object, api: Lookup) -> None:
    """Gives a new pod the overhead, the node selector and the tolerations of its runtime class.

    Raises 403 if the class does not exist, or the pod says otherwise than its class.
    """
    spec = pod["spec"]
    name, found = spec.get("runtimeClassName"), None
    if name:
        found = api.runtime_class(name)
        if found is None:
            raise _rejected(pod, f'pod rejected: RuntimeClass "{name}" not found')
    given = found or {}
    _set_overhead(pod, (given.get("overhead") or {}).get("podFixed") or {})
    scheduling = given.get("scheduling") or {}
    _add_selector(pod, scheduling.get("nodeSelector") or {})
    added = [each for each in scheduling.get("tolerations") or () if each not in _tolerations(spec)]
    if added:
        spec["tolerations"] = [*_tolerations(spec), *added]


def _set_overhead(pod: Object, overhead: dict[str, Any]) -> None:
    claimed = pod["spec"].get("overhead")
    if claimed and not overhead:
        why = "Pod Overhead set without corresponding RuntimeClass defined Overhead"
        raise _rejected(pod, f"pod rejected: {why}")
    if claimed and _amounts(claimed) != _amounts(overhead):
        why = "Pod's Overhead doesn't match RuntimeClass's defined Overhead"
        raise _rejected(pod, f"pod rejected: {why}")
    if overhead:
        pod["spec"]["overhead"] = overhead


def _add_selector(pod: Object, wanted: dict[str, str]) -> None:
    spec = pod["spec"]
    own = spec.get("nodeSelector") or {}
    for label, value in wanted.items():
        if own.get(label, value) != value:
            rule = f"runtimeClass.scheduling.nodeSelector[{label}] = {value}"
            claim = f"pod.spec.nodeSelector[{label}] = {own[label]}"
            raise _rejected(pod, f"conflict: {rule}; {claim}")
    if wanted:
        spec["nodeSelector"] = own | wanted


def _tolerations(spec: Object) -> list[Object]:
    tolerations: list[Object] = spec.get("tolerations") or []
    return tolerations


def _amounts(overhead: dict[str, Any]) -> dict[str, Any]:
    return {resource: parse(str(amount)) for resource, amount in overhead.items()}


def _rejected(pod: Object, why: str) -> Exception:
    return forbidden(PODS, pod["metadata"]["name"], why)
