"""Writes the PodScheduled condition and the nomination of pods, as tasks beside the loop.

Source: docs/spec/cycle.md#status-patch.
Patches of one pod are written one after another; those that wait are merged. Nominations are held back while other pods
wait for an attempt. No patch is written once its pod is being bound, because the binding makes it obsolete
(docs/decisions/0008).
"""

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Final

import msgspec

from app.kube.errors import KubeError, NotFound
from app.kube.payloads import ConditionChange
from app.kube.writer import KubeWriter
from app.model.budget import UNLIMITED, ByteBudget
from app.model.objects import PodCondition
from app.model.pod import Pod
from app.model.timestamps import format_time
from app.observe.metrics.series import MetricFamilies
from app.runtime import logs
from app.runtime.tasks import Spawn

log = logging.getLogger(__name__)

#: Verbosity at which each patch is logged.
_UPDATES: Final = 3
#: Seconds for which a nomination is held back at most, and seconds between two checks whether it still has to be.
HELD_BACK_SECONDS: Final = 1.0
LOOK: Final = 0.05
#: Seconds that a patch in progress has left, retries included, once its pod is about to be bound.
LAST_SECONDS: Final = 5.0
#: Patches that may wait; further ones are dropped.
MAX_PATCHES: Final = 20_000
#: Pods whose patches are remembered until the watch shows another version, and characters of the message of one.
MAX_WRITTEN: Final = 1024
_MAX_MESSAGE: Final = 4096
#: Bytes of a patch without its message, roughly.
_PATCH_BYTES: Final = 512


class StatusPatch(msgspec.Struct, frozen=True):
    """What to write into a pod's status.

    ``reason`` of the PodScheduled=False condition, empty for no condition; ``nominated_node``: None leaves the
    nomination, "" clears it, a name sets it.
    """

    reason: str = ""
    message: str = ""
    nominated_node: str | None = None

    def changes(self, pod: Pod) -> bool:
        """Whether it differs from the pod's status."""
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

    @property
    def size(self) -> int:
        """About how many bytes of memory it takes."""
        return _PATCH_BYTES + len(self.message)

    def without_condition(self) -> "StatusPatch":
        """The same nomination alone."""
        return StatusPatch(nominated_node=self.nominated_node)

    def applied_to(self, pod: Pod, now: float) -> Pod:
        """The pod as the API server has it after this patch; ``now`` in seconds since the epoch."""
        node, conditions = pod.nominated_node_name, pod.conditions
        if self.nominated_node is not None:
            node = self.nominated_node
        if self.reason:
            old = pod.condition("PodScheduled")
            since = old.last_transition_time if old is not None and old.status == "False" else None
            new = PodCondition(
                "PodScheduled", "False", self.reason, self.message, since or format_time(now)
            )
            conditions = (*(each for each in conditions if each.type != new.type), new)
        return msgspec.structs.replace(pod, nominated_node_name=node, conditions=conditions)

    def over(self, earlier: "StatusPatch") -> "StatusPatch":
        """Both patches merged; this one is the later."""
        return StatusPatch(
            self.reason or earlier.reason,
            self.message if self.reason else earlier.message,
            earlier.nominated_node if self.nominated_node is None else self.nominated_node,
        )


class _Wanted(msgspec.Struct, frozen=True):
    """A patch that waits. ``now``: when it was made (wall clock); ``due``: when it is held back no longer (loop
    time)."""

    pod: Pod
    patch: StatusPatch
    now: float
    due: float


class _Written(msgspec.Struct, frozen=True):
    """What was written over this version of a pod, and when (wall clock)."""

    uid: str
    resource_version: str
    patch: StatusPatch
    now: float


class _Writing(msgspec.Struct, frozen=True):
    """A patch in progress: ``limit`` ends it early, ``done`` is set at its end."""

    uid: str
    limit: asyncio.Timeout
    done: asyncio.Event


