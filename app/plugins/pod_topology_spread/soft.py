"""Soft constraints: nodes in domains with fewer matching pods score higher.

See docs/spec/plugins/pod-topology-spread.md#score.
"""

import math

import msgspec
import numpy as np

from app.framework.interface import MAX_NODE_SCORE
from app.model.pod import Pod
from app.plugins.helpers.domains import by_row
from app.plugins.pod_topology_spread.constraints import (
    HOSTNAME,
    Constraint,
    Constraints,
)
from app.plugins.pod_topology_spread.counting import (
    IncludedRows,
    both,
    matching_pods,
    row_counts,
    with_all_keys,
)
from app.state.columns.arrays import Float64, Int64
from app.state.columns.families import PodCounter
from app.state.columns.labels import MISSING, NO_CODE, Codes, LabelColumn, Mask
from app.state.view import View


class SoftCount(msgspec.Struct, frozen=True):
    """The contribution of one soft constraint to the scores.

    ``weight`` depends on the number of domains. ``by_code``: float64, the contribution by domain, 0 for MISSING; None
    for the hostname key, for which each row counts its own pods.
    """

    constraint: Constraint
    weight: float
    counter: PodCounter | None
    by_code: Float64 | None

    def credit(self, view: View) -> Float64:
        """float64[n]; 0 where the key is missing."""
        codes = view.label(self.constraint.topology_key)[1]
        if self.by_code is not None:
            return by_row(self.by_code, codes)
        credit = _credit(row_counts(view, self.counter), self.weight, self.constraint)
        credit *= codes != MISSING
        return credit


def _credit(counts: Int64, weight: float, constraint: Constraint) -> Float64:
    credit: Float64 = counts.astype(np.float64) * weight + float(constraint.max_skew - 1)
    return credit


class SoftCounts(msgspec.Struct, frozen=True):
    """All soft constraints of a pod. ``needs_all_keys``: rows without a topology key are not scored.

    ``all_keys``: bool by row of ``feasible``, whether the row has all keys.
    """

    counts: tuple[SoftCount, ...]
    needs_all_keys: bool
    feasible: View
    all_keys: Mask

    def ignored(self, view: View) -> Mask | None:
        """bool[n]: whether the row is not scored; None if all are scored."""
        if not self.needs_all_keys:
            return None
        all_keys = self.all_keys
        if view is not self.feasible:
            all_keys = with_all_keys(view, tuple(c.constraint for c in self.counts))
        return None if all_keys.all() else ~all_keys

    def score(self, view: View) -> Int64:
        """int64[n]: the raw scores; lower is better."""
        total = sum((c.credit(view) for c in self.counts), start=np.zeros(view.n))
        scores = round_half_away(total)
        ignored = self.ignored(view)
        if ignored is not None:
            scores[ignored] = 0
        return scores

    def normalize(self, scores: Int64, view: View) -> Int64:
        """int64[n]: the reversed scores, scaled to 0 to 100."""
        ignored = self.ignored(view)
        if ignored is None:
            return _turn_round(scores)
        out = np.zeros_like(scores)
        out[~ignored] = _turn_round(scores[~ignored])
        return out


def _turn_round(scores: Int64) -> Int64:
    highest = int(scores.max(initial=0))
    if not highest:
        return np.full_like(scores, MAX_NODE_SCORE)
    turned: Int64 = MAX_NODE_SCORE * (highest + int(scores.min()) - scores) // highest
    return turned


def round_half_away(values: Float64) -> Int64:
    """Go's math.Round for values that are not negative, exact where ``floor(x + 0.5)`` is not."""
    whole = np.floor(values)
    return (whole + (values - whole >= 0.5)).astype(np.int64)


def count_soft(
    pod: Pod,
    constraints: Constraints,
    included_rows: IncludedRows,
    feasible: View,
    everything: View,
    *,
    needs_all_keys: bool,
) -> SoftCounts:
    """Counts the domains of each constraint over all rows; the weights depend on the domains of the feasible rows."""
    table = everything.table
    keys = {constraint.topology_key for constraint in constraints}
    everywhere = all(table.labels.column(key).labelled == table.node_count for key in keys)
    scored, exist = np.ones(feasible.n, bool), table.exists[: everything.n]
    if needs_all_keys:
        scored = with_all_keys(feasible, constraints)
    if needs_all_keys and not everywhere:
        exist = with_all_keys(everything, constraints)
    counts = tuple(
        _count(pod, c, feasible, scored, everything, both(exist, allowed))
        if allowed is not None or not everywhere
        else _count(pod, c, feasible, scored, everything, None)
        for c, allowed in ((c, included_rows.by(c)) for c in constraints)
    )
    return SoftCounts(counts, needs_all_keys, feasible, scored)


def _count(
    pod: Pod,
    constraint: Constraint,
    feasible: View,
    scored: Mask,
    everything: View,
    counted: Mask | None,
) -> SoftCount:
    """``counted``: None if all rows with the key are counted."""
    counter = matching_pods(everything.table.families, pod.namespace, constraint)
    if constraint.topology_key == HOSTNAME:
        weight = _weight(feasible.number_of(scored))
        return SoftCount(constraint, weight, counter, None)
    column, codes = everything.label(constraint.topology_key)
    if counted is None:
        sums = np.zeros(len(column.values)) if counter is None else counter.by_domain(column)
    else:
        codes = _missing_as_empty(column, codes)
        sums = np.bincount(codes, row_counts(everything, counter) * counted, len(column.values))
    candidates = codes[feasible.rows][scored]
    weight = _weight(int(np.count_nonzero(np.bincount(candidates))))
    by_code = _credit(sums.astype(np.int64), weight, constraint)
    by_code[MISSING] = 0.0
    return SoftCount(constraint, weight, counter, by_code)


def _missing_as_empty(column: LabelColumn, codes: Codes) -> Codes:
    """A node without the label is in one domain with nodes that have it empty, but gets no score for it."""
    empty = column.code("")
    return codes if empty == NO_CODE else np.where(codes == MISSING, np.int32(empty), codes)


def _weight(size: int) -> float:
    return math.log(size + 2)
