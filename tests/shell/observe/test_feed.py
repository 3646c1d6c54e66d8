"""The feed: changes add up to what a snapshot says, it keeps little, and costs nothing while nobody listens."""

import json
import random

import numpy as np
import pytest

from app.extender.config import Verb
from app.extender.errors import CallOutcome
from app.extender.events import CallFinished, CallStarted
from app.framework.testing import make_node, make_object, make_pod
from app.model.pod import Pod
from app.model.pod_groups import GROUP_LABEL, LabelledPodGroup
from app.observe import feed as module
from app.observe import feed_nodes
from app.observe.events import AttemptFailed, NodeSelected, PodBound, PreemptionStarted
from app.observe.explain import Leadership
from app.observe.feed import Feed, FeedSources
from app.observe.metrics.series import quantile
from app.observe.telemetry import Telemetry
from app.runtime.tasks import at_once
from app.state.queue.queued_pod import QueuedPod
from app.state.scheduler_state import Change
from app.tools.feed_model import FeedModel
from tests.core.scheduler.full_state import FullState
from tests.shell.clock import StoppedClock


class Studio:
    """A feed of a state that tests change, and models of what it sends."""

    def __init__(self):
        self.world = FullState()
        self.state = self.world.state
        self.clock = StoppedClock()
        self.telemetry = Telemetry(self.clock, np.random.default_rng(1))
        self.now = 100.0
        self.health = [("ping", "", True)]
        self.rejected: dict[str, int] = {}
        sources = FeedSources(
            state=self.state,
            events=self.telemetry.recent,
            histories=self.telemetry.histories,
            groups=self.telemetry.group_histories,
            attempts=self.telemetry.attempts,
            queue=self.telemetry.queue,
            extenders=self.telemetry.extender_metrics,
            kubelet_rejections=self.rejected,
            health=lambda: self.health,
            leadership=lambda: Leadership(leading=True, identity="me", holder="me"),
            wall=self.clock.wall,
            monotonic=lambda: self.now,
            version="1.2.3",
            profiles=("default-scheduler",),
        )
        self.feed = Feed(sources)
        self.table = self.state.table

    def open(self):
        self.feed.open()
        self.advance()
        model = FeedModel()
        model.apply("snapshot", self.snapshot())
        return model

    def advance(self, seconds=0.5):
        self.now += seconds
        at_once(self.feed.advance())

    def snapshot(self):
        return data_of(at_once(self.feed.snapshot()))

    def fresh(self):
        model = FeedModel()
        model.apply("snapshot", self.snapshot())
        return model

    def follow(self, model, seen):
        """Applies what is new; returns the version."""
        changes = self.feed.since(seen)
        if changes is None:
            model.apply("snapshot", self.snapshot())
        else:
            for _, change in changes:
                model.apply("change", data_of(change))
        return self.feed.version


def data_of(event):
    """The data of a server-sent event."""
    return event.removesuffix(b"\n\n").split(b"\ndata: ")[1]


def asking(name, **requests):
    limits = {key: amount for key, amount in requests.items() if "/" in key}
    resources = {"requests": requests, "limits": limits}
    return make_pod(name, spec={"containers": [{"name": "c", "resources": resources}]})


def queued(name, attempts=1):
    return QueuedPod(make_pod(name), 1.0, attempts=attempts)


def bound(name, node="n", seconds=0.01):
    each = queued(name)
    return PodBound(each, each.pod.on(node), "default-scheduler", 1, 1, seconds, 5.0)


def failed(name, message="0/1 nodes are available: 1 Insufficient cpu."):
    return AttemptFailed(queued(name), "default-scheduler", "unschedulable", message, 0.1)


def as_told(model):
    sections = {k: v for k, v in model.sections.items() if k not in {"version", "time", "omitted"}}
    streams = {name: list(stream) for name, stream in model.streams.items()}
    return model.nodes, sections, streams


