"""Plays scenarios against this scheduler's whole process, on virtual time (tests.histories)."""

import contextlib
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from unittest import mock

from app.model.features import OLDEST, known_in
from app.scheduler.options import RunOptions
from tests.histories import apiserver
from tests.histories.apiserver import (
    NAMESPACES,
    NEWER_POD_GROUPS,
    NODES,
    POD_GROUPS,
    PODS,
    ApiServer,
    Write,
    key_of,
)
from tests.histories.faults import Faults
from tests.histories.network import Network
from tests.histories.replica import ProcessClock, Replica, Watcher
from tests.histories.shape import Configuration
from tests.histories.simulation import Simulation
from tests.parity.gangs import scenarios
from tests.parity.gangs.scenarios import Found, Manifest, Operation, Scenario, outcome

_BASE: Final = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {qps: -1}
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 1
profiles:
"""
#: Without plugins whose kinds nobody has: every kind that is watched costs time.
_FEW_KINDS: Final = Configuration(f"""{_BASE}
- plugins:
    multiPoint:
      disabled: [{{name: VolumeBinding}}, {{name: VolumeRestrictions}}, {{name: VolumeZone}}, {{name: NodeVolumeLimits}},
        {{name: PodTopologySpread}}]
""")
_ALL_KINDS: Final = Configuration(f"""{_BASE}
- schedulerName: default-scheduler
- schedulerName: {scenarios.SECOND}
""")
_GATED: Final = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
#: Seconds between two operations, and after a step.
PAUSE: Final = 0.02
_SETTLED: Final = 6.0


class _Complaints(Watcher):
    def __init__(self) -> None:
        self.texts: Final[list[str]] = []

    def complains(self, replica: Replica, text: str) -> None:
        self.texts.append(text)


class _Play:
    """One scenario; ``story`` is what the process tells, ``outcomes`` has one for each step that is over."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        pause: float,
        version: str,
        gates: Mapping[str, bool] | frozenset[str],
        kind: tuple[str, str],
    ) -> None:
        self.outcomes: Final[list[dict[str, Any]]] = []
        self.story: Final[list[str]] = []
        self._scenario: Final = scenario
        self._pause: Final = pause
        self._kind: Final = kind
        self._simulation: Final = Simulation()
        self._server: Final = ApiServer(self._wrote)
        self._complaints: Final = _Complaints()
        for namespace in ("default", "kube-system", scenario.namespace):
            self._server.create(NAMESPACES, {"metadata": {"name": namespace}})
        clock = ProcessClock(self._simulation, offset=100.0, rate=1.0, cost=0.00002)
        self._replica: Final = Replica(
            "scheduler",
            self._simulation,
            Network(self._simulation, self._server, Faults([], random.Random(seed))),
            self._complaints,
            lambda _who, what: self.story.append(what),
            _ALL_KINDS if scenario.family in scenarios.ALL_KINDS else _FEW_KINDS,
            RunOptions(seed=seed, version=version, features=gates),
            clock,
        )

    def play(self) -> list[dict[str, Any]]:
        """Returns the outcomes. Raises AssertionError if the process complains."""
        actions = self._actions()
        self._simulation.at(1.0, self._act, actions)
        try:
            self._simulation.run()
        finally:
            self._replica.kill()
            self._simulation.end(self._replica.loop)
        assert not self._complaints.texts, self._complaints.texts
        return self.outcomes

    def _act(self, actions: Iterator[float]) -> None:
        pause = next(actions, None)
        if pause is None:
            self._simulation.finished = True
        else:
            self._simulation.after(pause, self._act, actions)

    def _actions(self) -> Iterator[float]:
        """Carries out the scenario; yields the seconds until it goes on."""
        for step in self._scenario.steps:
            for operation in step:
                for _ in self._do(operation):
                    yield self._pause
            yield _SETTLED
            self.outcomes.append(outcome(self._found()))

    def _found(self) -> Found:
        return Found(self._server.all(PODS), self._server.all(self._kind))

    def _wrote(self, write: Write) -> None:
        """Pods without a grace period end at once."""
        if (
            write.resource != PODS
            or not write.new
            or "deletionTimestamp" not in write.new["metadata"]
        ):
            return
        if write.new["spec"]["terminationGracePeriodSeconds"] == 0:
            self._server.remove(PODS, write.key)

    def _do(self, operation: Operation) -> Iterator[None]:
        server, scenario = self._server, self._scenario
        match scenarios.own(scenario, operation):
            case ["node", *arguments]:
                server.create(NODES, scenarios.node(scenario, *arguments))
            case ["-node", name]:
                server.remove(NODES, scenarios.node_name(scenario, name))
            case ["group", *arguments]:
                made = scenarios.group(scenario, *arguments)
                if self._kind == NEWER_POD_GROUPS:
                    made = scenarios.newer(made)
                if server.get(self._kind, key_of(made)) is None:
                    server.create(self._kind, made)
            case ["-group", name]:
                if server.get(self._kind, key := f"{scenario.namespace}/{name}") is not None:
                    server.remove(self._kind, key)
            case ["pods", name, count, cpu, more]:
                for made in scenarios.pods(scenario, name, range(count), cpu, more):
                    server.create(PODS, _admitted(made))
                    yield
            case ["-pods", name, where, count]:
                for pod in scenarios.chosen(scenario, server.all(PODS), name, where, count):
                    server.remove(PODS, key_of(pod))
            case _:
                self._do_more(operation)
        yield

    def _do_more(self, operation: Operation) -> None:
        server, scenario = self._server, self._scenario
        match scenarios.own(scenario, operation):
            case ["end", name, where, count]:
                for pod in scenarios.chosen(scenario, server.all(PODS), name, where, count):
                    server.merge(PODS, key_of(pod), {"status": {"phase": "Succeeded"}})
            case ["make", kind, made]:
                root, resource, namespaced = scenarios.KINDS[kind]
                own = {"namespace": scenario.namespace} if namespaced else {}
                made = {**made, "metadata": made["metadata"] | own}
                server.create((root, resource), made)
            case ["patch", kind, name, changes]:
                server.merge(*_object(scenario, kind, name), changes)
            case ["remove", kind, name]:
                server.remove(*_object(scenario, kind, name))
            case ["ungate", name, *count]:
                gated = [pod for pod in server.all(PODS) if scenarios.is_gated(pod, name)]
                for pod in gated[: count[0] if count else None]:
                    server.merge(PODS, key_of(pod), {"spec": {"schedulingGates": None}})


