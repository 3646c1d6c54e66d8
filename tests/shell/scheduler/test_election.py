"""Leader election: the rules as plain functions, then electors against one lease on a virtual clock.

Each elector has a clock of its own, which may be off; only the lease is shared. The server is a fake that checks
versions.
"""

import asyncio
import logging
from contextlib import asynccontextmanager
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from app.kube.errors import (
    AlreadyExists,
    Conflict,
    ConnectionFailed,
    Forbidden,
    KubeApiError,
    ServerUnavailable,
)
from app.kube.leases import MAX_INT32, Lease, LeaseRecord
from app.model.timestamps import format_micro_time
from app.scheduler.election.elector import (
    FORBIDDEN_RETRY,
    LAST_ATTEMPT_SECONDS,
    RELEASE_SECONDS,
    Callbacks,
    ElectionOutcome,
    LeaseElector,
    new_identity,
    shown,
)
from app.scheduler.election.rules import (
    CreateLease,
    ElectionSettings,
    Observation,
    UpdateLease,
    Wait,
    decide,
    may_renew_unread,
    next_attempt,
    observe,
    overdue,
    released,
    renewed,
    request_timeout,
)

ME = ElectionSettings("me")
WALL = 1_700_000_000.0


def micro(seconds):
    return format_micro_time(WALL + seconds)


NOW = micro(0)


def record(holder="other", **more):
    return LeaseRecord(**{"holder": holder, "duration_seconds": 15, "transitions": 4, **more})


# ---------------------------------------------------------------- the rules


@pytest.mark.parametrize(
    ("observed", "now", "expected"),
    [
        pytest.param(None, 0, CreateLease, id="no lease"),
        pytest.param(Observation(record(), 100), 100, Wait(115), id="held, just seen"),
        pytest.param(Observation(record(), 100), 114.9, Wait(115), id="held, almost over"),
        pytest.param(Observation(record(), 100), 115, UpdateLease, id="run out"),
        pytest.param(Observation(record(""), 100), 100, UpdateLease, id="released"),
        pytest.param(Observation(record("me"), 100), 100, UpdateLease, id="ours"),
        pytest.param(Observation(record("me"), 100), 999, UpdateLease, id="ours, long ago"),
        pytest.param(
            Observation(msgspec.structs.replace(record(), duration_seconds=60), 100),
            159,
            Wait(160),
            id="the holder's duration counts, not ours",
        ),
        pytest.param(
            Observation(record(renew_time=micro(9999)), 100),
            115,
            UpdateLease,
            id="remote clocks do not",
        ),
        *(
            pytest.param(
                Observation(record(duration_seconds=0), 100),
                now,
                expected,
                id=f"no duration, {now}",
            )
            for now, expected in ((100, Wait(115)), (114.9, Wait(115)), (115, UpdateLease))
        ),
        pytest.param(
            Observation(record(duration_seconds=1), 100), 101, UpdateLease, id="a short duration"
        ),
        pytest.param(
            Observation(record(duration_seconds=MAX_INT32), 100),
            10_000,
            Wait(100 + MAX_INT32),
            id="a duration of 68 years",
        ),
    ],
)
def test_what_to_do(observed, now, expected):
    action = decide(observed, ME, exists=observed is not None, now=now, wall=WALL)
    assert action == expected if isinstance(expected, Wait) else isinstance(action, expected)


def test_a_new_lease():
    assert decide(None, ME, exists=False, now=0, wall=WALL) == CreateLease(
        LeaseRecord("me", 15, acquire_time=NOW, renew_time=NOW, transitions=0)
    )


@pytest.mark.parametrize(
    ("observed", "until"),
    [
        (record(), 115),
        (record(duration_seconds=0), 115),
        (record(duration_seconds=4), 104),
        (record(duration_seconds=MAX_INT32), 115),
        (record(""), 100),
        (record("me"), 100),
    ],
    ids=["held", "no duration", "short", "68 years", "released", "ours"],
)
def test_a_deleted_lease_is_made_again_when_its_holder_cannot_lead_any_more(observed, until):
    """The holder may be cut off: it does not know yet."""
    seen = Observation(observed, 100)
    for now in (100, 103.9, 104, 114.9, 115, 999):
        action = decide(seen, ME, exists=False, now=now, wall=WALL)
        assert action == Wait(until) if now < until else isinstance(action, CreateLease)


