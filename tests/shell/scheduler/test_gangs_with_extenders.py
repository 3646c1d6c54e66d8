"""The calls for one group of pods overlap, and the outcome is that of calls one after another."""

import asyncio
import functools
import itertools
import json
import random
from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.extender.config import ManagedResource
from app.extender.errors import CallOutcome, TransportError
from app.extender.transport import ExtenderResponse
from app.framework.testing import make_pod
from app.model.pod import LabelSet, Pod
from app.model.pod_groups import GROUP_LABEL
from tests.fuzz.driver import in_new_loop
from tests.shell.extender.fakes import extender
from tests.shell.garbage import collecting
from tests.shell.scheduler import test_group_placements as placements
from tests.shell.scheduler.test_group_cycle import bindings, gang
from tests.shell.scheduler.world import CONFIG, running

pytestmark = pytest.mark.looptime


def member(name, group="gang", labels=None, cpu="1", **spec):
    """A pod with its JSON."""
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    labels = (labels or {}) | ({GROUP_LABEL: group} if group else {})
    made = make_pod(name, labels=labels, spec={"containers": containers, **spec})
    raw = {"metadata": {"name": name, "namespace": "default", "uid": made.uid}, "spec": {}}
    return msgspec.structs.replace(made, raw=json.dumps(raw).encode())


def slowly(reply, seconds=0.01):
    """Answers as ``reply`` does, after a time."""

    def answer(verb, request):
        async def later():
            await asyncio.sleep(seconds)
            return reply(verb, request)

        return later()

    return answer


def everything(verb, request):
    names = request.get("NodeNames") or []
    if verb == "filter":
        return {"NodeNames": names}
    return [{"Host": name, "Score": 0} for name in names] if verb == "prioritize" else {"Error": ""}


def one_extender(reply, **fields):
    """``running(extenders=...)`` for one extender, and the list in which it is found then."""
    made = []

    def make(sink):
        made.append(extender(reply, sink=sink, **{"bind_verb": "", "preempt_verb": "", **fields}))
        return made[:]

    return make, made


def calls(extender, verb="filter"):
    """The pods that a verb was called for, in order."""
    return [r["Pod"]["metadata"]["name"] for v, r in extender.fake.requests if v == verb]


def with_parallelism(number):
    return f"{CONFIG}parallelism: {number}\n"


NODES = [f"n{i}" for i in range(8)]


async def placed(reply, size, *, nodes=NODES, seconds=5.0, config=CONFIG, pods=None, **fields):
    """Where a gang of this size is bound, the extender, and when the last pod was bound."""
    make, made = one_extender(reply, **fields)
    async with running(*nodes, extenders=make, config=config) as world:
        gang(world, size)
        for one in pods or [member(f"p{i:03}") for i in range(size)]:
            world.add(one)
        await world.run_for(seconds)
        return bindings(world), made[0]


async def test_the_calls_for_a_gang_overlap_up_to_parallelism():
    _, serially = await placed(slowly(everything), 32, config=with_parallelism(1))
    bound, ext = await placed(slowly(everything), 32, serial=False)
    assert len(bound) == 32
    assert serially.fake.most_in_flight == 1
    assert ext.fake.most_in_flight == 16
    _, four = await placed(slowly(everything), 32, serial=False, config=with_parallelism(4))
    assert four.fake.most_in_flight == 4


@pytest.mark.parametrize("size", [8, 100])  # all fit, or too few
async def test_the_cycle_of_a_group_is_freed_without_a_collection(size):
    """Collections of old objects are minutes apart, and each pod of a group has a list of nodes."""
    make, made = one_extender(slowly(everything))
    async with running(*NODES, extenders=make) as world:
        with collecting() as left:
            gang(world, size)
            for number in range(size):
                world.add(member(f"p{number:03}"))
            await world.run_for(5)
    assert made[0].fake.requests
    assert not left & Counter({"GroupAlgorithm": 1, "ExtenderArgs": 1, "AskAhead": 1, "Attempt": 1})


async def test_each_pod_is_asked_about_once():
    bound, ext = await placed(slowly(everything), 32)
    assert len(bound) == 32
    assert sorted(calls(ext)) == sorted(bound)
    assert sorted(calls(ext, "prioritize")) == sorted(bound)


