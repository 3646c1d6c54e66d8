"""Dry runs: what is called and in which form, behind which calls, and what they leave untouched."""

import asyncio

import pytest

from app.extender.chain import ExtenderChain
from app.extender.client import HTTPExtender
from app.extender.config import DryRunConfig, Verb
from app.extender.dry_run import DryRuns
from app.extender.errors import CallOutcome, ExtenderError, TransportError
from app.extender.limit import ConcurrencyLimit, Places
from app.wire.extender_v1 import Victims
from tests.shell.extender.fakes import FakeTransport, Seen, about, config, extender, keeps, pod

pytestmark = pytest.mark.looptime

WHOLE = DryRunConfig(filter_verb="try", prioritize_verb="try-scores", node_cache_capable=False)
DRY = DryRunConfig(filter_verb="try")


def with_dry_run(reply, *, dry=DRY, real=None, sink=lambda _event: None, **fields):
    """The chain of one extender, and the transport of its dry runs."""
    usual = extender(real, dry_run=dry, **fields)
    fake = FakeTransport(reply)
    made = HTTPExtender(
        usual.config.for_dry_runs(), transport=fake, sink=sink, environ={}, ahead=usual
    )
    return usual, fake, DryRuns(ExtenderChain([usual], dry_runs=[made]))


def in_time(seconds=1.0):
    return asyncio.get_running_loop().time() + seconds


async def test_the_other_verbs_and_the_other_form_are_used_and_nothing_else():
    def reply(path, body):
        if path == "try":
            return {"Nodes": {"items": body["Nodes"]["items"][1:]}, "FailedNodes": {"n1": "warm"}}
        return [{"Host": "n2", "Score": 3}]

    usual, fake, runs = with_dry_run(reply, dry=WHOLE)
    answer = await runs.ask(about("n1", "n2", "n3"), in_time())
    assert [path for path, _ in fake.requests] == ["try", "try-scores"]
    assert all(body["NodeNames"] is None for _, body in fake.requests)
    assert usual.fake.requests == []
    assert answer.filtered.survivors == ["n2", "n3"]
    assert answer.filtered.failed == {"n1": "warm"}
    assert answer.scores.tolist() == [30, 0]


async def test_what_has_no_dry_run_is_named_and_not_called():
    usual, _, runs = with_dry_run(keeps("n1"))
    other = extender(url_prefix="http://reserves.test", prioritize_verb="", bind_verb="")
    away = extender(url_prefix="http://nobody.test", profiles=frozenset({"other"}), bind_verb="")
    runs = DryRuns(ExtenderChain([usual, other, away], dry_runs=runs._dry.extenders))
    assert runs.not_asked(pod()) == ("http://ext.test", "http://reserves.test")
    assert (await runs.ask(about("n1", "n2"), in_time())).filtered.survivors == ["n1"]
    assert other.fake.requests == usual.fake.requests == away.fake.requests == []


async def test_victims_are_asked_about_in_the_dry_form_only():
    answer = {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "uid-v"}]}}}
    dry = DryRunConfig(preempt_verb="try-preempt")
    usual, fake, runs = with_dry_run(lambda path, body: answer, dry=dry)
    victim = pod("v")
    left = await runs.preempt(
        pod(), {"n1": Victims((victim,))}, lambda _node: {"uid-v": victim}, in_time()
    )
    assert left == {"n1": Victims((victim,))}
    assert [path for path, _ in fake.requests] == ["try-preempt"]
    assert usual.fake.requests == []


async def test_a_silent_extender_costs_no_more_than_the_question_has():
    _, _, runs = with_dry_run(lambda path, body: asyncio.sleep(9), http_timeout=5)
    loop = asyncio.get_running_loop()
    started = loop.time()
    answer = await runs.ask(about("n1"), in_time(0.5))
    assert loop.time() - started == pytest.approx(0.5)
    assert answer.filtered.survivors == []
    assert str(answer.filtered.error) == (
        "no answer in the time of the question from http://ext.test (dry run)"
    )
    dry, victims = DryRunConfig(preempt_verb="p"), {"n1": Victims((pod("v"),))}
    _, _, runs = with_dry_run(lambda path, body: asyncio.sleep(9), dry=dry)
    with pytest.raises(ExtenderError, match="no answer in the time"):
        await runs.preempt(pod(), victims, lambda _node: {}, in_time(0.1))


async def test_its_failures_open_a_breaker_of_its_own_and_not_that_of_real_calls():
    broken = TransportError(CallOutcome.UNREACHABLE, "refused", sent=False)
    usual, fake, runs = with_dry_run(lambda path, body: broken, real=keeps("n1"))
    for _ in range(4):
        answer = await runs.ask(about("n1"), in_time())
    assert "is not called because it does not answer" in str(answer.filtered.error)
    assert len(fake.requests) == 3
    assert (await usual.filter(about("n1"))).kept == ["n1"]