@pytest.mark.parametrize(
    ("before", "after"), [(0, 1), (MAX_INT32 - 1, MAX_INT32), (MAX_INT32,) * 2]
)
def test_taking_counts_a_transition(before, after):
    old = Observation(
        record("", acquire_time="1", renew_time="2", strategy="kept", transitions=before), 0
    )
    assert decide(old, ME, exists=True, now=0, wall=WALL) == UpdateLease(
        LeaseRecord("me", 15, NOW, NOW, transitions=after, strategy="kept")
    )


def test_renewing_keeps_what_was():
    old = Observation(record("me", acquire_time="1", renew_time="2"), 0)
    expected = LeaseRecord("me", 15, acquire_time="1", renew_time=NOW, transitions=4)
    assert decide(old, ME, exists=True, now=0, wall=WALL) == UpdateLease(expected)
    assert renewed(old.record, ME, WALL) == expected
    assert renewed(record("me"), ME, WALL).acquire_time == NOW


def test_releasing():
    old = record("me", acquire_time="1", renew_time="2")
    assert released(old, WALL) == LeaseRecord("", 1, NOW, NOW, transitions=4)


def test_durations_are_whole_seconds_on_the_lease():
    settings = ElectionSettings("me", lease_duration=15.9)
    assert decide(None, settings, exists=False, now=0, wall=WALL).record.duration_seconds == 15


@pytest.mark.parametrize(
    ("observed", "now", "seconds"),
    [
        (record(), 114, 0),
        (record(), 115, 0),
        (record(duration_seconds=60), 114, 0),
        (record(duration_seconds=60), 115, 15),
        (record(duration_seconds=60), 159, 59),
        (record(duration_seconds=60), 160, 0),
        (record("", duration_seconds=60), 115, 0),
    ],
)
def test_who_is_silent_and_trusted_all_the_same(observed, now, seconds):
    assert overdue(Observation(observed, 100), ME, now=now) == seconds


def test_an_observation_lasts_until_something_changes():
    first = observe(record(renew_time="1"), None, 100)
    assert observe(record(renew_time="1"), first, 107) is first
    assert observe(record(renew_time="2"), first, 107) == Observation(record(renew_time="2"), 107)


@pytest.mark.parametrize(
    ("observed", "now", "expected"),
    [
        (None, 0, False),
        (Observation(record("me"), 100), 114, True),
        (Observation(record("me"), 100), 115, False),
        (Observation(record("other"), 100), 101, False),
    ],
)
def test_when_a_renewal_needs_no_reading(observed, now, expected):
    assert may_renew_unread(observed, ME, now=now) is expected


@pytest.mark.parametrize(
    ("observed", "now", "chance", "expected"),
    [
        (None, 0, 0.0, 2.0),
        (None, 0, 0.999999, 4.4),
        (Observation(record(), 100), 101, 0.5, 3.2),
        (Observation(record(), 100), 114, 0.5, 1.0),
        (Observation(record(), 100), 120, 0.5, 3.2),
        (Observation(record(""), 100), 114, 0.5, 3.2),
    ],
    ids=["least", "most", "far from the end", "near the end", "after the end", "released"],
)
def test_when_to_try_next(observed, now, chance, expected):
    assert next_attempt(observed, ME, now=now, chance=chance) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"lease_duration": 10}, "leaseDuration, in whole seconds, must be greater"),
        ({"lease_duration": 10.9}, "leaseDuration, in whole seconds, must be greater"),
        ({"lease_duration": 2.0**31}, "leaseDuration must be at most 2147483647 seconds"),
        ({"renew_deadline": 2.4}, r"renewDeadline must be greater than retryPeriod\*JitterFactor"),
        ({"retry_period": 0}, "retryPeriod must be greater than zero"),
        ({"identity": ""}, "identity must not be empty"),
        (
            {"lease_duration": 0.9, "renew_deadline": 0.5, "retry_period": 0.1},
            "leaseDuration, in whole seconds, must be greater",
        ),
    ],
)
def test_settings_that_cannot_work(changes, problem):
    with pytest.raises(ValueError, match=problem):
        ElectionSettings(**{"identity": "me", **changes})


def test_a_request_may_take_half_the_deadline_but_a_second_at_least():
    assert request_timeout(renew_deadline=10) == 5
    assert request_timeout(renew_deadline=1.5) == 1


