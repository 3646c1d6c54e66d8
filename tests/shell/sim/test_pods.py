"""Pods: admission, binding, what may change, graceful deletion."""

from typing import Any

import pytest

from app.sim import EmbeddedCluster
from tests.shell.sim.client import (
    PODS,
    PRIORITY_CLASSES,
    RUNTIME_CLASSES,
    STRATEGIC,
    Answer,
    Client,
    binding,
    pod,
)


async def bind(client: Client, name: str, node: str = "n", **metadata: str) -> Answer:
    return await client.post(f"{PODS}/{name}/binding", binding(name, node, **metadata))


def resources(**lists: dict[str, str]) -> list[dict[str, Any]]:
    return [{"name": "c", "image": "i", "resources": lists}]


async def test_defaults(client: Client) -> None:
    created = await client.create(PODS, pod("p"))
    assert created["spec"] == {
        "containers": [
            {
                "name": "c",
                "image": "pause:3.9",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent",
            }
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "enableServiceLinks": True,
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{taint}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
            for taint in ("not-ready", "unreachable")
        ],
    }
    assert created["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert created["metadata"]["generation"] == 1


async def test_own_tolerations_come_first_and_count(client: Client) -> None:
    everything = [{"operator": "Exists"}]
    created = await client.create(PODS, pod("p", tolerations=everything))
    assert created["spec"]["tolerations"] == everything
    one = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
    created = await client.create(PODS, pod("q", tolerations=[one]))
    keys = [toleration["key"] for toleration in created["spec"]["tolerations"]]
    assert keys == ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
    assert "tolerationSeconds" not in created["spec"]["tolerations"][0]


@pytest.mark.parametrize(
    ("lists", "requests", "qos"),
    [
        ({}, None, "BestEffort"),
        ({"requests": {"cpu": "1"}}, {"cpu": "1"}, "Burstable"),
        ({"limits": {"cpu": "1"}, "requests": {"memory": "1Gi"}}, {"cpu": "1", "memory": "1Gi"}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, {"cpu": "1", "memory": "1Gi"}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m"}}, {"cpu": "1000m", "memory": "1Gi"}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1m"}}, {"cpu": "1m", "memory": "1Gi"}, "Burstable"),
        ({"requests": {"x.io/gpu": "1"}, "limits": {"x.io/gpu": "1"}}, {"x.io/gpu": "1"}, "BestEffort"),
    ],
)  # fmt: skip
async def test_requests_follow_limits_and_make_the_quality_of_service(
    client: Client, lists, requests, qos
) -> None:
    created = await client.create(PODS, pod("p", containers=resources(**lists)))
    assert created["spec"]["containers"][0]["resources"].get("requests") == requests
    assert created["status"]["qosClass"] == qos


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"containers": []}, "spec.containers: Required value"),
        ({"containers": [{"name": "c"}]}, "spec.containers[0].image: Required value"),
        ({"containers": [{"image": "i"}]}, "spec.containers[0].name: Required value"),
        ({"containers": [{"name": "C", "image": "i"}]}, "lowercase RFC 1123 label"),
        ({"containers": resources() * 2}, 'spec.containers[1].name: Duplicate value: "c"'),
        ({"initContainers": resources()}, 'spec.containers[0].name: Duplicate value: "c"'),
        ({"containers": resources(requests={"cpu": "x"})}, "spec.containers[0].resources.requests[cpu]"),
        ({"containers": resources(requests={"cpu": "-1"})}, "must be greater than or equal to 0"),
        ({"containers": resources(requests={"cpu": "2"}, limits={"cpu": "1"})}, "less than or equal to cpu limit of 1"),
        ({"restartPolicy": "Sometimes"}, 'Unsupported value: "Sometimes"'),
        ({"schedulingGates": [{"name": "a"}, {"name": "a"}]}, 'schedulingGates[1]: Duplicate value: "a"'),
        ({"schedulingGates": [{"name": "a"}], "nodeName": "n"}, "until all schedulingGates have been cleared"),
    ],
)  # fmt: skip
async def test_validation(client: Client, spec, text) -> None:
    answer = await client.post(PODS, pod("p", **spec))
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert text in answer.message
    assert answer.body["details"]["causes"]


