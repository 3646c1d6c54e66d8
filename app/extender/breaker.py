"""The circuit breaker: an extender that does not answer is not called for some time.

    CLOSED ---- failures in a row ---> OPEN ---- pause over, one call let through ---> HALF_OPEN
      ^  ^                              | ^                                               |
      |  +--- any success --------------+ +---------- the probe failed: pause doubled ----+
      +----------------------------------------------- the probe succeeded ---------------+

Only a missing answer is a failure; an answer "no" or 500 is not. It does not count if another call was answered after
this one had begun: then the extender is slow, which is the limit's matter (app.extender.limit), and timeouts are
noticed late. A probe that was cancelled (its pod is gone), or that hit a closing connection, is inconclusive: the next
call is the probe. Time is an argument.
"""

import enum
import math
from typing import Final

from app.extender.config import BreakerSettings


class State(enum.StrEnum):
    """Whether calls are made."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Admission(enum.Enum):
    """What a caller may do; passed back with the outcome."""

    CALL = enum.auto()
    PROBE = enum.auto()
    HELD_BACK = enum.auto()


# Needed for each call: to look up a member takes as long as to call a function.
_CLOSED: Final = State.CLOSED
_CALL: Final = Admission.CALL


class Breaker:
    """One extender's breaker for one verb."""

    def __init__(self, settings: BreakerSettings) -> None:
        self._settings: Final = settings
        self._failures = 0
        self._pause = settings.open_seconds
        self._probe_at = 0.0
        #: When a call was answered last.
        self._answered = -math.inf
        self.state = State.CLOSED

    def holds_back(self, now: float) -> bool:
        """Whether a call would not be made."""
        return self.state is State.HALF_OPEN or (self.state is State.OPEN and now < self._probe_at)

    def admit(self, now: float) -> Admission:
        """Asks to make a call. A caller that gets CALL or PROBE must report the outcome, once."""
        if self.state is _CLOSED:
            return _CALL
        if self.holds_back(now):
            return Admission.HELD_BACK
        self.state = State.HALF_OPEN
        return Admission.PROBE

    def succeeded(self, now: float) -> None:
        """A call was answered, however long ago it began."""
        self._answered = max(self._answered, now)
        if self.state is not _CLOSED or self._failures:
            self.state = _CLOSED
            self._failures = 0
            self._pause = self._settings.open_seconds

    def failed(self, admission: Admission, began: float, now: float) -> None:
        """A call was not answered. Calls that began before the breaker opened have no effect.

        A probe counts as an ordinary call if another answer has closed the breaker since.
        """
        if admission is Admission.PROBE and self.state is State.HALF_OPEN:
            self._pause = min(self._pause * 2, self._settings.max_open_seconds)
            self._open(now + self._pause)
        elif self.state is State.CLOSED and self._settings.failures and began >= self._answered:
            self._failures += 1
            if self._failures >= self._settings.failures:
                self._open(now + self._pause)

    def abandoned(self, admission: Admission, now: float) -> None:
        """A call was cancelled before its outcome was known."""
        if admission is Admission.PROBE and self.state is State.HALF_OPEN:
            self._open(now)

    def _open(self, probe_at: float) -> None:
        self.state = State.OPEN
        self._probe_at = probe_at
