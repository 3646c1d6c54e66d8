"""What would happen: the answers are those of the scheduler, and it notices nothing."""

import asyncio
import contextlib
import copy
import itertools
import json

import msgspec
import pytest

from app.framework.testing import make_object, make_pod
from app.kube.errors import ConnectionFailed
from app.model.devices import DeviceClass, ResourceSlice
from app.model.objects import OwnerReference, PodDisruptionBudget
from app.scheduler.whatif import answering
from app.wire.whatif_v1 import MAX_PODS, RefusedError, WhatIfQuestion
from tests.shell.kube.fakes import FakeTransport, ok
from tests.shell.scheduler.world import running

CLASSES = {"items": [
    {"metadata": {"name": "urgent"}, "value": 1000},
    {"metadata": {"name": "usual"}, "value": 5, "globalDefault": False},
]}  # fmt: skip


@contextlib.asynccontextmanager
async def asking(*nodes, **options):
    """A world that is synced, and how to ask it."""
    classes = copy.deepcopy(CLASSES)

    def answer(sent):
        return ok(classes) if sent.path.endswith("priorityclasses") else ok(status=201)

    options.setdefault("transport", FakeTransport(handler=answer))
    async with running(*nodes, **options) as world:
        for informer in world.scheduler.informers:
            informer.synced.set()

        async def ask(question, gone=bool, **fields):
            asked = WhatIfQuestion(question, **fields)
            return await world.scheduler.whatif.ask(asked, gone)

        world.ask, world.classes = ask, classes
        try:
            yield world
        finally:
            world.scheduler.whatif.close()


def box(**requests):
    return {"name": "main", "resources": {"requests": requests}}


def pod(name="asked", cpu="1", **spec):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [box(cpu=cpu)]} | spec,
    }


def workload(kind="Deployment", name="web", cpu="1", *, spec=None, **fields):
    versions = {"Job": "batch/v1", "ReplicationController": "v1"}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [box(cpu=cpu)]}}
    template["spec"] |= spec or {}
    labels = {"app": name}
    selector = labels if kind == "ReplicationController" else {"matchLabels": labels}
    return {
        "apiVersion": versions.get(kind, "apps/v1"),
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"selector": selector, "template": template} | fields,
    }


def bound(world, name, node, cpu="1", **fields):
    """A pod on a node, of a ReplicaSet if ``owner`` says no other kind."""
    owner = fields.pop("owner", "ReplicaSet")
    labels = fields.pop("labels", None)
    spec = {"nodeName": node, "containers": [box(cpu=cpu)]} | fields
    made = make_pod(name, labels=labels, spec=spec)
    if owner:
        reference = OwnerReference(kind=owner, name="its", uid="its", controller=True)
        made = msgspec.structs.replace(made, owner=reference)
    return world.add(made)


def nodes_of(found):
    return {row.name: row.node for row in found.pods}


# ---------------------------------------------------------------- fits


async def test_pods_go_where_the_scheduler_would_place_them():
    async with asking("a", "b") as world:
        bound(world, "there", "a", cpu="3")
        found = await world.ask("fits", objects=[pod(cpu="2")])
        assert nodes_of(found) == {"asked": "b"}
        assert (found.placed, found.pending, found.rules) == (1, 0, "1.36")
        assert found.nodes[0].name == "b"
        world.add(make_pod("real", spec={"containers": [box(cpu="2")]}))
        await world.settle()
        assert world.state.cache.get("uid-of-default-real").node_name == "b"


async def test_nothing_of_a_question_is_left_anywhere():
    async with asking("a", "b") as world:
        before = world.state.changes, world.scheduler.parts.rng.bit_generator.state
        for _ in range(3):
            found = await world.ask("fits", objects=[workload(replicas=20)])
            assert (found.placed, found.pending) == (8, 12)
        assert (world.state.changes, world.scheduler.parts.rng.bit_generator.state) == before
        assert not world.state.queue.all_pods()
        writes = [sent for sent in world.transport.sent if sent.method != "GET"]
        assert writes == []


async def test_what_happens_meanwhile_is_known_to_the_next_question():
    async with asking("a") as world:
        assert (await world.ask("fits", objects=[pod(cpu="4")])).placed == 1
        bound(world, "there", "a")
        assert (await world.ask("fits", objects=[pod(cpu="4")])).pending == 1
        world.add_nodes("b")
        assert nodes_of(await world.ask("fits", objects=[pod(cpu="4")])) == {"asked": "b"}


