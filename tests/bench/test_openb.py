"""The openb experiment on a small trace of our own, and the GPU plugins of docs/examples/gpu by their definitions."""

import itertools
import json
import math
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from click.testing import CliRunner

from app.framework.api import CycleState, NodeLocal
from app.framework.testing import FakeCluster, FakeEffects, make_node, make_pod
from app.state.view import View
from tests.bench import openb
from tests.bench.openb_drawing import _spread
from tests.bench.openb_policies import (
    PLUGINS,
    GpuArgs,
    GpuBestFit,
    GpuFragmentation,
    GpuSharing,
)

from gpu_sharing.gpus import _KNOWN  # isort: skip

GPU = GpuArgs()
RNG = np.random.default_rng(7)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """64 nodes with 240 GPUs, and pods that ask for less than these."""
    folder = tmp_path_factory.mktemp("openb")
    nodes = [
        f"n{i:02d},{32000 * (1 + i % 3)},131072,{(1, 2, 4, 8)[i % 4]},{'AB'[i % 2]}"
        for i in range(64)
    ]
    nodes += ["n99,64000,131072,0,"]
    (folder / openb.NODES).write_text(
        "sn,cpu_milli,memory_mib,gpu,model\n" + "\n".join(nodes) + "\n"
    )
    shapes = [
        "4000,8192,1,250",
        "2000,4096,1,600",
        "8000,8192,1,1000",
        "8000,16384,2,1000",
        "1000,2048,0,0",
    ]
    pods = [f"p{i:03d},{shapes[i % 5]}" for i in range(60)]
    (folder / "few.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n" + "\n".join(pods) + "\n"
    )
    named = [f"{pod},{('', 'A', 'A|B')[i % 3]}" for i, pod in enumerate(pods)]
    header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
    (folder / "models.csv").write_text(header + "\n".join(named) + "\n")
    return folder


def run(data, *arguments):
    result = CliRunner().invoke(openb.main, ["--data", str(data), "--jobs", "1", *arguments])
    return result.exit_code, result.stdout, result.output


# ---------------------------------------------------------------- the experiment


def test_the_form_of_the_result(data):
    arguments = (
        "--pods",
        str(data / "few.csv"),
        "--policy",
        "FGD",
        "--seeds",
        "2",
        "--output",
        "json",
    )
    status, out, _ = run(data, *arguments)
    result = json.loads(out)
    assert status == 0
    assert {k: v for k, v in result.items() if k != "allocated"} == {
        "policy": "FGD",
        "workload": "few",
        "seeds": 2,
    }
    assert set(result["allocated"]) == {"90", "100", "110", "120", "130"}
    assert all(low <= mean <= high <= 100 for mean, low, high in result["allocated"].values())
    assert run(data, *arguments)[1] == out
    assert run(data, "--jobs", "2", *arguments)[1] == out


@pytest.mark.parametrize(("pods", "ties"), [("few", "name"), ("models", "random")])
def test_no_gpu_is_given_twice_and_no_node_to_the_wrong_pod(data, pods, ties):
    machines, shapes = openb.machines_of(data / openb.NODES), openb.shapes_of(data / f"{pods}.csv")
    for policy in (*openb.POLICIES, *openb.STOCK):
        experiment = openb.Experiment(policy, machines, shapes, seed=1, ties=ties)
        course = experiment.run()
        table = experiment.state.table
        left = _gpus_of(table).left(View.everything(table))
        total = table.allocatable.column(GPU.resource)[: table.size]
        requested = table.requested.column(GPU.resource)[: table.size]
        assert (left.sum(axis=1) == total - requested).all(), policy
        assert (left >= 0).all()
        assert course[max(course)] == pytest.approx(100 * requested.sum() / total.sum(), abs=2)
        for row, some in enumerate(table.pods):
            model = table.nodes[row].labels.get(GPU.model_label, "")
            for pod in some.values():
                allowed = {shape.models for shape in shapes if _same(shape, pod)}
                assert any(not models or model in models for models in allowed)


