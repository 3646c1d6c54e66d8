"""What a round gives, how it is shown, and what may be demanded of it."""

import dataclasses
import hashlib
import json
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any, Final


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One round."""

    shape: str
    nodes: int
    pods: int
    existing: int
    extender: str
    """Empty for none; else the delay of its answers and what it is sent."""
    feeds: int = 0
    """Listeners of the feed."""
    feed_events: int = 0
    """The events that were sent to all listeners together."""
    feed_mb: float = 0.0
    """Their size, MB."""
    questions: int = 0
    """Questions that were sent until the last binding."""
    answered: int = 0
    refused: str = ""
    """How many were refused, by status, or cut short; the rest had no answer yet."""
    answer_p50_ms: float | None = None
    """From a question to its answer."""
    answer_p99_ms: float | None = None
    bound: int
    first_bind_s: float | None
    """From starting the scheduler's process to the first binding that was seen; None if there was none."""
    median_bind_s: float | None
    """The same to half of the bindings."""
    last_bind_s: float | None
    p99_bind_s: float | None
    """The same to 99 of 100 bindings."""
    pods_per_s: float | None
    """From the first binding to the last; None for fewer than two."""
    latency_p50_ms: float | None = None
    """From the creation of a pod to its binding, if pods arrive while the scheduler runs."""
    latency_p99_ms: float | None = None
    cpu_ms_per_pod: float | None
    """Of the scheduler, from the first binding to the last."""
    cpu_s: float
    """Of the scheduler, from its start to the last binding."""
    first_bind_cpu_s: float
    """The same to the first binding."""
    peak_memory_mb: float
    """Of the scheduler, MiB."""
    nodes_used: int
    most_pods_on_a_node: int
    decisions: str
    """The same for rounds in which each pod got the same node."""

    @property
    def complete(self) -> bool:
        """Whether every pod was bound."""
        return self.bound == self.pods


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """What was noted in a round: when each binding was seen, in order, and the scheduler's CPU seconds then."""

    started: float
    bound_at: Sequence[float]
    bound_on: Sequence[str]
    bound_pods: Sequence[str]
    latencies: Sequence[float]
    cpu_at_first: float
    cpu: float
    peak_memory: int

    def figures(self) -> dict[str, Any]:
        """The fields of a Result that come from here."""
        count = len(self.bound_at)
        span = self.bound_at[-1] - self.bound_at[0] if count > 1 else 0.0
        per_node = [self.bound_on.count(node) for node in set(self.bound_on)]
        return {
            "bound": count,
            "first_bind_s": _rounded(self.bound_at[0] - self.started) if count else None,
            "median_bind_s": _rounded(statistics.median(self.bound_at) - self.started)
            if count
            else None,
            "last_bind_s": _rounded(self.bound_at[-1] - self.started) if count else None,
            "p99_bind_s": _rounded(self.bound_at[math.ceil(0.99 * count) - 1] - self.started)
            if count
            else None,
            "latency_p50_ms": quantile(self.latencies, 0.5),
            "latency_p99_ms": quantile(self.latencies, 0.99),
            "pods_per_s": _rounded((count - 1) / span, 1) if span > 0 else None,
            "cpu_ms_per_pod": _rounded(1000 * (self.cpu - self.cpu_at_first) / count)
            if count
            else None,
            "cpu_s": _rounded(self.cpu),
            "first_bind_cpu_s": _rounded(self.cpu_at_first),
            "peak_memory_mb": _rounded(self.peak_memory / 2**20, 1),
            "nodes_used": len(per_node),
            "most_pods_on_a_node": max(per_node, default=0),
            "decisions": _digest(self.bound_pods, self.bound_on),
        }


def quantile(seconds: Sequence[float], part: float) -> float | None:
    """In milliseconds; None of nothing."""
    if not seconds:
        return None
    return _rounded(1000 * sorted(seconds)[math.ceil(part * len(seconds)) - 1], 1)


