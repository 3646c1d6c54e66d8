"""What a plugin is: the extension points, what they are given and what they answer.

A plugin is a class with a ``NAME``, a constructor ``(args, handle)`` and the methods of the extension points it
extends, by these names (docs/plugins.md is the guide for writers; they import from ``app.framework.api``)::

    pre_enqueue  sort_key  concerns  pre_filter  filter  post_filter  pre_score  score  normalize
    reserve / unreserve  permit  pre_bind_pre_flight / pre_bind / undo_pre_bind  bind  post_bind  events_to_register

A point that a class has no method for is a point it does not extend. Filter and Score answer for a whole view of nodes
at once: columns in, columns out. Plugins that would rather look at one node at a time derive from
``app.framework.per_node``. Nothing here blocks; ``pre_bind`` and ``bind`` are coroutines because they write to the API
server through ``Effects``.

Order, skipping and failure rules are kube-scheduler's (docs/spec/framework.md).
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final, NamedTuple, Protocol, runtime_checkable

import msgspec
import numpy as np
import numpy.typing as npt

from app.framework.diagnosis import Diagnosis
from app.model.cluster_event import ClusterEvent
from app.model.devices import ResourceClaim
from app.model.objects import PersistentVolume, PersistentVolumeClaim
from app.model.pod import Pod, PodTemplate
from app.model.status import Code, Status
from app.state.cluster import Cluster
from app.state.columns.labels import Mask
from app.state.columns.resources import Int64
from app.state.nominator import Nominator
from app.state.table import NodeTable
from app.state.view import View
from app.wire.extender_v1 import Victims

MAX_NODE_SCORE: Final = 100

#: Method that makes a class extend a point, by the point's name in the configuration.
POINT_METHODS: Final[Mapping[str, str]] = {
    "preEnqueue": "pre_enqueue",
    "queueSort": "sort_key",
    "preFilter": "pre_filter",
    "filter": "filter",
    "postFilter": "post_filter",
    "preScore": "pre_score",
    "score": "score",
    "reserve": "reserve",
    "permit": "permit",
    "preBind": "pre_bind",
    "bind": "bind",
    "postBind": "post_bind",
}


class CycleState:
    """What plugins remember between the extension points of one scheduling attempt, by key of their choosing.

    ``parent`` holds what was worked out once for all pods of the template; reading falls through to it.
    """

    __slots__ = ("_data", "_parent")

    def __init__(self, parent: "CycleState | None" = None) -> None:
        self._data: dict[Hashable, Any] = {}
        self._parent: Final = parent

    def write(self, key: Hashable, value: Any) -> None:
        """Remembers a value."""
        self._data[key] = value

    def read(self, key: Hashable) -> Any:
        """The value remembered under a key. Raises KeyError."""
        if key in self._data or self._parent is None:
            return self._data[key]
        return self._parent.read(key)

    def get(self, key: Hashable, default: Any = None) -> Any:
        """The value remembered under a key, or ``default``."""
        if key in self._data or self._parent is None:
            return self._data.get(key, default)
        return self._parent.get(key, default)


def _no_text(_number: int) -> tuple[str, ...]:
    return ()


class Verdicts(msgspec.Struct, frozen=True):
    """What a filter says of each row of a view.

    ``codes``: int8[n], 0 where the pod may go and a rejecting Code elsewhere (Code.Error fails the whole attempt).
    ``reasons``: int32[n], a number for ``text``, meaningless where the code is 0. For one pod a number always means the same.
    """

    codes: npt.NDArray[np.int8]
    reasons: npt.NDArray[np.int32]
    text: Callable[[int], tuple[str, ...]] = _no_text


def reject(failed: Mask, code: Code, *reason: str) -> Verdicts | None:
    """Verdicts that reject the rows where ``failed``, all for one reason; None if there are none."""
    if not failed.any():
        return None
    codes = np.where(failed, np.int8(code), np.int8(0))
    return Verdicts(codes, np.zeros(len(failed), np.int32), lambda _number: reason)


def reject_first(*cases: tuple[Mask, Code, str]) -> Verdicts | None:
    """Verdicts from several tests, the first that fails a row decides; None if nothing fails."""
    codes: npt.NDArray[np.int8] | None = None
    texts = tuple((text,) for _, _, text in cases)
    reasons: npt.NDArray[np.int32] | None = None
    for number, (failed, code, _) in enumerate(cases):
        if not failed.any():
            continue
        if codes is None or reasons is None:
            codes, reasons = np.zeros(len(failed), np.int8), np.zeros(len(failed), np.int32)
        fresh = failed & (codes == 0)
        codes[fresh] = code
        reasons[fresh] = number
    if codes is None or reasons is None:
        return None
    return Verdicts(codes, reasons, texts.__getitem__)


class PreFilterResult(msgspec.Struct, frozen=True):
    """What PreFilter found: a status, and the only node names that can be right (None: any)."""

    status: Status
    node_names: frozenset[str] | None = None


class QueueingHint:
    """What a hint says: wake the pod, or leave it."""

    QUEUE: ClassVar[bool] = True
    SKIP: ClassVar[bool] = False


#: ``hint(pod, old, new) -> bool``: whether this event may make ``pod`` schedulable. ``old`` is None for additions, ``new``
#: for deletions.
HintFunction = Callable[[Pod, Any, Any], bool]


#: ``narrow(template, old, new)``: the uids of the only pods of a template that a hint can say yes to; None for any.
NarrowFunction = Callable[[PodTemplate, Any, Any], Collection[str] | None]


class EventRegistration(msgspec.Struct, frozen=True):
    """An event that can help pods this plugin rejected; without a hint it always does."""

    event: ClusterEvent
    hint: HintFunction | None = None
    #: Whether the hint looks at nothing of the pod but its template, so that it is asked once per family.
    template_only: bool = False
    #: Spares the hint where an event concerns few of very many pods.
    narrow: NarrowFunction | None = None


class PermitResult(msgspec.Struct, frozen=True):
    """Permit's answer; with Code.Wait the longest time to wait, in seconds."""

    status: Status
    timeout_seconds: float = 0.0


