"""A client-side rate limit and growing waits between retries. Time and random numbers are arguments."""

from typing import Final

import numpy as np


class TokenBucket:
    """At most ``burst`` requests at once and ``qps`` per second in the long run, as client-go's flow control.

    A caller always gets a token, with the time to wait before using it, so that callers are served in order.
    """

    def __init__(self, *, qps: float, burst: int) -> None:
        if qps <= 0 or burst <= 0:
            raise ValueError("qps and burst must be greater than zero")
        self._qps: Final = qps
        self._burst: Final = float(burst)
        self._tokens = float(burst)
        self._at = 0.0

    def take(self, now: float) -> float:
        """Takes a token; returns the seconds to wait before using it, 0 if one was available."""
        tokens = min(self._burst, self._tokens + max(0.0, now - self._at) * self._qps) - 1.0
        self._tokens, self._at = tokens, now
        return 0.0 if tokens >= 0.0 else -tokens / self._qps

    def give_back(self) -> None:
        """Returns a token that was not used."""
        self._tokens += 1.0


class Backoff:
    """Waits that grow by ``factor`` from ``initial`` to ``cap`` seconds, each made up to ``jitter`` of itself
    longer."""

    def __init__(
        self,
        rng: np.random.Generator,
        *,
        initial: float,
        factor: float = 2.0,
        cap: float,
        jitter: float = 1.0,
    ) -> None:
        self._rng: Final = rng
        self._initial: Final = initial
        self._factor: Final = factor
        self._cap: Final = cap
        self._jitter: Final = jitter
        self._base = initial

    def next(self) -> float:
        """Seconds to wait now; the next wait is longer."""
        base = self._base
        self._base = min(self._cap, base * self._factor)
        return base * (1.0 + self._jitter * self._rng.random())

    def reset(self) -> None:
        """Starts again from ``initial``, after a success."""
        self._base = self._initial
