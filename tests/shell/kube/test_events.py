"""The event recorder against a scripted server on a virtual clock."""

import asyncio
from contextlib import asynccontextmanager

import numpy as np
import pytest

from app.kube.errors import ConnectionFailed
from app.kube.event_series import ObjectRef, truncate_note
from app.kube.events import (
    ATTEMPTS,
    CROWD,
    IDLE,
    LONG_PATIENCE,
    MAX_SERIES,
    NORMAL,
    PATIENCE,
    QUEUE_SIZE,
    SWEEP,
    WARNING,
    WARNINGS,
    WORKERS,
    EventRecorder,
)
from app.kube.transport import STRATEGIC_MERGE_PATCH, Response
from app.model.budget import ByteBudget
from tests.shell.kube.fakes import FakeTransport, ok, refused

pytestmark = pytest.mark.looptime

EPOCH = 1_700_000_000.0
MODERN = "/apis/events.k8s.io/v1/namespaces/shop/events"
AWAY = ConnectionFailed("connection refused", sent=False)


def pod(name="web-1", version="5", **more):
    return ObjectRef(
        kind="Pod",
        api_version="v1",
        name=name,
        namespace="shop",
        uid="u1",
        resource_version=version,
        **more,
    )


def wall():
    return EPOCH + asyncio.get_running_loop().time()


def recorder_of(transport, **more):
    options = {"api": "events.k8s.io/v1", **more}
    return EventRecorder(transport, host="host-1", rng=np.random.default_rng(4), **options)


@asynccontextmanager
async def running(transport, **more):
    recorder = recorder_of(transport, **more)
    task = asyncio.create_task(recorder.run())
    try:
        yield recorder
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def record(recorder, regarding=None, *, note="0/3 nodes", **more):
    recorder.record(
        regarding or pod(),
        **{
            "type": WARNING,
            "reason": "FailedScheduling",
            "action": "Scheduling",
            "note": note,
            "reporting_controller": "default-scheduler",
            "now": wall(),
            **more,
        },
    )


def accept(sent):
    return ok(status=201)


async def test_an_event():
    transport = FakeTransport(handler=accept)
    async with running(transport) as recorder:
        record(recorder, related=ObjectRef(kind="Node", api_version="v1", name="n1"))
        assert await recorder.drain(1)
    (sent,) = transport.sent
    assert (sent.method, sent.path, sent.content_type) == ("POST", MODERN, "application/json")
    assert sent.body == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"web-1.{int(EPOCH * 1e9):x}", "namespace": "shop"},
        "eventTime": "2023-11-14T22:13:20.000000Z",
        "reportingController": "default-scheduler",
        "reportingInstance": "default-scheduler-host-1",
        "action": "Scheduling",
        "reason": "FailedScheduling",
        "type": "Warning",
        "note": "0/3 nodes",
        "regarding": {
            "kind": "Pod",
            "apiVersion": "v1",
            "name": "web-1",
            "namespace": "shop",
            "uid": "u1",
            "resourceVersion": "5",
        },
        "related": {"kind": "Node", "apiVersion": "v1", "name": "n1"},
    }
    assert recorder.statistics().sent == 1


async def test_the_second_makes_a_series_the_third_is_counted():
    transport = FakeTransport(handler=accept)
    async with running(transport) as recorder:
        for number in range(5):
            record(recorder, note=f"note {number}")
            await asyncio.sleep(1)
        await recorder.drain(1)
        assert [sent.method for sent in transport.sent] == ["POST", "PATCH", "PATCH"]
    created, second, last = transport.sent
    assert created.body["note"] == "note 0"
    assert "series" not in created.body
    assert second.path == f"{MODERN}/{created.body['metadata']['name']}"
    assert second.content_type == STRATEGIC_MERGE_PATCH
    assert second.body == {
        "series": {"count": 2, "lastObservedTime": "2023-11-14T22:13:21.000000Z"}
    }
    assert last.body == {"series": {"count": 5, "lastObservedTime": "2023-11-14T22:13:24.000000Z"}}


@pytest.mark.parametrize(
    "difference",
    [
        {"regarding": pod(version="6")},
        {"reason": "Other"},
        {"action": "Other"},
        {"type": NORMAL},
        {"reporting_controller": "other"},
        {"related": ObjectRef(kind="Node", api_version="v1", name="n1")},
    ],
    ids=lambda difference: next(iter(difference)),
)
async def test_what_differs_is_another_series(difference):
    transport = FakeTransport(handler=accept)
    async with running(transport) as recorder:
        record(recorder)
        record(recorder, **difference)
        await recorder.drain(1)
    assert [sent.method for sent in transport.sent] == ["POST", "POST"]
    names = {sent.body["metadata"]["name"] for sent in transport.sent}
    assert len(names) == 2, "made at the same nanosecond, named differently"


