"""The time that the search for devices may take at once, and in all."""

from typing import Final

from app.model.clock import Clock
from app.model.status import Unfinished

#: Seconds of one turn: nothing else happens meanwhile.
TURN_SECONDS: Final = 0.010
#: Seconds for the search of one kind of node, in all its turns, whatever ``filterTimeout`` says.
SEARCH_SECONDS: Final = 2.0


class AllocationTimeout(Exception):  # noqa: N818 - it says what happened
    """The search for devices took too long."""


class Budget:
    """The time of one turn, of which only what lies between ``start`` and ``stop`` counts.

    ``limit``: seconds for one kind of node, in all turns.
    """

    def __init__(self, clock: Clock, filter_timeout: float) -> None:
        """``filter_timeout`` is in seconds, 0 for no limit."""
        self._clock: Final = clock
        self.limit: Final = min(filter_timeout or SEARCH_SECONDS, SEARCH_SECONDS)
        #: Whether another turn follows if this one does not suffice.
        self.may_pause = False
        self._left = TURN_SECONDS
        self._end = clock.monotonic() + TURN_SECONDS

    def start(self) -> None:
        """The time runs from here on."""
        self._end = self._clock.monotonic() + self._left

    def stop(self) -> None:
        """The time stands still."""
        self._left = self._end - self._clock.monotonic()

    def expired(self) -> bool:
        """Whether the time is over."""
        return self._clock.monotonic() > self._end

    def pause_if_expired(self) -> None:
        """Raises Unfinished if the time is over and another turn follows."""
        if self.may_pause and self.expired():
            raise Unfinished

    def now(self) -> float:
        """Seconds on the monotonic clock."""
        return self._clock.monotonic()
