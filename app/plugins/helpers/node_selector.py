"""Node selectors over views: the rows that a nodeSelector, a node affinity or a volume's affinity matches.

A selector is compiled once per distinct value and evaluated with a few array operations: a requirement is evaluated
per value of its label column and looked up per row (docs/spec/matching.md#node-selector-terms).

As in kube-scheduler, terms are alternatives; a term without expressions and fields matches nothing; an invalid term
never matches and does not affect other terms; a list without a valid term matches no node.
"""

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

import numpy as np

from app.model.gotext import quote
from app.model.names import is_qualified_name
from app.model.objects import (
    Node,
    NodeSelector,
    NodeSelectorTerm,
    PodSpec,
    PreferredSchedulingTerm,
)
from app.model.selectors import (
    Requirement,
    Selector,
    SelectorError,
    check_requirement,
    parse_int64,
)
from app.state.columns.arrays import Int64
from app.state.columns.labels import MISSING, NO_CODE, Codes, LabelColumn, Mask
from app.state.view import View

#: The only field that a node selector supports.
NAME_FIELD: Final = "metadata.name"

_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_MAX_LABEL_VALUE: Final = 63

_NO_INTEGER: Final = "for 'Gt', 'Lt' operators, the value must be an integer"
_NO_LABEL_VALUE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for "
    f"validation is '{_LABEL_VALUE.pattern}')"
)

#: The most characters of a small selector; each term, expression and value counts as some more.
_SMALL: Final = 4096
_ENTRY: Final = 32

#: (key, operator, values).
_Triple = tuple[str, str, tuple[str, ...]]


class NodeMatcher(Protocol):
    """A condition on nodes, evaluated by view or for a single Node object."""

    def matches(self, view: View) -> Mask:
        """bool[n]: a fresh array."""

    def matches_node(self, node: Node) -> bool:
        """The same for one Node object, which need not be in the table (queueing hints)."""


# ---------------------------------------------------------------- requirements


def _is_in(column: LabelColumn, codes: Codes, values: tuple[str, ...]) -> Mask:
    wanted = [code for code in map(column.code, values) if code != NO_CODE]
    if not wanted:
        return np.zeros(len(codes), bool)
    if len(wanted) == 1:
        mask: Mask = codes == wanted[0]
        return mask
    table = np.zeros(len(column.values), bool)
    table[wanted] = True
    return table[codes]


def _not_in(column: LabelColumn, codes: Codes, values: tuple[str, ...]) -> Mask:
    mask = _is_in(column, codes, values)
    return np.logical_not(mask, out=mask)


def _exists(_column: LabelColumn, codes: Codes, _values: tuple[str, ...]) -> Mask:
    mask: Mask = codes != MISSING
    return mask


def _does_not_exist(_column: LabelColumn, codes: Codes, _values: tuple[str, ...]) -> Mask:
    mask: Mask = codes == MISSING
    return mask


_LABEL_TESTS: Final[dict[str, Callable[[LabelColumn, Codes, tuple[str, ...]], Mask]]] = {
    "In": _is_in,
    "NotIn": _not_in,
    "Exists": _exists,
    "DoesNotExist": _does_not_exist,
    "Gt": lambda column, codes, values: column.truth("Gt", values)[codes],
    "Lt": lambda column, codes, values: column.truth("Lt", values)[codes],
}


class _LabelRequirement:
    """One expression over a node label."""

    __slots__ = ("_key", "_scalar", "_test", "_values")

    def __init__(self, key: str, operator: str, values: tuple[str, ...]) -> None:
        self._key = key
        self._values = values
        self._test = _LABEL_TESTS[operator]
        self._scalar = Selector(((key, operator, values),))

    def matches(self, view: View) -> Mask:
        column, codes = view.label(self._key)
        return self._test(column, codes, self._values)

    def matches_node(self, node: Node) -> bool:
        return self._scalar.matches(node.labels)


