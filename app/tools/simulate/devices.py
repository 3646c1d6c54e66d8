"""The devices of nodes as amounts, by driver. Devices that several nodes reach are nobody's, and are not counted."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from app.model.devices import CLASS_PREFIX
from app.model.requests import Amounts
from app.sim import EmbeddedCluster
from app.sim.resources.devices.allocation import results_of
from app.sim.resources.kinds import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES, Kind

Object = dict[str, Any]
Pool = tuple[str, str]
"""(driver, pool)."""


def offered(cluster: EmbeddedCluster) -> dict[str, Amounts]:
    """How many devices there are on each node."""
    counts: dict[str, Counter[str]] = {}
    for spec in _slices(cluster):
        if "nodeName" in spec:
            counts.setdefault(spec["nodeName"], Counter())[spec["driver"]] += len(
                spec.get("devices", ())
            )
    return {node: dict(amounts) for node, amounts in counts.items()}


def taken(cluster: EmbeddedCluster) -> dict[str, Amounts]:
    """How many of them claims have, not counting access for administration."""
    places = {
        (_pool(spec), device["name"]): spec["nodeName"]
        for spec in _slices(cluster)
        if "nodeName" in spec
        for device in spec.get("devices", ())
    }
    given = {
        ((result["driver"], result["pool"]), result["device"])
        for claim in _all(cluster, RESOURCE_CLAIMS)
        for result in results_of(claim.get("status", {}))
        if not result.get("adminAccess")
    }
    counts: dict[str, Counter[str]] = {}
    for pool, device in given & places.keys():
        counts.setdefault(places[pool, device], Counter())[pool[0]] += 1
    return {node: dict(amounts) for node, amounts in counts.items()}


def stand_ins(cluster: EmbeddedCluster) -> set[str]:
    """The extended resources that stand for devices of a class."""
    classes = list(_all(cluster, DEVICE_CLASSES))
    names = {CLASS_PREFIX + each["metadata"]["name"] for each in classes}
    return names | {each["spec"].get("extendedResourceName", "") for each in classes}


def _slices(cluster: EmbeddedCluster) -> Iterator[Object]:
    """What slices say, as far as they belong to the newest generation of their pool."""
    specs = [value["spec"] for value in _all(cluster, RESOURCE_SLICES)]
    newest: dict[Pool, int] = {}
    for spec in specs:
        newest[_pool(spec)] = max(newest.get(_pool(spec), 0), spec["pool"]["generation"])
    return (spec for spec in specs if spec["pool"]["generation"] == newest[_pool(spec)])


def _pool(spec: Object) -> Pool:
    return spec["driver"], spec["pool"]["name"]


def _all(cluster: EmbeddedCluster, kind: Kind) -> Iterator[Object]:
    return (record.value for record in cluster.api.store[kind.storage].records.values())
