"""What the scheduler gives to plugins: the state of the cluster (Handle), and requests to the API server (Effects)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

import msgspec
import numpy as np

from app.model.clock import Clock
from app.model.devices import ResourceClaim
from app.model.features import RECORDED, Features
from app.model.pod import Pod
from app.model.pod_groups import AnyPodGroup
from app.model.status import Status
from app.model.storage import PersistentVolume, PersistentVolumeClaim
from app.state.cluster import Cluster
from app.state.nominator import Nominator
from app.state.table import NodeTable
from app.wire.extender_v1 import Victims


class EvictionProgress(Protocol):
    """Is notified of the progress of an eviction; ``end`` follows every ``begin``."""

    def begin(self, uid: str) -> None:
        """The eviction of this preemptor's victims begins."""

    def last(self, uid: str, victim: Pod) -> None:
        """All victims except this one are evicted; this one is next."""

    def end(self, uid: str, *, evicted: bool) -> bool:
        """The eviction has ended, successfully or not. Returns whether the preemptor can be tried again at once."""

    def waits_for(self, uid: str, victim: Pod) -> bool:
        """Whether the preemptor is held since the watch does not show yet that its last victim ends."""

    def lapse(self, uid: str) -> None:
        """The preemptor is held no longer, whatever the watch shows."""


class Eviction(msgspec.Struct, frozen=True):
    """The pods to evict for a preemptor; ``victims`` most important first."""

    #: For a group, the first of its pods.
    preemptor: Pod
    #: The victims' node; CLUSTER for a group, whose victims are on several nodes.
    node_name: str
    victims: tuple[Pod, ...]
    progress: EvictionProgress
    #: How many PodDisruptionBudgets the evictions violate.
    num_pdb_violations: int = 0
    #: The group that preempts, and its other pods.
    group: AnyPodGroup | None = None
    mates: tuple[Pod, ...] = ()
    #: Whether victims on other nodes might have been chosen as well, by chance.
    tied: bool = False

    @property
    def uid(self) -> str:
        """The uid of the preemptor: of the group if there is one."""
        return self.preemptor.uid if self.group is None else self.group.uid

    @property
    def kind(self) -> str:
        """The preemptor's kind, as messages name it."""
        return "pod" if self.group is None else "podgroup"


class ResourceClaimEffects(Protocol):
    """Reads and writes ResourceClaims. All methods raise SchedulingError with the API server's text."""

    async def get(self, namespace: str, name: str) -> ResourceClaim:
        """Reads the claim from the API server."""
        ...

    async def create(self, claim: ResourceClaim) -> ResourceClaim:
        """Creates a claim with this metadata (``generate_name``) and spec; returns the stored claim."""
        ...

    async def patch(
        self, claim: ResourceClaim, changes: Mapping[str, Any], *, status: bool = False
    ) -> ResourceClaim:
        """Applies ``changes``, a JSON merge patch, to this version of a claim or its status; returns the stored
        claim.

        Raises ConflictError, a SchedulingError, if there is a newer version.
        """
        ...

    async def add_finalizer(self, claim: ResourceClaim, finalizer: str) -> ResourceClaim:
        """Adds a finalizer to this version of a claim; returns the stored claim. Raises ConflictError as ``patch``."""
        ...

    async def delete(self, claim: ResourceClaim) -> None:
        """Deletes the claim with this uid."""

    async def tell_pod(self, pod: Pod, status: Mapping[str, Any]) -> None:
        """Writes a pod's status.extendedResourceClaimStatus."""


