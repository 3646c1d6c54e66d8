"""What could help a pod that no node takes: changes of the pod, of a node, and evictions, one for each reason.

A remedy is tried widely at first (no request at all, the label on every node that lacks it) and then as narrowly as a
node needs it: a request as large as fits there, the label on that node.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from app.framework.diagnosis import Diagnosis
from app.model.objects import Affinity, Container, Node, PodAffinity, PodSpec, Taint, Toleration
from app.model.pod import Pod, PodTemplate
from app.model.requests import CPU, MEMORY, exact, is_extended, pod_requests, to_units
from app.model.selectors import OPERATORS, Labels, Requirement, compile_selector, parse_int64
from app.model.status import Status
from app.plugins.helpers.tolerations import DO_NOT_SCHEDULE, UNSCHEDULABLE_TAINT, tolerated
from app.state.columns.arrays import Rows
from app.state.columns.terms import AffinityTerm, parse_terms
from app.state.scheduler_state import SchedulerState
from app.state.table import NodeTable
from app.wire.whatif_v1 import EvictedPod, PodChange

#: The most distinct reasons of a pod, taint lists, and labels that are looked at.
_MOST_REASONS: Final = 64
_MOST_TAINTS: Final = 32
_MOST_LABELS: Final = 32
#: The most nodes with one reason that are looked at, and the most containers of a pod of which requests are lowered.
_MOST_NODES: Final = 5_000
_MOST_CONTAINERS: Final = 32
#: The most pods that are looked at, and the most nodes from which they may go.
_MOST_SCANNED: Final = 50_000
_MOST_CLEARED: Final = 32
#: The most nodes that are changed one by one.
_MOST_APART: Final = 32
_INSUFFICIENT: Final = "Insufficient "
_NANOS: Final = 10**9
_MILLI: Final = 10**6
#: Victims of an eviction have lower priorities: all that users can give.
_ABOVE_USERS: Final = 1_000_000_001
#: The plugins whose rejections may end when pods of the node go.
_BY_PODS: Final = frozenset(
    {
        "NodeResourcesFit",
        "NodePorts",
        "InterPodAffinity",
        "PodTopologySpread",
        "NodeVolumeLimits",
        "VolumeRestrictions",
    }
)


class ChangeTrial(msgspec.Struct, frozen=True):
    """The pod and the nodes as they would be, and the pods that would be gone."""

    pod: Pod
    nodes: Mapping[str, Node] = {}
    gone: tuple[Pod, ...] = ()
    #: Whether pods of any priority may be evicted for the pod.
    evicts: bool = False
    changes: tuple[PodChange, ...] = ()


class Spot(msgspec.Struct, frozen=True):
    """A node that takes the pod in a wide trial: what is free there, in scheduler units, and who is evicted."""

    node: str
    free: Mapping[str, int] = {}
    victims: tuple[Pod, ...] = ()


class Remedy:
    """A change that may help."""

    def __init__(self, rank: int, *key: Hashable) -> None:
        #: Remedies with a lower one are easier to make, and told first.
        self.rank: Final = rank
        #: Equal for equal remedies.
        self.key: Final = (type(self).__name__, *key)

    def wide(self, trial: ChangeTrial) -> ChangeTrial:
        """The trial with the change everywhere."""
        raise NotImplementedError

    def narrow(self, trial: ChangeTrial, spot: Spot) -> ChangeTrial:
        """The trial with what this node needs of the change; the same trial if it needs nothing."""
        del spot
        return self.wide(trial)

    def apart(
        self, trial: ChangeTrial, diagnosis: Diagnosis, table: NodeTable
    ) -> Iterable["Remedy"]:
        """Remedies that may help although this one, made widely in the trial, failed for these reasons."""
        del trial, diagnosis, table
        return ()


class _OfPod(Remedy):
    """A change of the pod's spec."""

    def __init__(self, rank: int, change: PodChange, edit: Callable[[PodSpec], PodSpec]) -> None:
        super().__init__(rank, change.text, change.patch[0]["path"])
        self._change: Final = change
        self._edit: Final = edit

    def wide(self, trial: ChangeTrial) -> ChangeTrial:
        """See Remedy."""
        changes = (*trial.changes, self._change)
        return msgspec.structs.replace(
            trial, pod=_with_spec(trial.pod, self._edit(trial.pod.spec)), changes=changes
        )