async def test_it_is_no_probe_of_an_extender_that_does_not_answer():
    broken = TransportError(CallOutcome.UNREACHABLE, "refused", sent=False)
    usual, fake, runs = with_dry_run(keeps("n1"), real=lambda path, body: broken)
    for _ in range(3):
        with pytest.raises(ExtenderError):
            await usual.filter(about("n1"))
    for _ in range(2):
        answer = await runs.ask(about("n1"), in_time())
        assert "is not called" in str(answer.filtered.error)
        await asyncio.sleep(6)  # a probe is due
    assert fake.requests == []
    usual.fake.reply = keeps("n1")
    await usual.filter(about("n1"))
    assert (await runs.ask(about("n1"), in_time())).filtered.survivors == ["n1"]


async def test_it_waits_for_room_beside_real_calls_and_takes_none_from_them():
    usual, fake, runs = with_dry_run(keeps("n1"), parallelism=2)
    places, now = usual.places, asyncio.get_running_loop().time
    places.take()
    places.take()
    asked = asyncio.create_task(runs.ask(about("n1"), in_time(60)))
    await asyncio.sleep(1)
    assert fake.requests == []
    assert not asked.done()
    places.give_back(now())
    assert (await asked).filtered.survivors == ["n1"]
    assert places.left(now()) == 1


async def test_a_caller_that_goes_away_leaves_its_place():
    usual, _, runs = with_dry_run(keeps("n1"), parallelism=1)
    usual.places.take()
    asked = [asyncio.create_task(runs.ask(about("n1"), in_time(60))) for _ in range(3)]
    await asyncio.sleep(0)
    asked[0].cancel()
    await asyncio.sleep(0)
    assert len(usual.places.behind) == 2
    usual.places.give_back(asyncio.get_running_loop().time())
    await asyncio.gather(*asked[1:])
    assert not usual.places.behind
    assert usual.places.take_behind(asyncio.get_running_loop().time())


async def test_slow_dry_runs_do_not_teach_the_limit():
    usual, fake, runs = with_dry_run(
        lambda path, body: asyncio.sleep(3, {"NodeNames": ["n1"]}), bind_verb=""
    )
    before = usual.places.limit.limit
    assert before == 16
    await asyncio.gather(*(runs.ask(about("n1"), in_time(60)) for _ in range(40)))
    assert usual.places.limit.limit == before
    assert fake.most_in_flight == before


async def test_no_two_calls_are_in_flight_to_a_serial_extender():
    flying = []

    async def slowly(path, body):
        flying.append(path)
        assert len(flying) == 1
        await asyncio.sleep(0.1)
        flying.pop()
        return {"NodeNames": ["n1"]}

    usual, fake, runs = with_dry_run(slowly, real=slowly, serial=True)
    calls = [
        usual.filter(about("n1")),
        runs.ask(about("n1"), in_time(9)),
        usual.filter(about("n1")),
    ]
    await asyncio.gather(*calls)
    assert [path for path, _ in usual.fake.requests + fake.requests] == ["filter", "filter", "try"]


async def test_its_events_have_a_name_of_their_own():
    seen = Seen()
    _, _, runs = with_dry_run(keeps("n1"), sink=seen)
    await runs.ask(about("n1", "n2"), in_time())
    assert {event.extender for event in seen} == {"http://ext.test (dry run)"}


def test_dry_runs_take_every_place_while_nothing_else_is_in_progress():
    places = Places(ConcurrencyLimit(16, fixed=4))
    assert [places.take_behind(0.0) for _ in range(5)] == [True, True, True, True, False]


def test_dry_runs_beside_other_calls_take_half_of_what_is_free_and_at_least_one():
    places = Places(ConcurrencyLimit(16, fixed=4))
    places.take()
    assert [places.take_behind(0.0) for _ in range(3)] == [True, True, False]
    places.take()
    places.take()
    places.give_back_behind(0.0)
    assert not places.take_behind(0.0)
    places.give_back_behind(0.0)
    assert [places.take_behind(0.0) for _ in range(2)] == [True, False]
    places.take()
    places.give_back_behind(0.0)
    assert not places.take_behind(0.0)


def test_the_configuration_of_a_shadow_is_that_of_its_dry_run_under_its_own_name():
    shadow = config(shadow=True, dry_run=WHOLE, bind_verb="bind").for_dry_runs()
    assert [shadow.path(verb) for verb in Verb] == ["try", "try-scores", "", "", "", ""]
    assert shadow.name == "http://ext.test"
    assert not config(shadow=True).for_dry_runs().filter_verb
