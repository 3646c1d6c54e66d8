"""Contests of gangs with real processes: ``python -m tests.whole.contests --contests 100`` (docs/testing.md).

Two to four gangs want room that is enough for one. Scheduler, API server and extender are killed meanwhile. The gang
that runs is deleted, so that the next one can run, until all have. A watch of its own tells which pods are bound.
"""

import argparse
import contextlib
import http.client
import json
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from app.tools.subprocesses import reserved_port
from extenders.kit import Filtered, NodesRequest, ReleaseRequest, make_app
from extenders.kit import run as serve
from tests.whole.harness import ApiServer, Cluster, Process, pod, running_cluster
from tests.whole.real import RealApiServer

GATES: Final = "--feature-gates=GenericWorkload=true,GangScheduling=true"
FLAGS: Final = ("--runtime-config=scheduling.k8s.io/v1alpha2=true", GATES)
PODS: Final = "/api/v1/namespaces/default/pods"
GROUPS: Final = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
#: CPUs of the nodes; each pod wants one.
ROOM: Final = {"n0": 4, "n1": 2, "n2": 1, "n3": 1}
#: Seconds that a gang may be bound in part, and for which no gang may run though there is room.
LONGEST: Final = 75.0
_AWAY: Final = (OSError, http.client.HTTPException, json.JSONDecodeError, AssertionError)


class Gang(NamedTuple):
    """A gang, and how many of its pods must be bound together."""

    name: str
    size: int
    minimum: int


