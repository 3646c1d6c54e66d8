"""Pods that Permit plugins let wait, until they are allowed, rejected, timed out or preempted."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Final

from app.model.pod import Pod
from app.model.status import SUCCESS, Code, Status, unschedulable


class WaitingPodEntry:
    """A pod that waits until every plugin that asked for it has allowed it, or one rejects it."""

    def __init__(self, pod: Pod, node_name: str, waits: Mapping[str, float]) -> None:
        self.pod: Final = pod
        self.node_name: Final = node_name
        self._pending = set(waits)
        self._result: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        self._timers = [
            asyncio.get_running_loop().call_later(seconds, self._timeout, plugin, seconds)
            for plugin, seconds in waits.items()
        ]

    @property
    def pending_plugins(self) -> frozenset[str]:
        """The plugins that have not allowed the pod yet."""
        return frozenset(self._pending)

    def allow(self, plugin: str) -> None:
        """One plugin allows the pod; the last one ends the wait."""
        self._pending.discard(plugin)
        if not self._pending:
            self._finish(SUCCESS)

    def reject(self, plugin: str, message: str) -> None:
        """One plugin rejects the pod."""
        self._finish(unschedulable(message, plugin=plugin))

    def preempt(self) -> None:
        """A pod of higher priority takes the node."""
        self._finish(Status(Code.Error, ("preempted",)))

    def _timeout(self, plugin: str, seconds: float) -> None:
        text = f"rejected due to timeout after waiting {seconds:g}s at plugin {plugin}"
        self._finish(unschedulable(text, plugin=plugin))

    def _finish(self, status: Status) -> None:
        self.stop()
        if not self._result.done():
            self._result.set_result(status)

    async def wait(self) -> Status:
        """Returns the outcome when the wait ends."""
        return await self._result

    def stop(self) -> None:
        """Cancels the timeouts."""
        for timer in self._timers:
            timer.cancel()


class WaitingPodsMap:
    """All waiting pods, by uid."""

    def __init__(self) -> None:
        self._pods: dict[str, WaitingPodEntry] = {}

    def __iter__(self) -> Iterator[WaitingPodEntry]:
        return iter(tuple(self._pods.values()))

    def get(self, uid: str) -> WaitingPodEntry | None:
        """The waiting pod; None if there is none by this uid."""
        return self._pods.get(uid)

    def hold(self, pod: Pod, node_name: str, waits: Mapping[str, float]) -> WaitingPodEntry:
        """Lets a pod wait, at most this many seconds for each plugin; plugins find it here from now on."""
        waiting = self._pods[pod.uid] = WaitingPodEntry(pod, node_name, waits)
        return waiting

    async def wait(self, waiting: WaitingPodEntry) -> Status:
        """Returns the outcome when the wait of a pod ends."""
        try:
            return await waiting.wait()
        finally:
            self.release(waiting)

    def release(self, waiting: WaitingPodEntry) -> None:
        """Removes a pod that no longer waits."""
        waiting.stop()
        if self._pods.get(waiting.pod.uid) is waiting:
            del self._pods[waiting.pod.uid]
