"""Answers read as they come: what they mean does not depend on how they are cut, and no step is long."""

import contextlib
import gc
import json
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.wire import extender_v1, go_json, go_json_stream
from app.wire.extender_v1 import FILTER_BY_NAME, FILTER_WHOLE, PREEMPT, PRIORITIZE
from app.wire.go_json import GoJSONError, ListOf, MapOf, StructOf
from app.wire.go_json_stream import MAX_FIELDS, MAX_KEPT, MAX_MEMBER, Stream

TYPES = [extender_v1._FILTER, extender_v1._SCORES, extender_v1._PREEMPTION, extender_v1._BINDING]

TEXT = st.text('ab{}[]",:\\é\n\ud83d ', max_size=5)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.just(1.5) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(["a", "b", "items"])
NODE = st.none() | st.fixed_dictionaries(
    {}, optional={"metadata": st.none() | st.dictionaries(st.sampled_from(["name", "a"]), TEXT)}
)
SCORE = st.fixed_dictionaries({"Host": TEXT, "Score": st.integers(-9, 9)}, optional={"A": ANYTHING})
POD = st.fixed_dictionaries({"UID": TEXT})
FIELDS = {
    "Nodes": st.none() | st.fixed_dictionaries({"items": st.none() | st.lists(NODE, max_size=4)}),
    "nodenames": st.none() | st.lists(TEXT, max_size=5),
    "FailedNodes": st.none() | st.dictionaries(NAMES, TEXT, max_size=4),
    "Error": st.none() | TEXT,
    "NodeNameToMetaVictims": st.dictionaries(
        NAMES, st.none() | st.fixed_dictionaries({"Pods": st.lists(POD)}), max_size=3
    ),
}
RIGHT = st.lists(SCORE, max_size=5) | st.fixed_dictionaries({}, optional=FIELDS)
ANSWERS = (
    RIGHT
    | st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, ANYTHING))
    | st.fixed_dictionaries({}, optional={**FIELDS, "other": ANYTHING})
    | ANYTHING
)


@st.composite
def texts(draw, answers):
    """JSON, spelled in several ways, with blanks around it and perhaps something behind it."""
    separators = draw(st.sampled_from([(",", ":"), (" , ", "\t: "), (",\n", ":")]))
    text = json.dumps(draw(answers), ensure_ascii=draw(st.booleans()), separators=separators)
    before, behind = (draw(st.sampled_from(blanks)) for blanks in ((b"", b" \n"), (b"", b" 7")))
    return before + text.encode("utf-8", "surrogatepass") + behind


@st.composite
def broken_texts(draw):
    """The same with a byte too many, or one missing."""
    text = draw(texts(RIGHT))
    at = draw(st.integers(0, len(text)))
    extra = draw(st.sampled_from([b"", b",", b'"', b"]", b"}", b"{", b"[", b"x", b"\\"]))
    return text[:at] + extra + text[at + (not extra) :]


def streamed(text, into, size=1000, most=10**6):
    stream = Stream(into, most=most)
    for start in range(0, len(text), size):
        for _ in stream.feed(text[start : start + size]):
            pass
        if stream.done:
            break
    return stream.finish()


def outcome(read, *arguments, **more):
    try:
        return read(*arguments, **more)
    except GoJSONError:
        return "refused"


@contextlib.contextmanager
def windows_of(size):
    before, go_json_stream.WINDOW = go_json_stream.WINDOW, size
    yield
    go_json_stream.WINDOW = before


@settings(max_examples=700)
@given(texts(ANSWERS), st.sampled_from(TYPES), st.integers(1, 12), st.integers(2, 9))
def test_an_answer_means_the_same_however_it_is_cut(text, into, size, window):
    with windows_of(window):
        assert outcome(streamed, text, into, size) == outcome(go_json.unmarshal, text, into)


def known_to(into):
    """The keys of a type and of all inside it, in small letters."""
    names = set()
    if isinstance(into, StructOf):
        for name, inner in into.fields.items():
            names |= {name.lower().encode()} | known_to(inner)
    elif isinstance(into, ListOf | MapOf):
        names |= known_to(into.element)
    elif isinstance(into, extender_v1._NodeName):
        names |= known_to(extender_v1._NODE)
    return names