async def test_repetitions_while_the_first_waits_are_sent_with_it():
    transport = FakeTransport(handler=accept)
    async with running(transport) as recorder:
        for _ in range(3):
            record(recorder)
        await recorder.drain(1)
    (sent,) = transport.sent
    assert sent.body["series"]["count"] == 3


async def test_a_repetition_while_the_first_is_on_its_way_is_not_lost():
    transport = FakeTransport()

    def slow(sent):
        if sent.method == "POST":
            record(recorder)
        return ok()

    transport.handler = slow
    async with running(transport) as recorder:
        record(recorder)
        await asyncio.sleep(1)
    assert [sent.method for sent in transport.sent] == ["POST", "PATCH"]
    assert transport.sent[1].body["series"]["count"] == 2


async def test_a_series_that_vanished_is_made_again():
    answers = iter([ok(), refused(404), ok()])
    transport = FakeTransport(handler=lambda sent: next(answers))
    async with running(transport) as recorder:
        record(recorder)
        await asyncio.sleep(1)
        record(recorder)
        await asyncio.sleep(1)
    assert [sent.method for sent in transport.sent] == ["POST", "PATCH", "POST"]
    assert transport.sent[2].body["series"]["count"] == 2


async def test_a_running_series_is_sent_every_half_hour(looptime):
    transport = FakeTransport(handler=accept)
    async with running(transport) as recorder:
        for _ in range(70):
            record(recorder)
            await asyncio.sleep(60)
    counts = [sent.body["series"]["count"] for sent in transport.sent[1:]]
    assert len(counts) == 3
    assert counts == sorted(counts)
    assert recorder.statistics().series == 1


async def test_a_series_that_falls_silent_is_sent_once_more_and_forgotten():
    transport = FakeTransport(handler=accept)
    async with running(transport) as recorder:
        for _ in range(4):
            record(recorder)
            await asyncio.sleep(1)
        await asyncio.sleep(900)
        assert recorder.statistics().series == 0
        record(recorder)
        await recorder.drain(1)
    assert [sent.method for sent in transport.sent] == ["POST", "PATCH", "PATCH", "POST"]
    assert transport.sent[2].body["series"]["count"] == 4


async def test_a_single_event_is_forgotten_silently():
    transport = FakeTransport(handler=accept)
    async with running(transport) as recorder:
        record(recorder)
        await asyncio.sleep(900)
        assert recorder.statistics().series == 0
    assert len(transport.sent) == 1


async def test_a_full_queue_drops_and_counts():
    transport = FakeTransport(handler=accept)
    recorder = recorder_of(transport)
    for number in range(QUEUE_SIZE + 7):
        record(recorder, pod(f"p{number}"), type=NORMAL)
    figures = recorder.statistics()
    assert (figures.queued, figures.dropped, figures.series) == (QUEUE_SIZE, 7, QUEUE_SIZE)


async def test_warnings_leave_room_for_what_is_told_once():
    recorder = recorder_of(FakeTransport(handler=accept))
    for number in range(WARNINGS + 7):
        record(recorder, pod(f"p{number}"))
    assert (recorder.statistics().queued, recorder.statistics().dropped) == (WARNINGS, 7)
    for number in range(QUEUE_SIZE - WARNINGS):
        record(recorder, pod(f"p{number}"), type=NORMAL, reason="Preempted")
    assert (recorder.statistics().queued, recorder.statistics().dropped) == (QUEUE_SIZE, 7)


