"""Finds devices for claims, on all nodes at once (KEP-4381).

Nodes whose devices look alike to the claims, one after the other, and of which the same are in use get the same answer, so
there is one search per such *kind* of nodes. Kinds are kept from one attempt to the next, together with their answers, for claims
with equal specs, as those made from one template are: when one node has changed, one row is looked at again.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
import numpy.typing as npt

from app.cel.devices import Selectors
from app.model.devices import AllocationResult, DeviceClass, ResourceClaim, ResourceSlice
from app.plugins.dynamic_resources.constraints import UNKNOWN, Value
from app.plugins.dynamic_resources.deadline import AllocationTimeout, Budget
from app.plugins.dynamic_resources.inventory import Inventory, Sight
from app.plugins.dynamic_resources.pools import PoolView, Usage
from app.plugins.dynamic_resources.query import Profile, Query
from app.plugins.dynamic_resources.results import allocation_results
from app.plugins.dynamic_resources.search import (
    AllocationError,
    AllocationFailed,
    Scene,
    Search,
    Solution,
)
from app.state.devices.usage import AllocatedState
from app.state.lister import Lister
from app.state.table import NodeTable
from app.state.view import Rows

#: What ``Found.codes`` has.
ALLOCATED: Final = 0
CANNOT: Final = 1
#: Cannot, for a reason that is worth telling.
FAILED: Final = 2
TIMED_OUT: Final = 3
#: A claim or a class is wrong: the whole attempt fails.
ERROR: Final = 4

#: So many different questions are remembered.
_MAX_QUERIES: Final = 64
#: Kinds are forgotten when there are so many, and many times more than rows.
_MAX_KINDS: Final = 4096

#: int32[n]: numbers of kinds.
Kinds = npt.NDArray[np.int32]
Codes = npt.NDArray[np.int8]
#: For each row its kind and its code; by kind the answer.
Answers = tuple[Kinds, Codes, dict[int, "_Answer"]]

#: For so long a search that took too long is not tried again, unless something that it depends on changes.
_RETRY_SECONDS: Final = 30.0

_encode: Final = msgspec.json.Encoder().encode


class _Answer(NamedTuple):
    """To a query, for a kind of nodes. ``stamp``: the uses of wide pools that it depends on; ``until``: how long it is good."""

    code: int
    stamp: tuple[Usage, ...] = ()
    solution: Solution | None = None
    text: str = ""
    until: float = math.inf


class _Kind:
    """Of nodes that get the same answer. ``wide``: the wide pools that they see."""

    __slots__ = ("answer", "wide")

    def __init__(self, wide: tuple[PoolView, ...], answer: _Answer | None = None) -> None:
        self.wide: Final = wide
        self.answer = answer


class _Kinds:
    """The kind of each row, to one query. Kind 0 is of rows that there was no time to look at yet."""

    def __init__(self, query: Query, inventory: Inventory) -> None:
        self.query: Final = query
        self._inventory: Final = inventory
        self._seen_at = -1
        self._wide = inventory.wide
        self._numbers: Final[dict[Hashable, int]] = {}
        self._kinds: Final[list[_Kind]] = [_Kind((), _Answer(TIMED_OUT))]
        #: int32[capacity]: numbers of kinds.
        self._of_row: Kinds = np.zeros(0, np.int32)
        #: int8[>= kinds]
        self._codes: Codes = np.full(64, TIMED_OUT, np.int8)
        #: Rows that were to be looked at when the time was up.
        self._left: Final[set[int]] = set()
        #: What the devices in a view are.
        self._profiles: Final[WeakKeyDictionary[PoolView, tuple[Profile, ...]]] = (
            WeakKeyDictionary()
        )
        #: What the node of each row saw, and what that looks like.
        self._sights: Final[list[Sight | None]] = []
        self._looks: Final[list[Hashable]] = []
        #: Equal ones are the same object: there are many rows.
        self._known_profiles: Final[dict[tuple[Profile, ...], tuple[Profile, ...]]] = {}
        self._known_looks: Final[dict[Hashable, Hashable]] = {}
        self._wide_values: Final[dict[PoolView, list[tuple[Value, ...]]]] = {}

    def refresh(self, budget: Budget) -> None:
        """Looks again at the rows that have changed, as far as there is time."""
        inventory = self._inventory
        if self._seen_at == inventory.version and not self._left:
            return
        crowded = len(self._kinds) > _MAX_KINDS + 4 * len(inventory.sights)
        if crowded or self._wide is not inventory.wide:
            self._wide = inventory.wide
            self._numbers.clear()
            self._known_profiles.clear()
            self._known_looks.clear()
            self._wide_values.clear()
            del self._kinds[1:]
            self._seen_at = -1
        rows = (inventory.changed_at[: len(inventory.sights)] > self._seen_at).nonzero()[0]
        self._seen_at = inventory.version
        self._left.update(rows.tolist())
        missing = len(inventory.changed_at) - len(self._of_row)
        if missing:
            self._of_row = np.concatenate((self._of_row, np.zeros(missing, np.int32)))
        self._of_row[rows] = 0
        missing = len(inventory.sights) - len(self._sights)
        self._sights.extend([None] * missing)
        self._looks.extend([None] * missing)
        self._look(budget)
        if len(self._codes) < len(self._kinds):
            self._codes = np.resize(self._codes, 2 * len(self._kinds))

    def _look(self, budget: Budget) -> None:
        for row in sorted(self._left):
            try:
                self._of_row[row] = self._kind_of(row, budget)
            except AllocationTimeout:
                return
            self._left.discard(row)

    def _kind_of(self, row: int, budget: Budget) -> int:
        sight = self._inventory.sights[row]
        if self._sights[row] is not sight:
            self._looks[row] = self._look_of(sight, budget)
            self._sights[row] = sight
        usage = self._inventory.usage
        key = (self._looks[row], *[usage(view).key for view in sight.own])
        number = self._numbers.setdefault(key, len(self._kinds))
        if number == len(self._kinds):
            self._kinds.append(_Kind(sight.wide))
        return number

    def _look_of(self, sight: Sight, budget: Budget) -> Hashable:
        """What decides about the devices that a node sees, but for their use: equal where the answer is the same by position.

        Of attributes that constraints compare it counts only which devices have equal ones. Pools of one name share an account
        of counters, so it counts which these are.
        """
        views = sight.views
        for view in views:
            if view not in self._profiles:
                profiles = self.query.profiles(view, budget)
                self._profiles[view] = self._known_profiles.setdefault(profiles, profiles)
        wide = set(sight.wide)
        parts: list[Hashable] = [
            view if view in wide else (view.state, self._profiles[view]) for view in views
        ]
        names = [view.key[1] for view in views]
        parts.append(tuple(map(names.index, names)))
        parts.extend(self._patterns(sight))
        look = tuple(parts)
        return self._known_looks.setdefault(look, look)

    def _patterns(self, sight: Sight) -> Iterator[Hashable]:
        """For each attribute in constraints which devices have equal ones."""
        if not self.query.attributes:
            return
        known = self._wide_values
        for view in sight.wide:
            if view not in known:
                known[view] = self.query.values(view)
        values = [
            each for view in sight.views for each in known.get(view) or self.query.values(view)
        ]
        for one in zip(*values, strict=True):
            numbers: dict[Value, Hashable] = {None: None, UNKNOWN: UNKNOWN}
            yield tuple([numbers.setdefault(each, len(numbers)) for each in one])

    def answer(self, rows: Rows, claims: Sequence[ResourceClaim], budget: Budget) -> Answers:
        """The kinds of the rows, int32[n], the codes, int8[n], and the answers by kind."""
        numbers = self._of_row[rows]
        answers = {}
        usage, now = self._inventory.usage, budget.now
        for number in np.bincount(numbers).nonzero()[0].tolist():
            kind = self._kinds[number]
            stamp = tuple([usage(view) for view in kind.wide])
            answer = kind.answer
            if answer is None or answer.stamp != stamp or now() >= answer.until:
                row = rows[(numbers == number).argmax()]
                answer = self._search(self._inventory.sights[row], claims, budget, stamp)
                kind.answer = answer
                self._codes[number] = answer.code
            answers[number] = answer
        return numbers, self._codes[numbers], answers

    def _search(
        self,
        sight: Sight,
        claims: Sequence[ResourceClaim],
        budget: Budget,
        stamp: tuple[Usage, ...],
    ) -> _Answer:
        profiles = [self._profiles[view] for view in sight.views]
        values = [self.query.values(view) for view in sight.views]
        usages = [self._inventory.usage(view) for view in sight.views]
        budget.start_kind()
        if budget.expired():
            return _Answer(TIMED_OUT, stamp, until=-math.inf)
        try:
            scene = Scene(sight.views, profiles, values, usages)
            solution = Search(self.query, claims, scene, budget).run()
        except AllocationTimeout:
            return _Answer(TIMED_OUT, stamp, until=budget.now() + _RETRY_SECONDS)
        except AllocationFailed as failure:
            return _Answer(FAILED, stamp, text=str(failure))
        except AllocationError as error:
            return _Answer(ERROR, stamp, text=str(error), until=-math.inf)
        return _Answer(CANNOT if solution is None else ALLOCATED, stamp, solution)


class Found:
    """What a search has found, for each of its rows. Good until nodes, slices, classes or uses change."""

    def __init__(
        self,
        allocator: "Allocator",
        query: Query,
        claims: Sequence[ResourceClaim],
        rows: Rows,
        answers: Answers,
    ) -> None:
        self._allocator = allocator
        self._query = query
        self._claims = claims
        self._rows = rows
        #: ``kinds``: int32[n], equal where the answer is the same but for names. ``codes``: int8[n].
        self.kinds, self.codes, self._answers = answers

    def text(self, kind: int) -> str:
        """Why nothing was allocated, in kube-scheduler's words; "" where it has none."""
        return self._answers[kind].text

    def sample(self, kind: int) -> tuple[AllocationResult, ...]:
        """The results for some row of a kind. Raises LookupError."""
        return self.results(int((self.kinds == kind).argmax()))

    def results(self, position: int) -> tuple[AllocationResult, ...]:
        """What is allocated on the row at a position: one result per claim. Raises LookupError if nothing is."""
        solution = self._answers[int(self.kinds[position])].solution
        if solution is None:
            raise LookupError(f"nothing allocated at {position}")
        row = int(self._rows[position])
        return self._allocator.results(self._query, self._claims, solution, row)


