"""The clock of tests whose loop has a virtual time."""

import asyncio

#: What the wall clock shows when the loop's time is 0, in seconds since the epoch.
WALL = 1_700_000_000.0


class LoopClock:
    """A Clock (app.runtime.clock) that tells the loop's time."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return WALL + self.monotonic()
