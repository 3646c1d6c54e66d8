import pytest

from app.framework.interface import CycleState
from app.framework.plugin_class import points_of
from app.model.cluster_event import NODE_ADD, Action, ClusterEvent, Resource
from app.model.objects import ISCSI, RBD, AWSElasticBlockStore, GCEPersistentDisk, Volume
from app.model.status import SKIP, SUCCESS, Code
from app.plugins.volume_restrictions import VolumeRestrictions
from app.state.view import DryRunView
from tests.core.framework.worlds import verdict
from tests.core.plugins.twins.volumes import Restrictions, judged
from tests.core.plugins.volume_world import (
    Bench,
    VolumeWorld,
    make_claim,
    make_node,
    make_pod_with,
)

NO_DISK = "node(s) had no available disk"
IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
    "already in-use by another pod"
)
EXCLUSIVE = make_claim("solo", modes=("ReadWriteOncePod",))


def gce(name, *, read_only=False):
    return Volume(name="v", gce_persistent_disk=GCEPersistentDisk(name, read_only))


def ebs(volume_id, *, read_only=False):
    return Volume(name="v", aws_elastic_block_store=AWSElasticBlockStore(volume_id, read_only))


def iscsi(iqn, *, read_only=False):
    return Volume(name="v", iscsi=ISCSI(iqn=iqn, read_only=read_only))


def rbd(monitors, image="im", pool="rbd", *, read_only=False):
    return Volume(name="v", rbd=RBD(monitors, image, pool, read_only))


def other(*volumes, node="n", **fields):
    return make_pod_with(*volumes, uid="u-other", name="other", node_name=node, **fields)


def judge(bench, pod, view=None):
    """(PreFilter's status, verdicts by position of the view)."""
    plugin, state = VolumeRestrictions(None, bench.handle), CycleState()
    status = plugin.pre_filter(state, pod)
    if not status.ok:
        return status, None
    view = view or bench.view()
    found = plugin.filter(state, pod, view)
    return status, [verdict(found, position) for position in range(view.n)]


def compare(world, plugin):
    """How the pods of a random cluster fared, checked against the twin."""
    outcomes = []
    pod, state = world.random_pod(), CycleState()
    twin, refusal = judged(Restrictions, world.cluster, world.everyone(), pod)
    if refusal is not None:
        status = plugin.pre_filter(state, pod)
        assert (status.code, status.reasons) == refusal
        return ["refused"]
    assert plugin.pre_filter(state, pod) == (SKIP if twin.skip else SUCCESS)
    if twin.skip:
        return ["skipped"]
    for seen in world.views():
        found = plugin.filter(state, pod, seen.view)
        for position, scene in enumerate(seen.scenes):
            if scene is None:
                continue
            before = world.scene(scene.node.name).pods
            want = twin.filter(scene, before)
            assert verdict(found, position) == want, (pod, scene)
            outcomes.append("fits" if want is None else want[1][0])
    return outcomes


def test_agrees_with_its_twin():
    outcomes = set()
    for seed in range(12):
        world = VolumeWorld(seed)
        plugin = VolumeRestrictions(None, world.handle)
        for _ in range(8):
            outcomes.update(compare(world, plugin))
            world.churn(6)
    assert outcomes == {"refused", "skipped", "fits", NO_DISK, IN_USE}


@pytest.mark.parametrize(
    ("mine", "theirs", "clash"),
    [
        (gce("d"), gce("d"), True),
        (gce("d", read_only=True), gce("d"), True),
        (gce("d"), gce("d", read_only=True), True),
        (gce("d", read_only=True), gce("d", read_only=True), False),
        (gce("d"), gce("e"), False),
        (ebs("d", read_only=True), ebs("d", read_only=True), True),
        (ebs("d"), ebs("e"), False),
        (ebs("d"), gce("d"), False),
        (iscsi("q"), iscsi("q"), True),
        (iscsi("q", read_only=True), iscsi("q", read_only=True), False),
        (rbd(("a", "b")), rbd(("b", "c")), True),
        (rbd(("a", "b"), read_only=True), rbd(("b", "c"), read_only=True), False),
        (rbd(("a",)), rbd(("b",)), False),
        (rbd(("a",)), rbd(("a",), image="other"), False),
        (rbd(("a",)), rbd(("a",), pool="other"), False),
        (rbd(None), rbd(None), False),
    ],
)
def test_disks_that_cannot_be_shared(mine, theirs, clash):
    bench = Bench(make_node("n"), make_node("m"), other(theirs))
    status, verdicts = judge(bench, make_pod_with(mine))
    assert status == SUCCESS
    assert verdicts == [(Code.Unschedulable, (NO_DISK,)) if clash else None, None]


def test_a_disk_is_free_again_once_its_last_user_has_gone():
    first, second = other(gce("d")), make_pod_with(gce("d"), uid="u-2", node_name="n")
    bench = Bench(make_node("n"), first, second)
    bench.table.remove_pod(first)
    assert judge(bench, make_pod_with(gce("d")))[1] == [(Code.Unschedulable, (NO_DISK,))]
    bench.table.remove_pod(second)
    assert judge(bench, make_pod_with(gce("d")))[1] == [None]


