"""Label and field selectors, from query parameters and from ``LabelSelector`` objects.

A selector is compiled once per request into a list of tests on plain values; an empty list selects everything.
"""

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypedDict

import msgspec

from app.model.selectors import OPERATORS, Labels, parse_int64
from app.sim.errors import bad_request
from app.sim.resources.kinds import Kind
from app.sim.store import Object, Record

LabelTest = Callable[[Labels], bool]
Test = Callable[[Object], bool]

_NO_LABELS: Final[Labels] = {}
_Path = tuple[str, ...]

_REQUIREMENT: Final = re.compile(
    r"""\s*(?:
        (?P<absent>!)\s*(?P<absent_key>[^\s!=<>,()]+)
      | (?P<key>[^\s!=<>,()]+)\s*(?:
            (?P<set>in|notin)\s*\((?P<values>[^()]*)\)
          | (?P<operator>==|=|!=|<|>)\s*(?P<value>[^\s!=<>,()]*)
        )?
    )\s*(?:,|$)""",
    re.VERBOSE,
)


class ListSelector:
    """A compiled selection. ``only_name`` is set if only the object of that name can match.

    ``paths``: the fields that the tests read.
    """

    __slots__ = ("_decode", "only_name", "tests")

    def __init__(
        self, tests: list[Test], only_name: str | None = None, paths: Iterable[_Path] = ()
    ) -> None:
        self.tests = tests
        self.only_name = only_name
        self._decode = _decoder(frozenset(paths)).decode

    def __bool__(self) -> bool:
        """Whether it excludes any object."""
        return bool(self.tests)

    def matches(self, value: Object) -> bool:
        return all(test(value) for test in self.tests)

    def selects(self, record: Record) -> bool:
        """Whether a record matches. If only its bytes are kept, the fields in question are decoded."""
        return self.matches(record.value if record.decoded else self._decode(record.raw))


@functools.lru_cache(maxsize=64)
def _decoder(paths: frozenset[_Path]) -> msgspec.json.Decoder[Object]:
    """A decoder of these fields alone."""
    tree: dict[str, Any] = {}
    for *parents, last in sorted(paths):
        node = tree
        for name in parents:
            node = node.setdefault(name, {})
        node[last] = Any
    return msgspec.json.Decoder(_typed(tree))


def _typed(tree: dict[str, Any]) -> Any:
    fields = {
        name: _typed(part) | None if isinstance(part, dict) else part for name, part in tree.items()
    }
    return TypedDict("Selected", fields, total=False)  # type: ignore[operator]  # a type made of names


def compile_selector(kind: Kind, labels: str, fields: str) -> ListSelector:
    """Compiles the ``labelSelector`` and ``fieldSelector`` parameters. Raises 400 on a mistake."""
    tests: list[Test] = []
    paths: list[_Path] = []
    if labels:
        tests.append(_on_labels(parse_labels(labels)))
        paths.append(_LABELS)
    only_name = None
    for path, wanted, equal in parse_fields(kind, fields):
        tests.append(_on_field(path, wanted, equal))
        paths.append(path)
        if equal and path == _NAME:
            only_name = wanted
    return ListSelector(tests, only_name, paths)


def _on_labels(tests: list[LabelTest]) -> Test:
    def test(value: Object) -> bool:
        labels = value["metadata"].get("labels") or _NO_LABELS
        return all(check(labels) for check in tests)

    return test


def parse_labels(text: str) -> list[LabelTest]:
    """Parses ``a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1,m<2``."""
    tests: list[LabelTest] = []
    position = 0
    while position < len(text):
        match = _REQUIREMENT.match(text, position)
        if match is None:
            rest = text[position:]
            raise bad_request(f"unable to parse requirement: cannot understand '{rest}'")
        tests.append(_label_test(match))
        position = match.end()
    return tests


def _label_test(match: re.Match[str]) -> LabelTest:
    if match["absent"]:
        return requirement(match["absent_key"], "DoesNotExist", ())
    key = match["key"]
    if match["set"]:
        values = tuple(value.strip() for value in match["values"].split(","))
        return requirement(key, "In" if match["set"] == "in" else "NotIn", values)
    if match["operator"] is None:
        return requirement(key, "Exists", ())
    operator = {"=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt"}[match["operator"]]
    return requirement(key, operator, (match["value"],))