async def test_each_pod_is_asked_about_once_when_not_all_nodes_are_sent():
    nodes = [f"n{i}" for i in range(400)]
    bound, ext = await placed(slowly(everything), 64, nodes=nodes)
    assert len(bound) == 64
    assert sorted(calls(ext)) == sorted(bound)
    sent = [len(r["NodeNames"]) for verb, r in ext.fake.requests if verb == "filter"]
    usual = 400 * 47 // 100
    assert sent[0] == usual < max(sent) <= usual + 64


async def test_the_first_answer_shows_that_calls_may_overlap():
    _, ext = await placed(slowly(everything), 8)
    assert [verb for verb, _ in ext.fake.requests[:3]] == ["filter", "prioritize", "filter"]
    assert calls(ext)[0] == calls(ext, "prioritize")[0]
    assert ext.fake.most_in_flight == 7


async def test_a_gang_is_as_fast_as_its_calls_overlap():
    loop = asyncio.get_running_loop()
    ended = []

    def reply(verb, request):
        ended.append(loop.time())
        return everything(verb, request)

    began = loop.time()
    bound, _ = await placed(slowly(reply, 1.0), 32, seconds=60)
    assert len(bound) == 32
    # One pod alone, then sixteen at a time: one in the group's own slot, fifteen ahead; two calls for each pod.
    assert ended[-1] - began == pytest.approx(2 * (1 + 2), abs=1.1)


async def test_an_extender_that_chooses_is_called_for_one_pod_after_another():
    reserved = {}

    def choose(verb, request):
        name = request["Pod"]["metadata"]["name"]
        assert name not in reserved, "it rejects the same pod when it comes again"
        free = [n for n in request["NodeNames"] if list(reserved.values()).count(n) < 4]
        reserved[name] = free[0]
        return {"NodeNames": free[:1]}

    bound, ext = await placed(slowly(choose), 32, prioritize_verb="")
    assert bound == reserved
    assert ext.fake.most_in_flight == 1


async def test_an_extender_that_is_serial_is_called_for_one_pod_after_another():
    bound, ext = await placed(slowly(everything), 8, serial=True)
    assert (len(bound), ext.fake.most_in_flight) == (8, 1)


async def test_pods_without_a_group_are_asked_about_meanwhile():
    make, made = one_extender(slowly(everything), serial=False)
    async with running(*NODES, extenders=make, config=with_parallelism(3)) as world:
        gang(world, 8)
        for i in range(8):
            world.add(member(f"p{i}"))
        for i in range(8):
            world.add(member(f"q{i}", group=None))
        await world.run_for(5)
        assert len(bindings(world)) == 16
        assert made[0].fake.most_in_flight == 3


async def test_groups_wait_for_each_other_outside_the_slots():
    """Were it otherwise, the groups that wait would leave no slot for calls of the one that is decided."""
    make, made = one_extender(slowly(everything), serial=False)
    nodes = [f"n{i}" for i in range(64)]
    async with running(*nodes, extenders=make, config=with_parallelism(4)) as world:
        for g in range(16):
            gang(world, 16, f"gang-{g}")
            for i in range(16):
                world.add(member(f"p{g}-{i}", f"gang-{g}"))
        began = asyncio.get_running_loop().time()
        await world.run_for(5)
        assert len(bindings(world)) == 256
        assert made[0].fake.most_in_flight == 4
        groups = [name.partition("-")[0] for name in calls(made[0])]
        assert len([1 for a, b in itertools.pairwise(groups) if a != b]) == 15
        assert asyncio.get_running_loop().time() - began < 5.1


async def test_a_node_that_becomes_feasible_is_asked_about_when_its_turn_comes():
    """The second pod needs a node with the first one's label, and there is none when extenders are asked ahead."""
    affinity = {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": {"role": "first"}},
                    "topologyKey": "kubernetes.io/hostname",
                }
            ]
        }
    }
    make, made = one_extender(slowly(everything), serial=False)
    async with running(extenders=make) as world:
        for name in NODES:
            world.add_nodes(name, labels={"kubernetes.io/hostname": name})
        gang(world, 3)
        world.add(member("a-first", labels={"role": "first"}, priority=3))
        world.add(member("b-second", priority=2, affinity=affinity))
        world.add(member("c-third", priority=1))
        await world.run_for(5)
        bound = bindings(world)
        assert len(bound) == 3
        assert bound["a-first"] == bound["b-second"]
        assert calls(made[0]).count("b-second") == 1