def test_identities_differ():
    first, second = new_identity("host-1"), new_identity("host-1")
    assert first.startswith("host-1_")
    assert first != second


# ---------------------------------------------------------------- fakes


class Server:
    """One lease, with versions and watches."""

    def __init__(self):
        self.lease = None
        self.version = 0
        self.writers = []
        self.reads = 0
        self.watchers = set()

    def write(self, lease_record, version, who):
        if version is None and self.lease is not None:
            raise AlreadyExists("exists", status=409)
        if version is not None and (self.lease is None or str(self.version) != version):
            raise Conflict("changed", status=409)
        self.version += 1
        manifest = {"metadata": {"uid": "lease-uid", "resourceVersion": str(self.version)}}
        self.lease = Lease(lease_record, manifest)
        self.writers.append((round(asyncio.get_running_loop().time(), 3), who, lease_record.holder))
        self.tell(lease_record)
        return self.lease

    def delete(self):
        self.lease = None
        self.tell(None)

    def tell(self, change):
        for queue in self.watchers:
            queue.put_nowait(change)

    @property
    def holder(self):
        return self.lease.record.holder if self.lease is not None else None


class Store:
    """One elector's view of the server, which may be cut off, slow, or lose answers."""

    namespace, name = "kube-system", "kube-scheduler"

    def __init__(self, server, who, *, watch=True):
        self.server = server
        self.who = who
        self.watch = watch
        self.watches = 0
        self.cut_off = False
        self.lose_answers = 0
        self.latency = 0.0
        self.refuse_writes = None
        self.garbage = False

    async def _exchange(self):
        await asyncio.sleep(self.latency)
        if self.cut_off:
            await asyncio.sleep(5)
            raise ConnectionFailed("no answer in time", sent=True)

    async def get(self):
        await self._exchange()
        self.server.reads += 1
        return self.server.lease

    async def create(self, lease_record):
        await self._exchange()
        return self._answer(self.server.write(lease_record, None, self.who))

    async def update(self, lease, lease_record):
        await self._exchange()
        if self.refuse_writes is not None:
            raise self.refuse_writes
        return self._answer(self.server.write(lease_record, lease.resource_version, self.who))

    def _answer(self, lease):
        if self.lose_answers:
            self.lose_answers -= 1
            raise ServerUnavailable("answer lost", status=504)
        if self.garbage:
            return msgspec.structs.replace(lease, record=LeaseRecord())
        return lease

    async def changes(self, rng):
        self.watches += 1
        if not self.watch:
            raise Forbidden("may not watch", status=403)
        if self.cut_off:
            raise ConnectionFailed("refused", sent=False)
        queue = asyncio.Queue()
        self.server.watchers.add(queue)
        try:
            if self.server.lease is not None:
                yield self.server.lease.record
            while True:
                change = await queue.get()
                if self.cut_off:
                    raise ConnectionFailed("reset", sent=True)
                yield change
        finally:
            self.server.watchers.discard(queue)


class SkewedClock:
    """The loop's time, off by a constant; ``jump`` is a freeze that timers did not see yet."""

    def __init__(self, offset=0.0, wall_offset=0.0):
        self.offset = offset
        self.wall_offset = wall_offset

    def monotonic(self):
        return asyncio.get_running_loop().time() + self.offset

    def wall(self):
        return WALL + asyncio.get_running_loop().time() + self.wall_offset

    def jump(self, seconds):
        self.offset += seconds


class Candidate:
    """An elector with everything around it."""

    def __init__(
        self, server, who, *, clock=None, watch=True, seed=1, may_release=lambda: True, **settings
    ):
        self.who = who
        self.clock = clock or SkewedClock()
        self.store = Store(server, who, watch=watch)
        self.told = []
        self.events = []
        self.elector = LeaseElector(
            self.store,
            ElectionSettings(who, **settings),
            clock=self.clock,
            rng=np.random.default_rng(seed),
            callbacks=Callbacks(
                on_started_leading=lambda: self.note("started"),
                on_stopped_leading=lambda: self.note("stopped"),
                may_release=may_release,
            ),
            events=SimpleNamespace(
                record=lambda regarding, **event: self.events.append((regarding, event))
            ),
            component="my-scheduler",
        )
        self.task = None

    def note(self, what):
        self.told.append((asyncio.get_running_loop().time(), what))

    @property
    def leads(self):
        return self.elector.is_leader_now()

    def start(self):
        self.task = asyncio.create_task(self.elector.run())
        return self

    async def kill(self):
        """Ends it without a reason, as SIGKILL would."""
        self.store.cut_off = True
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@asynccontextmanager
async def candidates(*people):
    for person in people:
        person.start()
    try:
        yield people
    finally:
        for person in people:
            await person.kill()


