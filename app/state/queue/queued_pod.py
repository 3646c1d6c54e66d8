"""A pod in the scheduling queue: its attempts, its place, and the legal moves between places.

A pod is in exactly one place, and only the moves of TRANSITIONS exist::

                   Add
    outside ──────────────────► active ◄──────────────┬────────────────────────────────┐
     ▲   ▲ ▲                      │                    │ BackoffComplete, Activate      │
     │   │ │ Delete               │ Pop                │                                │
     │   │ └─ from any queue      ▼          Pop       │                                │
     │   └──────── Done ───── in flight ◄────────── backoff,                           │ Event, Update,
     │                            │                 error backoff                      │ Activate, Timeout
     │                            │ Failure            ▲                                │
     │                            ├────────────────────┤ Event, Update, Timeout         │
     │                            ▼                    │                                │
     │                      unschedulable ─────────────┴────────────────────────────────┤
     │                            │ a PreEnqueue plugin says no                         │
     │                            ▼                                                     │
     └─────────────────────── gated ────────────────────────────────────────────────────┘

PreEnqueue plugins run before a pod enters a queue, so ``gated`` can replace any destination. A pod leaves with Done
when its binding begins; if the binding fails, it returns (Failure, from outside). Pop does not take pods from error
backoff, whose attempts failed without a rejecting plugin.
"""

import enum
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from app.model.pod import Pod
from app.model.status import SUCCESS, Status


class Place(enum.StrEnum):
    """The place of a pod."""

    OUTSIDE = "outside"
    ACTIVE = "active"
    BACKOFF = "backoff"
    ERROR_BACKOFF = "error backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in flight"


#: The cause of a move.
MoveCause = Literal[
    "Add",
    "Update",
    "Event",
    "Activate",
    "Timeout",
    "BackoffComplete",
    "Pop",
    "Failure",
    "Done",
    "Delete",
]

# Looking up enum members by name is slow (a descriptor call), and the queue does it often.
OUTSIDE: Final = Place.OUTSIDE
ACTIVE: Final = Place.ACTIVE
BACKOFF: Final = Place.BACKOFF
ERROR_BACKOFF: Final = Place.ERROR_BACKOFF
UNSCHEDULABLE: Final = Place.UNSCHEDULABLE
GATED: Final = Place.GATED
IN_FLIGHT: Final = Place.IN_FLIGHT

#: Places in which a pod waits to be tried.
WAITING: Final = frozenset({ACTIVE, BACKOFF, ERROR_BACKOFF, UNSCHEDULABLE, GATED})

_FROM_UNSCHEDULABLE: Final = frozenset({ACTIVE, BACKOFF, GATED})
_FROM_GATED: Final = frozenset({ACTIVE, BACKOFF})
_TO_ACTIVE: Final = frozenset({ACTIVE})
_AWAY: Final = frozenset({OUTSIDE})

#: cause -> start -> finishes. A gated pod that is gated again does not move.
TRANSITIONS: Final[Mapping[MoveCause, Mapping[Place, frozenset[Place]]]] = {
    "Add": {OUTSIDE: frozenset({ACTIVE, GATED})},
    "Update": {UNSCHEDULABLE: _FROM_UNSCHEDULABLE, GATED: _FROM_GATED},
    "Event": {UNSCHEDULABLE: _FROM_UNSCHEDULABLE, GATED: _FROM_GATED},
    "Activate": {
        UNSCHEDULABLE: frozenset({ACTIVE, GATED}),
        GATED: _TO_ACTIVE,
        BACKOFF: _TO_ACTIVE,
        ERROR_BACKOFF: _TO_ACTIVE,
    },
    "Timeout": {UNSCHEDULABLE: _FROM_UNSCHEDULABLE},
    "BackoffComplete": {BACKOFF: _TO_ACTIVE, ERROR_BACKOFF: _TO_ACTIVE},
    "Pop": {ACTIVE: frozenset({IN_FLIGHT}), BACKOFF: frozenset({IN_FLIGHT})},
    "Failure": {
        IN_FLIGHT: WAITING,
        OUTSIDE: frozenset({ACTIVE, BACKOFF, ERROR_BACKOFF, GATED}),
    },
    "Done": {IN_FLIGHT: _AWAY},
    "Delete": dict.fromkeys(sorted(WAITING), _AWAY),
}

#: TRANSITIONS as (start, cause, finish).
LEGAL_MOVES: Final[frozenset[tuple[Place, MoveCause, Place]]] = frozenset(
    (start, cause, finish)
    for cause, ways in TRANSITIONS.items()
    for start, finishes in ways.items()
    for finish in finishes
)

_STORY_LENGTH: Final = 8


