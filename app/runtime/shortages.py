"""Counts failures because file descriptors or memory ran out, logs the first, and reports a shortage while it lasts.

The code that meets a shortage waits and retries. There is one counter per process, because file descriptors are per
process. Times are the event loop's, in seconds.
"""

import errno
import logging
from collections import Counter
from typing import Final

log = logging.getLogger(__name__)

#: Seconds without another failure after which a shortage is over.
CALM: Final = 60.0
#: Seconds before the first retry and the longest pause between two; each pause is twice the one before.
FIRST_RETRY: Final = 0.05
LAST_RETRY: Final = 1.0

_ERRNOS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})


def shortage_in(error: BaseException) -> BaseException | None:
    """The error or its cause that reports exhausted resources; None if there is none."""
    cause: BaseException | None = error
    while cause is not None and getattr(cause, "errno", None) not in _ERRNOS:
        cause = cause.__cause__
    return cause


class Shortages:
    """Counts failures by what failed."""

    def __init__(self) -> None:
        self.counts: Final[Counter[str]] = Counter()
        self._last: float | None = None
        self._reason = ""

    def noted(self, error: BaseException, what: str, now: float) -> bool:
        """Whether an error while trying to do ``what`` is a shortage; if so counts it, and logs the first one."""
        cause = shortage_in(error)
        if cause is None:
            return False
        if self.reason(now) is None:
            log.error("Cannot %s: %s; it is tried again until it succeeds", what, cause)
        self.counts[what] += 1
        self._last = now
        self._reason = f"cannot {what}: {getattr(cause, 'strerror', None) or cause}"
        return True

    def reason(self, now: float) -> str | None:
        """What failed last; None if nothing failed for CALM seconds."""
        if self._last is None or now - self._last >= CALM:
            return None
        return self._reason


SHORTAGES: Final = Shortages()
"""The shortages of this process."""
