"""The status patches of pods that failed or were nominated, written beside the loop (spec: service.md 4.7).

Patches of one pod are written one after another; of those that wait only the newest is kept.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

import msgspec

from app.kube.errors import KubeError, NotFound
from app.model.pod import Pod

log = logging.getLogger(__name__)

Spawn = Callable[[Coroutine[Any, Any, None], str], object]


class StatusPatch(msgspec.Struct, frozen=True):
    """What to write into a pod's status.

    ``reason`` of the PodScheduled=False condition, empty for no condition; ``nominated_node``: None leaves the nomination,
    "" clears it, a name sets it.
    """

    reason: str = ""
    message: str = ""
    nominated_node: str | None = None

    def changes(self, pod: Pod) -> bool:
        """Whether it says anything that the pod's status does not say already."""
        if self.nominated_node is not None and self.nominated_node != pod.nominated_node_name:
            return True
        if not self.reason:
            return False
        old = pod.condition("PodScheduled")
        return old is None or (old.status, old.reason, old.message) != (
            "False",
            self.reason,
            self.message,
        )

    def over(self, earlier: "StatusPatch") -> "StatusPatch":
        """Both patches in one, this one being the later."""
        return StatusPatch(
            self.reason or earlier.reason,
            self.message if self.reason else earlier.message,
            earlier.nominated_node if self.nominated_node is None else self.nominated_node,
        )


class StatusWriter(Protocol):
    """Writes a pod's condition and nomination."""

    async def write_status(self, pod: Pod, patch: StatusPatch, now: float) -> None:
        """Writes what differs. Raises KubeError."""


class StatusPatcher:
    """Writes patches with at most ``workers`` requests under way."""

    def __init__(self, writer: StatusWriter, spawn: Spawn, *, workers: int = 16) -> None:
        self._writer: Final = writer
        self._spawn: Final = spawn
        self._workers: Final = workers
        self._waiting: dict[str, tuple[Pod, StatusPatch, float]] = {}
        self._busy: set[str] = set()
        self._running = 0
        self._idle: Final = asyncio.Event()
        self._idle.set()

    async def wait_until_idle(self) -> None:
        """Returns when everything is written."""
        await self._idle.wait()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._busy)

    def put(self, pod: Pod, patch: StatusPatch, now: float) -> None:
        """Queues a patch if it changes anything."""
        uid = pod.uid
        if uid in self._waiting:
            patch = patch.over(self._waiting.pop(uid)[1])
        elif uid not in self._busy and not patch.changes(pod):
            return
        self._waiting[uid] = (pod, patch, now)
        self._idle.clear()
        if self._running < self._workers:
            self._running += 1
            self._spawn(self._drain(), "status patches")

    async def _drain(self) -> None:
        try:
            while (
                uid := next((u for u in self._waiting if u not in self._busy), None)
            ) is not None:
                pod, patch, now = self._waiting.pop(uid)
                self._busy.add(uid)
                try:
                    await self._write(pod, patch, now)
                finally:
                    self._busy.discard(uid)
        finally:
            self._running -= 1
            if not self._running and not self._waiting:
                self._idle.set()

    async def _write(self, pod: Pod, patch: StatusPatch, now: float) -> None:
        try:
            await self._writer.write_status(pod, patch, now)
        except NotFound:
            log.debug("Pod %s is gone, its status is not written", pod.key)
        except KubeError as error:
            log.error("Error updating pod %s: %s", pod.key, error)
