"""Pods get the devices that they ask for: kubectl, the embedded cluster and the scheduler, each a process of its
own.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.whole.harness import Schedulers, pod, running_cluster, wait_for
from tests.whole.kubectl import NEEDS_KUBECTL, TIMEOUT_SECONDS, Kubectl, as_list

pytestmark = [pytest.mark.whole, NEEDS_KUBECTL]

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "devices.yaml"
CLASS = "gpu.example.com"
NODES, PER_NODE = 3, 2


@pytest.fixture
def kubectl(tmp_path: Path) -> Iterator[Kubectl]:
    """A cluster of three nodes with two devices each, and a scheduler at work."""
    with running_cluster(tmp_path, f"--nodes={NODES}", f"--node-devices={PER_NODE}") as cluster:
        schedulers = Schedulers(cluster, tmp_path)
        schedulers.start("--leader-elect=false")
        try:
            yield Kubectl(cluster.kubeconfig, tmp_path)
        finally:
            schedulers.end()


def template(name: str, **wish: Any) -> dict[str, Any]:
    request = {"name": "gpu", "exactly": {"deviceClassName": CLASS, **wish}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def bad_class() -> dict[str, Any]:
    """Devices have a name, but none that expressions see."""
    selector = {"cel": {"expression": "device.name == 'gpu-0'"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "bad"},
        "spec": {"selectors": [selector]},
    }


def asking(name: str, source: str) -> dict[str, Any]:
    return pod(name, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": source}])


def wait_ready(kubectl: Kubectl, *names: str) -> None:
    pods = [f"pod/{name}" for name in names]
    kubectl("wait", *pods, "--for=condition=Ready", f"--timeout={TIMEOUT_SECONDS}s")


def where(kubectl: Kubectl) -> dict[str, str]:
    """pod -> node; empty for those that are pending."""
    items = kubectl.json("get", "pods")["items"]
    return {item["metadata"]["name"]: item["spec"].get("nodeName", "") for item in items}


def devices(kubectl: Kubectl) -> dict[str, list[tuple[str, str]]]:
    """pod -> the (pool, device) pairs that are allocated for it and reserved."""
    found: dict[str, list[tuple[str, str]]] = {}
    for claim in kubectl.json("get", "resourceclaims")["items"]:
        for consumer in claim["status"].get("reservedFor", ()):
            results = claim["status"]["allocation"]["devices"]["results"]
            found[consumer["name"]] = [(each["pool"], each["device"]) for each in results]
    return found


def why_pending(kubectl: Kubectl, name: str) -> str:
    """The message of the condition PodScheduled while it is false."""
    path = '{.status.conditions[?(@.reason=="Unschedulable")].message}'
    return kubectl("get", "pod", name, "-o", f"jsonpath={path}")


def test_the_example(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(EXAMPLE))
    wait_ready(kubectl, "alone", "left", "right")
    nodes, given = where(kubectl), devices(kubectl)
    assert [pool for pool, _ in given["alone"]] == [nodes["alone"]]
    assert given["left"] == given["right"]
    assert sorted(given["left"]) == [(nodes["left"], "gpu-0"), (nodes["left"], "gpu-1")]
    assert nodes["left"] == nodes["right"] != nodes["alone"]
    claims = {row[0]: row[1] for row in kubectl.rows("get", "resourceclaims")}
    assert claims.pop("pair") == "allocated,reserved"
    ((made, state),) = claims.items()
    assert made.startswith("alone-gpu-")
    assert state == "allocated,reserved"
    assert "delete-protection" in kubectl("describe", "resourceclaim", "pair")
    refused = kubectl.run("apply", "-f", "-", stdin=as_list(bad_class()))
    assert refused.code == 1
    assert "spec.selectors[0].cel.expression: Invalid value" in refused.err
    assert "undefined field 'name'" in refused.err


def test_every_device_is_given_once_and_again_when_it_is_free(kubectl: Kubectl) -> None:
    names = [f"p-{number}" for number in range(NODES * PER_NODE)]
    kubectl.apply(template("one"), *(asking(name, "one") for name in names))
    wait_ready(kubectl, *names)
    given, nodes = devices(kubectl), where(kubectl)
    assert len({each for results in given.values() for each in results}) == NODES * PER_NODE
    assert all(pool == nodes[name] for name, ((pool, _),) in given.items())

    kubectl.apply(asking("late", "one"))
    wait_for("a refusal", lambda: why_pending(kubectl, "late"))
    assert why_pending(kubectl, "late").startswith(
        "0/3 nodes are available: 3 cannot allocate all claims."
    )
    kubectl("delete", "pod", "p-3", "--now")
    wait_ready(kubectl, "late")
    assert devices(kubectl)["late"] == given["p-3"]
    claims = kubectl("get", "resourceclaims", "-o", "name").splitlines()
    assert len(claims) == NODES * PER_NODE


def test_a_pod_waits_for_its_template_and_a_finished_one_gives_its_device_back(
    kubectl: Kubectl,
) -> None:
    all_of_a_node = template("all", count=PER_NODE)
    short = [asking(f"short-{number}", "all") for number in range(NODES)]
    for each in short:
        each["metadata"]["annotations"] = {"sim.aiokube-scheduler.io/run-for": "1s"}
    kubectl.apply(*short)
    reason = "FailedResourceClaimCreation"
    wait_for("a word on the template", lambda: reason in kubectl("describe", "pod", "short-0"))
    kubectl.apply(asking("next", "all"), all_of_a_node)
    wait_ready(kubectl, "next")
    ended = "--for=jsonpath={.status.phase}=Succeeded"
    pods = [f"pod/short-{number}" for number in range(NODES)]
    kubectl("wait", *pods, ended, f"--timeout={TIMEOUT_SECONDS}s")
    wait_for(
        "claims to go",
        lambda: len(kubectl("get", "resourceclaims", "-o", "name").splitlines()) == 1,
    )
    assert devices(kubectl).keys() == {"next"}
