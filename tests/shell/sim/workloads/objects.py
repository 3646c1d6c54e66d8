"""Workloads and their pods, as the rules see them."""

from typing import Any

from app.model.timestamps import format_time
from app.sim.controllers.workloads.plan import Scene
from app.sim.controllers.workloads.templates import REVISION_LABEL, template_hash
from app.sim.store import Object

NOW = 1_800_000_000.0


def template(image: str = "app:1") -> Object:
    containers = [{"name": "c", "image": image}]
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}}


def workload(kind: str, image: str = "app:1", status: Object | None = None, **spec: Any) -> Object:
    metadata = {"name": "web", "namespace": "shop", "uid": "u-web", "generation": 3}
    selector = {"matchLabels": {"app": "web"}}
    value = {"kind": kind, "apiVersion": "apps/v1", "metadata": metadata}
    value["spec"] = {"replicas": 1, "selector": selector, "template": template(image)} | spec
    return value | ({"status": status} if status is not None else {})


def pod(
    name: str,
    phase: str = "Running",
    *,
    ready_since: float | None = 0.0,
    node: str = "n",
    leaving: bool = False,
    image: str = "app:1",
    **metadata: Any,
) -> Object:
    """A pod. ``ready_since``: seconds for which it has been ready, or None."""
    labels = {"app": "web", REVISION_LABEL: template_hash(template(image))}
    base: Object = {"name": name, "namespace": "shop", "uid": f"u-{name}", "labels": labels}
    base["creationTimestamp"] = format_time(NOW - 60)
    if leaving:
        base["deletionTimestamp"] = format_time(NOW)
    status: Object = {"phase": phase}
    if phase == "Running" and ready_since is not None:
        since = format_time(NOW - ready_since)
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": since}
        status["conditions"] = [ready]
    spec = {"nodeName": node} if node else {}
    return {"kind": "Pod", "metadata": base | metadata, "spec": spec, "status": status}


def scene(value: Object, *pods: Object, now: float = NOW, **parts: Any) -> Scene:
    return Scene(workload=value, pods=pods, now=now, timestamp=format_time(now), **parts)
