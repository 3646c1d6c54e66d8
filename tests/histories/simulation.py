"""Virtual time: the world's events in order, and one event loop per process, which run only when it is their turn.

The world (server, network, users) is a heap of plain function calls. A process is an asyncio loop that has no files and
does not sleep: when it has nothing to do it calls ``Simulation.idle``, and there the world goes on until the process
has something to do again. So all of a history runs in one thread, in one order, and takes no time but that of the
processor.
"""

import asyncio
import collections
import contextvars
import heapq
import itertools
import math
from collections.abc import Callable
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
        """Calls ``action`` when it is ``time``, at once if that has passed; at the same time in the order of these
        calls."""
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


class _Call:
    """A callback of a loop: an asyncio.TimerHandle without what debugging needs. ``callback``: None once it is
    cancelled."""

    __slots__ = ("args", "callback", "context", "due")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
        due: float = 0.0,
    ) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context = contextvars.copy_context() if context is None else context
        self.due = due

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.due


class ProcessLoop(asyncio.BaseEventLoop):
    """The event loop of one process. It has no files: what would wait for them goes through the world."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
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
        #: What runs in the next turn, and what runs later: (when, number, call), as a heap.
        self._next: collections.deque[_Call] = collections.deque()
        self._timers: list[tuple[float, int, _Call]] = []
        self._numbers = itertools.count()
        simulation.loops.append(self)

    # ------------------------------------------------------------ what asyncio asks for

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        """See asyncio."""
        call = _Call(callback, args, context)
        self._next.append(call)
        return call

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        """See asyncio."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        """See asyncio."""
        call = _Call(callback, args, context, when)
        heapq.heappush(self._timers, (when, next(self._numbers), call))
        return call

    def _run_once(self) -> None:
        """One turn. Called by ``run_forever``."""
        timers, ready = self._timers, self._next
        while timers and timers[0][2].callback is None:
            heapq.heappop(timers)
        due = timers[0][0] if timers else math.inf
        if ready or due <= self.time():
            self.simulation.poll(self)
        else:
            self.simulation.idle(self, due)
        now = self.time()
        while timers and timers[0][0] <= now:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            call = ready.popleft()
            if call.callback is None:
                continue
            try:
                call.context.run(call.callback, *call.args)
            except Exception as error:
                text = f"Exception in callback {call.callback}"
                self.call_exception_handler({"message": text, "exception": error})

    # ------------------------------------------------------------ what the world does

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
        """Has the process call this, which must not raise, as soon as it runs: something has come in."""
        self._calls.append((callback, args))
        self.wait_until(self.simulation.now)

    def take_calls(self) -> None:
        """It is the loop's turn: does what the world has asked for."""
        if self._calls:
            calls, self._calls = self._calls, []
            for callback, args in calls:
                callback(*args)
