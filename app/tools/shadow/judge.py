"""Compares the decisions of a cluster's scheduler with those of a configuration (docs/shadow.md).

A pod is judged when its outcome shows: its binding, or PodScheduled=False. It is decided on the table as it was for the
scheduler that decided: the order in the queue says which of the bindings of about the same moment were decided before.
Where the decisions differ, other orders are tried (``race``); where none explains the outcome, the verdict names the
plugins.
"""

import itertools
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, NamedTuple, NoReturn, TypeVar, cast

import msgspec
import numpy as np

from app.cycle.attempt import Attempt, NoNodesError, Unfit
from app.cycle.pod_cycle import decide, finish
from app.framework.diagnosis import Diagnosis
from app.framework.handle import Effects, Eviction
from app.framework.interface import PostFilterResult
from app.framework.runner import Framework
from app.model.features import RULES, Rule
from app.model.pod import Pod
from app.model.pod_groups import group_of
from app.model.status import Code, SchedulingError
from app.plugins.args import DefaultPreemptionArgs
from app.plugins.default_preemption.candidates import wanted
from app.plugins.default_preemption.importance import by_importance, loss
from app.state.columns.arrays import Int64, Rows
from app.state.scheduler_state import SchedulerState
from app.tools.shadow.moments import Moments, Moves, Numbers, has_claims, numbers_of
from app.tools.shadow.outcomes import PodOutcome
from app.tools.shadow.preparation import (
    VOLUME_BINDING,
    ClaimDifference,
    differences,
    reserved,
)
from app.tools.shadow.ranks import RankHistory
from app.tools.shadow.reasons import counts, factors, largest, plugins_of_message
from app.tools.shadow.timeline import Entry, Timeline, may_be_later
from app.tools.shadow.verdict import (
    DEVICES,
    DOES_NOT_FIT,
    FITS,
    NOT_COMPARABLE,
    NOTHING_FITS,
    OTHER_MESSAGE,
    OTHER_RULE,
    OTHER_VICTIMS,
    RACE,
    SAME,
    SAMPLED,
    TIE,
    UNEXPLAINED,
    VOLUMES,
    Verdict,
)
from app.tools.shadow.versions import Version
from app.wire.extender_v1 import Victims

T = TypeVar("T")

#: Verdicts after which no other order is tried.
_SETTLED: Final = frozenset({SAME, TIE, SAMPLED})
#: Verdicts that say how good the chosen node is.
_RANKED: Final = frozenset({SAME, TIE, SAMPLED, UNEXPLAINED})
_AS_DEFAULT: Final = "would have to be as in the default configuration"
_WITH_ITS_GROUP: Final = (
    "it was refused together with other pods of its group, whose nodes were given back"
)
_IN_ONE_DOMAIN: Final = "its group is placed on nodes with one value of {}"
#: Named like a plugin where a look at some of the nodes only would explain a difference.
_PERCENTAGE: Final = "percentageOfNodesToScore"
#: Up to this many better nodes, the changes that concern them are tried first.
_FEW_NODES: Final = 200
#: Orders of bindings under way that are tried: each shows other nodes that are better.
_STEPS: Final = 3
#: Pods from which habits of the cluster's scheduler are estimated.
_OBSERVED: Final = 64
#: If unlikely orders explained fewer than one in eight of the last outcomes for which they were tried, the
#: configurations differ: only so many are tried then, but all of them for every sixteenth outcome.
_SELDOM: Final = 8
_FEW_ORDERS: Final = 8
_NOW_AND_THEN: Final = 16


class Alternative(NamedTuple):
    """A profile in which these plugins have kube-scheduler's defaults, or these rules do not hold."""

    plugins: tuple[str, ...]
    framework: Framework
    rules: tuple[Rule, ...] = ()


class JudgedProfile(NamedTuple):
    """What judging the pods of one profile needs."""

    framework: Framework
    #: percentageOfNodesToScore; 0 is adaptive.
    percentage: int
    alternatives: Sequence[Alternative] = ()
    #: The configured ones; the framework's own plugin looks for all candidates.
    preemption: DefaultPreemptionArgs = DefaultPreemptionArgs()


class _Compared(NamedTuple):
    """A verdict before its reasons are known, and what they are found from; valid while the table is unchanged."""

    verdict: Verdict
    attempt: Attempt | None = None
    rows: Rows = np.zeros(0, np.intp)
    totals: Int64 = np.zeros(0, np.int64)
    #: The position of the cluster's node in ``rows``.
    at: int = 0


