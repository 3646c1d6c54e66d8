"""InterPodAffinity, one node and one pod at a time (docs/spec/plugins/inter-pod-affinity.md)."""

from tests.core.plugins.twins.matching import is_empty, selects

AFFINITY = "node(s) didn't match pod affinity rules"
ANTI = "node(s) didn't match pod anti-affinity rules"
EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"


class Term:
    """A term of a pod that lives in ``namespace``."""

    def __init__(self, term, namespace):
        self.key, self.selector = term.topology_key, term.label_selector
        self.namespace_selector = term.namespace_selector
        own = not term.namespaces and term.namespace_selector is None
        self.namespaces = {namespace} if own else set(term.namespaces or ())

    def expanded(self, world):
        """As a term of the incoming pod: namespaces that are selected now are listed, the selector stays."""
        if self.namespace_selector is not None and not is_empty(self.namespace_selector):
            for name, labels in world.namespaces().items():
                if selects(self.namespace_selector, labels):
                    self.namespaces.add(name)
        return self

    def means(self, pod, namespace_labels):
        somewhere = pod.namespace in self.namespaces
        if not somewhere and not selects(self.namespace_selector, namespace_labels):
            return False
        return selects(self.selector, pod.labels)


def _lists(pod):
    affinity = pod.spec.affinity
    near = affinity.pod_affinity if affinity else None
    far = affinity.pod_anti_affinity if affinity else None
    return near, far


def required(pod):
    return [Term(t, pod.namespace) for t in getattr(_lists(pod)[0], "required", None) or ()]


def required_anti(pod):
    return [Term(t, pod.namespace) for t in getattr(_lists(pod)[1], "required", None) or ()]


def preferred(pod):
    """(term, weight), negative for anti-affinity."""
    near, far = _lists(pod)
    return [
        *(
            (Term(t.pod_affinity_term, pod.namespace), t.weight)
            for t in getattr(near, "preferred", None) or ()
        ),
        *(
            (Term(t.pod_affinity_term, pod.namespace), -t.weight)
            for t in getattr(far, "preferred", None) or ()
        ),
    ]


def _means_all(terms, pod):
    return bool(terms) and all(term.means(pod, {}) for term in terms)


class Filter:
    """PreFilter's three maps, which imagined pods change, and Filter."""

    def __init__(self, world, pod):
        self.pod = pod
        self.near = [term.expanded(world) for term in required(pod)]
        self.far = [term.expanded(world) for term in required_anti(pod)]
        self.namespace_labels = world.namespaces().get(pod.namespace, {})
        self.existing, self.affinity, self.anti = {}, {}, {}
        for node in world.nodes.values():
            for other in world.on(node.name):
                self.update(other, node, 1)
        self.skip = not self.existing and not self.near and not self.far

    def update(self, other, node, delta):
        def bump(counts, key):
            if key in node.labels:
                pair = (key, node.labels[key])
                counts[pair] = counts.get(pair, 0) + delta
                if not counts[pair]:
                    del counts[pair]

        for term in required_anti(other):
            if term.means(self.pod, self.namespace_labels):
                bump(self.existing, term.key)
        if _means_all(self.near, other):
            for term in self.near:
                bump(self.affinity, term.key)
        for term in self.far:
            if term.means(other, {}):
                bump(self.anti, term.key)

    def filter(self, node):
        if any(term.key not in node.labels for term in self.near):
            return 3, AFFINITY
        pairs = [(term.key, node.labels[term.key]) for term in self.near]
        if not all(self.affinity.get(pair, 0) > 0 for pair in pairs) and (
            self.affinity or not _means_all(self.near, self.pod)
        ):
            return 3, AFFINITY
        for term in self.far:
            if self.anti.get((term.key, node.labels.get(term.key)), 0) > 0:
                return 2, ANTI
        if any(self.existing.get(pair, 0) > 0 for pair in node.labels.items()):
            return 2, EXISTING
        return None


def scores(world, pod, feasible, hard_weight=1, ignore_existing=False):
    """(raw, normalised) by node name over ``feasible``; None for Skip."""
    own = [(term.expanded(world), weight) for term, weight in preferred(pod)]
    if ignore_existing and not own:
        return None
    labels = world.namespaces().get(pod.namespace, {})
    sums = {}
    for node in world.nodes.values():
        for other in world.on(node.name):
            found = [(t.key, w) for t, w in own if t.means(other, {})]
            if hard_weight > 0:
                found += [(t.key, hard_weight) for t in required(other) if t.means(pod, labels)]
            found += [(t.key, w) for t, w in preferred(other) if t.means(pod, labels)]
            for key, weight in found:
                if key in node.labels:
                    pair = (key, node.labels[key])
                    sums[pair] = sums.get(pair, 0) + weight
    if not sums:
        return None
    raw = {
        name: sum(sums.get(pair, 0) for pair in world.nodes[name].labels.items())
        for name in feasible
    }
    low, high = min(raw.values(), default=0), max(raw.values(), default=0)
    spread = float(high - low)
    normalised = {
        name: int(100.0 * (float(score - low) / spread)) if spread > 0 else 0
        for name, score in raw.items()
    }
    return raw, normalised
