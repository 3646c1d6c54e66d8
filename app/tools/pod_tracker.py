"""Tracks pods of an embedded cluster in this process: which are bound, where and when, which were rejected, and why."""

import asyncio
import contextlib
import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from app.sim import EmbeddedCluster
from app.sim.resources.kinds import NODES, PODS
from app.sim.resources.pod_claims import missing_claim
from app.sim.store import StoreChange

ZONE: Final = "topology.kubernetes.io/zone"
#: The workload that a pod belongs to; None for pods that are not tracked.
WorkloadOf = Callable[[dict[str, Any]], str | None]

_LOOK_SECONDS: Final = 0.05
_REJECTED: Final = frozenset({"Unschedulable", "SchedulingGated"})


@dataclasses.dataclass(slots=True)
class TrackedPod:
    """One pod."""

    pod: str
    """Its namespace and name: ``shop/cart-0``."""
    workload: str
    node: str = ""
    """The node that it is bound to; empty while it is pending."""
    rejection: str = ""
    """Why it is pending: the message of the condition PodScheduled, or the claim that it needs first."""
    error: str = ""
    """The error of the last attempt, if it ended with one."""
    bound_at: float = 0.0
    """When it was bound, in seconds; 0 while it is pending."""
    is_gone: bool = False
    """Whether it has been deleted."""

    @property
    def is_decided(self) -> bool:
        """Whether it was bound, rejected or deleted."""
        return bool(self.node or self.rejection or self.is_gone)


class PodTracker:
    """Tracks the pods of an embedded cluster. ``now`` returns the time in seconds."""

    def __init__(
        self, cluster: EmbeddedCluster, now: Callable[[], float], workload_of: WorkloadOf
    ) -> None:
        self._cluster: Final = cluster
        self._now: Final = now
        self._workload_of: Final = workload_of
        self._entries: Final[dict[str, TrackedPod]] = {}
        self._changed_at = now()
        self.bound_at: Final[list[float]] = []
        """When each binding happened, in order."""
        cluster.api.store[PODS.storage].listeners[self._on_pod] = None

    def _on_pod(self, change: StoreChange) -> None:
        pod = change.record.value
        uid = pod["metadata"]["uid"]
        entry = self._entries.get(uid)
        if entry is None:
            workload = self._workload_of(pod)
            if workload is None:
                return
            entry = self._entries[uid] = TrackedPod("/".join(change.key), workload)
        if change.type == "DELETED":
            entry.is_gone = True
        else:
            self._update(entry, pod)
        self._changed_at = self._now()

    def _update(self, entry: TrackedPod, pod: dict[str, Any]) -> None:
        node = pod["spec"].get("nodeName")
        if node and not entry.node:
            entry.node, entry.rejection, entry.bound_at = node, "", self._now()
            self.bound_at.append(entry.bound_at)
        elif not node:
            api = self._cluster.api
            entry.rejection = _message(pod, _REJECTED) or missing_claim(api, pod)
            entry.error = _message(pod, {"SchedulerError"})

    @property
    def entries(self) -> Collection[TrackedPod]:
        """All tracked pods, in the order of their creation."""
        return self._entries.values()

    @property
    def bound(self) -> int:
        """Pods that are bound."""
        return len(self.bound_at)

    @property
    def is_decided(self) -> bool:
        """Whether every pod is bound or was rejected."""
        return all(entry.is_decided for entry in self._entries.values())

    def settled(self, quiet_seconds: float) -> bool:
        """Whether every pod was bound or rejected and nothing has changed for this long."""
        return self._now() - self._changed_at >= quiet_seconds and self.is_decided

    async def wait(self, done: Callable[[], bool], look: Callable[[], None]) -> None:
        """Returns when ``done`` is true; calls ``look`` periodically."""
        while not done():
            look()
            await asyncio.sleep(_LOOK_SECONDS)
        look()

    def zone(self, node: str) -> str:
        """The zone of a node; ``?`` if it is not known."""
        record = self._cluster.api.find(NODES, "", node)
        labels = record.value["metadata"].get("labels", {}) if record is not None else {}
        return str(labels.get(ZONE, "?"))

    def by_zone(self, workload: str) -> Counter[str]:
        """The number of a workload's pods that are bound in each zone; pending pods have the empty name."""
        return Counter(self.zone(e.node) if e.node else "" for e in self._of(workload))

    def rejections(self, workload: str) -> Counter[str]:
        """The number of a workload's pods that are pending for each reason."""
        return Counter(entry.rejection for entry in self._of(workload) if not entry.node)

    def undecided(self) -> list[str]:
        """Lines about the pods that were neither bound nor rejected, by workload and error."""
        left = Counter(
            (entry.workload, entry.error or "not tried")
            for entry in self._entries.values()
            if not entry.is_decided
        )
        return [f"{count} {workload}: {error}" for (workload, error), count in left.items()]

    def _of(self, workload: str) -> Iterator[TrackedPod]:
        return (entry for entry in self._entries.values() if entry.workload == workload)


def _message(pod: dict[str, Any], reasons: frozenset[str] | set[str]) -> str:
    """The message of the condition PodScheduled=False if it has one of these reasons."""
    for condition in pod.get("status", {}).get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition.get("reason") in reasons:
            return str(condition.get("message", ""))
    return ""


@contextlib.contextmanager
def pods_bound(console: Console, title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Shows a progress bar; yields a function that takes the number of bound pods."""
    columns = (
        TextColumn(f"{title:<22}"),
        BarColumn(
            complete_style="green"
        ),  # red, the default, would look like an error if pods stay pending
        MofNCompleteColumn(),
        TextColumn("pods bound"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(title, total=total)
        yield lambda bound: progress.update(task, completed=bound)
