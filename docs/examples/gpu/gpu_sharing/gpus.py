"""What is left of each GPU of each node. The plugins of a profile share one Gpus."""

import weakref
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from aiokube_scheduler.framework.api import Handle, NodeTable, PluginArgs, Pod, PodTemplate, View

#: A whole GPU.
WHOLE = 1000
#: More GPUs of one node are not used, whatever the node says.
MOST = 64

#: int16[n, GPUs]: thousandths that are left; 0 where a node has fewer GPUs.
Left = npt.NDArray[np.int16]
#: The GPUs of a node, by their thousandths left and the pod; None if they do not suffice.
Choose = Callable[[Sequence[int], Pod, int], tuple[int, ...] | None]


class GpuArgs(PluginArgs, frozen=True):
    """The same for all plugins of this package.

    ``resource``: the extended resource, in thousandths of a GPU. A pod requests less than 1000 of it, and shares one
    GPU, or 1000, 2000, ..., and has these GPUs alone. A node has 1000 for each GPU. ``modelLabel``: the label of nodes
    with the model of their GPUs. ``indexLabel``: the label of bound pods with the numbers of their GPUs, as in 0-1.
    """

    resource: str = "example.com/gpu-milli"
    model_label: str = "nvidia.com/gpu.product"
    index_label: str = "example.com/gpu-index"


