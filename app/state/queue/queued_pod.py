"""A pod in the scheduling queue: what the queue remembers of it, where it is, and which moves are legal.

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

Whatever would enter a queue is first shown to the PreEnqueue plugins, so ``gated`` can replace any destination.
A pod leaves with Done when its binding begins; if that fails it comes back (Failure, from outside). Pop never takes
from error backoff, the pods of which failed without any plugin having rejected them.
"""

import enum
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from app.model.pod import Pod
from app.model.status import SUCCESS, Status


class Place(enum.StrEnum):
    """Where a pod is, as the queue sees it."""

    OUTSIDE = "outside"
    ACTIVE = "active"
    BACKOFF = "backoff"
    ERROR_BACKOFF = "error backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in flight"


#: What makes a pod move.
Cause = Literal[
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

# Members of an enum are slow to look up by name (a descriptor call), and the queue names places all the time.
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

#: cause -> where from -> where to. Staying where one is (a gated pod that is gated once more) is no move.
TRANSITIONS: Final[Mapping[Cause, Mapping[Place, frozenset[Place]]]] = {
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
LEGAL_MOVES: Final[frozenset[tuple[Place, Cause, Place]]] = frozenset(
    (start, cause, finish)
    for cause, ways in TRANSITIONS.items()
    for start, finishes in ways.items()
    for finish in finishes
)

_STORY_LENGTH: Final = 8


#: What a pod needs besides its turn, by name; nothing, mostly.
Lane: TypeAlias = frozenset[str]


class Move(NamedTuple):
    """One move of a pod: when (None where a pod leaves, which needs no clock), why, and where to."""

    at: float | None
    event: str
    finish: Place

    def __str__(self) -> str:
        at = "" if self.at is None else f"{self.at:.3f} "
        return f"{at}{self.event} -> {self.finish}"


class InvalidTransition(Exception):  # noqa: N818 - named for what it is, as in the design
    """A move that TRANSITIONS does not have: a defect, reported with what led to it.

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
    """A pod with what the queue knows about its attempts. Times are seconds since the epoch.

    Lives from the pod's arrival until it is bound or gone, through all its attempts; the attempt that popped it owns it until it
    is given back, and sets ``pod`` and the rejectors then (see ``reject``).
    """

    pod: Pod
    #: When the pod came to the queue, or came back from its last failed attempt.
    timestamp: float
    #: How often the pod has been popped.
    attempts: int = 0
    #: End of the backoff, a whole second; 0 until worked out for the present attempt.
    backoff_expiration: float = 0.0
    #: Attempts that ended with a plugin turning the pod down.
    unschedulable_count: int = 0
    #: Attempts in a row that ended with an error.
    consecutive_errors_count: int = 0
    #: Whether the last way out of unschedulable was the timeout.
    was_flushed_from_unschedulable: bool = False
    #: When the pod first became active.
    initial_attempt_timestamp: float | None = None
    #: Plugins that rejected the pod; their hints decide what wakes it. Replaced, never changed in place.
    unschedulable_plugins: AbstractSet[str] = frozenset()
    #: Plugins that wait for something; an event they welcome makes the pod active without backoff.
    pending_plugins: AbstractSet[str] = frozenset()
    #: The PreEnqueue plugin that keeps the pod out of the queues, and what it said.
    gating_plugin: str = ""
    gating_status: Status = SUCCESS
    place: Place = OUTSIDE
    #: Of the heap that holds the pod: its rank there and the number of its entry.
    rank: Any = None
    ticket: int = 0
    #: Of the lanes that hold the pod: the one it is in.
    lane: Lane = frozenset()
    #: Of the pool that holds the pod: the group it is filed in.
    group: Any = None
    _story: list[tuple[float | None, str, Place]] = msgspec.field(default_factory=list)

    @property
    def rejectors(self) -> AbstractSet[str]:
        """All plugins that the pod waits for."""
        pending = self.pending_plugins
        return self.unschedulable_plugins | pending if pending else self.unschedulable_plugins

    @property
    def story(self) -> tuple[Move, ...]:
        """The last moves, oldest first."""
        return tuple(Move(*move) for move in self._story)

    @property
    def moves(self) -> list[tuple[float | None, str, Place]]:
        """What ``story`` is made from, without the cost of making it. The list itself: it goes on changing; not to be changed."""
        return self._story

    def reject(self, unschedulable: Iterable[str] = (), pending: Iterable[str] = ()) -> None:
        """Records the plugins that rejected the pod in the attempt that just ended; none means an error ended it."""
        self.unschedulable_plugins = frozenset(unschedulable)
        self.pending_plugins = frozenset(pending)

    def note(self, at: float | None, event: str) -> None:
        """Adds the arrival at ``place`` to the story and forgets the oldest move when it gets long."""
        story = self._story
        story.append((at, event, self.place))
        if len(story) > _STORY_LENGTH:
            del story[0]