class RequestChange(Remedy):
    """Less of a resource."""

    def __init__(self, resource: str) -> None:
        super().__init__(1, resource)
        self.resource: Final = resource

    def wide(self, trial: ChangeTrial) -> ChangeTrial:
        """See Remedy."""
        found = _lowered(trial.pod.spec, self.resource, 0)
        return (
            trial
            if found is None
            else msgspec.structs.replace(trial, pod=_with_spec(trial.pod, found[0]))
        )

    def narrow(self, trial: ChangeTrial, spot: Spot) -> ChangeTrial:
        """See Remedy."""
        spec, name = trial.pod.spec, self.resource
        before = pod_requests(spec).get(name, 0)
        target = _floor(name, max(0, spot.free[name]))
        found = None if target >= before else _lowered(spec, name, target)
        if found is None:
            return trial
        text = f"request {_text(name, target)} {name} in place of {_text(name, before)}"
        change = PodChange("request", text, patch=found[1])
        return msgspec.structs.replace(
            trial, pod=_with_spec(trial.pod, found[0]), changes=(*trial.changes, change)
        )


class _OfNodes(Remedy):
    """A change of a node; ``edit`` returns the node as it would be."""

    def __init__(
        self,
        key: Hashable,
        nodes: Iterable[Node],
        edit: Callable[[Node], Node],
        change: Callable[[str], PodChange],
        rank: int,
    ) -> None:
        super().__init__(rank, key)
        self._name: Final = key
        self._nodes: Final = {node.name: node for node in nodes}
        self._edit: Final = edit
        self._change: Final = change

    def wide(self, trial: ChangeTrial) -> ChangeTrial:
        """See Remedy."""
        known = trial.nodes
        edited = {n: self._edit(known.get(n, node)) for n, node in self._nodes.items()}
        return msgspec.structs.replace(trial, nodes={**known, **edited})

    def narrow(self, trial: ChangeTrial, spot: Spot) -> ChangeTrial:
        """See Remedy."""
        node = self._nodes.get(spot.node)
        if node is None:
            return trial
        nodes = {**trial.nodes, spot.node: self._edit(trial.nodes.get(spot.node, node))}
        changes = (*trial.changes, self._change(spot.node))
        return msgspec.structs.replace(trial, nodes=nodes, changes=changes)

    def apart(self, trial: ChangeTrial, diagnosis: Diagnosis, table: NodeTable) -> Iterator[Remedy]:
        """The change of one node each: with it everywhere, pods must also spread over nodes that take none."""
        if len(self._nodes) < 2 or not any(_spreading(trial.pod.spec)):
            return
        names = [
            table.names[row]
            for status, rows in _reasons(diagnosis)
            if status.plugin in _BY_PODS
            for row in rows.tolist()
        ]
        for name in [name for name in names if name in self._nodes][:_MOST_APART]:
            key = (self._name, name)
            yield _OfNodes(key, [self._nodes[name]], self._edit, self._change, self.rank)


class SuggestedEviction(Remedy):
    """Pods of a node go, whatever their priority is, but for those of the system."""

    def __init__(self) -> None:
        super().__init__(9)

    def wide(self, trial: ChangeTrial) -> ChangeTrial:
        """See Remedy."""
        spec = msgspec.structs.replace(
            trial.pod.spec, priority=_ABOVE_USERS, preemption_policy=None
        )
        return msgspec.structs.replace(trial, pod=_with_spec(trial.pod, spec), evicts=True)

    def narrow(self, trial: ChangeTrial, spot: Spot) -> ChangeTrial:
        """See Remedy."""
        return _evicting(trial, spot.victims) if spot.victims else trial


class Clearing(Remedy):
    """Pods of some node go that keep this pod away from others: by anti-affinity, or by spreading."""

    def __init__(self, node: str, pods: Sequence[Pod]) -> None:
        super().__init__(9, node)
        self._node: Final = node
        self.pods: Final = tuple(pods)

    def wide(self, trial: ChangeTrial) -> ChangeTrial:
        """See Remedy."""
        return msgspec.structs.replace(trial, gone=(*trial.gone, *self.pods))

    def narrow(self, trial: ChangeTrial, spot: Spot) -> ChangeTrial:
        """See Remedy."""
        del spot
        return _evicting(trial, self.pods)

    def without(self, trial: ChangeTrial, pod: Pod) -> ChangeTrial | None:
        """The narrow trial in which this pod stays; None if it is the only one that goes."""
        left = tuple(each for each in trial.gone if each.uid != pod.uid)
        here = [each for each in left if each.node_name == self._node]
        others = tuple(each for each in left if each.node_name != self._node)
        return _evicting(msgspec.structs.replace(trial, gone=others), here) if here else None


