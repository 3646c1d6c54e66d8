"""CheapNodes: of the nodes that will do, prefers those that cost less."""

import numpy as np

from aiokube_scheduler.framework.api import (
    CycleState,
    Handle,
    Int64,
    PluginArgs,
    Pod,
    NodeLocal,
    View,
    default_normalize,
)

HIGHEST = 1e6


class CheapNodesArgs(PluginArgs, frozen=True):
    """``label``: the key under which nodes carry their price; ``unlabelledPrice``: that of nodes that have none."""

    label: str = "example.com/price"
    unlabelled_price: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.unlabelled_price <= HIGHEST:
            raise ValueError(f"unlabelledPrice must be between 0 and {HIGHEST:.0f}")


class CheapNodes(NodeLocal):
    """Looks at all nodes at once."""

    NAME = "CheapNodes"

    def __init__(self, args: object, handle: Handle) -> None:
        self._args = CheapNodesArgs.read(args)

    def score(self, state: CycleState, pod: Pod, view: View) -> Int64:
        """int64[n]: the price in thousandths."""
        column, codes = view.label(self._args.label)
        prices = np.array([self._thousandths(text) for text in column.values], np.int64)
        return prices[codes]

    def normalize(self, state: CycleState, pod: Pod, scores: Int64, view: View) -> Int64:
        """The dearest node gets 0, a free one 100."""
        return default_normalize(scores, reverse=True)

    def _thousandths(self, text: str | None) -> int:
        try:
            return round(1000 * min(max(float(text or ""), 0.0), HIGHEST))
        except ValueError:  # no label, or no number in it
            return round(1000 * self._args.unlabelled_price)
