"""Several extenders: order, survivors, errors that count and errors that do not."""

import asyncio

import pytest

from app.extender.chain import ExtenderChain
from app.extender.config import ExtenderConfigError, ManagedResource
from app.extender.errors import CallOutcome, ExtenderError, TransportError
from app.extender.events import ErrorIgnored, ignore
from app.extender.transport import ExtenderResponse
from app.model.status import SchedulingError
from app.wire.extender_v1 import Victims
from tests.shell.extender.fakes import Seen, about, extender, keeps, ok, pod

LOST = TransportError(CallOutcome.TIMEOUT, "timed out", sent=True)
FIRST, SECOND, THIRD = (f"http://{name}.test" for name in ("first", "second", "third"))


def ext(url, answer=None, **fields):
    reply = answer if callable(answer) else lambda path, body: answer
    return extender(reply, **{"url_prefix": url, "bind_verb": "", **fields})


def binder(url, answer=None, **fields):
    return ext(url, answer, bind_verb="bind", **fields)


def chain(*extenders, sink=ignore):
    return ExtenderChain(extenders, sink)


async def run_filter(made, names=("a", "b", "c"), who=None):
    return await made.filter(about(*names, who=who))


async def test_those_that_are_not_ignorable_come_first():
    made = chain(
        ext(FIRST, ignorable=True), ext(SECOND), ext(THIRD, ignorable=True), ext("http://x.test")
    )
    assert [e.name for e in made.extenders] == [SECOND, "http://x.test", FIRST, THIRD]
    assert made
    assert not chain()