class PostFilterResult(msgspec.Struct, frozen=True):
    """What PostFilter achieved. ``nominated_node``: None leaves the nomination, "" clears it, a name sets it."""

    status: Status
    nominated_node: str | None = None


class EvictionProgress(Protocol):
    """Follows the eviction of a preemptor's victims; every eviction that begins ends."""

    def begin(self, uid: str) -> None:
        """The victims of this preemptor are going to be evicted."""

    def last(self, uid: str, victim: Pod) -> None:
        """All victims but this one are evicted, and it is next."""

    def end(self, uid: str, *, evicted: bool) -> bool:
        """The eviction has ended, successfully or not; whether the preemptor has nothing to wait for any more."""


class Eviction(msgspec.Struct, frozen=True):
    """Room to be made for a pod on a node; ``victims`` most important first."""

    preemptor: Pod
    node_name: str
    victims: tuple[Pod, ...]
    progress: EvictionProgress


class ResourceClaimEffects(Protocol):
    """What may be done to ResourceClaims. All methods raise SchedulingError with the server's text."""

    async def get(self, namespace: str, name: str) -> ResourceClaim:
        """The claim as the API server has it now."""
        ...

    async def create(self, claim: ResourceClaim) -> ResourceClaim:
        """Creates a claim with this metadata (``generate_name``) and spec; as it is then."""
        ...

    async def patch(
        self, claim: ResourceClaim, changes: Mapping[str, Any], *, status: bool = False
    ) -> ResourceClaim:
        """Writes ``changes``, a JSON merge patch, to this version of a claim or of its status; as it is then.

        Raises ConflictError, a SchedulingError, if there is a newer version.
        """
        ...

    async def add_finalizer(self, claim: ResourceClaim, finalizer: str) -> ResourceClaim:
        """Writes one more finalizer to this version of a claim; as it is then. Raises ConflictError as ``patch``."""
        ...

    async def drop_consumer(self, claim: ResourceClaim, uid: str) -> ResourceClaim:
        """Takes the consumer with this uid out of status.reservedFor, whatever the claim's version; as it is then."""
        ...

    async def delete(self, claim: ResourceClaim) -> None:
        """Deletes this very claim."""

    async def tell_pod(self, pod: Pod, status: Mapping[str, Any]) -> None:
        """Writes a pod's status.extendedResourceClaimStatus."""


