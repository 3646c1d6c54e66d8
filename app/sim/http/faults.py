"""Injected faults, for tests of clients."""

import asyncio
import contextlib
import re
from collections.abc import Iterator

import msgspec

from app.sim.errors import ApiError


class Fault(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A fault of the next ``times`` matching requests."""

    method: str = ""
    """HTTP method; empty for any."""
    path: str = ""
    """Regular expression that is searched in the path, such as ``/binding$``; empty for any path."""
    times: int = 1
    """The number of requests that it still affects."""
    delay: float = 0.0
    """Seconds to wait before the request is handled, or until the faults are cleared."""
    status: int = 0
    """Answer with this code instead of handling the request; 0 handles it."""
    reason: str = "InternalError"
    message: str = "injected fault"
    retry_after: int | None = None
    """Seconds in the Retry-After header and the Status."""
    drop_answer: bool = False
    """Handle the request, then close the connection without an answer."""
    hits: int = 0
    """The number of affected requests so far."""

    def __post_init__(self) -> None:
        try:
            re.compile(self.path)
        except re.error as error:
            raise ValueError(f"path {self.path!r} is not a regular expression: {error}") from error

    def matches(self, method: str, path: str) -> bool:
        if self.times <= 0 or (self.method and self.method != method):
            return False
        return not self.path or re.search(self.path, path) is not None

    def error(self) -> ApiError:
        return ApiError(self.status, self.reason, self.message, retry_after=self.retry_after)


class Faults:
    """The active faults. The first that matches is used."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._cleared = asyncio.Event()

    def __bool__(self) -> bool:
        return bool(self._faults)

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._faults)

    def add(self, fault: Fault) -> Fault:
        """Activates a fault and returns it, so that a test can read its hits."""
        self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """Removes all faults. Requests that wait because of one continue."""
        self._faults.clear()
        self._cleared.set()
        self._cleared = asyncio.Event()

    async def suffer(self, fault: Fault) -> None:
        """Applies a fault before the request is handled. Raises its ApiError."""
        if fault.delay:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(fault.delay):
                    await self._cleared.wait()
        if fault.status:
            raise fault.error()

    def take(self, method: str, path: str) -> Fault | None:
        """Returns the fault that hits this request, if any, and counts the hit."""
        for fault in self._faults:
            if fault.matches(method, path):
                fault.times -= 1
                fault.hits += 1
                if fault.times <= 0:
                    self._faults.remove(fault)
                return fault
        return None
