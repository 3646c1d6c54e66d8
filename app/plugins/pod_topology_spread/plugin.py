"""The PodTopologySpread plugin."""

import functools
from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

import numpy as np

from app.framework.classes import Trait, count_trait, label_trait
from app.framework.handle import Handle
from app.framework.interface import CycleState, Need, QueueingHint, Verdicts, on_event
from app.framework.optional import AcceptsAll, ByTraits, SteadySkip
from app.model.cluster_event import Action, Resource
from app.model.features import Rule
from app.model.objects import Node
from app.model.pod import Pod
from app.model.selectors import Labels, SelectorError
from app.model.status import SKIP, SUCCESS, Code, Status
from app.plugins.args import PodTopologySpreadArgs
from app.plugins.pod_topology_spread.constraints import (
    HARD,
    HOSTNAME,
    SOFT,
    Constraints,
    ConstraintSource,
)
from app.plugins.pod_topology_spread.counting import Inclusion, matching_pods, row_counts
from app.plugins.pod_topology_spread.hard import (
    KEY_MISSING,
    SKEWED,
    HardCount,
    count_hard,
)
from app.plugins.pod_topology_spread.soft import SoftCounts, count_soft
from app.state.columns.arrays import Int64
from app.state.queue.hints import EventRegistration
from app.state.view import View

ERR_REASON_CONSTRAINTS_NOT_MATCH: Final = "node(s) didn't match pod topology spread constraints"
ERR_REASON_NODE_LABEL_NOT_MATCH: Final = (
    f"{ERR_REASON_CONSTRAINTS_NOT_MATCH} (missing required label)"
)

_TEXTS: Final = {
    int(SKEWED): (ERR_REASON_CONSTRAINTS_NOT_MATCH,),
    int(KEY_MISSING): (ERR_REASON_NODE_LABEL_NOT_MATCH,),
}
_HARD_STATE: Final = "PodTopologySpread/hard"
_SOFT_STATE: Final = "PodTopologySpread/soft"

_POD_ACTIONS: Final = (
    Action.Add | Action.UpdatePodLabel | Action.UpdatePodToleration | Action.Delete
)
_NODE_ACTIONS: Final = Action.Add | Action.Delete | Action.UpdateNodeLabel | Action.UpdateNodeTaint