def _gpus_of(table):
    return _KNOWN[table][GPU.resource, GPU.model_label, GPU.index_label]


def _same(shape, pod):
    request = pod.template.request
    return (shape.cpu, shape.gpu) == (request["cpu"], request.get(GPU.resource, 0))


def test_the_courses_are_drawn(data, tmp_path):
    file = tmp_path / "courses.svg"
    policies = ("--policy", "Random", "--policy", "FGD")
    status, out, _ = run(
        data, "--pods", "few.csv", *policies, "--seeds=2", "--output=json", f"--svg={file}"
    )
    assert status == 0
    drawing = ET.parse(file).getroot()
    lines = [
        line.get("points").split() for line in drawing.iter("{http://www.w3.org/2000/svg}polyline")
    ]
    texts = [text.text for text in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert "few: mean of 2 seeds, ties by name" in texts
    means = {
        each["policy"]: each["allocated"]["130"][0] for each in map(json.loads, out.splitlines())
    }
    assert len(lines) == 2
    for policy, points in zip(sorted(means, key=means.get, reverse=True), lines, strict=True):
        assert f"{policy} {means[policy]:.1f}" in texts
        assert len(points) >= 40
        xs, ys = zip(*(map(float, point.split(",")) for point in points), strict=True)
        assert list(xs) == sorted(xs)
        assert 34 <= min(ys) <= max(ys) <= 392


@pytest.mark.parametrize(
    "places", [[10.0], [10.0, 12.0, 13.0], [385.0, 386.0, 391.0], [50.0 + i for i in range(10)]]
)
def test_names_beside_lines_do_not_overlap(places):
    spread = _spread(places)
    assert all(b - a >= 17 for a, b in itertools.pairwise(spread))
    assert max(spread) <= 392


def test_the_pods_ask_for_130_percent(data):
    shapes = openb.shapes_of(data / "few.csv")
    own = sum(shape.gpu for shape in shapes)
    for gpus in (own // 4, own // 2, own, 5 * own):
        arrived = openb.arrivals(shapes, gpus, np.random.default_rng(3))
        asked = sum(shape.gpu for shape in arrived)
        assert abs(asked - 1.3 * gpus) <= 2000
        assert set(arrived) <= set(shapes)
    order = openb.arrivals(shapes, own, np.random.default_rng(3))
    assert order != openb.arrivals(shapes, own, np.random.default_rng(4))


def test_each_node_is_first_as_often_as_any_other(data):
    machines, shapes = openb.machines_of(data / openb.NODES)[:60], openb.shapes_of(data / "few.csv")
    machines = [machine._replace(cpu=1000 + i) for i, machine in enumerate(machines)]
    first = []
    for seed in range(openb.FIRST_SEED, openb.FIRST_SEED + 10):
        table = openb.Experiment("BestFit", machines, shapes, seed=seed, ties="name").state.table
        first += table.allocatable.column("cpu")[:6].tolist()
    assert sorted(first) == [machine.cpu for machine in machines]


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("name,cpu_milli,num_gpu\np,500,2", (500, 0, 2000, ())),
        ("name,cpu_milli,num_gpu,gpu_milli\np,500,1,", (500, 0, 1000, ())),
        ("name,cpu_milli,num_gpu,gpu_milli\np,500,8,", (500, 0, 8000, ())),
        ("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,,,1,460", (0, 0, 460, ())),
        ("name,cpu_milli,num_gpu,gpu_milli,gpu_spec\np,1,1,2000,B|A|A", (1, 0, 1000, ("A", "B"))),
        ("name,cpu_milli,num_gpu,gpu_milli,gpu_spec\np,1,1,5,nan", (1, 0, 5, ())),
        ("name,cpu_milli,num_gpu,gpu_milli,gpu_spec\np,1,1,5, A | |B", (1, 0, 5, ("A", "B"))),
        ("name,cpu_milli,num_gpu,gpu_milli,gpu_spec\np,1,0,1000,A", (1, 0, 0, ())),
        ("name,cpu_milli,num_gpu,gpu_milli,gpu_spec\np,1,3,0,A", (1, 0, 0, ())),
        ("\ufeffgpu_milli,num_gpu,cpu_milli,name\n7,1.0,1e3,p", (1000, 0, 7, ())),
    ],
)
def test_columns_may_be_missing_and_fields_empty(tmp_path, text, shape):
    file = tmp_path / "pods.csv"
    file.write_text(f"{text}\n")
    with file.open("a") as more:
        header = text.lstrip("\ufeff").partition("\n")[0].split(",")
        row = {"name": "q", "cpu_milli": "1", "num_gpu": "1"}
        more.write(",".join(row.get(name, "") for name in header) + "\n")
    assert openb.shapes_of(file)[0] == openb.Shape(*shape)


