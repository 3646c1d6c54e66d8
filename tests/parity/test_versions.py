"""One scenario for each rule that differs between versions of Kubernetes: without the rule it has another answer than
with it.

docs/differences.md shows the answers. Where the rules come from: docs/spec/kubernetes-1.37.md.
"""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from app.extender.chain import ExtenderChain
from app.framework.diagnosis import Diagnosis
from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.devices import (
    AllocationResult,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceSlice,
)
from app.model.features import RECORDED, RULES, Features, Rule
from app.model.objects import ObjectMeta
from app.model.pod import Pod
from app.model.status import SchedulingError
from app.observe.metrics import gauges
from app.observe.metrics.series import MetricFamilies
from app.scheduler.profiles import queue_plugins
from app.state.queue.hints import Hints
from app.state.queue.recorder import QueueRecorder
from app.state.scheduler_state import Change
from app.state.view import View
from app.wire.extender_v1 import Victims
from app.wire.kube import decoder_for
from tests.parity.cluster import Recorded
from tests.parity.test_cases import Onlooker, judge

Objects = dict[str, list[dict[str, Any]]]
PAGE = Path(__file__).parents[2] / "docs" / "differences.md"
GI = 1024**3


def world(features: Features, objects: Objects) -> Recorded:
    return Recorded(
        {"profiles": [{"schedulerName": "default-scheduler"}], "objects": objects}, features
    )


def node(name: str, cpu: str = "8", labels: Any = None, images: Any = None) -> dict[str, Any]:
    status = {"allocatable": {"cpu": cpu, "memory": "32Gi", "pods": "110"}, "images": images or []}
    given = {"kubernetes.io/hostname": name, **(labels or {})}
    return {"metadata": {"name": name, "labels": given}, "status": status}


def pod(name: str, cpu: str = "1", on: str = "", **more: Any) -> dict[str, Any]:
    labels, status = more.pop("labels", {}), more.pop("status", {})
    container = {"name": "c", "image": "app", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": "default", "uid": f"u-{name}", "labels": labels}
    spec = {"schedulerName": "default-scheduler", "containers": [container], "nodeName": on, **more}
    return {"metadata": metadata, "spec": spec, "status": status}


def feasible(cluster: Recorded, one: dict[str, Any]) -> str:
    found, diagnosis = judge(cluster.attempt(cluster.pod(one)), resolvable=True)
    return ", ".join(found) or diagnosis.message()


def scores(cluster: Recorded, one: dict[str, Any], plugin: str) -> str:
    attempt = cluster.attempt(cluster.pod(one))
    rows = attempt.find()
    parts = attempt.framework.scoring.plugin_scores(
        attempt.state, attempt.pod, attempt.memo, View(cluster.state.table, rows)
    )
    if plugin not in parts:
        return "no scores"
    names = attempt.names(rows)
    told = zip(names, parts[plugin].tolist(), strict=True)
    return ", ".join(f"{name} {score}" for name, score in told)


def preempt(cluster: Recorded, one: dict[str, Any]) -> tuple[Any, Diagnosis, Onlooker]:
    attempt = cluster.attempt(cluster.pod(one))
    found, diagnosis = judge(attempt, resolvable=True)
    assert not found
    effects = Onlooker(agrees=True)
    framework = attempt.framework
    result = asyncio.run(
        framework.commit.post_filter(attempt.state, attempt.pod, diagnosis, effects)
    )
    return result, diagnosis, effects


def storage_scores(features: Features) -> str:
    """A claim of 10 GiB, and two nodes whose drivers have 20 and 100 GiB left."""
    name = "local.csi.example"
    wait = {"provisioner": name, "volumeBindingMode": "WaitForFirstConsumer"}
    capacities = [
        {
            "metadata": {"name": f"on-{at}", "namespace": "kube-system"},
            "storageClassName": "local",
            "capacity": f"{size}Gi",
            "nodeTopology": {"matchLabels": {"kubernetes.io/hostname": at}},
        }
        for at, size in (("a", 20), ("b", 100))
    ]
    objects: Objects = {
        "Node": [node("a"), node("b")],
        "StorageClass": [{"metadata": {"name": "local"}, **wait}],
        "CSIDriver": [{"metadata": {"name": name}, "spec": {"storageCapacity": True}}],
        "CSIStorageCapacity": capacities,
        "PersistentVolumeClaim": [claim("data", "local")],
    }
    return scores(world(features, objects), pod("p", volumes=[volume("data")]), "VolumeBinding")


def claim(name: str, storage_class: str, volume_name: str = "") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"u-{name}"},
        "spec": {
            "storageClassName": storage_class,
            "volumeName": volume_name,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "10Gi"}},
        },
        "status": {"phase": "Pending"},
    }


