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
    both,
    matching_pods,
    moved_pods,
    row_counts,
    with_all_keys,
)
from app.state.columns.arrays import Int64
from app.state.columns.labels import MISSING, Codes, LabelColumn, Mask
from app.state.table import NodeTable
from app.state.view import View

#: The codes for rows without the topology key, and for rows whose domain would exceed maxSkew.
KEY_MISSING: Final = np.int8(Code.UnschedulableAndUnresolvable)
SKEWED: Final = np.int8(Code.Unschedulable)

#: The global minimum if there is no domain.
_NO_DOMAIN: Final = 2**31 - 1


class HardCount(msgspec.Struct, frozen=True):
    """The domains of one hard constraint and their counts.

    ``totals``: int64 by code; ``domains``: bool by code, whether the code is a domain. ``included``: bool by row of
    the table, whether the row is counted; None if every row with the key is. ``allowed``: the allowed excess of the
    row's domain over the global minimum, without the incoming pod.
    """

    constraint: Constraint
    namespace: str
    totals: Int64
    domains: Mask
    included: Mask | None
    allowed: int

    def judge(self, view: View) -> npt.NDArray[np.int8]:
        """int8[n]: 0, KEY_MISSING or SKEWED."""
        codes = view.label(self.constraint.topology_key)[1]
        delta = view.count_delta(moved_pods(self.namespace, self.constraint.selector))
        if delta is None:
            by_code = np.where(self._skewed(), SKEWED, np.int8(0))
            by_code[MISSING] = KEY_MISSING
            return by_row(by_code, codes)
        included = codes != MISSING if self.included is None else self.included[view.rows]
        own, minimum = self._in_worlds(self._among(), codes, delta, included)
        skewed = own - minimum > self.allowed
        return np.where(codes == MISSING, KEY_MISSING, np.where(skewed, SKEWED, np.int8(0)))

    def accepts_all(self, table: NodeTable) -> bool:
        """Whether no node is rejected, as far as that can be said without a pass over all rows."""
        column = table.labels.column(self.constraint.topology_key)
        if column.labelled != table.node_count or len(column.values) != len(self.totals):
            return False
        return not (self._skewed() & column.present).any()

    def _among(self) -> Int64:
        """int64 by code: the totals of domains, _NO_DOMAIN for other codes."""
        return np.where(self.domains, self.totals, _NO_DOMAIN)

    def _skewed(self) -> Mask:
        """bool by code: whether one more pod would exceed maxSkew."""
        least = 0 if self._too_few else int(self._among().min())
        skewed: Mask = self.totals - least > self.allowed
        return skewed

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
    several = len({constraint.topology_key for constraint in constraints}) > 1
    all_keys = with_all_keys(view, constraints) if several else None
    return tuple(_count(pod, c, both(all_keys, included_rows.by(c)), view) for c in constraints)


def _count(pod: Pod, constraint: Constraint, included: Mask | None, view: View) -> HardCount:
    """``included``: None if all rows with the key are counted."""
    column, codes = view.label(constraint.topology_key)
    counter = matching_pods(view.table.families, pod.namespace, constraint)
    if included is None:
        domains = column.present
        sums = np.zeros(len(domains), np.int64) if counter is None else counter.by_domain(column)
    else:
        codes = codes * included
        domains, sums = _present(column, codes), totals(column, codes, row_counts(view, counter))
    return HardCount(
        constraint=constraint,
        namespace=pod.namespace,
        totals=sums,
        domains=domains,
        included=included,
        allowed=constraint.max_skew - int(constraint.selector.matches(pod.labels)),
    )


def _present(column: LabelColumn, codes: Codes) -> Mask:
    """bool by code: whether the value occurs; False for MISSING."""
    present: Mask = np.bincount(codes, minlength=len(column.values)) > 0
    present[MISSING] = False
    return present
