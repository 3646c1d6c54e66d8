"""The disruption controller: computes the status of PodDisruptionBudgets.

It counts the pods that a budget selects. For a number of pods that must be available, the expected pods are those that
exist; otherwise, those that the workloads of the pods ask for. The status of a budget that was created with one stays
as it is.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from app.model.timestamps import parse_time
from app.sim.api import Api
from app.sim.controllers.controller import Controller
from app.sim.controllers.workloads.plan import scaled
from app.sim.objects import (
    controller_reference,
    has_ended,
    is_being_deleted,
    is_true,
    labels_of,
    transition_time,
    with_condition,
)
from app.sim.resources.kinds import POD_DISRUPTION_BUDGETS, PODS
from app.sim.selectors import selects_labels
from app.sim.store import Object, Record, StoreChange

_SETTLE_SECONDS: Final = 0.02
"""Changes within this time are counted together."""
_DISRUPTED_SECONDS: Final = 120
"""The time in which an evicted pod counts as disrupted although it is not deleted."""


class DisruptionController(Controller[str]):
    """Counts the pods of a namespace's budgets after its pods or budgets have changed. Its keys are namespaces."""

    def __init__(self, api: Api) -> None:
        super().__init__(api, {PODS: self._on_pod, POD_DISRUPTION_BUDGETS: self._on_budget})
        self._budgets = api.store[POD_DISRUPTION_BUDGETS.storage]
        self._given: set[str] = set()
        """Uids of the budgets that were created with a status."""

    def _on_pod(self, change: StoreChange) -> None:
        if self._budgets.records:
            self.enqueue(change.key[0], _SETTLE_SECONDS)

    def _on_budget(self, change: StoreChange) -> None:
        uid = change.record.value["metadata"]["uid"]
        if change.type == "DELETED":
            self._given.discard(uid)
        elif change.type == "ADDED" and "observedGeneration" in change.record.value["status"]:
            self._given.add(uid)
        else:
            self.enqueue(change.key[0], _SETTLE_SECONDS)

    def reconcile(self, key: str) -> None:
        for record in list(self._budgets.ordered(namespace=key)):
            if record.value["metadata"]["uid"] not in self._given:
                self._update(key, record)

    def _update(self, namespace: str, budget: Record) -> None:
        selects = selects_labels(budget.value["spec"].get("selector"))
        pods = [
            record.value
            for record in self._api.store[PODS.storage].ordered(namespace=namespace)
            if selects(labels_of(record.value))
        ]
        status = budget_status(
            budget.value,
            pods,
            expected=self._expected(budget.value["spec"], pods),
            now=self._api.now(),
            timestamp=self._api.timestamp(),
        )
        if status != budget.value["status"]:
            self._api.write_status(POD_DISRUPTION_BUDGETS, budget.value, status)

    def _expected(self, spec: Object, pods: Sequence[Object]) -> int:
        """How many pods there should be."""
        living = [pod for pod in pods if not has_ended(pod)]
        if "maxUnavailable" not in spec and isinstance(spec.get("minAvailable", 1), int):
            return len(living)
        wanted: dict[str, int] = {}
        for pod in living:
            owner = self._workload_of(pod)
            asked = None if owner is None else owner["spec"].get("replicas")
            if owner is None or not isinstance(asked, int):
                wanted[pod["metadata"]["uid"]] = 1
            else:
                wanted[owner["metadata"]["uid"]] = asked
        return sum(wanted.values())

    def _workload_of(self, pod: Object) -> Object | None:
        """The workload to which a pod belongs: the controller of its controller, if that has one."""
        owner = self._controller_of(pod)
        return None if owner is None else self._controller_of(owner) or owner

    def _controller_of(self, value: Object) -> Object | None:
        reference = controller_reference(value)
        if reference is None:
            return None
        kind = self._api.kinds.by_type.get((reference.get("apiVersion", ""), reference["kind"]))
        if kind is None or not kind.namespaced:
            return None
        found = self._api.find(kind, value["metadata"]["namespace"], reference["name"])
        if found is None or found.value["metadata"]["uid"] != reference["uid"]:
            return None
        return found.value


def budget_status(
    budget: Object, pods: Iterable[Object], *, expected: int, now: float, timestamp: str
) -> Object:
    """The status of a budget, from the pods that it selects, and the number that there should be."""
    living = [pod for pod in pods if not has_ended(pod)]
    disrupted = _still_disrupted(budget, living, now)
    healthy = sum(
        is_true(pod, "Ready")
        and not is_being_deleted(pod)
        and pod["metadata"]["name"] not in disrupted
        for pod in living
    )
    desired = _desired_healthy(budget["spec"], expected)
    allowed = max(0, healthy - desired) if living else 0
    status = {
        "observedGeneration": budget["metadata"].get("generation", 1),
        **({"disruptedPods": disrupted} if disrupted else {}),
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
    }
    status["conditions"] = _conditions(budget, allowed, timestamp)
    return status


def _still_disrupted(budget: Object, pods: Iterable[Object], now: float) -> dict[str, Any]:
    """The evicted pods that exist, are not being deleted, and were evicted less than _DISRUPTED_SECONDS ago."""
    present = {pod["metadata"]["name"] for pod in pods if not is_being_deleted(pod)}
    noted = budget["status"].get("disruptedPods", {})
    return {
        name: when
        for name, when in noted.items()
        if name in present and now - parse_time(when) < _DISRUPTED_SECONDS
    }


def _desired_healthy(spec: Object, expected: int) -> int:
    if "maxUnavailable" in spec:
        return max(0, expected - scaled(spec["maxUnavailable"], expected, round_up=True))
    return scaled(spec.get("minAvailable", 1), expected, round_up=True)


def _conditions(budget: Object, allowed: int, timestamp: str) -> list[Any]:
    known = budget["status"].get("conditions", [])
    type_, status = "DisruptionAllowed", "True" if allowed else "False"
    condition = {
        "type": type_,
        "status": status,
        "observedGeneration": budget["metadata"].get("generation", 1),
        "lastTransitionTime": transition_time(known, type_, status, timestamp),
        "reason": "SufficientPods" if allowed else "InsufficientPods",
        "message": "",
    }
    return with_condition(known, condition)
