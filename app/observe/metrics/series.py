"""Counters, gauges and histograms for the hot path, collected by a prometheus_client registry.

The scheduler observes some thirty numbers per pod, on one thread. prometheus_client's own metrics take a lock and walk their
buckets for each, which is a microsecond or two; these are plain attributes and one bisection, a quarter of that. A family
hands out one series per combination of label values and keeps it, so that a frequent observer looks it up once.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, Generic, TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4


class _Collected:
    """Metrics as they were at one moment."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics: Final = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


async def exposition(registry: CollectorRegistry) -> bytes:
    """The body, of CONTENT_TYPE."""
    collected = _Collected(list(registry.collect()))
    return await asyncio.to_thread(generate_latest, collected)


STABLE: Final = "STABLE"
BETA: Final = "BETA"
ALPHA: Final = "ALPHA"

Labels = tuple[str, ...]


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Bounds that grow by ``factor``, multiplied step by step: the rounding shows in the ``le`` labels.

    >>> exponential(1, 2, 4)
    (1.0, 2.0, 4.0, 8.0)
    """
    return tuple(accumulate([float(start)] + [float(factor)] * (count - 1), lambda a, b: a * b))


def go_float(value: float) -> str:
    """The number as Go writes it.

    >>> go_float(16384000.0), go_float(16.0), go_float(0.25)
    ('1.6384e+07', '16', '0.25')
    """
    written = str(floatToGoString(value))  # type: ignore[no-untyped-call]  # the library has no types here
    return written.removesuffix(".0")


class Counter:
    """A number that grows; ``inc`` is for the hot path."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        """Adds to it."""
        self.value += amount

    def reset(self) -> None:
        """Starts again from nothing."""
        self.value = 0.0


class Histogram:
    """Observations by bucket: ``counts[i]`` are those up to ``bounds[i]`` and above the bound before, the last are the rest."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds: Final = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Counts one observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def observe_many(self, value: float, times: int) -> None:
        """Counts an observation as if it had been made so many times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def reset(self) -> None:
        """Starts again from nothing."""
        self.counts = [0] * len(self.counts)
        self.total = 0.0


S = TypeVar("S", Counter, Histogram)


class _Series(dict[Labels, S]):
    def __init__(self, name: str, labels: Labels, make: Callable[[], S]) -> None:
        super().__init__()
        self._name: Final = name
        self._labels: Final = labels
        self._make: Final[Callable[[], S]] = make

    def __missing__(self, values: Labels) -> S:
        if len(values) != len(self._labels):
            raise ValueError(f"{self._name} has the labels {self._labels}, not {values}")
        series = self[values] = self._make()
        return series


class Family(Generic[S]):
    """One metric with its series by label values; a prometheus_client collector."""

    def __init__(
        self, name: str, text: str, *, stability: str, labels: Labels, make: Callable[[], S]
    ) -> None:
        self.name: Final = name
        self.help: Final = f"[{stability}] {text}"
        self.label_names: Final = labels
        #: The series by label values, each made when it is first asked for.
        self.of: Final[_Series[S]] = _Series(name, labels, make)

    def labels(self, *values: str) -> S:
        """The series of these label values."""
        return self.of[values]

    def reset(self) -> None:
        """Starts all series again from nothing; those that are held stay in use."""
        for series in self.of.values():
            series.reset()

    def describe(self) -> Iterable[Metric]:
        """Names, for the registry to find duplicates."""
        return [self._family()]

    def collect(self) -> Iterator[Metric]:
        """All series."""
        yield self._filled(self.of.items())

    def _family(self) -> Metric:
        raise NotImplementedError

    def _filled(self, series: Iterable[tuple[Labels, S]]) -> Metric:
        raise NotImplementedError


class CounterFamily(Family[Counter]):
    """Counters."""

    def __init__(self, name: str, text: str, *, stability: str, labels: Labels = ()) -> None:
        super().__init__(name, text, stability=stability, labels=labels, make=Counter)

    def _family(self) -> CounterMetricFamily:
        return CounterMetricFamily(self.name, self.help, labels=self.label_names)

    def _filled(self, series: Iterable[tuple[Labels, Counter]]) -> Metric:
        family = self._family()
        for labels, counter in series:
            family.add_metric(labels, counter.value)
        return family


class GaugeFamily(Family[Counter]):
    """Gauges that follow events; others are looked up (see Lookup)."""

    def __init__(self, name: str, text: str, *, stability: str, labels: Labels = ()) -> None:
        super().__init__(name, text, stability=stability, labels=labels, make=Counter)

    def reset(self) -> None:
        """Does nothing: a gauge tells how things are."""

    def _family(self) -> GaugeMetricFamily:
        return GaugeMetricFamily(self.name, self.help, labels=self.label_names)

    def _filled(self, series: Iterable[tuple[Labels, Counter]]) -> Metric:
        family = self._family()
        for labels, gauge in series:
            family.add_metric(labels, gauge.value)
        return family


class HistogramFamily(Family[Histogram]):
    """Histograms with the same buckets."""

    def __init__(
        self,
        name: str,
        text: str,
        *,
        stability: str,
        buckets: Sequence[float],
        labels: Labels = (),
    ) -> None:
        super().__init__(
            name, text, stability=stability, labels=labels, make=lambda: Histogram(buckets)
        )
        self._edges: Final = [*map(go_float, buckets), "+Inf"]

    def _family(self) -> HistogramMetricFamily:
        return HistogramMetricFamily(self.name, self.help, labels=self.label_names)

    def _filled(self, series: Iterable[tuple[Labels, Histogram]]) -> Metric:
        family = self._family()
        for labels, histogram in series:
            buckets = list(zip(self._edges, accumulate(histogram.counts), strict=True))
            family.add_metric(labels, buckets, histogram.total)
        return family


#: label values -> value, looked up when a registry collects.
Values = Mapping[Labels, float]


class Lookup:
    """A gauge, or a counter that is kept elsewhere, whose values are looked up whenever it is collected."""

    def __init__(
        self,
        name: str,
        text: str,
        look_up: Callable[[], Values],
        *,
        stability: str,
        labels: Labels = (),
        counter: bool = False,
    ) -> None:
        self.name: Final = name
        self._help: Final = f"[{stability}] {text}"
        self._labels: Final = labels
        self._look_up: Final = look_up
        self._counter: Final = counter

    def describe(self) -> Iterable[Metric]:
        """Its name."""
        return [self._family()]

    def collect(self) -> Iterator[Metric]:
        """The values as they are now."""
        family = self._family()
        for labels, value in self._look_up().items():
            family.add_metric(labels, value)
        yield family

    def _family(self) -> CounterMetricFamily | GaugeMetricFamily:
        make = CounterMetricFamily if self._counter else GaugeMetricFamily
        return make(self.name, self._help, labels=self._labels)


F = TypeVar("F", CounterFamily, GaugeFamily, HistogramFamily)


class Families:
    """Registers collectors, and resets those that may be."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry: Final = registry
        self._families: Final[list[Family[Counter] | Family[Histogram]]] = []

    def counter(self, name: str, text: str, stability: str, *labels: str) -> CounterFamily:
        """A registered CounterFamily. One without labels is there from the beginning, with 0."""
        return self._add(CounterFamily(name, text, stability=stability, labels=labels))

    def gauge(self, name: str, text: str, stability: str, *labels: str) -> GaugeFamily:
        """A registered GaugeFamily."""
        return self._add(GaugeFamily(name, text, stability=stability, labels=labels))

    def histogram(
        self, name: str, text: str, stability: str, buckets: Sequence[float], *labels: str
    ) -> HistogramFamily:
        """A registered HistogramFamily."""
        return self._add(
            HistogramFamily(name, text, stability=stability, buckets=buckets, labels=labels)
        )

    def look_up(
        self,
        name: str,
        text: str,
        stability: str,
        look_up: Callable[[], Values],
        *labels: str,
        counter: bool = False,
    ) -> None:
        """Registers a Lookup."""
        self._registry.register(
            Lookup(name, text, look_up, stability=stability, labels=labels, counter=counter)
        )

    def reset(self) -> None:
        """Starts counters and histograms again from nothing."""
        for family in self._families:
            family.reset()

    def _add(self, family: F) -> F:
        self._registry.register(family)
        self._families.append(family)
        if not family.label_names:
            family.labels()
        return family