@pytest.mark.parametrize(
    "failure",
    [
        lambda: ExtenderResponse(500, {}, b"no"),
        lambda: TransportError(CallOutcome.BROKEN, "EOF", sent=True),
        lambda: asyncio.Event().wait(),
        lambda: [1, 2, 3],
        lambda: {"NodeNames": ["unknown"]},
        lambda: {"Error": "no"},
    ],
)
@pytest.mark.parametrize("verb", ["filter"])
async def test_no_half_gang_is_bound_when_a_call_fails(failure, verb):
    failing = True

    def reply(called, request):
        name = request["Pod"]["metadata"]["name"] if "Pod" in request else ""
        if failing and called == verb and name == "p009":
            return failure()
        return everything(called, request)

    make, made = one_extender(reply, serial=False, release_verb="release", http_timeout=2.0)
    async with running(*NODES, extenders=make) as world:
        gang(world, 16)
        for i in range(16):
            world.add(member(f"p{i:03}", priority=100 - i))
        await world.run_for(0.9 if failure.__code__.co_names[:1] != ("asyncio",) else 2.5)
        assert bindings(world) == {}
        assert calls(made[0]).count("p009") == 1
        assert world.state.cache.statistics().pods == 0
        released = {
            each["PodName"]
            for v, request in made[0].fake.requests
            if v == "release"
            for each in request["Placements"]
        }
        assert released == {f"p{i:03}" for i in range(9)}
        failing = False
        await world.run_for(30)
        assert len(bindings(world)) == 16


async def test_an_ignorable_extender_that_fails_is_skipped_and_not_asked_again():
    def reply(verb, request):
        return ExtenderResponse(500, {}, b"no")

    bound, ext = await placed(slowly(reply), 16, ignorable=True, serial=False)
    assert len(bound) == 16
    assert sorted(calls(ext)) == sorted(bound)


async def test_a_pod_that_is_deleted_while_extenders_are_asked_leaves_nothing():
    make, made = one_extender(slowly(everything, 1.0), serial=False, release_verb="release")
    async with running(*NODES, extenders=make) as world:
        gang(world, 8)
        pods = [world.add(member(f"p{i:03}")) for i in range(8)]
        work = asyncio.ensure_future(world.lead())
        await asyncio.sleep(1.5)
        world.change(Pod, pods[5], None)
        await asyncio.sleep(20)
        work.cancel()
        await asyncio.wait([work])
        assert bindings(world) == {}
        assert world.state.cache.statistics().pods == 0
        assert made[0].fake.in_flight == 0


@given(
    seed=st.integers(0, 2**32),
    size=st.integers(2, 20),
    nodes=st.integers(1, 12),
    rejected=st.floats(0, 1),
    minimum=st.floats(0, 1),
)
@settings(max_examples=8, deadline=None)
def test_the_outcome_is_that_of_calls_one_after_another(seed, size, nodes, rejected, minimum):
    """For an extender whose answer about a node depends on the pod and the node only."""

    def drawn(*what):
        return random.Random(f"{seed} {what}").random()

    def reply(verb, request):
        name, names = request["Pod"]["metadata"]["name"], request["NodeNames"]
        if verb == "prioritize":
            return [{"Host": n, "Score": int(drawn("score", name, n) * 10**6)} for n in names]
        failed = {n: f"no {n}" for n in names if drawn("filter", name, n) < rejected}
        return {"NodeNames": [n for n in names if n not in failed], "FailedNodes": failed}

    async def outcome(parallelism):
        make, _ = one_extender(
            lambda *what: slowly(reply, drawn("time", str(what)) * 0.02)(*what), serial=False
        )
        names = [f"n{i}" for i in range(nodes)]
        config = with_parallelism(parallelism)
        async with running(*names, extenders=make, config=config) as world:
            gang(world, max(1, int(size * minimum)))
            for i in range(size):
                world.add(member(f"p{i}", priority=100 - i, cpu=str(1 + i % 2)))
            await world.run_for(1.9)
            told = {}
            for sent in world.transport.sent:
                if sent.method == "PATCH" and sent.path.endswith("/status"):
                    conditions = sent.body["status"].get("conditions", ())
                    told.setdefault(sent.path, [each.get("message") for each in conditions])
            return bindings(world), told

    outcomes = {}
    for parallelism in (1, 16):
        in_new_loop(functools.partial(keep, outcomes, parallelism, outcome))
    assert outcomes[1] == outcomes[16]


