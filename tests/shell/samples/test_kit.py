"""The kit for extenders in Python: both node forms, errors in words, and the client that wakes refused pods."""

import json

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from app.serving.extenders import ExtenderPages, PodName, WakeRequest
from extenders.kit import BindRequest, Filtered, Refusal, Scheduler, Victims, make_app
from extenders.python.seats import score, suits
from tests.shell.responses import Responses

POD = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"containers": []}}


def node(name, **annotations):
    return {
        "metadata": {"name": name, "annotations": annotations, "x": [1.50]},
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {"allocatable": {"cpu": "4"}},
    }


def by_name(*names):
    return {"Pod": POD, "Nodes": None, "NodeNames": list(names)}


def whole(*nodes):
    return {"Pod": POD, "Nodes": {"metadata": {}, "items": list(nodes)}, "NodeNames": None}


class Caller:
    """Posts to an application and gives status, answer and headers."""

    def __init__(self, **functions):
        self._app = make_app(**functions)

    async def __call__(self, verb, request, method="POST"):
        body = request if isinstance(request, bytes) else json.dumps(request).encode()
        async with (
            TestClient(TestServer(self._app)) as client,
            client.request(method, f"/{verb}", data=body) as answer,
        ):
            text = await answer.text()
            is_json = answer.content_type == "application/json"
            return answer.status, json.loads(text) if is_json else text, answer.headers


def only(*names):
    return lambda request: Filtered(names, {n: "no" for n in request.names if n not in names})


class TestFilter:
    async def test_names(self):
        status, answer, _ = await Caller(filter=only("b"))("filter", by_name("a", "b"))
        assert (status, answer) == (
            200,
            {
                "Nodes": None,
                "NodeNames": ["b"],
                "FailedNodes": {"a": "no"},
                "FailedAndUnresolvableNodes": {},
                "Error": "",
            },
        )

    async def test_whole_nodes_go_back_as_they_came(self):
        sent = whole(node("a"), node("b"))
        _, answer, _ = await Caller(filter=only("b"))("filter", sent)
        assert answer["NodeNames"] is None
        assert answer["Nodes"] == {"metadata": {}, "items": [node("b")]}

    async def test_async_functions_and_what_they_see(self):
        seen = []

        async def see(request):
            seen.append(request)
            return Filtered([])

        await Caller(filter=see)("filter", whole(node("a", key="v")))
        [request] = seen
        assert (request.pod.name, request.pod.metadata.uid, request.names) == ("p", "u", ["a"])
        [first] = request.nodes
        assert first.metadata.annotations == {"key": "v"}
        assert (first.spec, first.status) == (node("a")["spec"], node("a")["status"])

    @pytest.mark.parametrize("passed", [[], ["a"]])
    async def test_retry_after(self, passed):
        def later(request):
            return Filtered(passed, retry_after=7)

        _, _, headers = await Caller(filter=later)("filter", by_name("a"))
        assert headers.get("Retry-After") == (None if passed else "7")

    async def test_a_refusal(self):
        def refuse(request):
            raise Refusal("licence server is down")

        status, answer, _ = await Caller(filter=refuse)("filter", by_name("a"))
        assert (status, answer) == (200, {"Error": "licence server is down"})

    async def test_a_node_that_was_not_asked_about(self):
        status, answer, _ = await Caller(filter=only("x"))("filter", by_name("a"))
        assert (status, answer) == (
            500,
            {"Error": "ValueError: node 'x' passed the filter but was not asked about"},
        )


