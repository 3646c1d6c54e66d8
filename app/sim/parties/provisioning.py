"""What a storage driver would make for a claim: a PersistentVolume within reach of the node that was selected.

Where it can be reached from follows the storage class's allowedTopologies, or else the topology keys that the driver's
CSINode objects name; a driver that says neither makes volumes that every node can reach.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final
from zlib import crc32

from app.model.claims import BOUND_BY_CONTROLLER, SELECTED_NODE
from app.model.csi_migration import driver_of_provisioner
from app.sim.api import Api
from app.sim.resources.kinds import BY_RESOURCE, NODES
from app.sim.store import Object

CSI_NODES: Final = BY_RESOURCE["csinodes.storage.k8s.io"]

_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"

Segment = Mapping[str, str]
"""Labels that a node must have to reach a volume."""


def provisions(storage_class: Object) -> bool:
    """Whether volumes are made for claims of this class."""
    return storage_class.get("provisioner", "") not in ("", _NO_PROVISIONER)


def made_volume(api: Api, claim: Object, storage_class: Object) -> Object | None:
    """A volume for a claim, with the claim in its claimRef; None if the driver could make none where it is wanted."""
    segment = _segment(api, claim, storage_class)
    if segment is None:
        return None
    metadata, spec = claim["metadata"], claim["spec"]
    name = f"pvc-{metadata['uid']}"
    provisioner = storage_class["provisioner"]
    volume: Object = {
        "metadata": {
            "name": name,
            "annotations": {_PROVISIONED_BY: provisioner, BOUND_BY_CONTROLLER: "yes"},
        },
        "spec": {
            "capacity": {"storage": _requested(spec)},
            "accessModes": spec.get("accessModes", []),
            "volumeMode": spec.get("volumeMode", "Filesystem"),
            "storageClassName": storage_class["metadata"]["name"],
            "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
            "csi": {"driver": driver_of_provisioner(provisioner), "volumeHandle": name},
            "claimRef": reference_to(claim),
        },
    }
    if segment:
        volume["spec"]["nodeAffinity"] = {"required": _within(segment)}
    return volume


def reference_to(claim: Object) -> Object:
    """A volume's claimRef."""
    metadata = claim["metadata"]
    return {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        **{name: metadata[name] for name in ("namespace", "name", "uid", "resourceVersion")},
    }


def _requested(spec: Object) -> Any:
    return spec.get("resources", {}).get("requests", {}).get("storage", "0")


def _within(segment: Segment) -> Object:
    terms = [
        {"key": key, "operator": "In", "values": [value]} for key, value in sorted(segment.items())
    ]
    return {"nodeSelectorTerms": [{"matchExpressions": terms}]}


# ---------------------------------------------------------------- where


def _segment(api: Api, claim: Object, storage_class: Object) -> Segment | None:
    """What the volume demands of nodes: nothing if it is empty; None if the selected node cannot have one."""
    selected = claim["metadata"].get("annotations", {}).get(SELECTED_NODE)
    allowed = [
        term.get("matchLabelExpressions", ())
        for term in storage_class.get("allowedTopologies") or ()
    ]
    if selected is None:
        return _chosen(claim, list(_possible(api, storage_class, allowed)))
    record = api.find(NODES, "", selected)
    if record is None:
        return None
    labels = record.value["metadata"].get("labels", {})
    if not allowed:
        keys = _driver_keys(api, selected, storage_class)
        return {key: labels[key] for key in keys if key in labels}
    for term in allowed:
        if all(labels.get(each["key"]) in each["values"] for each in term):
            return {each["key"]: labels[each["key"]] for each in term}
    return None


def _possible(api: Api, storage_class: Object, allowed: list[Any]) -> Iterator[Segment]:
    """Where volumes of a class can lie at all, with repetitions."""
    if allowed:
        for term in allowed:
            for first in term[0]["values"] if term else ():
                rest = {each["key"]: each["values"][0] for each in term[1:]}
                yield {term[0]["key"]: first, **rest}
        return
    for record in api.store[NODES.storage].records.values():
        keys = _driver_keys(api, record.name, storage_class)
        labels = record.value["metadata"].get("labels", {})
        if keys and all(key in labels for key in keys):
            yield {key: labels[key] for key in keys}


def _chosen(claim: Object, segments: list[Segment]) -> Segment:
    """One of the places, by the claim's name, so that claims are spread and every run says the same."""
    distinct = sorted({tuple(sorted(segment.items())) for segment in segments})
    if not distinct:
        return {}
    key = f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
    return dict(distinct[crc32(key.encode()) % len(distinct)])


def _driver_keys(api: Api, node: str, storage_class: Object) -> list[str]:
    """The topology keys that the class's driver reports for a node."""
    record = api.find(CSI_NODES, "", node)
    drivers = record.value.get("spec", {}).get("drivers") or () if record is not None else ()
    name = driver_of_provisioner(storage_class["provisioner"])
    return [
        key
        for driver in drivers
        if driver["name"] == name
        for key in driver.get("topologyKeys") or ()
    ]
