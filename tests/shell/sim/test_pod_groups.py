"""PodGroups and Workloads of scheduling.k8s.io, and what holds them."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner

from app.cli.root import main
from app.sim import ClusterOptions, EmbeddedCluster, KubeletOptions, NodeOptions
from app.sim.errors import ApiError
from app.sim.features import ServedFeatures, parse_features
from app.sim.resources.deletion import DeleteOptions, delete
from app.sim.resources.kinds import BY_RESOURCE, PODS, Kind
from tests.shell.sim.client import PODS as POD_PATH
from tests.shell.sim.client import TABLE, Client, pod
from tests.shell.sim.pod_group_cases import (
    CASES,
    GATES,
    PREPARED,
    ROOT,
    VERSION,
    created,
    recorded,
    summary,
)

ON = parse_features([",".join(f"{gate}=true" for gate in GATES)], [f"{VERSION}=true"])
NEWER = "scheduling.k8s.io/v1beta1"
CUSTOM = "scheduling.x-k8s.io/v1alpha1"
DEFINITION = Path("tests/manifests/podgroups.scheduling.x-k8s.io.yaml").absolute()
GANG = {"schedulingPolicy": {"gang": {"minCount": 2}}}


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(ClusterOptions(features=ON)) as running:
        yield running


def served(cluster: EmbeddedCluster, kind: str, version: str = VERSION) -> Kind:
    return cluster.api.kinds.by_type[version, kind]


def grouped(name: str, group: str = "g") -> dict[str, Any]:
    return pod(name, schedulingGroup={"podGroupName": group})


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['resource']}-{case['name']}")
async def test_answers_are_those_of_kubernetes(client: Client, case: dict[str, Any]) -> None:
    for path, body in PREPARED:
        await client.create(path, body)
    path = f"{ROOT}/{case['resource']}"
    answer = await client.post(path, created(case))
    if "patch" in case:
        assert answer.status == 201
        path = "/".join(filter(None, (path, case["name"], case["subresource"])))
        answer = await client.patch(path, case["patch"])
    assert summary(answer.status, answer.body) == recorded(case)


async def test_nothing_of_it_is_served_by_default() -> None:
    async with EmbeddedCluster() as plain, aiohttp.ClientSession() as session:
        client = Client(session, plain.url)
        assert (await client.get(f"{ROOT}/podgroups")).status == 404
        versions = (await client.get("/apis/scheduling.k8s.io")).body["versions"]
        assert [each["version"] for each in versions] == ["v1"]
        assert "schedulingGroup" not in (await client.create(POD_PATH, grouped("p")))["spec"]


async def test_fields_without_their_gates_are_dropped() -> None:
    features = parse_features(["GenericWorkload=true"], [f"{VERSION}=true"])
    async with EmbeddedCluster(ClusterOptions(features=features)) as cluster:
        spec = GANG | {"schedulingConstraints": {"topology": [{"key": "rack"}]}, "priority": 7}
        spec |= {"resourceClaims": [{"name": "a", "resourceClaimName": "x"}]}
        body = {"metadata": {"name": "g"}, "spec": spec}
        made = cluster.api.create(served(cluster, "PodGroup"), "default", body).value
        assert made["spec"] == GANG | {"podGroupTemplateRef": None}


async def test_discovery_and_tables(client: Client) -> None:
    group = (await client.get("/apis/scheduling.k8s.io")).body
    assert [each["version"] for each in group["versions"]] == ["v1", "v1alpha2"]
    assert group["preferredVersion"]["version"] == "v1"
    resources = (await client.get(f"/apis/{VERSION}")).body["resources"]
    assert [each["name"] for each in resources] == ["podgroups", "podgroups/status", "workloads"]
    await client.create(f"{ROOT}/podgroups", {"metadata": {"name": "g"}, "spec": GANG})
    for conditions, shown in (
        ([], "Pending"),
        ([("PodGroupScheduled", "False")], "Unschedulable"),
        ([("PodGroupScheduled", "True")], "Scheduled"),
        ([("PodGroupScheduled", "True"), ("DisruptionTarget", "True")], "Because"),
    ):
        status = {"conditions": [condition(*each) for each in conditions]}
        await client.patch(f"{ROOT}/podgroups/g/status", {"status": status})
        (row,) = (await client.get(f"{ROOT}/podgroups", accept=TABLE)).body["rows"]
        assert row["cells"][:4] == ["g", "Gang", "<none>", shown]


def condition(type_: str, status: str) -> dict[str, str]:
    when = "2026-01-01T00:00:00Z"
    return {
        "type": type_,
        "status": status,
        "reason": "Because",
        "message": "",
        "lastTransitionTime": when,
    }


async def test_conditions_are_merged_by_their_type(client: Client) -> None:
    await client.create(f"{ROOT}/podgroups", {"metadata": {"name": "g"}, "spec": GANG})
    for type_ in ("PodGroupScheduled", "DisruptionTarget"):
        answer = await client.patch(
            f"{ROOT}/podgroups/g/status",
            {"status": {"conditions": [condition(type_, "True")]}},
            content_type="application/strategic-merge-patch+json",
        )
    found = {each["type"] for each in answer.body["status"]["conditions"]}
    assert found == {"PodGroupScheduled", "DisruptionTarget"}


async def test_a_group_stays_until_its_last_pod_has_ended(client: Client) -> None:
    await client.create(f"{ROOT}/podgroups", {"metadata": {"name": "g"}, "spec": GANG})
    for name in ("a", "b"):
        await client.create(POD_PATH, grouped(name))
    await client.create(POD_PATH, grouped("c", "other"))
    await client.delete(f"{ROOT}/podgroups/g")
    assert (await client.get(f"{ROOT}/podgroups/g")).body["metadata"]["deletionTimestamp"]
    await client.delete(f"{POD_PATH}/a")
    assert (await client.get(f"{ROOT}/podgroups/g")).status == 200
    await client.patch(f"{POD_PATH}/b/status", {"status": {"phase": "Succeeded"}})
    assert (await client.get(f"{ROOT}/podgroups/g")).status == 404


async def test_the_pods_group_is_checked_and_cannot_change(client: Client) -> None:
    for group in ({}, {"podGroupName": "A_"}, {"podGroupName": ""}):
        assert (await client.post(POD_PATH, pod("p", schedulingGroup=group))).status == 422
    assert (await client.post(POD_PATH, pod("p", schedulingGroup="g"))).status == 400
    await client.create(POD_PATH, grouped("p"))
    change = {"spec": {"schedulingGroup": {"podGroupName": "h"}}}
    assert (await client.patch(f"{POD_PATH}/p", change)).status == 422


@pytest.mark.parametrize(
    ("gates", "config", "text"),
    [
        (["Gangs=true"], [], "unknown feature gate: Gangs"),
        ([], ["scheduling.k8s.io/v9=true"], "unknown version of the API"),
        (["GenericWorkload=yes"], [], "must be true or false"),
        (["GangScheduling=true"], [], "GangScheduling needs GenericWorkload"),
        ([], [f"{VERSION}=true"], "needs the feature gate GenericWorkload"),
        (["GenericWorkload=true"], [f"{VERSION}=true,{NEWER}=true"], "only one of"),
    ],
)
def test_flags_that_are_refused(gates: list[str], config: list[str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        parse_features(gates, config)
    flags = [f"--feature-gates={each}" for each in gates]
    flags += [f"--runtime-config={each}" for each in config]
    result = CliRunner().invoke(main, ["apiserver", *flags])
    assert result.exit_code != 0
    assert text in result.output


@pytest.mark.parametrize(
    ("gates", "config", "text"),
    [
        (["GangScheduling=true,GenericWorkload=true"], [], "has no feature gate GangScheduling"),
        (["GenericWorkload=true"], [f"{VERSION}=true"], f"does not have {VERSION}"),
    ],
)
def test_what_1_37_has_no_longer(gates: list[str], config: list[str], text: str) -> None:
    with pytest.raises(ValueError, match=f"Kubernetes 1.37 {text}"):
        parse_features(gates, config, "1.37")
    flags = [f"--feature-gates={each}" for each in gates]
    flags += [f"--runtime-config={each}" for each in config]
    result = CliRunner().invoke(main, ["apiserver", "--emulated-version=1.37", *flags])
    assert text in result.output


@pytest.mark.parametrize("version", [NEWER, "scheduling.k8s.io/v1alpha3"])
async def test_the_kinds_of_1_37(version: str) -> None:
    features = parse_features(["GenericWorkload=true"], [f"{version}=true"], "1.37")
    async with (
        EmbeddedCluster(ClusterOptions(features=features)) as running,
        aiohttp.ClientSession() as session,
    ):
        client = Client(session, running.url)
        path = f"/apis/{version}/namespaces/default/podgroups"
        made = await client.create(path, {"metadata": {"name": "g"}, "spec": GANG})
        assert made["spec"]["disruptionMode"] == {"single": {}}
        rules = "/apis/resource.k8s.io/v1/devicetaintrules"
        taint = {"key": "example.com/broken", "effect": "NoSchedule"}
        spec = {"deviceSelector": {"driver": "gpu.example.com"}, "taint": taint}
        rule = await client.create(rules, {"metadata": {"name": "r"}, "spec": spec})
        assert rule["spec"]["taint"]["timeAdded"]
        wrong = {"deviceSelector": {"driver": "A b"}, "taint": {"key": "k"}}
        answer = await client.post(rules, {"metadata": {"name": "w"}, "spec": wrong})
        told = [cause["field"] for cause in answer.body["details"]["causes"]]
        assert answer.status == 422
        assert sorted(told) == ["spec.deviceSelector.driver", "spec.taint.effect"]
        other = {**rule, "spec": {**rule["spec"], "deviceSelector": {"driver": "x"}}}
        assert (await client.put(f"{rules}/r", other)).status == 422


def test_later_flags_replace_earlier_ones() -> None:
    found = parse_features(["GenericWorkload=true,", "GenericWorkload=false"], [f"{VERSION}=false"])
    assert found == ServedFeatures()
    assert parse_features(["GenericWorkload"], []).gates == {"GenericWorkload"}


# ---------------------------------------------------------------- the version of 1.37


@pytest.fixture
async def newer() -> AsyncIterator[EmbeddedCluster]:
    gates = ["GenericWorkload=true,TopologyAwareWorkloadScheduling=true"]
    features = parse_features(gates, [f"{NEWER}=true"])
    async with EmbeddedCluster(ClusterOptions(features=features)) as running:
        yield running


async def test_the_newer_version(newer: EmbeddedCluster) -> None:
    async with aiohttp.ClientSession() as session:
        client = Client(session, newer.url)
        path = f"/apis/{NEWER}/namespaces/default/podgroups"
        reference = {"workloadName": "w", "templateName": "t"}
        body = {"metadata": {"name": "g"}, "spec": GANG | {"workloadRef": reference}}
        made = await client.create(path, body)
        assert made["spec"]["disruptionMode"] == {"single": {}}
        assert (made["spec"]["priority"], made["apiVersion"]) == (0, NEWER)
        more = {"spec": {"schedulingPolicy": {"gang": {"minCount": 5}}}}
        assert (await client.patch(f"{path}/g", more)).body["spec"]["schedulingPolicy"] == (
            more["spec"]["schedulingPolicy"]
        )
        for change in (
            {"schedulingPolicy": {"gang": None, "basic": {}}},
            {"schedulingPolicy": {"gang": {"minCount": 0}}},
            {"workloadRef": {"workloadName": "v"}},
            {"disruptionMode": {"single": None, "all": {}}},
            {"priority": 3},
        ):
            assert (await client.patch(f"{path}/g", {"spec": change})).status == 422
        for spec in (
            {"workloadRef": {"workloadName": "w"}},
            {"disruptionMode": "Pod"},
            {"disruptionMode": {"single": {}, "all": {}}},
        ):
            body = {"metadata": {"name": "h"}, "spec": GANG | spec}
            assert (await client.post(path, body)).status in (400, 422)
        row = (await client.get(path, accept=TABLE)).body["rows"][0]
        assert row["cells"][:4] == ["g", "Gang", "w", "Pending"]


async def test_templates_of_the_newer_version(newer: EmbeddedCluster) -> None:
    kind = served(newer, "Workload", NEWER)
    template = {"name": "t"} | GANG
    body = {"metadata": {"name": "w"}, "spec": {"podGroupTemplates": [template]}}
    made = newer.api.create(kind, "default", body).value
    larger = template | {"schedulingPolicy": {"gang": {"minCount": 9}}}
    spec = {"podGroupTemplates": [larger]}
    changed, _ = newer.api.update(kind, "default", "w", made | {"spec": spec})
    assert changed.value["spec"]["podGroupTemplates"][0]["schedulingPolicy"]["gang"] == {
        "minCount": 9
    }
    more = {"podGroupTemplates": [larger, larger | {"name": "u"}]}
    with pytest.raises(ApiError, match="field is immutable"):
        newer.api.update(kind, "default", "w", changed.value | {"spec": more})


# ---------------------------------------------------------------- Jobs


JOBS = BY_RESOURCE["jobs.batch"]


def job(**spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i"}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    size = {"completionMode": "Indexed", "parallelism": 3, "completions": 3}
    return {"metadata": {"name": "train"}, "spec": {"template": template} | size | spec}


@pytest.fixture
async def working() -> AsyncIterator[EmbeddedCluster]:
    loop = asyncio.get_running_loop()
    options = ClusterOptions(
        features=ON, workloads=True, kubelets=KubeletOptions(), nodes=NodeOptions(count=1)
    )
    async with EmbeddedCluster(options, now=lambda: 1e9 + loop.time()) as running:
        yield running


def found(cluster: EmbeddedCluster, kind: Kind) -> list[dict[str, Any]]:
    return [record.value for record in cluster.api.store[kind.storage].ordered()]


@pytest.mark.looptime
@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
async def test_a_job_whose_pods_run_together_is_a_gang(
    working: EmbeddedCluster, propagation: str
) -> None:
    working.api.create(JOBS, "default", job())
    await asyncio.sleep(1)
    (workload,) = found(working, served(working, "Workload"))
    reference = {"apiGroup": "batch", "kind": "Job", "name": "train"}
    assert workload["spec"]["controllerRef"] == reference
    (group,) = found(working, served(working, "PodGroup"))
    assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
    template = {"workloadName": workload["metadata"]["name"], "podGroupTemplateName": "train-pgt-0"}
    assert group["spec"]["podGroupTemplateRef"] == {"workload": template}
    members = found(working, PODS)
    assert len(members) == 3
    for member in members:
        name = group["metadata"]["name"]
        assert member["spec"]["schedulingGroup"] == {"podGroupName": name}
        owners = [each["kind"] for each in member["metadata"]["ownerReferences"]]
        assert owners == ["Job", "PodGroup"]
    changed = job(parallelism=5)
    with pytest.raises(ApiError, match="cannot change parallelism for a Job referencing gang"):
        working.api.update(JOBS, "default", "train", changed)
    delete(working.api, JOBS, "default", "train", DeleteOptions(propagation=propagation))
    await asyncio.sleep(60)
    for kind in (JOBS, PODS, served(working, "PodGroup"), served(working, "Workload")):
        assert found(working, kind) == []


@pytest.mark.looptime
@pytest.mark.parametrize(
    "spec",
    [
        {"completionMode": "NonIndexed"},
        {"parallelism": 1, "completions": 1},
        {"completions": 5},
        {"group": "mine"},
    ],
)
async def test_other_jobs_have_no_group(working: EmbeddedCluster, spec: dict[str, Any]) -> None:
    body, group = job(), spec.pop("group", "")
    body["spec"] |= spec
    if group:
        body["spec"]["template"]["spec"]["schedulingGroup"] = {"podGroupName": group}
    working.api.create(JOBS, "default", body)
    await asyncio.sleep(1)
    assert found(working, served(working, "Workload")) == []
    members = found(working, PODS)
    assert len(members) == body["spec"]["parallelism"]
    for member in members:
        assert member["spec"].get("schedulingGroup", {}).get("podGroupName", "") == group


@pytest.mark.looptime
async def test_a_gang_is_suspended_and_resumed_with_its_group(working: EmbeddedCluster) -> None:
    working.api.create(JOBS, "default", job(suspend=True))
    await asyncio.sleep(1)
    assert (len(found(working, served(working, "PodGroup"))), found(working, PODS)) == (1, [])
    working.api.update(JOBS, "default", "train", job(suspend=False))
    await asyncio.sleep(1)
    assert all("schedulingGroup" in member["spec"] for member in found(working, PODS))
    assert len(found(working, PODS)) == 3


# ---------------------------------------------------------------- groups as custom resources


async def test_groups_of_scheduler_plugins_are_custom_resources(tmp_path: Path) -> None:
    group = {"apiVersion": CUSTOM, "kind": "PodGroup", "metadata": {"name": "g"}}
    manifest = tmp_path / "group.json"
    manifest.write_text(json.dumps(group | {"spec": {"minMember": 3}}))
    options = ClusterOptions(load=(DEFINITION, manifest))
    async with EmbeddedCluster(options) as cluster, aiohttp.ClientSession() as session:
        client = Client(session, cluster.url)
        path = f"/apis/{CUSTOM}/namespaces/default/podgroups/g"
        found = (await client.get(path)).body
        assert (found["spec"]["minMember"], found["metadata"]["generation"]) == (3, 1)
        answer = await client.patch(f"{path}/status", {"status": {"phase": "Running"}})
        assert answer.body["status"] == {"phase": "Running"}
        assert answer.body["metadata"]["generation"] == 1
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        definition = (await client.get(f"{definitions}/podgroups.{CUSTOM.partition('/')[0]}")).body
        assert {each["status"] for each in definition["status"]["conditions"]} == {"True"}
