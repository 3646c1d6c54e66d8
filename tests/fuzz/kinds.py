"""The watched kinds, field by field: what an API server takes, and what of the right type it would not.

A new field is one line here. test_kinds.py finds fields that the scheduler reads and this module lacks.
"""

from collections.abc import Mapping
from random import Random
from typing import Any, NamedTuple

import msgspec

from tests.fuzz.selectors import expression
from tests.fuzz.shapes import Leaf, List, Made, Map, Number, Obj, Shape, must, nested, often, rare

# ---------------------------------------------------------------- values

LONG = "a" * 63
PREFIX = ".".join(["p" * 61] * 4)[:253]

#: The nodes that pods may go to, and names of nodes that come and go (see world.py).
NODES = tuple(f"node-{i}" for i in range(6))
GUEST_NODES = tuple(f"guest-{i}" for i in range(6))
NAMESPACES = ("default", "team-a", "team-b")
CLAIMS = tuple(f"claim-{i}" for i in range(6))
VOLUMES = tuple(f"volume-{i}" for i in range(6))
CLASSES = ("standard", "late", "topology", "gone")
DRIVERS = ("csi.example.com", "ebs.csi.aws.com", "other.example.com")
DEVICE_DRIVERS = ("gpu.example.com", "nic.example.com")
DEVICE_CLASSES = ("gpu", "nic", "any")
GROUPS = ("gang", "train", "no-such-group")
DEVICE_CLAIMS = tuple(f"devices-{i}" for i in range(6))

_ODD_TEXT = (
    "",
    " ",
    "\0",
    "\n",
    "a b",
    "\u00fc",
    "\U0001f600",
    "x" * 254,
    "x" * 10_000,
    "a/b/c",
    "/",
    "..",
    "%2f",
    "-",
    "A" * 64,
)

NAME = Leaf((*CLAIMS, "a", "web-0", "p" * 253), _ODD_TEXT)
NAMESPACE = Leaf(NAMESPACES, (*_ODD_TEXT, "no-such"))
NODE = Leaf((*NODES, *GUEST_NODES), (*_ODD_TEXT, "no-such-node"))
LABEL_KEY = Leaf(
    (
        "app",
        "tier",
        "topology.kubernetes.io/zone",
        "kubernetes.io/hostname",
        "example.com/x",
        f"{PREFIX}/{LONG}",
    ),
    (*_ODD_TEXT, "a b c", "/x", "x/", "!", "topology.kubernetes.io/region"),
)
LABEL_VALUE = Leaf(
    ("", "web", "db", "z0", "z1", "5", "100", LONG),
    (*_ODD_TEXT, "1" * 5000, "\u0663", "-99999999999999999999"),
)
LABELS = Map(LABEL_KEY, LABEL_VALUE)
ANNOTATIONS = Map(LABEL_KEY, Leaf(("x", "", "{}", "x" * 1000), ("\0", "x" * 300_000)), 2)
BOOL = Leaf((True, False), (None, 0, 1, "true", "false", ""))
INT32 = Number(-(2**31), 2**31 - 1)
COUNT = Number(0, 2**31 - 1)
SIZE = Number(0, 2**63 - 1)
PORT = Number(1, 65535)
WEIGHT = Number(1, 100)
TIME = Leaf(
    ("2026-11-22T10:00:00Z", "2020-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z"),
    ("", "now", "0001-01-01T00:00:00Z", "2026-11-22T10:00:00.123456789Z", "2026-11-22T10:00:00+23:59", "2026-02-30T00:00:00Z",
     "99999-01-01T00:00:00Z", "2026-11-22", "2026-11-22T10:00:60Z", "0000-00-00T00:00:00Z", -1, 1e18),
)  # fmt: skip


def _quantity(random: Random) -> str | int:
    number = random.choice(["0", "1", "2", "3", "0.5", "100", "250", "1.5", ".5", "5.", "007"])
    suffix = random.choice(["", "", "m", "Mi", "Gi", "k", "M", "e3", "e-3", "Ki", "n", "u", "E3"])
    return random.choice(
        [
            f"{number}{suffix}",
            f"{number}{suffix}",
            "9E",
            "9Ei",
            "9223372036854775807",
            "+1",
            "1e18",
            1,
        ]
    )


_ODD_QUANTITIES: tuple[Any, ...] = (
    "-1", "-5Gi", "-9E", "", " ", "1 ", "NaN", "inf", "1e", "e3", "1e1000000", "1e-1000000", "1e99999999999999999999", "9" * 5000, "0." + "0" * 5000 + "1",
    "1" + "0" * 5000 + "Ei", "1e400", "-1e400", "1.2.3", "1EiB", "0x10", "1_000", "\u0663", "+-1", "--1", "1" * 100 + "n", "18446744073709551616", 1.5, 1e308, -1,
    2**63, msgspec.Raw(b"1e3"), msgspec.Raw(b"1e400"), msgspec.Raw(b"9" * 400), True, {}, [], "1Gi\0", ".", "-", "9" * 1_000_000,
)  # fmt: skip
QUANTITY = Made(_quantity, _ODD_QUANTITIES)
RESOURCE = Leaf(
    (
        "cpu",
        "memory",
        "cpu",
        "memory",
        "ephemeral-storage",
        "example.com/foo",
        "hugepages-2Mi",
        "example.com/gpu",
    ),
    (
        *_ODD_TEXT,
        "pods",
        "x/y/z",
        "attachable-volumes-x",
        "requests.cpu",
        "kubernetes.io/batch",
        "foo",
        "hugepages-",
    ),
)
RESOURCES = Map(RESOURCE, QUANTITY)
POD_RESOURCES = Map(Leaf(("cpu", "memory", "hugepages-2Mi"), RESOURCE.odd), QUANTITY)


