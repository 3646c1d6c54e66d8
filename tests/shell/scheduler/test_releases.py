"""Extenders are told of placements that were given up, without a cost for pods."""

import asyncio

import pytest

from app.extender.errors import CallOutcome, TransportError
from app.model.selectors import from_map
from app.model.status import SUCCESS, Code, Status
from app.scheduler.releases import MAX_WAITING, Releases
from tests.shell.scheduler.extender_world import World, scripted
from tests.shell.scheduler.test_extender_cycle import until

pytestmark = pytest.mark.looptime


class Failing(World):
    """The first bindings of each pod fail."""

    failures = 1

    async def bind(self, pod, node_name):
        self.attempts.append(pod.name)
        if self.attempts.count(pod.name) <= self.failures:
            return Status(Code.Error, ("the API server says no",))
        self.bound[pod.name] = node_name
        return SUCCESS


def everything(verb, request):
    return {"NodeNames": request["NodeNames"]} if verb == "filter" else {"Error": ""}


def releases(extender):
    return [request for verb, request in extender.fake.requests if verb == "release"]


async def play(reply, *, labels=None, pods=1, seconds=30, **fields):
    """The world after these pods were bound at the second attempt, and their extender."""
    ext = scripted(reply, release_verb="release", **fields)
    async with Failing(ext).running() as world:
        world.nodes("n1", "n2", cpu="99")
        for number in range(pods):
            world.pod(f"p{number}", labels)
        await until(lambda: len(world.bound) == pods, seconds=600)
        await asyncio.sleep(seconds)
    return world, ext


async def test_a_failed_binding_is_released():
    _, ext = await play(everything)
    [request] = releases(ext)
    [placement] = request["Placements"]
    assert placement["Node"] in {"n1", "n2"}
    del placement["Node"]
    assert placement == {"PodName": "p0", "PodNamespace": "ns", "PodUID": "uid-p0"}
    assert "the API server says no" in request["Reason"]


async def test_it_arrives_before_the_next_question_about_the_pod():
    _, ext = await play(everything)
    assert [verb for verb, _ in ext.fake.requests] == ["filter", "release", "filter"]


async def test_the_next_question_about_the_pod_waits_for_the_answer():
    """Otherwise an extender that handles calls side by side might release what it has just reserved again."""
    order = []

    async def answer():
        await asyncio.sleep(3)
        order.append("released")
        return {"Error": ""}

    def reply(verb, request):
        if verb == "release":
            return answer()
        order.append(verb)
        return everything(verb, request)

    await play(reply)
    assert order == ["filter", "released", "filter"]


async def test_a_pod_that_does_not_concern_it_is_not_released():
    world, ext = await play(everything, pod_selector=from_map({"team": "ml"}))
    assert (releases(ext), len(world.bound)) == ([], 1)


async def test_a_pod_that_is_bound_is_not_released():
    ext = scripted(everything, release_verb="release")
    async with World(ext).running() as world:
        world.nodes("n1")
        world.pod("p")
        await until(lambda: world.bound)
        await asyncio.sleep(5)
    assert releases(ext) == []


async def test_placements_with_the_same_reason_are_released_together():
    _, ext = await play(everything, pods=10)
    sent = [len(request["Placements"]) for request in releases(ext)]
    assert sum(sent) == 10
    assert len(sent) < 10


async def test_a_release_that_hangs_delays_only_its_own_pod(monkeypatch):
    monkeypatch.setattr("app.scheduler.releases.MAX_PLACEMENTS", 1)

    def reply(verb, request):
        return asyncio.Event().wait() if verb == "release" else everything(verb, request)

    world, ext = await play(reply, pods=10)
    quick, _ = await play(everything, pods=10)
    assert world.bound.keys() == quick.bound.keys()
    assert world.attempts.count("p0") == quick.attempts.count("p0") == 2
    assert ext.fake.most_in_flight <= 11
    results = {result: count for (_, result), count in world.releases.results().items()}
    assert results["superseded"] >= 1
    assert sum(results.values()) == 10


