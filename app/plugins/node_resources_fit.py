"""NodeResourcesFit: the pod's requests must fit into a node's free resources, which also give the score.

See docs/spec/plugins/node-resources-fit.md.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import ClassVar, Final

import msgspec
import numpy as np
import numpy.typing as npt

from app.framework.handle import Handle
from app.framework.interface import (
    MAX_NODE_SCORE,
    CycleState,
    Need,
    NodeLocal,
    QueueingHint,
    Verdicts,
    on_event,
)
from app.framework.optional import IgnoresOtherPods
from app.framework.placements import Placements
from app.model.cluster_event import Action, Resource
from app.model.devices import CLASS_PREFIX, DeviceClass
from app.model.objects import Node
from app.model.pod import Pod, PodTemplate
from app.model.requests import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    Amounts,
    allocatable_units,
    is_extended,
    is_scalar,
    to_units,
)
from app.model.status import SUCCESS, Code, Status
from app.plugins.args import NodeResourcesFitArgs, UtilizationShapePoint
from app.plugins.helpers.device_counts import DeviceCounts
from app.plugins.helpers.resource_score import (
    HUNDRED,
    ZERO,
    ScoredResources,
    column_of,
    nonzero_allocated,
)
from app.plugins.helpers.shape import score_table
from app.state.columns.arrays import Int64
from app.state.columns.labels import Mask
from app.state.queue.hints import EventRegistration
from app.state.view import View

TOO_MANY_PODS: Final = "Too many pods"
INSUFFICIENT: Final = "Insufficient {}"
NO_RESOURCES: Final = "resources not found"

_FILTER_STATE: Final = "NodeResourcesFit/filter"
_SCORE_STATE: Final = "NodeResourcesFit/score"

#: The number of resources compared at a time; a pod may request many thousands.
_MOST_AT_A_TIME: Final = 30
_CROWDED: Final = np.int32(1)
_UNSCHEDULABLE: Final = np.int8(Code.Unschedulable)
_UNRESOLVABLE: Final = np.int8(Code.UnschedulableAndUnresolvable)
_BITS: Final = np.left_shift(np.int32(1), np.arange(1, _MOST_AT_A_TIME + 1, dtype=np.int32))
#: For a row with insufficient resources in this many parts, further ones are not reported.
_PARTS_TOLD: Final = 8
#: The most requests that are kept.
_MOST_REQUESTS: Final = 256
#: The number of sets of reasons after which numbering starts again.
_MAX_SETS: Final = 2**16


class _Part(msgspec.Struct, frozen=True):
    """k of the pod's requests: names, amounts int64[k, 1], and the reason for each if it is insufficient."""

    names: tuple[str, ...]
    amounts: Int64
    texts: tuple[str, ...]

    @classmethod
    def of(cls, amounts: Sequence[tuple[str, int]]) -> "_Part":
        names = tuple(name for name, _ in amounts)
        texts = tuple(map(INSUFFICIENT.format, names))
        return cls(names, column_of(amount for _, amount in amounts), texts)


class _Reasons:
    """int32 numbers for sets of reasons; 0 for none.

    For the first part a number is a bit mask: TOO_MANY_PODS, then each resource. Sets with resources of later parts
    have negative numbers in order of appearance.
    """

    def __init__(self, parts: Sequence[_Part]) -> None:
        self._parts: Final = parts
        #: (previous number, position of the part, its mask) by number, and the inverse.
        self._sets: Final[list[tuple[int, int, int]]] = []
        self._numbers: Final[dict[tuple[int, int, int], int]] = {}

    def __len__(self) -> int:
        return len(self._sets)

    def add(
        self, numbers: npt.NDArray[np.int32], position: int, short: Mask
    ) -> npt.NDArray[np.int32]:
        """int32[n]: ``numbers`` extended by the insufficient resources of a part; ``short`` is bool[k, n]."""
        masks: npt.NDArray[np.int32] = _BITS[: len(short)] @ short
        if position == 0:
            return numbers | masks
        if position >= _PARTS_TOLD:
            masks[numbers != 0] = 0
        rows = masks.nonzero()[0]
        pairs = numbers[rows].astype(np.int64) << 32 | masks[rows]
        distinct, at = np.unique(pairs, return_inverse=True)
        extended = [
            self._number((pair >> 32, position, pair & 0xFFFFFFFF)) for pair in distinct.tolist()
        ]
        out = numbers.copy()
        out[rows] = np.array(extended, np.int32)[at]
        return out

    def _number(self, key: tuple[int, int, int]) -> int:
        number = self._numbers.get(key)
        if number is None:
            self._sets.append(key)
            number = self._numbers[key] = -len(self._sets)
        return number

    def text(self, number: int) -> tuple[str, ...]:
        """The reasons of a number, in kube-scheduler's order."""
        short: list[str] = []
        while number < 0:
            number, position, mask = self._sets[-1 - number]
            short[:0] = self._short(position, mask)
        short[:0] = self._short(0, number & ~1) if number > 1 else ()
        crowded = (TOO_MANY_PODS,) if number & 1 else ()
        return (*crowded, *short)

    def _short(self, position: int, mask: int) -> list[str]:
        texts = self._parts[position].texts
        return [text for bit, text in enumerate(texts, 1) if mask >> bit & 1]