def volume(name: str) -> dict[str, Any]:
    return {"name": name, "persistentVolumeClaim": {"claimName": name}}


def missing_driver(features: Features) -> str:
    """A claim of a driver that wants pods to be kept from nodes without it; only node a has it."""
    driver = "disk.csi.example"
    wait = {"provisioner": driver, "volumeBindingMode": "WaitForFirstConsumer"}
    objects: Objects = {
        "Node": [node("a"), node("b")],
        "StorageClass": [{"metadata": {"name": "disks"}, **wait}],
        "CSIDriver": [
            {"metadata": {"name": driver}, "spec": {"preventPodSchedulingIfMissing": True}}
        ],
        "CSINode": [
            {"metadata": {"name": "a"}, "spec": {"drivers": [{"name": driver, "nodeID": "a"}]}},
            {"metadata": {"name": "b"}, "spec": {"drivers": []}},
        ],
        "PersistentVolumeClaim": [claim("data", "disks")],
    }
    return feasible(world(features, objects), pod("p", volumes=[volume("data")]))


def image_volumes(features: Features) -> str:
    """A container with a large image and an image volume that no node has."""
    images = [{"names": ["app:latest"], "sizeBytes": 1000 * 1024**2}]
    cluster = world(features, {"Node": [node("a", images=images)]})
    extra = [{"name": "model", "image": {"reference": "model:1"}}]
    return scores(cluster, pod("p", volumes=extra), "ImageLocality")


def namespaces_once(features: Features) -> str:
    """Anti-affinity to the pods of namespaces without the label team; default has it, and a pod with such labels."""
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
    }
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    objects: Objects = {
        "Namespace": [{"metadata": {"name": "default", "labels": {"team": "a"}}}],
        "Node": [node("a"), node("b")],
        "Pod": [pod("there", on="a", labels={"app": "web"})],
    }
    return feasible(world(features, objects), pod("p", affinity=affinity))


def any_term_wakes(features: Features) -> str:
    """A pod with two anti-affinity terms; a pod goes that one of them selects."""
    terms = [
        {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"app": app}},
        }
        for app in ("web", "db")
    ]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    cluster = world(features, {"Node": [node("a")]})
    gone = cluster.pod(pod("there", on="a", labels={"app": "web"}))
    return woken(
        cluster, features, cluster.pod(pod("p", affinity=affinity)), "InterPodAffinity", gone
    )


def woken(
    cluster: Recorded,
    features: Features,
    waiting: Pod,
    plugin: str,
    old: Any,
    event: ClusterEvent = ClusterEvent(Resource.AssignedPod, Action.Delete),  # noqa: B008 - frozen
    new: Any = None,
) -> str:
    """Whether an event wakes a pod that the plugin has rejected."""
    plugins = queue_plugins(cluster.frameworks, features=features)
    hints = Hints(plugins.hints, QueueRecorder())
    matching = hints.matching(hints.interest(event), "default-scheduler", {plugin})
    asked = [each.hint is None or each.hint(waiting, old, new) for each in matching]
    return "wakes" if any(asked) else "stays"