pytest_loop = pytest.mark.looptime


# ---------------------------------------------------------------- one elector


@pytest_loop
async def test_the_first_makes_the_lease_and_renews_it():
    server = Server()
    async with candidates(Candidate(server, "a")) as (a,):
        await asyncio.sleep(9)
        assert a.leads
    assert a.told[:1] == [(0, "started")]
    assert [when for when, _, _ in server.writers] == [0, 0, 2, 4, 6, 8]
    assert server.lease.record.transitions == 0
    assert server.lease.record.acquire_time == micro(0)
    assert server.lease.record.renew_time == micro(8)
    assert server.reads == 1, "a renewal is one request"


@pytest_loop
async def test_only_a_leader_writes_the_lease_when_its_annotations_have_changed():
    server = Server()
    async with candidates(Candidate(server, "a"), Candidate(server, "b")) as people:
        await asyncio.sleep(2.5)
        for person in people:
            person.elector.renew()
        await asyncio.sleep(2.1)
    assert [(when, who) for when, who, _ in server.writers if when > 2] == [(2.5, "a"), (4.5, "a")]


@pytest_loop
async def test_stopping_releases_the_lease():
    server = Server()
    a = Candidate(server, "a").start()
    await asyncio.sleep(5)
    a.elector.stop()
    assert await a.task is ElectionOutcome.STOPPED
    assert asyncio.get_running_loop().time() == 5
    assert server.lease.record == LeaseRecord("", 1, micro(5), micro(5), transitions=0)
    assert not a.leads
    assert a.told[-1] == (5, "stopped")


@pytest_loop
async def test_writing_ends_before_the_release_begins():
    server = Server()
    a = Candidate(server, "a").start()
    await asyncio.sleep(1)
    a.store.latency = 1
    a.elector.stop()
    await asyncio.sleep(0.5)
    assert server.holder == "a"
    assert not a.leads
    assert a.told[-1] == (1, "stopped")
    await a.task
    assert server.holder == ""


@pytest_loop
async def test_cancelling_releases_the_lease_too():
    server = Server()
    a = Candidate(server, "a").start()
    await asyncio.sleep(5)
    a.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await a.task
    assert server.holder == ""
    assert a.told[-1] == (5, "stopped")


@pytest_loop
async def test_events_are_about_the_lease():
    server = Server()
    a = Candidate(server, "a").start()
    await asyncio.sleep(1)
    a.elector.stop()
    await a.task
    assert [event["note"] for _, event in a.events] == ["a became leader", "a stopped leading"]
    regarding, event = a.events[0]
    assert (regarding.kind, regarding.api_version) == ("Lease", "coordination.k8s.io/v1")
    assert (regarding.namespace, regarding.name) == ("kube-system", "kube-scheduler")
    assert regarding.uid == "lease-uid"
    assert (event["type"], event["reason"]) == ("Normal", "LeaderElection")
    assert event["reporting_controller"] == "my-scheduler"


@pytest_loop
async def test_a_leader_that_cannot_renew_gives_up():
    server = Server()
    a = Candidate(server, "a").start()
    await asyncio.sleep(5)
    a.store.cut_off = True
    assert await a.task is ElectionOutcome.LOST
    # Last renewed at 4; from 6 on it tries for ten seconds, then the release fails as well.
    started, stopped = a.told
    assert (started[1], stopped[1]) == ("started", "stopped")
    assert 16 <= stopped[0] <= 26.001
    assert server.holder == "a"


@pytest_loop
async def test_trust_in_a_renewal_ends_with_the_deadline():
    server = Server()
    async with candidates(Candidate(server, "a")) as (a,):
        await asyncio.sleep(5)
        a.store.cut_off = True
        await asyncio.sleep(8.99)
        assert a.leads
        await asyncio.sleep(0.02)
        assert not a.leads, "ten seconds after the renewal at 4"


