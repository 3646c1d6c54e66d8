"""Pods that extenders rejected are tried again when the extenders say so.

kube-scheduler tries such a pod again when anything at all changes in the cluster, else after five minutes; that a licence
was given back or a device came up does not reach it. Here an extender has two ways to say it:

* ``Retry-After`` on an answer that rejected nodes, or on an error: the pod is tried again at that time.
* ``POST /extenders/requeue`` to the scheduler: the pods it rejected are tried again now.

Only pods that an extender rejected in their last attempt are woken; what they wait for besides is evaluated again.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from app.extender.client import asks_for
from app.extender.errors import ExtenderError
from app.model.pod import Pod
from app.observe.extender_reports import ExtenderReports
from app.scheduler.parts import Parts
from app.serving.extenders import WakeRequest

#: Seconds: what an extender that asks for less gets, so that a pod cannot be tried in a tight loop.
SHORTEST_RETRY: Final = 1.0
#: Timers at most; beyond, pods are tried again when something changes, or when they are asked for.
MAX_TIMERS: Final = 50_000


class _Refusal(msgspec.Struct):
    pod: Pod
    extenders: frozenset[str]
    timer: asyncio.TimerHandle | None = None


class ExtenderRetries:
    """Remembers which extenders rejected which pods, and makes these pods active again. Used from one event loop."""

    def __init__(
        self,
        parts: Parts,
        extenders: Iterable[str],
        reports: ExtenderReports,
        *,
        max_timers: int = MAX_TIMERS,
    ) -> None:
        """``extenders``: the names of all."""
        self._state: Final = parts.state
        self._names: Final = tuple(extenders)
        self._reports: Final = reports
        self._now: Final = parts.clock.steady
        self._max_timers: Final = max_timers
        self._refusals: Final[dict[str, _Refusal]] = {}
        self._timers = 0

    def __len__(self) -> int:
        """How many pods were rejected by an extender in their last attempt."""
        return len(self._refusals)

    # ------------------------------------------------------------ attempts

    def rejected(self, pod: Pod, extenders: Iterable[str], retry_after: float | None) -> None:
        """An attempt is about to fail, in which these extenders rejected nodes or failed.

        ``retry_after``: seconds after which one of them asked to be called again.
        """
        self.gone(pod.uid)
        names = frozenset(extenders)
        if names and self._state.is_unbound(pod):  # else ``gone`` would not be called for it
            self._refusals[pod.uid] = _Refusal(pod, names)
            if retry_after is not None:
                self.retry_at(pod, retry_after)

    def failed(self, pod: Pod, error: ExtenderError) -> None:
        """An extender that is not ignorable failed, at filter or at bind."""
        self._reports.failed(error, pod)
        self.rejected(pod, (error.extender,), error.retry_after)

    def gone(self, uid: str) -> None:
        """The pod has a node, or no longer exists."""
        refusal = self._refusals.pop(uid, None)
        if refusal is not None:
            self._stop(refusal)

    # ------------------------------------------------------------ waking

    def retry_at(self, pod: Pod, seconds: float) -> None:
        """Tries a pod that was rejected again after so many seconds, unless it has gone by then."""
        refusal = self._refusals.get(pod.uid)
        if refusal is None:
            return
        self._stop(refusal)
        if self._timers < self._max_timers:
            self._timers += 1
            refusal.timer = asyncio.get_running_loop().call_later(
                max(seconds, SHORTEST_RETRY), self._due, refusal
            )

    def wake(self, request: WakeRequest) -> int:
        """Makes the pods active that the request is about; returns how many. Raises ValueError for an unknown extender.

        A pod that is being tried right now is tried once more should it fail.
        """
        extender = self._known(request.extender)
        wanted = None if request.pods is None else {(p.namespace, p.name) for p in request.pods}
        return self._activate(
            [
                refusal
                for refusal in self._refusals.values()
                if (not extender or extender in refusal.extenders)
                and (wanted is None or (refusal.pod.namespace, refusal.pod.name) in wanted)
                and (not request.resource or _wants(refusal.pod, request.resource))
            ]
        )

    def close(self) -> None:
        """Cancels all timers."""
        for refusal in self._refusals.values():
            self._stop(refusal)

    def _known(self, extender: str) -> str:
        """The name of a configured extender, whether or not it is given with a slash at the end."""
        given = extender.rstrip("/")
        for name in self._names:
            if name.rstrip("/") == given:
                return name
        if not given:
            return ""
        known = ", ".join(self._names) or "there are none"
        raise ValueError(f'no extender "{extender}" is configured; configured: {known}')

    def _due(self, refusal: _Refusal) -> None:
        self._stop(refusal)
        self._activate([refusal])

    def _activate(self, refusals: Sequence[_Refusal]) -> int:
        found = [self._state.queue.get(refusal.pod.uid) for refusal in refusals]
        for refusal, queued in zip(refusals, found, strict=True):
            if queued is None:
                self.gone(refusal.pod.uid)
        pods = [queued.pod for queued in found if queued is not None]
        if pods:
            self._state.activate(pods, self._now())
        return len(pods)

    def _stop(self, refusal: _Refusal) -> None:
        if refusal.timer is not None:
            refusal.timer.cancel()
            refusal.timer = None
            self._timers -= 1


def _wants(pod: Pod, resource: str) -> bool:
    return asks_for(pod.template, frozenset({resource}))
