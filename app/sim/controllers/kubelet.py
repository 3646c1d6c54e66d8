"""Kubelets that run no containers: they write the states of pods that a scheduler and kubectl see.

::

    Pending, bound, with its device claims --start delay--> Running --run-for annotation, or a pod of a Job--> Succeeded
       any of them, being deleted --grace period x factor--> deleted
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from app.sim.api import Api
from app.sim.controllers.controller import Controller
from app.sim.objects import group_name, is_being_deleted, key_of, with_condition
from app.sim.resources.deletion import DeleteOptions, delete
from app.sim.resources.kinds import NODES, PODS, RESOURCE_CLAIMS
from app.sim.resources.pod_claims import may_start
from app.sim.store import Key, Object, Record, StoreChange

RUN_FOR: Final = "sim.aiokube-scheduler.io/run-for"
"""Annotation with a duration (``5s``, ``1m30s``, ``250ms``) after which a running pod ends.

Pods of Jobs end without it too.
"""
EXIT_CODE: Final = "sim.aiokube-scheduler.io/exit-code"
"""Annotation with the exit code of the pod's containers; with one other than 0 the pod fails."""

_FIRST_POD_ADDRESS: Final = (10 << 24) | (128 << 16)
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNIT_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_READINESS: Final = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")

_Step = Literal["start", "finish", "remove"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletOptions:
    """How fast the kubelets are."""

    start_delay: float = 0.2
    """Seconds from a pod's binding until it runs."""
    grace_factor: float = 0.05
    """The part of its grace period after which a deleted pod is removed: 30 s become 1.5 s."""
    longest_grace: float = math.inf
    """The maximum of that, in seconds."""
    job_seconds: float = 1.0
    """Seconds for which the pods of Jobs run that have no annotation."""


class _Plan(NamedTuple):
    """The next step of a pod, which is in the queue."""

    step: _Step
    uid: str


def parse_duration(text: str) -> float:
    """Reads a duration such as ``1m30s`` into seconds. Raises ValueError."""
    matches = list(_DURATION.finditer(text))
    if not matches or "".join(match[0] for match in matches) != text:
        raise ValueError(f"{text!r} is not a duration like 5s, 1m30s or 250ms")
    return sum(float(match[1]) * _UNIT_SECONDS[match[2]] for match in matches)


def _consumers(claim: Object) -> Sequence[Object]:
    consumers: Sequence[Object] = claim.get("status", {}).get("reservedFor", ())
    return consumers


class Kubelets(Controller[Key]):
    """The kubelets of all nodes. The keys are the pods for which something is due."""

    def __init__(self, api: Api, options: KubeletOptions) -> None:
        super().__init__(
            api,
            {NODES: self._on_node, PODS: self._on_pod, RESOURCE_CLAIMS: self._on_claim},
        )
        self._options = options
        self._plans: dict[Key, _Plan] = {}
        self._without_node: dict[str, dict[Key, None]] = {}
        """node that does not exist -> the pods that are bound to it."""
        self._addresses = _FIRST_POD_ADDRESS
        self._steps: Mapping[_Step, Callable[[Record], None]] = {
            "start": self._start_pod,
            "finish": self._finish_pod,
            "remove": self._remove_pod,
        }

    def _on_pod(self, change: StoreChange) -> None:
        if change.type == "DELETED":
            self._drop_plan(change.key)
            self._forget_waiting(change.key, change.record.value)
        else:
            self._plan(change.key, change.record.value)

    def _on_node(self, change: StoreChange) -> None:
        """The kubelet of a new node starts the pods that were bound to the node before."""
        if change.type == "ADDED":
            for key in self._without_node.pop(change.key[1], ()):
                self._plan_again(key)

    def _on_claim(self, change: StoreChange) -> None:
        """Pods can start when their claims are reserved for them, or for their group."""
        before = () if change.previous is None else _consumers(change.previous.value)
        for consumer in _consumers(change.record.value):
            if consumer["resource"] == "pods":
                self._plan_again((change.key[0], consumer["name"]))
            elif consumer["resource"] == "podgroups" and consumer not in before:
                for pod in list(self._api.store[PODS.storage].ordered(namespace=change.key[0])):
                    if group_name(pod.value) == consumer["name"]:
                        self._plan(key_of(pod.value), pod.value)

    def _plan_again(self, key: Key) -> None:
        record = self._api.find(PODS, *key)
        if record is not None:
            self._plan(key, record.value)

    def _plan(self, key: Key, pod: Object) -> None:
        """Puts the pod's next step into the queue, if it is not there already."""
        coming = self._next_step(pod)
        known = self._plans.get(key)
        if coming is None:
            self._drop_plan(key)
            self._wait_for_node(key, pod)
            return
        step, delay = coming
        plan = _Plan(step, pod["metadata"]["uid"])
        if known == plan and step != "remove":
            return
        self._drop_plan(key)
        self._plans[key] = plan
        self.enqueue(key, delay)

    def _next_step(self, pod: Object) -> tuple[_Step, float] | None:
        """What happens to a pod next, and after how many seconds."""
        node = pod["spec"].get("nodeName")
        phase = pod["status"].get("phase")
        if is_being_deleted(pod):
            grace = pod["metadata"].get("deletionGracePeriodSeconds", 0)
            return "remove", min(grace * self._options.grace_factor, self._options.longest_grace)
        if not node or self._api.find(NODES, "", node) is None:
            return None
        if phase == "Pending":
            return ("start", self._options.start_delay) if may_start(self._api, pod) else None
        if phase == "Running":
            return self._finish_step(pod)
        return None

    def _finish_step(self, pod: Object) -> tuple[_Step, float] | None:
        text = pod["metadata"].get("annotations", {}).get(RUN_FOR)
        if text is not None:
            try:
                return "finish", parse_duration(text)
            except ValueError:
                return None
        owners = pod["metadata"].get("ownerReferences", ())
        if self._options.job_seconds < math.inf and any(each["kind"] == "Job" for each in owners):
            return "finish", self._options.job_seconds
        return None

    def _wait_for_node(self, key: Key, pod: Object) -> None:
        """Remembers a pod that is bound to a node that does not exist."""
        node = pod["spec"].get("nodeName")
        if node and self._api.find(NODES, "", node) is None:
            self._without_node.setdefault(node, {})[key] = None

    def _forget_waiting(self, key: Key, pod: Object) -> None:
        node = pod["spec"].get("nodeName")
        waiting = self._without_node.get(node)
        if waiting is not None:
            waiting.pop(key, None)
            if not waiting:
                del self._without_node[node]

    def _drop_plan(self, key: Key) -> None:
        self._plans.pop(key, None)
        self.cancel(key)

    def reconcile(self, key: Key) -> None:
        plan = self._plans.pop(key)
        record = self._api.find(PODS, *key)
        if record is not None and record.value["metadata"]["uid"] == plan.uid:
            self._steps[plan.step](record)

    def _start_pod(self, record: Record) -> None:
        now = self._api.timestamp()
        pod = record.value
        status = pod["status"] | {
            "phase": "Running",
            "startTime": now,
            "conditions": _conditions(pod, now, ready=True),
            "containerStatuses": [_running(part, now) for part in pod["spec"]["containers"]],
        }
        inits = pod["spec"].get("initContainers")
        if inits:
            status["initContainerStatuses"] = [_completed(part, now, now) for part in inits]
        self._write(pod, status | self._addresses_for(pod))

    def _addresses_for(self, pod: Object) -> Object:
        self._addresses += 1
        ip = ".".join(str(byte) for byte in self._addresses.to_bytes(4, "big"))
        addresses: Object = {"podIP": ip, "podIPs": [{"ip": ip}]}
        node = self._api.find(NODES, "", pod["spec"]["nodeName"])
        reported = node.value.get("status", {}).get("addresses", ()) if node is not None else ()
        for address in reported:
            if address["type"] == "InternalIP":
                addresses |= {"hostIP": address["address"], "hostIPs": [{"ip": address["address"]}]}
        return addresses

    def _finish_pod(self, record: Record) -> None:
        now = self._api.timestamp()
        pod = record.value
        started = pod["status"].get("startTime", now)
        code = _exit_code(pod)
        containers = [_completed(part, started, now, code) for part in pod["spec"]["containers"]]
        self._write(
            pod,
            pod["status"]
            | {
                "phase": "Failed" if code else "Succeeded",
                "conditions": _conditions(pod, now, ready=False),
                "containerStatuses": containers,
            },
        )

    def _remove_pod(self, record: Record) -> None:
        options = DeleteOptions(grace_period_seconds=0, uid=record.value["metadata"]["uid"])
        delete(self._api, PODS, record.namespace, record.name, options)

    def _write(self, pod: Object, status: Object) -> None:
        self._api.write_status(PODS, pod, status)


def _exit_code(pod: Object) -> int:
    text = pod["metadata"].get("annotations", {}).get(EXIT_CODE, "0")
    return int(text) if text.isdecimal() else 0


def _conditions(pod: Object, now: str, *, ready: bool) -> list[Any]:
    """The conditions of a pod that runs, or of one that has completed."""
    conditions: list[Any] = pod["status"].get("conditions", [])
    for type_ in _READINESS:
        condition = {"type": type_, "status": "True", "lastTransitionTime": now}
        if not ready and type_ != "Initialized":
            condition |= {"status": "False", "reason": "PodCompleted"}
        conditions = with_condition(conditions, condition)
    if not any(condition["type"] == "PodScheduled" for condition in conditions):
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
        conditions = [*conditions, scheduled]
    return conditions


def _running(container: Object, now: str) -> Object:
    return _container_status(container, {"running": {"startedAt": now}}) | {
        "ready": True,
        "started": True,
    }


def _completed(container: Object, started: str, now: str, code: int = 0) -> Object:
    reason = "Error" if code else "Completed"
    end = {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": now}
    return _container_status(container, {"terminated": end}) | {"ready": False, "started": False}


def _container_status(container: Object, state: Object) -> Object:
    return {
        "name": container["name"],
        "state": state,
        "lastState": {},
        "restartCount": 0,
        "image": container.get("image", ""),
        "imageID": "",
    }