def sums_of_resize(features: Features) -> str:
    """A pod whose containers go from 1 and 2 CPUs to 2 and 1, on a node with 4, and a pod that wants 1."""
    before = {"a": "1", "b": "2"}
    containers = [
        {"name": name, "resources": {"requests": {"cpu": cpu}}}
        for name, cpu in (("a", "2"), ("b", "1"))
    ]
    statuses = [
        {
            "name": name,
            "allocatedResources": {"cpu": cpu},
            "resources": {"requests": {"cpu": cpu}},
        }
        for name, cpu in before.items()
    ]
    there = pod("there", on="a", status={"containerStatuses": statuses})
    there["spec"]["containers"] = containers
    return feasible(world(features, {"Node": [node("a", "4")], "Pod": [there]}), pod("p"))


def budget(name: str, app: str, allowed: int) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {app: "yes"}} if app else {}},
        "status": {"disruptionsAllowed": allowed},
    }


def one_budget(features: Features) -> str:
    """Two victims of two budgets; the first violates one, and uses up the other if it counts there too."""
    objects: Objects = {
        "Node": [node("a", "2")],
        "Pod": [
            pod("v1", on="a", labels={"x": "yes", "y": "yes"}, priority=2),
            pod("v2", on="a", labels={"y": "yes"}, priority=1),
        ],
        "PodDisruptionBudget": [budget("one", "x", 0), budget("two", "y", 1)],
    }
    _, _, effects = preempt(world(features, objects), pod("p", "2", priority=10))
    assert effects.victims is not None
    return f"{effects.victims['a']['numPDBViolations']} violations"


def preemption_message(features: Features) -> str:
    """A pod that takes the place of another one."""
    objects: Objects = {"Node": [node("a", "1")], "Pod": [pod("v", on="a")]}
    result, diagnosis, _ = preempt(world(features, objects), pod("p", priority=10))
    return without_devices(diagnosis.message(result.status.message))


def without_devices(message: str) -> str:
    return message.replace("no new claims to deallocate, ", "")


def taints_wake_few(features: Features) -> str:
    """A pod that node affinity kept away, when a taint of a node has changed."""
    cluster = world(features, {"Node": [node("a")]})
    event = ClusterEvent(Resource.Node, Action.UpdateNodeTaint)
    return woken(cluster, features, cluster.pod(pod("p")), "NodeAffinity", None, event)


def own_events(features: Features) -> str:
    """The name of the event when a waiting pod's requests shrink."""
    cluster = world(features, {"Node": [node("a")]})
    plugins = queue_plugins(cluster.frameworks, features=features)
    hints = Hints(plugins.hints, QueueRecorder(), own_events=plugins.own_events)
    return hints.label(ClusterEvent(Resource.UnschedulablePod, Action.UpdatePodScaleDown), own=True)


def deleted_claims_wake(features: Features) -> str:
    """A pod that waits for devices, when a claim that has some is deleted."""
    cluster = world(features, {"Node": [node("a")]})
    gone = ResourceClaim(
        metadata=ObjectMeta(name="c", namespace="default"),
        status=ResourceClaimStatus(allocation=AllocationResult()),
    )
    event = ClusterEvent(Resource.ResourceClaim, Action.Delete)
    return woken(cluster, features, cluster.pod(pod("p")), "DynamicResources", gone, event)


def quiet_devices(features: Features) -> str:
    """A pod that fits nowhere and whose preemption does not help."""
    result, diagnosis, _ = preempt(world(features, {"Node": [node("a", "1")]}), pod("p", "2"))
    return diagnosis.message(result.status.message)


def device_taint_rules(features: Features) -> str:
    """A claim for a device, of which there is one, and a DeviceTaintRule for its driver."""
    taint = {"key": "broken", "effect": "NoSchedule"}
    rule = {"deviceSelector": {"driver": DRIVER}, "taint": taint}
    cluster = with_devices(features, [{"name": "d"}], requests=[asked()])
    store(cluster, DeviceTaintRule, {"name": "broken"}, rule)
    return feasible(cluster, CLAIMING)