def requirement(key: str, operator: str, values: tuple[str, ...]) -> LabelTest:
    """One requirement as a test on labels. NotIn also holds where the key is missing. Raises 400."""
    holds = OPERATORS.get(operator)
    if holds is None:
        raise bad_request(f'"{operator}" is not a valid label selector operator')
    if operator in {"Gt", "Lt"} and (not values or parse_int64(values[0]) is None):
        raise bad_request(f"for 'Gt', 'Lt' operators, the value must be an integer: {list(values)}")
    return lambda labels: holds(labels, key, values)


def selects_labels(selector: Mapping[str, Any] | None) -> LabelTest:
    """Compiles a ``LabelSelector`` object; None selects nothing, an empty one everything."""
    if selector is None:
        return lambda _labels: False
    tests = [
        requirement(key, "In", (value,))
        for key, value in (selector.get("matchLabels") or {}).items()
    ]
    for expression in selector.get("matchExpressions") or ():
        values = tuple(expression.get("values") or ())
        tests.append(requirement(expression["key"], expression["operator"], values))
    return lambda labels: all(test(labels) for test in tests)


def selector_text(selector: Mapping[str, Any] | None) -> str:
    """A LabelSelector, as kubectl's -l takes it."""
    labels = (selector or {}).get("matchLabels") or {}
    parts = [f"{key}={value}" for key, value in sorted(labels.items())]
    for expression in (selector or {}).get("matchExpressions") or ():
        key, operator = expression["key"], expression["operator"]
        values = ",".join(expression.get("values") or ())
        texts = {"Exists": key, "DoesNotExist": f"!{key}"}
        parts.append(texts.get(operator, f"{key} {operator.lower()} ({values})"))
    return ",".join(parts)


_NAME: Final[_Path] = ("metadata", "name")
_LABELS: Final[_Path] = ("metadata", "labels")
_EVERY_KIND: Final = ("metadata.name", "metadata.namespace")
_REFERENCE: Final = (
    "kind",
    "namespace",
    "name",
    "uid",
    "apiVersion",
    "resourceVersion",
    "fieldPath",
)

_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
    "replicationcontrollers": ("status.replicas",),
    "replicasets.apps": ("status.replicas",),
    "jobs.batch": ("status.successful",),
    "resourceslices.resource.k8s.io": ("spec.nodeName", "spec.driver"),
    "events": (
        *(f"involvedObject.{name}" for name in _REFERENCE),
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    "events.events.k8s.io": (
        *(f"regarding.{name}" for name in _REFERENCE),
        "reason",
        "reportingController",
        "type",
    ),
}
"""Fields that can be selected, beyond the name and namespace that every kind has."""

_STORED_PATHS: Final[Mapping[str, _Path]] = {
    "source": ("source", "component"),
    "reportingController": ("reportingComponent",),
    **{f"regarding.{name}": ("involvedObject", name) for name in _REFERENCE},
}
"""The paths of fields whose selector has another name."""

_BOOLEANS: Final = {("spec", "unschedulable"), ("spec", "hostNetwork")}
_TERM: Final = re.compile(r"^([^=!]*?)(==|!=|=)(.*)$", re.DOTALL)
_SPLIT: Final = re.compile(r"(?<!\\),")
_ESCAPE: Final = re.compile(r"\\(.)")


def parse_fields(kind: Kind, text: str) -> list[tuple[_Path, str, bool]]:
    """Parses ``a=b,c!=d`` into (path, value, whether it must be equal). Raises 400 on unknown fields."""
    terms = []
    for part in filter(None, _SPLIT.split(text)):
        match = _TERM.match(part)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        name = match[1].strip()
        if name not in _EVERY_KIND and name not in _FIELDS.get(kind.resource, ()):
            raise bad_request(f"field label not supported: {name}")
        path = _STORED_PATHS.get(name) or tuple(name.split("."))
        terms.append((path, _ESCAPE.sub(r"\1", match[3]), match[2] != "!="))
    return terms


def _on_field(path: _Path, wanted: str, equal: bool) -> Test:
    default = "false" if path in _BOOLEANS else ""
    *parents, last = path

    def test(value: Object) -> bool:
        for name in parents:
            value = value.get(name) or {}
        found = value.get(last)
        return (_text(found, default) == wanted) is equal

    return test


def _text(value: Any, default: str) -> str:
    if value is None:
        return default
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
