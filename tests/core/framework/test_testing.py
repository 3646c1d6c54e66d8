"""The test kit for plugin writers: it shows what the scheduler would do."""

import asyncio

import numpy as np
import pytest

from app.framework.api import (
    SKIP,
    SUCCESS,
    Action,
    ClusterEvent,
    Code,
    Effects,
    EventRegistration,
    NodeFilter,
    NodeLocal,
    NodeScore,
    PersistentVolume,
    PersistentVolumeClaim,
    PluginArgs,
    PreFilterResult,
    Resource,
    SchedulingError,
    Service,
    StorageClass,
    default_normalize,
    reject,
    unresolvable,
    unschedulable,
)
from app.framework.handle import Eviction
from app.framework.testing import FakeCluster, FakeEffects, make_node, make_object, make_pod
from app.plugins.node_resources_fit import NodeResourcesFit
from app.wire.kube import DecodeError

NODES = (make_node("a", labels={"zone": "z1"}), make_node("b"), make_node("c"))


class Zone(NodeFilter):
    NAME = "Zone"

    def filter_node(self, state, pod, info):
        return None if "zone" in info.node.labels else unresolvable("node(s) had no zone")


def test_builders():
    node = make_node(
        "n", annotations={"a": "b"}, spec={"unschedulable": True}, status={"images": []}
    )
    assert (node.name, node.labels, node.annotations) == ("n", {}, {"a": "b"})
    assert node.spec.unschedulable
    assert node.status.allocatable["pods"] == "110"
    pod = make_pod("p", namespace="ns", labels={"a": "b"}, spec={"priority": 7})
    assert (pod.key, pod.priority, dict(pod.labels), pod.node_name) == ("ns/p", 7, {"a": "b"}, "")
    assert pod.spec.scheduler_name == "default-scheduler"
    assert make_pod("p").template is make_pod("q").template
    assert make_pod("p").template is not pod.template
    assert make_object(Service, {"metadata": {"name": "s"}}).name == "s"


def test_a_manifest_that_cannot_be_read():
    with pytest.raises(DecodeError, match="n"):
        make_node("n", spec={"taints": "none"})
    with pytest.raises(DecodeError, match="default/pod"):
        make_pod(spec={"priority": "high"})


def test_judge():
    cluster = FakeCluster(*NODES)
    refused = unresolvable("node(s) had no zone")
    assert cluster.judge(Zone(), make_pod()) == {"b": refused, "c": refused}
    plugin = Zone()
    assert set(cluster.judge(plugin, make_pod())) == {"b", "c"}
    cluster.set_node(make_node("b", labels={"zone": "z2"}))
    cluster.remove_node("c")
    assert cluster.judge(plugin, make_pod()) == {}


def test_judge_with_pods_on_nodes():
    cluster = FakeCluster(make_node("small", status={"allocatable": {"cpu": "1", "pods": "9"}}))
    pod = make_pod(spec={"containers": [{"name": "c", "resources": {"requests": {"cpu": "600m"}}}]})
    plugin = NodeResourcesFit(None, cluster.handle)
    assert cluster.judge(plugin, pod) == {}
    placed = cluster.place(pod, "small")
    assert placed.node_name == "small"
    assert cluster.judge(plugin, pod) == {"small": unschedulable("Insufficient cpu")}
    cluster.remove(placed)
    assert cluster.judge(plugin, pod) == {}


class Narrowing:
    NAME = "Narrowing"
    answer = SUCCESS

    def __init__(self, args=None, handle=None):
        pass

    def pre_filter(self, state, pod):
        return self.answer

    def filter(self, state, pod, view):
        return reject(np.ones(view.n, bool), Code.Unschedulable, "never")

    def score(self, state, pod, view):
        return np.arange(view.n) * 50

    def normalize(self, state, pod, scores, view):
        return default_normalize(scores)


@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        (SUCCESS, {name: unschedulable("never") for name in "abc"}),
        (SKIP, {}),
        (unresolvable("no"), {name: unresolvable("no") for name in "abc"}),
        (unschedulable("no"), {name: unschedulable("no") for name in "abc"}),
        (
            PreFilterResult(SUCCESS, frozenset({"b"})),
            {
                "a": unresolvable("node(s) didn't satisfy plugin(s) [Narrowing]"),
                "b": unschedulable("never"),
                "c": unresolvable("node(s) didn't satisfy plugin(s) [Narrowing]"),
            },
        ),
    ],
    ids=["success", "skip", "unresolvable", "unschedulable", "narrowed"],
)
def test_judge_runs_pre_filter(answer, refused, monkeypatch):
    monkeypatch.setattr(Narrowing, "answer", answer)
    assert FakeCluster(*NODES).judge(Narrowing(), make_pod()) == refused


