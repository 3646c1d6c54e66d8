"""The status patches of pods that failed or were nominated, written beside the loop (docs/spec/cycle.md#status-patch).

Patches of one pod are written one after another; those that wait are made one. A nomination gives way while other pods wait
to be decided, and no patch is written once its pod is being bound: the binding says all that is left to say
(docs/decisions/0008).
"""

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from app.kube.errors import KubeError, NotFound
from app.model.pod import Pod
from app.runtime import logs
from app.runtime.spawn import Spawn

log = logging.getLogger(__name__)

#: Verbosity at which each patch is logged.
_UPDATES: Final = 3
#: Seconds for which a nomination gives way at most, and how often it is looked at whether it still must.
PATIENCE: Final = 1.0
LOOK: Final = 0.05
#: Seconds that a patch under way has left, retries and all, once its pod is about to be bound.
LAST_SECONDS: Final = 5.0
#: Patches that wait at most.
MAX_PATCHES: Final = 20_000


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


class _Wanted(msgspec.Struct, frozen=True):
    """A patch that waits; ``now`` is the wall clock's time of it, ``due`` the loop's time when it gives way no longer."""

    pod: Pod
    patch: StatusPatch
    now: float
    due: float


class _Writing(msgspec.Struct, frozen=True):
    """A patch under way: what ends it early, and tells of its end."""

    uid: str
    limit: asyncio.Timeout
    done: asyncio.Event


def _no_backlog() -> bool:
    return False


class StatusPatcher:
    """Writes patches with at most ``workers`` requests under way.

    ``backlog`` says whether pods wait to be decided; then nominations are held back, for PATIENCE seconds at most. No more
    than MAX_PATCHES wait; beyond, patches are dropped and counted: a later attempt writes the same again.
    """

    def __init__(
        self,
        writer: StatusWriter,
        spawn: Spawn,
        *,
        backlog: Callable[[], bool] = _no_backlog,
        workers: int = 16,
    ) -> None:
        self._writer: Final = writer
        self._spawn: Final = spawn
        self._backlog: Final = backlog
        self._workers: Final = workers
        #: By namespace/name, the oldest first: a pod and its successor of the same name are not told apart in a path.
        self._held: Final[dict[str, _Wanted]] = {}
        self._waiting: Final[dict[str, _Wanted]] = {}
        self._writing: Final[dict[str, _Writing]] = {}
        #: Patches that were dropped because too many waited.
        self.dropped = 0
        self._running = 0
        self._holding = self._hurried = False
        self._idle: Final = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._held) + len(self._waiting) + len(self._writing)

    async def finish(self) -> None:
        """Gives way no longer; returns when everything is written."""
        self._hurried = True
        self._release(math.inf)
        await self._idle.wait()

    def put(self, pod: Pod, patch: StatusPatch, now: float) -> None:
        """Queues a patch if it changes anything; ``now`` in seconds since the epoch."""
        key = pod.key
        earlier = self._held.pop(key, None) or self._waiting.pop(key, None)
        if earlier is not None and earlier.pod.uid == pod.uid:
            patch = patch.over(earlier.patch)
        elif not self._is_writing(pod) and not patch.changes(pod):
            self._look_whether_idle()
            return
        if len(self._held) + len(self._waiting) >= MAX_PATCHES:
            self.dropped += 1
            return
        self._idle.clear()
        loop_time = asyncio.get_running_loop().time()
        if patch.nominated_node and self._gives_way():
            self._held[key] = _Wanted(pod, patch, now, loop_time + PATIENCE)
            if not self._holding:
                self._holding = True
                self._spawn(self._hold(), "nominations")
        else:
            self._send(key, _Wanted(pod, patch, now, loop_time))

    def _is_writing(self, pod: Pod) -> bool:
        writing = self._writing.get(pod.key)
        return writing is not None and writing.uid == pod.uid

    async def withdraw(self, pod: Pod) -> None:
        """Drops what waits to be written about a pod, and returns when nothing is being written: it is about to be bound.

        What is under way is given up after LAST_SECONDS. What is about an earlier pod of its name need not be waited for: the
        server refuses it.
        """
        self._held.pop(pod.key, None)
        self._waiting.pop(pod.key, None)
        if self._is_writing(pod):
            writing = self._writing[pod.key]
            writing.limit.reschedule(asyncio.get_running_loop().time() + LAST_SECONDS)
            await writing.done.wait()
        self._look_whether_idle()

    def _gives_way(self) -> bool:
        return not self._hurried and self._backlog()

    async def _hold(self) -> None:
        while self._held:
            self._release(asyncio.get_running_loop().time() if self._gives_way() else math.inf)
            await asyncio.sleep(LOOK)
        self._holding = False

    def _release(self, due: float) -> None:
        """Sends what is held back until ``due`` at the latest."""
        while self._held and (key := next(iter(self._held))) and self._held[key].due <= due:
            self._send(key, self._held.pop(key))

    def _send(self, key: str, wanted: _Wanted) -> None:
        self._waiting[key] = wanted
        if self._running < self._workers:
            self._running += 1
            self._spawn(self._drain(), "status patches")

    async def _drain(self) -> None:
        try:
            while (
                key := next((k for k in self._waiting if k not in self._writing), None)
            ) is not None:
                await self._write(self._waiting.pop(key))
        finally:
            self._running -= 1
            self._look_whether_idle()

    def _look_whether_idle(self) -> None:
        if not (self._running or self._waiting or self._held):
            self._idle.set()

    async def _write(self, wanted: _Wanted) -> None:
        pod, done = wanted.pod, asyncio.Event()
        try:
            async with asyncio.timeout(None) as limit:
                self._writing[pod.key] = _Writing(pod.uid, limit, done)
                if logs.enabled(_UPDATES):
                    _log_update(pod, wanted.patch)
                await self._writer.write_status(pod, wanted.patch, wanted.now)
        except TimeoutError:
            log.warning("Pod %s is bound before its status could be written", pod.key)
        except NotFound:
            log.debug("Pod %s is gone, its status is not written", pod.key)
        except KubeError as error:
            log.error("Error updating pod %s: %s", pod.key, error)
        finally:
            del self._writing[pod.key]
            done.set()


def _log_update(pod: Pod, patch: StatusPatch) -> None:
    """Logs a patch in kube-scheduler's words."""
    pairs = {"pod": pod.key}
    if patch.reason:
        pairs |= {"conditionType": "PodScheduled", "conditionStatus": "False"}
        pairs["conditionReason"] = patch.reason
    if patch.nominated_node is not None:
        pairs["nominatedNodeName"] = patch.nominated_node
    logs.info(log, "Updating pod condition and nominated node name", v=_UPDATES, **pairs)
