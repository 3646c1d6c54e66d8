"""PrioritySort: higher priority first, then the longer wait (docs/spec/plugins/priority-sort.md)."""

from typing import ClassVar

from app.framework.interface import NoArguments, Queued


class PrioritySort(NoArguments):
    """The order of the active queue."""

    NAME: ClassVar[str] = "PrioritySort"

    def sort_key(self, queued: Queued) -> tuple[int, float]:
        """The smaller key is popped first."""
        return -queued.pod.template.priority, queued.timestamp
