"""Finds a node for a pod together with the extenders, and binds pods through them.

The extenders get the best candidates first, as many at a time as percentageOfNodesToScore allows; if they reject all,
the next ones follow. No node is sent twice. The node is chosen from the accepted ones on the table as it is when the
last answer has arrived, with no await in between (docs/architecture.md).
"""

import asyncio
import contextlib
import functools
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from app.cycle.attempt import (
    DROPPED,
    Attempt,
    Choice,
    NoNodesError,
    Signature,
    Unfit,
    best_first,
    feasible_nodes_to_find,
)
from app.cycle.pod_cycle import paused
from app.extender.chain import ExtenderChain, FilterResult
from app.extender.config import Verb
from app.extender.errors import ExtenderError
from app.extender.known_answers import KnownAnswers
from app.framework.diagnosis import EXTENDER
from app.kube.writer import KubeWriter
from app.model.pod import Pod
from app.model.pod_groups import GroupKey
from app.model.status import SchedulingError, Status, unresolvable, unschedulable
from app.scheduler.driving import drive
from app.scheduler.extender_retries import ExtenderRetries
from app.scheduler.node_locks import NodeLocks
from app.scheduler.serial_extenders import SerialGate
from app.state.columns.arrays import Int64, Rows
from app.state.columns.labels import Mask
from app.state.queue.queued_pod import Lane
from app.state.table import NodeTable
from app.wire.extender_v1 import ExtenderArgs
from app.wire.group_v1 import GroupQuestion

#: Chooses a node together with the extenders. Raises NoNodesError, Unfit, SchedulingError.
Choose = Callable[[Attempt], Coroutine[Any, Any, Choice]]

#: The same nodes are sent about another pod only if they are more than this for each row that has changed since.
_NODES_PER_CHANGE: Final = 20
#: Characters of a reason that are kept: it is part of a message that lists all of them.
MAX_REASON: Final = 1024
_CHOOSER: Final = (
    "the only node that it left of several was full before the pod could be assumed there, because calls overlap; "
    "if it "
    "reserves nodes while it filters, remove 'serial: false' (aiokube-scheduler.io/v1alpha1)"
)


class _Candidates(msgspec.Struct, frozen=True):
    """Nodes to send to extenders: their names, and their rows, valid while the table has this layout."""

    #: What is sent about the pod for which they were found.
    args: ExtenderArgs
    rows: Rows
    layout: int

    @property
    def names(self) -> list[str]:
        """The names of the nodes."""
        return self.args.names


class _Look(msgspec.Struct, frozen=True):
    """The nodes that were sent about a pod, and the generation of the table at which they were found."""

    signature: Signature
    candidates: _Candidates
    generation: int


class Questions:
    """What extenders were asked during one cycle of a pod group (ExtenderCycle.questions)."""

    def __init__(self, known: KnownAnswers) -> None:
        self.known: Final = known
        #: What was sent last about a pod, by uid, and about a pod with this namespace and template.
        self._sent: Final[dict[Hashable, _Candidates]] = {}

    def sent(self, pod: Pod, candidates: _Candidates) -> None:
        """Takes note of nodes that extenders are asked about."""
        self._sent[pod.uid] = self._sent[pod.namespace, pod.template] = candidates

    def preferred(self, pod: Pod, rows: Rows, totals: Int64, table: NodeTable) -> Int64:
        """int64[len(rows)]: ranks like ``totals``, but of equal rows first those that were sent before."""
        sent = self._sent.get(pod.uid) or self._sent.get((pod.namespace, pod.template))
        if sent is None or sent.layout != table.layout:
            return totals
        known = np.zeros(int(max(rows.max(), sent.rows.max())) + 1, np.bool_)
        known[sent.rows] = True
        ranks: Int64 = totals * 2 + known[rows]
        return ranks


