"""Asks extenders in shadow about decisions that were taken, in the background, and compares (docs/extenders.md).

The answers are not obeyed, and no pod waits for them. What is asked is taken down when a node is chosen, if a call can
be made soon; otherwise the decision is only counted. While pods wait for an attempt, few calls are started.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from app.cycle.attempt import Attempt, Choice, best_first, feasible_nodes_to_find
from app.extender.client import HTTPExtender
from app.extender.config import Verb
from app.extender.errors import ExtenderError
from app.framework.handle import Eviction
from app.model.pod import Pod
from app.model.status import SchedulingError
from app.observe.events import EventSink, ShadowAnswered
from app.observe.metrics.series import MetricFamilies
from app.runtime.tasks import Limiter, Spawn
from app.state.columns.arrays import Int64
from app.state.queue.queued_pod import QueuedPod
from app.state.table import NodeTable
from app.wire.extender_v1 import ExtenderArgs, Victims

log = logging.getLogger(__name__)

#: Calls to one extender at the same time, and decisions that wait for one, at most.
MAX_CALLS: Final = 8
MAX_WAITING: Final = 32
#: Seconds before each call while pods wait for an attempt.
PAUSE: Final = 0.1
#: Seconds between two summaries of an extender in the log.
SUMMARY_INTERVAL: Final = 60.0
#: Differences and failures that are kept for each extender.
MAX_EXAMPLES: Final = 20
_MAX_DETAIL: Final = 200

# Results of a comparison.
SAME: Final = "same"
REFUSED: Final = "chosen_node_refused"
OTHER_NODE: Final = "other_node_best"
OTHER_VICTIMS: Final = "other_victims"
FAILED: Final = "failed"
# Why an extender was not asked about a decision.
BREAKER_OPEN: Final = "breaker_open"
TOO_MANY_WAITING: Final = "too_many_waiting"

_DECIDING: Final = (Verb.FILTER, Verb.PRIORITIZE)


class _Placement(msgspec.Struct, frozen=True):
    """A chosen node: ``args`` has it and other feasible nodes, ``totals`` (int64) are their scores, None if none were
    computed."""

    pod: Pod
    attempt: int
    node: str
    args: ExtenderArgs
    totals: Int64 | None


class _Preemption(msgspec.Struct, frozen=True):
    """A node to make room on, with the pods that are evicted."""

    pod: Pod
    node: str
    victims: Victims


class _Shadow:
    """One extender with the decisions that it will be asked about."""

    def __init__(self, extender: HTTPExtender) -> None:
        self.extender: Final = extender
        self.verbs: Final = [verb for verb in _DECIDING if extender.supports(verb)]
        self.waiting: Final[deque[_Placement | _Preemption]] = deque()
        self.calls: Final = Limiter(MAX_CALLS)
        self.dispatching = False
        #: Comparisons by verb and result, and decisions that it was not asked about, by reason.
        self.results: Final[Counter[tuple[Verb, str]]] = Counter()
        self.not_asked: Final[Counter[str]] = Counter()
        self.examples: Final[deque[dict[str, Any]]] = deque(maxlen=MAX_EXAMPLES)
        self.summary_at = 0.0

    def has_room(self, verb: Verb) -> bool:
        """Whether a decision can be put; counts it if not."""
        if len(self.waiting) >= MAX_WAITING:
            self.not_asked[TOO_MANY_WAITING] += 1
        elif self.extender.holds_back(verb):
            self.not_asked[BREAKER_OPEN] += 1
        else:
            return True
        return False


class ShadowExtenders:
    """Asks the extenders in shadow; the scheduler reports its decisions here."""

    def __init__(
        self,
        extenders: Sequence[HTTPExtender],
        table: NodeTable,
        *,
        percentages: Mapping[str, int],
        rng: np.random.Generator,
        spawn: Spawn,
        sink: EventSink,
        busy: Callable[[], bool],
    ) -> None:
        """``percentages``: percentageOfNodesToScore by profile, 0 for the adaptive one; ``busy``: pods wait for an
        attempt.

        ``rng`` must not be the scheduler's: a shadow must not change its random choices.
        """
        self._shadows: Final = [_Shadow(extender) for extender in extenders]
        self._table: Final = table
        self._percentages: Final = percentages
        self._rng: Final = rng
        self._spawn: Final = spawn
        self._emit: Final = sink
        self._busy: Final = busy

    # ------------------------------------------------------------ decisions

    def register(self, families: MetricFamilies) -> None:
        """Adds its figures to the metrics."""
        families.computed(
            "aiokube_scheduler_extender_shadow_comparisons_total",
            "Answers of extenders in shadow by how they compare with the decisions.",
            self.results,
            ("extender", "verb", "result"),
            counter=True,
        )
        families.computed(
            "aiokube_scheduler_extender_shadow_not_asked_total",
            "Decisions that an extender in shadow was not asked about, because too many waited or its breaker was "
            "open.",
            self.not_asked,
            ("extender", "reason"),
            counter=True,
        )

    def placed(self, queued: QueuedPod, attempt: Attempt, choice: Choice) -> None:
        """A node was chosen, and the table has not changed since."""
        placement: _Placement | None = None
        for shadow in self._shadows:
            if (
                shadow.verbs
                and shadow.extender.is_interested(attempt.pod)
                and shadow.has_room(shadow.verbs[0])
            ):
                if placement is None:
                    placement = self._placement(queued, attempt, choice)
                self._put(shadow, placement)

    def preempting(self, eviction: Eviction) -> None:
        """Room is about to be made for a pod."""
        pod = eviction.preemptor
        for shadow in self._shadows:
            extender = shadow.extender
            if (
                extender.supports(Verb.PREEMPT)
                and extender.is_interested(pod)
                and shadow.has_room(Verb.PREEMPT)
            ):
                victims = Victims(eviction.victims, eviction.num_pdb_violations)
                self._put(shadow, _Preemption(pod, eviction.node_name, victims))

    def _placement(self, queued: QueuedPod, attempt: Attempt, choice: Choice) -> _Placement:
        """The nodes that an extender would have been sent, the chosen one among them."""
        if attempt.ranked is None:
            rows, totals = np.array([choice.row], np.intp), None
        else:
            rows, totals = attempt.ranked
            percentage = self._percentages.get(attempt.framework.profile_name, 0)
            limit = feasible_nodes_to_find(self._table.node_count, percentage)
            if len(rows) > limit:
                best = best_first(np.arange(len(rows)), totals, limit, self._rng)
                chosen = int(np.flatnonzero(rows == choice.row)[0])
                if chosen not in best:  # it is one of more than ``limit`` equals
                    best[0] = chosen
                rows, totals = rows[best], totals[best]
            totals = totals.copy()  # the original may be changed by later attempts
        args = ExtenderArgs(attempt.pod, self._table.names_of(rows), self._table.node_json)
        return _Placement(attempt.pod, queued.attempts, choice.node_name, args, totals)

    def _put(self, shadow: _Shadow, decision: _Placement | _Preemption) -> None:
        shadow.waiting.append(decision)
        if not shadow.dispatching:
            shadow.dispatching = True
            self._spawn(self._dispatch(shadow), "ask an extender in shadow")

    async def _dispatch(self, shadow: _Shadow) -> None:
        """Starts a call for each decision that waits."""
        try:
            while shadow.waiting:
                await asyncio.sleep(PAUSE if self._busy() else 0)
                await shadow.calls.wait_for_room()
                shadow.calls.add(1)
                self._spawn(self._ask(shadow, shadow.waiting.popleft()), "call of a shadow")
        finally:
            shadow.dispatching = False

    # ------------------------------------------------------------ calls

    async def _ask(self, shadow: _Shadow, decision: _Placement | _Preemption) -> None:
        try:
            if isinstance(decision, _Placement):
                await self._compare_placement(shadow, decision)
            else:
                await self._compare_victims(shadow, decision)
        except Exception:
            log.exception("Error comparing an answer of %s", shadow.extender.name)
        finally:
            shadow.calls.add(-1)

    async def _compare_placement(self, shadow: _Shadow, decided: _Placement) -> None:
        extender, args, totals = shadow.extender, decided.args, decided.totals
        if extender.supports(Verb.FILTER):
            try:
                answer = await extender.filter(args)
            except ExtenderError as error:
                self._tell(shadow, decided, Verb.FILTER, FAILED, detail=error.detail)
                return
            kept = set(answer.kept)
            reason = answer.failed_and_unresolvable.get(decided.node) or answer.failed.get(
                decided.node, ""
            )
            result = SAME if decided.node in kept else REFUSED
            left = [index for index, name in enumerate(args.names) if name in kept]
            self._tell(
                shadow, decided, Verb.FILTER, result, detail=reason, kept=len(left), of=args.names
            )
            args = args.about([args.names[index] for index in left])
            totals = None if totals is None else totals[left]
        if extender.supports(Verb.PRIORITIZE) and totals is not None and len(args.names) > 1:
            try:
                totals = totals + await extender.prioritize(args)
            except ExtenderError as error:
                self._tell(shadow, decided, Verb.PRIORITIZE, FAILED, detail=error.detail)
                return
            best = int(totals.argmax())
            at = args.names.index(decided.node) if decided.node in args.names else None
            same = at is not None and totals[at] == totals[best]
            detail = "" if same else f"{args.names[best]} has {totals[best]}"
            if at is not None and not same:
                detail += f", {decided.node} {totals[at]}"
            result = SAME if same else OTHER_NODE
            self._tell(shadow, decided, Verb.PRIORITIZE, result, detail=detail, of=args.names)

    async def _compare_victims(self, shadow: _Shadow, decided: _Preemption) -> None:
        node, victims = decided.node, decided.victims
        known = {pod.uid: pod for pod in victims.pods}

        def pods_on(name: str) -> Mapping[str, Pod] | None:
            row = self._table.row_of.get(name)
            now = {} if row is None else self._table.pods[row]
            return {**now, **known} if name == node else now  # the victims may be gone already

        try:
            agreed = await shadow.extender.preempt(decided.pod, {node: victims}, pods_on)
        except (ExtenderError, SchedulingError) as error:
            detail = error.detail if isinstance(error, ExtenderError) else str(error)
            self._tell(shadow, decided, Verb.PREEMPT, FAILED, detail=detail)
            return
        found = agreed.get(node)
        if found is None or not found.pods:
            result = REFUSED
        elif {pod.uid for pod in found.pods} != known.keys():
            result = OTHER_VICTIMS
        else:
            result = SAME
        self._tell(shadow, decided, Verb.PREEMPT, result)

    def _tell(
        self,
        shadow: _Shadow,
        decided: _Placement | _Preemption,
        verb: Verb,
        result: str,
        *,
        detail: str = "",
        kept: int | None = None,
        of: Sequence[str] = (),
    ) -> None:
        """Counts and reports a result."""
        detail = detail[:_MAX_DETAIL]
        shadow.results[verb, result] += 1
        if result != SAME:
            about = {"pod": decided.pod.key, "node": decided.node, "verb": verb.value}
            shadow.examples.append({**about, "result": result, "detail": detail})
        attempt = decided.attempt if isinstance(decided, _Placement) else 0
        name = shadow.extender.name
        self._emit(
            ShadowAnswered(
                decided.pod, attempt, decided.node, name, verb.value, result, detail, len(of), kept
            )
        )
        self._summarize(shadow)

    def _summarize(self, shadow: _Shadow) -> None:
        now = asyncio.get_running_loop().time()
        if now < shadow.summary_at:
            return
        shadow.summary_at = now + SUMMARY_INTERVAL
        told = [f"{verb.value} {result}: {n}" for (verb, result), n in shadow.results.items()]
        told += [f"not asked, {reason}: {n}" for reason, n in shadow.not_asked.items()]
        log.info("Extender in shadow %s: %s", shadow.extender.name, ", ".join(told))

    # ------------------------------------------------------------ figures

    def results(self) -> dict[tuple[str, ...], float]:
        """The number of comparisons by extender, verb and result."""
        return {
            (shadow.extender.name, verb.value, result): float(count)
            for shadow in self._shadows
            for (verb, result), count in shadow.results.items()
        }

    def not_asked(self) -> dict[tuple[str, ...], float]:
        """The number of decisions by extender that it was not asked about, and reason."""
        return {
            (shadow.extender.name, reason): float(shadow.not_asked[reason])
            for shadow in self._shadows
            for reason in (BREAKER_OPEN, TOO_MANY_WAITING)
        }

    def describe(self) -> Iterator[Mapping[str, Any]]:
        """Each extender's results, what waits, and the latest differences and failures."""
        for shadow in self._shadows:
            results: dict[str, dict[str, int]] = {}
            for (verb, result), count in shadow.results.items():
                results.setdefault(verb.value, {})[result] = count
            yield {
                "extender": shadow.extender.name,
                "results": results,
                "notAsked": dict(shadow.not_asked),
                "waiting": len(shadow.waiting),
                "inFlight": shadow.calls.count,
                "examples": list(shadow.examples),
            }