@pytest.mark.parametrize("seed", range(8))
def test_changes_add_up_to_the_snapshot(seed):
    """Nodes and pods come, change and go, in any order; a listener that is late now and then sees the same as a new
    one.
    """
    dice, studio = random.Random(seed), Studio()
    model, table = studio.open(), studio.table
    seen, pods = studio.feed.version, {}
    for number in range(300):
        name, kind = f"n{dice.randrange(12)}", dice.random()
        row = table.row_of.get(name)
        if kind < 0.15 and row is not None and table.nodes[row] is not None:
            table.remove_node(name)
        elif kind < 0.4:
            labels = {f"l{dice.randrange(3)}": f"v{dice.randrange(3)}"}
            taints = [{"key": "t", "effect": "NoSchedule"}] if dice.random() < 0.3 else []
            amounts = {"cpu": str(dice.randrange(1, 5)), "pods": "110"}
            if dice.random() < 0.3:
                amounts["example.com/gpu"] = "2"
            table.set_node(
                make_node(
                    name,
                    labels=labels,
                    spec={"taints": taints},
                    status={"allocatable": amounts},
                )
            )
        elif kind < 0.7 or not pods:
            requests = {"cpu": f"{dice.randrange(1, 900)}m"}
            if dice.random() < 0.3:
                requests["example.com/gpu"] = "1"
            pod = asking(f"p{number}", **requests).on(name)
            table.add_pod(pod)
            pods[pod.uid] = pod
        else:
            table.remove_pod(pods.pop(dice.choice(sorted(pods))))
        if dice.random() < 0.2:
            studio.telemetry.on(bound(f"p{number}"))
        if dice.random() < 0.5:
            studio.advance(dice.choice((0.5, 0.5, 3.0)))
            if dice.random() < 0.7:
                seen = studio.follow(model, seen)
    studio.advance()
    studio.follow(model, seen)
    nodes, sections, streams = as_told(model)
    new_nodes, new_sections, new_streams = as_told(studio.fresh())
    assert nodes == new_nodes
    assert {n.name for n in nodes.values()} == set(table.row_of)
    assert sections == new_sections
    assert streams["decisions"][-20:] == new_streams["decisions"][-20:]
    for node in nodes.values():
        row = table.row_of[node.name]
        assert node.requested.get("pods", 0) == table.pod_count[row]
        assert node.requested.get("cpu", 0) == table.requested.exact("cpu", row)


def test_only_rows_that_changed_are_sent():
    studio = Studio()
    for number in range(50):
        studio.table.set_node(make_node(f"n{number}"))
    studio.open()
    studio.table.add_pod(asking("p", cpu="1").on("n7"))
    studio.advance()
    ((_, change),) = studio.feed.since(studio.feed.version - 1)
    nodes = json.loads(data_of(change))["nodes"]
    assert nodes["rows"] == [studio.table.row_of["n7"]]
    assert nodes["requested"]["cpu"] == 1000
    assert "objects" not in nodes
    studio.table.add_pods([asking(f"q{n}", cpu=str(n)).on(f"n{n}") for n in (8, 9)])
    studio.advance()
    ((_, change),) = studio.feed.since(studio.feed.version - 1)
    nodes = json.loads(data_of(change))["nodes"]
    assert (nodes["requested"]["cpu"], nodes["requested"]["pods"]) == ([8000, 9000], 1)
    studio.table.set_node(make_node("n7"))  # as a heartbeat: nothing that is shown has changed
    studio.advance()
    ((_, change),) = studio.feed.since(studio.feed.version - 1)
    assert "nodes" not in json.loads(data_of(change))


def test_a_late_listener_gets_a_snapshot_and_an_early_one_nothing():
    studio = Studio()
    studio.open()
    first = studio.feed.version
    assert studio.feed.since(first) == []
    for _ in range(module.KEPT_CHANGES):
        studio.advance()
    assert len(studio.feed.since(first)) == module.KEPT_CHANGES
    studio.advance()
    assert studio.feed.since(first) is None
    assert studio.feed.since(studio.feed.version + 1) is None


def test_many_changed_objects_are_a_snapshot():
    studio = Studio()
    studio.open()
    for number in range(feed_nodes.MAX_OBJECTS + 1):
        studio.table.set_node(make_node(f"n{number}"))
    studio.advance()
    assert studio.feed.since(studio.feed.version - 1) is None
    assert len(studio.fresh().nodes) == feed_nodes.MAX_OBJECTS + 1


