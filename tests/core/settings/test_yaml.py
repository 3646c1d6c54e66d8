import json
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from app.settings import full_yaml
from app.settings.plain_yaml import YamlError, plain_values
from app.settings.problems import Mark
from app.settings.yaml import load_documents, read_documents

ROOT = Path(__file__).parents[3]


def read(text):
    reading = read_documents(text)
    assert not reading.problems
    (document,) = reading.documents
    return document


def problems(text):
    return [problem.render("f") for problem in read_documents(text).problems]


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("yes", True),
        ("Off", False),
        ("0", 0),
        ("-12", -12),
        ("1_000", 1000),
        ("010", 8),
        ("-010", -8),
        ("0o10", 8),
        ("0x1F", 31),
        ("0b101", 5),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("-1.5E-1", -0.15),
        ("1_0.5", 10.5),
        (".inf", float("inf")),
        ("-.Inf", float("-inf")),
        ("5s", "5s"),
        ("1:30", "1:30"),
        ("2020-01-01", "2020-01-01"),
        ("08", "08"),
        ('"5"', "5"),
        ("'yes'", "yes"),
        ("!!str 5", "5"),
        ("!!int '7'", 7),
    ],
)
def test_scalars_mean_what_they_mean_to_kube_scheduler(scalar, value):
    assert read(f"a: {scalar}").value == {"a": value}
    assert load_documents(f"a: {scalar}") == [{"a": value}]


def test_every_key_and_item_has_its_place():
    document = read("a: 1\nb:\n- x\n- c: 2\n  d: [y, z]\n")
    assert document.value == {"a": 1, "b": ["x", {"c": 2, "d": ["y", "z"]}]}
    assert document.marks == {
        (): Mark(1, 1),
        ("a",): Mark(1, 1),
        ("b",): Mark(2, 1),
        ("b", 0): Mark(3, 3),
        ("b", 1): Mark(4, 3),
        ("b", 1, "c"): Mark(4, 3),
        ("b", 1, "d"): Mark(5, 3),
        ("b", 1, "d", 0): Mark(5, 7),
        ("b", 1, "d", 1): Mark(5, 10),
    }


def test_json_is_read_with_tabs_and_all():
    document = read('{\n\t"a": "b\\tc",\n\t"d": [1, 2.5e1, null, true, "\\/"]\n}')
    assert document.value == {"a": "b\tc", "d": [1, 25.0, None, True, "/"]}
    assert document.marks["d",] == Mark(3, 2)


def test_keys_are_text():
    assert read("1: a\ntrue: b\n").value == {"1": "a", "true": "b"}


def test_several_documents_and_empty_ones():
    reading = read_documents("---\n---\na: 1\n---\n# nothing\n---\nb: 2\n...\n")
    assert [document.value for document in reading.documents] == [{"a": 1}, {"b": 2}]
    assert [document.marks[()].line for document in reading.documents] == [3, 7]


def test_aliases_and_merge_keys():
    document = read("base: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  y: 3\nagain: *b\n")
    assert document.value["use"] == {"x": 1, "y": 3}
    assert document.value["again"] == {"x": 1, "y": 2}
    assert document.marks["use", "y"] == Mark(4, 3)
    assert document.marks["use", "x"] == Mark(1, 11)


def test_of_several_merged_mappings_the_first_wins():
    document = read("a: &a {x: 1}\nb: &b {x: 2, y: 2}\nc: {<<: [*a, *b]}\n")
    assert document.value["c"] == {"x": 1, "y": 2}


def test_duplicate_keys_are_refused_and_the_first_counts():
    reading = read_documents("a: 1\nb: {c: 1, c: 2}\na: 2\n")
    assert reading.documents[0].value == {"a": 1, "b": {"c": 1}}
    assert [problem.render("f") for problem in reading.problems] == [
        'f:2:11: b.c: key "c" already set in map (first in line 2)',
        'f:3:1: a: key "a" already set in map (first in line 1)',
    ]


