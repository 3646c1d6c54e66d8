"""Integers in selectors."""

import time

import pytest

from app.model.selectors import parse_int64


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-0", 0),
        ("+7", 7),
        ("007", 7),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None),
        ("-9223372036854775808", -(2**63)),
        ("-9223372036854775809", None),
        ("0" * 1_000_000 + "5", 5),
        ("-" + "0" * 1_000_000, 0),
        ("9" * 1_000_000, None),
        ("0" * 1_000_000 + "x", None),
        ("", None),
        ("-", None),
        ("1_0", None),
        (" 1", None),
        ("1\n", None),
        ("\u0661", None),
    ],
    ids=lambda value: ascii(value)[:24],
)
def test_integers_are_read_as_parse_int_reads_them(text, number):
    started = time.process_time()
    assert parse_int64(text) == number
    assert time.process_time() - started < 0.5
