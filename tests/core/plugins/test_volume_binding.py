"""VolumeBinding: which nodes will do."""

from collections import Counter

import numpy as np
import pytest

from app.framework.interface import CycleState
from app.framework.plugin_class import points_of
from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.objects import (
    CSI,
    AWSElasticBlockStore,
    EphemeralSource,
    NodeSelector,
    NodeSelectorTerm,
    Volume,
)
from app.model.selectors import LabelSelector, Requirement
from app.model.status import SKIP, SUCCESS, Code
from app.plugins.args import VolumeBindingArgs
from app.plugins.volume_binding import VolumeBinding
from tests.core.framework.worlds import verdict
from tests.core.plugins.twins.volumes import Claims, Found, judged
from tests.core.plugins.volume_world import (
    BETA_CLASS,
    EBS,
    EBS_ZONE,
    HOST,
    SELECTED,
    ZONE,
    Bench,
    VolumeWorld,
    make_capacity,
    make_claim,
    make_class,
    make_csi_node,
    make_driver,
    make_node,
    make_pod_with,
    make_volume,
    within,
)

UU = Code.UnschedulableAndUnresolvable
NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
NO_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
EPHEMERAL = Volume(name="eph", ephemeral=EphemeralSource())
LOCAL = make_class("local", "kubernetes.io/no-provisioner")


def judge(bench, pod, view=None):
    """Verdicts by position of the view: None, or (code, *reasons)."""
    plugin, state = VolumeBinding(None, bench.handle), CycleState()
    assert plugin.pre_filter(state, pod) == SUCCESS
    view = view or bench.view()
    found = plugin.filter(state, pod, view)
    verdicts = [verdict(found, position) for position in range(view.n)]
    return [None if said is None else (said[0], *said[1]) for said in verdicts]


def refusal(bench, pod):
    """PreFilter's code and reasons."""
    status = VolumeBinding(None, bench.handle).pre_filter(CycleState(), pod)
    return status.code, *status.reasons


def chosen(bench, plugin, state, pod, name):
    """What Reserve sets aside on a node, given back afterwards: ({(volume, claim)}, {claims})."""
    status = plugin.reserve(state, pod, name)
    assert status == SUCCESS
    reservation = state.get("VolumeBinding/reservation")
    plugin.unreserve(state, pod, name)
    assert not bench.cluster.assumed.volumes._assumed
    assert not bench.cluster.assumed.claims._assumed
    if reservation is None:
        return [], set()
    bindings = [(b.stored.name, b.claim.name) for b in reservation.bindings]
    return bindings, {p.stored.name for p in reservation.provisions}


# ---------------------------------------------------------------- against the twin


def sound_pod(world):
    """A pod whose claims are not refused as a whole."""
    names = [
        claim.name
        for claim in world.cluster.claims
        if judged(Claims, world.cluster, make_pod_with(claim.name))[1] is None
    ]
    return make_pod_with(*world.rng.sample(names, min(len(names), world.rng.choice((1, 2, 3)))))


def compare(world, plugin, pod):
    """How a pod fared, checked against the twin on every view, and on every node that will do."""
    state = CycleState()
    claims, refused = judged(Claims, world.cluster, pod)
    status = plugin.pre_filter(state, pod)
    if refused is not None:
        assert (status.code, status.reasons) == refused
        return [refused[0].name]
    assert status == (SKIP if claims.skip else SUCCESS)
    if claims.skip:
        return ["skipped"]
    outcomes = []
    for seen in world.views():
        found = plugin.filter(state, pod, seen.view)
        for position, scene in enumerate(seen.scenes):
            if scene is None:
                continue
            twin = Found(claims, scene.node)
            assert verdict(found, position) == twin.verdict, (pod, scene)
            outcomes += ["fits"] if twin.verdict is None else twin.verdict[1]
            if twin.verdict is None:
                bindings, provisions = chosen(world, plugin, state, pod, scene.node.name)
                assert bindings == twin.bindings
                assert provisions == set(twin.provisions)
                outcomes += ["bound"] * (len(twin.bindings) > 1) + ["made"] * len(provisions)
    return outcomes