class Judge:
    """Judges the outcomes on a timeline."""

    def __init__(
        self,
        timeline: Timeline,
        profiles: Mapping[str, JudgedProfile],
        rng: np.random.Generator,
        *,
        incomparable: Callable[[Pod], str] = lambda _: "",
    ) -> None:
        """``incomparable``: why the decisions on a pod cannot be compared; empty if they can."""
        self._timeline: Final = timeline
        self._state: Final[SchedulerState] = timeline.state
        self._moments: Final = Moments(timeline)
        self._profiles: Final = profiles
        self._rng: Final = rng
        self._incomparable: Final = incomparable
        #: Of the cluster; set before the first verdict.
        self.version = Version()
        #: Whether a default configuration of some plugins explains the outcome, for the last pods.
        self._defaults: Final[deque[bool]] = deque(maxlen=_OBSERVED)
        #: Whether an unlikely order explains the outcome, for the last pods for which orders were tried, and their
        #: number.
        self._ordered: Final[deque[bool]] = deque(maxlen=_OBSERVED)
        self._tried = 0
        self._ranks: Final = RankHistory()

    def judge(self, entry: Entry, orders: int | None = None) -> Generator[None, None, Verdict]:
        """The verdict on the outcome of the next entry of the timeline. Pauses between two decisions.

        ``orders``: unlikely orders that are tried at most, None for as many as seem useful. The state must not change
        during a pause.
        """
        outcome = entry.outcome
        assert outcome is not None  # noqa: S101 - only entries with an outcome are judged
        verdict = self._of_group(outcome, (yield from self._judge(entry, outcome, orders)))
        self._defaults.append(verdict.change.endswith(_AS_DEFAULT))
        if verdict.kind in _RANKED and verdict.feasible:
            self._ranks.add(verdict.feasible, verdict.better, verdict.equal)
        pod = outcome.pod
        return msgspec.structs.replace(
            verdict, uid=pod.uid, profile=pod.spec.scheduler_name, node=outcome.node
        )

    def _judge(
        self, entry: Entry, outcome: PodOutcome, orders: int | None
    ) -> Generator[None, None, Verdict]:
        reason = self._incomparable(outcome.pod)
        if reason:
            return Verdict(pod=outcome.pod.key, kind=NOT_COMPARABLE, change=reason)
        likely: dict[Numbers, Moves] = {}
        first: Verdict | None = None
        for moves in self._moments.likely(entry, outcome):
            if numbers_of(moves) in likely:
                continue
            likely[numbers_of(moves)] = moves
            verdict = yield from self._decide(outcome, moves)
            if verdict.kind in _SETTLED:
                self._moments.explained(outcome, moves, likely=True)
            if verdict.kind in _SETTLED or verdict.kind == NOT_COMPARABLE:
                return verdict
            yield
            if first is None:
                other = yield from self._otherwise(entry, outcome, moves)
                if other is not None:
                    return other
                first = verdict
        assert first is not None  # noqa: S101 - there is a likely moment
        return (yield from self._unlikely(entry, outcome, list(likely.values()), first, orders))

    def _otherwise(
        self, entry: Entry, outcome: PodOutcome, moves: Moves
    ) -> Generator[None, None, Verdict | None]:
        """The verdict if something is more likely than another moment."""
        unordered = outcome.is_unordered and outcome.message is None
        if unordered:
            for verdict in self._in_flight(entry, outcome, moves):
                if verdict.kind in _SETTLED:
                    return verdict
                yield
        if not self._differ:
            return None
        explained = yield from self._decide(outcome, moves, explain=True)
        if explained.kind == OTHER_RULE or explained.change.endswith(_AS_DEFAULT):
            return self._unexplained(outcome, explained)
        for plugins, framework, rules in self._profile(outcome).alternatives if unordered else ():
            with self._by(rules):
                for verdict in self._in_flight(entry, outcome, moves, framework):
                    if verdict.kind in _SETTLED:
                        found = _explained_by(explained, plugins, rules)
                        return self._unexplained(outcome, found)
                    yield
        return None

    def _unlikely(
        self,
        entry: Entry,
        outcome: PodOutcome,
        likely: Sequence[Moves],
        first: Verdict,
        orders: int | None,
    ) -> Generator[None, None, Verdict]:
        """The verdict if no likely moment explains an outcome. ``first``: the one of the most likely moment."""
        if orders is None:
            orders = self._useful_orders()
        others = self._moments.orders(
            entry, outcome, likely, lambda moves: self._concerned(outcome, moves)
        )
        for moves in itertools.islice(others, orders):
            verdict = yield from self._decide(outcome, moves)
            if verdict.kind in _SETTLED:
                self._moments.explained(outcome, moves, likely=False)
                self._ordered.append(True)
                said = (
                    f"explained if {len(moves.undone)} changes before it were not seen and {len(moves.pulled)} changes "
                    "after it were"
                )
                return msgspec.structs.replace(first, kind=RACE, change=said)
            yield
        if orders != 0:
            self._ordered.append(False)
        last = yield from self._decide(outcome, likely[0], explain=True)
        return self._unexplained(outcome, last)

    def _unexplained(self, outcome: PodOutcome, verdict: Verdict) -> Verdict:
        """The verdict on an outcome that no order of events explains: another version may do."""
        self._moments.claim_victims(outcome)
        if verdict.kind == OTHER_RULE:
            return verdict
        known = self.version.known(outcome.pod, verdict.plugins)
        if known is None:
            return verdict
        return msgspec.structs.replace(verdict, kind=NOT_COMPARABLE, change=known.text)

    def _in_flight(
        self, entry: Entry, outcome: PodOutcome, moves: Moves, framework: Framework | None = None
    ) -> Iterator[Verdict]:
        """Verdicts with bindings that were under way at the same time decided in another order.

        Those on better nodes were decided before, though they show later; and those on the chosen node after it, though
        they show earlier.
        """
        undone, pulled = dict.fromkeys(moves.undone), dict.fromkeys(moves.pulled)
        better = self._better(outcome, moves, framework)
        for step in range(_STEPS):
            number = len(undone) + len(pulled)
            if better:
                pulled |= dict.fromkeys(self._timeline.in_flight(entry, better, applied=False))
                late = self._timeline.lately(entry, frozenset(better))
                undone |= dict.fromkeys(e for e in late if may_be_later(e, outcome))
            if step or len(undone) + len(pulled) == number:
                own = self._timeline.in_flight(entry, (outcome.node,), applied=True)
                undone |= dict.fromkeys(own)
            if len(undone) + len(pulled) == number:
                return
            with self._timeline.moved(undone, pulled):
                try:
                    found = self._compare_binding(outcome, framework)
                except SchedulingError:
                    return
                better = self._better_nodes(found)
                verdict = found.verdict
            yield verdict

    @property
    def _differ(self) -> bool:
        """Whether the configurations differ: defaults explain more than one in ten of the last outcomes."""
        return sum(self._defaults) > len(self._defaults) // 10

    def _useful_orders(self) -> int | None:
        """Unlikely orders that are tried at most; None for all."""
        self._tried += 1
        useless = self._differ or sum(self._ordered) * _SELDOM < len(self._ordered) - _SELDOM
        return _FEW_ORDERS if useless and self._tried % _NOW_AND_THEN else None

    def _of_group(self, outcome: PodOutcome, verdict: Verdict) -> Verdict:
        """A pod of a group may differ because it was decided together with the others."""
        key = group_of(outcome.pod)
        group = None if key is None else self._state.cluster.pod_groups.get(key)
        if group is None or verdict.agrees:
            return verdict
        if outcome.message is not None:
            reason = _WITH_ITS_GROUP
        elif group.topology_key:
            reason = _IN_ONE_DOMAIN.format(group.topology_key)
        else:
            return verdict
        return msgspec.structs.replace(verdict, kind=NOT_COMPARABLE, change=reason)

    def _concerned(self, outcome: PodOutcome, base: Moves) -> frozenset[str]:
        """The cluster's node, and the better ones if these are few; empty for a refusal."""
        if outcome.message is not None:
            return frozenset()
        return frozenset({outcome.node, *self._better(outcome, base)})

    def _better(
        self, outcome: PodOutcome, base: Moves, framework: Framework | None = None
    ) -> Sequence[str]:
        """The nodes that have a higher score here than the cluster's node; empty if these are many or it does not
        fit."""
        with self._timeline.moved(base.undone, base.pulled):
            return self._better_nodes(self._compare_binding(outcome, framework))

    @staticmethod
    def _better_nodes(found: _Compared) -> Sequence[str]:
        if found.attempt is None or found.verdict.better > _FEW_NODES:
            return ()
        return found.attempt.names(found.rows[found.totals > found.totals[found.at]])

    # ------------------------------------------------------------ one decision

    def _decide(
        self, outcome: PodOutcome, moves: Moves, *, explain: bool = False
    ) -> Generator[None, None, Verdict]:
        with self._timeline.moved(moves.undone, moves.pulled):
            try:
                found = yield from self._compare(outcome)
                if not explain:
                    return found.verdict
                return (yield from self._explained(outcome, found))
            except SchedulingError as error:
                said = f"the decision failed here: {error}"
                return Verdict(pod=outcome.pod.key, kind=NOT_COMPARABLE, change=said)

    def _compare(
        self, outcome: PodOutcome, framework: Framework | None = None
    ) -> Generator[None, None, _Compared]:
        if outcome.message is None:
            return self._compare_binding(outcome, framework)
        return _Compared((yield from self._compare_refusal(outcome, outcome.message, framework)))

    def _profile(self, outcome: PodOutcome) -> JudgedProfile:
        return self._profiles[outcome.pod.spec.scheduler_name]

    def _attempt(self, outcome: PodOutcome, framework: Framework | None) -> Attempt:
        return Attempt(
            framework or self._profile(outcome).framework,
            self._state.table,
            outcome.pod,
            nominated=self._state.nominated_for,
            rng=self._rng,
            nominated_node="",
        )

    def _compare_binding(
        self, outcome: PodOutcome, framework: Framework | None = None
    ) -> _Compared:
        pod, node = outcome.pod, outcome.node
        attempt = self._attempt(outcome, framework)
        row = self._state.table.row_of.get(node, -1)
        verdict = Verdict(pod=pod.key, kind=NOTHING_FITS)
        try:
            rows, totals = _decided(attempt)
        except (Unfit, NoNodesError) as unfit:
            said = str(unfit)
            plugins: tuple[str, ...] = ()
            if isinstance(unfit, Unfit):
                status = unfit.diagnosis.status(row)
                plugins = (status.plugin,) if status.plugin else ()
                plugins += tuple(sorted(unfit.diagnosis.unschedulable_plugins - {*plugins}))
            return _Compared(
                msgspec.structs.replace(verdict, message_here=said, plugins=plugins, change=said)
            )
        at = int(np.searchsorted(rows, row))
        best = int(totals.argmax())
        equal = int(np.count_nonzero(totals == totals[best]))
        verdict = msgspec.structs.replace(
            verdict,
            node_here=self._state.table.names[rows[best]],
            feasible=len(rows),
            equal=equal,
        )
        if at >= len(rows) or rows[at] != row:
            attempt.find()  # a template's nodes are known without reasons
            status = attempt.diagnosis().status(row)
            said = status.message if row >= 0 else "the node does not exist"
            plugins = (status.plugin,) if status.plugin else ()
            return _Compared(
                msgspec.structs.replace(
                    verdict, kind=DOES_NOT_FIT, message_here=said, plugins=plugins, change=said
                )
            )
        behind = int(totals[best] - totals[at])
        better = int(np.count_nonzero(totals > totals[at]))
        verdict = msgspec.structs.replace(verdict, better=better)
        kind = self._class(pod, node, verdict)
        if kind in _SETTLED and (other := self._other_claims(outcome, attempt)) is not None:
            kind = VOLUMES if other.plugin == VOLUME_BINDING else DEVICES
            verdict = msgspec.structs.replace(verdict, plugins=(other.plugin,), change=str(other))
        here = node if behind == 0 else verdict.node_here
        return _Compared(
            msgspec.structs.replace(verdict, kind=kind, loss=behind, node_here=here),
            attempt,
            rows,
            totals,
            at,
        )

    def _class(self, pod: Pod, node: str, verdict: Verdict) -> str:
        if not verdict.better:
            return SAME if verdict.equal == 1 else TIE
        if pod.nominated_node_name and node == pod.nominated_node_name:
            return SAME
        percentage = self._profiles[pod.spec.scheduler_name].percentage
        nodes = self._state.table.node_count
        if self._ranks.may_be_sampled(nodes, percentage, verdict.feasible, verdict.better):
            return SAMPLED
        return UNEXPLAINED

    def _other_claims(self, outcome: PodOutcome, attempt: Attempt) -> ClaimDifference | None:
        """A claim of the pod that gets another volume or other devices here, on the same node; None if there is
        none."""
        pod = outcome.pod
        if not has_claims(pod):
            return None
        told = [entry.prepares for entry in self._timeline.preparations(pod)]
        there = {each.claim: each.chosen for each in told if each is not None}
        if not there:
            return None
        here = reserved(attempt.framework, attempt.state, attempt.pod, outcome.node)
        return next(differences(there, here, self._state.cluster), None)

    # ------------------------------------------------------------ refused pods

    def _compare_refusal(
        self, outcome: PodOutcome, message: str, framework: Framework | None
    ) -> Generator[None, None, Verdict]:
        attempt = self._attempt(outcome, framework)
        verdict = Verdict(pod=outcome.pod.key, kind=FITS, message=message)
        try:
            rows, totals = _decided(attempt)
        except NoNodesError as error:
            return self._of_message(verdict, str(error))
        except Unfit as unfit:
            return (yield from self._compare_unfit(outcome, attempt, unfit.diagnosis, verdict))
        return msgspec.structs.replace(
            verdict,
            node_here=self._state.table.names[rows[int(totals.argmax())]],
            feasible=len(rows),
            equal=int(np.count_nonzero(totals == totals.max())),
            change="this configuration would have to refuse the node",
        )

    def _compare_unfit(
        self, outcome: PodOutcome, attempt: Attempt, diagnosis: Diagnosis, verdict: Verdict
    ) -> Generator[None, None, Verdict]:
        nominated = outcome.node
        text = diagnosis.message("")
        if not _same_reasons(text, verdict.message):
            return self._of_message(verdict, text)  # no preemption changes that
        preempting = _Preempting()
        effects = cast("Effects", preempting)
        result: PostFilterResult | None = yield from in_pauses(
            attempt.framework.commit.post_filter(attempt.state, attempt.pod, diagnosis, effects)
        )
        failed = result is not None and not result.status.ok
        text = diagnosis.message(result.status.message if failed and result is not None else "")
        here = (result.nominated_node or "") if result is not None else ""
        if not nominated and not here:
            return self._of_message(verdict, text)
        verdict = msgspec.structs.replace(
            verdict,
            kind=OTHER_VICTIMS,
            node_here=here,
            plugins=("DefaultPreemption",),
            victims_here=preempting.victims_on(here),
            message="",
        )
        if not nominated:
            return msgspec.structs.replace(
                verdict, change="a preemption would have to find nothing"
            )
        there = preempting.candidates.get(nominated)
        if there is None:
            said = f"{nominated} would have to be a candidate"
            return msgspec.structs.replace(verdict, change=said)
        seen = self._moments.victims_seen(nominated)
        expected = {pod.uid: pod.key for pod in there.pods}
        verdict = msgspec.structs.replace(
            verdict, victims=tuple(sorted(pod.key for pod in seen.values()))
        )
        known = seen.keys() <= expected.keys() or expected.keys() <= seen.keys()
        if not known and not self._moments.nominates_others(outcome):
            if loss(_completed(seen, there)) == loss(there):  # pods that are alike
                return msgspec.structs.replace(verdict, kind=TIE, plugins=())
            return msgspec.structs.replace(
                verdict, victims_here=tuple(sorted(expected.values())), change="other victims"
            )
        losses = [loss(each) for each in preempting.candidates.values()]
        if loss(there) == min(losses):
            equal = losses.count(min(losses))
            kind = SAME if equal == 1 else TIE
            return msgspec.structs.replace(verdict, kind=kind, equal=equal, plugins=())
        potential = len(diagnosis.rows_with(Code.Unschedulable, self._state.table.live_rows()))
        if len(preempting.candidates) > wanted(potential, self._profile(outcome).preemption):
            return msgspec.structs.replace(verdict, kind=SAMPLED, plugins=())
        return msgspec.structs.replace(
            verdict, change="evicting on that node would have to cost less"
        )

    def _of_message(self, verdict: Verdict, text: str) -> Verdict:
        same = self.version.comparable(text) == self.version.comparable(verdict.message)
        return msgspec.structs.replace(
            verdict,
            kind=SAME if same else OTHER_MESSAGE,
            message="" if same else verdict.message,
            message_here="" if same else text,
            change="" if same else "the messages would have to be the same",
        )

    # ------------------------------------------------------------ why

    def _explained(self, outcome: PodOutcome, found: _Compared) -> Generator[None, None, Verdict]:
        """The verdict with the scores of both nodes, the plugins, and what would have to change."""
        verdict, attempt, rows, totals, at = found
        if attempt is not None and verdict.kind not in {VOLUMES, DEVICES}:
            by_plugin = attempt.plugin_scores(rows)
            best = int(totals.argmax())
            possible = factors(totals, by_plugin, at)
            plugins = tuple(f.plugin for f in possible) or largest(by_plugin, at, best)
            changes = [str(f) for f in possible[:3]]
            percentage = self._ranks.highest_percentage(
                self._state.table.node_count, verdict.feasible, verdict.better
            )
            if percentage:
                plugins += (_PERCENTAGE,)
                changes.append(f"{_PERCENTAGE} would have to be {percentage} or less")
            verdict = msgspec.structs.replace(
                verdict,
                scores={name: int(scores[at]) for name, scores in by_plugin.items()},
                scores_here={name: int(scores[best]) for name, scores in by_plugin.items()},
                plugins=plugins,
                change="; or ".join(changes),
            )
        elif verdict.kind in {FITS, OTHER_MESSAGE}:
            plugins = plugins_of_message(verdict.message, verdict.message_here)
            verdict = msgspec.structs.replace(verdict, plugins=plugins)
        for plugins, framework, rules in self._profile(outcome).alternatives:
            yield
            with self._by(rules):
                other = yield from self._compare(outcome, framework)
            if other.verdict.kind in _SETTLED:
                return _explained_by(verdict, plugins, rules)
        return verdict

    def _by(self, rules: Sequence[Rule]) -> AbstractContextManager[None]:
        """The state as it is without these rules: that for a resize decides what pods take."""
        if Rule.SumsOfResize in rules:
            return self._timeline.counted_otherwise()
        return nullcontext()


