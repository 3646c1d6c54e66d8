"""Nodes with devices, claims for them, and pods that are decided and bound by DynamicResources alone."""

from app.framework.handle import Handle
from app.framework.interface import CycleState
from app.framework.runner import Framework, PreFilterRejected
from app.framework.testing import FakeCluster, FakeEffects, make_node, make_object, make_pod
from app.model.devices import DeviceClass, ResourceClaim, ResourceSlice
from app.model.features import RECORDED
from app.plugins.dynamic_resources import DynamicResources
from app.state.nominations import NO_PODS
from tests.core.framework.coroutines import finish

DRIVER = "gpu.example.com"
NOW = 1_700_000_000.0


def a_slice(node, *devices, pool=None, **spec):
    """A pool of its own on a node; devices by name or as the API has them."""
    pool = pool or node
    named = [{"name": d} if isinstance(d, str) else d for d in devices]
    manifest = {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
        "devices": named,
        **spec,
    }
    return make_object(ResourceSlice, {"metadata": {"name": f"{pool}-slice"}, "spec": manifest})


def a_class(name="gpu", **spec):
    return make_object(DeviceClass, {"metadata": {"name": name}, "spec": spec})


def exactly(name="r", device_class="gpu", **fields):
    request = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": 1}
    return {"name": name, "exactly": request | fields}


def a_claim(name="c", *requests, version="5", status=None, **metadata):
    return make_object(
        ResourceClaim,
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid-of-{name}",
                "resourceVersion": version,
                **metadata,
            },
            "spec": {"devices": {"requests": list(requests or (exactly(),))}},
            "status": status or {},
        },
    )


def allocated(node, *devices, reserved=(), timestamp=None, **result):
    """The status of a claim that has devices of a node."""
    results = [
        {"request": "r", "driver": DRIVER, "pool": node, "device": d, **result} for d in devices
    ]
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    allocation = {
        "devices": {"results": results},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }
    if timestamp is not None:
        allocation["allocationTimestamp"] = timestamp
    consumers = [{"resource": "pods", "name": uid, "uid": uid} for uid in reserved]
    return {"allocation": allocation, "reservedFor": consumers}


def using(*claims, name="pod", **spec):
    entries = [{"name": f"e{n}", "resourceClaimName": c} for n, c in enumerate(claims)]
    return make_pod(name, spec={"resourceClaims": entries, **spec})


class Watched(FakeEffects):
    """Effects whose writes the watch shows when time passes."""

    def __init__(self, cluster, now=NOW):
        super().__init__(now)
        self._cluster = cluster
        for claim in cluster.handle.cluster.resource_claims:
            self.resource_claims.store(claim)

    async def sleep(self, seconds):
        await super().sleep(seconds)
        self.show()

    def show(self):
        self._cluster.store(*self.resource_claims.objects.values())


class Clock:
    def __init__(self):
        self.now, self.seconds = NOW, 0.0

    def monotonic(self):
        return self.seconds

    def wall(self):
        return self.now


class Devices:
    """A cluster with a plugin, and what becomes of pods."""

    def __init__(self, *objects, nodes="abc", args=None, features=RECORDED):
        self.clock = Clock()
        self.cluster = FakeCluster(*map(make_node, nodes), clock=self.clock)
        self.cluster.store(a_class(), *objects)
        known = self.cluster.handle
        handle = Handle(known.table, known.cluster, "p", clock=self.clock, features=features)
        self.plugin = DynamicResources(args, handle)
        self.tracker = self.cluster.handle.cluster.devices
        self.effects = Watched(self.cluster)

    def judge(self, pod):
        """Why not, by node; a fault's text where all is at fault."""
        return {n: s.message for n, s in self.cluster.judge(self.plugin, pod).items()}

    def find(self, pod):
        """The cycle state after Filter."""
        framework: Framework = self.cluster.framework(self.plugin)
        memo = framework.memo(pod)
        state = CycleState(memo.local.state)
        try:
            framework.filter(state, pod, memo, NO_PODS)
        except PreFilterRejected:
            return state
        return state

    def decide(self, pod, node):
        """The state of a pod that was decided: its devices are set aside."""
        state = self.find(pod)
        status = self.plugin.reserve(state, pod, node)
        assert status.ok, status
        return state

    def bind(self, state, pod, node):
        return finish(self.plugin.pre_bind(state, pod, node, self.effects))

    def undo(self, state, pod, node):
        finish(self.plugin.undo_pre_bind(state, pod, node, self.effects))
        self.plugin.unreserve(state, pod, node)

    def after(self, state, pod):
        """What PostFilter says."""
        return finish(self.plugin.post_filter(state, pod, None, self.effects)).status

    def in_use(self):
        return {
            f"{pool}/{device}"
            for (_, pool), use in self.tracker.allocated.pools.items()
            for device in use.devices
        }

    def written(self, name="c"):
        return self.effects.resource_claims.objects["default", name]
