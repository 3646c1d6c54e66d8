"""The preemptions under way: a preemptor is held back until its room has been made.

See docs/spec/preemption.md#held-preemptors.
"""

from collections.abc import Collection
from typing import Final

from app.model.pod import Pod
from app.state.table import NodeTable

#: Preemptors beyond which those are forgotten that were not asked about since their victims left.
_MANY: Final = 256


class Preemptions:
    """The preemptors whose victims are being evicted, by uid, with the last victim once its turn has come.

    What an API server has confirmed comes from the watch a moment later. A preemptor that is tried in between fails once
    more, so it is held back until the watch has shown that its last victim is going. kube-scheduler stops to wait when the
    last request is answered; for a victim with grace there is no difference but that moment.
    """

    def __init__(self, table: NodeTable) -> None:
        self._table: Final = table
        self._last_victim: Final[dict[str, Pod | None]] = {}
        #: The last victims of preemptions that have ended well, by preemptor.
        self._leaving: Final[dict[str, Pod]] = {}

    def __len__(self) -> int:
        return len(self._last_victim)

    def begin(self, uid: str) -> None:
        """The victims of this preemptor are going to be evicted."""
        self._leaving.pop(uid, None)
        self._last_victim[uid] = None
        if len(self._leaving) > _MANY:
            for each in [each for each, victim in self._leaving.items() if not self._stays(victim)]:
                del self._leaving[each]

    def last(self, uid: str, victim: Pod) -> None:
        """All victims but this one are evicted."""
        self._last_victim[uid] = victim

    def end(self, uid: str, *, evicted: bool) -> bool:
        """The eviction has ended, successfully or not; whether the preemptor has nothing to wait for any more.

        Where the last victim has left already, the news may have come while the preemptor was held back for the others.
        """
        victim = self._last_victim.pop(uid, None)
        if not evicted or victim is None:
            return True
        if self._present(victim) is None:
            return True
        self._leaving[uid] = victim
        return False

    def holds(self, uid: str) -> bool:
        """Whether it is too early for this pod to be tried: its last victim is neither gone nor going."""
        if uid in self._last_victim:
            victim = self._last_victim[uid]
            return victim is None or self._stays(victim)
        victim = self._leaving.get(uid)
        return victim is not None and self._stays(victim)

    def waiting_for(self, victim_uid: str) -> Collection[str]:
        """The uids of the preemptors whose evictions have ended, with this pod as the last victim."""
        return [uid for uid, victim in self._leaving.items() if victim.uid == victim_uid]

    def _stays(self, victim: Pod) -> bool:
        """Whether it is worth waiting for news of this pod."""
        current = self._present(victim)
        return current is not None and (not current.terminating or current.leaves_at_once)

    def _present(self, victim: Pod) -> Pod | None:
        row = self._table.row_of.get(victim.node_name)
        return None if row is None else self._table.pods[row].get(victim.uid)