def _explained_by(verdict: Verdict, plugins: tuple[str, ...], rules: tuple[Rule, ...]) -> Verdict:
    """The verdict on an outcome that is explained by the defaults of plugins, or by rules of another version."""
    if rules:
        change = "; ".join(f"rule {rule}: {RULES[rule].text}" for rule in rules)
        return msgspec.structs.replace(verdict, kind=OTHER_RULE, change=change)
    change = f"{', '.join(plugins)} {_AS_DEFAULT}"
    return msgspec.structs.replace(verdict, plugins=plugins, change=change)


def _decided(attempt: Attempt) -> tuple[Rows, Int64]:
    """The feasible rows by the cycle of a pod, and their totals. Raises Unfit, NoNodesError, SchedulingError."""
    choice = finish(decide(attempt))
    return attempt.ranked or (np.array([choice.row]), np.zeros(1, np.int64))


class _Preempting:
    """The effects of a preemption that happens in thought only: keeps the candidates."""

    def __init__(self) -> None:
        self.candidates: Mapping[str, Victims] = {}

    def asks_about_victims(self, _pod: Pod) -> bool:
        return True

    @property
    def resource_claims(self) -> NoReturn:
        raise SchedulingError("a shadow writes no claims")

    async def sleep(self, _seconds: float) -> None:
        await pause()

    async def agree_on_victims(
        self, _pod: Pod, candidates: Mapping[str, Victims]
    ) -> Mapping[str, Victims]:
        self.candidates = candidates
        return candidates

    def evict(self, eviction: Eviction) -> None:
        """Evicts nothing."""

    def victims_on(self, node: str) -> tuple[str, ...]:
        victims = self.candidates.get(node)
        return () if victims is None else tuple(sorted(pod.key for pod in victims.pods))


@types.coroutine
def pause() -> Generator[None, None, None]:
    """What ``in_pauses`` pauses for."""
    yield


def in_pauses(coroutine: Coroutine[Any, Any, T]) -> Generator[None, None, T]:
    """The result of a coroutine that waits for nothing but a pause. Pauses where it does."""
    try:
        while True:
            coroutine.send(None)
            yield
    except StopIteration as end:
        return cast("T", end.value)
    finally:
        coroutine.close()


def _completed(seen: Mapping[str, Pod], there: Victims) -> Victims:
    """The victims on a node of which some show: each one that is not expected takes the place of one with its
    priority."""
    rest = [pod for pod in there.pods if pod.uid not in seen]
    expected = {pod.uid for pod in there.pods}
    for pod in seen.values():
        if pod.uid not in expected:
            alike = next((each for each in rest if each.priority == pod.priority), None)
            if alike is not None:
                rest.remove(alike)
    return Victims(tuple(by_importance([*seen.values(), *rest])), there.num_pdb_violations)


def _same_reasons(one: str, other: str) -> bool:
    """Whether two messages of FailedScheduling count the same nodes for the same reasons."""
    return counts(one).by_reason == counts(other).by_reason