DRIVER = "gpu.example.com"
#: A pod with the claim of ``with_devices``.
CLAIMING = pod("p", resourceClaims=[{"name": "c", "resourceClaimName": "wanted"}])


def asked(name: str = "gpu", count: int = 1, **more: Any) -> dict[str, Any]:
    """A request; without a count for all devices."""
    mode = {"allocationMode": "ExactCount", "count": count} if count else {"allocationMode": "All"}
    return {"name": name, "exactly": {"deviceClassName": "gpus", **mode, **more}}


def with_devices(
    features: Features,
    devices: list[dict[str, Any]],
    *,
    in_use: dict[str, Any] | None = None,
    counters: dict[str, Any] | None = None,
    nodes: str = "a",
    **wanted: Any,
) -> Recorded:
    """Nodes, devices of node a, what another claim has of them, and a claim that wants some."""
    cluster = world(features, {"Node": [node(name) for name in nodes]})
    store(cluster, DeviceClass, {"name": "gpus"}, {})
    pool = {"name": "a", "generation": 1, "resourceSliceCount": 2 if counters else 1}
    where = {"driver": DRIVER, "pool": pool, "nodeName": "a"}
    store(cluster, ResourceSlice, {"name": "devices"}, {**where, "devices": devices})
    if counters:
        shared = [{"name": "memory", "counters": counters}]
        store(cluster, ResourceSlice, {"name": "counters"}, {**where, "sharedCounters": shared})
    if in_use:
        result = {"request": "gpu", "driver": DRIVER, "pool": "a", "shareID": "s", **in_use}
        status = {"allocation": {"devices": {"results": [result]}}}
        other = {"name": "other", "namespace": "default", "uid": "u-other"}
        store(cluster, ResourceClaim, other, {"devices": {"requests": [asked()]}}, status)
    metadata = {"name": "wanted", "namespace": "default", "uid": "u-wanted"}
    store(cluster, ResourceClaim, metadata, {"devices": wanted})
    return cluster


def store(cluster: Recorded, kind: Any, metadata: Any, spec: Any, status: Any = None) -> None:
    made = {"metadata": metadata, "spec": spec, **({"status": status} if status else {})}
    item = decoder_for(kind).decode(msgspec.json.encode(made))
    cluster.state.apply(Change(kind, None, item), 0.0)


def counters_once(features: Features) -> str:
    """A device that can be shared and takes 3 of 4 units of a counter; a claim shares it, and another one wants to."""
    takes = [{"counterSet": "memory", "counters": {"gib": {"value": "3"}}}]
    one = {"name": "d", "allowMultipleAllocations": True, "consumesCounters": takes}
    cluster = with_devices(
        features,
        [one],
        counters={"gib": {"value": "4"}},
        in_use={"device": "d"},
        requests=[asked()],
    )
    return feasible(cluster, CLAIMING)


def every_device(features: Features) -> str:
    """A claim for all devices, with one slot of each; of two devices with one slot one is in use."""
    slot = {"allowMultipleAllocations": True, "capacity": {"slots": {"value": "1"}}}
    cluster = with_devices(
        features,
        [{"name": "d", **slot}, {"name": "e", **slot}],
        in_use={"device": "d", "consumedCapacity": {"slots": "1"}},
        requests=[asked(count=0)],
    )
    return feasible(cluster, CLAIMING)


def each_distinct(features: Features) -> str:
    """A request for three devices with distinct attributes; the first and the third device are alike."""
    devices = [
        {"name": name, "attributes": {"numa": {"int": numa}}}
        for name, numa in (("d", 0), ("e", 1), ("f", 0))
    ]
    distinct = [{"distinctAttribute": f"{DRIVER}/numa"}]
    cluster = with_devices(features, devices, requests=[asked(count=3)], constraints=distinct)
    return feasible(cluster, CLAIMING)


