"""Records what kube-scheduler makes of the scenarios:
``python -m tests.parity.gangs.record --family plain --first 0 --count 100``.

$KUBEBUILDER_ASSETS names a folder with etcd, kube-apiserver and kube-scheduler. Many scenarios are recorded side by
side in one cluster; with ``--batch 1`` each has the cluster for itself, as scenarios of the family "preemption" need:
with others beside them, pods of others are potential victims. A scenario is recorded several times; one with outcomes
that are not always the same is dropped.
"""

import argparse
import concurrent.futures
import http.client
import itertools
import json
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from tests.parity.gangs import scenarios
from tests.parity.gangs.generator import draw
from tests.parity.gangs.scenarios import Found, Manifest, Operation, Scenario, outcome
from tests.whole.real import RealApiServer

_MERGE: Final = "application/merge-patch+json"
_JSON_PATCH: Final = "application/json-patch+json"
_JSON: Final = "application/json"
_ALL: Final = (
    "/api/v1/pods",
    f"/apis/{scenarios.GROUP_VERSION}/podgroups",
)
_GROUP_GATES: Final = sorted({gate for gates in scenarios.GATES.values() for gate in gates})
#: Seconds between two operations of one scenario.
_PAUSE: Final = 0.02
#: Seconds without a change after which a step is over (more than two attempts take), seconds after which it is in any
#: case, and seconds between two looks.
_QUIET: Final = 2.5
_LONGEST: Final = 12.0
_LOOK: Final = 0.25


def _on(gates: Iterable[str]) -> str:
    return "--feature-gates=" + ",".join(f"{gate}=true" for gate in gates)