@pytest_loop
async def test_trust_is_counted_from_the_sending():
    server = Server()
    a = Candidate(server, "a")
    a.store.latency = 3
    async with candidates(a):
        await asyncio.sleep(6.5)
        assert a.leads, "read at 3, written at 6"
        a.store.cut_off = True
        await asyncio.sleep(6.6)
        assert not a.leads, "sent at 3, so trusted until 13"


@pytest_loop
async def test_an_answer_that_was_lost_is_found_out():
    server = Server()
    a = Candidate(server, "a")
    a.store.lose_answers = 1
    async with candidates(a):
        await asyncio.sleep(5)
        assert a.leads
        assert server.lease.record.transitions == 0


@pytest_loop
async def test_a_lease_taken_without_knowing_is_released_at_the_end():
    server = Server()
    a = Candidate(server, "a")
    a.store.lose_answers = 1
    a.start()
    await asyncio.sleep(1)
    assert server.holder == "a"
    a.elector.stop()
    await a.task
    assert server.holder == ""


@pytest_loop
@pytest.mark.parametrize("end", ["stop", "cut off"])
async def test_a_lease_that_may_not_be_released_runs_out(end, caplog):
    """Pods may become bound that the next leader does not know of."""
    server = Server()
    a, b = Candidate(server, "a", may_release=lambda: False), Candidate(server, "b")
    async with candidates(a, b):
        await asyncio.sleep(1)
        assert a.leads
        if end == "stop":
            a.elector.stop()
        else:
            a.store.cut_off = True
        await a.task
        assert not a.leads
        assert server.holder == "a"
        assert "kube-scheduler is not released: bindings were sent" in caplog.text
        written = server.writers[-1][0]
        while not b.leads:
            await asyncio.sleep(0.1)
        assert asyncio.get_running_loop().time() - written >= ME.lease_duration


@pytest_loop
async def test_a_passing_failure_costs_one_attempt():
    server = Server()
    async with candidates(Candidate(server, "a")) as (a,):
        await asyncio.sleep(3)
        a.store.refuse_writes = ServerUnavailable("busy", status=503)
        await asyncio.sleep(4)
        a.store.refuse_writes = None
        await asyncio.sleep(3)
        assert a.leads
        assert a.elector.statistics().slow_path > 0


@pytest_loop
async def test_who_may_not_write_the_lease_goes_on_trying():
    server = Server()
    server.write(record(""), None, "setup")
    a = Candidate(server, "a")
    a.store.refuse_writes = Forbidden("no", status=403)
    async with candidates(a):
        await asyncio.sleep(60)
        assert not a.leads
        assert 60 / 4.4 <= server.reads <= 60 / 2 + 2
        a.store.refuse_writes = None
        await asyncio.sleep(4.4)
        assert a.leads


@pytest_loop
async def test_a_callback_that_fails_releases_the_lease():
    server = Server()

    def fail():
        raise RuntimeError("a bug")

    elector = LeaseElector(
        Store(server, "a"),
        ElectionSettings("a"),
        clock=SkewedClock(),
        rng=np.random.default_rng(1),
        callbacks=Callbacks(on_started_leading=fail),
    )
    with pytest.raises(ExceptionGroup) as caught:
        await elector.run()
    assert caught.group_contains(RuntimeError, match="a bug")
    assert server.holder == ""


# ---------------------------------------------------------------- several electors


@pytest_loop
async def test_a_newcomer_waits_for_a_whole_duration():
    server = Server()
    server.write(record("long dead", renew_time="1"), None, "setup")
    async with candidates(Candidate(server, "a")) as (a,):
        await asyncio.sleep(14.99)
        assert not a.leads
        await asyncio.sleep(0.02)
        assert a.leads
    assert server.lease.record.transitions == 5


@pytest_loop
@pytest.mark.parametrize("skew", [-5000.0, 5000.0])
async def test_clocks_that_are_off_make_no_difference(skew):
    server = Server()
    a = Candidate(server, "a", clock=SkewedClock(1234.5))
    b = Candidate(server, "b", clock=SkewedClock(skew, wall_offset=skew), seed=2)
    async with candidates(a, b):
        for _ in range(120):
            await asyncio.sleep(1)
            assert a.leads
            assert not b.leads
        await a.kill()
        await asyncio.sleep(15.1)
        assert b.leads
        assert server.lease.record.renew_time >= micro(120 + skew)


