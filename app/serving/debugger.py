"""Comparing what is known with what the watches brought, and writing both down: SIGUSR2 and ``/debug/cache``.

See docs/spec/cache.md#debugger.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from app.model.objects import Node
from app.model.pod import Pod
from app.runtime import logs
from app.state.cache import describe
from app.state.scheduler_state import SchedulerState

log = logging.getLogger(__name__)


class Mismatch(msgspec.Struct, frozen=True):
    """Names (of nodes) or uids (of pods): missed ones the watch has and the scheduler has not, redundant ones the reverse."""

    missed: tuple[str, ...]
    redundant: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.missed or self.redundant)


class CacheDebugger:
    """Looks at one scheduler's state."""

    def __init__(
        self,
        state: SchedulerState,
        *,
        nodes: Callable[[], Mapping[str, Node]],
        pods: Callable[[], Mapping[str, Pod]],
    ) -> None:
        """``nodes`` and ``pods``: the objects as the watches show them."""
        self._state: Final = state
        self._nodes: Final = nodes
        self._pods: Final = pods

    # ------------------------------------------------------------ comparing

    def compare_nodes(self) -> Mismatch:
        """Nodes of the watch against those of the cache."""
        table = self._state.table
        known = [name for name, row in table.row_of.items() if table.nodes[row] is not None]
        return _mismatch({node.name for node in self._nodes().values()}, known)

    def compare_pods(self) -> Mismatch:
        """Pods of the watch that sit on a node or are ours, against those of the cache and the queue."""
        state = self._state
        known = {pod.uid for pod in state.cache}
        known.update(pod.uid for pod in state.queue.pending_pods())
        known.update(pod.uid for pod in state.queue.in_flight_pods())
        seen = {
            pod.uid for pod in self._pods().values() if pod.node_name or state.responsible_for(pod)
        }
        return _mismatch(seen, known)

    # ------------------------------------------------------------ writing down

    def node_dump(self) -> Iterator[str]:
        """One text per node."""
        return self._state.cache.dump(self._state.nominator.pods_on)

    def queue_dump(self) -> str:
        """One line per pod that waits."""
        return "\n".join(map(describe, self._state.queue.pending_pods()))

    def to_log(self) -> None:
        """Compares and dumps everything to the log."""
        for kind, mismatch in (("Nodes", self.compare_nodes()), ("Pods", self.compare_pods())):
            if mismatch:
                pairs: dict[str, Any] = {
                    f"missed{kind}": list(mismatch.missed),
                    f"redundant{kind}": list(mismatch.redundant),
                }
                logs.info(log, "Cache mismatch", **pairs)
        logs.info(log, "Dump of cached NodeInfo", nodes="\n\n".join(self.node_dump()))
        logs.info(
            log,
            "Dump of scheduling queue",
            summary=self._state.queue.statistics().summary,
            pods=self.queue_dump(),
        )


def _mismatch(seen: Collection[str], known: Collection[str]) -> Mismatch:
    known, seen = set(known), set(seen)
    return Mismatch(tuple(sorted(seen - known)), tuple(sorted(known - seen)))