async def test_assumed_pods_count():
    async with asking("a") as world:
        waiting = world.add(make_pod("waiting", spec={"containers": [box(cpu="3")]}))
        world.state.assume(waiting, "a")
        found = await world.ask("fits", objects=[pod(cpu="2")])
        assert found.pods[0].message.startswith("0/1 nodes are available: 1 Insufficient cpu.")


async def test_why_not():
    async with asking("a", "b") as world:
        found = await world.ask("fits", objects=[pod(cpu="9")])
        [row] = found.pods
        assert (row.node, row.reason) == ("", "Unschedulable")
        assert row.message.startswith("0/2 nodes are available: 2 Insufficient cpu.")
        assert [(stop.reason, stop.nodes) for stop in found.stopped_by] == [("Insufficient cpu", 2)]


async def test_priority_comes_first_whatever_the_order():
    async with asking("a") as world:
        low, high = pod("low", cpu="3"), pod("high", cpu="3", priorityClassName="urgent")
        found = await world.ask("fits", objects=[low, high])
        assert [(row.name, row.node) for row in found.pods] == [("high", "a"), ("low", "")]


async def test_a_pod_without_a_class_has_the_priority_of_the_default_one():
    async with asking("a") as world:
        world.classes["items"][1]["globalDefault"] = True
        bound(world, "victim", "a", cpu="3", priority=1)
        found = await world.ask("fits", objects=[pod(cpu="2")])
        assert [victim.name for victim in found.pods[0].preempts] == ["victim"]


async def test_whom_a_pod_would_evict():
    async with asking("a") as world:
        bound(world, "victim", "a", cpu="3", priority=1)
        found = await world.ask("fits", objects=[pod(cpu="2", priorityClassName="urgent")])
        [row] = found.pods
        assert row.node == "a"
        [victim] = row.preempts
        assert (victim.name, victim.node, victim.priority) == ("victim", "a", 1)
        assert world.state.cache.get("uid-of-default-victim").deletion_timestamp is None
        assert (found.nodes[0].pods, found.nodes[0].leaving) == (1, 1)


async def test_a_pod_waits_for_another_one_of_the_question():
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "db"}},
    }
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    async with asking() as world:
        for name in ("a", "b"):
            world.add_nodes(name, labels={"kubernetes.io/hostname": name})
        near = pod("near", priority=10, affinity=affinity)
        db = workload("StatefulSet", "db", replicas=1)
        found = await world.ask("fits", objects=[near, db])
        assert found.pending == 0
        assert len(set(nodes_of(found).values())) == 1


async def test_equal_nodes_are_a_tie():
    async with asking("a", "b") as world:
        assert (await world.ask("fits", objects=[pod()])).pods[0].tie
        bound(world, "there", "a")
        assert not (await world.ask("fits", objects=[pod()])).pods[0].tie


@pytest.mark.parametrize(
    ("kind", "fields", "names"),
    [
        ("StatefulSet", {"replicas": 2}, {"web-0", "web-1"}),
        ("Job", {"parallelism": 3, "completions": 2}, 2),
        ("ReplicaSet", {}, 1),
        ("ReplicationController", {"replicas": 2}, 2),
        ("Deployment", {"replicas": 0}, 0),
        ("DaemonSet", {}, 2),
    ],
)
async def test_the_pods_of_workloads(kind, fields, names):
    async with asking("a", "b") as world:
        found = await world.ask("fits", objects=[workload(kind, **fields)])
        if isinstance(names, set):
            assert {row.name for row in found.pods} == names
        else:
            assert found.placed == names


async def test_copies_are_instead_of_replicas():
    async with asking("a", "b") as world:
        found = await world.ask("fits", objects=[pod(), workload(replicas=9)], copies=3)
        assert found.placed == 6
        assert len({row.name for row in found.pods}) == 6


def device_object(kind, name, **spec):
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


