"""DefaultPreemption, one node and one pod at a time (docs/spec/preemption.md).

``judge(node_name, pods)`` says what the filters say of a node with just these pods on it: None, or (code, reasons).
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Sequence

from app.model.objects import PodDisruptionBudget
from app.model.pod import Pod
from app.model.status import Code

Verdict = tuple[Code, tuple[str, ...]] | None
Judge = Callable[[str, Sequence[Pod]], Verdict]

NO_VICTIMS = (
    Code.UnschedulableAndUnresolvable,
    ("No preemption victims found for incoming pod",),
)
NOT_HELPFUL = "Preemption is not helpful for scheduling"


@dataclasses.dataclass
class Situation:
    """What the dry run of a preemptor starts from, nodes in order."""

    pod: Pod
    pods: dict[str, list[Pod]]
    nominated: dict[str, list[Pod]]
    budgets: list[PodDisruptionBudget]
    judge: Judge


def started(pod):
    return math.inf if pod.start_time is None else pod.start_time


def importance(pod):
    return (-pod.priority, started(pod))


def fits(situation, node, pods):
    """The verdict with the nominated pods that go first, and if it is good the one without them."""
    first = [
        other
        for other in situation.nominated.get(node, ())
        if other.priority >= situation.pod.priority and other.uid != situation.pod.uid
    ]
    if first:
        verdict = situation.judge(node, [*pods, *first])
        if verdict is not None:
            return verdict
    return situation.judge(node, pods)


def selects(selector, labels):
    """matchLabels and the In and Exists expressions, which is all that the tests use."""
    for key, value in (selector.match_labels or {}).items():
        if labels.get(key) != value:
            return False
    for requirement in selector.match_expressions or ():
        if requirement.operator == "Exists":
            if requirement.key not in labels:
                return False
        elif labels.get(requirement.key) not in requirement.values:
            return False
    return True


def breaks_budgets(pods, budgets):
    """For each pod whether some budget has nothing left when its turn comes."""
    left = [budget.status.disruptions_allowed for budget in budgets]
    out = []
    for pod in pods:
        broken = False
        for number, budget in enumerate(budgets):
            selector = budget.spec.selector
            if not pod.labels or budget.namespace != pod.namespace or selector is None:
                continue
            if not selector.match_labels and not selector.match_expressions:
                continue
            if not selects(selector, pod.labels):
                continue
            if pod.name in (budget.status.disrupted_pods or {}):
                continue
            left[number] -= 1
            broken = broken or left[number] < 0
        out.append(broken)
    return out


def select_victims(situation, node):
    """(victims, violated budgets), or the verdict that makes the node useless."""
    pods = list(situation.pods[node])
    potential = [pod for pod in pods if pod.priority < situation.pod.priority]
    for pod in potential:
        pods.remove(pod)
    if not potential:
        return NO_VICTIMS
    verdict = fits(situation, node, pods)
    if verdict is not None:
        return verdict
    potential.sort(key=importance)
    broken = breaks_budgets(potential, situation.budgets)
    violating = [pod for pod, bad in zip(potential, broken, strict=True) if bad]
    others = [pod for pod, bad in zip(potential, broken, strict=True) if not bad]
    victims, violations = [], 0
    for pod in [*violating, *others]:
        if fits(situation, node, [*pods, pod]) is None:
            pods.append(pod)
            continue
        victims.append(pod)
        violations += pod in violating
    if violating and others:
        victims.sort(key=importance)
    if not victims:
        return Code.Error, (f'expected at least one victim pod on node "{node}"',)
    return victims, violations


def dry_run(situation, potential, wanted):
    """(candidates by node, verdicts by node), trying ``potential`` in this order until it is enough."""
    good, bad, verdicts = {}, {}, {}
    for node in potential:
        found = select_victims(situation, node)
        if isinstance(found[0], Code):
            verdicts[node] = found
            continue
        group = bad if found[1] else good
        if len(group) < wanted:
            group[node] = found
        if good and len(good) + len(bad) >= wanted:
            break
    return {**good, **bad}, verdicts


def cost(victims, violations):
    """What is compared between nodes, in this order."""
    highest = max(pod.priority for pod in victims)
    return (
        violations,
        victims[0].priority,
        sum(pod.priority + 2**31 for pod in victims),
        len(victims),
        -min(started(pod) for pod in victims if pod.priority == highest),
    )


def best(candidates):
    """The nodes of which any may be chosen."""
    costs = {node: cost(*found) for node, found in candidates.items()}
    return {node for node in costs if costs[node] == min(costs.values())}


def message(node_count, verdicts):
    """What is said when there is no candidate."""
    errors = {", ".join(reasons) for code, reasons in verdicts.values() if code is Code.Error}
    if errors:
        text = ", ".join(sorted(errors))
        return f"preemption: [{text}]" if len(errors) > 1 else f"preemption: {text}"
    counts = Counter(reason for _, reasons in verdicts.values() for reason in reasons)
    counts[NOT_HELPFUL] = node_count - len(verdicts)
    words = ", ".join(sorted(f"{n} {reason}" for reason, n in counts.items() if n))
    return f"preemption: 0/{node_count} nodes are available: {words}."
