"""Makes the recording of a day of a large cluster, by hand: ``python -m tests.whole.recorded_day FOLDER``.

A scheduler's state lives through the day in virtual time: pods arrive with the hours, are decided, bound, run and go;
nodes report every five minutes, as kubelets do. What it is told and decides is recorded as ``run --record`` does it.
"""

import functools
import heapq
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import numpy as np

from app.cycle.pod_cycle import Placed, Preempt, finish, schedule, take
from app.framework.testing import make_node
from app.model.objects import Node
from app.model.pod import Pod
from app.plugins import registry
from app.scheduler.profiles import build_state
from app.scheduler.recording import RecordedState, Recorder
from app.scheduler.trace import Header, Op
from app.settings.load import load
from app.state.queue.scheduling_queue import SchedulingQueue
from app.state.scheduler_state import Change
from app.wire.kube import PodDecoder

DAY: Final = 86_400.0
BEGAN: Final = 1_800_000_000.0
CONFIGURATION: Final = json.dumps(
    {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
)
_TEMPLATES: Final = 400
_BINDING: Final = 0.02
_STARTING: Final = 2.0
#: Of a node, in CPUs; a pod's mean request, in CPUs.
_CPUS: Final = 32
_MEAN_CPU: Final = 2.0
_FULL: Final = 0.7


class _Clock:
    def __init__(self) -> None:
        self.now = BEGAN

    def monotonic(self) -> float:
        return self.now

    wall = steady = monotonic


class _Recorder(Recorder):
    """Waits for the disk: a day takes minutes here."""

    def _hand_over(self, **options: bool) -> None:
        super()._hand_over(**options)
        if self._blocks.qsize() > 8:
            self._blocks.join()


class Day:
    """The state, and what is going to happen."""

    def __init__(self, folder: Path, *, nodes: int, pods: int, hours: float, seed: int) -> None:
        self._clock: Final = _Clock()
        self._rng: Final = np.random.default_rng(seed)
        decisions = np.random.default_rng(seed + 1)
        self.recorder: Final = _Recorder(folder, self._clock)
        self._frameworks: Any
        self.state, self._frameworks = build_state(
            load(CONFIGURATION).to_plain(),
            registry.IN_TREE,
            SchedulingQueue,
            rng=decisions,
            clock=self._clock,
            make_state=functools.partial(RecordedState, self.recorder),
        )
        header = Header("generated", CONFIGURATION, "1.36", [], 300.0, BEGAN, first=True)
        self.recorder.begin(header, self.state, decisions)
        self._decode: Final = PodDecoder().decode
        self._coming: Final[list[tuple[float, int, Callable[[], None]]]] = []
        self._number = 0
        self._version = 1
        self._nodes: Final[list[Node]] = []
        self._lasting = DAY * hours / 24
        #: Seconds that a pod runs on average, so that the cluster is nearly as full as it may be.
        self._life = _FULL * nodes * _CPUS / _MEAN_CPU / (pods / self._lasting)
        self._specs: Final = [self._spec(number) for number in range(_TEMPLATES)]
        self.bound = self.tried = 0
        for number in range(nodes):
            self._add_node(number)
        for at in self._arrivals(pods):
            self._at(at, self._arrive)

    def _at(self, when: float, what: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._coming, (when, self._number, what))

    def _arrivals(self, pods: int) -> list[float]:
        """More at noon than at night, and in bursts of up to 50."""
        found: list[float] = []
        while len(found) < pods:
            at = float(self._rng.random()) * self._lasting
            share = 0.6 - 0.4 * math.cos(2 * math.pi * at / self._lasting)
            if self._rng.random() < share:
                size = min(int(self._rng.geometric(0.2)), 50, pods - len(found))
                found += [BEGAN + 60 + at + 0.001 * each for each in range(size)]
        return found

    def _spec(self, number: int) -> dict[str, Any]:
        cpu = int(
            self._rng.choice([250, 500, 1000, 2000, 4000, 8000], p=[0.1, 0.2, 0.3, 0.2, 0.1, 0.1])
        )
        requests = {"cpu": f"{cpu}m", "memory": f"{cpu * 4}Mi"}
        spec: dict[str, Any] = {
            "schedulerName": "default-scheduler",
            "priority": 1000 if number % 10 == 0 else 0,
            "containers": [
                {"name": "c", "image": f"image-{number % 50}", "resources": {"requests": requests}}
            ],
        }
        same = {"labelSelector": {"matchLabels": {"app": f"app-{number}"}}}
        if number % 8 == 1:
            spread = {"maxSkew": 5, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
            spec["topologySpreadConstraints"] = [spread | same]
        if number % 20 == 2:
            term = {"weight": 10, "podAffinityTerm": {"topologyKey": "zone", **same}}
            preferred = "preferredDuringSchedulingIgnoredDuringExecution"
            spec["affinity"] = {"podAntiAffinity": {preferred: [term]}}
        if number % 20 == 3:
            spec["nodeSelector"] = {"kind": "a"}
        return spec

    def _add_node(self, number: int) -> None:
        labels = {"zone": f"zone-{number % 3}", "kind": "ab"[number % 2]}
        amounts = {"cpu": str(_CPUS), "memory": "256Gi", "pods": "110"}
        node = make_node(f"node-{number:05d}", labels=labels, status={"allocatable": amounts})
        self._nodes.append(node)
        self.state.apply(Change(Node, None, node), self._clock.now)
        self._at(BEGAN + float(self._rng.random()) * 300, functools.partial(self._report, number))

    def _report(self, number: int) -> None:
        """A node says that it is still there."""
        self._version += 1
        old = self._nodes[number]
        metadata = msgspec.structs.replace(old.metadata, resource_version=str(self._version))
        new = self._nodes[number] = msgspec.structs.replace(old, metadata=metadata)
        self.state.apply(Change(Node, old, new), self._clock.now)
        self._at(self._clock.now + 300.0, functools.partial(self._report, number))

    def _object(self, name: str, template: int, node: str = "", phase: str = "Pending") -> Pod:
        self._version += 1
        spec = self._specs[template]
        metadata = {
            "name": name,
            "namespace": f"team-{template % 20}",
            "uid": f"{name}-uid",
            "resourceVersion": str(self._version),
            "labels": {"app": f"app-{template}", **self._job(name, template)},
        }
        status = {"phase": phase}
        document = {
            "metadata": metadata,
            "spec": spec | ({"nodeName": node} if node else {}),
            "status": status,
        }
        return self._decode(msgspec.json.encode(document))

    def _job(self, name: str, template: int) -> dict[str, str]:
        """Pods of Jobs have a label of their own."""
        return {"batch.kubernetes.io/job-name": f"job-{name}"} if template % 3 == 0 else {}

    def _arrive(self) -> None:
        self._number += 1
        pod = self._object(f"pod-{self._number:08d}", int(self._rng.integers(_TEMPLATES)))
        self.state.apply(Change(Pod, None, pod), self._clock.now)

    def _change(self, uid_of: Pod, template: int, node: str, phase: str) -> None:
        old = self.state.pods.get(uid_of.key)
        if old is not None:
            new = self._object(old.name, template, node, phase)
            self.state.apply(Change(Pod, old, new), self._clock.now)

    def _go(self, pod: Pod) -> None:
        old = self.state.pods.get(pod.key)
        if old is not None:
            self.state.apply(Change(Pod, old, None), self._clock.now)

    def _schedule(self) -> None:
        state = self.state
        while (queued := state.pop(self._clock.now)) is not None:
            attempt = take(state, self._frameworks, queued, self._frameworks_rng)
            if attempt is None:
                continue
            self.tried += 1
            steps = schedule(
                state, queued, attempt, started=self._clock.now, chosen=lambda _c: None
            )
            outcome = finish(steps)
            if isinstance(outcome, Placed):
                pod = outcome.assumed.pod
                state.done(pod.uid)
                self._at(self._clock.now + _BINDING, functools.partial(self._bind, pod))
            elif isinstance(outcome, Preempt):
                self.recorder.unfit(queued, outcome.diagnosis)
                diagnosis = outcome.diagnosis
                queued.reject(diagnosis.unschedulable_plugins, diagnosis.pending_plugins)
                state.fail(queued, self._clock.now, nominated_node="")

    @property
    def _frameworks_rng(self) -> np.random.Generator:
        assert self.recorder._rng is not None
        return self.recorder._rng

    def _bind(self, pod: Pod) -> None:
        self.bound += 1
        template = int(pod.labels["app"].removeprefix("app-"))
        self.recorder.add(Op.REQUEST, self._clock.now, "POST", 201, _BINDING)
        self._change(pod, template, pod.node_name, "Pending")
        self.state.finish_binding(pod.uid)
        running = functools.partial(self._change, pod, template, pod.node_name, "Running")
        self._at(self._clock.now + _STARTING, running)
        lives = float(self._rng.lognormal(-0.5, 1.0)) * self._life
        self._at(self._clock.now + _STARTING + 1 + lives, functools.partial(self._go, pod))

    def run(self) -> None:
        """The whole day."""
        end = BEGAN + 60 + self._lasting
        while self._coming and self._coming[0][0] < end:
            when, _, what = heapq.heappop(self._coming)
            due = self.state.next_flush_time(self._clock.now)
            if due is not None and due < when:
                self._clock.now = due
                self.state.flush(due)
                self._schedule()
            self._clock.now = max(when, self._clock.now)
            what()
            self._schedule()
        self.recorder.end()


@click.command(context_settings={"show_default": True})
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--nodes", default=5000)
@click.option("--pods", default=200_000)
@click.option("--hours", default=24.0)
@click.option("--seed", default=1)
def main(folder: Path, **options: Any) -> None:
    """Write the recording of a day into FOLDER."""
    began = time.process_time()
    day = Day(folder, **options)
    day.run()
    sizes = sum(file.stat().st_size for file in folder.iterdir())
    click.echo(
        f"{day.bound} pods bound, {day.tried} attempts, {sizes >> 20} MiB, {day.recorder.dropped} records dropped, "
        f"{time.process_time() - began:.0f} s of CPU"
    )


if __name__ == "__main__":
    main()
