"""``POST /extenders/requeue``: bodies good and bad, and the standby."""

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry

from app.observe.metrics.process import ServingMetrics
from app.observe.metrics.series import MetricFamilies
from app.serving.connections import Connections
from app.serving.extenders import ExtenderPages, PodName, WakeRequest
from app.serving.options import ConnectionLimits
from app.serving.server import guarded


class Desk:
    """Stands in for Requeue."""

    def __init__(self):
        self.requests = []

    def wake(self, request):
        self.requests.append(request)
        if request.extender == "x":
            raise ValueError('no extender "x" is configured; configured: http://a')
        return 3


@pytest.fixture
async def client():
    desk, leader = Desk(), [None]
    metrics = ServingMetrics(MetricFamilies(CollectorRegistry()))
    app = web.Application(middlewares=[guarded(Connections(ConnectionLimits(), metrics), metrics)])
    app.add_routes(ExtenderPages(desk.wake, leader=lambda: leader[0]).routes())
    async with TestClient(TestServer(app)) as made:
        made.desk, made.leader = desk, leader
        yield made


async def post(client, body):
    async with client.post("/extenders/requeue", data=body) as answer:
        return answer.status, await answer.json()


@pytest.mark.parametrize(
    ("body", "request_"),
    [
        (b"", WakeRequest()),
        (b" \n", WakeRequest()),
        (b"{}", WakeRequest()),
        (b'{"pods":[]}', WakeRequest(pods=())),
        (
            b'{"extender":"http://a","resource":"r","pods":[{"namespace":"n","name":"p"}]}',
            WakeRequest("http://a", (PodName("n", "p"),), "r"),
        ),
    ],
)
async def test_requests(client, body, request_):
    assert await post(client, body) == (200, {"woken": 3})
    assert client.desk.requests == [request_]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{", "Input data was truncated"),
        (b"[]", "Expected `object`, got `array`"),
        (b'{"pod":"p"}', "Object contains unknown field `pod`"),
        (b'{"pods":[{"name":"p"}]}', "missing required field `namespace` - at `$.pods[0]`"),
        (b'{"extender":"x"}', "configured: http://a"),
    ],
)
async def test_bad_requests(client, body, text):
    status, answer = await post(client, body)
    assert (status, answer["reason"]) == (400, "BadRequest")
    assert text in answer["message"]


@pytest.mark.parametrize(("leader", "named"), [("other-host_1", "other-host_1"), ("", "not known")])
async def test_a_standby_says_who_leads(client, leader, named):
    client.leader[0] = leader
    status, answer = await post(client, b"{}")
    assert (status, answer["reason"]) == (503, "ServiceUnavailable")
    assert answer["message"].endswith(f"the leader is {named}")
    assert client.desk.requests == []


async def test_other_methods(client):
    async with client.get("/extenders/requeue") as answer:
        assert answer.status == 405
