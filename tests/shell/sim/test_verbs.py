"""Creating, reading, updating and deleting, and how each of them fails."""

import asyncio
import io

import pytest

from app.sim.api import Api
from app.sim.errors import ApiError
from app.sim.resources.kinds import BY_RESOURCE
from tests.shell.sim.client import (
    APPLY,
    CONFIG_MAPS,
    LEASES,
    NODES,
    PODS,
    Client,
    config_map,
    node,
    pod,
)


async def test_a_created_object_is_returned_with_what_the_server_adds(client: Client) -> None:
    created = await client.create(CONFIG_MAPS, config_map("a", labels={"x": "y"}))
    metadata = created["metadata"]
    assert list(created) == ["kind", "apiVersion", "metadata", "data"]
    assert metadata["namespace"] == "default"
    assert metadata["labels"] == {"x": "y"}
    assert len(metadata["uid"]) == 36
    assert metadata["creationTimestamp"].endswith("Z")
    assert (await client.get(f"{CONFIG_MAPS}/a")).body == created


@pytest.mark.parametrize(
    ("path", "kind", "warning"),
    [
        ("/apis/apps/v1/namespaces/default/deployments", "Deployment", "deployments.apps"),
        ("/apis/batch/v1/namespaces/default/jobs", "Job", "jobs.batch"),
        (CONFIG_MAPS, "ConfigMap", None),
    ],
)
async def test_workloads_come_with_a_warning(client: Client, path, kind, warning) -> None:
    labels = {"a": "b"}
    spec = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Always"}
    spec["restartPolicy"] = "Never" if kind == "Job" else "Always"
    template = {"metadata": {"labels": labels}, "spec": spec}
    body = {"kind": kind, "metadata": {"name": "a"}, "spec": {"template": template}}
    if kind == "Deployment":
        body["spec"]["selector"] = {"matchLabels": labels}
    async with client.session.post(client.url + path, json=body) as answer:
        assert answer.status == 201
        said = answer.headers.get("Warning")
    expected = f'299 - "the embedded cluster has no controller for {warning}: no pods are made"'
    assert said == (warning and expected)
    async with client.session.get(f"{client.url}{path}/a") as answer:
        assert "Warning" not in answer.headers


OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}


@pytest.mark.parametrize(
    ("owners", "fields"),
    [
        ([OWNER, OWNER | {"name": "q"}], []),
        ([{}], ["apiVersion", "kind", "name", "uid"]),
        ([OWNER | {"uid": ""}], ["uid"]),
        ([OWNER | {"apiVersion": "apps/v1/x"}], ["apiVersion"]),
        ([OWNER | {"controller": True}, OWNER | {"controller": True, "name": "q"}], [""]),
        ([OWNER | {"kind": "Event"}], [""]),
        ([OWNER | {"uid": 1}], None),
        ([OWNER | {"controller": "yes"}], None),
        (["p"], None),
    ],
)
async def test_owner_references_are_complete(client: Client, owners, fields) -> None:
    """``fields``: those that are wrong; None: the list cannot be read at all."""
    answer = await client.post(CONFIG_MAPS, config_map("a", ownerReferences=owners))
    if fields is None:
        assert answer.status == 400
        return
    assert answer.status == (422 if fields else 201)
    causes = answer.body.get("details", {}).get("causes", [])
    prefix = "metadata.ownerReferences"
    assert [cause["field"] for cause in causes] == [f"{prefix}.{f}".rstrip(".") for f in fields]


def test_a_generated_name_that_is_taken_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    names = iter(["n-a", "n-a", "n-a", "n-b", *["n-a"] * 100])
    monkeypatch.setattr("app.sim.api.generated_name", lambda _prefix: next(names))
    api = Api(now=lambda: 1e9)
    body = {"metadata": {"generateName": "n-"}}
    made = [api.create(BY_RESOURCE["nodes"], "", body).name for _ in range(2)]
    assert made == ["n-a", "n-b"]
    with pytest.raises(ApiError, match="already exists"):
        api.create(BY_RESOURCE["nodes"], "", body)