async def test_series_have_a_limit_of_bytes():
    budget, transport = ByteBudget(20_000), FakeTransport(handler=lambda _sent: ok(status=201))
    recorder = recorder_of(transport, budget=budget)
    for number in range(30):
        record(recorder, pod(f"p{number}"), note="x" * 1000)
        assert budget.used <= budget.limit
    held = recorder.statistics().queued
    assert 5 < held < 20
    assert recorder.statistics().dropped == 30 - held
    task = asyncio.create_task(recorder.run())
    await recorder.drain(60)
    assert budget.used > 0, "the series are remembered"
    await asyncio.sleep(IDLE + SWEEP)
    assert (recorder.statistics().series, budget.used) == (0, 0)
    record(recorder, pod("later"))
    assert recorder.statistics().queued == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_without_memory_the_oldest_series_that_have_been_sent_are_closed():
    budget, transport = ByteBudget(20_000), FakeTransport(handler=accept)
    async with running(transport, budget=budget) as recorder:
        for number in range(100):
            record(recorder, pod(f"p{number}"), note="x" * 1000)
            await asyncio.sleep(1)
        await recorder.drain(10)
        assert recorder.statistics().dropped == 0
        assert 5 < recorder.statistics().series < 20
        assert budget.used <= budget.limit
        record(recorder, pod("p99"), note="x" * 1000)
        await recorder.drain(10)
    posted = [sent.body["regarding"]["name"] for sent in transport.sent if sent.method == "POST"]
    assert posted == [f"p{number}" for number in range(100)]
    assert transport.sent[-1].method == "PATCH"


async def test_a_warning_that_was_dropped_is_told_by_the_next_attempt():
    transport = FakeTransport(handler=accept)
    recorder = recorder_of(transport)
    for number in range(WARNINGS + 1):
        record(recorder, pod(f"p{number}"))
    task = asyncio.create_task(recorder.run())
    assert await recorder.drain(100)
    record(recorder, pod(f"p{WARNINGS}"))
    assert await recorder.drain(1)
    task.cancel()
    assert transport.sent[-1].body["regarding"]["name"] == f"p{WARNINGS}"


async def test_events_give_way_for_a_while(looptime):
    busy = True
    transport = FakeTransport(handler=accept)
    async with running(transport) as recorder:
        recorder.defer_while(lambda: busy)
        for number in range(20):
            record(recorder, pod(f"p{number}"))
        await asyncio.sleep(1)
        assert not transport.sent
        busy = False
        await asyncio.sleep(0.1)
        assert len(transport.sent) == 20
        busy = True
        record(recorder, pod("late"))
        await asyncio.sleep(PATIENCE - 0.1)
        assert len(transport.sent) == 20
        await asyncio.sleep(0.2)
        assert len(transport.sent) == 21


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
async def test_a_wall_clock_that_is_set_makes_no_difference(step):
    """It may be set after an event was recorded: the time in the event is then ahead, or long past."""
    transport = FakeTransport(handler=accept)
    async with running(transport) as recorder:
        recorder.defer_while(lambda: True)
        record(recorder, now=wall() - step)
        await asyncio.sleep(PATIENCE - 0.1)
        assert transport.sent == []
        await asyncio.sleep(0.2)
        assert len(transport.sent) == 1
        await asyncio.sleep(IDLE - PATIENCE - 1)
        assert recorder.statistics().series == 1
        await asyncio.sleep(SWEEP + 1)
        assert recorder.statistics().series == 0


class Slow(FakeTransport):
    """Takes its time, and notes how many requests were under way at once at most."""

    under_way = most = 0

    async def request(self, *args, **kwargs):
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0.1)
        self.under_way -= 1
        return await super().request(*args, **kwargs)


async def test_a_lasting_backlog_leaves_events_one_request_at_a_time():
    transport = Slow(handler=accept)
    async with running(transport) as recorder:
        recorder.defer_while(lambda: True)
        for number in range(1000):
            record(recorder, pod(f"p{number}"))
        await asyncio.sleep(LONG_PATIENCE - 0.1)
        assert transport.most == 1
        assert 240 <= len(transport.sent) <= 250
        await asyncio.sleep(5)
        assert transport.most == WORKERS


async def test_where_very_many_events_wait_no_worker_is_more_patient_than_the_first():
    transport = Slow(handler=accept)
    async with running(transport) as recorder:
        recorder.defer_while(lambda: True)
        for number in range(CROWD + 100):
            record(recorder, pod(f"p{number}"))
        await asyncio.sleep(PATIENCE - 0.1)
        assert transport.most == 0
        await asyncio.sleep(0.2)
        assert transport.most == WORKERS


async def test_events_do_not_give_way_at_the_end(looptime):
    transport = FakeTransport(handler=accept)
    async with running(transport) as recorder:
        recorder.defer_while(lambda: True)
        record(recorder)
        assert await recorder.drain(1)
    assert looptime < 0.1
    assert len(transport.sent) == 1


async def test_the_number_of_series_is_bounded():
    transport = FakeTransport(handler=accept)
    async with running(transport) as recorder:
        for number in range(MAX_SERIES + 50):
            record(recorder, pod(f"p{number}"))
            if number % 500 == 0:
                await recorder.drain(10)
        await recorder.drain(10)
        figures = recorder.statistics()
    assert (figures.series, figures.dropped) == (MAX_SERIES, 0)


