"""What check-extender says of answers: each deviation in plain words, and nothing of good ones."""

import json

import pytest

from app.extender.config import Verb
from app.tools.extender_checks import (
    CheckFinding,
    Exchange,
    Severity,
    compare_forms,
    compare_repeats,
    compare_side_by_side,
    examine,
    has_errors,
    keeps_one,
    weigh,
)
from app.tools.extender_samples import from_manifests, made_up
from app.wire.envelope import DecodeError

JSON = {"Content-Type": "application/json; charset=utf-8"}
NAMES = ("a", "b", "c")
VICTIMS = {"a": ["uid-1"], "b": ["uid-2", "uid-3"]}


def exchange(verb, answer, *, whole=False, names=NAMES, **fields):
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return Exchange(
        Verb(verb),
        whole,
        names,
        100,
        **{"body": body, "headers": JSON, "victims": VICTIMS, **fields},
    )


def said(seen, timeout=5.0):
    return [(f.severity, f.text) for f in examine(seen, timeout=timeout)]


def nodes(*names, spec=True):
    return [{"metadata": {"name": n}} | ({"spec": {}, "status": {}} if spec else {}) for n in names]


@pytest.mark.parametrize(
    ("verb", "whole", "answer"),
    [
        ("filter", False, {"NodeNames": list(NAMES)}),
        ("filter", False, {"Nodes": None, "NodeNames": ["a"], "FailedNodes": {"b": "x", "c": "y"}}),
        (
            "filter",
            False,
            {"NodeNames": [], "FailedAndUnresolvableNodes": dict.fromkeys(NAMES, "n")},
        ),
        ("filter", False, {"FailedNodes": dict.fromkeys(NAMES, "no")}),
        ("filter", True, {"Nodes": {"items": nodes(*NAMES)}, "NodeNames": None, "Error": ""}),
        ("filter", True, {"Nodes": None, "FailedNodes": dict.fromkeys(NAMES, "no")}),
        (
            "prioritize",
            False,
            [{"Host": n, "Score": s} for n, s in zip(NAMES, (0, 7, 10), strict=True)],
        ),
        ("preempt", False, {"NodeNameToMetaVictims": {"b": {"Pods": [{"UID": "uid-3"}]}}}),
    ],
)
def test_nothing_to_say(verb, whole, answer):
    assert said(exchange(verb, answer, whole=whole)) == []


ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE


