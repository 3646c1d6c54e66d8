"""Pods of every fate, what a scheduler writes about them, and kube-scheduler's record of it.

``python -m tests.parity.autoscalers.playing`` records: $KUBEBUILDER_ASSETS names a folder with etcd, kube-apiserver and
kube-scheduler.

The cluster consists of cells. Each has nodes of its own, which its pods select, and pods of the kinds below, some of
each. Which pod gets which fate does not depend on the order of decisions. The steps: pods that fill nodes; all others;
what changes them.
"""

import contextlib
import json
import random
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.parity.autoscalers.predicates import cluster_autoscaler, karpenter_provisions
from tests.whole.harness import ApiServer, wait_for
from tests.whole.real import RealApiServer

RECORDED: Final = Path(__file__).with_name("recorded.json")
CELLS: Final = 18
PODS: Final = "/api/v1/namespaces/default/pods"
_CELL: Final = "cell"
_ROLE: Final = "role"
_DEVICE: Final = "example.com/device"
_MERGE: Final = "application/merge-patch+json"
_FINALIZER: Final = "example.com/held"
_GATE: Final = "kueue.x-k8s.io/topology"
_RACK: Final = "cloud.provider.com/topology-rack"
_PRIORITIES: Final = {"high": 1000, "patient": 1000, "expendable": -20}
_LAST: Final = "last"
#: An event that kube-scheduler does not write.
_OURS: Final = "ExtenderFailed"
#: The scheduler that nobody runs.
NOBODY: Final = "nobody"

Manifest = dict[str, Any]


class Kind(NamedTuple):
    """Pods with one fate."""

    role: str
    """Of the nodes that they select; empty for any of the cell."""
    cpu: str = "100m"
    spec: Mapping[str, Any] = {}
    metadata: Mapping[str, Any] = {}
    device: bool = False
    """Whether they ask for a device, which an extender answers for."""
    filler: bool = False
    """Made first: they are what others meet on a node."""
    single: bool = False
    """One in each cell."""


def _owner(kind: str) -> Mapping[str, Any]:
    return {"ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "u-1"}]}


_GATED: Final = {"schedulingGates": [{"name": _GATE}]}
_SLOW: Final = {"terminationGracePeriodSeconds": 30}
_TOLERATION: Final = {"tolerations": [{"key": "only", "operator": "Exists"}]}

#: Nodes of a cell: role -> CPUs. ``taint`` has a taint, ``late`` comes in the last step.
NODES: Final = {
    "room": 8,
    "full": 4,
    "taint": 4,
    "victim": 4,
    "yield": 4,
    "first": 4,
    "named": 4,
    "other": 4,
    "rack": 4,
    "late": 4,
}
KINDS: Final[Mapping[str, Kind]] = {
    "fill-full": Kind("full", "3", filler=True, single=True),
    "fill-victim": Kind("victim", "3", spec=_SLOW, filler=True, single=True),
    "fill-yield": Kind("yield", "3", spec=_SLOW, filler=True, single=True),
    "fits": Kind("room"),
    "tolerates": Kind("taint", spec=_TOLERATION),
    "big": Kind("room", "64"),
    "daemon": Kind("room", "64", metadata=_owner("DaemonSet")),
    "replica": Kind("room", "64", metadata=_owner("ReplicaSet")),
    "elsewhere": Kind("nowhere"),
    "repelled": Kind("taint"),
    "crowded": Kind("full", "3"),
    "expendable": Kind("full", "3", spec={"priorityClassName": "expendable"}),
    "never": Kind("full", "3", spec={"priorityClassName": "patient"}),
    "preempts": Kind("victim", "3", spec={"priorityClassName": "high"}, single=True),
    "succeeds": Kind("yield", "3", spec={"priorityClassName": "high"}, single=True),
    "claimless": Kind(
        "room",
        spec={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]},
    ),
    "strange": Kind("room", spec={"schedulerName": NOBODY}),
    "gated": Kind("room", spec=_GATED),
    "gatedbig": Kind("room", "64", spec=_GATED),
    "freed": Kind("room", spec=_GATED),
    "freedbig": Kind("room", "64", spec=_GATED),
    "kueue": Kind("", spec=_GATED, metadata={"labels": {"kueue.x-k8s.io/podset": "main"}}),
    "named": Kind("", spec=_GATED, single=True),
    "namedbig": Kind("", "64", spec=_GATED, single=True),
    "late": Kind("late"),
    "ending": Kind("room", "64", metadata={"finalizers": [_FINALIZER]}),
    "approved": Kind("room", device=True),
    "refused": Kind("room", device=True),
    "broken": Kind("room", device=True),
}


