"""Tables, as kubectl prints them: the columns of each resource, and the cells of an object.

Names, types and priorities of the columns are those of a real API server. The columns of a table are text::

    Name|Holder=spec.holderIdentity|Attached:boolean=status.attached|IP*=status.podIP,<none>|Age

A column with a path shows this field of the object, or what is behind the comma if it is missing or empty. ``*`` marks
columns of wide output. Columns without a path, except name and age, show what the functions return that follow the
text; a path of ``()`` says the same for a name. Resources that are not listed have a name and an age.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from app.model.timestamps import parse_time
from app.sim.clock import human_duration
from app.sim.objects import (
    controller_reference,
    find_condition,
    has_ended,
    is_being_deleted,
    is_true,
    selector_of,
)
from app.sim.selectors import selector_text
from app.sim.store import Object

log = logging.getLogger(__name__)

Cell = Callable[[Object, float], Any]
"""(object, present time in seconds since the epoch) -> what a column shows."""
_Table = tuple[list[dict[str, Any]], list[Cell]]
"""The definitions of a table's columns, and their cells."""

_NONE: Final = "<none>"
_UNKNOWN: Final = "<unknown>"
_UNSET: Final = "<unset>"
_EMPTY: Final[Mapping[str, Any]] = {"string": "", "integer": 0, "boolean": False}
_UNSHOWN: Final = {**_EMPTY, "string": _UNKNOWN}
"""What a column shows, by its type, of an object that has an unexpected form."""


def columns_of(resource: str) -> list[dict[str, Any]]:
    """The column definitions of a resource's table."""
    return _TABLES.get(resource, _DEFAULT)[0]


def cells_of(resource: str, value: Object, now: float) -> list[Any]:
    """One row: the cell of each column. ``now`` is in seconds since the epoch.

    A cell is ``<unknown>``, 0 or false if what it shows has an unexpected form, such as a text instead of a list.
    """
    columns, cells = _TABLES.get(resource, _DEFAULT)
    return [_shown(cell, column, value, now) for cell, column in zip(cells, columns, strict=True)]


def _shown(cell: Cell, column: Mapping[str, Any], value: Object, now: float) -> Any:
    try:
        return cell(value, now)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        where = f"{value.get('kind')} {value['metadata'].get('name')}"
        log.warning("Cannot show the column %s of %s: %r", column["name"], where, error)
        return _UNSHOWN[column["type"]]


def _table(columns: str, *cells: Cell) -> _Table:
    """A table from the text of its columns, and the cells of those that show no field."""
    texts = columns.split("|")
    rest = iter(cells)
    return [_definition(text) for text in texts], [_cell(text, rest) for text in texts]


def _definition(text: str) -> dict[str, Any]:
    head = text.partition("=")[0]
    name, _, kind = head.rstrip("*").partition(":")
    return {
        "name": name,
        "type": kind or "string",
        "format": "name" if name == "Name" else "",
        "description": name,
        "priority": 1 if head.endswith("*") else 0,
    }


def _cell(text: str, functions: Iterator[Cell]) -> Cell:
    """The cell of a column; ``functions`` yields those of columns without a path."""
    definition = _definition(text)
    path, _, default = text.partition("=")[2].partition(",")
    if path and path != "()":
        return _of(path, lambda found: found or default or _EMPTY[definition["type"]])
    own = {"Name": _name, "Age": age}.get(definition["name"])
    return own if own is not None and not path else next(functions)


def _of(path: str, show: Callable[[Any], Any]) -> Cell:
    """A cell that shows a field; ``show`` gets None if the object does not have it."""
    parts = path.split(".")

    def cell(value: Object, _now: float) -> Any:
        found: Any = value
        for part in parts:
            found = (found or {}).get(part)
        return show(found)

    return cell


# ---------------------------------------------------------------- cells of several resources


def _name(value: Object, _now: float) -> str:
    return str(value["metadata"]["name"])


def age(value: Object, now: float) -> str:
    """The AGE column."""
    return _since(value["metadata"].get("creationTimestamp"), now)


def _since(timestamp: str | None, now: float) -> str:
    """The time since a timestamp, in kubectl's short form."""
    return human_duration(now - parse_time(timestamp)) if timestamp else _UNKNOWN


def _count(found: Sequence[Any] | None) -> int:
    return len(found or ())


def _joined(words: Iterable[str] | None) -> str:
    return ",".join(words or ())


def _labels_text(labels: Mapping[str, str] | None) -> str:
    pairs = sorted((labels or {}).items())
    return _joined(f"{key}={value}" for key, value in pairs) or _NONE


