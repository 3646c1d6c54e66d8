"""The plugin interface: extension points, their arguments and results.

A plugin is a class with a ``NAME``, a constructor ``(args, handle)`` and the methods of the extension points it
extends, by these names (docs/plugins.md is the guide for writers; they import from ``app.framework.api``)::

    pre_enqueue  sort_key  concerns  pre_filter  filter  post_filter  pre_score  score  normalize
    reserve / unreserve  permit  pre_bind_pre_flight / pre_bind / undo_pre_bind  bind  post_bind  events_to_register

A class extends the points for which it has a method. Filter and Score return arrays with one entry per node of a
view. Plugins that evaluate one node at a time derive from
``app.framework.per_node``. No method may block; ``post_filter``, ``pre_bind`` and ``bind`` are coroutines because
they write to the API server through ``Effects``.

Order, skipping and errors follow kube-scheduler's rules (docs/spec/framework.md).
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Final, Protocol, runtime_checkable

import msgspec
import numpy as np
import numpy.typing as npt

from app.framework.diagnosis import Diagnosis
from app.framework.handle import Effects, Handle
from app.framework.placements import Placements
from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.pod import Pod
from app.model.pod_groups import GroupKey
from app.model.status import Code, Status
from app.state.columns.arrays import Int64
from app.state.columns.labels import Mask
from app.state.queue.hints import EventRegistration
from app.state.queue.recorder import HintFunction
from app.state.view import View

MAX_NODE_SCORE: Final = 100
#: Cycle state: whether Filter may raise Unfinished.
MAY_PAUSE: Final = "Framework/may pause"

#: Extension point (name in the configuration) -> name of the plugin's method.
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
    "placementGenerate": "generate_placements",
    "placementScore": "score_placements",
}


class CycleState:
    """Data that plugins keep between the extension points of one scheduling attempt, by key.

    ``parent`` has the data computed once per template; ``read`` and ``get`` fall back to it.
    """

    __slots__ = ("_data", "_parent")

    def __init__(self, parent: "CycleState | None" = None) -> None:
        self._data: dict[Hashable, Any] = {}
        self._parent: Final = parent

    def copy(self) -> "CycleState":
        """The same data, with the same parent; what is written to either later is not in the other."""
        copied = CycleState(self._parent)
        copied._data.update(self._data)
        return copied

    def write(self, key: Hashable, value: Any) -> None:
        """Stores a value under a key."""
        self._data[key] = value

    def read(self, key: Hashable) -> Any:
        """The value stored under a key. Raises KeyError."""
        if key in self._data or self._parent is None:
            return self._data[key]
        return self._parent.read(key)

    def get(self, key: Hashable, default: Any = None) -> Any:
        """The value stored under a key, or ``default``."""
        if key in self._data or self._parent is None:
            return self._data.get(key, default)
        return self._parent.get(key, default)


class Verdicts(msgspec.Struct, frozen=True):
    """A filter's result for each row of a view.

    ``codes``: int8[n], 0 for feasible rows, else a rejecting Code (Code.Error fails the whole attempt).
    ``reasons``: int32[n], the argument for ``text``; ignored where the code is 0. For one pod a number always has the
    same meaning.
    """

    codes: npt.NDArray[np.int8]
    reasons: npt.NDArray[np.int32]
    text: Callable[[int], tuple[str, ...]] = lambda _number: ()


def reject(failed: Mask, code: Code, *reason: str) -> Verdicts | None:
    """Verdicts that reject the rows where ``failed`` (bool[n]) is True, with one reason; None if there are none."""
    if not np.count_nonzero(failed):
        return None
    return Verdicts(np.int8(code) * failed, np.zeros(len(failed), np.int32), lambda _number: reason)


def reject_first(*cases: tuple[Mask, Code, str]) -> Verdicts | None:
    """Verdicts from several tests; the first test that rejects a row gives the reason; None if none does."""
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
    """PreFilter's result: a status, and the names of the nodes to consider (None: all)."""

    status: Status
    node_names: frozenset[str] | None = None


class QueueingHint:
    """The results of a queueing hint."""

    QUEUE: ClassVar[bool] = True
    SKIP: ClassVar[bool] = False


def on_event(
    resource: Resource,
    action: Action,
    hint: HintFunction | None = None,
    *,
    template_only: bool = False,
) -> EventRegistration:
    """The registration of actions on a resource."""
    return EventRegistration(ClusterEvent(resource, action), hint, template_only)


def own_update(pod: Pod, _old: Pod, new: Pod) -> bool:
    """A hint: Queue if the pod itself was updated."""
    return new.uid == pod.uid


def changed(value: Callable[[Any], object]) -> HintFunction:
    """A hint: Queue if the object is new, or if ``value`` of it has changed."""
    return lambda _pod, old, new: old is None or value(old) != value(new)


class PermitResult(msgspec.Struct, frozen=True):
    """Permit's result; with Code.Wait the longest time to wait, in seconds."""

    status: Status
    timeout_seconds: float = 0.0


class PostFilterResult(msgspec.Struct, frozen=True):
    """PostFilter's result. ``nominated_node``: None keeps the nomination, "" clears it, a name sets it."""

    status: Status
    nominated_node: str | None = None


class GroupMember(msgspec.Struct, frozen=True):
    """A pod of a group that was decided."""

    pod: Pod
    #: Whether it fits, and is counted on its node.
    fits: bool
    #: Nodes that were rejected for it by extenders.
    refused: frozenset[str] = frozenset()


class PodGroupPostFilterResult(msgspec.Struct, frozen=True):
    """The result for a group. ``nodes``: by pod uid, where pods of the group fit once the victims are gone."""

    status: Status
    nodes: Mapping[str, str] = {}


