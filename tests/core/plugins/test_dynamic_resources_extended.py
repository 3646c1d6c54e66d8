"""Extended resources that are devices: which requests a pod's containers make, and what becomes of their claim."""

import pytest

from app.framework.testing import make_node, make_pod
from app.model.devices import EXTENDED_RESOURCE_CLAIM, FINALIZER, ResourceClaim
from app.model.status import Code, SchedulingError
from app.plugins.dynamic_resources.allocator import Allocator, _Kinds
from app.plugins.dynamic_resources.extended_resources import RequestMapping, requests_for
from app.plugins.node_resources_fit import NodeResourcesFit
from app.state.cluster import Cluster
from tests.core.plugins.claim_world import Devices, a_claim, a_class, a_slice, exactly

GPU, NIC = "example.com/gpu", "example.com/nic"


def container(name, *, always=False, **amounts):
    requests = {{"gpu": GPU, "nic": NIC}.get(key, key): value for key, value in amounts.items()}
    made = {"name": name, "resources": {"requests": requests}}
    return made | ({"restartPolicy": "Always"} if always else {})


def pod(*containers, init=(), **spec):
    return make_pod(
        spec={"containers": list(containers), "initContainers": list(init), **spec},
    )


def requests(*containers, init=(), resources=(GPU, NIC)):
    """(name, count) of the requests, and the mappings."""
    cluster = Cluster()
    for one in (
        a_class("gpus", extendedResourceName=GPU),
        a_class("nics", extendedResourceName=NIC),
    ):
        cluster.device_classes.store(one)
    made = requests_for(pod(*containers, init=init).template, resources, cluster.devices.classes)
    return (
        [(request.name, request.exactly.count) for request in made.requests],
        [(m.container, m.request) for m in made.mappings],
    )


class TestRequests:
    def test_are_named_by_container_and_resource(self):
        asked = container("m", gpu="2", nic="1", cpu="1")
        assert requests(asked) == (
            [("container-0-request-1", 2), ("container-0-request-2", 1)],
            [("m", "container-0-request-1"), ("m", "container-0-request-2")],
        )
        assert requests(asked, resources=[NIC]) == (
            [("container-0-request-2", 1)],
            [("m", "container-0-request-2")],
        )

    def test_name_the_class_behind_the_resource(self):
        cluster = Cluster()
        cluster.device_classes.store(a_class("gpus", extendedResourceName=GPU))
        made = requests_for(pod(container("m", gpu="2")).template, [GPU], cluster.devices.classes)
        (request,) = made.requests
        assert request.exactly.device_class_name == "gpus"
        assert request.exactly.allocation_mode == "ExactCount"
        assert made.mappings == (RequestMapping("m", GPU, "container-0-request-0"),)

    @pytest.mark.parametrize("amount", ["0", "0.5"])
    def test_are_not_made_for_nothing(self, amount):
        assert requests(container("m", gpu=amount)) == ([], [])

    def test_every_container_has_devices_of_its_own(self):
        made = requests(container("one", gpu="1"), container("two", gpu="3"), resources=[GPU])
        assert made[0] == [("container-0-request-0", 1), ("container-1-request-0", 3)]

    def test_an_init_container_uses_those_of_the_containers_after_it(self):
        init = [container("i", gpu="2")]
        assert requests(container("one", gpu="1"), container("two", gpu="3"), init=init) == (
            [("container-1-request-0", 1), ("container-2-request-0", 3)],
            [
                ("one", "container-1-request-0"),
                ("two", "container-2-request-0"),
                ("i", "container-1-request-0"),
                ("i", "container-2-request-0"),
            ],
        )

    def test_what_init_containers_need_beyond_that_is_shared_among_them(self):
        init = [container("i", gpu="3"), container("j", gpu="4"), container("k", gpu="4")]
        assert requests(container("m", gpu="1"), init=init) == (
            [("container-1-request-0", 3), ("container-3-request-0", 1)],
            [
                ("m", "container-3-request-0"),
                ("i", "container-3-request-0"),
                ("i", "container-1-request-0"),
                ("j", "container-3-request-0"),
                ("j", "container-1-request-0"),
                ("k", "container-3-request-0"),
                ("k", "container-1-request-0"),
            ],
        )

    def test_a_sidecar_keeps_its_devices_from_the_init_containers_after_it(self):
        init = [container("side", gpu="1", always=True), container("i", gpu="1")]
        assert requests(container("m"), init=init) == (
            [("container-0-request-0", 1), ("container-1-request-0", 1)],
            [("side", "container-0-request-0"), ("i", "container-1-request-0")],
        )

    def test_are_in_the_order_of_their_names(self):
        many = [container(f"c{number}", gpu="1") for number in range(11)]
        names = [name for name, _ in requests(*many)[0]]
        assert names == sorted(names)
        assert names[2] == "container-10-request-0"