async def keep(outcomes, parallelism, outcome):
    outcomes[parallelism] = await outcome(parallelism)


def whole(reply=None, **fields):
    """A script for an extender with a group verb: ``reply(request)`` for it, and everything for the other verbs."""

    def answer(verb, request):
        if verb != "group":
            return everything(verb, request)
        uids = [pod["metadata"]["uid"] for each in request["Members"] for pod in each["Pods"]]
        return reply(request) if reply else {"Answers": [{"PodUIDs": uids}]}

    return slowly(answer)


def asked(extender):
    """The requests of the group verb."""
    return [request for verb, request in extender.fake.requests if verb == "group"]


class TestGroupVerb:
    async def test_one_call_asks_about_the_whole_group(self):
        bound, ext = await placed(whole(), 16, group_verb="group")
        assert len(bound) == 16
        assert [verb for verb, _ in ext.fake.requests] == ["group"]
        [request] = asked(ext)
        assert request["Group"] == {"Namespace": "default", "Name": "gang", "MinCount": 16}
        [member_] = request["Members"]
        assert sorted(member_["NodeNames"]) == NODES
        assert {p["metadata"]["name"] for p in member_["Pods"]} == bound.keys()

    async def test_it_may_be_the_only_verb(self):
        verbs = {"group_verb": "group", "filter_verb": "", "prioritize_verb": ""}
        bound, ext = await placed(whole(), 16, **verbs)
        assert (len(bound), len(asked(ext))) == (16, 1)

    async def test_pods_without_a_group_are_asked_about_alone(self):
        make, made = one_extender(whole(), group_verb="group")
        async with running(*NODES, extenders=make) as world:
            world.add(member("alone", group=None))
            await world.run_for(5)
            assert bindings(world).keys() == {"alone"}
        assert [verb for verb, _ in made[0].fake.requests] == ["filter", "prioritize"]

    async def test_the_answer_places_the_pods(self):
        def reply(request):
            pods = [pod["metadata"]["uid"] for pod in request["Members"][0]["Pods"]]
            return {
                "Answers": [
                    {"PodUIDs": pods[:2], "NodeNames": ["n3"], "FailedNodes": {"n1": "no"}},
                    {"PodUIDs": pods[2:], "Priorities": [{"Host": "n5", "Score": 1000}]},
                ]
            }

        bound, _ = await placed(whole(reply), 4, group_verb="group")
        assert sorted(bound.values()) == ["n3", "n3", "n5", "n5"]

    async def test_reasons_are_shown(self):
        def reply(request):
            uids = [pod["metadata"]["uid"] for pod in request["Members"][0]["Pods"]]
            failed = dict.fromkeys(NODES, "no licence")
            return {"Answers": [{"PodUIDs": uids, "FailedNodes": failed}]}

        make, _ = one_extender(whole(reply), group_verb="group")
        async with running(*NODES, extenders=make) as world:
            gang(world, 2)
            for i in range(2):
                world.add(member(f"p{i}"))
            await world.run_for(1)
            assert bindings(world) == {}
            assert "8 no licence" in str([sent.body for sent in world.transport.sent])

    async def test_pods_with_other_candidates_are_asked_about_apart(self):
        make, made = one_extender(whole(), group_verb="group")
        async with running(*NODES, extenders=make) as world:
            world.add_nodes("large", labels={"size": "large"})
            gang(world, 3)
            world.add(member("driver", nodeSelector={"size": "large"}))
            world.add(member("w0"))
            world.add(member("w1"))
            await world.run_for(5)
            assert len(bindings(world)) == 3
            [request] = asked(made[0])
            candidates = {
                pod["metadata"]["name"]: len(each["NodeNames"])
                for each in request["Members"]
                for pod in each["Pods"]
            }
            assert candidates == {"driver": 1, "w0": 9, "w1": 9}

    async def test_a_pod_without_candidates_is_asked_about_when_it_has_some(self):
        term = {
            "labelSelector": {"matchLabels": {"role": "first"}},
            "topologyKey": "kubernetes.io/hostname",
        }
        affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        make, made = one_extender(whole(), group_verb="group")
        async with running(extenders=make) as world:
            for name in NODES:
                world.add_nodes(name, labels={"kubernetes.io/hostname": name})
            gang(world, 2)
            world.add(member("a", labels={"role": "first"}, priority=2))
            world.add(member("b", priority=1, affinity=affinity))
            await world.run_for(5)
            bound = bindings(world)
            assert bound["a"] == bound["b"]
            sent = [[len(each["NodeNames"]) for each in r["Members"]] for r in asked(made[0])]
            assert sent == [[8], [1]]

    @pytest.mark.parametrize(
        "answer",
        [
            ExtenderResponse(500, {}, b"no"),
            TransportError(CallOutcome.BROKEN, "EOF", sent=True),
            {"Error": "no"},
            {"Answers": []},
            {"Answers": [{"PodUIDs": ["unknown"]}]},
            {"Answers": None},
            [],
            b"{",
            ExtenderResponse(200, {}, b"[" * 10**6),
        ],
    )
    @pytest.mark.parametrize("ignorable", [False, True])
    async def test_a_failed_call_fails_the_group_unless_it_is_ignorable(self, answer, ignorable):
        bound, ext = await placed(
            whole(lambda request: answer), 4, group_verb="group", ignorable=ignorable, seconds=0.5
        )
        assert len(bound) == (4 if ignorable else 0)
        assert len(ext.fake.requests) == 1

    async def test_an_extender_that_reserves_is_told_of_all_placements_of_a_failed_group(self):
        def reply(request):
            pods = [pod["metadata"]["uid"] for pod in request["Members"][0]["Pods"]]
            chosen = [{"PodUIDs": [uid], "NodeNames": [f"n{i}"]} for i, uid in enumerate(pods)]
            chosen[-1]["NodeNames"] = []
            return {"Answers": chosen}

        bound, ext = await placed(
            whole(reply), 4, group_verb="group", release_verb="release", seconds=0.9
        )
        assert bound == {}
        released = [r["Placements"] for verb, r in ext.fake.requests if verb == "release"]
        assert {each["Node"] for some in released for each in some} == {"n0", "n1", "n2"}