async def test_generated_names_differ(client: Client) -> None:
    names = {
        (await client.create(CONFIG_MAPS, config_map(generateName="n-")))["metadata"]["name"]
        for _ in range(5)
    }
    assert len(names) == 5
    assert all(name.startswith("n-") and len(name) == 7 for name in names)


async def test_type_and_namespace_may_be_left_to_the_path(client: Client) -> None:
    created = await client.create(CONFIG_MAPS, {"metadata": {"name": "bare"}})
    assert (created["kind"], created["apiVersion"]) == ("ConfigMap", "v1")


@pytest.mark.parametrize(
    ("body", "status", "reason", "text"),
    [
        pytest.param(config_map("a"), 409, "AlreadyExists", 'configmaps "a" already exists', id="twice"),
        pytest.param(config_map("A_"), 422, "Invalid", "lowercase RFC 1123 subdomain", id="name"),
        pytest.param(config_map(), 422, "Invalid", "name or generateName is required", id="no-name"),
        pytest.param(config_map("b", labels={"k": "&"}), 422, "Invalid", "valid label", id="label-value"),
        pytest.param(config_map("b", labels={"k/": "v"}), 422, "Invalid", "name part", id="label-key"),
        pytest.param(config_map("b", namespace="other"), 400, "BadRequest", "does not match the namespace", id="namespace"),
        pytest.param(pod("b"), 400, "BadRequest", "cannot be handled as a ConfigMap", id="kind"),
        pytest.param(config_map("b", annotations={"k": 1}), 400, "BadRequest", "metadata.annotations must be a map of strings", id="annotations"),
        pytest.param(config_map("b") | {"spec": []}, 400, "BadRequest", "spec must be an object", id="spec"),
        pytest.param({"metadata": ["x"]}, 400, "BadRequest", "metadata must be an object", id="metadata"),
        pytest.param([], 400, "BadRequest", "must be of type ConfigMap", id="list"),
        pytest.param(b"{bad", 400, "BadRequest", "json parse error", id="no-json"),
        pytest.param(b'{"a":"\xff"}', 400, "BadRequest", "json parse error", id="no-utf-8"),
        pytest.param(b'{"a":' * 5000, 400, "BadRequest", "json parse error", id="deep"),
        pytest.param(config_map("b", resourceVersion="5"), 500, None, "resourceVersion should not be set", id="version"),
    ],
)  # fmt: skip
async def test_create_refuses(client: Client, body, status, reason, text) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    answer = await client.post(CONFIG_MAPS, body)
    assert (answer.status, answer.body.get("reason")) == (status, reason)
    assert answer.body["kind"] == "Status"
    assert answer.body["code"] == status
    assert text in answer.message


async def test_missing_namespace_is_404(client: Client) -> None:
    answer = await client.post(CONFIG_MAPS.replace("default", "nope"), config_map("a"))
    assert (answer.status, answer.message) == (404, 'namespaces "nope" not found')
    assert answer.body["details"] == {"name": "nope", "kind": "namespaces"}


async def test_a_list_in_a_missing_namespace_is_empty(client: Client) -> None:
    assert await client.names(CONFIG_MAPS.replace("default", "nope")) == []


async def test_a_deeply_nested_object_is_400_not_500(client: Client) -> None:
    deep = '{"metadata":{"name":"a"},"x":%s}' % ("[" * 900 + "]" * 900)
    answer = await client.post(CONFIG_MAPS, deep.encode())
    assert (answer.status, answer.message) == (400, "the object provided is nested too deeply")


async def test_aliases_that_repeat_too_much_are_400(client: Client) -> None:
    levels = [f"x{n + 1}: &x{n + 1} [{', '.join([f'*x{n}'] * 10)}]" for n in range(9)]
    bomb = "\n".join(["kind: ConfigMap", "metadata: {name: a}", "x0: &x0 [1]", *levels]).encode()
    answer = await client.request("POST", CONFIG_MAPS, bomb, content_type="application/yaml")
    assert answer.status == 400
    assert "aliases repeat too much" in answer.message
    answer = await client.request(
        "PATCH", f"{CONFIG_MAPS}/a?fieldManager=x", bomb, content_type=APPLY
    )
    assert answer.status == 400
    assert await client.names(CONFIG_MAPS) == []


