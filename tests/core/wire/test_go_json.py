"""Answers of extenders, weird ones included, against what Go 1.26's encoding/json made of them."""

import json
from pathlib import Path

import pytest

from app.wire import go_json
from app.wire.extender_v1 import (
    AnswerError,
    FilterAnswer,
    MetaVictims,
    read_bind,
    read_filter,
    read_preempt,
    read_prioritize,
)

# {verb, body, and either the error's text or the value}: recorded from a Go program with the extender/v1 types.
CASES = json.loads((Path(__file__).parent / "go_json_cases.json").read_text())
READERS = {
    "filter": read_filter,
    "prioritize": read_prioritize,
    "preempt": read_preempt,
    "bind": read_bind,
}


def expected(verb, value):
    """Go's value in our terms."""
    if verb == "prioritize":
        entries = value or []
        return [entry["Host"] for entry in entries], [entry["Score"] for entry in entries]
    if verb == "bind":
        return value["Error"]
    if verb == "preempt":
        return {
            name: MetaVictims(
                tuple(pod["UID"] for pod in entry["Pods"] or ()), entry["NumPDBViolations"]
            )
            for name, entry in (value["NodeNameToMetaVictims"] or {}).items()
        }
    nodes = value["Nodes"]
    return FilterAnswer(
        node_names=value["NodeNames"],
        nodes=nodes and [node["metadata"].get("name", "") for node in nodes["items"] or ()],
        failed=value["FailedNodes"] or {},
        failed_and_unresolvable=value["FailedAndUnresolvableNodes"] or {},
        error=value["Error"],
    )


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c['verb']}-{c['body'][:40]}")
def test_as_go_reads_it(case):
    read = READERS[case["verb"]]
    if "error" in case:
        with pytest.raises(AnswerError) as caught:
            read(case["body"].encode())
        assert str(caught.value) == case["error"]
    else:
        assert read(case["body"].encode()) == expected(case["verb"], case["value"])


@pytest.mark.parametrize(
    "body",
    [
        b'{"NodeNameToMetaVictims":{"w-0":null}}',
        b'{"NodeNameToMetaVictims":{"w-0":{"Pods":[null]}}}',
    ],
)
def test_null_victims_are_an_error(body):
    with pytest.raises(AnswerError, match=r'null among the victims on node "w-0"'):
        read_preempt(body)


def test_invalid_utf8_is_replaced():
    assert read_filter(b'{"Error":"\xff"}').error == "\ufffd"


def test_a_huge_number_is_cheap_and_wrong():
    with pytest.raises(AnswerError, match="cannot unmarshal number 9999"):
        read_prioritize(b'[{"Host":"a","Score":' + b"9" * 5000 + b"}]")


def test_deep_nesting_is_an_error():
    with pytest.raises(AnswerError, match="max depth"):
        read_filter(b'{"a":' + b"[" * 200_000)


def test_a_huge_broken_answer_is_not_studied_for_ever():
    body = b"[" + b"1," * 1_000_000 + b"x"
    with pytest.raises(AnswerError, match="invalid JSON"):
        go_json.first_value(body)
    assert go_json.syntax_error(body) is None
