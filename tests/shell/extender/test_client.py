"""One extender: interest, the meaning of answers, errors, order and observation."""

import asyncio
import json

import msgspec
import pytest

from app.extender.answers import excerpt, retry_after
from app.extender.breaker import State
from app.extender.client import HTTPExtender
from app.extender.config import ExtenderConfigError, ManagedResource, Verb
from app.extender.errors import CallOutcome, ExtenderError, TransportError
from app.extender.events import (
    BreakerChanged,
    CallFinished,
    CallHeldBack,
    CallStarted,
    ExtenderWarning,
    NodesRejected,
)
from app.extender.transport import ExtenderResponse
from app.model.selectors import from_map
from app.wire.extender_v1 import AnswerReader, Victims
from app.wire.kube import PodDecoder
from tests.shell.extender.fakes import (
    URL,
    Seen,
    about,
    config,
    extender,
    keeps,
    ok,
    pod,
)

GPU = (ManagedResource("example.com/gpu"),)


def selects(**labels):
    return from_map(labels)


def labelled(**labels):
    manifest = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": labels},
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "c"}]},
    }
    return PodDecoder().decode(json.dumps(manifest).encode())


class TestInterest:
    def test_everything_without_managed_resources(self):
        assert extender().is_interested(pod())

    @pytest.mark.parametrize(
        "asking",
        [
            {"requests": {"example.com/gpu": "1"}},
            {"requests": {"example.com/gpu": "0"}},
            {"limits": {"example.com/gpu": 1}},
            {"init_requests": {"example.com/gpu": "1"}},
        ],
    )
    def test_pods_that_ask(self, asking):
        assert extender(managed_resources=GPU).is_interested(pod(**asking))

    def test_pods_that_do_not(self):
        assert not extender(managed_resources=GPU).is_interested(pod(requests={"cpu": "1"}))

    def test_is_worked_out_once_per_template(self):
        ext, one = extender(managed_resources=GPU), pod()
        assert not ext.is_interested(one)
        assert not ext.is_interested(one.on("n"))
        known = ext.is_interested.__self__._templates
        assert len(known) == 1
        del one
        assert len(known) == 0

    def test_labels_of_the_pod(self):
        ext = extender(pod_selector=selects(team="ml"))
        assert ext.is_interested(labelled(team="ml", app="a"))
        assert not ext.is_interested(labelled(team="web"))
        assert not ext.is_interested(labelled())

    def test_labels_of_the_namespace(self):
        labels = {"ns": {"gpu": "yes"}}
        ext = HTTPExtender(config(namespace_selector=selects(gpu="yes")), labels_of=labels.get)
        assert ext.is_interested(labelled())
        labels["ns"] = {"gpu": "no"}
        assert not ext.is_interested(labelled())

    def test_a_namespace_that_is_not_known_matches(self):
        ext = HTTPExtender(config(namespace_selector=selects(gpu="yes")))
        assert ext.is_interested(labelled())

    def test_profiles(self):
        assert extender(profiles=frozenset({"default-scheduler", "b"})).is_interested(labelled())
        assert not extender(profiles=frozenset({"batch"})).is_interested(labelled())

    def test_all_conditions_must_hold(self):
        ext = extender(managed_resources=GPU, pod_selector=selects(team="ml"))
        assert not ext.is_interested(labelled(team="ml"))
        assert not ext.is_interested(pod(requests={"example.com/gpu": "1"}))

    def test_verbs(self):
        ext = extender(filter_verb="", bind_verb="b")
        assert [v for v in Verb if ext.supports(v)] == [Verb.PRIORITIZE, Verb.PREEMPT, Verb.BIND]


