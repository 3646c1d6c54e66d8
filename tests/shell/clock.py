"""Clocks for tests: one for loops whose time is virtual, one that stands still, and a leap for loops with real time."""

import asyncio

#: What the wall clock shows when the loop's time is 0, in seconds since the epoch.
WALL = 1_700_000_000.0


class LoopClock:
    """A Clock (app.runtime.clock) that tells the loop's time; ``put_back`` is by how much the wall clock was put
    back.
    """

    put_back = 0.0

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return WALL + self.monotonic() - self.put_back

    def steady(self) -> float:
        return WALL + self.monotonic()


class StoppedClock:
    """A Clock that shows WALL for ever."""

    def monotonic(self) -> float:
        return 0.0

    def wall(self) -> float:
        return WALL

    def steady(self) -> float:
        return WALL


def leap(seconds: float) -> None:
    """Puts the running loop's clock forward: a limit this far ahead has passed now, on however slow a machine."""
    loop = asyncio.get_running_loop()
    time = loop.time
    loop.time = lambda: time() + seconds  # type: ignore[method-assign]