def _evicting(trial: ChangeTrial, pods: Sequence[Pod]) -> ChangeTrial:
    """The trial in which these pods go as well: one change for each node, with those of it that already go."""
    gone = (*trial.gone, *pods)
    nodes = dict.fromkeys(pod.node_name for pod in pods)
    changes = [e for e in trial.changes if e.kind != "eviction" or e.node not in nodes]
    for node in nodes:
        here = [pod for pod in gone if pod.node_name == node]
        shown = ", ".join(pod.key for pod in here[:3])
        more = f" and {len(here) - 3} more" if len(here) > 3 else ""
        text = f"evict {shown}{more} from node {node}"
        changes.append(PodChange("eviction", text, node=node, evict=list(map(evicted, here))))
    return msgspec.structs.replace(trial, gone=gone, changes=tuple(changes))


def evicted(pod: Pod) -> EvictedPod:
    """A pod as the answer names it."""
    return EvictedPod(pod.namespace, pod.name, pod.node_name, pod.priority)


# ---------------------------------------------------------------- remedies for reasons


def remedies_for(
    trial: ChangeTrial, diagnosis: Diagnosis | None, state: SchedulerState
) -> Iterator[Remedy | None]:
    """What may help against the reasons of a failed trial, None where others may run.

    ``diagnosis``: None if the pod does not get into the queue.
    """
    spec, table = trial.pod.spec, state.table
    if spec.scheduling_gates:
        yield from _gates(spec)
        return
    if diagnosis is None:
        return
    found: list[Remedy] = []
    plugins: set[str] = set()
    for status, rows in _reasons(diagnosis):
        some = rows[:_MOST_NODES].tolist()
        nodes = [node for row in some if (node := table.nodes[row]) is not None]
        for remedy in _remedies(status, trial, nodes):
            if remedy is None:
                yield None
            else:
                found.append(remedy)
        plugins.add(status.plugin)
        yield None
    evicts = not plugins.isdisjoint(_BY_PODS)
    if diagnosis.outcome is None or diagnosis.absent.plugin == "NodeAffinity":
        found += _selection(spec)
    if evicts:
        # A node names the filter that rejects the pod first. If evictions satisfy that one, these may reject it next.
        found += [RequestChange(name) for name, amount in pod_requests(spec).items() if amount]
        found += [*_ports(spec), *_spreading(spec), *_pod_affinity(spec)]
    if evicts and not trial.evicts:
        found.append(SuggestedEviction())
    yield from sorted({each.key: each for each in found}.values(), key=_rank)
    # Where the pod may evict others, only the search for victims finds that pods elsewhere are in the way as well.
    if evicts and not trial.evicts:
        yield from _clearings(trial, state)


def _reasons(diagnosis: Diagnosis) -> Iterator[tuple[Status, Rows]]:
    """The distinct rejections of filters, each with its rows, that of most rows first."""
    outcome = diagnosis.outcome
    if outcome is None:
        return
    rejected = outcome.rejected()
    keys = (outcome.plugin[rejected].astype(np.int64) << 32) + outcome.reasons[rejected]
    _, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    for number in np.argsort(-counts, kind="stable")[:_MOST_REASONS].tolist():
        rows = rejected[inverse == number]
        yield outcome.status(int(rows[0])), rows


def _remedies(status: Status, trial: ChangeTrial, nodes: Sequence[Node]) -> Iterable[Remedy | None]:
    spec = trial.pod.spec
    match status.plugin:
        case "NodeResourcesFit":
            lacking = [r.removeprefix(_INSUFFICIENT) for r in status.reasons]
            return [RequestChange(name) for name in lacking if pod_requests(spec).get(name)]
        case "TaintToleration":
            return _tolerations(spec, nodes)
        case "NodeUnschedulable":
            return [_uncordon(nodes)]
        case "NodeAffinity":
            return [*_selection(spec), *_labels(spec, nodes, trial)]
        case "NodePorts":
            return _ports(spec)
        case "PodTopologySpread":
            return _spreading(spec)
        case "InterPodAffinity":
            return _pod_affinity(spec)
        case _:
            return []


