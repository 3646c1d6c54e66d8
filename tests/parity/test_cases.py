"""The recorded decisions of kube-scheduler 1.36.2: the same nodes, messages, scores and victims.

See docs/spec/README.md#versions-and-sources.

Every probe is judged alone, as it was recorded: first against an extender that turns every node down (feasible nodes,
message, victims), then, if it fits anywhere, scored with all feasible nodes.
"""

import asyncio
import collections
import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.cycle.attempt import Attempt, Unfit
from app.framework.diagnosis import Diagnosis
from app.framework.handle import Eviction
from app.model.features import Features, Rule
from app.model.pod import Pod
from app.model.status import Code, Status
from app.plugins.default_preemption.importance import loss
from app.state.view import View
from app.wire.extender_v1 import Victims
from tests.parity.cluster import CASES, Recorded, read

FILES = sorted(CASES.glob("case-*.json.gz"))


class Onlooker:
    """Effects of a scheduler whose extender writes down the victims it is shown; it may or may not agree to them."""

    def __init__(self, *, agrees: bool) -> None:
        self.agrees = agrees
        self.victims: dict[str, Any] | None = None
        self.candidates: Mapping[str, Victims] = {}
        self.eviction: Eviction | None = None

    def asks_about_victims(self, _pod: Pod) -> bool:
        """Whatever the pod."""
        return True

    async def agree_on_victims(
        self, _pod: Pod, candidates: Mapping[str, Victims]
    ) -> dict[str, Victims]:
        """Agrees to all or nothing."""
        self.candidates = candidates
        self.victims = {
            name: {
                "pods": [pod.key for pod in victims.pods],
                "numPDBViolations": victims.num_pdb_violations,
            }
            for name, victims in candidates.items()
        }
        return dict(candidates) if self.agrees else {}

    def evict(self, eviction: Eviction) -> None:
        """Writes it down."""
        self.eviction = eviction


def judge(attempt: Attempt, *, resolvable: bool) -> tuple[list[str], Diagnosis]:
    """The feasible nodes, and the diagnosis once the extender has turned them all down."""
    try:
        rows = attempt.find()
    except Unfit as unfit:
        return [], unfit.diagnosis
    code = Code.Unschedulable if resolvable else Code.UnschedulableAndUnresolvable
    verdict = Status(code, ("rejected by twin",), "Extender")
    attempt.extender_verdicts.update(dict.fromkeys(attempt.names(rows), verdict))
    return sorted(attempt.names(rows)), attempt.diagnosis()


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name.removesuffix(".json.gz"))
def test_decisions_agree(path: Path) -> None:
    case = read(path)
    recorded = Recorded(case)
    wrong: list[str] = []
    for probe in case["probes"]:
        if probe["feasible"] is None:
            continue
        wrong += check(recorded, probe)
    assert not wrong, f"{len(wrong)} disagreements:\n" + "\n".join(wrong)


#: By rule: the decisions that it changes, of those in every other file. Two rules change some together.
CHANGED = {
    ("sums-of-resize",): 65,
    ("storage-scores",): 8,
    ("storage-scores", "sums-of-resize"): 4,
    ("namespaces-once",): 2,
    ("namespaces-once", "sums-of-resize"): 1,
}


def test_with_the_rules_of_1_37_other_decisions_have_their_rule() -> None:
    """Each decision that differs becomes the recorded one without some rule; DynamicResources' text is left out, it is
    everywhere.
    """
    newer = without(Features.of("1.37"), Rule.QuietDevices)
    found: collections.Counter[tuple[str, ...]] = collections.Counter()
    for path in FILES[::2]:
        case = read(path)
        probes = [probe for probe in case["probes"] if probe["feasible"] is not None]
        recorded = Recorded(case, newer)
        changed = [probe for probe in probes if check(recorded, probe)]
        for rules in sets_of_rules(newer):
            if not changed:
                break
            older = Recorded(case, without(newer, *rules))
            same = [probe for probe in changed if not check(older, probe)]
            found[tuple(map(str, rules))] += len(same)
            changed = [probe for probe in changed if probe not in same]
        assert not changed, f"{path.name}: {[probe['name'] for probe in changed]}"
    assert {rules: count for rules, count in found.items() if count} == CHANGED


def without(features: Features, *rules: Rule) -> Features:
    """The features with fewer rules."""
    return msgspec.structs.replace(features, rules=features.rules - set(rules))


