import random

import numpy as np
import pytest

from app.framework import testing
from app.framework.interface import CycleState, QueueingHint
from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.devices import DatedMeta, DeviceClass, DeviceClassSpec
from app.model.limits import MAX_RESOURCES
from app.model.objects import (
    Container,
    Node,
    NodeStatus,
    ObjectMeta,
    PodSpec,
    ResourceRequirements,
)
from app.model.pod import make_pod
from app.model.requests import PodResources
from app.model.status import SUCCESS, Code, Status
from app.plugins import node_resources_fit
from app.plugins.args import NodeResourcesFitArgs, ResourceSpec, UtilizationShapePoint
from app.plugins.node_resources_fit import NodeResourcesFit
from app.state.view import View
from tests.core.framework.worlds import World, check_filter, check_score, verdict
from tests.core.plugins.twins import node_resources as twin

SHAPES = (
    ((0, 0), (100, 10)),
    ((0, 10), (100, 0)),
    ((10, 3), (33, 10), (70, 1), (71, 4)),
    ((50, 7),),
)
RESOURCES = (
    (("cpu", 1), ("memory", 1)),
    (("memory", 2), ("cpu", 3)),
    (("cpu", 1), ("example.com/gpu", 5), ("ephemeral-storage", 2)),
    (("hugepages-2Mi", 7), ("example.com/never", 1), ("storage", 1)),
    (("memory", 100),),
)


def pod_requesting(uid="u", **fields):
    requests = fields.pop("requests", {})
    container = Container(resources=ResourceRequirements(requests=requests))
    return make_pod(PodSpec(containers=(container,)), namespace="ns", name="p", uid=uid, **fields)


def node(**allocatable):
    names = {"gpu": "example.com/gpu", "storage": "ephemeral-storage"}
    amounts = {names.get(name, name): amount for name, amount in allocatable.items()}
    return Node(metadata=ObjectMeta(name="n"), status=NodeStatus(allocatable=amounts))


def random_fit_args(rng):
    strategy = rng.choice(("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"))
    return NodeResourcesFitArgs(
        ignored_resources=frozenset(rng.sample(("example.com/never", "hugepages-2Mi"), 1)),
        ignored_resource_groups=frozenset(rng.sample(("example.com", "other.com", "x"), 1)),
        strategy=strategy,
        resources=tuple(ResourceSpec(*pair) for pair in rng.choice(RESOURCES)),
        shape=tuple(UtilizationShapePoint(*point) for point in rng.choice(SHAPES)),
    )


def filtered(plugin, pod, view):
    state = CycleState()
    assert plugin.pre_filter(state, pod) == SUCCESS
    return plugin.filter(state, pod, view)


# ---------------------------------------------------------------- the twin


def test_filter_agrees_with_its_twin():
    rejected = 0
    for seed in range(20):
        world = World(seed)
        args = NodeResourcesFitArgs() if seed % 2 else random_fit_args(world.rng)
        plugin = NodeResourcesFit(args, world.handle)
        for _ in range(4):
            pod, state = world.random_pod(), CycleState()
            assert plugin.pre_filter(state, pod) == SUCCESS
            rejected += check_filter(
                world,
                plugin,
                pod,
                lambda pod, scene, args=args: twin.filter_node(pod, scene, args),
                state=state,
            )
    assert rejected


def test_score_agrees_with_its_twin():
    scores = []
    for seed in range(40):
        world = World(seed)
        args = random_fit_args(world.rng) if seed % 4 else NodeResourcesFitArgs()
        plugin = NodeResourcesFit(args, world.handle)
        pod, state = world.random_pod(), CycleState()
        assert plugin.pre_score(state, pod, View.everything(world.table)) == SUCCESS
        scores += check_score(
            world,
            plugin,
            pod,
            lambda pod, scene, args=args: twin.score_node(pod, scene, args),
            state=state,
        )
    assert len(set(scores)) > 20


# ---------------------------------------------------------------- reasons


def judge(node_object, pod, args=None):
    world = World(0, nodes=4)
    row = world.table.set_node(node_object)
    plugin = NodeResourcesFit(args, world.handle)
    return verdict(filtered(plugin, pod, View(world.table, np.array([row]))), 0)


