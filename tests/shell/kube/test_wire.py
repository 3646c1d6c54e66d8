"""Informers over real connections: the parts together, against a server that misbehaves on the wire."""

import asyncio
import json
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import numpy as np

from app.kube.client import KubeClient
from app.kube.connection import Connection
from app.kube.informer import Informer
from tests.shell.kube.fakes import SERVICES, added, modified, service
from tests.shell.kube.servers import serving


@asynccontextmanager
async def informing(server):
    changes = asyncio.Queue()
    async with KubeClient(Connection(server.url), agent="test/1") as client:
        informer = Informer(
            SERVICES,
            client,
            lambda old, new: changes.put_nowait(
                (old and old.name, new and (new.name, new.resource_version))
            ),
            rng=np.random.default_rng(2),
        )
        task = asyncio.create_task(informer.run())
        try:
            yield informer, changes
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def query(request):
    return {key: values[0] for key, values in parse_qs(urlsplit(request.target).query).items()}


async def test_a_stream_in_pieces_broken_in_the_middle_of_a_line():
    long = "x" * 400_000
    first = added("a", 1, annotations=long)
    second = modified("a", 3, annotations=long)
    third = modified("a", 4)

    async def reply(request):
        asked = query(request)
        if asked.get("watch") != "true":
            await request.answer(200, {"metadata": {"resourceVersion": "0"}, "items": []})
            return
        await request.begin_stream()
        if asked["resourceVersion"] == "0":
            for start in range(0, len(first), 70_001):
                await request.chunk(first[start : start + 70_001])
            await request.chunk(second[:200_000])
            request.hang_up()
        else:
            assert asked["resourceVersion"] == "1"
            await request.chunk(second + third[:10])
            await request.chunk(third[10:])
            await asyncio.Event().wait()

    async with serving(reply) as server, informing(server) as (informer, changes):
        got = [await changes.get() for _ in range(3)]
    assert got == [(None, ("a", "1")), ("a", ("a", "3")), ("a", ("a", "4"))]
    assert informer.statistics().reconnects == 1


async def test_a_server_that_forgets_its_history():
    lists = iter(
        [
            [service("a", 1), service("b", 2)],
            [service("b", 5), service("c", 6)],
        ]
    )
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}

    async def reply(request):
        asked = query(request)
        if asked.get("watch") != "true":
            body = {"metadata": {"resourceVersion": "10"}, "items": next(lists)}
            await request.answer(200, body)
        elif sum("watch=true" in seen.target for seen in server.seen) == 1:
            await request.begin_stream()
            await request.chunk(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
            await request.chunk(b"")
        else:
            await request.begin_stream()
            await asyncio.Event().wait()

    async with serving(reply) as server, informing(server) as (informer, changes):
        got = [await changes.get() for _ in range(5)]
    assert got == [
        (None, ("a", "1")),
        (None, ("b", "2")),
        ("b", ("b", "5")),
        ("a", None),
        (None, ("c", "6")),
    ]
    assert informer.statistics().lists == 2