def sets_of_rules(features: Features) -> Iterator[tuple[Rule, ...]]:
    """The rules that change decisions, one by one, then two at a time."""
    told = [rule for rule in Rule if rule in features.rules and rule in DECIDING]
    return itertools.chain.from_iterable(itertools.combinations(told, n) for n in (1, 2))


#: Those that may change a probe.
DECIDING = (
    Rule.SumsOfResize,
    Rule.StorageScores,
    Rule.NamespacesOnce,
    Rule.OneBudget,
)


def check(recorded: Recorded, probe: dict[str, Any]) -> list[str]:
    """What differs from the recording, in words."""
    pod = recorded.pod(probe["pod"])
    attempt = recorded.attempt(pod)
    resolvable = (probe["pod"]["metadata"].get("annotations") or {}).get(
        "twin/reject"
    ) == "resolvable"
    feasible, diagnosis = judge(attempt, resolvable=resolvable)
    label = f"{probe['name']} {probe['tags']}"
    wrong = []
    if feasible != probe["feasible"]:
        wrong.append(f"{label}: feasible {feasible}, recorded {probe['feasible']}")
    effects = Onlooker(agrees=False)
    result = asyncio.run(
        attempt.framework.commit.post_filter(attempt.state, pod, diagnosis, effects)
    )
    if effects.victims != probe["victims"]:
        wrong.append(f"{label}: victims\n   {effects.victims}\n   {probe['victims']}")
    message = diagnosis.message("" if result is None or result.status.ok else result.status.message)
    if in_order(message) != in_order(probe["message"]):
        wrong.append(f"{label}: message\n   {message}\n   {probe['message']}")
    if probe.get("preempted"):
        wrong += check_preemption(attempt, diagnosis, probe, label)
    if probe["final_scores"]:
        wrong += check_scores(recorded, probe, label)
    return wrong


def check_preemption(
    attempt: Attempt, diagnosis: Diagnosis, probe: dict[str, Any], label: str
) -> list[str]:
    """What differs from the preemption that was carried through; between equal losses either node will do."""
    effects = Onlooker(agrees=True)
    result = asyncio.run(
        attempt.framework.commit.post_filter(attempt.state, attempt.pod, diagnosis, effects)
    )
    node, recorded = probe["preempted"]["node"], probe["preempted"]["pods"]
    if result is None or not result.status.ok or effects.eviction is None:
        return [f"{label}: no preemption but {result}, recorded {probe['preempted']}"]
    if node not in effects.candidates:
        return [f"{label}: node {node} is no candidate, recorded {probe['preempted']}"]
    ours, theirs = effects.candidates[effects.eviction.node_name], effects.candidates[node]
    wrong = []
    if result.nominated_node != effects.eviction.node_name or effects.eviction.victims != ours.pods:
        wrong.append(f"{label}: nominated {result.nominated_node}, evicted {effects.eviction}")
    evicted = sorted(pod.key for pod in theirs.pods if not pod.terminating)
    if loss(ours) != loss(theirs) or evicted != recorded:
        wrong.append(
            f"{label}: preempted on {result.nominated_node}, recorded {probe['preempted']}"
        )
    return wrong


def in_order(message: str) -> str:
    """The message with bracketed lists sorted: kube-scheduler's workers report their errors in any order."""
    return re.sub(r"\[([^\[\]]*)\]", lambda m: f"[{', '.join(sorted(m[1].split(', ')))}]", message)


def check_scores(recorded: Recorded, probe: dict[str, Any], label: str) -> list[str]:
    """What differs in the scores of a probe that fits on two nodes or more."""
    attempt = recorded.attempt(recorded.pod(probe["pod"]))
    rows = attempt.find()
    names = attempt.names(rows)
    totals = dict(zip(names, attempt.rank(rows).tolist(), strict=True))
    wrong = []
    if totals != probe["final_scores"]:
        wrong.append(f"{label}: totals {totals}, recorded {probe['final_scores']}")
    parts = attempt.framework.scoring.plugin_scores(
        attempt.state, attempt.pod, attempt.memo, View(recorded.state.table, rows)
    )
    ours = {
        plugin: dict(zip(names, scores.tolist(), strict=True)) for plugin, scores in parts.items()
    }
    theirs = probe["plugin_scores"]
    wrong += [
        f"{label}: {plugin} {ours.get(plugin)}, recorded {theirs.get(plugin)}"
        for plugin in sorted(ours.keys() | theirs.keys())
        if ours.get(plugin) != theirs.get(plugin)
    ]
    return wrong
