"""Follows the demo's pods: which are bound, where and when, and which were turned down, and why."""

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

from app.runtime.demo.scenario import WORKLOAD, ZONE
from app.sim import EmbeddedCluster
from app.sim.resources.kinds import NODES, PODS
from app.sim.store import Change

_LOOK_SECONDS: Final = 0.05


@dataclasses.dataclass(slots=True)
class Entry:
    """One pod."""

    workload: str
    zone: str = ""
    """Of the node it is bound to; empty while it is pending."""
    refusal: str = ""
    """Why it is pending: the message of the FailedScheduling event and of the condition."""
    error: str = ""
    """What kept the scheduler from deciding about it the last time."""

    @property
    def is_decided(self) -> bool:
        """Whether it was bound or turned down."""
        return bool(self.zone or self.refusal)


class Ledger:
    """What happens to the pods of an embedded cluster in this process. ``now`` tells the time in seconds."""

    def __init__(self, cluster: EmbeddedCluster, now: Callable[[], float]) -> None:
        self._cluster: Final = cluster
        self._now: Final = now
        self._entries: Final[dict[str, Entry]] = {}
        self._changed_at = now()
        self.bound_at: Final[list[float]] = []
        """When each binding happened, in order."""
        cluster.api.store[PODS.storage].listeners[self._on_pod] = None

    def _on_pod(self, change: Change) -> None:
        pod = change.record.value
        entry = self._entries.setdefault(
            pod["metadata"]["uid"], Entry(pod["metadata"]["labels"][WORKLOAD])
        )
        node = pod["spec"].get("nodeName")
        if node and not entry.zone:
            entry.zone, entry.refusal = self._zone(node), ""
            self.bound_at.append(self._now())
        elif not node:
            entry.refusal = _message(pod, "Unschedulable")
            entry.error = _message(pod, "SchedulerError")
        self._changed_at = self._now()

    def _zone(self, node: str) -> str:
        record = self._cluster.api.find(NODES, "", node)
        return record.value["metadata"]["labels"][ZONE] if record is not None else "?"

    @property
    def bound(self) -> int:
        """Pods that are bound."""
        return len(self.bound_at)

    @property
    def decided(self) -> int:
        """Pods that are bound or were turned down."""
        return sum(entry.is_decided for entry in self._entries.values())

    def settled(self, quiet_seconds: float) -> bool:
        """Whether every pod was decided and nothing has changed for so long."""
        quiet = self._now() - self._changed_at
        return quiet >= quiet_seconds and self.decided == len(self._entries)

    async def wait(self, done: Callable[[], bool], look: Callable[[], None]) -> None:
        """Returns when ``done``; calls ``look`` time and again."""
        while not done():
            look()
            await asyncio.sleep(_LOOK_SECONDS)
        look()

    def by_zone(self, workload: str) -> Counter[str]:
        """How many pods of a workload are bound in each zone; those that are pending under the empty name."""
        return Counter(entry.zone for entry in self._of(workload))

    def refusals(self, workload: str) -> Counter[str]:
        """How many pods of a workload are pending for each reason."""
        return Counter(entry.refusal for entry in self._of(workload) if not entry.zone)

    def undecided(self) -> list[str]:
        """For people: the pods that were neither bound nor turned down, by workload and error."""
        left = Counter(
            (entry.workload, entry.error or "not tried")
            for entry in self._entries.values()
            if not entry.is_decided
        )
        return [f"{count} {workload}: {error}" for (workload, error), count in left.items()]

    def _of(self, workload: str) -> Iterable[Entry]:
        return (entry for entry in self._entries.values() if entry.workload == workload)


def _message(pod: dict[str, Any], reason: str) -> str:
    """The message of the condition PodScheduled=False if it has this reason."""
    for condition in pod["status"].get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition.get("reason") == reason:
            return str(condition.get("message", ""))
    return ""
