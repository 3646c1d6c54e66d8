"""Tables as kubectl prints them: the columns of each resource and how a cell is worked out.

Column names, types and priorities are the real server's; resources not listed have a name and an age.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from app.model.timestamps import parse_time
from app.sim.clock import human_duration
from app.sim.http.pod_summary import pod_status, pod_summary
from app.sim.objects import find_condition, is_true
from app.sim.store import Object

Cells = list[Any]
Rower = Callable[[Object, float], Cells]
"""(object, present time in seconds) -> cells behind the name."""

_NONE: Final = "<none>"
_UNKNOWN: Final = "<unknown>"
_UNSET: Final = "<unset>"


def _column(spec: str) -> dict[str, Any]:
    """Reads ``Name``, ``Name:integer`` or ``Name*`` (shown in wide output only)."""
    name, _, kind = spec.rstrip("*").partition(":")
    return {
        "name": name,
        "type": kind or "string",
        "format": "name" if name == "Name" else "",
        "description": name,
        "priority": 1 if spec.endswith("*") else 0,
    }


def age(value: Object, now: float) -> str:
    """The AGE column."""
    return since(value["metadata"].get("creationTimestamp"), now)


def since(timestamp: str | None, now: float) -> str:
    """How long ago a timestamp was, in kubectl's short form."""
    return human_duration(now - parse_time(timestamp)) if timestamp else _UNKNOWN


def columns_of(resource: str) -> list[dict[str, Any]]:
    """Returns the column definitions of a resource's table."""
    return _TABLES.get(resource, _DEFAULT)[0]


def cells_of(resource: str, value: Object, now: float) -> Cells:
    """Returns one row: a cell for each column."""
    return _TABLES.get(resource, _DEFAULT)[1](value, now)


def _name(value: Object) -> str:
    return value["metadata"]["name"]  # type: ignore[no-any-return]  # JSON


def _labels_text(labels: Mapping[str, str] | None) -> str:
    pairs = sorted((labels or {}).items())
    return ",".join(f"{key}={value}" for key, value in pairs) or _NONE


def _selector_text(selector: Mapping[str, Any] | None) -> str:
    """Writes a LabelSelector as kubectl's -l would take it."""
    parts = [
        f"{key}={value}"
        for key, value in sorted(((selector or {}).get("matchLabels") or {}).items())
    ]
    for expression in (selector or {}).get("matchExpressions") or ():
        key, operator = expression["key"], expression["operator"]
        values = ",".join(expression.get("values") or ())
        texts = {"Exists": key, "DoesNotExist": f"!{key}"}
        parts.append(texts.get(operator, f"{key} {operator.lower()} ({values})"))
    return ",".join(parts) or _NONE


def _default_row(value: Object, now: float) -> Cells:
    return [_name(value), age(value, now)]


def _namespace(value: Object, now: float) -> Cells:
    return [_name(value), value["status"].get("phase", ""), age(value, now)]


def _pod(value: Object, now: float) -> Cells:
    summary = pod_summary(value)
    status = value.get("status", {})
    spec = value["spec"]
    gates = spec.get("readinessGates", ())
    passed = sum(is_true(value, gate["conditionType"]) for gate in gates)
    restarts = str(summary.restarts)
    if summary.restarts and summary.last_restart:
        restarts += f" ({since(summary.last_restart, now)} ago)"
    return [
        _name(value),
        f"{summary.ready}/{summary.containers}",
        pod_status(value),
        restarts,
        age(value, now),
        status.get("podIP") or _NONE,
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        f"{passed}/{len(gates)}" if gates else _NONE,
    ]


def _node(value: Object, now: float) -> Cells:
    status = value.get("status", {})
    info = status.get("nodeInfo", {})
    return [
        _name(value),
        _node_status(value),
        _node_roles(value),
        age(value, now),
        info.get("kubeletVersion", ""),
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        info.get("osImage") or _UNKNOWN,
        info.get("kernelVersion") or _UNKNOWN,
        info.get("containerRuntimeVersion") or _UNKNOWN,
    ]


