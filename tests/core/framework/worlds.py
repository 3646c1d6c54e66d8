"""Random clusters for comparing array plugins with their scalar twins.

A Scene is what a twin sees: one node object and the pods on it. ``views`` gives the same cluster as the plugins see it:
all rows, some of them, one, and what-if worlds, each with the scenes that its positions stand for.
"""

import dataclasses
import random
from collections.abc import Iterator

import numpy as np

from app.framework.handle import Handle
from app.framework.interface import CycleState, Verdicts
from app.model.objects import (
    Affinity,
    Container,
    ContainerImage,
    ContainerPort,
    ContainerRestartRule,
    ImageSource,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    PodSpec,
    PreferredSchedulingTerm,
    ResourceRequirements,
    Taint,
    Toleration,
    Volume,
)
from app.model.pod import Pod, make_pod
from app.model.selectors import Requirement
from app.model.status import Code
from app.state.cluster import Cluster
from app.state.table import NodeTable
from app.state.view import DryRunView, View

IMAGES = ("nginx:latest", "registry.example.com/db:15", "registry.example.com:5000/web:latest")
FEATURES = ("RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport", "Other")


@dataclasses.dataclass(frozen=True)
class Scene:
    """One node and the pods on it: those that are ``before``, less and plus those that ``moves`` imagine away or
    there.
    """

    node: Node
    before: tuple[Pod, ...]
    moves: tuple[tuple[Pod, bool], ...] = ()

    @property
    def pods(self) -> tuple[Pod, ...]:
        """The pods after all moves."""
        pods = list(self.before)
        for pod, added in self.moves:
            if added:
                pods.append(pod)
            else:
                pods.remove(pod)
        return tuple(pods)


@dataclasses.dataclass(frozen=True)
class Seen:
    """A view and, by position, the scene there; None where the row has no node object."""

    view: View
    scenes: tuple[Scene | None, ...]


