"""One event's way through the pods that wait, in steps: it may concern many thousands, and other work must not wait for them."""

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from itertools import chain, islice
from typing import Any, Final

from app.state.queue.hints import Interest, Strategy
from app.state.queue.queued_pod import GATED, UNSCHEDULABLE, QueuedPod
from app.state.queue.unschedulable_pods import Siblings
from app.state.queue.waiting_room import Precheck, WaitingRoom

#: How much is done in one go: groups of siblings judged and pods moved, together. Takes some 10 milliseconds at most.
ONE_GO: Final = 500

#: A pod, and how to queue it again.
Move = tuple[QueuedPod, Strategy]


class Wake:
    """What is left to do about one event: first all groups of siblings are judged, then the pods to move are handed out.

    The groups are those there are when the first go begins. An event that takes more than one go, or that has to wait for its
    first, is interrupted by others. Pods that were tried meanwhile are left alone, since they were tried after the event. And pods are handed out in the order in which they will be tried (that of the queue's
    sort key), so that the first ones need not wait for all.
    """

    def __init__(
        self,
        room: WaitingRoom,
        interest: Interest,
        old: object | None,
        new: object | None,
        now: float,
        precheck: Precheck | None,
    ) -> None:
        """``now``: when the event happened."""
        self.interest: Final = interest
        self.now: Final = now
        self._room: Final = room
        self._judge: Final = room.judge(interest, old, new, precheck)
        self._groups: Iterator[Siblings] | None = None
        #: What is to be moved, siblings by siblings, and in the order in which it is to be handed out.
        self._found: list[Sequence[Move]] = []
        self._moves: Iterator[Move] = iter(())
        self._left = 0
        self._judged = False
        self._interrupted = False

    def defer(self) -> None:
        """Other events come first."""
        self._interrupted = True

    @property
    def over(self) -> bool:
        """Whether there is nothing left to do."""
        return self._judged and not self._left

    def go(self, effort: int, sort_key: Callable[[QueuedPod], Any]) -> tuple[int, Sequence[Move]]:
        """Does some of the work: a unit of ``effort`` for each group judged and each pod handed out.

        Returns the effort that is left (0 if the work is not over), and the pods to move now.
        """
        if not self._judged:
            effort = self._go_on_judging(effort)
            if effort <= 0:
                self._interrupted = True
                return 0, ()
            self._moves = self._in_order(effort, sort_key)
        moves = list(islice(self._moves, effort))
        effort -= len(moves)
        self._left -= len(moves)
        if self._interrupted:
            moves = [move for move in moves if self._still_waits(move[0])]
        self._interrupted = not self.over
        return effort, moves

    def _go_on_judging(self, effort: int) -> int:
        if self._groups is None:
            self._groups = iter(self._room.candidates(self.interest))
        for group in islice(self._groups, effort):
            effort -= 1
            if group.pods and (moves := self._judge(group)):
                self._found.append(moves)
                self._left += len(moves)
        self._judged = effort > 0
        return effort

    def _in_order(self, effort: int, sort_key: Callable[[QueuedPod], Any]) -> Iterator[Move]:
        """All that was found, siblings by siblings if this go can hand it out whole, else by the sort key.

        Siblings have the same priority and came here one after another, so each group is in order already.
        """
        if self._left <= effort:
            return chain.from_iterable(self._found)
        return merge(*self._found, key=lambda move: sort_key(move[0]))

    def _still_waits(self, queued: QueuedPod) -> bool:
        """Whether the pod waits since before the event."""
        place = queued.place
        return (place is UNSCHEDULABLE or place is GATED) and queued.timestamp <= self.now