@pytest_loop
async def test_a_killed_leader_is_followed_when_its_time_has_run_out():
    server = Server()
    people = [Candidate(server, name, seed=seed) for seed, name in enumerate("abc")]
    async with candidates(*people) as (a, *others):
        await asyncio.sleep(33)
        await a.kill()
        (last, _, _) = server.writers[-1]
        while not any(person.leads for person in others):
            await asyncio.sleep(0.01)
        assert asyncio.get_running_loop().time() == pytest.approx(last + 15, abs=0.1)
        await asyncio.sleep(30)
        assert [person.leads for person in others].count(True) == 1
    assert server.lease.record.transitions == 1


@pytest_loop
async def test_without_a_watch_it_takes_one_attempt_longer_at_most():
    server = Server()
    a, b = Candidate(server, "a"), Candidate(server, "b", watch=False, seed=2)
    async with candidates(a, b):
        await asyncio.sleep(33)
        await a.kill()
        (last, _, _) = server.writers[-1]
        await asyncio.sleep(last + 15 + 4.5 - 33)
        assert b.leads


@pytest_loop
@pytest.mark.parametrize("end", ["release", "delete"])
async def test_a_free_lease_is_taken_at_once(end):
    server = Server()
    a, b = Candidate(server, "a"), Candidate(server, "b", seed=2)
    async with candidates(a, b):
        await asyncio.sleep(33.1)
        if end == "release":
            a.elector.stop()
            await a.task
        else:
            await a.kill()
            await asyncio.sleep(14.95)
            server.delete()
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.01)
        assert b.leads
        assert server.holder == "b"


@pytest_loop
async def test_a_deleted_lease_is_not_taken_from_a_leader_that_is_cut_off():
    """It may go on writing for as long as it trusts itself: it does not know yet."""
    server = Server()
    a, b = Candidate(server, "a"), Candidate(server, "b", seed=2)
    async with candidates(a, b):
        await asyncio.sleep(33.1)
        a.store.cut_off = True
        server.delete()
        while not b.leads:
            await asyncio.sleep(0.1)
            assert not (a.leads and b.leads)
        assert asyncio.get_running_loop().time() < 33.1 + 15 + 4.4


@pytest_loop
async def test_a_leader_makes_its_lease_again_when_it_is_deleted():
    server = Server()
    a, b = Candidate(server, "a"), Candidate(server, "b", seed=2)
    async with candidates(a, b):
        for _ in range(5):
            await asyncio.sleep(7)
            server.delete()
            await asyncio.sleep(0.01)
            assert server.holder == "a"
        assert a.leads
        assert not b.leads


@pytest_loop
async def test_a_leader_whose_lease_was_taken_gives_up_at_once():
    """A conflict says that somebody else has written the lease."""
    server = Server()
    async with candidates(Candidate(server, "a", watch=False)) as (a,):
        a.store.latency = 0.2
        await asyncio.sleep(5.9)
        server.delete()
        await asyncio.sleep(0.7)  # it has found no lease, and is about to make one
        server.write(record("b"), None, "b")
        outcome = await a.task
    assert outcome is ElectionOutcome.LOST
    assert asyncio.get_running_loop().time() < 8


@pytest_loop
@pytest.mark.parametrize(
    "extreme",
    [
        {"transitions": MAX_INT32},
        {"duration_seconds": 0},
        {"acquire_time": "0000-01-01T00:00:00.000000Z"},
        {"renew_time": "9999-12-31T23:59:59.999999Z"},
    ],
    ids=str,
)
async def test_a_dead_holder_with_extreme_numbers_is_followed(extreme):
    server = Server()
    server.write(record("dead", **extreme), None, "setup")
    async with candidates(Candidate(server, "a")) as (a,):
        await asyncio.sleep(15.1)
        assert a.leads
    assert server.lease.record.transitions <= MAX_INT32


@pytest_loop
async def test_a_dead_holder_that_is_trusted_for_68_years(caplog):
    """It may be alive, with settings of its own. The log says what to do if it is not."""
    caplog.set_level("WARNING")
    server = Server()
    server.write(record("de\nad", duration_seconds=MAX_INT32), None, "setup")
    async with candidates(Candidate(server, "a")) as (a,):
        await asyncio.sleep(600)
        assert not a.leads
        (message,) = (r.message for r in caplog.records)
        assert message.startswith(
            "Lease kube-scheduler is held by 'de\\nad', which has not renewed it for 1"
        )
        assert (
            "Its leaseDurationSeconds is 2147483647, so it is respected for another 21474836"
            in message
        )
        server.delete()
        await asyncio.sleep(0.01)
        assert a.leads