def test_duplicate_keys_in_json_have_the_text_for_json():
    assert problems('{"a": {"b": 1,\n "b": 2}}') == [
        'f:2:2: a.b: duplicate field "a.b" (first in line 1)'
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "a: [",
            "f:1:5: yaml: while parsing a flow node expected the node content, but found '<stream end>'",
        ),
        ("a: b: c", "f:1:5: yaml: mapping values are not allowed here"),
        (
            "a:\n\tb: 1",
            "f:2:1: yaml: while scanning for the next token found character '\\t' that cannot start any token",
        ),
        ("a: 1\nb: \x07", "f:2:4: yaml: character 7 is not allowed"),
        ("a: !thing b", "f:1:4: a: yaml: tag !thing is not read here"),
        ("a: !!binary aGk=", "f:1:4: a: yaml: tag !!binary is not read here"),
        ("a: !!set {b}", "f:1:4: a: yaml: tag !!set is not read here"),
        ("a: !!int b", 'f:1:4: a: yaml: cannot read "b" as !!int'),
        ("a: !!bool b", 'f:1:4: a: yaml: cannot read "b" as !!bool'),
        ("? [a]\n: b", "f:1:3: yaml: a key must be a plain text"),
        ("a: &a [*a]", "f:1:4: a[0]: yaml: an alias may not contain itself"),
        ("a: {<<: 5}", "f:1:9: a: yaml: << takes a mapping or a list of mappings"),
        ("a: *b", "f:1:4: yaml: found undefined alias 'b'"),
        ("[" * 600, "f: yaml: nested too deeply"),
    ],
)
def test_what_is_no_yaml_is_a_problem_with_a_place(text, problem):
    assert problems(text) == [problem]


def test_a_file_that_is_too_large_is_refused_before_it_is_read_to_its_end():
    text = "".join(f"- {{urlPrefix: http://a{n}, filterVerb: f}}\n" for n in range(200_000))
    started = time.process_time()
    assert problems(text) == ["f: yaml: more than 100000 values"]
    assert time.process_time() - started < 60


def test_merging_leaves_the_places_of_what_is_there():
    document = read("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n")
    assert document.value["b"] == {"x": 1, "y": 3}
    assert document.marks["b", "y"] == Mark(2, 13)
    assert document.marks["b", "x"] == Mark(1, 8)


def test_merging_takes_no_longer_the_more_there_is_in_the_file():
    text = "a: &a {x: 1}\n" + "".join(f"k{n}: {{<<: *a, y: 3}}\n" for n in range(10_000))
    started = time.process_time()
    assert len(read(text).value) == 10_001
    assert time.process_time() - started < 30


def test_aliases_of_aliases_end_somewhere():
    levels = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 8)]
    text = "\n".join(["l0: &l0 x", *levels])
    assert problems(text) == ["f: yaml: more than 100000 values: aliases repeat too much"]


def test_what_stands_before_a_syntax_error_is_kept():
    reading = read_documents("a: 1\n---\nb: [")
    assert [document.value for document in reading.documents] == [{"a": 1}]
    assert len(reading.problems) == 1


@pytest.mark.parametrize(
    ("escaped", "meant"),
    [
        pytest.param(r"\ud83d\ude00", "\U0001f600", id="a pair"),
        pytest.param(r"a\udfff\ud800b", "a\ufffd\ufffdb", id="alone"),
    ],
)
def test_escaped_surrogates_are_read_as_in_go(escaped, meant):
    assert read(f'{{"{escaped}": "{escaped}"}}').value == {meant: meant}
    (mistake,) = problems(f'a: !!int "{escaped}"')
    assert meant in mistake
    assert mistake.encode()


def doubled(leaf, pattern, levels=40):
    """Each level refers to the one before twice, as ``pattern`` says."""
    lines = [f"x0: &x0 {leaf}"]
    for level in range(levels):
        inner = pattern.replace("*", f"*x{level}")
        lines.append(f"x{level + 1}: &x{level + 1} {inner}")
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(doubled("[1]", "[*, *]"), id="lists"),
        pytest.param(doubled("{a: 1}", "{p: *, q: *}"), id="mappings"),
        pytest.param(doubled("{a: 1}", "{<<: [*, *]}"), id="merges"),
        pytest.param(doubled("{}", "{<<: [*, *]}"), id="merges of nothing"),
        pytest.param(doubled("[1]", "[*]", 3000), id="levels"),
        pytest.param("a: &a [*a]", id="itself"),
    ],
)
def test_aliases_cannot_take_memory_or_time(text):
    started = time.thread_time()
    assert problems(text)
    with pytest.raises(YamlError, match=r"alias|nested too deeply"):
        load_documents(text)
    assert time.thread_time() - started < 10