class StatusPatcher:
    """Writes patches with at most ``workers`` requests at a time.

    While ``backlog`` says that pods wait for an attempt, nominations are held back, for HELD_BACK_SECONDS at most. At
    most MAX_PATCHES wait, and their messages take no more than what ``budget`` has left; further ones are dropped and
    counted: a later attempt writes the same again. Of one that is to be merged only the condition is dropped.
    """

    def __init__(
        self,
        writer: KubeWriter,
        spawn: Spawn,
        *,
        backlog: Callable[[], bool] = lambda: False,
        workers: int = 16,
        budget: ByteBudget | None = None,
    ) -> None:
        self._writer: Final = writer
        self._spawn: Final = spawn
        self._backlog: Final = backlog
        self._workers: Final = workers
        self._budget: Final = budget or ByteBudget(UNLIMITED)
        #: By namespace/name, oldest first: the path of a request does not distinguish a pod from its successor of the
        #: same name.
        self._held: Final[dict[str, _Wanted]] = {}
        self._waiting: Final[dict[str, _Wanted]] = {}
        self._writing: Final[dict[str, _Writing]] = {}
        #: By namespace/name, oldest first: what the watch has not shown yet.
        self._written: Final[dict[str, _Written]] = {}
        #: Patches that were dropped because too many waited.
        self.dropped = 0
        self._running = 0
        self._holding = self._hurried = False
        self._idle: Final = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._held) + len(self._waiting) + len(self._writing)

    def register(self, families: MetricFamilies) -> None:
        """Adds its figures to the metrics."""
        families.computed(
            "aiokube_scheduler_status_patches_pending",
            "Pod status patches that wait or are being written.",
            lambda: {(): len(self)},
        )
        families.computed(
            "aiokube_scheduler_status_patches_dropped_total",
            "Pod status patches that were dropped because too many waited.",
            lambda: {(): self.dropped},
            counter=True,
        )

    async def finish(self) -> None:
        """Holds nothing back any longer; returns when everything is written."""
        self._hurried = True
        self._release(math.inf)
        await self._idle.wait()

    def put(self, pod: Pod, patch: StatusPatch, now: float) -> None:
        """Queues a patch if it changes anything; ``now`` in seconds since the epoch."""
        key = pod.key
        earlier = self._take(self._held, key) or self._take(self._waiting, key)
        if earlier is not None and earlier.pod.uid == pod.uid:
            smaller = patch.without_condition().over(earlier.patch)
            patch = patch.over(earlier.patch)
            if patch.size > self._budget.left:
                self.dropped += 1
                patch = smaller
        elif not self._is_writing(pod) and not patch.changes(self._as_written(pod)):
            self._check_idle()
            return
        if len(self._held) + len(self._waiting) >= MAX_PATCHES or not self._budget.take(patch.size):
            self.dropped += 1
            self._check_idle()
            return
        self._idle.clear()
        loop_time = asyncio.get_running_loop().time()
        if patch.nominated_node and self._holds_back():
            self._held[key] = _Wanted(pod, patch, now, loop_time + HELD_BACK_SECONDS)
            if not self._holding:
                self._holding = True
                self._spawn(self._hold(), "nominations")
        else:
            self._send(key, _Wanted(pod, patch, now, loop_time))

    def _take(self, patches: dict[str, _Wanted], key: str) -> _Wanted | None:
        """Removes the patch of a pod that waits, if there is one."""
        wanted = patches.pop(key, None)
        if wanted is not None:
            self._budget.give_back(wanted.patch.size)
        return wanted

    def _is_writing(self, pod: Pod) -> bool:
        writing = self._writing.get(pod.key)
        return writing is not None and writing.uid == pod.uid

    def _as_written(self, pod: Pod) -> Pod:
        """The pod with what was written over this version."""
        written = self._over(pod)
        return pod if written is None else written.patch.applied_to(pod, written.now)

    def _over(self, pod: Pod) -> _Written | None:
        written = self._written.get(pod.key)
        if written is not None and (written.uid, written.resource_version) == (
            pod.uid,
            pod.resource_version,
        ):
            return written
        return None

    def _note(self, pod: Pod, patch: StatusPatch, now: float) -> None:
        """Remembers a patch that was written."""
        earlier = self._over(pod)
        if earlier is not None:
            patch, now = patch.over(earlier.patch), earlier.now
        self._written.pop(pod.key, None)
        if len(patch.message) > _MAX_MESSAGE:
            return
        self._written[pod.key] = _Written(pod.uid, pod.resource_version, patch, now)
        if len(self._written) > MAX_WRITTEN:
            del self._written[next(iter(self._written))]

    def shown(self, pod: Pod) -> None:
        """The watch has shown another version of this pod, or that it has gone."""
        if self._written:
            self._written.pop(pod.key, None)

    async def withdraw(self, pod: Pod) -> None:
        """Drops the patches of a pod that is about to be bound; returns when none is being written.

        A patch in progress is cancelled after LAST_SECONDS. One for an earlier pod of the same name is not waited for,
        because the server rejects it.
        """
        if not (self._held or self._waiting or self._writing):
            return
        self._take(self._held, pod.key)
        self._take(self._waiting, pod.key)
        if self._is_writing(pod):
            writing = self._writing[pod.key]
            writing.limit.reschedule(asyncio.get_running_loop().time() + LAST_SECONDS)
            await writing.done.wait()
        self._check_idle()

    def _holds_back(self) -> bool:
        return not self._hurried and self._backlog()

    async def _hold(self) -> None:
        while self._held:
            self._release(asyncio.get_running_loop().time() if self._holds_back() else math.inf)
            await asyncio.sleep(LOOK)
        self._holding = False

    def _release(self, due: float) -> None:
        """Sends the held-back patches whose time comes by ``due``."""
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
                wanted = self._waiting.pop(key)
                self._budget.give_back(wanted.patch.size)
                await self._write(wanted)
        finally:
            self._running -= 1
            self._check_idle()

    def _check_idle(self) -> None:
        if not (self._running or self._waiting or self._held):
            self._idle.set()

    async def _write(self, wanted: _Wanted) -> None:
        pod, done = self._as_written(wanted.pod), asyncio.Event()
        try:
            async with asyncio.timeout(None) as limit:
                self._writing[pod.key] = _Writing(pod.uid, limit, done)
                if logs.enabled(_UPDATES):
                    _log_update(pod, wanted.patch)
                await self._write_patch(pod, wanted.patch, wanted.now)
                self._note(pod, wanted.patch, wanted.now)
        except TimeoutError:
            log.warning("Pod %s is bound before its status could be written", pod.key)
        except NotFound:
            log.debug("Pod %s is gone, its status is not written", pod.key)
        except KubeError as error:
            log.error("Error updating pod %s: %s", pod.key, error)
        finally:
            del self._writing[pod.key]
            done.set()

    async def _write_patch(self, pod: Pod, patch: StatusPatch, now: float) -> None:
        condition = None
        if patch.reason:
            condition = ConditionChange("PodScheduled", "False", patch.reason, patch.message)
        await self._writer.patch_pod_status(
            pod, condition=condition, nominated_node_name=patch.nominated_node, now=now
        )


def _log_update(pod: Pod, patch: StatusPatch) -> None:
    """Logs a patch in kube-scheduler's words."""
    pairs = {"pod": pod.key}
    if patch.reason:
        pairs |= {"conditionType": "PodScheduled", "conditionStatus": "False"}
        pairs["conditionReason"] = patch.reason
    if patch.nominated_node is not None:
        pairs["nominatedNodeName"] = patch.nominated_node
    logs.info(log, "Updating pod condition and nominated node name", v=_UPDATES, **pairs)