def released(extender):
    """What extenders were told is given up: pods and nodes."""
    return {
        (each["PodName"], each["Node"])
        for verb, request in extender.fake.requests
        if verb == "release"
        for each in request["Placements"]
    }


def by_turns(reply, hanging):
    """As ``reply``, but never about the pods in ``hanging``."""

    def answer(verb, request):
        name = request["Pod"]["metadata"]["name"] if "Pod" in request else ""
        return asyncio.Event().wait() if name in hanging else reply(verb, request)

    return answer


async def test_what_was_placed_is_released_when_the_scheduler_stops():
    make, made = one_extender(
        by_turns(everything, {"p5"}), serial=False, release_verb="release", http_timeout=3.0
    )
    async with running(*NODES, extenders=make) as world:
        gang(world, 8)
        for i in range(8):
            world.add(member(f"p{i}", priority=100 - i))
        await world.run_for(1)
        assert released(made[0]) == set()
        assert world.state.cache.statistics().pods == 5
        await world.scheduler.wind_down(10)
        assert {name for name, _ in released(made[0])} == {f"p{i}" for i in range(5)}
        assert len([1 for verb, _ in made[0].fake.requests if verb == "release"]) <= 2
        assert world.state.cache.statistics().pods == 0
        assert bindings(world) == {}


async def test_nothing_is_released_after_the_end():
    make, made = one_extender(
        by_turns(everything, {"p1"}), serial=False, release_verb="release", http_timeout=3.0
    )
    async with running(*NODES, extenders=make) as world:
        gang(world, 2)
        for i in range(2):
            world.add(member(f"p{i}", priority=100 - i))
        await world.run_for(1)
        world.scheduler.releases.close()
        await world.run_for(3)
        assert released(made[0]) == set()
        assert world.scheduler.releases.results() == {(made[0].name, "failed"): 1.0}


@pytest.mark.parametrize("grouped", [True, False])
async def test_a_pod_that_is_deleted_while_its_last_call_is_answered_is_released(grouped):
    pods = []

    def reply(verb, request):
        if verb == "prioritize" and request["Pod"]["metadata"]["name"] == "p1":
            world.change(Pod, pods[1], None)
        return everything(verb, request)

    make, made = one_extender(reply, serial=True, release_verb="release")
    async with running(*NODES, extenders=make) as world:
        gang(world, 2)
        group = "gang" if grouped else None
        pods += [world.add(member(f"p{i}", group, priority=100 - i)) for i in range(2)]
        await world.run_for(0.9)
        released_pods = {name for name, _ in released(made[0])}
        assert released_pods == ({"p0", "p1"} if grouped else {"p1"})
        assert bindings(world).keys() == (set() if grouped else {"p0"})


