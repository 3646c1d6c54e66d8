"""Scheduling with extenders: which nodes they are shown, late decisions, refusals, and pods woken from outside."""

import asyncio
import random
from collections import Counter

import pytest

from app.extender.config import ManagedResource
from app.extender.errors import CallOutcome, TransportError
from app.extender.events import ExtenderWarning
from app.extender.transport import ExtenderResponse
from app.model.objects import Node
from app.model.selectors import from_map
from app.observe.extender_reports import ExtenderReports
from app.scheduler import extender_retries
from app.serving.extenders import PodName, WakeRequest
from tests.shell.extender.fakes import URL, Seen, ok
from tests.shell.garbage import collecting
from tests.shell.scheduler.extender_world import World, scripted

pytestmark = pytest.mark.looptime

GPU = "x.test/gpu"


def everything(verb, request):
    return {"NodeNames": request["NodeNames"]}


def after(seconds, answer):
    async def reply():
        await asyncio.sleep(seconds() if callable(seconds) else seconds)
        return answer

    return reply()


def refuses(reason="no licence", **headers):
    def reply(verb, request):
        names = request["NodeNames"]
        return ok({"NodeNames": [], "FailedNodes": dict.fromkeys(names, reason)}, **headers)

    return reply


def shown(extender):
    return [request["NodeNames"] for verb, request in extender.fake.requests if verb == "filter"]


async def until(condition, seconds=60):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.05)


class TestSelectedPods:
    ML = from_map({"team": "ml"})

    async def test_other_pods_are_bound_while_the_extender_hangs(self):
        ext = scripted(
            lambda verb, request: asyncio.Event().wait(),
            pod_selector=self.ML,
            bind_verb="bind",
            prioritize_verb="prioritize",
        )
        async with World(ext, parallelism=1).running() as world:
            world.nodes("n1", "n2")
            for number in range(20):
                world.pod(f"p{number}", {"team": "web"})
            await until(lambda: len(world.bound) == 20, seconds=1)
            assert ext.fake.requests == []
            world.pod("ours", {"team": "ml"})
            await until(lambda: ext.fake.requests)
        assert len(ext.fake.requests) == 1

    async def test_a_pod_that_is_no_longer_selected_needs_no_answer(self):
        ext = scripted(lambda verb, request: {"FailedNodes": {"n1": "no"}}, pod_selector=self.ML)
        async with World(ext).running() as world:
            world.nodes("n1")
            pod = world.pod("p", {"team": "ml"})
            await until(lambda: world.place(pod) == "unschedulable")
            world.changed(pod, {"team": "web"})
            await until(lambda: world.bound)
        assert len(ext.fake.requests) == 1

    async def test_a_change_of_labels_during_a_call_keeps_the_order(self):
        ext = scripted(
            lambda verb, request: after(1.0, everything(verb, request)),
            pod_selector=self.ML,
            serial=True,
        )
        async with World(ext).running() as world:
            world.nodes("n1", "n2")
            first = world.pod("first", {"team": "ml"})
            await until(lambda: ext.fake.in_flight)
            world.changed(first, {"team": "web"})
            for number in range(3):
                world.pod(f"p{number}", {"team": "ml"})
            await until(lambda: len(world.bound) == 4)
        assert ext.fake.most_in_flight == 1