def test_ties_by_name_take_the_first(data):
    """Dots of the same size: pods without GPU score the same on all nodes of GpuPacking."""
    machines = [openb.Machine(64000, 65536, 2, "A")] * 5
    shapes = [openb.Shape(1000, 1024, 0, ())] * 20 + [openb.Shape(1000, 1024, 1000, ())]
    experiment = openb.Experiment("GpuPacking", machines, shapes, seed=1, ties="name")
    experiment._shapes[:] = shapes[:20]
    experiment.run()
    assert [len(pods) for pods in experiment.state.table.pods] == [20, 0, 0, 0, 0]
    experiment = openb.Experiment("GpuPacking", machines, shapes, seed=1, ties="random")
    experiment._shapes[:] = shapes[:20]
    experiment.run()
    assert max(len(pods) for pods in experiment.state.table.pods) < 20


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("few.csv", None, "there is no few.csv"),
        ("few.csv", "name,memory_mib\n", "no column cpu_milli, num_gpu"),
        (
            "few.csv",
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,1,-1,1\n",
            "few.csv:2: num_gpu is '-1'",
        ),
        (
            "few.csv",
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,x,1,1,1\n",
            "few.csv:2: cpu_milli is 'x'",
        ),
        (
            "few.csv",
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1\n",
            "few.csv:2: num_gpu is None",
        ),
        (
            "few.csv",
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,nan,1,1,1\n",
            "cpu_milli is 'nan'",
        ),
        (
            "few.csv",
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,1,2,500\n",
            "may have one only",
        ),
        (
            "few.csv",
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,1,0,0\n",
            "no pod asks for a GPU",
        ),
        (openb.NODES, "sn,cpu_milli,memory_mib,gpu,model\nn,1,1,0,\n", "there are no GPUs"),
    ],
)
def test_mistakes_in_the_data(data, tmp_path, file, text, said):
    for name in (openb.NODES, "few.csv"):
        (tmp_path / name).write_text((data / name).read_text())
    (tmp_path / file).unlink()
    if text is not None:
        (tmp_path / file).write_text(text)
    status, _, output = run(tmp_path, "--pods", "few.csv", "--seeds", "1", "--policy", "Random")
    assert status == 1
    assert said in output


# ---------------------------------------------------------------- the plugins


def gpu_node(name, gpus, *, cpu="32", model="A"):
    amounts = {"cpu": cpu, "memory": "256Gi", "pods": "110", GPU.resource: str(1000 * gpus)}
    return make_node(name, labels={GPU.model_label: model}, status={"allocatable": amounts})


def gpu_pod(name, milli, *, cpu="1", model=None, labels=None):
    requests = {"cpu": cpu} | ({GPU.resource: str(milli)} if milli else {})
    spec = {"containers": [{"name": "main", "image": "i", "resources": {"requests": requests}}]}
    spec |= {"nodeSelector": {GPU.model_label: model}} if model else {}
    return make_pod(name, spec=spec, labels=labels)


