"""Chunks to lines to events. No event loop."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.kube.errors import Expired, KubeApiError
from app.kube.watch_decoder import MAX_LINE, TURN, KindFeed, LineSplitter
from tests.shell.kube.fakes import (
    SERVICES,
    added,
    bookmark,
    deleted,
    error_line,
    line,
    modified,
    service,
)


def read(feed, lines):
    """The events, and what ended the reading."""
    events = []
    try:
        for event in feed.read(lines):
            events.append(event)  # noqa: PERF402 - those before a failure count
    except KubeApiError as err:
        return events, err
    return events, None


def test_a_line_ends_with_its_newline():
    splitter = LineSplitter()
    assert splitter.feed(b'{"a":1}\n{"b"') == [b'{"a":1}']
    assert splitter.feed(b":2}") == []
    assert splitter.feed(b"\n") == [b'{"b":2}']


@given(
    st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b".")), max_size=20),
    st.lists(st.integers(0, 400), max_size=12),
)
def test_chunk_borders_do_not_matter(lines, cuts):
    whole = b"".join(text + b"\n" for text in lines) + b"unfinished"
    borders = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    splitter = LineSplitter()
    found = [
        text
        for start, end in itertools.pairwise(borders)
        for text in splitter.feed(whole[start:end])
    ]
    assert found == [text for text in lines if text]


def test_a_long_line_is_put_together_once():
    splitter = LineSplitter()
    for _ in range(2000):
        assert splitter.feed(b"x" * 1000) == []
    assert len(splitter._begun) == 2000, "parts are kept, not joined again for every chunk"
    assert splitter.feed(b"\n") == [b"x" * 2_000_000]


@given(st.integers(1, 40))
def test_events_survive_any_chunking(size):
    stream = added("a", 1) + modified("a", 2) + bookmark(3) + deleted("a", 4)
    splitter, feed, events = LineSplitter(), KindFeed(SERVICES), []
    for start in range(0, len(stream), size):
        some, failure = read(feed, splitter.feed(stream[start : start + size]))
        assert failure is None
        events += some
    assert [kind for kind, _ in events] == ["ADDED", "MODIFIED", "BOOKMARK", "DELETED"]
    assert feed.resource_version == "4"


def test_a_bookmark_moves_on():
    feed = KindFeed(SERVICES)
    read(feed, [added("a", 5).strip(), bookmark(17).strip()])
    assert feed.resource_version == "17"


def test_an_error_line_ends_the_reading_but_not_what_came_before():
    feed = KindFeed(SERVICES)
    events, failure = read(feed, [added("a", 5).strip(), error_line(410).strip(), added("b", 6)])
    assert [item.name for _, item in events] == ["a"]
    assert isinstance(failure, Expired)
    assert failure.reason == "Expired"
    assert feed.resource_version == "5"


def broken(kind, name, version):
    return line(kind, service(name, version, spec={"selector": ["not", "a", "map"]})).strip()


def test_an_unreadable_object_costs_itself_only(caplog):
    feed = KindFeed(SERVICES)
    events, failure = read(
        feed, [added("a", 1).strip(), broken("ADDED", "b", 2), modified("c", 3).strip()]
    )
    assert failure is None
    assert [item.name for _, item in events] == ["a", "c"]
    assert feed.decode_errors == 1
    assert feed.unreadable == {"shop/b"}
    assert "shop/b" in caplog.text


def test_an_unreadable_object_is_logged_once_and_counted_always(caplog):
    feed = KindFeed(SERVICES)
    for version in range(5):
        read(feed, [broken("MODIFIED", "b", version)])
    assert feed.decode_errors == 5
    assert len(caplog.records) == 1
    assert feed.resource_version == "4", "what cannot be read is not asked for again"


def test_an_unreadable_object_can_still_go():
    feed = KindFeed(SERVICES)
    read(feed, [broken("ADDED", "b", 1)])
    events, _ = read(feed, [broken("DELETED", "b", 2)])
    assert [(kind, item.key, item.uid) for kind, item in events] == [("DELETED", "shop/b", "uid-b")]
    assert feed.unreadable == set()


def test_an_object_that_becomes_readable_is_no_longer_unreadable():
    feed = KindFeed(SERVICES)
    read(feed, [broken("ADDED", "b", 1)])
    read(feed, [modified("b", 2).strip()])
    assert feed.unreadable == set()


@pytest.mark.parametrize(
    "text",
    [
        b"nonsense",
        b"{}",
        b"[1]",
        added("b", 6)[:-10],
        added("b", 6)[3:],
        b'{"type":"ADDED","object":{"metadata":{"name":5}}}',
        line("REMOVED", service("b", 6)),
    ],
)
def test_a_line_that_is_no_event_ends_the_reading(text):
    """What it should have said is lost: only another list tells."""
    feed = KindFeed(SERVICES)
    events, failure = read(feed, [added("a", 5).strip(), text.strip(), added("c", 7).strip()])
    assert [item.name for _, item in events] == ["a"]
    assert failure is not None
    assert feed.decode_errors == 1
    assert feed.resource_version == "5"


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
@pytest.mark.parametrize("levels", [1_200, 10_000, 100_000])
def test_what_is_nested_deeply_is_no_trouble(kind, levels):
    deep = "[" * levels + "]" * levels
    text = line(kind, service("a", 5)).replace(
        b'"name"', b'"managedFields":%s,"name"' % deep.encode(), 1
    )
    feed = KindFeed(SERVICES)
    [(got, item)], failure = read(feed, [text.strip()])
    assert (got, item.key, failure) == (kind, "shop/a", None)
    assert feed.decode_errors == 0


def test_batches_end_when_their_time_is_over():
    times = iter([0.0, 0.001, 0.002, TURN, TURN, TURN + 0.001, 1.0, 1.0])
    feed = KindFeed(SERVICES)
    lines = [added(f"s{number}", number).strip() for number in range(5)]
    sizes = [len(events) for events in feed.batches(lines, lambda: next(times))]
    assert sizes == [3, 2, 0]


def test_a_batch_before_a_failure_is_handed_on():
    feed = KindFeed(SERVICES)
    batches = feed.batches([added("a", 1).strip(), b"nonsense"], lambda: 0.0)
    assert [item.name for _, item in next(batches)] == ["a"]
    with pytest.raises(KubeApiError):
        next(batches)


def test_a_name_of_any_length_is_cut_in_the_log(caplog):
    feed = KindFeed(SERVICES)
    text = b'{"type":"ADDED","object":{"metadata":{"name":"%b"},"spec":5}}' % (b"x" * 1_000_000)
    assert list(feed.read([text])) == []
    assert "cannot be read" in caplog.text
    assert len(caplog.text) < 5_000


def test_a_line_has_a_limit():
    splitter, part = LineSplitter(), bytes(MAX_LINE // 4)
    for _ in range(4):
        assert splitter.feed(part) == []
    (line,) = splitter.feed(b"\nx")
    assert len(line) == MAX_LINE
    for _ in range(3):
        splitter.feed(part)
    with pytest.raises(KubeApiError, match="watch: a line of more than 67108864 bytes"):
        splitter.feed(part)
