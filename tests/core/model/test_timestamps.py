"""RFC 3339 timestamps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.model.timestamps import format_micro_time, format_time, parse_time


@pytest.mark.parametrize(
    ("seconds", "time", "micro_time"),
    [
        (0, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000Z"),
        (1_700_000_000.25, "2023-11-14T22:13:20Z", "2023-11-14T22:13:20.250000Z"),
        (1.9999999, "1970-01-01T00:00:01Z", "1970-01-01T00:00:02.000000Z"),
    ],
)
def test_format(seconds: float, time: str, micro_time: str) -> None:
    assert format_time(seconds) == time
    assert format_micro_time(seconds) == micro_time


@pytest.mark.parametrize(
    "text",
    [
        "2023-11-14T22:13:20Z",
        "2023-11-14T23:13:20+01:00",
        "2023-11-14T22:13:20.000000Z",
        "2023-11-14T22:13:20",
    ],
)
def test_parse(text: str) -> None:
    assert parse_time(text) == 1_700_000_000


@pytest.mark.parametrize("text", ["", "yesterday", "2023-13-14T22:13:20Z"])
def test_what_is_no_timestamp_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_time(text)


@given(st.integers(0, 4 * 10**9))
def test_whole_seconds_read_back(second: int) -> None:
    assert parse_time(format_time(second)) == second
    assert parse_time(format_micro_time(second)) == second
