"""Score: the earlier of a request's alternatives a node can serve, the better (KEP-4816)."""

from collections.abc import Iterable
from typing import Final

import numpy as np

from app.framework.interface import default_normalize
from app.model.devices import MAX_ALTERNATIVES, AllocationResult, ResourceClaim
from app.plugins.dynamic_resources.attempt import PodDevices
from app.state.columns.resources import Int64
from app.state.view import View

_SEPARATOR: Final = "/"


def scores(devices: PodDevices, view: View) -> Int64 | None:
    """int64[n], 0 to 100; None where no claim has alternatives, or nothing is to be allocated."""
    if not devices.searches or not any(map(_has_alternatives, devices.claims)):
        return None
    fixed = sum(
        _points(claim, claim.status.allocation)
        for claim in devices.claims
        if claim.status.allocation is not None
    )
    by_row = np.zeros(view.table.size, np.int64)
    for search in devices.searches:
        found = search.found
        points = np.zeros(int(found.kinds.max(initial=0)) + 1, np.int64)
        for kind in np.unique(found.kinds[found.codes == 0]).tolist():
            results = zip(search.wanted.values(), found.sample(kind), strict=True)
            points[kind] = fixed + sum(_points(claim, result) for claim, result in results)
        by_row[search.rows] = points[found.kinds]
    return default_normalize(by_row[view.rows])


def _has_alternatives(claim: ResourceClaim) -> bool:
    return any(request.first_available for request in claim.spec.devices.requests or ())


def _points(claim: ResourceClaim, allocation: AllocationResult) -> int:
    """MAX_ALTERNATIVES for each request that got its first alternative, one less for the second, and so on."""
    taken = _alternatives(result.request for result in allocation.devices.results or ())
    return sum(
        MAX_ALTERNATIVES - place
        for request in claim.spec.devices.requests or ()
        for place, alternative in enumerate(request.first_available or ())
        if f"{request.name}{_SEPARATOR}{alternative.name}" in taken
    )


def _alternatives(names: Iterable[str]) -> set[str]:
    """Those of requests' names that name an alternative."""
    return {name for name in names if name.count(_SEPARATOR) == 1}