@runtime_checkable
class Plugin(Protocol):
    """What every plugin has."""

    NAME: ClassVar[str]


class NodeLocal:
    """Base of plugins whose result for a row depends only on that row, the pod's template and ``epoch()``.

    Verdicts and raw scores are kept per template and computed again only for rows that changed. The plugin must not
    read the pod's name, labels or namespace, nor other rows. ``pre_filter`` and ``pre_score`` run once per template,
    whatever the epoch; what they write to the cycle state is kept with the template.
    """

    def epoch(self) -> Hashable:
        """A value for everything else that the results depend on; when it changes, all rows are computed again."""
        return None


class Need(msgspec.Struct, frozen=True):
    """A point that must run before another one, and the plugin's error if the profile disables it."""

    point: str
    error: str


class NoArguments:
    """Base of in-tree plugins that need neither arguments nor the handle."""

    def __init__(self, args: object, handle: Handle) -> None:
        pass


class Queued(Protocol):
    """What a QueueSort plugin sees of a queued pod."""

    pod: Pod
    #: When the pod was added or last returned to the queue, in seconds since the epoch.
    timestamp: float


class AnyPlugin(Plugin, Protocol):
    """The methods of all extension points in running order; a plugin has those of the points that it extends."""

    # Keeps pods out of the queue.
    def pre_enqueue(self, pod: Pod) -> Status:
        """Success lets the pod into the active queue."""

    # Sorts the active queue; the same plugin in every profile.
    def sort_key(self, queued: Queued) -> Any:
        """The pod with the smallest key is popped first; all keys must be comparable."""

    # Runs before the filters: prepares data, restricts the nodes, or rejects the pod.
    def pre_filter(self, state: CycleState, pod: Pod) -> PreFilterResult | Status:
        """Success, Skip (this plugin's filter is not called), or a rejection for all nodes."""

    # Rejects nodes.
    def filter(self, state: CycleState, pod: Pod, view: View) -> Verdicts | None:
        """None if every row of the view is feasible."""

    # Prepares scoring.
    def pre_score(self, state: CycleState, pod: Pod, view: View) -> Status:
        """Success, or Skip (this plugin's score is not called). ``view`` has the feasible nodes."""

    # Scores nodes.
    def score(self, state: CycleState, pod: Pod, view: View) -> Int64 | None:
        """int64[n], 0 to 100 unless the plugin has ``normalize``; None for 0 on all rows."""

    # Scores nodes relative to each other.
    def normalize(self, state: CycleState, pod: Pod, scores: Int64, view: View) -> Int64:
        """int64[n], 0 to 100, from the raw scores of all feasible nodes."""

    # Runs when no node is feasible, for example to preempt pods.
    async def post_filter(
        self, state: CycleState, pod: Pod, diagnosis: Diagnosis, effects: Effects
    ) -> PostFilterResult:
        """Success with a nominated node, or Unschedulable."""

    # Runs when too few pods of a group fit.
    async def pod_group_post_filter(
        self,
        key: GroupKey,
        members: Sequence[GroupMember],
        need: int,
        effects: Effects,
        rows: npt.NDArray[np.intp] | None = None,
    ) -> PodGroupPostFilterResult:
        """Success if ``need`` more of the members fit after an eviction, which has started then; otherwise why not.

        ``rows`` (intp[n], ascending): the domain in which the group is placed; None for all nodes.
        """

    # Reserves resources that the node table does not count.
    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Reserves for the pod on the node."""

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Called for every Reserve plugin after any failure, possibly without ``reserve`` or twice."""

    # Allows, delays or rejects the binding of a pod.
    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult:
        """Success, Wait or a rejection."""

    # Runs before the binding is written.
    def pre_bind_pre_flight(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Success if ``pre_bind`` has work to do, Skip if not."""

    async def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, effects: Effects
    ) -> Status:
        """Does the work; success or an error."""

    # Reverts what its ``pre_bind`` wrote if the pod cannot be bound.
    async def undo_pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, effects: Effects
    ) -> None:
        """Called when a binding cycle has failed, before Unreserve, even if ``pre_bind`` was not called."""

    # Writes the binding.
    async def bind(self, state: CycleState, pod: Pod, node_name: str, effects: Effects) -> Status:
        """Success, or Skip to leave it to the next Bind plugin."""

    # Is called with pods that were bound.
    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Called after the pod was bound."""

    # Generates the placements of a pod group.
    def generate_placements(self, key: GroupKey) -> Placements | None:
        """None if the group may use all nodes. Raises SchedulingError."""

    # Scores the placements of a pod group.
    def score_placements(self, placements: Placements, pods: Sequence[Pod], placed: Mask) -> Int64:
        """int64[k], 0 to 100 unless it is normalised. ``placed``: bool[k, pods], the pods that each placement takes."""

    def grows(self, pods: Sequence[Pod]) -> bool:
        """Whether a placement never scores less with more of these pods, whatever the other placements take."""

    # Scores the placements of a pod group relative to each other.
    def normalize_placements(self, scores: Int64) -> Int64:
        """int64[k], 0 to 100, from the scores of all placements. Raises SchedulingError."""


def default_normalize(scores: Int64, *, reverse: bool = False) -> Int64:
    """Scales int64[n] so that the highest score becomes 100 (docs/spec/matching.md#score-normalisation)."""
    highest = scores.item(scores.argmax()) if len(scores) else 0
    if highest <= 0:
        return np.full(len(scores), MAX_NODE_SCORE, np.int64) if reverse else scores
    scaled = scores * MAX_NODE_SCORE // highest
    return MAX_NODE_SCORE - scaled if reverse else scaled
