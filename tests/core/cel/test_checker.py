"""Expressions that the checker refuses, and how mistakes are shown."""

import time

import pytest

from app.cel.devices import compile_error


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("foo", "undeclared reference to 'foo' (in container '')"),
        ("device.foo", "undefined field 'foo'"),
        ("foo(1)", "undeclared reference to 'foo' (in container '')"),
        ("1 + 'a' == 2", "found no matching overload for '_+_' applied to '(int, string)'"),
        (
            "device.driver.lowerAscii(1)",
            "found no matching overload for 'lowerAscii' applied to 'string.(int)'",
        ),
        ("1 && true", "expected type 'bool' but found 'int'"),
        ("[1, 'a'].size() == 2", "expected type 'int' but found 'string'"),
        ("{'a': 1, 'b': 'c'}.size() == 2", "expected type 'int' but found 'string'"),
        ("'a'.b", "type 'string' does not support field selection"),
        ("1.all(x, x)", "cannot be range of a comprehension (must be list, map, or dynamic)"),
        ("'a'.matches('(')", "invalid matches argument"),
        ("int('x') == 1", "program instantiation failed: type conversion error"),
        ("device", "must evaluate to bool or the unknown type, not kubernetes.DRADevice"),
        ("1", "must evaluate to bool or the unknown type, not int"),
        ("dyn(true)", "must evaluate to bool or the unknown type, not dyn"),
        ("timestamp(0) > timestamp('x')", "function 'timestamp' is not supported by"),
        ("'%s'.format([1]) == '1'", "function 'format' is not supported by"),
        ("format.uuid().validate('a').hasValue()", "function 'format' is not supported by"),
        (
            "url('http://a') == url('http://b')",
            "function 'url' is not supported by aiokube-scheduler",
        ),
    ],
)
def test_it_cannot_be_compiled(expression: str, text: str) -> None:
    assert text in (compile_error(expression) or "")


def test_mistakes_are_shown_where_they_are() -> None:
    assert compile_error('device.driver ==\n  "ä" + absent && nothing') == (
        "compilation failed: ERROR: <input>:2:9: undeclared reference to 'absent' (in container '')\n"
        ' |   "ä" + absent && nothing\n'
        " | ...\uff0e....^\n"
        "ERROR: <input>:2:19: undeclared reference to 'nothing' (in container '')\n"
        ' |   "ä" + absent && nothing\n'
        " | ...\uff0e..............^"
    )


@pytest.mark.parametrize(
    ("opening", "closing"),
    [("[", "]"), ("{1: ", "}"), ("optional.of(", ")"), ("[1].map(x, ", ")")],
)
def test_types_of_any_depth_are_found_in_little_time(opening, closing):
    """Each level's type contains those of all others."""
    started = time.process_time()
    error = compile_error(opening * 120 + "1" + closing * 120)
    assert time.process_time() - started < 0.2
    assert error is not None
    assert error.startswith("must evaluate to bool")
