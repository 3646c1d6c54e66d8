"""The time that the search for devices may take in one scheduling attempt."""

from typing import Final

from app.framework.interface import Clock

#: Seconds for all searches of one attempt, whatever ``filterTimeout`` says: they hold up everything else.
ATTEMPT_SECONDS: Final = 2.0


class AllocationTimeout(Exception):  # noqa: N818 - it says what happened
    """The search for devices took too long."""


class Budget:
    """The time limits of one attempt: ``filterTimeout`` for each kind of node, ATTEMPT_SECONDS for all of them."""

    def __init__(self, clock: Clock, filter_timeout: float) -> None:
        """``filter_timeout`` is in seconds, 0 for no limit."""
        self._clock: Final = clock
        self._limit: Final = filter_timeout or ATTEMPT_SECONDS
        self._end: Final = clock.monotonic() + ATTEMPT_SECONDS
        self._kind_end = self._end

    def start_kind(self) -> None:
        """Starts the time of the search for another kind of node."""
        self._kind_end = min(self._end, self._clock.monotonic() + self._limit)

    def expired(self) -> bool:
        """Whether the time for this kind of node, or for all of them, is over."""
        return self._clock.monotonic() > self._kind_end

    def now(self) -> float:
        """Seconds on the monotonic clock."""
        return self._clock.monotonic()