def _selector(value: Object, _now: float) -> str:
    return selector_text(selector_of(value)) or _NONE


def _containers(field: str) -> Cell:
    """A field of each container in the pod template."""
    return _of(
        "spec.template.spec.containers",
        lambda containers: _joined(each.get(field, "") for each in containers or ()),
    )


def _ready_replicas(value: Object, _now: float) -> str:
    ready = value.get("status", {}).get("readyReplicas", 0)
    return f"{ready}/{value['spec'].get('replicas', 0)}"


# ---------------------------------------------------------------- pods


def _ready_containers(pod: Object, _now: float) -> str:
    ready = sum(
        bool(container.get("ready")) and "running" in container.get("state", {})
        for container in pod.get("status", {}).get("containerStatuses", ())
    )
    return f"{ready}/{len(pod['spec'].get('containers', ()))}"


def _restarts(pod: Object, now: float) -> str:
    containers = pod.get("status", {}).get("containerStatuses", ())
    count = sum(container.get("restartCount", 0) for container in containers)
    ends = [
        container.get("lastState", {}).get("terminated", {}).get("finishedAt")
        for container in containers
    ]
    last = max(filter(None, ends), default=None)
    return f"{count} ({_since(last, now)} ago)" if count and last else str(count)


def _readiness_gates(pod: Object, _now: float) -> str:
    gates = pod["spec"].get("readinessGates", ())
    passed = sum(is_true(pod, gate["conditionType"]) for gate in gates)
    return f"{passed}/{len(gates)}" if gates else _NONE


def pod_status(pod: Object, _now: float = 0.0) -> str:
    """The STATUS column: the phase, or the most specific reason of the pod's conditions and containers."""
    status = pod.get("status", {})
    if is_being_deleted(pod) and status.get("reason") != "NodeLost" and not has_ended(pod):
        return "Terminating"
    text = status.get("reason") or status.get("phase", "")
    scheduled = find_condition(pod, "PodScheduled")
    if scheduled is not None and scheduled.get("reason") == "SchedulingGated":
        text = "SchedulingGated"
    return _init_reason(pod) or _container_reason(pod, text)


def _init_reason(pod: Object) -> str:
    statuses = pod.get("status", {}).get("initContainerStatuses", ())
    for index, container in enumerate(statuses):
        state = container.get("state", {})
        terminated = state.get("terminated")
        if terminated is not None and terminated.get("exitCode", 0) == 0:
            continue
        if terminated is not None:
            return f"Init:{_terminated_text(terminated)}"
        waiting = state.get("waiting", {}).get("reason", "")
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}"
        return f"Init:{index}/{len(pod['spec'].get('initContainers', ()))}"
    return ""


def _container_reason(pod: Object, text: str) -> str:
    running = False
    for container in reversed(pod.get("status", {}).get("containerStatuses", ())):
        state = container.get("state", {})
        if state.get("waiting", {}).get("reason"):
            text = state["waiting"]["reason"]
        elif "terminated" in state:
            text = _terminated_text(state["terminated"])
        elif container.get("ready") and "running" in state:
            running = True
    if text == "Completed" and running:
        return "Running" if is_true(pod, "Ready") else "NotReady"
    return text


def _terminated_text(terminated: dict[str, Any]) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


# ---------------------------------------------------------------- nodes


def _node_status(node: Object, _now: float) -> str:
    if find_condition(node, "Ready") is None:
        text = "Unknown"
    else:
        text = "Ready" if is_true(node, "Ready") else "NotReady"
    unschedulable = node.get("spec", {}).get("unschedulable")
    return f"{text},SchedulingDisabled" if unschedulable else text


def _roles(labels: Mapping[str, str] | None) -> str:
    prefix = "node-role.kubernetes.io/"
    roles = sorted(k.removeprefix(prefix) for k in labels or () if k.startswith(prefix))
    return _joined(roles) or _NONE


def _address(kind: str) -> Cell:
    return _of(
        "status.addresses",
        lambda addresses: next((a["address"] for a in addresses or () if a["type"] == kind), _NONE),
    )


# ---------------------------------------------------------------- events, in both versions


def _first_time(event: Object) -> str | None:
    return (
        event.get("firstTimestamp")
        or event.get("deprecatedFirstTimestamp")
        or event.get("eventTime")
    )


def _last_seen(event: Object, now: float) -> str:
    series = event.get("series") or {}
    last = event.get("lastTimestamp") or event.get("deprecatedLastTimestamp") or _first_time(event)
    return _since(series.get("lastObservedTime") or last, now)


def _involved(event: Object) -> Object:
    return event.get("involvedObject") or event.get("regarding") or {}


