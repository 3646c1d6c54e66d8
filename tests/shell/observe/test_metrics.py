"""kube-scheduler's metrics by name, type, labels, buckets and stability; and what the scheduler's life makes of
them.
"""

import asyncio
import re

import msgspec
import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from app.extender.breaker import State
from app.extender.config import Verb
from app.extender.errors import CallOutcome, ExtenderError
from app.extender.events import (
    BreakerChanged,
    CallFinished,
    CallHeldBack,
    CallStarted,
    ErrorIgnored,
    NodesRejected,
)
from app.framework.testing import make_node, make_object, make_pod
from app.kube.events import EventStatistics
from app.model.objects import Node, PodSpec, Service
from app.model.pod import Pod, PodTemplate
from app.model.storage import StorageClass
from app.observe.events import BindingStepFinished, ElectionStatistics, PreemptionFinished
from app.observe.metrics import gauges
from app.observe.metrics import resources as resources_module
from app.observe.metrics.exposition import exposition
from app.observe.metrics.extenders import ExtenderMetrics
from app.observe.metrics.library import go_float
from app.observe.metrics.process import LAG_INTERVAL, ClientMetrics, LoopLag
from app.observe.metrics.resources import SLICE, pod_resource_metrics
from app.observe.metrics.scheduler import FrameworkMetrics, WatchMetrics
from app.observe.metrics.series import MetricFamilies
from app.state.queue.queued_pod import QueuedPod
from app.state.scheduler_state import Change
from tests.shell.scheduler.world import running


def exp(start, factor, count):
    bounds = [start]
    while len(bounds) < count:
        bounds.append(bounds[-1] * factor)
    return bounds


ATTEMPT = exp(0.001, 2, 15)
POINT = exp(0.0001, 2, 12)
PLUGIN = exp(0.00001, 1.5, 20)
RESULT = {"result", "profile"}

#: name: (type, stability, labels, buckets), from docs/spec/metrics.md#scheduler-metrics: everything stable and beta,
#: and some alpha.
SPEC = {
    "scheduler_schedule_attempts": ("counter", "STABLE", RESULT, None),
    "scheduler_scheduling_attempt_duration_seconds": ("histogram", "STABLE", RESULT, ATTEMPT),
    "scheduler_preemption_victims": ("histogram", "STABLE", set(), exp(1, 2, 7)),
    "scheduler_preemption_attempts": ("counter", "STABLE", set(), None),
    "scheduler_pending_pods": ("gauge", "STABLE", {"queue"}, None),
    "scheduler_pod_scheduling_attempts": ("histogram", "STABLE", set(), exp(1, 2, 5)),
    "scheduler_framework_extension_point_duration_seconds": (
        "histogram",
        "STABLE",
        {"extension_point", "status", "profile"},
        POINT,
    ),
    "scheduler_queue_incoming_pods": ("counter", "STABLE", {"queue", "event"}, None),
    "scheduler_goroutines": ("gauge", "BETA", {"operation"}, None),
    "scheduler_pod_scheduling_sli_duration_seconds": (
        "histogram",
        "BETA",
        {"attempts"},
        exp(0.01, 2, 20),
    ),
    "scheduler_permit_wait_duration_seconds": ("histogram", "BETA", {"result"}, ATTEMPT),
    "scheduler_unschedulable_pods": ("gauge", "BETA", {"plugin", "profile"}, None),
    "scheduler_plugin_evaluation": (
        "counter",
        "BETA",
        {"plugin", "extension_point", "profile"},
        None,
    ),
    "scheduler_scheduling_algorithm_duration_seconds": ("histogram", "ALPHA", set(), ATTEMPT),
    "scheduler_event_handling_duration_seconds": ("histogram", "ALPHA", {"event"}, POINT),
    "scheduler_inflight_events": ("gauge", "ALPHA", {"event"}, None),
    "scheduler_plugin_execution_duration_seconds": (
        "histogram",
        "ALPHA",
        {"plugin", "extension_point", "status"},
        PLUGIN,
    ),
    "scheduler_queueing_hint_execution_duration_seconds": (
        "histogram",
        "ALPHA",
        {"plugin", "event", "hint"},
        PLUGIN,
    ),
    "scheduler_volume_scheduling_stage_error": ("counter", "ALPHA", {"operation"}, None),
    "scheduler_resourceclaim_creates": ("counter", "ALPHA", {"status"}, None),
    "scheduler_dra_bindingconditions_allocations": (
        "counter",
        "ALPHA",
        {"profile", "driver", "status"},
        None,
    ),
    "scheduler_preemption_goroutines_execution": ("counter", "ALPHA", {"result"}, None),
    "scheduler_preemption_goroutines_duration_seconds": (
        "histogram",
        "ALPHA",
        {"result"},
        exp(0.01, 2, 20),
    ),
    "scheduler_cache_size": ("gauge", "ALPHA", {"type"}, None),
    "scheduler_pod_scheduled_after_flush": ("counter", "ALPHA", set(), None),
    "leader_election_master_status": ("gauge", "ALPHA", {"name"}, None),
    "leader_election_slowpath": ("counter", "ALPHA", {"name"}, None),
    "rest_client_requests": ("counter", "ALPHA", {"code", "method", "host"}, None),
    "rest_client_request_duration_seconds": ("histogram", "ALPHA", {"verb", "host"}, None),
}