def test_agrees_with_its_twin():
    outcomes = Counter()
    for seed in range(20):
        world = VolumeWorld(seed, nodes=9)
        plugin = VolumeBinding(None, world.handle)
        for _ in range(8):
            outcomes.update(compare(world, plugin, world.random_pod()))
            outcomes.update(compare(world, plugin, sound_pod(world)))
            world.churn(6)
    wanted = {"skipped", "fits", "bound", "made", "Error", UU.name}
    assert set(outcomes) >= wanted | {NODE_CONFLICT, BIND_CONFLICT, NO_SPACE, NO_VOLUME}
    assert any(reason.startswith("error creating internal label selector") for reason in outcomes)


def test_several_claims_of_one_pod_agree_with_the_twin():
    """Many volumes of one class, few sizes: claims have to get out of each other's way."""
    several = 0
    for seed in range(12):
        world = VolumeWorld(seed, nodes=6)
        rng = world.rng
        for number in range(40):
            size, affinity = rng.choice(("1Gi", "2Gi", "4Gi")), world.random_affinity()
            world.put(
                make_volume(f"x{number}", size=size, storage_class="local", affinity=affinity)
            )
        names = [f"w{number}" for number in range(4)]
        for name in names:
            world.put(make_claim(name, size=rng.choice(("1Gi", "2Gi")), storage_class="local"))
        world.put(make_volume("reserved", storage_class="local", claim=("ns", "w0"),
                              affinity=world.random_affinity()))  # fmt: skip
        plugin, state = VolumeBinding(None, world.handle), CycleState()
        pod = make_pod_with(*names, "w0")
        assert plugin.pre_filter(state, pod) == SUCCESS
        found = plugin.filter(state, pod, world.view())
        for name, node in world.nodes.items():
            twin = Found(Claims(world.cluster, pod), node)
            assert verdict(found, world.table.row_of[name]) == twin.verdict
            if twin.verdict is None:
                several += 1
                assert chosen(world, plugin, state, pod, name)[0] == twin.bindings
    assert several > 10


def stock_of(plugin):
    """{class: (free volumes, their columns, reserved ones)}, without classes that have none."""
    unbound = plugin._finder._matcher._unbound
    unbound.of_class("")
    columns_of = {name: volumes._numbered() for name, volumes in unbound._classes.items()}
    topologies = {number: topology for topology, number in unbound._topologies._numbers.items()}
    traits = {number: one for one, number in unbound._traits.items()}
    found = {}
    for name, volumes in unbound._classes.items():
        numbers = columns_of[name]
        columns = (
            [topologies[p] for p in numbers[0].tolist()],
            [traits[t] for t in numbers[1].tolist()],
        )
        reserved = {claim: set(names) for claim, names in volumes.reserved.items()}
        if volumes.free or reserved:
            found[name] = (list(map(id, volumes.free)), *columns, reserved)
    return found


def test_the_stock_follows_every_change():
    for seed in range(8):
        world = VolumeWorld(seed, nodes=5)
        plugin = VolumeBinding(None, world.handle)
        stock_of(plugin)
        for _ in range(10):
            world.churn(12)
            pod, state = sound_pod(world), CycleState()
            if plugin.pre_filter(state, pod) == SUCCESS:
                plugin.reserve(state, pod, world.rng.choice(list(world.nodes)))
                if world.rng.random() < 0.5:
                    plugin.unreserve(state, pod, "")
            assert stock_of(plugin) == stock_of(VolumeBinding(None, world.handle))


# ---------------------------------------------------------------- PreFilter


def test_pods_without_claims_are_skipped():
    plugin = VolumeBinding(None, Bench().handle)
    assert plugin.pre_filter(CycleState(), make_pod_with()) == SKIP
    inline = Volume(name="v", csi=CSI("csi.a"))
    assert plugin.pre_filter(CycleState(), make_pod_with(inline)) == SKIP


