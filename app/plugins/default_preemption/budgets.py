"""PodDisruptionBudgets that the eviction of victims would violate (docs/spec/preemption.md#disruption-budgets)."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from app.model.claims import ClaimKey
from app.model.features import Rule
from app.model.objects import PodDisruptionBudget
from app.model.pod import LabelSet, Pod
from app.model.selectors import Selector, SelectorError, compile_selector
from app.state.columns.selector_index import Scope, SelectorIndex
from app.state.lister import Lister
from app.state.weak_cache import WeakCache


class _Budget(msgspec.Struct, frozen=True):
    """A budget whose selector can match pods. ``key``: its namespace and name."""

    key: ClaimKey
    selector: Selector
    allowed: int
    disrupted: frozenset[str]


class DisruptionBudgets:
    """All disruption budgets, each compiled when it is added or changed.

    ``epoch`` changes when a budget changes in a relevant way; most updates of its status do not.
    """

    def __init__(
        self, lister: Lister[PodDisruptionBudget], rules: Collection[Rule] = frozenset()
    ) -> None:
        #: Whether a pod counts against the budgets up to the first that it violates, not against all.
        self._first_only: Final = Rule.OneBudget in rules
        #: Whether an empty selector selects every pod.
        self._empty_selects: Final = Rule.EmptyBudgetSelectors in rules
        self.epoch = 0
        self._budgets: Final[dict[ClaimKey, _Budget]] = {}
        self._index: Final[SelectorIndex[ClaimKey]] = SelectorIndex()
        #: The budgets that match pods, by the pods' labels and namespace.
        self._of_family: Final[WeakCache[LabelSet, str, tuple[_Budget, ...]]] = WeakCache()
        for known in lister:
            self._changed(None, known)
        lister.follow(self._changed)

    def _changed(self, old: PodDisruptionBudget | None, new: PodDisruptionBudget | None) -> None:
        before = None if old is None else self._budgets.get((old.namespace, old.name))
        after = None if new is None else _compile(new, empty_selects=self._empty_selects)
        if before == after:
            return
        if before is not None:
            del self._budgets[before.key]
            self._index.remove(before.key)
        if after is not None:
            self._budgets[after.key] = after
            self._index.add(after.key, Scope(frozenset((after.key[0],)), after.selector))
        self._of_family.clear()
        self.epoch += 1

    @property
    def any(self) -> bool:
        """Whether there is any budget that can be violated."""
        return bool(self._budgets)

    def violating(self, victims: Sequence[Pod]) -> list[bool]:
        """By victim on one node, most important first: whether evicting it and those before violates a budget."""
        return list(map(self.tally(), victims))

    def tally(self) -> Callable[[Pod], bool]:
        """A function that is called with one victim after another, and returns whether evicting these violates a
        budget."""
        left: dict[ClaimKey, int] = {}
        return lambda pod: self._breaks(pod, left)

    def count(self, pods: Iterable[Pod]) -> Counter[ClaimKey]:
        """How many of these pods each budget would lose."""
        if not self._budgets:
            return Counter()
        return Counter(
            budget.key
            for pod in pods
            for budget in self._concerning(pod)
            if pod.name not in budget.disrupted
        )

    def allowed(self, key: ClaimKey) -> int:
        """How many disruptions a budget that was counted allows."""
        return self._budgets[key].allowed

    def exceeding(self, lost: Mapping[ClaimKey, int]) -> int:
        """By how many pods the budgets are exceeded if they lose as many as in ``lost``."""
        return sum(max(0, number - self._budgets[key].allowed) for key, number in lost.items())

    def _breaks(self, pod: Pod, left: dict[ClaimKey, int]) -> bool:
        """Subtracts the pod from what its budgets have ``left``; returns whether any budget is exceeded."""
        broken = False
        for budget in self._concerning(pod):
            if pod.name in budget.disrupted:
                continue
            remaining = left[budget.key] = left.get(budget.key, budget.allowed) - 1
            broken |= remaining < 0
            if broken and self._first_only:
                break
        return broken

    def _concerning(self, pod: Pod) -> tuple[_Budget, ...]:
        if not self._budgets or not pod.labels:
            return ()
        known = self._of_family.get(pod.labels, pod.namespace)
        if known is None:
            candidates = map(
                self._budgets.__getitem__, self._index.candidates(pod.namespace, pod.labels)
            )
            matching = (b for b in candidates if b.selector.matches(pod.labels))
            known = tuple(sorted(matching, key=lambda budget: budget.key))
            self._of_family.put(pod.labels, pod.namespace, known)
        return known


def _compile(budget: PodDisruptionBudget, *, empty_selects: bool) -> _Budget | None:
    """None for a selector that is absent, invalid, or empty unless that selects: it matches no pod."""
    try:
        selector = compile_selector(budget.spec.selector)
    except SelectorError:
        return None
    if selector.nothing or (selector.everything and not empty_selects):
        return None
    status = budget.status
    return _Budget(
        (budget.namespace, budget.name),
        selector,
        status.disruptions_allowed,
        frozenset(status.disrupted_pods or ()),
    )