class _FieldRequirement:
    """``In`` or ``NotIn`` with one value over a field; fields other than the name are empty on every node."""

    __slots__ = ("_key", "_value", "_wanted")

    def __init__(self, key: str, value: str, *, wanted: bool) -> None:
        self._key = key
        self._value = value
        self._wanted = wanted

    def matches(self, view: View) -> Mask:
        if self._key != NAME_FIELD:
            return np.full(view.n, (self._value == "") == self._wanted)
        row = view.table.row_of.get(self._value, -1)
        mask: Mask = view.rows == row if self._wanted else view.rows != row
        return mask

    def matches_node(self, node: Node) -> bool:
        field = node.name if self._key == NAME_FIELD else ""
        return (field == self._value) == self._wanted


class UnreadableTermsError(SelectorError):
    """Terms that kube-scheduler cannot parse. ``faults``: its error texts, each with the path."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults: Final = tuple(faults)
        text = ", ".join(self.faults)
        super().__init__(text if len(self.faults) == 1 else f"[{text}]")


def _expression_faults(requirement: Requirement, path: str) -> Iterator[str]:
    key, values = requirement.key, requirement.values or ()
    numeric = requirement.operator in {"Gt", "Lt"} and len(values) == 1
    if numeric and parse_int64(values[0]) is None:
        yield f"{path}.values[0]: Invalid value: {quote(values[0])}: {_NO_INTEGER}"
    elif (fault := _fault_of(check_requirement, requirement)) is not None:
        yield f"{path}.{fault}"
    if not is_qualified_name(key):
        yield f'{path}.key: "{key}" is not a qualified label name'
    for number, value in enumerate(values):
        faults = []
        if len(value.encode()) > _MAX_LABEL_VALUE:
            faults.append(f"must be no more than {_MAX_LABEL_VALUE} bytes")
        if _LABEL_VALUE.fullmatch(value) is None:
            faults.append(_NO_LABEL_VALUE)
        if faults:
            where = f"{path}.values[{number}][{key}]"
            yield f"{where}: Invalid value: {quote(value)}: {'; '.join(faults)}"


def _field_faults(requirement: Requirement, path: str) -> Iterator[str]:
    fault = _fault_of(_field, requirement)
    if fault is not None:
        yield f"{path}.{fault}"


def _fault_of(read: Callable[[Requirement], object], requirement: Requirement) -> str | None:
    try:
        read(requirement)
    except SelectorError as error:
        return str(error)
    return None


def _field(requirement: Requirement) -> _FieldRequirement:
    operator, values = requirement.operator, requirement.values or ()
    if operator not in {"In", "NotIn"}:
        raise SelectorError(f'"{operator}" is not a valid field selector operator')
    if len(values) != 1:
        raise SelectorError(f"values: field selector '{requirement.key}' must have one value")
    return _FieldRequirement(requirement.key, values[0], wanted=operator == "In")


# ---------------------------------------------------------------- terms and selectors


class _AllOf:
    """A conjunction; without parts it matches every node."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[NodeMatcher]) -> None:
        self._parts = tuple(parts)

    def matches(self, view: View) -> Mask:
        mask: Mask | None = None
        for part in self._parts:
            own = part.matches(view)
            mask = own if mask is None else np.logical_and(mask, own, out=mask)
        return np.ones(view.n, bool) if mask is None else mask

    def matches_node(self, node: Node) -> bool:
        return all(part.matches_node(node) for part in self._parts)


class NodeSelectorMatcher:
    """A compiled NodeSelector. ``errors``: the errors of invalid terms."""

    __slots__ = ("_terms", "errors")

    def __init__(self, terms: Iterable[NodeSelectorTerm]) -> None:
        self._terms: list[_AllOf] = []
        errors: list[str] = []
        for number, term in enumerate(terms):
            try:
                compiled = _compile_term(term, number)
            except UnreadableTermsError as error:
                errors += error.faults
            else:
                if compiled is not None:
                    self._terms.append(compiled)
        self.errors: Final = tuple(errors)

    def matches(self, view: View) -> Mask:
        """bool[n]: whether any term matches the row; a fresh array."""
        mask: Mask | None = None
        for term in self._terms:
            own = term.matches(view)
            mask = own if mask is None else np.logical_or(mask, own, out=mask)
        return np.zeros(view.n, bool) if mask is None else mask

    def matches_node(self, node: Node) -> bool:
        """Whether any term matches a Node object."""
        return any(term.matches_node(node) for term in self._terms)


