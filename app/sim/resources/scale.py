"""The scale subresource: the number of replicas of a workload, apart from everything else."""

from typing import Any

from app.sim.errors import bad_request, invalid, invalid_value
from app.sim.objects import selector_of
from app.sim.resources.kinds import Kind
from app.sim.selectors import selector_text
from app.sim.store import Object


def scale_of(workload: Object) -> Object:
    """The Scale object of a workload."""
    metadata = workload["metadata"]
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Object = {"replicas": (workload.get("status") or {}).get("replicas", 0)}
    text = selector_text(selector_of(workload) or {})
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in names if name in metadata},
        "spec": {"replicas": workload["spec"].get("replicas", 0)},
        "status": status | ({"selector": text} if text else {}),
    }


def rescaled(kind: Kind, workload: Object, scale: Any) -> Object:
    """The workload with the replicas of a Scale object. Raises 400 or 422."""
    given = scale if isinstance(scale, dict) else {"metadata": []}
    spec, described = given.get("spec"), given.get("metadata")
    if not isinstance(spec, dict | None) or not isinstance(described, dict | None):
        raise bad_request("the object provided is unrecognized (must be of type Scale)")
    replicas = (spec or {}).get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        detail = "must be greater than or equal to 0"
        cause = invalid_value("spec.replicas", str(replicas), detail)
        raise invalid(kind, workload["metadata"]["name"], [cause])
    seen = (described or {}).get("resourceVersion")
    metadata = workload["metadata"] | ({"resourceVersion": seen} if seen else {})
    return workload | {"metadata": metadata, "spec": workload["spec"] | {"replicas": replicas}}
