"""JSON that Go accepts and msgspec does not."""

import json
import re
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.wire import sanitize
from app.wire.kube import NodeDecoder
from app.wire.sanitize import MAX_DEPTH, decode, is_emptied, sanitized

TEXTS = st.text(st.sampled_from('[]{}"\\,:\r\n\u00e9\U0001f600ab'), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=30,
)


def cut(value, depth):
    """Containers with ``depth`` levels, counting their own; deeper ones are empty."""
    if isinstance(value, dict):
        return {key: cut(item, depth - 1) for key, item in value.items()} if depth > 1 else {}
    if isinstance(value, list):
        return [cut(item, depth - 1) for item in value] if depth > 1 else []
    return value


@given(VALUES, st.integers(1, 5), st.booleans())
def test_what_is_nested_deeply_is_empty(value, depth, ascii_only):
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    got = sanitized(text, depth)
    assert json.loads(got) == cut(value, depth)
    assert len(got) == len(text)


@given(VALUES)
def test_ordinary_documents_stay_as_they_are(value):
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert sanitized(text.encode()) == text.encode()


@given(
    st.lists(
        st.sampled_from(
            [r"\ud800", r"\uDBFF", r"\udc00", r"\uDfff", r"\u00e9", r"\\", r"\"", r"\n", "u", "d8"]
        ),
        max_size=12,
    )
)
def test_lone_surrogates_are_replaced_and_pairs_stay(parts):
    text = '{"' + "".join(parts) + '":["' + "".join(parts) + '"]}'
    lone = re.compile("[\ud800-\udfff]")
    wanted = {
        lone.sub("\ufffd", key): [lone.sub("\ufffd", value[0])]
        for key, value in json.loads(text).items()
    }
    assert msgspec.json.decode(sanitized(text.encode())) == wanted


@given(st.binary(max_size=40) | st.text('[]{}"\\u d8', max_size=40).map(str.encode))
def test_any_bytes_can_be_asked_about(body):
    assert len(sanitized(body, 2)) == len(body)


@st.composite
def as_go_passes_it_on(draw, depth=3):
    """JSON by Go's grammar: any byte but control characters in a text, UTF-8 or not, any escape, any number."""
    plain = st.sampled_from([bytes([b]) for b in range(0x20, 0x100) if b not in b'"\\'])
    escape = st.sampled_from(rb"\" \\ \/ \b \u0000 \ud800 \uDFFF \uDBFF\udc00 \ufffe".split())
    text = b'"%b"' % b"".join(draw(st.lists(plain | escape, max_size=6)))
    number = st.from_regex(
        r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,9})?", fullmatch=True
    )
    parts = draw(st.lists(as_go_passes_it_on(depth=depth - 1), max_size=2)) if depth else []
    as_list = b"[%b]" % b",".join(parts)
    as_map = b"{%b}" % b",".join(b"%b:%b" % (text, part) for part in parts)
    return draw(st.sampled_from([text, draw(number).encode(), b"null", as_list, as_map]))


@given(as_go_passes_it_on())
def test_a_list_with_whatever_an_api_server_passes_on_can_be_read(value):
    """Fields that it hands on as they were written: managedFields, and the parameters of devices."""
    items = [
        b'{"metadata":{"managedFields":[{"fieldsV1":%b}],"name":"a"}}' % value,
        b'{"metadata":{"name":"b"}}',
    ]
    body = sanitized(b'{"metadata":{"resourceVersion":"7"},"items":[%b]}' % b",".join(items))
    nodes, version, _ = NodeDecoder().decode_list(body)
    assert ([node.name for node in nodes], version) == (["a", "b"], "7")


@pytest.mark.parametrize("levels", [1_200, 10_000, 500_000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_any_depth_can_be_decoded(levels, opening, closing):
    text = b'{"a":' + opening * levels + b"1" + closing * levels + b',"b":"["}'
    fields = msgspec.json.decode(sanitized(text), type=dict[str, msgspec.Raw])
    assert bytes(fields["b"]) == b'"["'
    assert bytes(fields["a"]).startswith(opening * (MAX_DEPTH - 2))
    assert is_emptied(bytes(fields["a"]))
    assert not is_emptied(bytes(fields["b"]))


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_brackets_that_are_not_closed_are_no_json(opening):
    with pytest.raises(msgspec.DecodeError, match="truncated"):
        decode(msgspec.json.Decoder(), opening * 20_000)


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 750_000 + b"]" * 750_000,
        b'"' + rb"\\" * 750_000 + b'"',
        b'"' + rb"\ud800" * 250_000 + b'"',
        b'"' + rb"\"" * 750_000 + b'"',
        b"[" * 299 + b"[" + b"[]," * 490_000 + b"[]]" + b"]" * 299,
        b"[" + b'"",' * 490_000 + b'""]',
    ],
    ids=lambda text: text[:6].decode(),
)
def test_time_is_linear(text):
    started = time.process_time()
    sanitized(text)
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize("block", [1, 7, 64])
def test_blocks_do_not_show(monkeypatch, block):
    text = b'[{"a\\"]":[[1,"]"],[[],{"b":[2]}]]},"[",[[[3],4]]]'
    whole = [sanitized(text, depth) for depth in range(1, 7)]
    monkeypatch.setattr(sanitize, "_BLOCK", block)
    assert [sanitized(text, depth) for depth in range(1, 7)] == whole
    assert len(set(whole)) > 4
