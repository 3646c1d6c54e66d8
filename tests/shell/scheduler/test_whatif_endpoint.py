"""The endpoint for questions what would happen: bytes in, bytes out."""

import asyncio
import json

import msgspec
import pytest

from app.framework.testing import make_pod
from app.serving import whatif
from app.wire.whatif_v1 import WhatIfAnswer
from tests.shell.scheduler.test_endpoints import browsing, sync

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asked"},
       "spec": {"containers": [{"name": "main"}]}}  # fmt: skip


async def post(browser, body, status=200):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return json.loads(await browser.get("/whatif", status, method="POST", data=data))


async def test_a_question_and_its_answer():
    async with browsing("a") as browser:
        sync(browser.world)
        answer = await post(browser, {"question": "fits", "objects": [POD]})
        assert answer["pods"] == [{"namespace": "default", "name": "asked", "node": "a"}]
        assert msgspec.convert(answer, WhatIfAnswer).rules == "1.36"
        browser.world.scheduler.whatif.close()


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "truncated"),
        (b"[]", 400, "Expected `object`"),
        (b'{"question": "why"}', 400, "why"),
        (b'{"question": "fits", "more": 1}', 400, "unknown field"),
        (b'{"question": "fits", "copies": 0}', 400, "copies"),
        (b'{"question": "fits", "copies": 10000000}', 400, "copies"),
        (b'{"question": "fits", "timeoutSeconds": 51}', 400, "timeoutSeconds"),
        (b'{"question": "fits", "timeoutSeconds": 0}', 400, "timeoutSeconds"),
        (b'{"question": "fits", "limit": 10001}', 400, "limit"),
        (b'{"question": "fits", "objects": [' + b"[" * 100_000, 400, ""),
        (b'{"question": "drain", "nodes": ["absent"]}', 404, "not found"),
        (b'{"question": "fits"}', 422, "no pod"),
    ],
)
async def test_what_is_refused(body, status, said):
    async with browsing("a") as browser:
        sync(browser.world)
        answer = await post(browser, body, status)
        assert answer["kind"] == "Status"
        assert said in answer["message"]
        browser.world.scheduler.whatif.close()


async def test_a_body_that_is_too_large_is_refused():
    async def pieces():
        for _ in range(whatif.MAX_BODY // 65536 + 1):
            yield b" " * 65536

    async with browsing("a") as browser:
        sync(browser.world)
        text = await browser.get("/whatif", 413, method="POST", data=pieces())
        assert "1048576 bytes" in text


async def test_a_standby_that_is_not_synced_says_when_to_ask_again():
    async with browsing("a") as browser:
        answer = await post(browser, {"question": "fits", "objects": [POD]}, 503)
        assert answer["reason"] == "ServiceUnavailable"


async def test_the_document_describes_what_is_served():
    async with browsing("a") as browser:
        document = await browser.json("/whatif/openapi")
        schemas = document["components"]["schemas"]
        question = schemas["WhatIfQuestion"]
        assert question["additionalProperties"] is False
        assert set(question["properties"]["question"]["enum"]) == {
            "fits", "how-many", "drain", "lose", "needs",
        }  # fmt: skip
        assert {"pods", "counts", "budgets", "tie"} <= {
            *schemas["WhatIfAnswer"]["properties"],
            *schemas["PodAnswer"]["properties"],
        }
        refs = {
            each.split('"')[0] for each in json.dumps(document).split("#/components/schemas/")[1:]
        }
        assert refs <= schemas.keys()


async def test_a_question_lets_others_run():
    async with browsing("a") as browser:
        sync(browser.world)
        many = {"question": "fits", "objects": [POD], "copies": 300}
        asking = asyncio.ensure_future(post(browser, many))
        for _ in range(3):
            assert await browser.get("/livez") == "ok"
        assert (await asking)["placed"] == 110
        browser.world.add(make_pod("real"))
        await browser.world.settle()
        assert browser.world.state.cache.get("uid-of-default-real").node_name == "a"
        browser.world.scheduler.whatif.close()


async def test_bodies_that_are_too_large_together_are_refused(monkeypatch):
    monkeypatch.setattr(whatif, "MAX_HELD", 100_000)
    sent, more = asyncio.Event(), asyncio.Event()

    async def slow():
        yield b" " * 90_000
        sent.set()
        await more.wait()
        yield json.dumps({"question": "fits", "objects": [POD]}).encode()

    async with browsing("a") as browser:
        sync(browser.world)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(browser.get("/whatif", 200, method="POST", data=slow()))
            await sent.wait()
            text = await browser.get("/whatif", 429, method="POST", data=b" " * 20_000)
            assert "other questions are too large" in text
            more.set()
        assert json.loads(await first)["placed"] == 1
        await post(browser, {"question": "fits", "objects": [POD]})  # nothing is held any longer
        browser.world.scheduler.whatif.close()
