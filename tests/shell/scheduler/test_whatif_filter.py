"""Filter, as an extender answers it: asked by our own client of extenders, in both forms."""

import asyncio
import json

import pytest

from app.extender.client import HTTPExtender
from app.extender.config import DryRunConfig, ExtenderConfig
from app.extender.errors import ExtenderError
from app.framework.testing import make_node
from app.model.objects import Node
from app.scheduler.whatif import filtering
from app.scheduler.whatif.filtering import WhatIfFilter
from app.wire.extender_v1 import ExtenderArgs
from app.wire.kube import PodDecoder
from app.wire.whatif_v1 import RefusedError
from tests.shell.extender.fakes import FakeTransport
from tests.shell.extender.test_dry_run import with_dry_run
from tests.shell.scheduler.test_whatif import asking, bound, box

pytestmark = pytest.mark.looptime


def sent(cpu="1", scheduler="default-scheduler", **spec):
    manifest = {
        "metadata": {"name": "asked", "namespace": "default", "uid": "its-uid"},
        "spec": {"schedulerName": scheduler, "containers": [box(cpu=cpu)]} | spec,
    }
    return PodDecoder(keep_raw=True).decode(json.dumps(manifest).encode())


def node(name, cpu="4", **fields):
    return {
        "metadata": {"name": name, "annotations": {"kept": "as sent"}},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}},
    } | fields


async def ask(world, pod, *, names=(), nodes=None):
    """The answer, as the client of extenders understands it, and the bodies that went to and fro."""
    whole = {each["metadata"]["name"]: json.dumps(each).encode() for each in nodes or ()}
    bodies = []

    async def reply(_path, request):
        answer, _ = await world.scheduler.filter.answer(json.dumps(request).encode())
        bodies.append(json.loads(answer))
        return answer

    config = ExtenderConfig(
        url_prefix="http://ours.test", filter_verb="filter", node_cache_capable=nodes is None
    )
    client = HTTPExtender(config, transport=FakeTransport(reply), environ={})
    answer = await client.filter(ExtenderArgs(pod, list(names) or list(whole), whole.get))
    return answer, bodies


async def test_names():
    async with asking("a", "b", "c") as world:
        bound(world, "p", "a", cpu="4")
        world.change(Node, None, make_node("d", spec={"unschedulable": True}))
        answer, _ = await ask(world, sent(), names=["a", "b", "d", "gone"])
        assert answer.kept == ["b"]
        assert answer.failed == {"a": "Insufficient cpu"}
        assert answer.failed_and_unresolvable == {
            "d": "node(s) were unschedulable",
            "gone": "this scheduler does not know the node",
        }


async def test_whole_nodes_that_do_not_exist():
    async with asking("a") as world:
        before = world.state.changes
        answer, [body] = await ask(world, sent(cpu="6"), nodes=[node("big", "8"), node("small")])
        assert answer.kept == ["big"]
        assert answer.failed_and_unresolvable == {"small": "Insufficient cpu"}
        assert body["NodeNames"] is None
        assert body["Nodes"]["items"] == [node("big", "8")]
        assert world.state.changes == before
        answer, _ = await ask(world, sent(), names=["big"])
        assert answer.failed_and_unresolvable == {"big": "this scheduler does not know the node"}


async def test_a_node_that_is_sent_otherwise_than_it_is_keeps_its_pods():
    async with asking("a") as world:
        bound(world, "p", "a", cpu="3")
        answer, _ = await ask(world, sent(cpu="2"), nodes=[node("a", "8")])
        assert answer.kept == ["a"]
        answer, _ = await ask(world, sent(cpu="6"), nodes=[node("a", "8")])
        assert answer.failed == {"a": "Insufficient cpu"}
        answer, _ = await ask(world, sent(cpu="2"), names=["a"])
        assert answer.failed == {"a": "Insufficient cpu"}


async def test_a_pod_that_no_node_can_take_at_all():
    async with asking("a") as world:
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]
        answer, _ = await ask(world, sent(volumes=volumes), names=["a"])
        assert answer.failed_and_unresolvable == {"a": 'persistentvolumeclaim "missing" not found'}


async def test_a_pod_of_another_scheduler_is_judged_by_the_default_profile():
    async with asking("a") as world:
        answer, _ = await ask(world, sent(scheduler="other"), names=["a"])
        assert answer.kept == ["a"]


async def test_its_own_extenders_are_asked_by_their_dry_run_about_what_fits():
    def reply(path, request):
        return {"NodeNames": ["b"], "FailedNodes": {"c": "too warm"}}

    usual, fake, runs = with_dry_run(reply)
    async with asking("a", "b", "c") as world:
        bound(world, "p", "a", cpu="4")
        world.scheduler.filter = WhatIfFilter(world.scheduler.whatif, world.state, runs)
        answer, _ = await ask(world, sent(), names=["a", "b", "c"])
        assert answer.kept == ["b"]
        assert answer.failed == {"a": "Insufficient cpu", "c": "too warm"}
        [(path, request)] = fake.requests
        assert (path, request["NodeNames"]) == ("try", ["b", "c"])
        assert request["Pod"]["metadata"]["uid"] == "its-uid"
        assert usual.fake.requests == []


async def test_whole_nodes_reach_extenders_as_they_were_sent():
    whole = DryRunConfig(filter_verb="try", node_cache_capable=False)
    _, fake, runs = with_dry_run(lambda path, request: {"Nodes": request["Nodes"]}, dry=whole)
    async with asking() as world:
        world.scheduler.filter = WhatIfFilter(world.scheduler.whatif, world.state, runs)
        answer, _ = await ask(world, sent(), nodes=[node("new")])
        assert answer.kept == ["new"]
        assert fake.requests[0][1]["Nodes"]["items"] == [node("new")]


async def test_an_extender_that_fails_is_an_error():
    _, _, runs = with_dry_run(lambda path, request: asyncio.sleep(99))
    async with asking("a") as world:
        world.scheduler.filter = WhatIfFilter(world.scheduler.whatif, world.state, runs)
        with pytest.raises(ExtenderError, match="no answer in the time of the question"):
            await ask(world, sent(), names=["a"])


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b"", 400, "these are no ExtenderArgs"),
        (b'{"Pod": []}', 422, "Pod"),
        (b'{"NodeNames": ["a"]}', 400, "missing required field"),
        (b'{"Pod": {"metadata": {"name": "p"}}, "Nodes": {"items": [{}]}}', 422, "has no name"),
        (b'{"Pod": {"metadata": {"name": "p"}}, "Nodes": {"items": [7]}}', 422, "Nodes.items"),
        (b'{"Pod": {"metadata": {"name": "p"}}, "NodeNames": "a"}', 400, "NodeNames"),
    ],
)
async def test_what_cannot_be_answered(body, status, text):
    async with asking("a") as world:
        with pytest.raises(RefusedError, match=text) as refused:
            await world.scheduler.filter.answer(body)
        assert refused.value.status == status


async def test_too_many_nodes(monkeypatch):
    monkeypatch.setattr(filtering, "MAX_NODES", 2)
    async with asking("a") as world:
        body = json.dumps({"Pod": {"metadata": {"name": "p"}}, "NodeNames": list("abc")})
        with pytest.raises(RefusedError, match="more than 2 nodes"):
            await world.scheduler.filter.answer(body.encode())