@pytest.mark.parametrize(
    ("node_object", "requests", "code", "reasons"),
    [
        (node(pods="0"), {}, Code.Unschedulable, ("Too many pods",)),
        (node(), {}, Code.Unschedulable, ("Too many pods",)),
        (
            node(pods="0", cpu="1"),
            {"cpu": "2"},
            Code.UnschedulableAndUnresolvable,
            ("Too many pods", "Insufficient cpu"),
        ),
        (
            node(pods="9"),
            {
                "example.com/gpu": "1",
                "ephemeral-storage": "1",
                "memory": "1",
                "cpu": "1m",
                "hugepages-2Mi": "2Mi",
            },
            Code.UnschedulableAndUnresolvable,
            (
                "Insufficient cpu",
                "Insufficient memory",
                "Insufficient ephemeral-storage",
                "Insufficient example.com/gpu",
                "Insufficient hugepages-2Mi",
            ),
        ),
    ],
)
def test_reasons(node_object, requests, code, reasons):
    assert judge(node_object, pod_requesting(requests=requests)) == (code, reasons)


def test_unresolvable_only_if_an_empty_node_would_be_too_small():
    world = World(0, nodes=4)
    row = world.table.set_node(node(pods="9", cpu="2", memory="1Gi"))
    world.table.add_pod(pod_requesting("other", requests={"cpu": "1"}, node_name="n"))
    view = View(world.table, np.array([row]))
    plugin = NodeResourcesFit(None, world.handle)
    cpu = ("Insufficient cpu",)
    fits_if_empty = filtered(plugin, pod_requesting(requests={"cpu": "1500m"}), view)
    assert verdict(fits_if_empty, 0) == (Code.Unschedulable, cpu)
    fits_never = filtered(plugin, pod_requesting(requests={"cpu": "2001m"}), view)
    assert verdict(fits_never, 0) == (Code.UnschedulableAndUnresolvable, cpu)
    both = filtered(plugin, pod_requesting(requests={"cpu": "1500m", "memory": "2Gi"}), view)
    code = Code.UnschedulableAndUnresolvable
    assert verdict(both, 0) == (code, ("Insufficient cpu", "Insufficient memory"))


def test_zero_requests_fit_a_node_without_anything_but_room_for_pods():
    requests = {"cpu": "0", "memory": "0", "example.com/gpu": "0"}
    assert judge(node(pods="1"), pod_requesting(requests=requests)) is None


@pytest.mark.parametrize(
    ("args", "ignored"),
    [
        (NodeResourcesFitArgs(ignored_resources=frozenset({"example.com/gpu"})), True),
        (NodeResourcesFitArgs(ignored_resource_groups=frozenset({"example.com"})), True),
        (NodeResourcesFitArgs(ignored_resource_groups=frozenset({"gpu"})), False),
    ],
)
def test_ignored_resources(args, ignored):
    verdict = judge(node(pods="1"), pod_requesting(requests={"example.com/gpu": "1"}), args)
    assert (verdict is None) is ignored


@pytest.mark.parametrize("name", ["hugepages-2Mi", "attachable-volumes-x", "a.kubernetes.io/b"])
def test_only_extended_resources_can_be_ignored(name):
    args = NodeResourcesFitArgs(
        ignored_resources=frozenset({name}), ignored_resource_groups=frozenset({name.split("/")[0]})
    )
    verdict = judge(node(pods="1"), pod_requesting(requests={name: "1"}), args)
    assert verdict == (Code.UnschedulableAndUnresolvable, (f"Insufficient {name}",))


