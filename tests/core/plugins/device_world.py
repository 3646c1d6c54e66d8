"""Small clusters of devices, spelled as in YAML, for allocating from."""

import itertools

import msgspec
import numpy as np

from app.cel.devices import Selectors
from app.model.devices import DeviceClass, ResourceClaim, ResourceSlice
from app.model.features import OLDEST, Features
from app.model.objects import Node
from app.plugins.dynamic_resources.allocator import (
    ALLOCATED,
    ERROR,
    FAILED,
    TIMED_OUT,
    Allocator,
)
from app.plugins.dynamic_resources.budget import AllocationTimeout, Budget
from app.plugins.dynamic_resources.search import AllocationError, AllocationFailed
from app.state.devices import AllocatedState
from app.state.lister import Lister
from app.state.table import NodeTable
from app.wire.kube import decoder_for

DRIVER = "gpu.example.com"
_FAULTS = {ERROR: AllocationError, FAILED: AllocationFailed}

NUMA = {"matchAttribute": f"{DRIVER}/numa"}
DISTINCT = {"distinctAttribute": f"{DRIVER}/numa"}
COUNTER_SET = ({"name": "memory", "counters": {"gib": {"value": "4"}}},)


def made(kind, body):
    return decoder_for(kind).decode(msgspec.json.encode(body))


def node(name, **labels):
    return made(Node, {"metadata": {"name": name, "labels": labels}})


def device(name, *, capacity=None, **fields):
    """Attributes are those fields whose values are plain; ``capacity`` maps names to quantities or bodies."""
    attributes = {}
    for key in [key for key, value in fields.items() if type(value) in {str, int, bool}]:
        if key not in {"bindsToNode", "allowMultipleAllocations", "nodeName", "allNodes"}:
            value = fields.pop(key)
            attributes[key] = {type(value).__name__.replace("str", "string"): value}
    body = {"name": name, "attributes": attributes, **fields}
    if capacity is not None:
        body["capacity"] = {
            key: value if isinstance(value, dict) else {"value": value}
            for key, value in capacity.items()
        }
    return body


def slice_of(name, *devices, pool="p", driver=DRIVER, generation=1, count=1, **spec):
    """Reached from everywhere, unless it says otherwise."""
    if not spec.keys() & {"nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"}:
        spec["allNodes"] = True
    pool = {"name": pool, "generation": generation, "resourceSliceCount": count}
    body = {"driver": driver, "pool": pool, "devices": devices, **spec}
    return made(ResourceSlice, {"metadata": {"name": name}, "spec": body})


def device_class(name="gpu", *expressions, **spec):
    selectors = [{"cel": {"expression": each}} for each in expressions]
    body = {"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}
    return made(DeviceClass, body)


def asked(count=1, *expressions, device_class="gpu", **fields):
    """What a request, or an alternative, asks for; no count means all."""
    mode = {"allocationMode": "All"}
    if count is not None:
        mode = {"allocationMode": "ExactCount", "count": count}
    selectors = [{"cel": {"expression": each}} for each in expressions]
    return {"deviceClassName": device_class, **mode, "selectors": selectors, **fields}


def claim(*requests, name="c", **devices):
    """Requests are called r0, r1, ...; one that is a list has alternatives a0, a1, ..."""
    spelled = []
    for number, each in enumerate(requests):
        if isinstance(each, list):
            body = {
                "firstAvailable": [
                    {"name": f"a{n}", **alternative} for n, alternative in enumerate(each)
                ]
            }
        else:
            body = {"exactly": each}
        spelled.append({"name": f"r{number}", **body})
    return made(
        ResourceClaim,
        {
            "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"},
            "spec": {"devices": {"requests": spelled, **devices}},
        },
    )


class Patience:
    """Lets a search take its time, or only so many looks at the clock.

    ``may_pause`` and ``limit`` as for Budget.
    """

    may_pause = False
    limit = 0.0

    def __init__(self, looks=None, now=0.0):
        self.looks, self.time = looks, now

    def start(self):
        pass

    def stop(self):
        pass

    def expired(self):
        if self.looks is None:
            return False
        self.looks -= 1
        return self.looks < 0

    pause_if_expired = Budget.pause_if_expired

    def now(self):
        return self.time


class DeviceWorld:
    """Nodes, slices, classes and what is in use of the devices."""

    def __init__(self, *slices, nodes=("n1",), classes=(), version=OLDEST):
        self.rules = Features.of(version).rules
        self.table = NodeTable()
        self.slices, self.classes = Lister(), Lister()
        self.in_use = AllocatedState()
        for each in nodes:
            self.table.set_node(node(each) if isinstance(each, str) else each)
        for each in slices:
            self.slices.store(each)
        for each in classes or [device_class()]:
            self.classes.store(each)
        self.allocator = self.new_allocator()

    def new_allocator(self):
        numbers = itertools.count(1)
        return Allocator(
            self.table,
            self.slices,
            self.classes,
            self.in_use,
            Selectors(),
            share_id=lambda: f"share-{next(numbers)}",
            rules=self.rules,
        )

    def allocate(self, *claims, on="n1", budget=None):
        """One AllocationResult per claim, or None. Raises what ended the search."""
        rows = np.array([self.table.row_of[on]], np.intp)
        found = self.allocator.search(rows, claims, budget or Patience())
        code, text = int(found.codes[0]), found.text(int(found.kinds[0]))
        if code == TIMED_OUT:
            raise AllocationTimeout
        if code in _FAULTS:
            raise _FAULTS[code](text)
        return found.results(0) if code == ALLOCATED else None

    def search(self, *claims, budget=None, allocator=None):
        allocator = allocator or self.allocator
        return allocator.search(self.table.all_rows(), claims, budget or Patience())

    def use(self, allocations):
        for each in allocations:
            self.in_use.add(each)

    def devices(self, *claims, on="n1"):
        """Names of the devices found, claim by claim, or None."""
        found = self.allocate(*claims, on=on)
        if found is None:
            return None
        names = [[one.device for one in each.devices.results or ()] for each in found]
        return names[0] if len(claims) == 1 else names