def _equal_amounts(made: dict[str, Any], random: Random) -> None:
    """Limits that are the requests: those of most resources have to be. Huge pages are whole."""
    if "requests" in made:
        for name in made["requests"]:
            if name.startswith("hugepages-") or "/" in name:
                made["requests"][name] = "4Mi"
        made["limits"] = made["requests"]


POD_REQUIREMENTS = Obj(
    {"requests": often(POD_RESOURCES), "limits": rare(POD_RESOURCES)}, finish=_equal_amounts
)
REQUIREMENTS = Obj({"requests": often(RESOURCES), "limits": rare(RESOURCES)}, finish=_equal_amounts)

# ---------------------------------------------------------------- selectors


def _values_fit(made: dict[str, Any], random: Random) -> None:
    match made["operator"]:
        case "Exists" | "DoesNotExist":
            made.pop("values", None)
        case "Gt" | "Lt":
            made["values"] = [random.choice(["5", "-1", "99999999999999999999"])]
        case _:
            made.setdefault("values", ["web"])


def _requirement(*operators: str) -> Obj:
    odd = ("", "Odd", "in", "\0", "Gt", None)
    return Obj(
        {
            "key": must(LABEL_KEY),
            "operator": must(Leaf(operators, odd)),
            "values": often(List(LABEL_VALUE, 3, 1)),
        },
        finish=_values_fit,
    )


LABEL_REQUIREMENT = _requirement("In", "NotIn", "Exists", "DoesNotExist")
LABEL_SELECTOR = Obj(
    {
        "matchLabels": often(LABELS),
        "matchExpressions": List(_requirement("In", "NotIn", "Exists", "DoesNotExist"), 2),
    }
)
NODE_TERM = Obj(
    {
        "matchExpressions": often(List(_requirement("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"), 3)),
        "matchFields": rare(
            List(Obj({"key": must(Leaf(("metadata.name",), ("spec.x", ""))), "operator": must(Leaf(("In", "NotIn"), ("Gt", ""))), "values": must(List(NODE, 1, 1))}), 1)
        ),
    }
)  # fmt: skip
NODE_SELECTOR = Obj({"nodeSelectorTerms": must(List(NODE_TERM, 3, 1))})
TOPOLOGY_KEY = Leaf(
    ("kubernetes.io/hostname", "topology.kubernetes.io/zone", "no/such"),
    (*_ODD_TEXT, "example.com/x"),
)

# ---------------------------------------------------------------- metadata

OWNER = Obj(
    {
        "apiVersion": must(Leaf(("apps/v1", "v1"))),
        "kind": must(Leaf(("ReplicaSet", "StatefulSet", "Node"))),
        "name": must(Leaf(("web", "db"), _ODD_TEXT)),
        "uid": must(Leaf(("u-web", "u-db"))),
        "controller": often(BOOL),
    }
)


def _one_controller(made: dict[str, Any], random: Random) -> None:
    for owner in made.get("ownerReferences", ())[1:]:
        owner["controller"] = False


META = Obj(
    {
        "labels": often(LABELS),
        "annotations": rare(ANNOTATIONS),
        "generation": rare(COUNT),
        "creationTimestamp": often(TIME),
        "deletionTimestamp": rare(TIME),
        "deletionGracePeriodSeconds": rare(COUNT),
        "finalizers": rare(List(Leaf(("example.com/x", "resource.kubernetes.io/delete-protection"), _ODD_TEXT), 2)),
        "ownerReferences": List(OWNER, 2),
        "generateName": rare(NAME),
        "managedFields": rare(
            List(Obj({"manager": must(NAME), "operation": must(Leaf(("Update", "Apply"))), "apiVersion": must(Leaf(("v1",))), "fieldsType": must(Leaf(("FieldsV1",))), "fieldsV1": must(Made(nested, ("x",)))}), 1)
        ),
    },
    finish=_one_controller,
)  # fmt: skip

# ---------------------------------------------------------------- pods

CONTAINER_PORT = Obj(
    {
        "containerPort": must(PORT),
        "hostPort": often(PORT),
        "hostIP": rare(Leaf(("0.0.0.0", "127.0.0.1", "::", ""), ("nowhere", "1.2.3", "\0"))),
        "protocol": Leaf(("TCP", "UDP", "SCTP"), ("", "QUIC", "tcp")),
    }
)
VOLUME_MOUNT = Obj(
    {
        "name": must(Leaf(("v0", "v1", "v2", "v3"), _ODD_TEXT)),
        "mountPath": must(Leaf(("/a", "/b"), ("", "relative"))),
        "bindMountOptions": rare(List(Leaf(("noexec", "nosuid"), _ODD_TEXT), 2)),
    }
)
_CONTAINER: dict[str, Any] = {
    "name": must(Leaf(("c0", "c1", "c2"), _ODD_TEXT)),
    "image": must(
        Leaf(("registry.example.com/app:1", "img:2", "busybox"), (*_ODD_TEXT, "x" * 100_000))
    ),
    "resources": often(REQUIREMENTS),
    "ports": rare(List(CONTAINER_PORT, 3)),
    "volumeMounts": rare(List(VOLUME_MOUNT, 2)),
}
_RULES: dict[str, Any] = {
    "restartPolicy": rare(Leaf(("Always",), ("", "Odd", "Never"))),
    "restartPolicyRules": rare(List(Obj({"action": must(Leaf(("Restart",)))}), 1)),
}
CONTAINER = Obj({**_CONTAINER, **_RULES})
INIT_CONTAINER = Obj({**_CONTAINER, **_RULES, "restartPolicy": Leaf(("Always",))})
NODE_AFFINITY = Obj(
    {
        "requiredDuringSchedulingIgnoredDuringExecution": NODE_SELECTOR,
        "preferredDuringSchedulingIgnoredDuringExecution": List(
            Obj({"weight": must(WEIGHT), "preference": must(NODE_TERM)}), 3
        ),
    }
)
POD_TERM = Obj(
    {
        "topologyKey": must(TOPOLOGY_KEY),
        "labelSelector": often(LABEL_SELECTOR),
        "namespaces": List(NAMESPACE, 2),
        "namespaceSelector": LABEL_SELECTOR,
    }
)
POD_AFFINITY = Obj(
    {
        "requiredDuringSchedulingIgnoredDuringExecution": List(POD_TERM, 2),
        "preferredDuringSchedulingIgnoredDuringExecution": List(
            Obj({"weight": must(WEIGHT), "podAffinityTerm": must(POD_TERM)}), 2
        ),
    }
)