#: What a pod needs besides its turn, by name; usually empty (see ActiveQueue).
Lane: TypeAlias = frozenset[str]
_NO_LANE: Final[Lane] = frozenset()


def no_lane(_pod: Pod) -> Lane:
    """The lane of a pod that needs nothing but its turn."""
    return _NO_LANE


class QueueStatistics(msgspec.Struct, frozen=True):
    """The number of pods by place, and of events kept for pods in flight."""

    active: int
    backoff: int
    error_backoff: int
    unschedulable: int
    gated: int
    in_flight: int
    in_flight_events: int

    @property
    def summary(self) -> str:
        """The counts in the format of kube-scheduler's debugger."""
        backoff = self.backoff + self.error_backoff
        waiting = self.unschedulable + self.gated
        return f"activeQ:{self.active}; backoffQ:{backoff}; unschedulablePods:{waiting}"


class Move(NamedTuple):
    """One move of a pod: time (None if the pod leaves the queue), event, and the new place."""

    at: float | None
    event: str
    finish: Place

    def __str__(self) -> str:
        at = "" if self.at is None else f"{self.at:.3f} "
        return f"{at}{self.event} -> {self.finish}"


class InvalidTransition(Exception):  # noqa: N818 - named for what it is, as in the design
    """A move that TRANSITIONS does not contain: a defect.

    ``key`` is the pod's namespace/name, ``start`` and ``finish`` the places, ``story`` its last moves, oldest first.
    """

    def __init__(self, key: str, start: Place, finish: Place, story: Iterable[Move]) -> None:
        self.key: Final = key
        self.start: Final = start
        self.finish: Final = finish
        self.story: Final = tuple(story)
        lately = "; ".join(map(str, self.story)) or "nothing yet"
        super().__init__(f"pod {key} cannot go from {start} to {finish}; lately: {lately}")


class QueuedPod(msgspec.Struct, eq=False):
    """A pod and its attempts. Times are seconds since the epoch.

    Exists from the pod's arrival until it is bound or gone. The attempt that popped it owns it until it returns it;
    then it sets ``pod`` and the rejectors (see ``reject``).
    """

    pod: Pod
    #: When the pod arrived, or returned from its last failed attempt; once it is active again with a nomination, when
    #: it first became active.
    timestamp: float
    #: How often the pod has been popped.
    attempts: int = 0
    #: End of the backoff, a whole second; 0 until computed for the present attempt.
    backoff_expiration: float = 0.0
    #: Attempts that ended with a rejection by a plugin.
    unschedulable_count: int = 0
    #: Attempts in a row that ended with an error.
    consecutive_errors_count: int = 0
    #: Whether the pod last left unschedulable by the timeout.
    was_flushed_from_unschedulable: bool = False
    #: When the pod first became active.
    initial_attempt_timestamp: float | None = None
    #: Plugins that rejected the pod; their hints decide which events move it. Replaced, never changed in place.
    unschedulable_plugins: AbstractSet[str] = frozenset()
    #: Plugins that rejected the pod with Pending; an event that their hints accept activates the pod without backoff.
    pending_plugins: AbstractSet[str] = frozenset()
    #: The PreEnqueue plugin that gates the pod, and its status.
    gating_plugin: str = ""
    gating_status: Status = SUCCESS
    place: Place = OUTSIDE
    #: The pod's rank in its heap, and the number of its entry.
    rank: Any = None
    ticket: int = 0
    #: The pod's lane in the active queue, as of when it was there or was popped.
    lane: Lane = frozenset()
    #: The pod's group in its WaitingPool.
    group: Any = None
    #: The last moves as plain tuples (see Move), oldest first; only ``note`` changes them.
    moves: list[tuple[float | None, str, Place]] = msgspec.field(default_factory=list)

    @property
    def rejectors(self) -> AbstractSet[str]:
        """All plugins that rejected the pod."""
        pending = self.pending_plugins
        return self.unschedulable_plugins | pending if pending else self.unschedulable_plugins

    @property
    def story(self) -> tuple[Move, ...]:
        """The last moves, oldest first."""
        return tuple(Move(*move) for move in self.moves)

    def reject(self, unschedulable: Iterable[str] = (), pending: Iterable[str] = ()) -> None:
        """Sets the plugins that rejected the pod in its last attempt; none if an error ended it."""
        self.unschedulable_plugins = frozenset(unschedulable)
        self.pending_plugins = frozenset(pending)

    def note(self, at: float | None, event: str) -> None:
        """Adds the move to ``place`` to the last moves."""
        moves = self.moves
        moves.append((at, event, self.place))
        if len(moves) > _STORY_LENGTH:
            del moves[0]