def test_scores_are_normalized_over_the_nodes_that_are_not_turned_down(monkeypatch):
    monkeypatch.setattr(Narrowing, "answer", SKIP)
    assert FakeCluster(*NODES).score(Narrowing(), make_pod()) == {"a": 0, "b": 50, "c": 100}
    monkeypatch.setattr(Narrowing, "answer", SUCCESS)
    assert FakeCluster(*NODES).score(Narrowing(), make_pod()) == {}
    monkeypatch.setattr(Narrowing, "answer", unresolvable("no"))
    assert FakeCluster(*NODES).score(Narrowing(), make_pod()) == {}


def test_a_score_out_of_range_is_an_error():
    class Loud(NodeScore):
        NAME = "Loud"

        def score_node(self, state, pod, info):
            return 101

    with pytest.raises(SchedulingError, match='plugin "Loud" returns an invalid score 101'):
        FakeCluster(*NODES).score(Loud(), make_pod())


@pytest.mark.parametrize("node_local", [False, True])
@pytest.mark.parametrize(
    ("scores", "said"),
    [
        (np.ones(3), 'running "Sloppy" score plugin: scores must be int64, not float64'),
        ([1, 2, 3], 'running "Sloppy" score plugin: scores must be int64, not list'),
        (np.array([0, -1, 0]), 'plugin "Sloppy" returns an invalid score -1'),
    ],
    ids=["floats", "list", "negative"],
)
def test_scores_that_are_none_are_an_error_of_the_plugin(scores, said, node_local):
    class Sloppy(*([NodeLocal] if node_local else [])):
        NAME = "Sloppy"

        def score(self, state, pod, view):
            return scores

    with pytest.raises(SchedulingError, match=said):
        FakeCluster(*NODES).score(Sloppy(), make_pod())


def test_too_few_verdicts_are_an_error_of_the_plugin():
    class Lazy:
        NAME = "Lazy"

        def filter(self, state, pod, view):
            return reject(np.ones(1, bool), Code.Unschedulable, "never")

    with pytest.raises(
        SchedulingError, match='running "Lazy" filter plugin: 1 verdicts on 3 nodes'
    ):
        FakeCluster(*NODES).judge(Lazy(), make_pod())


@pytest.mark.parametrize("node_local", [False, True])
def test_a_plugin_is_asked_about_pods_that_concern_it(node_local):
    class Tolerant(*([NodeLocal] if node_local else [])):
        NAME = "Tolerant"

        def concerns(self, template):
            return bool(template.spec.tolerations)

        def pre_filter(self, state, pod):
            assert pod.spec.tolerations
            return SUCCESS

        def filter(self, state, pod, view):
            assert pod.spec.tolerations
            return reject(view.rows == 1, Code.Unschedulable, "intolerable")

        def pre_score(self, state, pod, view):
            assert pod.spec.tolerations
            return SUCCESS

        def score(self, state, pod, view):
            assert pod.spec.tolerations
            return view.rows * 10

    cluster, plugin = FakeCluster(*NODES), Tolerant()
    pod = make_pod(spec={"tolerations": [{"operator": "Exists"}]})
    assert cluster.judge(plugin, make_pod()) == {}
    assert cluster.score(plugin, make_pod()) == {"a": 0, "b": 0, "c": 0}
    assert cluster.judge(plugin, pod) == {"b": unschedulable("intolerable")}
    assert cluster.score(plugin, pod) == {"a": 0, "c": 20}


def test_answers_are_kept_as_in_the_scheduler():
    class Counting(NodeLocal, Zone):
        asked = 0

        def filter(self, state, pod, view):
            self.asked += view.n
            return super().filter(state, pod, view)

    cluster, plugin = FakeCluster(*NODES), Counting()
    cluster.judge(plugin, make_pod("p"))
    cluster.judge(plugin, make_pod("q"))
    assert plugin.asked == 3
    cluster.set_node(make_node("b", labels={"zone": "z2"}))
    assert set(cluster.judge(plugin, make_pod("r"))) == {"c"}
    assert plugin.asked == 4


class Waker(Zone):
    def __init__(self, *events):
        super().__init__()
        self.registered = [EventRegistration(event, self.hint) for event in events]

    def hint(self, pod, old, new):
        return old is None or new is None or old.name != new.name

    def events_to_register(self):
        return self.registered