class TestChoice:
    async def test_the_survivor_is_taken(self):
        ext = scripted(lambda verb, request: {"NodeNames": ["n3"]})
        async with World(ext).running() as world:
            world.nodes("n1", "n2", "n3", "n4")
            world.pod("p")
            await until(lambda: world.bound)
        assert world.bound == {"p": "n3"}

    async def test_scores_of_extenders_decide(self):
        scores = [
            {"Host": "n1", "Score": 1},
            {"Host": "n2", "Score": 9},
            {"Host": "x", "Score": 99},
        ]
        ext = scripted(lambda verb, request: scores, filter_verb="", prioritize_verb="p", weight=5)
        async with World(ext).running() as world:
            world.nodes("n1", "n2", "n3")
            world.pod("p")
            await until(lambda: world.bound)
        assert world.bound == {"p": "n2"}

    async def test_scores_stay_with_their_nodes_whatever_the_order(self):
        def reply(verb, request):
            names = request["NodeNames"]
            if verb == "filter":
                return {"NodeNames": list(reversed(names))[:3]}
            return [{"Host": name, "Score": 9 * (name == names[1])} for name in sorted(names)]

        ext = scripted(reply, prioritize_verb="prioritize", weight=5)
        async with World(ext).running() as world:
            world.nodes("n1", "n2", "n3", "n4")
            world.pod("p")
            await until(lambda: world.bound)
        [names] = shown(ext)
        assert world.bound == {"p": names[-2]}

    async def test_the_next_best_are_shown_when_all_were_turned_down(self):
        def reply(verb, request):
            return {"NodeNames": [n for n in request["NodeNames"] if n == "n007"]}

        ext = scripted(reply)
        async with World(ext, percentage=10).running() as world:
            world.nodes(*(f"n{i:03}" for i in range(250)))
            world.pod("p")
            await until(lambda: world.bound)
        assert world.bound == {"p": "n007"}
        asked = [name for names in shown(ext) for name in names]
        assert len(asked) == len(set(asked))
        assert {len(names) for names in shown(ext)[:-1]} <= {100}

    async def test_replicas_are_asked_about_the_same_nodes_while_others_are_undecided(self):
        ext = scripted(lambda verb, request: after(1.0, everything(verb, request)), serial=False)
        async with World(ext, percentage=50).running() as world:
            world.nodes(*(f"n{i:03}" for i in range(250)), cpu="1")
            for number in range(8):
                world.pod(f"p{number}", cpu="1")
            world.pod("larger", cpu="1", memory="1Gi")
            await until(lambda: len(world.bound) == 9)
            world.pod("later", cpu="1")
            await until(lambda: "later" in world.bound)
        *replicas, larger, later = map(tuple, shown(ext))
        assert len(set(replicas)) == 1
        assert len({replicas[0], larger, later}) == 3
        assert len(set(world.bound.values())) == 10

    async def test_nodes_that_were_all_rejected_are_not_sent_about_replicas(self):
        def reply(verb, request):
            if len(shown(ext)) == 1:
                return after(1.0, {"NodeNames": []})
            return after(3.0, everything(verb, request))

        ext = scripted(reply, serial=False)
        async with World(ext, percentage=50).running() as world:
            world.nodes(*(f"n{i:03}" for i in range(250)))
            for name in "pqr":
                world.pod(name)
            await until(lambda: len(shown(ext)) == 4)
            world.pod("s")
            await until(lambda: len(world.bound) == 4)
        first, *replicas, again, after_that = map(tuple, shown(ext))
        assert replicas == [first, first]
        assert set(first).isdisjoint(again)
        assert after_that != first

    async def test_pods_of_a_serial_extender_are_asked_about_nodes_as_they_are(self):
        ext = scripted(everything, serial=True)
        async with World(ext, percentage=50).running() as world:
            world.nodes(*(f"n{i:03}" for i in range(250)), cpu="1")
            for number in range(4):
                world.pod(f"p{number}", cpu="1")
            await until(lambda: len(world.bound) == 4)
        assert len({tuple(names) for names in shown(ext)}) == 4

    async def test_pods_of_other_extenders_make_no_difference_to_a_serial_one(self):
        chooser = scripted(
            lambda verb, request: after(0.5, everything(verb, request)),
            url_prefix="http://chooser.test",
            serial=True,
            pod_selector=from_map({"team": "ml"}),
        )
        slow = scripted(
            lambda verb, request: after(4.0, everything(verb, request)),
            serial=False,
            pod_selector=from_map({"team": "web"}),
        )
        async with World(slow, chooser, percentage=50).running() as world:
            world.nodes(*(f"n{i:03}" for i in range(250)), cpu="1")
            for number in range(8):
                world.pod(f"web-{number}", labels={"team": "web"}, cpu="1")
            await until(lambda: len(shown(slow)) == 8)
            for number in range(3):
                world.pod(f"ml-{number}", labels={"team": "ml"}, cpu="1")
            await until(lambda: len(world.bound) == 11)
        assert len({tuple(names) for names in shown(slow)}) == 1
        assert len({tuple(names) for names in (*shown(chooser), shown(slow)[0])}) == 4

    @pytest.mark.parametrize(("cpu", "bound"), [("2", {"p": "n1"}), ("3", {})])
    async def test_the_pod_is_decided_as_it_is_when_the_answer_comes(self, cpu, bound):
        ext = scripted(lambda verb, request: after(1.0, everything(verb, request)))
        async with World(ext).running() as world:
            world.nodes("n1", cpu="2")
            old = world.pod("p", cpu="1")
            await until(lambda: ext.fake.requests)
            world.changed(old, cpu=cpu)
            await until(lambda: world.told)
            [row] = world.state.table.live_rows()
            requested = world.state.table.requested.column("cpu")[row]
        assert world.bound == bound
        assert requested == (2000 if bound else 0)

    async def test_a_pod_that_another_scheduler_binds_meanwhile_is_dropped(self):
        """Its JSON is not kept once it is bound, and the next candidates may have to be asked about."""
        ext = scripted(lambda verb, request: after(1.0, everything(verb, request)))
        async with World(ext).running() as world:
            world.nodes("n1")
            pod = world.pod("p", cpu="1")
            await until(lambda: ext.fake.requests)
            world.bound["p"] = "n0"
            world.confirm(pod)
            world.nodes("n2")
            world.apply(Node, world.state.table.nodes[world.state.table.row_of["n1"]], None)
            await until(lambda: len(ext.fake.requests) == 2)
            await asyncio.sleep(2.0)
            assert world.place(pod) == "outside"
        assert world.bound == {"p": "n0"}
        assert not world.told

    async def test_a_word_about_a_node_that_was_not_shown(self):
        answer = {"FailedAndUnresolvableNodes": {"n1": "no licence", "n2": "nor there", "x": "?"}}
        async with World(scripted(lambda verb, request: answer)).running() as world:
            world.nodes("n1")
            world.nodes("n2", "n3", cpu="1")
            world.pod("p", cpu="2")
            await until(lambda: world.told)
        assert world.told == [
            (
                "p",
                "Unschedulable",
                "0/3 nodes are available: 1 Insufficient cpu, 1 no licence, 1 nor there.",
            )
        ]

    async def test_a_word_in_passing_about_a_node_that_was_turned_down_before(self):
        def reply(verb, request):
            others = {f"n{i:03}" for i in range(150)}.difference(request["NodeNames"])
            return {
                "FailedNodes": dict.fromkeys(others, "not now"),
                "FailedAndUnresolvableNodes": dict.fromkeys(request["NodeNames"], "never"),
            }

        async with World(scripted(reply), percentage=10).running() as world:
            world.nodes(*(f"n{i:03}" for i in range(150)))
            world.pod("p")
            await until(lambda: world.told)
        assert world.told == [("p", "Unschedulable", "0/150 nodes are available: 150 never.")]

    async def test_a_node_that_went_while_it_was_asked_about(self):
        ext = scripted(lambda verb, request: after(2, everything(verb, request)))
        async with World(ext).running() as world:
            world.nodes("n1", "n2")
            world.pod("p", cpu="1")
            await asyncio.sleep(1)
            gone = world.state.table.nodes[world.state.table.row_of["n1"]]
            world.apply(Node, gone, None)
            world.nodes("n9")
            await until(lambda: world.bound)
        assert world.bound == {"p": "n2"}

    async def test_a_pod_that_is_deleted_while_it_is_asked_about_keeps_no_room(self):
        ext = scripted(lambda verb, request: after(1, everything(verb, request)))
        async with World(ext).running() as world:
            world.nodes("n1", cpu="4")
            preemptor = world.pod("preemptor", cpu="4")
            world.state.nominator.add(preemptor, "n1")
            await asyncio.sleep(0.5)
            world.terminate(preemptor)
            await asyncio.sleep(1)
            world.pod("p", cpu="4")
            await asyncio.sleep(2)
            assert world.bound == {"p": "n1"}


