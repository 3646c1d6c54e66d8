"""What comes out of a round, apart from running one."""

import dataclasses
import json
from collections import Counter

import pytest

from app.settings.load import load as load_settings
from tests.bench.extender import node_names
from tests.bench.measuring import Load, configuration
from tests.bench.results import Measured, Result, Thresholds, as_json, ratios, shortfalls, summary
from tests.bench.usage import Usage, peak_memory
from tests.bench.workload import (
    MADE,
    RACK,
    SHAPES,
    Gangs,
    existing_count,
    existing_pod,
    measured_pod,
    node,
    surroundings,
)

MEASURED = Measured(
    started=100.0,
    bound_at=[101.0, 101.5, 103.0],
    bound_on=["a", "b", "a"],
    bound_pods=["p", "q", "r"],
    latencies=[],
    cpu_at_first=1.0,
    cpu=1.6,
    peak_memory=64 * 2**20,
)


def result(measured: Measured = MEASURED, *, pods: int = 3, **changes: object) -> Result:
    about = {"shape": "basic", "nodes": 2, "pods": pods, "existing": 0, "extender": ""}
    return Result(**{**about, **measured.figures(), **changes})


def test_the_figures_of_a_round():
    assert MEASURED.figures() == {
        "bound": 3,
        "first_bind_s": 1.0,
        "median_bind_s": 1.5,
        "last_bind_s": 3.0,
        "p99_bind_s": 3.0,
        "latency_p50_ms": None,
        "latency_p99_ms": None,
        "pods_per_s": 1.0,
        "cpu_ms_per_pod": 200.0,
        "cpu_s": 1.6,
        "first_bind_cpu_s": 1.0,
        "peak_memory_mb": 64.0,
        "nodes_used": 2,
        "most_pods_on_a_node": 2,
        "decisions": MEASURED.figures()["decisions"],
    }


def test_latencies_of_pods_that_arrive():
    measured = dataclasses.replace(MEASURED, latencies=[n / 1000 for n in range(200, 0, -1)])
    figures = measured.figures()
    assert (figures["latency_p50_ms"], figures["latency_p99_ms"]) == (100.0, 198.0)
    assert "100.0 ms from creation to binding, p99 198.0 ms" in summary("ours", result(measured))
    assert ratios([result(measured)], [result(measured)])["latency_p99_ms"] == 1.0
    assert "latency_p99_ms" not in ratios([result()], [result()])


@pytest.mark.parametrize("count", [0, 1])
def test_there_is_no_rate_without_two_bindings(count):
    measured = dataclasses.replace(
        MEASURED,
        bound_at=MEASURED.bound_at[:count],
        bound_on=MEASURED.bound_on[:count],
        bound_pods=MEASURED.bound_pods[:count],
    )
    figures = measured.figures()
    assert figures["bound"] == count
    assert figures["pods_per_s"] is None
    assert (figures["first_bind_s"] is None) == (count == 0)
    assert "- pods/s" in summary("ours", result(measured))


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (Thresholds(), []),
        (Thresholds(pods_per_s=1.0, cpu_ms_per_pod=200.0, peak_memory_mb=64.0), []),
        (Thresholds(pods_per_s=1.1), ["1.0 pods/s, at least 1.1 are wanted"]),
        (Thresholds(cpu_ms_per_pod=100), ["200.0 ms of CPU a pod, no more than 100 are wanted"]),
        (Thresholds(peak_memory_mb=10), ["64.0 MiB at most, no more than 10 are wanted"]),
    ],
)
def test_limits(wanted, said):
    assert list(shortfalls(result(), wanted)) == said


def test_a_pod_that_was_not_bound_is_always_a_shortfall():
    assert list(shortfalls(result(pods=5), Thresholds())) == ["2 of 5 pods were not bound"]


def test_a_figure_that_is_missing_meets_no_limit():
    nothing = result(pods_per_s=None, cpu_ms_per_pod=None)
    wanted = Thresholds(pods_per_s=1.0, cpu_ms_per_pod=1.0)
    assert len(list(shortfalls(nothing, wanted))) == 2


def test_ratios_are_medians_of_the_rounds():
    ours = [result(pods_per_s=rate) for rate in (100.0, 900.0, 200.0)]
    theirs = [
        result(pods_per_s=rate, peak_memory_mb=128.0, cpu_ms_per_pod=None)
        for rate in (200.0, 300.0, 100.0)
    ]
    found = ratios(ours, theirs)
    assert found["pods_per_s"] == 2.0
    assert found["peak_memory_mb"] == 0.5
    assert found["cpu_ms_per_pod"] is None


def test_the_line_of_json():
    line = json.loads(as_json("ours", result()))
    assert line["scheduler"] == "ours"
    assert line["pods_per_s"] == 1.0


def test_usage_adds_up():
    assert Usage(1.0, 10) + Usage(0.5, 5) == Usage(1.5, 15)
    assert peak_memory("Name:\tx\nVmHWM:\t    1024 kB\n") == 2**20
    assert peak_memory("Name:\tzombie\n") == 0


# ---------------------------------------------------------------- the load


@pytest.mark.parametrize("shape", SHAPES)
def test_everything_that_is_made_bears_the_label(shape):
    made = [
        node(3, zones=2, shape=shape, padding=0),
        measured_pod(7, shape),
        existing_pod(4, nodes=3, shape=shape),
    ]
    assert [each["metadata"]["labels"][MADE] for each in made] == ["node", "measured", "existing"]
    assert made[2]["spec"]["nodeName"] == "node-00001"