def test_pods_without_such_volumes_are_skipped():
    bench = Bench(make_node("n"), make_claim("c"), other("c"))
    assert judge(bench, make_pod_with())[0] == SKIP
    assert judge(bench, make_pod_with("c"))[0] == SKIP


def test_a_claim_that_is_missing():
    status, _ = judge(Bench(make_node("n")), make_pod_with("c"))
    assert status.code is Code.UnschedulableAndUnresolvable
    assert status.reasons == ('persistentvolumeclaim "c" not found',)


def test_an_exclusive_claim_in_use_rejects_every_node_so_that_preemption_can_help():
    bench = Bench(make_node("n"), make_node("m"), EXCLUSIVE, other("solo"))
    _, verdicts = judge(bench, make_pod_with("solo"))
    assert verdicts == [(Code.Unschedulable, (IN_USE,))] * 2
    assert judge(bench, make_pod_with("solo", namespace="ns"))[1] == verdicts


def test_an_exclusive_claim_of_another_namespace_or_on_a_node_that_is_gone_is_free():
    bench = Bench(make_node("n"), EXCLUSIVE, other("solo", namespace="elsewhere"))
    assert judge(bench, make_pod_with("solo"))[0] == SKIP
    bench = Bench(make_node("n"), EXCLUSIVE, other("solo", node="gone"))
    assert judge(bench, make_pod_with("solo"))[0] == SKIP


def test_imagining_the_user_away_frees_an_exclusive_claim_on_that_row_only():
    user = other("solo", "solo")
    bench = Bench(make_node("n"), make_node("m"), EXCLUSIVE, user)
    pod = make_pod_with("solo")
    view = DryRunView(bench.table, bench.view().rows)
    view.remove(0, user)
    assert judge(bench, pod, view)[1] == [None, (Code.Unschedulable, (IN_USE,))]
    view.add(0, user)
    assert judge(bench, pod, view)[1] == [(Code.Unschedulable, (IN_USE,))] * 2
    view.add(1, make_pod_with("solo", uid="u-3", namespace="elsewhere"))
    view.remove(0, user)
    assert judge(bench, pod, view)[1] == [None, (Code.Unschedulable, (IN_USE,))]


def test_imagining_a_pod_away_frees_all_of_its_exclusive_claims():
    user = other("solo", "duo")
    bench = Bench(make_node("n"), EXCLUSIVE, make_claim("duo", modes=("ReadWriteOncePod",)), user)
    pod = make_pod_with("solo", "duo")
    view = DryRunView(bench.table, bench.view().rows)
    assert judge(bench, pod, view)[1] == [(Code.Unschedulable, (IN_USE,))]
    view.remove(0, user)
    assert judge(bench, pod, view)[1] == [None]


def test_a_pod_imagined_on_a_row_takes_an_exclusive_claim_whatever_its_namespace():
    taken, free = make_claim("solo", modes=("ReadWriteOncePod",)), make_pod_with("solo", gce("d"))
    bench = Bench(make_node("n"), taken)
    view = DryRunView(bench.table, bench.view().rows)
    assert judge(bench, free, view)[1] == [None]
    view.add(0, make_pod_with("solo", uid="u-3", namespace="elsewhere"))
    assert judge(bench, free, view)[1] == [(Code.Unschedulable, (IN_USE,))]


def test_a_clashing_disk_is_the_first_reason():
    bench = Bench(make_node("n"), make_node("m"), EXCLUSIVE, other("solo", gce("d")))
    _, verdicts = judge(bench, make_pod_with("solo", gce("d")))
    assert verdicts == [(Code.Unschedulable, (NO_DISK,)), (Code.Unschedulable, (IN_USE,))]


def test_events():
    plugin = VolumeRestrictions(None, Bench().handle)
    deleted, added, claim = plugin.events_to_register()
    assert deleted.event == ClusterEvent(Resource.Pod, Action.Delete)
    assert (added.event, added.hint) == (NODE_ADD, None)
    assert claim.event == ClusterEvent(Resource.PersistentVolumeClaim, Action.Add)
    assert points_of(plugin) == {"preFilter", "filter"}


@pytest.mark.parametrize(
    ("gone", "expected"),
    [
        (other(gce("d")), True),
        (other(gce("d"), node=""), True),
        (other("mine"), True),
        (other("mine", namespace="elsewhere"), False),
        (other(gce("d"), namespace="elsewhere"), False),
        (other(gce("e")), False),
        (other("theirs"), False),
        (other(), False),
    ],
)
def test_hint_after_a_pod_has_gone(gone, expected):
    deleted, _, _ = VolumeRestrictions(None, Bench().handle).events_to_register()
    assert deleted.hint(make_pod_with("mine", gce("d")), gone, None) is expected


def test_hint_after_a_claim_was_added():
    _, _, added = VolumeRestrictions(None, Bench().handle).events_to_register()
    pod = make_pod_with("mine")
    assert added.hint(pod, None, make_claim("mine"))
    assert not added.hint(pod, None, make_claim("mine", namespace="elsewhere"))
    assert not added.hint(pod, None, make_claim("theirs"))