def _node_status(value: Object) -> str:
    if find_condition(value, "Ready") is None:
        text = "Unknown"
    else:
        text = "Ready" if is_true(value, "Ready") else "NotReady"
    unschedulable = value.get("spec", {}).get("unschedulable")
    return f"{text},SchedulingDisabled" if unschedulable else text


def _node_roles(value: Object) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = value["metadata"].get("labels", {})
    roles = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))
    return ",".join(roles) or _NONE


def _address(status: Object, kind: str) -> str:
    for address in status.get("addresses", ()):
        if address["type"] == kind:
            return str(address["address"])
    return _NONE


def _event(value: Object, now: float) -> Cells:
    involved = value.get("involvedObject") or value.get("regarding") or {}
    source = value.get("source") or value.get("deprecatedSource") or {}
    component = (
        source.get("component")
        or value.get("reportingComponent")
        or value.get("reportingController")
    )
    host = source.get("host") or value.get("reportingInstance")
    series = value.get("series") or {}
    first = (
        value.get("firstTimestamp")
        or value.get("deprecatedFirstTimestamp")
        or value.get("eventTime")
    )
    last = value.get("lastTimestamp") or value.get("deprecatedLastTimestamp") or first
    name = involved.get("name")
    return [
        since(series.get("lastObservedTime") or last, now),
        value.get("type", ""),
        value.get("reason", ""),
        "/".join(filter(None, (involved.get("kind", "").lower(), name))),
        involved.get("fieldPath", ""),
        ", ".join(filter(None, (component, host))),
        (value.get("message") or value.get("note") or "").strip(),
        since(first, now),
        series.get("count") or value.get("count") or value.get("deprecatedCount") or 1,
        _name(value),
    ]


def _lease(value: Object, now: float) -> Cells:
    return [_name(value), value.get("spec", {}).get("holderIdentity", ""), age(value, now)]


_ACCESS_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _access_modes(modes: Sequence[str] | None) -> str:
    return ",".join(_ACCESS_MODES.get(mode, mode) for mode in modes or ())


def _claim(value: Object, now: float) -> Cells:
    spec, status = value["spec"], value.get("status", {})
    bound = bool(spec.get("volumeName"))
    return [
        _name(value),
        "Terminating" if "deletionTimestamp" in value["metadata"] else status.get("phase", ""),
        spec.get("volumeName", ""),
        status.get("capacity", {}).get("storage", "") if bound else "",
        _access_modes(status.get("accessModes")) if bound else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName") or _UNSET,
        age(value, now),
        spec.get("volumeMode") or _UNSET,
    ]


def _volume(value: Object, now: float) -> Cells:
    spec, status = value["spec"], value.get("status", {})
    claim = spec.get("claimRef")
    return [
        _name(value),
        spec.get("capacity", {}).get("storage", ""),
        _access_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        "Terminating" if "deletionTimestamp" in value["metadata"] else status.get("phase", ""),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName") or _UNSET,
        status.get("reason", ""),
        age(value, now),
        spec.get("volumeMode") or _UNSET,
    ]


def _priority_class(value: Object, now: float) -> Cells:
    default = bool(value.get("globalDefault"))
    return [
        _name(value),
        value["value"],
        default,
        age(value, now),
        value.get("preemptionPolicy", ""),
    ]


def _disruption_budget(value: Object, now: float) -> Cells:
    spec = value.get("spec", {})
    bounds = [
        str(spec[name]) if name in spec else "N/A" for name in ("minAvailable", "maxUnavailable")
    ]
    allowed = value.get("status", {}).get("disruptionsAllowed", 0)
    return [_name(value), *bounds, allowed, age(value, now)]


def _template_texts(value: Object) -> tuple[str, str]:
    template = value.get("spec", {}).get("template") or {}
    containers = (template.get("spec") or {}).get("containers") or ()
    names = ",".join(container["name"] for container in containers)
    return names, ",".join(container.get("image", "") for container in containers)