class TestFilter:
    async def test_each_sees_the_survivors_of_the_one_before(self):
        one, two = (
            ext(FIRST, keeps("a", "b", FailedNodes={"c": "first"})),
            ext(SECOND, keeps("b", FailedAndUnresolvableNodes={"a": "second"})),
        )
        result = await run_filter(chain(one, two))
        assert two.fake.requests[0][1]["NodeNames"] == ["a", "b"]
        assert result.survivors == ["b"]
        assert (result.failed, result.unresolvable) == ({"c": "first"}, {"a": "second"})
        assert (result.error, result.ignored, result.retry_after) == (None, [], None)

    async def test_nobody_is_asked_about_nothing(self):
        two = ext(SECOND, keeps())
        result = await run_filter(chain(ext(FIRST, {}), two))
        assert (result.survivors, two.fake.requests) == ([], [])

    async def test_those_not_concerned_are_passed_by(self):
        other = ext(FIRST, LOST, managed_resources=(ManagedResource("x.test/y"),))
        verbless = ext(SECOND, LOST, filter_verb="")
        assert (await run_filter(chain(other, verbless))).survivors == ["a", "b", "c"]

    async def test_the_error_of_one_that_counts_ends_it(self):
        two = ext(SECOND, keeps("a"))
        result = await run_filter(chain(ext(FIRST, {"Error": "boom"}), two))
        assert (str(result.error), result.survivors, two.fake.requests) == ("boom", [], [])

    async def test_the_error_of_an_ignorable_one_is_told_and_passed_over(self):
        seen = Seen()
        failing = ext(FIRST, ExtenderResponse(503, {}, b""), ignorable=True)
        result = await run_filter(chain(failing, ext(SECOND, keeps("b")), sink=seen))
        assert result.survivors == ["b"]
        [ignored] = seen.all(ErrorIgnored)
        assert (ignored.error.extender, ignored.pod.name) == (FIRST, "p")
        # It is asked after the other one, about what that one left.
        assert failing.fake.requests[0][1]["NodeNames"] == ["b"]
        assert result.ignored == [ignored.error]

    async def test_an_unresolvable_reason_wins_within_an_answer(self):
        both = ext(FIRST, {"FailedNodes": {"a": "x"}, "FailedAndUnresolvableNodes": {"a": "y"}})
        result = await run_filter(chain(both), ["a"])
        assert (result.failed, result.unresolvable) == ({}, {"a": "y"})

    async def test_the_later_reason_wins_between_answers(self):
        one = ext(FIRST, keeps("a", FailedAndUnresolvableNodes={"a": "first"}))
        two = ext(SECOND, {"FailedNodes": {"a": "second"}})
        result = await run_filter(chain(one, two), ["a"])
        assert (result.failed, result.unresolvable) == ({"a": "second"}, {})

    async def test_names_that_were_not_sent_and_names_given_twice(self):
        answer = {"Nodes": {"items": [{"metadata": {"name": n}} for n in ("b", "x", "a", "a")]}}
        one = ext(FIRST, answer, node_cache_capable=False)
        two = ext(SECOND, lambda path, body: {"NodeNames": body["NodeNames"]})
        result = await run_filter(chain(one, two))
        assert two.fake.requests[0][1]["NodeNames"] == ["b", "x", "a", "a"]
        assert result.survivors == ["b", "x", "a", "a"]
        assert result.known(["a", "b", "c"]) == ["a", "b"]

    async def test_the_earliest_retry_of_those_that_turned_something_down(self):
        def answer(seconds, *names):
            return ok({"NodeNames": list(names)}, **{"Retry-After": str(seconds)})

        made = chain(
            ext(FIRST, answer(9, "a", "b")),
            ext(SECOND, answer(1, "a", "b")),
            ext(THIRD, answer(5)),
        )
        assert (await run_filter(made)).retry_after == 5.0

    async def test_at_once_is_a_time_too(self):
        def answer(seconds, *names):
            return ok({"NodeNames": list(names)}, **{"Retry-After": str(seconds)})

        made = chain(ext(FIRST, answer(0, "a")), ext(SECOND, answer(5)))
        assert (await run_filter(made)).retry_after == 0.0

    async def test_who_turned_something_down(self):
        made = chain(
            ext(FIRST, keeps("a", "b", "c")), ext(SECOND, keeps("b")), ext(THIRD, keeps("b"))
        )
        assert (await run_filter(made)).rejected_by == [SECOND]
        failing = chain(ext(FIRST, keeps("a")), ext(SECOND, {"Error": "boom"}))
        assert (await run_filter(failing)).rejected_by == [SECOND]

    @pytest.mark.looptime
    @pytest.mark.parametrize("verb", ["filter", "bind"])
    @pytest.mark.parametrize("ignorable", [False, True])
    async def test_nobody_is_asked_in_vain(self, verb, ignorable):
        one = ext(FIRST, keeps("a"))
        two = binder(
            SECOND,
            lambda path, body: LOST if path == verb else {"NodeNames": ["a"]},
            ignorable=ignorable,
        )
        made = chain(one, two)
        for _ in range(3):
            with pytest.raises(ExtenderError):
                await (two.bind(pod(), "a") if verb == "bind" else two.filter(about("a")))
        result = await run_filter(made)
        assert len(one.fake.requests) == ignorable
        if ignorable:
            assert result.survivors == ["a"]
        else:
            assert (result.error.extender, result.error.outcome) == (SECOND, CallOutcome.HELD_BACK)
            await asyncio.sleep(5)
            await run_filter(made)
            assert len(one.fake.requests) == 1

    async def test_a_body_is_written_once(self):
        one, two = ext(FIRST, keeps("c", "b", "a")), ext(SECOND, keeps("a", "b", "c"))
        asked = about("a", "b", "c")
        result = await chain(two, one, ext(THIRD, {}, filter_verb="")).filter(asked)
        assert result.args is not asked
        assert result.survivors == ["c", "b", "a"]
        same = await chain(two, ext(THIRD, {}, filter_verb="")).filter(asked)
        assert same.args is asked
        assert asked.body(whole=False) is asked.body(whole=False)
        assert asked.body(whole=True) is not asked.body(whole=False)

    async def test_the_retry_of_an_error(self):
        made = chain(ext(FIRST, ExtenderResponse(503, {"Retry-After": "4"}, b"")))
        assert (await run_filter(made)).retry_after == 4.0


