"""DynamicResources: claims that belong to a pod group, whose pods share them (KEP-5729)."""

import msgspec
import pytest

from app.framework.testing import make_object
from app.model.devices import ConsumerReference
from app.model.features import Features
from app.model.objects import PodResourceClaimStatus
from app.model.pod_groups import CLAIMS, PodGroup
from app.model.status import Code, SchedulingError
from app.state.queue.hints import narrowed
from tests.core.framework.coroutines import finish
from tests.core.plugins.claim_world import Devices, a_claim, a_slice, allocated, using

SHARED = Features.of("1.37", {"GenericWorkload": True, CLAIMS: True})
UNSHARED = Features.of("1.37", {"GenericWorkload": True})
#: The entry of the group and of its pods, by name and from a template.
NAMED = {"name": "e0", "resourceClaimName": "c"}
MADE = {"name": "e0", "resourceClaimTemplateName": "t"}
OF_GROUP = {
    "apiVersion": "scheduling.k8s.io/v1beta1",
    "kind": "PodGroup",
    "name": "g",
    "uid": "uid-of-g",
}


def a_group(*entries, statuses=(), name="g"):
    meta = {"name": name, "namespace": "default", "uid": f"uid-of-{name}"}
    told = [{"name": entry, "resourceClaimName": claim} for entry, claim in statuses]
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "resourceClaims": list(entries)}
    manifest = {"metadata": meta, "spec": spec, "status": {"resourceClaimStatuses": told}}
    return make_object(PodGroup, manifest)


def a_member(name, *entries, group="g", made=()):
    spec = {"resourceClaims": list(entries), "schedulingGroup": {"podGroupName": group}}
    pod = using(name=name, **spec)
    statuses = tuple(PodResourceClaimStatus(entry, claim) for entry, claim in made)
    return msgspec.structs.replace(pod, claim_statuses=statuses)


def reserved_for(*names):
    """Consumers: ``g`` and ``h`` are groups, others pods."""
    return [
        {
            "apiGroup": "scheduling.k8s.io",
            "resource": "podgroups",
            "name": name,
            "uid": f"uid-of-{name}",
        }
        if name in "gh"
        else {"resource": "pods", "name": name, "uid": f"uid-of-default-{name}"}
        for name in names
    ]


class World(Devices):
    """Nodes a and b with a device each, a claim c, and a group g that has it."""

    def __init__(self, *objects, group=None, features=SHARED, status=None, **claim):
        claim = a_claim("c", status=status, **claim)
        super().__init__(a_slice("a", "d0"), a_slice("b", "d0"), claim, *objects, features=features)
        self.group = group or a_group(NAMED)
        groups = self.cluster.handle.cluster.pod_groups
        groups.watch(PodGroup, lambda: "/apis/scheduling.k8s.io/v1beta1/podgroups")
        groups.listers[PodGroup].store(self.group)

    def consumers(self, name="c"):
        return [(c.resource, c.name) for c in self.written(name).status.reserved_for or ()]

    def free(self, *pods, group=None):
        """What is done for a group whose pods were tried in vain."""
        states = [self.find(pod) for pod in pods]
        for state, pod in zip(states, pods, strict=True):
            self.after(state, pod)
        return finish(self.plugin.free_for_group(group or self.group, states, self.effects))


