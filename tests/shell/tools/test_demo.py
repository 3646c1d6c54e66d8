"""The demo ends in words when its cast does not run_demo."""

import io
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from app.sim import ClusterOptions, EmbeddedCluster
from app.sim.nodes import NodeOptions, make_nodes
from app.sim.resources.kinds import NODES, PODS
from app.tools.demo import run as module
from app.tools.demo.run import DemoFailed, DemoOptions, run_demo
from app.tools.demo.scenario import GPUS_PER_NODE, MIN_PODS, Scenario
from app.tools.pod_tracker import PodTracker
from app.tools.subprocesses import child

IDLE = "import time; print('listening on http://127.0.0.1:1', flush=True); time.sleep(60)"


def failed(group):
    """The DemoFailed in an exception group."""
    (error,) = group.exceptions
    return error if isinstance(error, DemoFailed) else failed(error)


async def test_pods_that_nobody_decides_about(tmp_path, monkeypatch):
    def idle(_self, *_arguments):
        return child([sys.executable, "-c", IDLE], log=tmp_path / "log", name="nobody")

    monkeypatch.setattr(module, "_TIMEOUT", 0.2)
    for role in ("_extender", "_scheduler"):
        monkeypatch.setattr(module._Demo, role, idle)
    with pytest.raises(ExceptionGroup) as caught:
        await run_demo(DemoOptions(nodes=12, pods=60), Console(file=io.StringIO()))
    said = str(failed(caught.value))
    assert said.startswith("0 pods were bound within 1 s, and then:\n")
    assert "\n  10 solver: not tried\n" in said
    assert "log ends with\nlistening on" in said


async def test_an_extender_that_does_not_tell():
    with pytest.raises(DemoFailed, match="statistics cannot be read: ClientConnectorError"):
        await module._statistics("http://127.0.0.1:1")


async def test_the_tracker_separates_errors_from_rejections():
    pod = {"metadata": {"name": "p", "namespace": "default", "labels": {"app": "web"}}}
    async with EmbeddedCluster(ClusterOptions(port=0)) as cluster:
        for node in make_nodes(NodeOptions(count=1), timestamp=cluster.api.timestamp()):
            cluster.apply(NODES, node)
        tracker = PodTracker(cluster, lambda: 0.0, lambda pod: pod["metadata"]["labels"]["app"])

        def write(reason, message, **spec):
            condition = {"type": "PodScheduled", "status": "False"}
            condition |= {"reason": reason, "message": message}
            container = {"name": "c", "image": "i"}
            spec = {"containers": [container], **spec}
            cluster.apply(PODS, {**pod, "spec": spec, "status": {"conditions": [condition]}})
            return tracker.is_decided, tracker.undecided()

        assert write("SchedulerError", "no route") == (False, ["1 web: no route"])
        assert write("Unschedulable", "0/1 nodes") == (True, [])
        assert tracker.rejections("web") == {"0/1 nodes": 1}


@given(st.integers(3, 5000), st.integers(MIN_PODS, 5000))
@example(6, MIN_PODS)
@example(60, 300)
def test_every_workload_has_pods_however_few_there_are(nodes, pods):
    scenario = Scenario(nodes=nodes, pods=pods)
    counts = {workload.name: workload.count for workload in scenario.workloads}
    assert sum(counts.values()) == pods
    assert min(count for name, count in counts.items() if name != "ingest") >= 1
    assert counts["training"] >= (scenario._gpu_nodes + 1) * GPUS_PER_NODE
    assert 2 <= sum(scenario.seats.values()) < counts["solver"]
