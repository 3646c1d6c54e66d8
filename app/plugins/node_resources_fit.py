"""NodeResourcesFit: what a pod asks for must be free, and how much is free makes the score.

See docs/spec/plugins/node-resources-fit.md.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import ClassVar, Final

import msgspec
import numpy as np
import numpy.typing as npt

from app.framework.args import NodeResourcesFitArgs, UtilizationShapePoint
from app.framework.interface import (
    CycleState,
    EventRegistration,
    Handle,
    Need,
    NodeLocal,
    QueueingHint,
    Verdicts,
)
from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.devices import CLASS_PREFIX, DeviceClass
from app.model.objects import Node
from app.model.pod import Pod
from app.model.requests import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    Amounts,
    allocatable_units,
    is_extended,
)
from app.model.status import SUCCESS, Code, Status
from app.plugins.helpers.device_counts import DeviceCounts
from app.plugins.helpers.resource_score import (
    HUNDRED,
    ZERO,
    ScoredResources,
    column_of,
    nonzero_allocated,
)
from app.plugins.helpers.shape import score_table
from app.state.columns.labels import Mask
from app.state.columns.resources import Int64
from app.state.view import View

TOO_MANY_PODS: Final = "Too many pods"
INSUFFICIENT: Final = "Insufficient {}"
NO_RESOURCES: Final = "resources not found"

_FILTER_STATE: Final = "NodeResourcesFit/filter"
_SCORE_STATE: Final = "NodeResourcesFit/score"

#: Reason numbers are int32, one bit per reason while they suffice.
_MAX_BITS: Final = 31
_BITS: Final = np.left_shift(np.int32(1), np.arange(_MAX_BITS, dtype=np.int32))


class _Reasons:
    """Numbers for sets of reasons: bit masks, or in order of appearance where there are more reasons than bits."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._numbers: dict[bytes, int] = {}
        self._known: list[tuple[str, ...]] = []

    def numbers(self, failed: Mask) -> npt.NDArray[np.int32]:
        """int32[n] for bool[reasons, n]; 0 where there is none."""
        if len(failed) <= _MAX_BITS:
            bits: npt.NDArray[np.int32] = _BITS[: len(failed)] @ failed
            return bits
        numbers = np.zeros(failed.shape[1], np.int32)
        for position in np.flatnonzero(failed.any(axis=0)).tolist():
            numbers[position] = self._intern(failed[:, position])
        return numbers

    def _intern(self, failed: Mask) -> int:
        key = failed.tobytes()
        number = self._numbers.get(key)
        if number is None:
            self._known.append(tuple(self._texts[i] for i in np.flatnonzero(failed).tolist()))
            number = self._numbers[key] = len(self._known)
        return number

    def text(self, number: int) -> tuple[str, ...]:
        """The reasons behind a number, in kube-scheduler's order."""
        if len(self._texts) > _MAX_BITS:
            return self._known[number - 1]
        return tuple(text for i, text in enumerate(self._texts) if number >> i & 1)


class _Request(msgspec.Struct, frozen=True):
    """What must be free: k resource names, amounts int64[k, 1], and the reasons (one more: too many pods)."""

    names: tuple[str, ...]
    amounts: Int64
    reasons: _Reasons

    @classmethod
    def of(cls, amounts: Amounts) -> "_Request":
        names = tuple(amounts)
        texts = (TOO_MANY_PODS, *(INSUFFICIENT.format(name) for name in names))
        return cls(names, column_of(amounts.values()), _Reasons(texts))


