"""Text as Go writes it."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.model.gotext import quote


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