async def scrape(registry):
    body = await exposition(registry)
    return {family.name: family for family in text_string_to_metric_families(body.decode())}


def value(families, name, /, **labels):
    family = next(f for f in families.values() if name in {s.name for s in f.samples})
    return next(s.value for s in family.samples if s.name == name and s.labels == labels)


async def lived(world):
    """One pod bound, one that fits nowhere, and everything that registers metrics."""
    families = world.telemetry.families
    world.scheduler.register(families)
    gauges.register_election(families, lambda: ElectionStatistics("me", True, "me", 3, 2))
    gauges.register_events(families, lambda: [EventStatistics(1, 2, 3, 4, 5)])
    gauges.register_build(families, "0.1.0")
    world.telemetry.client.observer("https://api:6443/prefix")("POST", 201, 0.02)
    world.telemetry.on(
        BindingStepFinished(QueuedPod(make_pod("waits"), 1.0), "WaitOnPermit", "Success", 0.5)
    )
    world.telemetry.on(PreemptionFinished(0.1, succeeded=True))
    world.telemetry.watches.handled(Change(Node, None, make_node("n")), 0.0003)
    world.telemetry.probe.plugin("Fit", "Filter", "Success")(0.00002)
    for _ in range(100):
        world.telemetry.queue.timed_hint("Fit", "NodeAdd", lambda *_: True)(None, None, None)
    for plugin in world.scheduler.frameworks["default-scheduler"].plugins.at("filter"):
        if plugin.NAME == "VolumeBinding":
            plugin.stage_errors["bind"] += 1
        if plugin.NAME == "DynamicResources":
            plugin.claims_created["success"] += 1
            plugin.conditions_awaited["gpu.example.com", "timeout"] += 1
    world.add(make_pod("fits"))
    world.add(make_pod("too-big", spec={"containers": [requests("1000")]}))
    await world.settle()
    return await scrape(world.telemetry.registry)


def requests(cpu):
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}}


async def test_the_table_of_the_specification():
    async with running("a", "b") as world:
        families = await lived(world)
    for name, (kind, stability, labels, buckets) in SPEC.items():
        family = families[name]
        assert family.type == kind, name
        assert family.documentation.startswith(f"[{stability}] "), name
        assert family.samples, name
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == labels, name
        if buckets is not None:
            first = {k: v for k, v in family.samples[0].labels.items() if k != "le"}
            edges = [
                s.labels["le"]
                for s in family.samples
                if "le" in s.labels and {k: v for k, v in s.labels.items() if k != "le"} == first
            ]
            assert edges == [*map(go_float, buckets), "+Inf"], name


async def test_every_metric_says_how_stable_it_is():
    async with running() as world:
        families = await lived(world)
    ours = {n: f for n, f in families.items() if not n.startswith(("python_", "process_"))}
    assert ours
    for name, family in ours.items():
        assert family.documentation.startswith(("[STABLE] ", "[BETA] ", "[ALPHA] ")), name


async def test_what_two_pods_leave_behind():
    async with running("a", "b") as world:
        families = await lived(world)
    profile = "default-scheduler"
    attempts = "scheduler_schedule_attempts_total"
    assert value(families, attempts, result="scheduled", profile=profile) == 1
    assert value(families, attempts, result="unschedulable", profile=profile) == 1
    assert value(families, "scheduler_pending_pods", queue="unschedulable") == 1
    assert value(families, "scheduler_pending_pods", queue="active") == 0
    assert value(families, "scheduler_pod_scheduling_attempts_count") == 1
    sli = "scheduler_pod_scheduling_sli_duration_seconds_count"
    assert value(families, sli, attempts="1") == 1
    rejected = value(
        families, "scheduler_unschedulable_pods", plugin="NodeResourcesFit", profile=profile
    )
    assert rejected == 1
    incoming = "scheduler_queue_incoming_pods_total"
    assert value(families, incoming, queue="active", event="UnschedulablePodAdd") == 2
    failure = value(families, incoming, queue="unschedulable", event="ScheduleAttemptFailure")
    assert failure == 1
    assert value(families, "scheduler_preemption_attempts_total") == 1
    assert value(families, "scheduler_cache_size", type="nodes") == 2
    assert value(families, "leader_election_master_status", name="kube-scheduler") == 1
    assert (
        value(families, "rest_client_requests_total", code="201", method="POST", host="api:6443")
        == 1
    )
    assert value(families, "aiokube_scheduler_events_dropped_total") == 4