class TestOverlap:
    @pytest.mark.parametrize("seed", range(8))
    async def test_the_last_free_place_is_filled_once(self, seed):
        dice = random.Random(seed)
        ext = scripted(
            lambda verb, request: after(dice.random, everything(verb, request)), serial=False
        )
        async with World(ext, seed=seed).running() as world:
            world.nodes("n1", cpu="1")
            for number in range(20):
                world.pod(f"p{number}", cpu="1")
            await until(lambda: world.bound and len(world.told) >= 20)
        assert len(world.bound) == 1
        assert ext.fake.most_in_flight == 16

    @pytest.mark.parametrize("seed", range(16))
    async def test_every_place_is_filled_once_whatever_the_order_of_answers(self, seed):
        """Two extenders, both verbs, subsets at random; pods come and go while others are in flight."""
        dice = random.Random(seed)
        places = {"n1": 1, "n2": 1, "n3": 3}

        def reply(verb, request):
            names = request["NodeNames"]
            if verb == "filter":
                kept = names if dice.random() < 0.7 else dice.sample(names, len(names) - 1)
                return after(dice.random, {"NodeNames": kept})
            scores = [{"Host": name, "Score": dice.randint(0, 10)} for name in names]
            return after(dice.random, scores)

        extenders = [
            scripted(reply, prioritize_verb="prioritize", url_prefix=f"http://{name}.test")
            for name in ("one", "two")
        ]
        world, pods, left = World(*extenders, seed=seed), {}, set()

        def staying():
            return Counter(node for name, node in world.bound.items() if name not in left)

        def filled():
            assert staying() <= Counter(places)
            return staying() == Counter(places)

        async with world.running():
            for name, number in places.items():
                world.nodes(name, cpu=str(number))
            for number in range(20):
                pods[f"p{number}"] = world.pod(f"p{number}", cpu="1")
                if dice.random() < 0.2:
                    await asyncio.sleep(dice.random())
            for _ in range(4):
                await until(filled)
                name = dice.choice([name for name in world.bound if name not in left])
                left.add(name)
                world.gone(world.confirm(pods[name]))
            await until(filled)
        assert len(world.bound) == 5 + 4
        assert max(ext.fake.most_in_flight for ext in extenders) > 1

    @pytest.mark.parametrize("seed", range(4))
    async def test_pods_in_flight_spread_as_evenly_as_one_after_another(self, seed):
        def reply(verb, request):
            if verb == "filter":
                return everything(verb, request)
            return [{"Host": name, "Score": 5} for name in request["NodeNames"]]

        async def spread(parallelism):
            dice = random.Random(seed)
            ext = scripted(
                lambda verb, request: after(dice.random, reply(verb, request)),
                prioritize_verb="prioritize",
            )
            async with World(ext, seed=seed, parallelism=parallelism).running() as world:
                world.nodes(*(f"n{i}" for i in range(10)))
                for number in range(40):
                    world.pod(f"p{number}", cpu="500m", memory="100Mi")
                await until(lambda: len(world.bound) == 40)
            return sorted(Counter(world.bound.values()).values())

        assert await spread(16) == await spread(1) == [4] * 10

    @pytest.mark.parametrize("serial", [True, None], ids=["serial", "found out"])
    async def test_an_extender_that_chooses_is_shown_what_is_left(self, serial):
        """As some for GPUs do: it reserves one of the nodes that it is sent, and takes no pod twice."""
        seen, places = [], {"n1": 2, "n2": 2, "n3": 2}

        def reply(verb, request):
            name, names = request["Pod"]["metadata"]["name"], request["NodeNames"]
            if name in seen:
                return after(0.1, {"Error": f"pod {name} had been reserved"})
            seen.append(name)
            return after(0.1, {"NodeNames": sorted(names)[:1]})

        ext = scripted(reply, serial=serial)
        async with World(ext).running() as world:
            for name, number in places.items():
                world.nodes(name, cpu=str(number))
            for number in range(6):
                world.pod(f"p{number}", cpu="1")
            await until(lambda: len(world.bound) == 6 or len(world.told) > 6)
        assert Counter(world.bound.values()) == places
        assert len(ext.fake.requests) == 6

    async def test_calls_overlap_while_an_extender_leaves_a_choice(self):
        left, most = 3, []

        def reply(verb, request):
            most.append(ext.fake.in_flight)
            return after(1, {"NodeNames": request["NodeNames"][:left]})

        ext = scripted(reply)
        async with World(ext).running() as world:
            world.nodes("n1", "n2", "n3", "n4")

            async def pods(count):
                most.clear()
                bound = len(world.bound)
                for number in range(count):
                    world.pod(f"p{bound + number}")
                await until(lambda: len(world.bound) == bound + count)
                return most

            assert await pods(6) == [1, 1, 2, 3, 4, 5]
            left = 1
            assert await pods(3) == [1, 2, 3]
            assert await pods(3) == [1, 1, 1]
            left = 2
            assert await pods(4) == [1, 1, 2, 3]

    @pytest.mark.parametrize("ignorable", [True, False])
    async def test_an_extender_that_fails_is_not_waited_for_one_by_one(self, ignorable):
        ext = scripted(lambda verb, request: after(99, {}), ignorable=ignorable, http_timeout=5)
        async with World(ext).running() as world:
            world.nodes("n1", "n2")
            for number in range(12):
                world.pod(f"p{number}")
            await asyncio.sleep(10.1)
            assert ext.fake.most_in_flight > 10
            assert len(world.bound) == (12 if ignorable else 0)

    async def test_an_ignorable_extender_that_hangs_from_the_start_costs_little_more_than_one_timeout(
        self,
    ):
        ext = scripted(lambda verb, request: after(99, {}), ignorable=True, http_timeout=5)
        async with World(ext).running() as world:
            world.nodes("n1", "n2")
            for number in range(60):
                world.pod(f"p{number}")
            await asyncio.sleep(0.9)
            assert len(ext.fake.requests) == 1
            await asyncio.sleep(5.4)
            assert (
                len(world.bound) >= 58
            )  # one took the place of the first when that gave up, one is the breaker's probe

    async def test_an_ignorable_extender_that_takes_its_time_is_still_found_to_choose(self):
        ext = scripted(
            lambda verb, request: after(1.5, {"NodeNames": request["NodeNames"][:1]}),
            ignorable=True,
        )
        async with World(ext).running() as world:
            world.nodes("n1", "n2")
            for number in range(3):
                world.pod(f"p{number}")
            await until(lambda: len(world.bound) == 3)
            assert ext.fake.most_in_flight == 3
            ext.fake.most_in_flight = 0
            for number in range(3, 6):
                world.pod(f"p{number}")
            await until(lambda: len(world.bound) == 6)
            assert ext.fake.most_in_flight == 1

    async def test_a_pod_that_is_tried_without_a_question_does_not_try_anybodys_patience(self):
        ext = scripted(lambda verb, request: after(1, everything(verb, request)), ignorable=True)
        async with World(ext).running() as world:
            world.pod("p", cpu="1")
            await asyncio.sleep(3)
            assert not ext.fake.requests
            world.nodes("n1", "n2")
            world.pod("q")
            await asyncio.sleep(1)
            assert len(ext.fake.requests) == 1
            await until(lambda: len(world.bound) == 2)

    async def test_an_extender_that_chooses_though_calls_overlap_is_warned_of(self):
        ext = scripted(lambda verb, request: after(1, {"NodeNames": ["n1"]}), serial=False)
        world = World(ext)
        world.chain._emit = seen = Seen()
        async with world.running():
            world.nodes("n1", "n2", cpu="1")
            for number in range(4):
                world.pod(f"p{number}", cpu="1")
            await asyncio.sleep(5)
        assert list(world.bound.values()) == ["n1"]
        [warning] = seen.all(ExtenderWarning)
        assert warning.extender == URL
        assert "remove 'serial: false'" in warning.text

    @pytest.mark.parametrize("names", [("one", "two"), ("same", "same")])
    async def test_two_serial_extenders_do_not_wait_for_each_other_for_ever(self, names):
        extenders = [
            scripted(
                lambda verb, request: after(0.1, everything(verb, request)),
                serial=True,
                url_prefix=f"http://{name}.test",
            )
            for name in names
        ]
        async with World(*extenders).running() as world:
            world.nodes("n1", "n2")
            for number in range(6):
                world.pod(f"p{number}")
            await until(lambda: len(world.bound) == 6)
        assert [ext.fake.most_in_flight for ext in extenders] == [1, 1]

    @pytest.mark.parametrize("serial", [True, None], ids=["serial", "not known yet"])
    async def test_pods_that_wait_for_their_turn_hold_up_nobody_else(self, serial):
        ext = scripted(
            lambda verb, request: after(1, everything(verb, request)),
            serial=serial,
            managed_resources=(ManagedResource(GPU),),
        )
        async with World(ext, parallelism=4).running() as world:
            world.nodes("n1", "n2", **{GPU: "99"})
            for number in range(12):
                world.pod(f"with-{number}", **{GPU: "1"})
            for number in range(12):
                world.pod(f"without-{number}")
            await asyncio.sleep(0.5)
            assert set(world.bound) == {f"without-{number}" for number in range(12)}
            await until(lambda: len(world.bound) == 24)
        assert ext.fake.most_in_flight == (1 if serial else 4)

    async def test_they_hold_up_nobody_else_though_another_extender_concerns_all(self):
        slow = scripted(
            lambda verb, request: after(1, everything(verb, request)),
            serial=True,
            managed_resources=(ManagedResource(GPU),),
        )
        quick = scripted(
            lambda verb, request: after(0.01, everything(verb, request)), url_prefix="http://q.test"
        )
        async with World(slow, quick, parallelism=4).running() as world:
            world.nodes("n1", "n2", **{GPU: "99"})
            for number in range(8):
                world.pod(f"with-{number}", **{GPU: "1"})
            for number in range(40):
                world.pod(f"without-{number}")
            await asyncio.sleep(1.5)  # the first answer of the quick one tells that it filters
            assert len(world.bound) == 41
            await until(lambda: len(world.bound) == 48)
        assert [name for name in world.bound if name.startswith("with-")] == [
            f"with-{number}" for number in range(8)
        ]

    async def test_pods_that_wait_for_a_slot_hold_up_nobody_else(self):
        ext = scripted(
            lambda verb, request: after(1, everything(verb, request)),
            serial=False,
            managed_resources=(ManagedResource(GPU),),
        )
        async with World(ext, parallelism=2).running() as world:
            world.nodes("n1", "n2", **{GPU: "99"})
            for number in range(6):
                world.pod(f"with-{number}", **{GPU: "1"})
            world.pod("without")
            await asyncio.sleep(0.5)
            assert list(world.bound) == ["without"]
            await until(lambda: len(world.bound) == 7)
        assert ext.fake.most_in_flight == 2

    async def test_while_all_wait_for_a_slot_nobody_looks_for_the_next_pod(self):
        ext = scripted(lambda verb, request: after(1, everything(verb, request)), serial=False)
        async with World(ext, parallelism=2).running() as world:
            world.nodes("n1", "n2")
            for number in range(6):
                world.pod(f"p{number}")
            await asyncio.sleep(0.1)
            popped, pop = [], world.state.pop
            world.state.pop = lambda *args: popped.append(pop(*args))
            for number in range(9):
                world.nodes(f"further-{number}")
                await asyncio.sleep(0.01)
            world.state.pop = pop
            await until(lambda: len(world.bound) == 6)
        assert not popped

    async def test_with_one_slot_nobody_overtakes(self):
        ext = scripted(
            lambda verb, request: after(1, everything(verb, request)),
            managed_resources=(ManagedResource(GPU),),
        )
        async with World(ext, parallelism=1).running() as world:
            world.nodes("n1", "n2", **{GPU: "99"})
            for number in range(0, 8, 2):
                world.pod(f"p{number}", **{GPU: "1"})
                world.pod(f"p{number + 1}")
            await until(lambda: len(world.bound) == 8)
        assert list(world.bound) == [f"p{number}" for number in range(8)]

    async def test_a_pod_that_two_serial_extenders_concern_gets_its_turn(self):
        other = "x.test/fpga"
        extenders = [
            scripted(
                lambda verb, request: after(0.3, everything(verb, request)),
                serial=True,
                url_prefix=f"http://{resource}",
                managed_resources=(ManagedResource(resource),),
            )
            for resource in (GPU, other)
        ]
        async with World(*extenders).running() as world:
            world.nodes("n1", "n2", **{GPU: "99", other: "99"})
            for number in range(3):
                world.pod(f"a{number}", **{GPU: "1"})
                world.pod(f"b{number}", **{other: "1"})
            world.pod("both", **{GPU: "1", other: "1"})
            for number in range(3, 20):
                world.pod(f"a{number}", **{GPU: "1"})
                await asyncio.sleep(0.05)
                world.pod(f"b{number}", **{other: "1"})
            await until(lambda: "both" in world.bound)
            assert len(world.bound) == 7
            world.nodes("n3")
            await until(lambda: len(world.bound) == 41)
        assert [ext.fake.most_in_flight for ext in extenders] == [1, 1]

    async def test_at_most_as_many_at_once_as_allowed(self):
        ext = scripted(lambda verb, request: after(1, everything(verb, request)))
        async with World(ext, parallelism=3).running() as world:
            world.nodes("n1", "n2")
            for number in range(9):
                world.pod(f"p{number}")
            await until(lambda: len(world.bound) == 9)
        assert ext.fake.most_in_flight == 3

    async def test_the_loop_pauses_while_bindings_are_being_written(self):
        class Slow(World):
            async def bind(self, pod, node_name):
                await asyncio.sleep(10)
                return await super().bind(pod, node_name)

        ext = scripted(lambda verb, request: after(0.01, everything(verb, request)), serial=False)
        async with Slow(ext, parallelism=4, max_writing=8).running() as world:
            world.nodes("n1", cpu="64")
            for number in range(40):
                world.pod(f"p{number}")
            await asyncio.sleep(5)
            assert (
                8 <= world.binder.writes.count < 8 + 4
            )  # those that were being asked about as well
            await until(lambda: len(world.bound) == 40)


