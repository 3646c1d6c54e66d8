"""Virtual time: the world's events in order, and one event loop per process, which run only when it is their turn.

The world (server, network, users) is a heap of plain function calls. A process is an asyncio loop that has no files and does not
sleep: when it has nothing to do it calls ``Simulation.idle``, and there the world goes on until the process has something to do
again. So all of a history runs in one thread, in one order, and takes no time but that of the processor.
"""

import asyncio
import heapq
import itertools
import math
import selectors
from collections.abc import Callable, Mapping
from typing import Any


class DeadlockError(Exception):
    """Nothing will ever happen again, yet the history is not over."""


#: Seconds that a turn of a loop takes at least, and how many turns a process may take without being idle once.
TURN_SECONDS = 1e-6
MOST_TURNS = 5000


class Simulation:
    """The world's clock and calendar. ``now`` is in seconds since the beginning of the history."""

    def __init__(self) -> None:
        self.now = 0.0
        #: Ends ``run``.
        self.finished = False
        self.loops: list[ProcessLoop] = []
        self._calendar: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._numbers = itertools.count()

    def at(self, time: float, action: Callable[..., object], *args: Any) -> None:
        """Calls ``action`` when it is ``time``, at once if that has passed; at the same time in the order of these calls."""
        heapq.heappush(self._calendar, (time, next(self._numbers), action, args))

    def after(self, seconds: float, action: Callable[..., object], *args: Any) -> None:
        """Calls ``action`` in so many seconds."""
        self.at(self.now + seconds, action, *args)

    def run(self) -> None:
        """Lets everything happen until ``finished``."""
        while not self.finished:
            loop = self._next_loop()
            if loop is not None and loop.turn <= self._next_event():
                self._give_turn(loop)
                loop.run_forever()
            elif not self._happen():
                raise DeadlockError

    def poll(self, loop: "ProcessLoop") -> None:
        """``loop`` is busy: what is due meanwhile happens; another loop whose turn has come is let run.

        A loop that is stopped here, for another or because it is frozen, takes one more turn before it stops.
        """
        self.now += TURN_SECONDS
        loop.busy += 1
        if loop.busy == MOST_TURNS:
            loop.on_restless()
        while self._calendar and self._calendar[0][0] <= self.now:
            self._happen()
        loop.wait_until(self.now)
        if self.finished or loop.turn > self.now or self._next_loop() is not loop:
            loop.stop()
        else:
            loop.take_calls()

    def idle(self, loop: "ProcessLoop", due: float) -> None:
        """``loop`` has nothing to do before ``due``: returns when it has, or stops it to let another loop run."""
        loop.wait_until(due)
        loop.busy = 0
        while not self.finished:
            first = self._next_loop()
            if first is not None and first.turn <= self._next_event():
                if first is not loop:
                    break
                self._give_turn(loop)
                return
            if not self._happen():
                break
        loop.stop()

    def end(self, loop: "ProcessLoop") -> None:
        """Cancels what is left in a loop and closes it. Forgets the world's plans and all other loops."""
        self._calendar.clear()
        self.loops = [loop]
        self.finished = False
        loop.thaw()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    def _give_turn(self, loop: "ProcessLoop") -> None:
        self.now = max(self.now, loop.turn)
        loop.take_calls()

    def _next_event(self) -> float:
        return self._calendar[0][0] if self._calendar else math.inf

    def _next_loop(self) -> "ProcessLoop | None":
        """The loop whose turn comes first, None if no loop has anything to do."""
        first, turn = None, math.inf
        for loop in self.loops:
            if loop.turn < turn:
                first, turn = loop, loop.turn
        return first

    def _happen(self) -> bool:
        """Lets the next event of the world happen; False if there is none."""
        if not self._calendar:
            return False
        time, _, action, args = heapq.heappop(self._calendar)
        self.now = max(self.now, time)
        action(*args)
        return True


class ProcessLoop(asyncio.SelectorEventLoop):
    """The event loop of one process."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        #: The process (replica).
        self.replica: Any = None
        #: When it runs next.
        self.turn = 0.0
        self._due = 0.0
        #: Turns since it was idle, and what is called when there were too many.
        self.busy = 0
        self.on_restless: Callable[[], object] = bool
        self._frozen_at = 0.0
        self._frozen_until = -math.inf
        self._calls: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        super().__init__(_Idle(self))
        simulation.loops.append(self)

    def wait_until(self, due: float) -> None:
        """The loop has nothing to do before ``due``, seconds."""
        self._due = due
        self.turn = due if due > self._frozen_until else self._frozen_until  # noqa: FURB136 - called all the time

    def time(self) -> float:
        """See asyncio. Stands still while the process is frozen, so that no timer runs out."""
        now = self.simulation.now
        return now if now >= self._frozen_until else self._frozen_at

    def run_in_executor(
        self, _executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """See asyncio. The work is done at once: threads would know no order."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def freeze(self, until: float) -> None:
        """Stops the process, as by SIGSTOP or with its machine; for good until inf. Called by the world."""
        if until > self._frozen_until:
            self._frozen_at = self.time()
            self._frozen_until = until
            self.wait_until(self._due)

    def thaw(self) -> None:
        """Lets the process run again."""
        self._frozen_until = -math.inf
        self._calls.clear()
        self.wait_until(self.simulation.now)

    def call_from_world(self, callback: Callable[..., object], *args: Any) -> None:
        """Has the process call this as soon as it runs: something has come in."""
        self._calls.append((callback, args))
        self.wait_until(self.simulation.now)

    def take_calls(self) -> None:
        """It is the loop's turn."""
        if not self._calls:
            return
        for callback, args in self._calls:
            self.call_soon(callback, *args)
        self._calls.clear()


class _Idle(selectors.BaseSelector):
    """What a loop asks for events of files, of which there are none: idle until the next timer, or until the world calls."""

    def __init__(self, loop: ProcessLoop) -> None:
        self._loop = loop
        self._keys: dict[int, selectors.SelectorKey] = {}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        loop = self._loop
        if timeout is not None and timeout <= 0:
            loop.simulation.poll(loop)
        else:
            due = math.inf if timeout is None else loop.time() + timeout
            loop.simulation.idle(loop, due)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = self._keys[fileobj] = selectors.SelectorKey(fileobj, fileobj, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys[fileobj]

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys
