"""Counters, gauges and histograms that are cheap to update, collected by a prometheus_client registry.

The scheduler updates about thirty numbers per pod, on one thread. prometheus_client's own metrics take a lock and walk
through their buckets each time, which takes one or two microseconds; these use plain attributes and one bisection, a
quarter of that. A family keeps one series per combination of label values, so that frequent callers can look it up
once.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

STABLE: Final = "STABLE"
BETA: Final = "BETA"
ALPHA: Final = "ALPHA"

LabelValues = tuple[str, ...]


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Bounds that grow by ``factor``, multiplied step by step: the rounding shows in the ``le`` labels.

    >>> exponential(1, 2, 4)
    (1.0, 2.0, 4.0, 8.0)
    """
    return tuple(accumulate([float(start)] + [float(factor)] * (count - 1), lambda a, b: a * b))


def quantile(bounds: Sequence[float], counts: Sequence[int], q: float) -> float | None:
    """The quantile of a Histogram's observations, interpolated within its bucket; None without observations.

    >>> quantile((1.0, 2.0, 4.0), (0, 2, 2, 0), 0.5), quantile((1.0,), (0, 3), 0.5)
    (2.0, 1.0)
    """
    rank = q * sum(counts)
    if not rank:
        return None
    lower = 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if count and rank <= count:
            return lower + (bound - lower) * rank / count
        rank -= count
        lower = bound
    return lower


