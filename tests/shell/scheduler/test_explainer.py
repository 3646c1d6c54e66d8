"""Explanations: pods in every place, what their chances are, and how that reads on a terminal."""

import io
import re

import msgspec
import numpy as np
import pytest
from rich.console import Console

from app.cli.explain_view import view
from app.extender.config import Verb
from app.extender.errors import CallOutcome
from app.extender.events import CallFinished, NodesRejected
from app.framework.testing import make_pod
from app.model.pod import Pod
from app.observe.events import AttemptStarted
from app.scheduler.explainer import Explainer, Explanation, Leadership
from tests.markdown import ROOT, blocks
from tests.shell.clock import WALL
from tests.shell.extender.fakes import URL, extender
from tests.shell.scheduler.world import running

GUIDE = ROOT / "docs" / "operations.md"
LEADING = Leadership(leading=True, identity="me", holder="me")


def explainer(world, leadership=LEADING):
    return Explainer(
        world.state,
        world.scheduler.frameworks,
        world.telemetry.histories,
        world.telemetry.group_histories,
        leadership=lambda: leadership,
        rng=np.random.default_rng(0),
        limits=world.scheduler.chain.limits,
    )


def cpus(amount):
    return {"containers": [{"name": "c", "resources": {"requests": {"cpu": str(amount)}}}]}


def shown(explanation, width=120):
    """As it is printed, after a journey over the wire."""
    again = msgspec.json.decode(msgspec.json.encode(explanation), type=Explanation)
    text = io.StringIO()
    Console(file=text, width=width, markup=False).print(view(again, WALL + 60, width))
    return text.getvalue()


async def test_a_pod_that_was_bound():
    async with running("a", "b") as world:
        world.add(make_pod("p"))
        await world.settle()
        told = explainer(world).explain("default", "p")
    assert told.place == "assumed", "the watch has not shown the binding"
    assert told.node in {"a", "b"}
    assert told.now is None
    (attempt,) = told.attempts
    assert (attempt.result, attempt.feasible, attempt.evaluated) == ("bound", 2, 2)
    assert [move.event for move in told.moves] == ["UnschedulablePodAdd", "Pop", "Done"]
    text = shown(told)
    assert "Pod default/p" in text
    assert f"assumed on {told.node}, being bound" in text
    assert "one of 2 feasible nodes of 2" in text


async def test_a_pod_that_fits_nowhere():
    async with running("a", "b") as world:
        world.add(make_pod("big", spec=cpus(1000)))
        await world.settle()
        told = explainer(world).explain("default", "big")
    assert told.place == "unschedulable"
    assert told.waiting.rejectors == ("NodeResourcesFit",)
    assert told.attempts[0].refusals[0].plugin == "NodeResourcesFit"
    assert told.now.feasible == 0
    assert told.now.message == "0/2 nodes are available: 2 Insufficient cpu."
    text = shown(told)
    assert "rejected by NodeResourcesFit" in text
    assert "0 of 2 nodes are feasible" in text
    assert "Insufficient cpu" in text


async def test_chances_change_with_the_cluster():
    async with running("a") as world:
        world.add(make_pod("big", spec=cpus(6)))
        await world.settle()
        big = {"allocatable": {"cpu": "8", "memory": "16Gi", "pods": "10"}}
        world.add_nodes("b", status=big)
        told = explainer(world).explain("default", "big")
    assert told.now.feasible == 1
    assert [each.node for each in told.now.top] == ["b"]
    (refusal,) = told.now.refusals
    assert (refusal.plugin, refusal.nodes) == ("NodeResourcesFit", 1)


async def test_the_best_nodes_come_with_what_each_plugin_gives():
    async with running() as world:
        for number in range(12):
            size = {"allocatable": {"cpu": str(2 + number), "memory": "16Gi", "pods": "10"}}
            world.add_nodes(f"n{number}", status=size)
        world.add(make_pod("gated", spec={**cpus(1), "schedulingGates": [{"name": "wait"}]}))
        told = explainer(world).explain("default", "gated")
    assert told.place == "gated"
    assert len(told.now.top) == 10
    totals = [each.total for each in told.now.top]
    assert totals == sorted(totals, reverse=True)
    for each in told.now.top:
        assert sum(each.scores.values()) == each.total
    assert told.now.top[0].node == "n11"
    assert told.now.refusals == ()
    wide, narrow = shown(told, 160), shown(told, 80)
    assert "Of which" not in wide
    assert "NodeResourcesBalancedAllocation" in wide
    assert "Of which" in narrow
    assert "waiting for scheduling gates: [wait]" in wide
    assert "No attempt is recorded" in wide


async def test_pods_that_are_left_to_others_or_unknown():
    async with running("a") as world:
        world.add(make_pod("theirs", spec={"schedulerName": "somebody-else"}))
        explain = explainer(world).explain
        told = explain("default", "theirs")
        assert (told.place, told.now, told.attempts) == ("not ours", None, [])
        assert "left to the scheduler 'somebody-else'" in shown(told)
        assert explain("default", "nobody") is None


async def test_a_pod_that_is_gone_is_remembered():
    async with running("a") as world:
        pod = world.add(make_pod("big", spec=cpus(1000)))
        await world.settle()
        world.change(Pod, pod, None)
        told = explainer(world).explain("default", "big")
        assert (told.place, len(told.attempts)) == ("gone", 1)
        assert "deleted; what follows is its history" in shown(told)