def _toleration_fits(made: dict[str, Any], random: Random) -> None:
    if not made.get("key"):
        made["operator"] = "Exists"
    if made.get("operator") == "Exists":
        made.pop("value", None)
    if made.get("effect") != "NoExecute":
        made.pop("tolerationSeconds", None)


EFFECT = Leaf(("NoSchedule", "PreferNoSchedule", "NoExecute"), ("", "Never", "noschedule"))
TOLERATION = Obj(
    {
        "key": often(LABEL_KEY),
        "operator": often(Leaf(("Exists", "Equal"), ("", "Like", "Lt", "Gt"))),
        "value": often(LABEL_VALUE),
        "effect": often(EFFECT),
        "tolerationSeconds": rare(SIZE),
    },
    finish=_toleration_fits,
)
SPREAD = Obj(
    {
        "maxSkew": must(Number(1, 2**31 - 1)),
        "topologyKey": must(TOPOLOGY_KEY),
        "whenUnsatisfiable": must(Leaf(("DoNotSchedule", "ScheduleAnyway"), ("", "Perhaps"))),
        "labelSelector": often(LABEL_SELECTOR),
        "minDomains": rare(Number(1, 2**31 - 1)),
        "nodeAffinityPolicy": Leaf(("Honor", "Ignore"), ("", "x")),
        "nodeTaintsPolicy": Leaf(("Honor", "Ignore"), ("", "x")),
        "matchLabelKeys": rare(List(LABEL_KEY, 2)),
    }
)


def _spread_fits(made: dict[str, Any], random: Random) -> None:
    if made["whenUnsatisfiable"] != "DoNotSchedule":
        made.pop("minDomains", None)
    if "labelSelector" not in made:
        made.pop("matchLabelKeys", None)


SPREAD = Obj({**SPREAD.fields}, finish=_spread_fits)
READ_ONLY = rare(BOOL)
_DISKS: dict[str, Shape] = {
    "gcePersistentDisk": Obj({"pdName": must(NAME), "readOnly": READ_ONLY}),
    "awsElasticBlockStore": Obj({"volumeID": must(Leaf(("vol-1", "aws://z0/vol-2"), (*_ODD_TEXT, "aws://", "://", "aws://[/"))), "readOnly": READ_ONLY}),
    "azureDisk": Obj({"diskName": must(NAME), "diskURI": must(Leaf(("/subscriptions/x/disks/d",), _ODD_TEXT)), "kind": Leaf(("Managed", "Dedicated"))}),
    "cinder": Obj({"volumeID": must(NAME)}),
    "portworxVolume": Obj({"volumeID": must(NAME)}),
}  # fmt: skip
VOLUME = Obj(
    {"name": must(Leaf(("v0", "v1", "v2", "v3"), _ODD_TEXT))},
    one_of={
        "persistentVolumeClaim": Obj({"claimName": must(Leaf((*CLAIMS, "gone"), _ODD_TEXT)), "readOnly": READ_ONLY}),
        "emptyDir": Obj({}),
        "ephemeral": Obj({"volumeClaimTemplate": must(Obj({"spec": must(Obj({"accessModes": must(Leaf((["ReadWriteOnce"],))), "resources": must(Leaf(({"requests": {"storage": "1Gi"}},)))}))}))}),
        "csi": Obj({"driver": must(Leaf(DRIVERS, _ODD_TEXT))}),
        "image": Obj({"reference": must(Leaf(("img:2",), _ODD_TEXT))}),
        "iscsi": Obj({"targetPortal": must(Leaf(("10.0.0.1",))), "iqn": must(Leaf(("iqn.2026-01.com.example:x",), _ODD_TEXT)), "lun": must(Leaf((0,))), "readOnly": READ_ONLY}),
        "rbd": Obj({"monitors": must(List(Leaf(("10.0.0.1", "10.0.0.2"), _ODD_TEXT), 2, 1)), "image": must(NAME), "pool": Leaf(("rbd", "x")), "readOnly": READ_ONLY}),
        **_DISKS,
    },
)  # fmt: skip
CONTAINER_STATUS = Obj(
    {
        "name": must(Leaf(("c0", "c1", "c2"))),
        "image": must(Leaf(("x",))),
        "imageID": must(Leaf(("x",))),
        "ready": must(Leaf((True,))),
        "restartCount": must(Leaf((0,))),
        "resources": REQUIREMENTS,
        "allocatedResources": RESOURCES,
    }
)
POD_CONDITION = Obj(
    {
        "type": must(
            Leaf(("PodScheduled", "DisruptionTarget", "PodResizePending", "Ready"), _ODD_TEXT)
        ),
        "status": must(Leaf(("True", "False", "Unknown"), ("", "Maybe"))),
        "reason": Leaf(("Unschedulable", "Infeasible", "Deferred"), _ODD_TEXT),
        "message": Leaf(("x", "0/5 nodes are available"), ("x" * 100_000, "\0")),
        "lastTransitionTime": TIME,
        "lastProbeTime": rare(TIME),
        "observedGeneration": rare(COUNT),
    }
)


