"""Evictions and disruption budgets."""

import asyncio
from typing import Any

import pytest

from app.sim import EmbeddedCluster
from app.sim.controllers.disruption import budget_status
from tests.shell.sim.client import BUDGETS, PODS, Answer, Client, pod

LABELS = {"app": "web"}
BUDGETED = {"observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}


async def running(client: Client, name: str, *, ready: bool = True) -> None:
    await client.create(PODS, pod(name, labels=LABELS, nodeName="n"))
    conditions = [{"type": "Ready", "status": str(ready)}]
    status = {"status": {"phase": "Running", "conditions": conditions}}
    await client.patch(f"{PODS}/{name}/status", status)


async def budget(client: Client, name: str = "b", status: Any = None, **spec: Any) -> None:
    spec = {"selector": {"matchLabels": LABELS}} | spec
    body = {"metadata": {"name": name}, "spec": spec} | ({"status": status} if status else {})
    await client.create(BUDGETS, body)


async def evict(client: Client, name: str, **options: Any) -> Answer:
    body = {
        "kind": "Eviction",
        "apiVersion": "policy/v1",
        "metadata": {"name": name},
        "deleteOptions": options,
    }
    return await client.post(f"{PODS}/{name}/eviction", body)


async def is_going(client: Client, name: str) -> bool:
    return "deletionTimestamp" in (await client.get(f"{PODS}/{name}")).body["metadata"]


async def test_without_a_budget_a_pod_goes(client: Client) -> None:
    await running(client, "p")
    answer = await evict(client, "p", gracePeriodSeconds=3)
    assert (answer.status, answer.body["status"]) == (201, "Success")
    assert (await client.get(f"{PODS}/p")).body["metadata"]["deletionGracePeriodSeconds"] == 3


async def test_a_budget_is_spent_and_then_says_no(client: Client) -> None:
    await running(client, "p")
    await running(client, "q")
    await budget(client, status=BUDGETED | {"disruptionsAllowed": 1})
    assert (await evict(client, "p")).status == 201
    status = (await client.get(f"{BUDGETS}/b")).body["status"]
    assert status["disruptionsAllowed"] == 0
    assert list(status["disruptedPods"]) == ["p"]
    assert status["conditions"][0]["reason"] == "InsufficientPods"
    answer = await evict(client, "q")
    assert (answer.status, answer.body["reason"]) == (429, "TooManyRequests")
    assert answer.message == "Cannot evict pod as it would violate the pod's disruption budget."
    (cause,) = answer.body["details"]["causes"]
    assert cause == {
        "reason": "DisruptionBudget",
        "message": "The disruption budget b needs 1 healthy pods and has 1 currently",
    }
    assert not await is_going(client, "q")


async def test_dry_run_spends_nothing(client: Client) -> None:
    await running(client, "p")
    await budget(client, status=BUDGETED | {"disruptionsAllowed": 1})
    assert (await evict(client, "p", dryRun=["All"])).status == 201
    assert (await client.get(f"{BUDGETS}/b")).body["status"]["disruptionsAllowed"] == 1
    assert not await is_going(client, "p")


async def test_a_budget_not_yet_counted_says_later(client: Client) -> None:
    await running(client, "p")
    await budget(client, minAvailable=1)
    answer = await evict(client, "p")
    assert answer.status == 429
    assert answer.body["details"]["retryAfterSeconds"] == 10
    assert "still being processed" in answer.body["details"]["causes"][0]["message"]


async def test_several_budgets_are_too_many(client: Client) -> None:
    await running(client, "p")
    await budget(client, "a", status=BUDGETED | {"disruptionsAllowed": 1})
    await budget(client, "b", status=BUDGETED | {"disruptionsAllowed": 1})
    answer = await evict(client, "p")
    assert answer.status == 500
    assert "more than one PodDisruptionBudget" in answer.message


@pytest.mark.parametrize("case", ["pending", "finished", "deleted"])
async def test_pods_that_disrupt_nothing_need_no_budget(client: Client, case: str) -> None:
    await budget(client, status=BUDGETED)
    await running(client, "p")
    if case == "deleted":
        await client.delete(f"{PODS}/p")
    else:
        phase = {"pending": "Pending", "finished": "Succeeded"}[case]
        await client.patch(f"{PODS}/p/status", {"status": {"phase": phase}})
    assert (await evict(client, "p")).status == 201


@pytest.mark.parametrize(
    ("policy", "healthy", "status"),
    [("IfHealthyBudget", 1, 201), ("IfHealthyBudget", 0, 429), ("AlwaysAllow", 0, 201)],
)
async def test_pods_that_are_not_ready(client: Client, policy, healthy, status) -> None:
    await running(client, "p", ready=False)
    given = BUDGETED | {"currentHealthy": healthy}
    await budget(client, status=given, unhealthyPodEvictionPolicy=policy)
    assert (await evict(client, "p")).status == status


async def test_evictions_that_are_refused(client: Client) -> None:
    await running(client, "p")
    assert (await evict(client, "nope")).status == 404
    assert (await client.post(f"{PODS}/p/eviction", {"metadata": {"name": "q"}})).status == 400
    assert (await client.post(f"{PODS}/p/eviction", [])).status == 400
    assert (await client.get(f"{PODS}/p/eviction")).status == 405
    wrong = {"deleteOptions": {"preconditions": {"uid": "x"}}}
    assert (await client.post(f"{PODS}/p/eviction", wrong)).status == 409


@pytest.mark.looptime
async def test_the_controller_keeps_count(client: Client, cluster: EmbeddedCluster) -> None:
    await budget(client, minAvailable=1)
    for name in ("p", "q"):
        await running(client, name)
    await asyncio.sleep(1)
    status = (await client.get(f"{BUDGETS}/b")).body["status"]
    assert (status["currentHealthy"], status["disruptionsAllowed"]) == (2, 1)
    assert status["observedGeneration"] == 1
    assert (await evict(client, "p")).status == 201
    assert (await evict(client, "q")).status == 429
    await asyncio.sleep(1)
    status = (await client.get(f"{BUDGETS}/b")).body["status"]
    assert (status["currentHealthy"], status["disruptionsAllowed"]) == (1, 0)
    await client.patch(f"{BUDGETS}/b", {"spec": {"minAvailable": 0}})
    await asyncio.sleep(1)
    status = (await client.get(f"{BUDGETS}/b")).body["status"]
    assert (status["observedGeneration"], status["disruptionsAllowed"]) == (2, 1)


@pytest.mark.looptime
async def test_a_status_that_was_given_stays(client: Client) -> None:
    await budget(client, status={"disruptionsAllowed": 3}, minAvailable=1)
    await running(client, "p")
    await asyncio.sleep(1)
    status = (await client.get(f"{BUDGETS}/b")).body["status"]
    assert (status["disruptionsAllowed"], status["currentHealthy"]) == (3, 0)


def counted(spec: dict[str, Any], *, ready: int, others: int = 0) -> tuple[int, int]:
    pods = [
        {
            "metadata": {"name": f"p{number}"},
            "status": {"conditions": [{"type": "Ready", "status": str(number < ready)}]},
        }
        for number in range(ready + others)
    ]
    value = {"metadata": {"generation": 1}, "spec": spec, "status": {}}
    status = budget_status(value, pods, expected=len(pods), now=0, timestamp="1970-01-01T00:00:00Z")
    return status["desiredHealthy"], status["disruptionsAllowed"]


@pytest.mark.parametrize(
    ("spec", "ready", "others", "expected"),
    [
        ({"minAvailable": 2}, 3, 0, (2, 1)),
        ({"minAvailable": 5}, 3, 0, (5, 0)),
        ({"minAvailable": "50%"}, 3, 0, (2, 1)),
        ({"maxUnavailable": 1}, 3, 0, (2, 1)),
        ({"maxUnavailable": 1}, 2, 1, (2, 0)),
        ({"maxUnavailable": "34%"}, 3, 0, (1, 2)),
        ({"maxUnavailable": 9}, 3, 0, (0, 3)),
        ({"minAvailable": 0}, 0, 0, (0, 0)),
    ],
)
def test_counting(spec, ready, others, expected) -> None:
    assert counted(spec, ready=ready, others=others) == expected


def test_disrupted_pods_are_forgotten_after_a_while() -> None:
    ready = [{"type": "Ready", "status": "True"}]
    pods = [{"metadata": {"name": name}, "status": {"conditions": ready}} for name in "ab"]
    disrupted = {"a": "1970-01-01T00:00:00Z", "gone": "1970-01-01T00:00:00Z"}
    value = {"metadata": {}, "spec": {"minAvailable": 1}, "status": {"disruptedPods": disrupted}}
    soon = budget_status(value, pods, expected=2, now=60, timestamp="1970-01-01T00:01:00Z")
    assert (soon["currentHealthy"], list(soon["disruptedPods"])) == (1, ["a"])
    late = budget_status(value, pods, expected=2, now=180, timestamp="1970-01-01T00:03:00Z")
    assert late["currentHealthy"] == 2
    assert "disruptedPods" not in late


@pytest.mark.parametrize(
    ("spec", "status", "text"),
    [
        ({"minAvailable": "some"}, 422, "must be a number or a percentage"),
        ({"minAvailable": -1}, 422, "must be a number or a percentage"),
        ({"minAvailable": 1, "maxUnavailable": 1}, 422, "cannot be both set"),
        (
            {"selector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}},
            400,
            "not a valid",
        ),
        ({"selector": "all"}, 400, "unexpected form"),
    ],
)
async def test_budgets_that_cannot_be_counted(client: Client, spec, status, text) -> None:
    answer = await client.post(BUDGETS, {"metadata": {"name": "b"}, "spec": spec})
    assert answer.status == status
    assert text in answer.message