@pytest_loop
async def test_an_answer_that_names_another_holder_is_not_believed():
    server = Server()
    a = Candidate(server, "a")
    a.store.garbage = True
    async with candidates(a):
        await asyncio.sleep(30)
        assert not a.leads


def test_holders_for_people():
    assert shown("host-1_5f") == "host-1_5f"
    assert shown("a\nb") == "'a\\nb'"
    assert len(shown("h" * 1_000_000)) == 256


@pytest_loop
async def test_a_free_lease_is_found_by_polling_too():
    server = Server()
    a, b = Candidate(server, "a"), Candidate(server, "b", watch=False, seed=2)
    async with candidates(a, b):
        await asyncio.sleep(33)
        a.elector.stop()
        await a.task
        await asyncio.sleep(4.41)
        assert b.leads


@pytest_loop
async def test_who_may_not_watch_the_lease_does_not_try_to_all_the_time():
    candidate = Candidate(Server(), "a", watch=False)
    async with candidates(candidate):
        await asyncio.sleep(FORBIDDEN_RETRY - 1)
        assert candidate.store.watches == 1
        await asyncio.sleep(2)
        assert candidate.store.watches == 2


@pytest_loop
async def test_one_of_many_gets_a_free_lease():
    server = Server()
    people = [Candidate(server, f"p{number}", seed=number) for number in range(9)]
    async with candidates(*people):
        for _ in range(5):
            await asyncio.sleep(7)
            (leader,) = [person for person in people if person.leads]
            leader.elector.stop()
            await leader.task
            await asyncio.sleep(0.01)
            assert [person.leads for person in people].count(True) == 1
        assert server.lease.record.transitions == 5


@pytest_loop
async def test_never_two_at_once_whatever_happens():
    """Cuts, heals and kills at random; after each tick at most one may write."""
    chance = np.random.default_rng(77)
    server = Server()
    people = [
        Candidate(server, f"p{number}", seed=number, clock=SkewedClock(float(number) * 1000))
        for number in range(4)
    ]
    led = set()
    async with candidates(*people):
        for tick in range(3000):
            await asyncio.sleep(0.1)
            leading = [person.who for person in people if person.leads]
            assert len(leading) <= 1
            led |= set(leading)
            if chance.random() < 0.02:
                person = people[chance.integers(len(people))]
                person.store.cut_off = not person.store.cut_off
            for number, person in enumerate(people):
                if person.task.done():
                    people[number] = Candidate(server, f"{person.who}+", seed=tick).start()
        for person in people:
            await person.kill()
    assert len(led) > 3


@pytest_loop
async def test_a_frozen_leader_does_not_write_when_it_thaws():
    """SIGSTOP until after the lease has passed on, then SIGCONT: its own clock says no before any of its timers has
    run.
    """
    server = Server()
    a = Candidate(server, "a").start()
    await asyncio.sleep(5)
    assert a.leads
    frozen = server.lease.record
    server.write(
        msgspec.structs.replace(frozen, holder="b", transitions=1), str(server.version), "b"
    )
    a.clock.jump(20)
    assert not a.leads, "asked before the event loop has had a turn"
    assert await a.task is ElectionOutcome.LOST
    assert server.holder == "b", "and what it has lost it does not release"


@pytest_loop
async def test_a_leader_that_thaws_in_time_goes_on():
    server = Server()
    async with candidates(Candidate(server, "a")) as (a,):
        await asyncio.sleep(5)
        a.clock.jump(12)
        assert not a.leads
        await asyncio.sleep(2)
        assert a.leads, "nobody had taken the lease"
        assert server.lease.record.transitions == 0


@pytest_loop
async def test_a_leader_that_finds_another_name_gives_up_at_once():
    server = Server()
    a = Candidate(server, "a").start()
    await asyncio.sleep(5.5)
    server.write(record("usurper"), str(server.version), "usurper")
    assert await a.task is ElectionOutcome.LOST
    assert asyncio.get_running_loop().time() == pytest.approx(5.5, abs=0.01)