class TestRequeue:
    async def test_retry_after(self):
        ext = scripted(refuses(**{"Retry-After": "20"}))
        async with World(ext).running() as world:
            world.nodes("n1")
            pod = world.pod("p")
            await asyncio.sleep(19)
            assert world.place(pod) == "unschedulable"
            assert len(shown(ext)) == 1
            ext.fake.reply = everything
            await asyncio.sleep(1.5)
        assert world.bound == {"p": "n1"}
        assert len(world.retries) == 0

    async def test_the_retry_after_of_an_error(self):
        ext = scripted(
            lambda verb, request: ExtenderResponse(
                503, {"Retry-After": "3"}, b"licence server restarts"
            )
        )
        async with World(ext).running() as world:
            world.nodes("n1")
            world.pod("p")
            await asyncio.sleep(0.2)
            assert len(world.retries) == 1
            told = [entry for entry in world.told if entry[1] == "ExtenderFailed"]
            world.gone(world.state.queue.pending_pods()[0])
        code = f"failed filter with extender at URL {URL}/filter, code 503"
        assert told == [("p", "ExtenderFailed", f"{code}: licence server restarts")]
        assert ("p", "SchedulerError", code) in world.told

    async def test_at_once_is_a_second(self):
        ext = scripted(refuses(**{"Retry-After": "0"}))
        async with World(ext).running() as world:
            world.nodes("n1")
            pod = world.pod("p")
            await asyncio.sleep(9.9)
            world.gone(pod)
        assert len(shown(ext)) == 10

    async def test_a_wall_clock_that_is_put_back_keeps_nobody_waiting(self):
        async with World().running() as world:
            world.pod("p", cpu="1")
            await asyncio.sleep(0.5)
            assert [reason for _, reason, _ in world.told] == ["Unschedulable"]
            world.nodes("n1")
            world.clock.put_back = 3600.0
            await until(lambda: world.bound)
            assert asyncio.get_running_loop().time() < 3

    async def test_a_pod_that_has_gone_is_not_tried(self):
        ext = scripted(refuses(**{"Retry-After": "5"}))
        async with World(ext).running() as world:
            world.nodes("n1")
            pod = world.pod("p")
            await asyncio.sleep(1)
            world.gone(pod)
            assert (len(world.retries), world.retries._timers) == (0, 0)
            await asyncio.sleep(20)
        assert len(shown(ext)) == 1

    async def test_a_pod_that_has_gone_while_it_was_turned_down_is_forgotten(self):
        refuse = refuses()
        ext = scripted(lambda verb, request: after(1, refuse(verb, request)))
        async with World(ext).running() as world:
            world.nodes("n1")
            gone, stays = world.pod("gone"), world.pod("stays")
            await asyncio.sleep(0.5)
            world.gone(gone)
            await until(lambda: world.place(stays) == "unschedulable" and len(world.retries) == 1)

    async def test_without_a_header_a_pod_waits_for_an_event(self):
        ext = scripted(refuses())
        async with World(ext).running() as world:
            world.nodes("n1")
            world.pod("p")
            await asyncio.sleep(60)
            assert len(shown(ext)) == 1
            ext.fake.reply = everything
            world.nodes("n2")
            await until(lambda: world.bound)

    async def test_woken_from_outside(self):
        ext = scripted(refuses())
        async with World(ext).running() as world:
            world.nodes("n1")
            world.pod("p")
            world.pod("q")
            await asyncio.sleep(30)
            ext.fake.reply = everything
            assert world.retries.wake(WakeRequest(pods=(PodName("ns", "q"),))) == 1
            await asyncio.sleep(0.1)
            assert world.bound == {"q": "n1"}
            assert world.retries.wake(WakeRequest(extender=f"{URL}/")) == 1
            await asyncio.sleep(0.1)
            assert set(world.bound) == {"p", "q"}
            assert world.retries.wake(WakeRequest()) == 0

    async def test_woken_while_being_tried(self):
        ext = scripted(refuses())
        async with World(ext).running() as world:
            world.nodes("n1")
            world.pod("p")
            await asyncio.sleep(30)
            ext.fake.reply = lambda verb, request: after(5, refuses()(verb, request))
            world.retries.wake(WakeRequest())
            await asyncio.sleep(1)
            assert world.retries.wake(WakeRequest()) == 1
            ext.fake.reply = everything
            await until(lambda: world.bound)
        assert len(shown(ext)) == 3

    async def test_conditions(self):
        other = scripted(everything, url_prefix="http://other.test")
        async with World(scripted(refuses()), other).running() as world:
            world.nodes("n1")
            world.pod("p")
            world.pod("q", **{"example.com/licence": "1"})
            await asyncio.sleep(30)

            def woken(**conditions):
                return world.retries.wake(WakeRequest(**conditions))

            assert woken(extender="http://other.test") == 0
            assert (
                woken(resource="example.com/licence") == 0
            )  # no node has any: no extender was asked
            assert woken(resource="example.com/other") == 0
            assert woken(pods=()) == 0
            assert woken(pods=(PodName("other", "p"),)) == 0
            assert woken(extender=URL, pods=(PodName("ns", "p"),)) == 1
            with pytest.raises(
                ValueError, match=rf'no extender "x" is configured; configured: {URL}, '
            ):
                woken(extender="x")

    async def test_a_failed_bind_with_a_retry(self):
        answers = [
            ExtenderResponse(500, {"Retry-After": "4"}, b'{"Error":"card is busy"}'),
            {"Error": ""},
        ]

        def reply(verb, request):
            return everything(verb, request) if verb == "filter" else answers.pop(0)

        ext = scripted(reply, bind_verb="bind")
        async with World(ext).running() as world:
            world.nodes("n1")
            world.pod("p")
            await asyncio.sleep(0.1)
            assert len(world.retries) == 1
            await until(lambda: not answers)
            await asyncio.sleep(0.1)
        assert world.bound == {}  # the extender did it
        assert ("p", "Scheduled", "n1") in world.told
        assert any("card is busy" in note for _, _, note in world.told)

    async def test_timers_are_bounded(self, monkeypatch):
        monkeypatch.setattr(extender_retries, "MAX_TIMERS", 2)
        ext = scripted(refuses(**{"Retry-After": "50"}))
        async with World(ext).running() as world:
            world.nodes("n1")
            for number in range(5):
                world.pod(f"p{number}")
            await asyncio.sleep(1)
            assert (len(world.retries), world.retries._timers) == (5, 2)
            await asyncio.sleep(51)
            assert len(shown(ext)) == 7


