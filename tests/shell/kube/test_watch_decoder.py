"""Chunks to lines to events. No event loop."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.kube.errors import Gone
from app.kube.watch_decoder import Feed, LineSplitter
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
    splitter, feed, events = LineSplitter(), Feed(SERVICES), []
    for start in range(0, len(stream), size):
        read, failure = feed.read(splitter.feed(stream[start : start + size]))
        assert failure is None
        events += read
    assert [kind for kind, _ in events] == ["ADDED", "MODIFIED", "BOOKMARK", "DELETED"]
    assert feed.resource_version == "4"


def test_a_bookmark_moves_on():
    feed = Feed(SERVICES)
    feed.read([added("a", 5).strip(), bookmark(17).strip()])
    assert feed.resource_version == "17"


def test_an_error_line_ends_the_reading_but_not_what_came_before():
    feed = Feed(SERVICES)
    events, failure = feed.read([added("a", 5).strip(), error_line(410).strip(), added("b", 6)])
    assert [item.name for _, item in events] == ["a"]
    assert isinstance(failure, Gone)
    assert failure.reason == "Expired"
    assert feed.resource_version == "5"


def broken(kind, name, version):
    return line(kind, service(name, version, spec={"selector": ["not", "a", "map"]})).strip()


def test_an_unreadable_object_costs_itself_only(caplog):
    feed = Feed(SERVICES)
    events, failure = feed.read(
        [added("a", 1).strip(), broken("ADDED", "b", 2), modified("c", 3).strip()]
    )
    assert failure is None
    assert [item.name for _, item in events] == ["a", "c"]
    assert feed.decode_errors == 1
    assert feed.unreadable == {"shop/b"}
    assert "shop/b" in caplog.text


def test_an_unreadable_object_is_logged_once_and_counted_always(caplog):
    feed = Feed(SERVICES)
    for version in range(5):
        feed.read([broken("MODIFIED", "b", version)])
    assert feed.decode_errors == 5
    assert len(caplog.records) == 1
    assert feed.resource_version == "4", "what cannot be read is not asked for again"


def test_an_unreadable_object_can_still_go():
    feed = Feed(SERVICES)
    feed.read([broken("ADDED", "b", 1)])
    events, _ = feed.read([broken("DELETED", "b", 2)])
    assert [(kind, item.key, item.uid) for kind, item in events] == [("DELETED", "shop/b", "uid-b")]
    assert feed.unreadable == set()


def test_an_object_that_becomes_readable_is_no_longer_unreadable():
    feed = Feed(SERVICES)
    feed.read([broken("ADDED", "b", 1)])
    feed.read([modified("b", 2).strip()])
    assert feed.unreadable == set()


@pytest.mark.parametrize("text", [b"nonsense", b"{}", json.dumps([1]).encode()])
def test_a_line_that_is_no_event_is_skipped(text, caplog):
    feed = Feed(SERVICES)
    assert feed.read([text]) == ([], None)
    assert feed.decode_errors == 1
