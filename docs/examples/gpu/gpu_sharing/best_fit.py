"""GpuBestFit: prefers the node with the least CPU and GPU left, the second key of GpuFragmentation.

Formula: "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent" (USENIX ATC
'23), section 6.1, BestFit: half of the CPU left over that of the largest node plus half of the GPUs left over those of
the largest node, as a percentage; normalised between the lowest and the highest score.
"""

import numpy as np

from aiokube_scheduler.framework.api import CycleState, Handle, Int64, NodeLocal, Pod, View
from gpu_sharing.gpus import GpuArgs, Gpus


class GpuBestFitArgs(GpuArgs, frozen=True):
    """``largestCpuMilli``, ``largestGpuMilli``: those of the largest node."""

    largest_cpu_milli: int = 128_000
    largest_gpu_milli: int = 8000

    def __post_init__(self) -> None:
        if self.largest_cpu_milli <= 0 or self.largest_gpu_milli <= 0:
            raise ValueError("the largest node must have CPU and GPUs")


class GpuBestFit(NodeLocal):
    """Scores by what would be left."""

    NAME = "GpuBestFit"

    def __init__(self, args: object, handle: Handle) -> None:
        self._args = GpuBestFitArgs.read(args)
        self._gpus = Gpus.of(handle, self._args)

    def score(self, state: CycleState, pod: Pod, view: View) -> Int64:
        """int64[n]: 100 if nothing would be left."""
        request = pod.template.request
        cpu = view.allocatable("cpu") - view.requested("cpu") - request.get("cpu", 0)
        gpu = self._gpus.left(view).sum(axis=1, dtype=np.int64)
        gpu -= self._gpus.request(pod.template)
        left = cpu / self._args.largest_cpu_milli * 0.5 + gpu / self._args.largest_gpu_milli * 0.5
        return ((1.0 - left) * 100.0).astype(np.int64)

    def normalize(self, state: CycleState, pod: Pod, scores: Int64, view: View) -> Int64:
        """int64[n]: 0 for the lowest score, 100 for the highest."""
        lowest, highest = scores.min(initial=2**31), scores.max(initial=-(2**31))
        if highest <= lowest:
            return np.zeros(len(scores), np.int64)
        return (scores - lowest) * 100 // (highest - lowest)