class Watcher:
    """Follows the pods, and what is wrong with them. To be used under ``changed``."""

    def __init__(self, server: ApiServer) -> None:
        self._server: Final = server
        self.changed: Final = threading.Condition()
        self.gangs: Final[dict[str, Gang]] = {}
        #: The gangs that have run, whose pods are deleted.
        self.ended: Final[set[str]] = set()
        self.problems: Final[list[str]] = []
        #: How long gangs were bound in part, seconds, and since when others are.
        self.parts: Final[list[float]] = []
        self._since: Final[dict[str, float]] = {}
        #: By uid: (gang, node) of each pod that is bound.
        self._bound: dict[str, tuple[str, str]] = {}
        self._over: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._follow, name="watch pods")

    @contextlib.contextmanager
    def running(self, change: Callable[[], None]) -> Iterator[None]:
        """In a thread, which is ended with the next ``change`` of a pod."""
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            change()
            self._thread.join()

    def bound(self) -> Counter[str]:
        """How many pods of each gang are bound."""
        return Counter(gang for gang, _ in self._bound.values())

    def winners(self) -> list[str]:
        """The gangs that run: those with their minimum of pods."""
        return [n for n, count in self.bound().items() if count >= self.gangs[n].minimum]

    def _follow(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(*_AWAY):  # the next round finds out what has happened
                found = self._server.call("GET", PODS)
                with self.changed:
                    self._bound.clear()
                    for each in found["items"]:
                        self._see("ADDED", each)
                    self._judge()
                since = found["metadata"]["resourceVersion"]
                for event in self._server.changes(PODS, since):
                    if event["type"] == "ERROR":
                        break
                    with self.changed:
                        self._see(event["type"], event["object"])
                        self._judge()
                    if self._over.is_set():
                        return
            time.sleep(0.02)

    def _see(self, kind: str, seen: dict[str, Any]) -> None:
        meta, node = seen["metadata"], seen["spec"].get("nodeName")
        before = self._bound.pop(meta["uid"], None)
        if kind == "DELETED" or not node:
            return
        self._bound[meta["uid"]] = (meta["labels"]["gang"], node)
        if before is not None and before[1] != node:
            self.problems.append(f"{meta['name']} is bound to {before[1]}, then to {node}")

    def _judge(self) -> None:
        now, counts = time.monotonic(), self.bound()
        for name, gang in self.gangs.items():
            in_part = 0 < counts[name] < gang.minimum and name not in self.ended
            if in_part:
                self._since.setdefault(name, now)
            elif name in self._since:
                self.parts.append(now - self._since.pop(name))
        taken = Counter(node for _, node in self._bound.values())
        for node, room in ROOM.items():
            if taken[node] > room:
                self.problems.append(f"{taken[node]} pods on {node}, which has room for {room}")
        self.changed.notify_all()


class Contests:
    """Plays contests in one cluster."""

    def __init__(self, server: ApiServer, directory: Path, extender_port: int) -> None:
        self._server: Final = server
        self._directory: Final = directory
        self._port: Final = extender_port
        self._rng = random.Random()
        self._scheduler: Process | None = None
        self._extender: Process | None = None
        self._starts = 0
        self.watcher: Final = Watcher(server)
        #: What was done to the processes, how often.
        self.done: Final[Counter[str]] = Counter()
        #: Seconds until a gang ran.
        self.waited: Final[list[float]] = []
        self._incidents: Final[dict[str, Callable[[], None]]] = {
            "scheduler is killed": self._kill_scheduler,
            "scheduler is told to stop": self._stop_scheduler,
            "API server is killed": self._kill_server,
            "extender is killed": self._kill_extender,
        }

    @contextlib.contextmanager
    def running(self) -> Iterator["Contests"]:
        """With nodes, scheduler, extender and watcher."""
        for name, room in ROOM.items():
            amounts = {"cpu": str(room), "memory": "32Gi", "pods": "100"}
            status = {"capacity": amounts, "allocatable": amounts}
            node = {"metadata": {"name": name}, "status": status}
            self._server.call("POST", "/api/v1/nodes", node)
            # A real API server taints new nodes until they are ready.
            free = {"spec": {"taints": None}}
            self._server.call(
                "PATCH", f"/api/v1/nodes/{name}", free, "application/merge-patch+json"
            )
        try:
            self._start_extender()
            self._start_scheduler()
            with self.watcher.running(lambda: self._make("last", {})):
                yield self
        finally:
            for process in (self._scheduler, self._extender):
                if process is not None:
                    process.kill()

    def play(self, seed: int) -> None:
        """One contest. What goes wrong is in ``watcher.problems``."""
        rng = self._rng = random.Random(f"contest {seed}")
        gangs = {}
        for number in range(rng.choice((2, 2, 3, 4))):
            size = rng.randint(5, 8)
            name = f"c{seed}-g{number}"
            gangs[name] = Gang(name, size, max(5, size - rng.choice((0, 0, 0, 1, 2))))
        with self.watcher.changed:
            self.watcher.gangs.clear()
            self.watcher.gangs.update(gangs)
        made = [gang for gang in gangs.values() for _ in range(gang.size)]
        rng.shuffle(made)
        at = rng.randrange(2 * len(made))
        numbers: defaultdict[str, int] = defaultdict(int)
        for gang in gangs.values():
            policy = {"schedulingPolicy": {"gang": {"minCount": gang.minimum}}}
            self._server.call("POST", GROUPS, {"metadata": {"name": gang.name}, "spec": policy})
        for position, gang in enumerate(made):
            if position == at:
                self._strike()
            self._make(f"{gang.name}-{numbers[gang.name]}", {"gang": gang.name})
            numbers[gang.name] += 1
        while gangs:
            if rng.random() < 0.5:
                if rng.random() < 0.7:
                    self._await_binding(gangs)
                self._strike()
            winner = self._next_winner(gangs)
            if winner is None:
                return
            self._remove(gangs.pop(winner))

    def _await_binding(self, gangs: dict[str, Gang]) -> None:
        """Returns as soon as any pod of these gangs is bound, or after some seconds."""
        with self.watcher.changed:
            self.watcher.changed.wait_for(lambda: self.watcher.bound().keys() & gangs.keys(), 3.0)

    def _next_winner(self, gangs: dict[str, Gang]) -> str | None:
        started, changed = time.monotonic(), self.watcher.changed
        with changed:
            while not (running := [n for n in self.watcher.winners() if n in gangs]):
                left = started + LONGEST - time.monotonic()
                if left <= 0 or self.watcher.problems:
                    bound = dict(self.watcher.bound())
                    self.watcher.problems.append(
                        f"none of {list(gangs.values())} runs; bound: {bound}"
                    )
                    return None
                changed.wait(left)
        self.waited.append(time.monotonic() - started)
        return running[0]

    def _make(self, name: str, labels: dict[str, str]) -> None:
        body = pod(name, cpu="1", terminationGracePeriodSeconds=0)
        body["metadata"]["labels"] = labels
        if labels:
            body["spec"]["schedulingGroup"] = {"podGroupName": labels["gang"]}
        else:
            body["spec"]["schedulerName"] = "none"
        self._server.call("POST", PODS, body)

    def _remove(self, gang: Gang) -> None:
        """The gang has done its work."""
        with self.watcher.changed:
            self.watcher.ended.add(gang.name)
        at_once = {"gracePeriodSeconds": 0}
        self._server.call("DELETE", f"{PODS}?labelSelector=gang%3D{gang.name}", at_once)
        path, free = f"{GROUPS}/{gang.name}", {"metadata": {"finalizers": None}}
        self._server.call("DELETE", path)
        self._server.call("PATCH", path, free, "application/merge-patch+json")

    # ------------------------------------------------------------ what befalls the processes

    def _strike(self) -> None:
        names = list(self._incidents)
        [name] = self._rng.choices(names, (4, 2, 1, 2))
        self.done[name] += 1
        self._incidents[name]()

    def _kill_scheduler(self) -> None:
        assert self._scheduler is not None
        self._scheduler.kill()
        self._start_scheduler()

    def _stop_scheduler(self) -> None:
        assert self._scheduler is not None
        status = self._scheduler.stop()
        if status not in {0, -signal.SIGTERM}:  # it may not have begun yet
            self.watcher.problems.append(f"the scheduler ended with {status}")
        self._start_scheduler()

    def _kill_server(self) -> None:
        seconds = self._rng.random() * 2
        if isinstance(self._server, RealApiServer):
            self._server.restart(seconds)
        elif isinstance(self._server, Cluster):
            # It keeps nothing: it refuses connections instead.
            self._server.debug("refuse", {"seconds": seconds})
            time.sleep(seconds + 0.1)

    def _kill_extender(self) -> None:
        assert self._extender is not None
        self._extender.kill()
        time.sleep(self._rng.random())
        self._start_extender()

    def _start_extender(self) -> None:
        arguments = ["tests.whole.contests", "--extender", str(self._port)]
        self._extender = Process(arguments, self._directory / "extender.log")

    def _start_scheduler(self) -> None:
        """Every other life asks the extender. Most write one binding after the other, so that a kill comes in
        between.
        """
        self._starts += 1
        url = f"http://127.0.0.1:{self._port}"
        first: dict[str, Any] = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self._server.kubeconfig)},
            "leaderElection": {"leaderElect": False},
            "podMaxBackoffSeconds": 1,
        }
        second: dict[str, Any] = {
            "apiVersion": "aiokube-scheduler.io/v1alpha1",
            "kind": "AiokubeSchedulerConfiguration",
            "maxBindingsInFlight": self._rng.choice((1, 1, 32)),
        }
        if self._starts % 2 == 0:
            verbs = {"filterVerb": "filter", "nodeCacheCapable": True}
            first["extenders"] = [{"urlPrefix": url, **verbs}]
            second["extenders"] = [{"urlPrefix": url, "releaseVerb": "release"}]
        config = self._directory / f"scheduler-{self._starts % 2}.yaml"
        config.write_text(yaml.safe_dump_all([first, second]))
        arguments = ["app", "run", f"--config={config}", "--secure-port=0", GATES]
        self._scheduler = Process(arguments, self.log)

    @property
    def log(self) -> Path:
        """What all lives of the scheduler have logged."""
        return self._directory / "scheduler.log"


