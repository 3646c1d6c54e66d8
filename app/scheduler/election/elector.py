"""Acquires, renews and releases the leader election Lease by the rules of app.scheduler.election.rules.

    run:  acquire  --->  lead and renew  --->  release
             |                |                   |
          stop()      stop() or the lease     so that others
                      could not be renewed    need not wait

In addition to what kube-scheduler does, a standby watches the lease and tries at once when it is released, deleted or
expired, and a leader that finds another holder in the lease gives up without further attempts.

Writers ask ``is_leader_now`` before each request. It uses only our own clock: it is true for ``renew_deadline`` after
the *sending* of the last successful renewal, while others wait for the longer ``lease_duration`` from a later moment.
So it is false right after a process was frozen for too long, before any timer has run.
"""

import asyncio
import enum
import logging
import uuid
from collections.abc import Callable
from contextlib import aclosing
from typing import Final

import msgspec
import numpy as np

from app.kube.backoff import Backoff
from app.kube.errors import Conflict, Forbidden, KubeApiError
from app.kube.event_series import ObjectRef
from app.kube.events import EventRecorder
from app.kube.leases import Lease, LeaseClient, LeaseRecord
from app.model.clock import Clock
from app.observe.events import ElectionStatistics
from app.scheduler.election.rules import (
    CreateLease,
    ElectionSettings,
    Observation,
    Wait,
    decide,
    may_renew_unread,
    next_attempt,
    observe,
    overdue,
    released,
    renewed,
)

logger = logging.getLogger(__name__)

#: Seconds by which a leader may miss its renewals before it counts as unhealthy (docs/spec/election.md#health).
HEALTH_TOLERANCE: Final = 20.0
#: Seconds until a leader reads a lease again that another process has written.
BEATEN_RETRY: Final = 0.1
#: Seconds until a forbidden watch of the lease is tried again.
FORBIDDEN_RETRY: Final = 60.0
#: Seconds that an attempt has left once ``stop`` is called, and seconds that releasing the lease may take. With
#: everything else that a shutdown takes, it is less than the default grace period of a pod, 30 s.
LAST_ATTEMPT_SECONDS: Final = 2.0
RELEASE_SECONDS: Final = 5.0

_NEVER: Final = float("-inf")


def new_identity(host: str) -> str:
    """A unique identity for this process, with a UUID (docs/spec/election.md#identity)."""
    return f"{host}_{uuid.uuid4()}"


def shown(identity: str) -> str:
    """An identity as it is logged: escaped and cut, because anyone who may write the lease chooses it."""
    return identity if identity.isprintable() and len(identity) <= 256 else f"{identity!r:.256}"


def _nothing(*_args: object) -> None:
    pass


class Callbacks(msgspec.Struct, frozen=True):
    """Called synchronously; ``on_stopped_leading`` always, at the end, before the lease is released.

    ``may_release``: whether the next leader may start at once. If not, the lease is left to expire.
    """

    on_started_leading: Callable[[], None] = _nothing
    on_stopped_leading: Callable[[], None] = _nothing
    may_release: Callable[[], bool] = lambda: True


class ElectionOutcome(enum.Enum):
    """How an election ended."""

    STOPPED = "stopped"
    LOST = "lost"


class _Attempt(enum.Enum):
    HELD = enum.auto()
    TAKEN = enum.auto()
    FAILED = enum.auto()
    #: Another process has written the lease at the same time.
    BEATEN = enum.auto()


