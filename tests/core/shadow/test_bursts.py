"""Bursts: the order in which pods were decided is found, whatever it is, at a small price, and however late the
verdicts are.
"""

import numpy as np
import pytest

from app.model.pod import Pod
from app.tools.shadow import outcomes, timeline
from tests.core.shadow.playing import Player, world
from tests.core.shadow.test_judge import requests

#: Seconds between two decisions, and for which a binding is under way at most.
BETWEEN, UNDER_WAY = 0.01, 0.15


def burst(player: Player, pods: list[Pod], rng: np.random.Generator) -> None:
    """Pods are decided in this order; their bindings show in another one."""
    began = player.now
    shown = []
    for number, pod in enumerate(pods):
        player.now = began + BETWEEN * number
        shown.append((player.now + UNDER_WAY * rng.random(), number, pod, player.decide(pod)))
    for player.now, _, pod, after in sorted(shown, key=lambda each: each[:2]):
        player.show(Pod, pod, after)


def arrived(player: Player, number: int, rng: np.random.Generator) -> list[Pod]:
    """Pods of some sizes, which come in no order of their names."""
    sizes = ("200m", "500m", "1", "2")
    return [
        player.pod(f"p{each:04}", spec=requests(sizes[each % 4], f"{1 + each % 3}Gi"))
        for each in rng.permutation(number)
    ]


def cluster(here: str) -> Player:
    """Some nodes; a shadow of a configuration beside the defaults."""
    player = Player(world(), world(here))
    for number in range(40):
        cpu = {"cpu": f"{16 + number % 7}", "memory": f"{64 + number % 5}Gi", "pods": "110"}
        player.node(f"n{number:02}", status={"allocatable": cpu})
    return player


@pytest.fixture
def player() -> Player:
    return cluster("percentageOfNodesToScore: 100\n")


@pytest.mark.parametrize("order", ["arrival", "name", "any"])
def test_the_order_of_a_backlog_is_found(player, order):
    """A scheduler is started: it lists the pods that wait, and tries them as they were listed, or in the order of a
    map.
    """
    rng = np.random.default_rng(1)
    pods = arrived(player, 200, rng)
    player.now += 60
    if order == "name":
        pods.sort(key=lambda pod: pod.name)
    elif order == "any":
        pods = [pods[each] for each in rng.permutation(len(pods))]
    burst(player, pods, rng)
    player.catch_up()
    classes = player.classes()
    assert classes.total() == len(pods)
    assert classes["unexplained"] <= len(pods) * 0.005, classes
    assert classes["race"] <= len(pods) * 0.05, classes
    assert classes["same"] + classes["tie"] + classes["race"] == len(pods), classes


def test_another_configuration_is_not_taken_for_another_order():
    """Although only bindings tell the order of a backlog, they do not explain everything."""
    packing = "{scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}"
    config = f"profiles: [{{pluginConfig: [{{name: NodeResourcesFit, args: {packing}}}]}}]\n"
    player = cluster(config)
    rng = np.random.default_rng(1)
    pods = arrived(player, 120, rng)
    player.now += 60
    burst(player, [pods[each] for each in rng.permutation(len(pods))], rng)
    player.catch_up()
    different = [verdict for verdict in player.verdicts if not verdict.agrees]
    assert len(different) > 60
    assert all(verdict.plugins[0] == "NodeResourcesFit" for verdict in different[5:])


def test_a_verdict_in_a_burst_looks_at_few_other_outcomes(player, monkeypatch):
    """The number of pods that wait or were decided lately does not count."""
    rng = np.random.default_rng(1)
    compared = []
    precedes = outcomes.precedes
    monkeypatch.setattr(
        timeline, "precedes", lambda one, other: compared.append(one) or precedes(one, other)
    )
    pods = arrived(player, 250, rng)
    burst(player, pods, rng)
    player.catch_up()
    assert set(player.classes()) <= {"same", "tie"}
    assert len(compared) <= 2 * len(pods)


def test_a_scheduler_that_picks_at_random_is_found():
    player = Player(world(), world())
    for number in range(3000):
        cpu = {"cpu": f"{8000 + 10 * number}m", "memory": "64Gi", "pods": "110"}
        player.node(f"n{number}", status={"allocatable": cpu})
    player.catch_up()
    for number in range(100):
        pod = player.pod(f"p{number}", spec=requests("1"))
        after = player.versioned(pod, node_name=f"n{int(player.rng.integers(3000))}")
        player.tell(Pod, pod, after)
        player.now += 2
        (verdict,) = player.catch_up()
        if verdict.kind == "unexplained":
            assert "percentageOfNodesToScore" not in verdict.plugins
            break
    assert player.verdicts[-1].kind == "unexplained"
    assert not player.verdicts[-1].agrees
