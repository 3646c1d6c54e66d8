"""Extended resources that are devices, for resource scores: how many a node can access, and how many are in use
(KEP-5004).

As in kube-scheduler's scores, every slice counts, whatever its pool's generation
(docs/spec/plugins/node-resources-fit.md#score).
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final

import msgspec
import numpy as np

from app.cel.devices import DeviceSelectorError, Selectors
from app.model.devices import Device, DeviceClass, ResourceSlice
from app.model.objects import NodeSelector
from app.plugins.helpers.node_selector import compile_node_selector
from app.state.cluster import Cluster
from app.state.columns.arrays import Int64
from app.state.columns.labels import Mask
from app.state.devices import PoolKey, may_be_devices
from app.state.table import NodeTable
from app.state.view import View


class _Reach(msgspec.Struct, frozen=True):
    """The nodes that can access some devices: by name, or by selector; all nodes if both are None."""

    node: str | None = None
    selector: NodeSelector | None = None

    def rows(self, table: NodeTable) -> int | Mask | None:
        """A row, or bool[size]; None for no node."""
        if self.node is not None:
            return table.row_of.get(self.node)
        if self.selector is None:
            return np.ones(table.size, bool)
        return compile_node_selector(self.selector).matches(View.everything(table))


class _Part(msgspec.Struct, frozen=True):
    """Devices of one pool that the same nodes can access."""

    pool: PoolKey
    rows: int | Mask
    names: frozenset[str]


class _Counts:
    """The devices of one class by row."""

    def __init__(
        self, table: NodeTable, parts: Iterable[_Part], broken: Iterable[int | Mask]
    ) -> None:
        """``broken``: rows with a device for which a selector of the class fails; they count as having no device."""
        self._by_pool: Final[defaultdict[PoolKey, list[_Part]]] = defaultdict(list)
        self._broken: Final = tuple(broken)
        self.capacity: Final = np.zeros(table.size, np.int64)
        self.in_use: Final = np.zeros(table.size, np.int64)
        #: The pools with devices of the class.
        self.pools: Final = self._by_pool.keys()
        self._used: Final[dict[PoolKey, list[int]]] = {}
        for part in parts:
            self._by_pool[part.pool].append(part)
            self.capacity[part.rows] += len(part.names)
        for rows in self._broken:
            self.capacity[rows] = 0

    def use(self, pool: PoolKey, devices: frozenset[str]) -> None:
        """Sets the devices of a pool that are in use."""
        parts = self._by_pool.get(pool, ())
        now = [len(part.names & devices) for part in parts]
        before = self._used.get(pool) or [0] * len(parts)
        self._used[pool] = now
        for part, was, is_ in zip(parts, before, now, strict=True):
            self.in_use[part.rows] += is_ - was


class DeviceCounts:
    """The device counts for the resources that a plugin scores."""

    def __init__(self, table: NodeTable, cluster: Cluster, resources: Iterable[str]) -> None:
        """``resources``: the names of the scored resources."""
        self._table: Final = table
        self._slices: Final = cluster.resource_slices
        self._classes: Final = cluster.devices.classes
        self._allocated: Final = cluster.devices.allocated
        #: Those that a DeviceClass can provide.
        self._names: Final = frozenset(name for name in resources if may_be_devices(name))
        self._selectors: Final = Selectors()
        self._counts: Final[dict[str, _Counts]] = {}
        self._changed: Final[set[PoolKey]] = set()
        self._built_for: tuple[int, int, int] | None = None
        self._nodes: Final[dict[int, tuple[str, dict[str, str]]]] = {}
        self._nodes_at = -1
        self._nodes_version = 0
        if self._names:
            self._allocated.follow(self._changed.add)

    def epoch(self) -> Hashable:
        """Changes whenever counts may change; constant if no DeviceClass provides a scored resource."""
        if not self._names or all(self._classes.get(name) is None for name in self._names):
            return None
        return (self._slices.version, self._classes.version, self._allocated.version)

    def fill_in(
        self, names: Sequence[str], view: View, capacity: Int64, used: Int64
    ) -> tuple[Int64, Int64]:
        """Both int64[k, n] with the counts of devices that nodes can access but do not advertise."""
        if not self._names:
            return capacity, used
        devices = [
            (k, name)
            for k, name in enumerate(names)
            if name in self._names and self._classes.get(name) is not None
        ]
        if not devices:
            return capacity, used
        self._refresh()
        capacity, used = capacity.copy(), used.copy()
        for k, name in devices:
            counts = self._of(name)
            there = counts.capacity[view.rows]
            chosen = (capacity[k] == 0) & (there > 0)
            capacity[k, chosen] = there[chosen]
            used[k, chosen] = counts.in_use[view.rows][chosen]
        return capacity, used

    # ------------------------------------------------------------ keeping up

    def _refresh(self) -> None:
        self._look_at_nodes()
        now = (self._slices.version, self._classes.version, self._nodes_version)
        if now != self._built_for:
            self._built_for = now
            self._counts.clear()
            self._changed.clear()
        for counts in self._counts.values():
            for pool in self._changed:
                counts.use(pool, self._in_use(pool))
        self._changed.clear()

    def _look_at_nodes(self) -> None:
        """Checks whether any node was added, removed or relabelled."""
        table = self._table
        if table.last_generation == self._nodes_at:
            return
        for row in table.rows_since(self._nodes_at).tolist():
            node = table.nodes[row]
            known = (node.name, node.labels) if node is not None else ("", {})
            if self._nodes.get(row) != known:
                self._nodes[row] = known
                self._nodes_version += 1
        self._nodes_at = table.last_generation

    def _of(self, resource: str) -> _Counts:
        counts = self._counts.get(resource)
        if counts is None:
            device_class = self._classes.get(resource)
            broken: list[int | Mask] = []
            parts = [] if device_class is None else list(self._parts(device_class, broken))
            counts = self._counts[resource] = _Counts(self._table, parts, broken)
            for pool in counts.pools:
                counts.use(pool, self._in_use(pool))
        return counts

    def _in_use(self, pool: PoolKey) -> frozenset[str]:
        use = self._allocated.pool(*pool)
        return frozenset(use.devices) | frozenset(use.shares)

    # ------------------------------------------------------------ slices

    def _parts(self, device_class: DeviceClass, broken: list[int | Mask]) -> Iterator[_Part]:
        for one in self._slices:
            for reach, devices in _reaches(one):
                rows = reach.rows(self._table)
                if rows is None:
                    continue
                try:
                    names = [d.name for d in devices if self._matches(device_class, one, d)]
                except DeviceSelectorError:
                    broken.append(rows)
                    continue
                yield _Part((one.spec.driver, one.spec.pool.name), rows, frozenset(names))

    def _matches(self, device_class: DeviceClass, one: ResourceSlice, device: Device) -> bool:
        return all(
            self._selectors.matches(selector.cel.expression, one.spec.driver, device)
            for selector in device_class.spec.selectors or ()
            if selector.cel is not None
        )


def _reaches(one: ResourceSlice) -> Iterator[tuple[_Reach, Sequence[Device]]]:
    """The devices of a slice by the nodes that can access them."""
    spec = one.spec
    devices = spec.devices or ()
    if not spec.per_device_node_selection:
        yield _reach(spec.node_name, spec.node_selector, all_nodes=spec.all_nodes), devices
        return
    for device in devices:
        inaccessible = not (device.all_nodes or device.node_name or device.node_selector)
        if not inaccessible:
            reach = _reach(device.node_name, device.node_selector, all_nodes=device.all_nodes)
            yield reach, (device,)


def _reach(node: str | None, selector: NodeSelector | None, *, all_nodes: bool | None) -> _Reach:
    if all_nodes:
        return _Reach()
    return _Reach(node=node) if node else _Reach(selector=selector)
