"""Counters, gauges and histograms, and what a registry makes of them."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from app.observe.metrics.series import STABLE, Histogram, MetricFamilies, exponential


def read(registry):
    """(name, labels) -> value, by way of the text."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def families(registry):
    return MetricFamilies(registry)


def test_bounds_grow_step_by_step_as_in_go():
    assert exponential(0.001, 2, 4) == (0.001, 0.002, 0.004, 0.008)
    assert exponential(0.00001, 1.5, 3) == (1e-05, 1.5000000000000002e-05, 2.2500000000000005e-05)
    assert len(exponential(0.1, 2, 14)) == 14


@pytest.mark.parametrize(
    ("value", "bucket"),
    [(0.0, 0), (1.0, 0), (1.0000001, 1), (2.0, 1), (3.9, 2), (4.0, 2), (5.0, 3)],
)
def test_a_bound_belongs_to_its_bucket(value, bucket):
    histogram = Histogram((1.0, 2.0, 4.0))
    histogram.observe(value)
    assert histogram.counts[bucket] == 1
    assert sum(histogram.counts) == 1
    assert histogram.total == value


def test_many_observations_at_once_are_as_many_single_ones():
    one_by_one, at_once = Histogram((1.0, 2.0)), Histogram((1.0, 2.0))
    for _ in range(3):
        one_by_one.observe(1.5)
    at_once.observe_many(1.5, 3)
    assert (at_once.counts, at_once.total) == (one_by_one.counts, one_by_one.total)


def test_counters_and_gauges_in_the_text(families, registry):
    counter = families.counter("things_total", "Things.", ("kind",), stability=STABLE)
    gauge = families.gauge("level", "Level.")
    counter.labels("a").inc()
    counter.labels("a").inc(2)
    counter.labels('with "quotes"').inc()
    gauge.labels().inc(-3)
    assert read(registry) == {
        ("things_total", (("kind", "a"),)): 3,
        ("things_total", (("kind", 'with "quotes"'),)): 1,
        ("level", ()): -3,
    }
    text = generate_latest(registry).decode()
    assert "# HELP things_total [STABLE] Things.\n# TYPE things_total counter\n" in text


def test_histograms_are_cumulative(families, registry):
    series = families.histogram(
        "took_seconds", "Took.", (0.5, 1.0), ("op",), stability=STABLE
    ).labels("x")
    for value in (0.1, 0.6, 0.7, 9.0):
        series.observe(value)
    values = read(registry)
    buckets = {labels: value for (name, labels), value in values.items() if name.endswith("bucket")}
    assert buckets == {
        (("le", "0.5"), ("op", "x")): 1,
        (("le", "1"), ("op", "x")): 3,
        (("le", "+Inf"), ("op", "x")): 4,
    }
    assert values["took_seconds_count", (("op", "x"),)] == 4
    assert values["took_seconds_sum", (("op", "x"),)] == pytest.approx(10.4)


def test_series_without_labels_are_there_from_the_beginning(families, registry):
    families.counter("one_total", "One.")
    families.counter("many_total", "Many.", ("kind",))
    assert read(registry) == {("one_total", ()): 0}


def test_reset_keeps_series_in_use_and_gauges_as_they_are(families, registry):
    counter = families.counter("c_total", "C.").labels()
    histogram = families.histogram("h", "H.", (1.0,)).labels()
    gauge = families.gauge("g", "G.").labels()
    for series in (counter, gauge):
        series.inc(5)
    histogram.observe(0.5)
    families.reset()
    shown = {name: value for (name, _), value in read(registry).items()}
    assert (shown["c_total"], shown["g"], shown["h_count"], shown["h_sum"]) == (0, 5, 0, 0)
    counter.inc()
    histogram.observe(0.25)
    shown = {name: value for (name, _), value in read(registry).items()}
    assert (shown["c_total"], shown["h_count"], shown["h_sum"]) == (1, 1, 0.25)


def test_a_reset_changes_nothing_for_readers_in_the_process(families):
    counter = families.counter("c_total", "C.").labels()
    histogram = families.histogram("h", "H.", (1.0,)).labels()
    for _ in range(2):
        counter.inc()
        histogram.observe(0.5)
        families.reset()
    assert (counter.value, histogram.counts, histogram.total) == (2, [2, 0], 1.0)


def test_a_name_is_taken_once(families):
    families.counter("twice_total", "T.")
    with pytest.raises(ValueError, match="twice_total"):
        families.gauge("twice_total", "T.")


def test_labels_must_match(families):
    family = families.counter("l_total", "L.", ("a", "b"))
    with pytest.raises(ValueError, match="l_total has the labels"):
        family.labels("only one")


def test_lookups_ask_when_they_are_collected(families, registry):
    values = {("a",): 1.0}
    families.computed("looked_up", "L.", lambda: values, ("kind",))
    assert read(registry) == {("looked_up", (("kind", "a"),)): 1}
    values["b",] = 2.0
    assert read(registry)["looked_up", (("kind", "b"),)] == 2
