"""Who may hold the lease: the rules of leader election as plain functions (docs/spec/election.md#acquire-or-renew).

Clocks of different machines are never compared. A holder is believed in until its record has stood unchanged for the lease's
duration by *our* clock, counted from when we first saw it; so a newcomer waits for one whole duration. A lease without a
holder was released and may be taken at once.
"""

from typing import Final

import msgspec

from app.kube.leases import LeaseRecord

#: Attempts of those who wait are up to this factor further apart than the retry period.
JITTER_FACTOR: Final = 1.2


class ElectionSettings(msgspec.Struct, frozen=True):
    """Who we are and how patient. Durations in seconds. Raises ValueError (docs/spec/election.md#settings)."""

    identity: str
    #: How long a holder is believed in that does not renew.
    lease_duration: float = 15.0
    #: How long a leader tries to renew before it gives up, and how long it trusts a renewal.
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        if not self.identity:
            raise ValueError("identity must not be empty")
        if self.lease_duration <= self.renew_deadline:
            raise ValueError("leaseDuration must be greater than renewDeadline")
        if self.renew_deadline <= self.retry_period * JITTER_FACTOR:
            raise ValueError("renewDeadline must be greater than retryPeriod*JitterFactor")
        if self.lease_duration < 1:
            raise ValueError("leaseDuration must be at least one second")
        if self.retry_period <= 0:
            raise ValueError("retryPeriod must be greater than zero")

    @property
    def duration_seconds(self) -> int:
        """What the lease says: whole seconds."""
        return int(self.lease_duration)


def request_timeout(renew_deadline: float) -> float:
    """Seconds for one request about the lease, so that one that hangs leaves time for another.

    See docs/spec/election.md#identity.
    """
    return max(1.0, renew_deadline / 2)


class Observation(msgspec.Struct, frozen=True):
    """What the lease said last, and when (own clock) it was first seen to say so."""

    record: LeaseRecord
    at: float

    @property
    def expires(self) -> float:
        """When (own clock) the holder is no longer believed in."""
        return self.at + self.record.duration_seconds


class Create(msgspec.Struct, frozen=True):
    """There is no lease: make it."""

    record: LeaseRecord


class Update(msgspec.Struct, frozen=True):
    """The lease is ours, or free: write this record over the one that was seen."""

    record: LeaseRecord


class Wait(msgspec.Struct, frozen=True):
    """Somebody else holds the lease, until this moment (own clock) at least."""

    until: float


Action = Create | Update | Wait


def observe(record: LeaseRecord, before: Observation | None, now: float) -> Observation:
    """The observation after reading ``record``: the old one, unless something has changed."""
    return before if before is not None and before.record == record else Observation(record, now)


def decide(
    observed: Observation | None, settings: ElectionSettings, *, now: float, wall: float
) -> Action:
    """What to do about a lease that says this (None: that does not exist).

    ``now`` is our clock, as in the observation; ``wall``, seconds since the epoch, is for the record only.
    """
    if observed is None:
        return Create(_record(settings, wall))
    old = observed.record
    if old.holder == settings.identity:
        return Update(renewed(old, settings, wall))
    if old.holder and observed.expires > now:
        return Wait(observed.expires)
    return Update(
        msgspec.structs.replace(
            old,
            holder=settings.identity,
            duration_seconds=settings.duration_seconds,
            acquire_time=wall,
            renew_time=wall,
            transitions=old.transitions + 1,
        )
    )


def may_renew_unread(
    observed: Observation | None, settings: ElectionSettings, *, now: float
) -> bool:
    """Whether a renewal can be written without reading the lease first: it is ours, and has not run out."""
    return (
        observed is not None
        and observed.record.holder == settings.identity
        and observed.expires > now
    )


def renewed(old: LeaseRecord, settings: ElectionSettings, wall: float) -> LeaseRecord:
    """Our own record, renewed."""
    return msgspec.structs.replace(old, duration_seconds=settings.duration_seconds, renew_time=wall)


def released(old: LeaseRecord, wall: float) -> LeaseRecord:
    """Our own record, given up: anybody may take it at once."""
    return msgspec.structs.replace(
        old, holder="", duration_seconds=1, acquire_time=wall, renew_time=wall
    )


def next_attempt(
    observed: Observation | None, settings: ElectionSettings, *, now: float, chance: float
) -> float:
    """Seconds until the next attempt to take the lease; ``chance`` is from [0, 1).

    The jittered retry period, or less when the present holder's time runs out before.
    """
    pause = settings.retry_period * (1.0 + JITTER_FACTOR * chance)
    if observed is None or observed.record.holder in {"", settings.identity}:
        return pause
    left = observed.expires - now
    return min(pause, left) if left > 0 else pause


def _record(settings: ElectionSettings, wall: float) -> LeaseRecord:
    return LeaseRecord(
        holder=settings.identity,
        duration_seconds=settings.duration_seconds,
        acquire_time=wall,
        renew_time=wall,
    )