def _rank(remedy: Remedy) -> int:
    return remedy.rank


def _clearings(trial: ChangeTrial, state: SchedulerState) -> Iterator[Remedy | None]:
    """Evictions that may let the pod go to other nodes: one remedy for each node."""
    is_in_the_way = _in_the_way(trial.pod, state)
    if is_in_the_way is None:
        return
    found: dict[str, list[Pod]] = {}
    for number, other in enumerate(state.cache):
        if number % 64 == 0:
            yield None
        if number == _MOST_SCANNED:
            break
        if other.priority < _ABOVE_USERS and is_in_the_way(other):
            found.setdefault(other.node_name, []).append(other)
    for node, pods in sorted(found.items(), key=lambda each: len(each[1]))[:_MOST_CLEARED]:
        yield Clearing(node, pods)


def _in_the_way(pod: Pod, state: SchedulerState) -> Callable[[Pod], bool] | None:
    """Whether another pod keeps this one away by anti-affinity or spreading; None if no pod does.

    So do those that it must be near: without them, a pod that its own terms match may go anywhere.
    """

    def labels_of(namespace: str) -> Labels:
        found = state.cluster.namespaces.get(namespace)
        return {} if found is None else found.labels

    def matches(term: AffinityTerm, other: Pod) -> bool:
        return term.matches(other.namespace, labels_of(other.namespace), other.labels)

    terms = parse_terms(pod.spec.affinity, pod.namespace)
    apart, near = terms.required_anti_affinity, terms.required_affinity
    if not all(matches(term, pod) for term in near):
        near = ()
    spreads = [
        compile_selector(each.label_selector)
        for each in pod.spec.topology_spread_constraints or ()
        if each.when_unsatisfiable == "DoNotSchedule"
    ]
    if not apart and not near and not spreads and not len(state.table.terms):
        return None

    def is_in_the_way(other: Pod) -> bool:
        if any(matches(term, other) for term in apart):
            return True
        if near and all(matches(term, other) for term in near):
            return True
        if other.namespace == pod.namespace and any(s.matches(other.labels) for s in spreads):
            return True
        if not other.template.has_affinity:
            return False
        theirs = parse_terms(other.spec.affinity, other.namespace).required_anti_affinity
        return any(matches(term, pod) for term in theirs)

    return is_in_the_way


def _gates(spec: PodSpec) -> Iterator[Remedy]:
    for gate in spec.scheduling_gates or ():
        name = gate.name

        def edit(spec: PodSpec, name: str = name) -> PodSpec:
            left = tuple(each for each in spec.scheduling_gates or () if each.name != name)
            return msgspec.structs.replace(spec, scheduling_gates=left or None)

        number = [each.name for each in spec.scheduling_gates or ()].index(name)
        patch = [_remove("spec", "schedulingGates", number)]
        yield _OfPod(0, PodChange("gate", f"remove the scheduling gate {name}", patch=patch), edit)


def _tolerations(spec: PodSpec, nodes: Sequence[Node]) -> Iterator[Remedy]:
    seen: dict[Taint, None] = {}
    for node in nodes:
        for taint in node.spec.taints or ():
            if taint.effect in DO_NOT_SCHEDULE and taint not in seen:
                seen[taint] = None
        if len(seen) > _MOST_TAINTS:
            break
    for taint in seen:
        if not tolerated(taint, spec.tolerations or ()):
            yield _toleration(taint)


def _toleration(taint: Taint) -> Remedy:
    operator = "Equal" if taint.value else "Exists"
    made = Toleration(key=taint.key, operator=operator, value=taint.value, effect=taint.effect)
    value = msgspec.to_builtins(made)
    shown = f"{taint.key}={taint.value}" if taint.value else taint.key
    change = PodChange(
        "toleration",
        f"tolerate the taint {shown}:{taint.effect}",
        patch=[{"op": "add", "path": "/spec/tolerations/-", "value": value}],
    )

    def edit(spec: PodSpec) -> PodSpec:
        return msgspec.structs.replace(spec, tolerations=(*(spec.tolerations or ()), made))

    return _OfPod(2, change, edit)


