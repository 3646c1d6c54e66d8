"""What is known of claims and devices between a decision and the watch that shows it."""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.model.devices import DeviceClass, ResourceClaim
from app.model.quantity import NANO
from app.state.cluster import Cluster
from app.state.devices import AllocatedState
from app.wire.kube import decoder_for

CLAIMS, CLASSES = decoder_for(ResourceClaim), decoder_for(DeviceClass)


def result(device="d0", pool="a", **fields):
    return {"request": "r", "driver": "gpu", "pool": pool, "device": device, **fields}


def claim(*results, name="c", version="1", annotations=None, owner=None):
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": version}
    if annotations is not None:
        metadata["annotations"] = annotations
    if owner is not None:
        metadata["ownerReferences"] = [{"kind": "Pod", "uid": owner, "controller": True}]
    status = {"allocation": {"devices": {"results": results}}} if results else {}
    return CLAIMS.decode(msgspec.json.encode({"metadata": metadata, "status": status}))


def in_use(cluster):
    return {key: dict.fromkeys(use.devices) for key, use in cluster.devices.allocated.pools.items()}


class TestClaims:
    def setup_method(self):
        self.cluster = Cluster()
        self.claims = self.cluster.devices.claims

    def test_what_was_written_counts_until_the_watch_shows_it(self):
        self.cluster.resource_claims.store(claim())
        assert self.claims.written(claim(result(), version="5"))
        assert self.claims.get("c", "ns").resource_version == "5"
        assert in_use(self.cluster) == {("gpu", "a"): {"d0": None}}
        self.cluster.resource_claims.store(claim(version="4"))
        assert self.claims.get("c", "ns").resource_version == "5"
        self.cluster.resource_claims.store(claim(result(), version="5"))
        self.cluster.resource_claims.store(claim(version="6"))
        assert self.claims.get("c", "ns").resource_version == "6"
        assert in_use(self.cluster) == {}

    def test_the_watch_may_be_faster_than_the_answer(self):
        self.cluster.resource_claims.store(claim(version="6"))
        assert self.claims.written(claim(result(), version="5"))
        assert self.claims.get("c", "ns").resource_version == "6"
        assert in_use(self.cluster) == {}

    def test_a_very_long_version_counts_as_none(self):
        self.cluster.resource_claims.store(claim(version="9" * 500))
        assert self.claims.written(claim(result(), version="5"))
        assert self.claims.get("c", "ns").resource_version == "5"

    def test_versions_are_numbers(self):
        self.cluster.resource_claims.store(claim(version="9"))
        self.claims.written(claim(result(), version="10"))
        assert self.claims.get("c", "ns").resource_version == "10"

    def test_a_claim_that_goes_takes_what_was_written_along(self):
        self.cluster.resource_claims.store(claim())
        self.claims.written(claim(result(), version="5"))
        self.cluster.resource_claims.remove(claim())
        assert self.claims.get("c", "ns") is None
        assert in_use(self.cluster) == {}

    def test_a_claim_that_the_watch_has_not_shown_is_not_taken_over(self):
        assert not self.claims.written(claim(result(), version="5"))
        assert self.claims.get("c", "ns") is None

    def test_the_claim_of_a_pods_extended_resources(self):
        special = {"resource.kubernetes.io/extended-resource-claim": "true"}
        made = claim(name="x", annotations=special, owner="pod")
        self.cluster.resource_claims.store(made)
        self.cluster.resource_claims.store(claim(name="y", owner="pod"))
        assert self.claims.for_extended_resources("pod") is made
        self.cluster.resource_claims.remove(made)
        assert self.claims.for_extended_resources("pod") is None

    def test_claims_that_came_before_anybody_asked(self):
        cluster = Cluster()
        special = {"resource.kubernetes.io/extended-resource-claim": "true"}
        cluster.resource_claims.store(claim(result(), annotations=special, owner="pod"))
        assert in_use(cluster) == {("gpu", "a"): {"d0": None}}
        assert cluster.devices.claims.for_extended_resources("pod") is not None


class TestAllocationsInFlight:
    def test_from_the_decision_to_the_claim(self):
        cluster = Cluster()
        cluster.resource_claims.store(claim())
        after = claim(result(), version="2")
        cluster.devices.reserve("uid-c", after.status.allocation)
        assert cluster.devices.in_flight("uid-c")
        assert in_use(cluster) == {("gpu", "a"): {"d0": None}}
        cluster.devices.claims.written(after)
        cluster.devices.release("uid-c")
        assert not cluster.devices.in_flight("uid-c")
        assert in_use(cluster) == {("gpu", "a"): {"d0": None}}

    def test_given_up(self):
        cluster = Cluster()
        cluster.devices.reserve("uid-c", claim(result()).status.allocation)
        cluster.devices.release("uid-c")
        cluster.devices.release("uid-c")
        assert in_use(cluster) == {}


