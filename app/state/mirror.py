"""A second SchedulerState that follows a scheduler's: questions are tried there, and the scheduler notices nothing.

It is not a copy of arrays, which would have to be made for each question, but a state of its own that changes through
its own door. Before a question it is brought up to date: only the rows of the node table that have changed since, and
the kinds of objects that have. After it, what the question has changed is taken back. So what its frameworks keep for
templates stays valid, and a question costs what changes (docs/decisions/0049-questions-on-a-mirror.md).
"""

import functools
from collections.abc import Generator, Iterable, Mapping
from itertools import islice
from typing import Any, Final

from app.model.devices import ResourceClaim
from app.model.objects import Node
from app.model.pod import Pod
from app.state.scheduler_state import Change, Command, RefusedObject, SchedulerState

#: Rows, or objects of a kind, that are compared between two pauses.
_ROWS: Final = 128
_OBJECTS: Final = 2000
#: So few changed rows are compared without a pause, which ends the update.
_FEW_ROWS: Final = 256

MirrorSteps = Generator[None, None, None]


class MirrorBrokenError(Exception):
    """The mirror does not follow: an object that one state has was refused by the other. It must be made anew."""


class Mirror:
    """Keeps ``state`` equal to ``original`` in all that decides where pods go.

    Pods without a node are only in it if they are nominated to one; they are never queued.
    """

    def __init__(self, original: SchedulerState, state: SchedulerState) -> None:
        """``state``: an empty one, for which nobody else has uses."""
        self._original: Final = original
        self.state: Final = state
        self._names: list[str] = []
        self._generation = -1
        self._versions: Final[dict[type, int]] = {}
        self._nominated_at = -1
        #: The pods that are nominated, by uid.
        self._nominated: Final[dict[str, tuple[Pod, str]]] = {}
        #: Allocations of devices in flight, by uid of the claim.
        self._in_flight: Final[dict[str, Any]] = {}
        #: What the objects were that have been changed here, by kind and key (for pods the uid); the first change is
        #: first.
        self._before: Final[dict[tuple[type, str], Any]] = {}
        #: The same as they are now.
        self._now: Final[dict[tuple[type, str], Any]] = {}
        ours, theirs = state.cluster.pod_groups, original.cluster.pod_groups
        for kind in theirs.kinds:
            ours.watch(kind, functools.partial(theirs.path_of, kind))
        ours.follow(theirs)

    # ------------------------------------------------------------ following

    def update(self, now: float) -> MirrorSteps:
        """Brings the state up to date; other tasks may run at each yield, but not after the last one.

        Nothing that was changed here may be left. Raises MirrorBrokenError.
        """
        while (yield from self._update_once(now)):
            pass

    def _update_once(self, now: float) -> Generator[None, None, bool]:
        """Whether it has paused, so that the state may be out of date again."""
        paused = yield from self._update_objects(now)
        table, generation = self._original.table, self._original.table.last_generation
        rows = table.rows_since(self._generation).tolist()
        self._names += [""] * (table.size - len(self._names))
        for start in range(0, len(rows), _ROWS):
            if start and len(rows) > _FEW_ROWS:
                paused = True
                yield
            self._update_rows(rows[start : start + _ROWS], now)
        self._generation = generation
        if not paused:
            self._update_nominations(now)
            self._update_devices()
        return paused

    def _update_objects(self, now: float) -> Generator[None, None, bool]:
        paused = False
        for kind in self._original.cluster.kinds():
            theirs, ours = (each.cluster.lister(kind) for each in (self._original, self.state))
            version, known_version = theirs.version, self._versions.get(kind)
            if known_version == version:
                continue
            keys = None if known_version is None else theirs.changed_since(known_version)
            if keys is None:
                keys = {
                    (each.namespace, each.name): None
                    for lister in (theirs, ours)
                    for each in lister
                }
            pairs = (
                (ours.get(name, namespace), theirs.get(name, namespace)) for namespace, name in keys
            )
            changes = [Change(kind, old, new) for old, new in pairs if old is not new]
            for number, change in enumerate(changes, 1):
                self._apply(change, now)
                if number % _OBJECTS == 0:
                    paused = True
                    yield
            self._versions[kind] = version
        return paused

    def _update_rows(self, rows: Iterable[int], now: float) -> None:
        """Takes over the nodes and pods of these rows of the original's table."""
        table = self._original.table
        gone: list[Pod] = []
        new: dict[str, Pod] = {}
        changes: list[Change] = []
        for row in rows:
            name, before = table.names[row], self._names[row]
            if before != name and before not in table.row_of:
                gone += self._pods_here(before).values()
                if (old := self._node_here(before)) is not None:
                    changes.append(Change(Node, old, None))
            self._names[row] = name
            if name:
                node, known = table.nodes[row], self._node_here(name)
                if node is not known:
                    changes.append(Change(Node, known, node))
                self._compare(table.pods[row], self._pods_here(name), gone, new, changes)
        gone += [
            there for pod in new.values() if (there := self.state.cache.get(pod.uid)) is not None
        ]
        for pod in {pod.uid: pod for pod in gone}.values():
            self._apply(Change(Pod, pod, None), now)
        for change in changes:
            self._apply(change, now)
        if new:
            self._check(self.state.apply_new(Pod, new, now))

    @staticmethod
    def _compare(
        theirs: Mapping[str, Pod],
        ours: Mapping[str, Pod],
        gone: list[Pod],
        new: dict[str, Pod],
        changes: list[Change],
    ) -> None:
        """Adds the differences of the pods on one node, by uid."""
        pairs = zip(ours.values(), theirs.values(), strict=False)
        other = [(mine, pod) for mine, pod in pairs if mine is not pod]
        if len(theirs) < len(ours) or any(mine.uid != pod.uid for mine, pod in other):
            gone += [ours[uid] for uid in ours.keys() - theirs.keys()]
            # In their order: of equally important victims the first is taken.
            new.update([(pod.key, pod) for uid, pod in theirs.items() if uid not in ours])
            other = [(ours[uid], pod) for uid, pod in theirs.items() if uid in ours]
        elif len(theirs) > len(ours):  # most often pods have come, and none has gone
            new.update([(pod.key, pod) for pod in islice(theirs.values(), len(ours), None)])
        changes += [
            Change(Pod, mine, pod)
            for mine, pod in other
            if mine is not pod
            and not (pod.same_on_node(mine) and pod.start_time == mine.start_time)
        ]

    def _pods_here(self, name: str) -> dict[str, Pod]:
        row = self.state.table.row_of.get(name)
        return {} if row is None else self.state.table.pods[row]

    def _node_here(self, name: str) -> Node | None:
        row = self.state.table.row_of.get(name)
        return None if row is None else self.state.table.nodes[row]

    def _update_nominations(self, now: float) -> None:
        nominator = self._original.nominator
        if self._nominated_at == nominator.version:
            return
        self._nominated_at = nominator.version
        wanted = {pod.uid: (pod, node) for pod, node in nominator.all_nominations()}
        for uid, (pod, node) in list(self._nominated.items()):
            known = wanted.get(uid)
            if known is None or known[0] is not pod or known[1] != node:
                del self._nominated[uid]
                if self.state.is_unbound(pod):
                    self._apply(Change(Pod, pod, None), now)
                else:
                    self.state.drop(pod)
        for uid, (pod, node) in wanted.items():
            if uid not in self._nominated and self.state.cache.get(uid) is None:
                self._nominated[uid] = pod, node
                self.state.nominate_unqueued(pod, node)

    def _update_devices(self) -> None:
        """Takes over the allocations that are decided and not written yet."""
        if not len(self._original.cluster.lister(ResourceClaim)):
            return
        theirs, ours = self._original.cluster.devices, self.state.cluster.devices
        for uid in [uid for uid in self._in_flight if theirs.in_flight(uid) is None]:
            del self._in_flight[uid]
            ours.release(uid)
        for uid, allocation in theirs.in_flights():
            if uid not in self._in_flight:
                self._in_flight[uid] = allocation
                ours.reserve(uid, allocation.allocation, allocation.group)

    def _apply(self, change: Change, now: float) -> None:
        self._check(self.state.apply(change, now))

    def _check(self, commands: Iterable[Command]) -> None:
        for command in commands:
            if isinstance(command, RefusedObject):
                raise MirrorBrokenError(f"{command.key}: {command.error}")

    # ------------------------------------------------------------ what questions change

    def change(self, kind: type, old: Any, new: Any, now: float) -> None:
        """Changes an object until ``take_back``. Raises ValueError if the state refuses it."""
        key = kind, (new or old).uid if kind is Pod else (new or old).key
        self._before.setdefault(key, old)
        self._now[key] = new
        for command in self.state.apply(Change(kind, old, new), now):
            if isinstance(command, RefusedObject):
                raise ValueError(f"{kind.__name__} {command.key}: {command.error}")  # noqa: TRY004 - about its value

    def take_back(self, now: float) -> MirrorSteps:
        """Undoes all changes, the last first. No pod may be assumed any longer. Raises MirrorBrokenError."""
        number = 0
        # Nodes come back before their pods, and pods that were added go before the pods whose room they have.
        for first in (True, False):
            for key in reversed(list(self._before)):
                kind, before, present = key[0], self._before[key], self._now[key]
                if (before is None) is not first:
                    continue
                if kind is Pod:
                    self.state.done(key[1])
                if before is not present:
                    self._apply(Change(kind, present, before), now)
                del self._before[key], self._now[key]
                number += 1
                if number % _ROWS == 0:
                    yield