async def test_a_series_that_makes_room_for_others_is_told_to_the_end():
    transport = FakeTransport(handler=accept)
    async with running(transport) as recorder:
        for _ in range(3):
            record(recorder)
            await asyncio.sleep(1)
        assert [sent.method for sent in transport.sent] == ["POST", "PATCH"]
        for number in range(MAX_SERIES):
            record(recorder, pod(f"p{number}"))
            if number % 500 == 0:
                await asyncio.sleep(1)
        await asyncio.sleep(1)
    [told] = [sent for sent in transport.sent[2:] if sent.method == "PATCH"]
    assert told.body["series"]["count"] == 3


async def test_a_server_that_is_away_is_waited_for(looptime):
    answers = iter([AWAY, refused(503), AWAY, ok()])
    transport = FakeTransport(handler=lambda sent: next(answers))
    async with running(transport) as recorder:
        record(recorder)
        assert await recorder.drain(60)
    assert 30 <= looptime <= 37.5
    assert recorder.statistics().failed == 0


async def test_a_server_that_stays_away_is_given_up(looptime):
    transport = FakeTransport(handler=lambda sent: AWAY)
    async with running(transport) as recorder:
        record(recorder)
        assert await recorder.drain(1000)
    assert len(transport.sent) == ATTEMPTS
    assert recorder.statistics().failed == 1


@pytest.mark.parametrize("status", [400, 403, 409, 422, 429])
async def test_a_refusal_is_final(status):
    transport = FakeTransport(handler=lambda sent: refused(status))
    async with running(transport) as recorder:
        record(recorder)
        assert await recorder.drain(1)
    assert len(transport.sent) == 1
    assert recorder.statistics().failed == 1


async def test_a_second_occurrence_that_is_refused_is_not_sent_again_at_once():
    answers = iter([ok(status=201), refused(403), refused(403)])
    transport = FakeTransport(handler=lambda sent: next(answers))
    async with running(transport) as recorder:
        record(recorder)
        assert await recorder.drain(1)
        record(recorder)
        await asyncio.sleep(60)
    assert len(transport.sent) == 2
    assert recorder.statistics().failed == 1


async def test_who_has_lost_the_lease_does_not_try_for_ever():
    leads = True
    transport = FakeTransport(handler=accept)
    async with running(transport, may_write=lambda: leads) as recorder:
        record(recorder)
        assert await recorder.drain(1)
        leads = False
        record(recorder)
        assert await recorder.drain(1)
    assert len(transport.sent) == 1
    assert recorder.statistics().failed == 1


async def test_an_answer_that_was_lost_is_no_failure():
    transport = FakeTransport(handler=lambda sent: refused(409, reason="AlreadyExists"))
    async with running(transport) as recorder:
        record(recorder)
        assert await recorder.drain(1)
    assert (recorder.statistics().sent, recorder.statistics().failed) == (1, 0)


async def test_what_has_occurred_since_an_answer_was_lost_is_told():
    answers = iter([AWAY, refused(409, reason="AlreadyExists"), ok()])
    transport = FakeTransport(handler=lambda sent: next(answers))
    async with running(transport) as recorder:
        record(recorder)
        await asyncio.sleep(1)
        record(recorder)
        await asyncio.sleep(60)
    assert [sent.method for sent in transport.sent] == ["POST", "POST", "PATCH"]
    assert transport.sent[2].body["series"]["count"] == 2


async def test_one_event_that_waits_does_not_hold_up_the_others(looptime):
    transport = FakeTransport(
        handler=lambda sent: AWAY if sent.body["regarding"]["name"] == "bad" else ok()
    )
    async with running(transport) as recorder:
        record(recorder, pod("bad"))
        for number in range(20):
            record(recorder, pod(f"p{number}"))
        await asyncio.sleep(1)
        assert recorder.statistics().sent == 20


async def test_draining_ends_in_time(looptime, caplog):
    transport = FakeTransport(handler=lambda sent: AWAY)
    async with running(transport) as recorder:
        record(recorder)
        assert not await recorder.drain(3)
    assert looptime == 3
    assert "1 events were not sent in time" in caplog.text


async def test_who_does_not_lead_sends_nothing():
    transport = FakeTransport(handler=accept)
    async with running(transport, may_write=lambda: False) as recorder:
        record(recorder)
        assert await recorder.drain(1)
    assert transport.sent == []
    assert recorder.statistics().failed == 1


