"""Defaults that the API server sets, as far as clients see them."""

from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final

from app.model.objects import NODE_INFO_FIELDS
from app.sim.resources.devices.requests import set_claim_defaults, set_template_defaults
from app.sim.resources.devices.slices import set_slice_defaults
from app.sim.resources.event_versions import set_event_defaults
from app.sim.resources.pod_groups import set_group_defaults, set_workload_defaults
from app.sim.store import Object

_POD_SPEC: Final[Mapping[str, Any]] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
}
_PROBE: Final[Mapping[str, int]] = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}


def set_defaults(resource: str, value: Object) -> None:
    """Sets the defaults of a kind in place."""
    defaulter = _DEFAULTERS.get(resource)
    if defaulter is not None:
        defaulter(value)


def _spec(value: Object) -> Object:
    spec: Object = value.setdefault("spec", {})
    return spec


def _fill(target: Object, defaults: Mapping[str, Any]) -> None:
    for name, default in defaults.items():
        if name not in target:
            target[name] = default


def _pod(pod: Object) -> None:
    spec = _spec(pod)
    _set_pod_spec_defaults(spec)
    spec.setdefault("enableServiceLinks", True)
    pod.setdefault("status", {"phase": "Pending"})


def _set_pod_spec_defaults(spec: Object) -> None:
    for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
        _set_container_defaults(container, host_network=bool(spec.get("hostNetwork")))
    _fill(spec, _POD_SPEC)
    spec.setdefault("securityContext", {})
    for constraint in spec.get("topologySpreadConstraints", ()):
        constraint.setdefault("whenUnsatisfiable", "DoNotSchedule")
    for volume in spec.get("volumes", ()):
        if len(volume) == 1:
            volume["emptyDir"] = {}


def _set_container_defaults(container: Object, *, host_network: bool) -> None:
    resources = container.setdefault("resources", {})
    limits = resources.get("limits")
    if limits:
        resources["requests"] = limits | resources.get("requests", {})
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
        if host_network:
            port.setdefault("hostPort", port.get("containerPort"))
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            _fill(container[probe], _PROBE)
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", _pull_policy(container.get("image", "")))


def _pull_policy(image: str) -> str:
    name = image.rpartition("/")[2]
    tag = name.partition(":")[2]
    return "IfNotPresent" if "@" in name or tag not in ("", "latest") else "Always"


def _templated(value: Object) -> None:
    spec = _spec(value)
    template = spec.get("template")
    if isinstance(template, dict):
        _set_pod_spec_defaults(template.setdefault("spec", {}))


def _replicated(value: Object) -> None:
    _spec(value).setdefault("replicas", 1)
    _templated(value)


def _replica_set(value: Object) -> None:
    _replicated(value)
    value.setdefault("status", {"replicas": 0})


