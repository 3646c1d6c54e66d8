"""A small disruption controller: keeps the status of PodDisruptionBudgets up to date.

It counts the pods that a budget selects. Expected pods are the pods that exist, since no workload controllers run here.
A budget created with a status is left alone: its status stays as given.
"""

import asyncio
import math
from collections.abc import Iterable
from typing import Any, Final

from app.model.timestamps import parse_time
from app.sim.api import Api
from app.sim.objects import is_being_deleted, is_true, with_condition
from app.sim.resources.kinds import POD_DISRUPTION_BUDGETS, PODS
from app.sim.selectors import selects_labels
from app.sim.store import Change, Key, Object, Record

_SETTLE_SECONDS: Final = 0.02
"""Changes that come together are counted together."""
_DISRUPTED_SECONDS: Final = 120
"""How long an evicted pod is taken for gone although it has not been deleted."""


class DisruptionController:
    """Recounts the budgets of a namespace soon after its pods or budgets change."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._budgets = api.store[POD_DISRUPTION_BUDGETS.storage]
        self._kept: set[str] = set()
        """Uids of budgets whose status stays as given."""
        self._stale: set[str] = set()
        """Namespaces to recount."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begins to follow pods and budgets. Needs a running loop."""
        self._api.store[PODS.storage].listeners[self._on_pod] = None
        self._budgets.listeners[self._on_budget] = None
        for key, record in self._budgets.records.items():
            self._adopt(key, record)

    def stop(self) -> None:
        self._api.store[PODS.storage].listeners.pop(self._on_pod, None)
        self._budgets.listeners.pop(self._on_budget, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_pod(self, change: Change) -> None:
        if self._budgets.records:
            self._schedule(change.key[0])

    def _on_budget(self, change: Change) -> None:
        if change.type == "ADDED":
            self._adopt(change.key, change.record)
        elif change.type == "DELETED":
            self._kept.discard(change.record.value["metadata"]["uid"])
        else:
            self._schedule(change.key[0])

    def _adopt(self, key: Key, record: Record) -> None:
        if "observedGeneration" in record.value["status"]:
            self._kept.add(record.value["metadata"]["uid"])
        else:
            self._schedule(key[0])

    def _schedule(self, namespace: str) -> None:
        self._stale.add(namespace)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_SETTLE_SECONDS, self._recount)

    def _recount(self) -> None:
        self._timer = None
        namespaces, self._stale = self._stale, set()
        for namespace in namespaces:
            for record in list(self._budgets.ordered(namespace=namespace)):
                if record.value["metadata"]["uid"] not in self._kept:
                    self._update(namespace, record)

    def _update(self, namespace: str, budget: Record) -> None:
        selects = selects_labels(budget.value["spec"].get("selector"))
        pods = [
            record.value
            for record in self._api.store[PODS.storage].ordered(namespace=namespace)
            if selects(record.value["metadata"].get("labels") or {})
        ]
        status = budget_status(
            budget.value, pods, now=self._api.now(), timestamp=self._api.timestamp()
        )
        if status != budget.value["status"]:
            value = budget.value | {"metadata": dict(budget.value["metadata"]), "status": status}
            self._api.write(POD_DISRUPTION_BUDGETS, value)


def budget_status(budget: Object, pods: Iterable[Object], *, now: float, timestamp: str) -> Object:
    """Works out a budget's status from the pods it selects."""
    living = [pod for pod in pods if pod["status"].get("phase") not in ("Succeeded", "Failed")]
    disrupted = _still_disrupted(budget, living, now)
    healthy = sum(
        is_true(pod, "Ready")
        and not is_being_deleted(pod)
        and pod["metadata"]["name"] not in disrupted
        for pod in living
    )
    desired = _desired_healthy(budget["spec"], len(living))
    allowed = max(0, healthy - desired) if living else 0
    status = {
        "observedGeneration": budget["metadata"].get("generation", 1),
        **({"disruptedPods": disrupted} if disrupted else {}),
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": len(living),
    }
    status["conditions"] = _conditions(budget, allowed, timestamp)
    return status


def _still_disrupted(budget: Object, pods: Iterable[Object], now: float) -> dict[str, Any]:
    """The evicted pods that are neither gone nor being deleted, nor forgotten by now."""
    present = {pod["metadata"]["name"] for pod in pods if not is_being_deleted(pod)}
    noted = budget["status"].get("disruptedPods", {})
    return {
        name: when
        for name, when in noted.items()
        if name in present and now - parse_time(when) < _DISRUPTED_SECONDS
    }


def _desired_healthy(spec: Object, expected: int) -> int:
    if "maxUnavailable" in spec:
        return max(0, expected - _scaled(spec["maxUnavailable"], expected))
    return _scaled(spec.get("minAvailable", 1), expected)


def _scaled(value: Any, total: int) -> int:
    """Reads a number or a percentage of ``total``, rounded up."""
    if isinstance(value, int):
        return value
    return math.ceil(int(str(value).removesuffix("%")) * total / 100)


def _conditions(budget: Object, allowed: int, timestamp: str) -> list[Any]:
    known = budget["status"].get("conditions", [])
    condition = {
        "type": "DisruptionAllowed",
        "status": "True" if allowed else "False",
        "observedGeneration": budget["metadata"].get("generation", 1),
        "lastTransitionTime": timestamp,
        "reason": "SufficientPods" if allowed else "InsufficientPods",
        "message": "",
    }
    for before in known:
        if before["type"] == condition["type"] and before["status"] == condition["status"]:
            condition["lastTransitionTime"] = before["lastTransitionTime"]
    return with_condition(known, condition)