class TestPrioritize:
    def scores(self, **scores):
        return [{"Host": host, "Score": score} for host, score in scores.items()]

    async def test_sums_and_weights(self):
        made = chain(
            ext(FIRST, self.scores(a=1, b=2)), ext(SECOND, self.scores(b=3, x=9), weight=2)
        )
        assert (await made.prioritize(about("a", "b"))).tolist() == [10, 80]

    async def test_failures_add_nothing(self):
        seen = Seen()
        made = chain(ext(FIRST, {"not": "a list"}), ext(SECOND, self.scores(a=1)), sink=seen)
        assert (await made.prioritize(about("a", "b"))).tolist() == [10, 0]
        assert [each.error.extender for each in seen.all(ErrorIgnored)] == [FIRST]

    async def test_nobody_is_asked(self):
        assert await chain(ext(FIRST, {}, prioritize_verb="")).prioritize(about("a")) is None

    @pytest.mark.looptime
    async def test_side_by_side(self):
        async def reply():
            await asyncio.sleep(3)
            return self.scores(a=1)

        made = chain(*(ext(url, lambda path, body: reply()) for url in (FIRST, SECOND, THIRD)))
        began = asyncio.get_running_loop().time()
        assert (await made.prioritize(about("a"))).tolist() == [30]
        assert asyncio.get_running_loop().time() - began == pytest.approx(3)


class TestPreempt:
    def agree(self, **nodes):
        victims = {
            name: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0}
            for name, uids in nodes.items()
        }
        return {"NodeNameToMetaVictims": victims}

    def pods_on(self, name):
        return {f"uid-{name}{i}": pod(f"{name}{i}") for i in range(3)} if name < "d" else None

    async def run(self, made, names=("a", "b")):
        victims = {name: Victims((pod(f"{name}0"),)) for name in names}
        return await made.preempt(pod(), victims, self.pods_on)

    async def test_each_sees_what_the_one_before_left(self):
        two = ext(SECOND, self.agree(b=["uid-b2"]))
        left = await self.run(chain(ext(FIRST, self.agree(b=["uid-b1", "uid-b0"])), two))
        assert {n: [p.name for p in v.pods] for n, v in left.items()} == {"b": ["b2"]}
        sent = two.fake.requests[0][1]["NodeNameToMetaVictims"]
        assert sent == {
            "b": {"Pods": [{"UID": "uid-b1"}, {"UID": "uid-b0"}], "NumPDBViolations": 0}
        }

    async def test_a_node_may_be_added(self):
        assert list(await self.run(chain(ext(FIRST, self.agree(c=["uid-c0"]))))) == ["c"]

    async def test_it_stops_when_nothing_is_left(self):
        two = ext(SECOND, self.agree(a=["uid-a0"]))
        assert await self.run(chain(ext(FIRST, {}), two)) == {}
        assert two.fake.requests == []

    async def test_no_victims_on_a_node(self):
        answer = self.agree(a=[], b=["uid-b0"])
        with pytest.raises(SchedulingError) as caught:
            await self.run(chain(ext(FIRST, answer)))
        assert str(caught.value) == 'expected at least one victim pod on node "a"'
        assert list(await self.run(chain(ext(FIRST, answer, ignorable=True)))) == ["b"]

    async def test_no_victims_where_there_were_none(self):
        """From Kubernetes 1.38 on."""
        made = chain(ext(FIRST, self.agree(a=[], b=["uid-b0"])))
        made.empty_victims = True
        victims = {"a": Victims(()), "b": Victims((pod("b0"),))}
        assert list(await made.preempt(pod(), victims, self.pods_on)) == ["a", "b"]
        with pytest.raises(SchedulingError, match='expected at least one victim pod on node "a"'):
            await self.run(made)

    async def test_errors(self):
        answer = self.agree(d=["uid-d0"])
        with pytest.raises(ExtenderError, match='nodeinfo not found for node name "d"'):
            await self.run(chain(ext(FIRST, answer)))
        assert list(await self.run(chain(ext(FIRST, answer, ignorable=True)))) == ["a", "b"]


