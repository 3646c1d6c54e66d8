from collections import Counter

import pytest

from app.framework.interface import CycleState
from app.framework.plugin_class import points_of
from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.objects import (
    CSI,
    AWSElasticBlockStore,
    AzureDisk,
    EphemeralSource,
    GCEPersistentDisk,
    Volume,
)
from app.model.status import SKIP, SUCCESS, Code
from app.plugins.helpers.csi.index import csi_index
from app.plugins.node_volume_limits import NodeVolumeLimits
from app.state.view import DryRunView
from tests.core.framework.worlds import verdict
from tests.core.plugins.twins.volumes import limits_filter, limits_skip
from tests.core.plugins.volume_world import (
    Bench,
    VolumeWorld,
    make_attachment,
    make_claim,
    make_class,
    make_csi_node,
    make_node,
    make_pod_with,
    make_volume,
)

FULL = (Code.Unschedulable, ("node(s) exceed max volume count",))
EPHEMERAL = Volume(name="eph", ephemeral=EphemeralSource())


def ebs(volume_id):
    return Volume(name="v", aws_elastic_block_store=AWSElasticBlockStore(volume_id))


def gce(name):
    return Volume(name="v", gce_persistent_disk=GCEPersistentDisk(name))


def azure(uri, kind="Managed"):
    return Volume(name="disk", azure_disk=AzureDisk(uri, kind))


def bound(name, handle=None, driver="csi.a"):
    """A claim and its CSI volume."""
    source = CSI(driver, handle or f"h-{name}")
    return (
        make_claim(name, volume=f"pv-{name}", bound=True),
        make_volume(f"pv-{name}", claim=("ns", name), csi=source),
    )


def settled(*volumes, node="n", uid="u-other", **fields):
    return make_pod_with(*volumes, uid=uid, name=uid, node_name=node, **fields)


def judge(bench, pod, view=None):
    """Verdicts by position of the view."""
    plugin, state = NodeVolumeLimits(None, bench.handle), CycleState()
    assert plugin.pre_filter(state, pod) == SUCCESS
    view = view or bench.view()
    found = plugin.filter(state, pod, view)
    return [verdict(found, position) for position in range(view.n)]


# ---------------------------------------------------------------- against the twin


def compare(world, plugin):
    pod, state = world.random_pod(), CycleState()
    skip = limits_skip(pod)
    assert plugin.pre_filter(state, pod) == (SKIP if skip else SUCCESS)
    if skip:
        return ["skipped"]
    outcomes = []
    for seen in world.views():
        found = plugin.filter(state, pod, seen.view)
        wanted = {
            position: limits_filter(world.cluster, pod, scene)
            for position, scene in enumerate(seen.scenes)
            if scene is not None
        }
        for position, want in wanted.items():
            got = verdict(found, position)
            assert got == want or both_faults(got, want), (pod, seen.scenes[position])
            outcomes.append("fits" if want is None else want[0].name)
        for position in range(seen.view.n):
            if position not in wanted:
                got = verdict(found, position)
                assert got is None or got[0] is not Code.Error, "a node that is gone fails nobody"
    return outcomes


def both_faults(got, want):
    """One fault fails the whole attempt; which of several is told is anybody's guess."""
    return got is not None and want is not None and got[0] is want[0] is Code.Error


def test_agrees_with_its_twin():
    outcomes = Counter()
    for seed in range(16):
        world = VolumeWorld(seed)
        plugin = NodeVolumeLimits(None, world.handle)
        for _ in range(10):
            outcomes.update(compare(world, plugin))
            world.churn(8)
    assert set(outcomes) >= {"skipped", "fits", "Error", "Unschedulable"}
    assert set(outcomes) >= {"UnschedulableAndUnresolvable"}


