"""Model extenders: webhooks that filter, score, agree on victims and bind, each by a rule that the checker knows
too."""

import random
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from tests.histories.apiserver import (
    NODES,
    PODS,
    Answer,
    ApiServer,
    Manifest,
    decode,
    encode,
    is_live,
)
from tests.histories.network import Request

#: An extender whose client of the API server has client-go's default limiter: so many requests a second, and so many at
#: once.
LIMITED = "limited"
RATE, BURST = 5.0, 10
#: What its verbs need: a binding reads the pod, annotates it and binds it.
_COSTS = {"filter": 1, "bind": 3}
#: An extender that locks a node for some seconds for each pod that it binds there.
LOCKING = "locking"
LOCK_SECONDS = 3.0
#: Pods of ours that a reserving extender lets onto one node, if not as many as there are CPUs.
SLOTS = 2


class BindRequest(Request):
    """A binding that an extender writes because a scheduler has asked it to."""

    def __init__(self, cause: Request, target: str, body: bytes, patience: float) -> None:
        super().__init__(cause.sender, "POST", target, body)
        self.settled_at = cause.settled_at
        self.patience = patience


class Extender:
    """One webhook. ``reserves``: it picks a node and keeps it for the pod, instead of merely sorting out."""

    def __init__(
        self,
        name: str,
        server: ApiServer,
        rng: random.Random,
        tell: Callable[[str, str], None],
        *,
        reserves: bool,
        preempts: bool,
        slots: int | None,
        latency: float,
        patience: float,
    ) -> None:
        """``slots``: as SLOTS, None for the number of CPUs; ``latency``: seconds that a call takes at most;
        ``patience``: seconds for which a scheduler reckons with a binding after a call that was not answered."""
        self.name = name
        self._server = server
        self._rng = rng
        self._tell = tell
        self._reserves = reserves
        self._preempts = preempts
        self._slots = slots
        self._patience = patience
        self._latency = latency
        #: The node that is kept for a pod, by its uid.
        self._reserved: dict[str, str] = {}
        #: The nodes from which others may be evicted for a pod, by its uid.
        self._agreed: dict[str, set[str]] = {}
        #: Pods that it was asked about by requests whose senders did not wait for an answer: what they reserve, nobody
        #: knows.
        self._confused: set[str] = set()
        #: When the limiter has let the last request pass.
        self._passed_at = -BURST / RATE
        #: Until when nodes are locked, and by which request: a copy of that one is not refused.
        self._locked: dict[str, tuple[float, Request]] = {}

    def queue(self, path: str, now: float) -> float:
        """A call comes in: seconds for which it waits for others before it is carried out."""
        if self.name != LIMITED:
            return 0.0
        cost = _COSTS[path.rpartition("/")[2]]
        self._passed_at = max(self._passed_at, now - BURST / RATE) + cost / RATE
        return max(0.0, self._passed_at - now)

    def delay(self) -> float:
        """Seconds that the next call takes."""
        return self._latency * self._rng.random()

    def handle(self, request: Request) -> Answer:
        """Answers one call."""
        asked = decode(request.body)
        if request.kind == "extender release":
            return self._release(asked)
        if request.settled or request.arrived:
            self._confused.add(asked.get("PodUID") or asked["Pod"]["metadata"]["uid"])
        request.arrived = True
        match request.path.rpartition("/")[2]:
            case "filter":
                return self._filter(asked)
            case "prioritize":
                scores = [{"Host": name, "Score": _chance(name) % 11} for name in _names(asked)]
                return Answer(200, encode(scores))
            case "preempt":
                return self._preempt(asked)
            case _:
                return self._bind(asked, request)

    def restart(self) -> None:
        """It forgets what it has reserved."""
        self._confused.update(self._reserved)
        self._reserved.clear()

    def allows(self, pod: Manifest, node: Manifest) -> bool:
        """Whether the extender, asked now, would leave this node for this pod."""
        uid, name = pod["metadata"]["uid"], node["metadata"]["name"]
        if not self._reserves:
            return not refuses(self.name, pod["metadata"]["labels"]["app"], name)
        return self._free(uid, name) > 0

    def keeps(self, uid: str, node: str) -> bool:
        """Whether a pod may be bound to a node as far as reservations go."""
        return not self._reserves or uid in self._confused or self._reserved.get(uid) == node

    def agrees(self, uid: str, node: str) -> bool:
        """Whether pods may be evicted from a node for a pod. Extenders without that verb agree to all."""
        return not self._preempts or node in self._agreed.get(uid, ())

    def _free(self, uid: str, name: str) -> int:
        """The slots of a node that are left to a pod."""
        taken = 0
        for other in self._server.all(PODS):
            if other["metadata"]["uid"] == uid or not is_live(other):
                continue
            node = other["spec"].get("nodeName")
            if other["spec"]["schedulerName"] != "other":
                taken += (node or self._reserved.get(other["metadata"]["uid"])) == name
        return self._slots_of(name) - taken

    def _slots_of(self, name: str) -> int:
        if self._slots is not None:
            return self._slots
        node = self._server.get(NODES, name)
        return 0 if node is None else int(node["status"]["allocatable"]["cpu"])

    # ------------------------------------------------------------ verbs

    def _filter(self, asked: Manifest) -> Answer:
        pod, names = asked["Pod"], _names(asked)
        uid = pod["metadata"]["uid"]
        if self._reserves:
            self._reserved.pop(uid, None)
        kept = [name for name in names if self.allows(pod, {"metadata": {"name": name}})]
        if self._reserves and kept:
            kept = [max(kept, key=lambda name: (self._free(uid, name), name))]
            self._reserved[uid] = kept[0]
        self._tell(self.name, f"leaves {kept} of {names} to {pod['metadata']['name']}")
        failed = {name: "refused" for name in names if name not in kept}
        reasons = {"FailedNodes": failed}
        if not self._reserves and self._rng.random() < 0.3:
            reasons = {"FailedAndUnresolvableNodes": failed}
        headers = {"Retry-After": "2"} if failed and self._rng.random() < 0.3 else {}
        if asked.get("Nodes") is None:
            return Answer(200, encode({"NodeNames": kept, **reasons}), headers)
        nodes = [n for n in asked["Nodes"]["items"] if n["metadata"]["name"] in kept]
        return Answer(200, encode({"Nodes": {"items": nodes}, **reasons}), headers)

    def _preempt(self, asked: Manifest) -> Answer:
        """Agrees to all nodes, or to all but one."""
        victims: dict[str, Any] = {}
        for node, each in (asked.get("NodeNameToVictims") or {}).items():
            victims[node] = {"Pods": [{"UID": pod["metadata"]["uid"]} for pod in each["Pods"]]}
        victims |= asked.get("NodeNameToMetaVictims") or {}
        if victims and self._rng.random() < 0.5:
            del victims[self._rng.choice(sorted(victims))]
        self._agreed.setdefault(asked["Pod"]["metadata"]["uid"], set()).update(victims)
        return Answer(200, encode({"NodeNameToMetaVictims": victims}))

    def _release(self, asked: Manifest) -> Answer:
        for placement in asked["Placements"]:
            uid = placement["PodUID"]
            if self._reserved.get(uid) == placement["Node"]:
                self._tell(self.name, f"releases {placement['Node']} for {placement['PodName']}")
                del self._reserved[uid]
        return Answer(200, encode({"Error": ""}))

    def _bind(self, asked: Manifest, cause: Request) -> Answer:
        name, namespace = asked["PodName"], asked["PodNamespace"]
        body = {
            "metadata": {"name": name, "namespace": namespace, "uid": asked["PodUID"]},
            "target": {"kind": "Node", "name": asked["Node"]},
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/binding"
        now = cause.sender.network.simulation.now
        until, holder = self._locked.get(asked["Node"], (0.0, cause))
        if cause.refused or (now < until and holder is not cause):
            cause.refused = True
            self._tell(self.name, f"refuses {name}: {asked['Node']} is locked")
            return Answer(200, encode({"Error": f"node {asked['Node']} has been locked"}))
        if self.name == LOCKING:
            self._locked[asked["Node"]] = (now + LOCK_SECONDS * self._rng.random(), cause)
        answer = self._server.handle(BindRequest(cause, path, encode(body), self._patience))
        error = "" if answer.status < 300 else decode(answer.body)["message"]
        return Answer(200, encode({"Error": error}))


def refuses(extender: str, app: str, node: str) -> bool:
    """Whether an extender that does not reserve refuses a node to pods with this label."""
    return _chance(app + node + extender) % 4 == 0


def _names(asked: Manifest) -> Sequence[str]:
    if asked.get("NodeNames") is not None:
        return asked["NodeNames"]
    return [node["metadata"]["name"] for node in asked["Nodes"]["items"]]


def _chance(text: str) -> int:
    """A number that always is the same for a text."""
    return zlib.crc32(text.encode())
