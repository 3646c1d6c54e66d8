"""The pages of a scheduler that runs: health, metrics, configuration, status, debugging."""

import asyncio
import contextlib
import datetime as dt
import json
import logging

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families
from yarl import URL

from app.framework.testing import make_node, make_pod
from app.kube.errors import ConnectionFailed
from app.model.objects import Node
from app.model.pod import Pod
from app.observe.events import ElectionStatistics
from app.runtime import logs
from app.runtime.tasks import at_once
from app.serving import debugger
from app.serving.connections import Connections
from app.serving.options import ConnectionLimits
from app.serving.server import guarded
from tests.shell.clock import WALL, StoppedClock
from tests.shell.kube.fakes import refused
from tests.shell.scheduler.world import running


class Elector:
    """An election that tests decide."""

    def __init__(self, *, leading=True):
        self.leading, self.problem = leading, None

    def unhealthy(self):
        return self.problem

    def statistics(self):
        return ElectionStatistics("me", self.leading, "me" if self.leading else "other", 1, 0)


class Browser:
    """A client of the endpoints of a world."""

    def __init__(self, world, client, elector, endpoints):
        self.world, self.elector, self.endpoints = world, elector, endpoints
        self.stopping = False
        self._client = client

    async def get(self, path, status=200, method="GET", **more):
        async with self._client.request(method, path, **more) as answer:
            text = await answer.text()
            assert answer.status == status, text
            return text

    async def json(self, path, **more):
        return json.loads(await self.get(path, **more))


@contextlib.asynccontextmanager
async def browsing(*nodes, elector=None, profiling=True):
    async with running(*nodes) as world:
        config = world.loaded.settings.configuration
        msgspec.structs.force_setattr(config, "enable_profiling", profiling)
        parts = msgspec.structs.replace(world.scheduler.parts, clock=StoppedClock())
        object.__setattr__(world.scheduler, "parts", parts)
        stop = []
        endpoints = world.endpoints(
            elector,
            stopping=lambda: bool(stop),
            flags={"v": "2", "secure-port": "10259"},
            version="1.2.3",
        )
        app = web.Application(
            middlewares=[
                guarded(Connections(ConnectionLimits(), endpoints.metrics), endpoints.metrics)
            ]
        )
        app.add_routes(endpoints.routes)
        async with TestClient(TestServer(app)) as client:
            browser = Browser(world, client, elector, endpoints)
            browser.stop = lambda: stop.append(1)
            yield browser


def sync(world):
    for informer in world.scheduler.informers:
        informer.synced.set()


# ---------------------------------------------------------------- health


async def test_health_without_election():
    async with browsing() as browser:
        assert await browser.get("/healthz?verbose") == "[+]ping ok\nhealthz check passed\n"
        assert await browser.get("/livez?verbose") == "[+]ping ok\nlivez check passed\n"
        assert await browser.get("/readyz", status=500) == (
            "[+]shutdown ok\n[-]sched-handler-sync failed: reason withheld\nreadyz check failed\n"
        )
        sync(browser.world)
        assert await browser.get("/readyz") == "ok"
        browser.stop()
        assert "[-]shutdown failed" in await browser.get("/readyz", status=500)
        assert await browser.get("/livez") == "ok"


async def test_health_with_election_also_on_standby():
    async with browsing(elector=Elector(leading=False)) as browser:
        sync(browser.world)
        assert await browser.get("/healthz?verbose") == (
            "[+]leaderElection ok\nhealthz check passed\n"
        )
        assert await browser.get("/readyz") == "ok"
        browser.elector.problem = "failed election to renew leadership on lease x"
        for path in ("/healthz", "/readyz"):
            assert "[-]leaderElection failed" in await browser.get(path, status=500)
        assert await browser.get("/livez") == "ok"


# ---------------------------------------------------------------- metrics


