"""The client of one extender: sends requests and reads its answers (docs/spec/extenders.md)."""

import asyncio
import functools
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlsplit

import msgspec
import numpy as np

from app.extender import events
from app.extender.answers import excerpt, retry_after
from app.extender.breaker import Admission, Breaker, State
from app.extender.config import ExtenderConfig, ExtenderConfigError, Verb, redacted
from app.extender.errors import (
    NO_ANSWER,
    NOT_CALLED,
    CallOutcome,
    ErrorAnswer,
    ExtenderError,
    TransportError,
)
from app.extender.exchange import Large
from app.extender.interest import Interest, LabelsOf
from app.extender.limit import CallInProgress, ConcurrencyLimit, Places
from app.extender.memory import AnswerMemory
from app.extender.tls import TLSSource
from app.extender.transport import ExtenderResponse, HTTPTransport
from app.http.files import TokenFile
from app.http.proxy import proxy_for
from app.model.pod import Pod
from app.runtime.tasks import in_steps
from app.state.columns.arrays import Int64
from app.wire import extender_v1 as wire
from app.wire.extender_v1 import (
    AnswerError,
    AnswerReader,
    Body,
    ExtenderArgs,
    FilterAnswer,
    Victims,
)
from app.wire.group_v1 import GroupAnswer, GroupArgs, GroupReader

A = TypeVar("A")
T = TypeVar("T")

#: The pods on a node by UID, None for a node that does not exist.
PodsOn = Callable[[str], Mapping[str, Pod] | None]

#: Scores of extenders (0 to 10 by convention) are multiplied by this to match those of plugins (0 to 100).
SCORE_SCALE: Final = 10

#: Outcomes that say nothing about whether the extender answers.
_INCONCLUSIVE: Final = frozenset((CallOutcome.CANCELLED, CallOutcome.STALE, CallOutcome.SHORTAGE))

# Members of enumerations that are needed for each call: to look one up takes as long as to call a function.
_FILTER: Final = Verb.FILTER
_PRIORITIZE: Final = Verb.PRIORITIZE
_CLOSED: Final = State.CLOSED
_CALL: Final = Admission.CALL
_CANCELLED: Final = CallOutcome.CANCELLED
_SUCCESS: Final = CallOutcome.SUCCESS
_TIMEOUT: Final = CallOutcome.TIMEOUT

_NO_RESPONSE: Final = ExtenderResponse(0, {}, b"")

#: Verbs whose calls the limit is found from; others are rare, or about many pods at once.
_LIMITED: Final = frozenset((Verb.FILTER, Verb.PRIORITIZE, Verb.PREEMPT, Verb.BIND))

#: The largest answer, in bytes, that is kept, and how many of each verb are: while one list of nodes takes the place of
#: another, answers about both arrive in any order.
_MOST_KEPT: Final = 256 * 1024
_LISTS: Final = 2
_UNSIGNED: Final = 2**64
_SIGN: Final = 2**63


