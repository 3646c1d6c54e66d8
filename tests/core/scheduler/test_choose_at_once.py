"""A choice from what is kept for a template is the choice of a full pass over all nodes, whatever has happened before.

So is a choice that was begun earlier, while extenders were asked.
"""

from collections import Counter

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.cycle.attempt import Attempt, Choice, NoNodesError, Unfit, best
from app.framework import classes
from app.framework.interface import NodeLocal
from app.framework.ranking import INFEASIBLE, Ranking
from app.framework.runner import Framework
from app.framework.scoring import ScorePoints
from app.framework.testing import make_node
from app.model.objects import Node, OwnerReference, PodSpec, Service
from app.model.pod import LabelSet, Pod, make_pod
from app.state.nominations import PodsByRow
from app.state.scheduler_state import Change
from app.state.table import NodeTable
from tests.core.framework.profiles import profile_of
from tests.core.scheduler.full_state import FullState

NODES = 7
HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
IMAGE = "registry.example.com/app:1"
LABELS = {"app": "web"}
SAME = {"labelSelector": {"matchLabels": LABELS}}
CACHES = {"labelSelector": {"matchLabels": {"app": "cache"}}}


def preferring(kind, term):
    key = "preferredDuringSchedulingIgnoredDuringExecution"
    return {"affinity": {kind: {key: [{"weight": 3, **term}]}}}


def requiring(kind, topology):
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"affinity": {kind: {key: [{"topologyKey": topology, **SAME}]}}}


def spread(action, *keys):
    one = {"maxSkew": 1, "whenUnsatisfiable": action, **SAME}
    return {"topologySpreadConstraints": [one | {"topologyKey": key} for key in keys or [ZONE]]}


def container(**requests):
    return {"name": "main", "image": IMAGE, "resources": {"requests": requests}}


TEMPLATES = [
    {},
    {"containers": [container(cpu="900m", memory="300Mi")]},
    {"containers": [container(cpu="100m")], "nodeSelector": {"size": "large"}},
    {"tolerations": [{"operator": "Exists"}]},
    {"containers": [container(cpu="3")]},
    {"containers": [container(**{"example.com/gpu": "1"})]},
    {
        "containers": [
            container() | {"ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]}
        ]
    },
    spread("DoNotSchedule"),
    spread("ScheduleAnyway"),
    spread("DoNotSchedule", HOST),
    requiring("podAffinity", ZONE),
    requiring("podAntiAffinity", HOST),
    preferring("podAntiAffinity", {"podAffinityTerm": {"topologyKey": ZONE, **SAME}}),
    preferring(
        "nodeAffinity",
        {
            "preference": {
                "matchExpressions": [{"key": "size", "operator": "In", "values": ["large"]}]
            }
        },
    ),
    spread("ScheduleAnyway", HOST),
    spread("ScheduleAnyway", HOST, ZONE),
    spread("DoNotSchedule", ZONE) | requiring("podAntiAffinity", HOST),
    spread("ScheduleAnyway") | {"nodeSelector": {"size": "large"}},
    requiring("podAffinity", HOST),
    requiring("podAntiAffinity", ZONE),
    preferring("podAffinity", {"podAffinityTerm": {"topologyKey": HOST, **SAME}}),
    preferring("podAffinity", {"podAffinityTerm": {"topologyKey": ZONE, **SAME}}),
    preferring("podAffinity", {"podAffinityTerm": {"topologyKey": HOST, **CACHES}}),
    preferring("podAntiAffinity", {"podAffinityTerm": {"topologyKey": HOST, **CACHES}}),
    {"terminationGracePeriodSeconds": 7},
]
#: The labels of pods by template; LABELS if it is not here.
LABELS_OF = {len(TEMPLATES) - 1: {"app": "cache"}}
TAINTS = [
    [],
    [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}],
    [{"key": "old", "effect": "PreferNoSchedule"}],
]
names = st.integers(0, NODES - 1).map("node-{}".format)
node_versions = st.fixed_dictionaries(
    {
        "cpu": st.sampled_from(["2", "4"]),
        "size": st.sampled_from(["large", "small"]),
        "zone": st.sampled_from(["a", "b", None]),
        "unschedulable": st.sampled_from([False, False, False, True]),
        "taints": st.sampled_from([[], [], *TAINTS]),
        "image": st.booleans(),
        "gpu": st.booleans(),
    }
)
others = st.one_of(
    st.tuples(st.just("node"), names, node_versions),
    st.tuples(st.just("no node"), names),
    st.tuples(st.just("no pod"), st.integers(0, 20)),
    st.tuples(st.just("service"), st.booleans()),
    st.tuples(
        st.just("nominated"),
        names,
        st.sampled_from([1, 4, 4, 5, 6, 11]),
        st.sampled_from([True] * 3 + [False]),
    ),
)


