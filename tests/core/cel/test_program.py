"""Results and errors of expressions, by the language's specification (cel-spec) and Kubernetes' functions
(KEP-2876).
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cel.errors import EvaluationAborted, EvaluationError
from tests.core.cel.expressions import run


@pytest.mark.parametrize(
    "expression",
    [
        # devices
        'device.driver == "gpu.example.com"',
        'device.attributes["gpu.example.com"].family == "Volta"',
        'device.attributes["gpu.example.com"].shared',
        'device.attributes["gpu.example.com"].index + 1 == 4',
        'device.attributes["gpu.example.com"].version.isGreaterThan(semver("1.2.3-alpha"))',
        'device.attributes["gpu.example.com"].version.isLessThan(semver("1.2.3"))',
        'device.capacity["gpu.example.com"].memory.compareTo(quantity("16Gi")) == 0',
        'device.capacity["other.io"].cores == quantity("1.5")',
        "!device.allowMultipleAllocations",
        '"gpu.example.com" in device.attributes && !("nowhere.io" in device.attributes)',
        '"family" in device.attributes["gpu.example.com"]',
        # a domain that the device has nothing of is empty
        'device.attributes["nowhere.io"].size() == 0',
        'has(device.attributes.nowhere) && device.attributes["nowhere"] == {}',
        '!has(device.attributes["nowhere.io"].name)',
        'device.attributes["nowhere.io"].?name.orValue("none") == "none"',
        'device.attributes[?"nowhere.io"].hasValue()',
        'cel.bind(it, device.attributes["gpu.example.com"], it.family == "Volta" && it.index < 5)',
        'device.attributes["gpu.example.com"].exists(name, name == "index")',
        'device.attributes["gpu.example.com"].exists(name, value, value == "Volta")',
        # logic makes up for errors, in any order
        "1 / 0 == 1 || true",
        "true || 1 / 0 == 1",
        "!(1 / 0 == 1 && false)",
        "!([0, 1].all(x, 1 / x > 5))",
        "[0, 1].exists(x, 1 / x == 1)",
        # numbers: types differ, values are compared
        "1 == 1 && 1u == 1u && 1.0 == 1.0",
        "dyn(1) == 1.0 && dyn(1u) == 1 && 1 < 1.5 && 2u > 1",
        'dyn(1) != true && dyn("1") != 1',
        "-7 / 2 == -3 && -7 % 2 == -1 && 0x1F == 31",
        "1.0 / 0.0 > 1e308 && -1.0 / 0.0 < -1e308",
        "double('NaN') != double('NaN')",
        "int('-5') == -5 && uint(3) == 3u && int(2.9) == 2 && double(3) == 3.0",
        "9007199254740993 == dyn(9007199254740992.0)",
        "18446744073709551615u >= double(18446744073709551615u)",
        # text
        "'a' + 'b' == \"ab\" && '''c''' == 'c' && r'\\d' == '\\\\d' && '\\u00e4\\x41\\101' == 'äAA'",
        "size('häß') == 3 && 'häß'.size() == 3",
        "'a' < 'b' && !('B' > 'a') && false < true",
        "'Ab'.lowerAscii() == 'ab' && 'äb'.upperAscii() == 'äB' && ' x\\n'.trim() == 'x'",
        "'a,b,c'.split(',') == ['a', 'b', 'c'] && 'a,b,c'.split(',', 2) == ['a', 'b,c']",
        "'abc'.split('') == ['a', 'b', 'c'] && 'abc'.split('', 2) == ['a', 'bc']",
        "['a', 'b'].join('-') == 'a-b' && 'abc'.replace('b', '') == 'ac'",
        "'abcabc'.indexOf('c') == 2 && 'abcabc'.lastIndexOf('c') == 5 && 'abc'.indexOf('x') == -1",
        "'abc'.substring(1) == 'bc' && 'abc'.substring(0, 1) == 'a' && 'abc'.charAt(3) == ''",
        "'abc'.matches('^a.c$') && 'xabc'.matches('b') && 'abab'.findAll('a|b', 3).size() == 3",
        "'abc'.find('[bc]+') == 'bc' && 'abc'.find('x') == ''",
        "'aab'.findAll('a*') == ['aa', '']",
        "string(1e6) == '1e+06' && string(100000.0) == '100000'",
        # lists, sets, maps
        "[1, 2] + [3] == [1, 2, 3] && 2 in [1, 2] && !(5 in [1, 2]) && [1, 2][1] == 2",
        "[3, 1, 2].sort() == [1, 2, 3] && [3, 1, 2].sortBy(x, -x) == [3, 2, 1]",
        "[1, 2, 3].slice(1, 3) == [2, 3] && [[1], [2, 3]].flatten() == [1, 2, 3]",
        "lists.range(3).reverse() == [2, 1, 0] && [1, 2, 1].distinct() == [1, 2]",
        "[1, 2].sum() == 3 && [1, 2].max() == 2 && ['b', 'a'].min() == 'a' && [1, 2].isSorted()",
        "[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2",
        "[1].first().value() == 1 && ![].last().hasValue()",
        "sets.contains([1, 2], [1]) && sets.equivalent([1, 2, 1], [2, 1]) && sets.intersects([1], [1])",
        "{'a': 1} == {'a': 1} && {'a': 1}.a == 1 && {'a': 1}['a'] == 1 && 'a' in {'a': 1}",
        "{1: 'x'}[1] == 'x' && {true: 1}[true] == 1 && !([1] in {[1]: 2})",
        "[double('NaN'), 1.0].isSorted() && [2.0, double('NaN')].max() == 2.0",
        "[1, 2, 3].map(x, x * 2) == [2, 4, 6] && [1, 2, 3].map(x, x > 1, x * 2) == [4, 6]",
        "[1, 2, 3].filter(x, x > 1) == [2, 3] && [1, 2].exists_one(x, x > 1)",
        "[5, 6].transformList(i, v, i + v) == [5, 7] && [5, 6].all(i, v, v == i + 5)",
        "{'a': 1}.transformMap(k, v, v + 1) == {'a': 2}",
        "{'a': 1}.transformMapEntry(k, v, {v: k}) == {1: 'a'}",
        # optional values
        "optional.of(1).value() == 1 && !optional.none().hasValue()",
        "{'a': {'b': 1}}.?a.?b == optional.of(1) && {'a': {'b': 1}}.?x.b == optional.none()",
        "[1][?5].orValue(7) == 7 && optional.none().or(optional.of(2)).value() == 2",
        "optional.of(1).optMap(x, x + 1) == optional.of(2)",
        "optional.of({'a': 1}).optFlatMap(m, m.?a) == optional.of(1)",
        "[?optional.none(), 1] == [1] && {?'a': optional.none()} == {}",
        "optional.ofNonZeroValue(0) == optional.none() && optional.unwrap([optional.of(1)]) == [1]",
        # Kubernetes' types
        "isQuantity('1.5Gi') && !isQuantity('1.5G i') && quantity('1k').isInteger()",
        "quantity('1500m').asApproximateFloat() == 1.5 && !quantity('1500m').isInteger()",
        f"!quantity('{'9' * 5000}').isInteger() && isQuantity('1e5000')",
        f"!isQuantity('{'0' * 5000}x') && quantity('{'0' * 5000}1.{'0' * 5000}').compareTo(quantity('1')) == 0",
        "quantity('1Gi').add(quantity('1Gi')) == quantity('2Gi') && quantity('3').sub(1).asInteger() == 2",
        "sign(quantity('-1')) == -1 && quantity('1e3').compareTo(quantity('1k')) == 0",
        "isSemver('1.2.3') && !isSemver('1.2') && isSemver('v1.2', true) && semver('v1', true).major() == 1",
        "semver('1.0.0-2').isLessThan(semver('1.0.0-10')) && semver('1.0.0-9').isLessThan(semver('1.0.0-a'))",
        "semver('1.0.0+a') == semver('1.0.0+b')",
        "ip('10.1.2.3').family() == 4 && isIP('::1') && !isIP('1.2.3') && ip('::1').isLoopback()",
        "cidr('10.0.0.0/8').containsIP(device.attributes['other.io'].address)",
        "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && cidr('10.1.2.3/8').masked().prefixLength() == 8",
        # types
        "type(1) == int && type('') == string && type(quantity('1')) != type(semver('1.0.0'))",
        "true ? true : false",
        "!!true && - 5 < 3",
    ],
)
def test_it_is_true(expression: str) -> None:
    assert run(expression) is True


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ('device.attributes["gpu.example.com"].none == 1', "no such key: none"),
        ('device.capacity["nowhere"].none.isInteger()', "no such key: none"),
        ("[1][3] == 1", "index out of bounds: 3"),
        ("1 / 0 == 1", "division by zero"),
        ("1 % 0 == 1", "modulus by zero"),
        ("9223372036854775807 + 1 > 0", "integer overflow"),
        ("0u - 1u == 0u", "unsigned integer overflow"),
        ('device.attributes["gpu.example.com"].family + 1 == 2', "no such overload"),
        ('device.attributes["gpu.example.com"].shared + 1 == 2', "no such overload: _+_"),
        (
            'device.attributes["gpu.example.com"].index.lowerAscii() == "a"',
            "no such overload: lowerAscii(int)",
        ),
        ("optional.none().value() == 1", "optional.none() dereference"),
        ("(1 > 0 ? null : quantity('1')).isInteger()", "no such overload: isInteger(null_type)"),
        ("null.or(optional.of(1)).value() == 1", "no such overload: value(null_type)"),
        ("quantity('x').isInteger()", "quantities must match the regular expression"),
        ("quantity('1500m').asInteger() == 1", "cannot convert value to integer"),
        ("semver('1.2') == semver('1.2.0')", "No Major.Minor.Patch elements found"),
        ("dyn(5).sort() == [1]", "no such overload: sort"),
        ("[[1]].flatten(dyn('x')) == [1]", "no such overload: flatten(list, string)"),
        ("[].max() == 1", "max called on empty list"),
        ("device.driver.matches(device.driver + '(')", "missing closing ): `gpu.example.com(`"),
        ("ip('1.2.3.4') == dyn(1)", "no such overload"),
        (
            'device.attributes["gpu.example.com"].family',
            "CEL result of type string could not be converted to bool: "
            "unsupported native conversion from string to 'bool'",
        ),
    ],
)
def test_it_has_no_value(expression: str, text: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        run(expression)
    assert text in str(caught.value)


def test_a_version_is_no_key() -> None:
    with pytest.raises(EvaluationAborted, match="unhashable type"):
        run('device.attributes["gpu.example.com"].version in ["1.2.3"] || true')


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_integers_are_divided_towards_zero(one: int, other: int) -> None:
    if other and (one, other) != (-(2**63), -1):
        assert run(f"({one} / {other}) * {other} + {one} % {other} == {one}")
        assert run(f"{one} % {other} == 0 || ({one} % {other} < 0) == ({one} < 0)")


@given(st.lists(st.integers(-5, 5)), st.lists(st.integers(-5, 5)))
def test_lists_add_up(one: list[int], other: list[int]) -> None:
    assert run(
        f"{one} + {other} == {one + other} && ({one} + {other}).sort() == {sorted(one + other)}"
    )
    assert run(f"{one}.filter(x, x in {other}) == {[it for it in one if it in other]}")
