"""Compares the decisions of a cluster's scheduler with those of a configuration (docs/shadow.md).

A pod is judged when its outcome shows: its binding, or PodScheduled=False. It is decided on the table as it was for the
scheduler that decided: the order in the queue says which of the bindings of about the same moment were decided before.
Where the decisions differ, other orders are tried (``race``); where none explains the outcome, the verdict names the plugins.
"""

import itertools
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn, TypeVar, cast

import msgspec
import numpy as np

from app.framework.args import DefaultPreemptionArgs
from app.framework.diagnosis import Diagnosis
from app.framework.interface import Effects, Eviction, PostFilterResult
from app.framework.runner import Framework
from app.model.pod import Pod
from app.model.status import Code, SchedulingError
from app.plugins.default_preemption.candidates import wanted
from app.plugins.default_preemption.importance import by_importance, loss
from app.scheduler.attempt import Attempt, NoNodesError, Unfit, feasible_nodes_to_find
from app.state.columns.resources import Int64
from app.state.scheduler_state import SchedulerState
from app.state.view import Rows
from app.tools.shadow.preparation import (
    VOLUME_BINDING,
    Difference,
    differences,
    preparation,
    reserved,
)
from app.tools.shadow.reasons import counts, factors, largest, plugins_of_message
from app.tools.shadow.timeline import Entry, Outcome, Timeline, may_be_later, precedes
from app.tools.shadow.verdict import (
    DEVICES,
    DOES_NOT_FIT,
    FITS,
    NOT_COMPARABLE,
    NOTHING_FITS,
    OTHER_MESSAGE,
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
#: The numbers of changes before an outcome that are undone, one after another, to find the moment of the decision.
_STEPS_BACK: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
#: The same for bindings after the outcome that are taken for earlier decisions.
_STEPS_AHEAD: Final = (1, 2, 4, 8, 16, 32, 64)
#: The same for changes of other kinds than pods, before and after the outcome.
_OTHER_KINDS: Final = 4
#: Other moments of a decision that are tried, after and before that of the decision before.
_MOMENTS: Final = 16
#: Seconds before an outcome within which changes that follow from the decision may show.
_OWN_SECONDS: Final = 2.0
_AS_DEFAULT: Final = "would have to be as in the default configuration"
#: Victims that are remembered.
_CLAIMED: Final = 4096
#: Named like a plugin where a look at some of the nodes only would explain a difference.
_PERCENTAGE: Final = "percentageOfNodesToScore"
#: Up to this many better nodes, the changes that concern them are tried first.
_FEW_NODES: Final = 200
#: Pods from which habits of the cluster's scheduler are estimated.
_OBSERVED: Final = 64


class Moves(NamedTuple):
    """The applied changes to undo and the bindings to pull ahead for the table at the moment of a decision."""

    undone: tuple[Entry, ...] = ()
    pulled: tuple[Entry, ...] = ()
    #: The number of the last change that had been seen, apart from decisions on pods; 0 if that is not said.
    seen: int = 0


class Alternative(NamedTuple):
    """A profile in which the settings of these plugins are kube-scheduler's defaults."""

    plugins: tuple[str, ...]
    framework: Framework


class Profile(NamedTuple):
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
        profiles: Mapping[str, Profile],
        rng: np.random.Generator,
        *,
        incomparable: Callable[[Pod], str] = lambda _: "",
    ) -> None:
        """``incomparable``: why the decisions on a pod cannot be compared; empty if they can."""
        self._timeline: Final = timeline
        self._state: Final[SchedulerState] = timeline.state
        self._profiles: Final = profiles
        self._rng: Final = rng
        self._incomparable: Final = incomparable
        #: Of the cluster; set before the first verdict.
        self.version = Version()
        #: The uids of victims whose preemptor was judged; the last ones.
        self._claimed: Final[dict[str, None]] = {}
        #: The number of the last change that had been seen at the last explained decision.
        self._seen = 0
        #: Changes of nodes, claims and the like that had not been seen at the last decision with an unlikely order.
        self._unseen: tuple[Entry, ...] = ()
        #: Whether a default configuration of some plugins explains the outcome, for the last pods.
        self._defaults: Final[deque[bool]] = deque(maxlen=_OBSERVED)
        #: Seconds from the queue to the outcome, of the last pods.
        self._took: Final[deque[float]] = deque(maxlen=_OBSERVED)
        #: When the last outcome arrived, in seconds.
        self._last_at = 0.0

    def judge(self, entry: Entry, orders: int | None = None) -> Generator[None, None, Verdict]:
        """The verdict on the outcome of the next entry of the timeline. Pauses between two decisions.

        ``orders``: unlikely orders that are tried at most, None for no limit. The state must not change during a pause.
        """
        outcome = entry.outcome
        assert outcome is not None  # noqa: S101 - only entries with an outcome are judged
        verdict = yield from self._judge(entry, outcome, orders)
        self._defaults.append(verdict.change.endswith(_AS_DEFAULT))
        pod = outcome.pod
        return msgspec.structs.replace(
            verdict, uid=pod.uid, profile=pod.spec.scheduler_name, node=outcome.node
        )

    def _judge(
        self, entry: Entry, outcome: Outcome, orders: int | None
    ) -> Generator[None, None, Verdict]:
        reason = self._incomparable(outcome.pod)
        if reason:
            return Verdict(pod=outcome.pod.key, kind=NOT_COMPARABLE, change=reason)
        tried: dict[_Numbers, Moves] = {}
        first: Verdict | None = None
        for moves in self._likely(entry, outcome):
            if _numbers(moves) in tried:
                continue
            tried[_numbers(moves)] = moves
            verdict = yield from self._decide(outcome, moves)
            if verdict.kind in _SETTLED or verdict.kind == NOT_COMPARABLE:
                if verdict.kind in _SETTLED:
                    self._note(outcome, moves)
                return verdict
            first = first or verdict
            yield
        assert first is not None  # noqa: S101 - there is a likely moment
        likely = list(tried.values())
        last: Verdict | None = None
        if sum(self._defaults) > len(self._defaults) // 10:  # the configurations differ
            last = yield from self._decide(outcome, likely[0], explain=True)
            if last.change.endswith(_AS_DEFAULT):
                orders = 0
        for moves in itertools.islice(self._orders(entry, outcome, likely), orders):
            verdict = yield from self._decide(outcome, moves)
            if verdict.kind in _SETTLED:
                self._note(outcome, moves)
                self._unseen = tuple(e for e in moves.undone if e.change.kind is not Pod)
                said = (
                    f"explained if {len(moves.undone)} changes before it were not seen and {len(moves.pulled)} changes "
                    "after it were"
                )
                return msgspec.structs.replace(first, kind=RACE, change=said)
            yield
        last = last or (yield from self._decide(outcome, likely[0], explain=True))
        self._claim_victims(outcome)
        known = self.version.known(outcome.pod, last.plugins)
        return msgspec.structs.replace(last, kind=NOT_COMPARABLE, change=known) if known else last

    # ------------------------------------------------------------ the moment

    def _likely(self, entry: Entry, outcome: Outcome) -> Iterator[Moves]:
        """The tables that the scheduler had, as far as the order in the queue and the order of arrival tell.

        The decision came after that on the pod before, and before the outcome.
        """
        own = tuple(self._own(entry, outcome))
        if outcome.queued:
            latency = self._latency(entry, outcome)
            seen = min(max(outcome.queued, self._seen), entry.number)
            yield self._by_queue(entry, outcome, own, seen)
            moment = max(outcome.queued_at, entry.at - latency)
            before = (*self._timeline.late(outcome.queued_at), *self._timeline.near())
            seen = max((e.number for e in before if e.at <= moment), default=entry.number)
            yield self._by_queue(entry, outcome, own, min(seen, entry.number))
            yield self._by_queue(entry, outcome, own, entry.number)
        as_seen = self._as_seen(entry, own)
        yield as_seen
        unseen = tuple(e for e in self._unseen if e.at > entry.at - _OWN_SECONDS)
        if unseen:
            seen = min(max(outcome.queued, self._seen), entry.number)
            base = self._by_queue(entry, outcome, own, seen) if outcome.queued else as_seen
            yield base._replace(undone=(*base.undone, *unseen))

    def _as_seen(self, entry: Entry, own: Sequence[Entry]) -> Moves:
        """The table when the outcome arrived: changes have been reordered by the queue since."""
        timeline = self._timeline
        undone = [e for e in timeline.late(entry.at) if e.number > entry.number]
        pulled = [e for e in timeline.near() if e.number < entry.number and e not in own]
        return Moves((*undone, *own), tuple(pulled))

    def _by_queue(self, entry: Entry, outcome: Outcome, own: Sequence[Entry], seen: int) -> Moves:
        """The table with the pods that are before this one in the queue, without those behind it.

        Other changes are in up to the one with the number ``seen``.
        """
        timeline = self._timeline
        undone = [
            e
            for e in timeline.late(outcome.queued_at)
            if e.number > outcome.queued  # what came before the pod was seen
            and (precedes(entry, e) if e.places else e.number > seen and _matters(e, outcome))
        ]
        pulled = [
            e
            for e in timeline.near()
            if e is not entry
            and (precedes(e, entry) if e.places else e.number <= seen and e not in own)
        ]
        return Moves((*undone, *own), tuple(pulled), seen)

    def _other_moments(
        self, entry: Entry, outcome: Outcome, own: Sequence[Entry]
    ) -> Iterator[Moves]:
        """Other moments between the queue and the outcome, from that of the decision before on; then earlier ones.

        A scheduler decides on one pod after another: what it has seen for one pod it has seen for the next.
        """
        if not outcome.queued:
            return
        timeline = self._timeline
        changes = sorted(
            e.number
            for e in (*timeline.late(outcome.queued_at), *timeline.near())
            if not e.places and _matters(e, outcome) and outcome.queued < e.number < entry.number
        )
        later = [number for number in changes if number > self._seen][:_MOMENTS]
        earlier = [number for number in reversed(changes) if number <= self._seen][:_MOMENTS]
        for seen in (*later, *earlier, outcome.queued):
            yield self._by_queue(entry, outcome, own, seen)

    def _own(self, entry: Entry, outcome: Outcome) -> Iterator[Entry]:
        """The changes that follow from the decision and show already: evictions for the pod, and what its claims get."""
        pod, nominated = outcome.pod, outcome.message is not None and bool(outcome.node)
        if not nominated and not _has_claims(pod):
            return
        changes = self._timeline.late(outcome.queued_at or entry.at - _OWN_SECONDS)
        for e in (*changes, *self._timeline.near()):
            if (nominated and self._evicts(e, outcome.node)) or (
                not nominated and preparation(e.change, pod) is not None
            ):
                yield e

    def _evicts(self, entry: Entry, node: str) -> bool:
        """Whether a change shows that a pod on this node is evicted for a pod that was not judged yet."""
        return (
            entry.evicts and entry.node_name == node and entry.change.new.uid not in self._claimed
        )

    def _note(self, outcome: Outcome, moves: Moves) -> None:
        """Keeps what an explained outcome says about the next ones."""
        self._seen = max(self._seen, moves.seen)
        self._claim_victims(outcome)

    def _claim_victims(self, outcome: Outcome) -> None:
        """The victims of this outcome are not those of the next pod that is nominated to the same node."""
        if outcome.message is not None and outcome.node:
            for uid in self._victims_seen(outcome.node, behind_only=True):
                self._claimed[uid] = None
                if len(self._claimed) > _CLAIMED:
                    del self._claimed[next(iter(self._claimed))]

    def _latency(self, entry: Entry, outcome: Outcome) -> float:
        """Seconds that the cluster's scheduler takes from a decision until it shows, by the quickest of the last ones."""
        if outcome.queued and outcome.queued_at >= self._last_at:  # it did not wait for others
            self._took.append(entry.at - outcome.queued_at)
        self._last_at = max(self._last_at, entry.at)
        return sorted(self._took)[len(self._took) // 5] if self._took else 0.0

    def _orders(self, entry: Entry, outcome: Outcome, likely: Sequence[Moves]) -> Iterator[Moves]:
        """Other orders of the changes of about the same moment, the most likely ones first. No order comes twice."""
        undone, pulled = frozenset(likely[0].undone), frozenset(likely[0].pulled)
        own = tuple(self._own(entry, outcome))
        #: What the claims of a pod get is never seen before the decision on it.
        never = () if outcome.message is not None else own
        behind = [e for e in self._timeline.behind if e not in undone and _matters(e, outcome)]
        ahead = [
            e
            for e in self._timeline.near()
            if e is not entry
            and e not in pulled
            and e not in never
            and (e.change.kind is not Pod or (e.places and not precedes(entry, e)))
        ]
        tried = {_numbers(moves) for moves in likely}
        others = (
            Moves((*back, *never), tuple(forward))
            for back, forward in self._candidates(behind, ahead, likely, outcome)
        )
        moments = self._other_moments(entry, outcome, own)
        pairs = itertools.zip_longest(moments, others)
        for moves in itertools.chain.from_iterable(pairs):
            if moves is not None and _numbers(moves) not in tried:
                tried.add(_numbers(moves))
                yield moves

    def _candidates(
        self,
        behind: Sequence[Entry],
        ahead: Sequence[Entry],
        likely: Sequence[Moves],
        outcome: Outcome,
    ) -> Iterator[tuple[Sequence[Entry], Sequence[Entry]]]:
        undone, pulled, _ = likely[0]
        if undone or pulled:
            yield (), ()
            bindings = tuple(e for e in undone if e.places)
            yield bindings, pulled
            others = [e for e in undone if not e.places]
            for number in _STEPS_BACK[:6]:
                if number < len(others):
                    yield (*bindings, *others[-number:]), pulled
        for base in likely:
            yield from _other_kinds(behind, ahead, base)
        nodes = self._better(outcome, likely[0])
        if nodes:
            near = [e for e in behind if e.node_name in nodes]
            soon = [e for e in ahead if e.node_name in nodes]
            yield undone, (*pulled, *soon)
            yield (*undone, *near), pulled
            yield (*undone, *near), (*pulled, *soon)
            for each in reversed(near[-8:]):
                yield (*undone, each), (*pulled, *soon)
            for each in soon[:8]:
                yield undone, (*pulled, each)
        for number in _STEPS_BACK:
            yield (*undone, *behind[-number:]), pulled
            if number >= len(behind):
                break
        for number in _STEPS_AHEAD:
            yield undone, (*pulled, *ahead[:number])
            if number >= len(ahead):
                break

    def _better(self, outcome: Outcome, base: Moves) -> frozenset[str]:
        """The cluster's node, and the nodes that have a higher score here if these are few; empty for a refusal."""
        if outcome.message is not None:
            return frozenset()
        with self._timeline.moved(base.undone, base.pulled):
            found = self._compare_binding(outcome)
            if found.attempt is None:
                return frozenset({outcome.node})
            rows = found.rows[found.totals > found.totals[found.at]]
            if len(rows) > _FEW_NODES:
                return frozenset({outcome.node})
            return frozenset({outcome.node, *found.attempt.names(rows)})

    # ------------------------------------------------------------ one decision

    def _decide(
        self, outcome: Outcome, moves: Moves, *, explain: bool = False
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
        self, outcome: Outcome, framework: Framework | None = None
    ) -> Generator[None, None, _Compared]:
        if outcome.message is None:
            return self._compare_binding(outcome, framework)
        return _Compared((yield from self._compare_refusal(outcome, outcome.message, framework)))

    def _profile(self, outcome: Outcome) -> Profile:
        return self._profiles[outcome.pod.spec.scheduler_name]

    def _attempt(self, outcome: Outcome, framework: Framework | None) -> Attempt:
        return Attempt(
            framework or self._profile(outcome).framework,
            self._state.table,
            outcome.pod,
            nominated=self._state.nominated_for,
            rng=self._rng,
            nominated_node="",
        )

    def _compare_binding(self, outcome: Outcome, framework: Framework | None = None) -> _Compared:
        pod, node = outcome.pod, outcome.node
        attempt = self._attempt(outcome, framework)
        row = self._state.table.row_of.get(node, -1)
        verdict = Verdict(pod=pod.key, kind=NOTHING_FITS)
        try:
            rows = attempt.find()
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
        totals = attempt.rank(rows) if len(rows) > 1 else np.zeros(1, np.int64)
        best = int(totals.argmax())
        equal = int(np.count_nonzero(totals == totals[best]))
        verdict = msgspec.structs.replace(
            verdict,
            node_here=self._state.table.names[rows[best]],
            feasible=len(rows),
            equal=equal,
        )
        if at >= len(rows) or rows[at] != row:
            status = attempt.diagnosis().status(row)
            said = status.message if row >= 0 else "the node does not exist"
            plugins = (status.plugin,) if status.plugin else ()
            return _Compared(
                msgspec.structs.replace(
                    verdict, kind=DOES_NOT_FIT, message_here=said, plugins=plugins, change=said
                )
            )
        behind = int(totals[best] - totals[at])
        kind = self._class(pod, rows, totals, at)
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

    def _class(self, pod: Pod, rows: Rows, totals: Int64, at: int) -> str:
        table = self._state.table
        highest = totals.max()
        if totals[at] == highest:
            return SAME if np.count_nonzero(totals == highest) == 1 else TIE
        if pod.nominated_node_name and table.names[rows[at]] == pod.nominated_node_name:
            return SAME
        percentage = self._profiles[pod.spec.scheduler_name].percentage
        looked_at = feasible_nodes_to_find(table.node_count, percentage)
        # The chosen node was the best of at least ``looked_at`` feasible ones.
        if len(rows) > looked_at and np.count_nonzero(totals <= totals[at]) >= looked_at:
            return SAMPLED
        return UNEXPLAINED

    def _other_claims(self, outcome: Outcome, attempt: Attempt) -> Difference | None:
        """A claim of the pod that gets another volume or other devices here, on the same node; None if there is none."""
        pod = outcome.pod
        if not _has_claims(pod):
            return None
        timeline = self._timeline
        told = [preparation(e.change, pod) for e in (*timeline.behind, *timeline.near())]
        there = {each[0]: each[1] for each in told if each is not None}
        if not there:
            return None
        here = reserved(attempt.framework, attempt.state, attempt.pod, outcome.node)
        return next(differences(there, here, self._state.cluster), None)

    # ------------------------------------------------------------ refused pods

    def _compare_refusal(
        self, outcome: Outcome, message: str, framework: Framework | None
    ) -> Generator[None, None, Verdict]:
        attempt = self._attempt(outcome, framework)
        verdict = Verdict(pod=outcome.pod.key, kind=FITS, message=message)
        try:
            rows = attempt.find()
        except NoNodesError as error:
            return self._of_message(verdict, str(error))
        except Unfit as unfit:
            return (yield from self._compare_unfit(outcome, attempt, unfit.diagnosis, verdict))
        totals = attempt.rank(rows) if len(rows) > 1 else np.zeros(1, np.int64)
        return msgspec.structs.replace(
            verdict,
            node_here=self._state.table.names[rows[int(totals.argmax())]],
            feasible=len(rows),
            equal=int(np.count_nonzero(totals == totals.max())),
            change="this configuration would have to refuse the node",
        )

    def _compare_unfit(
        self, outcome: Outcome, attempt: Attempt, diagnosis: Diagnosis, verdict: Verdict
    ) -> Generator[None, None, Verdict]:
        nominated = outcome.node
        text = diagnosis.message("")
        if not _same_reasons(text, verdict.message):
            return self._of_message(verdict, text)  # no preemption changes that
        preempting = _Preempting()
        effects = cast("Effects", preempting)
        result: PostFilterResult | None = yield from in_pauses(
            attempt.framework.post_filter(attempt.state, attempt.pod, diagnosis, effects)
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
        seen = self._victims_seen(nominated)
        expected = {pod.uid: pod.key for pod in there.pods}
        verdict = msgspec.structs.replace(
            verdict, victims=tuple(sorted(pod.key for pod in seen.values()))
        )
        if seen and not expected.keys() <= seen.keys():
            others = Victims(tuple(by_importance(seen.values())), there.num_pdb_violations)
            if loss(others) == loss(there):  # pods that are alike
                return msgspec.structs.replace(verdict, kind=TIE, plugins=())
            return msgspec.structs.replace(
                verdict, victims_here=tuple(sorted(expected.values())), change="other victims"
            )
        best = min(map(loss, preempting.candidates.values()))
        if loss(there) == best:
            equal = sum(loss(each) == best for each in preempting.candidates.values())
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

    def _victims_seen(self, node: str, *, behind_only: bool = False) -> dict[str, Pod]:
        """The pods on a node that were evicted about now, by uid."""
        timeline = self._timeline
        entries = (*timeline.behind, *(() if behind_only else timeline.near()))
        return {e.change.new.uid: e.change.new for e in entries if self._evicts(e, node)}

    # ------------------------------------------------------------ why

    def _explained(self, outcome: Outcome, found: _Compared) -> Generator[None, None, Verdict]:
        """The verdict with the scores of both nodes, the plugins, and what would have to change."""
        verdict, attempt, rows, totals, at = found
        if attempt is not None and verdict.kind not in {VOLUMES, DEVICES}:
            by_plugin = attempt.plugin_scores(rows)
            best = int(totals.argmax())
            possible = factors(totals, by_plugin, at)
            plugins = tuple(f.plugin for f in possible) or largest(by_plugin, at, best)
            changes = [str(f) for f in possible[:3]]
            percentage = self._percentage_for(totals, at)
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
        for plugins, framework in self._profile(outcome).alternatives:
            yield
            other = yield from self._compare(outcome, framework)
            if other.verdict.kind in _SETTLED:
                said = f"{', '.join(plugins)} {_AS_DEFAULT}"
                return msgspec.structs.replace(verdict, plugins=plugins, change=said)
        return verdict

    def _percentage_for(self, totals: Int64, at: int) -> int:
        """The highest percentageOfNodesToScore with which the chosen node may have been the best one; 0 if there is none."""
        nodes, looked_at = self._state.table.node_count, np.count_nonzero(totals <= totals[at])
        percentage = int(looked_at * 100 // max(nodes, 1))
        enough = percentage > 0 and looked_at >= feasible_nodes_to_find(nodes, percentage)
        return percentage if enough else 0


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


def _same_reasons(one: str, other: str) -> bool:
    """Whether two messages of FailedScheduling count the same nodes for the same reasons."""
    return counts(one).by_reason == counts(other).by_reason


def _other_kinds(
    behind: Sequence[Entry], ahead: Sequence[Entry], base: Moves
) -> Iterator[tuple[Sequence[Entry], Sequence[Entry]]]:
    """Orders in which changes of nodes, claims and the like come earlier or later: they arrive by watches of their own."""
    undone, pulled, _ = base
    before = [e for e in behind if e.change.kind is not Pod]
    after = [e for e in ahead if e.change.kind is not Pod]
    for number in range(1, min(len(before), _OTHER_KINDS) + 1):
        yield (*undone, *before[-number:]), pulled
    for number in range(1, min(len(after), _OTHER_KINDS) + 1):
        yield undone, (*pulled, *after[:number])


def _has_claims(pod: Pod) -> bool:
    return bool(pod.template.volumes or pod.spec.resource_claims)


def _matters(entry: Entry, outcome: Outcome) -> bool:
    """Whether a change may be later than a decision, and changes more than the queue."""
    return may_be_later(entry, outcome) and (entry.change.kind is not Pod or bool(entry.node_name))


_Numbers = tuple[frozenset[int], frozenset[int]]


def _numbers(moves: Moves) -> _Numbers:
    return frozenset(e.number for e in moves.undone), frozenset(e.number for e in moves.pulled)
