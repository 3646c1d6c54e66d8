"""Metrics as those of prometheus_client, and as text. Apart from their series, because the library takes long to import."""

import asyncio
import functools
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString

from app.observe.metrics.series import (
    AnyFamily,
    ComputedFamily,
    HistogramFamily,
    MetricFamilies,
)

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4


def registry_of(families: MetricFamilies) -> CollectorRegistry:
    """A registry of these metrics and those of the process and its interpreter."""
    registry = CollectorRegistry()
    registry.register(families)
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    return registry


class _Collected:
    """Metrics as they were when they were collected."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics: Final = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


async def exposition(registry: CollectorRegistry) -> bytes:
    """The metrics as text of CONTENT_TYPE; formatted in a thread."""
    found = _Collected(list(registry.collect()))
    return await asyncio.to_thread(generate_latest, found)


def go_float(value: float) -> str:
    """The number as Go's client library formats it.

    >>> go_float(16384000.0), go_float(16.0), go_float(0.25)
    ('1.6384e+07', '16', '0.25')
    """
    written = str(floatToGoString(value))  # type: ignore[no-untyped-call]  # the library has no types here
    return written.removesuffix(".0")


def collected(family: AnyFamily) -> Metric:
    """The metric with its current series."""
    if isinstance(family, HistogramFamily):
        return _histogram(family)
    if isinstance(family, ComputedFamily):
        values = family.compute()
    else:
        values = {labels: sample.shown for labels, sample in family.of.items()}
    make = CounterMetricFamily if family.counter else GaugeMetricFamily
    metric = make(family.name, family.help, labels=family.label_names)
    for labels, value in values.items():
        metric.add_metric(labels, value)
    return metric


@functools.cache
def _edges(buckets: tuple[float, ...]) -> Sequence[str]:
    """The ``le`` labels of a histogram."""
    return [*map(go_float, buckets), "+Inf"]


def _histogram(family: HistogramFamily) -> Metric:
    metric = HistogramMetricFamily(family.name, family.help, labels=family.label_names)
    edges = _edges(family.buckets)
    for labels, histogram in family.of.items():
        counts, total = histogram.shown
        buckets = list(zip(edges, accumulate(counts), strict=True))
        metric.add_metric(labels, buckets, total)
    return metric