def config_once(features: Features) -> str:
    """The requests that are named in an allocation's configurations; a claim has one for both of its requests."""
    requests, opaque = ["x", "y"], {"driver": DRIVER, "parameters": {}}
    cluster = with_devices(
        features,
        [{"name": "d"}, {"name": "e"}],
        requests=[asked(name) for name in requests],
        config=[{"requests": requests, "opaque": opaque}],
    )
    attempt = cluster.attempt(cluster.pod(CLAIMING))
    attempt.find()
    claims = attempt.state.read("DynamicResources")
    (found,) = claims.found[0].result.results(0)
    return "; ".join(", ".join(each.requests or ("all",)) for each in found.devices.config)


def named_devices(features: Features) -> str:
    """The error when a selector reads an attribute that a device does not have."""
    missing = [{"cel": {"expression": f'device.attributes["{DRIVER}"].model == "x"'}}]
    cluster = with_devices(features, [{"name": "d"}], requests=[asked(selectors=missing)])
    with pytest.raises(SchedulingError) as raised:
        feasible(cluster, CLAIMING)
    return str(raised.value)


def named_requests(features: Features) -> str:
    """The error of a claim for 33 devices, in two requests."""
    requests = [asked("x", count=20), asked("y", count=13)]
    with pytest.raises(SchedulingError) as raised:
        feasible(with_devices(features, [{"name": "d"}], requests=requests), CLAIMING)
    return str(raised.value)


def capacity_errors(features: Features) -> str:
    """A request for 2^63 - 1 of a capacity that is given in steps of 1Gi."""
    steps = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}
    device = {"name": "d", "capacity": {"memory": {"value": "8Gi", "requestPolicy": steps}}}
    amount = {"requests": {"memory": str(2**63 - 1)}}
    cluster = with_devices(features, [device], requests=[asked(capacity=amount)])
    try:
        return feasible(cluster, CLAIMING)
    except SchedulingError as error:
        return str(error)


def bind_mount_options(features: Features) -> str:
    """A container with a mount that has an option; the node does not declare that its kubelet knows such options."""
    one = pod("p", volumes=[{"name": "tmp", "emptyDir": {}}])
    mount = {"name": "tmp", "mountPath": "/tmp", "bindMountOptions": ["noexec"]}
    one["spec"]["containers"][0]["volumeMounts"] = [mount]
    return feasible(world(features, {"Node": [node("a")]}), one)


def queued_entities(features: Features) -> str:
    """The metrics of what waits, and of claims that the scheduler creates."""
    families = MetricFamilies(registry := CollectorRegistry())
    cluster, rules = world(features, {}), features.rules
    gauges.register_queue(families, cluster.state.queue, incoming=dict, rules=rules)
    gauges.register_plugins(families, cluster.frameworks, rules)
    names = [family.name for family in registry.collect()]
    return ", ".join(name for name in names if "queue" in name or "claim" in name)


def empty_budget_selectors(features: Features) -> str:
    """A victim in a namespace with a budget whose selector is empty."""
    objects: Objects = {
        "Node": [node("a", "1")],
        "Pod": [pod("v", on="a", labels={"x": "yes"})],
        "PodDisruptionBudget": [budget("all", "", 0)],
    }
    _, _, effects = preempt(world(features, objects), pod("p", priority=10))
    assert effects.victims is not None
    return f"{effects.victims['a']['numPDBViolations']} violations"


