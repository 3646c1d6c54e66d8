"""Tells extenders with a release verb which placements were given up (docs/extenders.md#release).

An extender that reserves while it filters does not learn otherwise that a pod failed in Permit, PreBind or Bind. The
calls are made in the background, one at a time for each extender. A late release might undo a new reservation: one that
still waits when its pod is tried again is dropped, and the extenders are asked about the pod when the answer to one
that was sent is there.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Iterable
from typing import Final

from app.extender.client import HTTPExtender
from app.extender.config import Verb
from app.extender.errors import ExtenderError
from app.model.pod import Pod
from app.observe.metrics.series import MetricFamilies
from app.runtime.tasks import Spawn
from app.scheduler.extender_retries import ExtenderRetries

#: Releases that wait for each extender at most: a large group gives up all of its placements at once.
MAX_WAITING: Final = 5000
#: Placements in one call at most. Those with the same reason are released together, as those of a group.
MAX_PLACEMENTS: Final = 100

# What became of releases.
SENT: Final = "sent"
FAILED: Final = "failed"
SUPERSEDED: Final = "superseded"
TOO_MANY_WAITING: Final = "too_many_waiting"


class _Waiting:
    """One extender's releases that wait, by the pod's uid."""

    def __init__(self, extender: HTTPExtender) -> None:
        self.extender: Final = extender
        #: With the reason, and how many times extenders had rejected pods by then.
        self.pods: Final[dict[str, tuple[Pod, str, int]]] = {}
        self.sending = False
        #: ExtenderRetries.rejections before the first placement given up of which the extender did not hear; infinite
        #: for none.
        self.unheard_since = math.inf
        #: The pods (uids) of the call in flight, and whether there is none.
        self.in_flight: frozenset[str] = frozenset()
        self.answered: Final = asyncio.Event()
        self.idle: Final = asyncio.Event()
        self.idle.set()
        self.results: Final[Counter[str]] = Counter()


class Releases:
    """Releases placements."""

    def __init__(
        self, extenders: Iterable[HTTPExtender], spawn: Spawn, retries: ExtenderRetries
    ) -> None:
        """``retries`` has the pods that may fit when an extender has heard of a release."""
        self._all: Final = [_Waiting(e) for e in extenders if e.supports(Verb.RELEASE)]
        self._spawn: Final = spawn
        self._retries: Final = retries
        self._closed = False

    def register(self, families: MetricFamilies) -> None:
        """Adds its figures to the metrics."""
        families.computed(
            "aiokube_scheduler_extender_releases_total",
            "Placements that were given up and that an extender with a release verb may have heard of, by what "
            "became of the call.",
            self.results,
            ("extender", "result"),
            counter=True,
        )

    def given_up(self, pod: Pod, reason: str) -> None:
        """A pod will not be bound to ``pod.node_name``, which was chosen for it."""
        for waiting in self._all:
            if not waiting.extender.is_interested(pod):
                continue
            if self._closed:
                waiting.results[FAILED] += 1
                continue
            if len(waiting.pods) >= MAX_WAITING:
                waiting.results[TOO_MANY_WAITING] += 1
                continue
            waiting.pods[pod.uid] = (pod, reason, self._retries.rejections)
            if not waiting.sending:
                waiting.sending = True
                waiting.idle.clear()
                self._spawn(self._send(waiting), "release placements")

    async def before_asking(self, uid: str) -> None:
        """To be awaited before extenders are asked about a pod: no release of an earlier placement arrives
        afterwards."""
        for waiting in self._all:
            dropped = waiting.pods.pop(uid, None) if waiting.pods else None
            if dropped is not None:
                waiting.results[SUPERSEDED] += 1
                waiting.unheard_since = min(waiting.unheard_since, dropped[2])
            while uid in waiting.in_flight:
                await waiting.answered.wait()

    async def _send(self, waiting: _Waiting) -> None:
        try:
            while waiting.pods:
                _, reason, since = next(iter(waiting.pods.values()))
                alike = [pod for pod, why, _ in waiting.pods.values() if why == reason][
                    :MAX_PLACEMENTS
                ]
                for pod in alike:
                    del waiting.pods[pod.uid]
                waiting.in_flight = frozenset(pod.uid for pod in alike)
                waiting.answered.clear()
                try:
                    await waiting.extender.release(alike, reason)
                except ExtenderError:
                    waiting.results[FAILED] += len(alike)
                    waiting.unheard_since = min(waiting.unheard_since, since)
                else:
                    waiting.results[SENT] += len(alike)
                    since = int(min(waiting.unheard_since, since))
                    waiting.unheard_since = math.inf
                    self._retries.released(waiting.extender.name, alike, since)
                finally:
                    waiting.in_flight = frozenset()
                    waiting.answered.set()
        finally:
            waiting.sending = False
            waiting.idle.set()

    async def finish(self) -> None:
        """Returns when no release waits."""
        for waiting in self._all:
            await waiting.idle.wait()

    def close(self) -> None:
        """The process is about to end, or does not lead any longer: what is given up from now on counts as failed."""
        self._closed = True

    def results(self) -> dict[tuple[str, ...], float]:
        """The number of releases by extender and what became of them."""
        return {
            (waiting.extender.name, result): float(count)
            for waiting in self._all
            for result, count in waiting.results.items()
        }