class Gpus:
    """What is left of each GPU, by row of the node table, as the pods there need it.

    Which GPUs a pod has is decided when its node is reserved, and written to its label with its binding. A pod for
    which neither is known has the GPUs that ``tightest`` chooses.
    """

    def __init__(self, table: NodeTable, args: GpuArgs) -> None:
        self.args = args
        self._table = table
        self._left: Left = np.zeros((0, 1), np.int16)
        self._generation = -1
        #: By row: the generation at which it was counted.
        self._counted_at: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        #: By node name and pod uid.
        self._chosen: dict[str, dict[str, tuple[int, ...]]] = {}
        #: By profile name: how to choose among the GPUs of the node.
        self.choose: dict[str, Choose] = {}

    @classmethod
    def of(cls, handle: Handle, args: GpuArgs) -> "Gpus":
        """The one of all plugins of this scheduler with the same arguments."""
        known = _KNOWN.setdefault(handle.table, {})
        key = (args.resource, args.model_label, args.index_label)
        if key not in known:
            known[key] = cls(handle.table, args)
        return known[key]

    def request(self, template: PodTemplate) -> int:
        """The thousandths that such a pod requests."""
        return template.request.get(self.args.resource, 0)

    def left(self, view: View) -> Left:
        """What is left on the rows of the view, as of the view: in a dry run without the pods that it removes."""
        self._refresh()
        left = self._left[view.rows]
        for position in {position for position, _, _ in view.changes()}:
            row = int(view.rows[position])
            now = self._count(row, view.pods(position))[0][: left.shape[1]]
            left[position] = 0
            left[position, : len(now)] = now
        return left

    # ------------------------------------------------------------ a pod on its node

    def reserve(self, pod: Pod, node_name: str, profile: str) -> tuple[int, ...] | None:
        """Chooses GPUs for a pod that is counted on its node; None if they do not suffice."""
        row = self._table.row_of[node_name]
        others = [each for each in self._table.pods[row].values() if each.uid != pod.uid]
        choose, request = self.choose.get(profile, _tightest), self.request(pod.template)
        left, all_known = self._count(row, others)
        chosen = choose(left, pod, request)
        if chosen is not None:
            self._chosen.setdefault(node_name, {})[pod.uid] = chosen
            if all_known:
                _take(left, chosen, request)
                self._put(row, left)
            else:  # what the others have may be another GPU now
                self._update(row)
        return chosen

    def chosen(self, pod: Pod, node_name: str) -> tuple[int, ...] | None:
        """The GPUs that were chosen for a pod."""
        return self._chosen.get(node_name, {}).get(pod.uid)

    def forget(self, pod: Pod, node_name: str) -> None:
        """Takes the choice back."""
        if self._chosen.get(node_name, {}).pop(pod.uid, None) and node_name in self._table.row_of:
            self._update(self._table.row_of[node_name])

    # ------------------------------------------------------------ counting

    def _refresh(self) -> None:
        table = self._table
        if self._generation == table.last_generation and len(self._left) == table.capacity:
            return
        if len(self._left) == table.capacity:
            rows = table.rows_since(self._generation)
            rows = rows[self._counted_at[rows] != table.generation[rows]].tolist()
        else:
            self._left = np.zeros((table.capacity, self._left.shape[1]), np.int16)
            self._counted_at = np.zeros(table.capacity, np.int64)
            rows = range(table.size)
        for row in rows:
            self._update(row)
        self._generation = table.last_generation

    def _update(self, row: int) -> None:
        name, pods = self._table.names[row], self._table.pods[row]
        chosen = self._chosen.get(name)
        if chosen is not None and chosen.keys() != pods.keys():
            self._chosen[name] = {uid: some for uid, some in chosen.items() if uid in pods}
            if not self._chosen[name]:
                del self._chosen[name]
        self._put(row, self._count(row, pods.values())[0])

    def _put(self, row: int, left: Sequence[int]) -> None:
        if row >= len(self._left):
            return  # all rows are counted anew when they are needed
        if len(left) > self._left.shape[1]:
            wider = np.zeros((len(self._left), len(left)), np.int16)
            wider[:, : self._left.shape[1]] = self._left
            self._left = wider
        if len(left) < self._left.shape[1]:
            self._left[row] = 0
        self._left[row, : len(left)] = left
        self._counted_at[row] = self._table.generation[row]

    def _count(self, row: int, pods: Iterable[Pod]) -> tuple[list[int], bool]:
        """What these pods leave, and whether the GPUs of each are known."""
        if self._table.nodes[row] is None:
            return [], True
        resource = self.args.resource
        amount = self._table.allocatable.exact(resource, row)
        left = [WHOLE] * min(max(amount, 0) // WHOLE, MOST)
        chosen = self._chosen.get(self._table.names[row], {})
        unknown = []
        for pod in pods:
            request = pod.template.request.get(resource, 0)
            if request <= 0:
                continue
            own = chosen.get(pod.uid) or self._labelled(pod)
            if own is None:
                unknown.append((-request, pod.uid, request))
            else:
                _take(left, own, request)
        for _, _, request in sorted(unknown):
            own = tightest(left, request)
            if own is not None:
                _take(left, own, request)
        return left, not unknown

    def _labelled(self, pod: Pod) -> tuple[int, ...] | None:
        parts = pod.labels.get(self.args.index_label, "").split("-")
        if len(parts) > MOST or not all(part.isdecimal() and len(part) < 4 for part in parts):
            return None
        return tuple(map(int, parts))


_KNOWN: weakref.WeakKeyDictionary[NodeTable, dict[tuple[str, str, str], Gpus]] = (
    weakref.WeakKeyDictionary()
)


def tightest(left: Sequence[int], request: int) -> tuple[int, ...] | None:
    """The GPU with the least room that suffices, or the first whole ones."""
    if request < WHOLE:
        room = [(free, number) for number, free in enumerate(left) if free >= request]
        return (min(room)[1],) if room else None
    whole = [number for number, free in enumerate(left) if free == WHOLE]
    return None if len(whole) * WHOLE < request else tuple(whole[: request // WHOLE])


def _tightest(left: Sequence[int], _pod: Pod, request: int) -> tuple[int, ...] | None:
    return tightest(left, request)


def _take(left: list[int], own: Iterable[int], request: int) -> None:
    count, each = len(left), min(request, WHOLE)
    for number in own:
        if number < count:
            left[number] = max(0, left[number] - each)
