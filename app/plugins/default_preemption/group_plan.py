"""Plans the preemption of a pod group: which pods are evicted so that enough pods of the group fit.

Source: docs/spec/pod-groups.md#preemption-of-groups.

All nodes are one "what if" view. First every unit of lower priority is removed from it, and pods of the group are
placed until there are enough. Then the units are added again, the most important first. If a pod of the group no longer
fits on its node, it is placed elsewhere; if that is impossible, the unit is removed again: it is a victim. A unit is a
single pod, or all pods of a group that is disrupted as a whole.

The plan asks NodeLocal filters only: then what fits on a row follows from that row, and only changed rows are judged
again.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from app.model.pod import HostPort, Pod, PodTemplate
from app.model.pod_groups import GroupKey
from app.plugins.default_preemption.budgets import DisruptionBudgets
from app.plugins.default_preemption.dry_run import DryRunViews, PodFilters
from app.plugins.default_preemption.importance import being_preempted, started_at
from app.state.columns.arrays import Int64, Rows
from app.state.columns.labels import Mask
from app.state.nominations import PodsByRow
from app.state.pod_batch import PodBatch
from app.state.pod_groups import PodGroups
from app.state.table import NodeTable

#: Pods of lower priority that are handled between two pauses.
_CHUNK: Final = 512
#: Rows that are judged at once while a row for a pod is sought; more if none of these has room.
_FIRST_ROWS: Final = 8
_MORE_ROWS: Final = 256
#: About how many pods were removed from the rows that are judged at once.
_MORE_PODS: Final = 2048
_Move = Callable[[PodBatch, Rows, Rows], None]
#: A pod of a unit: its batch, its index there, and its position.
_Place = tuple[PodBatch, int, int]


class Unit(msgspec.Struct, frozen=True, gc=False):
    """Pods that are evicted together."""

    #: The pods that stay if the unit is reprieved, and those that are terminating already.
    pods: tuple[Pod, ...]
    leaving: tuple[Pod, ...]
    priority: int
    #: Whether the pods name a group; they are more important than others of the same priority.
    grouped: bool

    @property
    def doomed(self) -> bool:
        """Whether a scheduler has evicted some of its pods: the others have to follow."""
        return any(map(being_preempted, self.leaving))

    @property
    def importance(self) -> tuple[int, bool, int, float]:
        """The sort key, most important first."""
        size = len(self.pods) if self.grouped else 0
        return -self.priority, not self.grouped, -size, min(map(started_at, self.pods))


class GroupDemand(msgspec.Struct, frozen=True):
    """What a group needs."""

    key: GroupKey
    priority: int
    #: The pods without a node, in the order in which they are placed; the other pods of the group are counted on the
    #: table.
    pods: Sequence[Pod]
    #: How many of ``pods`` must fit at least.
    need: int
    #: By template: the filters for its pods. Pods of other templates are not placed.
    filters: Mapping[PodTemplate, PodFilters]
    #: By template of ``filters``: int64[n], the scores of the rows as the table is now.
    scores: Mapping[PodTemplate, Int64]
    #: By template: rows on which its pods cannot be placed, whatever the filters say.
    refused: Mapping[PodTemplate, Collection[int]]
    #: intp[n], ascending: the rows of the domain in which the group is placed.
    rows: Rows


class GroupPlan(msgspec.Struct, frozen=True):
    """Where pods of the group fit (rows by uid), and the pods to evict for that, most important first."""

    rows: Mapping[str, int]
    victims: tuple[Pod, ...]
    #: How many units are evicted although that violates a disruption budget.
    violations: int


class NoPotentialVictims(Exception):  # noqa: N818 - a verdict, not a fault
    """No pod in the domain has a lower priority than the group."""


class NodesChanged(Exception):  # noqa: N818 - the plan can be made again
    """Nodes of the plan have changed in a pause."""


class _Kind:
    """Where a pod of one template fits. ``maybe``: bool[n], False where it does not; exact where ``known``."""

    def __init__(self, views: DryRunViews, allowed: Mask, scores: Int64) -> None:
        self.views: Final = views
        #: int64[n], below n: a row with a higher score has a higher number.
        self.ranks: Final[Int64] = np.unique(scores, return_inverse=True)[1]
        self.allowed: Final = allowed
        self.maybe: Final = allowed.copy()
        self.known: Final = ~allowed


class _Member(msgspec.Struct, frozen=True):
    pod: Pod
    kind: _Kind
    #: Its index in the batch of all members.
    index: int


class _World:
    """The view of all rows with the units and the pods of the group that are there for the moment."""

    def __init__(
        self, table: NodeTable, request: GroupDemand, nominated: PodsByRow, members: Sequence[Pod]
    ) -> None:
        self.rows: Final = request.rows
        some = next(iter(request.filters.values()))
        self._views: Final = DryRunViews.of(some, table, request.rows, nominated)
        self._position: Final = {row: i for i, row in enumerate(request.rows.tolist())}
        n = len(request.rows)
        self.kinds: Final[dict[PodTemplate, _Kind]] = {}
        for template, filters in request.filters.items():
            allowed = np.ones(n, bool)
            for row in request.refused.get(template, ()):
                if row in self._position:
                    allowed[self._position[row]] = False
            views = self._views.judged_by(filters)
            self.kinds[template] = _Kind(views, allowed, request.scores[template])
        self._batch: Final = PodBatch(members)
        #: By position: the members there, in the order in which they were placed.
        self.placed: Final[list[list[_Member]]] = [[] for _ in range(n)]
        self.count = 0
        #: By uid: the pods of units, those in the domain.
        self._places: Final[dict[str, _Place]] = {}
        self._adding: list[_Place] = []
        #: By position: the host ports of pods of units that are there again. In a dry run a port has no owner.
        self._ports: Final[defaultdict[int, Counter[HostPort]]] = defaultdict(Counter)
        #: int64[n]: the number of the next unit that is tried there; ``units`` if none is left.
        self.next: Int64 = np.zeros(n, np.int64)

    # ------------------------------------------------------------ units

    def take_out(self, pods: Iterable[Pod], table: NodeTable) -> None:
        """Removes pods for the first time, those in the domain."""
        there: list[Pod] = []
        positions: list[int] = []
        for pod in pods:
            position = self._position.get(table.row_of.get(pod.node_name, -1))
            if position is not None:
                there.append(pod)
                positions.append(position)
        batch = PodBatch(there)
        self._views.remove(batch, np.arange(len(there)), np.array(positions, np.intp))
        for index, (pod, position) in enumerate(zip(there, positions, strict=True)):
            self._places[pod.uid] = batch, index, position
        self._views.sum_up()

    def places(self, unit: Unit) -> list[_Place]:
        """The pods of a unit that are in the domain."""
        return [self._places[pod.uid] for pod in unit.pods if pod.uid in self._places]

    def add(self, places: Sequence[_Place]) -> None:
        """Adds the pods of a unit again; the view is changed when it is needed."""
        self._adding += places
        self._keep_ports(places, 1)
        positions = [position for _, _, position in places]
        for kind in self.kinds.values():
            kind.known[positions] = ~kind.maybe[positions]

    def catch_up(self) -> None:
        """Sums up the moves since the last question, which would take long if they became many."""
        self.flush()
        self._views.sum_up()

    def remove(self, places: Sequence[_Place]) -> None:
        """Removes the pods of a unit that was added."""
        self.flush()
        _move(places, self._views.remove)
        self._keep_ports(places, -1)
        self._reopen([position for _, _, position in places])

    def _keep_ports(self, places: Sequence[_Place], sign: int) -> None:
        for batch, index, position in places:
            if ports := batch.pods[index].template.host_ports:
                kept = self._ports[position]
                kept.update(dict.fromkeys(ports, sign))
                self._views.pin_ports(position, frozenset(+kept))

    def flush(self) -> None:
        """Changes the view as ``add`` wants it."""
        if self._adding:
            places, self._adding = self._adding, []
            _move(places, self._views.add)

    def _reopen(self, positions: Sequence[int]) -> None:
        """Something was removed there: more may fit."""
        for kind in self.kinds.values():
            kind.maybe[positions] = kind.allowed[positions]
            kind.known[positions] = ~kind.allowed[positions]

    # ------------------------------------------------------------ pods of the group

    def place(self, member: _Member, position: int) -> None:
        """Adds a pod of the group at a position."""
        self.flush()
        self._views.add(self._batch, np.array((member.index,)), np.array((position,)))
        self.placed[position].append(member)
        self.count += 1
        for kind in self.kinds.values():
            kind.known[position] = not kind.maybe[position]

    def displace(self, position: int) -> _Member:
        """Removes the pod of the group that was placed there last."""
        member = self.placed[position].pop()
        self.flush()
        self._views.remove(self._batch, np.array((member.index,)), np.array((position,)))
        self.count -= 1
        self._reopen((position,))
        return member

    def holds(self, position: int) -> bool:
        """Whether the pods of the group there still fit: of each template, one more would fit if one was not there."""
        here = self.placed[position]
        for member in {id(each.kind): each for each in here}.values():
            self.flush()
            one = np.array((member.index,)), np.array((position,))
            self._views.remove(self._batch, *one)
            fits = not member.kind.views.take(one[1]).evaluate().failed[0]
            self._views.add(self._batch, *one)
            if not fits:
                return False
        return True

    def seek(self, kind: _Kind) -> Generator[None, None, int | None]:
        """A position with room for a pod: one whose next unit is tried last, of these one with the highest score.

        None if there is none.
        """
        step = _FIRST_ROWS
        while True:
            maybe = np.flatnonzero(kind.maybe)
            if not len(maybe):
                return None
            order = self.next[maybe] * len(self.rows) + kind.ranks[maybe]
            best = int(maybe[order.argmax()])
            if kind.known[best]:
                return best
            open_ = ~kind.known[maybe]
            unknown, order = maybe[open_], order[open_]
            if len(unknown) > step:
                unknown = unknown[np.argpartition(-order, step)[:step]]
            self._judge(kind, np.sort(unknown))
            step = self._more_rows()
            yield

    def _more_rows(self) -> int:
        """How many rows are judged at once; a judgement goes through the pods that were removed from them."""
        fewer = _MORE_PODS * len(self.rows) // max(1, len(self._places))
        return min(max(fewer, _FIRST_ROWS), _MORE_ROWS)

    def _judge(self, kind: _Kind, positions: Rows) -> None:
        self.flush()
        kind.maybe[positions] = ~kind.views.take(positions).evaluate().failed
        kind.known[positions] = True


class GroupPlanner:
    """Makes plans on a table."""

    def __init__(self, table: NodeTable, budgets: DisruptionBudgets, groups: PodGroups) -> None:
        self._table: Final = table
        self._budgets: Final = budgets
        self._groups: Final = groups

    def plan(
        self, request: GroupDemand, nominated: PodsByRow
    ) -> Generator[None, None, GroupPlan | None]:
        """A plan; None if too few pods of the group fit, whatever is evicted.

        ``nominated``: by row, pods for which room is kept. Pauses every few milliseconds. Raises NoPotentialVictims,
        NodesChanged.
        """
        table = self._table
        layout, generation = table.layout, table.generation.copy()
        units = yield from self._units(request)
        if not units:
            raise NoPotentialVictims
        pods = [pod for pod in request.pods if pod.template in request.filters]
        if len(pods) < request.need:
            return None
        world = _World(table, request, nominated, pods)
        victims: list[Unit] = []
        candidates: list[list[Unit]] = []
        for start in range(0, len(units), _CHUNK):
            some = units[start : start + _CHUNK]
            world.take_out([pod for unit in some for pod in (*unit.pods, *unit.leaving)], table)
            victims += (unit for unit in some if unit.pods and unit.doomed)
            candidates.append([unit for unit in some if unit.pods and not unit.doomed])
            yield
        members = [_Member(pod, world.kinds[pod.template], i) for i, pod in enumerate(pods)]
        staying, violating = yield from self._in_order_of_reprieve(candidates)
        queues = yield from _queues(staying, world)
        waiting, _ = yield from _place(members, request.need, world)
        if world.count < request.need:
            return None
        violations, count = 0, len(staying)
        # Units are freed one after another: all of them at once would take long.
        del units, candidates
        staying.reverse()
        for number in range(count):
            unit = staying.pop()
            places = world.places(unit)
            for position in {position for _, _, position in places}:
                queues[position].pop()
                world.next[position] = queues[position][-1] if queues[position] else count
            reprieved, waiting = yield from _reprieve(places, waiting, request.need, world)
            if not reprieved:
                victims.append(unit)
                violations += number < violating
            if not number % _CHUNK:
                world.catch_up()
                yield
        rows = {
            member.pod.uid: int(request.rows[position])
            for position, there in enumerate(world.placed)
            for member in there
        }
        evicted = tuple(
            pod for unit in sorted(victims, key=lambda unit: unit.importance) for pod in unit.pods
        )
        used = {*rows.values(), *(table.row_of.get(pod.node_name, -1) for pod in evicted)}
        chosen = np.array(sorted(used), np.intp)
        if table.layout != layout or np.any(table.generation[chosen] != generation[chosen]):
            raise NodesChanged
        return GroupPlan(rows, evicted, violations)

    def _units(self, request: GroupDemand) -> Generator[None, None, list[Unit]]:
        """The units of lower priority with a pod in the domain. Pods of the group itself are left out."""
        table, groups = self._table, self._groups
        units: list[Unit] = []
        seen: set[GroupKey] = {request.key}
        pods = 0
        for row in request.rows.tolist():
            if pods > _CHUNK:
                pods = 0
                yield
            for pod in table.pods[row].values():
                pods += 1
                key = groups.unit_of(pod)
                if key is None:
                    if pod.template.priority < request.priority and (
                        (group := groups.key_of(pod)) is None or group != request.key
                    ):
                        units.append(
                            _unit((pod,), pod.template.priority, grouped=group is not None)
                        )
                elif key not in seen:
                    seen.add(key)
                    unit = self._whole(key)
                    if unit.priority < request.priority:
                        units.append(unit)
        return units

    def _whole(self, key: GroupKey) -> Unit:
        group = self._groups.get(key)
        pods = tuple(self._groups.members(key).scheduled.values())
        return _unit(pods, (group.priority if group else None) or 0, grouped=True)

    def _in_order_of_reprieve(
        self, candidates: Iterable[Sequence[Unit]]
    ) -> Generator[None, None, tuple[list[Unit], int]]:
        """The units, those first whose eviction violates a budget, and how many these are."""
        runs = []
        number = 0
        for some in candidates:
            runs.append(sorted((unit.importance, number := number + 1, unit) for unit in some))
            yield
        violates = self._budgets.tally()
        violating: list[Unit] = []
        others: list[Unit] = []
        for count, (_, _, unit) in enumerate(heapq.merge(*runs)):
            (violating if any(map(violates, unit.pods)) else others).append(unit)
            if not count % _CHUNK:
                yield
        return violating + others, len(violating)


def _move(places: Iterable[_Place], move: _Move) -> None:
    by_batch: dict[int, tuple[PodBatch, list[int], list[int]]] = {}
    for batch, index, position in places:
        _, indices, positions = by_batch.setdefault(id(batch), (batch, [], []))
        indices.append(index)
        positions.append(position)
    for batch, indices, positions in by_batch.values():
        move(batch, np.array(indices, np.intp), np.array(positions, np.intp))


def _unit(pods: Iterable[Pod], priority: int, *, grouped: bool) -> Unit:
    staying: list[Pod] = []
    leaving: list[Pod] = []
    for pod in pods:
        (leaving if pod.terminating else staying).append(pod)
    return Unit(tuple(staying), tuple(leaving), priority, grouped)


def _queues(units: Sequence[Unit], world: _World) -> Generator[None, None, list[list[int]]]:
    """By position: the numbers of the units there, the next one last. Sets ``world.next``."""
    queues: list[list[int]] = [[] for _ in world.rows]
    world.next[:] = len(units)
    for number in range(len(units) - 1, -1, -1):
        for position in {position for _, _, position in world.places(units[number])}:
            queues[position].append(number)
            world.next[position] = number
        if not number % _CHUNK:
            yield
    return queues


def _place(
    members: Sequence[_Member], need: int, world: _World
) -> Generator[None, None, tuple[list[_Member], list[int]]]:
    """Places pods, in this order, until the group has ``need``; returns the others, and the positions of those
    placed."""
    left: list[_Member] = []
    placed: list[int] = []
    full: set[int] = set()
    for member in members:
        position = None
        if world.count < need and id(member.kind) not in full:
            position = yield from world.seek(member.kind)
            if position is None:
                full.add(id(member.kind))
        if position is None:
            left.append(member)
        else:
            world.place(member, position)
            placed.append(position)
    return left, placed


def _reprieve(
    places: Sequence[_Place], waiting: list[_Member], need: int, world: _World
) -> Generator[None, None, tuple[bool, list[_Member]]]:
    """Adds a unit again if enough pods of the group still fit, some of them elsewhere.

    Returns whether they do, and the pods of the group that are not placed.
    """
    world.add(places)
    displaced: list[tuple[_Member, int]] = []
    for position in sorted({position for _, _, position in places}):
        while world.placed[position] and not world.holds(position):
            displaced.append((world.displace(position), position))
            yield
    if not displaced:
        return True, waiting
    candidates = sorted([*waiting, *(member for member, _ in displaced)], key=lambda m: m.index)
    left, moved = yield from _place(candidates, need, world)
    if world.count >= need:
        return True, left
    for position in reversed(moved):
        world.displace(position)
    world.remove(places)
    for member, position in reversed(displaced):
        world.place(member, position)
    return False, waiting