def _replica_set(value: Object, now: float) -> Cells:
    spec, status = value["spec"], value.get("status", {})
    selector = spec.get("selector")
    if selector and value["kind"] == "ReplicationController":
        selector = {"matchLabels": selector}
    counts = [spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [
        _name(value),
        *counts,
        age(value, now),
        *_template_texts(value),
        _selector_text(selector),
    ]


def _deployment(value: Object, now: float) -> Cells:
    spec, status = value["spec"], value.get("status", {})
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    counts = [status.get("updatedReplicas", 0), status.get("availableReplicas", 0)]
    texts = [*_template_texts(value), _selector_text(spec.get("selector"))]
    return [_name(value), ready, *counts, age(value, now), *texts]


def _stateful_set(value: Object, now: float) -> Cells:
    spec, status = value["spec"], value.get("status", {})
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    return [_name(value), ready, age(value, now), *_template_texts(value)]


def _daemon_set(value: Object, now: float) -> Cells:
    spec, status = value["spec"], value.get("status", {})
    fields = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    nodes = _labels_text(((spec.get("template") or {}).get("spec") or {}).get("nodeSelector"))
    texts = [*_template_texts(value), _selector_text(spec.get("selector"))]
    return [_name(value), *(status.get(name, 0) for name in fields), nodes, age(value, now), *texts]


def _service(value: Object, now: float) -> Cells:
    spec = value.get("spec", {})
    ports = ",".join(_port_text(port) for port in spec.get("ports", ()))
    return [
        _name(value),
        spec.get("type", ""),
        spec.get("clusterIP") or _NONE,
        ",".join(spec.get("externalIPs", ())) or spec.get("externalName") or _NONE,
        ports or _NONE,
        age(value, now),
        _labels_text(spec.get("selector")),
    ]


def _port_text(port: Object) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port['port']}{node_port}/{port['protocol']}"


def _config_map(value: Object, now: float) -> Cells:
    entries = len(value.get("data", ())) + len(value.get("binaryData", ()))
    return [_name(value), entries, age(value, now)]


def _secret(value: Object, now: float) -> Cells:
    return [_name(value), value.get("type", ""), len(value.get("data", ())), age(value, now)]


def _storage_class(value: Object, now: float) -> Cells:
    marked = value["metadata"].get("annotations", {})
    is_default = marked.get("storageclass.kubernetes.io/is-default-class") == "true"
    return [
        _name(value) + (" (default)" if is_default else ""),
        value.get("provisioner", ""),
        value.get("reclaimPolicy", ""),
        value.get("volumeBindingMode", ""),
        bool(value.get("allowVolumeExpansion")),
        age(value, now),
    ]


def _csi_node(value: Object, now: float) -> Cells:
    return [_name(value), len(value.get("spec", {}).get("drivers", ())), age(value, now)]


def _csi_driver(value: Object, now: float) -> Cells:
    spec = value.get("spec", {})
    flags = [
        bool(spec.get(name)) for name in ("attachRequired", "podInfoOnMount", "storageCapacity")
    ]
    tokens = ",".join(token["audience"] for token in spec.get("tokenRequests", ())) or _UNSET
    modes = ",".join(spec.get("volumeLifecycleModes", ()))
    republish = bool(spec.get("requiresRepublish"))
    return [_name(value), *flags, tokens, republish, modes, age(value, now)]


def _attachment(value: Object, now: float) -> Cells:
    spec = value.get("spec", {})
    return [
        _name(value),
        spec.get("attacher", ""),
        spec.get("source", {}).get("persistentVolumeName", ""),
        spec.get("nodeName", ""),
        bool(value.get("status", {}).get("attached")),
        age(value, now),
    ]


def _resource_claim(value: Object, now: float) -> Cells:
    status = value.get("status", {})
    states = []
    if "deletionTimestamp" in value["metadata"]:
        states.append("deleted")
    if "allocation" not in status:
        states.append("" if states else "pending")
    else:
        states.append("allocated")
        states += ["reserved"] if status.get("reservedFor") else []
    return [_name(value), ",".join(filter(None, states)), age(value, now)]