class _Request:
    """The pod's requests, in parts of at most _MOST_AT_A_TIME resources."""

    __slots__ = ("parts", "reasons")

    def __init__(self, amounts: Amounts) -> None:
        pairs, step = list(amounts.items()), _MOST_AT_A_TIME
        self.parts: Final = [
            _Part.of(pairs[first : first + step]) for first in range(0, len(pairs), step)
        ]
        self.reasons = _Reasons(self.parts)


class NodeResourcesFit(NodeLocal, IgnoresOtherPods):
    """Filters and scores nodes by their free resources."""

    NAME: ClassVar[str] = "NodeResourcesFit"
    NEEDS: ClassVar[Mapping[str, Need]] = {
        "filter": Need(
            "preFilter", 'error reading "PreFilterNodeResourcesFit" from cycleState: not found'
        ),
    }

    def __init__(self, args: NodeResourcesFitArgs | None, handle: Handle) -> None:
        """None for the default arguments. Raises ValueError for a strategy that does not exist."""
        self._classes: Final = handle.cluster.devices.classes
        self._args: Final = args or NodeResourcesFitArgs()
        self._strategy: Final = _strategy(self._args.strategy, self._args.shape)
        self._devices: Final = DeviceCounts(
            handle.table, handle.cluster, [each.name for each in self._args.resources]
        )
        #: By what the pods request: the same for many templates, such as those of the pods of a DaemonSet.
        self._requests: Final[dict[tuple[tuple[str, int], ...], _Request]] = {}
        #: How often the numbering of a pod's sets of reasons has started again.
        self._renumbered = 0
        #: The node of the last queueing hint, and its allocatable amounts: a hint runs for many pods with the same
        #: node.
        self._latest: Node | None = None
        self._latest_offer: Amounts = {}

    def epoch(self) -> Hashable:
        """Changes with the extended resources that DeviceClasses provide, with their devices if these are scored, and
        when the numbering of reasons starts again.
        """
        return (self._classes.version, self._devices.epoch(), self._renumbered)

    # ------------------------------------------------------------ filter

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        """Computes the pod's requests. Never skips: the number of pods is always checked."""
        key = pod.template.resources.requested
        request = self._requests.get(key)
        if request is None:
            request = _Request(self._wanted(pod))
            if len(self._requests) >= _MOST_REQUESTS:
                self._requests.clear()
            if len(key) <= _MOST_AT_A_TIME:
                self._requests[key] = request
        state.write(_FILTER_STATE, request)
        return SUCCESS

    def _wanted(self, pod: Pod) -> Amounts:
        """The pod's requests in scheduler units, in the order of the reasons, without zeros."""
        amounts = {n: a for n, a in pod.template.request.items() if a > 0 and not self._ignores(n)}
        first = [n for n in (CPU, MEMORY, EPHEMERAL_STORAGE) if n in amounts]
        return {n: amounts[n] for n in (*first, *sorted(amounts.keys() - first))}

    def _ignores(self, name: str) -> bool:
        return is_extended(name) and (
            name in self._args.ignored_resources
            or name.partition("/")[0] in self._args.ignored_resource_groups
        )

    def filter(self, state: CycleState, _pod: Pod, view: View) -> Verdicts | None:
        """Rejects rows with insufficient resources; as unresolvable if even the empty node would be too small.

        Extended resources that a node does not advertise and a DeviceClass provides are left to DynamicResources
        (KEP-5004).
        """
        request: _Request = state.read(_FILTER_STATE)
        crowded: Mask = view.pod_count() >= view.allocatable_pods()
        numbers: npt.NDArray[np.int32] | None = None
        if np.count_nonzero(crowded):
            numbers = _CROWDED * crowded
        hopeless: Mask = np.zeros(view.n, bool)
        reasons = request.reasons
        for position, part in enumerate(request.parts):
            if position >= _PARTS_TOLD and hopeless.all():
                break
            allocatable = view.allocatable_of(part.names)
            short: Mask = part.amounts > allocatable - view.requested_of(part.names)
            if self._classes:
                devices = [self._classes.get(name) is not None for name in part.names]
                short &= (column_of(devices) == 0) | (allocatable > 0)
            if np.count_nonzero(short):
                before = np.zeros(view.n, np.int32) if numbers is None else numbers
                numbers = reasons.add(before, position, short)
                hopeless |= (short & (part.amounts > allocatable)).any(axis=0)
        if numbers is None:
            return None
        if len(reasons) > _MAX_SETS:
            request.reasons = _Reasons(request.parts)
            self._renumbered += 1
        codes = _UNSCHEDULABLE * (numbers != 0)
        codes[hopeless] = _UNRESOLVABLE
        return Verdicts(codes, numbers, reasons.text)

    # ------------------------------------------------------------ score

    def pre_score(self, state: CycleState, pod: Pod, _view: View) -> Status:
        """Computes the pod's requests for the scored resources."""
        if not self._args.resources:
            return Status(Code.Error, (NO_RESOURCES,))
        scored = ScoredResources.of(pod.template.fit_score_request, self._args.resources)
        state.write(_SCORE_STATE, scored)
        return SUCCESS

    def score(self, state: CycleState, pod: Pod, view: View) -> Int64:
        """int64[n], 0 to 100. Works without PreScore."""
        scored: ScoredResources = state.get(_SCORE_STATE) or ScoredResources.of(
            pod.template.fit_score_request, self._args.resources
        )
        if not scored.names:
            return np.zeros(view.n, np.int64)
        capacity, allocated = self._devices.fill_in(
            scored.names,
            view,
            view.allocatable_of(scored.names),
            nonzero_allocated(view, scored.names),
        )
        return self._strategy(allocated + scored.amounts, capacity, scored)

    # ------------------------------------------------------------ placements of pod groups

    def score_placements(self, placements: Placements, pods: Sequence[Pod], placed: Mask) -> Int64:
        """int64[k], 0 to 100: how full each placement is with the pods that it takes, whatever the strategy.

        An extended resource counts where these pods request it.
        """
        names = tuple(resource.name for resource in self._args.resources)
        if not names:
            return np.zeros(len(placements), np.int64)
        view, scalar = placements.view, column_of(map(is_scalar, names)) != ZERO
        wanted = _scored_amounts(pods, placed, names)
        offered = view.allocatable_of(names)
        allocated = np.where(offered != ZERO, nonzero_allocated(view, names), ZERO)
        capacity = np.where(scalar & (wanted == ZERO), ZERO, placements.sums(offered))
        requested = np.minimum(wanted + placements.sums(allocated), capacity)
        present = capacity > ZERO
        percent = np.where(present, requested * HUNDRED // np.where(present, capacity, 1), ZERO)
        weights = np.array([resource.weight for resource in self._args.resources], np.int64)
        score: Int64 = weights @ percent // np.maximum(weights @ present, 1)
        return np.clip(score, 0, MAX_NODE_SCORE)

    def grows(self, pods: Sequence[Pod]) -> bool:
        """Not if a pod could bring a resource into the score that the others do not request."""
        one_template = len({pod.template for pod in pods}) == 1
        return one_template or not any(is_scalar(each.name) for each in self._args.resources)

    # ------------------------------------------------------------ events

    def events_to_register(self) -> Iterable[EventRegistration]:
        """Freed resources, larger nodes, and DeviceClasses that provide an extended resource."""
        larger, change = Action.Add | Action.UpdateNodeAllocatable, Action.Add | Action.Update
        return (
            on_event(Resource.Pod, Action.Delete, _freed_resources, template_only=True),
            on_event(Resource.Pod, Action.UpdatePodScaleDown, _scaled_down),
            on_event(Resource.Node, larger, self._node_has_more, template_only=True),
            on_event(Resource.DeviceClass, change, _offers_devices, template_only=True),
        )

    def _node_has_more(self, pod: Pod, old: Node | None, new: Node) -> bool:
        wanted = self._wanted(pod)
        if new is not self._latest:
            self._latest, self._latest_offer = new, allocatable_units(new.status.allocatable)
        now = self._latest_offer
        missing = [name for name, amount in wanted.items() if amount > now.get(name, 0)]
        if now.get(PODS, 0) < 1 or any(  # what the node lacks is left to DynamicResources
            now.get(name) or self._classes.get(name) is None for name in missing
        ):
            return QueueingHint.SKIP
        if old is None or missing:
            return QueueingHint.QUEUE
        before = allocatable_units(old.status.allocatable)
        return any(now.get(name, 0) > before.get(name, 0) for name in (PODS, *wanted))


def _scored_amounts(pods: Sequence[Pod], placed: Mask, names: Sequence[str]) -> Int64:
    """int64[names, k]: the requests that scores count of the pods in each placement, in scheduler units."""
    by_template: dict[PodTemplate, list[int]] = {}
    for index, pod in enumerate(pods):
        by_template.setdefault(pod.template, []).append(index)
    total = np.zeros((len(names), len(placed)), np.int64)
    for template, indices in by_template.items():
        nanos = template.fit_score_request
        amounts = column_of(to_units(name, nanos.get(name, 0)) for name in names)
        total += amounts * np.count_nonzero(placed[:, indices], axis=1)
    return total


def _freed_resources(_pod: Pod, old: Pod, _new: object) -> bool:
    return bool(old.node_name or old.nominated_node_name)


def _offers_devices(pod: Pod, old: DeviceClass | None, new: DeviceClass) -> bool:
    """Queue if a DeviceClass that provides a requested resource was added, or now provides it."""
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
    """int64[n]: weighted average of ``part`` in percent of the capacity, over the resources that the node has.

    ``part`` is overwritten; it is 0 where the capacity is 0.
    """
    part *= HUNDRED
    average: Int64
    if np.count_nonzero(capacity) == capacity.size:
        part //= capacity
        total = part[0] + part[1] if scored.two_alike else scored.weights.dot(part)
        average = total // scored.total_weight
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