def _involved_name(event: Object, _now: float) -> str:
    involved = _involved(event)
    return "/".join(filter(None, (involved.get("kind", "").lower(), involved.get("name"))))


def _message(event: Object, _now: float) -> str:
    return str(event.get("message") or event.get("note") or "").strip()


def _event_source(event: Object, _now: float) -> str:
    source = event.get("source") or event.get("deprecatedSource") or {}
    component = (
        source.get("component")
        or event.get("reportingComponent")
        or event.get("reportingController")
    )
    host = source.get("host") or event.get("reportingInstance")
    return ", ".join(filter(None, (component, host)))


def _event_count(event: Object, _now: float) -> int:
    series = event.get("series") or {}
    return series.get("count") or event.get("count") or event.get("deprecatedCount") or 1


# ---------------------------------------------------------------- volumes, claims and their classes


_ACCESS_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _access_modes(modes: Sequence[str] | None) -> str:
    return _joined(_ACCESS_MODES.get(mode, mode) for mode in modes or ())


def _phase(value: Object, _now: float) -> str:
    return (
        "Terminating" if is_being_deleted(value) else str(value.get("status", {}).get("phase", ""))
    )


def _if_bound(cell: Cell) -> Cell:
    return lambda claim, now: cell(claim, now) if claim["spec"].get("volumeName") else ""


def _claim_ref(claim: Object | None) -> str:
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def _class_name(storage_class: Object, now: float) -> str:
    notes = storage_class["metadata"].get("annotations", {})
    is_default = notes.get("storageclass.kubernetes.io/is-default-class") == "true"
    return _name(storage_class, now) + (" (default)" if is_default else "")


def _audiences(tokens: Iterable[Object] | None) -> str:
    return _joined(token["audience"] for token in tokens or ()) or _UNSET


# ---------------------------------------------------------------- other resources


def _bound_of(field: str) -> Cell:
    """A bound of a PodDisruptionBudget."""
    return _of(f"spec.{field}", lambda found: "N/A" if found is None else str(found))


def _external_ip(service: Object, now: float) -> str:
    spec = service.get("spec", {})
    balanced = _ingress_address(service, now)
    return balanced or _joined(spec.get("externalIPs")) or spec.get("externalName") or _NONE


def _ports(ports: Iterable[Object] | None) -> str:
    return _joined(map(_port, ports or ())) or _NONE


def _port(port: Object) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port['port']}{node_port}/{port['protocol']}"


def _claim_state(claim: Object, _now: float) -> str:
    status = claim.get("status", {})
    states = ["deleted"] if is_being_deleted(claim) else []
    if "allocation" in status:
        states.append("allocated")
        states += ["reserved"] if status.get("reservedFor") else []
    elif not states:
        states.append("pending")
    return _joined(states)


def _job_status(job: Object, _now: float) -> str:
    for type_ in ("Complete", "Failed", "Suspended"):
        if is_true(job, type_):
            return type_
    return "Terminating" if is_being_deleted(job) else "Running"


def _completions(job: Object, _now: float) -> str:
    spec, succeeded = job["spec"], job.get("status", {}).get("succeeded", 0)
    if spec.get("completions") is not None:
        return f"{succeeded}/{spec['completions']}"
    parallelism = spec.get("parallelism", 1)
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _job_duration(job: Object, now: float) -> str:
    status = job.get("status", {})
    if "startTime" not in status:
        return ""
    end = parse_time(status["completionTime"]) if "completionTime" in status else now
    return human_duration(end - parse_time(status["startTime"]))


def _controller(value: Object, _now: float) -> str:
    found = controller_reference(value)
    return f"{found['kind'].lower()}/{found['name']}" if found else _NONE


def _group_workload(group: Object, _now: float) -> str:
    spec = group["spec"]
    reference = spec.get("workloadRef") or (spec.get("podGroupTemplateRef") or {}).get("workload")
    return str(reference["workloadName"]) if reference else _NONE


def _group_status(group: Object, _now: float) -> str:
    disrupted = find_condition(group, "DisruptionTarget")
    if disrupted is not None:
        return str(disrupted["reason"])
    for type_ in ("PodGroupScheduled", "PodGroupInitiallyScheduled"):
        if find_condition(group, type_) is not None:
            return "Scheduled" if is_true(group, type_) else "Unschedulable"
    return "Pending"


def _hosts(ingress: Object, _now: float) -> str:
    rules = ingress["spec"].get("rules") or ()
    return _joined(rule.get("host", "*") for rule in rules) or "*"