def _digest(pods: Sequence[str], nodes: Sequence[str]) -> str:
    text = repr(sorted(zip(pods, nodes, strict=True)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _rounded(value: float, digits: int = 3) -> float:
    return round(value, digits)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """What a round must reach; None for whatever it is."""

    pods_per_s: float | None = None
    cpu_ms_per_pod: float | None = None
    peak_memory_mb: float | None = None


def shortfalls(result: Result, wanted: Thresholds) -> Iterator[str]:
    """A sentence for each demand that a round does not meet."""
    if not result.complete:
        yield f"{result.pods - result.bound} of {result.pods} pods were not bound"
    if wanted.pods_per_s is not None and (result.pods_per_s or 0.0) < wanted.pods_per_s:
        yield f"{result.pods_per_s} pods/s, at least {wanted.pods_per_s} are wanted"
    for field, unit in (("cpu_ms_per_pod", "ms of CPU a pod"), ("peak_memory_mb", "MiB at most")):
        limit, value = getattr(wanted, field), getattr(result, field)
        if limit is not None and (value is None or value > limit):
            yield f"{value} {unit}, no more than {limit} are wanted"


COMPARED: Final = (
    "pods_per_s",
    "cpu_ms_per_pod",
    "cpu_s",
    "peak_memory_mb",
    "first_bind_s",
    "median_bind_s",
    "last_bind_s",
    "latency_p50_ms",
    "latency_p99_ms",
)


def ratios(ours: Sequence[Result], theirs: Sequence[Result]) -> dict[str, float | None]:
    """Ours over theirs, the median of the rounds' ratios; None without figures.

    A round's figures were measured one after another: most of what changes the machine's speed meanwhile cancels out.
    """
    found = {field: _ratio(ours, theirs, field) for field in COMPARED}
    return {
        field: ratio
        for field, ratio in found.items()
        if ratio is not None or not field.startswith("latency")
    }


def _ratio(ours: Sequence[Result], theirs: Sequence[Result], field: str) -> float | None:
    pairs = [(getattr(a, field), getattr(b, field)) for a, b in zip(ours, theirs, strict=True)]
    found = [one / other for one, other in pairs if one is not None and other]
    return round(statistics.median(found), 3) if found else None


def medians(results: Sequence[Result]) -> dict[str, Any]:
    """What a program reads: the load, and the medians of the rounds; None without figures.

    ``seconds`` lie between the start of the scheduler's process and the last binding. All pods exist before that start:
    p50 and p99 are the milliseconds from it to half of the bindings, and to 99 of 100.
    """
    first = results[0]
    load = {name: getattr(first, name) for name in ("shape", "nodes", "pods", "existing")}
    load |= {"extender": first.extender, "rounds": len(results)}
    bound = min(each.bound for each in results)
    return (
        load
        | {"bound": bound}
        | {
            name: _median([getattr(each, field) for each in results], factor)
            for name, (field, factor) in _REPORTED.items()
        }
    )


_REPORTED: Final = {
    "seconds": ("last_bind_s", 1),
    "pods_per_s": ("pods_per_s", 1),
    "cpu_ms_per_pod": ("cpu_ms_per_pod", 1),
    "cpu_s": ("cpu_s", 1),
    "peak_rss_mb": ("peak_memory_mb", 1),
    "first_bind_s": ("first_bind_s", 1),
    "first_bind_cpu_s": ("first_bind_cpu_s", 1),
    "p50_ms": ("median_bind_s", 1000),
    "p99_ms": ("p99_bind_s", 1000),
    "latency_p50_ms": ("latency_p50_ms", 1),
    "latency_p99_ms": ("latency_p99_ms", 1),
}


def _median(values: Sequence[float | None], factor: int) -> float | None:
    found = [factor * value for value in values if value is not None]
    return _rounded(statistics.median(found)) if found else None


def as_json(who: str, result: Result) -> str:
    """One line."""
    return json.dumps({"scheduler": who, **dataclasses.asdict(result)})


def summary(who: str, result: Result) -> str:
    """A few lines for people."""
    about = f"{result.shape} pods" + (f", {result.existing} running" if result.existing else "")
    about += f", extender: {result.extender}" if result.extender else ""
    about += f", {result.feeds} listeners of the feed" if result.feeds else ""
    lines = [
        f"{who}: {result.bound} of {result.pods} pods bound, {result.nodes} nodes, {about}",
        f"  {_shown(result.pods_per_s):>8} pods/s",
        f"  {_shown(result.cpu_ms_per_pod):>8} ms CPU a pod, {result.cpu_s} s in all",
        f"  {_shown(result.peak_memory_mb):>8} MiB at most",
        f"  {_shown(result.first_bind_s):>8} s to the first binding, {_shown(result.median_bind_s)} s to half, {_shown(result.last_bind_s)} s to the last",
        f"  {result.nodes_used:>8} nodes used, at most {result.most_pods_on_a_node} pods on one",
    ]
    if result.latency_p50_ms is not None:
        lines.append(
            f"  {result.latency_p50_ms:>8} ms from creation to binding, p99 {result.latency_p99_ms} ms"
        )
    if result.feeds:
        sent = f"MB sent to the listeners, {result.feed_events} events"
        lines.append(f"  {_shown(result.feed_mb):>8} {sent}")
    if result.questions:
        refused = f"; not: {result.refused}" if result.refused else ""
        lines.append(
            f"  {result.answered:>8} of {result.questions} questions answered, after {_shown(result.answer_p50_ms)} ms, "
            f"p99 {_shown(result.answer_p99_ms)} ms{refused}"
        )
    return "\n".join(lines)


def _shown(value: float | None) -> str:
    return "-" if value is None else str(value)