class TestIgnored:
    def broken(self):
        lost = TransportError(CallOutcome.UNREACHABLE, "connection refused", sent=False)
        return scripted(lambda verb, request: lost, ignorable=True)

    async def test_pods_are_told_now_and_then_and_the_log_once(self, caplog):
        caplog.set_level("INFO")
        ext = self.broken()
        world = World(ext)
        reports = ExtenderReports(wall=world.clock.wall, monotonic=world.clock.monotonic)
        reports.send_to(world)
        world.chain._emit = ext._emit = reports.on
        async with world.running():
            world.nodes("n1")
            for number in range(6):
                world.pod(f"p{number}")
                await asyncio.sleep(8)
            ext.fake.reply = everything
            await asyncio.sleep(60)
            world.pod("last")
            await until(lambda: len(world.bound) == 7)
        told = [entry for entry in world.told if entry[1] == "ExtenderIgnored"]
        assert [name for name, _, _ in told] == ["p0", "p4"]
        assert told[0][2] == f"extender {URL} was ignored: filter: connection refused"
        assert told[1][2].endswith("(and 3 more times since the last event)")
        messages = [r.getMessage() for r in caplog.records if "xtender" in r.getMessage()]
        assert messages == ["Extender fails and is ignored", "Extender answers again"]


async def breaks_off(verb, request):
    raise TransportError(CallOutcome.UNREACHABLE, "connection refused", sent=False)


@pytest.mark.parametrize("ignorable", [False, True])
@pytest.mark.parametrize(
    "reply",
    [
        breaks_off,
        lambda verb, request: ExtenderResponse(500, {}, b"broken"),
        lambda verb, request: ok(b"nonsense"),
        lambda verb, request: {"Error": "no"},
        refuses(),
    ],
    ids=["no connection", "500", "nonsense", "an error", "refuses all"],
)
async def test_a_failed_attempt_is_freed_without_a_collection(reply, ignorable):
    """Collections of old objects are minutes apart, and each attempt has candidates and columns of scores."""
    ext = scripted(reply, ignorable=ignorable)
    async with World(ext).running() as world:
        world.nodes("n1", "n2")
        with collecting() as left:
            for number in range(4):
                world.pod(f"p{number}")
            await asyncio.sleep(1)
    assert ext.fake.requests
    assert not left & Counter(
        dict.fromkeys(("Attempt", "ExtenderArgs", "FilterResult", "frame"), 1)
    )