class TestBind:
    def looks_up(self, node):
        async def look_up(lost):
            self.looked_up.append(lost)
            return node

        self.looked_up = []
        return look_up

    async def test_the_first_that_is_concerned_binds(self):
        other = binder(FIRST, {}, managed_resources=(ManagedResource("x.test/y"),))
        two = binder(SECOND, {"Error": ""}, managed_resources=(ManagedResource("x.test/z"),))
        made, who = chain(other, two), pod(requests={"x.test/z": "1"})
        assert made.binder_for(who) is two
        assert await made.bind(who, "a", self.looks_up(None))
        assert (len(other.fake.requests), len(two.fake.requests)) == (0, 1)

    async def test_nobody_binds(self):
        made = chain(ext(FIRST))
        assert made.binder_for(pod()) is None
        assert not await made.bind(pod(), "a", self.looks_up(None))

    async def test_a_refusal(self):
        with pytest.raises(ExtenderError, match="no bind today"):
            await chain(binder(FIRST, {"Error": "no bind today"})).bind(
                pod(), "a", self.looks_up(None)
            )
        assert self.looked_up == [False]

    @pytest.mark.parametrize("ignorable", [False, True])
    @pytest.mark.parametrize("answer", [{"Error": "failed"}, ExtenderResponse(500, {}, b"")])
    async def test_a_failure_after_the_pod_was_bound(self, answer, ignorable):
        made = chain(binder(FIRST, answer, ignorable=ignorable))
        assert await made.bind(pod(), "a", self.looks_up("a"))
        assert self.looked_up == [False]

    async def test_a_call_that_never_left(self):
        lost = TransportError(CallOutcome.UNREACHABLE, "refused", sent=False)
        with pytest.raises(ExtenderError, match="refused"):
            await chain(binder(FIRST, lost)).bind(pod(), "a", self.looks_up("a"))
        assert self.looked_up == []

    async def test_a_refusal_of_an_ignorable_one(self):
        seen = Seen()
        made = chain(binder(FIRST, ExtenderResponse(500, {}, b""), ignorable=True), sink=seen)
        assert not await made.bind(pod(), "a", self.looks_up(None))
        assert len(seen.all(ErrorIgnored)) == 1

    @pytest.mark.parametrize("ignorable", [False, True])
    @pytest.mark.parametrize("answer", [LOST, ok(b"{"), ExtenderResponse(504, {}, b"")])
    async def test_a_lost_answer_to_a_bind_that_happened(self, answer, ignorable):
        made = chain(binder(FIRST, answer, ignorable=ignorable))
        assert await made.bind(pod(), "a", self.looks_up("a"))
        assert self.looked_up == [True]

    @pytest.mark.parametrize("ignorable", [False, True])
    async def test_a_lost_answer_and_a_pod_that_went_elsewhere(self, ignorable):
        with pytest.raises(ExtenderError, match="timed out"):
            await chain(binder(FIRST, LOST, ignorable=ignorable)).bind(
                pod(), "a", self.looks_up("b")
            )

    async def test_a_lost_answer_to_a_bind_that_did_not_happen(self):
        with pytest.raises(ExtenderError, match="timed out"):
            await chain(binder(FIRST, LOST)).bind(pod(), "a", self.looks_up(None))
        made = chain(binder(FIRST, LOST, ignorable=True))
        assert not await made.bind(pod(), "a", self.looks_up(None))

    def test_binders_that_may_meet(self):
        with pytest.raises(ExtenderConfigError, match="one of them binds every pod"):
            chain(binder(FIRST), binder(SECOND, managed_resources=(ManagedResource("x.test/y"),)))
        with pytest.raises(ExtenderConfigError, match=r"both manage x\.test/y"):
            chain(
                *(
                    binder(u, managed_resources=(ManagedResource("x.test/y"),))
                    for u in (FIRST, SECOND)
                )
            )

    def test_binders_that_cannot_meet(self):
        chain(
            binder(FIRST, managed_resources=(ManagedResource("x.test/y"),)),
            binder(SECOND, managed_resources=(ManagedResource("x.test/z"),)),
            ext(THIRD),
        )


async def test_close_closes_all():
    made = chain(binder(FIRST), ext(SECOND))
    await made.close()
    assert all(e.fake.closed for e in made.extenders)