def _resource_slice(value: Object, now: float) -> Cells:
    spec = value.get("spec", {})
    pool = spec.get("pool", {}).get("name", "")
    return [_name(value), spec.get("nodeName", ""), spec.get("driver", ""), pool, age(value, now)]


def _table(columns: str, rower: Rower) -> tuple[list[dict[str, Any]], Rower]:
    return [_column(spec) for spec in columns.split("|")], rower


_DEFAULT: Final = _table("Name|Age", _default_row)
_EVENTS: Final = _table(
    "Last Seen|Type|Reason|Object|Subobject*|Source*|Message|First Seen*|Count*|Name*", _event
)
_REPLICA_SETS: Final = _table(
    "Name|Desired:integer|Current:integer|Ready:integer|Age|Containers*|Images*|Selector*",
    _replica_set,
)

_TABLES: Final[Mapping[str, tuple[list[dict[str, Any]], Rower]]] = {
    "namespaces": _table("Name|Status|Age", _namespace),
    "pods": _table(
        "Name|Ready|Status|Restarts|Age|IP*|Node*|Nominated Node*|Readiness Gates*", _pod
    ),
    "nodes": _table(
        "Name|Status|Roles|Age|Version|Internal-IP*|External-IP*|OS-Image*|Kernel-Version*|Container-Runtime*",
        _node,
    ),
    "events": _EVENTS,
    "events.events.k8s.io": _EVENTS,
    "leases.coordination.k8s.io": _table("Name|Holder|Age", _lease),
    "persistentvolumeclaims": _table(
        "Name|Status|Volume|Capacity|Access Modes|StorageClass|VolumeAttributesClass|Age|VolumeMode*",
        _claim,
    ),
    "persistentvolumes": _table(
        "Name|Capacity|Access Modes|Reclaim Policy|Status|Claim|StorageClass|VolumeAttributesClass|Reason|Age|VolumeMode*",
        _volume,
    ),
    "priorityclasses.scheduling.k8s.io": _table(
        "Name|Value:integer|Global-Default:boolean|Age|PreemptionPolicy", _priority_class
    ),
    "poddisruptionbudgets.policy": _table(
        "Name|Min Available|Max Unavailable|Allowed Disruptions:integer|Age", _disruption_budget
    ),
    "replicasets.apps": _REPLICA_SETS,
    "replicationcontrollers": _REPLICA_SETS,
    "deployments.apps": _table(
        "Name|Ready|Up-to-date:integer|Available:integer|Age|Containers*|Images*|Selector*",
        _deployment,
    ),
    "statefulsets.apps": _table("Name|Ready|Age|Containers*|Images*", _stateful_set),
    "daemonsets.apps": _table(
        "Name|Desired:integer|Current:integer|Ready:integer|Up-to-date:integer|Available:integer"
        "|Node Selector|Age|Containers*|Images*|Selector*",
        _daemon_set,
    ),
    "services": _table("Name|Type|Cluster-IP|External-IP|Port(s)|Age|Selector*", _service),
    "configmaps": _table("Name|Data:integer|Age", _config_map),
    "secrets": _table("Name|Type|Data:integer|Age", _secret),
    "storageclasses.storage.k8s.io": _table(
        "Name|Provisioner|ReclaimPolicy|VolumeBindingMode|AllowVolumeExpansion:boolean|Age",
        _storage_class,
    ),
    "csinodes.storage.k8s.io": _table("Name|Drivers:integer|Age", _csi_node),
    "csidrivers.storage.k8s.io": _table(
        "Name|AttachRequired:boolean|PodInfoOnMount:boolean|StorageCapacity:boolean|TokenRequests"
        "|RequiresRepublish:boolean|Modes|Age",
        _csi_driver,
    ),
    "volumeattachments.storage.k8s.io": _table(
        "Name|Attacher|PV|Node|Attached:boolean|Age", _attachment
    ),
    "resourceclaims.resource.k8s.io": _table("Name|State|Age", _resource_claim),
    "resourceslices.resource.k8s.io": _table("Name|Node|Driver|Pool|Age", _resource_slice),
}