@pytest.mark.parametrize(
    ("claim", "text"),
    [
        (make_claim("other"), 'persistentvolumeclaim "c" not found'),
        (
            make_claim("c", volume="pv", bound=True, phase="Lost"),
            'persistentvolumeclaim "c" bound to non-existent persistentvolume "pv"',
        ),
        (make_claim("c", deleted=True), 'persistentvolumeclaim "c" is being deleted'),
        (make_claim("c"), "pod has unbound immediate PersistentVolumeClaims"),
        (
            make_claim("c", storage_class="gone"),
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        (make_claim("c", storage_class="now"), "pod has unbound immediate PersistentVolumeClaims"),
        (
            make_claim("c", storage_class="wait", volume="pv"),
            "pod has unbound immediate PersistentVolumeClaims",
        ),
    ],
)
def test_claims_that_refuse_the_pod_as_a_whole(claim, text):
    bench = Bench(claim, make_class("wait"), make_class("now", mode="Immediate"))
    assert refusal(bench, make_pod_with("c")) == (UU, text)


def test_the_claim_of_an_ephemeral_volume():
    pod = make_pod_with(EPHEMERAL)
    waiting = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-eph"'
    assert refusal(Bench(), pod) == (UU, waiting)
    foreign = "PVC ns/p-eph was not created for pod ns/p (pod is not owner)"
    assert refusal(Bench(make_claim("p-eph", owner="u-x")), pod) == (UU, foreign)
    bench = Bench(
        make_node("n"), make_class("wait"), make_claim("p-eph", owner="u-p", storage_class="wait")
    )
    assert judge(bench, pod) == [None]


def test_a_class_without_a_binding_mode_is_a_fault():
    bench = Bench(make_claim("c", storage_class="mute"), make_class("mute", mode=None))
    text = 'VolumeBindingMode not set for StorageClass "mute"'
    assert refusal(bench, make_pod_with("c")) == (Code.Error, text)


def test_a_claim_whose_size_cannot_be_read_is_a_fault():
    bench = Bench(make_claim("c", storage_class="wait", size="much"), make_class("wait"))
    code, text = refusal(bench, make_pod_with("c"))
    assert code is Code.Error
    assert text.startswith('persistentvolumeclaim "ns/c": quantities must match')


def test_the_beta_annotation_names_the_class():
    annotations = {BETA_CLASS: "wait"}
    claim = make_claim("c", storage_class="now", annotations=annotations)
    bench = Bench(make_node("n"), claim, make_class("wait"), make_class("now", mode="Immediate"))
    assert judge(bench, make_pod_with("c")) == [None]


# ---------------------------------------------------------------- bound claims


def bound_bench(affinity=None, **volume):
    return Bench(
        make_node("a", zone="z1"), make_node("b", zone="z2"), make_node("c"),
        make_claim("c", volume="pv", bound=True),
        make_volume("pv", claim=("ns", "c"), phase="Bound", affinity=affinity, **volume),
    )  # fmt: skip


NODE = (UU, NODE_CONFLICT)


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        (None, [None, None, None]),
        (within(ZONE, "z1"), [None, NODE, NODE]),
        (within(ZONE, "z1", "z2"), [None, None, NODE]),
        (NodeSelector(()), [NODE, NODE, NODE]),
        (NodeSelector((NodeSelectorTerm(),)), [NODE, NODE, NODE]),
        (
            NodeSelector((NodeSelectorTerm(None, (Requirement("metadata.name", "In", ("x",)),)),)),
            [None, None, None],
        ),
        (
            NodeSelector((NodeSelectorTerm(None, (Requirement("metadata.name", "Exists"),)),)),
            [NODE, NODE, NODE],
        ),
    ],
)
def test_bound_volumes_are_used_within_reach(affinity, expected):
    assert judge(bound_bench(affinity), make_pod_with("c")) == expected


