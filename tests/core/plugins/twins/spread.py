"""PodTopologySpread, one node and one pod at a time (docs/spec/plugins/pod-topology-spread.md)."""

import math

from tests.core.plugins.twins.matching import (
    is_empty,
    node_affinity_allows,
    selects,
    taints_allow,
)

HOSTNAME = "kubernetes.io/hostname"
SKEW = "node(s) didn't match pod topology spread constraints"
MISSING = "node(s) didn't match pod topology spread constraints (missing required label)"
SYSTEM = (("kubernetes.io/hostname", 3), ("topology.kubernetes.io/zone", 5))


class Rule:
    """A constraint of a pod; ``test(labels)`` and ``empty`` describe its selector."""

    def __init__(
        self, key, max_skew, test, empty, min_domains=1, affinity="Honor", taints="Ignore"
    ):
        self.key, self.max_skew, self.test, self.empty = key, max_skew, test, empty
        self.min_domains, self.affinity, self.taints = min_domains, affinity, taints

    def lets_in(self, pod, node):
        if self.affinity == "Honor" and not node_affinity_allows(pod, node):
            return False
        return self.taints != "Honor" or taints_allow(pod, node)

    def count(self, world, node, pod):
        if self.empty:
            return 0
        return sum(
            other.namespace == pod.namespace
            and other.deletion_timestamp is None
            and self.test(other.labels)
            for other in world.on(node.name)
        )


def own_rules(pod, action):
    rules = []
    for c in pod.spec.topology_spread_constraints or ():
        if c.when_unsatisfiable != action:
            continue
        extra = {k: pod.labels[k] for k in c.match_label_keys or () if k in pod.labels}

        def test(labels, selector=c.label_selector, extra=extra):
            if selector is None:
                return False
            return selects(selector, labels) and all(labels.get(k) == v for k, v in extra.items())

        rules.append(
            Rule(
                c.topology_key,
                c.max_skew,
                test,
                is_empty(c.label_selector) and not extra,
                c.min_domains or 1,
                c.node_affinity_policy or "Honor",
                c.node_taints_policy or "Ignore",
            )
        )
    return rules


def default_rules(world, pod, defaults):
    """``defaults``: (key, max_skew) pairs; the selector is merged from Services and the controller."""
    pairs, tests = {}, []
    for service in world.cluster.services:
        wanted = service.spec.selector if service.namespace == pod.namespace else None
        if wanted is not None and all(pod.labels.get(k) == v for k, v in wanted.items()):
            pairs.update(wanted)
    owner = pod.owner
    if owner is not None:
        get = {
            ("v1", "ReplicationController"): world.cluster.replication_controllers.get,
            ("apps/v1", "ReplicaSet"): world.cluster.replica_sets.get,
            ("apps/v1", "StatefulSet"): world.cluster.stateful_sets.get,
        }.get((owner.api_version, owner.kind), lambda _name, _namespace: None)
        found = get(owner.name, pod.namespace)
        if found is not None and owner.kind == "ReplicationController":
            pairs.update(found.spec.selector or {})
        elif found is not None and found.spec.selector and not is_empty(found.spec.selector):
            tests.append(found.spec.selector)
    if not pairs and not tests:
        return []

    def test(labels):
        return all(labels.get(k) == v for k, v in pairs.items()) and all(
            selects(selector, labels) for selector in tests
        )

    return [Rule(key, skew, test, empty=False) for key, skew in defaults]


class Hard:
    """PreFilter's counts, which imagined pods change, and Filter. ``skip`` if there is nothing to check."""

    def __init__(self, world, pod, rules):
        self.pod, self.rules = pod, rules
        self.skip = not rules
        self.counts = [{} for _ in rules]
        for node in world.nodes.values():
            if not all(rule.key in node.labels for rule in rules):
                continue
            for rule, counts in zip(rules, self.counts, strict=True):
                if rule.lets_in(pod, node):
                    value = node.labels[rule.key]
                    counts[value] = counts.get(value, 0) + rule.count(world, node, pod)

    def update(self, other, node, delta):
        if other.namespace != self.pod.namespace:
            return
        if not all(rule.key in node.labels for rule in self.rules):
            return
        for rule, counts in zip(self.rules, self.counts, strict=True):
            if rule.test(other.labels) and rule.lets_in(self.pod, node):
                counts[node.labels[rule.key]] += delta

    def filter(self, node):
        for rule, counts in zip(self.rules, self.counts, strict=True):
            if rule.key not in node.labels:
                return 3, MISSING
            lowest = min(counts.values(), default=0)
            if len(counts) < rule.min_domains:
                lowest = 0
            own = 1 if rule.test(self.pod.labels) else 0
            if counts.get(node.labels[rule.key], 0) + own - lowest > rule.max_skew:
                return 2, SKEW
        return None


def scores(world, pod, rules, feasible, require_all):
    """(raw, normalised) by node name over ``feasible``; None for Skip."""
    if not rules or not world.nodes:
        return None
    nodes = [world.nodes[name] for name in feasible]
    ignored = {n.name for n in nodes if require_all and not all(r.key in n.labels for r in rules)}
    counts = [{} for _ in rules]
    for node in nodes:
        if node.name not in ignored:
            for rule, by_value in zip(rules, counts, strict=True):
                if rule.key != HOSTNAME:
                    by_value.setdefault(node.labels.get(rule.key, ""), 0)
    weights = [
        math.log((len(nodes) - len(ignored) if r.key == HOSTNAME else len(c)) + 2)
        for r, c in zip(rules, counts, strict=True)
    ]
    for node in world.nodes.values():
        if require_all and not all(r.key in node.labels for r in rules):
            continue
        for rule, by_value in zip(rules, counts, strict=True):
            value = node.labels.get(rule.key, "")
            if rule.lets_in(pod, node) and value in by_value:
                by_value[value] += rule.count(world, node, pod)
    raw = {}
    for node in nodes:
        total = 0.0
        for rule, by_value, weight in zip(rules, counts, weights, strict=True):
            if node.name not in ignored and rule.key in node.labels:
                if rule.key == HOSTNAME:
                    count = rule.count(world, node, pod)
                else:
                    count = by_value[node.labels[rule.key]]
                total += float(count) * weight + float(rule.max_skew - 1)
        raw[node.name] = math.floor(total + 0.5)
    return raw, _normalised(raw, ignored)


def _normalised(raw, ignored):
    scored = [score for name, score in raw.items() if name not in ignored]
    low, high = min(scored, default=0), max(scored, default=0)
    out = {}
    for name, score in raw.items():
        if name in ignored:
            out[name] = 0
        elif high == 0:
            out[name] = 100
        else:
            out[name] = 100 * (high + low - score) // high
    return out
