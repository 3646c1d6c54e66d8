"""Long answers: in pieces, some at a time, and what becomes of one that cannot be finished."""

import asyncio
import contextlib
import json
import logging

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry

from app.observe.metrics.process import ServingMetrics
from app.observe.metrics.series import MetricFamilies
from app.serving.connections import Connections
from app.serving.options import ConnectionLimits
from app.serving.pages import AT_ONCE, JSON, Dumps, as_json, json_parts
from app.serving.server import guarded


@contextlib.asynccontextmanager
async def serving(handler):
    registry = CollectorRegistry()
    metrics = ServingMetrics(MetricFamilies(registry))
    app = web.Application(middlewares=[guarded(Connections(ConnectionLimits(), metrics), metrics)])
    app.add_routes([web.get("/dump/{name}", handler)])
    async with TestClient(TestServer(app)) as client:
        client.registry = registry
        yield client


@pytest.mark.parametrize("count", [0, 1, 50, 51, 1000])
def test_lists_come_in_pieces(count):
    parts = list(json_parts(range(count), b'{"x":1,"list":', b"}"))
    assert json.loads(b"".join(parts)) == {"x": 1, "list": list(range(count))}
    assert len(parts) == -(-count // 50) + 1


def test_texts_that_are_no_text_are_shown_all_the_same():
    assert json.loads(as_json({"message": "caf\ud83d"}).body) == {"message": "caf\ud83d"}
    assert json.loads(b"".join(json_parts(["caf\ud83d"]))) == ["caf\ud83d"]


async def test_long_answers_are_made_some_at_a_time():
    dumps, under_way, most = Dumps(), set(), []

    async def handler(request):
        async def one_more():
            return await dumps.streamed(request, parts(request.match_info["name"]), JSON)

        return await one_more()

    def parts(name):
        under_way.add(name)
        for _ in range(20):
            most.append(len(under_way))
            yield b"1"
        under_way.remove(name)

    async with serving(handler) as client:

        async def ask(name):
            async with client.get(f"/dump/{name}") as answer:
                return await answer.text()

        answers = await asyncio.gather(*(ask(str(number)) for number in range(9)))
    assert answers == ["1" * 20] * 9
    assert max(most) == AT_ONCE


async def test_an_answer_that_cannot_be_finished_is_broken_off(caplog):
    dumps = Dumps()

    def parts():
        yield b"[1,"
        raise RuntimeError("cannot go on")

    async def handler(request):
        return await dumps.streamed(request, parts(), JSON)

    async with serving(handler) as client:
        with caplog.at_level(logging.ERROR), pytest.raises(aiohttp.ClientError):
            async with client.get("/dump/x") as answer:
                await answer.read()
        failures = client.registry.get_sample_value(
            "aiokube_scheduler_endpoint_failures_total", {"path": "/dump/{name}"}
        )
    assert failures == 1
    assert "Error serving GET '/dump/x'" in caplog.text
