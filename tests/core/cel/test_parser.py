"""Expressions that the parser refuses, and arbitrary text."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cel.devices import compile_error
from app.cel.errors import EvaluationAborted, EvaluationError
from tests.core.cel.expressions import run


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("[1].all(1, true)", "argument must be a simple name"),
        ("has(device)", "invalid argument to has() macro"),
        ("(1", "Syntax error"),
        ("'a", "Syntax error: token recognition error"),
        ("for", "reserved identifier: for"),
        ("b'a' == b'b'", "bytes are not supported by"),
        (f"{'(' * 300}true{')' * 300}", "expression recursion limit exceeded: 250"),
    ],
)
def test_it_cannot_be_parsed(expression: str, text: str) -> None:
    assert text in (compile_error(expression) or "")


def test_nothing_is_no_expression() -> None:
    assert (compile_error("") or "").startswith(
        "compilation failed: ERROR: <input>:1:0: Syntax error: mismatched input '<EOF>' expecting"
    )


@given(st.text(max_size=40))
def test_any_text_compiles_or_says_why_not(text: str) -> None:
    assert compile_error(text) != ""


_PIECES = [
    "device",
    ".",
    "driver",
    "(",
    ")",
    "[",
    "]",
    "1",
    "'a'",
    "==",
    "&&",
    "?",
    ":",
    "x",
    "all",
    ",",
    "{",
    "}",
    "-",
]


@given(st.lists(st.sampled_from(_PIECES), max_size=12))
def test_any_pieces_compile_or_say_why_not(pieces: list[str]) -> None:
    text = " ".join(pieces)
    if compile_error(text) is None:
        with contextlib.suppress(EvaluationError, EvaluationAborted):
            assert run(text) in {True, False}
