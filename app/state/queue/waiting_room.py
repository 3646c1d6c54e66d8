"""The pods that wait for an event, and the question which of them an event should wake.

See docs/spec/queue.md#requeueing-decision.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from typing import Final

from app.model.cluster_event import EVENTS_DROPPED
from app.model.pod import Pod
from app.state.queue.hints import (
    AFTER_BACKOFF,
    SKIP,
    HintRegistration,
    Hints,
    Interest,
    Strategy,
    is_same_pod,
    narrowed,
)
from app.state.queue.queued_pod import QueuedPod
from app.state.queue.unschedulable_pods import Siblings, UnschedulablePods, WaitingPool

#: Says whether an event may concern a pod at all, before any hint is asked.
Precheck = Callable[[Pod], bool]

#: Of some gated siblings, those that the plugin which gates them would let through now (PreEnqueue.let_through).
LetThrough = Callable[[Siblings, Collection[QueuedPod]], Collection[QueuedPod]]

_UNKNOWN_PROFILE: Final = "unknown profile"


class WaitingRoom:
    """Unschedulable and gated pods.

    Unschedulable pods are filed under each of their rejectors. Gated pods are filed under the plugin that gates them: an
    event that this plugin has not registered never wakes them, whichever other plugin rejected them, nor does any while the plugin
    holds them back. Hints that look at a pod's template only are asked once for all siblings.
    """

    def __init__(self, hints: Hints, let_through: LetThrough, tickets: Iterator[int]) -> None:
        """Args: see Hints, PreEnqueue and PodHeap."""
        self._hints: Final = hints
        self._let_through: Final = let_through
        self.unschedulable: Final = UnschedulablePods(self._wakers, tickets)
        self.gated: Final = WaitingPool(lambda group: (group.gating_plugin,))

    def judge(
        self,
        interest: Interest,
        old: object | None,
        new: object | None,
        precheck: Precheck | None = None,
    ) -> Callable[[Siblings], Sequence[tuple[QueuedPod, Strategy]]]:
        """A function that judges one group of siblings by the event.

        It returns those that the event may help and that pass ``precheck``, each with how to queue it again.
        """
        check = _only(new, precheck) if interest.wildcard and new is not None else precheck

        def judge(group: Siblings) -> Sequence[tuple[QueuedPod, Strategy]]:
            common, questions = self._ask_for_all(group, interest, old, new)
            if common is SKIP and not questions:
                return ()
            pods: Collection[QueuedPod] = group.pods.values()
            few = narrowed(questions, group.template, old, new) if common is SKIP else None
            if few is not None:
                pods = [group.pods[uid] for uid in few if uid in group.pods]
            if pods and group.gating_plugin:
                pods = self._let_through(group, pods)
            if not questions:
                return [(q, common) for q in pods if check is None or check(q.pod)]
            moves = []
            for queued in pods:
                if check is None or check(queued.pod):
                    strategy = self._hints.ask(questions, queued, old, new, floor=common)
                    if strategy is not SKIP:
                        moves.append((queued, strategy))
            return moves

        return judge

    def candidates(self, interest: Interest) -> Sequence[Siblings]:
        """The groups rejected by a plugin that registered for the event; each once, in a fixed order. All, for EVENTS_DROPPED."""
        if not self.unschedulable and not self.gated:
            return ()
        if interest.event == EVENTS_DROPPED:
            return (*self.unschedulable.groups, *self.gated.groups)
        found: dict[Siblings, None] = {}
        if interest.wildcard:
            found.update(dict.fromkeys(self.unschedulable.groups))
        else:
            for waker in (*interest.wakers, _UNKNOWN_PROFILE):
                found.update(dict.fromkeys(self.unschedulable.woken_by(waker)))
        for plugin in interest.plugins:
            found.update(dict.fromkeys(self.gated.woken_by(plugin)))
        return tuple(found)

    def _wakers(self, group: Siblings) -> Iterable[Hashable]:
        if not self._hints.knows(group.profile):
            return (_UNKNOWN_PROFILE,)
        return ((group.profile, plugin) for plugin in group.rejectors)

    def _ask_for_all(
        self, group: Siblings, interest: Interest, old: object | None, new: object | None
    ) -> tuple[Strategy, Sequence[HintRegistration]]:
        """The answer of the hints that need to be asked only once for all siblings, and the hints that do not."""
        if interest.wildcard or not self._hints.knows(group.profile):
            return AFTER_BACKOFF, ()
        matching = self._hints.matching(interest, group.profile, group.rejectors)
        anyone = next(iter(group.pods.values()))
        once = [registration for registration in matching if registration.asked_once]
        common = self._hints.ask(once, anyone, old, new)
        each = [registration for registration in matching if not registration.asked_once]
        return common, each


def _only(target: object, precheck: Precheck | None) -> Precheck:
    """A wildcard event with an object concerns the pod that the object is, and no other."""
    return lambda pod: is_same_pod(target, pod) and (precheck is None or precheck(pod))
