"""The chart on a real API server: installed, run with the rights it gives, upgraded, rolled back, removed.

The API server's audit log shows that the scheduler is refused nothing, and that it makes use of every right but those
for what is rare.
"""

import contextlib
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from app.tools.subprocesses import reserved_port
from extenders.kit import BindRequest, Filtered, NodesRequest, make_app
from extenders.kit.testing import serving
from tests.helm.chart import CHART, NAMESPACE, RELEASE, ROOT, Helm
from tests.helm.rbac import Access, allows, granted, needs, rules_of
from tests.shell.sim import device_mistakes as devices
from tests.whole.harness import Process, pod, wait_for
from tests.whole.real import NEEDS_REAL, RealApiServer

pytestmark = [*NEEDS_REAL]

USER: Final = f"system:serviceaccount:{NAMESPACE}:{RELEASE}"
ACCOUNTS: Final = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
PODS: Final = "/api/v1/namespaces/default/pods"
CLAIMS: Final = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES: Final = "/api/v1/persistentvolumes"
LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
BUDGETS: Final = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
AT_ONCE: Final = {"terminationGracePeriodSeconds": 0}
UNLOVED: Final = "unloved"
#: Renewed often, and not lost by a machine that is slow.
ELECTION: Final = {"leaseDuration": "30s", "renewDeadline": "20s", "retryPeriod": "300ms"}

RESOURCE: Final = "/apis/resource.k8s.io/v1"
#: What an undisturbed scheduler does not do: look a pod up whose binding was not answered, and delete the claim that it
#: made for a pod that could not be bound. The third is never asked for: the API server looks it up when a claim is
#: given devices. Those to pod groups are not here: this API server does not have the kinds.
RARE: Final = {
    ("get", "", "pods"),
    ("delete", "resource.k8s.io", "resourceclaims"),
    ("patch", "resource.k8s.io", "resourceclaims/binding"),
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RealApiServer]:
    with RealApiServer(tmp_path).running() as running:
        running.create_nodes(3)
        yield running


def on_server(helm: Helm, server: RealApiServer, *arguments: str) -> None:
    where = ("--namespace", NAMESPACE, "--kubeconfig", str(server.kubeconfig))
    done = helm.run(*arguments, *where)
    assert done.returncode == 0, done.stderr


def installed(server: RealApiServer) -> list[str]:
    """Everything in the cluster that says it is the release's."""
    collections = [
        *("/api/v1/configmaps", "/api/v1/serviceaccounts", "/api/v1/services"),
        *("/apis/apps/v1/deployments", "/apis/policy/v1/poddisruptionbudgets"),
        *(
            f"/apis/rbac.authorization.k8s.io/v1/{kind}"
            for kind in ("clusterroles", "clusterrolebindings", "roles", "rolebindings")
        ),
    ]
    selector = f"?labelSelector=app.kubernetes.io/instance%3D{RELEASE}"
    return [
        f"{path}/{item['metadata']['name']}"
        for path in collections
        for item in server.call("GET", path + selector)["items"]
    ]


def token_of(server: RealApiServer, account: str = RELEASE) -> str:
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = server.call("POST", f"{ACCOUNTS}/{account}/token", request)
    token: str = answer["status"]["token"]
    return token


@contextlib.contextmanager
def released(
    helm: Helm, server: RealApiServer, folder: Path, *values: str, port: int = 0
) -> Iterator[Process]:
    """A scheduler with the rights and the configuration of a release with these values."""
    kubeconfig = folder / "scheduler.kubeconfig"
    own = f"config.clientConnection.kubeconfig={kubeconfig}"
    on_server(helm, server, "install", RELEASE, str(CHART), "--set", own, *values)
    assert server.write_kubeconfig("scheduler", token_of(server)) == kubeconfig
    config = folder / "scheduler.yaml"
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{RELEASE}"
    config.write_text(server.call("GET", path)["data"]["scheduler.yaml"])
    flags = [f"--config={config}", f"--secure-port={port}", "--bind-address=127.0.0.1"]
    scheduler = Process(["app", "run", *flags], folder / "log")
    try:
        yield scheduler
    finally:
        scheduler.kill()


def test_a_release_is_installed_upgraded_rolled_back_and_removed(
    helm: Helm, server: RealApiServer, tmp_path: Path
) -> None:
    with released(helm, server, tmp_path) as scheduler:
        assert len(installed(server)) == 9
        server.call("POST", PODS, small("first"))
        wait_for("a binding", lambda: server.all_bound(1))
        assert scheduler.stop() == 0
    on_server(helm, server, "upgrade", RELEASE, str(CHART), "--set", "replicaCount=1")
    assert len(installed(server)) == 8
    on_server(helm, server, "rollback", RELEASE, "1")
    assert len(installed(server)) == 9
    on_server(helm, server, "uninstall", RELEASE)
    assert installed(server) == []


