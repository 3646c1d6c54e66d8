"""kubernetes_asyncio, a client that is not ours, against the embedded cluster and against a real API server where there
is one.

What its generated models and its watches expect holds for both. There are no kubelets, and at the real server no
controllers.
"""

import json
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest
from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.client import ApiException

from tests.whole.harness import ApiServer, Schedulers

pytestmark = pytest.mark.whole

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
#: The API server's own events have no eventTime, which the library's model does not accept.
SCHEDULED = "reason=Scheduled"


@pytest.fixture
async def api(server: ApiServer) -> AsyncIterator[client.ApiClient]:
    """The library's client with its own reading of the kubeconfig."""
    async with await config.new_client_from_config(str(server.kubeconfig)) as made:
        yield made
    server.wipe()


@pytest.fixture
def core(api: client.ApiClient) -> client.CoreV1Api:
    return client.CoreV1Api(api)


def node(name: str) -> client.V1Node:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return client.V1Node(
        metadata=client.V1ObjectMeta(name=name, labels={"kubernetes.io/hostname": name}),
        status=client.V1NodeStatus(capacity=amounts, allocatable=amounts),
    )


def pod(name: str, **labels: str) -> client.V1Pod:
    resources = client.V1ResourceRequirements(requests={"cpu": "100m"})
    container = client.V1Container(name="c", image="i", resources=resources)
    spec = client.V1PodSpec(containers=[container], termination_grace_period_seconds=0)
    return client.V1Pod(metadata=client.V1ObjectMeta(name=name, labels=labels), spec=spec)


async def refusal(asked: Awaitable[object]) -> tuple[int, str]:
    """The status code and the reason with which a request is refused."""
    with pytest.raises(ApiException) as caught:
        await asked
    return caught.value.status, json.loads(caught.value.body)["reason"]


async def bind(core: client.CoreV1Api, name: str, to: str) -> int:
    """The status code. The library would take the answer, which is a Status, for a Binding without its target."""
    target = client.V1ObjectReference(api_version="v1", kind="Node", name=to)
    body = client.V1Binding(metadata=client.V1ObjectMeta(name=name), target=target)
    answer = await core.create_namespaced_pod_binding(name, "default", body, _preload_content=False)
    await answer.read()
    return int(answer.status)


async def test_create_read_patch_replace_delete(core: client.CoreV1Api) -> None:
    made = await core.create_namespaced_pod("default", pod("p", app="web"))
    assert (made.status.phase, made.spec.scheduler_name) == ("Pending", "default-scheduler")
    assert await refusal(core.create_namespaced_pod("default", pod("p"))) == (409, "AlreadyExists")
    assert await refusal(core.read_namespaced_pod("q", "default")) == (404, "NotFound")
    assert await refusal(core.create_namespaced_pod("nowhere", pod("p"))) == (404, "NotFound")
    assert await refusal(core.create_namespaced_pod("default", pod("P"))) == (422, "Invalid")

    change = {"metadata": {"labels": {"tier": "front", "app": None}}}
    for content_type in (MERGE, STRATEGIC):
        patched = await core.patch_namespaced_pod(
            "p", "default", change, _content_type=content_type
        )
        assert patched.metadata.labels == {"tier": "front"}
    stale = made
    stale.metadata.labels = {"late": "yes"}
    assert await refusal(core.replace_namespaced_pod("p", "default", stale)) == (409, "Conflict")
    fresh = await core.read_namespaced_pod("p", "default")
    fresh.metadata.annotations = {"note": "1"}
    replaced = await core.replace_namespaced_pod("p", "default", fresh)
    assert replaced.metadata.annotations == {"note": "1"}
    assert replaced.metadata.creation_timestamp == made.metadata.creation_timestamp

    deleted = await core.delete_namespaced_pod("p", "default")
    assert deleted.metadata.name == "p"
    assert await refusal(core.delete_namespaced_pod("p", "default")) == (404, "NotFound")