def test_a_bound_volume_that_is_missing():
    bench = Bench(make_node("n"), make_claim("c", volume="pv", bound=True))
    assert judge(bench, make_pod_with("c")) == [(UU, NO_VOLUME)]


def test_of_two_bound_claims_the_first_that_fails_decides():
    bench = bound_bench(within(ZONE, "z1"))
    bench.put(make_claim("gone", volume="pv-gone", bound=True))
    missing = (UU, NO_VOLUME)
    assert judge(bench, make_pod_with("c", "gone")) == [missing, NODE, NODE]
    assert judge(bench, make_pod_with("gone", "c")) == [missing, missing, missing]


def test_both_kinds_of_claims_have_their_say():
    bench = bound_bench(within(ZONE, "z1"))
    bench.put(LOCAL, make_claim("w", storage_class="local"))
    both = (UU, NODE_CONFLICT, BIND_CONFLICT)
    assert judge(bench, make_pod_with("c", "w")) == [(UU, BIND_CONFLICT), both, both]


def test_in_tree_volumes_are_judged_by_the_drivers_label_where_the_node_has_migrated():
    bench = bound_bench(
        within(ZONE, "z1"), aws_elastic_block_store=AWSElasticBlockStore("aws://z1/vol-1")
    )
    assert judge(bench, make_pod_with("c")) == [None, NODE, NODE]
    bench.put(make_csi_node("a", EBS), make_csi_node("c", f"x,{EBS}"), make_csi_node("b"))
    assert judge(bench, make_pod_with("c")) == [NODE, NODE, NODE]
    bench.put(make_node("c", **{EBS_ZONE: "z1"}))
    assert judge(bench, make_pod_with("c")) == [NODE, NODE, None]


def test_an_in_tree_volume_that_cannot_be_translated_is_a_fault_on_migrated_nodes():
    bench = bound_bench(aws_elastic_block_store=AWSElasticBlockStore("aws://z1/disk"))
    bench.put(make_csi_node("b", EBS))
    text = (
        "could not translate pv: failed to translate Kubernetes ID to EBS Volume ID "
        "Invalid format for AWS volume (aws://z1/disk)"
    )
    assert judge(bench, make_pod_with("c")) == [None, (Code.Error, text), None]


# ---------------------------------------------------------------- volumes that exist


def local_bench(*volumes, **claim):
    return Bench(
        make_node("a", zone="z1"), make_node("b", zone="z2"), LOCAL,
        make_claim("c", **{"storage_class": "local", "size": "2Gi", **claim}), *volumes,
    )  # fmt: skip


def local(name, **fields):
    return make_volume(name, **{"storage_class": "local", "size": "2Gi", **fields})


def pick(bench, name="a", pod=None):
    """The volumes chosen on a node."""
    plugin, state, pod = VolumeBinding(None, bench.handle), CycleState(), pod or make_pod_with("c")
    assert plugin.pre_filter(state, pod) == SUCCESS
    return chosen(bench, plugin, state, pod, name)[0]


BIND = (UU, BIND_CONFLICT)


