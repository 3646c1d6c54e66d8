"""When the system has no file descriptor or memory left for this process: counted, logged once, told while it lasts.

Who meets a shortage waits and tries again; the object here, one for the process as descriptors are the process's, only
keeps count. Times are those of the event loop, in seconds.
"""

import errno
import logging
from collections import Counter
from typing import Final

log = logging.getLogger(__name__)

#: Seconds without another failure after which a shortage is over.
CALM: Final = 60.0
#: Seconds before the first retry and the longest wait between two; each wait is twice the one before.
FIRST_RETRY: Final = 0.05
LAST_RETRY: Final = 1.0

_ERRNOS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})


def shortage_in(error: BaseException) -> BaseException | None:
    """The error, or what caused it, that says that the system has nothing left; None if none does."""
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
        """Whether an error on the way to ``what`` is a shortage; then it is counted, and the first one is logged."""
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
        """What failed last, None if nothing has for CALM seconds."""
        if self._last is None or now - self._last >= CALM:
            return None
        return self._reason


SHORTAGES: Final = Shortages()
"""Those of this process."""
