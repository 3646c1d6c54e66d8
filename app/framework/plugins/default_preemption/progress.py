"""The preemptions under way: a preemptor is held back until its room has been made (spec: service.md 3.7)."""

from typing import Final

from app.model.pod import Pod
from app.state.table import NodeTable


class Preemptions:
    """The preemptors whose victims are being evicted, by uid, with the last victim once its turn has come."""

    def __init__(self, table: NodeTable) -> None:
        self._table: Final = table
        self._last_victim: Final[dict[str, Pod | None]] = {}

    def __len__(self) -> int:
        return len(self._last_victim)

    def begin(self, uid: str) -> None:
        """The victims of this preemptor are going to be evicted."""
        self._last_victim[uid] = None

    def last(self, uid: str, victim: Pod) -> None:
        """All victims but this one are evicted."""
        self._last_victim[uid] = victim

    def end(self, uid: str) -> None:
        """The eviction has ended, however it did."""
        self._last_victim.pop(uid, None)

    def holds(self, uid: str) -> bool:
        """Whether it is too early for this pod to be tried: its last victim is neither gone nor going."""
        if uid not in self._last_victim:
            return False
        victim = self._last_victim[uid]
        return victim is None or self._stays(victim)

    def _stays(self, victim: Pod) -> bool:
        row = self._table.row_of.get(victim.node_name)
        current = None if row is None else self._table.pods[row].get(victim.uid)
        return current is not None and not current.terminating