@pytest.mark.parametrize(
    ("volume", "claim", "fits"),
    [
        (local("pv"), {}, True),
        (local("pv", size="1.9Gi"), {}, False),
        (local("pv", size="2048Mi"), {}, True),
        (local("pv", size=""), {}, False),
        (local("pv", size="many"), {}, False),
        (local("pv", size=""), {"size": None}, True),
        (local("pv", storage_class="other"), {}, False),
        (local("pv", storage_class="other", annotations={BETA_CLASS: "local"}), {}, True),
        (local("pv", phase="Released"), {}, False),
        (local("pv", phase="Bound", claim=("ns", "other")), {}, False),
        (local("pv", claim=("other", "c")), {}, False),
        (local("pv", claim=("ns", "c"), claim_uid="stale"), {}, False),
        (local("pv", deleted=True), {}, False),
        (local("pv", volume_mode="Block"), {}, False),
        (local("pv", volume_mode="Filesystem"), {}, True),
        (local("pv", volume_mode="Block"), {"volume_mode": "Block"}, True),
        (local("pv"), {"volume_attributes_class_name": "gold"}, False),
        (local("pv", volume_attributes_class_name=""), {}, True),
        (local("pv", modes=("ReadOnlyMany",)), {}, False),
        (local("pv", modes=("ReadOnlyMany", "ReadWriteOnce")), {}, True),
        (local("pv"), {"selector": LabelSelector({"tier": "fast"})}, False),
        (local("pv", labels={"tier": "fast"}), {"selector": LabelSelector({"tier": "fast"})}, True),
        (local("pv"), {"selector": LabelSelector()}, True),
    ],
)
def test_which_volumes_will_do(volume, claim, fits):
    expected = [None, None] if fits else [BIND, BIND]
    assert judge(local_bench(volume, **claim), make_pod_with("c")) == expected


def test_the_smallest_that_will_do_is_chosen_within_reach_of_the_node():
    bench = local_bench(
        local("large", size="9Gi"), local("small", size="1Gi"), local("far", affinity=within(ZONE, "z2")),
        local("near", size="3Gi", affinity=within(HOST, "a", "x")), local("mid", size="5Gi"),
    )  # fmt: skip
    assert pick(bench, "a") == [("near", "c")]
    assert pick(bench, "b") == [("far", "c")]


def test_equal_volumes_are_chosen_by_name():
    assert pick(local_bench(local("y"), local("x"), local("z"))) == [("x", "c")]


@pytest.mark.parametrize("uid", [None, ""])
def test_a_volume_reserved_for_the_claim_is_the_only_choice(uid):
    reserved = local(
        "large", size="9Gi", phase="Pending", claim=("ns", "c"), claim_uid=uid, modes=(),
        affinity=within(ZONE, "z1"),
    )  # fmt: skip
    bench = local_bench(local("small"), reserved, selector=LabelSelector({"no": "matter"}))
    assert judge(bench, make_pod_with("c")) == [None, BIND]
    assert pick(bench) == [("large", "c")]


def test_a_reserved_volume_that_is_too_small_is_passed_over():
    bench = local_bench(local("small", size="1Gi", claim=("ns", "c")), local("free"))
    assert pick(bench) == [("free", "c")]


def test_claims_of_one_pod_choose_different_volumes_the_smallest_claim_first():
    bench = local_bench(local("two"), local("three", size="3Gi"), local("four", size="4Gi"))
    bench.put(make_claim("d", storage_class="local", size="1Gi"))
    bench.put(make_claim("e", storage_class="local", size="4Gi"))
    pod = make_pod_with("e", "c", "d")
    assert pick(bench, pod=pod) == [("two", "d"), ("three", "c"), ("four", "e")]
    bench.put(make_claim("f", storage_class="local", size="1Gi"))
    assert judge(bench, make_pod_with("c", "d", "e", "f")) == [BIND, BIND]


def test_a_claim_that_two_volumes_of_the_pod_name_takes_two():
    pod = make_pod_with("c", "c")
    assert judge(local_bench(local("x")), pod) == [BIND, BIND]
    assert pick(local_bench(local("x"), local("y")), pod=pod) == [("x", "c"), ("y", "c")]


def test_a_selector_that_cannot_be_read_is_a_fault():
    broken = LabelSelector(match_expressions=(Requirement("tier", "Near"),))
    (code, text), _ = judge(local_bench(selector=broken), make_pod_with("c"))
    assert code is Code.Error
    assert text.startswith("error creating internal label selector for claim: ns/c: ")


def test_a_fault_is_none_of_a_node_that_is_gone():
    broken = LabelSelector(match_expressions=(Requirement("tier", "Near"),))
    bench = local_bench(make_pod_with(node_name="gone", uid="u-2"), selector=broken)
    assert [said and said[0] for said in judge(bench, make_pod_with("c"))] == [Code.Error] * 2 + [
        None
    ]