def _object(scenario: Scenario, kind: str, name: str) -> tuple[tuple[str, str], str]:
    """The kind and the key of an object of the scenario."""
    root, resource, namespaced = scenarios.KINDS[kind]
    return (root, resource), f"{scenario.namespace}/{name}" if namespaced else name


def _admitted(pod: Manifest) -> Manifest:
    """A pod as the API server stores it."""
    gated = "schedulingGates" in pod["spec"]
    return {
        "metadata": pod["metadata"],
        "spec": {"schedulerName": "default-scheduler", **pod["spec"]},
        "status": {"phase": "Pending", **({"conditions": [_GATED]} if gated else {})},
    }


def play(
    scenario: Scenario,
    *,
    seed: int = 0,
    pause: float = PAUSE,
    version: str = OLDEST,
    more_gates: Sequence[str] = (),
) -> Sequence[dict[str, Any]]:
    """The outcomes here, with ``pause`` seconds between operations, by the rules of a version.

    The API server has the groups of 1.36, and the gates are those of the family and ``more_gates``. The caller has the
    product simulated (tests.histories.replica.simulated).
    """
    known = dict.fromkeys((*scenarios.GATES[scenario.family], *more_gates), True)
    gates = known_in(version, known)
    return _Play(scenario, seed, pause, version, gates, POD_GROUPS).play()


def play_newer(
    scenario: Scenario, *, seed: int = 0, version: str = "1.37"
) -> Sequence[dict[str, Any]]:
    """The outcomes by the rules of 1.37, with an API server that has the groups of this version."""
    gates = known_in(version, dict.fromkeys(scenarios.GATES[scenario.family], True))
    with _newer_groups():
        return _Play(scenario, seed, PAUSE, version, gates, NEWER_POD_GROUPS).play()


@contextlib.contextmanager
def _newer_groups() -> Iterator[None]:
    older, newer = POD_GROUPS[0], NEWER_POD_GROUPS[0]
    with mock.patch.dict(apiserver.SERVED, {newer: [NEWER_POD_GROUPS[1]]}):
        del apiserver.SERVED[older]
        yield
