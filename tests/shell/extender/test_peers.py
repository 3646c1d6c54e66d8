"""Extenders as they are found in the wild: what several public ones do, done again by small ones of our own."""

import dataclasses
import json
import re

import pytest

from app.extender.errors import ExtenderError
from app.extender.transport import ExtenderResponse
from app.wire.extender_v1 import Victims
from tests.shell.extender.fakes import extender, ok, pod
from tests.shell.scheduler.extender_world import World, scripted
from tests.shell.scheduler.test_extender_cycle import until

pytestmark = pytest.mark.looptime

NODES = ("n1", "n2", "n3")


async def told(ext, *names, nodes=NODES):
    """What becomes of these pods, one after the other: their nodes, and the notes of those that get none."""
    async with World(ext).running() as world:
        world.nodes(*nodes)
        for name in names:
            pending = world.pod(name)
            await until(lambda name=name: name in {who for who, *_ in world.told})
            if name not in world.bound:
                world.gone(pending)
        return [world.bound.get(n) or next(e[1:] for e in world.told if e[0] == n) for n in names]


async def test_one_that_names_its_survivors_and_little_else():
    """Nodes without metadata, keys that are missing, an Error alone, and the request's own Nodes echoed."""

    def reply(verb, request):
        pattern = request["Pod"]["metadata"]["name"]
        if pattern == "any":
            return {"Nodes": request["Nodes"]}
        if pattern == "bad":
            return {"Error": f"Invalid pattern: {pattern}"}
        names = [node["metadata"]["name"] for node in request["Nodes"]["items"]]
        kept = [{"metadata": {"name": name}} for name in names if re.search(pattern, name)]
        failed = {name: f"{name} is no {pattern}" for name in names if not re.search(pattern, name)}
        return {"Nodes": {"items": kept}, "FailedAndUnresolvableNodes": failed}

    ext = scripted(reply, node_cache_capable=False)
    anywhere, third, none, bad = await told(ext, "any", "3", "x", "bad")
    assert anywhere in NODES
    assert third == "n3"
    reasons = "1 n1 is no x, 1 n2 is no x, 1 n3 is no x"
    assert none[0] == "Unschedulable"
    assert none[1].startswith(f"0/3 nodes are available: {reasons}.")
    assert bad == ("SchedulerError", "Invalid pattern: bad")


async def test_one_that_takes_three_keys_and_no_others():
    @dataclasses.dataclass
    class Arguments:
        Pod: dict
        Nodes: list | None
        NodeNames: list

        def __post_init__(self):
            assert self.Nodes is None
            assert self.Pod["metadata"]["namespace"]

    def reply(verb, request):
        arguments = Arguments(**request)
        if verb == "filter":
            answer = {"Nodes": None, "NodeNames": arguments.NodeNames[:2], "FailedNodes": {}}
            return answer | {"Error": ""}
        return [{"Host": name, "Score": name == "n2"} for name in arguments.NodeNames]

    assert await told(scripted(reply, prioritize_verb="score"), "p") == ["n2"]


async def test_one_that_answers_a_list_where_a_node_list_belongs():
    """From the fourth pod on; its keys come sorted, so FailedNodes is what is found wrong first."""

    def reply(verb, request):
        if verb != "filter":
            return [{"Host": "n2", "Score": 50}, {"Host": "n1", "Score": 0}]
        refused = len(ext.fake.requests) > 2 * 3
        answer = {"Nodes": request["Nodes"], "NodeNames": None, "FailedNodes": {}, "Error": ""}
        if refused:
            answer |= {"Nodes": [], "FailedNodes": request["Nodes"]}
        return ok(json.dumps(answer, sort_keys=True).encode())

    ext = scripted(reply, node_cache_capable=False, prioritize_verb="score")
    *placed, refused, again = await told(ext, "p1", "p2", "p3", "p4", "p5")
    assert placed == ["n2"] * 3
    text = "json: cannot unmarshal array into Go struct field ExtenderFilterResult.FailedNodes of type string"
    assert refused == again == ("SchedulerError", text)


async def test_one_of_the_old_tags():
    """Small letters, lists that are null, and null for no scores at all."""

    def reply(verb, request):
        if verb != "filter":
            return None
        items = request["Nodes"]["items"]
        if request["Pod"]["metadata"]["name"] == "large":
            failed = {node["metadata"]["name"]: "out of free space" for node in items}
            return {"nodes": {"metadata": {}, "items": None}, "failedNodes": failed, "error": ""}
        return {"nodes": {"metadata": {}, "items": items[1:]}, "nodenames": None, "failedNodes": {}}

    ext = scripted(reply, node_cache_capable=False, prioritize_verb="prioritize")
    small, large = await told(ext, "small", "large")
    assert small in NODES
    assert large[1].startswith("0/3 nodes are available: 3 out of free space.")


@pytest.mark.parametrize(
    ("answer", "text"),
    [({"NodeNameToMetaVictims": None}, None), (b"", "EOF")],
    ids=["echo of what it was not sent", "nothing"],
)
async def test_one_that_has_no_idea_of_preemption(answer, text):
    ext = extender(lambda verb, request: answer, node_cache_capable=False)
    victim = pod("victim")
    agreed = ext.preempt(pod(), {"n1": Victims((victim,))}, {"n1": {victim.uid: victim}}.get)
    if text is None:
        assert await agreed == {}
    else:
        with pytest.raises(ExtenderError, match=f"^{text}$"):
            await agreed


async def test_one_that_says_why_it_does_not_bind_in_the_body_of_an_error():
    reason = b'{"Error":"no card is free"}'
    ext = extender(lambda verb, request: ExtenderResponse(500, {}, reason))
    with pytest.raises(ExtenderError) as caught:
        await ext.bind(pod(), "n1")
    assert caught.value.detail.endswith("/bind, code 500: no card is free")