async def test_metrics_and_their_reset():
    async with browsing("a") as browser:
        browser.world.add(make_pod("p"))
        await browser.world.settle()
        name = 'scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"}'
        openmetrics = {"Accept": "application/openmetrics-text; version=1.0.0"}
        text = await browser.get("/metrics", headers=openmetrics)
        assert f"{name} 1.0" in text
        assert 'scheduler_pod_scheduling_attempts_bucket{le="1"} 1.0' in text
        assert list(text_string_to_metric_families(text))
        assert await browser.get("/metrics", method="DELETE") == "metrics reset\n"
        assert f"{name} 0.0" in await browser.get("/metrics")


async def test_slis_follow_the_health_endpoints():
    async with browsing() as browser:
        await browser.get("/livez")
        text = await browser.get("/metrics/slis")
        assert 'kubernetes_healthcheck{name="ping",type="livez"} 1.0' in text
        assert "kubernetes_healthcheck" not in await browser.get("/metrics")


async def test_resources_of_pods_are_the_leaders_to_tell():
    elector = Elector()
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    async with browsing("a", elector=elector) as browser:
        browser.world.add(make_pod("p", spec=spec))
        assert 'pod="p"' in await browser.get("/metrics/resources")
        elector.leading = False
        assert "pod=" not in await browser.get("/metrics/resources")


# ---------------------------------------------------------------- about


async def test_the_configuration_is_complete():
    async with browsing() as browser:
        config = (await browser.json("/configz"))["componentconfig"]
    assert config["kind"] == "KubeSchedulerConfiguration"
    assert config["parallelism"] == 16
    assert config["profiles"][0]["schedulerName"] == "default-scheduler"


async def test_status_for_people_and_for_programs():
    async with browsing(elector=Elector()) as browser:
        text = await browser.get("/statusz")
        assert text.startswith("\naiokube-scheduler statusz\nWarning: ")
        assert "\nbinary version: 1.2.3\n" in text
        assert "/debug/pods/{namespace}/{name}" in text
        status = await browser.json("/statusz", headers={"Accept": "application/json"})
        assert status["leader"] == "yes, as me"
        browser.elector.leading = False
        assert "leader: no, other is" in await browser.get("/statusz")


async def test_flags():
    async with browsing() as browser:
        text = await browser.get("/flagz")
    assert "\nsecure-port: 10259\nv: 2\n" in text


async def test_status_and_flags_as_kubernetes_objects():
    accept = "application/json;g=config.k8s.io;v=v1beta1;as={}, application/json"
    async with browsing() as browser:
        headers = {"Accept": accept.format("Statusz")}
        status = await browser.json("/statusz", headers=headers)
        flags = await browser.json("/flagz", headers={"Accept": accept.format("Flagz")})
    identity = {"apiVersion": "config.k8s.io/v1beta1", "metadata": {"name": "aiokube-scheduler"}}
    assert "/livez" in status.pop("paths")
    assert status == identity | {
        "kind": "Statusz",
        "startTime": f"{dt.datetime.fromtimestamp(WALL, dt.UTC):%Y-%m-%dT%H:%M:%SZ}",
        "uptimeSeconds": 0,
        "binaryVersion": "1.2.3",
        "emulationVersion": "1.36",
    }
    assert flags == identity | {"kind": "Flagz", "flags": {"v": "2", "secure-port": "10259"}}


# ---------------------------------------------------------------- debugging


async def test_the_queue():
    async with browsing("a") as browser:
        world = browser.world
        world.add(make_pod("gated", spec={"schedulingGates": [{"name": "g"}]}))
        world.add(make_pod("waits", spec={"nodeSelector": {"no": "where"}}))
        await world.settle()
        queue = await browser.json("/debug/queue")
    assert queue["counts"]["gated"] == 1
    pods = {pod["pod"]: pod for pod in queue["pods"]}
    assert pods["default/gated"]["gatingPlugin"] == "SchedulingGates"
    assert pods["default/waits"]["place"] == "unschedulable"
    assert pods["default/waits"]["rejectors"] == ["NodeAffinity"]
    assert [move[1] for move in pods["default/waits"]["moves"]] == [
        "UnschedulablePodAdd",
        "Pop",
        "ScheduleAttemptFailure",
    ]


