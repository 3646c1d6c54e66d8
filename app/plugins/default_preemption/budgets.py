"""Which victims a PodDisruptionBudget would rather keep (docs/spec/preemption.md#disruption-budgets)."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from app.model.objects import PodDisruptionBudget
from app.model.pod import LabelSet, Pod
from app.model.selectors import Selector, SelectorError, compile_selector
from app.state.lister import Lister

#: How many sets of labels are remembered with the budgets that concern them.
_MAX_FAMILIES: Final = 16384


class _Budget(NamedTuple):
    """A budget that can match anything, by its number among all."""

    number: int
    selector: Selector
    allowed: int
    disrupted: frozenset[str]


class Budgets:
    """All disruption budgets, compiled when first needed and again when any has changed."""

    def __init__(self, lister: Lister[PodDisruptionBudget]) -> None:
        self._lister: Final = lister
        self._seen = -1
        self._epoch = 0
        self._by_namespace: dict[str, list[_Budget]] = {}
        self._of_family: dict[tuple[str, LabelSet], tuple[_Budget, ...]] = {}

    @property
    def epoch(self) -> int:
        """Changes when budgets come to say something else; most updates of their status do not matter."""
        self._refresh()
        return self._epoch

    @property
    def any(self) -> bool:
        """Whether there is any budget that could be broken."""
        self._refresh()
        return bool(self._by_namespace)

    def violating(self, victims: Sequence[Pod]) -> list[bool]:
        """For each victim on one node, most important first, whether evicting it and those before it breaks a budget."""
        self._refresh()
        left: dict[int, int] = {}
        return [self._breaks(pod, left) for pod in victims]

    def _breaks(self, pod: Pod, left: dict[int, int]) -> bool:
        """Takes the pod off what its budgets have ``left``; whether any had nothing left."""
        broken = False
        for budget in self._concerning(pod):
            if pod.name in budget.disrupted:
                continue
            remaining = left[budget.number] = left.get(budget.number, budget.allowed) - 1
            broken |= remaining < 0
        return broken

    def _concerning(self, pod: Pod) -> tuple[_Budget, ...]:
        budgets = self._by_namespace.get(pod.namespace)
        if not budgets or not pod.labels:
            return ()
        family = (pod.namespace, pod.labels)
        known = self._of_family.get(family)
        if known is None:
            if len(self._of_family) >= _MAX_FAMILIES:
                self._of_family.clear()
            known = tuple(b for b in budgets if b.selector.matches(pod.labels))
            self._of_family[family] = known
        return known

    def _refresh(self) -> None:
        if self._seen == self._lister.version:
            return
        self._seen = self._lister.version
        found: dict[str, list[_Budget]] = {}
        for number, budget in enumerate(self._lister):
            compiled = _compile(number, budget)
            if compiled is not None:
                found.setdefault(budget.namespace, []).append(compiled)
        if found != self._by_namespace:
            self._by_namespace = found
            self._of_family.clear()
            self._epoch += 1


def _compile(number: int, budget: PodDisruptionBudget) -> _Budget | None:
    """None for a selector that is absent, empty or wrong: it matches no pod here."""
    try:
        selector = compile_selector(budget.spec.selector)
    except SelectorError:
        return None
    if selector.nothing or selector.everything:
        return None
    status = budget.status
    return _Budget(
        number, selector, status.disruptions_allowed, frozenset(status.disrupted_pods or ())
    )