class PodTopologySpread(SteadySkip, AcceptsAll, ByTraits):
    """Filters by hard constraints (DoNotSchedule) and scores by soft ones (ScheduleAnyway).

    The counts are made in PreFilter and PreScore and are valid until the table changes.
    """

    NAME: ClassVar[str] = "PodTopologySpread"
    NEEDS: ClassVar[Mapping[str, Need]] = {
        "filter": Need(
            "preFilter", 'reading "PreFilterPodTopologySpread" from cycleState: not found'
        ),
        "score": Need(
            "preScore", 'error reading "PreScorePodTopologySpread" from cycleState: not found'
        ),
    }

    def __init__(self, args: PodTopologySpreadArgs | None, handle: Handle) -> None:
        self._table = handle.table
        self._source = ConstraintSource(
            args or PodTopologySpreadArgs(),
            handle.cluster,
            empty_counts=Rule.EmptySpreadSelectors in handle.features.rules,
        )
        self._inclusion = Inclusion()

    # ------------------------------------------------------------ filter

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        """Counts the domains of the hard constraints; Skip if there are none."""
        try:
            constraints = self._source.of(pod, HARD)
        except SelectorError as error:
            return Status(
                Code.Error, (f"get constraints from pod: {_obtaining(pod, 'hard')}: {error}",)
            )
        if not constraints:
            return SKIP
        view = View.everything(self._table)
        rows = self._inclusion.of(pod, view)
        state.write(_HARD_STATE, count_hard(pod, constraints, rows, view))
        return SUCCESS

    def filter(self, state: CycleState, _pod: Pod, view: View) -> Verdicts | None:
        """Rejects rows without a topology key, and rows whose domain would exceed maxSkew."""
        counts: tuple[HardCount, ...] = state.read(_HARD_STATE)
        codes = counts[0].judge(view)
        for count in counts[1:]:
            codes = np.where(codes, codes, count.judge(view))
        if not np.count_nonzero(codes):
            return None
        return Verdicts(codes, codes.astype(np.int32), _TEXTS.__getitem__)

    def accepts_all(self, state: CycleState, _pod: Pod) -> bool:
        """Whether Filter rejects no node, as far as that can be said without a pass over all rows."""
        counts: tuple[HardCount, ...] = state.read(_HARD_STATE)
        return all(count.accepts_all(self._table) for count in counts)

    # ------------------------------------------------------------ score

    def pre_score(self, state: CycleState, pod: Pod, view: View) -> Status:
        """Counts the domains of the soft constraints; Skip if there are none."""
        try:
            constraints = self._source.of(pod, SOFT) if self._table.node_count else ()
        except SelectorError as error:
            return Status(
                Code.Error, (f"calculating preScoreState: {_obtaining(pod, 'soft')}: {error}",)
            )
        if not constraints:
            return SKIP
        everything = View.everything(self._table)
        counts = count_soft(
            pod,
            constraints,
            self._inclusion.of(pod, everything),
            view,
            everything,
            needs_all_keys=self._source.needs_all_keys(pod),
        )
        state.write(_SOFT_STATE, counts)
        return SUCCESS

    def score(self, state: CycleState, _pod: Pod, view: View) -> Int64:
        """int64[n]: the weighted numbers of matching pods in the row's domains; 0 for rows that are not scored."""
        counts: SoftCounts = state.read(_SOFT_STATE)
        return counts.score(view)

    def normalize(self, state: CycleState, _pod: Pod, scores: Int64, view: View) -> Int64:
        """int64[n]: 0 to 100, highest for the fewest pods; 0 for rows that are not scored."""
        counts: SoftCounts = state.read(_SOFT_STATE)
        return counts.normalize(scores, view)

    # ------------------------------------------------------------ classes of nodes

    def traits(self, pod: Pod) -> list[Trait] | None:
        """What Filter and Score depend on; None if nodes are too different."""
        try:
            hard, soft = self._source.of(pod, HARD), self._source.of(pod, SOFT)
        except SelectorError:
            return None
        found: list[Trait] = []
        for constraint in (*hard, *soft):
            key = constraint.topology_key
            column = self._table.labels.column(key)
            counter = matching_pods(self._table.families, pod.namespace, constraint)
            counted = functools.partial(row_counts, counter=counter)
            name = (self.NAME, pod.namespace, constraint.selector)
            if key == HOSTNAME and constraint in soft:
                found.append(count_trait(key, name, counted))
                continue
            # Counts on a row do not tell whether the row is counted at all.
            restricted = constraint.honor_taints or _selects_nodes(pod)
            some = label_trait(column, {} if restricted else {name: counted})
            if not some:
                return None
            found += some
        return found

    # ------------------------------------------------------------ events

    def events_to_register(self) -> Iterable[EventRegistration]:
        """Pods and nodes that may change the counts or the domains."""
        return (
            on_event(Resource.Pod, _POD_ACTIONS, self._after_pod_change),
            on_event(
                Resource.Node,
                _NODE_ACTIONS,
                self._after_node_change,
                template_only=not self._source.defaults_filter,
            ),
        )

    def _after_pod_change(self, pod: Pod, old: Pod | None, new: Pod | None) -> bool:
        """Queue if a pod that the constraints select was added, deleted or relabelled."""
        if not all(_involved(other, pod) for other in (old, new) if other is not None):
            return QueueingHint.SKIP
        constraints = self._hard_constraints(pod)
        if constraints is None:
            return QueueingHint.QUEUE
        if old is not None and new is not None:
            return _after_update(pod, constraints, old, new)
        changed = new if old is None else old
        return changed is not None and any(c.selector.matches(changed.labels) for c in constraints)

    def _after_node_change(self, pod: Pod, old: Node | None, new: Node | None) -> bool:
        """Queue if a node with all topology keys was added, deleted, or changed its domain or taints."""
        constraints = self._hard_constraints(pod)
        if constraints is None:
            return QueueingHint.QUEUE
        had = old is not None and _has_all_keys(old.labels, constraints)
        has = new is not None and _has_all_keys(new.labels, constraints)
        if old is None or new is None:
            return had or has
        return had != has or (has and _domain_or_taints_changed(constraints, old, new))

    def _hard_constraints(self, pod: Pod) -> Constraints | None:
        """The pod's hard constraints; None if they cannot be read."""
        try:
            return self._source.of(pod, HARD)
        except SelectorError:
            return None


def _selects_nodes(pod: Pod) -> bool:
    affinity = pod.spec.affinity
    return bool(pod.spec.node_selector or (affinity and affinity.node_affinity))


def _obtaining(pod: Pod, sort: str) -> str:
    own = bool(pod.template.spread_constraints)
    what = f"{sort} topology spread constraints"
    return f"obtaining pod's {what}" if own else f"setting default {what}"


def _involved(changed: Pod, pod: Pod) -> bool:
    """Whether a change of ``changed`` can concern ``pod``: the same pod, or one on a node and in the same namespace."""
    if changed.uid == pod.uid:
        return True
    placed = changed.node_name or changed.nominated_node_name
    return bool(placed) and changed.namespace == pod.namespace


def _after_update(pod: Pod, constraints: Constraints, old: Pod, new: Pod) -> bool:
    tolerates_other = (old.spec.tolerations or ()) != (new.spec.tolerations or ())
    if pod.uid == new.uid and tolerates_other and any(c.honor_taints for c in constraints):
        return QueueingHint.QUEUE
    return any(
        c.selector.matches(old.labels) != c.selector.matches(new.labels) for c in constraints
    )


def _has_all_keys(labels: Labels, constraints: Constraints) -> bool:
    return all(c.topology_key in labels for c in constraints)


def _domain_or_taints_changed(constraints: Constraints, old: Node, new: Node) -> bool:
    return (old.spec.taints or ()) != (new.spec.taints or ()) or any(
        old.labels.get(c.topology_key) != new.labels.get(c.topology_key) for c in constraints
    )