class TestDomains:
    """A gang that is tried in racks a, b and then runs in one of them."""

    @staticmethod
    async def play(reply, **fields):
        make, made = one_extender(reply, **fields)
        async with placements.placing(extenders=make, a=[4, 4], b=[3, 3]) as world:
            placements.gang(world, 4)
            for i in range(4):
                one = placements.pod(f"p{i}")
                raw = {"metadata": {"name": one.name, "namespace": "default", "uid": one.uid}}
                world.add(msgspec.structs.replace(one, raw=json.dumps(raw).encode()))
            await world.run_for(0.9)
            return bindings(world), made[0]

    async def test_no_node_is_sent_twice_for_a_pod(self):
        bound, ext = await self.play(slowly(everything), serial=False)
        assert len(bound) == 4
        sent = [
            (request["Pod"]["metadata"]["name"], node)
            for verb, request in ext.fake.requests
            if verb == "filter"
            for node in request["NodeNames"]
        ]
        assert len(sent) == len(set(sent))

    async def test_what_was_reserved_in_another_rack_is_released(self):
        """Rack b is fuller with the gang and tried first, but has too few nodes for the extender."""
        reserved = {}

        def choose(verb, request):
            if verb == "release":
                for each in request["Placements"]:
                    if reserved.get(each["PodName"]) == each["Node"]:
                        del reserved[each["PodName"]]
                return {"Error": ""}
            name, names = request["Pod"]["metadata"]["name"], request["NodeNames"]
            reserved.pop(name, None)
            free = [n for n in names if n[0] == "a" or list(reserved.values()).count(n) < 1]
            if not free:
                return {"NodeNames": [], "FailedNodes": dict.fromkeys(names, "full")}
            reserved[name] = free[0]
            return {"NodeNames": free[:1]}

        bound, _ = await self.play(choose, serial=True, prioritize_verb="", release_verb="release")
        assert len(bound) == 4
        assert {node[0] for node in bound.values()} == {"a"}
        assert reserved == bound

    async def test_a_reserving_extender_is_asked_about_the_group_in_each_rack(self):
        def reply(request):
            [each] = request["Members"]
            uids = [pod["metadata"]["uid"] for pod in each["Pods"]]
            node = min(each["NodeNames"])
            if node[0] == "b":
                return {
                    "Answers": [
                        {"PodUIDs": uids, "FailedNodes": dict.fromkeys(each["NodeNames"], "no")}
                    ]
                }
            return {"Answers": [{"PodUIDs": uids, "NodeNames": [node]}]}

        bound, ext = await self.play(whole(reply), group_verb="group", release_verb="release")
        assert set(bound.values()) == {"a0"}
        racks = [{n[0] for each in r["Members"] for n in each["NodeNames"]} for r in asked(ext)]
        assert racks[0] == {"b"}
        assert racks[-1] == {"a"}


async def test_a_gang_is_tried_again_once_when_its_pods_are_to_be_asked_about_again():
    """Each pod has a timer of its own; the first one that ends brings the others."""

    def reply(verb, request):
        if verb != "filter":
            return {"Error": ""}
        failed = dict.fromkeys(request["NodeNames"], "no licence")
        body = json.dumps({"NodeNames": [], "FailedNodes": failed}).encode()
        return ExtenderResponse(200, {"Retry-After": "20"}, body)

    make, made = one_extender(slowly(reply))
    async with running("n0", extenders=make) as world:
        gang(world, 5)
        for number in range(5):
            world.add(member(f"p{number}"))
        await world.run_for(130)
        assert calls(made[0]).count("p0") == 7


@pytest.mark.parametrize("priority", [0, 1000])
async def test_a_gang_waits_for_its_turn_and_no_longer(priority):
    """Single pods of priority 0 wait for the same extender, which is called for one pod at a time, and more of them
    come.
    """
    make, made = one_extender(slowly(everything, 0.1), serial=True, prioritize_verb="")
    async with running(*NODES, extenders=make) as world, asyncio.TaskGroup() as group:
        leading = group.create_task(world.lead())
        for number in range(10):
            world.add(member(f"early-{number}", group=None))
        await asyncio.sleep(0.55)
        gang(world, 3)
        for number in range(3):
            world.add(member(f"p{number}", priority=priority))
        for number in range(10):
            await asyncio.sleep(0.01)
            world.add(member(f"late-{number}", group=None))
        await asyncio.sleep(4)
        leading.cancel()
    order = calls(made[0])
    assert len(order) == 23
    before = 6 if priority else 10
    assert all(name.startswith("early") for name in order[:before])
    assert sorted(order[before : before + 3]) == ["p0", "p1", "p2"]