class TestReservations:
    def test_a_claim_of_the_group_is_reserved_for_it_once(self):
        world = World()
        pods = [a_member(name, NAMED) for name in ("one", "two")]
        states = [world.decide(pod, "a") for pod in pods]
        for pod, state in zip(pods, states, strict=True):
            assert world.bind(state, pod, "a").ok
        assert world.consumers() == [("podgroups", "g")]
        (group,) = world.written().status.reserved_for
        assert group == ConsumerReference("scheduling.k8s.io", "podgroups", "g", "uid-of-g")
        assert world.effects.resource_claims.calls == [
            ("patch", "default/c"),
            ("patch status", "default/c"),
        ], "the second pod has nothing to write"
        assert world.tracker.in_flight("uid-of-c") is None
        assert world.in_use() == {"a/d0"}

    def test_a_later_pod_of_the_group_writes_nothing(self):
        world = World(status=allocated("a", "d0") | {"reservedFor": reserved_for("g")})
        pod = a_member("late", NAMED)
        assert world.judge(pod).keys() == {"b", "c"}
        assert world.bind(world.decide(pod, "a"), pod, "a").ok
        assert not world.effects.resource_claims.calls

    def test_another_pod_is_a_consumer_of_its_own(self):
        world = World(status=allocated("a", "d0") | {"reservedFor": reserved_for("g")})
        for pod in (using("c", name="alone"), a_member("other", NAMED, group="h")):
            if pod.pod_group_name:
                groups = world.cluster.handle.cluster.pod_groups
                groups.listers[PodGroup].store(a_group(name="h"))
            assert world.bind(world.decide(pod, "a"), pod, "a").ok
        assert world.consumers() == [("podgroups", "g"), ("pods", "alone"), ("pods", "other")]

    @pytest.mark.parametrize(
        "entry",
        [
            {"name": "other", "resourceClaimName": "c"},
            {"name": "e0", "resourceClaimName": "c2"},
        ],
        ids=["other name", "other claim"],
    )
    def test_an_entry_that_the_group_has_otherwise_is_the_pods_own(self, entry):
        world = World(group=a_group(entry))
        pod = a_member("one", NAMED)
        assert world.bind(world.decide(pod, "a"), pod, "a").ok
        assert world.consumers() == [("pods", "one")]

    def test_each_claim_has_its_own_consumer(self):
        own = {"name": "own", "resourceClaimName": "c2"}
        world = World(a_claim("c2"), a_slice("a", "d1", pool="more"))
        pod = a_member("one", own, NAMED)
        assert world.bind(world.decide(pod, "a"), pod, "a").ok
        assert (world.consumers("c2"), world.consumers("c")) == (
            [("pods", "one")],
            [("podgroups", "g")],
        )

    def test_without_the_gate_each_pod_is_a_consumer(self):
        world = World(features=UNSHARED)
        pod = a_member("one", NAMED)
        assert not world.plugin.shares_claims()
        assert world.bind(world.decide(pod, "a"), pod, "a").ok
        assert world.consumers() == [("pods", "one")]

    def test_a_reservation_of_an_earlier_group_of_that_name_does_not_count(self):
        old = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "old"}
        world = World(status=allocated("a", "d0") | {"reservedFor": [old]})
        pod = a_member("one", NAMED)
        assert world.bind(world.decide(pod, "a"), pod, "a").ok
        assert [c.uid for c in world.written().status.reserved_for] == ["old", "uid-of-g"]

    def test_a_pod_that_cannot_be_bound_leaves_the_groups_reservation(self):
        world = World(a_claim("c2"), a_slice("a", "d1", pool="more"))
        pod = a_member("one", NAMED, {"name": "own", "resourceClaimName": "c2"})
        state = world.decide(pod, "a")
        assert world.bind(state, pod, "a").ok
        world.undo(state, pod, "a")
        assert world.consumers() == [("podgroups", "g")]
        assert world.consumers("c2") == []


class TestOwner:
    """A claim made from a template belongs to the pod, or to its group."""

    def setup_method(self):
        self.group = a_group(MADE, statuses=[("e0", "c")])
        self.pod = a_member("one", MADE, made=[("e0", "c")])

    def world(self, features=SHARED, **owner):
        owners = [OF_GROUP | {"controller": True} | owner]
        return World(group=self.group, features=features, ownerReferences=owners)

    def test_of_the_group(self):
        world = self.world()
        assert world.plugin.pre_enqueue(self.pod).ok
        assert world.bind(world.decide(self.pod, "a"), self.pod, "a").ok
        assert world.consumers() == [("podgroups", "g")]

    @pytest.mark.parametrize(
        "owner",
        [
            {"name": "h"},
            {"kind": "Pod"},
            {"apiVersion": "scheduling.k8s.io.example.com/v1"},
            {"controller": False},
        ],
    )
    def test_of_somebody_else(self, owner):
        world = self.world(**owner)
        text = (
            "ResourceClaim default/c was not created for Pod default/one "
            "(neither Pod nor PodGroup g is the owner)"
        )
        assert world.plugin.pre_enqueue(self.pod).message == text
        assert set(world.judge(self.pod).values()) == {text}

    def test_without_the_gate_the_group_owns_nothing(self):
        text = "ResourceClaim default/c was not created for Pod default/one (Pod is not owner)"
        assert self.world(UNSHARED).plugin.pre_enqueue(self.pod).message == text

    def test_a_pod_without_a_group(self):
        pod = msgspec.structs.replace(self.pod, pod_group_name="")
        assert self.world().plugin.pre_enqueue(pod).message.endswith("(Pod is not owner)")

    def test_any_pod_of_a_template_with_claims_wakes_when_it_comes(self):
        world = self.world()
        (claim,) = world.cluster.handle.cluster.resource_claims
        (events,) = [
            each
            for each in world.plugin.events_to_register()
            if each.event.resource.name == "ResourceClaim" and each.narrow
        ]
        assert narrowed((events,), self.pod.template, None, claim) is None
        assert events.hint(self.pod, None, claim)


class TestUnusableGroups:
    def test_a_group_that_is_gone(self):
        world, pod = World(), a_member("one", NAMED)
        world.cluster.handle.cluster.pod_groups.listers[PodGroup].remove(world.group)
        assert set(world.judge(pod).values()) == {'podgroup.scheduling.k8s.io "g" not found'}

    def test_an_entry_of_an_unknown_kind(self):
        world, pod = World(group=a_group({"name": "new"})), a_member("one", NAMED)
        text = "PodGroup default/g claim new: none of the supported fields are set"
        assert set(world.judge(pod).values()) == {text}


DEALLOCATED = "deallocation of PodGroup ResourceClaim completed"
UNRESERVED = "ResourceClaim unreserved for PodGroup"