@pytest.mark.parametrize(
    ("verb", "whole", "answer", "severity", "words"),
    [
        # the body
        ("filter", False, b"", ERROR, "empty body"),
        ("prioritize", False, b" \n", ERROR, "empty body"),
        ("filter", False, b"<html>", ERROR, "not JSON: invalid character '<' looking for"),
        ("filter", False, b'{"NodeNames":["a","b","c"]} {}', WARNING, "more follows"),
        # types
        ("filter", True, {"Nodes": [], "FailedNodes": {}}, ERROR, "must be a NodeList, an object"),
        (
            "filter",
            False,
            {"NodeNames": "a"},
            ERROR,
            "cannot be decoded: json: cannot unmarshal string",
        ),
        (
            "filter",
            False,
            {"FailedNodes": {"a": {}}},
            ERROR,
            "FailedNodes must map node names to reasons",
        ),
        ("prioritize", False, {"a": 1}, ERROR, "scores must be a list"),
        ("prioritize", False, {"Items": []}, ERROR, "scores must be a list"),
        ("prioritize", False, [{"Host": "a", "Score": 1.5}], ERROR, "scores must be whole numbers"),
        # spelling
        ("filter", False, {"nodeNames": list(NAMES)}, NOTE, 'should be spelled "NodeNames"'),
        (
            "filter",
            False,
            {"NodeNames": list(NAMES), "took": 3},
            NOTE,
            'the key "took" is not read',
        ),
        ("prioritize", False, [{"host": n, "Score": 1} for n in NAMES], NOTE, 'spelled "Host"'),
        # filter
        ("filter", False, {"Error": "no card"}, ERROR, "It said: no card"),
        ("filter", False, {}, ERROR, "neither NodeNames nor reasons"),
        ("filter", False, None, ERROR, "neither NodeNames nor reasons"),
        ("filter", True, {"Nodes": None}, ERROR, "neither Nodes nor reasons"),
        (
            "filter",
            True,
            {"NodeNames": ["a"]},
            ERROR,
            "NodeNames, which are not read when whole nodes",
        ),
        (
            "filter",
            False,
            {"Nodes": {"items": nodes(*NAMES)}},
            NOTE,
            "answers Nodes where names were sent",
        ),
        (
            "filter",
            False,
            {"NodeNames": [*NAMES, ""]},
            ERROR,
            'not sent: ""; the whole answer is rejected',
        ),
        (
            "filter",
            True,
            {"Nodes": {"items": nodes(*NAMES, "x")}},
            WARNING,
            'not sent: "x"; kube-sch',
        ),
        ("filter", False, {"NodeNames": [*NAMES, "a"]}, WARNING, 'come more than once: "a"'),
        (
            "filter",
            True,
            {"Nodes": {"items": nodes(*NAMES, spec=False)}},
            NOTE,
            "without spec and status",
        ),
        ("filter", False, {"NodeNames": ["a"]}, WARNING, 'drops nodes without a reason: "b", "c";'),
        (
            "filter",
            False,
            {"NodeNames": list(NAMES), "FailedNodes": {"a": "x"}},
            WARNING,
            'have a reason not to: "a"',
        ),
        (
            "filter",
            False,
            {"NodeNames": list(NAMES), "FailedNodes": {"x": "y"}},
            WARNING,
            'reasons for nodes that were not sent: "x"',
        ),
        (
            "filter",
            False,
            {"NodeNames": ["a", "b"], "FailedNodes": {"c": " "}},
            WARNING,
            'an empty reason for "c"',
        ),
        # prioritize
        ("prioritize", False, [], NOTE, "scores no node"),
        ("prioritize", False, None, NOTE, "scores no node"),
        (
            "prioritize",
            False,
            [{"Host": n, "Score": 50} for n in NAMES],
            WARNING,
            "outside 0 to 10: 50;",
        ),
        (
            "prioritize",
            False,
            [{"Host": n, "Score": -1} for n in NAMES],
            WARNING,
            "outside 0 to 10: -1;",
        ),
        ("prioritize", False, [{"Host": "a", "Score": 1}], WARNING, 'without a score: "b", "c";'),
        (
            "prioritize",
            False,
            [{"Host": n, "Score": 1} for n in (*NAMES, "x")],
            WARNING,
            'not sent: "x"',
        ),
        (
            "prioritize",
            False,
            [{"Host": n, "Score": 1} for n in (*NAMES, "c")],
            WARNING,
            'more than once: "c"; the scores are added',
        ),
        # preempt
        ("preempt", False, {}, NOTE, "agrees to no node"),
        ("preempt", True, {"NodeNameToVictims": {"a": {"Pods": []}}}, ERROR, "which is not read"),
        ("preempt", False, {"NodeNameToMetaVictims": {"a": None}}, ERROR, "null among the victims"),
        ("preempt", False, {"NodeNameToMetaVictims": {"x": {"Pods": []}}}, ERROR, 'not sent: "x"'),
        (
            "preempt",
            False,
            {"NodeNameToMetaVictims": {"a": {"Pods": []}}},
            WARNING,
            "no victims on node",
        ),
        (
            "preempt",
            False,
            {"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "uid-2"}]}}},
            ERROR,
            'are not there: "uid-2"',
        ),
        # bind
        ("bind", False, {"Error": "no such pod"}, NOTE, "as it should"),
        ("bind", False, {}, ERROR, "bound a pod that does not exist"),
    ],
)
def test_each_deviation(verb, whole, answer, severity, words):
    [(found, text)] = said(exchange(verb, answer, whole=whole))
    assert found is severity
    assert words in text


@pytest.mark.parametrize(
    ("fields", "severity", "words"),
    [
        ({"failure": "connection refused"}, ERROR, "no answer: connection refused"),
        ({"status": 404}, ERROR, "status 404, anything but 200 is an error (is the path"),
        ({"status": 413, "body": b"too large"}, ERROR, "limit for request bodies is too low"),
        ({"status": 500, "body": b'{"Error":"boom"}'}, ERROR, "It said: boom"),
        ({"status": 204, "body": b""}, ERROR, "It said nothing"),
        ({"seconds": 4.0}, WARNING, "took 4.0 s, of 5 s that httpTimeout allows"),
        ({"seconds": 1.5}, NOTE, "took 1.5 s"),
        ({"headers": {"Content-Type": "text/plain"}}, NOTE, 'Content-Type is "text/plain"'),
        ({"headers": {}}, NOTE, 'Content-Type is ""'),
    ],
)
def test_the_exchange(fields, severity, words):
    [(found, text)] = said(exchange("filter", {"NodeNames": list(NAMES)}, **fields))
    assert found is severity
    assert words in text


@pytest.mark.parametrize(
    ("status", "body", "severity", "words"),
    [
        (
            500,
            b'{"Error":"pods \\"p\\" not found"}',
            NOTE,
            "as it should be for a pod that does not exist",
        ),
        (500, b'{"Error":"boom"}', ERROR, "anything but 200 is an error"),
        (404, b"404 page not found", ERROR, "is the path of this verb right?"),
    ],
)
def test_a_binding_that_is_refused_by_its_status(status, body, severity, words):
    [(found, text)] = said(exchange("bind", {}, status=status, body=body))
    assert found is severity
    assert words in text


def test_long_lists_are_cut():
    names = [f"n{i}" for i in range(100)]
    [(_, text)] = said(exchange("filter", {"NodeNames": names[:1]}, names=names))
    assert '"n1", "n2", "n3" and 96 more' in text


@pytest.mark.parametrize(
    ("seen", "about"),
    [
        (exchange("filter", {}, names=("a",)), "filter, 1 name"),
        (exchange("prioritize", {}, whole=True), "prioritize, 3 whole nodes"),
        (exchange("preempt", {}, whole=True), "preempt, 3 nodes, whole victims"),
        (exchange("preempt", {}), "preempt, 3 nodes, victims by UID"),
        (exchange("bind", {}), "bind"),
    ],
)
def test_about(seen, about):
    assert seen.about == about


class TestForms:
    GOOD, BAD = (), (CheckFinding(ERROR, "", "x"),)

    @pytest.mark.parametrize(
        ("capable", "words"),
        [
            (
                True,
                "needs whole nodes, but nodeCacheCapable is true, so it gets names: set nodeCacheCapable: false",
            ),
            (
                False,
                "needs names, but nodeCacheCapable is false, so it gets whole nodes: set nodeCacheCapable: true",
            ),
        ],
    )
    def test_the_wrong_form(self, capable, words):
        [finding] = compare_forms(self.BAD, self.GOOD, node_cache_capable=capable, verb=Verb.FILTER)
        assert (finding.severity, finding.text) == (ERROR, words)

    def test_both(self):
        [finding] = compare_forms(self.GOOD, self.GOOD, node_cache_capable=True, verb=Verb.FILTER)
        assert finding.severity is NOTE

    @pytest.mark.parametrize("configured", [GOOD, BAD])
    def test_only_the_right_one_or_none(self, configured):
        assert compare_forms(configured, self.BAD, node_cache_capable=True, verb=Verb.FILTER) == []


class TestRepeats:
    def repeat(self, first, second, **fields):
        return compare_repeats(exchange("filter", first), exchange("filter", second, **fields))

    def test_the_same(self):
        assert (
            self.repeat(b'{"NodeNames":["a"],"Error":""}', b'{"Error":"", "NodeNames": ["a"]}')
            == []
        )

    def test_another_answer(self):
        [finding] = self.repeat({"NodeNames": ["a"]}, {"NodeNames": ["b"]})
        assert finding.severity is NOTE

    @pytest.mark.parametrize(
        ("second", "fields"),
        [
            ({"Error": "pod had been predicated!"}, {}),
            (b"", {}),
            (b"", {"status": 500}),
            (b"", {"failure": "timeout"}),
        ],
    )
    def test_a_failure(self, second, fields):
        [finding] = self.repeat({"NodeNames": ["a"]}, second, **fields)
        assert (finding.severity, "asked about the same pod again" in finding.text) == (
            WARNING,
            True,
        )

    @pytest.mark.parametrize("body", [b"{'a': 1}", b'"no"', b"<html>", b"", {"Nodes": []}])
    def test_what_was_wrong_at_first_is_told_once(self, body):
        assert self.repeat(body, body) == []

    def test_nothing_to_compare_with(self):
        assert compare_repeats(exchange("filter", b"", status=500), exchange("filter", b"")) == []


@pytest.mark.parametrize(("names", "error"), [(["a", "x"], True), (["a"], False)])
def test_errors_are_told_from_other_findings(names, error):
    findings = examine(exchange("filter", {"NodeNames": names, "took": 1}), timeout=5)
    assert {NOTE, WARNING} <= {finding.severity for finding in findings}
    assert has_errors(findings) is error


class TestMaterial:
    def test_made_up(self):
        material = made_up("example.com/gpu")
        sent = json.loads(bytes(material.args().body(whole=True)))
        [container] = sent["Pod"]["spec"]["containers"]
        assert container["resources"]["requests"]["example.com/gpu"] == "1"
        assert [n["status"]["allocatable"]["example.com/gpu"] for n in sent["Nodes"]["items"]] == [
            "4"
        ] * 3
        assert "kind" not in sent["Nodes"]["items"][0]

    def test_large_nodes_are_as_large_as_real_ones(self):
        sizes = {len(raw) for raw in made_up("").of_nodes(50, "").nodes.values()}
        assert 6_000 < min(sizes) <= max(sizes) < 10_000

    def test_victims_are_pods_of_their_nodes(self):
        victims = made_up("").victims()
        assert [[pod.node_name for pod in v.pods] for v in victims.values()] == [
            [n] for n in victims
        ]
        assert len({pod.uid for v in victims.values() for pod in v.pods}) == 2

    def test_manifests(self):
        pod = {
            "kind": "Pod",
            "metadata": {"name": "mine", "labels": {"app": "x"}},
            "spec": {"containers": []},
        }
        material = from_manifests(
            made_up(""), pod, [{"metadata": {"name": "n", "managedFields": [1]}}]
        )
        assert (material.pod.name, dict(material.pod.labels)) == ("mine", {"app": "x"})
        assert material.pod.uid
        assert {name: json.loads(raw) for name, raw in material.nodes.items()} == {
            "n": {"metadata": {"name": "n"}}
        }

    @pytest.mark.parametrize("pod", [{"metadata": 5}, {"metadata": {"name": "x"}, "spec": "y"}])
    def test_manifests_that_are_none(self, pod):
        with pytest.raises(DecodeError):
            from_manifests(made_up(""), pod, [])


def scored(*scores):
    return exchange(
        "prioritize", [{"Host": n, "Score": s} for n, s in zip(NAMES, scores, strict=True)]
    )


@pytest.mark.parametrize(
    ("scores", "weight", "expected"),
    [
        ((0, 5, 10), 5, []),
        (
            (0, 50, 100),
            5,
            "a score of 100 with weight 5 adds 5000 to a node; all default plugins together add at most 1500, so it "
            "counts up to 3.3 times as much as they do",
        ),
        (
            (-20, 0, 11),
            1,
            "a score of 11 with weight 1 adds 110 to a node; all default plugins together add at most 1500, so it "
            "counts up to 0.2 times as much as they do",
        ),
    ],
)
def test_how_far_scores_outweigh_the_plugins(scores, weight, expected):
    assert [each.text for each in weigh(scored(*scores), weight)] == (
        [expected] if expected else []
    )


def test_only_scores_that_can_be_read_are_weighed():
    assert weigh(exchange("prioritize", b"{"), 5) == weigh(exchange("prioritize", None), 5) == []
    assert weigh(exchange("filter", {"NodeNames": []}), 5) == []


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"NodeNames": ["b"]}, True),
        ({"NodeNames": ["b", "c"]}, False),
        ({"NodeNames": [], "FailedNodes": dict.fromkeys(NAMES, "no")}, False),
        ({"Error": "no"}, False),
        (b"[]", False),
    ],
)
def test_who_leaves_one_node_may_reserve(answer, expected):
    assert keeps_one(exchange("filter", answer)) is expected
    assert not keeps_one(exchange("filter", {"NodeNames": ["a"]}, names=("a",)))


