"""Label selectors, compiled for repeated matching (docs/spec/matching.md#label-selectors)."""

import operator
import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from app.model.limits import Many, TextMap, Values

Labels = Mapping[str, str]


class Requirement(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One ``matchExpressions`` or ``matchFields`` entry."""

    key: str
    operator: str
    values: Values | None = None


class LabelSelector(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """metav1.LabelSelector. ``None`` in its place matches nothing, an empty one matches everything."""

    match_labels: TextMap | None = None
    match_expressions: Many[Requirement] | None = None


class SelectorError(ValueError):
    """A selector that Kubernetes does not accept."""


# What ``strconv.ParseInt(s, 10, 64)`` accepts: ASCII digits and a sign, no blanks, no underscores. An int64 has at
# most 19 digits after the leading zeros, of which there may be any number.
_INTEGER = re.compile(r"([+-]?)(?=[0-9])0*+([0-9]{0,19})")


def parse_int64(text: str) -> int | None:
    """Parses a decimal int64 like Go's ParseInt; None if it is not one."""
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    number = int(match[1] + (match[2] or "0"))
    return number if -(2**63) <= number < 2**63 else None


class Selector:
    """A compiled selector: ``matches(labels)``. Equal selectors are equal objects for hashing.

    ``requirements`` are (key, operator, values) triples with sorted values, themselves sorted; ``everything`` is true
    for the empty selector, ``nothing`` for the absent one.
    """

    __slots__ = ("_hash", "nothing", "requirements")

    def __init__(
        self, requirements: tuple[tuple[str, str, tuple[str, ...]], ...], *, nothing: bool = False
    ) -> None:
        self.requirements: Final = requirements
        self.nothing: Final = nothing
        self._hash: Final = hash((requirements, nothing))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Selector)
            and self.nothing == other.nothing
            and self.requirements == other.requirements
        )

    def __repr__(self) -> str:
        return f"Selector({'nothing' if self.nothing else self.requirements!r})"

    @property
    def everything(self) -> bool:
        """Whether this is the empty selector ``{}`` (Go's ``Empty()``)."""
        return not self.nothing and not self.requirements

    def matches(self, labels: Labels) -> bool:
        """Whether every requirement holds for ``labels``."""
        if self.nothing:
            return False
        for key, op, values in self.requirements:  # noqa: SIM110 - called for every pod
            if not OPERATORS[op](labels, key, values):
                return False
        return True

    def with_equal(self, pairs: Mapping[str, str]) -> "Selector":
        """This selector and ``key in (value)`` for each pair; NOTHING stays NOTHING."""
        if self.nothing or not pairs:
            return self
        extra = [(key, "In", (value,)) for key, value in pairs.items()]
        return Selector(tuple(sorted({*self.requirements, *extra})))


def _integers(test: Callable[[int, int], bool]) -> Callable[[Labels, str, tuple[str, ...]], bool]:
    """The operator that compares two integers; False where either is none."""

    def holds(labels: Labels, key: str, values: tuple[str, ...]) -> bool:
        have = parse_int64(labels.get(key, ""))
        want = parse_int64(values[0]) if values else None
        return have is not None and want is not None and test(have, want)

    return holds


OPERATORS: Final[dict[str, Callable[[Labels, str, tuple[str, ...]], bool]]] = {
    "In": lambda labels, key, values: labels.get(key) in values,
    "NotIn": lambda labels, key, values: labels.get(key) not in values,
    "Exists": lambda labels, key, _values: key in labels,
    "DoesNotExist": lambda labels, key, _values: key not in labels,
    "Gt": _integers(operator.gt),
    "Lt": _integers(operator.lt),
}
"""Operator -> whether a requirement of a key and values holds for labels."""

EVERYTHING: Final = Selector(())
NOTHING: Final = Selector((), nothing=True)


def compile_requirements(requirements: tuple[Requirement, ...]) -> Selector:
    """Compiles expressions of a label selector or a node selector term. Raises SelectorError."""
    for requirement in requirements:
        check_requirement(requirement)
    triples = {(r.key, r.operator, tuple(sorted(set(r.values or ())))) for r in requirements}
    return Selector(tuple(sorted(triples)))


def check_requirement(requirement: Requirement) -> None:
    """Raises SelectorError for an unknown operator or values that do not fit it."""
    operator, values = requirement.operator, requirement.values or ()
    if operator not in OPERATORS:
        raise SelectorError(f'"{operator}" is not a valid label selector operator')
    if operator in {"In", "NotIn"} and not values:
        raise SelectorError(f"values: for '{operator.lower()}' operator, values set can't be empty")
    if operator in {"Exists", "DoesNotExist"} and values:
        raise SelectorError("values: values set must be empty for exists and does not exist")
    if operator in {"Gt", "Lt"} and (len(values) != 1 or parse_int64(values[0]) is None):
        raise SelectorError(
            "values: for 'Gt', 'Lt' operators, exactly one integer value is required"
        )


def compile_selector(selector: LabelSelector | None) -> Selector:
    """Compiles a metav1.LabelSelector; None matches nothing. Raises SelectorError."""
    if selector is None:
        return NOTHING
    labels = tuple(Requirement(k, "In", (v,)) for k, v in (selector.match_labels or {}).items())
    return compile_requirements(labels + (selector.match_expressions or ()))


def from_map(labels: Mapping[str, str] | None) -> Selector:
    """A plain map selector, as Services and ReplicationControllers have; None matches nothing."""
    if labels is None:
        return NOTHING
    return Selector(tuple(sorted((k, "In", (v,)) for k, v in labels.items())))