def _distinct(made: dict[str, Any], field: str, key: str) -> None:
    entries = made.get(field)
    if entries is not None:
        made[field] = list({entry[key]: entry for entry in entries}.values())


_NO_PORTS = 0.02


def _pod_fits(made: dict[str, Any], random: Random) -> None:
    for field in ("containers", "initContainers", "volumes", "resourceClaims"):
        _distinct(made, field, "name")
    named = {entry["name"] for entry in made["containers"]}
    volumes = {entry["name"] for entry in made.get("volumes", ())}
    made["initContainers"] = [
        {**entry, "name": f"i-{entry['name']}"} for entry in made.get("initContainers", ())
    ]
    for field in ("containers", "initContainers"):
        for container in made[field]:
            ports = {entry.get("hostPort"): entry for entry in container.get("ports", ())}
            container["ports"] = list(ports.values())
            _distinct(container, "volumeMounts", "mountPath")
            if "volumeMounts" in container:
                mounts = container["volumeMounts"]
                container["volumeMounts"] = [each for each in mounts if each["name"] in volumes]
            container.pop("restartPolicyRules", None)
            if field == "containers":
                container.pop("restartPolicy", None)
    if made.get("hostNetwork"):
        for container in (*made["containers"], *made["initContainers"]):
            for port in container["ports"]:
                port["hostPort"] = port["containerPort"]
    if named and "priority" in made:
        made["priority"] = min(made["priority"], 10**9)
    spreads = {
        (s["topologyKey"], s["whenUnsatisfiable"]): s
        for s in made.get("topologySpreadConstraints", ())
    }
    made["topologySpreadConstraints"] = list(spreads.values())
    if made.get("schedulingGates"):
        made.pop("nodeName", None)


CLAIMS_OF = List(
    Obj(
        {"name": must(Leaf(("r0", "r1"), _ODD_TEXT))},
        one_of={
            "resourceClaimName": Leaf(DEVICE_CLAIMS, _ODD_TEXT),
            "resourceClaimTemplateName": NAME,
        },
    ),
    2,
)
CLAIM_STATUSES = List(
    Obj(
        {
            "name": must(Leaf(("r0", "r1"), _ODD_TEXT)),
            "resourceClaimName": often(Leaf(DEVICE_CLAIMS, _ODD_TEXT)),
        }
    ),
    2,
)
POD_SPEC = Obj(
    {
        "schedulerName": Leaf(("default-scheduler", "default-scheduler", "other"), _ODD_TEXT),
        "nodeName": NODE,
        "priority": INT32,
        "preemptionPolicy": Leaf(("PreemptLowerPriority", "Never"), ("", "Maybe")),
        "containers": must(List(CONTAINER, 3, 1)),
        "initContainers": rare(List(INIT_CONTAINER, 3)),
        "overhead": rare(RESOURCES),
        "resources": rare(POD_REQUIREMENTS),
        "nodeSelector": rare(LABELS),
        "affinity": Obj({"nodeAffinity": NODE_AFFINITY, "podAffinity": POD_AFFINITY, "podAntiAffinity": POD_AFFINITY}),
        "tolerations": List(TOLERATION, 4),
        "topologySpreadConstraints": List(SPREAD, 2),
        "volumes": List(VOLUME, 3),
        "resourceClaims": CLAIMS_OF,
        "schedulingGroup": rare(Obj({"podGroupName": must(Leaf(GROUPS, _ODD_TEXT))})),
        "schedulingGates": rare(List(Obj({"name": must(Leaf(("example.com/gate",), _ODD_TEXT))}), 1)),
        "hostNetwork": rare(BOOL),
        "hostUsers": rare(BOOL),
        "terminationGracePeriodSeconds": rare(COUNT),
    },
    finish=_pod_fits,
)  # fmt: skip
POD_STATUS = Obj(
    {
        "phase": often(Leaf(("Pending", "Running"), ("", "Succeeded", "Dreaming"))),
        "nominatedNodeName": rare(NODE),
        "conditions": List(POD_CONDITION, 3),
        "startTime": TIME,
        "containerStatuses": rare(List(CONTAINER_STATUS, 2)),
        "initContainerStatuses": rare(List(CONTAINER_STATUS, 2)),
        "resources": rare(REQUIREMENTS),
        "allocatedResources": rare(RESOURCES),
        "resourceClaimStatuses": rare(CLAIM_STATUSES),
        "extendedResourceClaimStatus": rare(
            Obj({"resourceClaimName": must(Leaf(DEVICE_CLAIMS, _ODD_TEXT)), "requestMappings": must(List(Obj({"containerName": must(Leaf(("c0",))), "resourceName": must(RESOURCE), "requestName": must(NAME)}), 2))})
        ),
    }
)  # fmt: skip

# ---------------------------------------------------------------- nodes