class NodeResourcesFit(NodeLocal):
    """Judges and ranks nodes by what is left of their allocatable resources."""

    NAME: ClassVar[str] = "NodeResourcesFit"
    NEEDS: ClassVar[Mapping[str, Need]] = {
        "filter": Need(
            "preFilter", 'error reading "PreFilterNodeResourcesFit" from cycleState: not found'
        ),
    }
    IDLE_AT: ClassVar[frozenset[str]] = frozenset({"placementScore"})

    def __init__(self, args: NodeResourcesFitArgs | None, handle: Handle) -> None:
        """None for the default arguments. Raises ValueError for a strategy that does not exist."""
        self._classes: Final = handle.cluster.devices.classes
        self._args: Final = args or NodeResourcesFitArgs()
        self._strategy: Final = _strategy(self._args.strategy, self._args.shape)
        self._devices: Final = DeviceCounts(
            handle.table, handle.cluster, [each.name for each in self._args.resources]
        )
        #: The node that was last asked about for some waiting pod, and what it offers: very many may wait for it.
        self._latest: Node | None = None
        self._latest_offer: Amounts = {}

    def epoch(self) -> Hashable:
        """Changes when other extended resources than before are devices, or other devices are there where these are scored."""
        return (self._classes.version, self._devices.epoch())

    # ------------------------------------------------------------ filter

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        """Works out what must be free; never skips, for the number of pods counts in any case."""
        state.write(_FILTER_STATE, _Request.of(self._wanted(pod)))
        return SUCCESS

    def _wanted(self, pod: Pod) -> Amounts:
        """What must be free, in scheduler units, in the order of the reasons; nothing of which there is 0."""
        amounts = {n: a for n, a in pod.template.request.items() if a > 0 and not self._ignores(n)}
        first = [n for n in (CPU, MEMORY, EPHEMERAL_STORAGE) if n in amounts]
        return {n: amounts[n] for n in (*first, *sorted(amounts.keys() - first))}

    def _ignores(self, name: str) -> bool:
        return is_extended(name) and (
            name in self._args.ignored_resources
            or name.partition("/")[0] in self._args.ignored_resource_groups
        )

    def filter(self, state: CycleState, _pod: Pod, view: View) -> Verdicts | None:
        """Rejects rows where something is short: for good where a node would be too small even if empty.

        An extended resource that a node does not advertise, and that a DeviceClass stands behind, is left to
        DynamicResources (KEP-5004).
        """
        request: _Request = state.read(_FILTER_STATE)
        crowded: Mask = view.pod_count() >= view.allocatable_pods()
        if not request.names:
            return _verdicts(request, crowded[np.newaxis]) if np.count_nonzero(crowded) else None
        allocatable = view.allocatable_of(request.names)
        short: Mask = request.amounts > allocatable - view.requested_of(request.names)
        if self._classes:
            devices = [self._classes.get(name) is not None for name in request.names]
            short &= (column_of(devices) == 0) | (allocatable > 0)
        if not np.count_nonzero(short) and not np.count_nonzero(crowded):
            return None
        failed = np.concatenate((crowded[np.newaxis], short))
        return _verdicts(request, failed, short & (request.amounts > allocatable))

    # ------------------------------------------------------------ score

    def pre_score(self, state: CycleState, pod: Pod, _view: View) -> Status:
        """Works out the pod's part of the resources that count."""
        if not self._args.resources:
            return Status(Code.Error, (NO_RESOURCES,))
        state.write(_SCORE_STATE, self._scored(pod))
        return SUCCESS

    def _scored(self, pod: Pod) -> ScoredResources:
        return ScoredResources.of(pod.template.fit_score_request, self._args.resources)

    def score(self, state: CycleState, pod: Pod, view: View) -> Int64:
        """int64[n], 0 to 100; PreScore may be disabled."""
        scored: ScoredResources = state.get(_SCORE_STATE) or self._scored(pod)
        if not scored.names:
            return np.zeros(view.n, np.int64)
        capacity, allocated = self._devices.fill_in(
            scored.names,
            view,
            view.allocatable_of(scored.names),
            nonzero_allocated(view, scored.names),
        )
        return self._strategy(allocated + scored.amounts, capacity, scored)

    # ------------------------------------------------------------ events

    def events_to_register(self) -> Iterable[EventRegistration]:
        """Pods that go or shrink, nodes that come or grow, extended resources that become devices."""
        deleted = ClusterEvent(Resource.Pod, Action.Delete)
        smaller = ClusterEvent(Resource.Pod, Action.UpdatePodScaleDown)
        node = ClusterEvent(Resource.Node, Action.Add | Action.UpdateNodeAllocatable)
        device_class = ClusterEvent(Resource.DeviceClass, Action.Add | Action.Update)
        return (
            EventRegistration(deleted, _freed_resources, template_only=True),
            EventRegistration(smaller, _scaled_down),
            EventRegistration(node, self._node_has_more, template_only=True),
            EventRegistration(device_class, _offers_devices, template_only=True),
        )

    def _node_has_more(self, pod: Pod, old: Node | None, new: Node) -> bool:
        wanted = self._wanted(pod)
        if new is not self._latest:
            self._latest, self._latest_offer = new, allocatable_units(new.status.allocatable)
        now = self._latest_offer
        missing = [name for name, amount in wanted.items() if amount > now.get(name, 0)]
        if now.get(PODS, 0) < 1 or not all(self._left_to_devices(name, now) for name in missing):
            return QueueingHint.SKIP
        if old is None or missing:
            return QueueingHint.QUEUE
        before = allocatable_units(old.status.allocatable)
        return any(now.get(name, 0) > before.get(name, 0) for name in (PODS, *wanted))

    def _left_to_devices(self, name: str, offer: Amounts) -> bool:
        return not offer.get(name) and self._classes.get(name) is not None