@pytest.mark.parametrize(
    ("event", "old", "new", "woken"),
    [
        ((Resource.Node, Action.Add), None, NODES[0], True),
        ((Resource.Node, Action.Delete), NODES[0], None, True),
        ((Resource.Node, Action.Add), NODES[0], None, False),
        ((Resource.Node, Action.UpdateNodeLabel), NODES[0], NODES[1], True),
        ((Resource.Node, Action.UpdateNodeTaint), NODES[0], NODES[1], False),
        ((Resource.Node, Action.UpdateNodeLabel), NODES[0], make_node("a"), False),
        ((Resource.Node, Action.UpdateNodeLabel), NODES[0], NODES[0], False),
        ((Resource.Pod, Action.Add), None, make_pod().on("a"), True),
        ((Resource.AssignedPod, Action.Add), None, make_pod(), False),
        ((Resource.AssignedPod, Action.Add), make_pod(), make_pod().on("a"), False),
        ((Resource.AssignedPod, Action.Delete), make_pod().on("a"), None, True),
        ((Resource.UnschedulablePod, Action.Delete), make_pod(), None, True),
        ((Resource.UnschedulablePod, Action.Delete), make_pod().on("a"), None, False),
        ((Resource.UnschedulablePod, Action.UpdatePodLabel), make_pod("p"),
         make_pod("q", labels={"a": "b"}), True),
        ((Resource.StorageClass, Action.Add), None, StorageClass(), True),
        ((Resource.StorageClass, Action.Delete), StorageClass(), None, True),
        ((Resource.StorageClass, Action.Update), StorageClass(), StorageClass(), False),
        ((Resource.StorageClass, Action.All), None, Service(), False),
    ],
)  # fmt: skip
def test_wakes(event, old, new, woken):
    plugin = Waker(ClusterEvent(*event))
    assert FakeCluster().wakes(plugin, make_pod(), old=old, new=new) is woken


def test_without_a_hint_any_such_event_wakes_and_without_registrations_any_event():
    tainted = make_node("a", spec={"taints": [{"key": "k", "effect": "NoSchedule"}]})
    plugin = Waker()
    plugin.registered = [EventRegistration(ClusterEvent(Resource.Node, Action.Add))]
    cluster = FakeCluster()
    assert cluster.wakes(plugin, make_pod(), new=NODES[0])
    assert cluster.wakes(plugin, make_pod(), old=make_node("a"), new=tainted), "side effect of Add"
    assert not cluster.wakes(plugin, make_pod(), old=NODES[0], new=make_node("a"))
    assert cluster.wakes(Zone(), make_pod(), old=NODES[0], new=make_node("a"))


def test_other_objects_and_pods_on_hold():
    class OnHold:
        pod = make_pod("held")

    cluster = FakeCluster(waiting=[OnHold()])
    service = make_object(Service, {"metadata": {"name": "s", "namespace": "default"}})
    cluster.store(service)
    assert cluster.handle.cluster.services.get("s", "default") is service
    assert [waiting.pod.name for waiting in cluster.handle.waiting] == ["held"]
    assert cluster.handle.waiting.get(OnHold.pod.uid) is not None
    assert cluster.handle.waiting.get("nobody") is None
    assert list(FakeCluster().handle.waiting) == []


def test_effects_only_tell():
    async def use(effects: Effects) -> None:
        await effects.bind(make_pod(), "a")
        await effects.update_volume(PersistentVolume(), {"a": 1})
        await effects.update_claim(PersistentVolumeClaim(), {"b": 2})
        await effects.sleep(60.0)
        effects.evict(Eviction(make_pod(), "a", (), None))
        assert await effects.agree_on_victims(make_pod(), {}) == {}

    effects = FakeEffects(now=1000.0)
    asyncio.run(use(effects))
    assert [(pod.name, node) for pod, node in effects.bound] == [("pod", "a")]
    assert [changes for _, changes in effects.updated] == [{"a": 1}, {"b": 2}]
    assert [eviction.node_name for eviction in effects.evicted] == ["a"]
    assert effects.now() == 1060.0


class PriceArgs(PluginArgs):
    label: str = "price"
    unlabelled_price: float = 1.0
    ignored: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.unlabelled_price < 0:
            raise ValueError("unlabelledPrice must not be negative")


def test_arguments():
    assert PriceArgs.read(None) == PriceArgs()
    assert PriceArgs.read({"unlabelledPrice": 2, "ignored": ["a"]}) == PriceArgs(
        "price", 2.0, ("a",)
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lable": "x"}, "args: Object contains unknown field `lable`"),
        ({"label": 1}, "args.label: Expected `str`, got `int`"),
        ({"ignored": ["a", 1]}, r"args.ignored\[1\]: Expected `str`, got `int`"),
        ({"unlabelledPrice": -1}, "args: unlabelledPrice must not be negative"),
        (["label"], "args: Expected `object`, got `array`"),
    ],
)
def test_arguments_that_are_none(given, said):
    with pytest.raises(ValueError, match=f"^{said}$"):
        PriceArgs.read(given)


def test_a_plugin_without_arguments_refuses_them():
    assert Zone({}, None).NAME == "Zone"
    with pytest.raises(ValueError, match="args: the plugin takes no arguments"):
        Zone({"zone": "z1"}, None)