def test_labels_with_a_value_for_each_node_are_left_out():
    studio = Studio()
    for number in range(feed_nodes.MAX_LABEL_VALUES + 1):
        name = f"n{number}"
        studio.table.set_node(make_node(name, labels={"zone": "a", "host": name}))
    model = studio.open()
    assert {tuple(node.labels) for node in model.nodes.values()} == {("zone",)}
    seen = studio.feed.version
    studio.table.set_node(make_node("n1", labels={"zone": "b", "host": "n1"}))
    studio.advance()
    studio.follow(model, seen)
    changed = model.nodes[studio.table.row_of["n1"]]
    assert changed.labels["zone"] == "b"
    assert "host" not in changed.labels


def test_of_very_many_label_keys_the_common_ones_are_shown():
    studio = Studio()
    for number in range(300):
        labels = {f"own-{number}-{n}": "" for n in range(40)} | {"zone": f"z{number % 3}"}
        studio.table.set_node(make_node(f"n{number}", labels=labels))
    model = studio.open()
    shown = {key for node in model.nodes.values() for key in node.labels}
    assert "zone" in shown
    assert len(shown) <= feed_nodes.MAX_LABELS
    left_out = json.loads(studio.snapshot())["nodes"]["leftOut"]["labels"]
    assert left_out
    assert shown.isdisjoint(left_out)
    studio.table.set_node(make_node("n1", labels={"zone": "z9", left_out[0]: "", "new": ""}))
    studio.advance()
    studio.follow(model, studio.feed.version - 1)
    changed = model.nodes[studio.table.row_of["n1"]].labels
    assert changed["zone"] == "z9"
    assert left_out[0] not in changed
    assert len(shown | changed.keys()) <= feed_nodes.MAX_LABELS


def test_a_new_label_key_is_shown_at_once():
    studio = Studio()
    studio.table.set_node(make_node("n", labels={"zone": "a"}))
    model = studio.open()
    studio.table.set_node(make_node("n", labels={"zone": "a", "disk": "ssd"}))
    studio.advance()
    studio.follow(model, studio.feed.version - 1)
    assert model.nodes[0].labels == {"zone": "a", "disk": "ssd"}


def test_labels_are_encoded_in_short_steps():
    studio = Studio()
    for number in range(100):
        labels = {f"l{n}": "" for n in range(1000)}
        studio.table.set_node(make_node(f"n{number}", labels=labels))
    studio.feed.open()
    studio.advance()
    assert sum(1 for _ in studio.feed.snapshot()) > 40


def test_of_very_many_resources_those_that_most_nodes_have_are_shown():
    studio = Studio()
    rare = [f"example.com/r{number}" for number in range(60)]
    for number, name in enumerate(rare):
        amounts = {"cpu": "4", "pods": "110", "zzz.com/gpu": "2", name: "1"}
        studio.table.set_node(make_node(f"n{number}", status={"allocatable": amounts}))
    model = studio.open()
    shown = {name for node in model.nodes.values() for name in node.allocatable}
    assert {"cpu", "pods", "zzz.com/gpu"} <= shown
    assert len(shown) <= feed_nodes.MAX_RESOURCES + 1
    left_out = json.loads(studio.snapshot())["nodes"]["leftOut"]["resources"]
    assert left_out
    assert shown.isdisjoint(left_out)
    row = rare.index(left_out[0])
    studio.table.add_pod(asking("p", **{"zzz.com/gpu": "1", left_out[0]: "1"}).on(f"n{row}"))
    studio.advance()
    studio.follow(model, studio.feed.version - 1)
    assert model.nodes[row].requested == {"zzz.com/gpu": 1, "pods": 1}


def test_a_change_looks_at_nothing_but_the_rows_that_changed(monkeypatch):
    studio = Studio()
    for number in range(100):
        studio.table.set_node(make_node(f"n{number}", status={"allocatable": {"a.b/c": "9"}}))
    model = studio.open()

    def looked_at_all(*_):
        raise AssertionError("all rows were looked at")

    studio.table.add_pod(asking("p", cpu="1", **{"a.b/c": "2"}).on("n7"))
    monkeypatch.setattr(type(studio.table.requested), "column", looked_at_all)
    monkeypatch.setattr(type(studio.table.allocatable), "column", looked_at_all)
    studio.advance()
    studio.follow(model, studio.feed.version - 1)
    assert model.nodes[7].requested == {"cpu": 1000, "a.b/c": 2, "pods": 1}


