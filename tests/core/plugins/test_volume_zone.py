import pytest

from app.framework.interface import CycleState
from app.framework.plugin_class import points_of
from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.status import SKIP, SUCCESS, Code
from app.plugins.volume_zone import VolumeZone
from tests.core.framework.worlds import verdict
from tests.core.plugins.twins.volumes import judged, zone_demands, zone_filter
from tests.core.plugins.volume_world import (
    BETA_REGION,
    BETA_ZONE,
    REGION,
    ZONE,
    Bench,
    VolumeWorld,
    make_claim,
    make_class,
    make_node,
    make_pod_with,
    make_volume,
)

NO_ZONE = (Code.UnschedulableAndUnresolvable, ("node(s) had no available volume zone",))


def compare(world, plugin):
    pod, state = world.random_pod(), CycleState()
    demands, refusal = judged(zone_demands, world.cluster, pod)
    if refusal is not None:
        status = plugin.pre_filter(state, pod)
        assert (status.code, status.reasons) == refusal
        return [refusal[1][0].split()[0]]
    assert plugin.pre_filter(state, pod) == (SUCCESS if demands else SKIP)
    if not demands:
        return ["skipped"]
    outcomes = []
    for seen in world.views():
        found = plugin.filter(state, pod, seen.view)
        for position, scene in enumerate(seen.scenes):
            if scene is not None:
                want = zone_filter(demands, scene)
                assert verdict(found, position) == want, (pod, scene)
                outcomes.append("fits" if want is None else want[1][0])
    return outcomes


def test_agrees_with_its_twin():
    outcomes = set()
    for seed in range(15):
        world = VolumeWorld(seed)
        plugin = VolumeZone(None, world.handle)
        for _ in range(12):
            outcomes.update(compare(world, plugin))
            world.churn(5)
    assert outcomes >= {"skipped", "fits", NO_ZONE[1][0], "persistentvolume", "VolumeBindingMode"}


def bound(labels):
    """A cluster with a bound claim whose volume has these labels."""
    volume = make_volume("pv", labels=labels, claim=("ns", "c"))
    return Bench(
        make_node("ga", **{ZONE: "z1", REGION: "r1"}),
        make_node("beta", **{BETA_ZONE: "z1", BETA_REGION: "r1"}),
        make_node("far", **{ZONE: "z2", REGION: "r2"}),
        make_node("region-only", **{REGION: "r1"}),
        make_node("bare"),
        make_claim("c", volume="pv", bound=True),
        volume,
    )


@pytest.mark.parametrize(
    ("labels", "rejected"),
    [
        ({ZONE: "z1"}, {"beta", "far", "region-only"}),
        ({BETA_ZONE: "z1"}, {"far", "region-only"}),
        ({ZONE: "z2__z1"}, {"beta", "region-only"}),
        ({ZONE: " z2 __ z1 "}, {"beta", "region-only"}),
        ({BETA_REGION: "r1"}, {"far"}),
        ({ZONE: "z1", REGION: "r2"}, {"ga", "beta", "far", "region-only"}),
    ],
)
def test_nodes_outside_the_volumes_zone_are_rejected(labels, rejected):
    bench, pod = bound(labels), make_pod_with("c")
    plugin, state = VolumeZone(None, bench.handle), CycleState()
    assert plugin.pre_filter(state, pod) == SUCCESS
    view = bench.view()
    found = plugin.filter(state, pod, view)
    got = {name for p, name in enumerate(view.names()) if verdict(found, p) == NO_ZONE}
    assert got == rejected
    assert {name for p, name in enumerate(view.names()) if verdict(found, p)} == rejected


@pytest.mark.parametrize(
    "labels", [None, {"zone": "z1"}, {ZONE: ""}, {ZONE: "z1__"}, {REGION: "__r1"}]
)
def test_volumes_that_demand_nothing_are_skipped(labels):
    plugin = VolumeZone(None, bound(labels).handle)
    assert plugin.pre_filter(CycleState(), make_pod_with("c")) == SKIP


def test_pods_without_claims_and_claims_that_wait_are_skipped():
    bench = Bench(make_claim("c", storage_class="wait"), make_class("wait"))
    plugin = VolumeZone(None, bench.handle)
    assert plugin.pre_filter(CycleState(), make_pod_with()) == SKIP
    assert plugin.pre_filter(CycleState(), make_pod_with("c")) == SKIP


@pytest.mark.parametrize(
    ("claim", "text"),
    [
        (make_claim("other"), 'persistentvolumeclaim "c" not found'),
        (make_claim("c", volume="pv"), 'persistentvolume "pv" not found'),
        (make_claim("c"), "PersistentVolumeClaim had no pv name and storageClass name"),
        (make_claim("c", storage_class="none"), 'storageclass.storage.k8s.io "none" not found'),
        (
            make_claim("c", storage_class="mute"),
            'VolumeBindingMode not set for StorageClass "mute"',
        ),
        (make_claim("c", storage_class="now"), "PersistentVolume had no name"),
    ],
)
def test_pods_that_are_refused_as_a_whole(claim, text):
    bench = Bench(claim, make_class("mute", mode=None), make_class("now", mode="Immediate"))
    status = VolumeZone(None, bench.handle).pre_filter(CycleState(), make_pod_with("c"))
    assert (status.code, status.reasons) == (Code.UnschedulableAndUnresolvable, (text,))


def test_a_volume_without_a_claim_name_is_refused():
    status = VolumeZone(None, Bench().handle).pre_filter(CycleState(), make_pod_with(""))
    assert status.code is Code.UnschedulableAndUnresolvable
    assert status.reasons == ("PersistentVolumeClaim had no name",)


def test_events_and_hints():
    plugin = VolumeZone(None, Bench().handle)
    classes, nodes, claims, volumes = plugin.events_to_register()
    change = Action.Add | Action.Update
    assert classes.event == ClusterEvent(Resource.StorageClass, Action.Add)
    assert nodes.event == ClusterEvent(Resource.Node, Action.Add | Action.UpdateNodeLabel)
    assert nodes.hint is None
    assert claims.event == ClusterEvent(Resource.PersistentVolumeClaim, change)
    assert volumes.event == ClusterEvent(Resource.PersistentVolume, change)
    pod = make_pod_with("c")
    assert classes.hint(pod, None, make_class("x"))
    assert not classes.hint(pod, None, make_class("x", mode="Immediate"))
    assert not classes.hint(pod, None, make_class("x", mode=None))
    assert claims.hint(pod, None, make_claim("c"))
    assert claims.hint(pod, make_claim("c"), make_claim("c"))
    assert not claims.hint(pod, None, make_claim("c", namespace="elsewhere"))
    assert not claims.hint(pod, None, make_claim("d"))
    old = make_volume("pv", labels={ZONE: "z1"})
    assert volumes.hint(pod, None, old)
    assert volumes.hint(pod, old, make_volume("pv", labels={ZONE: "z1__z2"}))
    assert not volumes.hint(pod, old, make_volume("pv", labels={ZONE: "z1", "x": "y"}))
    assert points_of(plugin) == {"preFilter", "filter"}