def names() -> dict[str, list[str]]:
    """The pods: kind -> names, in the order of cells."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for cell in range(CELLS):
        rng = random.Random(cell)
        for kind, about in KINDS.items():
            count = 1 if about.single else rng.choice((0, 1, 1, 2))
            found[kind] += [f"{kind}-{cell}-{number}" for number in range(count)]
    return dict(found)


def _cell(name: str) -> str:
    return name.split("-")[-2]


def kind_of(name: str) -> str:
    """The kind of a pod, by its name."""
    return name.rsplit("-", 2)[0]


def _node(cell: int, role: str) -> Manifest:
    name, cpu = f"{role}-{cell}", NODES[role]
    amounts = {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}
    labels = {_CELL: str(cell), _ROLE: role, "kubernetes.io/hostname": name}
    labels |= {_RACK: f"rack-{cell}"} if role == "rack" else {}
    taints = [{"key": "only", "effect": "NoSchedule"}] if role == "taint" else []
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }


def _pod(name: str) -> Manifest:
    kind = KINDS[kind_of(name)]
    selector = {_CELL: _cell(name)} | ({_ROLE: kind.role} if kind.role else {})
    resources = {"requests": {"cpu": kind.cpu}}
    if kind.device:
        resources = {"requests": {"cpu": kind.cpu, _DEVICE: "1"}, "limits": {_DEVICE: "1"}}
    container = {"name": "c", "image": "i", "resources": resources}
    spec: Manifest = {"containers": [container], "nodeSelector": selector, **kind.spec}
    if kind_of(name) == "named":  # it would rather be elsewhere than where it is nominated
        first = [{"key": _ROLE, "operator": "In", "values": ["first"]}]
        preferred = [{"weight": 100, "preference": {"matchExpressions": first}}]
        key = "preferredDuringSchedulingIgnoredDuringExecution"
        spec["affinity"] = {"nodeAffinity": {key: preferred}}
    return {"metadata": {"name": name, "namespace": "default", **kind.metadata}, "spec": spec}


# ---------------------------------------------------------------- playing


class Fate(NamedTuple):
    """What is written about one pod, as far as autoscalers read it."""

    node: str
    """The role of the node that it is on."""
    status: str
    reason: str
    """Both of the condition PodScheduled."""
    nominated: str
    """The role of the node in status.nominatedNodeName; empty for none."""
    ending: bool
    events: tuple[str, ...]
    """The reasons of its events, sorted."""


class Step(NamedTuple):
    """What is found when nothing changes any more."""

    fates: Mapping[str, Fate]
    pods: Mapping[str, Manifest]


class Play:
    """Goes through the steps on an API server, at which one scheduler is at work."""

    def __init__(self, server: ApiServer) -> None:
        self._server: Final = server
        self._names: Final = names()
        self._since = ""

    def begin(self) -> None:
        """Nodes, priorities, and the pods that fill nodes. Before the scheduler starts."""
        for name, value in _PRIORITIES.items():
            policy = "Never" if name == "patient" else "PreemptLowerPriority"
            body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
            self._server.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
        for cell in range(CELLS):
            for role in NODES:
                if role != "late":
                    self._make_node(cell, role)
        self._since = self._server.call("GET", PODS)["metadata"]["resourceVersion"]
        self._make(kind for kind, about in KINDS.items() if about.filler)

    def steps(self, settled: Callable[[int, Step], bool]) -> Iterator[Step]:
        """The state after each step, once ``settled`` (given the number of the step) says that it is the last one of
        it.
        """
        self._wait_bound(kind for kind, about in KINDS.items() if about.filler)
        self._make(kind for kind, about in KINDS.items() if not about.filler)
        yield self._settle(0, settled)
        self._change()
        yield self._settle(1, settled)

    def versions(self) -> dict[str, list[Manifest]]:
        """All versions of each pod since the beginning, by name."""
        self._server.call("POST", PODS, {**_pod("strange-0-0"), "metadata": {"name": _LAST}})
        found: defaultdict[str, list[Manifest]] = defaultdict(list)
        for event in self._server.changes(PODS, self._since):
            pod = event["object"]
            if (name := pod["metadata"]["name"]) == _LAST:
                break
            found[name].append(pod)
        return found

    def end(self) -> None:
        """Lets go of what holds pods, so that they can be deleted."""
        for name in self._names["ending"]:
            free = {"metadata": {"finalizers": None}}
            self._server.call("PATCH", f"{PODS}/{name}", free, _MERGE)

    def _settle(self, number: int, settled: Callable[[int, Step], bool]) -> Step:
        steps: list[Step] = []

        def over() -> bool:
            steps.append(self._look())
            return settled(number, steps[-1])

        with contextlib.suppress(AssertionError):  # the test tells what is different
            wait_for("the outcome", over, 45.0)
        return steps[-1]

    def _look(self) -> Step:
        pods = self._server.pods()
        events: defaultdict[str, set[str]] = defaultdict(set)
        found = self._server.call("GET", "/apis/events.k8s.io/v1/namespaces/default/events")
        for event in found["items"]:
            events[event["regarding"]["name"]].add(event["reason"])
        fates = {name: _fate(pod, events[name]) for name, pod in pods.items()}
        return Step(fates, pods)

    def _make_node(self, cell: int, role: str) -> None:
        node = _node(cell, role)
        self._server.call("POST", "/api/v1/nodes", node)

    def _make(self, kinds: Iterable[str]) -> None:
        for kind in kinds:
            for name in self._names[kind]:
                self._server.call("POST", PODS, _pod(name))

    def _wait_bound(self, kinds: Iterable[str]) -> None:
        wanted = {name for kind in kinds for name in self._names[kind]}

        def bound() -> bool:
            pods = self._server.pods()
            return all(pods[name]["spec"].get("nodeName") for name in wanted)

        wait_for("bound pods", bound)

    def _change(self) -> None:
        """What happens to pods that wait."""
        call, named = self._server.call, self._names
        # Another component expects them there (KEP-5278): on nodes of their own, because nominated pods count there.
        for kind, role in (("named", "named"), ("namedbig", "other")):
            for name in named[kind]:
                patch = {"status": {"nominatedNodeName": f"{role}-{_cell(name)}"}}
                call("PATCH", f"{PODS}/{name}/status", patch, _MERGE)
        for kind in ("freed", "freedbig", "named", "namedbig"):
            for name in named[kind]:
                call("PATCH", f"{PODS}/{name}", {"spec": {"schedulingGates": None}}, _MERGE)
        for name in named["kueue"]:  # as its topology ungater does
            selector = {_RACK: f"rack-{_cell(name)}"}
            patch = {"spec": {"schedulingGates": None, "nodeSelector": selector}}
            call("PATCH", f"{PODS}/{name}", patch, _MERGE)
        for name in named["ending"]:
            call("DELETE", f"{PODS}/{name}")
        for cell in range(CELLS):
            self._make_node(cell, "late")
        for name in named["fill-yield"]:  # the kubelet has stopped the victim
            call("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})


def _fate(pod: Manifest, events: Iterable[str]) -> Fate:
    conditions = pod["status"].get("conditions") or ()
    said = next((each for each in conditions if each["type"] == "PodScheduled"), {})
    return Fate(
        pod["spec"].get("nodeName", "").partition("-")[0],
        said.get("status", ""),
        said.get("reason", ""),
        pod["status"].get("nominatedNodeName", "").partition("-")[0],
        "deletionTimestamp" in pod["metadata"],
        tuple(sorted(set(events) - {_OURS})),
    )


def conclusions(pod: Manifest) -> tuple[bool, str, str]:
    """What the autoscalers conclude from a pod: Karpenter, Cluster Autoscaler, and the same with bypassed
    schedulers.
    """
    return (
        karpenter_provisions(pod),
        cluster_autoscaler(pod),
        cluster_autoscaler(pod, {"default-scheduler", NOBODY}),
    )


# ---------------------------------------------------------------- the extender


class _Handler(BaseHTTPRequestHandler):
    """Approves, refuses, or breaks down, by the name of the pod."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name, nodes = asked["Pod"]["metadata"]["name"], asked["NodeNames"]
        if name.startswith("broken"):
            self.send_error(500)
            return
        refused = name.startswith("refused")
        failed = dict.fromkeys(nodes, "no device is free") if refused else {}
        answer = json.dumps({"NodeNames": [] if refused else nodes, "FailedNodes": failed})
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer.encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextlib.contextmanager
def extender() -> Iterator[dict[str, Any]]:
    """An extender of the devices, as the fields of a configuration."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as served:
        thread = threading.Thread(target=served.serve_forever, name="extender")
        thread.start()
        try:
            yield {
                "extenders": [
                    {
                        "urlPrefix": f"http://127.0.0.1:{served.server_port}",
                        "filterVerb": "filter",
                        "nodeCacheCapable": True,
                        "managedResources": [{"name": _DEVICE, "ignoredByScheduler": True}],
                    }
                ]
            }
        finally:
            served.shutdown()
            thread.join()


# ---------------------------------------------------------------- the record


class Record(NamedTuple):
    """What kube-scheduler wrote."""

    steps: list[dict[str, Fate]]
    ever: dict[str, list[bool]]
    """Whether Karpenter would provision for the pod, in each of its versions where that changes, from the first on."""


def read() -> Record:
    """The file: for each step the fates with the names of their pods."""
    found = json.loads(RECORDED.read_text())
    steps = [
        {
            name: Fate(*fate[:-1], tuple(fate[-1]))
            for fate, pods in zip(step["fates"], step["pods"], strict=True)
            for name in pods
        }
        for step in found["steps"]
    ]
    ever = {name: turns for turns, pods in found["ever"] for name in pods}
    return Record(steps, ever)


def write(steps: Iterable[Mapping[str, Fate]], ever: Mapping[str, list[bool]]) -> None:
    """Pods with the same fate share a line."""
    written = []
    for step in steps:
        shared: defaultdict[Fate, list[str]] = defaultdict(list)
        for name, fate in sorted(step.items()):
            shared[fate].append(name)
        written.append({"fates": list(shared), "pods": list(shared.values())})
    turns: defaultdict[tuple[bool, ...], list[str]] = defaultdict(list)
    for name, each in sorted(ever.items()):
        turns[tuple(each)].append(name)
    RECORDED.write_text(json.dumps({"steps": written, "ever": list(turns.items())}) + "\n")


def turns(versions: Iterable[Manifest]) -> list[bool]:
    """See Record.ever."""
    found: list[bool] = []
    for pod in versions:
        if not found or found[-1] != karpenter_provisions(pod):
            found.append(karpenter_provisions(pod))
    return found


class Quiet:
    """Settled is what is the same for some looks in a row."""

    def __init__(self, looks: int) -> None:
        self._looks: Final = looks
        self._last: Mapping[str, Fate] = {}
        self._same = 0

    def __call__(self, _number: int, step: Step) -> bool:
        self._same = self._same + 1 if step.fates == self._last else 0
        self._last = step.fates
        return self._same >= self._looks


def main() -> int:
    """Records twice; both must be the same."""
    records = []
    for _ in range(2):
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            server = stack.enter_context(RealApiServer(folder).running())
            play = Play(server)
            play.begin()
            fast = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}
            fast |= stack.enter_context(extender())
            stack.enter_context(server.kube_scheduler(**fast))
            steps = [step.fates for step in play.steps(Quiet(40))]
            versions = play.versions()
        records.append((steps, {name: turns(each) for name, each in versions.items()}))
    first, second = records
    if first != second:
        for a, b in zip((*first[0], first[1]), (*second[0], second[1]), strict=True):
            for name in sorted(a):
                if a[name] != b.get(name):
                    print(name, a[name], b.get(name), sep="\n  ", file=sys.stderr)
        return 1
    write(*first)
    print(
        f"{len(first[0][0])} pods, {len(set(first[0][0].values()) | set(first[0][1].values()))} fates"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