class TestPriority:
    async def test_from_the_class(self, client: Client) -> None:
        body = {"metadata": {"name": "vip"}, "value": 100, "preemptionPolicy": "Never"}
        await client.create(PRIORITY_CLASSES, body)
        spec = (await client.create(PODS, pod("p", priorityClassName="vip")))["spec"]
        assert (spec["priority"], spec["preemptionPolicy"]) == (100, "Never")
        assert (await client.create(PODS, pod("q", priorityClassName="vip", priority=100)))["spec"]
        system = await client.create(PODS, pod("s", priorityClassName="system-node-critical"))
        assert system["spec"]["priority"] == 2_000_001_000

    async def test_from_the_default_class(self, client: Client) -> None:
        body = {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True}
        await client.create(PRIORITY_CLASSES, body)
        spec = (await client.create(PODS, pod("p")))["spec"]
        assert (spec["priority"], spec["priorityClassName"]) == (7, "usual")
        answer = await client.post(PRIORITY_CLASSES, body | {"metadata": {"name": "other"}})
        assert answer.status == 403
        assert "PriorityClass usual is already marked as default" in answer.message

    @pytest.mark.parametrize(
        ("spec", "text"),
        [
            ({"priorityClassName": "nope"}, 'pods "p" is forbidden: no PriorityClass with name nope was found'),
            ({"priority": 5}, "the integer value of priority (5) must not be provided in pod spec"),
            ({"preemptionPolicy": "Never"}, "the string value of PreemptionPolicy (Never) must not be provided"),
        ],
    )  # fmt: skip
    async def test_claims_that_are_forbidden(self, client: Client, spec, text) -> None:
        answer = await client.post(PODS, pod("p", **spec))
        assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
        assert text in answer.message

    @pytest.mark.parametrize(
        ("name", "value", "text"),
        [
            ("big", 1_000_000_001, "maximum allowed value of a user defined priority is 1000000000"),
            ("system-x", 1, "system-x is not a known system priority class"),
        ],
    )  # fmt: skip
    async def test_classes_that_are_refused(self, client: Client, name, value, text) -> None:
        answer = await client.post(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
        assert answer.status == 422
        assert text in answer.message

    async def test_a_classes_value_is_fixed(self, client: Client) -> None:
        await client.create(PRIORITY_CLASSES, {"metadata": {"name": "c"}, "value": 1})
        answer = await client.patch(f"{PRIORITY_CLASSES}/c", {"value": 2})
        assert answer.status == 422
        assert "may not be changed in an update." in answer.message
        assert (await client.patch(f"{PRIORITY_CLASSES}/c", {"description": "x"})).status == 200


class TestRuntimeClass:
    @pytest.fixture(autouse=True)
    async def _class(self, client: Client) -> None:
        toleration = {"key": "sandbox", "operator": "Exists"}
        await client.create(
            RUNTIME_CLASSES,
            {
                "metadata": {"name": "kata"},
                "handler": "kata",
                "overhead": {"podFixed": {"cpu": "250m"}},
                "scheduling": {"nodeSelector": {"disk": "ssd"}, "tolerations": [toleration]},
            },
        )

    async def test_gives_overhead_selector_and_tolerations(self, client: Client) -> None:
        own = {"key": "own", "operator": "Exists"}
        given = {"overhead": {"cpu": "0.25"}, "nodeSelector": {"a": "b"}, "tolerations": [own]}
        for name, extra in (("plain", {}), ("same", given)):
            spec = (await client.create(PODS, pod(name, runtimeClassName="kata", **extra)))["spec"]
            assert spec["overhead"] == {"cpu": "250m"}
            assert spec["nodeSelector"] == extra.get("nodeSelector", {}) | {"disk": "ssd"}
            keys = [each["key"] for each in spec["tolerations"]]
            assert keys.count("sandbox") == 1
            assert ("own" in keys) == (name == "same")

    @pytest.mark.parametrize(
        ("spec", "text"),
        [
            ({"runtimeClassName": "no"}, 'pod rejected: RuntimeClass "no" not found'),
            ({"overhead": {"cpu": "1"}}, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"),
            ({"runtimeClassName": "kata", "overhead": {"cpu": "1"}}, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"),
            ({"runtimeClassName": "kata", "nodeSelector": {"disk": "hdd"}}, "conflict: runtimeClass.scheduling.nodeSelector[disk] = ssd; pod.spec.nodeSelector[disk] = hdd"),
        ],
    )  # fmt: skip
    async def test_pods_that_are_forbidden(self, client: Client, spec, text) -> None:
        answer = await client.post(PODS, pod("p", **spec))
        assert answer.status == 403
        assert answer.message == f'pods "p" is forbidden: {text}'


async def test_label_keys_of_affinity_become_selectors(client: Client) -> None:
    selector = {"matchLabels": {"app": "web"}}
    term = {"labelSelector": selector, "topologyKey": "zone", "matchLabelKeys": ["hash", "absent"]}
    other = {"labelSelector": selector, "topologyKey": "zone", "mismatchLabelKeys": ["hash"]}
    affinity = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        "podAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": other}
            ]
        },
    }
    body = pod("p", affinity=affinity)
    body["metadata"]["labels"] = {"hash": "x"}
    made = (await client.create(PODS, body))["spec"]["affinity"]
    required = made["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    expected = {"key": "hash", "operator": "In", "values": ["x"]}
    assert required["labelSelector"] == selector | {"matchExpressions": [expected]}
    preferred = made["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0]
    expressions = preferred["podAffinityTerm"]["labelSelector"]["matchExpressions"]
    assert expressions == [expected | {"operator": "NotIn"}]


class TestBinding:
    async def test_sets_node_and_condition_and_clears_the_nomination(self, client: Client) -> None:
        await client.create(PODS, pod("p"))
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        status = {"nominatedNodeName": "m", "conditions": [condition]}
        await client.patch(f"{PODS}/p/status", {"status": status}, STRATEGIC)
        answer = await bind(client, "p", annotations={"a": "b"})
        assert (answer.status, answer.body["status"]) == (201, "Success")
        bound = (await client.get(f"{PODS}/p")).body
        assert bound["spec"]["nodeName"] == "n"
        assert bound["metadata"]["annotations"] == {"a": "b"}
        assert bound["metadata"]["generation"] == 1
        (scheduled,) = bound["status"].pop("conditions")
        assert scheduled.pop("lastTransitionTime")
        assert scheduled == {"type": "PodScheduled", "status": "True"}
        assert "nominatedNodeName" not in bound["status"]

    async def test_by_the_bindings_resource(self, client: Client) -> None:
        await client.create(PODS, pod("p"))
        path = PODS.replace("pods", "bindings")
        assert (await client.post(path, binding("p", "n"))).status == 201
        assert (await client.get(f"{PODS}/p")).body["spec"]["nodeName"] == "n"
        assert (await client.post(path, {"metadata": {}, "target": {}})).status == 400
        assert (await client.get(path)).status == 405

    async def test_happens_once(self, client: Client) -> None:
        await client.create(PODS, pod("p"))
        await bind(client, "p", "n1")
        for node in ("n1", "n2"):
            answer = await bind(client, "p", node)
            assert (answer.status, answer.body["reason"]) == (409, "Conflict")
            assert answer.message == (
                'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n1"'
            )
            assert answer.body["details"] == {"name": "p", "kind": "pods/binding"}

    async def test_a_pod_that_is_going_stays_unbound(self, client: Client) -> None:
        held = pod("p")
        held["metadata"]["finalizers"] = ["x.io/y"]
        await client.create(PODS, held)
        await client.delete(f"{PODS}/p")
        answer = await bind(client, "p")
        assert answer.status == 409
        assert "pod p is being deleted, cannot be assigned to a host" in answer.message

    async def test_a_gated_pod_stays_unbound(self, client: Client) -> None:
        await client.create(PODS, pod("p", schedulingGates=[{"name": "x.io/g"}]))
        answer = await bind(client, "p")
        assert answer.status == 409
        assert "pod p has non-empty .spec.schedulingGates" in answer.message

    async def test_the_uid_must_be_right(self, client: Client) -> None:
        created = await client.create(PODS, pod("p"))
        answer = await bind(client, "p", uid="other")
        assert answer.status == 409
        assert "UID in precondition: other" in answer.message
        assert (await bind(client, "p", uid=created["metadata"]["uid"])).status == 201

    @pytest.mark.parametrize(
        ("target", "status"),
        [({"kind": "Node"}, 500), ({"kind": "Pod", "name": "x"}, 500), ({"name": "x"}, 201)],
    )
    async def test_targets(self, client: Client, target, status) -> None:
        await client.create(PODS, pod("p"))
        body = {"metadata": {"name": "p"}, "target": target}
        assert (await client.post(f"{PODS}/p/binding", body)).status == status

    async def test_of_nothing_is_404(self, client: Client) -> None:
        assert (await bind(client, "p")).status == 404
        assert (await client.get(f"{PODS}/p/binding")).status == 405
        assert (await client.post(f"{PODS}/p/binding", [])).status == 400

    async def test_dry_run(self, client: Client) -> None:
        await client.create(PODS, pod("p"))
        answer = await client.post(f"{PODS}/p/binding", binding("p", "n"), dryRun="All")
        assert answer.status == 201
        assert "nodeName" not in (await client.get(f"{PODS}/p")).body["spec"]


class TestGates:
    async def test_are_told_in_the_condition(self, client: Client) -> None:
        created = await client.create(PODS, pod("p", schedulingGates=[{"name": "x.io/g"}]))
        (condition,) = created["status"]["conditions"]
        assert (condition["status"], condition["reason"]) == ("False", "SchedulingGated")

    async def test_can_be_taken_away_only(self, client: Client) -> None:
        gates = [{"name": "x.io/g"}, {"name": "x.io/h"}]
        await client.create(PODS, pod("p", schedulingGates=gates))
        answer = await client.patch(f"{PODS}/p", {"spec": {"schedulingGates": gates[:1]}})
        assert answer.body["spec"]["schedulingGates"] == gates[:1]
        answer = await client.patch(f"{PODS}/p", {"spec": {"schedulingGates": gates}})
        assert answer.status == 422
        assert "only deletion is allowed, but found new scheduling gate 'x.io/h'" in answer.message

    async def test_let_the_node_selector_change(self, client: Client) -> None:
        await client.create(PODS, pod("p", schedulingGates=[{"name": "x.io/g"}]))
        patch = {"spec": {"nodeSelector": {"a": "b"}, "schedulingGates": None}}
        assert (await client.patch(f"{PODS}/p", patch)).status == 200
        patch = {"spec": {"nodeSelector": {"a": "c"}}}
        assert (await client.patch(f"{PODS}/p", patch)).status == 422


@pytest.mark.parametrize(
    ("patch", "status"),
    [
        ({"containers": [{"name": "c", "image": "new"}]}, 200),
        ({"activeDeadlineSeconds": 5}, 200),
        ({"tolerations": [{"key": "k", "operator": "Exists"}]}, 422),
        ({"containers": [{"name": "c", "tty": True}]}, 422),
        ({"nodeName": "n"}, 422),
        ({"schedulerName": "other"}, 422),
        ({"priority": 4}, 422),
    ],
)
async def test_what_may_change_in_a_spec(client: Client, patch, status) -> None:
    await client.create(PODS, pod("p", tolerations=[{"key": "own", "operator": "Exists"}]))
    answer = await client.patch(f"{PODS}/p", {"spec": patch}, STRATEGIC)
    assert answer.status == status
    if status == 422:
        assert "pod updates may not change fields other than" in answer.message


async def test_tolerations_may_be_added(client: Client) -> None:
    created = await client.create(PODS, pod("p"))
    tolerations = [*created["spec"]["tolerations"], {"key": "k", "operator": "Exists"}]
    answer = await client.patch(f"{PODS}/p", {"spec": {"tolerations": tolerations}})
    assert answer.body["spec"]["tolerations"] == tolerations
    assert answer.body["metadata"]["generation"] == 2


async def test_putting_the_manifest_again_changes_nothing(client: Client) -> None:
    created = await client.create(PODS, pod("p"))
    assert (await client.put(f"{PODS}/p", pod("p") | {"status": {"phase": "Odd"}})).body == created


class TestDeletion:
    async def test_unbound_pods_go_at_once(self, client: Client) -> None:
        await client.create(PODS, pod("p"))
        async with client.watch(PODS) as watch:
            assert await watch.seen() == ("ADDED", "p")
            answer = await client.delete(f"{PODS}/p")
            assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 0
            assert await watch.seen() == ("MODIFIED", "p")
            assert await watch.seen() == ("DELETED", "p")
        assert (await client.get(f"{PODS}/p")).status == 404

    async def test_bound_pods_get_their_grace(
        self, client: Client, cluster: EmbeddedCluster
    ) -> None:
        await client.create(PODS, pod("p", nodeName="n", terminationGracePeriodSeconds=45))
        metadata = (await client.delete(f"{PODS}/p")).body["metadata"]
        assert metadata["deletionGracePeriodSeconds"] == 45
        assert metadata["generation"] == 2
        shorter = (await client.delete(f"{PODS}/p", {"gracePeriodSeconds": 5})).body["metadata"]
        assert shorter["deletionGracePeriodSeconds"] == 5
        assert shorter["deletionTimestamp"] < metadata["deletionTimestamp"]
        longer = (await client.delete(f"{PODS}/p", gracePeriodSeconds="60")).body["metadata"]
        assert longer == shorter
        assert (await client.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})).status == 200
        assert (await client.get(f"{PODS}/p")).status == 404

    async def test_finished_pods_go_at_once(self, client: Client) -> None:
        await client.create(PODS, pod("p", nodeName="n"))
        await client.patch(f"{PODS}/p/status", {"status": {"phase": "Succeeded"}})
        await client.delete(f"{PODS}/p")
        assert (await client.get(f"{PODS}/p")).status == 404

    async def test_finalizers_outlast_the_grace(self, client: Client) -> None:
        held = pod("p", nodeName="n")
        held["metadata"]["finalizers"] = ["x.io/y"]
        await client.create(PODS, held)
        await client.delete(f"{PODS}/p")
        await client.patch(f"{PODS}/p", {"metadata": {"finalizers": None}})
        assert (await client.get(f"{PODS}/p")).status == 200
        await client.patch(f"{PODS}/p", {"metadata": {"finalizers": ["x.io/y"]}})
        await client.delete(f"{PODS}/p", gracePeriodSeconds="0")
        assert (await client.get(f"{PODS}/p")).status == 404

    async def test_grace_must_be_a_number(self, client: Client) -> None:
        await client.create(PODS, pod("p"))
        assert (await client.delete(f"{PODS}/p", gracePeriodSeconds="soon")).status == 400

    async def test_a_collection(self, client: Client) -> None:
        await client.create(PODS, pod("a"))
        await client.create(PODS, pod("b", nodeName="n"))
        answer = await client.delete(PODS, {"gracePeriodSeconds": 0})
        assert [item["metadata"]["name"] for item in answer.body["items"]] == ["a", "b"]
        assert await client.names(PODS) == []


async def test_there_are_no_logs(client: Client) -> None:
    await client.create(PODS, pod("p"))
    answer = await client.get(f"{PODS}/p/log")
    assert answer.status == 400
    assert "only pretend to run" in answer.message