def test_more_reasons_than_bits():
    names = [f"example.com/r{number:02}" for number in range(40)]
    some = dict.fromkeys(names[::2], "1")
    world = World(0, nodes=4)
    rows = [world.table.set_node(node(pods="1", **some))]
    rows.append(world.table.set_node(Node(metadata=ObjectMeta(name="bare"))))
    plugin, state = NodeResourcesFit(None, world.handle), CycleState()
    pod = pod_requesting(requests=dict.fromkeys(names, "1"))
    plugin.pre_filter(state, pod)
    first = plugin.filter(state, pod, View(world.table, np.array(rows[:1])))
    second = plugin.filter(state, pod, View(world.table, np.array(rows)))
    missing = tuple(f"Insufficient {name}" for name in names[1::2])
    everything = ("Too many pods", *(f"Insufficient {name}" for name in names))
    code = Code.UnschedulableAndUnresolvable
    assert verdict(first, 0) == verdict(second, 0) == (code, missing)
    assert verdict(second, 1) == (code, everything)
    assert first.text(int(second.reasons[1])) == everything


def naming(count, *, mine=()):
    """A node that has some of ``count`` resources, those numbered ``mine``."""
    offered = {f"example.com/r{number:05}": "1" for number in range(count) if number in mine}
    return {"pods": "9", **offered}


def naming_pod(count):
    requests = dict.fromkeys((f"example.com/r{number:05}" for number in range(count)), "1")
    return testing.make_pod(
        "asking", spec={"containers": [{"name": "main", "resources": {"requests": requests}}]}
    )


def test_each_node_has_one_of_the_resources_that_a_pod_names():
    many = MAX_RESOURCES - 8
    cluster = testing.FakeCluster(
        *(
            testing.make_node(f"n{i}", status={"allocatable": naming(many, mine=(i,))})
            for i in range(400)
        )
    )
    plugin, pod = NodeResourcesFit(None, cluster.handle), naming_pod(many)
    verdicts = cluster.judge(plugin, pod)
    assert len(verdicts) == 400
    told = tuple(f"Insufficient example.com/r{n:05}" for n in range(240) if n != 7)
    assert verdicts["n7"] == Status(Code.UnschedulableAndUnresolvable, told)


def test_only_the_last_of_very_many_resources_is_short():
    many = MAX_RESOURCES - 8
    cluster = testing.FakeCluster(
        testing.make_node("n", status={"allocatable": naming(many, mine=range(many - 1))}),
        testing.make_node("all", status={"allocatable": naming(many, mine=range(many))}),
    )
    verdicts = cluster.judge(NodeResourcesFit(None, cluster.handle), naming_pod(many))
    short = (f"Insufficient example.com/r{many - 1:05}",)
    assert verdicts == {"n": Status(Code.UnschedulableAndUnresolvable, short)}


def test_reasons_are_right_however_many_sets_of_them_there_have_been(monkeypatch):
    monkeypatch.setattr(node_resources_fit, "_MAX_SETS", 20)
    dice = random.Random(0)
    cluster = testing.FakeCluster()
    plugin, pod = NodeResourcesFit(None, cluster.handle), naming_pod(70)
    seen = set()
    for _ in range(200):
        mine = dice.sample(range(70), 60)
        node = testing.make_node(
            f"n{dice.randrange(8)}", status={"allocatable": naming(70, mine=mine)}
        )
        cluster.set_node(node)
        verdicts = cluster.judge(plugin, pod)
        assert verdicts == cluster.judge(NodeResourcesFit(None, cluster.handle), pod)
        lacking = (n for n in range(70) if n not in mine)
        wanted = tuple(f"Insufficient example.com/r{n:05}" for n in lacking)
        assert verdicts[node.name].reasons == wanted
        seen.add(plugin.epoch())
    assert len(seen) > 3


@pytest.mark.parametrize("amount", ["65Pi", "1Ei", "9E", "9223372036854775807", "1e30"])
@pytest.mark.parametrize("offered", ["4Gi", "64Pi", "9223372036854775807", "1e25"])
def test_an_amount_beyond_all_reason_fits_nowhere(amount, offered):
    verdict = judge(node(pods="1", memory=offered), pod_requesting(requests={"memory": amount}))
    assert verdict == (Code.UnschedulableAndUnresolvable, ("Insufficient memory",))


# ---------------------------------------------------------------- score


def test_no_resources_is_an_error():
    world = World(0, nodes=4)
    plugin = NodeResourcesFit(NodeResourcesFitArgs(resources=()), world.handle)
    status = plugin.pre_score(CycleState(), pod_requesting(), View.everything(world.table))
    assert status.code is Code.Error
    assert status.message == "resources not found"