# ---------------------------------------------------------------- the older API


async def test_a_server_without_the_newer_api_gets_the_older():
    def old(sent):
        return refused(404) if sent.path == "/apis/events.k8s.io/v1" else ok()

    transport = FakeTransport(handler=old)
    async with running(transport, api=None) as recorder:
        record(recorder)
        await recorder.drain(1)
        record(recorder)
        await recorder.drain(1)
    _, created, patched = transport.sent
    assert created.path == "/api/v1/namespaces/shop/events"
    assert created.body == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": created.body["metadata"]["name"], "namespace": "shop"},
        "type": "Warning",
        "reason": "FailedScheduling",
        "action": "Scheduling",
        "message": "0/3 nodes",
        "involvedObject": {
            "kind": "Pod",
            "apiVersion": "v1",
            "name": "web-1",
            "namespace": "shop",
            "uid": "u1",
            "resourceVersion": "5",
        },
        "source": {"component": "default-scheduler"},
        "reportingComponent": "default-scheduler",
        "reportingInstance": "default-scheduler-host-1",
        "firstTimestamp": "2023-11-14T22:13:20Z",
        "lastTimestamp": "2023-11-14T22:13:20Z",
        "count": 1,
    }
    assert patched.body == {"count": 2, "lastTimestamp": "2023-11-14T22:13:20Z"}


async def test_the_api_is_asked_for_until_there_is_an_answer(looptime):
    answers = iter([AWAY, ok(), ok()])
    transport = FakeTransport(handler=lambda sent: next(answers))
    async with running(transport, api=None) as recorder:
        record(recorder)
        assert await recorder.drain(60)
    assert transport.sent[-1].path == MODERN
    assert 10 <= looptime <= 12.5


# ---------------------------------------------------------------- names and notes


async def test_an_event_about_something_without_a_namespace():
    transport = FakeTransport(handler=accept)
    async with running(transport) as recorder:
        record(recorder, ObjectRef(kind="Node", api_version="v1", name="n1"))
        await recorder.drain(1)
    (sent,) = transport.sent
    assert sent.path == "/apis/events.k8s.io/v1/namespaces/default/events"
    assert sent.body["metadata"]["namespace"] == "default"


async def test_a_name_that_would_not_do_is_replaced():
    transport = FakeTransport(handler=accept)
    async with running(transport) as recorder:
        record(recorder, pod("Not_A_Subdomain"))
        record(recorder, pod("x" * 250))
        await recorder.drain(1)
    for sent in transport.sent:
        assert len(sent.body["metadata"]["name"]) == 36


async def test_a_long_instance_is_cut():
    transport = FakeTransport(handler=accept)
    async with running(transport) as recorder:
        record(recorder, reporting_controller="c" * 200)
        await recorder.drain(1)
    assert len(transport.sent[0].body["reportingInstance"]) == 128


@pytest.mark.parametrize(
    ("note", "expected"),
    [
        ("short 100% fine %s", "short 100% fine %s"),
        ("x" * 1024, "x" * 1024),
        ("caf\ud83d", "caf?"),
        ("x" * 1025, "x" * 1020 + " ..."),
        ("é" * 600, "é" * 510 + " ..."),
        ("x" + "é" * 600, "x" + "é" * 509 + " ..."),
    ],
    ids=[
        "short",
        "just fits",
        "half a pair of surrogates",
        "one too many",
        "two bytes each",
        "not cut within a character",
    ],
)
def test_notes_are_cut_to_what_a_server_accepts(note, expected):
    assert truncate_note(note) == expected
    assert len(truncate_note(note).encode()) <= 1024


async def test_an_event_that_no_api_server_has_answered_counts_as_failed():
    transport = FakeTransport(handler=lambda _sent: Response(200, b"<html>Sign in</html>"))
    async with running(transport) as recorder:
        record(recorder)
        await recorder.drain(10)
    assert (recorder.statistics().sent, recorder.statistics().failed) == (0, 1)


async def test_a_series_that_no_api_server_has_answered_counts_as_failed():
    def answer(sent):
        return ok(status=201) if sent.method == "POST" else Response(200, b"<html>Sign in</html>")

    async with running(FakeTransport(handler=answer)) as recorder:
        for _ in range(2):
            record(recorder)
            await asyncio.sleep(1)
        await recorder.drain(10)
    assert recorder.statistics().sent == 1
    assert recorder.statistics().failed