async def test_gangs_that_need_two_extenders_are_not_overtaken_by_pods_that_need_one_of_them():
    """Each extender is called for one pod at a time; the gangs and the pods after them have the same priority."""
    order, makers = [], []
    for name in "xy":
        resource = f"example.com/{name}"

        def reply(verb, request, name=name):
            order.append((name, request["Pod"]["metadata"]["name"]))
            return everything(verb, request)

        makers.append(
            one_extender(
                slowly(reply, 0.1),
                serial=True,
                prioritize_verb="",
                url_prefix=f"http://{name}.example/extender",
                managed_resources=(ManagedResource(resource),),
            )[0]
        )

    def wanting(name, *resources, group=None):
        requests = {f"example.com/{each}": "1" for each in resources}
        containers = [{"name": "c", "resources": {"requests": requests, "limits": requests}}]
        return member(name, group, containers=containers)

    room = {"cpu": "8", "pods": "110", "example.com/x": "99", "example.com/y": "99"}
    async with (
        running(extenders=lambda sink: [e for make in makers for e in make(sink)]) as world,
        asyncio.TaskGroup() as tasks,
    ):
        world.add_nodes("a", status={"allocatable": room})
        leading = tasks.create_task(world.lead())
        for number in range(5):
            for name in "xy":
                world.add(wanting(f"early-{name}{number}", name))
        await asyncio.sleep(0.25)
        for name in ("one", "two"):
            gang(world, 2, name)
            for number in range(2):
                world.add(wanting(f"{name}-{number}", "x", "y", group=name))
        for number in range(20):
            for name in "xy":
                await asyncio.sleep(0.03)
                world.add(wanting(f"late-{name}{number}", name))
        await asyncio.sleep(10)
        leading.cancel()
    assert len(bindings(world)) == 54
    first_late = min(i for i, (_, pod) in enumerate(order) if pod.startswith("late"))
    gangs = [i for i, (_, pod) in enumerate(order) if pod.startswith(("one", "two"))]
    assert len(gangs) == 8
    assert max(gangs) < first_late
    assert max(i for i, (_, pod) in enumerate(order) if pod.startswith("early")) < min(gangs)


def relabelled(one, group):
    """The pod as the API server has it after its group has changed."""
    return msgspec.structs.replace(
        one, labels=LabelSet({GROUP_LABEL: group}), resource_version="later"
    )


@pytest.mark.parametrize("at", [0.05, 0.15], ids=["while it is decided", "after it"])
async def test_a_pod_that_leaves_its_gang_in_a_cycle_does_not_complete_another(at):
    """The extender is called about one pod of the gang after the other; the other gang needs no extender, and one more
    pod.
    """
    gpu = "example.com/gpu"
    make, made = one_extender(
        slowly(everything, 0.1),
        serial=True,
        prioritize_verb="",
        managed_resources=(ManagedResource(gpu),),
    )
    containers = [{"name": "c", "resources": {"requests": {gpu: "1"}, "limits": {gpu: "1"}}}]
    async with running(extenders=make) as world, asyncio.TaskGroup() as group:
        world.add_nodes("a", status={"allocatable": {"cpu": "8", "pods": "110", gpu: "4"}})
        gang(world, 3, "first")
        gang(world, 3, "second")
        leading = group.create_task(world.lead())
        pods = [
            world.add(member(f"p{i}", "first", containers=containers, priority=9 - i))
            for i in range(3)
        ]
        await asyncio.sleep(at)
        world.change(Pod, pods[0], relabelled(pods[0], "second"))
        await asyncio.sleep(0.12)
        for i in range(2):
            world.add(member(f"q{i}", "second"))
        await asyncio.sleep(0.1)
        assert bindings(world) == {}
        await asyncio.sleep(20)
        leading.cancel()
    assert calls(made[0]) == ["p0", "p1", "p2", "p0"]
    assert bindings(world).keys() == {"p0", "q0", "q1"}