NODE_SPEC = Obj(
    {
        "unschedulable": rare(BOOL),
        "taints": List(Obj({"key": must(LABEL_KEY), "value": LABEL_VALUE, "effect": must(EFFECT), "timeAdded": rare(TIME)}), 2),
        "providerID": rare(NAME),
    },
    finish=lambda made, random: made.__setitem__(
        "taints", list({(t["key"], t["effect"]): t for t in made.get("taints", ())}.values())
    ),
)  # fmt: skip
NODE_STATUS = Obj(
    {
        "allocatable": often(Map(Leaf((*RESOURCE.values, "pods"), RESOURCE.odd), QUANTITY, 5)),
        "capacity": RESOURCES,
        "conditions": List(Obj({"type": must(Leaf(("Ready", "MemoryPressure"), _ODD_TEXT)), "status": must(Leaf(("True", "False", "Unknown"), ("", "Maybe")))}), 2),
        "images": List(Obj({"names": must(List(Leaf(("registry.example.com/app:1", "img:2", "busybox@sha256:0"), (*_ODD_TEXT, ":", "@")), 2)), "sizeBytes": SIZE}), 3),
        "declaredFeatures": rare(List(Leaf(("GuaranteedQoSPodCPUResize",), _ODD_TEXT), 2)),
    }
)  # fmt: skip

# ---------------------------------------------------------------- storage

MODES = List(
    Leaf(("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"), ("", "Odd", "ReadWriteOncePod")), 2, 1
)
VOLUME_MODE = Leaf(("Filesystem", "Block"), ("", "Odd"))
CLASS_NAME = Leaf(CLASSES, _ODD_TEXT)
STORAGE = Map(
    Leaf(("storage",), _ODD_TEXT),
    Leaf(("1Gi", "5Gi", "1", "9E", "1e-9", "100Ki"), _ODD_QUANTITIES),
    1,
    1,
)
PV_SPEC = Obj(
    {
        "capacity": must(STORAGE),
        "accessModes": must(MODES),
        "claimRef": Obj({"kind": must(Leaf(("PersistentVolumeClaim",))), "namespace": must(NAMESPACE), "name": must(Leaf(CLAIMS, _ODD_TEXT)), "uid": Leaf(("", "u"))}),
        "storageClassName": often(CLASS_NAME),
        "volumeMode": VOLUME_MODE,
        "volumeAttributesClassName": rare(CLASS_NAME),
        "nodeAffinity": Obj({"required": must(NODE_SELECTOR)}),
    },
    one_of={
        "csi": Obj({"driver": must(Leaf(DRIVERS, _ODD_TEXT)), "volumeHandle": must(Leaf(("h0", "h1"), _ODD_TEXT))}),
        "hostPath": Obj({"path": must(Leaf(("/x",)))}),
        **_DISKS,
    },
)  # fmt: skip
PVC_SPEC = Obj(
    {
        "accessModes": must(MODES),
        "selector": rare(LABEL_SELECTOR),
        "resources": must(
            Obj({"requests": must(STORAGE), "limits": rare(STORAGE)}, finish=_equal_amounts)
        ),
        "volumeName": Leaf(VOLUMES, _ODD_TEXT),
        "storageClassName": often(CLASS_NAME),
        "volumeMode": VOLUME_MODE,
        "volumeAttributesClassName": rare(CLASS_NAME),
    }
)
TOPOLOGIES = List(
    Obj(
        {
            "matchLabelExpressions": must(
                List(Obj({"key": must(LABEL_KEY), "values": must(List(LABEL_VALUE, 3, 1))}), 2, 1)
            )
        }
    ),
    2,
    1,
)

# ---------------------------------------------------------------- devices

ATTRIBUTE = Obj(
    {},
    one_of={
        "int": Number(-(2**63), 2**63 - 1),
        "bool": BOOL,
        "string": Leaf(("a100", "", "x" * 64), (*_ODD_TEXT, "x" * 65)),
        "version": Leaf(
            ("1.2.3", "1.0.0-rc.1+b"),
            ("", "1", "1.2", "v1.2.3", "1.2.3.4", "01.2.3", "9" * 5000 + ".0.0"),
        ),
    },
)
QUALIFIED = Leaf(
    ("model", "memory", "gpu.example.com/model", "example.com/pcie"), (*_ODD_TEXT, "a/b/c", "/x")
)
DEVICE_TAINT = Obj(
    {"key": must(LABEL_KEY), "value": LABEL_VALUE, "effect": must(EFFECT), "timeAdded": rare(TIME)}
)
DEVICE_TOLERATION = TOLERATION
COUNTERS = Map(Leaf(("memory", "slices"), _ODD_TEXT), Obj({"value": must(QUANTITY)}), 2, 1)
CAPACITY_POLICY = Obj(
    {"default": often(QUANTITY)},
    one_of={
        "validValues": List(QUANTITY, 3, 1),
        "validRange": Obj({"min": must(QUANTITY), "max": QUANTITY, "step": QUANTITY}),
    },
)
DEVICE = Obj(
    {
        "name": must(Leaf(("dev-0", "dev-1", "dev-2", "dev-3"), _ODD_TEXT)),
        "attributes": often(Map(QUALIFIED, ATTRIBUTE)),
        "capacity": Map(QUALIFIED, Obj({"value": must(QUANTITY), "requestPolicy": rare(CAPACITY_POLICY)}), 2),
        "consumesCounters": rare(List(Obj({"counterSet": must(Leaf(("set-0",), _ODD_TEXT)), "counters": must(COUNTERS)}), 1)),
        "nodeName": rare(NODE),
        "nodeSelector": rare(NODE_SELECTOR),
        "allNodes": rare(BOOL),
        "taints": rare(List(DEVICE_TAINT, 2)),
        "bindsToNode": rare(BOOL),
        "bindingConditions": rare(List(Leaf(("example.com/ready",), _ODD_TEXT), 2)),
        "bindingFailureConditions": rare(List(Leaf(("example.com/failed",), _ODD_TEXT), 2)),
        "allowMultipleAllocations": rare(BOOL),
    }
)  # fmt: skip


