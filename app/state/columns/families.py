"""Counting columns: the number of pods on each row that match a selector.

Pods with the same namespace and labels form a family. A selector is evaluated once per family, and a counter is
updated by one addition when a pod is added or removed. Plugins get a counter by a key; equal keys give the same
counter. Counters that were not used for a while are dropped.

A new family finds its counters through an index over the labels that they require, and a new counter its families
through an index over their labels. So neither thousands of selectors nor thousands of families slow down a change.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt

from app.model.pod import LabelSet, Pod
from app.model.selectors import Selector
from app.state.columns.label_index import LabelIndex
from app.state.columns.labels import DomainSums, LabelColumn, most_columns
from app.state.columns.selector_index import EVERY_POD, Scope, SelectorIndex

Counts = npt.NDArray[np.int32]
#: Whether pods of this namespace with these labels (and terminating or not) are counted.
Predicate = Callable[[str, Mapping[str, str], bool], bool]

#: Up to this many families are evaluated one by one instead of through the index.
_FEW: Final = 16


class _PodFamily:
    """Pods with the same namespace, labels and terminating state: their number per row, and their counters."""

    __slots__ = ("counted_by", "labels", "namespace", "rows", "terminating")

    def __init__(self, namespace: str, labels: LabelSet, *, terminating: bool) -> None:
        self.namespace: Final = namespace
        self.labels: Final = labels
        self.terminating: Final = terminating
        self.rows: dict[int, int] = {}
        self.counted_by: tuple[PodCounter, ...] = ()

    def matched_by(self, predicate: Predicate) -> bool:
        """Whether the predicate counts pods of this family."""
        return predicate(self.namespace, self.labels, self.terminating)


class PodCounter:
    """int32 counts per row of the pods that a predicate matches; ``total`` is their sum.

    All counted pods are within the scope ``within``.
    """

    __slots__ = ("_sums", "counts", "last_used", "predicate", "total", "within")

    def __init__(self, predicate: Predicate, capacity: int, within: Scope = EVERY_POD) -> None:
        self.predicate: Final = predicate
        self.within: Final = within
        self.counts: Counts = np.zeros(capacity, np.int32)
        self.total = 0
        self.last_used = 0
        self._sums: Final = DomainSums()

    def add(self, row: int, count: int) -> None:
        """Counts ``count`` more (or fewer) pods on a row."""
        self.counts[row] += count
        self.total += count
        self._sums.add(row, count)

    def by_domain(self, column: LabelColumn) -> npt.NDArray[np.int64]:
        """int64[len(column.values)], a fresh array: the number of pods by code of a label column; 0 for MISSING."""
        return self._sums.of(column, lambda: self.counts)

    def times(self, pod: Pod) -> int:
        """How often the counter counts this pod: 0 or 1, except in subclasses."""
        return int(self.predicate(pod.namespace, pod.labels, pod.terminating))


class _Namespace:
    """The families of one namespace; if there are many, also indexed by label after the first selector."""

    __slots__ = ("_index", "families")

    def __init__(self) -> None:
        self.families: Final[dict[_PodFamily, None]] = {}
        self._index: LabelIndex[_PodFamily] | None = None

    def add(self, family: _PodFamily) -> None:
        self.families[family] = None
        if self._index is not None:
            self._index.add(family, family.labels)

    def remove(self, family: _PodFamily) -> None:
        del self.families[family]
        if len(self.families) <= _FEW:
            self._index = None
        elif self._index is not None:
            self._index.remove(family)

    def within(self, selector: Selector) -> Iterable[_PodFamily]:
        """The families that the selector may match, from its most selective requirement."""
        if selector.nothing:
            return ()
        if len(self.families) <= _FEW:
            return self.families
        if self._index is None:
            self._index = LabelIndex()
            for family in self.families:
                self._index.add(family, family.labels)
        return self._index.within(selector)


class PodFamilies:
    """All families of the pods on rows, and the counters."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._families: dict[tuple[str, LabelSet, bool], _PodFamily] = {}
        self._namespaces: dict[str, _Namespace] = {}
        self._counters: dict[Hashable, PodCounter] = {}
        self._index: SelectorIndex[PodCounter] = SelectorIndex()
        self._clock = 0

    # ------------------------------------------------------------ pods

    def add(self, pod: Pod, row: int) -> None:
        """Adds a pod to a row."""
        key = (pod.namespace, pod.labels, pod.terminating)
        family = self._families.get(key)
        if family is None:
            family = self._families[key] = self._new_family(pod)
        family.rows[row] = family.rows.get(row, 0) + 1
        for counter in family.counted_by:
            counter.add(row, 1)

    def remove(self, pod: Pod, row: int) -> None:
        """Removes a pod from a row; its labels and terminating state must be those with which it was added."""
        key = (pod.namespace, pod.labels, pod.terminating)
        family = self._families[key]
        family.rows[row] -= 1
        for counter in family.counted_by:
            counter.add(row, -1)
        if not family.rows[row]:
            del family.rows[row]
            if not family.rows:
                self._drop_family(key)

    def _new_family(self, pod: Pod) -> _PodFamily:
        family = _PodFamily(pod.namespace, pod.labels, terminating=pod.terminating)
        family.counted_by = tuple(
            counter
            for counter in self._index.candidates(pod.namespace, pod.labels)
            if family.matched_by(counter.predicate)
        )
        self._namespaces.setdefault(pod.namespace, _Namespace()).add(family)
        return family

    def _drop_family(self, key: tuple[str, LabelSet, bool]) -> None:
        namespace = self._namespaces[key[0]]
        namespace.remove(self._families.pop(key))
        if not namespace.families:
            del self._namespaces[key[0]]

    # ------------------------------------------------------------ counters

    def counter(
        self, key: Hashable, predicate: Predicate, *, within: Scope = EVERY_POD
    ) -> PodCounter:
        """The counter with this key; a new one counts all present pods.

        ``predicate`` and ``within`` must depend on ``key`` only: they are used when the counter is created.
        ``within`` is a scope that contains all pods for which the predicate holds; a narrow one makes updates
        cheaper.
        """
        counter = self._counters.get(key)
        if counter is None:
            self._make_room()
            counter = self._counters[key] = PodCounter(predicate, self._capacity, within)
            self._index.add(counter, within)
            for family in self._within(within):
                if family.matched_by(predicate):
                    family.counted_by += (counter,)
                    for row, count in family.rows.items():
                        counter.add(row, count)
        self._clock += 1
        counter.last_used = self._clock
        return counter

    def forget(self, key: Hashable) -> None:
        """Drops a counter, for example because its predicate's namespaces have changed."""
        counter = self._counters.pop(key, None)
        if counter is not None:
            self._drop_counter(counter)

    def _within(self, scope: Scope) -> Iterable[_PodFamily]:
        names = self._namespaces if scope.namespaces is None else scope.namespaces
        spaces = [self._namespaces[name] for name in names if name in self._namespaces]
        return chain.from_iterable(space.within(scope.selector) for space in spaces)

    def _make_room(self) -> None:
        most = most_columns(self._capacity)
        if len(self._counters) < most:
            return
        by_age = sorted(self._counters, key=lambda key: self._counters[key].last_used)
        for key in by_age[: len(by_age) - most + most // 4]:
            self._drop_counter(self._counters.pop(key))

    def _drop_counter(self, counter: PodCounter) -> None:
        self._index.remove(counter)
        for family in self._within(counter.within):
            if counter in family.counted_by:
                family.counted_by = tuple(c for c in family.counted_by if c is not counter)

    def grow(self, capacity: int) -> None:
        """Makes room for more rows."""
        self._capacity = capacity
        for counter in self._counters.values():
            extra = np.zeros(capacity - len(counter.counts), np.int32)
            counter.counts = np.concatenate((counter.counts, extra))
