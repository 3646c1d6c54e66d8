"""GpuFragmentation: prefers the node where the pod makes the fewest GPUs useless for the pods that are to be expected.

Formula: "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent" (USENIX ATC
'23), sections 4 and 5. To a pod that a node cannot take, all that is left of the node's GPUs is a fragment; to any
other pod, the GPUs with less room than it needs. Pods without GPU count as pods that the GPUs cannot serve. The sum
over the typical pods, each with its share, is the node's fragmentation F, in thousandths of a GPU. A node's score is
100 / (1 + exp((F_after - F_before) / 1000)). A pod that shares a GPU gets the one with the best score.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from aiokube_scheduler.framework.api import (
    CycleState,
    Handle,
    Int64,
    NodeLocal,
    PluginArgs,
    Pod,
    PodTemplate,
    Status,
    SUCCESS,
    View,
)
from gpu_sharing.gpus import MOST, WHOLE, GpuArgs, Gpus, Left, tightest

#: Counted pods after which the counts are halved.
ENOUGH = 20_000

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.integer]


class TypicalPod(PluginArgs, frozen=True):
    """Pods of one shape: ``count`` of them, or their share. ``models``: the GPU models that they may use; none: all."""

    cpu_milli: int
    gpu_milli: int = 0
    models: tuple[str, ...] = ()
    count: float = 1.0

    def __post_init__(self) -> None:
        if self.cpu_milli < 0 or self.gpu_milli < 0 or not 0 < self.count < 1e15:
            raise ValueError("a typical pod needs a count, and requests that are not negative")
        if (self.gpu_milli > WHOLE and self.gpu_milli % WHOLE) or self.gpu_milli > MOST * WHOLE:
            raise ValueError(f"gpuMilli: a part of a GPU, or up to {MOST} whole ones")


class GpuFragmentationArgs(GpuArgs, frozen=True):
    """``typicalPods``: if there are none, they are counted: the pods on the nodes, and those that come.

    ``popularity``: so many percent of all pods, those with the most frequent shapes, are typical.
    """

    typical_pods: tuple[TypicalPod, ...] = ()
    popularity: int = 95

    def __post_init__(self) -> None:
        if not 0 < self.popularity <= 100:
            raise ValueError("popularity must be between 1 and 100")


class Shape(NamedTuple):
    """What a pod asks for, in the order in which equally frequent shapes are typical."""

    cpu: int
    gpu: int
    models: tuple[str, ...]


class GpuFragmentation(NodeLocal):
    """Scores by the growth of fragmentation."""

    NAME = "GpuFragmentation"

    def __init__(self, args: object, handle: Handle) -> None:
        self._args = GpuFragmentationArgs.read(args)
        self._gpus = Gpus.of(handle, self._args)
        self._gpus.choose[handle.profile_name] = self._choose
        self._table = handle.table
        self._counts: Counter[Shape] = Counter()
        self._version, self._counted_at = 0, -1
        given = Counter({_shape_of(each): each.count for each in self._args.typical_pods})
        self._learns = not given
        #: Of each code of the label with the model: the number of the model; as of this epoch and number of codes.
        self._models: Ints = np.zeros(0, np.intp)
        self._models_of = (-1, 0)
        self._typical = Typical(given, self._args.popularity)

    # ------------------------------------------------------------ score

    def score(self, state: CycleState, pod: Pod, view: View) -> Int64:
        """int64[n]: 50 where fragmentation stays as it is, more where it shrinks."""
        cpu, request = pod.template.request.get("cpu", 0), self._gpus.request(pod.template)
        left, (free, models) = self._gpus.left(view), self._free(view)
        if not 0 < request < WHOLE:
            nodes = self._typical.measure(left, free, models)
            return self._typical.whole(nodes, cpu, request // WHOLE)
        nodes = self._typical.measure(np.sort(left), free, models)  # of GPUs alike one is scored
        return self._typical.shared(nodes, cpu, request).max(axis=1, initial=0)

    def _free(self, view: View) -> tuple[Int64, Ints]:
        """int64[n]: the CPU left; intp[n]: the numbers of the GPU models."""
        column, codes = view.label(self._args.model_label)
        key = column.epoch, len(column.values)
        if key != self._models_of:
            self._models_of, self._models = key, self._typical.models(column.values)
        return view.allocatable("cpu") - view.requested("cpu"), self._models[codes]

    def _choose(self, left: Sequence[int], pod: Pod, request: int) -> tuple[int, ...] | None:
        """The GPU with the best score; the pod is counted on its node already."""
        if request >= WHOLE or len({free for free in left if free >= request}) < 2:
            return tightest(left, request)
        cpu = pod.template.request.get("cpu", 0)
        row = self._table.row_of[pod.node_name]
        free, models = self._free(View(self._table, np.array([row], np.intp)))
        node = self._typical.measure(np.array([left], np.int16), free + cpu, models)
        scores = self._typical.shared(node, cpu, request)[0]
        return (int(scores.argmax()),)

    # ------------------------------------------------------------ typical pods

    def epoch(self) -> int:
        """Changes with the typical pods."""
        if self._learns:
            self._learn()
        return self._version

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Counts the pod's shape."""
        if self._learns and self._counted_at >= 0:
            self._count(pod.template)
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """A pod that is tried again is counted again: it is as typical as it was."""

    def _learn(self) -> None:
        if self._counted_at < 0:
            for pods in self._table.pods:
                for pod in pods.values():
                    self._count(pod.template)
            self._counted_at = 0
        if (total := self._counts.total()) >= 1.5 * self._counted_at + 20:
            self._typical = Typical(self._counts, self._args.popularity)
            self._version, self._models_of = self._version + 1, (-1, 0)
            if total > ENOUGH:  # what has not come for long is forgotten
                self._counts = Counter({k: n // 2 for k, n in self._counts.items() if n > 1})
            self._counted_at = self._counts.total()

    def _count(self, template: PodTemplate) -> None:
        models = _models(template, self._args.model_label)
        cpu, gpu = template.request.get("cpu", 0), self._gpus.request(template)
        self._counts[Shape(cpu, gpu, models)] += 1


def _shape_of(pod: TypicalPod) -> Shape:
    return Shape(pod.cpu_milli, pod.gpu_milli, tuple(sorted(pod.models)))


def _models(template: PodTemplate, label: str) -> tuple[str, ...]:
    """The GPU models to which the spec is restricted; none: all."""
    spec = template.spec
    if model := (spec.node_selector or {}).get(label):
        return (model,)
    affinity = spec.affinity and spec.affinity.node_affinity
    required = affinity and affinity.required
    found: set[str] = set()
    for term in (required and required.node_selector_terms) or ():
        own = [r for r in term.match_expressions or () if (r.key, r.operator) == (label, "In")]
        if not own:
            return ()  # this term allows all models
        found |= set(own[0].values or ())
    return tuple(sorted(found))


class Nodes(NamedTuple):
    """What the typical pods find on n nodes."""

    left: Left
    #: int64[n]: CPU left.
    cpu: Int64
    #: intp[n]: the numbers of the GPU models.
    models: Ints
    #: int32[n, 2, groups]: how many GPUs have room for a pod of the group, and the thousandths left of these.
    useful: Ints
    #: float64[n]: the thousandths that are fragments.
    fragments: Floats


class Typical:
    """The typical pods, in the form in which many nodes are compared with them at once.

    They are grouped by their GPU request: whether a node's GPUs suffice, and what of them is too small, is the same for
    a group. Which share of a group finds its model and enough CPU is looked up by model and by the rank of the CPU
    left.
    """

    def __init__(self, counts: Counter[Shape], popularity: int) -> None:
        most = sorted(counts.items(), key=lambda item: (item[1], item[0]), reverse=True)
        total, reached, chosen = sum(counts.values()), 0.0, []
        for shape, count in most:
            if reached >= total * popularity / 100:
                break
            chosen.append((shape, count))
            reached += count
        self._named = sorted({model for shape, _ in chosen for model in shape.models})
        with_gpu = [(shape, count / reached) for shape, count in chosen if shape.gpu]
        groups = sorted({shape.gpu for shape, _ in with_gpu})
        #: By group: the number of GPUs that a pod needs, each with so much room.
        room = np.array([min(gpu, WHOLE) for gpu in groups], np.int32)
        self._number = np.array([max(gpu // WHOLE, 1) for gpu in groups], np.int16)
        self._cpu = np.array(sorted({shape.cpu for shape, _ in with_gpu}), np.int64)
        #: The share of pods by model (0: one that no pod names), number of CPU requests that are met, and group.
        self._share: Floats = np.zeros((len(self._named) + 1, len(self._cpu) + 1, len(groups)))
        for shape, share in with_gpu:
            rank = int(self._cpu.searchsorted(shape.cpu)) + 1
            which = [self._named.index(model) + 1 for model in shape.models]
            self._share[which or slice(None), rank:, groups.index(shape.gpu)] += share
        #: By thousandths left of a GPU and group: whether it has room, and what of it is no fragment.
        amounts = np.arange(WHOLE + 1, dtype=np.int32)[:, None]
        has_room = (amounts >= room).astype(np.int32)
        self._useful = np.stack((has_room, amounts * has_room), axis=1)

    def models(self, values: Sequence[str | None]) -> Ints:
        """The numbers of these models."""
        numbers = {model: number + 1 for number, model in enumerate(self._named)}
        return np.array([numbers.get(model or "", 0) for model in values], np.intp)

    def measure(self, left: Left, cpu: Int64, models: Ints) -> Nodes:
        """Nodes with this CPU and these GPUs left."""
        useful = self._useful.take(left.T, axis=0).sum(axis=0, dtype=np.int32)
        total = left.sum(axis=1, dtype=np.int64)
        return Nodes(left, cpu, models, useful, self._fragments(total, useful, cpu, models))

    def shared(self, nodes: Nodes, cpu: int, request: int) -> Int64:
        """int64[n, GPUs]: the scores for a pod with a part of each GPU; -1 where the GPU has no room, or the same left
        as the one before it.
        """
        left = nodes.left
        fits = left >= request
        fits[:, 1:] &= left[:, 1:] != left[:, :-1]
        at, gpu = fits.nonzero()
        before = left[at, gpu]
        gone, new = self._useful.take(before, axis=0), self._useful.take(before - request, axis=0)
        useful = nodes.useful.take(at, axis=0) - gone + new
        total = left.sum(axis=1, dtype=np.int64)[at] - request
        fragments = self._fragments(total, useful, nodes.cpu[at] - cpu, nodes.models[at])
        out = np.full(left.shape, -1, np.int64)
        out[at, gpu] = _sigmoid(fragments - nodes.fragments[at])
        return out

    def whole(self, nodes: Nodes, cpu: int, number: int) -> Int64:
        """int64[n]: the scores for a pod with so many GPUs, or without."""
        useful = nodes.useful - number * self._useful[WHOLE]
        total = nodes.left.sum(axis=1, dtype=np.int64) - number * WHOLE
        fragments = self._fragments(total, useful, nodes.cpu - cpu, nodes.models)
        return _sigmoid(fragments - nodes.fragments)

    def _fragments(self, total: Int64, useful: Ints, cpu: Int64, models: Ints) -> Floats:
        share = self._share[models, self._cpu.searchsorted(cpu, side="right")]
        share *= useful[:, 0] >= self._number
        return total - np.einsum("ng,ng->n", useful[:, 1], share)


def _sigmoid(grown: Floats) -> Int64:
    """The score of a node whose fragments grow by so many thousandths."""
    return (100.0 / (1.0 + np.exp(grown / WHOLE))).astype(np.int64)
