"""The benchmark's command, on loads too small to say anything about speed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.whole.harness import pod, running_cluster

pytestmark = pytest.mark.whole


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.bench", *arguments],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def results(done: subprocess.CompletedProcess[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_a_round_with_an_extender_and_a_limit_that_is_missed(tmp_path: Path) -> None:
    arguments = ["--nodes=20", "--pods=30", "--shape=mixed", "--existing=10", "--extender=1"]
    done = bench(*arguments, "--at-most-memory=1", f"--logs={tmp_path}")
    (result,) = results(done)
    assert (result["bound"], result["nodes"], result["existing"]) == (30, 20, 10), done.stderr
    assert result["extender"] == "1 ms, names"
    assert result["first_bind_s"] > 0
    assert result["last_bind_s"] >= result["first_bind_s"]
    assert result["pods_per_s"] > 0
    assert result["cpu_s"] > 0
    assert 20 < result["peak_memory_mb"] < 1000
    assert "ours: 30 of 30 pods bound" in done.stdout
    assert done.returncode == 1
    assert "no more than 1.0 are wanted" in done.stderr
    assert "Scheduling" in (tmp_path / "ours-1" / "scheduler.log").read_text()


def test_two_schedulers_in_turn_on_a_live_cluster(tmp_path: Path) -> None:
    command = f"{sys.executable} -m app --kubeconfig {{kubeconfig}} --secure-port=0"
    with running_cluster(tmp_path, "--no-kubelets") as cluster:
        done = bench(
            f"--kubeconfig={cluster.kubeconfig}",
            "--nodes=10",
            "--pods=10",
            "--shape=antiaffinity",
            f"--compare={command}",
        )
        ours, theirs = results(done)
        assert done.returncode == 0, done.stderr
        assert (ours["bound"], theirs["bound"]) == (10, 10)
        assert (ours["nodes_used"], theirs["most_pods_on_a_node"]) == (10, 1)
        last = done.stdout.splitlines()[-1]
        assert last.startswith("ours / theirs: {")
        assert json.loads(last.partition(": ")[2])["peak_memory_mb"] == pytest.approx(1.0, abs=0.5)
        assert cluster.pods() == {}
        assert cluster.call("GET", "/api/v1/nodes")["items"] == []
        assert cluster.lease() is None


def test_extenders_in_shadow_that_fail_change_no_decision() -> None:
    ways = ("", "never", "crash", "nonsense")
    shadow = {"shadow": True, "dryRun": {"filterVerb": "filter", "prioritizeVerb": "prioritize"}}
    options = [f"--extender={way}" for way in ways]
    done = bench("--nodes=20", "--pods=100", *options, f"--extender-options={json.dumps(shadow)}")
    assert done.returncode == 0, done.stderr
    assert len({result["decisions"] for result in results(done)}) == 1
    lines = [line for line in done.stdout.splitlines() if line.startswith("ours / ")]
    assert len(lines) == len(ways) - 1
    assert all('"rounds_with_same_decisions": 1' in line for line in lines)
    other = results(bench("--nodes=20", "--pods=100", "--seed=2"))
    assert other[0]["decisions"] != results(done)[0]["decisions"]


def test_rounds_with_and_without_listeners_of_the_feed() -> None:
    done = bench("--nodes=10", "--pods=200", "--feeds=0", "--feeds=2")
    alone, watched = results(done)
    assert done.returncode == 0, done.stderr
    assert (alone["scheduler"], alone["feed_events"]) == ("ours", 0)
    assert (watched["scheduler"], watched["feeds"]) == ("ours-2-feeds", 2)
    assert watched["feed_events"] >= 2
    assert watched["feed_mb"] > 0
    assert done.stdout.splitlines()[-1].startswith("ours / ours-2-feeds: {")


def test_rounds_with_and_without_questions() -> None:
    load = ["--nodes=10", "--pods=200", "--rate=100"]
    done = bench(*load, "--rounds=2", "--questions=0", "--questions=20", "--question-pods=5")
    assert done.returncode == 0, done.stderr
    names = ["ours", "ours-20-questions", "ours-20-questions", "ours"]
    assert [result["scheduler"] for result in results(done)] == names
    alone, asked, *_ = results(done)
    assert (alone["questions"], alone["answered"]) == (0, 0)
    assert 0 < asked["answered"] <= asked["questions"]
    assert asked["answer_p99_ms"] >= asked["answer_p50_ms"] > 0
    assert f"{asked['answered']} of {asked['questions']} questions answered" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("ours / ours-20-questions: {")


def test_devices_are_claimed_and_wiped(tmp_path: Path) -> None:
    with running_cluster(tmp_path, "--no-kubelets", "--no-claims") as cluster:
        kubeconfig = f"--kubeconfig={cluster.kubeconfig}"
        done = bench(kubeconfig, "--nodes=5", "--pods=40", "--shape=dra")
        (result,) = results(done)
        assert done.returncode == 0, done.stderr
        assert (result["nodes_used"], result["most_pods_on_a_node"]) == (5, 8)
        for plural in ("deviceclasses", "resourceslices", "resourceclaims"):
            assert cluster.call("GET", f"/apis/resource.k8s.io/v1/{plural}")["items"] == []


def test_gangs_are_bound_and_wiped(tmp_path: Path) -> None:
    gates = "--feature-gates=GenericWorkload=true,GangScheduling=true"
    served = "--runtime-config=scheduling.k8s.io/v1alpha2=true"
    with running_cluster(tmp_path, "--no-kubelets", gates, served) as cluster:
        kubeconfig = f"--kubeconfig={cluster.kubeconfig}"
        done = bench(kubeconfig, "--nodes=5", "--pods=20", "--shape=gang", "--group-size=6")
        (result,) = results(done)
        assert done.returncode == 0, done.stderr
        assert result["bound"] == 20
        groups = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
        assert cluster.call("GET", groups)["items"] == []


def test_a_cluster_that_is_not_its_own_is_left_alone(tmp_path: Path) -> None:
    with running_cluster(tmp_path, "--nodes=3") as cluster:
        cluster.call("POST", "/api/v1/namespaces/default/pods", pod("precious"))
        done = bench(f"--kubeconfig={cluster.kubeconfig}", "--nodes=1", "--pods=1")
        assert done.returncode == 1
        assert done.stderr == (
            "Error: the cluster holds nodes that are not the benchmark's: node-0, node-1, node-2\n"
        )
        assert list(cluster.pods()) == ["precious"]


def test_a_scheduler_that_does_not_start_is_told_with_its_log() -> None:
    done = bench("--nodes=1", "--pods=1", f"--scheduler={sys.executable} -m app run --config=/nix")
    assert done.returncode == 1
    assert "has ended with status 1" in done.stderr
    assert "/nix: cannot be read" in done.stderr
