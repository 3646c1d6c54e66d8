"""The rules of leader election as pure functions (docs/spec/election.md#acquire-or-renew).

Clocks of different machines are never compared. A lease is valid until its record has been unchanged for the lease's
duration by *our* clock, counted from when we first saw it; so a new candidate waits for one whole duration. A lease
without a holder was released and may be taken at once. A deleted lease may not: its holder may not know yet.

Anyone who may write the lease chooses its numbers. A duration that is missing or not positive is replaced by our own,
because a lease that is never valid would allow two leaders. A very long one is respected and logged, because its holder
may be alive. The count of transitions stops at its largest possible number.
"""

import math
from typing import Final

import msgspec

from app.kube.leases import MAX_INT32, LeaseRecord
from app.model.timestamps import format_micro_time

#: Candidates add up to this many retry periods between two attempts.
JITTER_FACTOR: Final = 1.2


class ElectionSettings(msgspec.Struct, frozen=True):
    """Our identity and timing; durations in seconds. Raises ValueError (docs/spec/election.md#settings)."""

    identity: str
    #: How long a lease is valid without renewal.
    lease_duration: float = 15.0
    #: How long a leader tries to renew before it gives up, and how long it relies on a renewal.
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        if not self.identity:
            raise ValueError("identity must not be empty")
        if self.duration_seconds <= self.renew_deadline:
            raise ValueError("leaseDuration, in whole seconds, must be greater than renewDeadline")
        if self.duration_seconds > MAX_INT32:
            raise ValueError(f"leaseDuration must be at most {MAX_INT32} seconds")
        if self.renew_deadline <= self.retry_period * JITTER_FACTOR:
            raise ValueError("renewDeadline must be greater than retryPeriod*JitterFactor")
        if self.retry_period <= 0:
            raise ValueError("retryPeriod must be greater than zero")

    @property
    def duration_seconds(self) -> int:
        """The duration in the lease, in whole seconds."""
        return int(self.lease_duration)


def request_timeout(renew_deadline: float) -> float:
    """Timeout in seconds for a request about the lease; one that hangs leaves time for another.

    See docs/spec/election.md#identity.
    """
    return max(1.0, renew_deadline / 2)


class Observation(msgspec.Struct, frozen=True):
    """The last record of the lease, and when (own clock) it was first seen."""

    record: LeaseRecord
    at: float

    def expires(self, settings: ElectionSettings) -> float:
        """When (own clock) the lease expires."""
        return self.at + (self.record.duration_seconds or settings.lease_duration)


class CreateLease(msgspec.Struct, frozen=True):
    """There is no lease: create it."""

    record: LeaseRecord


class UpdateLease(msgspec.Struct, frozen=True):
    """The lease is ours or free: replace the record that was seen."""

    record: LeaseRecord


class Wait(msgspec.Struct, frozen=True):
    """Another process holds the lease, at least until this time (own clock)."""

    until: float


LeaseAction = CreateLease | UpdateLease | Wait


def observe(record: LeaseRecord, before: Observation | None, now: float) -> Observation:
    """The observation after reading ``record``: the old one if nothing has changed."""
    return before if before is not None and before.record == record else Observation(record, now)


def decide(
    observed: Observation | None,
    settings: ElectionSettings,
    *,
    exists: bool,
    now: float,
    wall: float,
) -> LeaseAction:
    """What to do about a lease with this last observation (None: it was never seen).

    ``exists``: whether there is a lease now. ``now`` is our clock, as in the observation; ``wall``, in seconds since
    the epoch, is only written into the record.
    """
    time = format_micro_time(wall)
    if not exists:
        until = _deleted_until(observed, settings)
        if until > now:
            return Wait(until)
        return CreateLease(
            LeaseRecord(settings.identity, settings.duration_seconds, time, time, transitions=0)
        )
    old = observed.record if observed is not None else LeaseRecord()
    if old.holder == settings.identity:
        return UpdateLease(renewed(old, settings, wall))
    if observed is not None and old.holder and observed.expires(settings) > now:
        return Wait(observed.expires(settings))
    return UpdateLease(
        msgspec.structs.replace(
            old,
            holder=settings.identity,
            duration_seconds=settings.duration_seconds,
            acquire_time=time,
            renew_time=time,
            transitions=min(old.transitions + 1, MAX_INT32),
        )
    )


def _deleted_until(observed: Observation | None, settings: ElectionSettings) -> float:
    """When (own clock) a deleted lease may be created again: until then its holder may lead without knowing.

    At most our own duration, so that deleting a lease with an extreme duration helps.
    """
    if observed is None or observed.record.holder in {"", settings.identity}:
        return -math.inf
    return min(observed.expires(settings), observed.at + settings.lease_duration)


def may_renew_unread(
    observed: Observation | None, settings: ElectionSettings, *, now: float
) -> bool:
    """Whether a renewal can be written without reading the lease first: it is ours and has not expired."""
    return (
        observed is not None
        and observed.record.holder == settings.identity
        and observed.expires(settings) > now
    )


def renewed(old: LeaseRecord, settings: ElectionSettings, wall: float) -> LeaseRecord:
    """Our own record, renewed."""
    time = format_micro_time(wall)
    return msgspec.structs.replace(
        old,
        duration_seconds=settings.duration_seconds,
        acquire_time=old.acquire_time or time,
        renew_time=time,
    )


def released(old: LeaseRecord, wall: float) -> LeaseRecord:
    """Our own record without holder: any candidate may take the lease at once."""
    time = format_micro_time(wall)
    return msgspec.structs.replace(
        old, holder="", duration_seconds=1, acquire_time=time, renew_time=time
    )


def overdue(observed: Observation, settings: ElectionSettings, *, now: float) -> float:
    """Seconds since another holder's last renewal, if that is longer than our own duration and the lease is still
    valid.

    Otherwise 0.
    """
    silent = now - observed.at
    trusted = bool(observed.record.holder) and observed.expires(settings) > now
    return silent if trusted and silent >= settings.lease_duration else 0.0


def next_attempt(
    observed: Observation | None, settings: ElectionSettings, *, now: float, chance: float
) -> float:
    """Seconds until the next attempt to take the lease; ``chance`` is from [0, 1).

    The jittered retry period, or less if the lease expires before.
    """
    pause = settings.retry_period * (1.0 + JITTER_FACTOR * chance)
    if observed is None or observed.record.holder in {"", settings.identity}:
        return pause
    left = observed.expires(settings) - now
    return min(pause, left) if left > 0 else pause