class Effects(Protocol):
    """What PreBind, Bind and PostFilter plugins may do to the world. The shell implements it."""

    @property
    def resource_claims(self) -> ResourceClaimEffects:
        """Reads and writes ResourceClaims."""
        ...

    def event(self, pod: Pod, *, reason: str, action: str, note: str) -> None:
        """Records a Normal event about a pod."""

    def asks_about_victims(self, pod: Pod) -> bool:
        """Whether any extender wants a say in which pods are evicted for this one."""

    async def agree_on_victims(
        self, pod: Pod, candidates: Mapping[str, Victims]
    ) -> Mapping[str, Victims]:
        """The victims by node that the extenders with a preempt verb leave of ``candidates``. Raises SchedulingError."""

    def evict(self, eviction: Eviction) -> None:
        """Starts to make room, in the background. The preemptor is tried again at once if that fails, or if all are gone."""

    async def bind(self, pod: Pod, node_name: str) -> Status:
        """Writes the Binding; what the API server refuses is an Error with its text."""

    async def update_volume(self, volume: PersistentVolume, changes: Mapping[str, Any]) -> None:
        """Writes ``changes``, a JSON merge patch (RFC 7386) of the object's body, to a PersistentVolume.

        Only while the stored object has the resource version of ``volume``: one that changed meanwhile is a conflict and
        nothing is written. Returns when the API server has accepted it; the watch brings the new version later.
        Raises SchedulingError with the server's text (conflict, not found, refused, out of reach).
        """

    async def update_claim(self, claim: PersistentVolumeClaim, changes: Mapping[str, Any]) -> None:
        """Writes ``changes``, a JSON merge patch of the object's body, to a PersistentVolumeClaim, as ``update_volume``."""

    async def sleep(self, seconds: float) -> None:
        """Waits."""

    def now(self) -> float:
        """Seconds since the epoch."""


class WaitingPod(Protocol):
    """A pod that Permit plugins hold back."""

    @property
    def pod(self) -> Pod:
        """The pod, with the name of the node it is to be bound to."""

    @property
    def pending_plugins(self) -> frozenset[str]:
        """The plugins that have not allowed it yet."""

    def allow(self, plugin: str) -> None:
        """Says that ``plugin`` lets the pod go; the last one that held it ends the wait."""

    def reject(self, plugin: str, message: str) -> None:
        """Ends the wait: ``plugin`` turns the pod down."""


class WaitingPods(Protocol):
    """The pods on hold, of all profiles."""

    def get(self, uid: str) -> WaitingPod | None:
        """The pod, if it is on hold."""

    def __iter__(self) -> Iterator[WaitingPod]:
        """All of them, the one that has waited longest first."""
        ...


class _NobodyWaits:
    def get(self, _uid: str) -> WaitingPod | None:
        return None

    def __iter__(self) -> Iterator[WaitingPod]:
        return iter(())


class Clock(Protocol):
    """Tells the time, in seconds."""

    def monotonic(self) -> float:
        """Since some moment in the past; never goes back."""
        ...

    def wall(self) -> float:
        """Since the epoch; may jump."""
        ...


class _NoTime:
    def monotonic(self) -> float:
        return 0.0

    def wall(self) -> float:
        return 0.0


