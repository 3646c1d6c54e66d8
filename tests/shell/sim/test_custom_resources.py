"""Kinds that a CustomResourceDefinition defines."""

import pytest

from app.sim import EmbeddedCluster
from tests.shell.sim.client import Client

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
OLD_WIDGETS = WIDGETS.replace("v1", "v1alpha1")


def definition(**spec):
    versions = [
        {"name": "v1alpha1", "served": True, "storage": False},
        {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}},
    ]
    names = {"kind": "Widget", "plural": "widgets", "shortNames": ["wd"]}
    base = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions}
    return {"metadata": {"name": "widgets.example.com"}, "spec": base | spec}


def widget(**spec):
    return {"metadata": {"name": "w"}, "spec": spec}


async def test_its_objects_are_served_in_all_versions(client: Client) -> None:
    assert (await client.get(WIDGETS)).status == 404
    await client.create(CRDS, definition())
    created = await client.create(WIDGETS, widget(size=1))
    assert (created["kind"], created["apiVersion"]) == ("Widget", "example.com/v1")
    assert created["metadata"]["generation"] == 1
    older = (await client.get(f"{OLD_WIDGETS}/w")).body
    assert (older["apiVersion"], older["spec"]) == ("example.com/v1alpha1", {"size": 1})
    listed = (await client.get(OLD_WIDGETS)).body
    assert (listed["kind"], listed["apiVersion"]) == ("WidgetList", "example.com/v1alpha1")
    answer = await client.put(f"{OLD_WIDGETS}/w", older | {"spec": {"size": 2}})
    assert answer.status == 200
    changed = (await client.get(f"{WIDGETS}/w")).body
    assert (changed["apiVersion"], changed["spec"]) == ("example.com/v1", {"size": 2})
    assert changed["metadata"]["generation"] == 2


async def test_status_is_a_subresource_where_the_definition_says_so(client: Client) -> None:
    await client.create(CRDS, definition())
    await client.create(WIDGETS, widget() | {"status": {"ready": True}})
    await client.patch(f"{WIDGETS}/w/status", {"status": {"ready": False}})
    assert (await client.get(f"{WIDGETS}/w")).body["status"] == {"ready": False}
    assert (await client.patch(f"{OLD_WIDGETS}/w/status", {})).status == 404


async def test_discovery_follows(client: Client) -> None:
    assert (await client.get("/apis/example.com")).status == 404
    before = (await client.get("/openapi/v3")).body["paths"]["api/v1"]
    await client.create(CRDS, definition())
    group = (await client.get("/apis/example.com")).body
    assert [each["version"] for each in group["versions"]] == ["v1", "v1alpha1"]
    (entry, status) = (await client.get("/apis/example.com/v1")).body["resources"]
    assert (entry["kind"], entry["shortNames"], status["name"]) == (
        "Widget",
        ["wd"],
        "widgets/status",
    )
    assert (await client.get("/openapi/v3")).body["paths"]["api/v1"] != before
    await client.delete(f"{CRDS}/widgets.example.com")
    assert (await client.get("/apis/example.com")).status == 404


