"""Expressions and what they come to, by the rules of the language (cel-spec) and of Kubernetes' functions (KEP-2876)."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cel.devices import compile_error
from app.cel.errors import EvaluationAborted, EvaluationError
from app.cel.program import Program, view
from app.model.devices import Device, DeviceAttribute, DeviceCapacity

DRIVER = "gpu.example.com"
DEVICE = Device(
    name="gpu-0",
    attributes={
        "family": DeviceAttribute(string="Volta"),
        "index": DeviceAttribute(integer=3),
        "shared": DeviceAttribute(boolean=True),
        "version": DeviceAttribute(version="1.2.3-rc.1"),
        "other.io/address": DeviceAttribute(string="10.1.2.3"),
    },
    capacity={"memory": DeviceCapacity(value="16Gi"), "other.io/cores": DeviceCapacity("1500m")},
)


def run(expression: str, device: Device = DEVICE) -> bool:
    return Program(expression).run(view(DRIVER, device))[0]


def cost(expression: str) -> int:
    return Program(expression).run(view(DRIVER, DEVICE))[1]


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
        ("[1].all(1, true)", "argument must be a simple name"),
        ("has(device)", "invalid argument to has() macro"),
        ("'a'.matches('(')", "invalid matches argument"),
        ("int('x') == 1", "program instantiation failed: type conversion error"),
        ("device", "must evaluate to bool or the unknown type, not kubernetes.DRADevice"),
        ("1", "must evaluate to bool or the unknown type, not int"),
        ("dyn(true)", "must evaluate to bool or the unknown type, not dyn"),
        ("(1", "Syntax error"),
        ("'a", "Syntax error: token recognition error"),
        ("for", "reserved identifier: for"),
        ("timestamp(0) > timestamp('x')", "function 'timestamp' is not supported by"),
        ("'%s'.format([1]) == '1'", "function 'format' is not supported by"),
        ("format.uuid().validate('a').hasValue()", "function 'format' is not supported by"),
        ("b'a' == b'b'", "bytes are not supported by"),
        (
            "url('http://a') == url('http://b')",
            "function 'url' is not supported by aiokube-scheduler",
        ),
        (f"{'(' * 300}true{')' * 300}", "expression recursion limit exceeded: 250"),
    ],
)
def test_it_cannot_be_compiled(expression: str, text: str) -> None:
    assert text in (compile_error(expression) or "")


def test_nothing_is_no_expression() -> None:
    assert (compile_error("") or "").startswith(
        "compilation failed: ERROR: <input>:1:0: Syntax error: mismatched input '<EOF>' expecting"
    )


def test_mistakes_are_shown_where_they_are() -> None:
    assert compile_error('device.driver ==\n  "ä" + nobody && nothing') == (
        "compilation failed: ERROR: <input>:2:9: undeclared reference to 'nobody' (in container '')\n"
        ' |   "ä" + nobody && nothing\n'
        " | ...\uff0e....^\n"
        "ERROR: <input>:2:19: undeclared reference to 'nothing' (in container '')\n"
        ' |   "ä" + nobody && nothing\n'
        " | ...\uff0e..............^"
    )


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


def test_a_version_is_no_key() -> None:
    with pytest.raises(EvaluationAborted, match="unhashable type"):
        run('device.attributes["gpu.example.com"].version in ["1.2.3"] || true')


def test_patterns_cannot_take_long() -> None:
    text = "a" * 5000
    assert not run(f"'{text}'.matches('(a|aa)+$b')")


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