def test_an_index_that_followed_everything_equals_one_made_afresh():
    for seed in range(6):
        world = VolumeWorld(seed, nodes=8)
        followed = csi_index(world.table, world.cluster)
        world.churn(120)
        followed.sync()
        world.table._made_later.clear()
        fresh = csi_index(world.table, world.cluster)
        view = world.view(*world.nodes)
        for driver in ("csi.a", "csi.b", "ebs.csi.aws.com", "pd.csi.storage.gke.io"):
            mine, theirs = followed._counts.on(view, driver), fresh._counts.on(view, driver)
            assert mine.tolist() == theirs.tolist()
        for pods in list(world.pods.values()):
            for pod in list(pods):
                world.remove_pod(pod)
        world.gone(*list(world.cluster.attachments))
        assert not followed._claims
        assert not followed._counts._uses
        assert not followed._counts._held
        assert not any(counts.any() for counts in followed._counts._counts.values())


# ---------------------------------------------------------------- rules one by one


def test_a_node_with_its_limit_reached_is_rejected():
    bench = Bench(
        make_node("n"), make_node("m"), make_node("free"),
        make_csi_node("n", csi_a=1), make_csi_node("m", csi_a=2), make_csi_node("free", csi_a=None),
        *bound("old"), *bound("new"), settled("old"), settled("old", node="m", uid="u-2"),
        settled("old", node="free", uid="u-3"),
    )  # fmt: skip
    assert judge(bench, make_pod_with("new")) == [FULL, None, None]


def test_a_volume_that_pods_share_counts_once():
    bench = Bench(
        make_node("n"), make_csi_node("n", csi_a=1), *bound("c"),
        settled("c"), settled("c", "c", uid="u-2"),
    )  # fmt: skip
    assert judge(bench, make_pod_with("c")) == [None]


def test_nothing_new_for_a_driver_is_fine_even_over_its_limit():
    bench = Bench(
        make_node("n"), make_csi_node("n", csi_a=1), *bound("a"), *bound("b"), settled("a", "b")
    )
    assert judge(bench, make_pod_with("a")) == [None]


def test_two_claims_on_one_volume_are_one_volume():
    bench = Bench(make_node("n"), make_csi_node("n", csi_a=1), *bound("a", "h"), *bound("b", "h"))
    assert judge(bench, make_pod_with("a", "b")) == [None]


def test_a_limit_of_nothing():
    bench = Bench(make_node("n"), make_csi_node("n", csi_a=0), *bound("a"))
    assert judge(bench, make_pod_with("a")) == [FULL]


def test_an_unbound_claim_counts_as_one_of_its_class():
    bench = Bench(
        make_node("n"), make_csi_node("n", csi_a=1), make_class("dyn", "csi.a"),
        make_claim("old", storage_class="dyn"), make_claim("new", storage_class="dyn"),
        make_claim("classless"), make_claim("lost", storage_class="gone"), settled("old"),
    )  # fmt: skip
    assert judge(bench, make_pod_with("new")) == [FULL]
    assert judge(bench, make_pod_with("old")) == [None]
    assert judge(bench, make_pod_with("classless", "lost")) == [None]


def test_a_claim_whose_volume_is_missing_goes_by_its_class():
    bench = Bench(
        make_node("n"), make_csi_node("n", csi_a=0), make_class("dyn", "csi.a"),
        make_claim("c", storage_class="dyn", volume="pv-gone"),
    )  # fmt: skip
    assert judge(bench, make_pod_with("c")) == [FULL]


def test_binding_a_claim_moves_its_uses_to_the_volume():
    claim = make_claim("c", storage_class="dyn")
    bench = Bench(
        make_node("n"), make_csi_node("n", csi_a=1), make_class("dyn", "csi.a"), claim,
        settled("c"), *bound("other", "h"),
    )  # fmt: skip
    assert judge(bench, make_pod_with("other")) == [FULL]
    bench.put(make_volume("pv", claim=("ns", "c"), csi=CSI("csi.a", "h")))
    assert judge(bench, make_pod_with("other")) == [FULL]
    bench.put(make_claim("c", storage_class="dyn", volume="pv", bound=True))
    assert judge(bench, make_pod_with("other")) == [None]
    bench.gone(bench.cluster.volumes.get("pv"))
    assert judge(bench, make_pod_with("other")) == [FULL]
    bench.gone(bench.cluster.storage_classes.get("dyn"))
    assert judge(bench, make_pod_with("other")) == [None]


