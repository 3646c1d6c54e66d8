"""Waits until the scheduler has nothing left to do.

It is asked, by its metrics, whether any pod is about to be tried, waits out a backoff, is being decided about or bound, or
waits for its victims. When nothing of the kind is left, every pod has been decided about, none is on its way out and nothing
was written for a moment, only a change from outside could move anything.
"""

import asyncio
import contextlib
import re
from collections.abc import Callable
from typing import Final

import aiohttp

from app.sim import EmbeddedCluster
from app.sim.objects import is_being_deleted
from app.sim.resources.kinds import PODS
from app.sim.store import Object
from app.tools.pod_tracker import PodTracker

#: Seconds in which nothing may be written. Longer than the embedded cluster's parties take their time.
QUIET: Final = 0.3
_LOOK_SECONDS: Final = 0.05
_ANSWER_SECONDS: Final = 5.0

#: What is not idle while it is above zero; with labels, the queues that pods leave without a change from outside.
_BUSY: Final = re.compile(
    r"^(?:"
    r'scheduler_pending_pods\{queue="(?:active|backoff)"\}'
    r"|scheduler_goroutines\{[^}]*\}"
    r"|aiokube_scheduler_(?:pods_in_flight|unconfirmed_bindings|status_patches_pending|events_queued)"
    r") (\S+)$",
    re.MULTILINE,
)


def _is_held(pod: Object) -> bool:
    """Whether somebody who is not here has to let a pod go first."""
    return bool(pod["metadata"].get("finalizers"))


def is_idle(metrics: str) -> bool:
    """Whether the scheduler that shows these metrics does nothing, and would do nothing by itself later."""
    counts = [float(count) for count in _BUSY.findall(metrics)]
    return bool(counts) and not any(counts)


class Settling:
    """Looks at one scheduler and one cluster. ``port``: where the scheduler serves its metrics, on this machine."""

    def __init__(
        self, cluster: EmbeddedCluster, tracker: PodTracker, port: int, now: Callable[[], float]
    ) -> None:
        self._cluster: Final = cluster
        self._ledger: Final = tracker
        self._url: Final = f"http://127.0.0.1:{port}/metrics"
        self._now: Final = now

    async def wait(self, look: Callable[[int], None]) -> None:
        """Returns when nothing happens any more; ``look`` gets the number of pods that are bound."""
        limit = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
        async with aiohttp.ClientSession(timeout=limit) as session:
            settled = False
            while not settled:
                await asyncio.sleep(_LOOK_SECONDS)
                settled = await self._is_settled(session, look)

    async def _is_settled(
        self, session: aiohttp.ClientSession, look: Callable[[int], None]
    ) -> bool:
        """Whether the scheduler is idle, is still idle after a moment, and nothing was written in between."""
        look(self._ledger.bound)
        store = self._cluster.api.store
        revision = store.revision
        if not self._ledger.is_decided or self._is_awaited():
            return False
        if not await self._is_idle(session):
            return False
        until = self._now() + QUIET
        while self._now() < until:
            await asyncio.sleep(_LOOK_SECONDS)
            if store.revision != revision:
                return False
        return await self._is_idle(session) and store.revision == revision

    def _is_awaited(self) -> bool:
        """Whether any pod is on its way out: its preemptor, which does nothing until then, waits for that."""
        pods = self._cluster.api.store[PODS.storage].records.values()
        return any(is_being_deleted(pod.value) and not _is_held(pod.value) for pod in pods)

    async def _is_idle(self, session: aiohttp.ClientSession) -> bool:
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with session.get(self._url) as answer:
                return answer.ok and is_idle(await answer.text())
        return False
