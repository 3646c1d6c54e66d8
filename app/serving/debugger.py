"""Compares the scheduler's state with the watches and dumps it, for SIGUSR2 and ``/debug/cache``.

See docs/spec/cache.md#debugger.
"""

import itertools
import logging
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, Final

import msgspec

from app.model.objects import Node
from app.model.pod import Pod
from app.runtime import logs
from app.runtime.tasks import at_once
from app.state.cache import describe
from app.state.scheduler_state import SchedulerState

log = logging.getLogger(__name__)

#: Pods compared in one step.
_STEP: Final = 2000


class Mismatch(msgspec.Struct, frozen=True):
    """Names of nodes or uids of pods. ``missed``: only the watch has them; ``redundant``: only the scheduler has
    them.
    """

    missed: tuple[str, ...]
    redundant: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.missed or self.redundant)


class CacheDebugger:
    """Compares and dumps one scheduler's state."""

    def __init__(
        self,
        state: SchedulerState,
        *,
        nodes: Callable[[], Mapping[str, Node]],
        pods: Callable[[], Mapping[str, Pod]],
    ) -> None:
        """``nodes`` and ``pods``: the objects as the watches show them."""
        self.state: Final = state
        self._nodes: Final = nodes
        self._pods: Final = pods

    # ------------------------------------------------------------ comparing

    def compare_nodes(self) -> Mismatch:
        """Nodes of the watch against those of the cache."""
        table = self.state.table
        known = {name for name, row in table.row_of.items() if table.nodes[row] is not None}
        seen = {node.name for node in self._nodes().values()}
        return Mismatch(tuple(sorted(seen - known)), tuple(sorted(known - seen)))

    def compare_pods(self) -> Generator[None, None, Mismatch]:
        """Pods of the watch that are bound or ours, against those of the cache and the queue; in steps.

        Pods that differ are checked once more at the end, because pods come and go between the steps.
        """
        state = self.state
        found: list[Pod] = []
        queued = (each.pod for each in state.queue.all_pods())
        everything = itertools.chain(list(self._pods().values()), list(state.cache), queued)
        for number, pod in enumerate(everything, start=1):
            if self._seen(pod) != self._known(pod):
                found.append(pod)
            if number % _STEP == 0:
                yield
        differ = {pod.uid: pod for pod in found if self._seen(pod) != self._known(pod)}
        return Mismatch(
            tuple(sorted(uid for uid, pod in differ.items() if self._seen(pod))),
            tuple(sorted(uid for uid, pod in differ.items() if not self._seen(pod))),
        )

    def _seen(self, pod: Pod) -> bool:
        """Whether the watch shows the pod, and it concerns the scheduler."""
        seen = self._pods().get(pod.key)
        if seen is None or seen.uid != pod.uid:
            return False
        return bool(seen.node_name) or self.state.responsible_for(seen)

    def _known(self, pod: Pod) -> bool:
        return (
            self.state.cache.get(pod.uid) is not None or self.state.queue.get(pod.uid) is not None
        )

    # ------------------------------------------------------------ dumping

    def node_dump(self) -> Iterator[str]:
        """One text per node."""
        return self.state.cache.dump(self.state.nominator.pods_on)

    def queue_dump(self) -> str:
        """One line per pending pod."""
        return "\n".join(map(describe, self.state.queue.pending_pods()))

    def to_log(self) -> None:
        """Compares and dumps everything to the log."""
        compared = ("Nodes", self.compare_nodes()), ("Pods", at_once(self.compare_pods()))
        for kind, mismatch in compared:
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
            summary=self.state.queue.statistics().summary,
            pods=self.queue_dump(),
        )
