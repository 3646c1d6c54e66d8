"""How many pods of one template the cluster takes, without deciding each: the room of every node at once."""

from collections.abc import Generator, Sequence
from typing import Final, NamedTuple

import numpy as np

from app.cycle.attempt import NominatedLookup
from app.framework.diagnosis import NONE, Diagnosis, FilterOutcome
from app.framework.interface import AnyPlugin, CycleState
from app.framework.runner import Framework, PreFilterRejected
from app.model.pod import Pod
from app.plugins.registry import IN_TREE
from app.state.columns.arrays import Int64, Rows
from app.state.nominations import PodsByRow
from app.state.pod_batch import PodBatch
from app.state.table import NodeTable
from app.state.view import DryRunView

#: Rows that are searched between two pauses.
_ROWS: Final = 2048
#: The filters whose verdict with more pods on a node depends on the columns of the table alone.
_BY_COLUMNS: Final = frozenset(IN_TREE.values())
_BY_OTHERS: Final = frozenset({"DynamicResources"})


class Room(NamedTuple):
    """The room for copies of a pod."""

    #: int64[table.size]: how many each row takes, up to the most that was asked for.
    by_row: Int64
    #: The verdicts on the next one, when all these are there.
    diagnosis: Diagnosis


def room_of(
    framework: Framework, table: NodeTable, pod: Pod, nominated: NominatedLookup, most: int
) -> Generator[None, None, Room | None]:
    """The room for at most ``most`` copies of a pod on each node. The table must not change at a yield.

    None if it cannot be told row by row: a filter that looks across nodes has a say, or one that reads more than
    columns (volumes, devices, third-party plugins). Raises SchedulingError.
    """
    memo = framework.memo(pod)
    state = CycleState(memo.local.state)
    filters = list(memo.local.active_filters)
    if pod.template.volumes or any(
        type(plugin) not in _BY_COLUMNS or plugin.NAME in _BY_OTHERS for _, plugin in filters
    ):
        return None
    try:
        before = framework.pre_filter(state, pod, memo)
    except PreFilterRejected as rejected:
        nothing = np.zeros(table.size, np.int64)
        return Room(
            nothing,
            Diagnosis(
                node_count=table.node_count,
                absent=rejected.status,
                pre_filter_message=rejected.status.message,
            ),
        )
    if before.wide or before.names is not None:
        return None
    outcome = memo.local.filtered(pod).over(table.exists[: table.size]).copy()
    outcome.check()
    room = np.zeros(table.size, np.int64)
    rows = outcome.feasible(table.all_rows())
    search = _Search(framework, table, pod, state, filters, nominated(pod), most)
    for start in range(0, len(rows), _ROWS):
        part = rows[start : start + _ROWS]
        room[part], after = yield from search.run(part)
        outcome.put(part, after)
    return Room(room, Diagnosis(node_count=table.node_count, outcome=outcome, absent=before.absent))


class _Search:
    """Searches the room of rows that are feasible now: by doubling, then by halves."""

    def __init__(
        self,
        framework: Framework,
        table: NodeTable,
        pod: Pod,
        state: CycleState,
        filters: Sequence[tuple[int, AnyPlugin]],
        nominated: PodsByRow,
        most: int,
    ) -> None:
        self._framework: Final = framework
        self._table: Final = table
        self._pod: Final = pod
        self._state: Final = state
        self._filters: Final = filters
        self._nominated: Final = nominated
        self._most: Final = most
        self._batch: Final = PodBatch([pod])

    def run(self, rows: Rows) -> Generator[None, None, tuple[Int64, FilterOutcome]]:
        """int64[len(rows)]: their room; and the verdicts on one more."""
        low = np.zeros(len(rows), np.int64)  # so many have room
        high = np.full(len(rows), self._most + 1, np.int64)  # so many have not
        step = 1
        while True:
            open_ = np.flatnonzero(high - low > 1)
            if not len(open_):
                break
            step *= 2
            middle = (low[open_] + high[open_]) // 2
            tried = np.where(
                high[open_] > self._most, np.minimum(low[open_] + step // 2, self._most), middle
            )
            fits = self._verdicts(rows[open_], tried - 1).plugin == NONE
            low[open_[fits]], high[open_[~fits]] = tried[fits], tried[~fits]
            yield
        return low, self._verdicts(rows, low)

    def _verdicts(self, rows: Rows, copies: Int64) -> FilterOutcome:
        """The verdicts on one more pod, with so many copies on each row (int64[n])."""
        view = DryRunView(self._table, rows)
        if self._nominated:
            for position, row in enumerate(rows.tolist()):
                for other in self._nominated.get(row, ()):
                    view.add(position, other)
        view.add_copies(self._batch, copies)
        return self._framework.filter_view(self._state, self._pod, view, self._filters)
