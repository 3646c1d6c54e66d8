"""The nominated pods by row, as a filter needs them: quick to look at again when little has changed since."""

from collections.abc import Mapping, Sequence
from typing import Final

from app.model.pod import Pod
from app.state.nominator import Nominator
from app.state.table import NodeTable

#: By row: pods as if on that row's node. A sequence is the same object as long as nothing about it has changed.
PodsByRow = Mapping[int, Sequence[Pod]]

_MAX_PRIORITIES: Final = 64


class Nominations:
    """Which pods have to be reckoned with where (spec: service.md 3.8)."""

    def __init__(self, nominator: Nominator, table: NodeTable) -> None:
        self._nominator: Final = nominator
        self._table: Final = table
        self._by_priority: Final[dict[int, _AtLeast]] = {}

    def concerning(self, pod: Pod) -> PodsByRow:
        """The other pods that are nominated with at least the priority of this one. Not to be changed."""
        if not self._nominator.nominated_nodes():
            return {}
        known = self._by_priority.get(pod.priority)
        if known is None:
            if len(self._by_priority) >= _MAX_PRIORITIES:
                self._by_priority.clear()
            known = self._by_priority[pod.priority] = _AtLeast(pod.priority)
        known.refresh(self._nominator, self._table)
        return known.without(pod, self._nominator, self._table)


class _AtLeast:
    """The pods nominated with at least some priority, by row."""

    def __init__(self, priority: int) -> None:
        self._priority: Final = priority
        self._version = 0
        self._layout = -1
        self._rows: dict[int, Sequence[Pod]] = {}

    def refresh(self, nominator: Nominator, table: NodeTable) -> None:
        """Takes over what has changed since the last time."""
        same_rows = self._layout == table.layout
        names = nominator.changed_since(self._version) if same_rows else None
        if names is None:
            self._rows.clear()
            names = iter(nominator.nominated_nodes())
        for name in names:
            row = table.row_of.get(name)
            if row is not None:
                self._put(row, name, nominator)
        self._layout, self._version = table.layout, nominator.version

    def _put(self, row: int, name: str, nominator: Nominator) -> None:
        pods = [pod.on(name) for pod in nominator.pods_on(name) if pod.priority >= self._priority]
        if pods:
            self._rows[row] = pods
        else:
            self._rows.pop(row, None)

    def without(self, pod: Pod, nominator: Nominator, table: NodeTable) -> PodsByRow:
        """All of them but this very pod."""
        own = table.row_of.get(nominator.node_of(pod.uid) or "")
        if own is None or own not in self._rows:
            return self._rows
        others = [other for other in self._rows[own] if other.uid != pod.uid]
        rows = {**self._rows, own: others}
        if not others:
            del rows[own]
        return rows
