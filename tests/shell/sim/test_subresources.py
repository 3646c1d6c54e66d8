"""The scale subresource, metrics, addresses of services, and OpenAPI."""

import pytest

from app.sim import ClusterOptions, EmbeddedCluster, NodeOptions
from app.sim.resources.kinds import PODS
from tests.shell.sim.client import JSON_PATCH, Client, pod

SETS = "/apis/apps/v1/namespaces/default/replicasets"
SERVICES = "/api/v1/namespaces/default/services"
METRICS = "/apis/metrics.k8s.io/v1beta1"


@pytest.fixture
def options() -> ClusterOptions:
    return ClusterOptions(nodes=NodeOptions(count=2))


def replica_set(**spec):
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    base = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    return {"metadata": {"name": "r"}, "spec": base | spec}


# ---------------------------------------------------------------- scale


async def test_scale_changes_the_replicas_alone(client: Client) -> None:
    await client.create(SETS, replica_set())
    scale = (await client.get(f"{SETS}/r/scale")).body
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert (scale["spec"], scale["status"]) == ({"replicas": 2}, {"replicas": 0, "selector": "a=b"})
    answer = await client.put(f"{SETS}/r/scale", scale | {"spec": {"replicas": 3}})
    assert answer.body["spec"] == {"replicas": 3}
    await client.patch(f"{SETS}/r/scale", {"spec": {"replicas": 4}})
    step = [{"op": "replace", "path": "/spec/replicas", "value": 5}]
    await client.patch(f"{SETS}/r/scale", step, JSON_PATCH)
    stored = (await client.get(f"{SETS}/r")).body
    assert stored["spec"]["replicas"] == 5
    assert stored["metadata"]["generation"] == 4
    stale = await client.put(f"{SETS}/r/scale", scale)
    assert stale.status == 409


@pytest.mark.parametrize("replicas", [-1, "3", 1.5, []])
async def test_scales_that_are_refused(client: Client, replicas) -> None:
    await client.create(SETS, replica_set())
    answer = await client.patch(f"{SETS}/r/scale", {"spec": {"replicas": replicas}})
    assert answer.status == 422
    assert (await client.get(f"{SETS}/r")).body["spec"]["replicas"] == 2


async def test_scales_without_a_form_are_refused(client: Client) -> None:
    await client.create(SETS, replica_set())
    for body in ([], {"spec": 3}, "x"):
        assert (await client.put(f"{SETS}/r/scale", body)).status == 400
    assert (await client.get(f"{SETS}/none/scale")).status == 404


# ---------------------------------------------------------------- metrics


def run(cluster: EmbeddedCluster, name: str, node: str, **requests: str) -> None:
    value = pod(name, labels={"app": name}, nodeName=node)
    value["spec"]["containers"] = [
        {"name": "c", "image": "i", "resources": {"requests": requests} if requests else {}}
    ]
    record = cluster.api.create(PODS, "default", value)
    running = record.value | {"metadata": dict(record.value["metadata"])}
    cluster.api.write(PODS, running | {"status": {"phase": "Running"}})


async def test_metrics_follow_requests(client: Client, cluster: EmbeddedCluster) -> None:
    run(cluster, "busy", "node-0", cpu="2", memory="1Gi")
    run(cluster, "idle", "node-1")
    cluster.api.create(PODS, "default", pod("pending"))
    items = (await client.get(f"{METRICS}/namespaces/default/pods")).body["items"]
    used = {each["metadata"]["name"]: each["containers"][0]["usage"] for each in items}
    assert used.keys() == {"busy", "idle"}
    assert 400_000_000 <= int(used["busy"]["cpu"].removesuffix("n")) <= 1_600_000_000
    assert 200 << 10 <= int(used["busy"]["memory"].removesuffix("Ki")) <= 820 << 10
    one = (await client.get(f"{METRICS}/namespaces/default/pods/busy")).body
    assert one["containers"][0]["usage"] == used["busy"]
    chosen = await client.names(f"{METRICS}/pods", labelSelector="app=idle")
    assert chosen == ["idle"]
    nodes = (await client.get(f"{METRICS}/nodes")).body["items"]
    cpu = {each["metadata"]["name"]: int(each["usage"]["cpu"].removesuffix("n")) for each in nodes}
    assert cpu["node-0"] > int(used["busy"]["cpu"].removesuffix("n")) > cpu["node-1"] > 0


