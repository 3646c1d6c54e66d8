"""Decides in which order the placements of a pod group are tried, and when one is known to be the best.

Every placement gets an upper bound of the pods that it takes, by columns and for all placements at once: copies of a
template are added to its nodes until the filters that look at one node alone reject the next one. Placements that
cannot take enough pods are not tried. The others are tried by the score that they have with as many pods as their
bound, highest first, so that usually the first one that is tried is the best one.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from app.framework.diagnosis import NONE
from app.framework.placements import DomainRoom, Placements
from app.framework.runner import Framework, PreFilterRejected
from app.model.pod import Pod, PodTemplate
from app.model.status import SchedulingError
from app.plugins.registry import IN_TREE
from app.state.columns.arrays import Int64
from app.state.columns.labels import Mask
from app.state.pod_batch import PodBatch
from app.state.table import NodeTable
from app.state.view import DryRunView

_IN_TREE: Final = frozenset(IN_TREE.values())
#: Placements that are shown.
MOST_SHOWN: Final = 10
_FIRST: Final = np.zeros(1, np.intp)


class PlacementSearch:
    """The search of one group for the best of at least one placement.

    Between ``next`` and ``record`` the caller places the pods in the placement. ``best`` reads the table: the pods must
    not be counted there any more.
    """

    def __init__(
        self,
        framework: Framework,
        table: NodeTable,
        placements: Placements,
        pods: Sequence[Pod],
        needed: int,
        rng: np.random.Generator,
    ) -> None:
        """``needed``: how many of the pods, at least one, a feasible placement takes. Raises SchedulingError."""
        self.placements: Final = placements
        self.needed: Final = needed
        self._points: Final = framework.placements
        self._pods: Final = pods
        #: bool[k, pods]: the pods that are placed if all goes well.
        self._hoped: Final = _most(framework, table, placements, pods)
        bounds = np.count_nonzero(self._hoped, axis=1)
        self._most: Final = int(bounds.max())
        #: By number of the placement: the pods that it took.
        self._taken: Final[dict[int, Mask]] = {}
        self._counts: Final[dict[int, int]] = {}
        #: The feasible placement with the highest total among those that took just the pods that they might.
        self._exact: int | None = None
        #: Whether any placement took as many pods as any might.
        self._most_taken = False
        self._because: Final[dict[int, str]] = {}
        viable = np.flatnonzero(bounds >= needed)
        self._totals: Final[dict[int, int]] = {}
        self._order: Final[list[int]] = []
        # If all feasible placements take all pods, or if more pods never score less, the totals are upper bounds.
        self._bounded: Final = needed == len(pods) or self._points.grows(pods)
        if len(viable):
            totals = self._score(viable.tolist(), self._hoped[viable])
            shuffled = rng.permutation(len(viable))
            order = viable[shuffled[np.argsort(-totals[shuffled], kind="stable")]].tolist()
            # Scores are relative to the most pods that any placement takes: one that may take so many is tried first.
            first = next(i for i, number in enumerate(order) if bounds[number] == self._most)
            self._order.append(order.pop(first))
            self._order.extend(order)
            self._totals.update(zip(viable.tolist(), totals.tolist(), strict=True))
        #: The placement to report if none is feasible.
        self._nearest = int(bounds.argmax())

    def next(self) -> int | None:
        """The number of the placement to try next; None if no other one can be better than those tried."""
        at = len(self._taken)
        if at == len(self._order):
            return None
        sure = self._sure()
        if sure is not None and self._totals[self._order[at]] <= self._totals[sure]:
            return None
        return self._order[at]

    def record(self, number: int, taken: Sequence[bool], because: str = "") -> None:
        """The pods that a placement took, in the order of the pods; ``because``: the message of one that it did not."""
        placed = self._taken[number] = np.array(taken, bool)
        count = self._counts[number] = int(np.count_nonzero(placed))
        self._because[number] = because
        self._most_taken |= count == self._most
        if count >= self.needed and np.array_equal(placed, self._hoped[number]):
            best = self._exact
            if best is None or self._totals[number] > self._totals[best]:
                self._exact = number

    def domains(self) -> tuple[DomainRoom, ...]:
        """The MOST_SHOWN placements with the most room, the roomiest first."""
        room = np.count_nonzero(self._hoped, axis=1)
        for number, count in self._counts.items():
            room[number] = count
        return tuple(
            DomainRoom(
                self.placements.names[number],
                int(room[number]),
                number in self._taken,
                self._because.get(number, ""),
            )
            for number in np.argsort(-room, kind="stable")[:MOST_SHOWN].tolist()
        )

    def is_best(self, number: int) -> bool:
        """Whether a placement is known to be the best, without scores. ``next`` has returned None."""
        feasible = self._feasible()
        if len(feasible) == 1:
            return feasible[0] == number
        total = self._totals[number]
        return self._sure() == number and all(self._totals[n] <= total for n in feasible)

    def best(self) -> int | None:
        """The number of the best placement; None if none is feasible. Raises SchedulingError."""
        feasible = self._feasible()
        if len(feasible) <= 1:
            return feasible[0] if feasible else None
        totals = self._score(feasible, np.array([self._taken[n] for n in feasible]))
        return feasible[int(totals.argmax())]

    def nearest(self) -> int:
        """The number of the placement that took the most pods, or may take the most if none was tried."""
        if not self._taken:
            return self._nearest
        return max(self._counts, key=self._counts.__getitem__)

    def _feasible(self) -> list[int]:
        """Those that took enough pods, in the order in which they were tried."""
        return [number for number, count in self._counts.items() if count >= self.needed]

    def _sure(self) -> int | None:
        """The tried placement with the highest total among those whose total is known exactly, if it bounds the
        others."""
        return self._exact if self._bounded and self._most_taken else None

    def _score(self, numbers: Sequence[int], placed: Mask) -> Int64:
        return self._points.score(self.placements.take(numbers), self._pods, placed)


def _most(
    framework: Framework, table: NodeTable, placements: Placements, pods: Sequence[Pod]
) -> Mask:
    """bool[k, pods]: of each template as many pods as a placement takes at most, the first ones."""
    by_template: dict[PodTemplate, list[int]] = {}
    for index, pod in enumerate(pods):
        by_template.setdefault(pod.template, []).append(index)
    most = np.zeros((len(placements), len(pods)), bool)
    for indices in by_template.values():
        room = room_for([pods[index] for index in indices], framework, table, placements)
        most[:, indices] = np.arange(len(indices)) < room[:, np.newaxis]
    return most


def room_for(
    pods: Sequence[Pod], framework: Framework, table: NodeTable, placements: Placements
) -> Int64:
    """int64[k]: an upper bound of how many of these pods of one template each placement takes.

    Only filters of single nodes are asked, and others that say that more pods never make them accept a node: the rest
    may reject more. Third-party filters are not asked: one may accept a node only because another pod of the group is
    there.
    """
    pod, wanted = pods[-1], len(pods)
    everything = np.full(len(placements), wanted, np.int64)
    local = framework.memo(pod).local
    if any(type(plugin) not in _IN_TREE for _, plugin in local.active_filters):
        return everything
    outcome = local.filtered(pod)
    if outcome.faulty:
        return everything
    owner = np.repeat(np.arange(len(placements)), placements.sizes)
    fits = outcome.plugin[placements.rows] == NONE
    try:
        state = framework.fresh_state(pod)
        active = framework.active_filters(state)
        wide = [each for each in active if framework.only_narrows(state, each[0])]
        if wide:
            fits &= framework.filter_view(state, pod, placements.view, wide).plugin == NONE
    except (PreFilterRejected, SchedulingError):
        return everything
    filters = [*local.active_filters, *wide]
    room = np.minimum(placements.sums(fits.astype(np.int64)), wanted)
    alive = np.flatnonzero(fits & (room[owner] < wanted))
    owner = owner[alive]
    view, batch = DryRunView(table, placements.rows[alive]), PodBatch(pods)
    at = np.arange(len(alive))
    for number in range(wanted - 1):
        if not len(at):
            break
        view.add_many(batch, np.full(len(at), number), at)
        try:
            verdicts = framework.filter_view(state, pod, view, filters)
        except SchedulingError:
            return everything
        at = at[verdicts.plugin[at] == NONE]
        room += np.bincount(owner[at], minlength=len(room))
        at = at[room[owner[at]] < wanted]
    return np.minimum(room, wanted)


def rejecting_plugins(
    framework: Framework, placements: Placements, pods: Sequence[Pod]
) -> Mapping[PodTemplate, frozenset[str]]:
    """By template: the plugins whose filters of single nodes reject a node of any placement, and the generator."""
    found: dict[PodTemplate, frozenset[str]] = {}
    for pod in pods:
        if pod.template not in found:
            outcome = framework.memo(pod).local.filtered(pod).take(placements.rows)
            found[pod.template] = frozenset(outcome.rejecting_plugins()) | {
                framework.placements.generator
            }
    return found