async def test_pods_share_a_claim_of_the_question():
    devices = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpus"}}]}
    claim = device_object("ResourceClaim", "one", devices=devices)
    given = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}]}
    async with asking("a", "b") as world:
        pool = {"name": "b", "generation": 1, "resourceSliceCount": 1}
        parts = {"driver": "d", "nodeName": "b", "pool": pool, "devices": [{"name": "gpu-0"}]}
        slices = device_object("ResourceSlice", "b", **parts)
        for kind, made in (
            (DeviceClass, device_object("DeviceClass", "gpus", selectors=[])),
            (ResourceSlice, slices),
        ):
            world.change(kind, None, make_object(kind, made))
        for _ in range(2):
            found = await world.ask(
                "fits", objects=[claim, *(pod(f"p{i}", "1500m", **given) for i in range(3))]
            )
            # One device is on b, which has 4 CPUs.
            assert sorted(nodes_of(found).values()) == ["", "b", "b"]
            # In the scheduler the second one has to wait until the allocation is written.
            assert all(row.tie for row in found.pods if row.node)
        other = device_object("ResourceClaim", "other", devices=devices)
        more = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "other"}]}
        found = await world.ask(
            "fits", objects=[claim, other, pod("p0", **given), pod("p1", **more)]
        )
        assert sorted(nodes_of(found).values()) == ["", "b"]
        assert not any(row.tie for row in found.pods)


async def test_a_gang_is_placed_whole_or_not_at_all():
    group = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": "gang"},
             "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}}  # fmt: skip
    named = {"schedulingGroup": {"podGroupName": "gang"}}
    async with asking("a", "b") as world:
        fits = await world.ask(
            "fits", objects=[group, *(pod(f"p{i}", "2", **named) for i in range(3))]
        )
        assert fits.placed == 3
        large = await world.ask(
            "fits", objects=[group, *(pod(f"p{i}", "3", **named) for i in range(3))]
        )
        assert (large.placed, large.pending) == (0, 3)
        few = await world.ask("fits", objects=[group, pod("p0", **named)])
        assert few.pods[0].reason == "Gated"
        assert world.state.cluster.pod_groups.count == 0


async def test_a_gated_pod():
    async with asking("a") as world:
        found = await world.ask("fits", objects=[pod(schedulingGates=[{"name": "later"}])])
        assert found.pods[0].reason == "Gated"
        assert "later" in found.pods[0].message


async def test_rows_are_bounded():
    async with asking("a", "b") as world:
        found = await world.ask("fits", objects=[workload(replicas=20)], limit=10)
        assert (len(found.pods), found.placed, found.pending, found.truncated) == (10, 8, 12, True)


# ---------------------------------------------------------------- how many


async def test_how_many_more():
    async with asking("a", "b") as world:
        bound(world, "there", "a")
        found = await world.ask("how-many", objects=[pod(), pod("large", "3")])
        assert [(each.object, each.count) for each in found.counts] == [
            ("Pod default/asked", 7),
            ("Pod default/large", 2),
        ]
        assert found.count == 9
        assert found.counts[0].message == "0/2 nodes are available: 2 Insufficient cpu."
        assert not found.counts[0].at_least


async def test_how_many_where_each_is_decided():
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    spread = {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    }
    async with asking() as world:
        for name in ("a", "b", "c"):
            world.add_nodes(name, labels={"kubernetes.io/hostname": name})
        bound(world, "victim", "a", cpu="1", priority=-5)
        alone = workload(spec=spread)
        found = await world.ask("how-many", objects=[alone, pod()])
        assert [each.count for each in found.counts] == [3, 11]
        assert "anti-affinity" in found.counts[0].message
        assert found.counts[0].stopped_by[0].nodes == 3


async def test_how_many_up_to_a_number():
    async with asking("a") as world:
        found = await world.ask("how-many", objects=[pod()], copies=2)
        assert (found.count, found.counts[0].at_least) == (2, True)


# ---------------------------------------------------------------- drain and lose