class HTTPExtender:
    """Calls one extender, from one event loop; call ``close`` at the end."""

    def __init__(
        self,
        config: ExtenderConfig,
        *,
        sink: events.Sink = events.ignore,
        transport: HTTPTransport | None = None,
        memory: AnswerMemory | None = None,
        environ: Mapping[str, str] = os.environ,
        may_call: Callable[[], bool] = lambda: True,
        labels_of: LabelsOf = lambda _namespace: None,
        places: Places | None = None,
        ahead: "HTTPExtender | None" = None,
    ) -> None:
        """``places`` at its server, shared with the other extenders there; ``memory`` for large answers is shared with
        other extenders; ``may_call`` is asked right before each call.

        ``labels_of`` a namespace is asked if the configuration has a namespace selector.

        ``ahead``: all calls are dry runs of this extender. They wait until its server has room beside other calls, are
        not made unless its breaker is closed, and neither its breaker nor its limit learns from them.

        Raises ExtenderConfigError if the configuration does not allow calls.
        """
        _check_url(config)
        self.config: Final = config
        self.name: Final = config.name
        self._emit: Final = sink
        self._tls: Final = TLSSource(config)
        self._token: Final = token_file(config)
        #: Warnings about its configuration.
        self.warnings: Final = self._tls.warnings + _token_warnings(config)
        self._transport: Final = transport or transport_for(config, self._tls, environ, may_call)
        self._memory: Final = memory or AnswerMemory(0)
        self._factor: Final = _int64(config.weight * SCORE_SCALE)
        self._states: Final = {
            verb: _VerbState(
                verb,
                config.url(verb) if config.path(verb) else "",
                Breaker(config.breaker),
                limited=verb in _LIMITED and ahead is None,
            )
            for verb in Verb
        }
        self._ahead: Final = ahead
        #: Held during a call if only one may be in progress.
        self.turn: Final[asyncio.Lock | None] = (
            ahead.turn if ahead is not None else asyncio.Lock() if config.serial else None
        )
        if ahead is not None:
            places = ahead.places
        #: What is in progress at its server: attempts, which take a place before they call, and bindings and
        #: preemptions.
        self.places: Final[Places] = places or Places(
            ConcurrencyLimit(
                fixed=config.fixed_limit,
                timeout=config.timeout,
                binds=bool(config.bind_verb),
            )
        )
        self._limit = 0
        interest = Interest(config, labels_of)
        #: Whether a pod concerns the extender, and whether such pods do in some namespaces at least.
        self.is_interested: Final = interest.concerns
        self.may_concern: Final = interest.may_concern
        #: Whether it is interested in every pod.
        self.concerns_all: Final = interest.everything
        #: Whether scheduling goes on without it when it fails.
        self.ignorable: Final = config.ignorable
        self._timeout: Final = config.timeout
        self._warned = ""

    def __repr__(self) -> str:
        return f"HTTPExtender({self.name!r})"

    def supports(self, verb: Verb) -> bool:
        """Whether the verb is configured."""
        return bool(self._states[verb].url)

    def state(self, verb: Verb) -> State:
        """The breaker's state for a verb."""
        return self._states[verb].breaker.state

    def why_not(self, verb: Verb) -> ExtenderError | None:
        """The error of a call that the breaker holds back; None if it would be made."""
        if not self.holds_back(verb):
            return None
        return self._held_back(self._states[verb])

    def holds_back(self, verb: Verb) -> bool:
        """Whether the breaker would hold back a call."""
        if self._ahead is not None and self._ahead.state(verb) is not _CLOSED:
            return True
        breaker = self._states[verb].breaker
        return breaker.state is not _CLOSED and breaker.holds_back(self._now())

    async def filter(self, args: ExtenderArgs) -> FilterAnswer:
        """Calls filter: which of the nodes accept the pod. Raises ExtenderError."""
        by_name = self.config.node_cache_capable
        reader = wire.FILTER_BY_NAME if by_name else wire.FILTER_WHOLE
        body = args.body(whole=not by_name)
        call = _Call(args.pod, body, reader, lambda answer: self._with_kept(answer, args), args)
        answer = await self._ask(_FILTER, call)
        if answer.kept is not args.names:
            dropped = len(set(args.names).difference(answer.kept))
            if dropped:
                self._emit(events.NodesRejected(self.name, dropped))
        if call.retry_after == answer.retry_after:
            return answer
        return msgspec.structs.replace(answer, retry_after=call.retry_after)

    async def prioritize(self, args: ExtenderArgs) -> Int64:
        """Calls prioritize; int64[len(args.names)]: score * weight * SCORE_SCALE per name. Raises ExtenderError.

        A host that is named twice is counted twice, one that was not sent is ignored; int64 wraps around as in Go.
        """
        body, reader = args.body(whole=not self.config.node_cache_capable), wire.PRIORITIZE
        call = _Call(args.pod, body, reader, lambda answer: self._weighted(answer, args), args)
        hosts, scores, weighted = await self._ask(_PRIORITIZE, call)
        self._emit(events.NodesScored(self.name, args.pod, hosts, scores))
        return weighted

    async def preempt(
        self, pod: Pod, victims: Mapping[str, Victims], pods_on: PodsOn
    ) -> dict[str, Victims]:
        """Calls preempt: the nodes and victims that it accepts; it may name other victims. Raises ExtenderError."""
        body = wire.preempt_request(pod, victims, whole=not self.config.node_cache_capable)
        call = _Call(pod, body, wire.PREEMPT, lambda agreed: self._victims(agreed, pods_on))
        async with self._place():
            return await self._ask(Verb.PREEMPT, call)

    async def bind(self, pod: Pod, node_name: str) -> None:
        """Calls bind. Raises ExtenderError; see its ``answer_lost``."""
        call = _Call(pod, wire.bind_request(pod, node_name), wire.BIND, _no_error)
        async with self._place(pod.uid):
            await self._ask(Verb.BIND, call)

    async def release(self, pods: Sequence[Pod], reason: str) -> None:
        """Calls release: these pods will not be bound to their ``node_name``. Raises ExtenderError."""
        call = _Call(pods[0], wire.release_request(pods, reason), wire.BIND, _no_error)
        await self._ask(Verb.RELEASE, call)

    async def group(self, args: GroupArgs) -> GroupAnswer:
        """Calls group: which nodes accept which of a group's pods, with scores * weight * SCORE_SCALE. Raises
        ExtenderError."""
        call = _Call(next(args.pods), args.body(), GroupReader(args), self._scaled)
        answer = await self._ask(Verb.GROUP, call)
        dropped = sum(len(verdict.sent) - len(verdict.kept) for verdict in answer.verdicts)
        if dropped:
            self._emit(events.NodesRejected(self.name, dropped))
        return msgspec.structs.replace(answer, retry_after=call.retry_after)

    async def close(self) -> None:
        """Closes the connections."""
        await self._transport.close()

    # ------------------------------------------------------------ answers

    def _with_kept(self, answer: FilterAnswer, args: ExtenderArgs) -> FilterAnswer:
        """The answer to filter with the nodes that survive it: ``args.names`` if all do.

        See docs/spec/extenders.md#filter.
        """
        sent = args.names
        if answer.error:
            raise _Refusal(answer.error)
        by_name = self.config.node_cache_capable and answer.node_names is not None
        kept = (answer.node_names if by_name else answer.nodes) or []
        if kept is sent or kept == sent:
            return msgspec.structs.replace(answer, kept=sent)
        strangers = set(kept).difference(sent) if by_name else ()
        if strangers:
            stranger = next(name for name in kept if name in strangers)
            raise AnswerError(
                f'extender "{self.name}" claims a filtered node "{stranger}" which is not found in the input node list'
            )
        return msgspec.structs.replace(answer, kept=kept)

    def _weighted(
        self, answer: tuple[list[str], list[int]], args: ExtenderArgs
    ) -> tuple[list[str], list[int], Int64]:
        """The answer to prioritize, and int64[len(args.names)] with the weighted scores, which must not be changed."""
        weighted = _aligned(args, *answer) * np.int64(self._factor)
        weighted.flags.writeable = False
        return (*answer, weighted)

    def _scaled(self, answer: GroupAnswer) -> GroupAnswer:
        """The answer to group with scores as they are added to those of plugins."""
        if answer.error:
            raise _Refusal(answer.error)
        for verdict in answer.verdicts:
            hosts, scores = list(verdict.scores), list(verdict.scores.values())
            for pod in verdict.pods if scores else ():
                self._emit(events.NodesScored(self.name, pod, hosts, scores))
        return msgspec.structs.replace(
            answer,
            verdicts=[
                msgspec.structs.replace(
                    verdict,
                    scores={n: _int64(s * self._factor) for n, s in verdict.scores.items()},
                )
                for verdict in answer.verdicts
            ],
        )

    def _victims(
        self, agreed: Mapping[str, wire.MetaVictims], pods_on: PodsOn
    ) -> dict[str, Victims]:
        return {
            name: Victims(self._found(name, meta.uids, pods_on(name)), meta.num_pdb_violations)
            for name, meta in agreed.items()
        }

    def _found(
        self, node_name: str, uids: Sequence[str], pods: Mapping[str, Pod] | None
    ) -> tuple[Pod, ...]:
        if pods is None:
            raise AnswerError(f'nodeinfo not found for node name "{node_name}"')
        for uid in uids:
            if uid not in pods:
                raise AnswerError(
                    f"extender: {self.name} claims to preempt pod (UID: &{{{uid}}}) on node: {node_name}, "
                    "but the pod is not found on that node"
                )
        return tuple(pods[uid] for uid in uids)

    # ------------------------------------------------------------ calls

    def _ask(self, verb: Verb, call: "_Call[A, T]") -> Coroutine[Any, Any, T]:
        """The judged answer; waits for its turn if only one call may be in progress. Raises ExtenderError."""
        if self.turn is None and self._ahead is None:
            return self._observed(self._states[verb], call)
        return self._in_turn(self._states[verb], call)

    async def _in_turn(self, state: "_VerbState", call: "_Call[A, T]") -> T:
        async with self._behind(), self.turn or nullcontext():
            return await self._observed(state, call)

    async def _observed(self, state: "_VerbState", call: "_Call[A, T]") -> T:
        """One exchange. All errors of it and of its answer are raised as ExtenderError."""
        now, verb, body, asked = self._now, state.verb, call.body, call.asked
        started = now()
        usual = state.breaker.state is _CLOSED and self._ahead is None
        admission = _CALL if usual else self._admit(state, started)
        self._emit(events.CallStarted(self.name, verb))
        counted = self.places.limit.begin(verb, started) if state.limited else None
        try:
            response = await self._transport.post(
                state.url,
                body,
                headers=self._headers(),
                timeout_seconds=self._timeout,
                large=Large(call.reader, asked, self._memory),
            )
            call.response, call.retry_after = response, retry_after(response.headers)
            last = None if asked is None else state.same(response, asked.names)
            answer: T = await self._read(state, call, response) if last is None else last.judged
            call.outcome = _SUCCESS
        except TransportError as err:
            raise self._error(state, call, err.text, err.outcome, sent=err.sent) from err
        except AnswerError as err:
            raise self._error(state, call, str(err), CallOutcome.BAD_ANSWER) from err
        except _Refusal as err:
            raise self._error(state, call, str(err), CallOutcome.ERROR) from err
        except ExtenderError:
            raise
        except Exception as err:
            raise self._unexpected(state, call, err) from err
        finally:
            ended = now()
            self._report(state, call.outcome, admission, started, ended)
            if counted is not None:
                self._count(call.outcome, counted, ended)
            response = call.response
            self._emit(
                events.CallFinished(
                    self.name,
                    verb,
                    call.outcome,
                    ended - started,
                    body.size,
                    response.received,
                    call.pod,
                    body,
                    response.body,
                    asked,
                    response.status,
                    call.retry_after,
                )
            )
        return answer

    @functools.cached_property
    def _now(self) -> Callable[[], float]:
        """The time of the event loop, which is looked up once: that takes a system call."""
        return asyncio.get_running_loop().time

    @asynccontextmanager
    async def _place(self, uid: str = "") -> AsyncIterator[None]:
        """A place at the server, for a call outside of attempts, such as the binding of the pod with this ``uid``.

        ``_behind`` has that of a dry run.
        """
        if self._ahead is not None:
            yield
            return
        places, now = self.places, self._now
        at_once = not places.waiting and places.take_outside(now())
        if at_once:
            places.arrived(uid, now())
        else:
            freed = asyncio.get_running_loop().create_future()
            places.waiting[freed] = partial(_set, freed)
            places.arrived(uid, now())
            try:
                await freed
            except asyncio.CancelledError:
                if places.waiting.pop(freed, None) is None:
                    places.give_back_outside(now())
                raise
        try:
            yield
        finally:
            places.give_back_outside(now())

    @asynccontextmanager
    async def _behind(self) -> AsyncIterator[None]:
        """For a dry run: room at the server that no other call needs."""
        if self._ahead is None:
            yield
            return
        places, now = self.places, self._now
        if places.behind or not places.take_behind(now()):
            freed = asyncio.get_running_loop().create_future()
            places.behind[freed] = partial(_set, freed)
            try:
                await freed
            except asyncio.CancelledError:
                if places.behind.pop(freed, None) is None:
                    places.give_back_behind(now())
                raise
        try:
            yield
        finally:
            places.give_back_behind(now())

    def _count(self, outcome: CallOutcome, counted: CallInProgress, now: float) -> None:
        """Tells the limit that a call has ended."""
        limit, answered = self.places.limit, None
        if outcome is _SUCCESS:
            answered = True
        elif outcome is _TIMEOUT:
            answered = False
        elif not outcome.unanswered and outcome not in _INCONCLUSIVE:
            answered = True
        before = limit.limit
        limit.end(counted, now, answered=answered)
        if limit.limit > before or self.places.waiting or self.places.behind:
            self.places.admit(now)
        if limit.limit != self._limit:
            self._limit = limit.limit
            self._emit(events.LimitChanged(self.name, limit.limit))

    async def _read(
        self, state: "_VerbState", call: "_Call[A, T]", response: ExtenderResponse
    ) -> T:
        """The judged answer in a response. Raises AnswerError, _Refusal, and ExtenderError for a status other than
        200."""
        reader, asked, body = call.reader, call.asked, response.body
        if response.status != 200:
            raise self._status_error(state, call, response)
        if response.stream is not None:
            return call.judge(reader.finished(response.stream))
        judged = call.judge(await in_steps(reader.steps(body, asked)))
        if asked is not None and len(body) <= _MOST_KEPT:
            state.answers.appendleft(_LastAnswer(asked.names, body, judged))
        return judged

    def _admit(self, state: "_VerbState", now: float) -> Admission:
        """Asks the breaker. Raises ExtenderError if the call is held back."""
        breaker = state.breaker
        if self._ahead is not None and self.holds_back(state.verb):
            raise self._held_back(state)
        before, admission = breaker.state, breaker.admit(now)
        if breaker.state is not before:
            self._emit(events.BreakerChanged(self.name, state.verb, breaker.state))
        if admission is Admission.HELD_BACK:
            raise self._held_back(state)
        return admission

    def _held_back(self, state: "_VerbState") -> ExtenderError:
        self._emit(events.CallHeldBack(self.name, state.verb))
        text = f'extender "{self.name}" {NOT_CALLED}: {state.last_failure}'
        return ExtenderError(
            text, extender=self.name, verb=state.verb, outcome=CallOutcome.HELD_BACK, sent=False
        )

    def _report(
        self,
        state: "_VerbState",
        outcome: CallOutcome,
        admission: Admission,
        began: float,
        now: float,
    ) -> None:
        """Tells the breaker how a call has ended."""
        breaker = state.breaker
        before = breaker.state
        if outcome is _SUCCESS:
            breaker.succeeded(now)
        elif outcome in _INCONCLUSIVE:
            breaker.abandoned(admission, now)
        elif outcome.unanswered:
            breaker.failed(admission, began, now)
        else:
            breaker.succeeded(now)
        if breaker.state is not before:
            self._emit(events.BreakerChanged(self.name, state.verb, breaker.state))

    def _headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        problem = self._tls.problem
        if self._token is not None:
            token = self._token.token(asyncio.get_running_loop().time())
            headers["Authorization"] = f"Bearer {token}"
            problem = problem or self._token.problem
        if problem and problem != self._warned:
            self._emit(events.ExtenderWarning(self.name, problem))
        self._warned = problem
        return headers

    def _status_error(
        self, state: "_VerbState", call: "_Call[A, T]", response: ExtenderResponse
    ) -> ExtenderError:
        path, url = self.config.path(state.verb), redacted(state.url)
        text = f"failed {path} with extender at URL {url}, code {response.status}"
        return self._error(state, call, text, CallOutcome.STATUS, response=response)

    def _unexpected(
        self, state: "_VerbState", call: "_Call[A, T]", err: Exception
    ) -> ExtenderError:
        """The ExtenderError for an answer that raised an unexpected exception."""
        warning = f"reading the answer to {state.verb.value} failed: {err!r:.500}"
        self._emit(events.ExtenderWarning(self.name, warning))
        text = f"the answer cannot be read: {type(err).__name__}"
        return self._error(state, call, text, CallOutcome.BAD_ANSWER)

    def _error(
        self,
        state: "_VerbState",
        call: "_Call[A, T]",
        text: str,
        outcome: CallOutcome,
        *,
        response: ExtenderResponse | None = None,
        sent: bool = True,
    ) -> ExtenderError:
        call.outcome = outcome
        if outcome.unanswered:
            state.last_failure = text
        return ExtenderError(
            text,
            extender=self.name,
            verb=state.verb,
            outcome=outcome,
            answer=ErrorAnswer(response.status, excerpt(response.body)) if response else NO_ANSWER,
            retry_after=call.retry_after,
            sent=sent,
        )


