"""Selectors, node affinity and tolerations, one object at a time (docs/spec/matching.md)."""

import re

from app.model.objects import Node, NodeSelectorTerm
from app.model.pod import Pod


def _holds(key, operator, values, labels):
    present = key in labels
    match operator:
        case "In":
            return present and labels[key] in values
        case "NotIn":
            return not present or labels[key] not in values
        case "Exists":
            return present
        case "DoesNotExist":
            return not present
    if not present or not re.fullmatch(r"[+-]?\d+", labels[key], re.ASCII):
        return False
    left, right = int(labels[key]), int(values[0])
    return left > right if operator == "Gt" else left < right


def is_empty(selector):
    """Whether a LabelSelector demands nothing; an absent one is not empty."""
    return selector is not None and not selector.match_labels and not selector.match_expressions


def selects(selector, labels):
    """Whether a metav1.LabelSelector matches; an absent one matches nothing."""
    if selector is None:
        return False
    pairs = (selector.match_labels or {}).items()
    expressions = selector.match_expressions or ()
    return all(labels.get(k) == v for k, v in pairs) and all(
        _holds(e.key, e.operator, e.values or (), labels) for e in expressions
    )


def _term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    expressions, fields = term.match_expressions or (), term.match_fields or ()
    if not expressions and not fields:
        return False
    return all(_holds(e.key, e.operator, e.values or (), node.labels) for e in expressions) and all(
        _holds(f.key, f.operator, f.values or (), {"metadata.name": node.name}) for f in fields
    )


def node_affinity_allows(pod: Pod, node: Node) -> bool:
    """nodeSelector and required node affinity."""
    wanted = pod.spec.node_selector or {}
    if any(node.labels.get(key) != value for key, value in wanted.items()):
        return False
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    required = affinity.required if affinity else None
    if required is None:
        return True
    return any(_term_matches(term, node) for term in required.node_selector_terms or ())


def _tolerates(toleration, taint):
    return (
        toleration.effect in {"", taint.effect}
        and toleration.key in {"", taint.key}
        and (
            toleration.operator == "Exists"
            or (toleration.operator in {"", "Equal"} and toleration.value == taint.value)
        )
    )


def taints_allow(pod: Pod, node: Node) -> bool:
    """Whether every NoSchedule and NoExecute taint is tolerated."""
    return all(
        any(_tolerates(toleration, taint) for toleration in pod.spec.tolerations or ())
        for taint in node.spec.taints or ()
        if taint.effect in {"NoSchedule", "NoExecute"}
    )