class TestFilter:
    async def test_names(self):
        ext = extender(
            keeps("a", FailedNodes={"b": "no"}, FailedAndUnresolvableNodes={"c": "never"})
        )
        result = await ext.filter(about("a", "b", "c"))
        assert result.kept == ["a"]
        assert (result.failed, result.failed_and_unresolvable) == ({"b": "no"}, {"c": "never"})
        assert ext.fake.requests == [
            (
                "filter",
                {
                    "Pod": {"metadata": {"name": "p", "namespace": "ns"}},
                    "Nodes": None,
                    "NodeNames": ["a", "b", "c"],
                },
            )
        ]

    async def test_whole_nodes(self):
        ext = extender(
            lambda path, body: {"Nodes": {"items": body["Nodes"]["items"][1:]}},
            node_cache_capable=False,
        )
        assert (await ext.filter(about("a", "b"))).kept == ["b"]

    @pytest.mark.parametrize(
        ("answer", "whole", "kept"),
        [
            pytest.param({}, False, [], id="nothing"),
            pytest.param(None, False, [], id="null"),
            pytest.param({"NodeNames": None, "Nodes": None}, False, [], id="nulls"),
            pytest.param({"NodeNames": ["a", "a"]}, False, ["a", "a"], id="twice"),
            pytest.param(
                {"Nodes": {"items": [{"metadata": {"name": "a"}}]}},
                False,
                ["a"],
                id="nodes-for-names",
            ),
            pytest.param({"NodeNames": ["a"]}, True, [], id="names-for-nodes"),
            pytest.param(
                {"Nodes": {"items": [{"metadata": {"name": "x"}}]}}, True, ["x"], id="unknown-node"
            ),
        ],
    )
    async def test_other_forms(self, answer, whole, kept):
        ext = extender(lambda path, body: answer, node_cache_capable=not whole)
        assert (await ext.filter(about("a", "b"))).kept == kept

    async def test_a_name_that_was_not_sent(self):
        with pytest.raises(ExtenderError) as caught:
            await extender(keeps("a", "x")).filter(about("a"))
        assert str(caught.value) == (
            f'extender "{URL}" claims a filtered node "x" which is not found in the input node list'
        )
        assert caught.value.outcome is CallOutcome.BAD_ANSWER

    async def test_retry_after(self):
        ext = extender(lambda path, body: ok({"NodeNames": []}, **{"Retry-After": "7"}))
        assert (await ext.filter(about("a"))).retry_after == 7.0


class TestRepeatedAnswers:
    """An answer with the same bytes means the same, but only about the same nodes."""

    async def test_scores(self):
        given = [3, 3, 4, 4]
        ext = extender(lambda path, body: [{"Host": "a", "Score": given.pop(0)}])
        first = about("a", "b")
        asked = [first, first.of(pod("other")), first.of(pod("third")), about("b", "a")]
        said = [(await ext.prioritize(args)).tolist() for args in asked]
        assert said == [[30, 0], [30, 0], [40, 0], [0, 40]]

    async def test_about_two_lists_in_turn(self):
        """The last answers of each are kept: calls in progress are about both while one takes the place of the other."""
        ext = extender(lambda path, body: [{"Host": body["NodeNames"][0], "Score": 1}])
        lists = [about("a", "b"), about("b", "c"), about("c", "d")]

        async def scores(number):
            return await ext.prioritize(lists[number].of(pod("other")))

        first, second = await scores(0), await scores(1)
        assert await scores(0) is first
        assert await scores(1) is second
        await scores(2)
        assert await scores(0) is not first

    async def test_filters(self):
        ext = extender(keeps("b"))
        first = about("a", "b")
        assert [(await ext.filter(first.of(who))).kept for who in (pod(), pod("q"))] == [["b"]] * 2
        with pytest.raises(ExtenderError, match='a filtered node "b" which is not found'):
            await ext.filter(about("a", "c"))

    async def test_the_names_are_not_encoded_again(self):
        args = about("a", "b")
        assert args.names_json is args.of(pod("q")).names_json
        assert args.of(args.pod) is args