@st.composite
def histories(draw):
    """Decisions for up to three templates, with other changes in between."""
    templates = draw(st.lists(st.sampled_from(range(len(TEMPLATES))), min_size=1, max_size=3))
    steps = []
    for seed in range(draw(st.integers(2, 14))):
        steps.append(("pod", draw(st.sampled_from(templates)), seed))
        steps += draw(st.lists(others, max_size=2))
    return steps


class History:
    """A cluster in which each decision is taken in both ways."""

    def __init__(self) -> None:
        self.full = FullState()
        self.at_once = self.followed = 0
        #: The last two attempts that have begun, with the rows that they found, their signature, and the generation of
        #: the table; they are compared with new ones.
        self.waiting = []
        self._serial = 0
        plain = {"cpu": "4", "size": "large", "zone": "a", "unschedulable": False}
        for number in range(NODES):
            self.node(f"node-{number}", plain | {"taints": [], "image": False, "gpu": False})

    def node(self, name, version) -> None:
        zone = {} if version["zone"] is None else {ZONE: version["zone"]}
        labels = {HOST: name, "size": version["size"], **zone}
        gpus = {"example.com/gpu": "2"} if version["gpu"] else {}
        self.full.node(
            name,
            labels=labels,
            spec={"unschedulable": version["unschedulable"], "taints": version["taints"]},
            status={
                "allocatable": {"cpu": version["cpu"], "memory": "4Gi", "pods": "6", **gpus},
                "images": [{"names": [IMAGE], "sizeBytes": 900_000_000}]
                if version["image"]
                else [],
            },
        )

    def remove(self, kind, key) -> None:
        old = self.full.objects.pop((kind, key), None)
        if old is not None:
            self.full.state.apply(Change(kind, old, None), self.full.now)

    def remove_a_pod(self, number) -> None:
        bound = [key for kind, key in self.full.objects if kind is Pod]
        if bound:
            self.remove(Pod, bound[number % len(bound)])

    def nominate(self, node, template, urgent) -> None:
        spec = TEMPLATES[template] | {"priority": 10 if urgent else -10}
        self.full.pod(self._name(), spec, labels=LABELS, nominated=node)

    def service(self, selects) -> None:
        """With a service, the default constraints of topology spread concern the pods that it selects."""
        spec = {"selector": LABELS if selects else {"app": "other"}}
        self.full.add(Service, "web", metadata={"namespace": "default"}, spec=spec)

    def ask(self, template, seed) -> None:
        """Extenders are asked about a pod."""
        name = self._name()
        self.full.pod(name, TEMPLATES[template], labels=LABELS_OF.get(template, LABELS))
        attempt = self._attempt(self.full.objects[Pod, f"default/{name}"], seed)
        try:
            rows = attempt.find()
        except (Unfit, NoNodesError):
            return
        if seed % 3:
            attempt.rank(rows)
        begun = attempt, rows, attempt.signature, self.full.state.table.last_generation
        self.waiting = [*self.waiting[-1:], begun]

    def hear(self) -> None:
        """The extenders answer about all pods that they were asked about."""
        for attempt, rows, signature, generation in self.waiting:
            self._compare(attempt)
            if signature is not None:
                self._follow(attempt.pod, rows, signature, generation)
                other = msgspec.structs.replace(attempt.pod, labels=LabelSet({"app": "other"}))
                self._follow(other, rows, signature, generation)

    def _compare(self, attempt) -> None:
        expected, totals = self._left(self._attempt(attempt.pod, 0), Attempt.find)
        found, late = self._left(attempt, self.still_fitting)
        assert np.array_equal(found, expected)
        assert np.array_equal(late, totals)

    def _follow(self, pod, rows, signature, generation) -> None:
        """If this pod has the signature of an earlier one, it fits the unchanged rows that were found then, and is
        decided like any other.
        """
        attempt = self._attempt(pod, 0)
        try:
            if not attempt.has_signature(signature, rows):
                return
        except (Unfit, NoNodesError):
            return
        self.followed += 1
        fitting = self._attempt(pod, 0)._judge().feasible(self.full.state.table.all_rows())
        table = self.full.state.table
        unchanged = table.generation[: table.size] <= generation
        assert set(rows[unchanged[rows]]) == set(fitting[unchanged[fitting]])
        self._compare(attempt)

    def still_fitting(self, attempt):
        rows = np.flatnonzero(self.full.state.table.exists)
        return rows[attempt.still_fits(rows)]

    def _left(self, attempt, feasible):
        try:
            rows = feasible(attempt)
        except (Unfit, NoNodesError):
            rows = np.zeros(0, np.intp)
        return rows, attempt.rank(rows) if len(rows) > 1 else ()

    def decide(self, template, seed) -> None:
        name = self._name()
        self.full.pod(name, TEMPLATES[template], labels=LABELS_OF.get(template, LABELS))
        pod = self.full.objects[Pod, f"default/{name}"]
        quick = self._attempt(pod, seed)
        try:
            found = quick.choose_at_once()
        except (Unfit, NoNodesError) as error:
            found = type(error)
        expected, slow = self._full_pass(pod, seed)
        if found is None:
            found, slow_too = self._rest(quick)
            assert found == expected
            assert same_ranking(slow_too, slow)
        else:
            assert found == expected
            if isinstance(found, Choice):
                self.at_once += 1
                assert same_ranking(quick.ranked, slow)
        if isinstance(expected, Choice):
            self.full.store(msgspec.structs.replace(pod, node_name=expected.node_name))
        else:
            self.remove(Pod, pod.key)

    def _name(self) -> str:
        self._serial += 1
        return f"pod-{self._serial}"

    def _attempt(self, pod, seed) -> Attempt:
        state = self.full.state
        return Attempt(
            self.full.framework,
            state.table,
            pod,
            nominated=state.nominated_for,
            rng=np.random.default_rng(seed),
        )

    def _full_pass(self, pod, seed):
        return self._rest(self._attempt(pod, seed))

    def _rest(self, attempt):
        try:
            choice = attempt.choose(attempt.find())
        except (Unfit, NoNodesError) as error:
            return type(error), None
        return choice, attempt.ranked