def test_many_volumes_each_on_its_own_node():
    names = [f"n{number}" for number in range(300)]
    bench = Bench(
        *map(make_node, names), LOCAL, make_claim("c", storage_class="local"),
        make_claim("d", storage_class="local"),
        *(local(f"pv-{name}-{k}", affinity=within(HOST, name)) for name in names[:200] for k in "ab"),
        *(local(f"pv-{name}-a", affinity=within(HOST, name)) for name in names[200:250]),
    )  # fmt: skip
    verdicts = judge(bench, make_pod_with("c", "d"))
    assert verdicts == [None] * 200 + [BIND] * 100
    assert judge(bench, make_pod_with("c")) == [None] * 250 + [BIND] * 50
    taken = [("pv-n7-a", "c"), ("pv-n7-b", "d")]
    assert pick(bench, "n7", make_pod_with("c", "d")) == taken


def test_nodes_that_come_later_reach_volumes_that_waited_for_them():
    bench = local_bench(
        local("here", affinity=within(HOST, "a")), local("late", affinity=within(HOST, "z"))
    )
    plugin, state = VolumeBinding(None, bench.handle), CycleState()
    assert plugin.pre_filter(state, make_pod_with("c")) == SUCCESS

    def fits():
        found = plugin.filter(state, make_pod_with("c"), bench.view())
        return [verdict(found, position) is None for position in range(bench.table.size)]

    assert fits() == [True, False]
    bench.put(make_node("z"))
    assert fits() == [True, False, True]
    bench.put(local("later", affinity=within(HOST, "b")))
    assert fits() == [True, True, True]


# ---------------------------------------------------------------- volumes to be made


def dynamic_bench(*objects, storage_class=None, **claim):
    return Bench(
        make_node("a", zone="z1", disk="ssd"), make_node("b", zone="z2"),
        storage_class or make_class("dyn", "csi.cap"), make_driver("csi.cap", True),
        make_claim("c", **{"storage_class": "dyn", "size": "2Gi", **claim}), *objects,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("topologies", "expected"),
    [
        ((), [None, None]),
        (({ZONE: ("z1",)},), [None, BIND]),
        (({ZONE: ("z1",)}, {ZONE: ("z2", "z3")}), [None, None]),
        (({ZONE: ("z1", "z2"), "disk": ("ssd",)},), [None, BIND]),
        (({},), [BIND, BIND]),
    ],
)
def test_allowed_topologies(topologies, expected):
    kind = make_class("dyn", "csi.a", "WaitForFirstConsumer", *topologies)
    assert judge(dynamic_bench(storage_class=kind), make_pod_with("c")) == expected


@pytest.mark.parametrize("provisioner", ["", "kubernetes.io/no-provisioner"])
def test_a_class_that_makes_no_volumes(provisioner):
    bench = dynamic_bench(storage_class=make_class("dyn", provisioner))
    assert judge(bench, make_pod_with("c")) == [BIND, BIND]


SPACE = (UU, NO_SPACE)
IN_Z1 = LabelSelector({ZONE: "z1"})


@pytest.mark.parametrize(
    ("capacities", "expected"),
    [
        ((), [SPACE, SPACE]),
        ((make_capacity("1", "dyn", "2Gi", IN_Z1),), [None, SPACE]),
        ((make_capacity("1", "dyn", "1.9Gi", IN_Z1),), [SPACE, SPACE]),
        ((make_capacity("1", "dyn", "9Gi", IN_Z1, "1Gi"),), [SPACE, SPACE]),
        ((make_capacity("1", "dyn", "1Gi", IN_Z1, "2Gi"),), [None, SPACE]),
        ((make_capacity("1", "dyn", "1e30", IN_Z1),), [None, SPACE]),
        ((make_capacity("1", "other", "9Gi", IN_Z1),), [SPACE, SPACE]),
        ((make_capacity("1", "dyn", None, IN_Z1),), [SPACE, SPACE]),
        ((make_capacity("1", "dyn", "plenty", IN_Z1),), [SPACE, SPACE]),
        ((make_capacity("1", "dyn", "9Gi", None),), [SPACE, SPACE]),
        ((make_capacity("1", "dyn", "9Gi", LabelSelector()),), [None, None]),
    ],
)
def test_capacity(capacities, expected):
    assert judge(dynamic_bench(*capacities), make_pod_with("c")) == expected


