"""Formats ``/metrics/resources``: the requests and limits of each pod (docs/spec/metrics.md#pod-resources).

There is one series per pod and resource, a few hundred thousand in a large cluster. The text is produced in slices,
between which the event loop can run; the part that follows from the spec is computed once per template.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from app.model.objects import PodSpec
from app.model.pod import Pod, PodTemplate
from app.model.quantity import QuantityError, milli, whole
from app.model.requests import CPU, EPHEMERAL_STORAGE, MEMORY, Amounts, pod_limits, pod_requests
from app.observe.metrics.library import go_float

#: Pods and samples per slice.
SLICE: Final = 500

_BYTES: Final = frozenset({MEMORY, "storage", EPHEMERAL_STORAGE})
_ENDED: Final = frozenset({"Succeeded", "Failed"})


class _Metric(NamedTuple):
    name: str
    text: str
    amounts: Callable[[PodSpec], Amounts]


_REQUEST: Final = _Metric(
    "kube_pod_resource_request",
    "Resources requested by workloads on the cluster, broken down by pod.",
    pod_requests,
)
_LIMIT: Final = _Metric(
    "kube_pod_resource_limit",
    "Resources limit for workloads on the cluster, broken down by pod.",
    pod_limits,
)

#: Tail of a sample's labels, and its value.
_Sample = tuple[str, str]


def pod_resource_metrics(pods: Sequence[Pod]) -> Iterator[bytes]:
    """The text for Prometheus, in pieces of about SLICE samples."""
    for metric in (_REQUEST, _LIMIT):
        head = f"# HELP {metric.name} [STABLE] {metric.text}\n# TYPE {metric.name} gauge\n"
        yield head.encode()
        yield from _samples(metric, pods)


def _samples(metric: _Metric, pods: Iterable[Pod]) -> Iterator[bytes]:
    known: WeakKeyDictionary[PodTemplate, tuple[_Sample, ...]] = WeakKeyDictionary()
    lines: list[str] = []
    work = 0
    for pod in pods:
        if pod.node_name and pod.phase in _ENDED:
            continue
        samples = known.get(pod.template)
        if samples is None:
            samples = known[pod.template] = tuple(_of_template(metric, pod.spec))
        if samples:
            whose = f'namespace="{_escape(pod.namespace)}",node="{_escape(pod.node_name)}",pod="{_escape(pod.name)}"'
            lines += [f"{metric.name}{{{whose},{tail}}} {value}\n" for tail, value in samples]
        work += 1 + len(samples)
        if work >= SLICE:
            yield "".join(lines).encode(errors="replace")
            lines.clear()
            work = 0
    yield "".join(lines).encode(errors="replace")


def _of_template(metric: _Metric, spec: PodSpec) -> Iterator[_Sample]:
    """The samples that all pods of a template share; none for quantities that cannot be parsed or formatted."""
    try:
        amounts = metric.amounts(spec)
    except (QuantityError, ArithmeticError):
        return
    priority = "" if spec.priority is None else str(spec.priority)
    for resource, nanos in sorted(amounts.items()):
        if not nanos:
            continue
        try:
            unit, value = _in_unit(resource, nanos)
        except ArithmeticError:
            continue
        tail = (
            f'priority="{priority}",resource="{_escape(resource)}",'
            f'scheduler="{_escape(spec.scheduler_name)}",unit="{unit}"'
        )
        yield tail, go_float(value)


def _in_unit(resource: str, nanos: int) -> tuple[str, float]:
    if resource == CPU:
        return "cores", milli(nanos) / 1000
    amount = float(whole(nanos))
    if resource in _BYTES or resource.startswith("hugepages-"):
        return "bytes", amount
    return ("integer" if resource.startswith("attachable-volumes-") else ""), amount


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