class TestOtherVerbs:
    async def test_scores_are_weighted_and_summed(self):
        scores = [{"Host": "a", "Score": 2}, {"Host": "b", "Score": -1}, {"Host": "a", "Score": 50}]
        ext = extender(lambda path, body: scores, weight=3)
        assert (await ext.prioritize(about("a", "b"))).tolist() == [1560, -30]

    async def test_scores_wrap_as_int64_does(self):
        ext = extender(lambda path, body: [{"Host": "a", "Score": 2**62}])
        assert (await ext.prioritize(about("a"))).tolist() == [-(2**63)]

    async def test_preempt(self):
        victim, other = pod("v"), pod("o")
        answer = {
            "NodeNameToMetaVictims": {
                "n2": {"Pods": [{"UID": "uid-o"}], "NumPDBViolations": 2},
                "n1": {"Pods": []},
            }
        }
        ext = extender(lambda path, body: answer)
        pods = {"n1": {}, "n2": {"uid-v": victim, "uid-o": other}}
        got = await ext.preempt(pod(), {"n1": Victims((victim,))}, pods.get)
        assert got == {"n2": Victims((other,), 2), "n1": Victims(())}

    @pytest.mark.parametrize(
        ("answer", "text"),
        [
            ({"x": {"Pods": []}}, 'nodeinfo not found for node name "x"'),
            (
                {"n1": {"Pods": [{"UID": "nobody"}]}},
                f"extender: {URL} claims to preempt pod (UID: &{{nobody}}) on node: n1, "
                "but the pod is not found on that node",
            ),
            ({"n1": None}, 'null among the victims on node "n1"'),
        ],
    )
    async def test_preempt_with_victims_that_are_none(self, answer, text):
        ext = extender(lambda path, body: {"NodeNameToMetaVictims": answer})
        with pytest.raises(ExtenderError) as caught:
            await ext.preempt(pod(), {}, {"n1": {}}.get)
        assert str(caught.value) == text

    async def test_bind(self):
        ext = extender()
        await ext.bind(pod(), "a")
        assert ext.fake.requests == [
            ("bind", {"PodName": "p", "PodNamespace": "ns", "PodUID": "uid-p", "Node": "a"})
        ]


class TestErrors:
    async def fail(self, answer, verb="filter", **fields):
        ext = extender(lambda path, body: answer, **fields)
        call = ext.bind(pod(), "a") if verb == "bind" else ext.filter(about("a"))
        with pytest.raises(ExtenderError) as caught:
            await call
        return caught.value

    async def test_the_error_in_an_answer(self):
        err = await self.fail({"Error": "boom", "NodeNames": ["a"]})
        assert (str(err), err.outcome, err.answer_lost) == ("boom", CallOutcome.ERROR, False)

    @pytest.mark.parametrize("status", [201, 204, 404, 500])
    async def test_a_status_other_than_200(self, status):
        err = await self.fail(
            ExtenderResponse(status, {"Retry-After": "3"}, b'{"Error": "no\n card"}')
        )
        assert str(err) == f"failed filter with extender at URL {URL}/filter, code {status}"
        assert err.detail == f"{err}: no card"
        assert (err.status, err.retry_after, err.outcome) == (status, 3.0, CallOutcome.STATUS)

    async def test_an_empty_body_adds_nothing(self):
        err = await self.fail(ExtenderResponse(500, {}, b""))
        assert err.detail == str(err)

    async def test_slashes_and_passwords_in_the_url(self):
        err = await self.fail(
            ExtenderResponse(500, {}, b""), url_prefix="http://u:secret@h/deep//", filter_verb="a/b"
        )
        assert str(err) == "failed a/b with extender at URL http://u:***@h/deep/a/b, code 500"
        assert "secret" not in repr(err.extender)

    @pytest.mark.parametrize(
        ("answer", "lost"),
        [
            (TransportError(CallOutcome.TIMEOUT, "t", sent=True), True),
            (TransportError(CallOutcome.TIMEOUT, "t", sent=False), False),
            (TransportError(CallOutcome.BROKEN, "t", sent=True), True),
            (TransportError(CallOutcome.STALE, "t", sent=True), True),
            (TransportError(CallOutcome.UNREACHABLE, "t", sent=False), False),
            (ExtenderResponse(502, {}, b""), True),
            (ExtenderResponse(504, {}, b""), True),
            (ExtenderResponse(500, {}, b""), False),
            (ok(b"{"), True),
            ({"Error": "taken"}, False),
        ],
    )
    async def test_whether_a_bind_may_have_happened(self, answer, lost):
        assert (await self.fail(answer, "bind")).answer_lost is lost

    async def test_a_shortage_of_ours_is_not_held_against_it(self):
        failure = TransportError(CallOutcome.SHORTAGE, "too many open files", sent=False)
        ext = extender(lambda path, body: failure)
        for _ in range(9):
            with pytest.raises(ExtenderError) as caught:
                await ext.filter(about("a"))
            assert caught.value.outcome is CallOutcome.SHORTAGE
        assert ext.state(Verb.FILTER) is State.CLOSED

    async def test_an_error_is_a_scheduling_error_with_its_own_text(self):
        err = await self.fail(ok(b'{"NodeNames":"w-0"}'))
        assert str(err) == (
            "json: cannot unmarshal string into Go struct field ExtenderFilterResult.NodeNames of type []string"
        )

    @pytest.mark.parametrize(
        "answer",
        [
            ExtenderResponse(500, {}, b'{"error":"caf\\ud83d"}'),
            ok(b'{"Error":"caf\\ud83d"}'),
            TransportError(CallOutcome.BROKEN, "Location: \udcff", sent=True),
        ],
    )
    async def test_what_is_said_can_be_encoded(self, answer):
        err = await self.fail(answer)
        assert err.detail.encode()

    @pytest.mark.parametrize("failure", [RecursionError(), UnicodeError("x" * 9999)])
    async def test_any_failure_to_read_an_answer_is_the_extenders(self, monkeypatch, failure):
        def read(self, body, asked):
            raise failure

        seen = Seen()
        ext = extender(keeps("a"), sink=seen)
        monkeypatch.setattr(AnswerReader, "steps", read)
        with pytest.raises(ExtenderError) as caught:
            await ext.filter(about("a"))
        name = type(failure).__name__
        assert str(caught.value) == f"the answer cannot be read: {name}"
        assert caught.value.outcome is CallOutcome.BAD_ANSWER
        assert [each.outcome for each in seen.all(CallFinished)] == [CallOutcome.BAD_ANSWER]
        [warning] = seen.all(ExtenderWarning)
        assert name in warning.text
        assert len(warning.text) < 600

    async def test_any_failure_of_the_transport_is_the_extenders(self):
        err = await self.fail(RuntimeError("odd"), "bind")
        assert (err.outcome, err.answer_lost) == (CallOutcome.BAD_ANSWER, True)


