"""Objects that nobody should send: the server refuses them or stores them, and all others go on."""

import asyncio
import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.sim.api import Api
from app.sim.controllers.custom_resources import CustomResourceController
from app.sim.controllers.disruption import DisruptionController
from app.sim.controllers.garbage_collection import GarbageCollector
from app.sim.controllers.namespaces import ResourceQuotaController
from app.sim.controllers.workloads.controller import RULES, WorkloadController
from app.sim.errors import ApiError
from app.sim.resources.kinds import (
    BY_RESOURCE,
    CUSTOM_RESOURCE_DEFINITIONS,
    LIMIT_RANGES,
    NAMESPACES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    RESOURCE_QUOTAS,
    Kind,
)
from app.sim.resources.scale import scale_of
from app.sim.resources.usage import usage

LABELS = {"app": "web"}
SELECTOR = {"matchLabels": LABELS, "matchExpressions": [{"key": "app", "operator": "Exists"}]}
CONTAINER = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
POD_SPEC = {
    "containers": [CONTAINER],
    "initContainers": [CONTAINER | {"name": "i"}],
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}, "podAffinity": {}},
    "volumes": [{"name": "v", "emptyDir": {}}],
    "nodeSelector": {"a": "b"},
}
OWNERS = [
    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
]
WORKLOAD = {
    "metadata": {"name": "web", "annotations": {"a": "b"}, "ownerReferences": OWNERS},
    "spec": {
        "replicas": 2,
        "selector": SELECTOR,
        "template": {"metadata": {"labels": LABELS, "annotations": {}}, "spec": POD_SPEC},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}],
        "ordinals": {"start": 1},
        "revisionHistoryLimit": 3,
        "minReadySeconds": 2,
        "completions": 3,
        "parallelism": 2,
        "completionMode": "Indexed",
        "ttlSecondsAfterFinished": 5,
        "activeDeadlineSeconds": 50,
        "suspend": False,
        "paused": False,
    },
    "status": {"completedIndexes": "0-1", "conditions": [{"type": "Complete", "status": "False"}]},
}
OTHERS: dict[Kind, dict[str, Any]] = {
    PODS: {
        "metadata": {"name": "p", "labels": LABELS, "ownerReferences": OWNERS},
        "spec": POD_SPEC,
    },
    POD_DISRUPTION_BUDGETS: {
        "metadata": {"name": "b"},
        "spec": {"selector": SELECTOR, "maxUnavailable": "20%"},
    },
    RESOURCE_QUOTAS: {
        "metadata": {"name": "q"},
        "spec": {"hard": {"pods": "9", "requests.cpu": "9"}, "scopes": ["NotTerminating"]},
    },
    LIMIT_RANGES: {
        "metadata": {"name": "l"},
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "2"}}]},
    },
    BY_RESOURCE["services"]: {
        "metadata": {"name": "s"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "selector": LABELS},
    },
    CUSTOM_RESOURCE_DEFINITIONS: {
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "shortNames": ["wd"]},
            "versions": [{"name": "v1", "served": True, "storage": True, "subresources": {}}],
        },
    },
}
NUMBERS = [True, -1, 0, 1.5, 2**70]
TEXTS = ["", "x", "-3%", "99999999999%", "\0", "ü" * 300]
PARTS = [None, [], ["x"], [None], [[]], [{}], {}, {"x": 1}, {"x": {"y": []}}]
JUNK = st.sampled_from([*NUMBERS, *TEXTS, *PARTS])


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all parts of an object."""
    children = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, part in children:
        yield (*path, key)
        yield from places(part, (*path, key))


@st.composite
def malformed(draw: st.DrawFn, value: dict[str, Any]) -> dict[str, Any]:
    """An object with a mistake in one or two places: junk, a part that is missing, an entry that is there twice."""
    broken = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 2))):
        *path, last = draw(st.sampled_from(list(places(broken))))
        parent = broken
        for key in path:
            parent = parent[key]
        mistake = draw(st.sampled_from(["junk", "missing", "twice"]))
        if mistake == "missing":
            del parent[last]
        elif mistake == "twice" and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[last]))
        else:
            parent[last] = copy.deepcopy(draw(JUNK))
        if not broken.get("spec") or not isinstance(broken["spec"], dict):
            break
    return broken


def make_api() -> Api:
    api = Api(now=lambda: 1e9)
    api.create(NAMESPACES, "", {"metadata": {"name": "default"}})
    return api


async def lives_on(api: Api) -> None:
    """Runs the controllers, and checks that a good workload gets its pods."""
    controllers = [
        WorkloadController(api),
        GarbageCollector(api),
        DisruptionController(api),
        ResourceQuotaController(api),
        CustomResourceController(api),
    ]
    for controller in controllers:
        controller.start()
    await asyncio.sleep(0.05)
    template = {"metadata": {"labels": {"a": "good"}}, "spec": {"containers": [CONTAINER]}}
    spec = {"selector": {"matchLabels": {"a": "good"}}, "template": template}
    api.create(NAMESPACES, "", {"metadata": {"name": "other"}})
    limited = bool(api.store["resourcequotas"].records or api.store["limitranges"].records)
    for namespace in ("other",) if limited else ("other", "default"):
        good = {"metadata": {"name": "good"}, "spec": spec}
        api.create(BY_RESOURCE["replicasets.apps"], namespace, good)
    await asyncio.sleep(0.1)
    for controller in controllers:
        controller.stop()
    for namespace in ("other",) if limited else ("other", "default"):
        found = [
            record
            for record in api.store["pods"].ordered(namespace=namespace)
            if record.name.startswith("good-")
        ]
        assert len(found) == 1
    usage(api, BY_RESOURCE["pods.metrics.k8s.io"])
    usage(api, BY_RESOURCE["nodes.metrics.k8s.io"])


def offered(api: Api, kind: Kind, value: dict[str, Any]) -> bool:
    """Whether an object is taken. Nothing but an ApiError may be raised, and none about the server itself."""
    try:
        record = api.create(kind, "default" if kind.namespaced else "", value)
    except ApiError as error:
        if error.code >= 500:
            raise
        return False
    if kind in RULES:
        scale_of(record.value)
    return True


@pytest.mark.parametrize(
    ("kind", "spec", "field"),
    [
        ("replicasets", {"replicas": 2**31}, "spec.replicas"),
        ("statefulsets", {"updateStrategy": {"rollingUpdate": {"partition": "50%"}}}, "partition"),
    ],
)
def test_numbers_that_no_controller_could_follow(kind, spec, field) -> None:
    body = copy.deepcopy(WORKLOAD)
    body["spec"] |= spec
    with pytest.raises(ApiError, match=field):
        make_api().create(BY_RESOURCE[f"{kind}.apps"], "default", body)


@pytest.mark.looptime
@pytest.mark.parametrize("kind", list(RULES), ids=lambda kind: kind.kind)
@settings(max_examples=40)
@given(value=malformed(WORKLOAD))
async def test_malformed_workloads(kind: Kind, value: dict[str, Any]) -> None:
    api = make_api()
    if kind.kind == "ReplicationController":
        value = copy.deepcopy(value)
        if isinstance(value.get("spec"), dict) and value["spec"].get("selector") == SELECTOR:
            value["spec"]["selector"] = dict(LABELS)
    if offered(api, kind, value):
        await lives_on(api)


@pytest.mark.looptime
@pytest.mark.parametrize("kind", list(OTHERS), ids=lambda kind: kind.kind)
@settings(max_examples=40)
@given(data=st.data())
async def test_malformed_objects_beside_workloads(kind: Kind, data: st.DataObject) -> None:
    api = make_api()
    if offered(api, kind, data.draw(malformed(OTHERS[kind]))):
        offered(api, BY_RESOURCE["deployments.apps"], copy.deepcopy(WORKLOAD))
        await lives_on(api)
