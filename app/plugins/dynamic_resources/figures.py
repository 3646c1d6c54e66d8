"""What DynamicResources counts for metrics."""

from collections import Counter
from typing import Final


class Figures:
    """Counters of one profile's plugin."""

    def __init__(self) -> None:
        #: Creations of claims for extended resources, by outcome: ``success`` or ``failure``.
        self.claims_created: Final[Counter[str]] = Counter()
        #: Allocated devices with binding conditions that pods have waited for, by driver and outcome: ``success``, ``failure``,
        #: ``timeout`` or ``error``.
        self.conditions_awaited: Final[Counter[tuple[str, str]]] = Counter()
