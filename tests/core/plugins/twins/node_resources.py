"""NodeResourcesFit and NodeResourcesBalancedAllocation, one node at a time.

See docs/spec/plugins/node-resources-fit.md, docs/spec/plugins/node-resources-balanced-allocation.md.

Requests are worked out here once more, in fractions, so that the model's own arithmetic is checked as well.
"""

import math
from fractions import Fraction

from app.model.status import Code

SUFFIXES = {"m": Fraction(1, 1000), "Mi": 2**20, "Gi": 2**30}
DEFAULTS = {"cpu": Fraction(1, 10), "memory": Fraction(200 * 2**20)}
MAIN = ("cpu", "memory", "ephemeral-storage")


def quantity(text):
    for suffix, factor in SUFFIXES.items():
        if text.endswith(suffix):
            return Fraction(text[: -len(suffix)]) * factor
    return Fraction(text)


def parse(amounts):
    return {name: quantity(text) for name, text in (amounts or {}).items()}


def units(name, amount):
    return math.ceil(amount * 1000 if name == "cpu" else amount)


def is_scalar(name):
    return "/" in name or name.startswith("hugepages-")


def total_requests(spec, *, pod_level=True, defaults=()):
    """Exact requests by resource: containers side by side, init containers one by one, pod level on top."""

    def of(container):
        own = parse(container.resources.requests if container.resources else None)
        return {**{name: DEFAULTS[name] for name in defaults}, **own}

    total, sidecars, peaks = {}, {}, []
    for container in spec.containers:
        add(total, of(container))
    for container in spec.init_containers or ():
        if container.restart_policy == "Always":
            add(total, of(container))
            add(sidecars, of(container))
            peaks.append(dict(sidecars))
        else:
            peak = dict(sidecars)
            add(peak, of(container))
            peaks.append(peak)
    for peak in peaks:
        for name, amount in peak.items():
            total[name] = max(amount, total.get(name, amount))
    if pod_level and spec.resources is not None:
        total.update(supported_pod_level(spec))
    add(total, parse(spec.overhead))
    return total


def supported_pod_level(spec):
    requests = parse(spec.resources.requests if spec.resources else None)
    return {n: a for n, a in requests.items() if n in MAIN[:2] or n.startswith("hugepages-")}


def add(total, amounts):
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def in_units(amounts):
    return {n: units(n, a) for n, a in amounts.items() if n in MAIN or is_scalar(n)}


def nonzero_requests(spec):
    if not supported_pod_level(spec):
        return in_units(total_requests(spec, defaults=DEFAULTS))
    plain = total_requests(spec)
    return in_units(total_requests(spec, defaults=[n for n in DEFAULTS if n not in plain]))


def requested_on(scene, name):
    return sum(in_units(total_requests(pod.spec)).get(name, 0) for pod in scene.pods)


def nonzero_on(scene, name):
    return sum(nonzero_requests(pod.spec).get(name, 0) for pod in scene.pods)


def allocatable(scene, name):
    text = (scene.node.status.allocatable or {}).get(name)
    return 0 if text is None else units(name, quantity(text))


# ---------------------------------------------------------------- fit


def ignored(name, args):
    return "/" in name and (
        name in args.ignored_resources or name.split("/")[0] in args.ignored_resource_groups
    )


def filter_node(pod, scene, args):
    request = in_units(total_requests(pod.spec))
    reasons, hopeless = [], False
    if len(scene.pods) + 1 > allocatable(scene, "pods"):
        reasons.append("Too many pods")
    scalars = sorted(name for name in request if name not in MAIN)
    if not scalars and not any(request.values()):
        return (Code.Unschedulable, tuple(reasons)) if reasons else None
    for name in (*MAIN, *scalars):
        amount = request.get(name, 0)
        if not amount or (name in scalars and ignored(name, args)):
            continue
        if amount > allocatable(scene, name) - requested_on(scene, name):
            reasons.append(f"Insufficient {name}")
            hopeless = hopeless or amount > allocatable(scene, name)
    if not reasons:
        return None
    code = Code.UnschedulableAndUnresolvable if hopeless else Code.Unschedulable
    return code, tuple(reasons)


def broken_linear(points, x):
    for i, (utilization, score) in enumerate(points):
        if x <= utilization:
            if i == 0:
                return score
            u0, s0 = points[i - 1]
            return s0 + int(Fraction((score - s0) * (x - u0), utilization - u0))
    return points[-1][1]


def score_node(pod, scene, args):
    request = total_requests(pod.spec, pod_level=False, defaults=DEFAULTS)
    points = [(p.utilization, p.score * 10) for p in args.shape]
    total, weights = 0, 0
    for resource in args.resources:
        name = resource.name
        own = units(name, request.get(name, Fraction(0)))
        capacity = allocatable(scene, name) if name in MAIN or is_scalar(name) else 0
        if (own == 0 and is_scalar(name)) or capacity == 0:
            continue
        used = own + (nonzero_on if name in DEFAULTS else requested_on)(scene, name)
        match args.strategy:
            case "LeastAllocated":
                score = 0 if used > capacity else (capacity - used) * 100 // capacity
            case "MostAllocated":
                score = min(used, capacity) * 100 // capacity
            case _:
                score = broken_linear(points, 100 if used > capacity else used * 100 // capacity)
                if score <= 0:
                    continue
        total += score * resource.weight
        weights += resource.weight
    if weights == 0:
        return 0
    if args.strategy == "RequestedToCapacityRatio":
        return math.floor(Fraction(total, weights) + Fraction(1, 2))
    return total // weights


# ---------------------------------------------------------------- balanced allocation


def skips_balance(pod, args):
    request = total_requests(pod.spec)
    return all(units(r.name, request.get(r.name, Fraction(0))) == 0 for r in args.resources)


def balance_of(fractions):
    if len(fractions) == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2)
    elif len(fractions) > 2:
        total = 0.0
        for fraction in fractions:
            total += fraction
        mean = total / len(fractions)
        squares = 0.0
        for fraction in fractions:
            squares += (fraction - mean) * (fraction - mean)
        deviation = math.sqrt(squares / len(fractions))
    else:
        deviation = 0.0
    return int((1.0 - deviation) * 100.0)


def balance_node(pod, scene, args):
    request = total_requests(pod.spec)
    before, after = [], []
    for resource in args.resources:
        name = resource.name
        own = units(name, request.get(name, Fraction(0)))
        capacity = allocatable(scene, name)
        if (own == 0 and is_scalar(name)) or capacity == 0:
            continue
        used = requested_on(scene, name)
        before.append(min(1.0, float(used) / float(capacity)))
        after.append(min(1.0, float(used + own) / float(capacity)))
    return 50 + (50 + balance_of(after) - balance_of(before)) // 2