# ---------------------------------------------------------------- rights


def small(name: str, **spec: Any) -> dict[str, Any]:
    return pod(name, schedulerName=RELEASE, **AT_ONCE, **spec)


def test_no_request_is_refused_and_no_right_is_idle(
    helm: Helm, server: RealApiServer, tmp_path: Path
) -> None:
    mine = make_app(filter=judge, bind=lambda request: bind(server, request))
    server.call("POST", LEASES, lease_of_another())
    with reserved_port() as port, serving(mine) as url:
        resource = {"name": "example.com/seat", "ignoredByScheduler": True}
        asked = {"filterVerb": "filter", "bindVerb": "bind", "nodeCacheCapable": True}
        extender = {"urlPrefix": url, **asked}
        given = {
            "config.extenders": [{**extender, "managedResources": [resource]}],
            "leaderElection": ELECTION,
        }
        values = [f"--set-json={name}={json.dumps(value)}" for name, value in given.items()]
        with released(helm, server, tmp_path, *values, port=port) as scheduler:
            put_to_work(server)
            wait_for("an answer", lambda: ask(port, "/metrics", token_of(server)))
            assert scheduler.stop() == 0
    log = scheduler.output()
    assert "forbidden" not in log.lower(), log
    audited = server.audited(USER)
    assert [e for e in audited if e["responseStatus"]["code"] in {401, 403}] == []
    used = {access_of(event) for event in audited}
    rules = list(rules_of(objects(server), RELEASE, NAMESPACE))
    assert {access for access in used if not allows(rules, access)} == set()
    unused = granted(rules) - {access.kind for access in used}
    assert {each for each in unused if not each[2].startswith("podgroups")} == RARE


def access_of(event: dict[str, Any]) -> Access:
    methods = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}
    return needs(methods.get(event["verb"], "GET"), event["requestURI"])


def objects(server: RealApiServer) -> list[dict[str, Any]]:
    """Roles and bindings as they are in the cluster; items of lists have no kind there."""
    kinds = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
    selector = f"?labelSelector=app.kubernetes.io/instance%3D{RELEASE}"
    return [
        {**item, "kind": kind}
        for kind in kinds
        for item in server.call(
            "GET", f"/apis/rbac.authorization.k8s.io/v1/{kind.lower()}s{selector}"
        )["items"]
    ]


def put_to_work(server: RealApiServer) -> None:
    """Has the scheduler wait, lead, bind in every way, refuse again and again, and preempt."""
    wait_for("it to wait for the lease", lambda: "watch" in verbs(server, "leases"))
    server.call("DELETE", f"{LEASES}/{RELEASE}")
    spread(server)
    server.call("POST", PODS, licensed("licensed"))
    bind_claims(server)
    give_devices(server)
    preempt(server)
    server.call("POST", PODS, licensed(UNLOVED))
    wait_for("a refusal", lambda: server.events("FailedScheduling"))
    # An extender's refusal may be over with any event; the same words again continue the same event.
    label = {"metadata": {"labels": {"new": "label"}}}
    server.call("PATCH", "/api/v1/nodes/node-0", label, "application/merge-patch+json")
    wait_for("another", lambda: "patch" in verbs(server, "events"))
    wait_for("all but one bound", lambda: len(unbound(server)) == 1)


def verbs(server: RealApiServer, resource: str) -> set[str]:
    return {
        event["verb"]
        for event in server.audited(USER)
        if event.get("objectRef", {}).get("resource") == resource
    }


def unbound(server: RealApiServer) -> list[str]:
    return [name for name, found in server.pods().items() if not found["spec"].get("nodeName")]


def lease_of_another() -> dict[str, Any]:
    spec = {"holderIdentity": "another", "leaseDurationSeconds": 600, "leaseTransitions": 0}
    times = dict.fromkeys(("acquireTime", "renewTime"), "2026-01-01T00:00:00.000000Z")
    return {"metadata": {"name": RELEASE}, "spec": {**spec, **times}}


def licensed(name: str) -> dict[str, Any]:
    """A pod that the extender is asked about."""
    made = small(name)
    seat = {"example.com/seat": "1"}
    made["spec"]["containers"][0]["resources"] = {"requests": seat, "limits": seat}
    return made


def judge(request: NodesRequest) -> Filtered:
    if request.pod.metadata.name == UNLOVED:
        return Filtered((), dict.fromkeys(request.names, "no seat is free"))
    return Filtered(request.names)