def _slice_fits(made: dict[str, Any], random: Random) -> None:
    """Either the slice says which nodes reach the devices, or each device does."""
    _distinct(made, "devices", "name")
    if made.get("perDeviceNodeSelection"):
        for name in ("nodeName", "nodeSelector", "allNodes"):
            made.pop(name, None)
    else:
        made.pop("perDeviceNodeSelection", None)
    if "nodeSelector" in made:
        del made["nodeSelector"]["nodeSelectorTerms"][1:]
    for device in made.get("devices", ()):
        for name in ("nodeName", "nodeSelector", "allNodes"):
            device.pop(name, None)
        if "perDeviceNodeSelection" in made:
            device["nodeName"] = random.choice(NODES)


SLICE_SPEC = Obj(
    {
        "driver": must(Leaf(DEVICE_DRIVERS, _ODD_TEXT)),
        "pool": must(Obj({"name": must(Leaf((*NODES, "pool"), _ODD_TEXT)), "generation": must(Number(0, 3)), "resourceSliceCount": must(Number(1, 2))})),
        "perDeviceNodeSelection": rare(BOOL),
        "devices": often(List(DEVICE, 4)),
        "sharedCounters": rare(List(Obj({"name": must(Leaf(("set-0",), _ODD_TEXT)), "counters": must(COUNTERS)}), 1)),
    },
    one_of={"nodeName": NODE, "nodeSelector": NODE_SELECTOR, "allNodes": Leaf((True,), (None, False))},
    finish=_slice_fits,
)  # fmt: skip
CEL = Made(
    expression,
    ("", "(((", "true", "device.driver", "x" * 20_000, "1/0 == 1", "\0", "device" * 5000),
)
DEVICE_SELECTORS = List(Obj({"cel": must(Obj({"expression": must(CEL)}))}), 2)
DEVICE_CONFIG = Obj(
    {"opaque": must(Obj({"driver": must(Leaf(DEVICE_DRIVERS, _ODD_TEXT)), "parameters": must(Made(lambda random: random.choice([{"a": 1}, {}]), (1, "x", None, msgspec.Raw(b'{"a":' * 5000 + b"1" + b"}" * 5000))))}))}
)  # fmt: skip
_REQUEST: dict[str, Any] = {
    "deviceClassName": must(Leaf(DEVICE_CLASSES, (*_ODD_TEXT, "gone"))),
    "selectors": DEVICE_SELECTORS,
    "allocationMode": often(Leaf(("ExactCount", "All"), ("", "Odd"))),
    "count": Number(1, 32),
    "tolerations": rare(List(DEVICE_TOLERATION, 2)),
    "capacity": rare(Obj({"requests": must(Map(QUALIFIED, QUANTITY, 2))})),
}


def _count_fits(made: dict[str, Any], random: Random) -> None:
    if made.get("allocationMode") == "All":
        made.pop("count", None)


EXACT = Obj({**_REQUEST, "adminAccess": rare(BOOL)}, finish=_count_fits)
SUBREQUEST = Obj(
    {"name": must(Leaf(("s0", "s1", "s2"), _ODD_TEXT)), **_REQUEST}, finish=_count_fits
)


def _requests_fit(made: dict[str, Any], random: Random) -> None:
    """Names are not used twice, and only requests that there are are named."""
    _distinct(made, "requests", "name")
    for request in made.get("requests", ()):
        _distinct(request, "firstAvailable", "name")
    names = {request["name"] for request in made.get("requests", ())}
    for field in ("constraints", "config"):
        for entry in made.get(field, ()):
            entry["requests"] = list(names.intersection(entry.get("requests", ())))