async def test_a_successor_does_not_inherit_the_story():
    async with running("a") as world:
        pod = world.add(make_pod("big", spec=cpus(1000)))
        await world.settle()
        world.change(Pod, pod, None)
        world.add(msgspec.structs.replace(make_pod("big"), uid="another"))
        told = explainer(world).explain("default", "big")
    assert (told.uid, told.attempts, told.place) == ("another", [], "active")


async def test_a_bound_pod_from_before_our_time():
    async with running("a") as world:
        world.add(make_pod("old").on("a"))
        told = explainer(world).explain("default", "old")
    assert (told.place, told.node, told.now) == ("bound", "a", None)
    assert "bound to a" in shown(told)


async def test_an_empty_cluster():
    async with running() as world:
        world.add(make_pod("p", spec={"schedulingGates": [{"name": "g"}]}))
        told = explainer(world).explain("default", "p")
    assert told.now.message == "no nodes available to schedule pods"


async def test_a_standby_says_who_leads():
    async with running("a") as world:
        world.add(make_pod("p"))
        standby = explainer(world, Leadership(leading=False, identity="me", holder="other"))
        text = shown(standby.explain("default", "p"))
    assert "on standby" in text
    assert "other leads" in text


async def test_a_question_changes_nothing():
    async with running("a", "b") as world:
        world.add(make_pod("p"))
        before = world.state.queue.statistics(), world.state.cache.statistics()
        for _ in range(3):
            explainer(world).explain("default", "p")
        assert (world.state.queue.statistics(), world.state.cache.statistics()) == before
        await world.settle()
        assert world.telemetry.histories.of("default", "p").attempts[0].result == "bound"


async def test_extenders_and_preemption_as_they_read():
    async with running("a") as world:
        pod = world.add(make_pod("p", spec=cpus(1000)))
        queued = world.state.queue.get(pod.uid)
        queued.attempts = 1
        histories = world.telemetry.histories
        histories.on(AttemptStarted(queued, "default-scheduler"))
        histories.on(
            CallFinished("http://licences", Verb.FILTER, CallOutcome.SUCCESS, 0.012, 900, 40)
        )
        histories.on(NodesRejected("http://licences", 3))
        queued.attempts = 0
        await world.settle()
        told = explainer(world).explain("default", "p")
    text = shown(told)
    assert "Calls to extenders in the last attempt" in text
    assert "http://licences" in text
    assert "12.0 ms" in text


async def test_preemptor_and_victims_tell_of_each_other():
    async with running("a") as world:
        for name in ("one", "two"):
            world.add(make_pod(name, spec=cpus(2) | {"priority": 1}).on("a"))
        world.add(make_pod("boss", spec=cpus(4) | {"priority": 9}))
        await world.settle()
        await world.scheduler.evictor.preemptions.wait_until_idle()
        explain = explainer(world).explain
        boss, victim = explain("default", "boss"), explain("default", "one")
        world.change(Pod, world.state.pods["default/one"], None)
        gone = explain("default", "one")
    (attempt,) = boss.attempts
    assert (attempt.nominated_node, attempt.victims) == ("a", 2)
    assert set(attempt.victim_pods) == {"default/one", "default/two"}
    room = r"Room is made on a by\s+evicting 2 pods: default/(one, default/two|two, default/one)\."
    assert re.search(room, " ".join(shown(boss, 300).split()))
    for told in (victim, gone):
        assert told.preempted.preemptor == "default/boss"
        assert re.search(r"preempted +by default/boss on a, \d\d:", shown(told))


@pytest.mark.parametrize(
    ("seconds", "said"), [(5, "5 s ago"), (300, "5 min ago"), (7200 * 2, "4 h ago")]
)
async def test_how_long_ago(seconds, said):
    async with running("a") as world:
        world.add(make_pod("big", spec=cpus(1000)))
        await world.settle()
        told = explainer(world).explain("default", "big")
    text = io.StringIO()
    Console(file=text, width=120).print(view(told, told.attempts[0].at + seconds, 120))
    assert said in text.getvalue()


def plainly(text):
    """The words of an explanation, without times, uids and the widths of columns."""
    for pattern, word in [
        (r"\d\d:\d\d:\d\dZ \(\d+ s ago\)", "TIME"),
        (r"\d+\.\d m?s\b", "DURATION"),
        (r"(?<=uid) +\S+", " UID"),
        ("─+", "─"),
        (r"\s+", " "),
    ]:
        text = re.sub(pattern, word, text)
    return text.strip()


async def test_the_guide_shows_an_explanation_as_it_reads():
    async with running("a", "b") as world:
        world.add(make_pod("cart-0", namespace="shop", spec=cpus(1000)))
        await world.settle()
        told = explainer(world).explain("shop", "cart-0")
    (sample,) = [block.text for block in blocks(GUIDE) if block.language == "text"]
    assert plainly(shown(told)) == plainly(sample)


async def test_how_many_pods_the_extenders_take():
    def make(_sink):
        return [extender(prioritize_verb="", preempt_verb="", bind_verb="", serial=True)]

    async with running("a", extenders=make) as world:
        pod = world.add(make_pod("p"))
        told = explainer(world).explain("default", pod.name)
    assert told.limits == {URL: 1}
    assert f"{URL}, which takes 1 pod at a time" in shown(told)