def _uncordon(nodes: Sequence[Node]) -> Remedy:
    def edit(node: Node) -> Node:
        taints = tuple(t for t in node.spec.taints or () if t.key != UNSCHEDULABLE_TAINT.key)
        spec = msgspec.structs.replace(node.spec, unschedulable=False, taints=taints or None)
        return msgspec.structs.replace(node, spec=spec)

    def change(name: str) -> PodChange:
        patch = [{"op": "replace", "path": "/spec/unschedulable", "value": False}]
        return PodChange("uncordon", f"uncordon node {name}", node=name, patch=patch)

    return _OfNodes("uncordon", nodes, edit, change, 4)


def _selection(spec: PodSpec) -> Iterator[Remedy]:
    """Without an entry of the nodeSelector, or without the required node affinity."""
    for key, value in (spec.node_selector or {}).items():

        def edit(spec: PodSpec, key: str = key) -> PodSpec:
            left = {k: v for k, v in (spec.node_selector or {}).items() if k != key}
            return msgspec.structs.replace(spec, node_selector=left or None)

        change = PodChange(
            "nodeSelector",
            f"drop {key}={value} from the nodeSelector",
            patch=[_remove("spec", "nodeSelector", key)],
        )
        yield _OfPod(5, change, edit)
    affinity = spec.affinity
    if affinity is not None and affinity.node_affinity is not None:
        if affinity.node_affinity.required is None:
            return
        change = PodChange(
            "nodeAffinity",
            "drop the required node affinity",
            patch=[_remove("spec", "affinity", "nodeAffinity", _REQUIRED)],
        )
        yield _OfPod(6, change, _without_node_affinity)


_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def _without_node_affinity(spec: PodSpec) -> PodSpec:
    affinity = spec.affinity or Affinity()
    if affinity.node_affinity is None:
        return spec
    nodes = msgspec.structs.replace(affinity.node_affinity, required=None)
    return msgspec.structs.replace(
        spec, affinity=msgspec.structs.replace(affinity, node_affinity=nodes)
    )


def _labels(spec: PodSpec, nodes: Sequence[Node], trial: ChangeTrial) -> Iterator[Remedy | None]:
    """The labels of which a node lacks one only, to be what the pod selects; None where others may run."""
    lacking: dict[tuple[str, str], list[Node]] = {}
    ways = list(_ways(spec))
    for number, node in enumerate(nodes, 1):
        if number % 64 == 0:
            yield None
        labels = trial.nodes.get(node.name, node).labels
        for way in ways:
            missing = {each.key for each in way if not _holds(each, labels)}
            if len(missing) != 1 or not missing.isdisjoint(labels):
                continue
            [key] = missing
            value = _value([each for each in way if each.key == key])
            if value is None:
                continue
            if len(lacking) < _MOST_LABELS or (key, value) in lacking:
                lacking.setdefault((key, value), []).append(node)
    for (key, value), some in lacking.items():
        yield _label(key, value, some)


def _holds(requirement: Requirement, labels: Labels) -> bool:
    return OPERATORS[requirement.operator](labels, requirement.key, requirement.values or ())


def _ways(spec: PodSpec) -> Iterator[list[Requirement]]:
    """The sets of requirements of which one must hold as a whole."""
    always = [Requirement(k, "In", (v,)) for k, v in (spec.node_selector or {}).items()]
    affinity = None if spec.affinity is None else spec.affinity.node_affinity
    required = None if affinity is None else affinity.required
    if required is None:
        yield always
        return
    for term in required.node_selector_terms or ():
        if not term.match_fields and all(
            each.operator in OPERATORS for each in term.match_expressions or ()
        ):
            yield [*always, *(term.match_expressions or ())]


def _value(requirements: Sequence[Requirement]) -> str | None:
    """A value of the label that all these requirements have as their key; None if none is found."""
    named: list[str] = []
    for each in requirements:
        match each.operator:
            case "In":
                named += each.values or ()
            case "Gt" | "Lt":
                step = 1 if each.operator == "Gt" else -1
                numbers = map(parse_int64, each.values or ())
                named += [str(number + step) for number in numbers if number is not None]
            case _:
                pass
    return next(
        (
            value
            for value in (*named, "")
            if all(_holds(each, {each.key: value}) for each in requirements)
        ),
        None,
    )