@settings(max_examples=700)
@given(broken_texts(), st.sampled_from(TYPES), st.integers(1, 12), st.integers(2, 9))
def test_an_answer_is_refused_however_it_is_cut(text, into, size, window):
    """But for what is under a key that the type does not know: that is skipped unread."""
    keys = re.findall(rb'"((?:[^"\\]|\\.)*)"\s*:', text)
    unknown = {key.lower() for key in keys} - known_to(into) - {b"a", b"b"}
    expected = outcome(go_json.unmarshal, text, into)
    with windows_of(window):
        got = outcome(streamed, text, into, size)
    assert got == expected or (unknown and expected == "refused")


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"NodeNames":["a",]}', "invalid character ']' looking for beginning of value"),
        (b'{"NodeNames":[,"a"]}', "invalid character ',' looking for beginning of value"),
        (
            b'{"FailedNodes":{"a":"b",}}',
            "invalid character '}' looking for beginning of object key",
        ),
        (b'{"Error":"a",}', "invalid character '}' looking for beginning of object key string"),
        (b'{"NodeNames":["a"]["b"]}', "invalid character '[' after object key:value pair"),
        (b'{"NodeNames" ["a"]}', "invalid character '[' after object key"),
        (b'{"NodeNames":["a"}', "after"),
        (b'{"NodeNames":["a"', "unexpected EOF"),
        (
            b'{"NodeNames":[1]}',
            "number into Go struct field ExtenderFilterResult.NodeNames of type s",
        ),
        (
            b'{"NodeNames":{}}',
            "cannot unmarshal object into Go struct field ExtenderFilterResult.NodeN",
        ),
        (b"[]", "cannot unmarshal array into Go value of type v1.ExtenderFilterResult"),
        (b"x{}", "invalid character 'x' looking for beginning of value"),
        (b'{"x":' + b"[" * 10_001, "exceeded max depth"),
    ],
)
def test_what_is_wrong_is_said_in_gos_words(body, said, size):
    with pytest.raises(GoJSONError) as caught:
        streamed(body, extender_v1._FILTER, size)
    assert said in str(caught.value)


MANY = 4_000_000
FILTER = extender_v1._FILTER
HOSTILE = {
    "names": (FILTER, b'{"NodeNames":[' + b'"x",' * MANY),
    "no names": (FILTER, b'{"NodeNames":[' + b"," * MANY),
    "a long name": (FILTER, b'{"NodeNames":["' + b"x" * MANY),
    "long names": (FILTER, b'{"NodeNames":[' + b'"%b",' % (b"x" * 1_000_000) * 20),
    "failed nodes": (
        FILTER,
        b'{"FailedNodes":{' + b",".join(b'"%d":""' % i for i in range(400_000)),
    ),
    "the same failed node": (FILTER, b'{"FailedNodes":{' + b'"x":"",' * MANY),
    "empty nodes": (FILTER, b'{"Nodes":{"items":[' + b"{}," * MANY),
    "a huge node": (FILTER, b'{"Nodes":{"items":[{"x":[' + b"[]," * MANY),
    "huge nodes": (
        FILTER,
        b'{"Nodes":{"items":[' + (b'{"x":[' + b"[]," * 600_000 + b"[]]},") * 4,
    ),
    "scores": (extender_v1._SCORES, b"[" + b'{"Host":"x","Score":1},' * MANY),
    "unusual scores": (extender_v1._SCORES, b"[" + b'{"HOST":"x"},' * MANY),
    "victims": (
        extender_v1._PREEMPTION,
        b'{"NodeNameToMetaVictims":{' + b'"x":{"Pods":[]},' * MANY,
    ),
    "fields": (FILTER, b"{" + b'"x":1,' * MANY),
    "equal fields": (FILTER, b"{" + b'"Nodes":{},' * MANY),
    "a long error": (FILTER, b'{"Error":"' + b'\\"' * MANY),
    "a long key": (FILTER, b'{"' + b"x" * MANY),
    "depth": (FILTER, b'{"x":' + b"[" * MANY),
    "depth in a node": (FILTER, b'{"Nodes":{"items":[{"x":' + b'{"a":' * MANY),
    "what nobody knows": (FILTER, b'{"x":[' + b'[],"",{},' * MANY),
    "blanks": (FILTER, b" " * 4 * MANY),
    "no JSON": (FILTER, b"\x00\xff" * MANY),
}