def bind(server: RealApiServer, request: BindRequest) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": request.node}
    metadata = {"name": request.pod_name, "uid": request.pod_uid}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    server.call("POST", f"{PODS}/{request.pod_name}/binding", body)


def spread(server: RealApiServer) -> None:
    selector = {"labelSelector": {"matchLabels": {"app": "web"}}}
    over_zones = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone"}
    constraint = {**selector, **over_zones, "whenUnsatisfiable": "DoNotSchedule"}
    term = {**selector, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    for number in range(3):
        each = small(f"web-{number}", topologySpreadConstraints=[constraint], affinity=apart)
        each["metadata"]["labels"] = {"app": "web"}
        server.call("POST", PODS, each)
    wait_for("spread pods", lambda: server.all_bound(3))
    assert len({each["spec"]["nodeName"] for each in server.pods().values()}) == 3


def bind_claims(server: RealApiServer) -> None:
    """One claim for a volume that exists, one for which a provisioner makes a volume; we are the controllers."""
    for name, provisioner in (("local", "kubernetes.io/no-provisioner"), ("made", "example.com/p")):
        storage_class = {"metadata": {"name": name}, "provisioner": provisioner}
        mode = {"volumeBindingMode": "WaitForFirstConsumer"}
        server.call("POST", "/apis/storage.k8s.io/v1/storageclasses", storage_class | mode)
        request = {"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": name}
        claim = {"accessModes": ["ReadWriteOnce"], **request}
        server.call("POST", CLAIMS, {"metadata": {"name": name}, "spec": claim})
    disk = server.call("POST", VOLUMES, volume("disk", "local"))
    server.call("PUT", f"{VOLUMES}/disk/status", disk | {"status": {"phase": "Available"}})
    for name in ("local", "made"):
        source = {"persistentVolumeClaim": {"claimName": name}}
        server.call("POST", PODS, small(f"with-{name}", volumes=[{"name": "v", **source}]))
    wait_for(
        "the disk to be claimed",
        lambda: server.call("GET", f"{VOLUMES}/disk")["spec"].get("claimRef"),
    )
    complete(server, "local", "disk")
    wait_for(
        "a node for the provisioner",
        lambda: "selected-node" in str(server.call("GET", f"{CLAIMS}/made")["metadata"]),
    )
    server.call("POST", VOLUMES, volume("new", "made"))
    complete(server, "made", "new")
    wait_for("pods with volumes", lambda: not {"with-local", "with-made"} & {*unbound(server)})


def give_devices(server: RealApiServer) -> None:
    """Two devices: one for a claim that only a whole update leaves as it was sent, one for an extended resource."""
    server.call("POST", f"{RESOURCE}/deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}})
    offer = devices.offering(devices.device("d-0"), devices.device("d-1"))
    slices = {"metadata": {"name": "gpus"}, "spec": offer | {"nodeName": "node-0"}}
    server.call("POST", f"{RESOURCE}/resourceslices", slices)
    # The blanks between its parameters are what JSON patches would lose.
    opaque = {"driver": devices.DRIVER, "parameters": {"mode": "slow", "share": 1}}
    wish = devices.asking(devices.request(deviceClassName="gpu"), config=[{"opaque": opaque}])
    claim = {"metadata": {"name": "gpu"}, "spec": wish}
    server.call("POST", f"{RESOURCE}/namespaces/default/resourceclaims", claim)
    claims = [{"name": "gpu", "resourceClaimName": "gpu"}]
    server.call("POST", PODS, small("with-claim", resourceClaims=claims))
    asking = small("with-gpu")
    gpu = {"deviceclass.resource.kubernetes.io/gpu": "1"}
    resources = asking["spec"]["containers"][0]["resources"]
    resources |= {"requests": resources["requests"] | gpu, "limits": gpu}
    server.call("POST", PODS, asking)
    wait_for("pods with devices", lambda: not {"with-claim", "with-gpu"} & {*unbound(server)})


def volume(name: str, storage_class: str) -> dict[str, Any]:
    """On node-0."""
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-0"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "storageClassName": storage_class,
        **({"local": {"path": "/disk"}, "nodeAffinity": affinity} if name == "disk" else {}),
        **({"hostPath": {"path": "/new"}} if name == "new" else {}),
    }
    return {"metadata": {"name": name}, "spec": spec}


def complete(server: RealApiServer, claim: str, volume_name: str) -> None:
    """What the controller of volumes does at the end."""
    path = f"{CLAIMS}/{claim}"
    reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": claim}
    uid = server.call("GET", path)["metadata"]["uid"]
    merge = "application/merge-patch+json"
    change = {"spec": {"claimRef": {**reference, "uid": uid}}}
    server.call("PATCH", f"{VOLUMES}/{volume_name}", change, merge)
    annotations = {"pv.kubernetes.io/bind-completed": "yes"}
    change = {"metadata": {"annotations": annotations}, "spec": {"volumeName": volume_name}}
    found = server.call("PATCH", path, change, merge)
    server.call("PUT", f"{path}/status", found | {"status": {"phase": "Bound"}})


def preempt(server: RealApiServer) -> None:
    """Fills all nodes with what a budget protects and what it does not, and needs room for one more."""
    for name, value in (("urgent", 1000), ("idle", -1)):
        priority = {"metadata": {"name": name}, "value": value}
        server.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", priority)
    for number in range(3):
        each = small(f"full-{number}", cpu="3", priorityClassName="idle")
        each["metadata"]["labels"] = {"app": "precious" if number else "cheap"}
        server.call("POST", PODS, each)
    wait_for("full nodes", lambda: not {f"full-{n}" for n in range(3)} & {*unbound(server)})
    selector = {"selector": {"matchLabels": {"app": "precious"}}}
    budget = {"metadata": {"name": "precious"}, "spec": {"minAvailable": "100%", **selector}}
    server.call("POST", BUDGETS, budget)
    where = server.pods()["full-0"]["spec"]["nodeName"]
    server.call("POST", PODS, small("urgent", cpu="3", priorityClassName="urgent"))
    wait_for("a preemption", lambda: "urgent" not in unbound(server))
    assert server.pods()["urgent"]["spec"]["nodeName"] == where
    assert {"full-1", "full-2"} <= server.pods().keys()


# ---------------------------------------------------------------- endpoints


def ask(port: int, path: str, token: str = "") -> int:
    return answer(port, path, token)[0]


def answer(port: int, path: str, token: str = "") -> tuple[int, str]:
    """(status, body); status 0 as long as nobody listens."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(f"https://127.0.0.1:{port}{path}")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=10, context=tls) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


def let_look(server: RealApiServer, account: str) -> None:
    """Gives an account the rights that docs/operations.md proposes."""
    guide = (ROOT / "docs" / "operations.md").read_text()
    texts = [each.split("```")[0] for each in guide.split("```yaml\n")[1:]]
    (role,) = [
        d for text in texts for d in yaml.safe_load_all(text) if d.get("kind") == "ClusterRole"
    ]
    name, group = role["metadata"]["name"], "rbac.authorization.k8s.io"
    server.call("POST", f"/apis/{group}/v1/clusterroles", role)
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}],
    }
    server.call("POST", f"/apis/{group}/v1/clusterrolebindings", binding)


def test_the_api_server_decides_who_sees_what(
    helm: Helm, server: RealApiServer, tmp_path: Path
) -> None:
    for account in ("prometheus", "nobody", "viewer"):
        server.call("POST", ACCOUNTS, {"metadata": {"name": account}})
    let_look(server, "viewer")
    readers = [{"kind": "ServiceAccount", "name": "prometheus", "namespace": NAMESPACE}]
    values = f"--set-json=rbac.metricsReaders={json.dumps(readers)}"
    with (
        reserved_port() as port,
        released(helm, server, tmp_path, values, port=port) as scheduler,
    ):
        server.call("POST", PODS, small("first"))
        wait_for("a binding", lambda: server.all_bound(1))
        reader, nobody, viewer = (
            token_of(server, name) for name in ("prometheus", "nobody", "viewer")
        )
        for path in ("/healthz", "/livez", "/readyz", "/readyz?verbose"):
            assert ask(port, path) == 200
        for path in ("/metrics", "/metrics/slis", "/metrics/resources", "/configz", "/debug/queue"):
            status, said = answer(port, path)
            refusal = f'forbidden: User "system:anonymous" cannot get path "{path}"'
            assert (status, json.loads(said)["message"]) == (403, refusal)
            assert ask(port, path, "made-up") == 401
            assert ask(port, path, nobody) == 403
            assert ask(port, path, reader) == (200 if path.startswith("/metrics") else 403)
            assert ask(port, path, viewer) == 200
            assert ask(port, path, server.token) == 200
        families = {
            family.name: family
            for family in text_string_to_metric_families(answer(port, "/metrics", reader)[1])
        }
        attempts = families["scheduler_schedule_attempts"].samples
        assert [s.value for s in attempts if s.labels.get("result") == "scheduled"] == [1.0]
        assert scheduler.stop() == 0
