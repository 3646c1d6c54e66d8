"""How many pods an extender's server is called about at the same time: found from the calls' durations.

The rule is that of TCP Vegas (Brakmo and Peterson, 1995) with the tolerance and the multiplicative step of Gradient2 in
Netflix's concurrency-limits: a call that was alone tells how long the server takes by itself. While calls beside others
take at most TOLERANCE times as long, throughput grows with the limit, and so the limit grows, by one per round. When
they take longer, calls wait for each other in the server: the limit shrinks in proportion, which shortens the wait and
costs no throughput. Before it has shrunk for the first time it grows by one per answer (slow start). A call without an
answer while others were answered halves it. At a limit of 1 calls are alone, and what a call takes is learned again.

It begins at FIRST, so that an extender that scales is fast from its first answer on; if that took long, at as many
calls as end in time even if each waits for the others. Where an extender binds it begins small, and bindings begin with
a few, one more for each that was answered (slow start): clients of the API server have a reserve of requests that is
soon used up, and then they queue.

At a limit of 1 an attempt and a binding may be in progress: kube-scheduler makes as many calls. Bindings go first. A
call to filter is of use once its pod is bound; what is filtered before it can be bound takes the place of a binding.

Waiting up to HARMLESS seconds makes no call late, and is not told from what a busy machine takes: there calls of 10 ms
take 60.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from app.extender.config import Verb

# Needed for each call: to look up a member takes as long as to call a function.
_PREEMPT: Final = Verb.PREEMPT
_BIND: Final = Verb.BIND

#: The limit at the beginning, if it may be as much.
FIRST: Final = 16
#: The same where an extender binds, and how many answers to each verb there are before it grows. Most of these have a
#: client of the API server that is limited, with a reserve that hides it at first: each call beyond the reserve, and
#: each filter before the binding of an earlier pod, is one that no binding has come of.
FIRST_OF_BINDERS: Final = 1
RESERVE: Final = 20
#: Calls after which the limit may shrink, and what is left of it at least.
_FEW: Final = 3
_LEAST: Final = 0.2
#: How many bindings may begin before one was answered.
_FIRST_BINDINGS: Final = 4
#: How much longer calls may take beside others than alone; and how much longer for the limit to grow.
TOLERANCE: Final = 2.0
CAREFUL: Final = 1.5
#: Seconds up to which no call is slow, or that part of the timeout if it is less. Clients with client-go's default
#: limiter let a call wait for 0.2 s at least.
HARMLESS: Final = 0.15
_HARMLESS_PART: Final = 0.05
#: Where an extender binds, no more than so many times what a call takes alone is harmless, but so many seconds at
#: least.
_HARMLESS_TIMES: Final = 10.0
_LEAST_HARMLESS: Final = 0.05
#: A first answer takes long after this part of the timeout. The last of the first calls is then answered after this
#: part.
_LONG: Final = 0.25
_IN_TIME: Final = 0.8
#: The weight of the newest call that was alone.
_NEWEST: Final = 0.5


class CallInProgress(msgspec.Struct, eq=False, frozen=True):
    """A call in progress: when it began, which call of the server it is, and whether none was in progress then."""

    verb: Verb
    began: float
    number: int
    alone: bool


class ConcurrencyLimit:
    """The limit of one server (scheme, host and port), for all extenders and verbs there. Times in seconds, of any one
    clock.

    ``used`` counts what is in progress: attempts of pods, and calls outside of attempts.
    """

    def __init__(
        self, maximum: int = 16, *, fixed: int = 0, timeout: float = 5.0, binds: bool = False
    ) -> None:
        """``fixed``: the limit, 0 to find it, from 1 up to ``maximum``. ``timeout`` of a call. ``binds``: whether any
        extender there binds."""
        self._maximum: Final = fixed or maximum
        self._fixed: Final = bool(fixed)
        self._timeout: Final = timeout
        self._harmless: Final = min(HARMLESS, _HARMLESS_PART * timeout)
        self._limit = float(fixed or min(maximum, FIRST_OF_BINDERS if binds else FIRST))
        #: The limit, at least 1.
        self.limit = int(self._limit)
        self.used = 0
        #: How many bindings may be in progress at most, for what the answers to earlier ones are.
        self.bindings = self._maximum if fixed else _FIRST_BINDINGS
        #: By verb: what a call takes that is alone.
        self._alone: Final[dict[Verb, float]] = {}
        #: By verb: what the last call took.
        self._last: Final[dict[Verb, float]] = {}
        self._calls = 0
        self._begun = 0
        #: Whether any extender there binds, and how many calls of each verb but preempt, which is rare, were then
        #: answered.
        self._binds: Final = binds
        self._answers: Final[dict[Verb, int]] = {}
        #: Whether the limit has never shrunk. Until then it grows by one for each answer, so that the careful beginning
        #: costs an extender that scales little time.
        self._never_shrunk = True
        #: Of this round: how many calls were answered, what they took, and what they may take.
        self._samples = 0
        self._seconds = 0.0
        self._allowed = 0.0
        #: When the last call was answered, or begun while none was in progress.
        self._answered = 0.0

    def silent(self, now: float) -> bool:
        """Whether calls are in progress and none has been answered for a quarter of the timeout.

        What begins then would wait behind them, and miss its deadline with them.
        """
        quiet = now - self._answered
        if quiet <= _LONG * self._timeout or not self._calls or self._fixed:
            return False
        return quiet > TOLERANCE * max(self._alone.values(), default=0.0)

    def left(self, now: float) -> int:
        """How many more may begin now within the limit."""
        return 0 if self.silent(now) else self.limit - self.used

    def takes_both(self) -> bool:
        """Whether an attempt and a binding may be in progress at a limit of 1: both end in time, even one after the
        other."""
        return not self._fixed and sum(self._last.values()) < _IN_TIME * self._timeout

    def begin(self, verb: Verb, now: float) -> CallInProgress:
        """A call begins; to be passed to ``end``, once."""
        if not self._calls:
            self._answered = now
        call = CallInProgress(verb, now, self._begun, not self._calls)
        self._begun += 1
        self._calls += 1
        return call

    def end(self, call: CallInProgress, now: float, *, answered: bool | None) -> None:
        """A call ends. ``answered``: False if it got no answer in time, None if its end says nothing."""
        self._calls -= 1
        if answered is None:
            return
        verb = call.verb
        if answered:
            self._answered = now
            if verb is _BIND:
                self.bindings += 1
            if self._binds and verb is not _PREEMPT:
                self._answers[verb] = self._answers.get(verb, 0) + 1
        if self._fixed:
            return
        if not answered:
            if self._answered > call.began:  # else it answers nobody, which the breaker deals with
                self._shrink(0.5)
            return
        seconds = self._last[verb] = now - call.began
        known = self._alone.get(verb)
        if known is None:
            self._alone[verb] = seconds
            if seconds > _LONG * self._timeout:
                self._set(max(1.0, min(self._limit, _IN_TIME * self._timeout / seconds)))
        elif seconds < known:
            self._alone[verb] = seconds
        elif call.alone and self._begun == call.number + 1:
            self._alone[verb] = known + _NEWEST * (seconds - known)
        self._sample(seconds, self._allowance(verb, TOLERANCE))

    def _allowance(self, verb: Verb, factor: float) -> float:
        """Seconds that a call may take beside others."""
        alone, harmless = self._alone[verb], self._harmless
        if self._binds:
            harmless = min(harmless, max(_LEAST_HARMLESS, _HARMLESS_TIMES * alone))
        return max(factor * alone, harmless)

    def _sample(self, seconds: float, allowed: float) -> None:
        samples = self._samples = self._samples + 1
        self._seconds += seconds
        self._allowed += allowed
        if self._seconds > self._allowed and samples >= min(_FEW, self.limit):
            self._shrink(max(_LEAST, self._allowed / self._seconds))
        elif self._limit < self._maximum and 2 * self.used >= self.limit and self._may_grow():
            step = 1.0 if self._never_shrunk else 1.0 / self._limit
            self._set(min(self._limit + step, float(self._maximum)))
        if self._samples >= self.limit:
            self._new_round()

    def _may_grow(self) -> bool:
        if self._binds and min(self._answers.values(), default=0) <= RESERVE:
            return False
        # In the worst case all calls wait for each other: one more makes each as much later.
        late = max(self._last.values()) * (self.limit + 1) / self.limit > self._timeout
        fast = all(last <= self._allowance(verb, CAREFUL) for verb, last in self._last.items())
        return fast and not late

    def _shrink(self, factor: float) -> None:
        self._never_shrunk = False
        self._set(max(1.0, self._limit * factor))
        self._new_round()

    def _set(self, limit: float) -> None:
        self._limit = limit
        self.limit = int(limit)

    def _new_round(self) -> None:
        self._samples, self._seconds, self._allowed = 0, 0.0, 0.0


class Places:
    """What is in progress at a server, within its limit; calls outside of attempts come first, dry runs last.

    An assumed pod holds its room, and its binding ends its work: it goes first. There are no more bindings than
    attempts led to, so attempts do not starve.
    """

    def __init__(self, limit: ConcurrencyLimit) -> None:
        self.limit: Final = limit
        #: Bindings and preemptions in progress.
        self._outside = 0
        #: Dry runs in progress, which are in addition to ``limit.used``.
        self._behind = 0
        #: Pods (uids) that are about to be bound, for which no attempt may begin: their binding goes first.
        self._coming: Final[set[str]] = set()
        #: Calls that wait for a place, in order.
        self.waiting: Final[dict[object, Callable[[], None]]] = {}
        #: Dry runs that wait, in order.
        self.behind: Final[dict[object, Callable[[], None]]] = {}
        #: Whether attempts wait for a place, and what is called when one may begin.
        self.refused = False
        self.opened: Callable[[], None] = lambda: None

    def left(self, now: float) -> int:
        """How many more attempts may begin now."""
        limit = self.limit
        first = len(self.waiting) + len(self._coming)
        left = limit.left(now) - first
        beside = left <= 0 and limit.used == self._outside and not first
        return 1 if beside and limit.takes_both() and not limit.silent(now) else left

    def announce(self, uid: str) -> None:
        """A pod is about to be bound."""
        self._coming.add(uid)

    def arrived(self, uid: str, now: float) -> None:
        """Its binding has begun, or waits for a place, or will not begin soon."""
        if uid in self._coming:
            self._coming.remove(uid)
            self.admit(now)

    def take(self) -> None:
        """An attempt begins."""
        self.limit.used += 1

    def take_outside(self, now: float) -> bool:
        """Whether a call outside of attempts can begin now, and begins."""
        limit = self.limit
        if limit.silent(now) or self._outside >= limit.bindings:
            return False
        if limit.used >= limit.limit and (self._outside or not limit.takes_both()):
            return False
        self._outside += 1
        limit.used += 1
        return True

    def give_back_outside(self, now: float) -> None:
        """A call outside of attempts has ended."""
        self._outside -= 1
        self.give_back(now)

    def give_back(self, now: float) -> None:
        """An attempt has ended."""
        self.limit.used -= 1
        if self.refused or self.waiting or self.behind:
            self.admit(now)

    def take_behind(self, now: float) -> bool:
        """Whether a dry run can begin now, and begins: in any place while nothing else is in progress, else in half of
        those that are free.

        No other call waits for it: it is in addition to those.
        """
        limit = self.limit
        if self.waiting or limit.silent(now):
            return False
        free = limit.limit - limit.used
        if self._behind >= ((free + 1) // 2 if limit.used else free):
            return False
        self._behind += 1
        return True

    def give_back_behind(self, now: float) -> None:
        """A dry run has ended."""
        self._behind -= 1
        self._admit_behind(now)

    def admit(self, now: float) -> None:
        """Lets the first calls that wait begin, then attempts."""
        while self.waiting and self.take_outside(now):
            self.waiting.pop(next(iter(self.waiting)))()
        if self.refused and self.left(now) > 0:
            self.refused = False
            self.opened()
        self._admit_behind(now)

    def _admit_behind(self, now: float) -> None:
        while self.behind and self.take_behind(now):
            self.behind.pop(next(iter(self.behind)))()