class Handle:
    """What a plugin is given beside its arguments: the scheduler's own view of the cluster."""

    __slots__ = ("clock", "cluster", "nominator", "profile_name", "rng", "table", "waiting")

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
    ) -> None:
        #: The nodes and the pods on them, assumed ones included.
        self.table: Final = table
        #: Everything else: volumes, namespaces, services, disruption budgets.
        self.cluster: Final = cluster
        self.profile_name: Final = profile_name
        #: Which pods are nominated to which nodes.
        self.nominator: Final = nominator or Nominator(lambda _pod: True)
        #: The source of randomness for ties and offsets.
        self.rng: Final = rng if rng is not None else np.random.default_rng(0)
        #: The pods that Permit plugins hold back, to be allowed or rejected.
        self.waiting: Final[WaitingPods] = _NobodyWaits() if waiting is None else waiting
        #: What the time is; by default it stands still.
        self.clock: Final[Clock] = _NoTime() if clock is None else clock


@runtime_checkable
class Plugin(Protocol):
    """The least a plugin has."""

    NAME: ClassVar[str]


class NodeLocal:
    """Mark of a plugin whose answer for a row follows from that row, the pod's template and ``epoch()`` alone.

    Its verdicts and raw scores are kept per template and asked again only for rows that changed. It must not look at the
    pod's name, labels or namespace, nor at other rows. Its ``pre_filter`` and ``pre_score`` run once per template, whatever
    the epoch; what they write to the cycle state is kept as long as the template.
    """

    def epoch(self) -> Hashable:
        """Whatever else the answers depend on; when it changes all rows are asked again."""
        return None


class PreEnqueuePlugin(Plugin, Protocol):
    """Holds pods back before they are queued."""

    def pre_enqueue(self, pod: Pod) -> Status:
        """Success lets the pod into the active queue."""


class Queued(Protocol):
    """What the order of the queue is made from."""

    pod: Pod
    #: When the pod came (back) to the queue, in seconds since the epoch.
    timestamp: float


class QueueSortPlugin(Plugin, Protocol):
    """Orders the active queue; one per process, the same in every profile."""

    def sort_key(self, queued: Queued) -> Any:
        """The smaller key is popped first; keys of two pods must compare."""


class SelectivePlugin(Plugin, Protocol):
    """Has nothing to say about most pods, and it shows in their specs. For any plugin that extends PreFilter to Score."""

    def concerns(self, template: PodTemplate) -> bool:
        """False leaves it out from PreFilter to Score, as if PreFilter and PreScore said Skip; asked once per template."""


class PreFilterPlugin(Plugin, Protocol):
    """Prepares, narrows or refuses before nodes are looked at."""

    def pre_filter(self, state: CycleState, pod: Pod) -> PreFilterResult | Status:
        """Success, Skip (this plugin's filter is left out), or a rejection for all nodes."""


class FilterPlugin(Plugin, Protocol):
    """Says which nodes will not do.

    One with ``UNDECIDED_ONLY = True`` is not asked about rows that PreFilter or an earlier filter has ruled out; others look at
    all rows, which costs less than choosing them.
    """

    def filter(self, state: CycleState, pod: Pod, view: View) -> Verdicts | None:
        """None if every row of the view is feasible."""


class PreScorePlugin(Plugin, Protocol):
    """Prepares scoring."""

    def pre_score(self, state: CycleState, pod: Pod, view: View) -> Status:
        """Success, or Skip (this plugin's score is left out). ``view`` has the feasible nodes."""


class ScorePlugin(Plugin, Protocol):
    """Ranks nodes."""

    def score(self, state: CycleState, pod: Pod, view: View) -> Int64 | None:
        """int64[n], 0 to 100 unless ``normalize`` brings it there; None for 0 everywhere."""


class NormalizePlugin(ScorePlugin, Protocol):
    """Ranks nodes against each other.

    A ``NodeLocal`` one may have ``ZERO_NORMALIZED``: the score that ``normalize`` gives to each of any number of nodes whose raw
    scores are all 0. It need not be called for those then.
    """

    def normalize(self, state: CycleState, pod: Pod, scores: Int64, view: View) -> Int64:
        """int64[n] within 0 to 100 from the raw scores of all feasible nodes."""