def _ingress_address(value: Object, _now: float) -> str:
    given = value.get("status", {}).get("loadBalancer", {}).get("ingress") or ()
    return _joined(each.get("ip") or each.get("hostname") for each in given)


def _quota_use(*, limits: bool) -> Cell:
    """The use of a quota's resources: of limits, or of everything else."""

    def cell(quota: Object, _now: float) -> str:
        status = quota.get("status", {})
        hard, used = status.get("hard", {}), status.get("used", {})
        names = sorted(name for name in hard if name.startswith("limits.") == limits)
        return ", ".join(f"{name}: {used.get(name, 0)}/{hard[name]}" for name in names)

    return cell


# ---------------------------------------------------------------- tables


_DEFAULT: Final = _table("Name|Age")
_EVENTS: Final = _table(
    "Last Seen|Type=type|Reason=reason|Object|Subobject*|Source*|Message|First Seen*|Count*|Name*",
    _last_seen,
    _involved_name,
    lambda event, _now: str(_involved(event).get("fieldPath", "")),
    _event_source,
    _message,
    lambda event, now: _since(_first_time(event), now),
    _event_count,
)
_CONTAINERS: Final = (_containers("name"), _containers("image"))
_REPLICA_SETS: Final = _table(
    "Name|Desired:integer=spec.replicas|Current:integer=status.replicas"
    "|Ready:integer=status.readyReplicas|Age|Containers*|Images*|Selector*",
    *(*_CONTAINERS, _selector),
)