def _verdicts(request: _Request, failed: Mask, hopeless: Mask | None = None) -> Verdicts:
    """``failed``: bool[k + 1, n], too many pods first; ``hopeless``: bool[k, n], more than the node has at all."""
    numbers = request.reasons.numbers(failed)
    codes = np.where(numbers != 0, np.int8(Code.Unschedulable), np.int8(0))
    if hopeless is not None:
        codes[hopeless.any(axis=0)] = Code.UnschedulableAndUnresolvable
    return Verdicts(codes, numbers, request.reasons.text)


def _freed_resources(_pod: Pod, old: Pod, _new: object) -> bool:
    return bool(old.node_name or old.nominated_node_name)


def _offers_devices(pod: Pod, old: DeviceClass | None, new: DeviceClass) -> bool:
    """A class has come that stands behind something that the pod asks for, or stands behind it now."""
    asked, named = pod.template.request, new.spec.extended_resource_name
    if old is None and CLASS_PREFIX + new.name in asked:
        return QueueingHint.QUEUE
    if old is not None and old.spec.extended_resource_name == named:
        return QueueingHint.SKIP
    return named is not None and named in asked


def _scaled_down(pod: Pod, old: Pod, new: Pod) -> bool:
    if new.uid == pod.uid:
        return QueueingHint.QUEUE
    if not new.node_name:
        return QueueingHint.SKIP
    before, now = dict(old.resources.requested), dict(new.resources.requested)
    return any(
        amount and now.get(name, 0) < before.get(name, 0)
        for name, amount in pod.template.request.items()
    )


# ---------------------------------------------------------------- scoring strategies

#: (requested int64[k, n] with the pod, overwritten; capacity int64[k, n]; the k resources) -> int64[n].
_Strategy = Callable[[Int64, Int64, ScoredResources], Int64]


def _strategy(name: str, shape: Sequence[UtilizationShapePoint]) -> _Strategy:
    match name:
        case "LeastAllocated":
            return _least_allocated
        case "MostAllocated":
            return _most_allocated
        case "RequestedToCapacityRatio" if shape:
            points = [(point.utilization, point.score) for point in shape]
            return _requested_to_capacity_ratio(score_table(points))
        case "RequestedToCapacityRatio":
            raise ValueError("NodeResourcesFitArgs: RequestedToCapacityRatio needs a shape")
    raise ValueError(f'NodeResourcesFitArgs: "{name}" is not a scoring strategy')


def _least_allocated(requested: Int64, capacity: Int64, scored: ScoredResources) -> Int64:
    free = np.subtract(capacity, requested, out=requested)
    return _average(np.maximum(free, ZERO, out=free), capacity, scored)


def _most_allocated(requested: Int64, capacity: Int64, scored: ScoredResources) -> Int64:
    return _average(np.minimum(requested, capacity, out=requested), capacity, scored)


def _average(part: Int64, capacity: Int64, scored: ScoredResources) -> Int64:
    """Weighted average of ``part`` in percent of the capacity, over the resources that the node has.

    ``part`` is overwritten; it is 0 where the capacity is.
    """
    part *= HUNDRED
    average: Int64
    if np.count_nonzero(capacity) == capacity.size:
        part //= capacity
        average = scored.weights.dot(part) // scored.total_weight
        return average
    present = capacity != ZERO
    part //= np.where(present, capacity, 1)
    average = scored.weights.dot(part) // np.maximum(scored.weights.dot(present), 1)
    return average


def _requested_to_capacity_ratio(table: Int64) -> _Strategy:
    """``table``: int64[101], the score by percent of the capacity."""

    def strategy(requested: Int64, capacity: Int64, scored: ScoredResources) -> Int64:
        percent = np.minimum(requested, capacity) * HUNDRED // np.maximum(capacity, 1)
        scores = table[percent]
        counted = (scores > 0) & (capacity != ZERO)
        total, weight = scored.weights.dot(scores * counted), scored.weights.dot(counted)
        rounded: Int64 = np.floor(total / np.maximum(weight, 1) + 0.5).astype(np.int64)
        return rounded

    return strategy