@pytest.mark.parametrize(
    ("point", "status", "count"),
    [
        ("PreFilter", "Success", 2),
        ("Filter", "Success", 2),
        ("PostFilter", "Unschedulable", 1),
        ("PreScore", "Success", 1),
        ("Score", "Success", 1),
        ("Reserve", "Success", 1),
        ("Bind", "Success", 1),
    ],
)
async def test_extension_points_are_timed(point, status, count):
    async with running("a", "b") as world:
        families = await lived(world)
    name = "scheduler_framework_extension_point_duration_seconds_count"
    labels = {"extension_point": point, "status": status, "profile": "default-scheduler"}
    assert value(families, name, **labels) == count


@pytest.mark.parametrize(
    ("plugin", "point", "count"),
    [
        ("NodeResourcesFit", "PreFilter", 2),
        ("NodeResourcesFit", "Filter", 2),
        ("NodeResourcesFit", "Score", 1),
        ("NodeResourcesFit", "PreScore", 1),
        ("ImageLocality", "Score", 1),
        ("NodePorts", "Filter", 0),
        ("VolumeBinding", "PreFilter", 0),
    ],
)
async def test_plugins_count_the_attempts_they_take_part_in(plugin, point, count):
    async with running("a", "b") as world:
        families = await lived(world)
    labels = {"plugin": plugin, "extension_point": point, "profile": "default-scheduler"}
    assert value(families, "scheduler_plugin_evaluation_total", **labels) == count


def test_about_one_extension_point_of_ten_is_looked_at_closely():
    probe = FrameworkMetrics(
        MetricFamilies(CollectorRegistry()), monotonic=lambda: 0.0, rng=np.random.default_rng(1)
    )
    gaps = [probe.next_sample() for _ in range(2000)]
    assert min(gaps) == 1
    assert 9 < sum(gaps) / len(gaps) < 11


async def test_bounds_are_written_as_kube_scheduler_writes_them():
    registry = CollectorRegistry()
    bounds = (0.00001, 0.5, 1, 16, 1048576)
    MetricFamilies(registry).histogram("took", "Took.", bounds).labels()
    text = (await exposition(registry)).decode()
    written = re.findall(r'le="(.*?)"', text)
    assert written == ["1e-05", "0.5", "1", "16", "1.048576e+06", "+Inf"]


async def test_changes_are_called_what_kube_scheduler_calls_them():
    telemetry = WatchMetrics(MetricFamilies(registry := CollectorRegistry()))
    waiting = make_pod("p")
    bound = waiting.on("n")
    for change, times in [
        (Change(Pod, waiting, bound), 1),
        (Change(Pod, bound, bound), 2),
        (Change(Pod, bound, None), 3),
        (Change(Pod, waiting, waiting), 4),
        (Change(Pod, waiting, None), 5),
        (Change(StorageClass, None, make_object(StorageClass, {"metadata": {"name": "s"}})), 6),
        (Change(Service, None, make_object(Service, {"metadata": {"name": "s"}})), 7),
    ]:
        for _ in range(times):
            telemetry.handled(change, 0.001)
    telemetry.listed(Pod, [waiting, bound, waiting], 0.003)
    families = await scrape(registry)
    (family,) = families.values()
    counted = {s.labels["event"]: s.value for s in family.samples if s.name.endswith("_count")}
    assert counted == {
        "AssignedPodAdd": 1 + 1,
        "AssignedPodUpdate": 2,
        "AssignedPodDelete": 3,
        "UnschedulablePodUpdate": 4,
        "UnschedulablePodDelete": 5,
        "UnschedulablePodAdd": 2,
        "storage.k8s.io/StorageClassAdd": 6,
        "ServiceAdd": 7,
    }


async def test_nobody_takes_it_for_a_component_of_another_version():
    """kubernetes-mixin's KubeVersionMismatch compares all versions in kubernetes_build_info."""
    registry = CollectorRegistry()
    gauges.register_build(MetricFamilies(registry), "0.1.0")
    families = await scrape(registry)
    assert "kubernetes_build_info" not in families
    assert families["aiokube_scheduler_build_info"].samples[0].labels["version"] == "0.1.0"


