"""Asks extenders about the pods of a group before their turn, so that the calls for one group overlap.

The pods are decided one after another, each on the table with the pods before it. Only the calls are made earlier:
their answers are kept (app.extender.known_answers), and at a pod's turn only nodes are sent that were not sent before.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final

from app.cycle.attempt import Attempt
from app.scheduler.extender_cycle import ExtenderCycle, Questions
from app.scheduler.slots import Slots
from app.state.queue.queued_pod import QueuedPod

#: Returns an attempt for a popped pod; None for one that must not be tried, which is dropped.
AttemptFor = Callable[[QueuedPod], Attempt | None]

_NAME: Final = "ask extenders about pods of a group"


class AskAhead:
    """The calls that are made ahead in one cycle of a group, in slots that are free."""

    def __init__(
        self,
        extenders: ExtenderCycle,
        questions: Questions,
        slots: Slots,
    ) -> None:
        self._extenders: Final = extenders
        self._questions: Final = questions
        self._slots: Final = slots
        #: Set during the block only.
        self._attempt_for: AttemptFor
        #: The pods that extenders were not asked about yet.
        self._pods: Final[deque[QueuedPod]] = deque()
        #: The pods whose turn has not come, by uid.
        self._waiting: Final[set[str]] = set()
        self._feeder: asyncio.Task[None] | None = None
        self._in_flight = 0
        self._ended: Final = asyncio.Event()

    @asynccontextmanager
    async def during(
        self, pods: Iterable[QueuedPod], attempt_for: AttemptFor
    ) -> AsyncIterator[None]:
        """Asks about these pods, in this order, during the block; no call is in flight after it."""
        self._attempt_for = attempt_for
        self._pods.extend(queued for queued in pods if self._extenders.concerns(queued.pod))
        self._waiting.update(queued.pod.uid for queued in self._pods)
        try:
            yield
        finally:
            self._pods.clear()
            self._waiting.clear()
            if self._feeder is not None:
                self._feeder.cancel()
                await asyncio.wait([self._feeder])
                self._feeder = None  # its exception leads back here
            while self._in_flight:
                self._ended.clear()
                await self._ended.wait()
            del self._attempt_for  # which leads back here

    def turn_of(self, queued: QueuedPod) -> None:
        """It is this pod's turn. Starts to ask about those after it, if extenders may be called for several pods at a
        time."""
        self._waiting.discard(queued.pod.uid)
        while self._pods and self._pods[0].pod.uid not in self._waiting:
            self._pods.popleft()
        if self._more and (self._feeder is None or self._feeder.done()):
            number = min(self._slots.number - 1 - self._in_flight, len(self._pods))
            if number > 0:
                self._feeder = asyncio.create_task(self._feed(number), name=_NAME)

    @property
    def _more(self) -> bool:
        return bool(self._pods) and self._extenders.may_ask_ahead(self._pods[0].pod)

    async def _feed(self, number: int) -> None:
        for _ in range(number):
            await self._slots.start(self._ask_all(), _NAME)

    async def _ask_all(self) -> None:
        self._in_flight += 1
        try:
            while self._more:
                await self._ask(self._pods.popleft())
        finally:
            self._in_flight -= 1
            self._ended.set()

    async def _ask(self, queued: QueuedPod) -> None:
        attempt = self._attempt_for(queued)
        if attempt is None:
            return

        def wanted() -> bool:
            return queued.pod.uid in self._waiting

        # Whatever fails here fails again when it is the pod's turn, and is reported then.
        with contextlib.suppress(Exception):
            await self._extenders.ask_ahead(attempt, self._questions, len(self._waiting), wanted)