@pytest.mark.parametrize("driver", [None, False])
def test_capacity_counts_only_where_the_driver_reports_it(driver):
    bench = dynamic_bench(make_driver("csi.cap", driver))
    assert judge(bench, make_pod_with("c")) == [None, None]
    bench.gone(make_driver("csi.cap"))
    assert judge(bench, make_pod_with("c")) == [None, None]


def test_a_claim_that_asks_for_nothing_needs_no_capacity():
    assert judge(dynamic_bench(size=None), make_pod_with("c")) == [None, None]


def test_capacities_are_followed():
    bench, pod = dynamic_bench(), make_pod_with("c")
    plugin, state, view = VolumeBinding(None, bench.handle), CycleState(), bench.view()
    assert plugin.pre_filter(state, pod) == SUCCESS

    def fits():
        found = plugin.filter(state, pod, view)
        return [verdict(found, position) is None for position in range(view.n)]

    assert fits() == [False, False]
    bench.put(make_capacity("1", "dyn", "9Gi", IN_Z1))
    assert fits() == [True, False]
    bench.put(make_capacity("1", "dyn", "9Gi", LabelSelector()))
    assert fits() == [True, True]
    bench.put(make_capacity("1", "other", "9Gi", LabelSelector()))
    assert fits() == [False, False]
    bench.put(make_capacity("1", "dyn", "9Gi", LabelSelector()))
    bench.put(make_capacity("1", "dyn", None, LabelSelector()))
    assert fits() == [False, False]
    bench.put(make_capacity("1", "dyn", "9Gi", IN_Z1))
    bench.gone(make_capacity("1", "dyn", "9Gi", IN_Z1))
    assert fits() == [False, False]


def test_the_first_claim_that_cannot_be_made_decides():
    bench = dynamic_bench(LOCAL, make_claim("w", storage_class="local", size="1Gi"))
    assert judge(bench, make_pod_with("c", "w")) == [BIND, BIND]
    bench.put(make_claim("w", storage_class="local", size="3Gi"))
    assert judge(bench, make_pod_with("c", "w")) == [SPACE, SPACE]


def test_a_claim_with_a_selected_node_goes_nowhere_else():
    bench = dynamic_bench(make_capacity("1", "dyn", "9Gi", LabelSelector()))
    bench.put(make_claim("c", storage_class="dyn", annotations={SELECTED: "b"}))
    assert judge(bench, make_pod_with("c")) == [BIND, None]
    bench.put(make_claim("c", storage_class="dyn", annotations={SELECTED: "gone"}))
    assert judge(bench, make_pod_with("c")) == [BIND, BIND]


def test_a_claim_with_a_selected_node_is_made_even_if_a_volume_exists():
    bench = local_bench(local("pv"), annotations={SELECTED: "a"})
    assert judge(bench, make_pod_with("c")) == [BIND, BIND]


# ---------------------------------------------------------------- the rest


def test_nothing_is_scored():
    bench = dynamic_bench()
    plugin, view = VolumeBinding(None, bench.handle), bench.view()
    assert plugin.pre_score(CycleState(), make_pod_with("c"), view) == SKIP
    scores = plugin.score(CycleState(), make_pod_with("c"), view)
    assert scores.tolist() == [0, 0]
    assert scores.dtype == np.int64