ENDLESS = node(pods="9", cpu="9E", memory="1e25", gpu="9223372036854775807")


@pytest.mark.parametrize(("strategy", "score"), [("LeastAllocated", 99), ("MostAllocated", 0)])
def test_a_node_that_offers_more_than_all_reason_has_plenty(strategy, score):
    requests = {"cpu": "1", "memory": "1Ti", "example.com/gpu": "1"}
    pod = pod_requesting(requests=requests)
    resources = tuple(ResourceSpec(name, 1) for name in requests)
    args = NodeResourcesFitArgs(strategy=strategy, resources=resources)
    assert judge(ENDLESS, pod, args) is None
    world = World(0, nodes=4)
    view = View(world.table, np.array([world.table.set_node(ENDLESS)]))
    assert NodeResourcesFit(args, world.handle).score(CycleState(), pod, view).tolist() == [score]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (NodeResourcesFitArgs(strategy="Best"), '"Best" is not a scoring strategy'),
        (NodeResourcesFitArgs(strategy="RequestedToCapacityRatio"), "needs a shape"),
    ],
)
def test_bad_strategy(args, message):
    with pytest.raises(ValueError, match=message):
        NodeResourcesFit(args, World(0, nodes=4).handle)


@pytest.mark.parametrize("strategy", ["LeastAllocated", "MostAllocated"])
def test_a_pod_that_asks_for_none_of_the_scored_resources_scores_0(strategy):
    world = World(0, nodes=4)
    args = NodeResourcesFitArgs(strategy=strategy, resources=(ResourceSpec("example.com/gpu"),))
    plugin, state = NodeResourcesFit(args, world.handle), CycleState()
    pod = pod_requesting(requests={"cpu": "1"})
    assert plugin.pre_score(state, pod, View.everything(world.table)) == SUCCESS
    assert not plugin.score(state, pod, View.everything(world.table)).any()


def test_scoring_leaves_the_table_alone():
    world = World(5)
    everything = View.everything(world.table)
    names = ("cpu", "memory")
    before = [
        a.copy()
        for a in (
            everything.allocatable_of(names),
            everything.requested_of(names),
            everything.nonzero_of_both(),
        )
    ]
    for args in (NodeResourcesFitArgs(), NodeResourcesFitArgs(strategy="MostAllocated")):
        plugin, state, pod = NodeResourcesFit(args, world.handle), CycleState(), world.random_pod()
        plugin.pre_score(state, pod, everything)
        plugin.score(state, pod, everything)
    after = (
        everything.allocatable_of(names),
        everything.requested_of(names),
        everything.nonzero_of_both(),
    )
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)


# ---------------------------------------------------------------- events


def hint_for(resource, action, args=None):
    plugin = NodeResourcesFit(args, World(0, nodes=4).handle)
    event = ClusterEvent(resource, action)
    (registration,) = [r for r in plugin.events_to_register() if r.event == event]
    return registration


@pytest.mark.parametrize(
    ("gone", "expected"),
    [
        (pod_requesting("other", node_name="n"), QueueingHint.QUEUE),
        (pod_requesting("other", nominated_node_name="n"), QueueingHint.QUEUE),
        (pod_requesting("other"), QueueingHint.SKIP),
    ],
)
def test_deletion_hint(gone, expected):
    registration = hint_for(Resource.Pod, Action.Delete)
    assert registration.template_only
    assert registration.hint(pod_requesting(), gone, None) is expected


