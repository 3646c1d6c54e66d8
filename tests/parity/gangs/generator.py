"""Scenarios from seeds. Sets of pods of one group have different priorities: the order of equal ones is random."""

import random
from collections.abc import Callable
from typing import Any, Final

from tests.parity.gangs.scenarios import Scenario

_CPUS: Final = (2, 3, 4, 6, 8)


class _Draft:
    """A scenario that is being drawn."""

    def __init__(self, seed: int, family: str) -> None:
        self.family: Final = family
        self.rng: Final = random.Random(f"{family} {seed}")
        self.steps: Final[list[list[list[Any]]]] = []
        self.groups: Final[list[str]] = []
        #: Names of sets; those of each group are drawn from them again.
        self.sets: Final[dict[str, dict[str, Any]]] = {}
        self.nodes: Final[list[str]] = []
        self._ranks: Final = self.rng.sample(range(8), 8)
        self._numbers = 0

    # ------------------------------------------------------------ operations

    def node(self) -> list[Any]:
        name = f"n{self._number()}"
        self.nodes.append(name)
        rack = [self.rng.choice("abc")] if self.family == "topology" else []
        rank = self._ranks[(len(self.nodes) - 1) % len(self._ranks)]
        return ["node", name, self.rng.choice(_CPUS), rank, *rack]

    def group(self, size: int) -> list[list[Any]]:
        """A group and its pods, in either order."""
        rng, name = self.rng, f"g{self._number()}"
        self.groups.append(name)
        minimum = None
        if rng.random() < 0.8:
            minimum = max(1, size + rng.choice((0, 0, 0, -1, -1, -2, 1)))
        more: dict[str, Any] = {}
        if self.family == "topology" and rng.random() < 0.75:
            more["topology"] = True
        if self.family == "preemption":
            more["priority"] = rng.choice((1, 1, 50, 100))
            more["disruptionMode"] = rng.choice(("Pod", "PodGroup"))
        made = [["group", name, minimum, *([more] if more else [])]]
        members = self._members(name, size, more.get("priority"))
        if rng.random() < 0.06:
            return members
        return members + made if rng.random() < 0.5 else made + members

    def _members(self, group: str, size: int, priority: int | None) -> list[list[Any]]:
        rng = self.rng
        if self.family == "preemption":
            priorities = [priority]
        elif self.family == "priority":
            priorities = rng.sample((None, 10, 20, 30), 2)
        else:
            priorities = [None, 1]
        parts = [size]
        if size > 1 and len(priorities) > 1 and rng.random() < 0.3:
            first = rng.randint(1, size - 1)
            parts = [first, size - first]
        return [
            self.pods(group, count, priority)
            for count, priority in zip(parts, priorities, strict=False)
        ]

    def pods(self, group: str, count: int, priority: int | None) -> list[Any]:
        rng, more = self.rng, {}
        if group:
            more["group"] = group
        if priority is not None:
            more["priority"] = priority
        if rng.random() < 0.07:
            more["gated"] = True
        if priority is not None and (self.family in {"plain", "topology"} or rng.random() < 0.1):
            more["never"] = True
        name = f"p{self._number()}"
        operation = ["pods", name, count, rng.choice((1, 1, 1, 2, 2, 3)), more]
        self.sets[name] = {"operation": operation}
        return operation

    def single(self) -> list[Any]:
        """Pods without a group."""
        priorities = {
            "plain": (None,),
            "topology": (None,),
            "priority": (None, 5, 40),
            "preemption": (None, 10, 200),
        }
        return self.pods("", self.rng.randint(1, 3), self.rng.choice(priorities[self.family]))

    def late_members(self) -> list[Any] | None:
        """More pods of a set that is there."""
        members = [
            each["operation"] for each in self.sets.values() if "group" in each["operation"][4]
        ]
        if not members:
            return None
        _, _, _, cpu, more = self.rng.choice(members)
        operation = ["pods", f"p{self._number()}", self.rng.randint(1, 3), cpu, dict(more)]
        self.sets[operation[1]] = {"operation": operation}
        return operation

    def delete_pods(self) -> list[Any] | None:
        if not self.sets:
            return None
        where = self.rng.choice(("*", "*", "", *self.nodes))
        return ["-pods", self.rng.choice(list(self.sets)), where, self.rng.randint(1, 4)]

    def delete_node(self) -> list[Any] | None:
        if len(self.nodes) < 2:
            return None
        name = self.rng.choice(self.nodes[1:])
        self.nodes.remove(name)
        return ["-node", name]

    def delete_group(self) -> list[Any] | None:
        return ["-group", self.rng.choice(self.groups)] if self.groups else None

    def ungate(self) -> list[Any] | None:
        gated = [n for n, each in self.sets.items() if each["operation"][4].pop("gated", None)]
        for name in gated:
            self.sets[name]["operation"][4]["gated"] = True
        return ["ungate", self.rng.choice(gated)] if gated else None

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers - 1


def draw(seed: int, family: str) -> Scenario:
    """The scenario of a seed."""
    draft = _Draft(seed, family)
    rng = draft.rng
    draft.steps.append([draft.node() for _ in range(rng.randint(1, 4))])
    if rng.random() < 0.4:
        draft.steps.append([draft.single()])
    for _ in range(rng.choice((1, 2, 2, 3, 3, 4))):
        # Groups that come at once compete: in one step, or one after the other.
        step = draft.group(rng.randint(1, 7))
        if rng.random() < 0.2:
            step.append(draft.single())
        if rng.random() < 0.25 and draft.steps:
            draft.steps[-1].extend(step)
        else:
            draft.steps.append(step)
    acts: list[Callable[[], list[Any] | None]] = [
        draft.node,
        draft.node,
        draft.single,
        draft.late_members,
        draft.delete_pods,
        draft.delete_pods,
        draft.delete_pods,
        draft.delete_node,
        draft.delete_group,
        draft.ungate,
        draft.ungate,
        lambda: None,
    ]
    for _ in range(rng.randint(1, 4)):
        operation = rng.choice(acts)()
        if operation is not None:
            draft.steps.append([operation])
    return Scenario(seed=seed, family=family, steps=draft.steps)
