"""Small crowded clusters in which pods of higher priority have to make room for themselves."""

import random

import numpy as np

from app.cycle.attempt import Attempt, Unfit
from app.framework.diagnosis import Diagnosis
from app.framework.handle import Eviction
from app.framework.interface import PostFilterResult
from app.framework.profile import ProfilePlugins
from app.framework.runner import Framework, ProfileHandle
from app.model.objects import (
    Affinity,
    Container,
    ContainerPort,
    LabelSelector,
    Node,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    PodAffinity,
    PodAffinityTerm,
    PodDisruptionBudget,
    PodDisruptionBudgetStatus,
    PodSpec,
    Requirement,
    ResourceRequirements,
    Taint,
    TopologySpreadConstraint,
    WorkloadSpec,
)
from app.model.pod import LabelSet, Pod, PodTemplate
from app.plugins import registry
from app.plugins.args import DefaultPreemptionArgs
from app.plugins.default_preemption import DefaultPreemption
from app.state.cluster import Cluster
from app.state.nominations import Nominations
from app.state.nominator import Nominator
from app.state.table import NodeTable
from app.wire.extender_v1 import Victims
from tests.core.framework.coroutines import finish
from tests.core.plugins.twins import preemption as twin

FILTERS = (
    "NodeUnschedulable",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "PodTopologySpread",
    "InterPodAffinity",
)
ZONE, HOST = "zone", "host"
APPS = ("web", "db", "cache")


def frameworks(table, cluster, nominator, rng, *, skip=(), more=None, args=None):
    """A profile of FILTERS and DefaultPreemption; ``skip`` leaves filters out, ``more`` are added."""
    handle = ProfileHandle(table, cluster, "default-scheduler", nominator=nominator, rng=rng)
    plugins = [registry.IN_TREE[name](None, handle) for name in FILTERS if name not in skip]
    plugins += more or ()
    preemption = DefaultPreemption(args, handle)
    by_point = {
        "preFilter": [plugin for plugin in plugins if hasattr(plugin, "pre_filter")],
        "filter": [plugin for plugin in plugins if hasattr(plugin, "filter")],
        "postFilter": [preemption],
    }
    handle.framework = Framework("default-scheduler", ProfilePlugins(by_point, {}), table)
    return handle.framework, preemption


class Extenders:
    """Effects that write down what they are asked; the extenders agree to everything, or to what ``answer`` says."""

    def __init__(self, *, asked: bool = True, answer=None) -> None:
        self.asked = asked
        self.answer = answer or dict
        self.candidates: dict[str, Victims] = {}
        self.evictions: list[Eviction] = []
        self.pauses = 0

    async def sleep(self, seconds: float) -> None:
        self.pauses += 1

    def latest(self, pod: Pod) -> Pod:
        return pod

    def asks_about_victims(self, pod: Pod) -> bool:
        return self.asked

    async def agree_on_victims(self, pod: Pod, candidates):
        self.candidates = dict(candidates)
        return self.answer(candidates)

    def evict(self, eviction: Eviction) -> None:
        self.evictions.append(eviction)


