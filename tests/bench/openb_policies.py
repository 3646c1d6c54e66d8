"""The policies of tests.bench.openb, each a plugin as third parties write them; FGD and BestFit are those of
docs/examples/gpu.

Formulas: "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent" (USENIX ATC
'23), section 6.1, as its authors' simulator computes them (hkust-adsl/kubernetes-scheduler-simulator,
pkg/simulator/plugin).
"""

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from app.framework.api import (
    SUCCESS,
    CycleState,
    Handle,
    Int64,
    NodeLocal,
    Pod,
    Status,
    View,
)
from tests.markdown import ROOT

sys.path.insert(0, str(ROOT / "docs" / "examples" / "gpu"))

from gpu_sharing.best_fit import GpuBestFit
from gpu_sharing.fragmentation import GpuFragmentation
from gpu_sharing.gpus import WHOLE, GpuArgs, Gpus, tightest
from gpu_sharing.sharing import GpuSharing

LARGEST_CPU_MILLI: Final = 128_000
LARGEST_GPU_MILLI: Final = 8000


class RandomNode:
    """Any feasible node, and any GPU with enough room."""

    NAME = "RandomNode"

    def __init__(self, args: object, handle: Handle) -> None:
        self._rng = handle.rng
        Gpus.of(handle, GpuArgs.read(args)).choose[handle.profile_name] = self._any

    def pre_score(self, state: CycleState, pod: Pod, view: View) -> Status:
        state.write(self.NAME, int(view.rows[int(self._rng.integers(view.n))]))
        return SUCCESS

    def score(self, state: CycleState, pod: Pod, view: View) -> Int64:
        return np.where(view.rows == state.read(self.NAME), 100, 0)

    def _any(self, left: Any, _pod: Pod, request: int) -> tuple[int, ...] | None:
        room = [number for number, free in enumerate(left) if free >= request]
        if request >= WHOLE or not room:
            return tightest(left, request)
        return (room[int(self._rng.integers(len(room)))],)


class _OfGpus(NodeLocal):
    """Scores by what is left of the node's GPUs."""

    def __init__(self, args: object, handle: Handle) -> None:
        self._gpus = Gpus.of(handle, GpuArgs.read(args))


class DotProduct(_OfGpus):
    """Prefers nodes whose free CPU and GPU (summed up) have the smallest inner product with the pod's requests.

    Grandl et al., "Multi-resource packing for cluster schedulers" (SIGCOMM '14); normalised by the largest node.
    """

    NAME = "DotProduct"

    def score(self, state: CycleState, pod: Pod, view: View) -> Int64:
        cpu = (view.allocatable("cpu") - view.requested("cpu")) / LARGEST_CPU_MILLI
        gpu = self._gpus.left(view).sum(axis=1) / LARGEST_GPU_MILLI
        request = pod.template.request.get("cpu", 0) / LARGEST_CPU_MILLI
        product = cpu * request + gpu * (self._gpus.request(pod.template) / LARGEST_GPU_MILLI)
        return (100.0 * (1 - product / 2)).astype(np.int64)


class GpuClustering(_OfGpus):
    """Prefers nodes with pods that ask for GPUs alike, then idle ones, and among alike ones those with the least GPU
    left.

    Xiao et al., "Gandiva" (OSDI '18).
    """

    NAME = "GpuClustering"

    def __init__(self, args: object, handle: Handle) -> None:
        super().__init__(args, handle)
        #: By row: its generation, and the kinds of its pods.
        self._known: dict[int, tuple[int, frozenset[int]]] = {}

    def score(self, state: CycleState, pod: Pod, view: View) -> Int64:
        request = self._gpus.request(pod.template)
        if not request:
            return np.zeros(view.n, np.int64)
        alike = _kind(request)
        base = np.empty(view.n, np.int64)
        for position, found in enumerate(self._kinds(view)):
            if alike in found:
                base[position] = 75 if len(found) == 1 else 50
            else:
                base[position] = 0 if found else 25
        left = self._gpus.left(view).sum(axis=1, dtype=np.int64)
        return base + 25 * (LARGEST_GPU_MILLI - left) // LARGEST_GPU_MILLI

    def _kinds(self, view: View) -> Iterator[frozenset[int]]:
        """How the pods on each node ask for GPUs."""
        changed = {position for position, _, _ in view.changes()}
        generations = view.table.generation[view.rows].tolist()
        for position, (row, now) in enumerate(zip(view.rows.tolist(), generations, strict=True)):
            at, kinds = self._known.get(row, (-1, frozenset()))
            if at != now or position in changed:
                requests = [self._gpus.request(pod.template) for pod in view.pods(position)]
                kinds = frozenset(_kind(request) for request in requests if request)
                if position not in changed:
                    self._known[row] = now, kinds
            yield kinds


def _kind(request: int) -> int:
    """0 for a part of a GPU, else the thousandths."""
    return request if request >= WHOLE else 0


class GpuPacking(_OfGpus):
    """Prefers GPUs that are shared already, then free ones of nodes in use, then free nodes.

    Weng et al., "MLaaS in the wild" (NSDI '22).
    """

    NAME = "GpuPacking"

    def score(self, state: CycleState, pod: Pod, view: View) -> Int64:
        request = self._gpus.request(pod.template)
        if not request:
            return np.zeros(view.n, np.int64)
        left = self._gpus.left(view)
        free = np.count_nonzero(left == WHOLE, axis=1)
        gpus = view.allocatable(self._gpus.args.resource) // WHOLE
        if request < WHOLE:
            room = np.where(left >= request, left, 2 * WHOLE).min(axis=1)
            shared = np.maximum(100 - room.astype(np.int64) * 100 // WHOLE // 10, 50)
            used = np.where(room < WHOLE, shared, 49)
        else:
            used = np.full(view.n, max(50 - request // WHOLE, 33))
        return np.where(free == gpus, np.maximum(33 - free, free), used).astype(np.int64)


PLUGINS: Final[Mapping[str, type]] = {
    cls.NAME: cls
    for cls in (
        *(GpuSharing, GpuFragmentation, GpuBestFit),
        *(RandomNode, DotProduct, GpuClustering, GpuPacking),
    )
}
#: Policy -> score plugins and their weights, without the default ones.
POLICIES: Final[Mapping[str, Mapping[str, int]]] = {
    "Random": {RandomNode.NAME: 1000},
    "DotProd": {DotProduct.NAME: 1000},
    "GpuClustering": {GpuClustering.NAME: 1000},
    "GpuPacking": {GpuPacking.NAME: 1000},
    "BestFit": {GpuBestFit.NAME: 1000},
    "FGD": {GpuFragmentation.NAME: 1000},
    "FGD+BestFit": {GpuFragmentation.NAME: 1000, GpuBestFit.NAME: 1},
}
#: Policy -> args of NodeResourcesFit in kube-scheduler's default profile.
_THREE: Final = [{"name": name, "weight": 1} for name in ("cpu", "memory", GpuArgs().resource)]
STOCK: Final[Mapping[str, Mapping[str, Any]]] = {
    "Default": {},
    "MostAllocated": {"scoringStrategy": {"type": "MostAllocated", "resources": _THREE}},
    "RequestedToCapacityRatio": {
        "scoringStrategy": {
            "type": "RequestedToCapacityRatio",
            "resources": _THREE,
            "requestedToCapacityRatio": {
                "shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
            },
        }
    },
}