class _Recorder:
    """Plays scenarios on one API server."""

    def __init__(self, server: RealApiServer) -> None:
        self._server: Final = server
        self._connections: Final = threading.local()

    def _call(self, method: str, path: str, body: Any = None, content_type: str = _JSON) -> Any:
        """The answer, decoded; None for 404. Each thread has a connection."""
        connection = getattr(self._connections, "one", None)
        if connection is None:
            host = urllib.parse.urlsplit(self._server.url).netloc
            connection = http.client.HTTPSConnection(host, timeout=60, context=self._server.tls)
            self._connections.one = connection
        headers = {"Content-Type": content_type, "Authorization": f"Bearer {self._server.token}"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        found = json.loads(answer.read())
        if answer.status == 404:
            return None
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {found}")
        return found

    def prepare(self, values: Iterable[int]) -> None:
        """Makes the priority classes."""
        for value, never in itertools.product(values, (False, True)):
            body = {
                "metadata": {"name": scenarios.priority_class(value, never=never)},
                "value": value,
                "preemptionPolicy": "Never" if never else "PreemptLowerPriority",
            }
            self._call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)

    def outcomes(self, batch: Sequence[Scenario]) -> list[list[dict[str, Any]]]:
        """Plays scenarios side by side, step by step."""
        found: list[list[dict[str, Any]]] = [[] for _ in batch]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            list(pool.map(self._begin, batch))
            for number in range(max(len(each.steps) for each in batch)):
                playing = [(s, s.steps[number]) for s in batch if number < len(s.steps)]
                list(pool.map(self._step, *zip(*playing, strict=True)))
                now = self._settled(batch)
                for each, scenario, last in zip(found, batch, now, strict=True):
                    if number < len(scenario.steps):
                        each.append(last)
            list(pool.map(self._end, batch))
        return found

    def _settled(self, batch: Sequence[Scenario]) -> list[dict[str, Any]]:
        """The outcomes when they have not changed for a while."""
        started = changed = time.monotonic()
        found: list[dict[str, Any]] = []
        while (now := time.monotonic()) - changed < _QUIET and now - started < _LONGEST:
            items = [self._items(path) for path in _ALL]
            last = [outcome(_of(scenario, *items)) for scenario in batch]
            if last != found:
                found, changed = last, now
            time.sleep(_LOOK)
        return found

    def _begin(self, scenario: Scenario) -> None:
        if self._call("GET", f"/api/v1/namespaces/{scenario.namespace}") is None:
            self._call("POST", "/api/v1/namespaces", {"metadata": {"name": scenario.namespace}})

    def _end(self, scenario: Scenario) -> None:
        for kind, path in (("pods", "/api/v1"), ("podgroups", f"/apis/{scenarios.GROUP_VERSION}")):
            for each in self._items(f"{path}/namespaces/{scenario.namespace}/{kind}"):
                name = each["metadata"]["name"]
                self._release(f"{path}/namespaces/{scenario.namespace}/{kind}/{name}")
        for each in self._nodes(scenario):
            self._call("DELETE", f"/api/v1/nodes/{each['metadata']['name']}")
        for step in scenario.steps:
            for operation in step:
                if operation[0] == "make":
                    _, kind, made = scenarios.own(scenario, operation)
                    self._release(f"{self._path(scenario, kind)}/{made['metadata']['name']}")

    def _path(self, scenario: Scenario, kind: str) -> str:
        root, name, namespaced = scenarios.KINDS[kind]
        return f"{root}/namespaces/{scenario.namespace}/{name}" if namespaced else f"{root}/{name}"

    def _step(self, scenario: Scenario, step: Sequence[Operation]) -> None:
        for operation in step:
            self._do(scenario, operation)
            time.sleep(_PAUSE)

    # ------------------------------------------------------------ operations

    def _do(self, scenario: Scenario, operation: Operation) -> None:
        root = f"/api/v1/namespaces/{scenario.namespace}/pods"
        groups = f"/apis/{scenarios.GROUP_VERSION}/namespaces/{scenario.namespace}/podgroups"
        match scenarios.own(scenario, operation):
            case ["node", *arguments]:
                made = scenarios.node(scenario, *arguments)
                path = f"/api/v1/nodes/{made['metadata']['name']}"
                self._call("POST", "/api/v1/nodes", made)
                taints = made["spec"].get("taints")
                self._call("PATCH", path, {"spec": {"taints": taints}}, _MERGE)
            case ["-node", name]:
                self._call("DELETE", f"/api/v1/nodes/{scenarios.node_name(scenario, name)}")
            case ["group", *arguments]:
                body = scenarios.group(scenario, *arguments)
                if self._call("GET", f"{groups}/{body['metadata']['name']}") is None:
                    body["spec"].pop("priority", None)
                    self._call("POST", groups, body)
            case ["-group", name]:
                self._release(f"{groups}/{name}")
            case ["pods", name, count, cpu, more]:
                numbers = range(count)
                for body in scenarios.pods(scenario, name, numbers, cpu, more):
                    body["spec"] = {k: v for k, v in body["spec"].items() if k != "priority"}
                    self._call("POST", root, body)
                    time.sleep(_PAUSE)
            case ["-pods", name, where, count]:
                for pod in scenarios.chosen(scenario, self._items(root), name, where, count):
                    path = f"{root}/{pod['metadata']['name']}?gracePeriodSeconds=0"
                    self._call("DELETE", path)
            case _:
                self._do_more(scenario, operation)

    def _do_more(self, scenario: Scenario, operation: Operation) -> None:
        root = f"/api/v1/namespaces/{scenario.namespace}/pods"
        match scenarios.own(scenario, operation):
            case ["end", name, where, count]:
                for pod in scenarios.chosen(scenario, self._items(root), name, where, count):
                    path = f"{root}/{pod['metadata']['name']}/status"
                    self._call("PATCH", path, {"status": {"phase": "Succeeded"}}, _MERGE)
            case ["make", kind, made]:
                self._call("POST", self._path(scenario, kind), made)
            case ["patch", kind, name, changes]:
                self._call("PATCH", f"{self._path(scenario, kind)}/{name}", changes, _MERGE)
            case ["remove", kind, name]:
                self._release(f"{self._path(scenario, kind)}/{name}")
            case ["ungate", name, *count]:
                gated = [pod for pod in self._items(root) if scenarios.is_gated(pod, name)]
                for pod in gated[: count[0] if count else None]:
                    patch = [{"op": "remove", "path": "/spec/schedulingGates"}]
                    path = f"{root}/{pod['metadata']['name']}"
                    self._call("PATCH", path, patch, _JSON_PATCH)
            case _:
                raise ValueError(f"unknown operation: {operation}")

    def _release(self, path: str) -> None:
        """Deletes an object and what holds it."""
        if self._call("GET", path) is not None:
            self._call("PATCH", path, {"metadata": {"finalizers": None}}, _MERGE)
            self._call("DELETE", f"{path}?gracePeriodSeconds=0")

    # ------------------------------------------------------------ looking

    def _items(self, path: str) -> list[Manifest]:
        found = self._call("GET", path)
        return list(found["items"])

    def _nodes(self, scenario: Scenario) -> list[Manifest]:
        return self._items(
            f"/api/v1/nodes?labelSelector={scenarios.SCENARIO}%3D{scenario.namespace}"
        )