class TestFreeing:
    """What is done when too few pods of a group fit, and none has a node."""

    @pytest.mark.parametrize("consumers", [(), ("g",)])
    def test_an_unavailable_claim_is_deallocated(self, consumers):
        world = World(status=allocated("a", "d0") | {"reservedFor": reserved_for("g")})
        world.cluster.store(
            a_claim(
                "c",
                status=allocated("a", "d0") | {"reservedFor": reserved_for(*consumers)},
                version="6",
            )
        )
        world.effects.resource_claims.store(
            world.cluster.handle.cluster.resource_claims.get("c", "default")
        )
        pods = [a_member(name, NAMED) for name in ("one", "two")]
        states = [world.find(pod) for pod in pods]
        status = finish(world.plugin.free_for_group(world.group, states, world.effects))
        assert (status.code, status.message) == (Code.Unschedulable, DEALLOCATED)
        assert world.written().status.allocation is None
        assert world.in_use() == set()

    @pytest.mark.parametrize("consumers", [("h",), ("g", "h"), ("one",), ("g", "one")])
    def test_not_while_others_use_it(self, consumers):
        status = allocated("a", "d0") | {"reservedFor": reserved_for(*consumers)}
        world = World(status=status)
        told = finish(
            world.plugin.free_for_group(
                world.group, [world.find(a_member("two", NAMED))], world.effects
            )
        )
        assert world.written().status.allocation is not None
        assert told.message == (UNRESERVED if "g" in consumers else "")

    def test_a_claim_that_is_available_everywhere_is_left_by_the_group(self):
        everywhere = allocated("a", "d0")
        del everywhere["allocation"]["nodeSelector"]
        world = World(status=everywhere | {"reservedFor": reserved_for("g", "h")})
        status = world.free(a_member("one", NAMED))
        assert (status.code, status.message) == (Code.UnschedulableAndUnresolvable, UNRESERVED)
        assert world.consumers() == [("podgroups", "h")]
        assert world.written().status.allocation is not None
        assert world.free(a_member("one", NAMED)).ok, "nothing is left to free"

    @pytest.mark.parametrize(("owner", "left"), [("uid-of-g", True), ("uid-of-old", False)])
    def test_a_made_claim_must_be_the_groups(self, owner, left):
        everywhere = allocated("a", "d0") | {"reservedFor": reserved_for("g")}
        del everywhere["allocation"]["nodeSelector"]
        group = a_group(MADE, statuses=[("e0", "c")])
        owners = [OF_GROUP | {"controller": True, "uid": owner}]
        world = World(group=group, status=everywhere, ownerReferences=owners)
        status = world.free(a_member("one", MADE, made=[("e0", "c")]))
        assert status.message == (UNRESERVED if left else "")

    def test_nothing_if_each_pod_has_freed_a_claim(self):
        """Their own PostFilter has done it."""
        own = {"name": "own", "resourceClaimName": "c2"}
        everywhere = allocated("a", "d0") | {"reservedFor": reserved_for("g")}
        del everywhere["allocation"]["nodeSelector"]
        away = a_claim("c2", status=allocated("b", "d0"))
        world = World(away, status=everywhere)
        assert world.free(a_member("one", own, NAMED)).ok
        assert world.written("c2").status.allocation is None
        assert world.consumers() == [("podgroups", "g")]

    def test_a_write_that_fails(self):
        world = World(status=allocated("a", "d0") | {"reservedFor": reserved_for("g")})

        async def refuse(*_args, **_more):
            raise SchedulingError("no connection")

        pod = a_member("one", NAMED)
        world.effects.resource_claims.patch = refuse
        status = world.free(pod)
        assert status.code is Code.Error
        assert status.message == (
            'error in "DynamicResources" PodGroupPostFilter plugins: no connection'
        )

    def test_a_reservation_that_cannot_be_removed_is_left_for_the_next_attempt(self):
        everywhere = allocated("a", "d0") | {"reservedFor": reserved_for("g")}
        del everywhere["allocation"]["nodeSelector"]
        world, pod = World(status=everywhere), a_member("one", NAMED)
        stored = world.written()
        world.effects.resource_claims.store(a_claim("c", status=everywhere, version="900"))
        assert world.free(pod).ok, "a newer version conflicts"
        world.effects.resource_claims.store(stored)
        assert world.free(pod).message == UNRESERVED

    def test_a_reservation_that_may_be_removed_late_is_looked_up(self):
        """The answer of the write is lost: the next pod does not rely on the reservation as it knows it."""
        world = World(status=allocated("a", "d0") | {"reservedFor": reserved_for("g")})
        pod, claims = a_member("one", NAMED), world.effects.resource_claims
        write = claims.patch

        async def lose(*args, **more):
            await write(*args, **more)
            raise SchedulingError("no answer")

        claims.patch = lose
        assert world.free(pod).code is Code.Error
        claims.patch = write
        status = world.bind(world.decide(pod, "a"), pod, "a")
        assert status.message == "claim default/c got deallocated elsewhere in the meantime"
