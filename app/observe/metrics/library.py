"""Metrics of prometheus_client from plain values.

The library takes long to import: nothing imports this at the start.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString

_Labels = tuple[str, ...]


def go_float(value: float) -> str:
    """The number as Go's client library formats it.

    >>> go_float(16384000.0), go_float(16.0), go_float(0.25)
    ('1.6384e+07', '16', '0.25')
    """
    written = str(floatToGoString(value))  # type: ignore[no-untyped-call]  # the library has no types here
    return written.removesuffix(".0")


def single(
    name: str, text: str, labels: _Labels, values: Mapping[_Labels, float], *, counter: bool
) -> Metric:
    """A counter or a gauge: label values -> value."""
    make = CounterMetricFamily if counter else GaugeMetricFamily
    metric = make(name, text, labels=labels)
    for of, value in values.items():
        metric.add_metric(of, value)
    return metric


def histogram(
    name: str,
    text: str,
    labels: _Labels,
    bounds: tuple[float, ...],
    series: Iterable[tuple[_Labels, Sequence[int], float]],
) -> Metric:
    """A histogram: label values, the counts of each bucket and of what is above all bounds, and the sum."""
    metric = HistogramMetricFamily(name, text, labels=labels)
    edges = _edges(bounds)
    for of, counts, total in series:
        metric.add_metric(of, list(zip(edges, accumulate(counts), strict=True)), total)
    return metric


@functools.cache
def _edges(bounds: tuple[float, ...]) -> Sequence[str]:
    """The ``le`` labels of a histogram."""
    return [*map(go_float, bounds), "+Inf"]
