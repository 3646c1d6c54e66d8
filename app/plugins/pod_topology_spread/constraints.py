"""The spread constraints of a pod: its own, or the default ones with a derived selector."""

from typing import Final

import msgspec

from app.model.objects import TopologySpreadConstraint
from app.model.pod import Pod, PodTemplate
from app.model.selectors import Labels, Selector, compile_selector
from app.plugins.args import DefaultConstraint, PodTopologySpreadArgs
from app.plugins.pod_topology_spread.default_selector import DefaultSelectors
from app.state.cluster import Cluster
from app.state.weak_cache import WeakCache

#: Values of whenUnsatisfiable, for constraints that filter and constraints that score.
HARD: Final = "DoNotSchedule"
SOFT: Final = "ScheduleAnyway"

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"

#: The default constraints for defaultingType System.
SYSTEM_DEFAULTS: Final = (
    DefaultConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable=SOFT),
    DefaultConstraint(max_skew=5, topology_key=ZONE, when_unsatisfiable=SOFT),
)


class Constraint(msgspec.Struct, frozen=True):
    """A constraint with defaults and a compiled selector."""

    topology_key: str
    max_skew: int
    selector: Selector
    min_domains: int = 1
    #: Whether nodes are not counted that the pod's node affinity or its missing tolerations exclude.
    honor_affinity: bool = True
    honor_taints: bool = False
    #: Whether an empty selector counts every pod, as from Kubernetes 1.38 on, or none.
    empty_counts: bool = False


Constraints = tuple[Constraint, ...]


def compile_constraint(
    constraint: TopologySpreadConstraint, pod_labels: Labels, *, empty_counts: bool = False
) -> Constraint:
    """Compiles a constraint for a pod with these labels. Raises SelectorError."""
    keys = constraint.match_label_keys or ()
    selector = compile_selector(constraint.label_selector)
    narrowed = selector.with_equal({k: pod_labels[k] for k in keys if k in pod_labels})
    return _complete(constraint, narrowed, empty_counts=empty_counts)


def _complete(
    constraint: TopologySpreadConstraint | DefaultConstraint,
    selector: Selector,
    *,
    empty_counts: bool = False,
) -> Constraint:
    return Constraint(
        topology_key=constraint.topology_key,
        max_skew=constraint.max_skew,
        selector=selector,
        min_domains=1 if constraint.min_domains is None else constraint.min_domains,
        honor_affinity=constraint.node_affinity_policy in {None, "Honor"},
        honor_taints=constraint.node_taints_policy == "Honor",
        empty_counts=empty_counts,
    )


class ConstraintSource:
    """The constraints of pods for one set of plugin arguments."""

    def __init__(
        self, args: PodTopologySpreadArgs, cluster: Cluster, *, empty_counts: bool = False
    ) -> None:
        self._empty_counts: Final = empty_counts
        #: Whether the system's defaults apply; only for these, nodes without a topology key are scored.
        self.system_defaulted: Final = args.defaulting_type == "System"
        defaults = SYSTEM_DEFAULTS if self.system_defaulted else args.default_constraints
        self._defaults: Final = {
            action: [c for c in defaults if c.when_unsatisfiable == action]
            for action in (HARD, SOFT)
        }
        self._selectors = DefaultSelectors(cluster)
        #: By action and the values of matchLabelKeys.
        self._own: Final[
            WeakCache[PodTemplate, tuple[str, tuple[str | None, ...]], Constraints]
        ] = WeakCache()

    @property
    def defaults_filter(self) -> bool:
        """Whether default constraints can reject pods."""
        return bool(self._defaults[HARD])

    def of(self, pod: Pod, action: str) -> Constraints:
        """The pod's constraints with whenUnsatisfiable ``action``. Raises SelectorError for an invalid one."""
        if pod.template.spread_constraints:
            return self._own_of(pod, action)
        if not self._defaults[action]:
            return ()
        selector = self._selectors.of(pod)
        if selector.everything:
            return ()
        return tuple([_complete(c, selector) for c in self._defaults[action]])

    def needs_all_keys(self, pod: Pod) -> bool:
        """Whether nodes without a topology key are not scored."""
        return bool(pod.template.spread_constraints) or not self.system_defaulted

    def _own_of(self, pod: Pod, action: str) -> Constraints:
        constraints = [c for c in pod.template.spread_constraints if c.when_unsatisfiable == action]
        keys = {key: None for c in constraints for key in c.match_label_keys or ()}
        key = (action, tuple([pod.labels.get(key) for key in keys]))
        compiled = self._own.get(pod.template, key)
        if compiled is None:
            compiled = tuple(
                compile_constraint(c, pod.labels, empty_counts=self._empty_counts)
                for c in constraints
            )
            self._own.put(pod.template, key, compiled)
        return compiled
