"""The sample with the group verb: a block for each group, checked and used by a scheduler."""

import asyncio
import json

from aiohttp.test_utils import TestServer

from app.extender.client import HTTPExtender
from app.extender.config import ExtenderConfig
from app.tools.check_extender import CheckOptions, check
from app.tools.extender_checks import Severity
from app.tools.extender_samples import made_up
from extenders.kit import GroupRequest, ReleaseRequest
from extenders.python.blocks import KEPT, Blocks, application
from tests.shell.scheduler.test_gangs_with_extenders import member
from tests.shell.scheduler.test_group_cycle import bindings, gang
from tests.shell.scheduler.world import running

BLOCK_OF = {"a1": "a", "a2": "a", "a3": "a", "b1": "b", "b2": "b"}


def request(name, *pods, nodes=tuple(BLOCK_OF)):
    group = {"Namespace": "ns", "Name": name, "MinCount": len(pods)}
    sent = [{"metadata": {"name": p, "namespace": "ns", "uid": p}, "spec": {}} for p in pods]
    body = {"Group": group, "Members": [{"Pods": sent, "NodeNames": list(nodes)}]}
    return GroupRequest.read(json.dumps(body).encode())


def released(*pods):
    placements = [{"PodName": p, "PodNamespace": "ns", "PodUID": p, "Node": "a1"} for p in pods]
    return ReleaseRequest.read(json.dumps({"Placements": placements, "Reason": "no"}).encode())


def left(answers, nodes=tuple(BLOCK_OF)):
    [answer] = answers
    if answer.passed is not None:
        return set(answer.passed)
    return {node for node in nodes if node not in answer.unresolvable}


class TestBlocks:
    def test_each_group_has_its_block_until_it_is_released(self):
        blocks = Blocks(BLOCK_OF)
        assert left(blocks.group(request("one", "p1", "p2"))) == {"a1", "a2", "a3"}
        assert left(blocks.group(request("two", "q1"))) == {"b1", "b2"}
        assert left(blocks.group(request("three", "r1"))) == set()
        assert left(blocks.group(request("one", "p1", "p2"))) == {"a1", "a2", "a3"}
        blocks.release(released("p1"))
        assert left(blocks.group(request("three", "r1"))) == set()
        blocks.release(released("p2"))
        assert left(blocks.group(request("three", "r1"))) == {"a1", "a2", "a3"}

    def test_a_block_is_free_after_an_hour_without_a_question(self):
        now = [0.0]
        blocks = Blocks(BLOCK_OF, lambda: now[0])
        assert left(blocks.group(request("one", "p1"))) == {"a1", "a2", "a3"}
        now[0] = KEPT + 1
        assert left(blocks.group(request("two", "q1"))) == {"a1", "a2", "a3"}


async def test_it_passes_check_extender():
    async with TestServer(application({f"check-extender-{i}": "a" for i in range(3)})) as server:
        url = str(server.make_url("/")).rstrip("/")
        config = ExtenderConfig(url_prefix=url, group_verb="group", release_verb="release")
        report = await check(config, made_up(""), CheckOptions(large=0), environ={})
    assert report.count(Severity.ERROR) == report.count(Severity.WARNING) == 0
    assert [str(each.verb) for each in report.exchanges] == ["group", "release"]


async def test_a_scheduler_places_each_group_in_its_block():
    async with TestServer(application(BLOCK_OF)) as server:
        url = str(server.make_url("/")).rstrip("/")
        config = ExtenderConfig(url_prefix=url, group_verb="group", release_verb="release")
        made = []

        def extenders(sink):
            made.append(HTTPExtender(config, sink=sink, environ={}))
            return made[:]

        async with running(*BLOCK_OF, extenders=extenders) as world:
            try:
                for name in ("one", "two"):
                    gang(world, 6, name)
                    for i in range(6):
                        world.add(member(f"{name}-{i}", name))
                async with asyncio.timeout(30):
                    await world.settle()
                bound = bindings(world)
                assert len(bound) == 12
                for name in ("one", "two"):
                    nodes = {node[0] for one, node in bound.items() if one.startswith(name)}
                    assert len(nodes) == 1
            finally:
                await made[0].close()