class TestUse:
    def test_admin_access_uses_nothing(self):
        state = AllocatedState()
        state.add(claim(result(adminAccess=True)).status.allocation)
        assert not state.pools
        assert not state.version

    def test_shares_and_what_they_take(self):
        state = AllocatedState()
        first = claim(result(shareID="s1", consumedCapacity={"memory": "1Gi"})).status.allocation
        second = claim(result(shareID="s2", consumedCapacity={"memory": "1Gi"})).status.allocation
        state.add(first)
        state.add(second)
        use = state.pool("gpu", "a")
        assert use.shares == {"d0": {"s1": 1, "s2": 1}}
        assert use.capacity == {"d0": {"memory": 2 * 2**30 * NANO}}
        assert not use.devices
        state.remove(first)
        assert use.shares == {"d0": {"s2": 1}}
        assert use.capacity == {"d0": {"memory": 2**30 * NANO}}

    def test_followers_hear_of_pools_once_a_change(self):
        state, heard = AllocatedState(), []
        state.follow(heard.append)
        state.add(claim(result("d0"), result("d1"), result("d0", "b")).status.allocation)
        assert heard == [("gpu", "a"), ("gpu", "b")]

    def test_versions_tell_every_change(self):
        state, allocation = AllocatedState(), claim(result()).status.allocation
        seen = [state.pool("gpu", "a").version]
        for change in (state.add, state.remove, state.add):
            change(allocation)
            seen.append(state.pool("gpu", "a").version)
        assert all(before != after for before, after in itertools.pairwise(seen))

    @given(
        st.lists(
            st.tuples(
                st.integers(0, 3),
                st.lists(
                    st.tuples(
                        st.sampled_from("ab"),
                        st.sampled_from(["d0", "d1"]),
                        st.sampled_from([None, "s1", "s2"]),
                    ),
                    max_size=3,
                ),
            )
        )
    )
    def test_the_same_as_if_built_from_the_claims_that_are_left(self, steps):
        cluster, left = Cluster(), {}
        for number, results in steps:
            name = f"c{number}"
            made = claim(
                *(
                    result(d, p, **({"shareID": s, "consumedCapacity": {"m": "1"}} if s else {}))
                    for p, d, s in results
                ),
                name=name,
            )
            assert cluster.devices is cluster.devices
            cluster.resource_claims.store(made)
            left[name] = made
        rebuilt = AllocatedState()
        for made in left.values():
            if made.status.allocation is not None:
                rebuilt.add(made.status.allocation)
        assert plain(cluster.devices.allocated) == plain(rebuilt)


def plain(state):
    return {
        key: (use.devices, use.shares, use.capacity)
        for key, use in state.pools.items()
        if not use.empty
    }


def device_class(name, resource=None, created="2026-01-01T00:00:00Z"):
    spec = {} if resource is None else {"extendedResourceName": resource}
    metadata = {"name": name, "creationTimestamp": created}
    return CLASSES.decode(msgspec.json.encode({"metadata": metadata, "spec": spec}))


class TestClasses:
    def setup_method(self):
        self.cluster = Cluster()
        self.classes = self.cluster.devices.classes
        self.store = self.cluster.device_classes.store

    def behind(self, resource):
        found = self.classes.get(resource)
        return None if found is None else found.name

    def test_every_class_has_a_resource_of_its_own(self):
        assert not self.classes
        self.store(device_class("gpu"))
        assert self.classes
        assert self.behind("deviceclass.resource.kubernetes.io/gpu") == "gpu"
        assert self.behind("deviceclass.resource.kubernetes.io/other") is None
        assert self.behind("example.com/gpu") is None

    @pytest.mark.parametrize("order", [("old", "new", "alike"), ("alike", "new", "old")])
    def test_the_newest_counts_then_the_name(self, order):
        made = {
            "old": device_class("a", "example.com/gpu", "2026-01-01T00:00:00Z"),
            "new": device_class("b", "example.com/gpu", "2026-02-01T00:00:00Z"),
            "alike": device_class("c", "example.com/gpu", "2026-02-01T00:00:00Z"),
        }
        for which in order:
            self.store(made[which])
        assert self.behind("example.com/gpu") == "b"
        self.cluster.device_classes.remove(made["new"])
        assert self.behind("example.com/gpu") == "c"

    def test_another_resource(self):
        self.store(device_class("gpu", "example.com/gpu"))
        version = self.classes.version
        self.store(device_class("gpu", "example.com/card"))
        assert self.behind("example.com/gpu") is None
        assert self.behind("example.com/card") == "gpu"
        assert self.classes.version > version
