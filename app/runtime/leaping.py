"""An event loop that does not wait: when there is nothing to do, its time leaps to the next timer. For simulations.

Work takes its real time, so that limits of long work hold, or none in a StillLoop, whose runs are alike. What comes
from outside the process, apart from signals, is not waited for: no connection and no thread may be needed.
"""

import asyncio
import selectors
from typing import Any, Final

from app.runtime.clock import SystemClock


class _Selector(selectors.DefaultSelector):
    """Leaps instead of sleeping."""

    def __init__(self) -> None:
        super().__init__()
        self.leapt = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        """See selectors. Without any timer it waits: only a signal can follow."""
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(0)
        if not ready:
            self.leapt += timeout
        return ready


class LeapingLoop(asyncio.SelectorEventLoop):
    """A loop whose ``time`` is real time and all leaps."""

    def __init__(self) -> None:
        self._leaping: Final = _Selector()
        super().__init__(self._leaping)

    def time(self) -> float:
        """See asyncio."""
        return super().time() + self._leaping.leapt

    @property
    def leapt(self) -> float:
        """Seconds that were not waited."""
        return self._leaping.leapt


class StillLoop(asyncio.SelectorEventLoop):
    """A loop whose time leaps only, from 0: work takes no time but what ``spend`` says."""

    def __init__(self) -> None:
        self._leaping: Final = _Selector()
        super().__init__(self._leaping)

    def time(self) -> float:
        """See asyncio."""
        return self._leaping.leapt

    def spend(self, seconds: float) -> None:
        """Lets time pass for work."""
        self._leaping.leapt += seconds


class LoopClock:
    """A Clock (app.model.clock) of the running loop, which also counts its leaps."""

    def __init__(self) -> None:
        self._machine: Final = SystemClock()
        self._began: Final = self._machine.wall() - self.monotonic()

    def monotonic(self) -> float:
        """See Clock."""
        loop = asyncio.get_running_loop()
        leapt = loop.leapt if isinstance(loop, LeapingLoop) else 0.0
        return self._machine.monotonic() + leapt

    def wall(self) -> float:
        """See Clock."""
        return self.steady()

    def steady(self) -> float:
        """See Clock."""
        return self._began + self.monotonic()
