"""What the client tells those who watch it: metrics, logs, events, stories."""

from typing import Protocol

from app.extender.breaker import State
from app.extender.config import Verb
from app.extender.errors import ExtenderError, Outcome
from app.model.pod import Pod


class Observer(Protocol):
    """Is told of everything that happens on the way to extenders. Must not raise or wait."""

    def call_started(self, extender: str, verb: Verb) -> None:
        """A request is about to be sent."""

    def call_finished(
        self,
        extender: str,
        verb: Verb,
        outcome: Outcome,
        *,
        seconds: float,
        sent: int,
        received: int,
    ) -> None:
        """The call is over; ``sent`` and ``received`` are bytes of the bodies. Follows each call_started once."""

    def call_held_back(self, extender: str, verb: Verb) -> None:
        """A call was not made because the breaker is open."""

    def nodes_dropped(self, extender: str, count: int) -> None:
        """The extender's filter turned down this many of the nodes it was sent."""

    def breaker_changed(self, extender: str, verb: Verb, state: State) -> None:
        """The breaker of a verb opened, went half-open or closed."""

    def error_ignored(self, error: ExtenderError, pod: Pod) -> None:
        """A failed call was passed over: the extender is ignorable, or the verb is prioritize."""

    def warned(self, extender: str, text: str) -> None:
        """Something is not as it should be: files that are read again while we run, or how it is configured."""


class NullObserver:
    """Watches nothing."""

    def call_started(self, extender: str, verb: Verb) -> None:
        """Does nothing."""

    def call_finished(
        self,
        extender: str,
        verb: Verb,
        outcome: Outcome,
        *,
        seconds: float,
        sent: int,
        received: int,
    ) -> None:
        """Does nothing."""

    def call_held_back(self, extender: str, verb: Verb) -> None:
        """Does nothing."""

    def nodes_dropped(self, extender: str, count: int) -> None:
        """Does nothing."""

    def breaker_changed(self, extender: str, verb: Verb, state: State) -> None:
        """Does nothing."""

    def error_ignored(self, error: ExtenderError, pod: Pod) -> None:
        """Does nothing."""

    def warned(self, extender: str, text: str) -> None:
        """Does nothing."""