class TestSaid:
    @pytest.mark.parametrize(
        ("body", "said"),
        [
            (b"oops", "oops"),
            (b" two\nlines ", "two lines"),
            (b'{"Error":"card is gone"}', "card is gone"),
            (b'{"error":"x","NodeNames":null}', "x"),
            (b'{"NodeNames":null,"Error":""}', '{"NodeNames":null,"Error":""}'),
            (b'{"detail":"Not Found"}', "Not Found"),
            (b'"text"', "text"),
            (b"{'error':'single'}", "{'error':'single'}"),
            (b"\xff", "\ufffd"),
            (b'{"error":"caf\\ud83d"}', "caf\ufffd"),
            (b"", ""),
            (b"null", "null"),
        ],
    )
    def test_excerpt(self, body, said):
        assert excerpt(body) == said

    def test_an_excerpt_is_short(self):
        assert len(excerpt(b"x" * 4096)) == 512

    @pytest.mark.parametrize(
        ("headers", "seconds"),
        [
            ({}, None),
            ({"Retry-After": "0"}, 0.0),
            ({"Retry-After": "120"}, 120.0),
            ({"Retry-After": "9" * 400}, 86400.0),
            ({"Retry-After": "-1"}, None),
            ({"Retry-After": "1.5"}, None),
            ({"Retry-After": "soon"}, None),
            ({"Retry-After": "Wed, 21 Oct 2026 07:28:30 GMT"}, None),
            (
                {
                    "Retry-After": "Wed, 21 Oct 2026 07:28:30 GMT",
                    "Date": "Wed, 21 Oct 2026 07:28:00 GMT",
                },
                30.0,
            ),
            (
                {
                    "Retry-After": "Wed, 21 Oct 2026 07:27:00 GMT",
                    "Date": "Wed, 21 Oct 2026 07:28:00 GMT",
                },
                0.0,
            ),
        ],
    )
    def test_retry_after(self, headers, seconds):
        assert retry_after(headers) == seconds


async def answer_after(seconds, answer):
    await asyncio.sleep(seconds)
    return answer


class TestOrder:
    @pytest.mark.looptime
    async def test_calls_overlap(self):
        ext = extender(lambda path, body: answer_after(1, {"NodeNames": ["a"]}))
        async with asyncio.TaskGroup() as group:
            for _ in range(5):
                group.create_task(ext.filter(about("a")))
        assert ext.fake.most_in_flight == 5

    @pytest.mark.looptime
    async def test_serial_ones_do_not(self):
        answers = {"filter": {"NodeNames": ["a"]}, "prioritize": []}
        ext = extender(lambda path, body: answer_after(1, answers[path]), serial=True)
        started = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            for _ in range(5):
                group.create_task(ext.filter(about("a")))
            group.create_task(ext.prioritize(about("a")))
        assert ext.fake.most_in_flight == 1
        assert asyncio.get_running_loop().time() - started == pytest.approx(6)

    @pytest.mark.looptime
    async def test_waiting_for_a_turn_is_not_part_of_the_timeout(self):
        ext = extender(
            lambda path, body: answer_after(4, {"NodeNames": ["a"]}), serial=True, http_timeout=5
        )
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(ext.filter(about("a")))
        assert len(ext.fake.requests) == 3