class World:
    """A random cluster, as objects and as a table that went through additions, changes and removals."""

    def __init__(self, seed: int, nodes: int = 14) -> None:
        self.rng = random.Random(seed)
        self.table = NodeTable()
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, list[Pod]] = {}
        self._serial = 0
        for number in range(nodes):
            self.set_node(f"node-{number}")
        for _ in range(3 * nodes):
            self.add_pod(self.random_pod(), self.rng.choice(list(self.nodes)))
        self.add_pod(self.random_pod(), "ghost")
        for name in self.rng.sample(list(self.nodes), 4):
            self.set_node(name)
        gone = self.rng.choice(list(self.nodes))
        self.table.remove_node(gone)
        del self.nodes[gone]
        for name in list(self.nodes):
            if self.pods.get(name) and self.rng.random() < 0.3:
                self.table.remove_pod(self.pods[name].pop())

    @property
    def handle(self) -> Handle:
        """What plugins are constructed with."""
        return Handle(self.table, Cluster(), "default-scheduler")

    def set_node(self, name: str) -> None:
        """Adds a random node, or changes it into another."""
        node = self.nodes[name] = random_node(self.rng, name)
        self.table.set_node(node)

    def add_pod(self, pod: Pod, node_name: str) -> None:
        """Puts a pod on a node, known or not."""
        pod = pod.on(node_name)
        self.pods.setdefault(node_name, []).append(pod)
        self.table.add_pod(pod)

    def random_pod(self) -> Pod:
        """A pod with a bit of everything."""
        self._serial += 1
        return make_pod(
            random_spec(self.rng), namespace="ns", name=f"p-{self._serial}", uid=f"u-{self._serial}"
        )

    def scene(self, name: str) -> Scene | None:
        """A node as it is; None if there is no such node."""
        node = self.nodes.get(name)
        return None if node is None else Scene(node, tuple(self.pods.get(name, ())))

    def scenes(self) -> list[Scene]:
        """Every node as it is."""
        return [Scene(node, tuple(self.pods.get(name, ()))) for name, node in self.nodes.items()]

    def views(self) -> Iterator[Seen]:
        """All rows, some of them in any order, single ones, none, and what-if worlds."""
        yield self._seen(View.everything(self.table))
        live = self.table.live_rows().tolist()
        for count in (len(live) // 2, 3, 1, 0):
            yield self._seen(View(self.table, np.array(self.rng.sample(live, count), np.intp)))
        yield self._what_if(self.rng.sample(live, len(live) // 2))
        yield self._what_if(self.rng.sample(live, 1))

    def _seen(self, view: View) -> Seen:
        return Seen(view, tuple(map(self.scene, view.names())))

    def _what_if(self, rows: list[int]) -> Seen:
        view = DryRunView(self.table, np.array(rows, np.intp))
        scenes = []
        for position, name in enumerate(view.names()):
            scene = self.scene(name)
            assert scene is not None
            moves = []
            for pod in self.rng.sample(scene.pods, self.rng.randint(0, len(scene.pods))):
                moves.append((pod, False))
                view.remove(position, pod)
            for _ in range(self.rng.randint(0, 2)):
                moves.append((self.random_pod().on(name), True))
                view.add(position, moves[-1][0])
            scenes.append(Scene(scene.node, scene.before, tuple(moves)))
        return Seen(view, tuple(scenes))


def random_node(rng: random.Random, name: str) -> Node:
    """A node with random labels, taints, resources, images and features."""
    labels = {"host": name}
    if rng.random() < 0.8:
        labels["zone"] = rng.choice(("z1", "z2", "z3"))
    if rng.random() < 0.6:
        labels["cores"] = rng.choice(("4", "16", "-3", "+8", "many"))
    if rng.random() < 0.5:
        labels["disk"] = rng.choice(("ssd", "hdd", ""))
    return Node(
        metadata=ObjectMeta(name=name, labels=labels),
        spec=NodeSpec(unschedulable=rng.random() < 0.2, taints=random_taints(rng)),
        status=NodeStatus(
            allocatable=random_allocatable(rng),
            images=tuple(
                ContainerImage((image, f"{image}@sha256:{name}"), rng.choice((10, 200, 900)) << 20)
                for image in rng.sample(IMAGES, rng.randint(0, 3))
            ),
            declared_features=tuple(rng.sample(FEATURES, rng.randint(0, 3))) or None,
        ),
    )


def random_taints(rng: random.Random) -> tuple[Taint, ...] | None:
    """Up to three taints."""
    return (
        tuple(
            Taint(
                rng.choice(("a", "b", "node.kubernetes.io/unschedulable")),
                rng.choice(("", "x")),
                rng.choice(("NoSchedule", "NoExecute", "PreferNoSchedule", "PreferNoSchedule")),
            )
            for _ in range(rng.choice((0, 0, 0, 1, 2, 3)))
        )
        or None
    )


def random_allocatable(rng: random.Random) -> dict[str, str | int | float] | None:
    """Anything from nothing to plenty."""
    if rng.random() < 0.05:
        return None
    amounts: dict[str, str | int | float] = {
        "cpu": rng.choice(("0", "900m", "2", "4", "7.5")),
        "memory": rng.choice(("0", "300Mi", "2Gi", "4Gi", "5000000001")),
        "pods": rng.choice(("0", "2", "4", "110", "110")),
    }
    if rng.random() < 0.6:
        amounts["ephemeral-storage"] = rng.choice(("1Gi", "10Gi"))
    if rng.random() < 0.6:
        amounts["example.com/gpu"] = rng.choice(("0", "1", "4"))
    if rng.random() < 0.3:
        amounts["hugepages-2Mi"] = "64Mi"
    return amounts


def random_requests(rng: random.Random) -> ResourceRequirements | None:
    """What a container may ask for, explicit zeros and nothing at all included."""
    choices = {
        "cpu": ("0", "1m", "100m", "0.5", "1", "5"),
        "memory": ("0", "1", "64Mi", "1Gi", "3Gi"),
        "ephemeral-storage": ("100Mi", "2Gi"),
        "example.com/gpu": ("0", "1", "2"),
        "example.com/never": ("0", "1"),
        "hugepages-2Mi": ("2Mi", "128Mi"),
    }
    odds = (0.7, 0.7, 0.2, 0.2, 0.05, 0.1)
    requests: dict[str, str | int | float] = {
        name: rng.choice(amounts)
        for (name, amounts), chance in zip(choices.items(), odds, strict=True)
        if rng.random() < chance
    }
    return ResourceRequirements(requests=requests) if requests else None


def random_container(rng: random.Random) -> Container:
    """A container with random requests, ports, image and restart rules."""
    ports = tuple(
        ContainerPort(
            host_port=rng.choice((0, 80, 443)),
            host_ip=rng.choice(("", "", "0.0.0.0", "10.0.0.1", "10.0.0.2")),
            protocol=rng.choice(("", "TCP", "UDP")),
        )
        for _ in range(rng.choice((0, 0, 1, 2)))
    )
    rules = (ContainerRestartRule(action=rng.choice(("RestartAllContainers", "Restart"))),)
    return Container(
        name="c",
        image=rng.choice(("nginx", *IMAGES, "registry.example.com:5000/web", "absent:1")),
        resources=random_requests(rng),
        ports=ports or None,
        restart_policy_rules=rules if rng.random() < 0.1 else None,
    )


def random_spec(rng: random.Random) -> PodSpec:
    """A pod spec with a bit of everything."""
    return PodSpec(
        containers=tuple(random_container(rng) for _ in range(rng.choice((1, 1, 2)))),
        init_containers=(random_container(rng),) if rng.random() < 0.2 else None,
        overhead={"cpu": "10m"} if rng.random() < 0.1 else None,
        resources=random_requests(rng) if rng.random() < 0.1 else None,
        node_selector=rng.choice((None, None, None, {"zone": "z1"}, {"disk": "", "zone": "z2"})),
        affinity=random_affinity(rng),
        tolerations=random_tolerations(rng),
        volumes=(Volume(name="v", image=ImageSource("nginx")),) if rng.random() < 0.1 else None,
        host_network=rng.random() < 0.3,
        host_users=rng.choice((None, True, False)),
    )


def random_tolerations(rng: random.Random) -> tuple[Toleration, ...] | None:
    """Up to three tolerations, sensible ones and others."""
    return (
        tuple(
            Toleration(
                key=rng.choice(("", "a", "b", "node.kubernetes.io/unschedulable")),
                operator=rng.choice(("", "Equal", "Exists", "Exists", "Gt", "?")),
                value=rng.choice(("", "x")),
                effect=rng.choice(("", "NoSchedule", "NoExecute", "PreferNoSchedule")),
            )
            for _ in range(rng.choice((0, 1, 2, 3)))
        )
        or None
    )


def random_term(rng: random.Random) -> NodeSelectorTerm:
    """A node selector term, sometimes empty or unreadable."""
    return NodeSelectorTerm(
        tuple(random_expression(rng) for _ in range(rng.choice((0, 1, 1, 2)))) or None,
        tuple(random_field(rng) for _ in range(rng.choice((0, 0, 0, 1, 2)))) or None,
    )


def random_expression(rng: random.Random) -> Requirement:
    """A requirement on a label, sometimes one that cannot be read."""
    operator = rng.choice(("In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gt", "Near"))
    if operator in {"Gt", "Lt"}:
        return Requirement("cores", operator, (rng.choice(("5", "-4", "+3", "x")),))
    key = rng.choice(("zone", "disk", "host", "absent", "a b"))
    if operator in {"Exists", "DoesNotExist"}:
        return Requirement(key, operator, rng.choice((None, None, None, ("z1",))))
    values = ("z1", "z2", "ssd", "", "node-1", "node-2", "never", "not a label value!")
    return Requirement(key, operator, tuple(rng.sample(values, rng.choice((0, 1, 1, 2, 3)))))


def random_field(rng: random.Random) -> Requirement:
    """A requirement on a field, sometimes one that cannot be read."""
    names = tuple(f"node-{rng.randint(0, 13)}" for _ in range(rng.choice((1, 1, 1, 2, 0))))
    operator = rng.choice(("In", "In", "NotIn", "Exists"))
    return Requirement(rng.choice(("metadata.name",) * 5 + ("metadata.uid",)), operator, names)


def random_affinity(rng: random.Random) -> Affinity | None:
    """Node affinity in all its forms; preferred terms can be read, for one that cannot fails the pod."""
    if rng.random() < 0.4:
        return None
    required = NodeSelector(tuple(random_term(rng) for _ in range(rng.choice((0, 1, 1, 2, 3)))))
    preferred = tuple(
        PreferredSchedulingTerm(rng.choice((0, 1, 7, 100)), random_readable_term(rng))
        for _ in range(rng.randint(0, 3))
    )
    node_affinity = NodeAffinity(
        required if rng.random() < 0.6 else None, preferred if rng.random() < 0.6 else None
    )
    return Affinity(node_affinity=node_affinity if rng.random() < 0.9 else None)


def random_readable_term(rng: random.Random) -> NodeSelectorTerm:
    """A term without mistakes."""
    expressions = (
        Requirement("zone", "In", ("z1", "z3")),
        Requirement("disk", "NotIn", ("ssd",)),
        Requirement("cores", "Gt", ("5",)),
        Requirement("disk", "Exists"),
        Requirement("absent", "DoesNotExist"),
        Requirement("cores", "Lt", ("16",)),
    )
    fields = (Requirement("metadata.name", "NotIn", ("node-2",)),)
    return NodeSelectorTerm(
        tuple(rng.sample(expressions, rng.randint(0, 2))) or None,
        fields if rng.random() < 0.3 else None,
    )


def verdict(verdicts: Verdicts | None, position: int) -> tuple[Code, tuple[str, ...]] | None:
    """What was said of a position, in words; None where the pod may go."""
    if verdicts is None or not verdicts.codes[position]:
        return None
    return Code(int(verdicts.codes[position])), verdicts.text(int(verdicts.reasons[position]))


def check_filter(world: World, plugin, pod: Pod, twin, *, state: CycleState | None = None) -> int:
    """Compares a filter with its twin on every view; returns how many nodes were rejected."""
    state = state or CycleState()
    rejected = 0
    for seen in world.views():
        verdicts = plugin.filter(state, pod, seen.view)
        for position, scene in enumerate(seen.scenes):
            if scene is not None:
                want = twin(pod, scene)
                assert verdict(verdicts, position) == want, (scene, pod)
                rejected += want is not None
    return rejected


def check_score(world: World, plugin, pod: Pod, twin, *, state: CycleState) -> list[int]:
    """Compares raw scores with the twin's on every view; returns those of all nodes."""
    scores: list[int] = []
    for seen in world.views():
        got = plugin.score(state, pod, seen.view)
        got = np.zeros(seen.view.n, np.int64) if got is None else got
        assert got.dtype == np.int64
        assert got.shape == (seen.view.n,)
        for position, scene in enumerate(seen.scenes):
            if scene is not None:
                want = twin(pod, scene)
                assert got[position] == want, (scene, pod)
                scores.append(want)
    return scores