def same_ranking(some, others) -> bool:
    if some is None or others is None:
        return some is others
    return all(np.array_equal(a, b) for a, b in zip(some, others, strict=True))


@settings(max_examples=200, deadline=None)
@given(histories(), st.booleans(), st.booleans())
def test_both_ways_choose_the_same(history, asks, by_class):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(classes, "_CLASSES_FROM", 0 if by_class else 1000)
        play(history, asks=asks)


def play(history, *, asks):
    cluster = History()
    for step, *arguments in history:
        match step:
            case "pod":
                if asks:
                    cluster.ask(*arguments)
                cluster.decide(*arguments)
                cluster.hear()
            case "service":
                cluster.service(*arguments)
            case "node":
                cluster.node(*arguments)
            case "no node":
                cluster.remove(Node, *arguments)
            case "no pod":
                cluster.remove_a_pod(*arguments)
            case "nominated":
                cluster.nominate(*arguments)


@pytest.mark.parametrize(
    ("template", "between", "followed"),
    [
        (1, (), 2),
        (1, ("pod", 1), 2),
        (1, ("pod", 3), 2),
        (1, ("pod", 11), 0),
        (1, ("nominated", "node-2", 4, True), 0),
        (7, (), 0),
    ],
)
def test_what_is_found_for_a_pod_holds_for_pods_with_its_signature(template, between, followed):
    cluster = History()
    cluster.ask(template, 1)
    match between:
        case ("pod", other):
            cluster.decide(other, 1)
        case ("nominated", *arguments):
            cluster.nominate(*arguments)
    cluster.hear()
    assert cluster.followed == followed


def test_a_late_decision_calls_plugins_again_only_if_its_surroundings_have_changed():
    cluster = History()
    called = cluster.full.framework.participation
    cluster.ask(1, 1)
    [(waiting, *_)] = cluster.waiting
    cluster.decide(1, 1)
    before = called.counts()
    cluster.still_fitting(waiting)
    assert called.counts() == before
    cluster.decide(11, 1)
    before = called.counts()
    cluster.still_fitting(waiting)
    assert called.counts() != before
    cluster.hear()