class TestOtherVerbs:
    async def test_prioritize(self):
        caller = Caller(prioritize=lambda request: dict.fromkeys(request.names, 3))
        assert (await caller("prioritize", by_name("a", "b")))[1] == [
            {"Host": "a", "Score": 3},
            {"Host": "b", "Score": 3},
        ]

    @pytest.mark.parametrize("given", [-1, 11])
    async def test_scores_beyond_the_convention(self, given):
        caller = Caller(prioritize=lambda request: {"a": given})
        status, answer, _ = await caller("prioritize", by_name("a"))
        assert status == 500
        assert f"the score of node 'a' is {given}; extenders give 0 to 10" in answer["Error"]

    async def test_bind(self):
        seen = []
        request = {"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "n"}
        status, answer, _ = await Caller(bind=seen.append)("bind", request)
        assert (status, answer, seen) == (200, {"Error": ""}, [BindRequest("p", "ns", "u", "n")])

    async def test_release(self):
        seen = []
        request = {
            "Placements": [{"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "n1"}],
            "Reason": "no",
        }
        status, answer, _ = await Caller(release=seen.append)("release", request)
        assert (status, answer) == (200, {"Error": ""})
        [released] = seen
        assert (released.placements[0].node, released.reason) == ("n1", "no")

    async def test_a_refused_bind(self):
        async def refuse(request):
            raise Refusal("card is busy")

        request = {"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "n"}
        assert (await Caller(bind=refuse)("bind", request))[:2] == (200, {"Error": "card is busy"})

    @pytest.mark.parametrize("form", ["NodeNameToVictims", "NodeNameToMetaVictims"])
    async def test_preempt(self, form):
        pods = [{"metadata": {"uid": "v1"}, "UID": "v1"}, {"metadata": {"uid": "v2"}, "UID": "v2"}]
        request = {
            "Pod": POD,
            form: {"a": {"Pods": pods, "NumPDBViolations": 1}, "b": {"Pods": []}},
        }

        def first_only(asked):
            return {
                "a": Victims(asked.victims["a"].uids[:1], asked.victims["a"].num_pdb_violations)
            }

        _, answer, _ = await Caller(preempt=first_only)("preempt", request)
        assert answer == {
            "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "v1"}], "NumPDBViolations": 1}}
        }


class TestMishaps:
    @pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"Pod":{}}', b'{"Pod":5}'])
    @pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt", "bind"])
    async def test_requests_that_are_none(self, verb, body):
        functions = dict.fromkeys(("filter", "prioritize", "preempt", "bind"), lambda request: None)
        status, answer, _ = await Caller(**functions)(verb, body)
        assert status == 400
        assert answer["Error"].startswith(f"/{verb}: ")

    async def test_what_a_function_raises(self, caplog):
        def broken(request):
            return 1 / 0

        status, answer, _ = await Caller(filter=broken)("filter", by_name("a"))
        assert (status, answer) == (500, {"Error": "ZeroDivisionError: division by zero"})
        assert "Error answering /filter" in caplog.text

    async def test_only_the_verbs_there_are(self):
        caller = Caller(filter=only())
        assert (await caller("prioritize", by_name("a")))[0] == 404
        assert (await caller("healthz", b"", method="GET"))[:2] == (200, "ok")

    async def test_bodies_are_limited(self):
        caller = Caller(filter=only(), max_body_bytes=1000)
        assert (await caller("filter", by_name(*("n" * 100 for _ in range(20)))))[0] == 413


class TestSeats:
    """The sample's functions; that its three versions agree is tested with the running programs."""

    def asked(self, wanted, *nodes):
        from extenders.kit import NodesRequest

        request = whole(*nodes)
        request["Pod"] = {"metadata": {"name": "p", "annotations": wanted}}
        return NodesRequest.read(json.dumps(request).encode())

    FREE, WANTED = "licences.example.com/free", "licences.example.com/wanted"

    def test_filter(self):
        nodes = [
            node("none"),
            node("few", **{self.FREE: "1"}),
            node("enough", **{self.FREE: "2"}),
            node("odd", **{self.FREE: "many"}),
        ]
        filtered = suits(self.asked({self.WANTED: "2"}, *nodes))
        assert filtered.passed == ["enough"]
        assert filtered.failed == {"few": "2 licences wanted, 1 free"}
        assert set(filtered.unresolvable) == {"none", "odd"}
        assert filtered.retry_after == 15

    def test_a_pod_that_wants_none(self):
        assert suits(self.asked({}, node("none"))).passed == ["none"]

    def test_a_pod_that_wants_nonsense(self):
        filtered = suits(self.asked({self.WANTED: "-1"}, node("a"), node("b")))
        assert set(filtered.unresolvable) == {"a", "b"}

    def test_scores(self):
        nodes = [node(str(free), **{self.FREE: str(free)}) for free in (0, 3, 10)]
        assert score(self.asked({}, *nodes)) == {"0": 0, "3": 3, "10": 10}
        assert score(self.asked({}, node("none"))) == {"none": 0}


class TestWaking:
    @pytest.fixture
    async def server(self):
        class Desk:
            seen, tokens = [], []

            def wake(self, request):
                self.seen.append(request)
                return 2

        @web.middleware
        async def note_token(request, handler):
            Desk.tokens.append(request.headers.get("Authorization"))
            return await handler(request)

        app = web.Application(middlewares=[note_token])
        self.leader = None
        app.add_routes(ExtenderPages(Desk().wake, leader=lambda: self.leader).routes())
        async with TestServer(app) as running:
            running.desk = Desk
            yield running

    async def test_wake(self, server, tmp_path):
        token = tmp_path / "token"
        token.write_text("one\n")
        async with Scheduler(str(server.make_url("/")), token_file=str(token)) as scheduler:
            assert await scheduler.wake() == 2
            token.write_text("two")
            assert await scheduler.wake(extender="e", pods=[("ns", "p")], resource="r") == 2
        assert server.desk.seen == [WakeRequest(), WakeRequest("e", (PodName("ns", "p"),), "r")]
        assert server.desk.tokens == ["Bearer one", "Bearer two"]

    async def test_a_standby(self, server, tmp_path):
        self.leader = "other"
        token = tmp_path / "token"
        token.write_text("t")
        async with Scheduler(str(server.make_url("/")), token_file=str(token)) as scheduler:
            with pytest.raises(aiohttp.ClientResponseError, match="the leader is other") as caught:
                await scheduler.wake()
        assert caught.value.status == 503

    @pytest.mark.parametrize(
        ("answer", "error", "text"),
        [
            ({"status": 403, "body": "x" * 1000}, aiohttp.ClientResponseError, "x" * 500 + "'"),
            (
                {"status": 200, "body": "<html>", "content_type": "text/html"},
                aiohttp.ClientError,
                "mimetype",
            ),
            ({"exception": aiohttp.ServerDisconnectedError()}, aiohttp.ClientError, "disconnected"),
        ],
    )
    async def test_no_scheduler_or_another_server(self, answer, error, text, tmp_path):
        token = tmp_path / "token"
        token.write_text("t")
        with Responses() as responses:
            responses.post("https://scheduler.test:10259/extenders/requeue", **answer)
            async with Scheduler(
                "https://scheduler.test:10259", token_file=str(token)
            ) as scheduler:
                with pytest.raises(error, match=text):
                    await scheduler.wake()
