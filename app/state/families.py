"""Counting columns: how many pods that match a selector sit on each node.

Pods come in families that share namespace and labels, so a selector is judged once per family and a counter is kept up
to date by adding one number when a pod comes or goes. Plugins ask for a counter by a key of their own choosing; asking
again with an equal key gives the same counter. Counters nobody asked for in a while are dropped.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from app.model.pod import LabelSet, Pod

Counts = npt.NDArray[np.int32]
#: Whether pods of this namespace with these labels (and terminating or not) are counted.
Predicate = Callable[[str, Mapping[str, str], bool], bool]

_MAX_COUNTERS: Final = 512


class Family:
    """Pods with the same namespace and labels, terminating or not, and how many of them sit on each row."""

    __slots__ = ("labels", "namespace", "rows", "terminating", "touched")

    def __init__(self, namespace: str, labels: LabelSet, *, terminating: bool) -> None:
        self.namespace: Final = namespace
        self.labels: Final = labels
        self.terminating: Final = terminating
        self.rows: dict[int, int] = {}
        self.touched: list[Counter] = []

    def matched_by(self, predicate: Predicate) -> bool:
        """Whether the predicate counts pods of this family."""
        return predicate(self.namespace, self.labels, self.terminating)


class Counter:
    """int32 counts per row of the pods that a predicate matches; ``total`` is their sum."""

    __slots__ = ("counts", "last_used", "predicate", "total")

    def __init__(self, predicate: Predicate, capacity: int) -> None:
        self.predicate: Final = predicate
        self.counts: Counts = np.zeros(capacity, np.int32)
        self.total = 0
        self.last_used = 0

    def add(self, row: int, count: int) -> None:
        """Counts ``count`` more (or fewer) pods on a row."""
        self.counts[row] += count
        self.total += count

    def matches(self, pod: Pod) -> bool:
        """Whether the counter counts this pod."""
        return self.predicate(pod.namespace, pod.labels, pod.terminating)


class Families:
    """All families of pods on rows, and the counters over them."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._families: dict[tuple[str, LabelSet, bool], Family] = {}
        self._counters: dict[Hashable, Counter] = {}
        self._clock = 0

    def add(self, pod: Pod, row: int) -> None:
        """Counts a pod that has come to a row."""
        key = (pod.namespace, pod.labels, pod.terminating)
        family = self._families.get(key)
        if family is None:
            family = self._families[key] = self._new_family(pod)
        family.rows[row] = family.rows.get(row, 0) + 1
        for counter in family.touched:
            counter.add(row, 1)

    def remove(self, pod: Pod, row: int) -> None:
        """Takes a pod off a row; it must be there with the same labels and in the same state."""
        key = (pod.namespace, pod.labels, pod.terminating)
        family = self._families[key]
        family.rows[row] -= 1
        for counter in family.touched:
            counter.add(row, -1)
        if not family.rows[row]:
            del family.rows[row]
            if not family.rows:
                del self._families[key]

    def _new_family(self, pod: Pod) -> Family:
        family = Family(pod.namespace, pod.labels, terminating=pod.terminating)
        family.touched = [c for c in self._counters.values() if family.matched_by(c.predicate)]
        return family

    def counter(self, key: Hashable, predicate: Predicate) -> Counter:
        """The counter known by ``key``; made from all pods present if there is none yet.

        ``predicate`` must follow from ``key``: it is used only when the counter is made.
        """
        counter = self._counters.get(key)
        if counter is None:
            self._make_room()
            counter = self._counters[key] = Counter(predicate, self._capacity)
            for family in self._families.values():
                if family.matched_by(predicate):
                    family.touched.append(counter)
                    for row, count in family.rows.items():
                        counter.add(row, count)
        self._clock += 1
        counter.last_used = self._clock
        return counter

    def forget(self, key: Hashable) -> None:
        """Drops a counter, for example because its predicate's namespaces have changed."""
        counter = self._counters.pop(key, None)
        if counter is not None:
            self._untouch({id(counter)})

    def _make_room(self) -> None:
        if len(self._counters) < _MAX_COUNTERS:
            return
        oldest = sorted(self._counters, key=lambda k: self._counters[k].last_used)[
            : _MAX_COUNTERS // 4
        ]
        self._untouch({id(self._counters.pop(key)) for key in oldest})

    def _untouch(self, dropped: set[int]) -> None:
        for family in self._families.values():
            family.touched = [c for c in family.touched if id(c) not in dropped]

    def grow(self, capacity: int) -> None:
        """Makes room for more rows."""
        self._capacity = capacity
        for counter in self._counters.values():
            extra = np.zeros(capacity - len(counter.counts), np.int32)
            counter.counts = np.concatenate((counter.counts, extra))