# ---------------------------------------------------------------- extenders


@pytest.fixture
def registry():
    return CollectorRegistry()


async def test_calls_to_extenders(registry):
    metrics = ExtenderMetrics(MetricFamilies(registry))
    metrics.expect("http://a", Verb.FILTER)
    metrics.expect("http://a", Verb.PRIORITIZE)
    labels = {"extender": "http://a", "verb": "filter"}
    before = await scrape(registry)
    state = "aiokube_scheduler_extender_breaker_state"
    assert value(before, state, **labels, state="closed") == 1
    assert value(before, state, **labels, state="open") == 0

    metrics.on(CallStarted("http://a", Verb.FILTER))
    metrics.on(CallStarted("http://a", Verb.PRIORITIZE))
    during = await scrape(registry)
    assert value(during, "aiokube_scheduler_extender_requests_in_flight", **labels) == 1
    assert metrics.prioritizing() == 1

    metrics.on(CallFinished("http://a", Verb.FILTER, CallOutcome.SUCCESS, 0.02, 100, 40))
    metrics.on(NodesRejected("http://a", 7))
    metrics.on(CallHeldBack("http://a", Verb.FILTER))
    metrics.on(BreakerChanged("http://a", Verb.FILTER, State.OPEN))
    error = ExtenderError("no", extender="http://a", verb=Verb.FILTER, outcome=CallOutcome.TIMEOUT)
    metrics.on(ErrorIgnored(error, make_pod("p")))
    after = await scrape(registry)
    prefix = "aiokube_scheduler_extender_"
    assert value(after, f"{prefix}requests_in_flight", **labels) == 0
    assert value(after, f"{prefix}requests_total", **labels, outcome="success") == 1
    assert value(after, f"{prefix}requests_total", **labels, outcome="held_back") == 1
    assert value(after, f"{prefix}request_duration_seconds_count", **labels) == 1
    assert value(after, f"{prefix}request_bytes_total", **labels) == 100
    assert value(after, f"{prefix}response_bytes_total", **labels) == 40
    assert value(after, f"{prefix}nodes_dropped_total", **labels) == 7
    assert value(after, f"{prefix}errors_ignored_total", **labels) == 1
    assert value(after, state, **labels, state="open") == 1
    assert value(after, state, **labels, state="closed") == 0


# ---------------------------------------------------------------- client and loop


async def test_requests_without_an_answer_have_a_code_of_their_own(registry):
    observe = ClientMetrics(MetricFamilies(registry)).observer("https://api")
    observe("GET", 0, 30.0)
    families = await scrape(registry)
    name = "rest_client_requests_total"
    assert value(families, name, code="<error>", method="GET", host="api") == 1


@pytest.mark.looptime
async def test_lag_is_what_the_loop_is_late(registry):
    now = asyncio.get_running_loop().time
    late = iter((0.0, 0.25, 0.25))
    times = []

    def slow():
        times.append(now() + next(late, 0.25))
        return times[-1]

    lag = asyncio.ensure_future(LoopLag(MetricFamilies(registry), slow).run())
    await asyncio.sleep(LAG_INTERVAL * 1.5)
    lag.cancel()
    await asyncio.wait([lag])
    families = await scrape(registry)
    assert value(families, "aiokube_scheduler_event_loop_lag_seconds_count") == 1
    assert value(families, "aiokube_scheduler_event_loop_lag_seconds_sum") == pytest.approx(0.25)


# ---------------------------------------------------------------- pods' resources