async def test_a_drain():
    async with asking("a", "b", "c") as world:
        bound(world, "web", "a", labels={"app": "web"})
        bound(world, "agent", "a", owner="DaemonSet")
        bound(world, "static", "a", owner="Node")
        bound(world, "alone", "a", owner="")
        bound(world, "foreign", "a", schedulerName="other")
        bound(world, "full", "b", cpu="3500m")
        budget = {"metadata": {"name": "web", "namespace": "default"},
                  "spec": {"selector": {"matchLabels": {"app": "web"}}},
                  "status": {"disruptionsAllowed": 0}}  # fmt: skip
        world.change(PodDisruptionBudget, None, make_object(PodDisruptionBudget, budget))
        found = await world.ask("drain", nodes=["a"])
        assert {(row.name, row.node, row.reason) for row in found.pods} == {
            ("web", "c", ""),
            ("alone", "", "Unmanaged"),
            ("foreign", "", "OtherScheduler"),
        }
        assert {row.node_before for row in found.pods} == {"a"}
        assert [(each.name, each.pods, each.allowed) for each in found.budgets] == [("web", 1, 0)]
        leaving = {node.name: (node.pods, node.leaving) for node in found.nodes}
        assert leaving == {"a": (0, 3), "c": (1, 0)}
        again = await world.ask("drain", nodes=["a"])
        assert again.budgets == found.budgets


async def test_what_is_lost_with_a_zone():
    async with asking() as world:
        world.add_nodes("a", "b", labels={"zone": "z1"})
        world.add_nodes("c", labels={"zone": "z2"})
        bound(world, "one", "a", cpu="3")
        bound(world, "two", "b", cpu="3")
        bound(world, "agent", "a", owner="DaemonSet")
        found = await world.ask("lose", label="zone=z1")
        assert (found.placed, found.pending) == (1, 1)
        assert sorted(row.node for row in found.pods) == ["", "c"]
        assert (await world.ask("fits", objects=[pod(cpu="4")])).pods[0].node == "c"


# ---------------------------------------------------------------- needs


async def test_how_many_nodes_like_one_that_there_is():
    async with asking("a") as world:
        bound(world, "agent", "a", owner="DaemonSet")
        found = await world.ask("needs", objects=[workload(replicas=8)], like="a")
        assert (found.count, found.placed) == (2, 8)
        assert {node.name for node in found.nodes} == {"a", "a-what-if-0", "a-what-if-1"}


async def test_how_many_nodes_of_a_new_shape():
    shape = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "big", "labels": {"gpu": "yes"}},
             "status": {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "10"}}}  # fmt: skip
    async with asking("a") as world:
        picky = workload(replicas=25, spec={"nodeSelector": {"gpu": "yes"}})
        found = await world.ask("needs", objects=[picky], node=shape)
        assert found.count == 3
        useless = await world.ask("needs", objects=[pod(cpu="17")], node=shape)
        assert useless.count is None
        assert "no pod gets a node by one more of this shape" in useless.message
        none = await world.ask("needs", objects=[pod()], node=shape)
        assert none.count == 0


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("question", "fields", "status", "text"),
    [
        ("fits", {}, 422, "no pod and no workload"),
        ("fits", {"objects": [{"kind": "Pod"}]}, 422, "kind or apiVersion is missing"),
        ("fits", {"objects": [{"kind": "Ingress", "apiVersion": "v1"}]}, 422, "does not read them"),
        ("fits", {"objects": [{"kind": "Pod", "apiVersion": "v1"}]}, 422, "'spec'"),
        ("fits", {"objects": [pod(containers=[])]}, 422, "no containers"),
        ("fits", {"objects": [pod(containers=[3])]}, 422, "unexpected form"),
        ("fits", {"objects": [pod(cpu="many")]}, 422, "quantities must match"),
        ("fits", {"objects": [pod(priorityClassName="absent")]}, 422, "'absent' is not known"),
        ("fits", {"objects": [pod(schedulerName="absent")]}, 422, "default-scheduler"),
        ("fits", {"objects": [workload(replicas=10**6)]}, 422, f"more than {MAX_PODS} pods"),
        ("fits", {"objects": [workload(replicas=-1)]}, 422, "at least 0"),
        ("fits", {"objects": [workload(replicas=True)]}, 422, "at least 0"),
        ("fits", {"objects": [{"kind": "List", "apiVersion": "v1", "items": 3}]}, 422, "form"),
        ("drain", {}, 422, "names of nodes"),
        ("drain", {"nodes": ["absent"]}, 404, "node 'absent' is not found"),
        ("lose", {"label": "zone"}, 422, "KEY=VALUE"),
        ("lose", {"label": "zone=z9"}, 404, "no node has the label"),
        ("needs", {"objects": [pod()]}, 422, "takes a shape"),
        ("needs", {"objects": [pod()], "like": "absent"}, 404, "not found"),
        ("needs", {"objects": [pod()], "node": {"status": {"allocatable": {"memory": "1"}}}}, 422, "cpu"),
        ("needs", {"objects": [pod()], "node": {"metadata": 3}}, 422, "cpu, memory and pods"),
        ("how-many", {"objects": [workload("DaemonSet")]}, 422, "one pod on each node"),
    ],
)  # fmt: skip
async def test_what_cannot_be_answered_is_refused(question, fields, status, text):
    async with asking("a") as world:
        with pytest.raises(RefusedError, match=text) as refused:
            await world.ask(question, **json.loads(json.dumps(fields)))
        assert refused.value.status == status
        assert (await world.ask("fits", objects=[pod()])).placed == 1


