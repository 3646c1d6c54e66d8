"""A small cluster as plain lists, put into a node table as well, and random ones."""

import random
import string

from app.framework.handle import Handle
from app.model.objects import (
    Affinity,
    LabelSelector,
    Namespace,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    NodeSpec,
    ObjectMeta,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    Requirement,
    Taint,
    Toleration,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from app.model.pod import LabelSet, Pod, PodTemplate
from app.state.cluster import Cluster
from app.state.table import NodeTable

ZONE, HOSTNAME, RACK = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "rack"


class World:
    """Nodes and the pods on them, kept twice: as lists for the twins and as a table for the plugins."""

    def __init__(self):
        self.nodes: dict[str, Node] = {}
        #: Pods by node name; nodes that are gone may still have some.
        self.pods: dict[str, list[Pod]] = {}
        self.table = NodeTable()
        self.cluster = Cluster()
        self.handle = Handle(self.table, self.cluster, "default-scheduler")

    def set_node(self, node):
        self.nodes[node.name] = node
        self.table.set_node(node)

    def remove_node(self, name):
        del self.nodes[name]
        self.table.remove_node(name)

    def add_pod(self, pod):
        self.pods.setdefault(pod.node_name, []).append(pod)
        self.table.add_pod(pod)

    def remove_pod(self, pod):
        self.pods[pod.node_name].remove(pod)
        self.table.remove_pod(pod)

    def set_namespace(self, name, labels):
        self.cluster.namespaces.store(Namespace(metadata=ObjectMeta(name=name, labels=labels)))

    def namespaces(self):
        """Labels by name of the namespaces that are known."""
        return {n.name: n.labels for n in self.cluster.namespaces}

    def on(self, name):
        """The pods on a node."""
        return self.pods.get(name, [])

    def placed(self):
        """All pods on any node, known or not."""
        return [pod for pods in self.pods.values() for pod in pods]


def make_node(name, labels=None, taints=()):
    return Node(
        metadata=ObjectMeta(name=name, labels=labels or {}), spec=NodeSpec(taints=tuple(taints))
    )


class Dice:
    """Random objects from small alphabets, so that selectors meet labels often."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self._label_sets = {}
        self._count = 0

    def chance(self, share):
        return self.random.random() < share

    def some(self, values, most=2):
        return tuple(self.random.sample(values, self.random.randint(1, min(most, len(values)))))

    # ------------------------------------------------------------ labels and selectors

    def labels(self):
        out = {}
        if self.chance(0.8):
            out["app"] = self.random.choice("abc")
        if self.chance(0.5):
            out["tier"] = self.random.choice("xy")
        if self.chance(0.3):
            out["number"] = self.random.choice(["1", "5", "-3", "zero"])
        return out

    def label_set(self):
        labels = self.labels()
        if self.chance(0.2):
            return LabelSet(labels)
        return self._label_sets.setdefault(tuple(sorted(labels.items())), LabelSet(labels))

    def requirement(self):
        operator = self.random.choice(["In", "In", "NotIn", "Exists", "DoesNotExist"])
        key, values = self.random.choice([("app", "abcd"), ("tier", "xyz")])
        wanted = self.some(list(values)) if operator in {"In", "NotIn"} else None
        return Requirement(key, operator, wanted)

    def selector(self):
        """A LabelSelector, now and then absent or empty."""
        dice = self.random.random()
        if dice < 0.06:
            return None
        if dice < 0.12:
            return LabelSelector()
        if dice < 0.6:
            return LabelSelector(match_labels={"app": self.random.choice("abcd")})
        return LabelSelector(
            match_labels={"tier": "x"} if self.chance(0.3) else None,
            match_expressions=tuple(self.requirement() for _ in range(self.random.randint(1, 2))),
        )

    def namespace(self):
        return self.random.choice(["north", "north", "south", "west"])

    def namespace_selector(self):
        return self.random.choice(
            [
                None,
                None,
                None,
                LabelSelector(),
                LabelSelector(match_labels={"team": "red"}),
                LabelSelector(match_expressions=(Requirement("team", "NotIn", ("red",)),)),
                LabelSelector(match_expressions=(Requirement("team", "DoesNotExist"),)),
                LabelSelector(match_expressions=(Requirement("team", "In", ("red", "blue")),)),
            ]
        )

    # ------------------------------------------------------------ nodes

    def node(self, name):
        labels = {}
        if self.chance(0.85):
            labels[ZONE] = self.random.choice(["z1", "z2", "z3", ""])
        if self.chance(0.9):
            labels[HOSTNAME] = name
        if self.chance(0.6):
            labels[RACK] = self.random.choice(["r1", "r2"])
        if self.chance(0.5):
            labels["disk"] = self.random.choice(["ssd", "hdd"])
        taints = [Taint("dedicated", "gpu", "NoSchedule")] if self.chance(0.25) else []
        if self.chance(0.15):
            taints.append(Taint("flaky", "", self.random.choice(["NoExecute", "PreferNoSchedule"])))
        return make_node(name, labels, taints)

    # ------------------------------------------------------------ pods

    def term(self):
        return PodAffinityTerm(
            topology_key=self.random.choice([ZONE, ZONE, HOSTNAME, RACK]),
            label_selector=self.selector(),
            namespaces=self.some(["north", "south", "gone"]) if self.chance(0.25) else None,
            namespace_selector=self.namespace_selector(),
        )

    def terms(self, share):
        if not self.chance(share):
            return None
        return tuple(self.term() for _ in range(self.random.randint(1, 2)))

    def weighted_terms(self, share):
        terms = self.terms(share)
        if terms is None:
            return None
        return tuple(WeightedPodAffinityTerm(self.random.randint(1, 100), t) for t in terms)

    def pod_affinity(self, share):
        if not self.chance(share):
            return None
        return PodAffinity(required=self.terms(0.6), preferred=self.weighted_terms(0.6))

    def node_affinity(self):
        if not self.chance(0.3):
            return None
        term = NodeSelectorTerm(match_expressions=(Requirement("disk", "In", ("ssd",)),))
        return NodeAffinity(required=NodeSelector(node_selector_terms=(term,)))

    def constraint(self):
        return TopologySpreadConstraint(
            max_skew=self.random.randint(1, 3),
            topology_key=self.random.choice([ZONE, ZONE, HOSTNAME, RACK]),
            when_unsatisfiable=self.random.choice(["DoNotSchedule", "ScheduleAnyway"]),
            label_selector=self.selector(),
            min_domains=self.random.choice([None, None, 1, 2, 4]),
            node_affinity_policy=self.random.choice([None, "Honor", "Ignore"]),
            node_taints_policy=self.random.choice([None, "Honor", "Ignore"]),
            match_label_keys=self.random.choice([None, None, ("tier",), ("tier", "absent")]),
        )

    def spec(self, *, affinity, constraints):
        count = self.random.choice([1, 1, 2, 3]) if constraints else 0
        near_and_far = Affinity(
            node_affinity=self.node_affinity(),
            pod_affinity=self.pod_affinity(affinity),
            pod_anti_affinity=self.pod_affinity(affinity),
        )
        return PodSpec(
            affinity=near_and_far,
            node_selector={"disk": "hdd"} if self.chance(0.1) else None,
            tolerations=(Toleration(key="dedicated", operator="Exists"),)
            if self.chance(0.3)
            else None,
            topology_spread_constraints=tuple(self.constraint() for _ in range(count)) or None,
        )

    def pod(self, node_name="", *, affinity=0.4, constraints=False, template=None):
        self._count += 1
        return Pod(
            namespace=self.namespace(),
            name=f"pod-{self._count}",
            uid=f"uid-{self._count}",
            template=template or PodTemplate(self.spec(affinity=affinity, constraints=constraints)),
            labels=self.label_set(),
            node_name=node_name,
            deletion_timestamp="2026-01-01T00:00:00Z" if self.chance(0.15) else None,
        )

    # ------------------------------------------------------------ worlds

    def world(self, *, nodes=8, pods=25, affinity=0.4):
        world = World()
        world.set_namespace("north", {"team": "red"})
        world.set_namespace("south", {"team": "blue", "kubernetes.io/metadata.name": "south"})
        for letter in string.ascii_lowercase[:nodes]:
            world.set_node(self.node(f"node-{letter}"))
        templates = [PodTemplate(self.spec(affinity=1.0, constraints=False)) for _ in range(3)]
        for _ in range(pods):
            self.add_pod(world, affinity=affinity, templates=templates)
        return world

    def add_pod(self, world, *, affinity=0.4, templates=()):
        name = "gone-node" if self.chance(0.05) else self.random.choice([*world.nodes, "gone-node"])
        template = self.random.choice(templates) if templates and self.chance(affinity) else None
        world.add_pod(self.pod(name, affinity=affinity / 2, template=template))

    def disturb(self, world):
        """Changes something: pods come and go, nodes change labels, come and go, namespaces change."""
        dice = self.random.random()
        pods = world.placed()
        if dice < 0.35 or not pods or not world.nodes:
            self.add_pod(world) if world.nodes else world.set_node(self.node("node-a"))
        elif dice < 0.6:
            world.remove_pod(self.random.choice(pods))
        elif dice < 0.8:
            world.set_node(self.node(self.random.choice([*world.nodes, "node-new"])))
        elif dice < 0.9:
            world.remove_node(self.random.choice(list(world.nodes)))
        else:
            world.set_namespace(
                self.random.choice(["north", "west", "fourth"]),
                {"team": self.random.choice(["red", "blue", "green"])},
            )


def two_zones():
    """Nodes a1, a2 in zone a, b1 in zone b, and x without labels."""
    world = World()
    for name in ("a1", "a2", "b1"):
        world.set_node(make_node(name, {ZONE: name[0], HOSTNAME: name}))
    world.set_node(make_node("x"))
    return world
