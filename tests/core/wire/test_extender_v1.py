"""Requests to extenders, key for key, and the fast way through their answers."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.model.pod import make_pod
from app.wire import go_json
from app.wire.extender_v1 import (
    Body,
    ExtenderArgs,
    FilterAnswer,
    Victims,
    bind_request,
    preempt_request,
    read_filter,
    read_prioritize,
)
from app.wire.kube import NodeDecoder, PodDecoder

POD = make_pod(name="p", namespace="ns", uid="u-1", raw=b'{"metadata":{"name":"p"}}')
NODES = {"n1": b'{"metadata":{"name":"n1"}}', "n2": b'{"metadata":{"name":"n2"}}'}
BARE = (
    '{"metadata":{"name":"ghost"},"spec":{},"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},'
    '"nodeInfo":{"machineID":"","systemUUID":"","bootID":"","kernelVersion":"","osImage":"",'
    '"containerRuntimeVersion":"","kubeletVersion":"","kubeProxyVersion":"","operatingSystem":"",'
    '"architecture":""}}}'
)


def args_of(pod, names):
    return ExtenderArgs(pod, names, NODES.get)


def text(body):
    return bytes(body).decode()


class TestRequests:
    def test_names(self):
        assert (
            text(args_of(POD, ["n1", 'n"2']).body(whole=False))
            == '{"Pod":{"metadata":{"name":"p"}},"Nodes":null,"NodeNames":["n1","n\\"2"]}'
        )

    def test_whole_nodes(self):
        assert text(args_of(POD, ["n2", "n1"]).body(whole=True)) == (
            '{"Pod":{"metadata":{"name":"p"}},"Nodes":{"metadata":{},"items":['
            '{"metadata":{"name":"n2"}},{"metadata":{"name":"n1"}}]},"NodeNames":null}'
        )

    def test_no_nodes(self):
        assert text(args_of(POD, []).body(whole=True)).endswith('"items":[]},"NodeNames":null}')

    def test_a_node_that_is_not_known(self):
        assert f'"items":[{BARE}]' in text(args_of(POD, ["ghost"]).body(whole=True))

    def test_bind(self):
        assert (
            text(bind_request(POD, "n1"))
            == '{"PodName":"p","PodNamespace":"ns","PodUID":"u-1","Node":"n1"}'
        )

    def test_meta_victims_are_sorted_by_node(self):
        victims = {"n2": Victims((POD,), 1), "n1": Victims((POD, POD))}
        assert text(preempt_request(POD, victims, whole=False)) == (
            '{"Pod":{"metadata":{"name":"p"}},"NodeNameToVictims":null,"NodeNameToMetaVictims":{'
            '"n1":{"Pods":[{"UID":"u-1"},{"UID":"u-1"}],"NumPDBViolations":0},'
            '"n2":{"Pods":[{"UID":"u-1"}],"NumPDBViolations":1}}}'
        )

    def test_whole_victims(self):
        assert text(preempt_request(POD, {"n1": Victims((POD,))}, whole=True)) == (
            '{"Pod":{"metadata":{"name":"p"}},"NodeNameToVictims":{'
            '"n1":{"Pods":[{"metadata":{"name":"p"}}],"NumPDBViolations":0}},"NodeNameToMetaVictims":null}'
        )

    @pytest.mark.parametrize("whole", [True, False])
    def test_no_victims(self, whole):
        assert (
            json.loads(text(preempt_request(POD, {}, whole=whole)))[
                "NodeNameToVictims" if whole else "NodeNameToMetaVictims"
            ]
            == {}
        )

    def test_a_pod_without_its_bytes(self):
        with pytest.raises(ValueError, match="JSON of pod ns/q was not kept"):
            args_of(make_pod(name="q", namespace="ns", uid="u"), []).body(whole=False)


class TestExtenderArgs:
    def test_a_body_is_written_once_per_form(self):
        asked = []

        def node_json(name):
            asked.append(name)
            return NODES.get(name)

        args = ExtenderArgs(POD, ["n1", "n2"], node_json)
        assert bytes(args.body(whole=False)) == bytes(args_of(POD, ["n1", "n2"]).body(whole=False))
        assert asked == []
        assert bytes(args.body(whole=True)) == bytes(args_of(POD, ["n1", "n2"]).body(whole=True))
        assert args.body(whole=True) is args.body(whole=True)
        assert asked == ["n1", "n2"]

    def test_about_other_nodes(self):
        args = ExtenderArgs(POD, ["n1", "n2"], NODES.get)
        assert args.about(args.names) is args
        other = args.about(["n2"])
        assert (other.pod, other.names) == (POD, ["n2"])
        assert bytes(other.body(whole=True)) == bytes(args_of(POD, ["n2"]).body(whole=True))


class TestBody:
    def test_pieces_are_not_copied(self):
        body = args_of(POD, list(NODES)).body(whole=True)
        assert any(piece is NODES["n1"] for piece in body.pieces)
        assert any(piece is POD.raw for piece in body.pieces)

    @given(st.lists(st.binary(max_size=20)), st.integers(1, 30))
    def test_batches_are_the_body(self, pieces, size):
        body = Body(pieces)
        batches = list(body.batches(size))
        assert [piece for batch in batches for piece in batch] == pieces
        assert all(batches)
        assert body.size == len(bytes(body))

    def test_batches_have_about_the_size_asked_for(self):
        batches = Body([b"x" * 700] * 1000).batches(10_000)
        sizes = [sum(map(len, batch)) for batch in batches]
        assert set(sizes[:-1]) == {9800}
        assert sizes[-1] <= 9800


def any_case(word):
    return st.tuples(*(st.sampled_from((c.lower(), c.upper())) for c in word)).map("".join)


NAMES = st.lists(st.text("abé-.0", min_size=1, max_size=4), max_size=4)
TEXTS = st.dictionaries(
    st.text("ab", min_size=1, max_size=2), st.text('xy"\\ü', max_size=3), max_size=3
)


@st.composite
def answers(draw):
    """A filter answer in any spelling, and what it means."""
    names, nodes = draw(st.none() | NAMES), draw(st.none() | NAMES)
    failed, unresolvable = draw(st.none() | TEXTS), draw(st.none() | TEXTS)
    error = draw(st.sampled_from((None, "", "boom")))
    items = nodes and [
        {draw(any_case("metadata")): {draw(any_case("name")): n, "x": 1}} for n in nodes
    ]
    fields = {
        draw(any_case("Nodes")): None if nodes is None else {draw(any_case("items")): items},
        draw(any_case("NodeNames")): names,
        draw(any_case("FailedNodes")): failed,
        draw(any_case("FailedAndUnresolvableNodes")): unresolvable,
        draw(any_case("Error")): error,
        "Other": {"Error": 5},
    }
    sent = {k: v for k, v in fields.items() if v is not None or draw(st.booleans())}
    meaning = FilterAnswer(names, nodes, failed or {}, unresolvable or {}, error or "")
    return json.dumps(sent).encode() + draw(st.sampled_from((b"", b"\n", b" junk"))), meaning


class TestAnswers:
    @settings(max_examples=60)
    @given(answers())
    def test_filter_in_any_spelling(self, answer):
        body, meaning = answer
        assert read_filter(body) == meaning

    @settings(max_examples=40)
    @given(
        st.lists(
            st.tuples(st.text("ab", max_size=2), st.integers(-(2**63), 2**63 - 1)), max_size=4
        ),
        any_case("Host"),
        any_case("Score"),
    )
    def test_scores_in_any_spelling(self, scores, host, score):
        body = json.dumps([{host: h, score: s} for h, s in scores]).encode()
        assert list(zip(*read_prioritize(body), strict=True)) == scores

    def test_one_key_in_another_case_among_exact_ones(self):
        body = b'{"NodeNames":["a"],"Nodes":null,"failedNodes":{"b":"no"},"Error":""}'
        assert read_filter(body).failed == {"b": "no"}

    @pytest.mark.parametrize(
        ("read", "body", "meaning"),
        [
            (read_filter, b'{"NodeNames":["a"],"Error":""}', FilterAnswer(["a"])),
            (
                read_filter,
                b'{"nodes":{"items":[{"metadata":{"name":"a"}}]},"nodenames":null,"failedNodes":{"b":"x"},"error":""}',
                FilterAnswer(None, ["a"], {"b": "x"}),
            ),
            (read_prioritize, b'[{"Host":"a","Score":3}]', (["a"], [3])),
            (read_prioritize, b'[{"host":"a","score":-3}]', (["a"], [-3])),
            (read_prioritize, b"[]", ([], [])),
        ],
    )
    def test_what_extenders_mostly_answer_is_read_fast(self, monkeypatch, read, body, meaning):
        monkeypatch.setattr(go_json, "unmarshal", None)
        assert read(body) == meaning

    def test_a_key_given_in_two_spellings(self):
        assert read_prioritize(b'[{"Host":"a","Score":1,"score":5}]') == (["a"], [5])
        assert read_filter(b'{"NodeNames":["a"],"nodenames":["b"]}').node_names == ["b"]

    @pytest.mark.parametrize(
        ("body", "is_echo"),
        [
            ('{"NodeNames":["a","b"]}', True),
            ('{"Nodes":null,"NodeNames":["a","b"],"FailedNodes":{"c":"no"},"Error":"x"}\n', True),
            ('{"NodeNames": ["a", "b"], "Error": ""}', True),
            ('{"NodeNames":[ "a","b"]}', False),
            ('{"NodeNames":["a" ,"b"]}', False),
            ('{"NodeNames":["b","a"],"FailedNodes":null}', False),
            ('{"NodeNames":["a"],"FailedNodes":{"b":"no"}}', False),
            ('{"NodeNames":["a","b"],"failedNodes":{"b":"no"}}', False),
            ('{"NodeNames":["a","b"],"nodenames":["a"]}', False),
            ('{"NodeNames":["a"],"NodeNames":["a","b"]}', True),
            ('{"NodeNames":5,"NodeNames":["a","b"]}', True),
            ('{"NodeNames":null,"Error":"a long one that fits"}', False),
            ('{"NodeNames":["a","b"],"Nodes":{"items":[{"metadata":{"name":"a"}}]}}', False),
        ],
    )
    def test_names_as_they_were_sent(self, body, is_echo):
        args = ExtenderArgs(POD, ["a", "b"], NODES.get)
        got = read_filter(body.encode(), args)
        assert got == read_filter(body.encode())
        assert (got.node_names is args.names) is is_echo

    @pytest.mark.parametrize("answer", [["a", ", "], [", ", "a"], [","], ["a", ","], [", "]])
    @pytest.mark.parametrize("sent", [["a", ","], [",", "a"], [","], [", "]])
    @pytest.mark.parametrize("separator", [",", ", "])
    def test_names_with_commas(self, sent, answer, separator):
        body = json.dumps({"NodeNames": answer}, separators=(separator, ":")).encode()
        assert read_filter(body, ExtenderArgs(POD, sent, NODES.get)).node_names == answer

    def test_the_echo_of_whole_nodes(self):
        items = [json.loads(n) | {"status": {"images": [{"names": ["x"]}]}} for n in NODES.values()]
        body = json.dumps({"Nodes": {"metadata": {}, "items": items}, "NodeNames": None}).encode()
        assert read_filter(body).nodes == ["n1", "n2"]


# ---------------------------------------------------------------- what kube-scheduler sent

VECTORS = Path(__file__).parents[2] / "parity" / "vectors" / "wire"
VOLATILE = {
    "resourceVersion",
    "creationTimestamp",
    "managedFields",
    "lastTransitionTime",
    "deletionTimestamp",
}
# Recorded on purpose differently: see the project's parity notes.
STRIPPED = "wire-nocap-stripped-nodes.json.gz"


def normal(value):
    if isinstance(value, dict):
        return {k: normal(v) for k, v in value.items() if k not in VOLATILE}
    return [normal(v) for v in value] if isinstance(value, list) else value


def sent_first(record):
    """The first request per extender and verb: later ones carry what happened meanwhile."""
    seen = set()
    for exchange in record["exchanges"]:
        body = json.loads(exchange["body"])
        at = (
            exchange["extender"],
            exchange["verb"],
            body.get("PodName") or body["Pod"]["metadata"]["name"],
        )
        if at in seen or "conditions" in body.get("Pod", {}).get("status", {}):
            continue
        seen.add(at)
        yield exchange["verb"], body


@pytest.mark.parametrize("path", sorted(VECTORS.glob("*.json.gz")), ids=lambda p: p.name[5:-8])
def test_requests_are_those_of_kube_scheduler(path):
    record = json.loads(gzip.decompress(path.read_bytes()))
    pods, nodes = PodDecoder(keep_raw=True, keep_bound_raw=True), NodeDecoder(keep_raw=True)

    def decode(decoder, obj):
        return decoder.decode(json.dumps(obj).encode())

    waiting = {p["pod"]["metadata"]["name"]: decode(pods, p["pod"]) for p in record["pods"]}
    running = {p.uid: p for p in (decode(pods, o) for o in record["objects"]["Pod"])}
    raws = {n.name: n.raw for n in (decode(nodes, o) for o in record["objects"]["Node"])}
    for verb, body in sent_first(record):
        pod = waiting[body.get("PodName") or body["Pod"]["metadata"]["name"]]
        if verb == "bind":
            ours = bind_request(pod, body["Node"])
        elif verb == "preempt":
            ours = preempt_request(
                pod, victims(body, running), whole=bool(body["NodeNameToVictims"])
            )
        else:
            if path.name == STRIPPED and verb == "prioritize":
                continue
            whole = body["Nodes"] is not None
            names = (
                [n["metadata"]["name"] for n in body["Nodes"]["items"]]
                if whole
                else body["NodeNames"]
            )
            ours = ExtenderArgs(pod, names, raws.get).body(whole=whole)
        sent = json.loads(bytes(ours))
        assert list(sent) == list(body)
        assert normal(sent) == normal(body)


def victims(body, running):
    sent = body["NodeNameToVictims"] or body["NodeNameToMetaVictims"]
    return {
        name: Victims(
            tuple(running[p.get("UID") or p["metadata"]["uid"]] for p in entry["Pods"]),
            entry["NumPDBViolations"],
        )
        for name, entry in sent.items()
    }
