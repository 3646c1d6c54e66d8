"""What a device driver would offer on made-up nodes: a class, and a slice of devices for each node (KEP-4381).

Driver, class and devices are named as in the Kubernetes documentation, so that its manifests work as they are.
"""

from collections.abc import Iterator
from typing import Final
from uuid import NAMESPACE_DNS, uuid5

from app.sim.api import Api
from app.sim.resources.deletion import DeleteOptions, delete
from app.sim.resources.kinds import NODES, RESOURCE_SLICES
from app.sim.store import Change, Object

DRIVER: Final = "gpu.example.com"
_MOST_IN_A_SLICE: Final = 128


def device_class() -> Object:
    """The class of all devices of the driver, named like it."""
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    return {"metadata": {"name": DRIVER}, "spec": {"selectors": [selector]}}


def make_slices(node: Object, count: int) -> Iterator[Object]:
    """Yields the slices with the devices of a node, which owns them."""
    name, uid = (node["metadata"][part] for part in ("name", "uid"))
    parts = -(-count // _MOST_IN_A_SLICE)
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid, "controller": True}
    for part in range(parts):
        numbers = range(part * _MOST_IN_A_SLICE, min((part + 1) * _MOST_IN_A_SLICE, count))
        yield {
            "metadata": {"name": _slice_name(name, part), "ownerReferences": [owner]},
            "spec": {
                "driver": DRIVER,
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": parts},
                "devices": [_device(name, number) for number in numbers],
            },
        }


def _slice_name(node: str, part: int) -> str:
    return f"{node}-{DRIVER}-{part}"


def _device(node: str, number: int) -> Object:
    return {
        "name": f"gpu-{number}",
        "attributes": {
            "index": {"int": number},
            "uuid": {"string": f"gpu-{uuid5(NAMESPACE_DNS, f'{number}.{node}')}"},
            "model": {"string": "LATEST-GPU-MODEL"},
            "driverVersion": {"version": "1.0.0"},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    }


class SliceKeeper:
    """Removes the slices of nodes that have gone, as the garbage collector does."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._nodes = api.store[NODES.storage]

    def start(self) -> None:
        """Begins to follow the nodes."""
        self._nodes.listeners[self._on_node] = None

    def stop(self) -> None:
        """Leaves the slices as they are."""
        self._nodes.listeners.pop(self._on_node, None)

    def _on_node(self, change: Change) -> None:
        part = 0
        while change.type == "DELETED" and self._removed(_slice_name(change.key[1], part)):
            part += 1

    def _removed(self, name: str) -> bool:
        """Whether there was such a slice."""
        found = self._api.find(RESOURCE_SLICES, "", name)
        if found is not None:
            delete(self._api, RESOURCE_SLICES, "", name, DeleteOptions())
        return found is not None
