"""DefaultPreemption: against its scalar twin, and case by case."""

import pytest

from app.framework.args import DefaultPreemptionArgs
from app.model.status import Code
from tests.core.framework.preemption_world import Crowd, Extenders
from tests.core.framework.twins import preemption as twin


def statuses(crowd, diagnosis):
    """What was said of each node."""
    found = {name: diagnosis.status(row) for name, row in crowd.table.row_of.items()}
    return {name: (status.code, status.reasons) for name, status in found.items()}


def check_against_twin(crowd, template):
    """Compares one preemption with the twin's; returns what it came to."""
    pod = crowd.make(template)
    attempt, diagnosis = crowd.attempt(pod)
    if diagnosis is None:
        return "fits"
    situation = crowd.situation(attempt)
    assert statuses(crowd, diagnosis) == {
        name: twin.fits(situation, name, crowd.pods[name]) for name in crowd.nodes
    }
    potential = [
        name
        for name in sorted(crowd.nodes, key=crowd.table.row_of.__getitem__)
        if diagnosis.status(crowd.table.row_of[name]).code is Code.Unschedulable
    ]
    share = len(potential) * crowd.args.min_candidate_nodes_percentage // 100
    wanted = min(len(potential), max(share, crowd.args.min_candidate_nodes_absolute))
    offset = crowd.next_offset(len(potential)) if potential else 0
    order = potential[offset:] + potential[:offset]
    candidates, verdicts = twin.dry_run(situation, order, wanted)
    effects = Extenders(asked=crowd.dice.random() < 0.5)
    result = crowd.post_filter(attempt, diagnosis, effects)
    if effects.asked:
        shown = {
            name: (list(victims.pods), victims.num_pdb_violations)
            for name, victims in effects.candidates.items()
        }
        assert shown == candidates
    if not candidates:
        assert not effects.evictions
        assert result.status.message == twin.message(len(crowd.nodes), verdicts)
        errors = any(code is Code.Error for code, _ in verdicts.values())
        assert result.status.code is (Code.Error if errors else Code.Unschedulable)
        assert result.nominated_node == (None if errors else "")
        return "error" if errors else "nowhere" if potential else "hopeless"
    (eviction,) = effects.evictions
    assert result.status.ok
    assert result.nominated_node == eviction.node_name
    assert eviction.node_name in twin.best(candidates)
    assert list(eviction.victims) == candidates[eviction.node_name][0]
    if crowd.dice.random() < 0.7:
        crowd.nominate(eviction.node_name, pod)
    return "violating" if candidates[eviction.node_name][1] else "harmless"


@pytest.mark.parametrize("seed", range(30))
def test_agrees_with_its_twin(seed):
    limits = ((10, 100), (50, 1), (0, 2), (100, 0), (10, 0))
    crowd = Crowd(seed, args=DefaultPreemptionArgs(*limits[seed % len(limits)]))
    for _ in range(8):
        check_against_twin(crowd, crowd.dice.choice(crowd.preemptors))
        for _ in range(crowd.dice.randint(0, 3)):
            crowd.disturb()


def test_random_crowds_show_every_outcome():
    seen = set()
    for seed in range(100, 112):
        crowd = Crowd(seed)
        for _ in range(4):
            seen.add(check_against_twin(crowd, crowd.dice.choice(crowd.preemptors)))
            crowd.disturb()
    assert seen >= {"fits", "nowhere", "harmless", "violating"}
