"""Finds devices for claims on all nodes at once (KEP-4381).

Nodes whose devices have the same profiles in the same order, and the same usage, have the same answer. They are one
*kind* of node, and there is one search per kind. Kinds and their answers are kept for claims with equal specs, such
as those from one template: if one node changes, only its row is classified again.
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
from app.model.features import Rule
from app.model.status import Unfinished
from app.plugins.dynamic_resources.budget import AllocationTimeout, Budget
from app.plugins.dynamic_resources.constraints import UNKNOWN, AttributeValue
from app.plugins.dynamic_resources.inventory import Inventory, VisiblePools
from app.plugins.dynamic_resources.pools import PoolView, ViewUsage
from app.plugins.dynamic_resources.query import DeviceProfile, Query
from app.plugins.dynamic_resources.results import allocation_results
from app.plugins.dynamic_resources.search import (
    AllocationError,
    AllocationFailed,
    DeviceSearch,
    NodeDevices,
    Solution,
)
from app.state.columns.arrays import Rows
from app.state.columns.labels import Mask
from app.state.devices import AllocatedState
from app.state.lister import Lister
from app.state.table import NodeTable

#: The values of ``AllocatorResult.codes``.
ALLOCATED: Final = 0
CANNOT: Final = 1
#: Nothing can be allocated, and ``text`` says why.
FAILED: Final = 2
TIMED_OUT: Final = 3
#: A claim or a class is invalid: the whole attempt fails.
ERROR: Final = 4

#: The number of queries whose kinds are kept.
_MAX_QUERIES: Final = 64
#: The kinds of a query are dropped when there are more of them than this, plus four for each row.
_MAX_KINDS: Final = 4096

#: int32[n]: the numbers of kinds.
Kinds = npt.NDArray[np.int32]
_Codes = npt.NDArray[np.int8]
#: The kinds and codes of rows, and the answers by kind.
Answers = tuple[Kinds, _Codes, dict[int, "_Answer"]]

#: Seconds before a search that took too long is repeated, unless something that it depends on changes.
_RETRY_SECONDS: Final = 30.0

_encode: Final = msgspec.json.Encoder().encode


class _Answer(NamedTuple):
    """The result of a query for a kind of nodes.

    It is valid while the usage of multi-node pools is that in ``stamp``, and before ``until`` (seconds on the
    budget's clock).
    """

    code: int
    stamp: tuple[ViewUsage, ...] = ()
    solution: Solution | None = None
    text: str = ""
    until: float = math.inf


class _Kind:
    """Nodes with the same answer. ``multi_node`` has the multi-node pools that they see.

    ``search``: one that has not finished yet, for the usage in ``stamp``; ``spent``: the seconds that it has taken so
    far.
    """

    __slots__ = ("answer", "multi_node", "search", "spent", "stamp")

    def __init__(self, multi_node: tuple[PoolView, ...], answer: _Answer | None = None) -> None:
        self.multi_node: Final = multi_node
        self.answer = answer
        self.search: DeviceSearch | None = None
        self.stamp: tuple[ViewUsage, ...] = ()
        self.spent = 0.0


class _Kinds:
    """The kind of each row, for one query. Kind 0 is that of rows that are not classified because the time was over."""

    def __init__(self, query: Query, inventory: Inventory) -> None:
        self.query: Final = query
        self._inventory: Final = inventory
        self._seen_at = -1
        self._multi_node = inventory.multi_node
        self._numbers: Final[dict[Hashable, int]] = {}
        self._kinds: Final[list[_Kind]] = [_Kind((), _Answer(TIMED_OUT))]
        #: int32[capacity]: the kind of each row.
        self._of_row: Kinds = np.zeros(0, np.int32)
        #: int8[>= number of kinds]: the code of each kind's answer.
        self._codes: _Codes = np.full(64, TIMED_OUT, np.int8)
        #: bool[capacity]: the rows that have to be classified when they are asked for.
        self._unseen: Mask = np.zeros(0, bool)
        #: The profiles of the devices in each view.
        self._profiles: Final[WeakKeyDictionary[PoolView, tuple[DeviceProfile, ...]]] = (
            WeakKeyDictionary()
        )
        #: What the node of each row saw when it was classified, and the key of that.
        self._visible: Final[list[VisiblePools | None]] = []
        self._looks: Final[list[Hashable]] = []
        #: Equal objects are shared between rows.
        self._known_profiles: Final[dict[tuple[DeviceProfile, ...], tuple[DeviceProfile, ...]]] = {}
        self._known_looks: Final[dict[Hashable, Hashable]] = {}
        self._multi_node_values: Final[dict[PoolView, list[tuple[AttributeValue, ...]]]] = {}

    def refresh(self, rows: Rows, budget: Budget) -> None:
        """Classifies those of the rows that have changed, until the budget has expired."""
        if self._seen_at != self._inventory.version:
            self._note_changes()
        left = rows[self._unseen[rows]]
        if len(left) and not self._look(left.tolist(), budget) and budget.may_pause:
            raise Unfinished
        if len(self._codes) < len(self._kinds):
            self._codes = np.resize(self._codes, 2 * len(self._kinds))

    def _note_changes(self) -> None:
        inventory = self._inventory
        crowded = len(self._kinds) > _MAX_KINDS + 4 * len(inventory.visible)
        if crowded or self._multi_node is not inventory.multi_node:
            self._multi_node = inventory.multi_node
            self._numbers.clear()
            self._known_profiles.clear()
            self._known_looks.clear()
            self._multi_node_values.clear()
            del self._kinds[1:]
            self._seen_at = -1
        rows = (inventory.changed_at[: len(inventory.visible)] > self._seen_at).nonzero()[0]
        self._seen_at = inventory.version
        missing = len(inventory.changed_at) - len(self._of_row)
        if missing:
            self._of_row = np.concatenate((self._of_row, np.zeros(missing, np.int32)))
            self._unseen = np.concatenate((self._unseen, np.zeros(missing, bool)))
        self._of_row[rows] = 0
        self._unseen[rows] = True
        missing = len(inventory.visible) - len(self._visible)
        self._visible.extend([None] * missing)
        self._looks.extend([None] * missing)

    def _look(self, rows: Sequence[int], budget: Budget) -> bool:
        """Classifies rows; False if there was no time for all of them."""
        for row in rows:
            try:
                self._of_row[row] = self._kind_of(row, budget)
            except AllocationTimeout:
                return False
            self._unseen[row] = False
        return True

    def _kind_of(self, row: int, budget: Budget) -> int:
        pools = self._inventory.visible[row]
        if self._visible[row] is not pools:
            self._looks[row] = self._look_of(pools, budget)
            self._visible[row] = pools
        usage = self._inventory.usage
        key = (self._looks[row], *[usage(view).key for view in pools.local])
        number = self._numbers.setdefault(key, len(self._kinds))
        if number == len(self._kinds):
            self._kinds.append(_Kind(pools.multi_node))
        return number

    def _look_of(self, pools: VisiblePools, budget: Budget) -> Hashable:
        """A key of the visible pools without their usage: equal if the search finds the same devices by position.

        Of the attributes in constraints it has which devices have equal values. It also has which pools have the same
        name, because these share counters.
        """
        views = pools.views
        for view in views:
            if view not in self._profiles:
                profiles = self.query.profiles(view, budget)
                self._profiles[view] = self._known_profiles.setdefault(profiles, profiles)
        multi_node = set(pools.multi_node)
        parts: list[Hashable] = [
            view if view in multi_node else (view.state, self._profiles[view]) for view in views
        ]
        names = [view.key[1] for view in views]
        parts.append(tuple(map(names.index, names)))
        parts.extend(self._patterns(pools))
        look = tuple(parts)
        return self._known_looks.setdefault(look, look)

    def _patterns(self, pools: VisiblePools) -> Iterator[Hashable]:
        """For each attribute in constraints which devices have equal values, and their types."""
        if not self.query.attributes:
            return
        known = self._multi_node_values
        for view in pools.multi_node:
            if view not in known:
                known[view] = self.query.values(view)
        values = [
            each for view in pools.views for each in known.get(view) or self.query.values(view)
        ]
        for one in zip(*values, strict=True):
            numbers: dict[AttributeValue, Hashable] = {None: None, UNKNOWN: UNKNOWN}
            yield tuple(
                [numbers.setdefault(each, (len(numbers), each and each[0])) for each in one]
            )

    def answer(self, rows: Rows, claims: Sequence[ResourceClaim], budget: Budget) -> Answers:
        """The kinds (int32[n]) and codes (int8[n]) of the rows, and the answers by kind. Searches where no answer is
        valid."""
        numbers = self._of_row[rows]
        answers = {}
        usage, now = self._inventory.usage, budget.now
        for number in np.bincount(numbers).nonzero()[0].tolist():
            kind = self._kinds[number]
            stamp = tuple([usage(view) for view in kind.multi_node])
            answer = kind.answer
            if answer is None or answer.stamp != stamp or now() >= answer.until:
                row = rows[(numbers == number).argmax()]
                answer = self._search(kind, self._inventory.visible[row], claims, budget, stamp)
                kind.answer = answer
                self._codes[number] = answer.code
            answers[number] = answer
        return numbers, self._codes[numbers], answers

    def _search(
        self,
        kind: _Kind,
        pools: VisiblePools,
        claims: Sequence[ResourceClaim],
        budget: Budget,
        stamp: tuple[ViewUsage, ...],
    ) -> _Answer:
        """The answer for a kind. Raises Unfinished; the search goes on the next time."""
        if budget.expired():
            return self._unfinished(budget, stamp)
        search = kind.search
        if search is None or kind.stamp != stamp:
            profiles = [self._profiles[view] for view in pools.views]
            values = [self.query.values(view) for view in pools.views]
            usages = [self._inventory.usage(view) for view in pools.views]
            node = NodeDevices(pools.views, profiles, values, usages)
            search = DeviceSearch(self.query, claims, node)
            kind.stamp, kind.spent = stamp, 0.0
        kind.search = None
        started = budget.now()
        try:
            solution = search.run(budget)
        except AllocationTimeout:
            now = budget.now()
            kind.spent += now - started
            if kind.spent >= budget.limit:
                return _Answer(TIMED_OUT, stamp, until=now + _RETRY_SECONDS)
            kind.search = search
            return self._unfinished(budget, stamp)
        except AllocationFailed as failure:
            return _Answer(FAILED, stamp, text=str(failure))
        except AllocationError as error:
            return _Answer(ERROR, stamp, text=str(error), until=-math.inf)
        return _Answer(CANNOT if solution is None else ALLOCATED, stamp, solution)

    @staticmethod
    def _unfinished(budget: Budget, stamp: tuple[ViewUsage, ...]) -> _Answer:
        if budget.may_pause:
            raise Unfinished
        return _Answer(TIMED_OUT, stamp, until=-math.inf)


class AllocatorResult:
    """What was found for some rows. It is valid until nodes, slices, classes or allocations change."""

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
        #: ``kinds`` is int32[n], equal for rows whose results differ in names only, ``codes`` is int8[n].
        self.kinds, self.codes, self._answers = answers

    def text(self, kind: int) -> str:
        """Why nothing was allocated, in kube-scheduler's words; "" if it has none."""
        return self._answers[kind].text

    def sample(self, kind: int) -> tuple[AllocationResult, ...]:
        """The results for the first row of a kind. Raises LookupError."""
        return self.results(int((self.kinds == kind).argmax()))

    def results(self, position: int) -> tuple[AllocationResult, ...]:
        """The allocation of each claim on the row at a position. Raises LookupError if nothing was found there."""
        solution = self._answers[int(self.kinds[position])].solution
        if solution is None:
            raise LookupError(f"nothing allocated at {position}")
        row = int(self._rows[position])
        return self._allocator.results(self._query, self._claims, solution, row)


class Allocator:
    """Finds devices for claims. It follows changes of nodes, slices, classes and allocations itself.

    ``share_id`` creates the id of a share of a device that several claims can have; ``rules`` are those that hold.
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
        rules: frozenset[Rule] = frozenset(),
    ) -> None:
        self._table: Final = table
        self._classes: Final = classes
        self._selectors: Final = selectors
        self._share_id: Final = share_id
        self._rules: Final = rules
        self._inventory: Final = Inventory(table, slices, allocated)
        self._kinds: Final[OrderedDict[bytes, _Kinds]] = OrderedDict()
        self._classes_at = -1

    def search(
        self, rows: Rows, claims: Sequence[ResourceClaim], budget: Budget
    ) -> AllocatorResult:
        """Searches devices for all these claims together, on each of the rows (intp[n]).

        Raises Unfinished if the budget may pause.
        """
        budget.start()
        try:
            self._inventory.sync(budget)
            kinds = self._kinds_for(claims)
            kinds.refresh(rows, budget)
            answers = kinds.answer(rows, claims, budget)
        finally:
            budget.stop()
        return AllocatorResult(self, kinds.query, claims, rows, answers)

    def results(
        self, query: Query, claims: Sequence[ResourceClaim], solution: Solution, row: int
    ) -> tuple[AllocationResult, ...]:
        """The allocations that a solution means on a row's node."""
        views, name = self._inventory.visible[row].views, self._table.names[row]
        return allocation_results(query, claims, solution, views, name, self._share_id)

    def _kinds_for(self, claims: Sequence[ResourceClaim]) -> _Kinds:
        if self._classes_at != self._classes.version:
            self._classes_at = self._classes.version
            self._kinds.clear()
        asked = [msgspec.structs.replace(claim.spec.devices, config=None) for claim in claims]
        key = _encode(asked)
        kinds = self._kinds.get(key)
        if kinds is None:
            query = Query(asked, self._classes, self._selectors, self._rules)
            kinds = self._kinds[key] = _Kinds(query, self._inventory)
            if len(self._kinds) > _MAX_QUERIES:
                self._kinds.popitem(last=False)
        self._kinds.move_to_end(key)
        return kinds