async def test_the_watches():
    async with browsing("a") as browser:
        watches = {watch["kind"]: watch for watch in await browser.json("/debug/watches")}
    assert watches["Node"]["unreadable_objects"] == watches["Pod"]["refused_objects"] == []


async def test_the_cache():
    async with browsing("a", "b") as browser:
        world = browser.world
        world.add(make_pod("there").on("b"))
        world.add(msgspec.structs.replace(make_pod("soon"), nominated_node_name="a"))
        text = await browser.get("/debug/cache")
    nodes = text.split("\n\n")
    assert nodes[0].startswith("Node name: a\nDeleted: false\n")
    assert "Nominated Pods(number: 1):\nname: soon, namespace: default" in nodes[0]
    assert "Scheduled Pods(number: 1):\nname: there, namespace: default" in nodes[1]


async def test_a_cache_that_agrees_with_the_watches_and_one_that_does_not():
    async with browsing() as browser:
        world = browser.world
        watched = {informer.kind.name: informer for informer in world.scheduler.informers}
        node, pod, stray = make_node("n"), make_pod("p").on("n"), make_pod("stray").on("n")
        for kind, item in ((Node, node), (Pod, pod)):
            list(watched[kind.__name__]._store.apply(("ADDED", item)))
            world.change(kind, None, item)
        assert (await browser.json("/debug/cache/compare"))["equal"] is True
        world.change(Pod, None, stray)
        world.change(Node, node, None)
        compared = await browser.json("/debug/cache/compare")
    assert compared == {
        "equal": False,
        "nodes": {"missed": ["n"], "redundant": []},
        "pods": {"missed": [], "redundant": [stray.uid]},
    }


async def test_pods_that_come_and_go_while_the_cache_is_compared(monkeypatch):
    monkeypatch.setattr(debugger, "_STEP", 1)
    async with browsing("n") as browser:
        world = browser.world
        informer = next(i for i in world.scheduler.informers if i.kind.name == "Pod")
        here, late, gone = (make_pod(name).on("n") for name in ("here", "late", "gone"))
        for pod in (here, late):
            list(informer._store.apply(("ADDED", pod)))
        for pod in (here, gone):
            world.add(pod)
        steps = browser.world.scheduler.debugger.compare_pods()
        for _ in range(4):
            next(steps)
        world.add(late)
        world.change(Pod, gone, None)
        assert not at_once(steps)


async def test_pods_of_other_schedulers_are_not_missed():
    async with browsing() as browser:
        world = browser.world
        informer = next(i for i in world.scheduler.informers if i.kind.name == "Pod")
        other = make_pod("other", spec={"schedulerName": "somebody-else"})
        list(informer._store.apply(("ADDED", other)))
        assert not at_once(browser.world.scheduler.debugger.compare_pods())


async def test_the_dump_in_the_log(caplog):
    async with browsing("a") as browser:
        browser.world.add(make_pod("p", spec={"schedulingGates": [{"name": "g"}]}))
        browser.world.add(make_pod("lost").on("a"))
        with caplog.at_level(logging.INFO):
            browser.world.scheduler.debugger.to_log()
    found = {r.getMessage(): getattr(r, "pairs", {}) for r in caplog.records}
    assert found["Cache mismatch"] == {
        "missedPods": [],
        "redundantPods": ["uid-of-default-lost", "uid-of-default-p"],
    }
    assert "Node name: a" in found["Dump of cached NodeInfo"]["nodes"]
    queue = found["Dump of scheduling queue"]
    assert queue["summary"] == "activeQ:0; backoffQ:0; unschedulablePods:1"
    assert queue["pods"].startswith("name: p, namespace: default, uid: uid-of-default-p")


async def test_pods_dealt_with_last():
    async with browsing("a") as browser:
        for name in ("p", "q"):
            browser.world.add(make_pod(name))
            await browser.world.settle()
        pods = await browser.json("/debug/pods?limit=1")
        assert [pod["pod"] for pod in pods] == ["default/q"]
        assert pods[0]["last"]["result"] == "bound"
        assert len(await browser.json("/debug/pods?limit=")) == 2


