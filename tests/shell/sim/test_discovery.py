"""Discovery, health, reviews: what clients ask before they begin."""

from typing import Any

import pytest

from app.sim import EmbeddedCluster
from app.sim.resources.kinds import KINDS
from app.sim.resources.reviews import ADMIN, ADMIN_TOKEN
from tests.shell.sim.client import Client

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
AUTHENTICATION = "/apis/authentication.k8s.io/v1"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"


async def test_version_and_health(client: Client) -> None:
    version = (await client.get("/version")).body
    assert (version["major"], version["minor"]) == ("1", "36")
    assert version["gitVersion"].startswith("v1.36.")
    for path in ("/healthz", "/livez", "/readyz", "/readyz/ping"):
        assert (await client.get(path)).body == b"ok"


async def test_plain_discovery_names_every_resource(client: Client) -> None:
    assert (await client.get("/api")).body["versions"] == ["v1"]
    groups = (await client.get("/apis")).body["groups"]
    found = set()
    for group_version in ["v1", *(group["preferredVersion"]["groupVersion"] for group in groups)]:
        root = "/apis" if "/" in group_version else "/api"
        document = (await client.get(f"{root}/{group_version}")).body
        assert document["kind"] == "APIResourceList"
        names = {resource["name"] for resource in document["resources"]}
        found |= {(group_version, name) for name in names}
    assert {(kind.group_version, kind.plural) for kind in KINDS} <= found
    assert ("v1", "pods/eviction") in found
    assert (await client.get("/apis/apps")).body["preferredVersion"]["groupVersion"] == "apps/v1"


async def test_the_eviction_subresource_is_of_the_policy_group(client: Client) -> None:
    resources = (await client.get("/api/v1")).body["resources"]
    (eviction,) = (entry for entry in resources if entry["name"] == "pods/eviction")
    assert (eviction["group"], eviction["version"], eviction["kind"]) == (
        "policy",
        "v1",
        "Eviction",
    )


async def test_aggregated_discovery_says_the_same(client: Client) -> None:
    pods = None
    for path in ("/api", "/apis"):
        async with client.session.get(client.url + path, headers={"Accept": AGGREGATED}) as answer:
            assert "as=APIGroupDiscoveryList" in answer.headers["Content-Type"]
            document = await answer.json()
        assert document["kind"] == "APIGroupDiscoveryList"
        for item in document["items"]:
            for resource in item["versions"][0]["resources"]:
                if (item["metadata"], resource["resource"]) == ({}, "pods"):
                    pods = resource
    assert pods is not None
    assert (pods["scope"], pods["shortNames"], pods["categories"]) == (
        "Namespaced",
        ["po"],
        ["all"],
    )
    assert {sub["subresource"] for sub in pods["subresources"]} == {
        "binding",
        "eviction",
        "log",
        "status",
    }


async def test_openapi_says_that_patches_can_be_dry(client: Client) -> None:
    paths = (await client.get("/openapi/v3")).body["paths"]
    document = (await client.get("/openapi/v3/api/v1")).body
    assert paths["api/v1"]["serverRelativeURL"].startswith("/openapi/v3/api/v1")
    operation = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert operation["x-kubernetes-group-version-kind"]["kind"] == "Pod"
    assert {"dryRun", "fieldValidation"} <= {entry["name"] for entry in operation["parameters"]}
    assert (await client.get("/openapi/v2")).status == 200


async def review(client: Client, path: str, spec: Any = None) -> dict[str, Any]:
    return (await client.create(path, {"spec": spec} if spec else {}))["status"]


async def test_tokens(client: Client) -> None:
    path = f"{AUTHENTICATION}/tokenreviews"
    known = await review(client, path, {"token": ADMIN_TOKEN})
    assert known["authenticated"] is True
    assert known["user"]["username"] == ADMIN
    unknown = await review(client, path, {"token": "x"})
    assert unknown == {"user": {}, "error": "invalid bearer token"}
    whoami = await review(client, f"{AUTHENTICATION}/selfsubjectreviews")
    assert whoami["userInfo"]["username"] == ADMIN


@pytest.mark.parametrize(
    "path",
    [
        f"{AUTHORIZATION}/subjectaccessreviews",
        f"{AUTHORIZATION}/selfsubjectaccessreviews",
        f"{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews",
    ],
)
async def test_everything_is_allowed(client: Client, path: str) -> None:
    spec = {"user": "u", "resourceAttributes": {"verb": "get", "resource": "pods"}}
    assert (await review(client, path, spec))["allowed"] is True
    assert (await client.get(path)).status == 405
    assert (await client.post(path, [])).status == 400


async def test_rules(client: Client) -> None:
    rules = await review(client, f"{AUTHORIZATION}/selfsubjectrulesreviews", {"namespace": "x"})
    assert rules["resourceRules"][0]["verbs"] == ["*"]


async def test_the_debug_surface_is_closed_by_default() -> None:
    async with EmbeddedCluster() as cluster:
        import aiohttp

        async with aiohttp.ClientSession() as session:
            assert (await Client(session, cluster.url).get("/debug/cluster")).status == 404