async def test_a_wrongly_shaped_object_is_400_not_500(client: Client) -> None:
    wrong = pod("p")
    wrong["spec"]["containers"] = "none"
    answer = await client.post(PODS, wrong)
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")


async def test_media_types(client: Client) -> None:
    yaml = b"metadata: {name: y}\ndata: {when: 2026-01-01T00:00:00Z}"
    answer = await client.post(CONFIG_MAPS, yaml, content_type="application/yaml")
    assert (answer.status, answer.body["data"]) == (201, {"when": "2026-01-01T00:00:00Z"})
    answer = await client.post(CONFIG_MAPS, yaml, content_type="text/plain")
    assert (answer.status, answer.body["reason"]) == (415, "UnsupportedMediaType")
    answer = await client.get(CONFIG_MAPS, accept="text/html")
    assert (answer.status, answer.body["reason"]) == (406, "NotAcceptable")


async def test_unknown_paths_and_methods(client: Client) -> None:
    assert (await client.get("/api/v1/namespaces/default/podz")).status == 404
    assert (await client.get("/apis/apps/v2")).status == 404
    assert (await client.get("/foo")).status == 404
    assert (await client.get(f"{CONFIG_MAPS}/a/status")).status == 404
    assert (await client.put(CONFIG_MAPS, config_map("a"))).status == 405
    assert (await client.post(f"{CONFIG_MAPS}/a", config_map("a"))).status == 405
    assert (await client.post("/api/v1/configmaps", config_map("a"))).status == 405
    assert (await client.delete("/api/v1/namespaces")).status == 405
    assert (await client.post(f"{PODS}/a/status", pod("a"))).status == 405


async def test_a_subresource_that_is_not_served_is_named(client: Client) -> None:
    answer = await client.post(f"{PODS}/a/exec", {})
    assert (answer.status, answer.body["reason"]) == (404, "NotFound")
    assert "the embedded cluster does not serve pods/exec" in answer.message
    assert not answer.body["details"]


async def test_update_replaces_and_keeps_what_the_server_owns(client: Client) -> None:
    created = await client.create(CONFIG_MAPS, config_map("a", labels={"x": "y"}))
    answer = await client.put(f"{CONFIG_MAPS}/a", config_map("a") | {"data": {"c": "d"}})
    assert (answer.status, answer.body["data"]) == (200, {"c": "d"})
    metadata = answer.body["metadata"]
    assert "labels" not in metadata
    assert metadata["uid"] == created["metadata"]["uid"]
    assert int(metadata["resourceVersion"]) == int(created["metadata"]["resourceVersion"]) + 1


async def test_an_update_that_changes_nothing_is_no_change(client: Client) -> None:
    created = await client.create(CONFIG_MAPS, config_map("a"))
    assert (await client.put(f"{CONFIG_MAPS}/a", created)).body == created


async def test_update_conflicts(client: Client) -> None:
    created = await client.create(CONFIG_MAPS, config_map("a"))
    await client.patch(f"{CONFIG_MAPS}/a", {"data": {"a": "c"}})
    answer = await client.put(f"{CONFIG_MAPS}/a", created)
    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    assert answer.message.startswith('Operation cannot be fulfilled on configmaps "a": the object')
    answer = await client.put(f"{CONFIG_MAPS}/a", config_map("a", uid="x"))
    assert answer.status == 409
    assert "UID in precondition: x" in answer.message
    assert (await client.put(f"{CONFIG_MAPS}/b", config_map("a"))).status == 400
    assert (await client.put(f"{CONFIG_MAPS}/b", config_map("b"))).status == 404


