import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.model.quantity import canonical, parse


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