def _compile_term(term: NodeSelectorTerm, number: int) -> _AllOf | None:
    """The requirements of the term with this index; None for an empty term. Raises UnreadableTermsError."""
    expressions, fields = term.match_expressions or (), term.match_fields or ()
    if not expressions and not fields:
        return None
    faults = [
        fault
        for kind, requirements, look in (
            ("matchExpressions", expressions, _expression_faults),
            ("matchFields", fields, _field_faults),
        )
        for place, requirement in enumerate(requirements)
        for fault in look(requirement, f"[{number}].{kind}[{place}]")
    ]
    if faults:
        raise UnreadableTermsError(faults)
    labels = [_LabelRequirement(r.key, r.operator, r.values or ()) for r in expressions]
    return _AllOf([*labels, *map(_field, fields)])


def is_small(selector: NodeSelector) -> bool:
    """Whether a selector is small enough to keep values derived from it."""
    left = _SMALL
    for term in selector.node_selector_terms or ():
        left -= _ENTRY
        for requirement in (*(term.match_expressions or ()), *(term.match_fields or ())):
            texts = (requirement.key, requirement.operator, *(requirement.values or ()))
            left -= _ENTRY * len(texts) + sum(map(len, texts))
            if left < 0:
                return False
    return left >= 0


def compile_node_selector(selector: NodeSelector) -> NodeSelectorMatcher:
    """Compiles a NodeSelector. Does not raise; see ``NodeSelectorMatcher.errors``."""
    if is_small(selector):
        return _compiled(selector)
    return NodeSelectorMatcher(selector.node_selector_terms or ())


@functools.lru_cache(maxsize=8192)
def _compiled(selector: NodeSelector) -> NodeSelectorMatcher:
    return NodeSelectorMatcher(selector.node_selector_terms or ())


def match_node_selector(view: View, selector: NodeSelector) -> Mask:
    """bool[n]: the rows that a NodeSelector matches; a fresh array."""
    return compile_node_selector(selector).matches(view)


class RequiredNodeAffinity:
    """A pod's spec.nodeSelector and required node affinity; both must match.

    ``everything``: the pod has neither, so every node matches.
    """

    __slots__ = ("_all", "everything")

    def __init__(
        self, node_selector: Mapping[str, str] | None, required: NodeSelector | None
    ) -> None:
        parts: list[NodeMatcher] = [
            _LabelRequirement(key, "In", (value,))
            for key, value in sorted((node_selector or {}).items())
        ]
        if required is not None:
            parts.append(compile_node_selector(required))
        self._all = _AllOf(parts)
        self.everything: Final = not parts

    @classmethod
    def of(cls, spec: PodSpec) -> "RequiredNodeAffinity":
        """Compiles the selectors of a pod's spec."""
        return cls(spec.node_selector, required_of(spec))

    def matches(self, view: View) -> Mask:
        """bool[n]: whether the row matches; a fresh array."""
        return self._all.matches(view)

    def matches_node(self, node: Node) -> bool:
        """Whether a Node object matches."""
        return self._all.matches_node(node)


def required_of(spec: PodSpec) -> NodeSelector | None:
    """spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    return None if affinity is None else affinity.required


def preferred_of(spec: PodSpec) -> tuple[PreferredSchedulingTerm, ...] | None:
    """spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    return None if affinity is None else affinity.preferred


class PreferredTerms:
    """Preferred terms with a weight, without empty ones. Raises UnreadableTermsError for invalid terms."""

    __slots__ = ("_terms",)

    def __init__(self, terms: Iterable[PreferredSchedulingTerm]) -> None:
        self._terms: list[tuple[Int64, _AllOf]] = []
        faults: list[str] = []
        for number, term in enumerate(terms):
            try:
                compiled = _compile_term(term.preference, number) if term.weight else None
            except UnreadableTermsError as error:
                faults += error.faults
            else:
                if compiled is not None:
                    self._terms.append((np.array(term.weight, np.int64), compiled))
        if faults:
            raise UnreadableTermsError(faults)

    def add_to(self, scores: Int64, view: View) -> None:
        """Adds the weights of the matching terms to int64[n] in place."""
        for weight, term in self._terms:
            scores += term.matches(view) * weight
