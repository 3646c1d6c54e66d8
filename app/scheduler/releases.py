"""Tells extenders with a release verb which placements were given up (docs/extenders.md#release).

An extender that reserves while it filters does not learn otherwise that a pod failed in Permit, PreBind or Bind. The calls are
made in the background, one at a time for each extender. A release that still waits when its pod is tried again is dropped: the
extender is about to be asked about the pod anyway, and a late release might undo its new reservation.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Final

from app.extender.client import HTTPExtender
from app.extender.config import Verb
from app.extender.errors import ExtenderError
from app.model.pod import Pod
from app.runtime.tasks import Spawn

#: Releases that wait for each extender at most.
MAX_WAITING: Final = 500
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
        self.pods: Final[dict[str, tuple[Pod, str]]] = {}
        self.sending = False
        self.idle: Final = asyncio.Event()
        self.idle.set()
        self.results: Final[Counter[str]] = Counter()


class Releases:
    """Releases placements."""

    def __init__(self, extenders: Iterable[HTTPExtender], spawn: Spawn) -> None:
        self._all: Final = [_Waiting(e) for e in extenders if e.supports(Verb.RELEASE)]
        self._spawn: Final = spawn
        self._closed = False

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
            waiting.pods[pod.uid] = (pod, reason)
            if not waiting.sending:
                waiting.sending = True
                waiting.idle.clear()
                self._spawn(self._send(waiting), "release placements")

    def superseded(self, uid: str) -> None:
        """The pod is tried again."""
        for waiting in self._all:
            if waiting.pods and waiting.pods.pop(uid, None) is not None:
                waiting.results[SUPERSEDED] += 1

    async def _send(self, waiting: _Waiting) -> None:
        try:
            while waiting.pods:
                _, reason = next(iter(waiting.pods.values()))
                alike = [pod for pod, why in waiting.pods.values() if why == reason][
                    :MAX_PLACEMENTS
                ]
                for pod in alike:
                    del waiting.pods[pod.uid]
                try:
                    await waiting.extender.release(alike, reason)
                except ExtenderError:
                    waiting.results[FAILED] += len(alike)
                else:
                    waiting.results[SENT] += len(alike)
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
