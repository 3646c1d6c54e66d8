"""The time that a search for devices may take."""

from typing import Protocol


class AllocationTimeout(Exception):  # noqa: N818 - it says what happened
    """The search took too long."""


class Budget(Protocol):
    """The time that may be spent in one attempt."""

    def start_kind(self) -> None:
        """The search on another kind of node begins."""

    def expired(self) -> bool:
        """Whether the time for it, or for all, is up."""

    def now(self) -> float:
        """Seconds on the clock that it goes by."""
