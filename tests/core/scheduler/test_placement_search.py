"""The search for the best placement of a pod group finds what trying all placements finds."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from app.cycle.attempt import Attempt, Unfit
from app.cycle.placement_search import PlacementSearch, room_for
from app.framework.interface import NodeLocal, reject
from app.framework.placements import Placements
from app.framework.testing import make_node, make_object, make_pod
from app.model.pod_groups import PodGroup
from app.model.status import Code
from app.plugins import registry
from app.scheduler.profiles import build_framework
from app.settings.load import load
from app.state.cluster import Cluster
from app.state.nominations import NO_PODS
from app.state.nominator import Nominator
from app.state.table import NodeTable

RACK = "example.com/rack"
CONFIG = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
GATES = {"GenericWorkload", "TopologyAwareWorkloadScheduling"}
APART = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": {"app": "gang"}},
                    "topologyKey": "kubernetes.io/hostname",
                }
            ]
        }
    }
}


class World:
    """Nodes in racks, given by their CPUs, and a gang; pods are placed on the table itself."""

    def __init__(self, racks, config=CONFIG, classes=None):
        self.table, self.cluster = NodeTable(), Cluster()
        classes = classes or registry.registry()
        [profile] = load(config).to_plain(registry.capabilities(classes), GATES)
        self.rng = np.random.default_rng(1)
        nominator = Nominator()
        self.framework = build_framework(
            profile,
            classes,
            table=self.table,
            cluster=self.cluster,
            nominator=nominator,
            rng=self.rng,
        )
        for rack, sizes in enumerate(racks):
            for number, cpu in enumerate(sizes):
                self.node(f"{rack}-{number}", cpu, str(rack))
        self.cluster.pod_groups.watch(PodGroup, lambda: "/apis/scheduling.k8s.io/v1alpha2")
        group = {"metadata": {"name": "gang", "namespace": "default"}}
        self.cluster.lister(PodGroup).store(make_object(PodGroup, group))

    def node(self, name, cpu, rack):
        amounts = {"cpu": str(cpu), "memory": "8Gi", "pods": "110", "example.com/gpu": str(cpu)}
        labels = {"kubernetes.io/hostname": name} | ({} if rack is None else {RACK: rack})
        self.table.set_node(make_node(name, labels=labels, status={"allocatable": amounts}))

    @property
    def placements(self):
        return Placements.by_label(self.table, RACK)

    def search(self, pods, needed):
        return PlacementSearch(self.framework, self.table, self.placements, pods, needed, self.rng)

    def take(self, placements, number, pods):
        """Places the pods in a placement, one after another. Returns which of them, and takes them back."""
        placed = []
        for pod in pods:
            attempt = Attempt(
                self.framework,
                self.table,
                pod,
                nominated=lambda _pod: NO_PODS,
                rng=self.rng,
            )
            attempt.within = lambda: placements.mask(number)
            try:
                node = attempt.choose(attempt.find()).node_name
            except Unfit:
                placed.append(None)
            else:
                placed.append(pod.on(node))
                self.table.add_pod(placed[-1])
        for one in filter(None, placed):
            self.table.remove_pod(one)
        return [one is not None for one in placed]

    def result(self, pods, needed):
        """The number of the best placement, None without one, and those that were tried."""
        search, tried = self.search(pods, needed), []
        number = search.next()
        while number is not None:
            search.record(number, self.take(search.placements, number, pods))
            tried.append(number)
            following = search.next()
            if following is None and search.is_best(number):
                return number, tried
            number = following
        return search.best(), tried

    def all_totals(self, pods, needed):
        """The totals of all feasible placements by number, by trying each."""
        placements = self.placements
        taken = {n: self.take(placements, n, pods) for n in range(len(placements))}
        good = [n for n, placed in taken.items() if sum(placed) >= needed]
        if not good:
            return {}
        matrix = np.array([taken[n] for n in good])
        totals = self.framework.placements.score(placements.take(good), pods, matrix)
        return dict(zip(good, totals.tolist(), strict=True))


def pods_of(count, cpu=1, first=0, **more):
    resources = {"requests": {"cpu": str(cpu), "memory": "100Mi"} | more.pop("requests", {})}
    spec = {
        "schedulingGroup": {"podGroupName": "gang"},
        "containers": [{"name": "c", "resources": resources}],
    } | more
    return [make_pod(f"p{first + i}", labels={"app": "gang"}, spec=spec) for i in range(count)]


TOGETHER = {
    "affinity": {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": {"app": "gang"}},
                    "topologyKey": "kubernetes.io/hostname",
                }
            ]
        }
    }
}


def test_racks_with_too_few_nodes_for_pods_that_keep_apart_are_not_tried():
    world = World([[8] * 3 for _ in range(5)] + [[8] * 4] + [[8] * 2])
    pods = pods_of(4, **APART)
    assert world.result(pods, 4) == (5, [5])
    for row in world.placements.take([5]).rows[:1].tolist():
        world.table.add_pod(pods_of(1, first=9, **APART)[0].on(world.table.names[row]))
    assert world.result(pods, 4) == (None, [])


def test_pods_that_attract_each_other_are_tried():
    world = World([[2, 2], [4, 4]])
    assert world.result(pods_of(4, **TOGETHER), 4)[0] == 1
    world.table.add_pod(make_pod("other", labels={"app": "gang"}).on("0-0"))
    assert world.result(pods_of(2, **TOGETHER), 2)[0] == 0
    mixed = pods_of(1) + pods_of(3, 1, 1, **TOGETHER)
    assert World([[2, 2], [4, 4]]).result(mixed, 4)[0] == 1


RACKS = st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=4), min_size=1, max_size=6)


@given(
    racks=RACKS,
    small=st.integers(0, 5),
    large=st.integers(0, 4),
    cpu=st.integers(2, 4),
    optional=st.integers(0, 4),
    apart=st.booleans(),
    scored=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_the_best_placement_is_found(racks, small, large, cpu, optional, apart, scored):
    more = APART if apart else {}
    gpu = {"requests": {"example.com/gpu": "1"}}
    pods = pods_of(small, **more) + pods_of(large, cpu, small, **more, **gpu)
    if not pods:
        return
    config = CONFIG
    if scored:
        resources = "[{name: cpu, weight: 1}, {name: example.com/gpu, weight: 3}]"
        config += (
            "profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args:\n"
            f"      scoringStrategy: {{type: LeastAllocated, resources: {resources}}}\n"
        )
    world = World(racks, config)
    needed = max(1, len(pods) - optional)
    totals = world.all_totals(pods, needed)
    best, tried = world.result(pods, needed)
    if totals:
        assert totals[best] == max(totals.values())
    else:
        assert best is None
    assert len(set(tried)) == len(tried)


@given(racks=RACKS, count=st.integers(1, 30), cpu=st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_the_bound_of_equal_pods_is_the_number_that_fits(racks, count, cpu):
    world, pods = World(racks), pods_of(count, cpu)
    room = room_for(pods, world.framework, world.table, world.placements)
    assert room.tolist() == [min(count, sum(size // cpu for size in rack)) for rack in racks]


def test_one_try_is_enough_if_all_pods_are_needed():
    world = World([[4] * 5 for _ in range(1000)])
    world.table.add_pod(pods_of(1, 2)[0].on("7-0"))
    best, tried = world.result(pods_of(18, first=1), 18)
    assert tried == [best]
    assert world.placements.names[best] == "7"


def test_a_placement_that_is_too_small_is_not_tried():
    world = World([[1], [1, 1], [2, 2], [1, 1, 1]])
    assert world.result(pods_of(4), 4) == (2, [2])
    assert world.result(pods_of(5), 5) == (None, [])
    assert world.search(pods_of(5), 5).nearest() == 2


def test_nodes_are_in_one_placement_each_and_those_without_the_label_in_none():
    world = World([[1, 2], [3]])
    world.node("unlabelled", 8, None)
    placements = world.placements
    assert placements.names == ["0", "1"]
    assert placements.sizes.tolist() == [2, 1]
    cpu = placements.view.allocatable("cpu")
    assert placements.sums(cpu).tolist() == [3000, 3000]
    assert placements.take([1]).names == ["1"]
    names = np.array(world.table.names)
    assert names[placements.mask(0)].tolist() == ["0-0", "0-1"]
    world.node("0-1", 2, "1")
    assert names[placements.mask(0)].tolist() == ["0-0"]
    assert Placements.by_label(world.table, RACK, "0").names == ["0"]
    assert len(Placements.by_label(world.table, RACK, "other")) == 0


def test_ties_are_broken_at_random():
    world = World([[2]] * 8)
    assert len({world.result(pods_of(2), 2)[0] for _ in range(60)}) > 4


class Company:
    """Accepts a small node only if a pod is there."""

    NAME = "Company"

    def __init__(self, _args, _handle):
        pass

    def filter(self, _state, _pod, view):
        alone = (view.pod_count() == 0) & (view.allocatable("cpu") < 2000)
        return reject(alone, Code.Unschedulable, "alone")


def test_third_party_filters_give_no_bound():
    """Each of them may accept a node because of another pod of the group."""

    class Local(Company, NodeLocal):
        pass

    classes = registry.registry() | {"Company": Local}
    config = CONFIG + "profiles:\n- plugins: {multiPoint: {enabled: [{name: Company}]}}\n"
    world = World([[1, 1]], config, classes)
    room = room_for(pods_of(2), world.framework, world.table, world.placements)
    assert room.tolist() == [2]