async def test_without_priority_classes_numbers_count():
    def broken(_sent):
        raise ConnectionFailed("no", sent=False)

    async with asking("a", transport=FakeTransport(handler=broken)) as world:
        found = await world.ask(
            "fits", objects=[pod(priority=7), pod("p2", priorityClassName="system-node-critical")]
        )
        assert found.placed == 2
        assert "PriorityClasses cannot be read" in found.warnings[0]


async def test_before_the_caches_are_filled():
    async with running("a") as world:
        with pytest.raises(RefusedError, match="not filled") as refused:
            await world.scheduler.whatif.ask(WhatIfQuestion("drain", nodes=["a"]))
        assert refused.value.status == 503


async def test_questions_wait_for_their_turn_and_too_many_are_refused():
    async with asking("a") as world:
        calls = [world.ask("fits", objects=[pod()]) for _ in range(100)]
        found = await asyncio.gather(*calls, return_exceptions=True)
        refused = [each for each in found if isinstance(each, RefusedError)]
        assert len(found) - len(refused) == answering.MAX_WAITING + 1
        assert {each.status for each in refused} == {429}
        assert (await world.ask("fits", objects=[pod()])).placed == 1


@contextlib.asynccontextmanager
async def stuck(world):
    """Pods wait: the API server does not answer the bindings of those before them."""
    answered = world.transport.request

    async def request(method, path, **more):
        await asyncio.sleep(1000.0 if path.endswith("/binding") else 0.0)
        return await answered(method, path, **more)

    world.transport.request = request
    for number in range(100):
        world.add(make_pod(f"waiting-{number}"))
    work = asyncio.ensure_future(world.lead())
    await asyncio.sleep(0.01)
    assert world.scheduler.loop.has_waiting
    try:
        yield
    finally:
        work.cancel()
        await asyncio.wait([work])
        await world.scheduler.binder.cycles.wait_until_idle()


@pytest.mark.looptime
async def test_questions_are_answered_while_the_scheduler_waits_for_the_api_server():
    async with asking("a", "b") as world, stuck(world):
        fits = asyncio.gather(
            *(world.ask("fits", objects=[workload(replicas=20)]) for _ in range(9))
        )
        async with asyncio.timeout(5.0):
            for found in await fits:
                assert found.placed + found.pending == 20


@pytest.mark.looptime
async def test_a_question_that_has_no_turn_in_time_is_told_when_it_would_have_one():
    async with asking("a") as world, stuck(world):
        await world.ask("fits", objects=[pod()])
        world.scheduler.whatif._pace._due = world.clock.monotonic() + 25.0
        with pytest.raises(RefusedError, match="pods wait") as refused:
            await world.ask("fits", objects=[pod()], timeout_seconds=5.0)
        assert (refused.value.status, refused.value.retry_after) == (503, 20)
        answer = await world.ask("fits", objects=[pod()], timeout_seconds=30.0)
        assert answer.placed == 1
        # It is about the cluster as it was after the wait.
        assert answer.seconds > 19.0
        assert answer.at == pytest.approx(world.clock.wall(), abs=0.1)


@pytest.mark.looptime
async def test_the_cluster_is_read_after_the_process_may_have_begun_to_lead():
    async with asking("a") as world:
        world.add(make_pod("waiting"))
        question = asyncio.ensure_future(world.ask("fits", objects=[pod()]))
        await asyncio.sleep(0.4)
        assert world.scheduler.whatif._world is None
        assert not question.done()
        await asyncio.sleep(0.2)
        assert question.done()
        assert (await question).placed == 1