async def test_its_schema_is_shown(client: Client) -> None:
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "description": "Its size."}},
    }
    versions = [
        {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    ]
    await client.create(CRDS, definition(versions=versions))
    document = (await client.get("/openapi/v3/apis/example.com/v1")).body
    shown = document["components"]["schemas"]["example.com.v1.Widget"]
    assert shown["properties"]["spec"]["description"] == "Its size."
    versions[0]["schema"] = {"openAPIV3Schema": {"type": "object", "properties": ["odd"]}}
    await client.patch(f"{CRDS}/widgets.example.com", {"spec": {"versions": versions}})
    document = (await client.get("/openapi/v3/apis/example.com/v1")).body
    assert "spec" not in document["components"]["schemas"]["example.com.v1.Widget"]["properties"]


async def test_its_objects_go_with_it(client: Client, cluster: EmbeddedCluster) -> None:
    await client.create(CRDS, definition())
    await client.create(WIDGETS, widget())
    async with client.watch(WIDGETS) as watch:
        assert (await watch.next())["type"] == "ADDED"
        await client.delete(f"{CRDS}/widgets.example.com")
        assert (await watch.next())["type"] == "DELETED"
        assert await watch.rest() == []
    assert (await client.get(f"{WIDGETS}/w")).status == 404
    assert "widgets.example.com" not in dict(cluster.api.store.items())
    await client.create(CRDS, definition())
    assert await client.names(WIDGETS) == []


def conditions(definition):
    return {each["type"]: each["status"] for each in definition["status"]["conditions"]}


async def test_it_is_established_whatever_status_it_comes_with(client: Client) -> None:
    given = {"conditions": [{"type": "Established", "status": "False"}], "storedVersions": ["v9"]}
    await client.create(CRDS, definition() | {"status": given})
    found = (await client.get(f"{CRDS}/widgets.example.com")).body
    assert conditions(found) == {"NamesAccepted": "True", "Established": "True"}
    assert found["status"]["storedVersions"] == ["v1"]
    await client.patch(f"{CRDS}/widgets.example.com/status", {"status": None})
    again = (await client.get(f"{CRDS}/widgets.example.com")).body
    assert conditions(again) == {"NamesAccepted": "True", "Established": "True"}


async def test_a_kind_is_defined_once_in_a_group(client: Client) -> None:
    await client.create(CRDS, definition())
    names = {"kind": "Widget", "plural": "gadgets"}
    other = definition(names=names) | {"metadata": {"name": "gadgets.example.com"}}
    await client.create(CRDS, other)
    found = (await client.get(f"{CRDS}/gadgets.example.com")).body
    assert conditions(found) == {"NamesAccepted": "False", "Established": "False"}
    gadgets = WIDGETS.replace("widgets", "gadgets")
    assert (await client.get(gadgets)).status == 404
    await client.create(WIDGETS, widget())
    await client.delete(f"{CRDS}/widgets.example.com")
    found = (await client.get(f"{CRDS}/gadgets.example.com")).body
    assert conditions(found) == {"NamesAccepted": "True", "Established": "True"}
    assert (await client.create(gadgets, widget()))["kind"] == "Widget"


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"scope": "Cluster"}, "spec.scope"),
        ({"names": {"kind": "Gadget"}}, "spec.names.kind"),
        ({"names": {"plural": "gadgets"}}, "spec.names.plural"),
        ({"group": "example.org"}, "spec.group"),
    ],
)
async def test_what_a_definition_cannot_change(client: Client, spec, field) -> None:
    await client.create(CRDS, definition())
    answer = await client.patch(f"{CRDS}/widgets.example.com", {"spec": spec})
    assert answer.status == 422
    assert field in {cause["field"] for cause in answer.body["details"]["causes"]}


async def test_its_objects_follow_the_stored_version(client: Client) -> None:
    await client.create(CRDS, definition())
    made = await client.create(WIDGETS, widget(size=1))
    versions = [
        {"name": "v1", "served": True, "storage": False},
        {"name": "v2", "served": True, "storage": True},
    ]
    async with client.watch(WIDGETS) as watch:
        assert (await watch.next())["object"]["apiVersion"] == "example.com/v1"
        await client.patch(f"{CRDS}/widgets.example.com", {"spec": {"versions": versions}})
        assert await watch.rest() == []
    for version in ("v1", "v2"):
        path = WIDGETS.replace("v1", version)
        shown = [(await client.get(f"{path}/w")).body, *(await client.get(path)).body["items"]]
        assert shown[0]["apiVersion"] == f"example.com/{version}"
        assert [each["metadata"] for each in shown] == [made["metadata"]] * 2
        listed = (await client.get(path, limit="1")).body
        assert (listed["apiVersion"], len(listed["items"])) == (f"example.com/{version}", 1)
    stored = (await client.get(f"{CRDS}/widgets.example.com")).body["status"]["storedVersions"]
    assert stored == ["v1", "v2"]


@pytest.mark.parametrize(
    "spec",
    [
        {"group": "apps"},
        {"group": "example.org"},
        {"group": "scheduling.k8s.io"},
        {"group": None},
        {"names": {"kind": "widget", "plural": "widgets"}},
        {"names": {"kind": "Widget", "plural": "Widgets"}},
        {"names": None},
        {"names": []},
        {"scope": "Galaxy"},
        {"versions": []},
        {"versions": "v1"},
        {"versions": [{"name": "v1", "served": True, "storage": True, "subresources": True}]},
        {"versions": [{"name": "v1", "served": True, "storage": True, "schema": []}]},
        {"versions": [{"name": "v1", "served": True, "storage": False}]},
        {"versions": [{"name": "../v1", "served": True, "storage": True}]},
        {"versions": [{"name": "v1", "storage": True}, {"name": "v1", "served": True}]},
    ],
)
async def test_definitions_that_are_refused(client: Client, spec) -> None:
    body = definition(**spec)
    if spec.get("group") == "scheduling.k8s.io":
        body["metadata"]["name"] = "widgets.scheduling.k8s.io"
    answer = await client.post(CRDS, body)
    assert answer.status in (400, 422), answer
    assert (await client.get("/apis/example.com")).status == 404
