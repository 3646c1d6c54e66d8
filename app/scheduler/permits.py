"""Pods that Permit plugins hold back, and the ways out: allowed, rejected, timed out, given up."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Final

from app.model.pod import Pod
from app.model.status import SUCCESS, Code, Status, unschedulable


class WaitingPod:
    """A pod on hold until every plugin that asked to wait has allowed it, or one rejects it."""

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
        """One plugin lets the pod go; the last one ends the wait."""
        self._pending.discard(plugin)
        if not self._pending:
            self._finish(SUCCESS)

    def reject(self, plugin: str, message: str) -> None:
        """One plugin turns the pod down."""
        self._finish(unschedulable(message, plugin=plugin))

    def preempt(self) -> None:
        """A pod of higher priority takes the place."""
        self._finish(Status(Code.Error, ("preempted",)))

    def _timeout(self, plugin: str, seconds: float) -> None:
        text = f"rejected due to timeout after waiting {seconds:g}s at plugin {plugin}"
        self._finish(unschedulable(text, plugin=plugin))

    def _finish(self, status: Status) -> None:
        self.stop()
        if not self._result.done():
            self._result.set_result(status)

    async def wait(self) -> Status:
        """How it ended."""
        return await self._result

    def stop(self) -> None:
        """Lets no time limit run out any more."""
        for timer in self._timers:
            timer.cancel()


class WaitingPods:
    """All pods on hold, by uid."""

    def __init__(self) -> None:
        self._pods: dict[str, WaitingPod] = {}

    def __iter__(self) -> Iterator[WaitingPod]:
        return iter(tuple(self._pods.values()))

    def get(self, uid: str) -> WaitingPod | None:
        """The pod, if it is on hold."""
        return self._pods.get(uid)

    def hold(self, pod: Pod, node_name: str, waits: Mapping[str, float]) -> WaitingPod:
        """Puts a pod on hold, for so many seconds per plugin at most; from now on plugins find it here."""
        waiting = self._pods[pod.uid] = WaitingPod(pod, node_name, waits)
        return waiting

    async def wait(self, waiting: WaitingPod) -> Status:
        """How the wait of a pod on hold ends."""
        try:
            return await waiting.wait()
        finally:
            self.release(waiting)

    def release(self, waiting: WaitingPod) -> None:
        """Forgets a pod that is no longer waited for."""
        waiting.stop()
        if self._pods.get(waiting.pod.uid) is waiting:
            del self._pods[waiting.pod.uid]
