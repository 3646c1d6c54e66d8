"""Tries pods that extenders rejected again when the extenders ask for it.

kube-scheduler tries such a pod again when anything changes in the cluster, otherwise after five minutes; it does not
learn that a licence was returned or a device has started. Here an extender can ask for it in two ways:

* ``Retry-After`` in an answer that rejects nodes, or in an error: the pod is tried again at that time.
* ``POST /extenders/requeue`` to the scheduler: the pods it rejected are tried again now.

Only pods that an extender rejected in their last attempt are made active.

They are also tried again after a pod without a node has gone: an extender that reserves while it filters gives back
what it had reserved for that pod. The same holds when an extender has answered a release, for pods that it rejected
meanwhile.
"""

import asyncio
import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from app.extender.errors import ExtenderError
from app.extender.interest import asks_for
from app.model.pod import Pod
from app.model.pod_groups import group_of
from app.observe.extender_reports import ExtenderReports
from app.scheduler.parts import Parts
from app.state.queue.queued_pod import IN_FLIGHT

if TYPE_CHECKING:  # it imports aiohttp's server
    from app.serving.extenders import WakeRequest

#: Seconds before a retry at least, so that a pod cannot be tried in a tight loop.
SHORTEST_RETRY: Final = 1.0
#: Timers at most; pods without one are tried again when something changes, or on request.
MAX_TIMERS: Final = 50_000


class _RejectedPod(msgspec.Struct):
    pod: Pod
    extenders: frozenset[str]
    #: The how-manieth rejection it is.
    number: int
    timer: asyncio.TimerHandle | None = None


class ExtenderRetries:
    """Remembers which extenders rejected which pods, and makes these pods active again."""

    def __init__(
        self,
        parts: Parts,
        extenders: Iterable[str],
        reports: ExtenderReports,
    ) -> None:
        """``extenders``: the names of all configured extenders."""
        self._state: Final = parts.state
        self._names: Final = tuple(extenders)
        self._reports: Final = reports
        self._now: Final = parts.clock.steady
        self._rejected_pods: Final[dict[str, _RejectedPod]] = {}
        self._timers = 0
        #: How many times pods were rejected.
        self.rejections = 0
        #: When the rejected pods are tried again because others have gone.
        self._after_gone: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """How many pods were rejected by an extender in their last attempt."""
        return len(self._rejected_pods)

    # ------------------------------------------------------------ attempts

    def rejected(self, pod: Pod, extenders: Iterable[str], retry_after: float | None) -> None:
        """An attempt fails in which these extenders rejected nodes or failed.

        ``retry_after``: seconds after which one of them asked to be called again.
        """
        self.gone(pod.uid)
        names = frozenset(extenders)
        if names and self._state.is_unbound(pod):  # else ``gone`` would not be called for it
            self.rejections += 1
            self._rejected_pods[pod.uid] = _RejectedPod(pod, names, self.rejections)
            if retry_after is not None:
                self.retry_at(pod, retry_after)

    def failed(self, pod: Pod, error: ExtenderError) -> None:
        """An extender that is not ignorable failed, at filter or at bind."""
        self._reports.failed(error, pod)
        self.rejected(pod, (error.extender,), error.retry_after)

    def gone(self, uid: str) -> None:
        """The pod has a node, or no longer exists."""
        rejected = self._rejected_pods.pop(uid, None)
        if rejected is not None:
            self._stop(rejected)

    def deleted(self, pod: Pod) -> None:
        """A pod was deleted."""
        self.gone(pod.uid)
        if not pod.node_name and self._rejected_pods and self._after_gone is None:
            self._after_gone = asyncio.get_running_loop().call_later(
                SHORTEST_RETRY, self._others_gone, pod
            )

    # ------------------------------------------------------------ waking

    def retry_at(self, pod: Pod, seconds: float) -> None:
        """Tries a rejected pod again after this many seconds, at least SHORTEST_RETRY, unless it has gone by then."""
        rejected = self._rejected_pods.get(pod.uid)
        if rejected is None:
            return
        self._stop(rejected)
        if self._timers < MAX_TIMERS:
            self._timers += 1
            rejected.timer = asyncio.get_running_loop().call_later(
                max(seconds, SHORTEST_RETRY), self._due, rejected
            )

    def wake(self, request: "WakeRequest") -> int:
        """Makes the requested pods active; returns how many. Raises ValueError for an unknown extender.

        A pod that is being tried now is tried once more if it fails.
        """
        extender = self._known(request.extender)
        wanted = None if request.pods is None else {(p.namespace, p.name) for p in request.pods}
        return self._activate(
            [
                rejected
                for rejected in self._rejected_pods.values()
                if (not extender or extender in rejected.extenders)
                and (wanted is None or (rejected.pod.namespace, rejected.pod.name) in wanted)
                and (
                    not request.resource
                    or asks_for(rejected.pod.template, frozenset({request.resource}))
                )
            ]
        )

    def wake_namespace(self, namespace: str) -> None:
        """Makes the rejected pods of a namespace active: the extenders that rejected them may concern them no
        longer."""
        self._activate([r for r in self._rejected_pods.values() if r.pod.namespace == namespace])

    def released(self, extender: str, pods: Iterable[Pod], since: int) -> None:
        """The extender has heard of placements that were given up when ``rejections`` was ``since``.

        Other pods that it has rejected since then are made active. Those of the same groups are not: they would give up
        again.
        """
        groups = {group_of(pod) or pod.uid for pod in pods}
        late = itertools.takewhile(
            lambda rejected: rejected.number > since, reversed(self._rejected_pods.values())
        )
        self._activate(
            [
                rejected
                for rejected in late
                if extender in rejected.extenders
                and (group_of(rejected.pod) or rejected.pod.uid) not in groups
            ]
        )

    def _others_gone(self, pod: Pod) -> None:
        self._after_gone = None
        self._state.unscheduled_pod_gone(pod, self._now(), among=self._rejected_pods)

    def close(self) -> None:
        """Cancels all timers."""
        if self._after_gone is not None:
            self._after_gone.cancel()
        for rejected in self._rejected_pods.values():
            self._stop(rejected)

    def _known(self, extender: str) -> str:
        """The name of a configured extender; a slash at the end makes no difference."""
        given = extender.rstrip("/")
        for name in self._names:
            if name.rstrip("/") == given:
                return name
        if not given:
            return ""
        known = ", ".join(self._names) or "there are none"
        raise ValueError(f'no extender "{extender}" is configured; configured: {known}')

    def _due(self, rejected: _RejectedPod) -> None:
        self._stop(rejected)
        if self._state.queue.where(rejected.pod.uid) is IN_FLIGHT:
            # It is tried already, perhaps with its group, each pod of which has a timer.
            self.retry_at(rejected.pod, SHORTEST_RETRY)
        else:
            self._activate([rejected])

    def _activate(self, rejected_pods: Sequence[_RejectedPod]) -> int:
        found = [self._state.queue.get(rejected.pod.uid) for rejected in rejected_pods]
        for rejected, queued in zip(rejected_pods, found, strict=True):
            if queued is None:
                self.gone(rejected.pod.uid)
        pods = [queued.pod for queued in found if queued is not None]
        if pods:
            self._state.activate(pods, self._now())
        return len(pods)

    def _stop(self, rejected: _RejectedPod) -> None:
        if rejected.timer is not None:
            rejected.timer.cancel()
            rejected.timer = None
            self._timers -= 1
