"""Finds the moment at which a cluster's scheduler decided on a pod: which changes and decisions it had seen.

A scheduler decides on one pod after another, in the order of its queue, and binds side by side. Its watches of
different kinds differ. So neither the order of arrival nor the time of an outcome says what it had seen; what earlier
outcomes say is kept.
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from app.model.objects import Node
from app.model.pod import Pod
from app.tools.shadow.outcomes import PodOutcome
from app.tools.shadow.timeline import Entry, Timeline, decided_before, may_be_later

#: The numbers of changes before an outcome that are undone, one after another, to find the moment of the decision.
_STEPS_BACK: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
#: The same for bindings after the outcome that are taken for earlier decisions.
_STEPS_AHEAD: Final = (1, 2, 4, 8, 16, 32, 64)
#: The same for changes of other kinds than pods, before and after the outcome.
_OTHER_KINDS: Final = 4
#: Other moments of a decision that are tried, after and before that of the decision before.
_MOMENTS: Final = 16
#: Seconds before an outcome within which changes that follow from the decision may show, if it is not known when the
#: pod entered the queue; and what watches may differ.
_OWN_SECONDS: Final = 2.0
_SLACK: Final = 1.0
#: Victims that are remembered.
_CLAIMED: Final = 4096
#: Pods from which the latency of the cluster's scheduler is estimated.
_OBSERVED: Final = 64


class Moves(NamedTuple):
    """The applied changes to undo and the bindings to pull ahead for the table at the moment of a decision."""

    undone: tuple[Entry, ...] = ()
    pulled: tuple[Entry, ...] = ()
    #: The number of the last change that had been seen, apart from decisions on pods; 0 if that is not said.
    seen: int = 0


class Moments:
    """The moments of the decisions whose outcomes are on a timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline: Final = timeline
        #: The uids of victims whose preemptor was judged; the last ones.
        self._claimed: Final[dict[str, None]] = {}
        #: The number of the last change that had been seen at the last decision that the time alone does not explain.
        self._seen = 0
        #: The number of the last change that had arrived at the likely time of the last decision; 0 if there is none.
        self._arrived = 0
        #: Changes of nodes, claims and the like that had not been seen at the last decision with an unlikely order.
        self._unseen: tuple[Entry, ...] = ()
        #: Seconds from the queue to the outcome, of the last pods.
        self._took: Final[deque[float]] = deque(maxlen=_OBSERVED)
        #: When the last outcome arrived, in seconds.
        self._last_at = 0.0

    def likely(self, entry: Entry, outcome: PodOutcome) -> Iterator[Moves]:
        """The tables that the scheduler had, as far as the order in the queue and the order of arrival tell.

        The decision came after that on the pod before, and before the outcome. The first table is the one that is
        there: nearly no change has to be moved for it.
        """
        own = tuple(self._own(entry, outcome))
        latency = self._latency(entry, outcome)
        self._arrived = 0
        first = Moves((*self._timeline.decided_after(entry), *own))
        yield first
        oldest = self._timeline.behind[0].at if self._timeline.behind else entry.at
        unseen = tuple(e for e in self._unseen if e.at >= oldest)
        if unseen:
            yield Moves((*first.undone, *unseen))
        if outcome.queued:
            moment = entry.at - latency
            self._arrived = min(self._timeline.last_at(moment, outcome.queued), entry.number)
            # The time first: behind a backlog of pods many changes have to be undone for the moment before.
            yield self._by_queue(entry, outcome, own, self._arrived)
            seen = min(max(outcome.queued, self._seen), entry.number)
            yield self._by_queue(entry, outcome, own, seen)
            yield self._by_queue(entry, outcome, own, entry.number)
        as_seen = self._as_seen(entry, own)
        yield as_seen
        if unseen:
            seen = min(max(outcome.queued, self._seen), entry.number)
            base = self._by_queue(entry, outcome, own, seen) if outcome.queued else as_seen
            yield base._replace(undone=(*base.undone, *unseen))

    def _as_seen(self, entry: Entry, own: Sequence[Entry]) -> Moves:
        """The table when the outcome arrived: changes have been reordered by the queue since."""
        timeline = self._timeline
        undone = list(timeline.later(entry.number))
        pulled = [e for e in timeline.near() if e.number < entry.number and e not in own]
        return Moves((*undone, *own), tuple(pulled))

    def _by_queue(
        self, entry: Entry, outcome: PodOutcome, own: Sequence[Entry], seen: int
    ) -> Moves:
        """The table with the pods that are before this one in the queue, without those behind it.

        Other changes are in up to the one with the number ``seen``.
        """
        timeline = self._timeline
        since = max(seen, outcome.queued)  # what came before the pod was seen
        undone = list(timeline.decided_after(entry))
        undone += [e for e in timeline.later(since) if not e.places and _matters(e, outcome)]
        pulled = [
            e
            for e in timeline.near()
            if e is not entry
            and (decided_before(e, entry) if e.places else e.number <= seen and e not in own)
        ]
        return Moves((*undone, *own), tuple(pulled), seen)

    def _other_moments(
        self, entry: Entry, outcome: PodOutcome, own: Sequence[Entry], nodes: frozenset[str]
    ) -> Iterator[Moves]:
        """Other moments between the queue and the outcome, from that of the decision before on; then earlier ones.

        A scheduler decides on one pod after another: what it has seen for one pod it has seen for the next. Moments at
        changes that concern ``nodes`` come first.
        """
        if not outcome.queued:
            return
        timeline = self._timeline
        changes = sorted(
            (
                e
                for e in (*timeline.later(outcome.queued), *timeline.near())
                if not e.places
                and outcome.queued < e.number < entry.number
                and _matters(e, outcome)
            ),
            key=lambda e: e.number,
        )
        numbers = [e.number for e in changes]
        decisive = [n for e in changes if e.node_name in nodes for n in (e.number - 1, e.number)]
        for some in (decisive, numbers):
            later = [number for number in some if number > self._seen][:_MOMENTS]
            earlier = [number for number in reversed(some) if number <= self._seen][:_MOMENTS]
            for seen in (*later, *earlier):
                yield self._by_queue(entry, outcome, own, seen)
        yield self._by_queue(entry, outcome, own, outcome.queued)

    def _own(self, entry: Entry, outcome: PodOutcome) -> Iterator[Entry]:
        """The changes that follow from the decision and show already: evictions for the pod, and what its claims
        get."""
        since = (outcome.queued_at or entry.at - _OWN_SECONDS) - _SLACK
        if outcome.message is not None and outcome.node:
            yield from (e for e in self._evictions(outcome.node) if e.at >= since)
        elif has_claims(outcome.pod):
            yield from (e for e in self._timeline.preparations(outcome.pod) if e.at >= since)

    def _evictions(self, node: str, *, behind_only: bool = False) -> Iterator[Entry]:
        """The changes that show that pods on this node are evicted for a pod that was not judged yet."""
        for e in self._timeline.evictions(node, behind_only=behind_only):
            if e.change.new.uid not in self._claimed:
                yield e

    def explained(self, outcome: PodOutcome, moves: Moves, *, likely: bool) -> None:
        """Keeps what an explained outcome says about the next ones."""
        # What the time explains an earlier moment may explain as well.
        if not likely or moves.seen != self._arrived:
            self._seen = moves.seen or self._seen
        if not likely:
            self._unseen = tuple(e for e in moves.undone if e.change.kind is not Pod)
            missed = [
                e.number
                for e in moves.undone
                if e.change.kind is Pod and not (e.places or e.evicts)
            ]
            self._seen = (
                min(self._seen, *(number - 1 for number in missed)) if missed else self._seen
            )
        self.claim_victims(outcome)

    def claim_victims(self, outcome: PodOutcome) -> None:
        """The victims of this outcome are not those of the next pod that is nominated to the same node."""
        if outcome.message is not None and outcome.node:
            for uid in self.victims_seen(outcome.node, behind_only=True):
                self._claimed[uid] = None
                if len(self._claimed) > _CLAIMED:
                    del self._claimed[next(iter(self._claimed))]

    def _latency(self, entry: Entry, outcome: PodOutcome) -> float:
        """Seconds that the cluster's scheduler takes from a decision until it shows, by the quickest of the last
        ones."""
        if (
            outcome.queued and not outcome.retried and outcome.queued_at >= self._last_at
        ):  # it did not wait for others
            self._took.append(entry.at - outcome.queued_at)
        self._last_at = max(self._last_at, entry.at)
        return sorted(self._took)[len(self._took) // 5] if self._took else 0.0

    def orders(
        self,
        entry: Entry,
        outcome: PodOutcome,
        likely: Sequence[Moves],
        nodes_of: Callable[[Moves], frozenset[str]],
    ) -> Iterator[Moves]:
        """Other orders of the changes of about the same moment, the most likely ones first. No order comes twice.

        ``nodes_of``: the names of the nodes on which the verdict hangs; none if these are all.
        """
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
            and (e.change.kind is not Pod or (e.places and not decided_before(entry, e)))
        ]
        tried = {numbers_of(moves) for moves in likely}
        nodes = nodes_of(likely[0])
        others = (
            Moves((*back, *never), tuple(forward))
            for back, forward in self._candidates(behind, ahead, likely, nodes)
        )
        moments = self._other_moments(entry, outcome, own, nodes)
        pairs = itertools.zip_longest(moments, others)
        for moves in itertools.chain.from_iterable(pairs):
            if moves is not None and numbers_of(moves) not in tried:
                tried.add(numbers_of(moves))
                yield moves

    def _candidates(
        self,
        behind: Sequence[Entry],
        ahead: Sequence[Entry],
        likely: Sequence[Moves],
        nodes: frozenset[str],
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

    def nominates_others(self, outcome: PodOutcome) -> bool:
        """Whether other pods were nominated to the same node about now: it does not show whose victims are whose
        then."""
        timeline = self._timeline
        return any(
            e.outcome is not None
            and e.outcome.message is not None
            and e.outcome.node == outcome.node
            and e.outcome.pod.uid != outcome.pod.uid
            for e in (*timeline.behind, *timeline.near())
        )

    def victims_seen(self, node: str, *, behind_only: bool = False) -> dict[str, Pod]:
        """The pods on a node that were evicted about now, by uid."""
        evictions = self._evictions(node, behind_only=behind_only)
        return {e.change.new.uid: e.change.new for e in evictions}


def _other_kinds(
    behind: Sequence[Entry], ahead: Sequence[Entry], base: Moves
) -> Iterator[tuple[Sequence[Entry], Sequence[Entry]]]:
    """Orders in which changes of nodes, claims and the like come earlier or later: they arrive by watches of their
    own."""
    undone, pulled, _ = base
    for is_moved in (_is_of_node, _is_of_other_kind):
        before = [e for e in behind if is_moved(e)]
        after = [e for e in ahead if is_moved(e)]
        for number in range(1, min(len(before), _OTHER_KINDS) + 1):
            yield (*undone, *before[-number:]), pulled
        for number in range(1, min(len(after), _OTHER_KINDS) + 1):
            yield undone, (*pulled, *after[:number])


def _is_of_node(entry: Entry) -> bool:
    return entry.change.kind is Node


def _is_of_other_kind(entry: Entry) -> bool:
    return entry.change.kind is not Pod


def has_claims(pod: Pod) -> bool:
    """Whether a pod may use claims for volumes or devices."""
    return bool(pod.template.volumes or pod.spec.resource_claims)


def _matters(entry: Entry, outcome: PodOutcome) -> bool:
    """Whether a change may be later than a decision, and changes more than the queue."""
    return may_be_later(entry, outcome) and (entry.change.kind is not Pod or bool(entry.node_name))


Numbers = tuple[frozenset[int], frozenset[int]]


def numbers_of(moves: Moves) -> Numbers:
    return frozenset(e.number for e in moves.undone), frozenset(e.number for e in moves.pulled)