def test_a_pod_that_was_skipped_is_not_filtered():
    bench = dynamic_bench()
    plugin = VolumeBinding(VolumeBindingArgs(), bench.handle)
    assert plugin.filter(CycleState(), make_pod_with(), bench.view()) is None


def test_events():
    plugin = VolumeBinding(None, Bench().handle)
    change = Action.Add | Action.Update
    registrations = tuple(plugin.events_to_register())
    assert [r.event for r in registrations] == [
        ClusterEvent(Resource.StorageClass, change),
        ClusterEvent(Resource.PersistentVolumeClaim, change),
        ClusterEvent(Resource.PersistentVolume, change),
        ClusterEvent(Resource.Node, Action.Add | Action.UpdateNodeLabel),
        ClusterEvent(Resource.CSINode, change),
        ClusterEvent(Resource.CSIDriver, Action.Update),
        ClusterEvent(Resource.CSIStorageCapacity, change),
    ]
    assert [r.hint is None for r in registrations] == [
        False,
        False,
        True,
        True,
        False,
        False,
        False,
    ]
    assert points_of(plugin) == {"preFilter", "filter", "preScore", "score", "reserve", "preBind"}


def hint(number):
    return tuple(VolumeBinding(None, Bench().handle).events_to_register())[number].hint


def test_hint_after_a_class_changed():
    wait, zone = "WaitForFirstConsumer", {ZONE: ("z1",)}
    pod, old = make_pod_with("c"), make_class("x", "csi.a", wait, zone)
    assert hint(0)(pod, None, old)
    assert hint(0)(pod, old, make_class("x"))
    assert hint(0)(pod, old, make_class("x", "csi.a", wait, {ZONE: ("z1", "z2")}))
    assert not hint(0)(pod, old, make_class("x", "csi.b", wait, zone))
    assert not hint(0)(pod, make_class("x"), make_class("x"))


def test_hint_after_a_claim_changed():
    pod = make_pod_with("c", EPHEMERAL)
    assert hint(1)(pod, None, make_claim("c"))
    assert hint(1)(pod, make_claim("p-eph"), make_claim("p-eph"))
    assert not hint(1)(pod, None, make_claim("c", namespace="elsewhere"))
    assert not hint(1)(pod, None, make_claim("d"))


def test_hint_after_a_csi_node_changed():
    pod, old = make_pod_with("c"), make_csi_node("n", EBS, csi_a=1)
    assert hint(4)(pod, None, old)
    assert hint(4)(pod, old, make_csi_node("n", csi_a=1))
    assert not hint(4)(pod, old, make_csi_node("n", EBS, csi_a=2))


@pytest.mark.parametrize(
    ("old", "new", "name", "expected"),
    [
        (True, False, "csi.a", True),
        (True, None, "csi.a", True),
        (True, True, "csi.a", False),
        (False, None, "csi.a", False),
        (None, True, "csi.a", False),
        (True, False, "csi.b", False),
    ],
)
def test_hint_after_a_driver_changed(old, new, name, expected):
    pod = make_pod_with("c", Volume(name="v", csi=CSI("csi.a")))
    drivers = make_driver(name, old), make_driver(name, new)
    assert hint(5)(pod, *drivers) is expected
    assert not hint(5)(make_pod_with("c"), *drivers)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (("1Gi", None), ("2Gi", None), True),
        ((None, None), ("1Gi", None), True),
        (("2Gi", None), ("2048Mi", None), False),
        (("2Gi", None), ("1Gi", None), False),
        (("1Gi", None), (None, None), False),
        (("9Gi", "1Gi"), ("9Gi", "2Gi"), True),
        (("1Gi", "2Gi"), ("9Gi", "2Gi"), False),
    ],
)
def test_hint_after_capacity_changed(old, new, expected):
    before = make_capacity("1", "dyn", old[0], None, old[1])
    after = make_capacity("1", "dyn", new[0], None, new[1])
    assert hint(6)(make_pod_with("c"), before, after) is expected
    assert hint(6)(make_pod_with("c"), None, after)