def test_heartbeats_of_all_nodes_are_compared_in_short_steps_and_send_nothing():
    studio = Studio()
    for number in range(3000):
        studio.table.set_node(make_node(f"n{number}"))
    studio.open()
    for number in range(3000):
        studio.table.set_node(make_node(f"n{number}"))
    assert sum(1 for _ in studio.feed.advance()) > 5
    ((_, change),) = studio.feed.since(studio.feed.version - 1)
    assert "nodes" not in json.loads(data_of(change))
    assert sum(1 for _ in studio.feed.snapshot()) < 10, "nothing was encoded again"


def test_a_change_that_is_not_completed_is_not_lost():
    """As when the listener for which it is computed leaves."""
    studio = Studio()
    for number in range(600):
        studio.table.set_node(make_node(f"n{number}"))
    model, seen = studio.open(), studio.feed.version
    for number in range(600):
        labels = {"zone": "b"} if number == 3 else {}
        studio.table.set_node(make_node(f"n{number}", labels=labels))
    studio.telemetry.on(bound("p"))
    steps = studio.feed.advance()
    next(steps)
    steps.close()
    assert studio.feed.since(seen) == []
    studio.advance()
    studio.follow(model, seen)
    assert model.nodes[3].labels == {"zone": "b"}
    assert model.streams["decisions"][-1][1] == "default/p"


def test_nothing_is_kept_while_nobody_listens():
    studio = Studio()
    recent = studio.telemetry.recent
    studio.telemetry.on(bound("p"))
    assert recent.take() == ([], 0, [])
    studio.open()
    studio.telemetry.on(bound("q"))
    studio.feed.close()
    studio.telemetry.on(bound("r"))
    assert recent.take() == ([], 0, [])


def test_what_happened_before_is_told_from_the_histories():
    studio = Studio()
    studio.telemetry.on(failed("p"))
    end = bound("q", node="n1")
    chosen = NodeSelected(end.queued, end.profile, "n1", 1, 1, 0.1, lambda: None)
    studio.telemetry.on(chosen)
    studio.telemetry.on(end)
    told = [decision[1:4] for decision in studio.open().streams["decisions"]]
    assert told == [["default/p", "unschedulable", ""], ["default/q", "bound", "n1"]]


def test_of_very_many_decisions_the_last_are_told_and_the_others_counted():
    studio = Studio()
    model = studio.open()
    for number in range(module.MAX_DECISIONS + 7):
        studio.telemetry.on(bound(f"p{number}"))
    studio.advance()
    ((_, change),) = studio.feed.since(studio.feed.version - 1)
    told = json.loads(data_of(change))
    assert (len(told["decisions"]), told["omitted"]) == (module.MAX_DECISIONS, 7)
    model.apply("change", data_of(change))
    assert model.streams["decisions"][-1][1] == f"default/p{module.MAX_DECISIONS + 6}"


def test_rates_and_latencies_are_those_of_the_last_seconds():
    studio = Studio()
    model = studio.open()
    for _ in range(10):
        for _ in range(50):
            studio.telemetry.on(bound("p", seconds=0.003))
        studio.telemetry.on(failed("q"))
        studio.advance(1.0)
    rates = studio.fresh().sections["rates"]
    assert rates["perSecond"] == {"scheduled": 50.0, "unschedulable": 1.0}
    p50, p99 = rates["attempt"]
    assert 0.002 < p50 <= 0.004
    assert 0.064 < p99 <= 0.128
    for _ in range(30):
        studio.advance(1.0)
    rates = studio.fresh().sections["rates"]
    assert rates == {
        "perSecond": {"scheduled": 0.0, "unschedulable": 0.0},
        "attempt": [None, None],
        "algorithm": [None, None],
    }
    assert model.sections["rates"]["perSecond"] == {}


def test_rates_go_on_after_a_reset_of_the_metrics():
    studio = Studio()
    studio.open()
    for number in range(20):
        if number == 10:
            studio.telemetry.families.reset()
        for _ in range(5):
            studio.telemetry.on(bound("p", seconds=0.003))
        studio.advance(1.0)
        rates = studio.fresh().sections["rates"]
        assert rates["perSecond"] == {"scheduled": 5.0}
        assert 0.002 < rates["attempt"][0] <= 0.004