def _label(key: str, value: str, nodes: Sequence[Node]) -> Remedy:
    def edit(node: Node) -> Node:
        meta = msgspec.structs.replace(node.metadata, labels={**node.labels, key: value})
        return msgspec.structs.replace(node, metadata=meta)

    def change(name: str) -> PodChange:
        patch = [{"op": "add", "path": _path("metadata", "labels", key), "value": value}]
        return PodChange("label", f"label node {name} {key}={value}", node=name, patch=patch)

    return _OfNodes((key, value), nodes, edit, change, 3)


def _ports(spec: PodSpec) -> Iterator[Remedy]:
    for part, containers in _parts(spec):
        for number, container in enumerate(containers):
            if part == "initContainers" and container.restart_policy != "Always":
                continue  # its ports do not count
            for at, port in enumerate(container.ports or ()):
                if port.host_port > 0:
                    yield _port(part, number, at, container.name, port.host_port)


def _port(part: str, number: int, at: int, name: str, host_port: int) -> Remedy:
    def edit(spec: PodSpec) -> PodSpec:
        container = _containers(spec, part)[number]
        ports = list(container.ports or ())
        ports[at] = msgspec.structs.replace(ports[at], host_port=0)
        return _with_container(
            spec, part, number, msgspec.structs.replace(container, ports=tuple(ports))
        )

    text = f"do without host port {host_port} of container {name}"
    patch = [_remove("spec", part, number, "ports", at, "hostPort")]
    return _OfPod(7, PodChange("hostPort", text, patch=patch), edit)


def _spreading(spec: PodSpec) -> Iterator[Remedy]:
    for number, constraint in enumerate(spec.topology_spread_constraints or ()):
        if constraint.when_unsatisfiable != "DoNotSchedule":
            continue

        def edit(spec: PodSpec, number: int = number) -> PodSpec:
            constraints = list(spec.topology_spread_constraints or ())
            constraints[number] = msgspec.structs.replace(
                constraints[number], when_unsatisfiable="ScheduleAnyway"
            )
            return msgspec.structs.replace(spec, topology_spread_constraints=tuple(constraints))

        path = _path("spec", "topologySpreadConstraints", number, "whenUnsatisfiable")
        change = PodChange(
            "topologySpread",
            f"whenUnsatisfiable: ScheduleAnyway for spreading by {constraint.topology_key}",
            patch=[{"op": "replace", "path": path, "value": "ScheduleAnyway"}],
        )
        yield _OfPod(7, change, edit)


def _pod_affinity(spec: PodSpec) -> Iterator[Remedy]:
    affinity = spec.affinity or Affinity()
    near, far = affinity.pod_affinity or PodAffinity(), affinity.pod_anti_affinity or PodAffinity()
    for number, term in enumerate(near.required or ()):
        yield _without_term("podAffinity", "affinity", number, term.topology_key)
    for number, term in enumerate(far.required or ()):
        yield _without_term("podAntiAffinity", "anti-affinity", number, term.topology_key)


def _without_term(name: str, word: str, number: int, key: str) -> Remedy:
    def fewer(part: PodAffinity | None) -> PodAffinity:
        part = part or PodAffinity()
        left = tuple(term for i, term in enumerate(part.required or ()) if i != number)
        return msgspec.structs.replace(part, required=left or None)

    def edit(spec: PodSpec) -> PodSpec:
        whole = spec.affinity or Affinity()
        if name == "podAffinity":
            whole = msgspec.structs.replace(whole, pod_affinity=fewer(whole.pod_affinity))
        else:
            whole = msgspec.structs.replace(whole, pod_anti_affinity=fewer(whole.pod_anti_affinity))
        return msgspec.structs.replace(spec, affinity=whole)

    change = PodChange(
        name,
        f"drop the required {word} to other pods by {key} (term {number + 1})",
        patch=[_remove("spec", "affinity", name, _REQUIRED, number)],
    )
    return _OfPod(8, change, edit)


# ---------------------------------------------------------------- parts of pods


