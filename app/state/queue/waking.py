"""One event's way through the pods that wait, in steps: it may concern many, and there are other things to do meanwhile."""

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from itertools import chain, islice
from typing import Any, Final

from app.state.queue.hints import Interest, Strategy
from app.state.queue.queued_pod import GATED, UNSCHEDULABLE, QueuedPod
from app.state.queue.unschedulable_pods import Siblings
from app.state.queue.waiting_room import Precheck, WaitingRoom

#: Pods to be moved, and groups of siblings to be asked about, in one go: what takes some 10 milliseconds at most.
ONE_GO: Final = 500

#: A pod, and how to queue it again.
Move = tuple[QueuedPod, Strategy]


class Wake:
    """First all groups of siblings are judged, then the pods are handed out that are to be moved.

    Where that takes more than one go, pods may come and go in between: those that have been tried since the event are left
    alone, for they have met what it brought. And then the first to be moved are those that will be tried first.
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
        self._judge: Final = room.judge(interest, old, new, precheck)
        self._groups: Iterator[Siblings] = iter(room.candidates(interest))
        #: What is to be moved, siblings by siblings, and in the order in which it is to be handed out.
        self._found: list[Sequence[Move]] = []
        self._moves: Iterator[Move] = iter(())
        self._left = 0
        self._judged = False
        self._interrupted = False

    @property
    def over(self) -> bool:
        """Whether there is nothing left to do."""
        return self._judged and not self._left

    def go(self, effort: int, sort_key: Callable[[QueuedPod], Any]) -> tuple[int, Sequence[Move]]:
        """Does a part of the work, of about this size: what is left of the effort, and pods to be moved now."""
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
        for group in islice(self._groups, effort):
            effort -= 1
            if group.pods and (moves := self._judge(group)):
                self._found.append(moves)
                self._left += len(moves)
        self._judged = effort > 0
        return effort

    def _in_order(self, effort: int, sort_key: Callable[[QueuedPod], Any]) -> Iterator[Move]:
        """Siblings are in order already, by the time of their last attempt."""
        if self._left <= effort:
            return chain.from_iterable(self._found)
        return merge(*self._found, key=lambda move: sort_key(move[0]))

    def _still_waits(self, queued: QueuedPod) -> bool:
        """Whether the pod waits since before the event."""
        place = queued.place
        return (place is UNSCHEDULABLE or place is GATED) and queued.timestamp <= self.now