class PostFilterPlugin(Plugin, Protocol):
    """Makes room when no node is feasible."""

    async def post_filter(
        self, state: CycleState, pod: Pod, diagnosis: Diagnosis, effects: Effects
    ) -> PostFilterResult:
        """Success with a nominated node, or Unschedulable."""


class ReservePlugin(Plugin, Protocol):
    """Keeps books of its own."""

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Sets something aside for the pod on the node."""

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Gives it back; called for every Reserve plugin after any failure, so it must bear being called twice."""


class PermitPlugin(Plugin, Protocol):
    """Lets a decided pod through, holds it, or stops it."""

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult:
        """Success, Wait or a rejection."""


class PreBindPlugin(Plugin, Protocol):
    """Does what must be done before the binding is written."""

    def pre_bind_pre_flight(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Success if ``pre_bind`` has work to do, Skip if not."""

    async def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, effects: Effects
    ) -> Status:
        """Does it."""


class RevocablePlugin(PreBindPlugin, Protocol):
    """Takes back what its ``pre_bind`` wrote for a pod that cannot be bound after all."""

    async def undo_pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, effects: Effects
    ) -> None:
        """Takes it back: once a binding cycle has failed, before Unreserve, even if ``pre_bind`` was never called."""


class BindPlugin(Plugin, Protocol):
    """Writes the binding."""

    async def bind(self, state: CycleState, pod: Pod, node_name: str, effects: Effects) -> Status:
        """Success, or Skip to leave it to the next Bind plugin."""


class PostBindPlugin(Plugin, Protocol):
    """Is called with pods that were bound."""

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """The pod is bound."""


def points_of(plugin: type | Plugin) -> frozenset[str]:
    """The configuration names of the extension points that a plugin (class) extends.

    Those it has a method for, and its ``IDLE_AT``: where a profile may list it because kube-scheduler's plugin of that name
    has something to do there.
    """
    idle: frozenset[str] = getattr(plugin, "IDLE_AT", frozenset())
    return idle.union(point for point in POINT_METHODS if acts_at(plugin, point))


class Need(NamedTuple):
    """The point at which a plugin prepares what it needs at a later one, and its error where the profile leaves that out."""

    point: str
    error: str


def needs_of(plugin: type | Plugin) -> Mapping[str, Need]:
    """What a plugin needs, by the point where it does (its ``NEEDS``): one that says nothing manages without preparation."""
    needs: Mapping[str, Need] = getattr(plugin, "NEEDS", {})
    return needs


def acts_at(plugin: type | Plugin, point: str) -> bool:
    """Whether a plugin (class) has a method for an extension point, given by its name in the configuration."""
    return callable(getattr(plugin, POINT_METHODS.get(point, ""), None))


def concerned(plugin: Plugin, template: PodTemplate) -> bool:
    """Whether a plugin takes part, from PreFilter to Score, in the attempts of pods of this template."""
    concerns: Callable[[PodTemplate], bool] | None = getattr(plugin, "concerns", None)
    return concerns is None or concerns(template)


def registrations_of(plugin: Plugin) -> Iterable[EventRegistration] | None:
    """The events a plugin asks to be woken by; None if it does not say (then any event wakes its pods)."""
    method: Callable[[], Iterable[EventRegistration]] | None = getattr(
        plugin, "events_to_register", None
    )
    return None if method is None else method()


def default_normalize(scores: Int64, *, reverse: bool = False) -> Int64:
    """Scales int64[n] so that the largest becomes 100 (docs/spec/matching.md#score-normalisation)."""
    highest = scores.item(scores.argmax()) if len(scores) else 0
    if highest <= 0:
        return np.full(len(scores), MAX_NODE_SCORE, np.int64) if reverse else scores
    scaled = scores * MAX_NODE_SCORE // highest
    return MAX_NODE_SCORE - scaled if reverse else scaled
