"""Hard constraints: no domain may exceed the one with the fewest pods by more than maxSkew.

See docs/spec/plugins/pod-topology-spread.md#filter.
"""

from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from app.model.pod import Pod
from app.model.status import Code
from app.plugins.helpers.domains import by_row, totals
from app.plugins.pod_topology_spread.constraints import Constraint, Constraints
from app.plugins.pod_topology_spread.counting import (
    IncludedRows,
    matching_pods,
    moved_pods,
    row_counts,
    with_all_keys,
)
from app.state.columns.labels import MISSING, Codes, LabelColumn, Mask
from app.state.columns.resources import Int64
from app.state.view import View

#: The codes for rows without the topology key, and for rows whose domain would exceed maxSkew.
KEY_MISSING: Final = np.int8(Code.UnschedulableAndUnresolvable)
SKEWED: Final = np.int8(Code.Unschedulable)

#: The global minimum if there is no domain.
_NO_DOMAIN: Final = 2**31 - 1


class HardCount(msgspec.Struct, frozen=True):
    """The domains of one hard constraint and their counts.

    ``totals``: int64 by code; ``domains``: bool by code, whether the code is a domain. ``included``: bool by row of
    the table, whether the row is counted. ``allowed``: the allowed excess of the row's domain over the global
    minimum, without the incoming pod.
    """

    constraint: Constraint
    namespace: str
    totals: Int64
    domains: Mask
    included: Mask
    allowed: int

    def judge(self, view: View) -> npt.NDArray[np.int8]:
        """int8[n]: 0, KEY_MISSING or SKEWED."""
        codes = view.label(self.constraint.topology_key)[1]
        delta = view.count_delta(moved_pods(self.namespace, self.constraint.selector))
        among = np.where(self.domains, self.totals, _NO_DOMAIN)
        if delta is None:
            least = 0 if self._too_few else int(among.min())
            skewed = self.totals - least > self.allowed
            by_code = np.where(skewed, SKEWED, np.int8(0))
            by_code[MISSING] = KEY_MISSING
            return by_row(by_code, codes)
        own, minimum = self._in_worlds(among, codes, delta, self.included[view.rows])
        skewed = own - minimum > self.allowed
        return np.where(codes == MISSING, KEY_MISSING, np.where(skewed, SKEWED, np.int8(0)))

    @property
    def _too_few(self) -> bool:
        """Whether there are fewer domains than minDomains; the global minimum is then 0."""
        return bool(np.count_nonzero(self.domains) < self.constraint.min_domains)

    def _in_worlds(
        self, among: Int64, codes: Codes, delta: Int64, included: Mask
    ) -> tuple[Int64, Int64 | int]:
        """(count of the row's domain, global minimum) per row of a dry run, in which each row changes alone.

        The minimum includes the row's count even if the row is in no domain: the count is then 0, which never exceeds
        the minimum.
        """
        own = by_row(self.totals, codes) + delta * included
        if self._too_few:
            return own, 0
        emptiest = int(among.argmin())
        lowest = int(among[emptiest])
        among[emptiest] = _NO_DOMAIN
        elsewhere = np.where(codes == emptiest, among.min(), lowest)
        return own, np.minimum(own, elsewhere)


def count_hard(
    pod: Pod, constraints: Constraints, included_rows: IncludedRows, view: View
) -> tuple[HardCount, ...]:
    """Counts the domains of each constraint; ``view`` has all rows of the table."""
    all_keys = with_all_keys(view, constraints)
    return tuple(_count(pod, c, all_keys, included_rows.by(c), view) for c in constraints)


def _count(
    pod: Pod, constraint: Constraint, all_keys: Mask, allowed_rows: Mask | None, view: View
) -> HardCount:
    column, codes = view.label(constraint.topology_key)
    included = all_keys if allowed_rows is None else all_keys & allowed_rows
    codes = codes * included
    counter = matching_pods(view.table.families, pod.namespace, constraint.selector)
    return HardCount(
        constraint=constraint,
        namespace=pod.namespace,
        totals=totals(column, codes, row_counts(view, counter)),
        domains=_present(column, codes),
        included=included,
        allowed=constraint.max_skew - int(constraint.selector.matches(pod.labels)),
    )


def _present(column: LabelColumn, codes: Codes) -> Mask:
    """bool by code: whether the value occurs; False for MISSING."""
    present: Mask = np.bincount(codes, minlength=len(column.values)) > 0
    present[MISSING] = False
    return present