def resources_of(*pods: Pod):
    text = b"".join(pod_resource_metrics(pods)).decode()
    return {
        (sample.name, sample.labels["pod"], sample.labels["resource"]): (
            sample.value,
            sample.labels,
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_requests_and_limits_with_their_units():
    resources = {
        "requests": {"cpu": "250m", "memory": "64Mi", "hugepages-2Mi": "4Mi", "a.b/gpu": "2"},
        "limits": {"cpu": "1", "attachable-volumes-x": "3"},
    }
    spec = {
        "schedulerName": "special",
        "priority": 7,
        "containers": [{"name": "c", "resources": resources}],
        "overhead": {"cpu": "50m"},
    }
    found = resources_of(make_pod("p", spec=spec).on("n1"))
    request = {
        resource: (amount, labels["unit"])
        for (name, _, resource), (amount, labels) in found.items()
        if name.endswith("request")
    }
    limit = {
        resource: (amount, labels["unit"])
        for (name, _, resource), (amount, labels) in found.items()
        if name.endswith("limit")
    }
    assert request == {
        "cpu": (0.3, "cores"),
        "memory": (64 * 2**20, "bytes"),
        "hugepages-2Mi": (4 * 2**20, "bytes"),
        "a.b/gpu": (2, ""),
    }
    assert limit == {"cpu": (1.05, "cores"), "attachable-volumes-x": (3, "integer")}
    _, labels = found["kube_pod_resource_request", "p", "cpu"]
    assert labels == {
        "namespace": "default",
        "pod": "p",
        "node": "n1",
        "scheduler": "special",
        "priority": "7",
        "resource": "cpu",
        "unit": "cores",
    }


def test_limits_of_the_pod_and_of_init_containers():
    spec = {
        "containers": [{"name": "c", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}],
        "initContainers": [{"name": "i", "resources": {"limits": {"cpu": "3"}}}],
        "resources": {"limits": {"memory": "2Gi"}},
    }
    found = resources_of(make_pod("p", spec=spec))
    assert found["kube_pod_resource_limit", "p", "cpu"][0] == 3
    assert found["kube_pod_resource_limit", "p", "memory"][0] == 2 * 2**30


def test_pods_that_have_ended_and_amounts_of_zero_are_left_out():
    ended = make_pod("done", spec={"containers": [requests("1")]})
    ended = msgspec.structs.replace(ended, phase="Succeeded")
    nothing = make_pod("idle", spec={"containers": [requests("0")]})
    assert resources_of(ended.on("n1"), nothing) == {}


def test_a_quantity_that_cannot_be_read_costs_no_other_pod_its_metrics():
    broken = {"name": "c", "resources": {"limits": {"cpu": "lots"}}}
    fine = {"name": "c", "resources": {"limits": {"cpu": "1"}}}
    pods = [make_pod(n, spec={"containers": [c]}) for n, c in (("bad", broken), ("good", fine))]
    assert [pod for _, pod, _ in resources_of(*pods)] == ["good"]


def test_an_amount_that_is_no_float_costs_nobody_else_a_sample(monkeypatch):
    amounts = resources_module._REQUEST.amounts

    def with_a_huge_one(spec):
        return {**amounts(spec), "example.com/huge": 10**400}

    request = resources_module._REQUEST._replace(amounts=with_a_huge_one)
    monkeypatch.setattr(resources_module, "_REQUEST", request)
    pod = make_pod("p", spec={"containers": [requests("1")]})
    assert [resource for _, _, resource in resources_of(pod)] == ["cpu"]


def test_names_that_only_etcd_could_hold_are_escaped():
    pod = make_pod("p", spec={"containers": [requests("1")]})
    name = 'a"} 7\nb\\'
    assert [pod for _, pod, _ in resources_of(msgspec.structs.replace(pod, name=name))] == [name]


def test_many_pods_come_in_slices():
    template = PodTemplate(PodSpec())
    labels = make_pod("x").labels
    pods = [
        Pod(namespace="d", name=f"p{n}", uid=f"u{n}", template=template, labels=labels)
        for n in range(SLICE * 2 + 1)
    ]
    parts = list(pod_resource_metrics(pods))
    assert len(parts) == 2 * (1 + 3)


async def test_hints_are_timed_now_and_then_and_answer_as_ever():
    async with running() as world:
        queue = world.telemetry.queue
        queueing = queue.timed_hint("Fit", "NodeAdd", lambda *_: True)
        skipping = queue.timed_hint("Fit", "NodeAdd", lambda *_: False)

        def broken(*_):
            raise ValueError("no")

        failing = queue.timed_hint("Fit", "NodeAdd", broken)
        for _ in range(300):
            assert queueing(None, None, None) is True
            assert skipping(None, None, None) is False
            with pytest.raises(ValueError, match="no"):
                failing(None, None, None)
        families = await scrape(world.telemetry.registry)
    name = "scheduler_queueing_hint_execution_duration_seconds_count"
    for hint in ("Queue", "QueueSkip", "Error"):
        assert 5 < value(families, name, plugin="Fit", event="NodeAdd", hint=hint) < 100


async def test_the_hints_of_the_profiles_are_timed():
    async with running("a") as world:
        world.add(make_pod("too-big", spec={"containers": [requests("1000")]}))
        await world.settle()
        for number in range(200):
            world.add_nodes(f"another-{number}")
        families = await scrape(world.telemetry.registry)
    name = "scheduler_queueing_hint_execution_duration_seconds_count"
    labels = {"plugin": "NodeResourcesFit", "event": "NodeAdd", "hint": "QueueSkip"}
    assert value(families, name, **labels) > 0