_TABLES: Final[Mapping[str, _Table]] = {
    "namespaces": _table("Name|Status=status.phase|Age"),
    "pods": _table(
        "Name|Ready|Status|Restarts|Age|IP*=status.podIP,<none>|Node*=spec.nodeName,<none>"
        "|Nominated Node*=status.nominatedNodeName,<none>|Readiness Gates*",
        *(_ready_containers, pod_status, _restarts, _readiness_gates),
    ),
    "nodes": _table(
        "Name|Status|Roles|Age|Version=status.nodeInfo.kubeletVersion|Internal-IP*|External-IP*"
        "|OS-Image*=status.nodeInfo.osImage,<unknown>"
        "|Kernel-Version*=status.nodeInfo.kernelVersion,<unknown>"
        "|Container-Runtime*=status.nodeInfo.containerRuntimeVersion,<unknown>",
        *(
            _node_status,
            _of("metadata.labels", _roles),
            _address("InternalIP"),
            _address("ExternalIP"),
        ),
    ),
    "events": _EVENTS,
    "events.events.k8s.io": _EVENTS,
    "leases.coordination.k8s.io": _table("Name|Holder=spec.holderIdentity|Age"),
    "persistentvolumeclaims": _table(
        "Name|Status|Volume=spec.volumeName|Capacity|Access Modes"
        "|StorageClass=spec.storageClassName"
        "|VolumeAttributesClass=spec.volumeAttributesClassName,<unset>|Age"
        "|VolumeMode*=spec.volumeMode,<unset>",
        _phase,
        _if_bound(_of("status.capacity.storage", lambda size: size or "")),
        _if_bound(_of("status.accessModes", _access_modes)),
    ),
    "persistentvolumes": _table(
        "Name|Capacity=spec.capacity.storage|Access Modes"
        "|Reclaim Policy=spec.persistentVolumeReclaimPolicy|Status|Claim"
        "|StorageClass=spec.storageClassName"
        "|VolumeAttributesClass=spec.volumeAttributesClassName,<unset>|Reason=status.reason|Age"
        "|VolumeMode*=spec.volumeMode,<unset>",
        *(_of("spec.accessModes", _access_modes), _phase, _of("spec.claimRef", _claim_ref)),
    ),
    "podgroups.scheduling.k8s.io": _table(
        "Name|Policy|Workload|Status|Age",
        _of("spec.schedulingPolicy", lambda policy: "Gang" if "gang" in policy else "Basic"),
        *(_group_workload, _group_status),
    ),
    "priorityclasses.scheduling.k8s.io": _table(
        "Name|Value:integer=value|Global-Default:boolean=globalDefault|Age"
        "|PreemptionPolicy=preemptionPolicy"
    ),
    "poddisruptionbudgets.policy": _table(
        "Name|Min Available|Max Unavailable"
        "|Allowed Disruptions:integer=status.disruptionsAllowed|Age",
        *(_bound_of("minAvailable"), _bound_of("maxUnavailable")),
    ),
    "replicasets.apps": _REPLICA_SETS,
    "replicationcontrollers": _REPLICA_SETS,
    "deployments.apps": _table(
        "Name|Ready|Up-to-date:integer=status.updatedReplicas"
        "|Available:integer=status.availableReplicas|Age|Containers*|Images*|Selector*",
        *(_ready_replicas, *_CONTAINERS, _selector),
    ),
    "statefulsets.apps": _table(
        "Name|Ready|Age|Containers*|Images*", *(_ready_replicas, *_CONTAINERS)
    ),
    "daemonsets.apps": _table(
        "Name|Desired:integer=status.desiredNumberScheduled"
        "|Current:integer=status.currentNumberScheduled|Ready:integer=status.numberReady"
        "|Up-to-date:integer=status.updatedNumberScheduled"
        "|Available:integer=status.numberAvailable|Node Selector|Age|Containers*|Images*|Selector*",
        *(_of("spec.template.spec.nodeSelector", _labels_text), *_CONTAINERS, _selector),
    ),
    "jobs.batch": _table(
        "Name|Status|Completions|Duration|Age|Containers*|Images*|Selector*",
        *(_job_status, _completions, _job_duration, *_CONTAINERS, _selector),
    ),
    "cronjobs.batch": _table(
        "Name|Schedule=spec.schedule|Timezone=spec.timeZone,<none>|Suspend:boolean=spec.suspend"
        "|Active:integer|Last Schedule|Age",
        *(_of("status.active", _count), lambda _value, _now: _NONE),
    ),
    "controllerrevisions.apps": _table(
        "Name|Controller|Revision:integer=revision|Age", _controller
    ),
    "ingresses.networking.k8s.io": _table(
        "Name|Class=spec.ingressClassName,<none>|Hosts|Address|Ports|Age",
        *(
            _hosts,
            _ingress_address,
            lambda value, _now: "80, 443" if value["spec"].get("tls") else "80",
        ),
    ),
    "ingressclasses.networking.k8s.io": _table("Name|Controller=spec.controller|Age"),
    "networkpolicies.networking.k8s.io": _table(
        "Name|Pod-Selector|Age", _of("spec.podSelector", lambda each: selector_text(each) or _NONE)
    ),
    "horizontalpodautoscalers.autoscaling": _table(
        "Name|Reference|MinPods:integer=spec.minReplicas|MaxPods:integer=spec.maxReplicas"
        "|Replicas:integer=status.currentReplicas|Age",
        _of("spec.scaleTargetRef", lambda ref: f"{ref['kind']}/{ref['name']}" if ref else _NONE),
    ),
    "resourcequotas": _table(
        "Name|Request|Limit|Age", _quota_use(limits=False), _quota_use(limits=True)
    ),
    "serviceaccounts": _table("Name|Secrets:integer|Age", _of("secrets", _count)),
    "services": _table(
        "Name|Type=spec.type|Cluster-IP=spec.clusterIP,<none>|External-IP|Port(s)|Age|Selector*",
        *(_external_ip, _of("spec.ports", _ports), _of("spec.selector", _labels_text)),
    ),
    "configmaps": _table(
        "Name|Data:integer|Age",
        lambda value, _now: _count(value.get("data")) + _count(value.get("binaryData")),
    ),
    "secrets": _table("Name|Type=type|Data:integer|Age", _of("data", _count)),
    "storageclasses.storage.k8s.io": _table(
        "Name=()|Provisioner=provisioner|ReclaimPolicy=reclaimPolicy"
        "|VolumeBindingMode=volumeBindingMode|AllowVolumeExpansion:boolean=allowVolumeExpansion"
        "|Age",
        _class_name,
    ),
    "csinodes.storage.k8s.io": _table("Name|Drivers:integer|Age", _of("spec.drivers", _count)),
    "csidrivers.storage.k8s.io": _table(
        "Name|AttachRequired:boolean=spec.attachRequired"
        "|PodInfoOnMount:boolean=spec.podInfoOnMount"
        "|StorageCapacity:boolean=spec.storageCapacity|TokenRequests"
        "|RequiresRepublish:boolean=spec.requiresRepublish|Modes|Age",
        *(_of("spec.tokenRequests", _audiences), _of("spec.volumeLifecycleModes", _joined)),
    ),
    "volumeattachments.storage.k8s.io": _table(
        "Name|Attacher=spec.attacher|PV=spec.source.persistentVolumeName|Node=spec.nodeName"
        "|Attached:boolean=status.attached|Age"
    ),
    "resourceclaims.resource.k8s.io": _table("Name|State|Age", _claim_state),
    "resourceslices.resource.k8s.io": _table(
        "Name|Node=spec.nodeName|Driver=spec.driver|Pool=spec.pool.name|Age"
    ),
}
