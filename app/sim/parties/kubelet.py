"""Kubelets that only pretend: bound pods run, some finish, deleted ones vanish.

Nothing is executed. A pod goes through the states that a scheduler and kubectl would see::

    Pending, bound, with its device claims --start delay--> Running --run-for annotation--> Succeeded
       any of them, being deleted --grace period x factor--> gone
"""

import asyncio
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from app.sim.api import Api
from app.sim.objects import is_being_deleted, with_condition
from app.sim.resources.deletion import DeleteOptions, delete
from app.sim.resources.kinds import NODES, PODS, RESOURCE_CLAIMS
from app.sim.resources.pod_claims import may_start
from app.sim.store import Change, Key, Object, Record

RUN_FOR: Final = "sim.aiokube-scheduler.io/run-for"
"""Annotation with a duration (``5s``, ``1m30s``, ``250ms``) after which a running pod succeeds."""

_FIRST_POD_ADDRESS: Final = (10 << 24) | (128 << 16)
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNIT_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_READINESS: Final = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")

Step = Literal["start", "finish", "remove"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletOptions:
    """How fast the pretended kubelets are."""

    start_delay: float = 0.2
    """Seconds from a pod's binding until it runs."""
    grace_factor: float = 0.05
    """Part of its grace period that a deleted pod really takes: 30 s become 1.5 s."""
    longest_grace: float = math.inf
    """Seconds that it takes at most."""


class _Plan(NamedTuple):
    step: Step
    uid: str
    timer: asyncio.TimerHandle


def parse_duration(text: str) -> float:
    """Reads a duration such as ``1m30s`` into seconds. Raises ValueError."""
    matches = list(_DURATION.finditer(text))
    if not matches or "".join(match[0] for match in matches) != text:
        raise ValueError(f"{text!r} is not a duration like 5s, 1m30s or 250ms")
    return sum(float(match[1]) * _UNIT_SECONDS[match[2]] for match in matches)


class Kubelets:
    """All the kubelets of the cluster: one timer per pod that has something coming."""

    def __init__(self, api: Api, options: KubeletOptions) -> None:
        self._api = api
        self._options = options
        self._plans: dict[Key, _Plan] = {}
        self._addresses = _FIRST_POD_ADDRESS
        self._steps: Mapping[Step, Callable[[Record], None]] = {
            "start": self._start_pod,
            "finish": self._finish_pod,
            "remove": self._remove_pod,
        }

    def start(self) -> None:
        """Begins to look after the pods, those that exist already included. Needs a running loop."""
        self._api.store[PODS.storage].listeners[self._on_pod] = None
        self._api.store[NODES.storage].listeners[self._on_node] = None
        self._api.store[RESOURCE_CLAIMS.storage].listeners[self._on_claim] = None
        for key, record in self._api.store[PODS.storage].records.items():
            self._plan(key, record.value)

    def stop(self) -> None:
        """Leaves the pods as they are."""
        self._api.store[PODS.storage].listeners.pop(self._on_pod, None)
        self._api.store[NODES.storage].listeners.pop(self._on_node, None)
        self._api.store[RESOURCE_CLAIMS.storage].listeners.pop(self._on_claim, None)
        for plan in self._plans.values():
            plan.timer.cancel()
        self._plans.clear()

    def _on_pod(self, change: Change) -> None:
        if change.type == "DELETED":
            self._cancel(change.key)
        else:
            self._plan(change.key, change.record.value)

    def _on_node(self, change: Change) -> None:
        """A new node's kubelet finds the pods that were bound to it before it came."""
        if change.type == "ADDED":
            for key, record in self._api.store[PODS.storage].records.items():
                if record.value["spec"].get("nodeName") == change.key[1]:
                    self._plan(key, record.value)

    def _on_claim(self, change: Change) -> None:
        """Pods that were bound before their claims were reserved for them go on."""
        for consumer in change.record.value.get("status", {}).get("reservedFor", ()):
            key = (change.key[0], consumer["name"])
            record = self._api.store[PODS.storage].records.get(key)
            if record is not None and consumer["resource"] == "pods":
                self._plan(key, record.value)

    def _plan(self, key: Key, pod: Object) -> None:
        """Sets the timer for what comes next for a pod, unless it is set already."""
        coming = self._next_step(pod)
        known = self._plans.get(key)
        if coming is None:
            self._cancel(key)
            return
        step, delay = coming
        uid = pod["metadata"]["uid"]
        if known is not None and (known.step, known.uid) == (step, uid) and step != "remove":
            return
        self._cancel(key)
        timer = asyncio.get_running_loop().call_later(delay, self._act, key)
        self._plans[key] = _Plan(step, uid, timer)

    def _next_step(self, pod: Object) -> tuple[Step, float] | None:
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
            return _finish_step(pod)
        return None

    def _cancel(self, key: Key) -> None:
        plan = self._plans.pop(key, None)
        if plan is not None:
            plan.timer.cancel()

    def _act(self, key: Key) -> None:
        plan = self._plans.pop(key)
        record = self._api.store[PODS.storage].records.get(key)
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
        containers = [_completed(part, started, now) for part in pod["spec"]["containers"]]
        self._write(
            pod,
            pod["status"]
            | {
                "phase": "Succeeded",
                "conditions": _conditions(pod, now, ready=False),
                "containerStatuses": containers,
            },
        )

    def _remove_pod(self, record: Record) -> None:
        options = DeleteOptions(grace_period_seconds=0, uid=record.value["metadata"]["uid"])
        delete(self._api, PODS, record.namespace, record.name, options)

    def _write(self, pod: Object, status: Object) -> None:
        self._api.write(PODS, pod | {"metadata": dict(pod["metadata"]), "status": status})


def _finish_step(pod: Object) -> tuple[Step, float] | None:
    text = pod["metadata"].get("annotations", {}).get(RUN_FOR)
    if text is None:
        return None
    try:
        return "finish", parse_duration(text)
    except ValueError:
        return None


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


def _completed(container: Object, started: str, now: str) -> Object:
    end = {"exitCode": 0, "reason": "Completed", "startedAt": started, "finishedAt": now}
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
