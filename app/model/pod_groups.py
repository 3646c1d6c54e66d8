"""Pod groups: pods that are scheduled together.

Both APIs have the same accessors; the rest of the scheduler reads only these. ``PodGroup`` is the kind of
scheduling.k8s.io, ``LabelledPodGroup`` that of scheduling.x-k8s.io, which pods name by a label.
"""

from typing import Annotated, ClassVar, Final, NamedTuple

import msgspec

from app.model import pod_groups_v1alpha2
from app.model.limits import Few
from app.model.objects import Named, ObjectStruct, PodResourceClaim, PodResourceClaimStatus
from app.model.pod import Pod

#: The label that names a pod's group of scheduling.x-k8s.io.
GROUP_LABEL: Final = "scheduling.x-k8s.io/pod-group"
#: The feature gate with which pods share the claims of their group (KEP-5729).
CLAIMS: Final = "DRAWorkloadResourceClaims"
#: The feature gate with which a group says whether its pods preempt.
POLICIES: Final = "PodGroupPreemptionPolicy"

_Count = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


class Condition(ObjectStruct, frozen=True):
    """metav1.Condition."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int = 0


class BasicPolicy(ObjectStruct, frozen=True):
    """The pods of the group do not wait for each other."""


class GangPolicy(ObjectStruct, frozen=True):
    """At least ``min_count`` pods are scheduled, or none."""

    min_count: _Count


class GroupPolicy(ObjectStruct, frozen=True):
    """scheduling.k8s.io PodGroupSchedulingPolicy: one of the two."""

    basic: BasicPolicy | None = None
    gang: GangPolicy | None = None


class AllPods(ObjectStruct, frozen=True):
    """All pods of the group are evicted, or none."""


class DisruptionMode(ObjectStruct, frozen=True):
    """The disruption mode in v1beta1 and v1alpha3; v1alpha2 has a text."""

    all: AllPods | None = None


class TopologyConstraint(ObjectStruct, frozen=True):
    """All pods of the group go to nodes with the same value of the label ``key``."""

    key: str = ""


class GroupConstraints(ObjectStruct, frozen=True):
    """scheduling.k8s.io PodGroupSchedulingConstraints."""

    topology: Few[TopologyConstraint] | None = None


class PodGroupSpec(ObjectStruct, frozen=True):
    """scheduling.k8s.io PodGroupSpec."""

    scheduling_policy: GroupPolicy = GroupPolicy()
    disruption_mode: str | DisruptionMode | None = None
    priority: int | None = None
    #: Read with the feature gate POLICIES.
    preemption_policy: str | None = None
    #: Read with the feature gate TopologyAwareWorkloadScheduling.
    scheduling_constraints: GroupConstraints | None = None
    #: The claims that the group's pods share, each as pods name it; read with the feature gate CLAIMS.
    resource_claims: Few[PodResourceClaim] | None = None


class PodGroupStatus(ObjectStruct, frozen=True):
    """scheduling.k8s.io PodGroupStatus."""

    conditions: Few[Condition] | None = None
    resource_claim_statuses: Few[PodResourceClaimStatus] | None = None


class PodGroup(Named, frozen=True, kw_only=True):
    """scheduling.k8s.io PodGroup, as v1beta1, v1alpha3 and v1alpha2 have it."""

    #: The group of the API.
    GROUP: ClassVar[str] = "scheduling.k8s.io"

    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()

    @property
    def min_count(self) -> int | None:
        """How many pods are scheduled together at least; None if they do not wait for each other."""
        gang = self.spec.scheduling_policy.gang
        return None if gang is None else gang.min_count

    @property
    def priority(self) -> int | None:
        """The priority of the group as a whole, whatever its pods' is."""
        return self.spec.priority or 0

    @property
    def disrupted_whole(self) -> bool:
        """Whether all of its pods are evicted, or none."""
        mode = self.spec.disruption_mode
        if isinstance(mode, DisruptionMode):
            return mode.all is not None
        return mode is not None and pod_groups_v1alpha2.is_disrupted_whole(mode)

    @property
    def topology_key(self) -> str:
        """The label whose value the nodes of all pods share; empty without a constraint."""
        constraints = self.spec.scheduling_constraints
        return constraints.topology[0].key if constraints and constraints.topology else ""


class LabelledPodGroupSpec(ObjectStruct, frozen=True):
    """scheduling.x-k8s.io/v1alpha1 PodGroupSpec."""

    min_member: int = 0


class LabelledPodGroupStatus(ObjectStruct, frozen=True):
    """scheduling.x-k8s.io/v1alpha1 PodGroupStatus."""

    phase: str = ""


class LabelledPodGroup(Named, frozen=True, kw_only=True):
    """scheduling.x-k8s.io/v1alpha1 PodGroup."""

    GROUP: ClassVar[str] = "scheduling.x-k8s.io"
    #: The kind has no topology constraints.
    topology_key: ClassVar[str] = ""

    spec: LabelledPodGroupSpec = LabelledPodGroupSpec()
    status: LabelledPodGroupStatus = LabelledPodGroupStatus()

    @property
    def min_count(self) -> int | None:
        """spec.minMember; None if it is 1 or less."""
        return self.spec.min_member if self.spec.min_member > 1 else None

    @property
    def priority(self) -> int | None:
        """None: the kind has no priority; that of its least important pod counts."""
        return None

    @property
    def disrupted_whole(self) -> bool:
        """The kind has no disruption mode: each pod is evicted alone."""
        return False


AnyPodGroup = PodGroup | LabelledPodGroup


class GroupKey(NamedTuple):
    """Names a group: its kind, namespace and name."""

    kind: type[AnyPodGroup]
    namespace: str
    name: str


def group_of(pod: Pod) -> GroupKey | None:
    """The group that a pod names: spec.schedulingGroup before GROUP_LABEL; None for a pod without one."""
    if pod.pod_group_name:
        return GroupKey(PodGroup, pod.namespace, pod.pod_group_name)
    labels = pod.labels
    if labels and GROUP_LABEL in labels and (name := labels[GROUP_LABEL]):
        return GroupKey(LabelledPodGroup, pod.namespace, name)
    return None