@pytest.mark.parametrize(
    ("other", "calls"),
    [
        ({"name": "other", "uid": "other"}, False),
        ({"labels": LabelSet(LABELS)}, True),
        ({"namespace": "other"}, True),
        ({"owner": OwnerReference("apps/v1", "ReplicaSet", "other")}, True),
        ({"pod_group_name": "other"}, True),
    ],
)
def test_plugins_are_not_called_again_for_replicas(other, calls, monkeypatch):
    cluster = History()
    cluster.ask(1, 1)
    [(earlier, rows, signature, _)] = cluster.waiting
    called = []
    for owner, name in ((Framework, "pre_filter"), (ScorePoints, "pre_score")):
        run = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, run=run: called.append(run) or run(*a))
    replica = msgspec.structs.replace(earlier.pod, **other)
    assert cluster._attempt(earlier.pod, 1).has_signature(signature, rows)
    called.clear()
    counts = cluster.full.framework.participation.counts()
    assert cluster._attempt(replica, 1).has_signature(signature, rows)
    assert bool(called) == calls
    assert cluster.full.framework.participation.counts() != counts


def test_what_plugins_left_for_a_replica_is_not_shared_with_it():
    cluster = History()
    cluster.ask(1, 1)
    [(earlier, rows, signature, _)] = cluster.waiting
    replica = cluster._attempt(earlier.pod, 1)
    assert replica.has_signature(signature, rows)
    replica.state.write("reserved", 1)
    another = cluster._attempt(earlier.pod, 1)
    assert another.has_signature(signature, rows)
    assert another.state.get("reserved") is None
    another.state.write("reserved, too", 2)
    assert replica.state.get("reserved, too") is None
    assert another.state.get("DynamicResources", 1) is None


@pytest.mark.parametrize("preferring_caches", [22, 23])
def test_a_preference_that_selects_no_pod_yet_counts_in_a_late_decision(preferring_caches):
    """Plain pods without affinity terms of their own come in between; they do not change the surroundings."""
    cluster = History()
    cluster.ask(preferring_caches, 1)
    cluster.decide(24, 1)
    cluster.hear()


def test_siblings_are_decided_at_once():
    cluster = History()
    for number in range(6):
        cluster.decide(1, number)
    assert cluster.at_once == 6


def test_siblings_are_decided_at_once_beside_nominated_pods():
    cluster = History()
    cluster.nominate("node-2", 4, urgent=True)
    for number in range(6):
        cluster.decide(1, number)
    assert cluster.at_once == 6


def test_siblings_are_decided_at_once_where_nodes_have_their_image():
    cluster = History()
    cluster.node(
        "node-3",
        {
            "cpu": "4",
            "size": "large",
            "zone": "a",
            "unschedulable": False,
            "taints": [],
            "image": True,
            "gpu": False,
        },
    )
    for number in range(4):
        cluster.decide(1, number)
    assert cluster.at_once == 4


@pytest.mark.parametrize(
    "template",
    [
        spread("DoNotSchedule"),
        spread("ScheduleAnyway", HOST, ZONE),
        requiring("podAntiAffinity", HOST),
        requiring("podAffinity", ZONE),
        preferring("podAffinity", {"podAffinityTerm": {"topologyKey": ZONE, **SAME}}),
    ],
)
def test_siblings_are_decided_at_once_by_classes_of_nodes(template, monkeypatch):
    monkeypatch.setattr(classes, "_CLASSES_FROM", 0)
    cluster = History()
    for number in range(5):
        cluster.decide(TEMPLATES.index(template), number)
    assert cluster.at_once == 5


def test_a_template_keeps_two_bytes_a_node():
    cluster = History()
    cluster.full.node("small", status={"allocatable": {"pods": "6"}})  # verdicts are kept if any
    for number in range(1000):
        cluster.full.node(f"other-{number}", status={"allocatable": {"cpu": "4", "pods": "6"}})
    cluster.full.pod("pod", TEMPLATES[1], labels=LABELS)
    attempt = cluster._attempt(cluster.full.objects[Pod, "default/pod"], 0)
    assert attempt.choose_at_once() is not None
    assert attempt.memo.local.nbytes < 2.5 * cluster.full.state.table.size