def fragments(left, cpu, model, typical):
    """The definition, pod by pod: what is left of GPUs that a typical pod cannot use."""
    total = 0.0
    for pod, share in typical:
        room = sum(free >= min(pod.gpu_milli, 1000) for free in left)
        hosts = pod.gpu_milli and room >= max(pod.gpu_milli // 1000, 1) and cpu >= pod.cpu_milli
        if hosts and (not pod.models or model in pod.models):
            total += share * sum(free for free in left if free < min(pod.gpu_milli, 1000))
        else:
            total += share * sum(left)
    return total


def test_fragmentation_is_what_the_paper_defines():
    kinds = [
        (4000, 250, []),
        (8000, 1000, []),
        (16000, 4000, ["A"]),
        (2000, 600, ["A", "B"]),
        (500, 0, []),
    ]
    typical = [
        {"cpuMilli": c, "gpuMilli": g, "models": m, "count": 1 + i}
        for i, (c, g, m) in enumerate(kinds)
    ]
    cluster = FakeCluster()
    plugin = GpuFragmentation({"typicalPods": typical, "popularity": 100}, cluster.handle)
    shares = [(pod, pod.count / 15) for pod in plugin._args.typical_pods]
    nodes = {}
    for number, gpus in itertools.product(range(6), (1, 2, 4)):
        name, model = f"n{number}-{gpus}", "ABC"[number % 3]
        left = [int(amount) for amount in RNG.choice([0, 130, 300, 650, 1000], gpus)]
        nodes[name] = left, 32000, model
        cluster.set_node(gpu_node(name, gpus, model=model))
        for gpu, free in enumerate(left):
            if free < 1000:
                used = gpu_pod(
                    f"{name}-{gpu}", 1000 - free, cpu="0", labels={GPU.index_label: str(gpu)}
                )
                cluster.place(used, name)
    for milli, cpu in ((250, 4000), (600, 30000), (1000, 1000), (2000, 8000), (0, 31000)):
        scores = cluster.score(plugin, gpu_pod("p", milli, cpu=f"{cpu}m"))
        for name, (left, free, model) in nodes.items():
            after = []
            if 0 < milli < 1000:
                options = [i for i, amount in enumerate(left) if amount >= milli]
                after = [[a - milli * (i == j) for j, a in enumerate(left)] for i in options]
            elif sum(amount == 1000 for amount in left) * 1000 >= milli:
                whole = [i for i, amount in enumerate(left) if amount == 1000][: milli // 1000]
                after = [[0 if i in whole else amount for i, amount in enumerate(left)]]
            if not after:
                continue
            before = fragments(left, free, model, shares)
            grown = [fragments(some, free - cpu, model, shares) - before for some in after]
            expected = max(int(100 / (1 + math.exp(each / 1000))) for each in grown)
            assert abs(scores[name] - expected) <= 1, (milli, name)  # rounding


def test_typical_pods_are_counted_if_none_are_given():
    cluster = FakeCluster(gpu_node("a", 4), gpu_node("b", 4))
    cluster.place(gpu_pod("on-a", 500), "a")
    plugin = GpuFragmentation(None, cluster.handle)
    pod = gpu_pod("p", 500)
    before = cluster.score(plugin, pod), plugin.epoch()
    for number in range(40):
        placed = gpu_pod(f"whole-{number}", 4000, model="A")
        plugin.reserve(CycleState(), placed, "b")
    assert plugin.epoch() != before[1]
    # Pods with four GPUs are expected now: the node that cannot take one any longer is better for a small pod.
    after = cluster.score(plugin, pod)
    assert after["a"] > after["b"]


@pytest.mark.parametrize(
    ("milli", "verdict"),
    [
        (400, set()),
        (600, {"a"}),
        (1000, {"a"}),
        (2000, {"a", "b"}),
        (3000, {"a", "b", "c"}),
        (1500, {"a", "b", "c"}),
    ],
)
def test_a_pod_needs_one_gpu_with_room_or_whole_ones(milli, verdict):
    cluster = FakeCluster(gpu_node("a", 2), gpu_node("b", 2), gpu_node("c", 2))
    for number in range(2):
        cluster.place(gpu_pod(f"a{number}", 600, labels={GPU.index_label: str(number)}), "a")
    cluster.place(gpu_pod("b0", 600), "b")
    assert set(cluster.judge(GpuSharing(None, cluster.handle), gpu_pod("p", milli))) == verdict


async def test_the_binding_tells_which_gpus():
    cluster = FakeCluster(gpu_node("a", 4))
    cluster.place(gpu_pod("first", 600, labels={GPU.index_label: "1"}), "a")
    plugin, effects = GpuSharing(None, cluster.handle), FakeEffects()
    for name, milli, told in (("half", 400, "1"), ("two", 2000, "0-2"), ("last", 900, "3")):
        pod = cluster.place(gpu_pod(name, milli), "a")
        assert plugin.reserve(CycleState(), pod, "a").ok
        await plugin.bind(CycleState(), pod, "a", effects)
        assert effects.told[pod.key]["labels"] == {GPU.index_label: told}
    over = cluster.place(gpu_pod("over", 500), "a")
    assert not plugin.reserve(CycleState(), over, "a").ok
    plugin.unreserve(CycleState(), over, "a")
    cluster.remove(over)
    assert set(cluster.judge(plugin, gpu_pod("p", 50))) == set()
    assert set(cluster.judge(plugin, gpu_pod("p", 150))) == {"a"}


@pytest.mark.parametrize("label", ["7", "x", "", "1-1", "99999999999", "-".join("0" * 300), "²"])
def test_labels_that_lie_give_no_room(label):
    cluster = FakeCluster(gpu_node("a", 2))
    cluster.place(gpu_pod("liar", 600, labels={GPU.index_label: label}), "a")
    assert not cluster.judge(GpuSharing(None, cluster.handle), gpu_pod("p", 1000))


def test_a_node_that_says_it_has_very_many_gpus():
    cluster = FakeCluster(gpu_node("a", 10**12), gpu_node("b", 1))
    assert cluster.judge(GpuSharing(None, cluster.handle), gpu_pod("p", 65_000)).keys() == {
        "a",
        "b",
    }
    assert cluster.judge(GpuSharing(None, cluster.handle), gpu_pod("p", 64_000)).keys() == {"b"}


def test_the_contract():
    cluster = FakeCluster(
        gpu_node("a", 2), gpu_node("b", 4, model="B"), gpu_node("c", 8), make_node("none")
    )
    cluster.place(gpu_pod("a0", 600), "a")
    cluster.place(gpu_pod("c0", 300, labels={GPU.index_label: "3"}), "c")
    pods = (
        gpu_pod("p", 400),
        gpu_pod("q", 2000, labels={"app": "web"}),
        gpu_pod("cpu", 0),
        gpu_pod("odd", 1500),
    )
    for cls in PLUGINS.values():
        if issubclass(cls, NodeLocal):
            cluster.check(cls(None, cluster.handle), *pods)


@pytest.mark.parametrize(
    ("cls", "args", "said"),
    [
        (
            GpuFragmentation,
            {"typicalPods": [{"cpuMilli": 1, "gpuMilli": 1500}]},
            "a part of a GPU, or up to 64",
        ),
        (GpuFragmentation, {"typicalPods": [{"cpuMilli": -1}]}, "not negative"),
        (GpuFragmentation, {"typicalPods": [{"cpuMilli": 1, "count": 0}]}, "needs a count"),
        (GpuFragmentation, {"popularity": 0}, "popularity must be between"),
        (GpuBestFit, {"largestCpuMilli": 0}, "the largest node must have CPU and GPUs"),
        (GpuSharing, {"resources": "x"}, "unknown field `resources`"),
    ],
)
def test_mistakes_in_the_arguments(cls, args, said):
    with pytest.raises(ValueError, match=said):
        cls(args, FakeCluster().handle)