class Allocator:
    """Allocates devices of the slices to claims. Keeps what it knows of nodes up to date by itself.

    ``share_id``: makes an id for a share of a device that several claims may have.
    """

    def __init__(
        self,
        table: NodeTable,
        slices: Lister[ResourceSlice],
        classes: Lister[DeviceClass],
        allocated: AllocatedState,
        selectors: Selectors,
        *,
        share_id: Callable[[], str],
    ) -> None:
        self._table: Final = table
        self._classes: Final = classes
        self._selectors: Final = selectors
        self._share_id: Final = share_id
        self._inventory: Final = Inventory(table, slices, allocated)
        self._kinds: Final[OrderedDict[bytes, _Kinds]] = OrderedDict()
        self._classes_at = -1

    def search(self, rows: Rows, claims: Sequence[ResourceClaim], budget: Budget) -> Found:
        """Looks for devices for all these claims together, on each of the rows (intp[n])."""
        self._inventory.sync()
        kinds = self._kinds_for(claims)
        kinds.refresh(budget)
        return Found(self, kinds.query, claims, rows, kinds.answer(rows, claims, budget))

    def allocate(
        self, row: int, claims: Sequence[ResourceClaim], budget: Budget
    ) -> tuple[AllocationResult, ...] | None:
        """The same for one row: one result per claim, or None.

        Raises AllocationFailed, AllocationError, AllocationTimeout.
        """
        found = self.search(np.array([row], np.intp), claims, budget)
        code, text = int(found.codes[0]), found.text(int(found.kinds[0]))
        if code == TIMED_OUT:
            raise AllocationTimeout
        if code == ERROR:
            raise AllocationError(text)
        if code == FAILED:
            raise AllocationFailed(text)
        return found.results(0) if code == ALLOCATED else None

    def results(
        self, query: Query, claims: Sequence[ResourceClaim], solution: Solution, row: int
    ) -> tuple[AllocationResult, ...]:
        """The solution in terms of a row's node."""
        views, name = self._inventory.sights[row].views, self._table.names[row]
        return allocation_results(query, claims, solution, views, name, self._share_id)

    def _kinds_for(self, claims: Sequence[ResourceClaim]) -> _Kinds:
        if self._classes_at != self._classes.version:
            self._classes_at = self._classes.version
            self._kinds.clear()
        asked = [msgspec.structs.replace(claim.spec.devices, config=None) for claim in claims]
        key = _encode(asked)
        kinds = self._kinds.get(key)
        if kinds is None:
            query = Query(asked, self._classes, self._selectors)
            kinds = self._kinds[key] = _Kinds(query, self._inventory)
            if len(self._kinds) > _MAX_QUERIES:
                self._kinds.popitem(last=False)
        self._kinds.move_to_end(key)
        return kinds
