"""Extenders in shadow: what they are asked, how answers compare, and that neither they nor their failures change
anything.
"""

import asyncio
import random

import pytest

from app.extender.errors import CallOutcome, TransportError
from app.extender.transport import ExtenderResponse
from app.framework.handle import Eviction
from app.model.selectors import from_map
from app.scheduler.shadow_extenders import MAX_CALLS, MAX_WAITING
from tests.shell.scheduler.extender_world import World, scripted
from tests.shell.scheduler.test_extender_cycle import until

pytestmark = pytest.mark.looptime

VERBS = {"filter_verb": "filter", "prioritize_verb": "prioritize", "preempt_verb": "preempt"}


def keeping(*names, **reasons):
    return lambda verb, request: {"NodeNames": list(names), "FailedNodes": reasons}


async def compared(reply, *, nodes=("n1", "n2"), pods=1, **fields):
    """The world after the shadow has answered about these pods."""
    shadow = scripted(reply, **fields)
    async with World(shadows=[shadow]).running() as world:
        world.nodes(*nodes)
        for number in range(pods):
            world.pod(f"p{number}", cpu="1")
        await until(lambda: len(world.bound) == pods)
        await asyncio.sleep(10)
    world.shadow = shadow
    return world


def told(world):
    return [(each.verb, each.result) for each in world.compared]


class TestFilter:
    async def test_the_chosen_node_is_kept(self):
        world = await compared(lambda verb, request: {"NodeNames": request["NodeNames"]})
        [(verb, request)] = world.shadow.fake.requests
        assert (verb, sorted(request["NodeNames"])) == ("filter", ["n1", "n2"])
        assert told(world) == [("filter", "same")]
        assert (world.compared[0].nodes, world.compared[0].kept) == (2, 2)

    async def test_the_chosen_node_is_refused(self):
        world = await compared(keeping(n1="too warm"), nodes=("n1",))
        assert told(world) == [("filter", "chosen_node_refused")]
        assert (world.compared[0].detail, world.compared[0].kept) == ("too warm", 0)
        [description] = world.shadows.describe()
        assert description["examples"][0]["result"] == "chosen_node_refused"
        assert world.bound == {"p0": "n1"}

    async def test_a_node_that_is_the_only_feasible_one_is_sent_alone(self):
        world = await compared(keeping("n1"), nodes=("n1",))
        assert [request["NodeNames"] for _, request in world.shadow.fake.requests] == [["n1"]]

    async def test_only_pods_that_concern_it(self):
        world = await compared(keeping("n1"), pod_selector=from_map({"team": "ml"}))
        assert world.shadow.fake.requests == []
        assert world.compared == []


class TestPrioritize:
    async def test_another_node_would_be_best(self):
        def reply(verb, request):
            chosen = request["NodeNames"]
            return [{"Host": name, "Score": 10 * (name == "n2")} for name in chosen]

        world = await compared(reply, pods=6, filter_verb="", prioritize_verb="p", weight=50)
        results = {(each.node, each.result) for each in world.compared}
        assert results == {("n1", "other_node_best"), ("n2", "same")}

    async def test_equal_scores_change_nothing(self):
        def reply(verb, request):
            return [{"Host": name, "Score": 7} for name in request["NodeNames"]]

        world = await compared(reply, pods=4, filter_verb="", prioritize_verb="p", weight=5)
        assert {result for _, result in told(world)} == {"same"}

    async def test_it_is_sent_what_its_filter_kept(self):
        def reply(verb, request):
            names = request["NodeNames"]
            if verb == "filter":
                return {"NodeNames": ["n2", "n3"]}
            assert sorted(names) == ["n2", "n3"]
            return [{"Host": "n3", "Score": 10}]

        world = await compared(reply, nodes=("n1", "n2", "n3"), **VERBS)
        assert [verb for verb, _ in told(world)] == ["filter", "prioritize"]


