"""Finds the plugins through which two decisions differ, and what would have to change."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from app.state.columns.arrays import Int64

#: Reasons in messages, by how they begin, and the plugins that give them.
_REASONS: Final = (
    ("Insufficient ", "NodeResourcesFit"),
    ("Too many pods", "NodeResourcesFit"),
    ("node(s) didn't match Pod's node affinity", "NodeAffinity"),
    ("node(s) didn't match scheduler-enforced node affinity", "NodeAffinity"),
    ("node(s) didn't match the requested node name", "NodeName"),
    ("node(s) didn't have free ports", "NodePorts"),
    ("node(s) didn't match pod topology spread constraints", "PodTopologySpread"),
    ("node(s) didn't match pod affinity rules", "InterPodAffinity"),
    ("node(s) didn't match pod anti-affinity rules", "InterPodAffinity"),
    ("node(s) didn't satisfy existing pods anti-affinity rules", "InterPodAffinity"),
    ("node(s) had untolerated taint", "TaintToleration"),
    ("node(s) were unschedulable", "NodeUnschedulable"),
    ("node(s) exceed max volume count", "NodeVolumeLimits"),
    ("node(s) had no available volume zone", "VolumeZone"),
    ("node(s) unavailable due to one or more pvc(s) bound", "VolumeBinding"),
    ("node(s) had volume node affinity conflict", "VolumeBinding"),
    ("node(s) didn't find available persistent volumes", "VolumeBinding"),
    ("node(s) did not have enough free storage", "VolumeBinding"),
    ("pod has unbound immediate PersistentVolumeClaims", "VolumeBinding"),
)
_HEAD: Final = "nodes are available: "
_PREEMPTION: Final = "preemption: "
#: Of the number of nodes.
_DIGITS: Final = 9
#: Characters of a reason that are compared.
_LONGEST: Final = 1000


class _Counts(NamedTuple):
    """A message of FailedScheduling: the nodes by reason, and the text about preemption."""

    by_reason: Mapping[str, int]
    preemption: str


def counts(message: str) -> _Counts:
    """The nodes by reason in a message of FailedScheduling, in time proportional to its length."""
    text = message.partition(_HEAD)[2] or message
    reasons, _, rest = text.partition(". ")
    found: dict[str, int] = {}
    reason, number = "", 0
    for part in reasons.removesuffix(".").split(", "):
        digits, _, words = part.partition(" ")
        if words and digits.isdecimal() and len(digits) <= _DIGITS:
            if number:
                found[reason] = number
            reason, number = words, int(digits)
        elif len(reason) < _LONGEST:  # a reason with a comma
            reason = f"{reason}, {part}"
    if number:
        found[reason] = number
    return _Counts(found, rest.partition(_PREEMPTION)[2])


def plugins_of_message(theirs: str, ours: str) -> tuple[str, ...]:
    """The plugins whose reasons are in one message only, or with other counts; those of all reasons without
    ``ours``."""
    there, here = counts(theirs), counts(ours)
    names = []
    for reason in {**there.by_reason, **here.by_reason}:
        if there.by_reason.get(reason) != here.by_reason.get(reason):
            names += [plugin for start, plugin in _REASONS if reason.startswith(start)]
    if not names and there.preemption != here.preemption:
        names.append("DefaultPreemption")
    return tuple(dict.fromkeys(names))


class Factor(NamedTuple):
    """The factors for one plugin's scores with which another node would be among the best."""

    plugin: str
    low: float
    high: float

    @property
    def effort(self) -> float:
        """How far the factor is from 1."""
        return max(self.low - 1, 1 - self.high)

    def __str__(self) -> str:
        if self.high < 0:
            return f"the scores of {self.plugin} would have to be reversed"
        if self.low <= 0 <= self.high and self.high < 1:
            return f"{self.plugin} would have to weigh at most {self.high:.2f} times as much, or nothing"
        if self.high < 1:
            return f"{self.plugin} would have to weigh {max(self.low, 0):.2f} to {self.high:.2f} times as much"
        high = "" if self.high == np.inf else f" to {self.high:.2f}"
        return f"{self.plugin} would have to weigh {self.low:.2f}{high} times as much"


def factors(totals: Int64, by_plugin: Mapping[str, Int64], chosen: int) -> Sequence[Factor]:
    """The plugins that alone, by another weight, would make the position ``chosen`` one of the best.

    ``totals`` and ``by_plugin`` are int64[nodes], with the weights applied. The closest factor comes first.
    """
    found = [
        factor
        for plugin, scores in by_plugin.items()
        if (factor := _factor(plugin, totals - scores, scores, chosen)) is not None
    ]
    return sorted(found, key=lambda factor: factor.effort)


def _factor(plugin: str, rest: Int64, scores: Int64, chosen: int) -> Factor | None:
    more = (scores - scores[chosen]).astype(float)
    room = (rest[chosen] - rest).astype(float)
    if ((more == 0) & (room < 0)).any():
        return None
    up, down = more > 0, more < 0
    high = float((room[up] / more[up]).min()) if up.any() else np.inf
    low = float((room[down] / more[down]).max()) if down.any() else -np.inf
    return Factor(plugin, low, high) if low <= high else None


def largest(by_plugin: Mapping[str, Int64], chosen: int, best: int) -> tuple[str, ...]:
    """The plugins that prefer the position ``best`` to ``chosen``, the one with the greatest difference first."""
    differences = {name: int(scores[best] - scores[chosen]) for name, scores in by_plugin.items()}
    names = [name for name, difference in differences.items() if difference > 0]
    return tuple(sorted(names, key=differences.__getitem__, reverse=True))