def test_in_tree_disks_count_against_the_driver_that_took_over():
    claim = make_claim("c", volume="pv", bound=True)
    volume = make_volume("pv", aws_elastic_block_store=AWSElasticBlockStore("aws://z/vol-1"))
    node = make_csi_node("n", ebs_csi_aws_com=1, pd_csi_storage_gke_io=1)
    bench = Bench(make_node("n"), node, claim, volume, settled(ebs("vol-1"), gce("d")))
    assert judge(bench, make_pod_with("c")) == [None]
    assert judge(bench, make_pod_with(ebs("vol-2"))) == [FULL]
    assert judge(bench, make_pod_with(gce("d"))) == [None]
    assert judge(bench, make_pod_with(gce("e"))) == [FULL]


@pytest.mark.parametrize(
    ("provisioner", "expected"),
    [("kubernetes.io/aws-ebs", FULL), ("kubernetes.io/vsphere-volume", None), ("csi.b", None)],
)
def test_the_driver_of_a_class(provisioner, expected):
    bench = Bench(
        make_node("n"),
        make_csi_node("n", **{"ebs_csi_aws_com": 0, "kubernetes_io/vsphere-volume": 0}),
        make_class("x", provisioner), make_claim("c", storage_class="x"),
    )  # fmt: skip
    assert judge(bench, make_pod_with("c")) == [expected]


def test_attachments_count_unless_a_pod_uses_the_volume():
    bench = Bench(
        make_node("n"), make_csi_node("n", csi_a=2), *bound("a"), *bound("b"), *bound("c"),
        settled("a"), make_attachment("va-a", "n", "pv-a"), make_attachment("va-b", "n", "pv-b"),
    )  # fmt: skip
    assert judge(bench, make_pod_with("c")) == [FULL]
    # What an attachment alone holds is not taken for granted: it counts once more for the new pod.
    assert judge(bench, make_pod_with("b")) == [FULL]
    assert judge(bench, make_pod_with("a")) == [None]
    bench.gone(bench.cluster.attachments.get("va-b"))
    assert judge(bench, make_pod_with("c")) == [None]


def test_attachments_that_do_not_count():
    bench = Bench(
        make_node("n"), make_csi_node("n", csi_a=1), *bound("a"), make_volume("plain"),
        make_attachment("1", "n", None), make_attachment("2", "n", "pv-none"),
        make_attachment("3", "n", "plain"), make_attachment("4", "n", "pv-a", ""),
        make_attachment("5", "elsewhere", "pv-a"),
    )  # fmt: skip
    assert judge(bench, make_pod_with("a")) == [None]
    bench.put(make_volume("plain", csi=CSI("csi.a", "h")))
    assert judge(bench, make_pod_with("a")) == [FULL]


def test_a_row_used_again_for_another_node_has_that_nodes_limits_and_attachments():
    bench = Bench(
        make_node("n"), make_csi_node("n", csi_a=1), make_csi_node("m", csi_a=1),
        *bound("a"), *bound("b"), make_attachment("va", "n", "pv-a"),
    )  # fmt: skip
    assert judge(bench, make_pod_with("b")) == [FULL]
    bench.table.remove_node("n")
    bench.put(make_node("m"))
    assert bench.table.row_of == {"m": 0}
    assert judge(bench, make_pod_with("b")) == [None]
    bench.put(make_attachment("va-2", "m", "pv-a"))
    assert judge(bench, make_pod_with("b")) == [FULL]