async def test_metrics_are_read_only(client: Client) -> None:
    assert (await client.get(f"{METRICS}/nodes/none")).status == 404
    assert (await client.get(f"{METRICS}/namespaces/other/pods")).body["items"] == []
    assert (await client.post(f"{METRICS}/nodes", {})).status == 405
    assert (await client.delete(f"{METRICS}/nodes/node-0")).status == 405


# ---------------------------------------------------------------- services


async def test_services_get_addresses_of_their_own(client: Client) -> None:
    seen = set()
    for number, type_ in enumerate(["ClusterIP", "NodePort", "LoadBalancer"] * 20):
        spec = {"type": type_, "ports": [{"port": 80}]}
        made = await client.create(SERVICES, {"metadata": {"name": f"s{number}"}, "spec": spec})
        seen.add(made["spec"]["clusterIP"])
        node_port = made["spec"]["ports"][0].get("nodePort")
        assert (node_port is not None) == (type_ != "ClusterIP")
        assert bool(made["status"]["loadBalancer"]) == (type_ == "LoadBalancer")
        if node_port is not None:
            seen.add(node_port)
    assert len(seen) == 60 + 40
    external = {"type": "ExternalName", "externalName": "example.com"}
    made = await client.create(SERVICES, {"metadata": {"name": "e"}, "spec": external})
    assert "clusterIP" not in made["spec"]


async def test_a_service_keeps_its_addresses(client: Client) -> None:
    spec = {"type": "NodePort", "ports": [{"port": 80}]}
    made = await client.create(SERVICES, {"metadata": {"name": "s"}, "spec": spec})
    replaced = {"metadata": {"name": "s"}, "spec": spec | {"type": "LoadBalancer"}}
    found = (await client.put(f"{SERVICES}/s", replaced)).body
    assert found["spec"]["clusterIP"] == made["spec"]["clusterIP"]
    assert found["spec"]["ports"] == made["spec"]["ports"]
    assert found["status"]["loadBalancer"]["ingress"]


# ---------------------------------------------------------------- OpenAPI


async def test_schemas_have_types_and_merge_keys(client: Client) -> None:
    document = (await client.get("/openapi/v3/apis/apps/v1")).body
    schemas = document["components"]["schemas"]
    assert schemas["v1.Deployment"]["x-kubernetes-group-version-kind"] == [
        {"group": "apps", "version": "v1", "kind": "Deployment"}
    ]
    spec = schemas["v1.DeploymentSpec"]["properties"]
    assert spec["replicas"]["type"] == "integer"
    containers = schemas["v1.PodSpec"]["properties"]["containers"]
    assert containers["type"] == "array"
    assert containers["items"] == {"$ref": "#/components/schemas/v1.Container"}
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-patch-strategy"] == "merge"
    assert "x-kubernetes-patch-strategy" not in schemas["v1.PodSpec"]["properties"]["tolerations"]


async def test_every_reference_leads_somewhere(client: Client) -> None:
    index = (await client.get("/openapi/v3")).body["paths"]
    for entry in index.values():
        document = (await client.get(entry["serverRelativeURL"])).body
        schemas = document["components"]["schemas"]
        named = {f"#/components/schemas/{name}" for name in schemas}
        assert set(references(schemas)) <= named
        assert document["paths"]


def references(value):
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        value = list(value.values())
    for part in value if isinstance(value, list) else ():
        yield from references(part)


async def test_unknown_documents_are_not_found(client: Client) -> None:
    for name in ("api/v2", "apis/v1", "api/apps/v1", "apis/apps", "x"):
        assert (await client.get(f"/openapi/v3/{name}")).status == 404
