"""Which pods are spared first, and which node loses least (spec: service.md 3.4 and 3.5)."""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from app.model.pod import Pod
from app.wire.extender_v1 import Victims

#: Added to every priority so that more victims always sum up to more.
_PRIORITY_OFFSET: Final = 2**31


def started(pod: Pod, now: float) -> float:
    """status.startTime in seconds since the epoch; a pod that has none has started just now."""
    return now if pod.start_time is None else pod.start_time


def by_importance(pods: Iterable[Pod], now: float) -> list[Pod]:
    """The most important first: higher priority, then the earlier start."""
    return sorted(pods, key=lambda pod: (-pod.priority, started(pod, now)))


def loss(victims: Victims, now: float) -> tuple[int, int, int, int, float]:
    """What evicting these pods (at least one) costs, to be compared: the node with the smallest loss is chosen.

    Violated budgets, the first victim's priority, the sum of priorities, the number of victims, and the later the
    victims of the highest priority have started, the better.
    """
    pods = victims.pods
    highest = max(pod.priority for pod in pods)
    earliest = min(started(pod, now) for pod in pods if pod.priority == highest)
    return (
        victims.num_pdb_violations,
        pods[0].priority,
        sum(pod.priority + _PRIORITY_OFFSET for pod in pods),
        len(pods),
        -earliest,
    )


def choose(candidates: Mapping[str, Victims], now: float, rng: np.random.Generator) -> str:
    """The node, of at least one, that loses least; any of those that lose the same."""
    if len(candidates) == 1:
        return next(iter(candidates))
    losses = {name: loss(victims, now) for name, victims in candidates.items()}
    least = min(losses.values())
    best = [name for name, found in losses.items() if found == least]
    return best[int(rng.integers(len(best)))] if len(best) > 1 else best[0]