# ---------------------------------------------------------------- a profile that rejects no node


class Prefers(NodeLocal):
    """Scores nodes by their rows."""

    NAME = "Prefers"

    def __init__(self, scores) -> None:
        self.scores = np.array(scores, np.int64)
        self.version = 0

    def epoch(self) -> int:
        return self.version

    def score(self, _state, _pod, view):
        return self.scores[view.rows]


class Preferred:
    """Decisions for one template, of which only the first needs a full pass."""

    def __init__(self, scores) -> None:
        self.plugin = Prefers(scores)
        self.table = NodeTable()
        for number in range(len(scores)):
            self.table.set_node(make_node(f"node-{number}"))
        self.pod = make_pod(PodSpec(), namespace="default", name="pod", uid="uid")
        self.framework = Framework("default-scheduler", profile_of(self.plugin), self.table)

    def choose(self) -> str:
        attempt = self._attempt()
        return attempt.choose(attempt.find()).node_name

    def choose_at_once(self) -> str:
        choice = self._attempt().choose_at_once()
        assert choice is not None
        return choice.node_name

    def _attempt(self) -> Attempt:
        return Attempt(
            self.framework,
            self.table,
            self.pod,
            nominated=lambda _pod: PodsByRow(self.table.size),
            rng=np.random.default_rng(1),
        )


@pytest.mark.parametrize("removed", [1, 9])
@pytest.mark.parametrize("ranked", [False, True])
def test_a_node_that_is_gone_is_not_chosen(removed, ranked):
    cluster = Preferred(range(20))
    assert cluster.choose() == "node-19"
    if ranked:
        assert cluster.choose_at_once() == "node-19"
    for number in range(removed):
        cluster.table.remove_node(f"node-{19 - number}")
    assert cluster.choose_at_once() == f"node-{19 - removed}"


def test_a_new_epoch_ranks_all_nodes_again():
    cluster = Preferred([5, 3, 1])
    assert (cluster.choose(), cluster.choose_at_once()) == ("node-0", "node-0")
    cluster.plugin.scores[2] = 7
    cluster.plugin.version += 1
    assert cluster.choose_at_once() == "node-2"


# ---------------------------------------------------------------- the blocks

totals = st.integers(INFEASIBLE, 3)
changes = st.lists(
    st.dictionaries(st.integers(0, 699), totals, min_size=1, max_size=40), max_size=5
)


@settings(max_examples=60, deadline=None)
@given(
    first=st.lists(totals, min_size=1, max_size=700),
    later=changes,
    without=st.sets(st.integers(0, 699), max_size=30),
    seed=st.integers(0, 9),
)
def test_a_ranking_finds_the_best_of_all(first, later, without, seed):
    every, ranking = np.array(first, np.int64), Ranking(np.dtype(np.int16))
    ranking.fill(every)
    for change in later:
        put(ranking, every, {row: total for row, total in change.items() if row < len(every)})
    left = every.copy()
    gone = np.array(sorted(row for row in without if row < len(every)), np.intp)
    left[gone] = INFEASIBLE
    rows = np.flatnonzero(left >= 0)
    assert ranking.feasible == np.count_nonzero(every >= 0)
    found = ranking.best(np.random.default_rng(seed), gone)
    if len(rows) < 2:
        assert found is None
    else:
        expected = rows[best(left[rows], np.random.default_rng(seed))]
        assert found == (expected, len(rows))


def put(ranking, every, change) -> None:
    rows = np.array(sorted(change), np.intp)
    if len(rows) % 2:
        for row in rows.tolist():
            ranking.put_one(row, change[row])
    elif len(rows):
        ranking.put(rows, np.array([change[row] for row in rows.tolist()], np.int64))
    every[rows] = [change[row] for row in rows.tolist()]


def test_equals_in_different_blocks_have_equal_chances():
    every = np.zeros(1000, np.int64)
    best_rows = [3, 250, 255, 256, 999]
    every[best_rows] = 7
    ranking, rng = Ranking(np.dtype(np.int16)), np.random.default_rng(3)
    ranking.fill(every)
    wins = Counter(ranking.best(rng, np.zeros(0, np.intp)).row for _ in range(5000))
    assert sorted(wins) == best_rows
    assert all(900 < count < 1100 for count in wins.values())
