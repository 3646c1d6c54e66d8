"""Pods as columns, so that a dry run can add or remove many of them with a few array operations."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from app.model.pod import Pod
from app.model.requests import CPU, MEMORY, PodResources
from app.state.columns.arrays import Int64
from app.state.columns.families import PodCounter

#: A resource that fewer than one in this many pods request is kept by pod instead of in an array.
_PODS_PER_ENTRY: Final = 24


class PodBatch:
    """Pods by index, and their requests in scheduler units.

    ``amounts``: int64[m] by resource, for common resources; ``rare``: the pod's requests for other resources, by index.
    ``nonzero``: int64[m] of cpu and memory, with kube-scheduler's defaults for containers without a request.
    ``with_ports``: the indices of the pods with host ports, ascending.
    """

    def __init__(self, pods: Sequence[Pod]) -> None:
        self.pods: Final = pods
        kinds, codes = _kinds(pods)
        common = _common(kinds, codes)
        self.amounts: Final = _amounts(kinds, codes, common)
        self.rare: Final = _rare(kinds, codes, common)
        self.nonzero: Final[Mapping[str, Int64]] = {
            CPU: np.array([kind.nonzero_cpu for kind in kinds], np.int64)[codes],
            MEMORY: np.array([kind.nonzero_memory for kind in kinds], np.int64)[codes],
        }
        self.with_ports: Final = [i for i, pod in enumerate(pods) if pod.template.host_ports]
        self._times: dict[int, tuple[PodCounter, Int64]] = {}

    def __len__(self) -> int:
        return len(self.pods)

    def times(self, counter: PodCounter) -> Int64:
        """int64[m]: how often the counter counts each pod."""
        known = self._times.get(id(counter))
        if known is None:
            times = np.fromiter(map(counter.times, self.pods), np.int64, len(self.pods))
            known = self._times[id(counter)] = (counter, times)
        return known[1]


def _kinds(pods: Sequence[Pod]) -> tuple[list[PodResources], npt.NDArray[np.intp]]:
    """The distinct requests of the pods, and for each pod the index of its requests."""
    kinds: list[PodResources] = []
    number: dict[int, int] = {}
    codes = []
    for pod in pods:
        resources = pod.resources
        code = number.get(id(resources))
        if code is None:
            code = number[id(resources)] = len(kinds)
            kinds.append(resources)
        codes.append(code)
    return kinds, np.array(codes, np.intp)


def _common(kinds: Sequence[PodResources], codes: npt.NDArray[np.intp]) -> frozenset[str]:
    """The resources for which an array takes less memory than one entry per requesting pod."""
    naming: dict[str, int] = {}
    for kind, count in zip(kinds, np.bincount(codes).tolist(), strict=True):
        for name, _ in kind.requested:
            naming[name] = naming.get(name, 0) + count
    return frozenset(
        name for name, count in naming.items() if count * _PODS_PER_ENTRY >= len(codes)
    )


def _amounts(
    kinds: Sequence[PodResources], codes: npt.NDArray[np.intp], common: frozenset[str]
) -> dict[str, Int64]:
    by_kind = {name: np.zeros(len(kinds), np.int64) for name in sorted(common)}
    for code, kind in enumerate(kinds):
        for name, amount in kind.requested:
            if name in common:
                by_kind[name][code] = amount
    return {name: amounts[codes] for name, amounts in by_kind.items()}


def _rare(
    kinds: Sequence[PodResources], codes: npt.NDArray[np.intp], common: frozenset[str]
) -> dict[int, tuple[tuple[str, int], ...]]:
    rest = [tuple(pair for pair in kind.requested if pair[0] not in common) for kind in kinds]
    if not any(rest):
        return {}
    return {index: rest[code] for index, code in enumerate(codes.tolist()) if rest[code]}