def test_more_rows_than_before():
    bench = Bench(*bound("a"), *bound("b"), make_csi_node("n150", csi_a=1))
    plugin_saw = judge(bench, make_pod_with("a"))
    assert plugin_saw == []
    bench.put(*(make_node(f"n{number}") for number in range(200)))
    bench.put(settled("a", node="n150"))
    assert [p for p, got in enumerate(judge(bench, make_pod_with("b"))) if got] == [150]


def test_imagined_pods():
    user = settled("a")
    bench = Bench(
        make_node("n"), make_node("m"), make_csi_node("n", csi_a=1), make_csi_node("m", csi_a=1),
        *bound("a"), *bound("b"), user,
    )  # fmt: skip
    view = DryRunView(bench.table, bench.view().rows)
    view.remove(0, user)
    view.add(1, settled("a", node="m", uid="u-9"))
    assert judge(bench, make_pod_with("b"), view) == [None, FULL]
    assert judge(bench, make_pod_with("a"), view) == [None, None]
    assert judge(bench, make_pod_with("b")) == [FULL, None]


def test_a_shared_volume_stays_when_one_of_its_users_is_imagined_away():
    users = settled("a"), settled("a", uid="u-2")
    bench = Bench(make_node("n"), make_csi_node("n", csi_a=1), *bound("a"), *bound("b"), *users)
    view = DryRunView(bench.table, bench.view().rows)
    view.remove(0, users[0])
    assert judge(bench, make_pod_with("b"), view) == [FULL]
    view.remove(0, users[1])
    assert judge(bench, make_pod_with("b"), view) == [None]


# ---------------------------------------------------------------- refusals and faults


def test_pods_without_volumes_that_count_are_skipped():
    plugin = NodeVolumeLimits(None, Bench().handle)
    assert plugin.pre_filter(CycleState(), make_pod_with()) == SKIP
    inline = Volume(name="v", csi=CSI("csi.a"))
    assert plugin.pre_filter(CycleState(), make_pod_with(inline)) == SKIP
    for volume in ("c", EPHEMERAL, ebs("vol-1"), azure("u")):
        assert plugin.pre_filter(CycleState(), make_pod_with(volume)) == SUCCESS


def test_a_claim_that_is_missing_rejects_every_node():
    bench = Bench(make_node("n"), make_node("m"), make_csi_node("m", csi_a=1))
    text = 'looking up PVC ns/c: persistentvolumeclaim "c" not found'
    assert judge(bench, make_pod_with("c")) == [(Code.UnschedulableAndUnresolvable, (text,))] * 2
    text = 'looking up PVC ns/p-eph: persistentvolumeclaim "p-eph" not found'
    assert (
        judge(bench, make_pod_with(EPHEMERAL)) == [(Code.UnschedulableAndUnresolvable, (text,))] * 2
    )


def test_a_claim_without_a_name_is_a_fault():
    bench = Bench(make_node("n"))
    assert judge(bench, make_pod_with("")) == [(Code.Error, ("PersistentVolumeClaim had no name",))]


def test_an_ephemeral_claim_of_somebody_else_is_a_fault():
    bench = Bench(make_node("n"), make_claim("p-eph", owner="u-somebody"))
    text = "PVC ns/p-eph was not created for pod ns/p (pod is not owner)"
    assert judge(bench, make_pod_with(EPHEMERAL)) == [(Code.Error, (text,))]
    bench.put(make_claim("p-eph", owner="u-p"))
    assert judge(bench, make_pod_with(EPHEMERAL)) == [None]


def test_an_in_tree_disk_that_cannot_be_translated_is_a_fault_where_there_is_a_csi_node():
    bench = Bench(make_node("n"), make_node("m"), make_csi_node("m"))
    text = (
        "converting volume(disk) from inline to csi: kind(Shared) is not supported in csi migration"
    )
    assert judge(bench, make_pod_with(azure("u", "Shared"))) == [None, (Code.Error, (text,))]
    text = (
        "converting volume(v) from inline to csi: failed to translate Kubernetes ID to EBS Volume ID "
        "Invalid format for AWS volume (aws://z/x)"
    )
    assert judge(bench, make_pod_with(ebs("aws://z/x"))) == [None, (Code.Error, (text,))]