def test_who_waits_and_why():
    studio = Studio()
    for number in range(3):
        pod = asking(f"p{number}", cpu="64")
        studio.state.apply(Change(Pod, None, pod), 10.0 + number)
        each = studio.state.queue.pop(20.0)
        each.reject(["NodeResourcesFit"])
        studio.telemetry.on(
            AttemptFailed(each, "default-scheduler", "unschedulable", "0/0 nodes", 0.1)
        )
        studio.state.queue.add_unschedulable_if_not_present(each, 21.0)
    model = studio.open()
    assert model.sections["reasons"] == [["0/0 nodes", 3]]
    assert [pod["pod"] for pod in model.sections["waiting"]] == [f"default/p{n}" for n in range(3)]
    assert model.sections["waiting"][0]["since"] == 10.0
    assert model.sections["queue"]["unschedulable"] == 3


def test_pods_of_a_group_wait_for_what_the_group_waits_for():
    studio = Studio()
    groups = studio.state.cluster.pod_groups
    groups.watch(LabelledPodGroup, lambda: "/apis/scheduling.x-k8s.io/v1alpha1/podgroups")
    for name in ("a", "b"):
        pod = make_pod(name, labels={GROUP_LABEL: "gang"})
        studio.state.apply(Change(Pod, None, pod), 10.0)
    model = studio.open()
    assert model.sections["reasons"] == [["pod group gang does not exist", 2]]
    manifest = {"metadata": {"name": "gang", "namespace": "default"}, "spec": {"minMember": 3}}
    group = make_object(LabelledPodGroup, manifest)
    studio.state.apply(Change(LabelledPodGroup, None, group), 11.0)
    studio.advance(module.SLOW_SECONDS)
    model = studio.fresh()
    assert model.sections["reasons"] == [["pod group gang: 2 of 3 pods exist", 2]]


def test_extenders_and_preemptions():
    studio = Studio()
    model, sink = studio.open(), studio.telemetry.on_extender
    seen = studio.feed.version
    for _ in range(4):
        sink(CallStarted("e", Verb.FILTER))
    for _ in range(3):
        sink(CallFinished("e", Verb.FILTER, CallOutcome.SUCCESS, 0.01, 10, 20))
    victims = [make_pod(f"v{number}") for number in range(12)]
    studio.telemetry.on(PreemptionStarted(make_pod("vip"), "n1", victims))
    studio.advance()
    studio.follow(model, seen)
    (extender,) = model.sections["extenders"]
    assert (extender["inFlight"], extender["outcomes"]) == (1, {"success": 3})
    assert extender["breaker"] == "closed"
    assert 0.008 < extender["latency"][0] <= 0.016
    ((_, preemptor, node, some, count),) = model.streams["preemptions"]
    assert (preemptor, node, len(some), count) == ("default/vip", "n1", module.MAX_VICTIMS, 12)


def test_rejections_of_kubelets():
    studio = Studio()
    model, seen = studio.open(), studio.feed.version
    assert model.sections["kubeletRejections"] == {}
    studio.rejected["OutOfcpu"] = 2
    studio.advance()
    studio.follow(model, seen)
    assert model.sections["kubeletRejections"] == {"OutOfcpu": 2}


def test_text_that_is_no_text_is_sent_all_the_same():
    studio = Studio()
    studio.open()
    studio.telemetry.on(failed("p", message="caf\ud83d"))
    studio.advance()
    ((_, change),) = studio.feed.since(studio.feed.version - 1)
    assert json.loads(data_of(change))["decisions"][0][6] == "caf\ud83d"


def test_a_large_cluster_is_a_small_snapshot_in_short_steps():
    studio = Studio()
    for number in range(5000):
        labels = {"topology.kubernetes.io/zone": f"z{number % 3}", "host": f"node-{number:05d}"}
        studio.table.set_node(make_node(f"node-{number:05d}", labels=labels))
    studio.table.add_pods(
        [asking(f"p{n}", cpu="100m").on(f"node-{n % 5000:05d}") for n in range(9000)]
    )
    studio.feed.open()
    studio.advance()
    steps = sum(1 for _ in studio.feed.snapshot())
    assert steps > 5000 // 256
    assert len(studio.snapshot()) < 300_000


def test_quantiles():
    assert quantile((1.0, 2.0), (0, 0, 0), 0.5) is None
    assert quantile((1.0, 2.0), (10, 10, 0), 0.25) == 0.5
    assert quantile((1.0, 2.0), (10, 10, 0), 0.75) == 1.5
    assert quantile((1.0, 2.0), (0, 0, 5), 0.99) == 2.0
