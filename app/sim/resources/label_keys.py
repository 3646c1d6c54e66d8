"""``matchLabelKeys`` of pod (anti-)affinity, which the server turns into selectors when a pod is created (KEP-3633)."""

from collections.abc import Iterator
from typing import Final

from app.sim.store import Object

_OPERATORS: Final = {"matchLabelKeys": "In", "mismatchLabelKeys": "NotIn"}


def merge_label_keys(pod: Object) -> None:
    """Adds the pod's own values of these labels to the selectors of its terms; labels that it lacks do not count."""
    labels = pod["metadata"].get("labels") or {}
    for term in _terms(pod["spec"].get("affinity") or {}):
        selector = term.get("labelSelector")
        added = [
            {"key": key, "operator": operator, "values": [labels[key]]}
            for field, operator in _OPERATORS.items()
            for key in term.get(field) or ()
            if key in labels
        ]
        if selector is not None and added:
            expressions = [*(selector.get("matchExpressions") or ()), *added]
            term["labelSelector"] = selector | {"matchExpressions": expressions}


def _terms(affinity: Object) -> Iterator[Object]:
    for kind in ("podAffinity", "podAntiAffinity"):
        given = affinity.get(kind) or {}
        yield from given.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for preferred in given.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield preferred.get("podAffinityTerm") or {}