def _of(
    scenario: Scenario,
    pods: Sequence[Manifest],
    groups: Sequence[Manifest],
) -> Found:
    """The objects of one scenario among those of all."""

    def mine(items: Sequence[Manifest]) -> list[Manifest]:
        return [one for one in items if one["metadata"]["namespace"] == scenario.namespace]

    return Found(mine(pods), mine(groups))


def record(
    family: str, drawn: list[Scenario], *, times: int, batch: int, folder: Path
) -> list[Scenario]:
    """The scenarios of which all outcomes are the same."""
    recorded: dict[int, list[list[dict[str, Any]]]] = {each.seed: [] for each in drawn}
    server = RealApiServer(
        folder, f"--runtime-config={scenarios.GROUP_VERSION}=true", _on(_GROUP_GATES)
    )
    with server.running():
        recorder = _Recorder(server)
        recorder.prepare(sorted(scenarios.priorities(drawn)))
        gates = _on(scenarios.GATES[family])
        profiles = [{"schedulerName": name} for name in ("default-scheduler", scenarios.SECOND)]
        with server.kube_scheduler(
            gates, podInitialBackoffSeconds=1, podMaxBackoffSeconds=1, profiles=profiles
        ):
            for _ in range(times):
                drawn.reverse()  # In other company each time.
                for start in range(0, len(drawn), batch):
                    part = drawn[start : start + batch]
                    for scenario, found in zip(part, recorder.outcomes(part), strict=True):
                        recorded[scenario.seed].append(found)
                    print(f"{family}: {start + len(part)} of {len(drawn)}", file=sys.stderr)
                    time.sleep(1.0)
    stable = []
    for scenario in sorted(drawn, key=lambda each: each.seed):
        first, *others = recorded[scenario.seed]
        if all(each == first for each in others):
            scenario.outcomes = first
            stable.append(scenario)
        else:
            number = next(
                i
                for i, each in enumerate(zip(*recorded[scenario.seed], strict=True))
                if each.count(each[0]) < len(each)
            )
            print(f"{family} {scenario.seed}: step {number} differs:", file=sys.stderr)
            for each in recorded[scenario.seed]:
                print(f"    {json.dumps(each[number])}", file=sys.stderr)
    return stable


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.parity.gangs.record", description=__doc__
    )
    parser.add_argument("--family", choices=sorted(scenarios.GATES), required=True)
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--count", type=int, default=100, help="how many (default: 100)")
    parser.add_argument("--times", type=int, default=3, help="how often each (default: 3)")
    parser.add_argument("--batch", type=int, default=50, help="how many side by side (default: 50)")
    parser.add_argument("--given", type=Path, help="a file with scenarios to record, not seeds")
    parser.add_argument("--out", type=Path, required=True, help="where to write the scenarios")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.count)
    drawn = (
        [each for each in scenarios.read(given.given) if each.family == given.family]
        if given.given
        else [draw(seed, given.family) for seed in seeds]
    )
    with tempfile.TemporaryDirectory(prefix="aiokube-scheduler-record-") as folder:
        found = record(
            given.family, drawn, times=given.times, batch=given.batch, folder=Path(folder)
        )
    scenarios.write(found, given.out)
    print(f"{len(found)} of {len(drawn)} scenarios have one outcome")


if __name__ == "__main__":
    main()