def resized(uid, cpu, memory=0, gpu=None, **fields):
    gpus = () if gpu is None else (("example.com/gpu", gpu),)
    resources = PodResources((("cpu", cpu), ("memory", memory), *gpus), cpu, memory)
    return pod_requesting(uid, resized=resources, **fields)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (resized("u", 500), resized("u", 500), QueueingHint.QUEUE),
        (resized("o", 500), resized("o", 400), QueueingHint.SKIP),
        (resized("o", 500, node_name="n"), resized("o", 400, node_name="n"), QueueingHint.QUEUE),
        (resized("o", 500, node_name="n"), resized("o", 600, node_name="n"), QueueingHint.SKIP),
        (resized("o", 5, 9, node_name="n"), resized("o", 5, 8, node_name="n"), QueueingHint.SKIP),
        (resized("o", 5, gpu=1, node_name="n"), resized("o", 5, node_name="n"), QueueingHint.QUEUE),
        (resized("o", 5, node_name="n"), resized("o", 5, gpu=1, node_name="n"), QueueingHint.SKIP),
    ],
)
def test_scale_down_hint(old, new, expected):
    registration = hint_for(Resource.Pod, Action.UpdatePodScaleDown)
    assert not registration.template_only
    pod = pod_requesting(requests={"cpu": "1", "memory": "0", "example.com/gpu": "1"})
    assert registration.hint(pod, old, new) is expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, node(pods="1", cpu="1"), QueueingHint.QUEUE),
        (None, node(pods="1", cpu="999m"), QueueingHint.SKIP),
        (None, node(pods="0", cpu="1"), QueueingHint.SKIP),
        (node(pods="1", cpu="1"), node(pods="1", cpu="2"), QueueingHint.QUEUE),
        (node(pods="1", cpu="1"), node(pods="2", cpu="1"), QueueingHint.QUEUE),
        (node(pods="1", cpu="1"), node(pods="1", cpu="1", memory="1Gi"), QueueingHint.SKIP),
        (node(pods="2", cpu="2"), node(pods="1", cpu="1"), QueueingHint.SKIP),
        (node(pods="1", cpu="1"), node(pods="1", cpu="500m"), QueueingHint.SKIP),
    ],
)
def test_node_hint(old, new, expected):
    args = NodeResourcesFitArgs(ignored_resource_groups=frozenset({"example.com"}))
    registration = hint_for(Resource.Node, Action.Add | Action.UpdateNodeAllocatable, args)
    assert registration.template_only
    pod = pod_requesting(requests={"cpu": "1", "example.com/gpu": "1"})
    assert registration.hint(pod, old, new) is expected


# ---------------------------------------------------------------- extended resources that are devices


def device_class(name="gpu", resource=None):
    spec = DeviceClassSpec(extended_resource_name=resource)
    return DeviceClass(metadata=DatedMeta(name=name), spec=spec)


def fake_node(name, **allocatable):
    offers = {"cpu": "4", "pods": "110"} | {f"example.com/{k}": v for k, v in allocatable.items()}
    return testing.make_node(name, status={"allocatable": offers})


def asking(**requests):
    amounts = {f"example.com/{name}": amount for name, amount in requests.items()}
    return testing.make_pod(
        spec={"containers": [{"name": "c", "resources": {"requests": amounts}}]}
    )


def test_what_a_node_does_not_advertise_is_left_to_devices_once_a_class_stands_behind_it():
    cluster = testing.FakeCluster(
        fake_node("none"), fake_node("zero", gpu="0"), fake_node("few", gpu="1")
    )
    plugin, pod = NodeResourcesFit(None, cluster.handle), asking(gpu="2")
    short = Status(Code.UnschedulableAndUnresolvable, ("Insufficient example.com/gpu",))
    assert cluster.judge(plugin, pod) == {"none": short, "zero": short, "few": short}
    cluster.store(device_class(resource="example.com/gpu"))
    assert cluster.judge(plugin, pod) == {"few": short}
    other = asking(gpu="2", disk="1")
    assert set(cluster.judge(plugin, other)) == {"none", "zero", "few"}
    cluster.store(device_class(resource="example.com/disk"))
    assert set(cluster.judge(plugin, pod)) == {"none", "zero", "few"}
    cluster.place(asking(gpu="1", disk="1"), "few")
    cluster.check(plugin, pod, other)


def test_every_class_has_a_resource_of_its_own():
    cluster = testing.FakeCluster(fake_node("a"))
    name = "deviceclass.resource.kubernetes.io/gpu"
    container = {"name": "c", "resources": {"requests": {name: "1"}}}
    plugin, pod = (
        NodeResourcesFit(None, cluster.handle),
        testing.make_pod(spec={"containers": [container]}),
    )
    assert set(cluster.judge(plugin, pod)) == {"a"}
    assert cluster.wakes(plugin, pod, new=device_class())
    assert not cluster.wakes(plugin, pod, new=device_class("other"))
    cluster.store(device_class())
    assert cluster.judge(plugin, pod) == {}