class LeaseElector:
    """One candidate. Call ``run`` once."""

    def __init__(
        self,
        store: LeaseClient,
        settings: ElectionSettings,
        *,
        clock: Clock,
        rng: np.random.Generator,
        callbacks: Callbacks = Callbacks(),  # noqa: B008 - it is frozen
        events: EventRecorder | None = None,
        component: str = "default-scheduler",
    ) -> None:
        self._store: Final = store
        self._settings: Final = settings
        self._clock: Final = clock
        self._rng: Final = rng
        self._callbacks: Final = callbacks
        self._events: Final = events
        self._component: Final = component
        self._lease: Lease | None = None
        self._observed: Observation | None = None
        self._trusted_until = _NEVER
        self._leading = False
        self._stopping = False
        self._wake: Final = asyncio.Event()
        self._attempts: asyncio.Timeout | None = None
        self._reported = ""
        #: The record whose silent holder has been logged.
        self._overdue: Observation | None = None
        self._slow_path = 0
        #: Whether the lease may name us as holder: we have tried to write it.
        self._signed = False

    # ------------------------------------------------------------ status

    def is_leader_now(self) -> bool:
        """Whether this process may write, by its own clock."""
        return self._clock.monotonic() < self._trusted_until

    def unhealthy(self) -> str | None:
        """The error if this process leads and has not renewed its lease for too long; otherwise None."""
        observed = self._observed
        if not self._leading or observed is None:
            return None
        limit = self._settings.lease_duration + HEALTH_TOLERANCE
        if self._clock.monotonic() - observed.at <= limit:
            return None
        return f"failed election to renew leadership on lease {self._store.name}"

    def statistics(self) -> ElectionStatistics:
        """Figures for metrics and endpoints."""
        record = self._observed.record if self._observed is not None else LeaseRecord()
        return ElectionStatistics(
            identity=self._settings.identity,
            is_leader=self.is_leader_now(),
            holder=shown(record.holder),
            transitions=record.transitions,
            slow_path=self._slow_path,
        )

    # ------------------------------------------------------------ life

    def stop(self) -> None:
        """Asks ``run`` to release the lease and return."""
        self._stopping = True
        self._wake.set()
        if self._attempts is not None:
            self._attempts.reschedule(asyncio.get_running_loop().time() + LAST_ATTEMPT_SECONDS)

    def renew(self) -> None:
        """Writes the lease soon if this process leads: its annotations have changed."""
        if self._leading:
            self._wake.set()

    async def run(self) -> ElectionOutcome:
        """Acquires the lease, leads while it can be renewed, and releases it, also when cancelled.

        It is not released while ``may_release`` says no.
        """
        async with asyncio.TaskGroup() as group:
            watcher = group.create_task(self._watch_lease(), name="election: watch")
            try:
                return await self._campaign()
            finally:
                watcher.cancel()

    async def _campaign(self) -> ElectionOutcome:
        outcome = ElectionOutcome.STOPPED
        try:
            async with asyncio.timeout(None) as self._attempts:
                if await self._acquire():
                    outcome = await self._lead()
        except TimeoutError:
            logger.info("The last attempt to write lease %s is cancelled", self._store.name)
        finally:
            self._attempts = None
            await self._step_down()
        return outcome

    async def _acquire(self) -> bool:
        """Tries until the lease is acquired (True) or ``stop`` is called (False)."""
        where = f"{self._store.namespace}/{self._store.name}"
        logger.info("Attempting to acquire leader lease %s as %s", where, self._settings.identity)
        while not self._stopping:
            if await self._attempt() is _Attempt.HELD:
                logger.info("Successfully acquired lease %s", where)
                return True
            await self._nap(
                next_attempt(
                    self._observed,
                    self._settings,
                    now=self._clock.monotonic(),
                    chance=self._rng.random(),
                )
            )
        return False

    async def _lead(self) -> ElectionOutcome:
        self._leading = True
        self._event("became leader")
        self._callbacks.on_started_leading()
        while not self._stopping:
            if not await self._renew():
                logger.error("Failed to renew lease %s", self._store.name)
                return ElectionOutcome.LOST
            await self._nap(self._settings.retry_period)
        return ElectionOutcome.STOPPED

    async def _renew(self) -> bool:
        """Renews within the deadline; False if that fails. Also True if ``stop`` is called meanwhile."""
        try:
            async with asyncio.timeout(self._settings.renew_deadline):
                while not self._stopping:
                    attempt = await self._attempt()
                    if attempt in {_Attempt.HELD, _Attempt.TAKEN}:
                        return attempt is _Attempt.HELD
                    beaten = attempt is _Attempt.BEATEN
                    await self._nap(BEATEN_RETRY if beaten else self._settings.retry_period)
        except TimeoutError:
            return False
        return True

    async def _step_down(self) -> None:
        """Ends our leadership first, then releases the lease."""
        was_leading, self._leading = self._leading, False
        self._trusted_until = _NEVER
        try:
            self._callbacks.on_stopped_leading()
        finally:
            if was_leading:
                self._event("stopped leading")
            if self._signed and self._callbacks.may_release():
                await self._release()
            elif self._signed:
                logger.warning(
                    "Lease %s is not released: bindings were sent whose outcome is not known. It runs out within %d s",
                    self._store.name,
                    self._settings.lease_duration,
                )

    async def _release(self) -> None:
        """Clears the holder if the lease is still ours. A failure is logged; the lease then expires."""
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                lease = await self._store.get()
                if lease is None or lease.record.holder != self._settings.identity:
                    return
                self._remember(
                    await self._store.update(lease, released(lease.record, self._clock.wall()))
                )
        except (KubeApiError, TimeoutError) as err:
            logger.warning(
                "Failed to release lease %s: %s", self._store.name, str(err) or "timed out"
            )
        else:
            logger.info("Released lease %s", self._store.name)

    async def _nap(self, seconds: float) -> None:
        """Sleeps for this long, or until the watch shows a relevant change or ``stop`` is called."""
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    # ------------------------------------------------------------ one attempt

    async def _attempt(self) -> _Attempt:
        """Tries once to take or renew the lease."""
        try:
            attempt = await self._renew_unread() or await self._read_and_act()
        except Conflict as err:
            logger.info("Another process was faster to write lease %s: %s", self._store.name, err)
            attempt = _Attempt.BEATEN
        except KubeApiError as err:
            logger.warning("Lease %s could not be read or written: %s", self._store.name, err)
            attempt = _Attempt.FAILED
        self._report_holder()
        return attempt

    async def _renew_unread(self) -> _Attempt | None:
        """The fast path, a single request. None if it is not possible or fails."""
        lease, sent = self._lease, self._clock.monotonic()
        if lease is None or not may_renew_unread(self._observed, self._settings, now=sent):
            return None
        record = renewed(lease.record, self._settings, self._clock.wall())
        try:
            written = await self._store.update(lease, record)
        except KubeApiError as err:
            logger.info("Lease %s is read again, as writing it failed: %s", self._store.name, err)
            return None
        return self._held(written, sent)

    async def _read_and_act(self) -> _Attempt:
        lease = await self._store.get()
        now = self._clock.monotonic()
        if lease is not None:
            self._lease = lease
            self._observed = observe(lease.record, self._observed, now)
        action = decide(
            self._observed,
            self._settings,
            exists=lease is not None,
            now=now,
            wall=self._clock.wall(),
        )
        if isinstance(action, Wait):
            self._report_wait(action.until - now, now)
            return _Attempt.TAKEN
        self._signed = True
        if isinstance(action, CreateLease) or lease is None:
            return self._held(await self._store.create(action.record), now)
        if self._leading:
            self._slow_path += 1
        return self._held(await self._store.update(lease, action.record), now)

    def _held(self, written: Lease, sent: float) -> _Attempt:
        if written.record.holder != self._settings.identity:
            raise KubeApiError(
                f"the answer to writing lease {self._store.name} names another holder"
            )
        self._remember(written)
        self._trusted_until = sent + self._settings.renew_deadline
        return _Attempt.HELD

    def _remember(self, written: Lease) -> None:
        self._lease = written
        self._observed = Observation(written.record, self._clock.monotonic())

    # ------------------------------------------------------------ watching

    async def _watch_lease(self) -> None:
        """Watches the lease during the election. This only makes it faster: attempts go on without it."""
        backoff = Backoff(self._rng, initial=0.1, cap=5.0)
        while True:
            pause = 0.0
            try:
                async with aclosing(self._store.changes(self._rng)) as changes:
                    async for record in changes:
                        backoff.reset()
                        self._notice(record)
            except Forbidden as err:
                logger.info("Lease %s is polled, not watched: %s", self._store.name, err)
                pause = FORBIDDEN_RETRY
            except KubeApiError as err:
                logger.debug("Watch of lease %s broke off: %s", self._store.name, err)
            await asyncio.sleep(pause + backoff.next())

    def _notice(self, record: LeaseRecord | None) -> None:
        """Handles what the watch shows, except our own writes."""
        mine = record is not None and record.holder == self._settings.identity
        if record is None or not record.holder or (self._leading and not mine):
            self._wake.set()
        elif not mine and not self._leading:
            self._observed = observe(record, self._observed, self._clock.monotonic())
            self._report_holder()

    # ------------------------------------------------------------ reporting

    def _report_holder(self) -> None:
        holder = self._observed.record.holder if self._observed is not None else ""
        if holder != self._reported:
            self._reported = holder
            if holder:
                logger.info("New leader elected: %s", shown(holder))

    def _report_wait(self, seconds: float, now: float) -> None:
        """Logs once for each record that its holder is silent while its duration still has to be respected."""
        logger.debug("Lease %s is held by another process", self._store.name)
        observed = self._observed
        if observed is None or observed is self._overdue:
            return
        silent = overdue(observed, self._settings, now=now)
        if silent:
            self._overdue = observed
            logger.warning(
                "Lease %s is held by %s, which has not renewed it for %.0f s. Its leaseDurationSeconds is %d, so it is "
                "respected for another %.0f s. Delete the lease if that holder is gone",
                self._store.name,
                shown(observed.record.holder),
                silent,
                observed.record.duration_seconds,
                seconds,
            )

    def _event(self, what: str) -> None:
        """Records an event about the lease (docs/spec/election.md#loops)."""
        if self._events is None or self._lease is None:
            return
        lease = ObjectRef(
            kind="Lease",
            api_version="coordination.k8s.io/v1",
            name=self._store.name,
            namespace=self._store.namespace,
            uid=self._lease.uid,
            resource_version=self._lease.resource_version,
        )
        self._events.record(
            lease,
            type="Normal",
            reason="LeaderElection",
            action="",
            note=f"{self._settings.identity} {what}",
            reporting_controller=self._component,
            now=self._clock.wall(),
        )