REQUEST_NAMES = List(Leaf(("q0", "q1", "q0/s0"), _ODD_TEXT), 2)
DEVICES = Obj(
    {
        "requests": often(
            List(Obj({"name": must(Leaf(("q0", "q1", "q2"), _ODD_TEXT))}, one_of={"exactly": EXACT, "firstAvailable": List(SUBREQUEST, 3, 1)}), 3)
        ),
        "constraints": rare(List(Obj({"requests": REQUEST_NAMES}, one_of={"matchAttribute": QUALIFIED, "distinctAttribute": QUALIFIED}), 2)),
        "config": rare(List(Obj({"requests": REQUEST_NAMES, **DEVICE_CONFIG.fields}), 2)),
    },
    finish=_requests_fit,
)  # fmt: skip
RESULT = Obj(
    {
        "request": must(Leaf(("q0", "q1", "q0/s0"), _ODD_TEXT)),
        "driver": must(Leaf(DEVICE_DRIVERS, _ODD_TEXT)),
        "pool": must(Leaf((*NODES, "pool"), _ODD_TEXT)),
        "device": must(Leaf(("dev-0", "dev-1", "dev-9"), _ODD_TEXT)),
        "adminAccess": rare(BOOL),
        "tolerations": rare(List(DEVICE_TOLERATION, 1)),
        "bindingConditions": rare(List(NAME, 2)),
        "bindingFailureConditions": rare(List(NAME, 2)),
        "shareID": rare(Leaf(("8b0c9a1e-0000-4000-8000-000000000000",), _ODD_TEXT)),
        "consumedCapacity": rare(Map(QUALIFIED, QUANTITY, 2)),
    }
)
CLAIM_STATUS = Obj(
    {
        "allocation": Obj(
            {
                "devices": must(
                    Obj({"results": often(List(RESULT, 3)), "config": rare(List(Obj({"source": must(Leaf(("FromClass", "FromClaim"), _ODD_TEXT)), "requests": REQUEST_NAMES, **DEVICE_CONFIG.fields}), 2))})
                ),
                "nodeSelector": NODE_SELECTOR,
                "allocationTimestamp": TIME,
            }
        ),
        "reservedFor": List(Obj({"apiGroup": rare(Leaf(("",))), "resource": must(Leaf(("pods",), _ODD_TEXT)), "name": must(NAME), "uid": must(Leaf(("u0", "u1"), ("", "x")))}), 3),
        "devices": rare(
            List(Obj({"driver": must(Leaf(DEVICE_DRIVERS)), "pool": must(Leaf(NODES)), "device": must(Leaf(("dev-0",))), "shareID": rare(NAME), "conditions": List(Obj({"type": must(Leaf(("example.com/ready", "example.com/failed"), _ODD_TEXT)), "status": must(Leaf(("True", "False"), _ODD_TEXT)), "reason": must(Leaf(("x",))), "message": must(Leaf(("x",))), "lastTransitionTime": must(TIME)}), 2)}), 2)
        ),
    }
)  # fmt: skip

# ---------------------------------------------------------------- all of them


class Kind(NamedTuple):
    """A kind: where its collection is, names of its objects, and the shapes of its top-level fields beside metadata."""

    name: str
    api_version: str
    plural: str
    namespaced: bool
    names: tuple[str, ...]
    body: Obj

    @property
    def path(self) -> str:
        """The path of the collection."""
        group = "/api/v1" if self.api_version == "v1" else f"/apis/{self.api_version}"
        return f"{group}/{self.plural}"


def _names(prefix: str) -> tuple[str, ...]:
    return tuple(f"{prefix}-{i}" for i in range(6))


def _kind(
    name: str,
    version: str,
    plural: str,
    names: tuple[str, ...],
    fields: Mapping[str, Any],
    *,
    namespaced: bool = False,
) -> Kind:
    return Kind(name, version, plural, namespaced, names, Obj(fields))


def _template_fits(made: dict[str, Any], random: Random) -> None:
    """Pods of a template that match the selector."""
    selector = made["selector"]
    made["template"] = {
        "metadata": {"labels": selector.get("matchLabels", selector)},
        "spec": {"containers": [{"name": "c", "image": "img:2"}]},
    }


_SOME_LABELS = Map(LABEL_KEY, LABEL_VALUE, 3, 1)
_WORKLOAD = Obj(
    {"selector": must(Obj({"matchLabels": must(_SOME_LABELS), "matchExpressions": rare(List(LABEL_REQUIREMENT, 2))})), "replicas": rare(COUNT)},
    finish=_template_fits,
)  # fmt: skip
_CONTROLLER = Obj({"selector": must(_SOME_LABELS), "replicas": rare(COUNT)}, finish=_template_fits)
_SERVICE = Obj({"selector": often(LABELS), "ports": must(List(Obj({"port": must(PORT)}), 1, 1))})

GROUP_CONDITION = Obj(
    {
        "type": must(Leaf(("PodGroupScheduled", "DisruptionTarget"), _ODD_TEXT)),
        "status": must(Leaf(("True", "False"), _ODD_TEXT)),
        "reason": must(Leaf(("Scheduled", "Unschedulable"), _ODD_TEXT)),
        "message": must(Leaf(("", "x"), _ODD_TEXT)),
        "lastTransitionTime": must(TIME),
        "observedGeneration": rare(COUNT),
    }
)