async def test_some_kinds_are_created_by_put(client: Client) -> None:
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "h"}}
    assert (await client.put(f"{LEASES}/l", lease)).status == 201
    assert (await client.put(f"{LEASES}/l", lease)).status == 200


async def test_status_is_written_apart(client: Client) -> None:
    await client.create(NODES, node("n"))
    status = {"status": {"phase": "Up"}}
    answer = await client.put(f"{NODES}/n/status", node("n", unschedulable=True) | status)
    assert answer.body["status"]["phase"] == "Up"
    assert answer.body["spec"] == {}
    answer = await client.put(f"{NODES}/n", node("n", unschedulable=True))
    assert answer.body["status"]["phase"] == "Up"
    assert answer.body["spec"] == {"unschedulable": True}
    assert (await client.get(f"{NODES}/n/status")).body == answer.body


async def test_a_status_gets_its_defaults_too(client: Client) -> None:
    await client.create(NODES, node("n"))
    capacity = {"cpu": "4", "pods": "110"}
    status = {"status": {"capacity": capacity}}
    answer = await client.put(f"{NODES}/n/status", node("n") | status)
    assert answer.body["status"]["allocatable"] == capacity


async def test_generation_counts_changes_of_the_spec_only(client: Client) -> None:
    path = "/apis/apps/v1/namespaces/default/replicasets"
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    await client.create(path, {"metadata": {"name": "r"}, "spec": spec})
    answer = await client.patch(f"{path}/r", {"metadata": {"labels": {"a": "b"}}})
    assert answer.body["metadata"]["generation"] == 1
    answer = await client.patch(f"{path}/r/status", {"status": {"replicas": 1}})
    assert answer.body["metadata"]["generation"] == 1
    answer = await client.patch(f"{path}/r", {"spec": {"replicas": 2}})
    assert answer.body["metadata"]["generation"] == 2


async def test_dry_run_changes_nothing(client: Client) -> None:
    answer = await client.post(CONFIG_MAPS, config_map("a"), dryRun="All")
    assert answer.status == 201
    assert await client.names(CONFIG_MAPS) == []
    await client.create(CONFIG_MAPS, config_map("a"))
    answer = await client.patch(f"{CONFIG_MAPS}/a", {"data": {"z": "z"}}, dryRun="All")
    assert answer.body["data"] == {"a": "b", "z": "z"}
    assert (await client.delete(f"{CONFIG_MAPS}/a", dryRun="All")).status == 200
    assert (await client.get(f"{CONFIG_MAPS}/a")).body["data"] == {"a": "b"}
    answer = await client.post(CONFIG_MAPS, config_map("b"), dryRun="Some")
    assert answer.status == 422
    assert 'CreateOptions.meta.k8s.io "" is invalid: dryRun' in answer.message


async def test_delete_answers_with_a_status_or_the_object(client: Client) -> None:
    created = await client.create(CONFIG_MAPS, config_map("a"))
    answer = await client.delete(f"{CONFIG_MAPS}/a")
    uid = created["metadata"]["uid"]
    assert answer.body["status"] == "Success"
    assert answer.body["details"] == {"name": "a", "kind": "configmaps", "uid": uid}
    assert (await client.get(f"{CONFIG_MAPS}/a")).status == 404
    assert (await client.delete(f"{CONFIG_MAPS}/a")).status == 404
    await client.create("/apis/storage.k8s.io/v1/csinodes", {"metadata": {"name": "n"}})
    answer = await client.delete("/apis/storage.k8s.io/v1/csinodes/n")
    assert answer.body["kind"] == "CSINode"


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
async def test_delete_preconditions(client: Client, field: str) -> None:
    created = await client.create(CONFIG_MAPS, config_map("a"))
    answer = await client.delete(f"{CONFIG_MAPS}/a", {"preconditions": {field: "7"}})
    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    assert answer.message.startswith('Operation cannot be fulfilled on ConfigMap "a": the ')
    right = {"preconditions": {field: created["metadata"][field]}}
    assert (await client.delete(f"{CONFIG_MAPS}/a", right)).status == 200