class TestPreempt:
    @pytest.mark.parametrize(
        ("victims", "result"),
        [
            ({"n1": ["uid-a", "uid-b"]}, "same"),
            ({"n1": ["uid-a"]}, "other_victims"),
            ({}, "chosen_node_refused"),
            ({"n1": ["uid-unknown"]}, "failed"),
        ],
    )
    async def test_victims(self, victims, result):
        def reply(verb, request):
            answer = {node: {"Pods": [{"UID": u} for u in uids]} for node, uids in victims.items()}
            return {"NodeNameToMetaVictims": answer}

        shadow = scripted(reply, filter_verb="", preempt_verb="preempt")
        async with World(shadows=[shadow]).running() as world:
            pods = [world.pod(name, cpu="99") for name in ("a", "b", "preemptor")]
            world.shadows.preempting(Eviction(pods[2], "n1", tuple(pods[:2]), None, 1))
            await until(lambda: world.compared)
        assert told(world) == [("preempt", result)]
        [(_, request)] = shadow.fake.requests
        assert request["NodeNameToMetaVictims"] == {
            "n1": {"Pods": [{"UID": "uid-a"}, {"UID": "uid-b"}], "NumPDBViolations": 1}
        }


def nonsense(rng):
    """Answers that no extender should give."""
    answers = [
        b"",
        b"not JSON",
        b'{"NodeNames": 5}',
        {"NodeNames": ["unknown"]},
        {"Error": "no"},
        [{"Host": "n1", "Score": 2**62}, {"Host": "n1", "Score": 2**62}],
        ExtenderResponse(500, {}, b"crashed"),
        TransportError(CallOutcome.BROKEN, "EOF", sent=True),
        ValueError("a fault of the client"),
    ]

    def reply(verb, request):
        answer = rng.choice(answers)
        return ExtenderResponse(200, {}, answer) if isinstance(answer, bytes) else answer

    return reply


class TestHarmless:
    async def placements(self, *shadows):
        """Where forty pods go, and when the last of them is bound."""
        async with World(shadows=shadows, seed=3).running() as world:
            world.nodes(*(f"n{i}" for i in range(15)), cpu="4")
            started = world.clock.monotonic()
            for number in range(40):
                world.pod(f"p{number}", cpu="1")
            await until(lambda: len(world.bound) == 40)
            took = world.clock.monotonic() - started
            await asyncio.sleep(30)
        return world, took

    @pytest.mark.parametrize("seed", range(5))
    async def test_nonsense_changes_no_decision(self, seed):
        plain, _ = await self.placements()
        shadow = scripted(nonsense(random.Random(seed)), **VERBS, weight=1)
        world, _ = await self.placements(shadow)
        assert world.bound == plain.bound
        assert world.compared

    async def test_a_hanging_shadow_delays_no_pod(self):
        plain, took = await self.placements()
        shadow = scripted(lambda verb, request: asyncio.Event().wait())
        world, took_too = await self.placements(shadow)
        assert (world.bound, took_too) == (plain.bound, pytest.approx(took))
        assert shadow.fake.most_in_flight <= MAX_CALLS
        [description] = world.shadows.describe()
        asked = len(shadow.fake.requests) + description["waiting"]
        assert asked <= MAX_CALLS + MAX_WAITING
        assert sum(description["notAsked"].values()) >= 40 - MAX_CALLS - MAX_WAITING

    async def test_its_breaker_saves_calls(self):
        broken = TransportError(CallOutcome.UNREACHABLE, "connection refused", sent=False)
        shadow = scripted(lambda verb, request: broken)
        async with World(shadows=[shadow]).running() as world:
            world.nodes("n1", cpu="99")
            for number in range(20):
                world.pod(f"p{number}", cpu="1")
                await asyncio.sleep(0.2)
        assert len(shadow.fake.requests) == 3
        [description] = world.shadows.describe()
        assert description["notAsked"] == {"breaker_open": 17}