def test_there_is_a_claim_for_every_pod_and_a_device_for_every_claim():
    made = list(surroundings("dra", nodes=3, pods=24))
    assert {each["metadata"]["labels"][MADE] for each in made} == {"devices"}
    kinds = Counter(each["kind"] for each in made)
    assert kinds == {"DeviceClass": 1, "ResourceSlice": 3, "ResourceClaim": 24}
    claims = {each["metadata"]["name"] for each in made if each["kind"] == "ResourceClaim"}
    wanted = [measured_pod(number, "dra")["spec"]["resourceClaims"] for number in range(24)]
    assert {claim["resourceClaimName"] for (claim,) in wanted} == claims
    slices = [each["spec"] for each in made if each["kind"] == "ResourceSlice"]
    assert sum(len(spec["devices"]) for spec in slices) == 24
    assert list(surroundings("basic", nodes=3, pods=24)) == []


def test_every_pod_of_the_shape_gang_has_a_group():
    gangs = Gangs(size=3, minimum=2, racks=2)
    groups = list(surroundings("gang", nodes=3, pods=8, gangs=gangs))
    assert {each["metadata"]["labels"][MADE] for each in groups} == {"groups"}
    counts = [each["spec"]["schedulingPolicy"]["gang"]["minCount"] for each in groups]
    assert counts == [2, 2, 2]
    assert groups[0]["spec"]["schedulingConstraints"] == {"topology": [{"key": RACK}]}
    pods = [measured_pod(number, "gang", gangs) for number in range(8)]
    names = Counter(pod["spec"]["schedulingGroup"]["podGroupName"] for pod in pods)
    assert names == dict(zip((each["metadata"]["name"] for each in groups), (3, 3, 2), strict=True))
    racks = [
        node(number, zones=1, shape="gang", padding=0, gangs=gangs)["metadata"]["labels"][RACK]
        for number in range(3)
    ]
    assert racks == ["rack-0", "rack-1", "rack-0"]
    assert gangs.gates("gang").endswith("TopologyAwareWorkloadScheduling=true")
    assert gangs.gates("basic") == ""


def test_preemption_finds_full_nodes():
    assert existing_count(0, nodes=10, shape="preemption") == 40
    assert existing_count(5, nodes=10, shape="preemption") == 5
    assert existing_count(0, nodes=10, shape="basic") == 0


def test_some_existing_pods_keep_apart():
    made = [existing_pod(number, nodes=3, shape="basic", apart_every=10) for number in range(21)]
    assert [n for n, pod in enumerate(made) if "affinity" in pod["spec"]] == [0, 10, 20]
    (term,) = made[10]["spec"]["affinity"]["podAntiAffinity"].popitem()[1]
    wanted = term["labelSelector"]["matchLabels"].items()
    assert wanted <= made[10]["metadata"]["labels"].items()
    assert not wanted <= made[20]["metadata"]["labels"].items()


def test_padding_makes_a_node_larger():
    sizes = [len(json.dumps(node(0, zones=1, shape="basic", padding=p))) for p in (0, 5000)]
    assert sizes[1] - sizes[0] > 5000


def test_the_mix_has_every_tenth_pod_alike():
    specs = [json.dumps(measured_pod(number, "mixed")["spec"]) for number in range(20)]
    assert specs[:10] != [specs[0]] * 10
    assert measured_pod(1, "mixed")["spec"]["nodeSelector"]
    assert "podAntiAffinity" in specs[4]
    assert "podAntiAffinity" in specs[14]


def test_the_configuration_names_the_extender():
    load = Load(extender="10", whole_nodes=True, ignorable=True)
    read = json.loads(configuration(load, kubeconfig="k", extender="http://e"))
    (extender,) = read["extenders"]
    assert (extender["urlPrefix"], extender["nodeCacheCapable"]) == ("http://e", False)
    assert "extenders" not in json.loads(configuration(Load(), kubeconfig="k", extender=""))


def test_the_configuration_has_options_of_the_extender():
    load = Load(extender="10", extender_options='{"shadow": true}')
    text = configuration(load, kubeconfig="k", extender="http://e")
    [(extender, options)] = load_settings(text).settings.extenders
    assert (extender.url_prefix, options.shadow) == ("http://e", True)


def test_the_extender_finds_the_names_in_both_forms():
    names = b'{"Pod":{"metadata":{"name":"p"}},"Nodes":null,"NodeNames":["a","b"]}'
    whole = (
        b'{"Pod":{"metadata":{"name":"p"}},"Nodes":{"metadata":{},"items":['
        b'{"metadata":{"name":"a"},"spec":{}},{"metadata":{"name":"b"},"spec":{}}]},"NodeNames":null}'
    )
    assert node_names(names) == node_names(whole) == ["a", "b"]


def test_decisions_are_compared_by_pod_in_any_order():
    first = MEASURED.figures()["decisions"]
    again = dataclasses.replace(
        MEASURED, bound_pods=["q", "r", "p"], bound_on=["b", "a", "a"], cpu=9.0
    )
    other = dataclasses.replace(MEASURED, bound_on=["b", "a", "a"])
    assert again.figures()["decisions"] == first
    assert other.figures()["decisions"] != first
