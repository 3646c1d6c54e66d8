"""What DynamicResources remembers of a pod from PreFilter to PreBind."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from app.model.devices import AllocationResult, ResourceClaim
from app.model.requests import Amounts
from app.plugins.dynamic_resources.allocator import Found
from app.plugins.dynamic_resources.budget import Budget
from app.plugins.dynamic_resources.extended import RequestMapping
from app.plugins.helpers.node_selector import NodeSelectorMatcher
from app.state.view import Rows


class Search:
    """What was found for some rows.

    ``wanted``: the claims that were searched for, by their places among the pod's, that for extended resources as it is on
    these nodes; ``mappings``: which of its requests stand for what.
    """

    def __init__(
        self,
        rows: Rows,
        found: Found,
        wanted: Mapping[int, ResourceClaim],
        mappings: Sequence[RequestMapping],
    ) -> None:
        self.rows: Final = rows
        self.found: Final = found
        self.wanted: Final = wanted
        self.mappings: Final = mappings


class Reservation:
    """What was allocated for the pod on its node, by the places of the claims; not all of it is written yet."""

    def __init__(
        self,
        allocations: Mapping[int, AllocationResult],
        claims: Mapping[int, ResourceClaim],
        mappings: Sequence[RequestMapping],
    ) -> None:
        self.allocations: Final = allocations
        #: The claims as the node needs them.
        self.claims: Final = claims
        self.mappings: Final = mappings
        #: The uids under which devices are set aside.
        self.in_flight: Final[set[str]] = set()
        #: Places of claims that have begun to be written; whether they are is not known.
        self.begun: Final[set[int]] = set()


class PodDevices:
    """The claims of one pod in one attempt, and what has become of them so far."""

    def __init__(
        self,
        claims: Sequence[ResourceClaim],
        *,
        extended: ResourceClaim | None,
        resources: Amounts,
        selectors: Mapping[int, NodeSelectorMatcher],
        budget: Budget,
    ) -> None:
        """``extended``: the claim for ``resources``, the extended resources that the pod asks for.

        ``selectors``: which nodes reach what was allocated before, by the claim's place.
        """
        #: Those of the spec, then that for extended resources; replaced by newer versions as they are written.
        self.claims: Final = [*claims, *([] if extended is None else [extended])]
        #: The place of the claim for extended resources.
        self.extended_at: Final = None if extended is None else len(claims)
        self.resources: Final = resources
        self.selectors: Final = selectors
        self.budget: Final = budget
        #: Places of allocated claims that kept a node from being chosen.
        self.unavailable: Final[set[int]] = set()
        self.reservation: Reservation | None = None
        self._searches: Final[list[Search]] = []
        self._texts: Final[dict[str, int]] = {}

    @property
    def extended(self) -> ResourceClaim | None:
        """The claim for extended resources."""
        return None if self.extended_at is None else self.claims[self.extended_at]

    @property
    def to_allocate(self) -> dict[int, ResourceClaim]:
        """The claims of the spec that have no allocation, by place."""
        return {
            at: claim
            for at, claim in enumerate(self.claims)
            if at != self.extended_at and claim.status.allocation is None
        }

    def number(self, text: str) -> int:
        """The number of a reason, the same in all answers about the pod."""
        return self._texts.setdefault(text, len(self._texts))

    def text(self, number: int) -> tuple[str, ...]:
        """The reason behind a number."""
        return (list(self._texts)[number],)

    def remember(self, search: Search) -> None:
        """Keeps what was found; it counts instead of what was found before for the same rows."""
        self._searches.append(search)

    @property
    def searches(self) -> Sequence[Search]:
        """What was found, the latest last."""
        return self._searches

    def found_on(self, row: int) -> tuple[Search, int] | None:
        """The latest search over a row, and the row's position there."""
        for search in reversed(self._searches):
            position = np.flatnonzero(search.rows == row)
            if len(position):
                return search, int(position[0])
        return None