@pytest.mark.parametrize(
    ("finalizer", "field", "text"),
    [
        ("mine", "metadata.finalizers[0]", "neither a standard finalizer name nor is it fully"),
        ("/mine", "metadata.finalizers", "prefix part must be non-empty"),
        ("x.io/m e", "metadata.finalizers", "name part must consist of"),
    ],
)
async def test_finalizers_have_a_domain(
    client: Client, finalizer: str, field: str, text: str
) -> None:
    given = config_map("a", finalizers=[finalizer])
    answer = await client.post(CONFIG_MAPS, given)
    (cause,) = answer.body["details"]["causes"]
    assert (answer.status, cause["field"], text in cause["message"]) == (422, field, True)
    await client.create(CONFIG_MAPS, config_map("a", finalizers=["orphan"]))
    patch = {"metadata": {"finalizers": [finalizer]}}
    assert (await client.patch(f"{CONFIG_MAPS}/a", patch)).status == 422


async def test_finalizers_hold_an_object_until_the_last_is_gone(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("a", finalizers=["x.io/y", "x.io/z"]))
    answer = await client.delete(f"{CONFIG_MAPS}/a")
    assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 0
    assert answer.body["metadata"]["deletionTimestamp"]
    again = await client.delete(f"{CONFIG_MAPS}/a")
    assert again.body == answer.body
    answer = await client.patch(
        f"{CONFIG_MAPS}/a", {"metadata": {"finalizers": ["x.io/y", "x.io/new"]}}
    )
    assert answer.status == 422
    assert (
        'no new finalizers can be added if the object is being deleted, found new finalizers []string{"x.io/new"}'
        in answer.message
    )
    await client.patch(f"{CONFIG_MAPS}/a", {"metadata": {"finalizers": ["x.io/z"]}})
    assert (await client.get(f"{CONFIG_MAPS}/a")).status == 200
    await client.patch(f"{CONFIG_MAPS}/a", {"metadata": {"finalizers": None}})
    assert (await client.get(f"{CONFIG_MAPS}/a")).status == 404


async def test_delete_collection_by_selector(client: Client) -> None:
    for name in "abc":
        await client.create(CONFIG_MAPS, config_map(name, labels={"keep": str(name == "b")}))
    answer = await client.delete(CONFIG_MAPS, labelSelector="keep=False")
    assert [item["metadata"]["name"] for item in answer.body["items"]] == ["a", "c"]
    assert await client.names(CONFIG_MAPS) == ["b"]


async def test_a_body_beyond_the_limit_is_refused(client: Client) -> None:
    answer = await client.post(CONFIG_MAPS, io.BytesIO(b" " * (3 * 1024 * 1024 + 1)))
    assert (answer.status, answer.body["reason"]) == (413, "RequestEntityTooLarge")


async def test_namespaces_are_emptied_and_removed(client: Client) -> None:
    await client.create("/api/v1/namespaces", {"metadata": {"name": "ns"}})
    path = CONFIG_MAPS.replace("default", "ns")
    await client.create(path, config_map("held", finalizers=["x.io/y"]))
    await client.create(path, config_map("free"))
    answer = await client.delete("/api/v1/namespaces/ns")
    assert answer.body["status"]["phase"] == "Terminating"
    answer = await client.post(path, config_map("late"))
    assert answer.status == 403
    assert "because it is being terminated" in answer.message
    while await client.names(path) != ["held"]:
        await asyncio.sleep(0)
    assert (await client.get("/api/v1/namespaces/ns")).status == 200
    await client.patch(f"{path}/held", {"metadata": {"finalizers": None}})
    async with client.watch("/api/v1/namespaces", fieldSelector="metadata.name=ns") as watch:
        assert await watch.seen() == ("ADDED", "ns")
        assert await watch.seen() == ("DELETED", "ns")


async def test_the_system_namespaces_stay(client: Client) -> None:
    for name in ("default", "kube-system"):
        answer = await client.delete(f"/api/v1/namespaces/{name}")
        assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
        assert "this namespace may not be deleted" in answer.message