async def test_lists_by_selectors_and_in_pages(core: client.CoreV1Api) -> None:
    for number in range(5):
        await core.create_namespaced_pod("default", pod(f"p-{number}", parity=str(number % 2)))
    odd = await core.list_namespaced_pod("default", label_selector="parity=1")
    assert [each.metadata.name for each in odd.items] == ["p-1", "p-3"]
    one = await core.list_pod_for_all_namespaces(field_selector="metadata.name=p-4")
    assert [each.metadata.name for each in one.items] == ["p-4"]
    names, token, pages = [], None, 0
    while pages == 0 or token:
        page = await core.list_namespaced_pod("default", limit=2, _continue=token)
        names += [each.metadata.name for each in page.items]
        token, pages = page.metadata._continue, pages + 1
    assert (pages, names) == (3, [f"p-{number}" for number in range(5)])
    await core.delete_collection_namespaced_pod("default", label_selector="parity=0")
    left = await core.list_namespaced_pod("default")
    assert [each.metadata.name for each in left.items] == ["p-1", "p-3"]


async def test_a_watch_from_a_list_on_and_resumed(core: client.CoreV1Api) -> None:
    await core.create_namespaced_pod("default", pod("before"))
    listed = await core.list_namespaced_pod("default")
    version = listed.metadata.resource_version
    await core.create_namespaced_pod("default", pod("p"))
    await core.patch_namespaced_pod("p", "default", {"metadata": {"labels": {"a": "b"}}})
    await core.delete_namespaced_pod("p", "default", grace_period_seconds=0)

    async def follow(since: str) -> list[Any]:
        events = []
        async with watch.Watch().stream(
            core.list_namespaced_pod, "default", resource_version=since, timeout_seconds=30
        ) as stream:
            async for event in stream:
                events.append(event)
                if event["type"] == "DELETED":
                    break
        return events

    added, modified, *_, deleted = await follow(version)
    assert [each["type"] for each in (added, modified, deleted)] == ["ADDED", "MODIFIED", "DELETED"]
    assert {each["object"].metadata.name for each in (added, modified, deleted)} == {"p"}
    assert modified["object"].metadata.labels == {"a": "b"}
    *_, again = await follow(modified["object"].metadata.resource_version)
    assert again["object"].metadata.resource_version == deleted["object"].metadata.resource_version


async def test_a_watch_without_a_version_begins_with_what_there_is(core: client.CoreV1Api) -> None:
    await core.create_namespaced_pod("default", pod("p"))
    async with watch.Watch().stream(
        core.list_namespaced_pod, "default", timeout_seconds=1
    ) as stream:
        seen = [(event["type"], event["object"].metadata.name) async for event in stream]
    assert seen == [("ADDED", "p")]


async def test_bind_and_evict(api: client.ApiClient, core: client.CoreV1Api) -> None:
    await core.create_node(node("n"))
    await core.create_namespaced_pod("default", pod("p", app="web"))
    assert await bind(core, "p", "n") == 201
    bound = await core.read_namespaced_pod("p", "default")
    assert bound.spec.node_name == "n"
    assert [(each.type, each.status) for each in bound.status.conditions] == [
        ("PodScheduled", "True")
    ]
    assert await bind(core, "p", "n") == 409
    on_node = await core.list_pod_for_all_namespaces(field_selector="spec.nodeName=n")
    assert [each.metadata.name for each in on_node.items] == ["p"]

    running = {"status": {"phase": "Running"}}
    await core.patch_namespaced_pod_status("p", "default", running)
    policy = client.PolicyV1Api(api)
    selector = client.V1LabelSelector(match_labels={"app": "web"})
    budget = client.V1PodDisruptionBudget(
        metadata=client.V1ObjectMeta(name="b"),
        spec=client.V1PodDisruptionBudgetSpec(min_available=1, selector=selector),
    )
    await policy.create_namespaced_pod_disruption_budget("default", budget)
    eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name="p", namespace="default"))
    assert await refusal(core.create_namespaced_pod_eviction("p", "default", eviction)) == (
        429,
        "TooManyRequests",
    )
    await policy.delete_namespaced_pod_disruption_budget("b", "default")
    await core.create_namespaced_pod_eviction("p", "default", eviction)
    assert await refusal(core.read_namespaced_pod("p", "default")) == (404, "NotFound")