class Effects(Protocol):
    """Requests that PostFilter, PreBind and Bind plugins can make; the shell implements it."""

    @property
    def resource_claims(self) -> ResourceClaimEffects:
        """Reads and writes ResourceClaims."""
        ...

    def latest(self, pod: Pod) -> Pod:
        """The current version of a pod that has no node; ``pod`` itself if it is bound or gone."""
        ...

    def event(self, pod: Pod, *, reason: str, action: str, note: str) -> None:
        """Records a Normal event about a pod."""

    def asks_about_victims(self, pod: Pod) -> bool:
        """Whether any extender with a preempt verb is interested in this pod."""

    async def agree_on_victims(
        self, pod: Pod, candidates: Mapping[str, Victims]
    ) -> Mapping[str, Victims]:
        """The candidates (victims by node) that the extenders with a preempt verb accept. Raises SchedulingError."""

    def evict(self, eviction: Eviction) -> None:
        """Starts an eviction. The preemptor is retried at once if it fails or if all victims are gone."""

    async def bind(
        self,
        pod: Pod,
        node_name: str,
        *,
        labels: Mapping[str, str] = {},
        annotations: Mapping[str, str] = {},
    ) -> Status:
        """Writes the Binding. A refusal is returned as an Error with the API server's text.

        The API server adds ``annotations`` to the pod, and from Kubernetes 1.35 on ``labels``.
        """

    async def update_volume(self, volume: PersistentVolume, changes: Mapping[str, Any]) -> None:
        """Applies ``changes``, a JSON merge patch (RFC 7386), to a PersistentVolume.

        The patch carries the resource version of ``volume``: if the stored object has another one, nothing is written.
        Returns when the API server has accepted the patch; the watch delivers the new version later. Raises
        SchedulingError with the server's text (conflict, not found, refused, unreachable).
        """

    async def update_claim(self, claim: PersistentVolumeClaim, changes: Mapping[str, Any]) -> None:
        """As ``update_volume``, for a PersistentVolumeClaim."""

    async def sleep(self, seconds: float) -> None:
        """Waits this many seconds."""

    def now(self) -> float:
        """Seconds since the epoch."""


class WaitingPod(Protocol):
    """A pod that Permit plugins delay."""

    @property
    def pod(self) -> Pod:
        """The pod, with the name of the node it is to be bound to."""

    @property
    def pending_plugins(self) -> frozenset[str]:
        """The plugins that have not allowed it yet."""

    def allow(self, plugin: str) -> None:
        """``plugin`` allows the pod; when the last pending plugin does, the wait ends."""

    def reject(self, plugin: str, message: str) -> None:
        """``plugin`` rejects the pod, which ends the wait."""


class WaitingPods(Protocol):
    """The waiting pods of all profiles."""

    def get(self, uid: str) -> WaitingPod | None:
        """The pod if it waits, else None."""

    def __iter__(self) -> Iterator[WaitingPod]:
        """All waiting pods, the one that has waited longest first."""
        ...


class FixedWaitingPods:
    """A fixed set of waiting pods: none where no plugin can wait, some in tests."""

    def __init__(self, pods: Iterable[WaitingPod] = ()) -> None:
        self._pods: Final = {waiting.pod.uid: waiting for waiting in pods}

    def get(self, uid: str) -> WaitingPod | None:
        return self._pods.get(uid)

    def __iter__(self) -> Iterator[WaitingPod]:
        return iter(self._pods.values())


class _NoTime:
    def monotonic(self) -> float:
        return 0.0

    def wall(self) -> float:
        return 0.0

    def steady(self) -> float:
        return 0.0


class Handle:
    """The second argument of a plugin's constructor: the scheduler's view of the cluster."""

    __slots__ = (
        "clock",
        "cluster",
        "features",
        "nominator",
        "profile_name",
        "rng",
        "table",
        "waiting",
    )

    def __init__(
        self,
        table: NodeTable,
        cluster: Cluster,
        profile_name: str,
        *,
        nominator: Nominator | None = None,
        rng: np.random.Generator | None = None,
        waiting: WaitingPods | None = None,
        clock: Clock | None = None,
        features: Features = RECORDED,
    ) -> None:
        #: The nodes and the pods on them, assumed ones included.
        self.table: Final = table
        #: All other kinds: volumes, namespaces, services, disruption budgets.
        self.cluster: Final = cluster
        self.profile_name: Final = profile_name
        #: The rules of the version of Kubernetes that is followed.
        self.features: Final = features
        #: The nominated pods by node.
        self.nominator: Final = nominator or Nominator()
        #: The random number generator, for ties and offsets.
        self.rng: Final = rng if rng is not None else np.random.default_rng(0)
        #: The pods that wait for Permit plugins.
        self.waiting: Final[WaitingPods] = FixedWaitingPods() if waiting is None else waiting
        #: The time; the default clock always returns 0.
        self.clock: Final[Clock] = _NoTime() if clock is None else clock