def _set(freed: asyncio.Future[None]) -> None:
    if not freed.done():
        freed.set_result(None)


class _Refusal(Exception):  # noqa: N818 - never leaves this module
    """The Error in an answer."""


class _LastAnswer(msgspec.Struct, frozen=True):
    """An answer about the nodes with these names, as bytes and as ``_Call.judge`` returned it."""

    names: list[str]
    body: bytes
    judged: Any


class _VerbState(msgspec.Struct, eq=False):
    """What is kept for the calls of one verb."""

    verb: Verb
    #: Empty if the verb is not configured.
    url: str
    breaker: Breaker
    #: Whether the limit is found from these calls.
    limited: bool
    #: The last answers that are not large.
    answers: deque[_LastAnswer] = msgspec.field(default_factory=lambda: deque(maxlen=_LISTS))
    #: Why the last call that was not answered has failed.
    last_failure: str = ""

    def same(self, response: ExtenderResponse, names: list[str]) -> _LastAnswer | None:
        """A kept answer that is equal, and about the same list of nodes; None if there is none.

        Extenders are often asked about the same list for replicas, and answer the same.
        """
        if response.status == 200 and response.stream is None:
            for last in self.answers:
                if last.names is names and last.body == response.body:
                    return last
        return None


class _Call(msgspec.Struct, Generic[A, T], eq=False):
    """A call: what it sends about a pod, how its answer is read, and how far it got.

    ``judge`` raises AnswerError or _Refusal.
    """

    pod: Pod
    body: Body
    reader: AnswerReader[A]
    judge: Callable[[A], T]
    asked: ExtenderArgs | None = None
    outcome: CallOutcome = _CANCELLED
    response: ExtenderResponse = _NO_RESPONSE
    retry_after: float | None = None