class TestClaims:
    def setup_method(self):
        self.world = Devices(
            a_class(extendedResourceName=GPU), a_slice("a", "d0", "d1"), a_slice("b", "d0")
        )
        self.pod = pod(container("m", gpu="2"))

    def own(self, node="own", **amounts):
        allocatable = {"cpu": "4", "pods": "110", **amounts}
        self.world.cluster.set_node(make_node(node, status={"allocatable": allocatable}))

    def bound(self):
        state = self.world.decide(self.pod, "a")
        assert self.world.bind(state, self.pod, "a").ok
        return state

    def test_devices_are_needed_where_a_node_advertises_none(self):
        self.own(**{GPU: "1"})
        self.own("zero", **{GPU: "0"})
        assert self.world.judge(self.pod) == dict.fromkeys(
            ("b", "c", "zero"), "cannot allocate all claims"
        )

    @pytest.mark.parametrize("lacking", [0, 63, 64, 69])
    def test_of_very_many_resources_a_node_lacks_any(self, lacking):
        names = [f"example.com/r{number:02}" for number in range(70)]
        for number, name in enumerate(names):
            self.world.cluster.store(a_class(f"class-{number}", extendedResourceName=name))
        self.world.cluster.store(a_slice("some", "d0", "d1"))
        asked = pod(container("m", **dict.fromkeys(names, "1")))
        own = dict.fromkeys(names, "1")
        self.own("all", **own)
        del own[names[lacking]]
        self.own("some", **own)
        self.own("other", **own)
        for name in "abc":
            self.world.cluster.remove_node(name)
        assert self.world.judge(asked) == {"other": "cannot allocate all claims"}

    def test_nodes_are_searched_once_however_many_patterns_there_are(self, monkeypatch):
        """Each node lacks other resources: time and memory are proportional to the nodes, not to their square."""
        names = [f"example.com/r{number}" for number in range(6)]
        for number, name in enumerate(names):
            self.world.cluster.store(a_class(f"class-{number}", extendedResourceName=name))
        nodes = range(64)
        for number in nodes:
            own = {name: "1" for bit, name in enumerate(names) if not number >> bit & 1}
            self.own(f"n{number}", **own)
            self.world.cluster.store(a_slice(f"n{number}", *[f"d{n}" for n in range(5)]))
        for name in "abc":
            self.world.cluster.remove_node(name)
        looks, rows = [], []
        look_of, search = _Kinds._look_of, Allocator.search
        monkeypatch.setattr(_Kinds, "_look_of", lambda *args: looks.append(args) or look_of(*args))
        monkeypatch.setattr(
            Allocator, "search", lambda *args: rows.extend(args[1].tolist()) or search(*args)
        )
        asked = pod(container("m", **dict.fromkeys(names, "1")))
        assert self.world.judge(asked) == {"n63": "cannot allocate all claims"}
        assert len(set(rows)) == len(rows) == len(looks) == 63

    def test_nothing_is_needed_without_a_class(self):
        assert self.world.judge(pod(container("m", nic="1"))) == {}
        assert self.world.judge(pod(container("m", gpu="0"))) == {}

    def test_a_resource_that_nobody_offers_does_not_fit(self):
        said = self.world.judge(pod(container("m", gpu="1", nic="1")))
        assert said == dict.fromkeys("abc", "cannot fit resource")

    def test_the_claim_is_made_for_the_pod_on_the_node(self):
        self.bound()
        calls = [verb for verb, _ in self.world.effects.resource_claims.calls]
        assert calls == ["create", "patch", "patch status"]
        (claim,) = self.world.effects.resource_claims.objects.values()
        assert claim.name.startswith("pod-extended-resources-")
        assert claim.annotations == {EXTENDED_RESOURCE_CLAIM: "true"}
        (owner,) = claim.metadata.owner_references
        assert (owner.api_version, owner.kind, owner.name) == ("v1", "Pod", "pod")
        assert (owner.uid, owner.controller) == (self.pod.uid, True)
        assert claim.metadata.finalizers == (FINALIZER,)
        (request,) = claim.spec.devices.requests
        assert (request.name, request.exactly.count) == ("container-0-request-0", 2)
        assert {r.device for r in claim.status.allocation.devices.results} == {"d0", "d1"}
        assert self.world.plugin.claims_created == {"success": 1}
        assert [c.uid for c in claim.status.reserved_for] == [self.pod.uid]

    def test_the_pod_is_told(self):
        self.bound()
        ((told, status),) = self.world.effects.resource_claims.told
        assert told is self.pod
        ((_, name),) = self.world.effects.resource_claims.objects
        mapping = {
            "containerName": "m",
            "resourceName": GPU,
            "requestName": "container-0-request-0",
        }
        assert status == {"requestMappings": [mapping], "resourceClaimName": name}

    def test_its_devices_stay_in_use_until_the_watch_shows_it(self):
        self.bound()
        assert self.world.in_use() == {"a/d0", "a/d1"}
        assert self.world.effects.now() > 1_700_000_000.0

    def test_taken_back_the_claim_is_deleted(self):
        state = self.bound()
        self.world.undo(state, self.pod, "a")
        calls = [verb for verb, _ in self.world.effects.resource_claims.calls]
        assert calls[3:] == ["patch", "delete"]
        assert not self.world.effects.resource_claims.objects

    def test_nothing_is_written_where_the_node_has_the_resource_itself(self):
        self.own(**{GPU: "2"})
        state = self.world.decide(self.pod, "own")
        assert self.world.bind(state, self.pod, "own").ok
        self.world.undo(state, self.pod, "own")
        assert self.world.effects.resource_claims.calls == []

    def test_nothing_is_left_if_the_claim_cannot_be_made(self):
        async def refuse(_claim):
            raise SchedulingError("exceeded quota")

        self.world.effects.resource_claims.create = refuse
        state = self.world.decide(self.pod, "a")
        status = self.world.bind(state, self.pod, "a")
        said = "create claim for extended resources default/: exceeded quota"
        assert (status.code, status.message) == (Code.Error, said)
        self.world.undo(state, self.pod, "a")
        assert self.world.in_use() == set()
        assert self.world.plugin.claims_created == {"failure": 1}

    def test_together_with_a_claim_of_the_pod(self):
        self.own(**{GPU: "2"})
        self.world.cluster.store(a_claim("c"), a_slice("own", "d0"))
        self.world.effects.resource_claims.store(a_claim("c"))
        both = pod(
            container("m", gpu="1"), resourceClaims=[{"name": "e", "resourceClaimName": "c"}]
        )
        assert set(self.world.judge(both)) == {"b", "c"}
        state = self.world.decide(both, "own")
        assert self.world.in_use() == {"own/d0"}
        assert self.world.bind(state, both, "own").ok
        assert [key for _, key in self.world.effects.resource_claims.calls] == ["default/c"] * 2

    def test_what_an_earlier_attempt_left_behind_is_deleted_first(self):
        owner = {"kind": "Pod", "name": "pod", "uid": self.pod.uid, "controller": True}
        left: ResourceClaim = a_claim(
            "left",
            exactly(count=2),
            annotations={EXTENDED_RESOURCE_CLAIM: "true"},
            ownerReferences=[owner],
            finalizers=[FINALIZER, "other"],
        )
        self.world.cluster.store(left)
        self.world.effects.resource_claims.store(left)
        said = self.world.judge(self.pod)
        assert said == dict.fromkeys("abc", "cannot schedule extended resource claim")
        status = self.world.after(self.world.find(self.pod), self.pod)
        assert status.message == "deletion of ResourceClaim completed"
        assert status.code is Code.Unschedulable
        assert self.world.effects.resource_claims.calls == [
            ("patch", "default/left"),
            ("delete", "default/left"),
        ]

    def test_fit_leaves_the_resource_to_the_plugin(self):
        fit = NodeResourcesFit(None, self.world.cluster.handle)
        assert self.world.cluster.judge(fit, self.pod) == {}