class Sample:
    """The value of one series of a counter or gauge.

    ``value`` counts from the start of the process, for those who read it in the process; a reset only changes what is
    shown.
    """

    __slots__ = ("_at_reset", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self._at_reset = 0.0

    def inc(self, amount: float = 1.0) -> None:
        """Adds to the value."""
        self.value += amount

    @property
    def shown(self) -> float:
        """The value since the last reset."""
        return self.value - self._at_reset

    def reset(self) -> None:
        """Shows it as zero from now on."""
        self._at_reset = self.value


class Histogram:
    """``counts[i]``: observations up to ``bounds[i]`` and above the previous bound; the last count has those above all
    bounds.

    ``counts`` and ``total`` are those since the start of the process; a reset only changes what is shown.
    """

    __slots__ = ("_at_reset", "bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds: Final = bounds
        self.counts: Final = [0] * (len(bounds) + 1)
        self.total = 0.0
        self._at_reset: tuple[list[int], float] = (list(self.counts), 0.0)

    def observe(self, value: float) -> None:
        """Counts one observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def observe_many(self, value: float, times: int) -> None:
        """Counts the same observation several times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    @property
    def shown(self) -> tuple[list[int], float]:
        """Counts and total since the last reset."""
        counts, total = self._at_reset
        return [a - b for a, b in zip(self.counts, counts, strict=True)], self.total - total

    def reset(self) -> None:
        """Shows it as empty from now on."""
        self._at_reset = list(self.counts), self.total


S = TypeVar("S", Sample, Histogram)


class _Series(dict[LabelValues, S]):
    def __init__(self, name: str, labels: LabelValues, make: Callable[[], S]) -> None:
        super().__init__()
        self._name: Final = name
        self._labels: Final = labels
        self._make: Final[Callable[[], S]] = make

    def __missing__(self, values: LabelValues) -> S:
        if len(values) != len(self._labels):
            raise ValueError(f"{self._name} has the labels {self._labels}, not {values}")
        series = self[values] = self._make()
        return series


class MetricFamily(Generic[S]):
    """One metric with its series by label values."""

    def __init__(
        self, name: str, text: str, *, stability: str, labels: LabelValues, make: Callable[[], S]
    ) -> None:
        self.name: Final = name
        self.help: Final = f"[{stability}] {text}"
        self.label_names: Final = labels
        #: The series by label values; each is created on first use.
        self.of: Final[_Series[S]] = _Series(name, labels, make)

    def labels(self, *values: str) -> S:
        """The series of these label values."""
        return self.of[values]

    def reset(self) -> None:
        """Shows all series as zero from now on."""
        for series in self.of.values():
            series.reset()


class SampleFamily(MetricFamily[Sample]):
    """Counters, or gauges that are updated by events; other gauges are computed (see ComputedFamily)."""

    def __init__(
        self, name: str, text: str, *, stability: str, labels: LabelValues, counter: bool
    ) -> None:
        super().__init__(name, text, stability=stability, labels=labels, make=Sample)
        self.counter: Final = counter

    def shown(self) -> "ValuesByLabels":
        """The values by label values."""
        return {labels: sample.shown for labels, sample in self.of.items()}

    def reset(self) -> None:
        """Shows counters as zero from now on. A gauge keeps its value: it shows the current state."""
        if self.counter:
            super().reset()


class HistogramFamily(MetricFamily[Histogram]):
    """Histograms with the same buckets."""

    def __init__(
        self,
        name: str,
        text: str,
        *,
        stability: str,
        buckets: Sequence[float],
        labels: LabelValues,
    ) -> None:
        super().__init__(
            name, text, stability=stability, labels=labels, make=lambda: Histogram(buckets)
        )
        self.buckets: Final = tuple(buckets)


#: Label values -> value.
ValuesByLabels = Mapping[LabelValues, float]


class ComputedFamily:
    """A gauge or counter whose values are computed whenever it is collected."""

    def __init__(
        self,
        name: str,
        text: str,
        compute: Callable[[], ValuesByLabels],
        *,
        stability: str,
        labels: LabelValues,
        counter: bool,
    ) -> None:
        self.name: Final = name
        self.help: Final = f"[{stability}] {text}"
        self.label_names: Final = labels
        self.shown: Final = compute
        self.counter: Final = counter

    def reset(self) -> None:
        """Does nothing."""


AnyFamily = SampleFamily | HistogramFamily | ComputedFamily
F = TypeVar("F", SampleFamily, HistogramFamily, ComputedFamily)


class MetricFamilies:
    """Creates families and resets them; one collector of the registry, since it takes long to register many."""

    def __init__(self, registry: "CollectorRegistry | None" = None) -> None:
        """``registry``: registered there at once; without one, whoever makes a registry does it."""
        self._families: Final[dict[str, AnyFamily]] = {}
        if registry is not None:
            registry.register(self)

    def collect(self) -> Iterator["Metric"]:
        """All metrics."""
        # Nothing is collected at the start, and the library takes long to import.
        from app.observe.metrics import library  # noqa: PLC0415

        for family in self._families.values():
            name, text, labels = family.name, family.help, family.label_names
            if isinstance(family, HistogramFamily):
                series = ((of, *histogram.shown) for of, histogram in family.of.items())
                yield library.histogram(name, text, labels, family.buckets, series)
            else:
                counter = family.counter
                yield library.single(name, text, labels, family.shown(), counter=counter)

    def counter(
        self, name: str, text: str, labels: LabelValues = (), *, stability: str = ALPHA
    ) -> SampleFamily:
        """A new counter. Without labels it shows 0 from the beginning. Raises ValueError if the name is taken."""
        return self._add(SampleFamily(name, text, stability=stability, labels=labels, counter=True))

    def gauge(
        self, name: str, text: str, labels: LabelValues = (), *, stability: str = ALPHA
    ) -> SampleFamily:
        """A new gauge; see ``counter``."""
        return self._add(
            SampleFamily(name, text, stability=stability, labels=labels, counter=False)
        )

    def histogram(
        self,
        name: str,
        text: str,
        buckets: Sequence[float],
        labels: LabelValues = (),
        *,
        stability: str = ALPHA,
    ) -> HistogramFamily:
        """A new HistogramFamily; see ``counter``."""
        return self._add(
            HistogramFamily(name, text, stability=stability, buckets=buckets, labels=labels)
        )

    def computed(
        self,
        name: str,
        text: str,
        compute: Callable[[], ValuesByLabels],
        labels: LabelValues = (),
        *,
        stability: str = ALPHA,
        counter: bool = False,
    ) -> None:
        """Adds a ComputedFamily. Raises ValueError if the name is taken."""
        self._add(
            ComputedFamily(name, text, compute, stability=stability, labels=labels, counter=counter)
        )

    def reset(self) -> None:
        """Shows counters and histograms as zero from now on; what reads them in the process sees no change."""
        for family in self._families.values():
            family.reset()

    def _add(self, family: F) -> F:
        if family.name in self._families:
            raise ValueError(f"there are two metrics with the name {family.name}")
        self._families[family.name] = family
        if not isinstance(family, ComputedFamily) and not family.label_names:
            family.labels()
        return family
