"""What evicting would take on each candidate node, all candidates at once (spec: service.md 3.4).

Every candidate row is a world of its own in one what-if view: first all pods of lower priority are imagined away from every
row, then they are put back step by step. Step k tries the k-th victim of every row that has so many, with one pass of the
filters over all of them; where the pod still fits the victim is spared, elsewhere it goes again.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from app.framework.interface import CycleState, FilterPlugin
from app.framework.plugins.default_preemption.budgets import Budgets
from app.framework.plugins.default_preemption.importance import by_importance
from app.framework.runner import Framework
from app.model.pod import Pod
from app.model.status import Code, SchedulingError, Status, unresolvable
from app.state.table import NodeTable
from app.state.view import Rows, WhatIf
from app.wire.extender_v1 import Victims

NO_VICTIMS: Final = unresolvable("No preemption victims found for incoming pod")
EXPECTED_A_VICTIM: Final = 'expected at least one victim pod on node "{}"'

#: The victims on a node, or why evicting does not help there.
Finding = Victims | Status


class _Worlds:
    """The candidate rows, with pods of equal or higher priority nominated to some of them (spec: service.md 3.8)."""

    def __init__(
        self,
        framework: Framework,
        table: NodeTable,
        filters: Sequence[tuple[int, FilterPlugin]],
        state: CycleState,
        pod: Pod,
        rows: Rows,
        nominated: Mapping[int, Sequence[Pod]],
    ) -> None:
        self._framework: Final = framework
        self._filters: Final = filters
        self._state: Final = state
        self._pod: Final = pod
        self._alone: Final = WhatIf(table, rows)
        self._shared: Final = np.array(
            [p for p, row in enumerate(rows.tolist()) if row in nominated], np.intp
        )
        self._place: Final = {p: i for i, p in enumerate(self._shared.tolist())}
        self._together: Final = WhatIf(table, rows[self._shared])
        for position, row in enumerate(rows[self._shared].tolist()):
            for other in nominated[row]:
                self._together.add(position, other.on(table.names[row]))

    def remove(self, position: int, pod: Pod) -> None:
        """Imagines a pod away."""
        self._alone.remove(position, pod)
        if position in self._place:
            self._together.remove(self._place[position], pod)

    def add(self, position: int, pod: Pod) -> None:
        """Puts a pod back."""
        self._alone.add(position, pod)
        if position in self._place:
            self._together.add(self._place[position], pod)

    def judge(self) -> list[Status | None]:
        """What the filters say of each row; None where the pod may go."""
        out = self._ask(self._alone)
        if len(self._shared):
            for position, status in zip(
                self._shared.tolist(), self._ask(self._together), strict=True
            ):
                out[position] = status or out[position]
        return out

    def _ask(self, view: WhatIf) -> list[Status | None]:
        try:
            arrays = self._framework.filter_view(self._state, self._pod, view, self._filters)
        except SchedulingError as error:
            if view.n == 1:
                return [Status(Code.Error, (str(error),))]
            halves = np.array_split(np.arange(view.n), 2)
            return [status for half in halves for status in self._ask(view.take(half))]
        outcome = self._framework.filter_outcome(arrays, view.n)
        return [None if (s := outcome.status(p)).ok else s for p in range(view.n)]


class DryRun:
    """Tries out preemption for one pod."""

    def __init__(
        self,
        framework: Framework,
        table: NodeTable,
        budgets: Budgets,
        state: CycleState,
        pod: Pod,
        *,
        nominated: Mapping[int, Sequence[Pod]],
        now: float,
    ) -> None:
        self._framework: Final = framework
        self._table: Final = table
        self._budgets: Final = budgets
        self._state: Final = state
        self._pod: Final = pod
        self._nominated: Final = nominated
        self._now: Final = now
        self._filters: Final = framework.active_filters(state)

    def run(self, rows: Rows) -> list[Finding]:
        """For each row the victims, most important first, or why there are none."""
        potential = [self._potential(row) for row in rows.tolist()]
        out: list[Finding] = [NO_VICTIMS] * len(rows)
        positions = [p for p, pods in enumerate(potential) if pods]
        found = self._search(rows[positions], [potential[p] for p in positions])
        for position, finding in zip(positions, found, strict=True):
            out[position] = finding
        return out

    def _potential(self, row: int) -> list[Pod]:
        priority = self._pod.priority
        pods = (p for p in self._table.pods[row].values() if p.priority < priority)
        return by_importance(pods, self._now)

    def _search(self, rows: Rows, potential: list[list[Pod]]) -> list[Finding]:
        worlds = _Worlds(
            self._framework,
            self._table,
            self._filters,
            self._state,
            self._pod,
            rows,
            self._nominated,
        )
        for position, pods in enumerate(potential):
            for pod in pods:
                worlds.remove(position, pod)
        without = worlds.judge()
        violating = [self._budgets.violating(pods) for pods in potential]
        orders = [sorted(range(len(v)), key=lambda i: not v[i]) for v in violating]
        evicted: list[set[int]] = [set() for _ in potential]
        for step in range(max(map(len, potential), default=0)):
            tried = [
                p for p, pods in enumerate(potential) if without[p] is None and step < len(pods)
            ]
            for p in tried:
                worlds.add(p, potential[p][orders[p][step]])
            verdicts = worlds.judge()
            for p in tried:
                if verdicts[p] is not None:
                    index = orders[p][step]
                    worlds.remove(p, potential[p][index])
                    evicted[p].add(index)
        return [
            status or self._victims(int(rows[p]), potential[p], violating[p], evicted[p])
            for p, status in enumerate(without)
        ]

    def _victims(
        self, row: int, potential: list[Pod], violating: list[bool], evicted: set[int]
    ) -> Finding:
        if not evicted:
            return Status(Code.Error, (EXPECTED_A_VICTIM.format(self._table.names[row]),))
        chosen = sorted(evicted)
        return Victims(tuple(potential[i] for i in chosen), sum(violating[i] for i in chosen))