@pytest.fixture
def no_collection():
    """The collector would look at all that the tests have left; a scheduler sets aside what it has when it starts."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("name", HOSTILE)
def test_no_step_is_long_and_little_is_kept(name):
    """Processor time of this thread: 20 ms are what an answer may take of the event loop's."""
    into, text = HOSTILE[name]
    stream = Stream(into, most=11_000)
    longest = 0.0
    ended = "unexpected EOF"
    started = time.thread_time()
    try:
        for start in range(0, len(text), 1 << 20):
            steps = stream.feed(text[start : start + (1 << 20)])
            begun = time.thread_time()
            for _ in steps:
                longest = max(longest, time.thread_time() - begun)
                begun = time.thread_time()
        stream.finish()
    except GoJSONError as err:
        longest = max(longest, time.thread_time() - begun)
        ended = str(err)
    assert longest < 0.02
    assert time.thread_time() - started < 3
    assert len(ended) < 300


@pytest.mark.parametrize(
    ("text", "most", "said"),
    [
        (b'{"NodeNames":["a","a","a"]}', 2, "the answer has more than 2 entries in one list"),
        (b'{"FailedNodes":{"a":"","b":"","c":""}}', 2, "more than 2 entries in one list"),
        (
            b'{"Error":"%b"}' % (b"x" * 2 * MAX_MEMBER),
            9,
            f"a value of more than {MAX_MEMBER} bytes",
        ),
        (
            b'{"NodeNames":[%b]}'
            % b",".join([b'"%b"' % (b"x" * 60_000)] * (MAX_KEPT // 60_000 + 1)),
            10**6,
            f"more than {MAX_KEPT} bytes of names and reasons",
        ),
        (b"{" + b'"x":1,' * MAX_FIELDS + b'"x":1}', 9, f"more than {MAX_FIELDS} fields"),
    ],
)
def test_limits(text, most, said):
    with pytest.raises(GoJSONError) as caught:
        streamed(text, FILTER, 50_000, most)
    assert said in str(caught.value)


def test_as_many_entries_as_allowed():
    assert streamed(b'{"NodeNames":["a","a"]}', FILTER, most=2) == {"NodeNames": ["a", "a"]}


def test_whole_nodes_are_read_fast_and_only_their_names_are_kept(monkeypatch):
    monkeypatch.setattr(extender_v1._NodeName, "read", None)
    node = b'{"metadata":{"name":"n%d"},"spec":{"x":["}",{"y":"\\\\\\"]"}]}}'
    nodes = b",".join(node % number for number in range(5000))
    got = streamed(b'{"Nodes":{"items":[' + nodes + b"]}}", FILTER, 100_000)
    assert got == {"Nodes": {"items": [f"n{number}" for number in range(5000)]}}


# ---------------------------------------------------------------- small and large alike

LARGE = b" " * extender_v1.SLOWLY


@pytest.mark.parametrize("pad", [b"", LARGE])
def test_an_unusual_answer_is_read_in_steps_when_it_is_large(pad):
    body = b'{"NODENAMES":["a","b"],%b"Nodes":{"items":[{"metadata":{"name":"c"}},{}]}}' % pad
    steps = list(FILTER_BY_NAME.steps(body, None))
    assert bool(steps) is bool(pad)
    answer = FILTER_BY_NAME.at_once(body)
    assert (answer.node_names, answer.nodes) == (["a", "b"], ["c", ""])
    scores = b'[{"HOST":"a","SCORE":1},%b{"Host":null}]' % pad
    assert PRIORITIZE.at_once(scores) == (["a", ""], [1, 0])
    victims = b'{"NodeNameToMetaVictims":{"a":{"PODS":[{"uid":"x"}]},%b"b":{"Pods":[]}}}' % pad
    agreed = PREEMPT.at_once(victims)
    assert {name: meta.uids for name, meta in agreed.items()} == {"a": ("x",), "b": ()}


@pytest.mark.parametrize(
    "keys", ["Nodes NodeNames FailedNodes Error", "nodes nodenames failedNodes error"]
)
def test_a_large_answer_with_whole_nodes_is_read_in_one_go(monkeypatch, keys):
    monkeypatch.setattr(extender_v1, "Stream", None)
    nodes, names, failed, error = keys.split()
    items = [{"metadata": {"name": f"n{n}"}, "x": "y" * 1000} for n in range(2000)]
    answer = {nodes: {"items": items}, names: ["a"], failed: {"b": "no"}, error: ""}
    got = FILTER_WHOLE.at_once(json.dumps(answer).encode())
    assert got.nodes == [f"n{n}" for n in range(2000)]
    assert (got.node_names, got.failed) == (["a"], {"b": "no"})
