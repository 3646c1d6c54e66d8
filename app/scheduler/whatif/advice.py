"""What must change: the smallest sets of changes with which a pod gets a node, by trials on the imagined cluster.

Single changes come first: one for each reason of the pod, and all of them are tried. If none is enough, pairs are
tried, and so on. A set that helps is then made as small as its node allows, carried out, and told only if the pod gets
a node by it.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

import msgspec
import numpy as np

from app.cycle.attempt import Attempt, NoNodesError, Unfit
from app.framework.diagnosis import Diagnosis
from app.model.objects import Node
from app.model.pod import Pod
from app.model.status import Code, SchedulingError
from app.scheduler.whatif.remedies import (
    ChangeTrial,
    Clearing,
    Remedy,
    RequestChange,
    Spot,
    SuggestedEviction,
    evicted,
    free_on,
    remedies_for,
)
from app.scheduler.whatif.world import Failed, GivenUp, ImaginedCluster
from app.state.columns.arrays import Rows
from app.wire.whatif_v1 import BudgetAnswer, Suggestion

#: Changes that are needed together at most.
_MOST_CHANGES: Final = 4
#: Sets of changes that are tried at most, and those that are told.
_MOST_TRIALS: Final = 300
_MOST_TOLD: Final = 8
#: Victims of one eviction of which each is tried to be spared.
_MOST_SPARED: Final = 8

_Remedies = tuple[Remedy, ...]


class _Wide(msgspec.Struct, frozen=True):
    """What a wide trial gave: where the pod would go, or why not."""

    spot: Spot | None
    failed: Diagnosis | None = None


class Advice:
    """Looks for changes for one pod of a question."""

    def __init__(
        self,
        world: ImaginedCluster,
        pod: Pod,
        *,
        uid: Callable[[], str],
        prepare: Callable[[], Awaitable[None]],
        budgets: Callable[[Iterable[Pod]], list[BudgetAnswer]],
    ) -> None:
        """``uid`` returns one that no pod has had. ``prepare`` puts what else is asked about into the cluster."""
        self._world: Final = world
        self._pod: Final = pod
        self._uid: Final = uid
        self._prepare: Final = prepare
        self._budgets: Final = budgets
        self._rng: Final = np.random.default_rng(0)
        self._trials = 0
        #: The found suggestions, those with the fewest and easiest changes first.
        self.found: Final[list[Suggestion]] = []
        #: Whether nothing was found, and there was no time to try everything.
        self.cut = False

    async def search(self, failed: Failed) -> None:
        """Fills ``found``; some trial is left in the world. ``failed``: the outcome of the pod as it is."""
        tried: set[frozenset[object]] = set()
        level: list[tuple[_Remedies, Diagnosis | None]] = [((), failed.diagnosis)]
        try:
            for _ in range(_MOST_CHANGES):
                level = [
                    reached
                    for remedies, diagnosis in level
                    for reached in await self._one_more(remedies, diagnosis, tried)
                ]
                if self.found:
                    break
        except GivenUp:
            self.cut = True
        self.cut = self.cut and not self.found
        self.found.sort(key=lambda each: len(each.changes))
        del self.found[_MOST_TOLD:]

    async def _one_more(
        self, remedies: _Remedies, diagnosis: Diagnosis | None, tried: set[frozenset[object]]
    ) -> list[tuple[_Remedies, Diagnosis | None]]:
        """Tries one more change; returns the sets that do not help yet, with what is in their way."""
        left: list[tuple[_Remedies, Diagnosis | None]] = []
        state = self._world.state
        widened = self._widened(remedies)
        await self._make(ChangeTrial(self._pod))
        for remedy in remedies_for(widened, diagnosis, state):
            if remedy is None:
                await self._world.pace.wait_for_room()
                continue
            trials = [remedy]
            for one in trials:
                together = _in_order((*remedies, one))
                keys = frozenset(each.key for each in together)
                if keys in tried or len(keys) <= len(remedies) or _at_odds(together):
                    continue
                tried.add(keys)
                if self._trials >= _MOST_TRIALS:
                    self.cut = True
                    return left
                self._trials += 1
                wide = await self._try_widely(together)
                if wide.spot is not None:
                    await self._try_narrowly(together, wide.spot)
                    continue
                left.append((together, wide.failed))
                if wide.failed is not None:
                    trials += one.apart(self._widened(together), wide.failed, state.table)
        return left

    def _widened(self, remedies: _Remedies) -> ChangeTrial:
        trial = ChangeTrial(self._pod)
        for remedy in remedies:
            trial = remedy.wide(trial)
        return trial

    async def _make(self, trial: ChangeTrial) -> None:
        """Makes the cluster as it is in the trial, but for the pod itself. Raises GivenUp, ValueError."""
        world = self._world
        await world.again()
        await world.pace.wait_for_room()
        await self._prepare()
        table = world.state.table
        for name, node in trial.nodes.items():
            row = table.row_of.get(name)
            known = None if row is None else table.nodes[row]
            if known is not None and known is not node:
                world.change(Node, known, node)
                await world.pace.wait_for_room()
        for pod in trial.gone:
            known_pod = world.state.cache.get(pod.uid)
            if known_pod is not None:
                world.change(Pod, known_pod, None)

    async def _try_widely(self, remedies: _Remedies) -> _Wide:
        trial = self._widened(remedies)
        try:
            await self._make(trial)
            if trial.evicts:
                return await self._try_by_deciding(trial, remedies)
            wide = self._try_by_filters(trial, remedies)
            if wide.failed is not None and self._may_preempt(wide.failed):
                wide = await self._try_by_deciding(trial, remedies)
        except (ValueError, SchedulingError, NoNodesError):
            return _Wide(None)
        return wide

    def _may_preempt(self, failed: Diagnosis) -> bool:
        """Whether pods of lower priority may be evicted for the pod where filters refuse it."""
        return bool(len(failed.rows_with(Code.Unschedulable, self._world.state.table.all_rows())))

    async def _try_by_deciding(self, trial: ChangeTrial, remedies: _Remedies) -> _Wide:
        pod = await self._decide(trial.pod)
        failed, outcomes = self._world.fate(pod), self._world.outcomes
        if failed is not None:
            return _Wide(None, failed.diagnosis)
        node = outcomes.placed[pod.uid].pod.node_name
        victims = tuple(outcomes.preempts.get(pod.uid, ()))
        return _Wide(Spot(node, self._free(node, _requests(remedies)), victims))

    async def _decide(self, pod: Pod) -> Pod:
        """Lets the pod be decided; returns it as it was tried: under a uid of its own, which nothing is remembered of.

        Raises GivenUp, ValueError.
        """
        tried = msgspec.structs.replace(pod, uid=self._uid())
        self._world.change(Pod, None, tried)
        await self._world.settle()
        return tried

    def _try_by_filters(self, trial: ChangeTrial, remedies: _Remedies) -> _Wide:
        """Raises SchedulingError, NoNodesError."""
        pod, state = trial.pod, self._world.state
        if pod.spec.scheduling_gates:
            return _Wide(None)
        attempt = Attempt(
            self._world.frameworks[pod.spec.scheduler_name],
            state.table,
            pod,
            nominated=state.nominated_for,
            rng=self._rng,
        )
        names = _requests(remedies)
        try:
            rows = attempt.find()
        except Unfit as unfit:
            return _Wide(None, unfit.diagnosis)
        row = int(rows[0]) if names else attempt.choose(rows).row
        if names:
            row = self._roomiest(rows, tuple(names))
        node = state.table.names[row]
        return _Wide(Spot(node, self._free(node, names)))

    def _free(self, node: str, names: Sequence[str]) -> dict[str, int]:
        table = self._world.state.table
        return {name: free_on(table, table.row_of[node], name) for name in names}

    def _roomiest(self, rows: Rows, names: tuple[str, ...]) -> int:
        """The row where the least of what the pod requests has to go."""
        table, request = self._world.state.table, self._pod.template.request
        free = table.allocatable.block(names, rows) - table.requested.block(names, rows)
        wanted = np.array([max(1, request.get(name, 0)) for name in names])[:, None]
        return int(rows[np.argmax(np.minimum(1.0, free / wanted).min(axis=0))])

    async def _try_narrowly(self, remedies: _Remedies, spot: Spot) -> None:
        """Tells the changes if they are enough when they are as small as the node allows."""
        trial = ChangeTrial(self._pod)
        for remedy in remedies:
            narrower = remedy.narrow(trial, spot)
            if narrower is trial:
                return  # a smaller set was tried before
            trial = narrower
        enough = await self._made(trial)
        for remedy in remedies if enough else ():
            if isinstance(remedy, Clearing):
                trial, enough = await self._with_fewer_victims(trial, remedy, enough)
        if enough and _texts(enough) not in map(_texts, self.found):
            self.found.append(enough)

    async def _made(self, trial: ChangeTrial) -> Suggestion | None:
        """The changes, made: None if the pod gets no node."""
        try:
            await self._make(trial)
            pod = await self._decide(trial.pod)
        except ValueError:
            return None
        if self._world.fate(pod) is not None:
            return None
        outcomes = self._world.outcomes
        preempts = outcomes.preempts.get(pod.uid, [])
        return Suggestion(
            list(trial.changes),
            outcomes.placed[pod.uid].pod.node_name,
            preempts=[evicted(victim) for victim in preempts],
            budgets=self._budgets([*trial.gone, *preempts]),
        )

    async def _with_fewer_victims(
        self, trial: ChangeTrial, remedy: Clearing, made: Suggestion | None
    ) -> tuple[ChangeTrial, Suggestion | None]:
        """The trial without the evictions that are not needed, as far as few trials show, and its outcome."""
        victims = sorted(remedy.pods, key=lambda pod: -pod.priority)
        for pod in victims[:_MOST_SPARED]:
            fewer = remedy.without(trial, pod)
            enough = None if fewer is None else await self._made(fewer)
            if fewer is not None and enough is not None:
                trial, made = fewer, enough
        return trial, made


def _texts(suggestion: Suggestion) -> set[str]:
    return {change.text for change in suggestion.changes}


def _requests(remedies: _Remedies) -> list[str]:
    """The resources of which the pod asks for nothing in a wide trial."""
    return [each.resource for each in remedies if isinstance(each, RequestChange)]


def _at_odds(remedies: _Remedies) -> bool:
    """Whether one of the changes makes another one needless: a smaller request, and room by evictions."""
    kinds = {type(each) for each in remedies}
    return {SuggestedEviction, RequestChange} <= kinds


def _in_order(remedies: _Remedies) -> _Remedies:
    """Evictions last: what the pod asks for is settled then."""
    return tuple(sorted(remedies, key=lambda each: isinstance(each, SuggestedEviction)))