async def test_a_deployment(api: client.ApiClient) -> None:
    apps = client.AppsV1Api(api)
    labels = {"app": "web"}
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels=labels), spec=pod("x").spec
    )
    template.spec.termination_grace_period_seconds = None
    spec = client.V1DeploymentSpec(
        replicas=2, selector=client.V1LabelSelector(match_labels=labels), template=template
    )
    body = client.V1Deployment(metadata=client.V1ObjectMeta(name="web"), spec=spec)
    made = await apps.create_namespaced_deployment("default", body)
    assert (made.spec.replicas, made.metadata.generation) == (2, 1)
    await apps.patch_namespaced_deployment("web", "default", {"spec": {"replicas": 3}})
    assert (await apps.read_namespaced_deployment("web", "default")).spec.replicas == 3
    listed = await apps.list_deployment_for_all_namespaces(label_selector="none=such")
    assert listed.items == []
    status = await apps.delete_namespaced_deployment("web", "default")
    assert status.status == "Success"


async def test_every_kind_that_a_scheduler_reads(api: client.ApiClient) -> None:
    """The models refuse lists in which something required is missing."""
    apps, core, storage = client.AppsV1Api(api), client.CoreV1Api(api), client.StorageV1Api(api)
    resource = client.ResourceV1Api(api)
    lists = [
        await core.list_namespace(),
        await core.list_node(),
        await core.list_persistent_volume(),
        await core.list_persistent_volume_claim_for_all_namespaces(),
        await core.list_replication_controller_for_all_namespaces(),
        await core.list_service_for_all_namespaces(),
        await apps.list_replica_set_for_all_namespaces(),
        await apps.list_stateful_set_for_all_namespaces(),
        await storage.list_storage_class(),
        await storage.list_csi_driver(),
        await storage.list_csi_node(),
        await storage.list_csi_storage_capacity_for_all_namespaces(),
        await storage.list_volume_attachment(),
        await resource.list_device_class(),
        await resource.list_resource_claim_for_all_namespaces(),
        await resource.list_resource_slice(),
        await client.PolicyV1Api(api).list_pod_disruption_budget_for_all_namespaces(),
        await client.SchedulingV1Api(api).list_priority_class(),
        await client.CoordinationV1Api(api).list_lease_for_all_namespaces(),
        await client.EventsV1Api(api).list_event_for_all_namespaces(field_selector=SCHEDULED),
    ]
    assert all(each.metadata.resource_version for each in lists)
    groups = {each.name for each in (await client.ApisApi(api).get_api_versions()).groups}
    assert groups >= {"apps", "storage.k8s.io", "resource.k8s.io", "policy", "events.k8s.io"}
    resources = {each.name for each in (await core.get_api_resources()).resources}
    assert resources >= {"pods", "pods/binding", "pods/eviction", "pods/status", "nodes"}
    assert (await client.VersionApi(api).get_code()).major == "1"


async def test_the_lock_of_an_election(api: client.ApiClient) -> None:
    coordination = client.CoordinationV1Api(api)
    spec = client.V1LeaseSpec(holder_identity="a", lease_duration_seconds=15)
    body = client.V1Lease(metadata=client.V1ObjectMeta(name="lock"), spec=spec)
    made = await coordination.create_namespaced_lease("default", body)
    made.spec.holder_identity = "b"
    taken = await coordination.replace_namespaced_lease("lock", "default", made)
    assert taken.spec.holder_identity == "b"
    made.spec.holder_identity = "c"
    late = coordination.replace_namespaced_lease("lock", "default", made)
    assert await refusal(late) == (409, "Conflict")
    await coordination.delete_namespaced_lease("lock", "default")


async def test_the_scheduler_seen_by_the_library(
    server: ApiServer, api: client.ApiClient, core: client.CoreV1Api, tmp_path: Path
) -> None:
    await core.create_node(node("n"))
    schedulers = Schedulers(server, tmp_path)
    schedulers.start(leaderElection={"leaderElect": False})
    try:
        await core.create_namespaced_pod("default", pod("p"))
        async with watch.Watch().stream(
            core.list_namespaced_pod, "default", timeout_seconds=60
        ) as stream:
            nodes = [None]
            async for event in stream:
                nodes.append(event["object"].spec.node_name)
                if nodes[-1]:
                    break
        assert nodes[-1] == "n"
        async with watch.Watch().stream(
            client.EventsV1Api(api).list_namespaced_event,
            "default",
            field_selector=SCHEDULED,
            timeout_seconds=60,
        ) as stream:
            event = await anext(stream)
        assert event["object"].regarding.name == "p"
        assert event["object"].note == "Successfully assigned default/p to n"
    finally:
        schedulers.end()