def test_what_is_wrong_with_volumes_of_a_pod_keeps_no_other_from_its_node():
    """kube-scheduler fails the attempt of any pod with volumes then."""
    bench = Bench(
        make_node("n"), make_csi_node("n", csi_a=1, ebs_csi_aws_com=1), *bound("a"), *bound("b"),
        settled(EPHEMERAL, uid="bad"), make_claim("bad-eph", owner="u-x"),
        settled(azure("u", "Dedicated"), uid="worse"), settled(ebs("aws://z/x"), uid="worst"),
    )  # fmt: skip
    assert judge(bench, make_pod_with("a")) == [None]
    assert judge(bench, make_pod_with("a", "b")) == [FULL]


def test_nodes_that_are_gone_fail_nobody():
    bench = Bench(make_node("n"), make_node("gone"))
    bench.table.remove_node("gone")
    assert [said and said[0] for said in judge(bench, make_pod_with(""))] == [Code.Error, None]
    bench.put(make_csi_node("n"))
    assert [said and said[0] for said in judge(bench, make_pod_with(""))] == [Code.Error, None]


# ---------------------------------------------------------------- events


def test_events():
    plugin = NodeVolumeLimits(None, Bench().handle)
    assert [r.event for r in plugin.events_to_register()] == [
        ClusterEvent(Resource.CSINode, Action.Add),
        ClusterEvent(Resource.CSINode, Action.Update),
        ClusterEvent(Resource.Pod, Action.Delete),
        ClusterEvent(Resource.PersistentVolumeClaim, Action.Add),
        ClusterEvent(Resource.VolumeAttachment, Action.Delete),
    ]
    assert next(iter(plugin.events_to_register())).hint is None
    assert points_of(plugin) == {"preFilter", "filter"}


def hint(number):
    return tuple(NodeVolumeLimits(None, Bench().handle).events_to_register())[number].hint


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"csi_a": 1}, {"csi_a": 2}, True),
        ({}, {"csi_a": 1}, True),
        ({"csi_a": None}, {"csi_a": 1}, True),
        ({"csi_a": 2}, {"csi_a": 1}, False),
        ({"csi_a": 2}, {"csi_a": None}, False),
        ({}, {"csi_a": 0}, False),
    ],
)
def test_hint_after_limits_changed(old, new, expected):
    nodes = make_csi_node("n", **old), make_csi_node("n", **new)
    assert hint(1)(make_pod_with("c"), *nodes) is expected


@pytest.mark.parametrize(
    ("gone", "expected"),
    [
        (settled("c"), True),
        (settled(EPHEMERAL), True),
        (settled(ebs("v")), True),
        (settled("c", node=""), False),
        (settled("c", node="", nominated_node_name="n"), True),
        (settled(), False),
        (settled(Volume(name="v", csi=CSI("csi.a"))), False),
    ],
)
def test_hint_after_a_pod_has_gone(gone, expected):
    assert hint(2)(make_pod_with("c"), gone, None) is expected


def test_hint_after_a_claim_was_added():
    pod = make_pod_with("c", EPHEMERAL)
    assert hint(3)(pod, None, make_claim("c"))
    assert hint(3)(pod, None, make_claim("p-eph"))
    assert not hint(3)(pod, None, make_claim("c", namespace="elsewhere"))
    assert not hint(3)(pod, None, make_claim("d"))


@pytest.mark.parametrize(
    ("volumes", "expected"),
    [
        (("c",), True),
        ((EPHEMERAL,), False),
        ((ebs("v"),), True),
        ((gce("d"),), False),
        ((azure("u", "Shared"),), True),
        ((), False),
    ],
)
def test_hint_after_a_volume_was_detached(volumes, expected):
    detached = make_attachment("va", "n", "pv", "ebs.csi.aws.com")
    assert hint(4)(make_pod_with(*volumes), detached, None) is expected