@pytest.mark.parametrize(
    ("old", "new", "wakes"),
    [
        (None, "example.com/gpu", True),
        (None, "example.com/disk", False),
        (None, None, False),
        ("example.com/disk", "example.com/gpu", True),
        ("example.com/gpu", "example.com/gpu", False),
        ("example.com/gpu", None, False),
    ],
)
def test_class_hint(old, new, wakes):
    cluster = testing.FakeCluster()
    plugin = NodeResourcesFit(None, cluster.handle)
    before = None if old is None else device_class(resource=old)
    after = device_class(resource=new)
    assert cluster.wakes(plugin, asking(gpu="1"), old=before, new=after) is wakes


def test_node_hint_with_devices():
    cluster = testing.FakeCluster()
    plugin, pod = NodeResourcesFit(None, cluster.handle), asking(gpu="2")
    plain, few = fake_node("a"), fake_node("a", gpu="1")
    assert not cluster.wakes(plugin, pod, new=plain)
    cluster.store(device_class(resource="example.com/gpu"))
    assert cluster.wakes(plugin, pod, new=plain)
    assert not cluster.wakes(plugin, pod, new=few)
    assert cluster.wakes(plugin, pod, old=few, new=plain)


# ---------------------------------------------------------------- what no API server takes


def test_a_negative_request_makes_no_room():
    """It counts for nothing: neither as room on its node, nor in scores of nodes without that resource."""
    cluster = testing.FakeCluster(testing.make_node("n"), testing.make_node("m"))
    for uid, name in (("1", "n"), ("2", "gone")):
        cluster.place(pod_requesting(uid, requests={"cpu": "-9", "memory": "-1e400"}), name)
    plugin = NodeResourcesFit(NodeResourcesFitArgs(), cluster.handle)
    assert set(cluster.judge(plugin, pod_requesting(requests={"cpu": "5"}))) == {"n", "m"}
    scores = cluster.score(plugin, pod_requesting(requests={"cpu": "1"}))
    assert 0 < scores["n"] <= scores["m"] < 100


# ---------------------------------------------------------------- sums beyond int64


LARGE = ("0", "1", "4503599627370496", "72057594037927935", "72057594037927936")


@pytest.mark.parametrize("seed", range(8))
def test_very_many_very_large_pods_count_as_the_twin_counts_them(seed):
    """Up to 2^56 each and 300 of them: exact numbers that no int64 holds."""
    dice = random.Random(seed)
    world = World(seed, nodes=4)
    resources = ("memory", "example.com/gpu", "ephemeral-storage")
    for name in list(world.nodes):
        amounts = {resource: dice.choice(LARGE[1:]) for resource in resources}
        world.nodes[name] = testing.make_node(
            name, status={"allocatable": {"cpu": "8", "pods": "999", **amounts}}
        )
        world.table.set_node(world.nodes[name])
        for number in range(dice.choice((0, 1, 300))):
            requests = {resource: dice.choice(LARGE) for resource in resources}
            world.add_pod(pod_requesting(f"{name}-{number}", requests=requests), name)
    pod = pod_requesting(requests={resource: dice.choice(LARGE) for resource in resources})
    for strategy in ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"):
        args = NodeResourcesFitArgs(
            strategy=strategy,
            resources=tuple(ResourceSpec(name, 1) for name in resources),
            shape=tuple(UtilizationShapePoint(*point) for point in SHAPES[0]),
        )
        plugin, state = NodeResourcesFit(args, world.handle), CycleState()
        assert plugin.pre_filter(state, pod) == SUCCESS
        check_filter(
            world,
            plugin,
            pod,
            lambda pod, scene, args=args: twin.filter_node(pod, scene, args),
            state=state,
        )
        check_score(
            world,
            plugin,
            pod,
            lambda pod, scene, args=args: twin.score_node(pod, scene, args),
            state=state,
        )