def _set_rolling_update(spec: Object, field: str, defaults: Mapping[str, Any]) -> None:
    """Sets the update strategy, and the bounds of a rolling update where they are missing."""
    strategy = spec.setdefault(field, {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        _fill(strategy.setdefault("rollingUpdate", {}), defaults)


def _deployment(value: Object) -> None:
    _replicated(value)
    bounds = {"maxUnavailable": "25%", "maxSurge": "25%"}
    _set_rolling_update(value["spec"], "strategy", bounds)
    _fill(value["spec"], {"revisionHistoryLimit": 10, "progressDeadlineSeconds": 600})


def _stateful_set(value: Object) -> None:
    _replicated(value)
    _set_rolling_update(value["spec"], "updateStrategy", {"partition": 0})
    _fill(value["spec"], {"podManagementPolicy": "OrderedReady", "revisionHistoryLimit": 10})
    value.setdefault("status", {"replicas": 0, "availableReplicas": 0})


def _daemon_set(value: Object) -> None:
    _templated(value)
    _set_rolling_update(value["spec"], "updateStrategy", {"maxUnavailable": 1, "maxSurge": 0})
    _fill(value["spec"], {"revisionHistoryLimit": 10})
    counts = (
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
    )
    value.setdefault("status", dict.fromkeys(counts, 0))


def _job(value: Object) -> None:
    """Without completions and parallelism both are 1; without completions alone the first success is enough."""
    _templated(value)
    spec = value["spec"]
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    _fill(spec, {"parallelism": 1, "completionMode": "NonIndexed", "suspend": False})
    _fill(spec, {"podReplacementPolicy": "TerminatingOrFailed"})
    if "backoffLimitPerIndex" not in spec:
        _fill(spec, {"backoffLimit": 6})


def _namespace(value: Object) -> None:
    metadata = value["metadata"]
    labels = metadata.get("labels", {})
    metadata["labels"] = labels | {"kubernetes.io/metadata.name": metadata["name"]}
    _spec(value).setdefault("finalizers", ["kubernetes"])
    value.setdefault("status", {"phase": "Active"})


def _node(value: Object) -> None:
    _spec(value)
    status = value.setdefault("status", {})
    if "capacity" in status:
        status.setdefault("allocatable", status["capacity"])
    status["nodeInfo"] = dict.fromkeys(NODE_INFO_FIELDS, "") | status.get("nodeInfo", {})


def _service(value: Object) -> None:
    spec = _spec(value)
    _fill(
        spec, {"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster"}
    )
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    value.setdefault("status", {"loadBalancer": {}})


def _claim(value: Object) -> None:
    _spec(value).setdefault("volumeMode", "Filesystem")
    value.setdefault("status", {"phase": "Pending"})


def _volume(value: Object) -> None:
    _fill(_spec(value), {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"})
    value.setdefault("status", {"phase": "Pending"})


def _storage_class(value: Object) -> None:
    _fill(value, {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"})


def _csi_driver(value: Object) -> None:
    _fill(
        _spec(value),
        {
            "attachRequired": True,
            "podInfoOnMount": False,
            "volumeLifecycleModes": ["Persistent"],
            "storageCapacity": False,
            "fsGroupPolicy": "ReadWriteOnceWithFSType",
            "requiresRepublish": False,
            "seLinuxMount": False,
        },
    )


def _priority_class(value: Object) -> None:
    _fill(value, {"value": 0, "preemptionPolicy": "PreemptLowerPriority"})


def _disruption_budget(value: Object) -> None:
    """A budget's status with any value other than zero counts as given. kubectl itself sends one of zeros."""
    _spec(value)
    status = value.setdefault("status", {})
    if any(status.values()):
        status.setdefault("observedGeneration", value["metadata"].get("generation", 1))
    counts = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    _fill(status, dict.fromkeys(counts, 0))


def _device_class(value: Object) -> None:
    _spec(value)


def _secret(value: Object) -> None:
    value.setdefault("type", "Opaque")
    for name, text in value.pop("stringData", {}).items():
        encoded = b64encode(text.encode()).decode()
        value.setdefault("data", {})[name] = encoded


_DEFAULTERS: Final[Mapping[str, Callable[[Object], None]]] = {
    "pods": _pod,
    "events": set_event_defaults,
    "namespaces": _namespace,
    "nodes": _node,
    "services": _service,
    "secrets": _secret,
    "persistentvolumeclaims": _claim,
    "persistentvolumes": _volume,
    "replicationcontrollers": _replica_set,
    "replicasets.apps": _replica_set,
    "deployments.apps": _deployment,
    "statefulsets.apps": _stateful_set,
    "daemonsets.apps": _daemon_set,
    "jobs.batch": _job,
    "storageclasses.storage.k8s.io": _storage_class,
    "csidrivers.storage.k8s.io": _csi_driver,
    "priorityclasses.scheduling.k8s.io": _priority_class,
    "poddisruptionbudgets.policy": _disruption_budget,
    "podgroups.scheduling.k8s.io": set_group_defaults,
    "workloads.scheduling.k8s.io": set_workload_defaults,
    "deviceclasses.resource.k8s.io": _device_class,
    "resourceclaims.resource.k8s.io": set_claim_defaults,
    "resourceclaimtemplates.resource.k8s.io": set_template_defaults,
    "resourceslices.resource.k8s.io": set_slice_defaults,
}