def empty_spread_selectors(features: Features) -> str:
    """A pod with a constraint with an empty selector, and a pod on node a."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {},
    }
    objects: Objects = {"Node": [node("a"), node("b")], "Pod": [pod("there", on="a")]}
    return feasible(world(features, objects), pod("p", topologySpreadConstraints=[constraint]))


def empty_victims(features: Features) -> str:
    """An extender that answers preempt with a node that needs no victims, as it was told."""
    extender = SimpleNamespace(ignorable=False, name="e", preempt=lambda *_: _answer(given))
    chain = SimpleNamespace(
        concerned=lambda *_: [extender], empty_victims=Rule.EmptyVictims in features.rules
    )
    given = {"a": Victims(())}
    p = world(features, {"Node": [node("a")]}).pod(pod("p"))
    try:
        left = asyncio.run(ExtenderChain.preempt(cast("ExtenderChain", chain), p, given, _no_pods))
    except SchedulingError as error:
        return str(error)
    return f"preempts on {', '.join(left)}"


def unsettled_pools(features: Features) -> str:
    """A request for all devices of a node, one of whose pools is being updated; another node has a device."""
    everything = [asked(count=0)]
    cluster = with_devices(features, [{"name": "d"}], nodes="ab", requests=everything)
    pool = {"name": "b", "generation": 1, "resourceSliceCount": 2}
    where = {"driver": DRIVER, "pool": pool, "nodeName": "b"}
    store(cluster, ResourceSlice, {"name": "updated"}, {**where, "devices": [{"name": "e"}]})
    try:
        return feasible(cluster, CLAIMING)
    except SchedulingError as error:
        return str(error)


def _no_pods(_node: str) -> None:
    return None


async def _answer(value: Any) -> Any:
    return value


SCENARIOS: dict[Rule, Callable[[Features], str]] = {
    Rule.StorageScores: storage_scores,
    Rule.MissingDriver: missing_driver,
    Rule.ImageVolumes: image_volumes,
    Rule.NamespacesOnce: namespaces_once,
    Rule.AnyTermWakes: any_term_wakes,
    Rule.SumsOfResize: sums_of_resize,
    Rule.OneBudget: one_budget,
    Rule.PreemptionMessage: preemption_message,
    Rule.TaintsWakeFew: taints_wake_few,
    Rule.OwnEvents: own_events,
    Rule.DeletedClaimsWake: deleted_claims_wake,
    Rule.QuietDevices: quiet_devices,
    Rule.DeviceTaintRules: device_taint_rules,
    Rule.CountersOnce: counters_once,
    Rule.EveryDevice: every_device,
    Rule.EachDistinct: each_distinct,
    Rule.ConfigOnce: config_once,
    Rule.NamedDevices: named_devices,
    Rule.NamedRequests: named_requests,
    Rule.CapacityErrors: capacity_errors,
    Rule.BindMountOptions: bind_mount_options,
    Rule.QueuedEntities: queued_entities,
    Rule.EmptyBudgetSelectors: empty_budget_selectors,
    Rule.EmptySpreadSelectors: empty_spread_selectors,
    Rule.EmptyVictims: empty_victims,
    Rule.UnsettledPools: unsettled_pools,
}


def documented() -> dict[str, tuple[str, ...]]:
    """By rule: the version that has it, the scenario and both answers, from the page."""
    rows = re.findall(
        r"^\| `([a-z-]+)` \| (.+) \| (.+) \| (.+) \| (.+) \|$", PAGE.read_text(), re.MULTILINE
    )
    return {name: tuple(rest) for name, *rest in rows}


@pytest.mark.parametrize("rule", SCENARIOS, ids=str)
def test_each_rule_changes_the_answer_of_its_scenario(rule: Rule) -> None:
    scenario = SCENARIOS[rule]
    newest = Features.of("1.38")
    before, after = scenario(RECORDED), scenario(Features.of(RULES[rule].since))
    assert before != after
    # This rule does it, and it does it alone.
    alone = msgspec.structs.replace(RECORDED, rules=frozenset({rule}))
    others = msgspec.structs.replace(newest, rules=newest.rules - {rule})
    assert without_devices(scenario(alone)) == without_devices(after)
    assert without_devices(scenario(others)) == without_devices(before)
    text = " ".join((scenario.__doc__ or "").split()).removesuffix(".")
    assert documented()[str(rule)] == (RULES[rule].since, text, before, after)


def test_every_rule_has_a_scenario_on_the_page() -> None:
    assert documented().keys() == {str(rule) for rule in SCENARIOS}
    assert set(SCENARIOS) == set(Rule)