def _with_spec(pod: Pod, spec: PodSpec) -> Pod:
    return msgspec.structs.replace(pod, template=PodTemplate(spec))


def _parts(spec: PodSpec) -> Iterator[tuple[str, Sequence[Container]]]:
    yield "containers", spec.containers
    yield "initContainers", spec.init_containers or ()


def _containers(spec: PodSpec, part: str) -> Sequence[Container]:
    return spec.containers if part == "containers" else spec.init_containers or ()


def _with_container(spec: PodSpec, part: str, number: int, container: Container) -> PodSpec:
    all_ = list(_containers(spec, part))
    all_[number] = container
    field = "containers" if part == "containers" else "init_containers"
    return msgspec.structs.replace(spec, **{field: tuple(all_)})


def _lowered(spec: PodSpec, name: str, target: int) -> tuple[PodSpec, list[dict[str, Any]]] | None:
    """The spec with a request of at most ``target`` (nano-units), and the patch for it.

    None if overhead is more, or if there are too many containers.

    The largest requests are made smaller first, and no more of them than are needed.
    """
    whole = spec.resources
    if whole is not None and name in exact(whole.requests):
        own = max(0, target - exact(spec.overhead).get(name, 0))
        requests = {**(whole.requests or {}), name: _text(name, own)}
        lowered = msgspec.structs.replace(
            spec, resources=msgspec.structs.replace(whole, requests=requests)
        )
        path = _path("spec", "resources", "requests", name)
        patch = [{"op": "add", "path": path, "value": _text(name, own)}]
        return (lowered, patch) if pod_requests(lowered).get(name, 0) <= target else None
    holders = sorted(
        (
            (exact(container.resources.requests).get(name, 0), part, number)
            for part, containers in _parts(spec)
            for number, container in enumerate(containers)
            if container.resources is not None
        ),
        reverse=True,
    )
    if len(holders) > _MOST_CONTAINERS:
        return None
    lowered, changed = spec, {}
    for own, part, number in holders:
        excess = pod_requests(lowered).get(name, 0) - target
        if excess <= 0:
            break
        changed[part, number] = own, max(0, own - excess)
        lowered = _with_request(lowered, part, number, name, changed[part, number][1])
    if pod_requests(lowered).get(name, 0) > target:
        return None
    for (part, number), (own, _) in list(changed.items()):
        again = _with_request(lowered, part, number, name, own)
        if pod_requests(again).get(name, 0) <= target:
            lowered = again
            del changed[part, number]
    patch = []
    for (part, number), (_, amount) in changed.items():
        for kind in ("requests", "limits") if is_extended(name) else ("requests",):
            path = _path("spec", part, number, "resources", kind, name)
            patch.append({"op": "add", "path": path, "value": _text(name, amount)})
    return lowered, patch


def _with_request(spec: PodSpec, part: str, number: int, name: str, amount: int) -> PodSpec:
    container = _containers(spec, part)[number]
    resources = container.resources
    if resources is None:
        return spec
    requests = {**(resources.requests or {}), name: _text(name, amount)}
    resources = msgspec.structs.replace(resources, requests=requests)
    return _with_container(
        spec, part, number, msgspec.structs.replace(container, resources=resources)
    )


def free_on(table: NodeTable, row: int, name: str) -> int:
    """What is free of a resource on a row, in scheduler units."""
    return table.allocatable.exact(name, row) - table.requested.exact(name, row)


def _floor(name: str, units: int) -> int:
    """So many scheduler units in nano-units; memory in whole Mi."""
    if name == CPU:
        return units * _MILLI
    if name == MEMORY and units >= 2**20:
        units -= units % 2**20
    return units * _NANOS


def _text(name: str, nanos: int) -> str:
    """A quantity as people write it."""
    if name == CPU:
        milli = -(-nanos // _MILLI)
        return f"{milli}m" if milli % 1000 else str(milli // 1000)
    units = to_units(name, nanos)
    if name == MEMORY or name.startswith(("hugepages-", "ephemeral-storage")):
        for unit, size in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
            if units and units % size == 0:
                return f"{units // size}{unit}"
    return str(units)


def _path(*parts: str | int) -> str:
    """A JSON pointer (RFC 6901)."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in parts)


def _remove(*parts: str | int) -> dict[str, Any]:
    return {"op": "remove", "path": _path(*parts)}