def _int64(number: int) -> int:
    """The number as Go's int64, wrapped around."""
    return (number + _SIGN) % _UNSIGNED - _SIGN


def _aligned(args: ExtenderArgs, hosts: list[str], scores: list[int]) -> Int64:
    """int64[len(args.names)]: the sum of the scores given to each, 0 where there is none."""
    if args.distinct and hosts == args.names:
        return np.fromiter(scores, np.int64, len(scores))
    sums: dict[str, int] = {}
    for host, score in zip(hosts, scores, strict=True):
        sums[host] = sums.get(host, 0) + score
    return np.array([_int64(sums.get(name, 0)) for name in args.names], np.int64)


def _no_error(error: str) -> None:
    if error:
        raise _Refusal(error)


def _check_url(config: ExtenderConfig) -> None:
    try:
        parts = urlsplit(config.url_prefix)
        usable = parts.scheme.lower() in {"http", "https"} and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        usable = False
    if not usable:
        raise ExtenderConfigError(
            f"extender {config.name!r}: urlPrefix must be an http:// or https:// URL with a host"
        )
    if parts.username is not None and config.bearer_token_file:
        raise ExtenderConfigError(
            f"extender {config.name}: give either a user in the urlPrefix or a bearer token file, not both"
        )


def transport_for(
    config: ExtenderConfig,
    tls: TLSSource,
    environ: Mapping[str, str],
    may_call: Callable[[], bool] = lambda: True,
) -> HTTPTransport:
    """A transport with the configured TLS and proxies. Raises ExtenderConfigError."""
    try:
        proxy_for(config.url_prefix, environ)
    except ValueError as err:
        raise ExtenderConfigError(f"extender {config.name}: {err}") from err
    return HTTPTransport(
        tls=tls,
        proxy_for=partial(proxy_for, environ=environ),
        keepalive_timeout=config.keepalive_timeout,
        max_answer_bytes=config.max_answer_bytes,
        may_call=may_call,
    )


def token_file(config: ExtenderConfig) -> TokenFile | None:
    """The file with the bearer token; None without one. Raises ExtenderConfigError."""
    if not config.bearer_token_file:
        return None
    try:
        return TokenFile(config.bearer_token_file)
    except ValueError as err:
        raise ExtenderConfigError(f"extender {config.name}: {err}") from err


def _token_warnings(config: ExtenderConfig) -> tuple[str, ...]:
    if not config.bearer_token_file or config.url_prefix.lower().startswith("https:"):
        return ()
    return (
        f"extender {config.name}: its bearer token is sent unencrypted; use an https:// urlPrefix",
    )