class TestBreaker:
    async def time_out(self, ext):
        with pytest.raises(ExtenderError) as caught:
            await ext.filter(about("a"))
        return caught.value

    @pytest.mark.looptime
    async def test_an_extender_that_hangs_is_left_alone(self):
        seen = Seen()
        hanging = True

        def reply(path, body):
            return answer_after(100, {}) if hanging else {"NodeNames": ["a"]}

        ext = extender(reply, sink=seen)
        now = asyncio.get_running_loop().time
        start = now()
        for _ in range(3):
            assert (await self.time_out(ext)).outcome is CallOutcome.TIMEOUT
        assert now() - start == pytest.approx(15)
        err = await self.time_out(ext)
        assert str(err) == f'extender "{URL}" is not called because it does not answer: timed out'
        assert err.outcome is CallOutcome.HELD_BACK
        assert not err.answer_lost
        assert now() - start == pytest.approx(15)
        assert ext.state(Verb.FILTER) is State.OPEN

        await asyncio.sleep(5)
        assert (await self.time_out(ext)).outcome is CallOutcome.TIMEOUT
        assert (await self.time_out(ext)).outcome is CallOutcome.HELD_BACK
        hanging = False
        await asyncio.sleep(10)
        assert (await ext.filter(about("a"))).kept == ["a"]
        assert [each.state for each in seen.all(BreakerChanged)] == [
            State.OPEN,
            State.HALF_OPEN,
            State.OPEN,
            State.HALF_OPEN,
            State.CLOSED,
        ]
        assert len(seen.all(CallHeldBack)) == 2

    @pytest.mark.looptime
    async def test_one_verb_does_not_close_another(self):
        ext = extender(lambda path, body: answer_after(9, {}) if path == "prioritize" else None)
        for _ in range(3):
            with pytest.raises(ExtenderError):
                await ext.prioritize(about("a"))
        assert ext.state(Verb.PRIORITIZE) is State.OPEN
        assert (await ext.filter(about("a"))).kept == []

    async def test_answers_of_any_kind_do_not_count(self):
        ext = extender(lambda path, body: ExtenderResponse(500, {}, b""))
        for _ in range(9):
            assert (await self.time_out(ext)).outcome is CallOutcome.STATUS
        assert ext.state(Verb.FILTER) is State.CLOSED

    async def test_connections_that_were_about_to_be_closed_do_not_count(self):
        stale, broken = (
            TransportError(o, "EOF", sent=True) for o in (CallOutcome.STALE, CallOutcome.BROKEN)
        )
        answers = [stale] * 9 + [broken] * 2 + [stale] * 9
        ext = extender(lambda path, body: answers.pop(0) if answers else broken)
        for expected in list(answers):
            assert (await self.time_out(ext)).outcome is expected.outcome
        assert ext.state(Verb.FILTER) is State.CLOSED
        await self.time_out(ext)
        assert ext.state(Verb.FILTER) is State.OPEN

    @pytest.mark.looptime
    async def test_a_probe_that_is_given_up(self):
        ext = extender(lambda path, body: answer_after(9, {}))
        for _ in range(3):
            await self.time_out(ext)
        await asyncio.sleep(5)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await ext.filter(about("a"))
        assert (await self.time_out(ext)).outcome is CallOutcome.TIMEOUT