KINDS: tuple[Kind, ...] = (
    _kind("Pod", "v1", "pods", _names("pod"), {"spec": must(POD_SPEC), "status": often(POD_STATUS)}, namespaced=True),
    _kind("Node", "v1", "nodes", GUEST_NODES, {"spec": often(NODE_SPEC), "status": often(NODE_STATUS)}),
    _kind("Namespace", "v1", "namespaces", (*NAMESPACES, "other"), {}),
    _kind("Service", "v1", "services", _names("svc"), {"spec": must(_SERVICE)}, namespaced=True),
    _kind("ReplicationController", "v1", "replicationcontrollers", _names("rc"), {"spec": must(_CONTROLLER)}, namespaced=True),
    _kind("ReplicaSet", "apps/v1", "replicasets", ("web", "db"), {"spec": must(_WORKLOAD)}, namespaced=True),
    _kind("StatefulSet", "apps/v1", "statefulsets", ("web", "db"), {"spec": must(_WORKLOAD)}, namespaced=True),
    _kind(
        "PodDisruptionBudget", "policy/v1", "poddisruptionbudgets", _names("pdb"),
        {
            "spec": must(Obj({"selector": often(LABEL_SELECTOR), "minAvailable": Leaf((1, "50%", 0), (-5, "150%", "", 2**40))})),
            "status": often(Obj({"disruptionsAllowed": often(INT32), "disruptedPods": Map(NAME, TIME), "currentHealthy": must(COUNT), "desiredHealthy": must(COUNT), "expectedPods": must(COUNT)})),
        },
        namespaced=True,
    ),
    _kind("PersistentVolume", "v1", "persistentvolumes", VOLUMES, {"spec": must(PV_SPEC), "status": often(Obj({"phase": must(Leaf(("Available", "Bound", "Released"), ("", "Odd")))}))}),
    _kind("PersistentVolumeClaim", "v1", "persistentvolumeclaims", CLAIMS, {"spec": must(PVC_SPEC), "status": often(Obj({"phase": must(Leaf(("Pending", "Bound", "Lost"), ("", "Odd")))}))}, namespaced=True),
    _kind(
        "StorageClass", "storage.k8s.io/v1", "storageclasses", CLASSES,
        {
            "provisioner": must(Leaf((*DRIVERS, "kubernetes.io/no-provisioner"), _ODD_TEXT)),
            "volumeBindingMode": often(Leaf(("WaitForFirstConsumer", "Immediate"), ("", "Whenever"))),
            "allowedTopologies": TOPOLOGIES,
        },
    ),
    _kind(
        "CSINode", "storage.k8s.io/v1", "csinodes", (*NODES, *GUEST_NODES),
        {"spec": must(Obj({"drivers": must(List(Obj({"name": must(Leaf(DRIVERS, _ODD_TEXT)), "nodeID": must(NAME), "topologyKeys": rare(List(LABEL_KEY, 2)), "allocatable": often(Obj({"count": often(COUNT)}))}), 3))}, finish=lambda made, random: _distinct(made, "drivers", "name")))},
    ),
    _kind("CSIDriver", "storage.k8s.io/v1", "csidrivers", DRIVERS, {"spec": must(Obj({"storageCapacity": often(BOOL), "attachRequired": rare(BOOL), "preventPodSchedulingIfMissing": rare(BOOL)}))}),
    _kind(
        "CSIStorageCapacity", "storage.k8s.io/v1", "csistoragecapacities", _names("capacity"),
        {"storageClassName": must(CLASS_NAME), "capacity": often(QUANTITY), "maximumVolumeSize": rare(QUANTITY), "nodeTopology": often(LABEL_SELECTOR)},
        namespaced=True,
    ),
    _kind(
        "VolumeAttachment", "storage.k8s.io/v1", "volumeattachments", _names("va"),
        {"spec": must(Obj({"attacher": must(Leaf(DRIVERS, _ODD_TEXT)), "nodeName": must(NODE), "source": must(Obj({"persistentVolumeName": must(Leaf(VOLUMES, _ODD_TEXT))}))}))},
    ),
    _kind(
        "DeviceClass", "resource.k8s.io/v1", "deviceclasses", DEVICE_CLASSES,
        {"spec": must(Obj({"selectors": DEVICE_SELECTORS, "config": rare(List(DEVICE_CONFIG, 1)), "extendedResourceName": Leaf(("example.com/gpu", "example.com/foo"), _ODD_TEXT)}))},
    ),
    _kind(
        "ResourceClaim", "resource.k8s.io/v1", "resourceclaims", DEVICE_CLAIMS,
        {"spec": must(Obj({"devices": must(DEVICES)})), "status": CLAIM_STATUS},
        namespaced=True,
    ),
    _kind(
        "PodGroup", "scheduling.k8s.io/v1alpha2", "podgroups", GROUPS[:2],
        {
            "spec": must(Obj({"schedulingPolicy": must(Obj({}, one_of={"basic": Obj({}), "gang": Obj({"minCount": must(Number(1, 2**31 - 1))})})), "schedulingConstraints": rare(Obj({"topology": often(List(Obj({"key": must(LABEL_KEY)}), 1))})), "disruptionMode": rare(Leaf(("Pod", "PodGroup"), _ODD_TEXT)), "priority": rare(INT32), "preemptionPolicy": rare(Leaf(("Never", "PreemptLowerPriority"), _ODD_TEXT)), "resourceClaims": rare(CLAIMS_OF)})),
            "status": rare(Obj({"conditions": List(GROUP_CONDITION, 2), "resourceClaimStatuses": rare(CLAIM_STATUSES)})),
        },
        namespaced=True,
    ),
    _kind(
        "LabelledPodGroup", "scheduling.x-k8s.io/v1alpha1", "podgroups", GROUPS[:2],
        {
            "spec": must(Obj({"minMember": often(COUNT), "scheduleTimeoutSeconds": rare(COUNT), "minResources": rare(RESOURCES)})),
            "status": rare(Obj({"phase": often(Leaf(("Pending", "Scheduled"), _ODD_TEXT)), "scheduled": often(COUNT)})),
        },
        namespaced=True,
    ),
    _kind("ResourceSlice", "resource.k8s.io/v1", "resourceslices", _names("slice"), {"spec": must(SLICE_SPEC)}),
    _kind(
        "DeviceTaintRule", "resource.k8s.io/v1", "devicetaintrules", _names("rule"),
        {"spec": must(Obj({"deviceSelector": often(Obj({"driver": often(Leaf(DRIVERS, _ODD_TEXT)), "pool": rare(NAME), "device": rare(NAME)})), "taint": must(DEVICE_TAINT)}))},
    ),
)  # fmt: skip

BY_NAME = {kind.name: kind for kind in KINDS}

LEASE = Obj(
    {
        "holderIdentity": often(NAME),
        "leaseDurationSeconds": often(Number(1, 2**31 - 1)),
        "acquireTime": often(TIME),
        "renewTime": often(TIME),
        "leaseTransitions": often(COUNT),
        "strategy": rare(Leaf(("OldestEmulationVersion",), _ODD_TEXT)),
        "preferredHolder": rare(NAME),
    }
)
