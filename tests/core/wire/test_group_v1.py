"""The group verb: what is sent, and which answers are refused."""

import contextlib
import json
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.model.objects import PodSpec
from app.model.pod import make_pod
from app.model.pod_groups import GroupKey, LabelledPodGroup
from app.wire import group_v1
from app.wire.extender_v1 import AnswerError
from app.wire.group_v1 import GroupArgs, GroupQuestion, GroupReader

KEY = GroupKey(LabelledPodGroup, "ns", "train")


def pod(name, size=0):
    raw = {"metadata": {"name": name, "uid": f"uid-{name}"}, "x": "y" * size}
    return make_pod(
        PodSpec(), name=name, namespace="ns", uid=f"uid-{name}", raw=json.dumps(raw).encode()
    )


def args(*members):
    return GroupArgs(
        KEY,
        3,
        [GroupQuestion([pod(name) for name in pods], list(nodes)) for pods, nodes in members],
    )


ASKED = args((["a", "b"], ["n1", "n2", "n3"]), (["c"], ["n1"]))


def read(answer, asked=ASKED):
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return GroupReader(asked).at_once(body)


def test_the_request():
    sent = json.loads(bytes(ASKED.body()))
    assert sent["Group"] == {"Namespace": "ns", "Name": "train", "MinCount": 3}
    assert [
        ([p["metadata"]["name"] for p in each["Pods"]], each["NodeNames"])
        for each in sent["Members"]
    ] == [(["a", "b"], ["n1", "n2", "n3"]), (["c"], ["n1"])]


def test_an_answer():
    answer = read(
        {
            "Answers": [
                {"PodUIDs": ["uid-a", "uid-c"], "FailedNodes": {"n2": "no", "other": "x"}},
                {
                    "PodUIDs": ["uid-b"],
                    "NodeNames": ["n3", "n1"],
                    "FailedAndUnresolvableNodes": {"n2": "never"},
                    "Priorities": [
                        {"Host": "n3", "Score": 4},
                        {"Host": "n3", "Score": 3},
                        {"Host": "other", "Score": 9},
                    ],
                },
            ]
        }
    )
    found = {each.name: verdict for verdict in answer.verdicts for each in verdict.pods}
    assert found["a"].kept == ["n1", "n3"]
    assert found["a"].failed == {"n2": "no"}
    assert found["c"].kept == ["n1"]
    assert found["c"].failed == {}
    assert found["b"].kept == ["n1", "n3"]
    assert found["b"].failed_and_unresolvable == {"n2": "never"}
    assert found["b"].scores == {"n3": 7}


def test_an_error_is_enough():
    assert read({"Error": "no"}).error == "no"
    assert read({"Answers": [{"PodUIDs": 5}], "Error": "no"}).verdicts == []


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "EOF"),
        (b"[" * 100_000, "exceeded max depth"),
        ([], "cannot unmarshal array"),
        (b'{"Answers":[{]', "unexpected EOF"),
        (b'{"Answers":' + b"[" * 100_000, "exceeded max depth"),
        ({}, "does not have pod ns/a (3 are missing)"),
        ({"Answers": [{"PodUIDs": ["uid-a", "uid-b"]}]}, "does not have pod ns/c (1 are missing)"),
        ({"Answers": [{"PodUIDs": ["uid-a", "uid-a"]}]}, "names pod 'uid-a' twice"),
        ({"Answers": [{"PodUIDs": ["uid-d"]}]}, "names pod 'uid-d' which was not asked about"),
        ({"Answers": [{"PodUIDs": ["uid-a"], "NodeNames": ["n9"]}]}, "names node 'n9' which was"),
        ({"Answers": [{"PodUIDs": ["uid-c"], "NodeNames": ["n2"]}]}, "names node 'n2' which was"),
        ({"Answers": [{"PodUIDs": "uid-a"}]}, "cannot be read"),
        (
            {"Answers": [{"PodUIDs": ["uid-a"], "Priorities": [{"Host": "n1", "Score": 2**63}]}]},
            "cannot be read",
        ),
        ({"answers": [{"PodUIDs": ["uid-a", "uid-b", "uid-c"]}]}, "does not have pod"),
    ],
)
def test_answers_that_are_refused(answer, why):
    with pytest.raises(AnswerError) as refused:
        read(answer)
    assert why in str(refused.value)


