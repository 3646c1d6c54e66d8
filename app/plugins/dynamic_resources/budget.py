"""How long a search for devices may take."""

from typing import Final

from app.framework.interface import Clock

#: Seconds for the searches of one attempt together, whatever the arguments say: nothing else happens meanwhile.
ATTEMPT_SECONDS: Final = 2.0


class Budget:
    """The time limits of one attempt: ``filterTimeout`` for each kind of node, ATTEMPT_SECONDS for all."""

    def __init__(self, clock: Clock, filter_timeout: float) -> None:
        """``filter_timeout``: seconds, 0 for no limit."""
        self._clock: Final = clock
        self._limit: Final = filter_timeout or ATTEMPT_SECONDS
        self._end: Final = clock.monotonic() + ATTEMPT_SECONDS
        self._kind_end = self._end

    def start_kind(self) -> None:
        """The search for another kind of node begins."""
        self._kind_end = min(self._end, self._clock.monotonic() + self._limit)

    def expired(self) -> bool:
        """Whether the search has to end."""
        return self._clock.monotonic() > self._kind_end

    def now(self) -> float:
        """Seconds on the clock that it goes by."""
        return self._clock.monotonic()