def serve_extender(port: int) -> None:
    """An extender that picks the node with the fewest reservations, and keeps it for the pod until it hears of a
    release.
    """
    kept: dict[str, str] = {}

    def choose(request: NodesRequest) -> Filtered:
        counts = Counter(kept.values())
        name = min(request.names, key=lambda each: (counts[each] / ROOM.get(each, 1), each))
        kept[request.pod.metadata.uid] = name
        others = [each for each in request.names if each != name]
        return Filtered([name], dict.fromkeys(others, "another node is better"))

    def release(request: ReleaseRequest) -> None:
        for placement in request.placements:
            if kept.get(placement.pod_uid) == placement.node:
                del kept[placement.pod_uid]

    serve(make_app(filter=choose, release=release), port=port)


@contextlib.contextmanager
def contests(server: ApiServer, directory: Path) -> Iterator[Contests]:
    """Contests in this cluster, which has no nodes."""
    with reserved_port() as port, Contests(server, directory, port).running() as running:
        yield running


def problems(played: Contests) -> list[str]:
    """What went wrong in the contests played so far."""
    watcher, log = played.watcher, played.log.read_text(errors="replace")
    with watcher.changed:
        found = list(watcher.problems)
        found += [f"a gang was bound in part for {n:.1f} s" for n in watcher.parts if n > LONGEST]
    return [*found, *(["the scheduler logged a traceback"] if "Traceback" in log else [])]


def summary(played: Contests, count: int, seconds: float) -> str:
    """The figures, for people."""
    parts, waited = sorted(played.watcher.parts), played.waited
    lines = [f"{count} contests, {len(waited)} gangs ran, in {seconds:.0f} s"]
    lines += [f"{times:5} x {what}" for what, times in sorted(played.done.items())]
    lines.append(
        f"until a gang ran: median {statistics.median(waited):.2f} s, longest {max(waited):.1f} s"
    )
    for least in (0.1, 1.0, 5.0, 15.0):
        lines.append(
            f"{sum(n > least for n in parts):5} gangs bound in part for more than {least} s"
        )
    lines.append(f"longest: {parts[-1] if parts else 0.0:.2f} s")
    return "\n".join(lines)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.whole.contests", description=__doc__)
    parser.add_argument("--contests", type=int, default=20, help="how many (default: 20)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument(
        "--real", action="store_true", help="etcd and kube-apiserver of $KUBEBUILDER_ASSETS"
    )
    parser.add_argument("--extender", type=int, metavar="PORT", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.extender is not None:
        serve_extender(given.extender)
        return 0
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server: ApiServer
        if given.real:
            server = stack.enter_context(RealApiServer(directory, *FLAGS).running())
        else:
            server = stack.enter_context(running_cluster(directory, "--no-kubelets", *FLAGS))
        started = time.monotonic()
        played = stack.enter_context(contests(server, directory))
        for number in range(given.contests):
            played.play(given.first + number)
            if found := problems(played):
                print(f"contest {given.first + number}:", *found, sep="\n")
                print(*played.log.read_text().splitlines()[-50:], sep="\n")
                return 1
        print(summary(played, given.contests, time.monotonic() - started))
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