class TestObservation:
    @pytest.mark.looptime
    async def test_a_call(self):
        seen = Seen()
        ext = extender(lambda path, body: answer_after(2, {"NodeNames": ["a"]}), sink=seen)
        await ext.filter(about("a", "b", "c"))
        told = msgspec.structs.asdict(seen.all(CallFinished)[0])
        assert bytes(told.pop("request")).endswith(b',"NodeNames":["a","b","c"]}')
        assert (told.pop("pod").name, told.pop("answer")) == ("p", b'{"NodeNames": ["a"]}')
        assert told.pop("asked").names == ["a", "b", "c"]
        assert told == {
            "extender": URL,
            "verb": Verb.FILTER,
            "outcome": CallOutcome.SUCCESS,
            "status": 200,
            "retry_after": None,
            "seconds": pytest.approx(2),
            "sent": len('{"Pod":,"Nodes":null,"NodeNames":["a","b","c"]}') + len(pod().raw),
            "received": len('{"NodeNames": ["a"]}'),
        }
        assert seen.all(CallStarted) == [CallStarted(URL, Verb.FILTER)]
        assert seen.all(NodesRejected) == [NodesRejected(URL, 2)]

    @pytest.mark.parametrize(
        ("answer", "outcome"),
        [
            ({"Error": "x"}, CallOutcome.ERROR),
            (ok(b""), CallOutcome.BAD_ANSWER),
            ({"NodeNames": ["x"]}, CallOutcome.BAD_ANSWER),
            (ExtenderResponse(404, {}, b""), CallOutcome.STATUS),
            (TransportError(CallOutcome.UNREACHABLE, "t", sent=False), CallOutcome.UNREACHABLE),
        ],
    )
    async def test_outcomes(self, answer, outcome):
        seen = Seen()
        with pytest.raises(ExtenderError) as caught:
            await extender(lambda path, body: answer, sink=seen).filter(about("a"))
        assert caught.value.outcome is outcome
        assert [each.outcome for each in seen.all(CallFinished)] == [outcome]

    @pytest.mark.looptime
    async def test_a_call_that_is_given_up(self):
        seen = Seen()
        ext = extender(lambda path, body: answer_after(3, {}), sink=seen)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await ext.bind(pod(), "a")
        assert [each.outcome for each in seen.all(CallFinished)] == [CallOutcome.CANCELLED]


class TestHeaders:
    @pytest.mark.looptime
    async def test_a_bearer_token_that_rotates(self, tmp_path):
        file, seen = tmp_path / "token", Seen()
        file.write_text("one\n")
        ext = extender(
            keeps("a"), sink=seen, url_prefix="https://ext.test", bearer_token_file=str(file)
        )

        async def sent():
            await ext.filter(about("a"))
            return ext.fake.headers[-1]["Authorization"]

        assert await sent() == "Bearer one"
        file.write_text("two-is-longer")
        await asyncio.sleep(11)
        assert await sent() == "Bearer two-is-longer"
        file.write_text("")
        await asyncio.sleep(11)
        assert await sent() == "Bearer two-is-longer"
        assert await sent() == "Bearer two-is-longer"
        assert seen.all(ExtenderWarning) == [
            ExtenderWarning("https://ext.test", f"bearer token file {file}: holds no token")
        ]
        assert "two" not in repr(ext._token)


class TestConstruction:
    @pytest.mark.parametrize(
        "url", ["", "ext:80", "ftp://ext", "http://", "http://h:x", "/filter", "http://[::1"]
    )
    def test_urls_that_cannot_be_called(self, url):
        with pytest.raises(ExtenderConfigError, match="urlPrefix must be"):
            HTTPExtender(config(url_prefix=url))

    def test_a_token_and_a_user(self, tmp_path):
        file = tmp_path / "token"
        file.write_text("t")
        with pytest.raises(ExtenderConfigError, match="not both"):
            HTTPExtender(config(url_prefix="http://u:p@h", bearer_token_file=str(file)))

    def test_a_token_in_the_clear(self, tmp_path):
        file = tmp_path / "token"
        file.write_text("t")
        ext = HTTPExtender(config(bearer_token_file=str(file)))
        assert ext.warnings == (
            f"extender {URL}: its bearer token is sent unencrypted; use an https:// urlPrefix",
        )

    def test_a_token_file_that_is_missing(self, tmp_path):
        with pytest.raises(ExtenderConfigError, match="bearer token file"):
            HTTPExtender(config(bearer_token_file=str(tmp_path / "none")))

    def test_a_proxy_that_is_none(self):
        with pytest.raises(
            ExtenderConfigError, match="HTTP_PROXY: only http and https proxies are supported"
        ):
            HTTPExtender(config(), environ={"HTTP_PROXY": "socks5://p:1"})

    async def test_close(self):
        ext = extender()
        await ext.close()
        assert ext.fake.closed
