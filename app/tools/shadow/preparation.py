"""What is bound or allocated to the claims of a pod before the pod is bound, there and here."""

from collections.abc import Collection, Iterator, Mapping
from typing import ClassVar, Final, NamedTuple, Protocol, runtime_checkable

from app.framework.interface import CycleState
from app.framework.runner import Framework
from app.model.claims import SELECTED_NODE, claim_keys
from app.model.devices import ResourceClaim
from app.model.pod import Pod
from app.model.status import Status
from app.model.storage import PersistentVolume, PersistentVolumeClaim
from app.plugins.volume_binding.matching import capacity_of
from app.state.cluster import Cluster
from app.state.scheduler_state import Change

VOLUME_BINDING: Final = "VolumeBinding"

#: By namespace/name of a claim: the name of the volume, nothing if one is made for it; or the devices,
#: driver/pool/device.
Chosen = Mapping[str, frozenset[str]]


@runtime_checkable
class ReservesClaims(Protocol):
    """A Reserve plugin that tells what it has reserved."""

    NAME: ClassVar[str]

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """See ReservePlugin."""
        ...

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """See ReservePlugin."""
        ...

    def reserved(self, state: CycleState) -> Chosen:
        """What is reserved for each claim."""
        ...


class ClaimDifference(NamedTuple):
    """A claim that gets something else."""

    plugin: str
    claim: str
    there: frozenset[str]
    here: frozenset[str]

    def __str__(self) -> str:
        made = "a volume that is made for it" if self.plugin == VOLUME_BINDING else "nothing"
        here, there = (", ".join(sorted(each)) or made for each in (self.here, self.there))
        return f"claim {self.claim} would have to get {there} instead of {here}"


class Preparation(NamedTuple):
    """What a change chooses for a claim."""

    #: namespace/name.
    claim: str
    chosen: frozenset[str]
    #: The uids of the pods for which devices are allocated; None for a volume.
    users: frozenset[str] | None = None

    def concerns(self, pod: Pod) -> bool:
        """Whether the claim is one of the pod's."""
        if self.users is not None:
            return pod.uid in self.users
        return bool(pod.template.volumes) and self.claim in volume_claims(pod)


def preparation(change: Change) -> Preparation | None:
    """The claim for which a change chooses a volume or devices; None if it chooses nothing."""
    kind, old, new = change
    if old is None or new is None:
        return None
    if kind is PersistentVolume:
        ref = new.spec.claim_ref
        if ref is None or old.spec.claim_ref == ref:
            return None
        return Preparation(f"{ref.namespace}/{ref.name}", frozenset({new.name}))
    if kind is PersistentVolumeClaim:
        if new.annotations.get(SELECTED_NODE, "") == old.annotations.get(SELECTED_NODE, ""):
            return None
        return Preparation(new.key, frozenset())
    if kind is ResourceClaim:
        allocation = new.status.allocation
        if allocation is None or old.status.allocation is not None:
            return None
        users = frozenset(each.uid for each in new.status.reserved_for or ())
        return Preparation(new.key, allocation.device_names, users)
    return None


def volume_claims(pod: Pod) -> frozenset[str]:
    """The claims of the pod's volumes, by namespace/name."""
    return frozenset("/".join(key) for key in claim_keys(pod))


def reserved(framework: Framework, state: CycleState, pod: Pod, node: str) -> dict[str, Chosen]:
    """What Reserve chooses for the claims of a pod on a node after Filter, by plugin. Nothing stays reserved."""
    found: dict[str, Chosen] = {}
    for plugin in framework.plugins.at("reserve"):
        if isinstance(plugin, ReservesClaims):
            try:
                if plugin.reserve(state, pod, node).ok:
                    found[plugin.NAME] = plugin.reserved(state)
            finally:
                plugin.unreserve(state, pod, node)
    return found


def differences(
    there: Chosen, here: Mapping[str, Chosen], cluster: Cluster
) -> Iterator[ClaimDifference]:
    """The claims for which both have chosen, and differently. Volumes of the same size are alike."""
    for claim, names in there.items():
        for plugin, chosen in here.items():
            mine = chosen.get(claim, names)
            if mine != names and not _alike(plugin, names, mine, cluster):
                yield ClaimDifference(plugin, claim, names, mine)


def _alike(plugin: str, one: Collection[str], other: Collection[str], cluster: Cluster) -> bool:
    if plugin != VOLUME_BINDING or not one or not other:
        return False
    sizes = []
    for name in (*one, *other):
        volume = cluster.volumes.get(name)
        sizes.append(None if volume is None else capacity_of(volume))
    return None not in sizes and len(set(sizes)) == 1