async def test_failed_releases_are_counted_and_not_repeated():
    def reply(verb, request):
        if verb == "release":
            return TransportError(CallOutcome.UNREACHABLE, "connection refused", sent=False)
        return everything(verb, request)

    world, ext = await play(reply)
    assert len(releases(ext)) == 1
    assert world.releases.results() == {(ext.name, "failed"): 1.0}


async def test_all_placements_of_a_large_group_are_released():
    ext = scripted(everything, release_verb="release")
    async with World(ext).running() as world, asyncio.TaskGroup() as group:
        found = Releases(
            [ext], lambda work, name: group.create_task(work, name=name), world.retries
        )
        for number in range(1000):
            found.given_up(world.pod(f"p{number}", cpu="999").on("n1"), "no")
        await found.finish()
        assert found.results() == {(ext.name, "sent"): 1000.0}


async def test_what_waits_is_bounded():
    ext = scripted(lambda verb, request: asyncio.Event().wait(), release_verb="release")
    async with World(ext).running() as world:
        pods = [world.pod(f"p{number}", cpu="999").on("n1") for number in range(MAX_WAITING + 50)]
        async with asyncio.TaskGroup() as group:
            tasks = []

            def spawn(work, name):
                tasks.append(group.create_task(work, name=name))

            found = Releases([ext], spawn, world.retries)
            for pod in pods:
                found.given_up(pod, "no")
            assert found.results() == {(ext.name, "too_many_waiting"): 50.0}
            for task in tasks:
                task.cancel()


async def test_a_pod_that_is_rejected_before_a_release_is_heard_is_tried_again():
    """The one seat is kept for a pod whose binding has failed, until the extender hears of the release."""
    kept, asked = set(), []

    async def release(request):
        await asyncio.sleep(2)
        kept.difference_update(each["PodName"] for each in request["Placements"])
        return {"Error": ""}

    def reply(verb, request):
        if verb == "release":
            return release(request)
        name = request["Pod"]["metadata"]["name"]
        asked.append(name)
        if kept - {name}:
            return {"NodeNames": [], "FailedNodes": dict.fromkeys(request["NodeNames"], "taken")}
        kept.add(name)
        return {"NodeNames": request["NodeNames"]}

    ext = scripted(reply, release_verb="release")
    async with Failing(ext).running() as world:
        world.nodes("n1", cpu="99")
        first = world.pod("first")
        await until(lambda: world.attempts == ["first"])
        world.gone(first)
        world.pod("second")
        await asyncio.sleep(1.5)
        assert asked == ["first", "second"]
        await until(lambda: "second" in world.attempts, seconds=4)


class Noted:
    """Stands in for ExtenderRetries."""

    def __init__(self):
        self.rejections, self.since = 0, []

    def released(self, _extender, _pods, since):
        self.since.append(since)


async def test_a_release_that_failed_or_was_dropped_counts_for_the_next_one():
    """What an extender rejected while it had not heard of a placement given up may fit when it has heard of a later
    one.
    """
    unreachable = TransportError(CallOutcome.UNREACHABLE, "connection refused", sent=False)
    answers = [unreachable, {"Error": ""}, {"Error": ""}]
    ext, noted = scripted(lambda *_: answers.pop(0), release_verb="release"), Noted()
    async with World(ext).running() as world, asyncio.TaskGroup() as group:
        found = Releases([ext], lambda work, name: group.create_task(work, name=name), noted)
        pod, other = world.pod("p", cpu="999").on("n1"), world.pod("q", cpu="999").on("n1")
        for noted.rejections in (3, 5, 7):
            found.given_up(pod, "no")
            await found.finish()
        noted.rejections = 11
        found.given_up(pod, "no")
        await found.before_asking(pod.uid)
        noted.rejections = 13
        answers.append({"Error": ""})
        found.given_up(other, "no")
        await found.finish()
    assert noted.since == [3, 7, 11]
