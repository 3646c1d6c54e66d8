"""NodeAffinity, one node at a time (docs/spec/plugins/node-affinity.md)."""

from app.model.status import Code
from tests.core.plugins.twins.selectors import (
    pod_allows,
    required_of,
    selector_matches,
    term_matches,
)


def skips(pod, added):
    return (
        required_of(pod.spec) is None
        and pod.spec.node_selector is None
        and (added is None or added.required is None)
    )


def narrowed(pod):
    """The node names PreFilter leaves: None for all of them."""
    required = required_of(pod.spec)
    names = None
    for term in (required and required.node_selector_terms) or ():
        of_term = None
        for requirement in term.match_fields or ():
            if requirement.key == "metadata.name" and requirement.operator == "In":
                values = set(requirement.values or ())
                of_term = values if of_term is None else of_term & values
        if of_term is None:
            return None
        names = of_term if names is None else names | of_term
    return names


def filter_node(pod, scene, added=None):
    enforced = None if added is None else added.required
    if enforced is not None and not selector_matches(enforced, scene.node):
        reason = "node(s) didn't match scheduler-enforced node affinity"
        return Code.UnschedulableAndUnresolvable, (reason,)
    if not pod_allows(pod.spec, scene.node):
        reason = "node(s) didn't match Pod's node affinity/selector"
        return Code.UnschedulableAndUnresolvable, (reason,)
    return None


def preferred_of(pod):
    affinity = pod.spec.affinity
    if affinity is None or affinity.node_affinity is None:
        return None
    return affinity.node_affinity.preferred


def score_node(pod, scene, added=None):
    terms = [*((added and added.preferred) or ()), *(preferred_of(pod) or ())]
    return sum(t.weight for t in terms if t.weight and term_matches(t.preference, scene.node))


def normalize(scores):
    highest = max([0, *scores])
    return [100 * score // highest for score in scores] if highest else scores