class Crowd:
    """A cluster as lists, and the same as a table with a framework that lives on while the cluster changes."""

    def __init__(self, seed: int, *, nodes: int = 7, args: DefaultPreemptionArgs | None = None):
        self.dice = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.table, self.cluster = NodeTable(), Cluster()
        self.nominator = Nominator()
        self.args = args or DefaultPreemptionArgs()
        self.framework, self.plugin = frameworks(
            self.table, self.cluster, self.nominator, self.rng, args=args
        )
        self.nominations = Nominations(self.nominator, self.table)
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, list[Pod]] = {}
        self.nominated: dict[str, list[Pod]] = {}
        self.budgets: dict[str, PodDisruptionBudget] = {}
        self._serial = 0
        self._labels = [LabelSet({"app": app}) for app in APPS] + [LabelSet()]
        self.templates = [PodTemplate(self.random_spec(low=True)) for _ in range(8)]
        self.preemptors = [PodTemplate(self.random_spec(low=False)) for _ in range(3)]
        for number in range(nodes):
            self.add_node(f"n{number}")
        for _ in range(2):
            self.set_budget()

    # ------------------------------------------------------------ objects

    def add_node(self, name: str) -> None:
        labels = {HOST: name, ZONE: self.dice.choice(("a", "b"))}
        taints = (Taint("t", "", "NoSchedule"),) if self.dice.random() < 0.1 else None
        node = Node(
            metadata=ObjectMeta(name=name, labels=labels),
            spec=NodeSpec(unschedulable=self.dice.random() < 0.05, taints=taints),
            status=NodeStatus(allocatable={"cpu": "4", "memory": "8Gi", "pods": "6"}),
        )
        self.nodes[name] = node
        self.pods[name] = []
        self.table.set_node(node)
        for _ in range(self.dice.choice((1, 4, 5, 6, 7, 8))):
            self.add_pod(name)

    def add_another_node(self, _node: str) -> None:
        """The cluster grows."""
        self._serial += 1
        self.add_node(f"m{self._serial}")

    def random_spec(self, *, low: bool) -> PodSpec:
        dice = self.dice
        port = ContainerPort(host_port=dice.choice((80, 90))) if dice.random() < 0.15 else None
        requests = {
            "cpu": dice.choice(
                ("500m", "1", "1", "2") if low else ("1500m", "2", "2", "3", "3500m", "5")
            ),
            "memory": dice.choice(("1Gi", "2Gi")),
        }
        return PodSpec(
            priority=dice.choice((None, 1, 1, 5, 50)) if low else dice.choice((5, 100, 1000, 1000)),
            containers=(
                Container(
                    resources=ResourceRequirements(requests=requests),
                    ports=(port,) if port else None,
                ),
            ),
            affinity=self._affinity() if dice.random() < 0.25 else None,
            topology_spread_constraints=self._spread() if dice.random() < 0.25 else None,
        )

    def _affinity(self) -> Affinity:
        term = PodAffinityTerm(
            topology_key=self.dice.choice((ZONE, HOST, HOST)),
            label_selector=LabelSelector(match_labels={"app": self.dice.choice(APPS)}),
        )
        if self.dice.random() < 0.15:
            return Affinity(pod_affinity=PodAffinity(required=(term,)))
        return Affinity(pod_anti_affinity=PodAffinity(required=(term,)))

    def _spread(self) -> tuple[TopologySpreadConstraint, ...]:
        return (
            TopologySpreadConstraint(
                max_skew=self.dice.choice((1, 2)),
                topology_key=self.dice.choice((ZONE, HOST)),
                when_unsatisfiable="DoNotSchedule",
                label_selector=LabelSelector(match_labels={"app": self.dice.choice(APPS)}),
            ),
        )

    def make(self, template: PodTemplate, **fields) -> Pod:
        self._serial += 1
        name = f"p{self._serial}"
        start = self.dice.choice((None, *(1000.0 + n for n in range(6))))
        fields = {"namespace": "ns", "name": name, "uid": name, "start_time": start, **fields}
        return Pod(template=template, labels=self.dice.choice(self._labels), **fields)

    def _clashes(self, node: str, pod: Pod) -> bool:
        """Whether a port is claimed already: of shared ports the dry run forgets who else has them (NodePorts'
        twin).
        """
        ports = {p for other in self.pods[node] for p in other.template.host_ports}
        return not ports.isdisjoint(pod.template.host_ports)

    # ------------------------------------------------------------ changes

    def add_pod(self, node: str) -> None:
        pod = self.make(self.dice.choice(self.templates), node_name=node)
        if not self._clashes(node, pod):
            self.pods[node].append(pod)
            self.table.add_pod(pod)

    def remove_pod(self, node: str) -> None:
        if self.pods[node]:
            pod = self.pods[node].pop(self.dice.randrange(len(self.pods[node])))
            self.table.remove_pod(pod)

    def start_pod(self, node: str) -> None:
        """A kubelet reports when a pod has started."""
        waiting = [pod for pod in self.pods[node] if pod.start_time is None]
        if waiting:
            old = self.dice.choice(waiting)
            fields = {name: getattr(old, name) for name in old.__struct_fields__}
            new = Pod(**{**fields, "start_time": 1000.0 + self.dice.randrange(6)})
            self.pods[node][self.pods[node].index(old)] = new
            self.table.replace_pod(old, new)

    def nominate(self, node: str, pod: Pod | None = None) -> None:
        """Promises a node to a pod, new unless given."""
        pod = pod or self.make(self.dice.choice([*self.preemptors, *self.templates]))
        self.nominated.setdefault(node, []).append(pod)
        self.nominator.add(pod, node)

    def denominate(self, node: str) -> None:
        if self.nominated.get(node):
            self.nominator.delete(self.nominated[node].pop())

    def replace_node(self, node: str) -> None:
        """A node goes, with its pods, and comes back as another."""
        for pod in self.pods.pop(node):
            self.table.remove_pod(pod)
        self.table.remove_node(node)
        del self.nodes[node]
        self.add_node(node)

    def set_budget(self) -> None:
        """Makes a budget, or replaces one."""
        name = self.dice.choice(("one", "two"))
        selector = self.dice.choice(
            (
                LabelSelector(match_labels={"app": self.dice.choice(APPS)}),
                LabelSelector(match_labels={"app": self.dice.choice(APPS)}),
                LabelSelector(match_expressions=(Requirement("app", "Exists"),)),
                LabelSelector(match_expressions=(Requirement("app", "In", ("web", "db")),)),
                LabelSelector(),
                LabelSelector(match_expressions=(Requirement("app", "Like", ("w",)),)),
                None,
            )
        )
        everyone = [pod.name for pods in self.pods.values() for pod in pods]
        disrupted = self.dice.sample(everyone, min(2, len(everyone)))
        budget = PodDisruptionBudget(
            metadata=ObjectMeta(name=name, namespace=self.dice.choice(("ns", "ns", "other"))),
            spec=WorkloadSpec(selector=selector),
            status=PodDisruptionBudgetStatus(
                disruptions_allowed=self.dice.choice((-1, 0, 0, 1, 2)),
                disrupted_pods=dict.fromkeys(disrupted, "now"),
            ),
        )
        old = self.budgets.get(name)
        if old is not None:
            self.cluster.disruption_budgets.remove(old)
        self.budgets[name] = budget
        self.cluster.disruption_budgets.store(budget)

    def disturb(self) -> None:
        """Some change somewhere."""
        node = self.dice.choice(list(self.nodes))
        change = self.dice.choice(
            (
                self.add_pod,
                self.remove_pod,
                self.start_pod,
                self.nominate,
                self.denominate,
                self.replace_node,
                self.add_another_node,
                lambda _node: self.set_budget(),
            )
        )
        change(node)

    # ------------------------------------------------------------ both answers

    def attempt(self, pod: Pod) -> tuple[Attempt, Diagnosis | None]:
        """An attempt, and the diagnosis if the pod fits nowhere."""
        attempt = Attempt(
            self.framework, self.table, pod, nominated=self.nominations.concerning, rng=self.rng
        )
        try:
            attempt.find()
        except Unfit as unfit:
            return attempt, unfit.diagnosis
        return attempt, None

    def post_filter(
        self, attempt: Attempt, diagnosis: Diagnosis, effects: Extenders
    ) -> PostFilterResult:
        """What the plugin does about it."""
        result: PostFilterResult = finish(
            self.plugin.post_filter(attempt.state, attempt.pod, diagnosis, effects)
        )
        return result

    def next_order(self, potential: list[str]) -> list[str]:
        """The order in which the next search will try these nodes."""
        copy = np.random.Generator(np.random.PCG64())
        copy.bit_generator.state = self.rng.bit_generator.state
        return [potential[at] for at in copy.permutation(len(potential))]

    def situation(self, attempt: Attempt) -> twin.Situation:
        """The same for the twin, which sees every imagined node in a cluster made for that one question."""
        left = {plugin.NAME for _, plugin in self.framework.active_filters(attempt.state)}
        skipped = set(FILTERS) - left
        pod = attempt.pod

        def judge(node: str, pods) -> twin.Verdict:
            table = NodeTable()
            for name, each in self.nodes.items():
                table.set_node(each)
                for other in pods if name == node else self.pods[name]:
                    table.add_pod(other.on(name))
            framework, _ = frameworks(table, self.cluster, Nominator(), self.rng, skip=skipped)
            fresh = Attempt(framework, table, pod, nominated=lambda _: {}, rng=self.rng)
            try:
                fresh.find()
            except Unfit as unfit:
                status = unfit.diagnosis.status(table.row_of[node])
                return status.code, status.reasons
            found = fresh.diagnosis().outcome
            status = found.status(table.row_of[node])
            return None if status.ok else (status.code, status.reasons)

        return twin.Situation(pod, self.pods, self.nominated, list(self.budgets.values()), judge)
