"""The cost of expressions, and the limit."""

import time

import pytest

from app.cel.errors import EvaluationAborted
from tests.core.cel.expressions import cost, run


@pytest.mark.parametrize(
    ("expression", "units"),
    [
        ("true", 0),
        ("device.allowMultipleAllocations || true", 2),
        ('device.attributes["gpu.example.com"].family == "Volta"', 5),
        ('has(device.attributes["gpu.example.com"].family)', 3),
        ("device.driver in ['a', 'b']", 2),
        ("device.driver in [device.driver]", 15),
        ("device.driver.contains('x')", 4),
        ("[1, 2].all(x, x > 0)", 11),
        ("quantity('1Gi').isGreaterThan(quantity('1Ki'))", 3),
    ],
)
def test_cost(expression: str, units: int) -> None:
    assert cost(expression) == units


@pytest.mark.parametrize(
    "expression",
    [
        "lists.range(2000).all(x, lists.range(2000).all(y, x + y >= 0))",
        "lists.range(100000000).size() > 0",
        "cel.bind(s, 'aaaaaaaaaa'.replace('', 'bbbbbbbbbb'), "
        "cel.bind(t, s.replace('', s), t.replace('', t).replace('', t))).size() > 0",
        "lists.range(3000).distinct().size() > 0 || true",
        "lists.range(900000).sort().size() == 1",
        "cel.bind(a, lists.range(90000), [a, a, a, a, a, a, a, a, a, a, a, a].flatten().size() > 0)",
    ],
)
def test_what_costs_too_much_is_given_up(expression: str) -> None:
    with pytest.raises(EvaluationAborted, match="actual cost limit exceeded"):
        run(expression)


@pytest.mark.parametrize(
    "loop",
    [
        "lists.range(1500).all(x, cidr('10.0.0.0/8').containsIP(ip('10.0.0.1')))",
        "lists.range(1500).all(x, semver('1.2.' + string(x)).isGreaterThan(semver('1.0.0')))",
        "lists.range(1500).all(x, ('a' + string(x)).startsWith('a'))",
        "cel.bind(a, lists.range(9000), lists.range(30).all(x, a == a))",
    ],
)
def test_what_is_allowed_takes_less_than_20_ms(loop: str) -> None:
    seconds = []
    for _ in range(3):
        started = time.thread_time()
        with pytest.raises(EvaluationAborted):
            run(loop)
        seconds.append(time.thread_time() - started)
    assert min(seconds) < 0.060  # measured: 0.015 at most; compiling and a slow machine included


def test_patterns_cannot_take_long() -> None:
    text = "a" * 5000
    assert not run(f"'{text}'.matches('(a|aa)+$b')")