@pytest.mark.looptime
async def test_pods_that_wait_for_another_scheduler_hold_up_no_question():
    async with asking("a") as world:
        await world.ask("fits", objects=[pod()])
        world.add(make_pod("waiting"))
        assert world.state.ready
        world.scheduler.whatif._pace._due = world.clock.monotonic() + 25.0
        assert (await world.ask("fits", objects=[pod()])).placed == 1


async def test_a_question_ends_when_its_time_is_up_or_the_caller_has_gone():
    async with asking("a") as world:
        ticks = itertools.count(0.0, 0.004)
        world.clock.monotonic = ticks.__next__
        short = await world.ask("fits", objects=[workload(replicas=500)], timeout_seconds=0.05)
        assert short.truncated
        assert "the time was over" in short.message
        assert {row.reason for row in short.pods if not row.node} <= {"NotDecided", "Unschedulable"}
        gone = await world.ask("fits", gone=lambda: True, objects=[workload(replicas=500)])
        assert gone.truncated
        del world.clock.monotonic
        assert (await world.ask("fits", objects=[pod()])).placed == 1


@pytest.mark.looptime
async def test_the_imagined_cluster_is_given_up_when_nobody_asks():
    async with asking("a") as world:
        await world.ask("fits", objects=[pod()])
        assert world.scheduler.whatif._world is not None
        await asyncio.sleep(answering.IDLE_SECONDS + 1)
        assert world.scheduler.whatif._world is None
        assert (await world.ask("fits", objects=[pod()])).placed == 1


async def test_a_question_that_is_cancelled_leaves_nothing_behind():
    async with asking("a") as world:
        await world.ask("fits", objects=[pod()])
        kept = world.scheduler.whatif._world
        question = asyncio.ensure_future(world.ask("fits", objects=[workload(replicas=900)]))
        ticks = itertools.count(0.0, 0.001)
        world.clock.monotonic = ticks.__next__
        for _ in range(20):
            await asyncio.sleep(0)
        question.cancel()
        await asyncio.wait([question])
        assert question.cancelled()
        del world.clock.monotonic
        assert (await world.ask("fits", objects=[pod()])).placed == 1
        assert world.scheduler.whatif._world is kept


async def test_the_figures():
    async with asking("a") as world:
        await world.ask("fits", objects=[pod()])
        with pytest.raises(RefusedError):
            await world.ask("drain")
        text = world.telemetry.families
        assert text is not None
        assert dict(world.scheduler.whatif._asked) == {("fits", "200"): 1, ("drain", "422"): 1}


# ---------------------------------------------------------------- hostile questions


async def test_a_thousand_pods_of_one_name_have_names_of_their_own():
    async with asking(*"ab") as world:
        found = await world.ask("fits", objects=[pod(cpu="1m") for _ in range(1000)], limit=2000)
        assert found.placed + found.pending == 1000
        names = [row.name for row in found.pods]
        assert len(set(names)) == 1000
        assert max(map(len, names)) < 20  # not one letter more for each


@pytest.mark.parametrize(
    "objects",
    [
        [workload("StatefulSet", replicas=5000, volumeClaimTemplates=[
            {"metadata": {"name": f"c{n}"}, "spec": {}} for n in range(5000)])],
        [pod(), {"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"n{n}"}}
            for n in range(MAX_PODS + 1)]}],
    ],
    ids=["claims", "a list"],
)  # fmt: skip
async def test_more_objects_than_anybody_asks_about_are_refused(objects):
    async with asking("a") as world:
        with pytest.raises(RefusedError, match="more than 5000 objects") as refused:
            await world.ask("fits", objects=objects)
        assert refused.value.status == 422


async def test_more_pods_than_anybody_counts_are_refused():
    pods = [pod(name=f"p{n}") for n in range(MAX_PODS + 1)]
    async with asking("a") as world:
        with pytest.raises(RefusedError, match="more than 5000 pods and workloads"):
            await world.ask(
                "how-many", objects=[{"apiVersion": "v1", "kind": "List", "items": pods}]
            )