def side_by_side(alone, *seconds, timeout=5.0):
    calls = [exchange("filter", {"NodeNames": ["a", "b"]}, seconds=each) for each in seconds]
    return compare_side_by_side(exchange("filter", {}, seconds=alone), calls, timeout)


def test_calls_that_do_not_get_in_each_others_way():
    assert side_by_side(0.2, *[0.25] * 16) == []
    assert side_by_side(0.001, *[0.08] * 16) == []


def test_an_extender_behind_a_lock():
    [said] = side_by_side(0.1, *[0.1 * (each + 1) for each in range(16)])
    assert (said.severity, said.about) == (Severity.NOTE, "filter, 3 names, 16 calls side by side")
    assert said.text == (
        "it answers one call after the other, as behind a lock: the last answer took 1.6 s, one alone 0.10 s, so it takes "
        "about 10 calls a second however many are in flight"
    )


def test_an_extender_that_is_limited():
    burst = [*[0.01] * 10, *[0.2 * each for each in range(1, 7)]]
    [said] = side_by_side(0.01, *burst, timeout=2.0)
    assert said.severity is Severity.WARNING
    assert said.text.startswith(
        "it is limited: the last answer took 1.2 s, one alone 0.01 s, so it takes about 13 "
    )


def test_calls_that_fail_only_side_by_side():
    calls = [exchange("filter", {}), exchange("filter", b"busy", status=503)]
    [said] = compare_side_by_side(exchange("filter", {}), calls, 5.0)
    assert said.severity is Severity.WARNING
    assert (
        said.text
        == "1 of them failed, one call alone did not. The first one said: status 503: busy"
    )


def test_a_refusal_that_is_a_lock():
    locks = (Severity.NOTE, "it locks: calls about the same node at the same time may be refused")
    error = {"Error": "node a has been locked within 5 minutes"}
    assert locks in said(exchange("bind", error))
    assert locks not in said(exchange("bind", {"Error": "no block of nodes is left"}))