async def test_bindings_in_doubt():
    async with browsing("a") as browser:
        world = browser.world
        lost = ConnectionFailed("no answer in time", sent=True)
        forbidden = refused(403, "pods is forbidden", "Forbidden")
        world.transport.handler = lambda sent: lost if sent.method == "POST" else forbidden
        world.add(make_pod("p"))
        work = asyncio.ensure_future(world.lead())
        while not (doubts := await browser.json("/debug/bindings")):
            await asyncio.sleep(0)
        (doubt,) = doubts
        assert doubt.pop("seconds") >= 0
        assert doubt == {
            "pod": "default/p",
            "uid": "uid-of-default-p",
            "node": "a",
            "error": "pods is forbidden",
        }
        assert len(browser.world.scheduler.writer.doubts) == 1
        world.transport.handler = lambda sent: refused(404, "gone", "NotFound")
        while await browser.json("/debug/bindings"):
            await asyncio.sleep(0)
        work.cancel()
        await asyncio.wait([work])


@pytest.mark.parametrize(
    "limit", ["nonsense", "-1", "1e9", "9" * 5000, "%D9%A3", "%C2%B2", "%ff", "%201", "9999999999"]
)
async def test_a_limit_that_is_no_number(limit):
    async with browsing() as browser:
        status = await browser.json(URL(f"/debug/pods?limit={limit}", encoded=True), status=400)
    assert status["reason"] == "BadRequest"
    assert status["message"].startswith("limit must be a whole number from 0 to 999999999, not ")
    assert len(status["message"]) < 500


async def test_a_pod_nobody_knows():
    async with browsing() as browser:
        status = await browser.json("/debug/pods/shop/nobody", status=404)
    assert status["reason"] == "NotFound"
    assert 'pods "nobody" not found in namespace "shop"' in status["message"]


async def test_tasks():
    async def wait_for_nothing():
        await asyncio.Event().wait()

    waiting = asyncio.create_task(wait_for_nothing(), name="waits for nothing")
    async with browsing() as browser:
        text = await browser.get("/debug/tasks")
    waiting.cancel()
    assert "waits for nothing\n" in text
    assert "test_endpoints.py:" in text


async def test_verbosity_can_be_changed():
    async with browsing() as browser:
        try:
            said = await browser.get("/debug/flags/v", method="PUT", data="5")
            assert said == "successfully set verbosity to 5"
            assert logs.enabled(5)
        finally:
            logs.set_verbosity(0)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"many", {}),
        (b"", {}),
        (b"-1", {}),
        (b"9" * 20, {}),
        (b"9" * 5000, {}),
        (b"\xff\xfe", {}),
        ("\u0663".encode(), {}),
        (b"2", {"Content-Type": "text/plain; charset=utf-16"}),
        (b"2", {"Content-Type": "text/plain; charset=bogus"}),
    ],
)
async def test_a_verbosity_that_is_no_number(body, headers):
    plain = body == b"2"
    async with browsing() as browser:
        said = await browser.get(
            "/debug/flags/v",
            method="PUT",
            data=body,
            headers=headers,
            status=200 if plain else 400,
        )
    logs.set_verbosity(0)
    assert plain or "the verbosity must be a whole number" in said


async def test_without_profiling_there_are_no_tasks_and_no_verbosity():
    async with browsing(profiling=False) as browser:
        await browser.get("/debug/tasks", status=404)
        await browser.get("/debug/flags/v", method="PUT", data="5", status=404)
        assert "/debug/tasks" not in await browser.get("/debug")


async def test_filter_in_the_protocol_of_extenders():
    pod = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {"containers": []},
    }
    async with browsing("a") as browser:
        sync(browser.world)
        args = {"Pod": pod, "Nodes": None, "NodeNames": ["a", "b"]}
        answer = await browser.json("/whatif/filter", method="POST", json=args)
        assert answer["NodeNames"] == ["a"]
        assert answer["Nodes"] is None
        text = await browser.get("/whatif/filter", method="POST", data=b"[]", status=400)
        assert "these are no ExtenderArgs" in text
        await browser.get("/whatif/filter", status=405)
