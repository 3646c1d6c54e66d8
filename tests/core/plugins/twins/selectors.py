"""Node selectors, one node at a time, straight from the rules (docs/spec/matching.md#node-selector-terms)."""

import re

from app.model.objects import Node, NodeSelector, NodeSelectorTerm, PodSpec
from app.model.selectors import Requirement


class UnreadableError(Exception):
    """A term with a mistake."""


def integer(text):
    return int(text) if re.fullmatch(r"[+-]?\d+", text) else None


def check(requirement: Requirement) -> None:
    values = requirement.values or ()
    good = {
        "In": len(values) > 0,
        "NotIn": len(values) > 0,
        "Exists": not values,
        "DoesNotExist": not values,
        "Gt": len(values) == 1 and integer(values[0]) is not None,
        "Lt": len(values) == 1 and integer(values[0]) is not None,
    }.get(requirement.operator, False)
    word = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
    key_good = re.fullmatch(rf"([a-z0-9.-]+/)?{word}", requirement.key)
    values_good = all(value == "" or re.fullmatch(word, value) for value in values)
    if not good or not key_good or not values_good:
        raise UnreadableError


def holds(requirement: Requirement, labels) -> bool:
    check(requirement)
    values = requirement.values or ()
    have = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return have is not None and have in values
        case "NotIn":
            return have is None or have not in values
        case "Exists":
            return have is not None
        case "DoesNotExist":
            return have is None
    number, bound = None if have is None else integer(have), integer(values[0])
    if number is None:
        return False
    return number > bound if requirement.operator == "Gt" else number < bound


def field_holds(requirement: Requirement, node: Node) -> bool:
    if requirement.operator not in {"In", "NotIn"} or len(requirement.values or ()) != 1:
        raise UnreadableError
    have = node.name if requirement.key == "metadata.name" else ""
    return (have == requirement.values[0]) == (requirement.operator == "In")


def term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    results = [holds(r, node.labels) for r in term.match_expressions or ()]
    results += [field_holds(r, node) for r in term.match_fields or ()]
    return all(results)


def selector_matches(selector: NodeSelector, node: Node) -> bool:
    for term in selector.node_selector_terms or ():
        try:
            if term_matches(term, node):
                return True
        except UnreadableError:
            continue
    return False


def required_of(spec: PodSpec) -> NodeSelector | None:
    if spec.affinity is None or spec.affinity.node_affinity is None:
        return None
    return spec.affinity.node_affinity.required


def pod_allows(spec: PodSpec, node: Node) -> bool:
    for key, value in (spec.node_selector or {}).items():
        if node.labels.get(key) != value:
            return False
    required = required_of(spec)
    return required is None or selector_matches(required, node)
