"""Many pods as columns, so that a view can imagine them away or back with a handful of array operations."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from app.model.pod import Pod
from app.model.requests import PodResources
from app.state.columns.families import Counter
from app.state.columns.resources import Int64


class PodBatch:
    """Pods by index, and what they occupy.

    ``amounts``: int64[m] by resource, in scheduler units. ``nonzero``: int64[2, m], milli-CPUs and bytes, with stand-ins for
    containers that ask for none. ``with_ports``: the indices of the pods that claim host ports, ascending.
    """

    def __init__(self, pods: Sequence[Pod]) -> None:
        self.pods: Final = pods
        kinds, codes = _kinds(pods)
        self.amounts: Final = _amounts(kinds, codes)
        nonzero = [(kind.nonzero_cpu, kind.nonzero_memory) for kind in kinds]
        self.nonzero: Final[Int64] = np.array(nonzero, np.int64).reshape(-1, 2).T[:, codes]
        self.with_ports: Final = [i for i, pod in enumerate(pods) if pod.template.host_ports]
        self._times: dict[int, tuple[Counter, Int64]] = {}

    def __len__(self) -> int:
        return len(self.pods)

    def times(self, counter: Counter) -> Int64:
        """int64[m]: how often the counter counts each pod."""
        known = self._times.get(id(counter))
        if known is None:
            times = np.fromiter(map(counter.times, self.pods), np.int64, len(self.pods))
            known = self._times[id(counter)] = (counter, times)
        return known[1]


def _kinds(pods: Sequence[Pod]) -> tuple[list[PodResources], npt.NDArray[np.intp]]:
    """The distinct amounts that pods occupy, and for each pod which of them."""
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


def _amounts(kinds: Sequence[PodResources], codes: npt.NDArray[np.intp]) -> dict[str, Int64]:
    by_kind: dict[str, Int64] = {}
    for code, kind in enumerate(kinds):
        for name, amount in kind.requested:
            if name not in by_kind:
                by_kind[name] = np.zeros(len(kinds), np.int64)
            by_kind[name][code] = amount
    return {name: amounts[codes] for name, amounts in by_kind.items()}
