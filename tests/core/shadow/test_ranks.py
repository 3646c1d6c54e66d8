"""What ranks say of a scheduler that looks at some of the nodes."""

import numpy as np
import pytest

from app.cycle.attempt import feasible_nodes_to_find
from app.tools.shadow.ranks import RankHistory


def sample(rng: np.random.Generator, nodes: int, looked_at: int) -> int:
    """The rank of the best of some nodes, other ones each time."""
    return int(rng.permutation(nodes)[:looked_at].min())


@pytest.mark.parametrize("nodes", [150, 1000, 3000, 15_000])
@pytest.mark.parametrize("percentage", [0, 10, 50, 90])
@pytest.mark.parametrize("seed", range(3))
def test_ranks_of_a_sample_are_taken_for_one(nodes, percentage, seed):
    ranks, rng = RankHistory(), np.random.default_rng(seed)
    looked_at = feasible_nodes_to_find(nodes, percentage)
    refused = 0
    for _ in range(600):
        better = sample(rng, nodes, looked_at)
        refused += not ranks.may_be_sampled(nodes, percentage, nodes, better)
        ranks.add(nodes, better, 1)
    assert refused <= 1


@pytest.mark.parametrize("percentage", [10, 50, 90])
def test_the_percentage_of_a_sample_is_not_excluded(percentage):
    ranks, rng = RankHistory(), np.random.default_rng(1)
    looked_at = feasible_nodes_to_find(1000, percentage)
    for _ in range(300):
        better = sample(rng, 1000, looked_at)
        if better:
            assert ranks.highest_percentage(1000, 1000, better) >= percentage
        ranks.add(1000, better, 1)


def test_ranks_that_are_too_high_in_sum_are_none_of_a_sample():
    """Each of them is plausible: they are those of a scheduler that chooses any of the best 20."""
    ranks, rng = RankHistory(), np.random.default_rng(1)
    believed = 0
    for _ in range(100):
        better = int(rng.integers(20))
        believed += bool(better) and ranks.may_be_sampled(3000, 0, 3000, better)
        ranks.add(3000, better, 1)
    assert 5 < believed < 40
    assert not ranks.may_be_sampled(3000, 0, 3000, 1)


def test_a_scheduler_that_misses_no_best_node_looks_at_all():
    ranks = RankHistory()
    assert ranks.highest_percentage(300, 300, 1) == 95
    for _ in range(200):
        ranks.add(300, 0, 1)
    assert ranks.highest_percentage(300, 300, 1) == 0


@pytest.mark.parametrize(("nodes", "better"), [(90, 1), (100, 5), (300, 40), (3000, 400), (500, 0)])
def test_no_percentage_explains_a_choice_that_none_can(nodes, better):
    """At least 100 nodes are looked at, and a rank must be plausible with the lowest percentage."""
    assert RankHistory().highest_percentage(nodes, nodes, better) == 0


def test_where_all_feasible_nodes_are_looked_at_nothing_is_sampled():
    assert not RankHistory().may_be_sampled(3000, 50, 1500, 1)
    assert not RankHistory().may_be_sampled(300, 100, 300, 1)
