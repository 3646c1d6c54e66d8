import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.model.quantity import (
    BINARY,
    DECIMAL,
    LARGEST,
    NANO,
    QuantityError,
    _remembered,
    canonical,
    parse,
)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("0", "0"),
        ("0Gi", "0"),
        ("1024Mi", "1Gi"),
        ("1023Ki", "1023Ki"),
        ("0.5Gi", "512Mi"),
        ("1.5Ki", "1536"),
        ("0.5Ki", "512"),
        ("1000", "1k"),
        ("0.5", "500m"),
        ("1500m", "1500m"),
        ("1000000n", "1m"),
        ("1e5", "100e3"),
        ("1E3", "1e3"),
        ("-2048", "-2048"),
        ("-2048Ki", "-2Mi"),
        (3, "3"),
        (2.5, "2500m"),
    ],
)
def test_canonical_form(written, kept):
    assert canonical(written) == kept


@given(
    st.integers(-(10**12), 10**12),
    st.sampled_from(["n", "u", "m", "", "k", "M", "Ki", "Mi", "e2", "e-3"]),
)
def test_the_canonical_form_is_the_same_amount_and_stays(number, suffix):
    text = canonical(f"{number}{suffix}")
    assert parse(text) == parse(f"{number}{suffix}")
    assert canonical(text) == text


def _by_fractions(text, suffix):
    """The same by rational numbers."""
    power = Fraction(2) ** BINARY[suffix] if suffix in BINARY else Fraction(10) ** DECIMAL[suffix]
    nanos = Fraction(text) * power * NANO
    most = (2**63 - 1) * NANO if suffix in BINARY else LARGEST
    size = min(most, -(-abs(nanos).numerator // nanos.denominator))
    return size if nanos >= 0 else -size


@given(
    st.from_regex(r"[+-]?[0-9]{1,45}(\.[0-9]{0,50})?", fullmatch=True),
    st.sampled_from([*DECIMAL, *BINARY]),
)
def test_amounts_are_exact(text, suffix):
    assert parse(text + suffix) == _by_fractions(text.rstrip("."), suffix)


@given(st.integers(-(10**30), 10**30), st.integers(-400, 400), st.booleans())
def test_exponents_are_exact_up_to_the_largest_amount(number, exponent, upper):
    nanos = Fraction(number) * Fraction(10) ** (exponent + 9)
    size = min(LARGEST, -(-abs(nanos.numerator) // nanos.denominator))
    assert parse(f"{number}{'E' if upper else 'e'}{exponent}") == (size if number >= 0 else -size)


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("1" * 5000, LARGEST),
        ("-" + "9" * 1_000_000, -LARGEST),
        ("1e5000", LARGEST),
        ("-1e10000000", -LARGEST),
        ("1e999999999999999999", LARGEST),
        ("1e-999999999999999999", 1),
        ("0e999999999999999999", 0),
        ("-1e-10000000", -1),
        ("0" * 1_000_000 + "2", 2 * NANO),
        ("2." + "0" * 1_000_000, 2 * NANO),
        ("2." + "0" * 1_000_000 + "1", 2 * NANO + 1),
        ("0." + "0" * 1_000_000 + "1", 1),
        ("0." + "0" * 5000 + "1e5001", NANO),
        ("1" + "0" * 5000 + "e-5000", NANO),
        ("1" * 1_000_000 + "Ki", (2**63 - 1) * NANO),
        ("0." + "0" * 5000 + "1Ei", 1),
        ("1e" + "0" * 100_000 + "3", 1000 * NANO),
    ],
    ids=lambda value: str(value)[:16],
)
def test_amounts_of_any_length_and_exponent(text, nanos):
    started = time.process_time()
    assert parse(text) == nanos
    assert len(canonical(text)) < 50
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        ".",
        "1.2.3",
        "1K",
        "1e",
        "1e+",
        "1ee3",
        "5-3",
        "1e1000000000000000000",
        "1e" + "9" * 5000,
        "1" * 1_000_000 + "x",
        "0" * 1_000_000 + ".x",
        "1" + "E" * 1_000_000,
        "1." + "1" * 1_000_000 + ".",
        "\u0661",
        "1e\u0661",
        float("inf"),
        float("nan"),
    ],
    ids=lambda value: ascii(value)[:16],
)
def test_what_is_no_quantity(text):
    started = time.process_time()
    with pytest.raises(QuantityError):
        parse(text)
    assert time.process_time() - started < 0.5


def test_long_texts_are_not_remembered():
    before = _remembered.cache_info().currsize
    for number in range(100):
        parse(f"{number}." + "0" * 1000)
    assert _remembered.cache_info().currsize == before