class ExtenderCycle:
    """Finds a node for a pod together with the extenders."""

    def __init__(
        self,
        chain: ExtenderChain,
        table: NodeTable,
        *,
        percentages: Mapping[str, int],
        rng: np.random.Generator,
        retries: ExtenderRetries,
        serial: SerialGate,
        before_asking: Callable[[str], Awaitable[None]],
    ) -> None:
        """``percentages``: percentageOfNodesToScore by profile, 0 for the adaptive one.

        ``before_asking`` is awaited with the uid of each pod before extenders are asked about it.
        """
        self._chain: Final = chain
        self._table: Final = table
        self._percentages: Final = percentages
        self._rng: Final = rng
        self._retries: Final = retries
        self._before_asking: Final = before_asking
        #: Extenders with ``serial: false`` that no warning was given for yet.
        self._overlapping: Final = {e.name for e in chain.extenders if e.config.serial is False}
        self._serial: Final = serial
        self._lane: Final = serial.extenders_of
        #: See SerialGate.
        self.gate: Final = serial.gate
        self.hold: Final = serial.hold
        self.give_up: Final = serial.give_up
        self._others: Final = [
            e
            for e in chain.extenders
            if not (e.supports(Verb.FILTER) or e.supports(Verb.PRIORITIZE))
            and (e.supports(Verb.PREEMPT) or e.supports(Verb.BIND))
        ]
        #: What the last look at the table found.
        self._look: _Look | None = None
        #: The extenders that are asked about groups with one call.
        self._whole: Final = frozenset(e.name for e in chain.extenders if e.supports(Verb.GROUP))

    def concerns(self, pod: Pod) -> bool:
        """Whether any extender filters or prioritizes for this pod."""
        return bool(self._lane(pod))

    def calls_otherwise(self, pod: Pod) -> bool:
        """Whether an extender that only preempts or binds may be called for this pod."""
        return bool(self._others) and any(e.is_interested(pod) for e in self._others)

    def questions(self, key: GroupKey, min_count: int | None) -> Questions:
        """For a new cycle of a pod group: no node is sent twice in it for the same pod."""
        return Questions(KnownAnswers(key, min_count, self._serial.observe_answer))

    @property
    def asks_about_groups(self) -> bool:
        """Whether any extender has a group verb."""
        return bool(self._whole)

    async def ask_group(self, attempts: Sequence[Attempt], questions: Questions) -> None:
        """Asks the extenders with a group verb about these pods at once. Raises ExtenderError.

        Pods for which no node is feasible now are asked about when it is their turn.
        """
        lane: Lane = frozenset()
        found: dict[Hashable, tuple[_Candidates, GroupQuestion] | None] = {}
        for attempt in attempts:
            pod = attempt.pod
            names = self._lane(pod) & self._whole
            if not names:
                continue
            key = pod.namespace, pod.template
            if key not in found:
                found[key] = None
                with contextlib.suppress(Unfit, NoNodesError, SchedulingError):
                    candidates = await self._candidates(attempt, set(), questions, len(attempts))
                    found[key] = candidates, GroupQuestion([], candidates.names)
            alike = found[key]
            if alike is not None:
                lane |= names
                questions.sent(pod, alike[0])
                await self._before_asking(pod.uid)
                alike[1].pods.append(pod)
        asked = [alike[1] for alike in found.values() if alike is not None]
        if not asked:
            return
        await self._serial.wait(lane)
        self._serial.begin(lane)
        try:
            await self._chain.ask_group(asked, questions.known)
        except ExtenderError as error:
            first, *others = itertools.chain.from_iterable(each.pods for each in asked)
            self._retries.failed(first, error)
            for pod in others:
                self._retries.rejected(pod, (error.extender,), error.retry_after)
            raise
        finally:
            self._serial.end(lane)

    async def take_turn(self, pod: Pod, questions: Questions) -> Choose | None:
        """As ``begin``, when the pod's extenders can be called: for a pod whose lane ``gate`` was not asked about.

        None if no extender is called for this pod of a group.
        """
        await self._serial.wait(self._lane(pod) - self._whole)
        lane = self._lane(pod)
        return self.begin(lane - self._whole, questions) if lane else None

    def begin(self, lane: Lane, questions: Questions | None = None) -> Choose:
        """How to choose the node of a pod of this lane, which must be called once."""
        self._serial.begin(lane)
        return functools.partial(self._choose_in, lane, questions)

    async def ask_ahead(
        self, attempt: Attempt, questions: Questions, spare: int, wanted: Callable[[], bool]
    ) -> None:
        """Asks about a pod of a group before its turn, if its extenders may be called for several pods at a time.

        ``spare``: nodes that are sent beyond the usual number, for those that the pods before it will take.
        """
        lane = self._lane(attempt.pod) - self._whole
        if not wanted() or not self.may_ask_ahead(attempt.pod):
            return
        self._serial.begin(lane)
        try:
            await self._before_asking(attempt.pod.uid)
            candidates = await self._candidates(attempt, set(), questions, spare)
            questions.sent(attempt.pod, candidates)
            args = candidates.args.of(attempt.pod)
            await self._chain.ask_ahead(args, questions.known, wanted)
        finally:
            self._serial.end(lane)

    def may_overlap(self, pod: Pod) -> bool:
        """Whether extenders are called for this pod of a group alone, and may be called for other pods at the same
        time."""
        lane = self._lane(pod) - self._whole
        return bool(lane) and self._serial.may_overlap(lane)

    def may_ask_ahead(self, pod: Pod) -> bool:
        """Whether extenders may be called for this pod of a group before its turn."""
        return self.may_overlap(pod) and self._serial.has_room(self._lane(pod) - self._whole)

    async def _choose_in(self, lane: Lane, questions: Questions | None, attempt: Attempt) -> Choice:
        """The chosen node. The attempt counts for this lane, even if the pod concerns other extenders meanwhile."""
        try:
            await self._before_asking(attempt.pod.uid)
            return await self._choose(lane, attempt, questions)
        finally:
            self._serial.end(lane)
            if questions is not None:
                for name in self._serial.serial(lane):
                    questions.known.forget(name, attempt.pod)

    async def _choose(self, lane: Lane, attempt: Attempt, questions: Questions | None) -> Choice:
        asked: set[str] = set()
        known = None if questions is None else questions.known
        result: FilterResult | None = None
        try:
            while True:
                first = questions is None and not asked
                candidates = self._shared(lane, attempt) if first else None
                if candidates is None:
                    candidates = await self._candidates(attempt, asked, questions)
                if questions is not None:
                    questions.sent(attempt.pod, candidates)
                earlier, result = result, await self._filter(attempt, candidates, asked, known)
                rejected_now = result.rejected_by
                if earlier is not None:
                    result.merge_rejections(earlier)
                choice = await self._decide(attempt, candidates, result, rejected_now, known)
                if choice is not None:
                    self._retries.gone(attempt.pod.uid)
                    return choice
                asked.update(candidates.names)
                self._look = None  # the extenders may accept other nodes for the next pod
        except Unfit:
            rejected_by, retry_after = (
                (result.rejected_by, result.retry_after) if result else ((), None)
            )
            self._retries.rejected(attempt.pod, rejected_by, retry_after)
            raise
        except ExtenderError as error:
            self._retries.failed(attempt.pod, error)
            raise

    async def _filter(
        self,
        attempt: Attempt,
        candidates: _Candidates,
        asked: set[str],
        known: KnownAnswers | None,
    ) -> FilterResult:
        """Runs the candidates through the filters. Raises ExtenderError."""
        args = candidates.args.of(attempt.pod)
        result = await self._chain.filter(args, known)
        if known is None:
            self._serial.observe(result)
        if result.error is not None:
            try:
                raise result.error
            finally:
                del result  # the traceback has this frame: no cycle
        if result.survivors is not candidates.names:
            attempt.extender_verdicts.update(_verdicts(candidates.names, result, asked))
        return result

    def _shared(self, lane: Lane, attempt: Attempt) -> _Candidates | None:
        """The nodes of the last look at the table, if the pod has the same signature and hardly any row has changed
        since.

        That is fewer than there are other attempts with these extenders, whose nodes are not known yet either, and few
        compared with the nodes. The decision looks at the table once more and leaves out nodes that have become full.
        """
        look = self._look
        if look is None:
            return None
        changes = self._table.last_generation - look.generation
        few = min(self._serial.attempts(lane) - 1, len(look.candidates.names) // _NODES_PER_CHANGE)
        if changes < few and attempt.has_signature(look.signature, look.candidates.rows):
            return look.candidates
        return None

    async def _candidates(
        self,
        attempt: Attempt,
        asked: set[str],
        questions: Questions | None = None,
        spare: int = 0,
    ) -> _Candidates:
        """The best feasible nodes, as the table is now, that were not sent yet. Raises like ``Attempt.find``."""
        rows = await drive(paused(attempt, attempt.find))
        if asked:
            known = [self._table.row_of[name] for name in asked if name in self._table.row_of]
            rows = np.setdiff1d(rows, np.array(known, np.intp), assume_unique=True)
        if not len(rows):
            raise Unfit(attempt.diagnosis())
        percentage = self._percentages.get(attempt.framework.profile_name, 0)
        limit = feasible_nodes_to_find(attempt.node_count, percentage) + spare
        if len(rows) > limit:
            totals = attempt.rank(rows)
            if questions is not None:
                totals = questions.preferred(attempt.pod, rows, totals, self._table)
            rows = best_first(rows, totals, limit, self._rng)
        args = ExtenderArgs(attempt.pod, attempt.names(rows), self._table.node_json)
        candidates = _Candidates(args, rows, self._table.layout)
        if questions is None and not asked:
            signature, generation = attempt.signature, self._table.last_generation
            self._look = None if signature is None else _Look(signature, candidates, generation)
        return candidates

    async def _decide(
        self,
        attempt: Attempt,
        candidates: _Candidates,
        result: FilterResult,
        rejected_by: Sequence[str],
        known: KnownAnswers | None,
    ) -> Choice | None:
        """The best accepted node; None if there is none, or none fits any longer."""
        survivors = result.known(candidates.names)
        if not survivors:
            return None
        extra = None
        if len(survivors) > 1:
            extra = await self._chain.prioritize(result.args, known)
        rows = self._rows(survivors, candidates)
        at_once = attempt.fits_at_once(rows)
        if at_once is not None:
            fits = at_once
        else:
            rows, fits = await drive(
                paused(attempt, lambda: self._still_fitting(attempt, survivors, candidates))
            )
        if rows is not candidates.rows:
            fits &= rows >= 0
        left = int(np.count_nonzero(fits))
        if not left:
            self._warn_choosers(candidates, survivors, rejected_by)
            return None
        if extra is not None:
            extra = _aligned(survivors, result.survivors, extra)
        if left < len(rows):
            rows, extra = rows[fits], None if extra is None else extra[fits]
        return attempt.choose(rows, extra)

    def _still_fitting(
        self, attempt: Attempt, survivors: list[str], candidates: _Candidates
    ) -> tuple[Rows, Mask]:
        """The rows of the survivors (-1: none), and whether each still fits, both as the table is now."""
        rows = self._rows(survivors, candidates)
        return rows, attempt.still_fits(rows)

    def _warn_choosers(
        self, candidates: _Candidates, survivors: list[str], rejected_by: Sequence[str]
    ) -> None:
        """Warns once for each extender that seems to choose one node instead of filtering: its calls should not
        overlap."""
        if len(survivors) > 1 or len(candidates.names) == 1:
            return
        for name in rejected_by:
            if name in self._overlapping:
                self._overlapping.remove(name)
                self._chain.warn(name, _CHOOSER)

    def _rows(self, names: list[str], candidates: _Candidates) -> Rows:
        """The rows of some of the candidates, -1 for nodes that have gone since."""
        if names is candidates.names and self._table.layout == candidates.layout:
            return candidates.rows
        row_of = self._table.row_of
        return np.array([row_of.get(name, -1) for name in names], np.intp)


def _aligned(names: list[str], scored: list[str], scores: Int64) -> Int64:
    """int64[len(names)]: the scores of ``names``, all of which are in ``scored``."""
    if names is scored:
        return scores
    place = {name: index for index, name in enumerate(scored)}
    return scores[[place[name] for name in names]]


def _verdicts(
    candidates: Sequence[str], result: FilterResult, asked: set[str]
) -> dict[str, Status]:
    """The status of each node that the extenders rejected, by name; they may name nodes that they were not sent.

    For candidates that they left out without a reason preemption does not help.
    """
    settled = asked.union(result.survivors)
    verdicts = {name: DROPPED for name in candidates if name not in settled}
    for name, reason in result.unresolvable.items():
        verdicts[name] = unresolvable(reason[:MAX_REASON], plugin=EXTENDER)
    for name, reason in result.failed.items():
        verdicts[name] = unschedulable(reason[:MAX_REASON], plugin=EXTENDER)
    for name in settled.intersection(verdicts):
        del verdicts[name]
    return verdicts


def _nothing() -> None:
    pass


class ChainBinder(msgspec.Struct, frozen=True):
    """Binds pods through extenders with a bind verb."""

    chain: ExtenderChain
    writer: KubeWriter
    retries: ExtenderRetries
    locks: NodeLocks = msgspec.field(default_factory=NodeLocks)

    def announce(self, pod: Pod) -> Callable[[], None]:
        """``bind`` will be called at once for a pod that was assumed: no attempt begins before, unless the result is
        called."""
        extender = self.chain.binder_for(pod)
        if extender is None:
            return _nothing
        places, now = extender.places, asyncio.get_running_loop().time
        places.announce(pod.uid)
        return lambda: places.arrived(pod.uid, now())

    async def bind(
        self,
        pod: Pod,
        node_name: str,
        waiting: Callable[[int], None] = lambda _delta: None,
        again: Callable[[], bool] = lambda: True,
    ) -> bool:
        """True if an extender bound the pod, False if none with a bind verb is interested. Raises ExtenderError.

        After a call that was sent and failed, the pod is looked up. An extender may still bind the pod after its
        timeout: it gets the same time again before the pod counts as not bound, unless the scheduler then binds it to
        the same node itself. A pod whose node is locked waits; ``waiting`` is called with -1 before and with 1 after
        that. ``again`` is asked before each try after it has waited: False if the pod is bound to the node; it raises
        if the pod need not be bound to it.
        """
        extender = self.chain.binder_for(pod)
        if extender is None:
            return False
        settle = 0.0 if extender.ignorable else extender.config.timeout

        async def look_up(lost: bool) -> str | None:
            return await self.writer.bound_to(pod, node_name, settle=settle if lost else 0.0)

        async def bind() -> bool:
            return await self.chain.bind(pod, node_name, look_up)

        async def bind_again() -> bool:
            return not again() or await bind()

        try:
            if not self.locks.locks(extender.name):
                try:
                    return await bind()
                except ExtenderError as error:
                    if not error.locked:
                        raise
                    self.locks.found(error.extender)
            extender.places.arrived(pod.uid, asyncio.get_running_loop().time())
            waiting(-1)
            try:
                return await self.locks.bind(extender.name, node_name, bind_again)
            finally:
                waiting(1)
        except ExtenderError as error:
            self.retries.failed(pod, error)
            raise