@pytest_loop
async def test_somebody_elses_change_is_no_reason_to_give_up():
    server = Server()
    async with candidates(Candidate(server, "a")) as (a,):
        await asyncio.sleep(5.5)
        server.write(server.lease.record, str(server.version), "kubectl annotate")
        await asyncio.sleep(5)
        assert a.leads
        assert a.elector.statistics().slow_path == 1


@pytest_loop
async def test_two_find_no_lease_at_the_same_time():
    server = Server()
    a, b = Candidate(server, "a"), Candidate(server, "b", seed=2)
    for person in (a, b):
        person.store.latency = 0.1
    async with candidates(a, b):
        await asyncio.sleep(5)
        assert [a.leads, b.leads].count(True) == 1


@pytest_loop
async def test_all_candidates_log_a_new_leader_once(caplog):
    caplog.set_level(logging.INFO)
    server = Server()
    a, b, c = (Candidate(server, name, seed=ord(name)) for name in "abc")
    async with candidates(a, b, c):
        await asyncio.sleep(5)
        a.elector.stop()
        await a.task
        await asyncio.sleep(0.1)
        elected = [text for text in caplog.messages if text.startswith("New leader")]
        assert elected == 3 * ["New leader elected: a"] + 2 * [
            f"New leader elected: {server.holder}"
        ]
        assert {who.elector.statistics().holder for who in (b, c)} == {server.holder}


@pytest_loop
async def test_a_standby_stops_without_touching_the_lease():
    server = Server()
    a, b = Candidate(server, "a"), Candidate(server, "b", seed=2)
    async with candidates(a, b):
        await asyncio.sleep(5)
        b.elector.stop()
        assert await b.task is ElectionOutcome.STOPPED
        assert server.holder == "a"
        assert b.told[-1][1] == "stopped"


@pytest_loop
@pytest.mark.parametrize("leading", [True, False], ids=["the leader", "a newcomer"])
async def test_a_server_that_hangs_does_not_hold_up_the_end(leading):
    server = Server()
    a = Candidate(server, "a", renew_deadline=60.0, lease_duration=90.0)
    async with candidates(a):
        if leading:
            await asyncio.sleep(5)
        a.store.latency = 3600
        await asyncio.sleep(10)
        before = asyncio.get_running_loop().time()
        a.elector.stop()
        assert await a.task is ElectionOutcome.STOPPED
        seconds = asyncio.get_running_loop().time() - before
        assert seconds == pytest.approx(LAST_ATTEMPT_SECONDS + (RELEASE_SECONDS if leading else 0))
        assert not a.leads


@pytest_loop
async def test_an_attempt_that_is_under_way_has_time_to_come_to_its_end():
    server = Server()
    a = Candidate(server, "a")
    async with candidates(a):
        a.store.latency = 0.5  # for reading, and for writing
        await asyncio.sleep(0.6)
        a.elector.stop()
        assert await a.task is ElectionOutcome.STOPPED
        assert [holder for _, _, holder in server.writers] == ["a", ""]


# ---------------------------------------------------------------- figures and health


@pytest_loop
async def test_figures():
    server = Server()
    async with candidates(Candidate(server, "a")) as (a,):
        before = a.elector.statistics()
        assert (before.is_leader, before.holder) == (False, "")
        await asyncio.sleep(5)
        figures = a.elector.statistics()
    assert (figures.identity, figures.holder, figures.is_leader) == ("a", "a", True)
    assert (figures.transitions, figures.slow_path) == (0, 0)


@pytest_loop
async def test_health():
    server = Server()
    async with candidates(Candidate(server, "a")) as (a,):
        assert a.elector.unhealthy() is None
        await asyncio.sleep(5)
        assert a.elector.unhealthy() is None
        a.clock.jump(34)
        assert a.elector.unhealthy() is None
        a.clock.jump(1.5)
        assert a.elector.unhealthy() == (
            "failed election to renew leadership on lease kube-scheduler"
        )


@pytest_loop
async def test_a_lease_that_cannot_be_read_is_no_reason_to_fall_over(caplog):
    server = Server()

    class Unreadable(Store):
        async def get(self):
            raise KubeApiError("the lease cannot be read")

    a = Candidate(server, "a")
    a.elector._store = Unreadable(server, "a")
    async with candidates(a):
        await asyncio.sleep(10)
        assert not a.leads
    assert "cannot be read" in caplog.text