def test_aliases_that_repeat_little_are_read():
    text = "base: &b {a: 1, b: [2]}\nother: {<<: *b, a: 3}\nsame: *b\n--- \n---\nx: 1"
    first = {"base": {"a": 1, "b": [2]}, "other": {"a": 3, "b": [2]}, "same": {"a": 1, "b": [2]}}
    assert load_documents(text) == load_documents(text.encode()) == [first, {"x": 1}]
    large = f"a: &a 1\nb: *a\nc: [{'v, ' * 110_000}]"
    assert len(load_documents(large)[0]["c"]) == 110_000


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", float(2**64)),
        ("-9223372036854775809", float(-(2**63) - 1)),
    ],
)
def test_long_integers_as_in_go_yaml(scalar, value):
    assert load_documents(f"a: {scalar}") == [{"a": value}]


@pytest.mark.parametrize("scalar", ["9" * 5000, "0x" + "f" * 5000])
def test_integers_of_very_many_digits_are_refused(scalar):
    with pytest.raises(ValueError, match=r"an integer of 500[02] digits"):
        load_documents(f"a: {scalar}")


@pytest.mark.parametrize("tag", ["", "!!int ", "!!float "])
def test_base_60_takes_no_time(tag):
    started = time.thread_time()
    text = ":".join(["59"] * 500_000)
    try:
        assert load_documents(f"a: {tag}{text}") == [{"a": text}]
    except ValueError:
        assert tag
    assert time.thread_time() - started < 5


# ---------------------------------------------------------------- plain texts

_WORDS = st.sampled_from(
    ["a", "b c", "true", "Off", "oN", "null", "~", "1", "-7", "007", "0x1f", "1_0", "1.5", "-.inf", "1e3", "08", "-", "- a", "a:", "a: b",
     "a:b", "x#y", "x #y", "#z", "---", "", "2020-01-01", "https://h:1/p?q", "{}", "[]", "[a]", "{a: b}", "|", ">-", "&a b", "*a", "!t x", "%x",
     "'it'", '"it"', "'#' # c", "it's # c", '"" #', '"a #b"', "1  # c", "'it''s'", '"\\n"', "a, b", "+1", "<<", "=", "é", "a\tb", "9" * 20, "?", "? x", "@x", "x/y=", "$(V)"]
)  # fmt: skip
_LINES = st.lists(
    st.builds(
        lambda indent, dashes, key, value: f"{' ' * indent}{'- ' * dashes}{key}{value}",
        st.sampled_from([0, 0, 0, 2, 2, 1, 4]),
        st.sampled_from([0, 0, 0, 1, 2]),
        st.sampled_from(["", "k: ", "l: ", "m:", "k:  ", "on: ", "1: ", '"q": ', "<<: ", "a b: ", "x.y/z: "]),
        _WORDS,
    )
    | st.sampled_from(["", "---", "# c", "   # c", "...", "--- a", "%YAML 1.1"]),
    max_size=6,
)  # fmt: skip
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _WORDS | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(_WORDS | st.text(), inner),
    max_leaves=12,
)


def agrees(text: str) -> None:
    """Whether a text that counts as plain is read as PyYAML reads it."""
    if (values := plain_values(text)) is None:
        return
    full = full_yaml.read_documents(text)
    assert not full.problems
    read = read_documents(text).documents
    assert repr(values) == repr([each.value for each in full.documents])
    assert repr(values) == repr(full_yaml.load_documents(text))
    assert [(repr(each.value), dict(each.marks)) for each in read] == [
        (repr(each.value), each.marks) for each in full.documents
    ]


@given(_LINES)
def test_lines_that_are_plain_are_read_as_by_pyyaml(lines):
    agrees("\n".join(lines))


@given(_VALUES, st.sampled_from([None, 0, 1, 4]), st.booleans())
def test_what_programs_write_is_read_as_by_pyyaml(value, indent, is_json):
    document = {"a": value}
    agrees(json.dumps(document, indent=indent) if is_json else yaml.safe_dump(document))


@pytest.mark.parametrize(
    "file", sorted((ROOT / "config").glob("*.yaml")), ids=lambda each: each.name
)
def test_the_samples_are_plain(file):
    text = file.read_text()
    assert plain_values(text) is not None
    agrees(text)
