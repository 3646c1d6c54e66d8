"""Text as Go reads and writes it."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.model.gotext import Duration, DurationError, quote

NANOSECONDS = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("", '""'),
        ("plain text", '"plain text"'),
        ('say "hi"', r'"say \"hi\""'),
        ("a\\b", r'"a\\b"'),
        ("\a\b\f\n\r\t\v", r'"\a\b\f\n\r\t\v"'),
        ("\x00\x1b\x7f", r'"\x00\x1b\x7f"'),
        ("ä日🙂", '"ä日🙂"'),
        ("\u00a0\u200b\u2028", r'"\u00a0\u200b\u2028"'),
        ("\U000e0001", r'"\U000e0001"'),
    ],
)
def test_quote(text: str, quoted: str) -> None:
    assert quote(text) == quoted


@given(st.text())
def test_quoted_text_is_one_line_that_reads_back(text: str) -> None:
    quoted = quote(text)
    assert quoted.isprintable()
    assert ast.literal_eval(quoted) == text  # these escapes mean the same in Python


# ---------------------------------------------------------------- durations


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("+0", 0),
        ("-0", 0),
        ("0s", 0),
        ("15s", 15_000_000_000),
        ("+5m", 300_000_000_000),
        ("5m0s", 300_000_000_000),
        ("300000s", 300_000_000_000_000),
        ("1h15m30.918273645s", 4_530_918_273_645),
        ("-1.5h", -5_400_000_000_000),
        (".5s", 500_000_000),
        ("1.s", 1_000_000_000),
        ("1ns", 1),
        ("1us", 1_000),
        ("1µs", 1_000),
        ("1μs", 1_000),
        ("1ms", 1_000_000),
        ("1s1s", 2_000_000_000),
        ("0.9ns", 0),
        ("-9223372036854775808ns", -(2**63)),
    ],
)
def test_go_notation_is_read(text, nanoseconds):
    assert Duration.parse(text) == Duration(nanoseconds)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'time: invalid duration ""'),
        ("-", 'time: invalid duration "-"'),
        ("s", 'time: invalid duration "s"'),
        (".s", 'time: invalid duration ".s"'),
        ("--1s", 'time: invalid duration "--1s"'),
        ("-+1s", 'time: invalid duration "-+1s"'),
        ("9223372036854775808ns", 'time: invalid duration "9223372036854775808ns"'),
        ("9999999h", 'time: invalid duration "9999999h"'),
        ("5", 'time: missing unit in duration "5"'),
        ("1.5", 'time: missing unit in duration "1.5"'),
        ("5d", 'time: unknown unit "d" in duration "5d"'),
        ("5 s", 'time: unknown unit " s" in duration "5 s"'),
        ('5"', 'time: unknown unit "\\"" in duration "5\\""'),
    ],
)
def test_anything_else_is_refused_in_go_words(text, message):
    with pytest.raises(DurationError) as caught:
        Duration.parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_100, "1.1µs"),
        (2_200_000, "2.2ms"),
        (3_300_000_000, "3.3s"),
        (15_000_000_000, "15s"),
        (600_000_000_000, "10m0s"),
        (3_600_000_000_000, "1h0m0s"),
        (245_000_000_000, "4m5s"),
        (245_001_000_000, "4m5.001s"),
        (18_367_001_000_000, "5h6m7.001s"),
        (-1_500_000_000, "-1.5s"),
        (2**63 - 1, "2562047h47m16.854775807s"),
        (-(2**63), "-2562047h47m16.854775808s"),
    ],
)
def test_go_notation_is_written(nanoseconds, text):
    assert str(Duration(nanoseconds)) == text


@given(NANOSECONDS)
def test_what_is_written_is_read_again(nanoseconds):
    duration = Duration(nanoseconds)
    assert Duration.parse(str(duration)) == duration


def parsed(text):
    try:
        return Duration.parse(text)
    except DurationError:
        return None


@given(st.text(alphabet="0123456789.-+nuµmsh "))
def test_reading_never_fails_in_another_way(text):
    duration = parsed(text)
    assert duration is None or Duration.parse(str(duration)) == duration


@given(NANOSECONDS, NANOSECONDS)
def test_order_is_that_of_the_length(left, right):
    assert (Duration(left) < Duration(right)) == (left < right)


def test_seconds():
    assert Duration.of(1.5) == Duration(1_500_000_000)
    assert Duration.parse("90s").seconds == 90.0
    assert not Duration(0)
    assert Duration(-1)
