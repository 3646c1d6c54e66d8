"""Configurations that differ in one thing from that of the cluster: each is found, and its plugin is named first."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest

from app.framework.testing import make_object
from app.model.objects import Service
from app.model.pod import Pod
from app.plugins import registry
from app.plugins.node_ports import NodePorts
from app.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from app.plugins.node_resources_fit import NodeResourcesFit
from app.plugins.pod_topology_spread import PodTopologySpread
from app.plugins.taint_toleration import TaintToleration
from tests.core.shadow.playing import Player, world

#: Pods within which a difference must show.
PODS = 500
#: Differences after which a test has seen enough of them.
ENOUGH = 30
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


def weight(plugin: str, number: int) -> str:
    entry = f"{{name: {plugin}, weight: {number}}}"
    return f"profiles: [{{plugins: {{score: {{disabled: [{{name: {plugin}}}], enabled: [{entry}]}}}}}}]\n"


def without(plugin: str, point: str = "score") -> str:
    return f"profiles: [{{plugins: {{{point}: {{disabled: [{{name: {plugin}}}]}}}}}}]\n"


def args(plugin: str, text: str) -> str:
    return f"profiles: [{{pluginConfig: [{{name: {plugin}, args: {{{text}}}}}]}}]\n"


RESOURCES = "resources: [{name: cpu, weight: 1}, {name: memory, weight: 1}]"
SHAPE = "shape: [{utilization: 0, score: %d}, {utilization: 100, score: %d}]"
RATIO = "scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {%s}, %s}"
ADDED = "addedAffinity: {%sDuringSchedulingIgnoredDuringExecution: %s}"
ON_DISK = "{matchExpressions: [{key: disk, operator: In, values: [ssd]}]}"
SPREAD = "defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: %s, whenUnsatisfiable: %s}]"

PLANTED = {
    "weight of NodeResourcesFit": ("NodeResourcesFit", weight("NodeResourcesFit", 5)),
    "weight of balance": (
        "NodeResourcesBalancedAllocation",
        weight("NodeResourcesBalancedAllocation", 8),
    ),
    "weight of spreading": ("PodTopologySpread", weight("PodTopologySpread", 20)),
    "weight of node affinity": ("NodeAffinity", weight("NodeAffinity", 20)),
    "weight of pod affinity": ("InterPodAffinity", weight("InterPodAffinity", 20)),
    "no taint score": ("TaintToleration", without("TaintToleration")),
    "weight of images": ("ImageLocality", weight("ImageLocality", 40)),
    "most allocated": (
        "NodeResourcesFit",
        args("NodeResourcesFit", f"scoringStrategy: {{type: MostAllocated, {RESOURCES}}}"),
    ),
    "shape": (
        "NodeResourcesFit",
        args("NodeResourcesFit", RATIO % (SHAPE % (0, 10), RESOURCES)),
    ),
    "another shape": (
        "NodeResourcesFit",
        args("NodeResourcesFit", RATIO % (SHAPE % (10, 3), RESOURCES)),
    ),
    "other resources": (
        "NodeResourcesFit",
        args(
            "NodeResourcesFit",
            "scoringStrategy: {type: LeastAllocated, resources: [{name: cpu, weight: 1}]}",
        ),
    ),
    "resources of balance": (
        "NodeResourcesBalancedAllocation",
        args("NodeResourcesBalancedAllocation", "resources: [{name: cpu, weight: 1}]"),
    ),
    "ignored resources": (
        "NodeResourcesFit",
        args("NodeResourcesFit", "ignoredResources: [example.com/gpu]"),
    ),
    "added required affinity": (
        "NodeAffinity",
        args("NodeAffinity", ADDED % ("required", f"{{nodeSelectorTerms: [{ON_DISK}]}}")),
    ),
    "added preferred affinity": (
        "NodeAffinity",
        args("NodeAffinity", ADDED % ("preferred", f"[{{weight: 100, preference: {ON_DISK}}}]")),
    ),
    "default constraints": (
        "PodTopologySpread",
        args("PodTopologySpread", SPREAD % (ZONE, "ScheduleAnyway")),
    ),
    "hard default constraints": (
        "PodTopologySpread",
        args("PodTopologySpread", SPREAD % (HOST, "DoNotSchedule")),
    ),
    "hard pod affinity weight": (
        "InterPodAffinity",
        args("InterPodAffinity", "hardPodAffinityWeight: 100"),
    ),
    "no balance": (
        "NodeResourcesBalancedAllocation",
        without("NodeResourcesBalancedAllocation"),
    ),
    "no image locality": ("ImageLocality", without("ImageLocality")),
    "no taint filter": ("TaintToleration", without("TaintToleration", "filter")),
    "no ports": ("NodePorts", without("NodePorts", "filter")),
    "no node affinity filter": ("NodeAffinity", without("NodeAffinity", "multiPoint")),
}


def fill(player: Player, rng: np.random.Generator) -> None:
    for app in range(9):
        service = {
            "metadata": {"name": f"s{app}", "namespace": "default"},
            "spec": {"selector": {"app": f"a{app}"}},
        }
        player.tell(Service, None, make_object(Service, service))
    for number in range(40):
        amounts = {
            "cpu": str(rng.choice([8, 16, 32])),
            "memory": f"{rng.choice([16, 32, 64])}Gi",
            "pods": "60",
        }
        if number % 8 == 0:
            amounts["example.com/gpu"] = "2"
        taints = [{"key": "old", "effect": "PreferNoSchedule"}] if number % 5 == 0 else []
        taints += [{"key": "odd", "effect": "PreferNoSchedule"}] if number % 4 == 0 else []
        taints += [{"key": "own", "effect": "NoSchedule"}] if number % 7 == 0 else []
        images = [{"names": ["big:1"], "sizeBytes": 900_000_000}] if number % 6 == 0 else []
        player.node(
            f"n{number}",
            labels={HOST: f"n{number}", ZONE: f"z{number % 3}", "disk": ["ssd", "hdd"][number % 2]},
            spec={"taints": taints},
            status={"allocatable": amounts, "images": images},
        )


def parts(number: int, rng: np.random.Generator) -> dict[str, Any]:
    """A pod of one of several kinds."""
    requests = {
        "cpu": f"{rng.choice([100, 300, 700])}m",
        "memory": f"{rng.choice([128, 512, 1500])}Mi",
    }
    container: dict[str, Any] = {"name": "c", "image": "big:1", "resources": {"requests": requests}}
    spec: dict[str, Any] = {"containers": [container]}
    app = f"a{number % 9}"
    select = {"matchLabels": {"app": app}}
    match number % 9:
        case 0:
            terms = [
                {
                    "weight": amount,
                    "preference": {
                        "matchExpressions": [{"key": key, "operator": "In", "values": [value]}]
                    },
                }
                for amount, key, value in ((20, "disk", "hdd"), (3, ZONE, "z1"))
            ]
            spec["affinity"] = {
                "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}
            }
        case 1:
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": 1,
                    "topologyKey": ZONE,
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": select,
                }
            ]
        case 2:
            term = {"weight": 50, "podAffinityTerm": {"topologyKey": ZONE, "labelSelector": select}}
            spec["affinity"] = {
                "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}
            }
        case 3:
            spec["tolerations"] = [{"key": "own", "operator": "Exists"}]
        case 4:
            container["resources"]["requests"]["example.com/gpu"] = "1"
        case 5:
            container["ports"] = [{"containerPort": 80, "hostPort": 8000}]
        case 6:
            spec["nodeSelector"] = {"disk": "ssd"}
        case 7:
            both = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a7", "a8"]}]}
            term = {"topologyKey": ZONE, "labelSelector": both}
            spec["affinity"] = {
                "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            }
        case 8:
            other = {"matchLabels": {"app": "a2"}}
            term = {"weight": 30, "podAffinityTerm": {"topologyKey": HOST, "labelSelector": other}}
            spec["affinity"] = {
                "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}
            }
        case _:
            pass
    return {"labels": {"app": app}, "spec": spec}


def play(here: str, classes: Mapping[str, type] | None = None, there: str = "") -> Player:
    player = Player(world(there), world(here, classes))
    rng = np.random.default_rng(7)
    fill(player, rng)
    player.now += 10
    for number in range(PODS):
        player.schedule(f"p{number}", **parts(number, rng))
        player.now += 2
        player.catch_up()
        if sum(not v.agrees for v in player.verdicts) == ENOUGH:
            break
    return player


def named(player: Player) -> Counter[str]:
    """How many differences each plugin explains."""
    return Counter(name for v in player.verdicts if not v.agrees for name in v.plugins)


def test_the_same_configuration_agrees_on_every_pod():
    player = play("")
    assert set(player.classes()) <= {"same", "tie"}
    assert player.classes().total() == PODS


@pytest.mark.parametrize("name", PLANTED)
def test_a_configuration_that_differs_in_one_thing_is_found(name):
    plugin, text = PLANTED[name]
    player = play(text)
    (first, count), *_ = named(player).most_common(1) or [("", 0)]
    assert (first, count > 0) == (plugin, True), (player.classes(), named(player))


#: Differences that the scores of one pod cannot tell from those of other plugins, if only the cluster has them.
AMBIGUOUS = {"weight of pod affinity", "added required affinity", "added preferred affinity"}


@pytest.mark.parametrize("name", sorted(PLANTED.keys() - AMBIGUOUS))
def test_what_only_the_cluster_is_configured_for_is_found(name):
    """The shadow has the default configuration, so that it has no alternative to try."""
    plugin, text = PLANTED[name]
    player = play("", there=text)
    assert named(player).most_common(1)[0][0] == plugin, (player.classes(), named(player))


def test_a_look_at_some_of_the_nodes_that_is_not_configured_here_is_found():
    """Some nodes are best for some pods, for two reasons. Often their scheduler does not look at these nodes."""
    player = Player(world(), world("percentageOfNodesToScore: 100\n"))
    for number in range(400):
        # So large that it counts although only 2 of 400 nodes have it (ImageLocality).
        images = [{"names": ["big:1"], "sizeBytes": 90_000_000_000}] if number in {2, 3} else []
        disk = "ssd" if number in {0, 1} else "hdd"
        player.node(f"n{number}", labels={"disk": disk}, status={"images": images})
    player.now += 10
    player.looks_at = 110
    prefers = [
        {
            "weight": 100,
            "preference": {
                "matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]
            },
        }
    ]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": prefers}}
    for number in range(40):
        spec: dict[str, Any] = {"containers": [{"name": "c", "image": "big:1"}]}
        if number % 2:
            spec = {"containers": [{"name": "c", "image": "i"}], "affinity": affinity}
        pod = player.pod(f"p{number}", spec=spec)
        player.show(Pod, pod, player.decide(pod))
        player.now += 2
        player.catch_up()
    assert player.classes()["unexplained"] > 10
    assert {"ImageLocality", "NodeAffinity"} <= named(player).keys()
    assert named(player).most_common(1)[0][0] == "percentageOfNodesToScore"
    differing = [v for v in player.verdicts if not v.agrees]
    assert all("percentageOfNodesToScore would have to be" in v.change for v in differing)


class FaultyFit(NodeResourcesFit):
    """Forgets what the pods on a node request once there are many."""

    NAME: ClassVar[str] = "NodeResourcesFit"

    def score(self, state: Any, pod: Any, view: Any) -> Any:
        scores = super().score(state, pod, view)
        return np.where(view.pod_count() > 8, 100, scores)


class FaultyTaints(TaintToleration):
    """Takes a toleration of one taint for one of all."""

    NAME: ClassVar[str] = "TaintToleration"

    def filter(self, state: Any, pod: Any, view: Any) -> Any:
        return None if pod.spec.tolerations is None else super().filter(state, pod, view)


class FaultyBalance(NodeResourcesBalancedAllocation):
    """Takes the balance of the node for that with the pod."""

    NAME: ClassVar[str] = "NodeResourcesBalancedAllocation"

    def score(self, state: Any, pod: Any, view: Any) -> Any:
        return 100 - super().score(state, pod, view)


class FaultyPorts(NodePorts):
    """Forgets the ports that are in use."""

    NAME: ClassVar[str] = "NodePorts"

    def filter(self, state: Any, pod: Any, view: Any) -> Any:
        return None


class FaultySpread(PodTopologySpread):
    """Prefers the domains with the most pods."""

    NAME: ClassVar[str] = "PodTopologySpread"

    def normalize(self, state: Any, pod: Any, view: Any, scores: Any) -> Any:
        return 100 - super().normalize(state, pod, view, scores)


FAULTY = [FaultyFit, FaultyTaints, FaultyBalance, FaultyPorts, FaultySpread]


@pytest.mark.parametrize("faulty", FAULTY)
def test_a_faulty_copy_of_a_plugin_is_found(faulty):
    player = play("", {**registry.registry(), faulty.NAME: faulty})
    assert named(player).most_common(1)[0][0] == faulty.NAME
