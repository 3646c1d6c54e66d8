"""What the cluster removes by itself, on a virtual clock."""

import asyncio
from typing import Any

import pytest

from app.sim import ClusterOptions, EmbeddedCluster
from app.sim.controllers.garbage_collection import GarbageCollector
from app.sim.resources.deletion import DeleteOptions, delete
from app.sim.resources.kinds import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    EVENTS,
    NAMESPACES,
    Kind,
)

pytestmark = pytest.mark.looptime

EVENT = {"involvedObject": {"namespace": "default"}}


async def test_events_expire_unless_they_are_touched() -> None:
    loop = asyncio.get_running_loop()
    options = ClusterOptions(event_ttl=100.0)
    async with EmbeddedCluster(options, now=lambda: 1e9 + loop.time()) as cluster:
        for name in ("old", "touched"):
            cluster.api.create(EVENTS, "default", EVENT | {"metadata": {"name": name}})
        await asyncio.sleep(60)
        body = EVENT | {"metadata": {"name": "touched"}, "count": 2}
        cluster.api.update(EVENTS, "default", "touched", body)
        cluster.api.create(EVENTS, "default", EVENT | {"metadata": {"name": "new"}})
        await asyncio.sleep(75)
        names = [record.name for record in cluster.api.store["events"].ordered()]
        assert names == ["new", "touched"]
        await asyncio.sleep(100)
        assert not cluster.api.store["events"].records


DEFINITION: dict[str, Any] = {
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"kind": "Widget", "plural": "widgets"},
        "versions": [{"name": "v1", "served": True, "storage": True}],
    },
}


def versions(**served: bool) -> list[dict[str, Any]]:
    """Versions of a definition; the last one is stored."""
    last = list(served)[-1]
    return [{"name": name, "served": served[name], "storage": name == last} for name in served]


def owned(name: str, owner: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    reference = {part: owner[part] for part in ("apiVersion", "kind")}
    reference |= {part: owner["metadata"][part] for part in ("name", "uid")}
    reference["blockOwnerDeletion"] = True
    return {"metadata": {"name": name, "ownerReferences": [reference]} | metadata}


def widgets(cluster: EmbeddedCluster) -> Kind:
    return cluster.api.kinds.by_storage["widgets.example.com"]


def redefine(cluster: EmbeddedCluster, given: list[dict[str, Any]]) -> None:
    body = DEFINITION | {"spec": DEFINITION["spec"] | {"versions": given}}
    cluster.api.update(CUSTOM_RESOURCE_DEFINITIONS, "", "widgets.example.com", body)


def remembered(cluster: EmbeddedCluster) -> dict[str, Any]:
    """What the garbage collector keeps."""
    (collector,) = [each for each in cluster._controllers if isinstance(each, GarbageCollector)]
    return {**collector._dependents, **collector._waiting}


async def test_an_object_that_cannot_be_deleted_holds_up_no_other() -> None:
    async with EmbeddedCluster() as cluster:
        owner = cluster.api.create(NAMESPACES, "", {"metadata": {"name": "owner"}}).value
        reference = owned("", owner)["metadata"]["ownerReferences"]
        permanent = cluster.api.get(NAMESPACES, "", "default").value
        metadata = {"name": "default", "ownerReferences": reference}
        cluster.api.update(NAMESPACES, "", "default", permanent | {"metadata": metadata})
        for index in range(3):
            cluster.api.create(CONFIG_MAPS, "default", owned(f"m{index}", owner))
        delete(cluster.api, NAMESPACES, "", "owner", DeleteOptions())
        await asyncio.sleep(1)
        assert not cluster.api.store["configmaps"].records
        assert cluster.api.find(NAMESPACES, "", "default") is not None


@pytest.mark.parametrize("propagation", ["Foreground", "Orphan", "Background"])
@pytest.mark.parametrize("given", [versions(v2=True, v1=True), versions(v1=True, v2=False)])
async def test_owners_of_a_kind_whose_definition_changes(
    propagation: str, given: list[dict[str, Any]]
) -> None:
    async with EmbeddedCluster() as cluster:
        cluster.api.create(CUSTOM_RESOURCE_DEFINITIONS, "", DEFINITION)
        owner = cluster.api.create(widgets(cluster), "default", {"metadata": {"name": "w"}}).value
        finalizers = {"finalizers": ["example.com/held"]}
        cluster.api.create(CONFIG_MAPS, "default", owned("held", owner, **finalizers))
        cluster.api.create(widgets(cluster), "default", owned("child", owner))
        redefine(cluster, given)
        delete(
            cluster.api, widgets(cluster), "default", "w", DeleteOptions(propagation=propagation)
        )
        redefine(cluster, versions(v3=True))
        await asyncio.sleep(1)
        if propagation == "Foreground":
            assert cluster.api.find(widgets(cluster), "default", "w") is not None
        freed = cluster.api.get(CONFIG_MAPS, "default", "held").value
        freed = freed | {"metadata": freed["metadata"] | {"finalizers": []}}
        cluster.api.update(CONFIG_MAPS, "default", "held", freed)
        await asyncio.sleep(1)
        assert cluster.api.find(widgets(cluster), "default", "w") is None
        kept = (CONFIG_MAPS, "default", "held"), (widgets(cluster), "default", "child")
        for place in kept:
            assert (cluster.api.find(*place) is not None) == (propagation == "Orphan")
        assert remembered(cluster) == {}


async def test_namespaces_take_objects_of_versions_that_are_not_served() -> None:
    async with EmbeddedCluster() as cluster:
        cluster.api.create(CUSTOM_RESOURCE_DEFINITIONS, "", DEFINITION)
        cluster.api.create(NAMESPACES, "", {"metadata": {"name": "a"}})
        cluster.api.create(widgets(cluster), "a", {"metadata": {"name": "w"}})
        redefine(cluster, versions(v1=True, v2=False))
        delete(cluster.api, NAMESPACES, "", "a", DeleteOptions())
        await asyncio.sleep(1)
        assert cluster.api.find(NAMESPACES, "", "a") is None
        assert not cluster.api.store["widgets.example.com"].records