def test_large_answers_are_refused(monkeypatch):
    monkeypatch.setattr(group_v1, "MAX_ENTRY", 100)
    failed = {f"n{i}": "no" for i in range(50)}
    with pytest.raises(AnswerError, match="an entry of the answer has more than 100 bytes"):
        read({"Answers": [{"PodUIDs": ["uid-a"], "FailedNodes": failed}]})
    with pytest.raises(AnswerError, match="the answer has more than"):
        GroupReader(ASKED).stream(None)


def test_a_long_answer_is_decoded_in_steps():
    names = [f"node-{i}" for i in range(2000)]
    asked = args(*(([f"p{i}"], names) for i in range(50)))
    body = json.dumps({"Answers": [{"PodUIDs": [f"uid-p{i}" for i in range(50)]}]}).encode()
    assert len(list(GroupReader(asked).steps(body, None))) >= 15


@pytest.mark.parametrize("entry", [b"0", b"{}", b'{"PodUIDs":[]}'])
def test_entries_without_a_pod_are_refused_in_short_steps(entry):
    body = b'{"Answers":[%b]}' % b",".join([entry] * (group_v1.MAX_ANSWER // (len(entry) + 2)))
    steps = GroupReader(ASKED).steps(body, None)
    longest, error = 0.0, None
    while error is None:
        began = time.process_time()
        try:
            next(steps)
        except AnswerError as refused:
            error = refused
        longest = max(longest, time.process_time() - began)
    assert "more than 1000 entries" in str(error)
    assert longest < 0.1


def test_names_are_compared_once_for_all_members():
    """An entry may be about all members, each with other names, and name each node many times."""
    asked = args(*(([f"p{i}"], [f"n{i}", "n"]) for i in range(300)))
    uids = [f"uid-p{i}" for i in range(300)]
    body = json.dumps({"Answers": [{"PodUIDs": uids, "NodeNames": ["n"] * 150_000}]}).encode()
    began = time.process_time()
    answer = read(body, asked)
    assert time.process_time() - began < 0.4
    assert [verdict.kept for verdict in answer.verdicts] == [["n"]] * 300


@given(
    pods=st.lists(st.integers(0, 60), max_size=8),
    names=st.lists(st.integers(0, 30), min_size=8, max_size=8),
    size=st.integers(0, 3000),
)
def test_a_large_group_is_divided(pods, names, size):
    members = [
        GroupQuestion(
            [pod(f"p{m}-{i}", size) for i in range(count)], [f"n{i}" for i in range(names[m])]
        )
        for m, count in enumerate(pods)
        if count
    ]
    limits = {"MAX_PODS": 10, "MAX_POD_BYTES": 10_000, "MAX_NAMES": 40}
    with pytest.MonkeyPatch.context() as patch:
        for name, limit in limits.items():
            patch.setattr(group_v1, name, limit)
        parts = list(GroupArgs(KEY, None, members).parts())
    sent = [(p.uid, each.names) for part in parts for each in part.members for p in each.pods]
    assert sent == [(p.uid, each.names) for each in members for p in each.pods]
    for part in parts:
        assert all(each.pods for each in part.members)
        assert 1 <= len(list(part.pods)) <= limits["MAX_PODS"]
        assert sum(len(each.names) for each in part.members) <= limits["MAX_NAMES"]
        assert len(list(part.pods)) == 1 or sum(len(p.raw) for p in part.pods) <= 10_000


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda x: (
            st.lists(x)
            | st.dictionaries(
                st.sampled_from(
                    ["Answers", "PodUIDs", "NodeNames", "FailedNodes", "Priorities", "Error", "x"]
                ),
                x,
            )
        ),
    )
)
def test_nonsense_is_refused_in_words(answer):
    with contextlib.suppress(AnswerError):
        read(msgspec.json.encode(answer))
