"""The rights that the chart gives: enough for every request that the scheduler makes, and for none that it does not
make.

The list of requests is made three times: as a table here, from what the program says that it watches, and by a
scheduler that runs with the rendered rights and configuration behind a gate that enforces them. They must be the same.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from app.kube.client import KubeClient
from app.kube.errors import NotFound
from app.kube.event_series import ObjectRef
from app.kube.events import EventRecorder
from app.kube.kubeconfig import load_connection
from app.kube.reviews import Reviews, User
from app.plugins.registry import IN_TREE
from app.scheduler import kinds
from tests.helm.chart import EXAMPLES, NAMESPACE, RELEASE, VALUES, Helm, Object, Rendered
from tests.helm.gate import Gate
from tests.helm.rbac import Access, allows, granted, needs, rules_of
from tests.whole.harness import WAIT_SECONDS, Cluster, Process, pod, running_cluster, wait_for

READS: Final = {
    "": (
        *("pods", "nodes", "namespaces", "services", "replicationcontrollers"),
        *("persistentvolumes", "persistentvolumeclaims"),
    ),
    "apps": ("replicasets", "statefulsets"),
    "policy": ("poddisruptionbudgets",),
    "storage.k8s.io": (
        *("storageclasses", "csinodes", "csidrivers", "csistoragecapacities"),
        "volumeattachments",
    ),
    "resource.k8s.io": ("deviceclasses", "devicetaintrules", "resourceclaims", "resourceslices"),
}
WATCHED: Final = {
    (verb, group, resource)
    for group, resources in READS.items()
    for resource in resources
    for verb in ("list", "watch")
}
#: Of pod groups, whose kinds few servers have: the scheduler also runs without these rights.
GROUPS: Final = {
    *(
        (verb, f"scheduling.{domain}", "podgroups")
        for verb in ("list", "watch")
        for domain in ("k8s.io", "x-k8s.io")
    ),
    *(("patch", f"scheduling.{domain}", "podgroups/status") for domain in ("k8s.io", "x-k8s.io")),
}
GROUPS_READ: Final = {access for access in GROUPS if access[0] != "patch"}
WRITTEN: Final = {
    ("get", "", "pods"),
    ("create", "", "pods/binding"),
    ("patch", "", "pods/status"),
    ("delete", "", "pods"),
    ("patch", "", "persistentvolumes"),
    ("patch", "", "persistentvolumeclaims"),
    ("create", "events.k8s.io", "events"),
    ("patch", "events.k8s.io", "events"),
}
#: What is done to claims.
DEVICES: Final = {
    *((verb, "resource.k8s.io", "resourceclaims") for verb in ("get", "create", "patch", "delete")),
    ("patch", "resource.k8s.io", "resourceclaims/status"),
    ("update", "resource.k8s.io", "resourceclaims"),
}
#: For claims that take no patch: those of which the API server keeps bytes that JSON does not carry.
REWRITTEN: Final = {("update", "resource.k8s.io", "resourceclaims")}
#: No object, but the right to write in a claim's status who has which devices
#: (docs/spec/plugins/dynamic-resources.md#rights).
GIVING_DEVICES: Final = {("patch", "resource.k8s.io", "resourceclaims/binding")}
REVIEWED: Final = {
    ("create", "authentication.k8s.io", "tokenreviews"),
    ("create", "authorization.k8s.io", "subjectaccessreviews"),
}
#: When somebody asks what would happen: the scheduler also runs without this right.
ASKED: Final = {("list", "scheduling.k8s.io", "priorityclasses")}
LEASE: Final = Access("", "coordination.k8s.io", "leases", NAMESPACE, RELEASE)
ELECTED: Final = {
    ("create", LEASE.group, LEASE.resource),
    ("get", LEASE.group, LEASE.resource),
    ("update", LEASE.group, LEASE.resource),
    ("watch", LEASE.group, LEASE.resource),
    ("create", "", "events"),
}


def rights(rendered: Rendered) -> list[tuple[str, Object]]:
    return list(rules_of(rendered.objects, rendered.pod["serviceAccountName"], NAMESPACE))


def rights_of_shadow(rendered: Rendered) -> list[tuple[str, Object]]:
    """Those of its own role: the other one comes with the cluster."""
    (role,) = rendered.all("ClusterRole")
    return [("", rule) for rule in role["rules"]]


# ------------------------------------------------------------ the table


def test_the_rights_are_those_of_the_table(helm: Helm) -> None:
    rules = rights(helm.render())
    everywhere = [each for each in rules if each[0] == ""]
    table = WATCHED | GROUPS | WRITTEN | DEVICES | GIVING_DEVICES | REVIEWED | ASKED
    assert granted(everywhere) == table
    assert granted([each for each in rules if each[0] == NAMESPACE]) == ELECTED
    assert len(rules) == len(everywhere) + 3


def test_the_table_has_every_kind_that_is_watched() -> None:
    paths = [
        kinds.pods(keep_raw=False, keep_bound_raw=False).path,
        kinds.nodes(keep_raw=False).path,
    ]
    paths += [
        kind.path
        for _, kind in kinds.others(
            set(IN_TREE), foreign=True, features=(*kinds.GROUP_GATES, kinds.TAINT_RULES)
        )
    ]
    asked = {needs("GET", path + query) for path in paths for query in ("", "?watch=true")}
    assert {access.kind for access in asked} == WATCHED | GROUPS_READ


def test_a_shadow_only_reads(helm: Helm) -> None:
    """Its one other right is to ask who may read its metrics."""
    rendered = helm.render({"mode": "shadow"})
    (role,) = rendered.all("ClusterRole")
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    assert granted(rights_of_shadow(rendered)) >= WATCHED | GROUPS_READ
    assert rendered.all("Role") == rendered.all("RoleBinding") == []
    bound = [each["roleRef"]["name"] for each in rendered.all("ClusterRoleBinding")]
    assert sorted(bound) == sorted([role["metadata"]["name"], "system:auth-delegator"])
    without = helm.render({"mode": "shadow", "shadow.reviews": False})
    assert len(without.all("ClusterRoleBinding")) == 1
    assert rendered.deployment["replicas"] == 1


def test_only_one_s_own_lease_can_be_touched(helm: Helm) -> None:
    rules = rights(helm.render())

    def may(verb: str, **change: str) -> bool:
        named = {"namespace": NAMESPACE, "name": RELEASE, **change}
        return allows(rules, Access(verb, LEASE.group, LEASE.resource, **named))

    assert may("get")
    assert may("update")
    assert may("watch")
    assert may("create", name="")
    assert not may("get", name="kube-scheduler")
    assert not may("update", name="kube-scheduler")
    assert not may("update", namespace="default")
    assert not may("watch", name="")
    assert not may("list", name="")
    assert not may("delete")


def test_nothing_is_reviewed_where_nothing_is_served(helm: Helm) -> None:
    assert not granted(rights(helm.render({"securePort": 0}))) & (REVIEWED | ASKED)


@pytest.mark.parametrize("file", [*VALUES, *EXAMPLES], ids=lambda file: file.stem)
def test_the_rights_suffice_whatever_the_values(helm: Helm, file: Path) -> None:
    rendered = helm.render({}, "--values", str(file))
    if not rendered.all("ClusterRole"):
        assert "rbac" in file.read_text()
        return
    if rendered.container["args"][0] == "shadow":
        assert {
            Access(*kind)
            for kind in WATCHED
            if not allows(rights_of_shadow(rendered), Access(*kind))
        } == set()
        return
    rules, election = rights(rendered), rendered.config["leaderElection"]
    wanted = {Access(*kind) for kind in WATCHED | WRITTEN}
    if "--secure-port=0" not in rendered.container["args"]:
        wanted |= {Access(*kind) for kind in REVIEWED}
    if election["leaderElect"]:
        names = {"create": ""}
        wanted |= {
            Access(
                *kind, election["resourceNamespace"], names.get(kind[0], election["resourceName"])
            )
            for kind in ELECTED
        }
    assert {access for access in wanted if not allows(rules, access)} == set()


def test_rules_of_one_s_own_are_added(helm: Helm) -> None:
    rules = rights(helm.render({}, "--values", str(VALUES[0].parent / "everything.yaml")))
    assert allows(rules, Access("watch", "example.com", "gpus"))
    assert allows(rules, Access("get", "", "configmaps", NAMESPACE, "gpu-plugin"))
    assert not allows(rules, Access("get", "", "configmaps", NAMESPACE, "other"))
    assert not allows(rules, Access("get", "", "configmaps", "default", "gpu-plugin"))


@pytest.mark.parametrize(
    ("value", "may", "may_not"),
    [
        (
            "rbac.metricsReaders",
            [("get", "/metrics"), ("get", "/metrics/slis"), ("get", "/metrics/resources")],
            [("delete", "/metrics"), ("get", "/configz")],
        ),
        (
            "rbac.requeueCallers",
            [("post", "/extenders/requeue")],
            [("get", "/metrics"), ("post", "/debug/queue")],
        ),
    ],
)
def test_others_get_what_they_are_named_for(
    helm: Helm, value: str, may: list[tuple[str, str]], may_not: list[tuple[str, str]]
) -> None:
    subject = {"kind": "ServiceAccount", "name": "other", "namespace": "monitoring"}
    rendered = helm.render({value: [subject]})
    rules = list(rules_of(rendered.objects, "other", "monitoring"))
    assert all(allows(rules, Access(verb, path=path)) for verb, path in may)
    assert not any(allows(rules, Access(verb, path=path)) for verb, path in may_not)
    assert rights(rendered) == rights(helm.render())


def test_kube_scheduler_s_own_rights_suffice() -> None:
    """Which is what a static pod in its place has. Its lease is the one named kube-scheduler."""
    wanted = {Access(*kind) for kind in WATCHED | WRITTEN | DEVICES | GIVING_DEVICES | REVIEWED}
    wanted |= {
        Access(*kind, NAMESPACE, "" if kind[0] == "create" else "kube-scheduler")
        for kind in ELECTED
    }
    assert {access for access in wanted if not allows(KUBE_SCHEDULER, access)} == set()


def rule(groups: str, resources: str, verbs: str, *names: str) -> tuple[str, Object]:
    """A rule for everywhere; lists are words, ``core`` is the group without a name."""
    found: Object = {
        "apiGroups": ["" if group == "core" else group for group in groups.split()],
        "resources": resources.split(),
        "verbs": verbs.split(),
    }
    return "", {**found, "resourceNames": list(names)} if names else found


READ: Final = "get list watch"
#: The ClusterRoles system:kube-scheduler and system:volume-scheduler (docs/spec/rbac.md), as far as they matter.
KUBE_SCHEDULER: Final = [
    rule("core events.k8s.io", "events", "create update patch"),
    rule("resource.k8s.io", "deviceclasses devicetaintrules resourceslices", READ),
    rule("resource.k8s.io", "resourceclaims", f"{READ} update patch create delete"),
    rule("resource.k8s.io", "resourceclaims/status", f"{READ} update patch"),
    rule("resource.k8s.io", "resourceclaims/binding", "update patch"),
    rule("coordination.k8s.io", "leases", "create"),
    rule("coordination.k8s.io", "leases", f"{READ} update", "kube-scheduler"),
    rule("core", "nodes services replicationcontrollers namespaces", READ),
    rule("core", "pods", f"{READ} delete"),
    rule("core", "pods/binding bindings", "create"),
    rule("core", "pods/status", "patch update"),
    rule("apps extensions", "replicasets", READ),
    rule("apps", "statefulsets", READ),
    rule("policy", "poddisruptionbudgets", READ),
    rule("core", "persistentvolumes persistentvolumeclaims", f"{READ} update patch"),
    rule("authentication.k8s.io", "tokenreviews", "create"),
    rule("authorization.k8s.io", "subjectaccessreviews", "create"),
    rule("storage.k8s.io", "csinodes volumeattachments csidrivers csistoragecapacities", READ),
    rule("storage.k8s.io", "storageclasses", READ),
]


# ------------------------------------------------------------ the evaluation itself


@pytest.mark.parametrize(
    ("request_line", "access"),
    [
        ("GET /api/v1/pods", Access("list", "", "pods")),
        ("GET /api/v1/pods?watch=true&limit=5", Access("watch", "", "pods")),
        ("GET /api/v1/pods?watch=false", Access("list", "", "pods")),
        ("GET /api/v1/namespaces", Access("list", "", "namespaces")),
        ("GET /api/v1/namespaces/a", Access("get", "", "namespaces", "", "a")),
        ("GET /api/v1/namespaces/a/pods/b", Access("get", "", "pods", "a", "b")),
        ("PATCH /api/v1/namespaces/a/pods/b/status", Access("patch", "", "pods/status", "a", "b")),
        ("POST /apis/events.k8s.io/v1/namespaces/a/events", Access("create", "events.k8s.io", "events", "a")),
        ("DELETE /api/v1/namespaces/a/pods", Access("deletecollection", "", "pods", "a")),
        ("DELETE /api/v1/nodes/b", Access("delete", "", "nodes", "", "b")),
        (
            "GET /apis/coordination.k8s.io/v1/namespaces/a/leases?watch=1&fieldSelector=metadata.name%3Db",
            Access("watch", "coordination.k8s.io", "leases", "a", "b"),
        ),
        ("GET /apis/events.k8s.io/v1", Access("get", path="/apis/events.k8s.io/v1")),
        ("GET /version", Access("get", path="/version")),
    ],
)  # fmt: skip
def test_requests_are_read_as_the_api_server_reads_them(request_line: str, access: Access) -> None:
    assert needs(*request_line.split()) == access


@pytest.mark.parametrize(
    ("rule", "access", "allowed"),
    [
        ({"resources": ["pods"]}, Access("get", "", "pods", "a", "b"), True),
        ({"resources": ["*"]}, Access("get", "", "pods", "a", "b"), True),
        ({"resources": ["pods"]}, Access("get", "", "pods/status", "a", "b"), False),
        ({"resources": ["*/status"]}, Access("get", "", "pods/status", "a", "b"), True),
        ({"resources": ["pods"]}, Access("list", "", "pods"), False),
        ({"resources": ["pods"]}, Access("get", "apps", "pods"), False),
        ({"resources": ["pods"], "resourceNames": ["b"]}, Access("get", "", "pods", "a", "b"), True),
        ({"resources": ["pods"], "resourceNames": ["c"]}, Access("get", "", "pods", "a", "b"), False),
        ({"nonResourceURLs": ["/metrics"]}, Access("get", path="/metrics/slis"), False),
        ({"nonResourceURLs": ["/metrics*"]}, Access("get", path="/metrics/slis"), True),
        ({"resources": ["*"]}, Access("get", path="/metrics"), False),
    ],
)  # fmt: skip
def test_rules_are_applied_as_the_api_server_applies_them(
    rule: dict[str, Any], access: Access, allowed: bool
) -> None:
    complete = {"verbs": ["get"], "apiGroups": [""], **rule}
    assert allows([("", complete)], access) is allowed
    assert allows([("elsewhere", complete)], access) is False


# ------------------------------------------------------------ a scheduler with these rights

QUICK: Final = {
    "leaderElection": {"leaseDuration": "2s", "renewDeadline": "1500ms", "retryPeriod": "200ms"},
    "clientConnection": {"qps": 1000, "burst": 1000},
}
CLAIMS: Final = "/api/v1/namespaces/default/persistentvolumeclaims"
PODS: Final = "/api/v1/namespaces/default/pods"
DEVICE_CLAIMS: Final = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


@pytest.fixture(scope="module")
def rendered(helm: Helm) -> Rendered:
    return helm.render(QUICK)


@pytest.fixture(scope="module")
def gate(rendered: Rendered, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    """A gate with the rendered rights, once the scheduler behind it has done all that it can."""
    folder = tmp_path_factory.mktemp("rbac")
    config = folder / "scheduler.yaml"
    config.write_text(rendered.config_text)
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(
            running_cluster(folder, "--nodes=2", "--node-cpu=4", "--node-devices=1")
        )
        gate = Gate(cluster.url, rights(rendered))
        stack.enter_context(gate.open())
        stack.callback(cluster.process.kill)
        cluster.call("POST", LEASES, lease_of_another())
        flags = ("--master", gate.url, "--secure-port=0")
        process = Process(["app", "run", f"--config={config}", *flags], folder / "log")
        stack.callback(process.kill)
        put_to_work(cluster, gate)
        asyncio.run(do_what_is_rare(gate.url))
        yield gate


def put_to_work(cluster: Cluster, gate: Gate) -> None:
    """Has the scheduler make each of its requests at least once."""

    def asked(*kind: str) -> None:
        wait_for(f"{kind}; denied: {gate.denied}", lambda: kind in gate.kinds() or gate.denied)

    asked("watch", LEASE.group, LEASE.resource)
    cluster.call("DELETE", f"{LEASES}/{RELEASE}")
    asked("update", LEASE.group, LEASE.resource)
    cluster.debug("faults", {"path": "/binding$", "drop_answer": True})
    fill(cluster)
    asked("get", "", "pods")
    asked("create", "events.k8s.io", "events")
    for name in volumes(cluster):
        claim = {"persistentVolumeClaim": {"claimName": name}}
        cluster.call("POST", PODS, small(f"with-{name}", volumes=[{"name": "v", **claim}]))
    asked("patch", "", "persistentvolumes")
    asked("patch", "", "persistentvolumeclaims")
    ask_for_devices(cluster)
    for kind in DEVICES - REWRITTEN:
        asked(*kind)
    preempt(cluster)
    asked("delete", "", "pods")
    cluster.call("POST", PODS, small("too-big", cpu="64"))
    asked("patch", "", "pods/status")


def lease_of_another() -> Object:
    spec = {"holderIdentity": "another", "leaseDurationSeconds": 600, "leaseTransitions": 0}
    times = dict.fromkeys(("acquireTime", "renewTime"), "2026-01-01T00:00:00.000000Z")
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": RELEASE},
        "spec": {**spec, **times},
    }


def small(name: str, **spec: Any) -> Object:
    return pod(name, schedulerName=RELEASE, **spec)


def fill(cluster: Cluster) -> None:
    """Pods of 3 CPUs on both nodes of 4."""
    for number in range(2):
        cluster.call("POST", PODS, small(f"full-{number}", cpu="3"))
    wait_for("both bound", lambda: cluster.all_bound(2))


def volumes(cluster: Cluster) -> list[str]:
    """Claims that wait for their pods: one for a volume that exists, one for a provisioner."""
    hosts = [
        node["metadata"]["labels"]["kubernetes.io/hostname"]
        for node in cluster.call("GET", "/api/v1/nodes")["items"]
    ]
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": hosts}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    classes = {"local": "kubernetes.io/no-provisioner", "made": "example.com/provisioner"}
    common = {"accessModes": ["ReadWriteOnce"]}
    for name, provisioner in classes.items():
        storage_class = {
            "metadata": {"name": name},
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
            "reclaimPolicy": "Delete",
        }
        cluster.call("POST", "/apis/storage.k8s.io/v1/storageclasses", storage_class)
        request = {"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": name}
        claim = {"metadata": {"name": name}, "spec": {**common, **request}}
        cluster.call("POST", CLAIMS, claim)
    spec = {
        **common,
        "capacity": {"storage": "1Gi"},
        "storageClassName": "local",
        "local": {"path": "/disk"},
        "nodeAffinity": affinity,
    }
    path = "/api/v1/persistentvolumes"
    volume = cluster.call("POST", path, {"metadata": {"name": "disk"}, "spec": spec})
    cluster.call("PUT", f"{path}/disk/status", volume | {"status": {"phase": "Available"}})
    return list(classes)


def ask_for_devices(cluster: Cluster) -> None:
    """A pod whose extended resource is a device: its claim is made, changes meanwhile, and goes when the binding is
    refused."""
    changed = {"method": "PATCH", "path": "/resourceclaims/[^/]+/status$", "status": 409}
    cluster.debug("faults", changed | {"reason": "Conflict"})
    refused = {"path": "/pods/with-device/binding$", "status": 403, "reason": "Forbidden"}
    cluster.debug("faults", refused)
    asking = small("with-device")
    device = {"deviceclass.resource.kubernetes.io/gpu.example.com": "1"}
    resources = asking["spec"]["containers"][0]["resources"]
    resources |= {"requests": resources["requests"] | device, "limits": device}
    cluster.call("POST", PODS, asking)


def preempt(cluster: Cluster) -> None:
    priority = {"metadata": {"name": "urgent"}, "value": 1000}
    cluster.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", priority)
    cluster.call("POST", PODS, small("urgent", cpu="3", priorityClassName="urgent"))


async def do_what_is_rare(server: str) -> None:
    """What takes somebody who looks at the endpoints, an event that occurs again, or a server that speaks protobuf of
    claims."""
    rng = np.random.default_rng(1)
    async with KubeClient(load_connection(master=server, wall=float), agent="test") as client:
        reviews = Reviews(client, rng)
        await reviews.who_has("token")
        await reviews.may(User("somebody"), "get", "/metrics")
        with contextlib.suppress(NotFound):
            await client.request("PUT", f"{DEVICE_CLAIMS}/gone", body=b"{}")
        recorder = EventRecorder(client, host="test", rng=rng)
        running = asyncio.create_task(recorder.run())
        for now in (1.0, 2.0):
            about = ObjectRef("Pod", "v1", "full-0", "default")
            recorder.record(about, **OCCURRENCE, now=now)
            assert await recorder.drain(WAIT_SECONDS)
        running.cancel()
        await asyncio.wait([running])


OCCURRENCE: Final = {
    "type": "Warning",
    "reason": "FailedScheduling",
    "action": "Scheduling",
    "note": "again",
    "reporting_controller": RELEASE,
}


def test_a_scheduler_is_never_denied_anything(gate: Gate) -> None:
    assert gate.denied == frozenset()


def test_a_scheduler_asks_for_nothing_but_what_is_in_the_table(gate: Gate) -> None:
    # The gate's server is of 1.36.
    newer = {(verb, "resource.k8s.io", "devicetaintrules") for verb in ("list", "watch")}
    table = WATCHED | WRITTEN | DEVICES | REVIEWED | ELECTED
    assert gate.kinds() - GROUPS == table - newer
    others = {access.path for access in gate.asked if access.path}
    assert others - {"/apis/scheduling.x-k8s.io/v1alpha1", "/apis", "/version"} == {
        "/apis/events.k8s.io/v1"
    }


def test_a_scheduler_touches_no_lease_but_its_own(gate: Gate) -> None:
    asked = {access for access in gate.asked if access.resource == LEASE.resource}
    assert {access.namespace for access in asked} == {NAMESPACE}
    assert {access.name for access in asked if access.verb != "create"} == {RELEASE}
