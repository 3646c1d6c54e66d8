"""What tells the time. Nothing below the wall reads the machine's clock."""

from typing import Protocol


class Clock(Protocol):
    """Returns times in seconds."""

    def monotonic(self) -> float:
        """Since an arbitrary moment; never goes back and never stops. Not the event loop's time."""
        ...

    def wall(self) -> float:
        """Since the epoch; may jump."""
        ...

    def steady(self) -> float:
        """Since the epoch, by the wall clock at the creation of this clock plus monotonic time; never jumps."""
        ...
