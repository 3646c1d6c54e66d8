"""Reserve, Permit, PreBind, Bind and PostBind of third-party plugins: the loop and the binding cycle with fake
effects."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import numpy as np
import pytest

from app.framework.args import Profile
from app.framework.interface import POINT_METHODS, PermitResult
from app.framework.plugin_class import points_of
from app.framework.testing import make_node, make_pod
from app.model.objects import Node
from app.model.pod import LabelSet, Pod
from app.model.status import SUCCESS, Code, Status, unschedulable
from app.observe.events import ignore
from app.plugins.default_binder import DefaultBinder
from app.plugins.priority_sort import PrioritySort
from app.scheduler.binding import Binder
from app.scheduler.failures import FailureHandler
from app.scheduler.loop import PodCycle, SchedulingLoop
from app.scheduler.parts import Parts
from app.scheduler.permits import WaitingPodsMap
from app.scheduler.profiles import build_state
from app.state.scheduler_state import Change
from tests.shell.clock import LoopClock

PROFILE = "default-scheduler"

pytestmark = pytest.mark.looptime


class World:
    """One profile with these plugins, one node, and no API server: ``bound`` and ``told`` are what would be written."""

    def __init__(self, *plugins: type) -> None:
        self.bound: list[str] = []
        self.told: list[tuple[str, str]] = []
        self.waiting = WaitingPodsMap()
        self._clock = LoopClock()
        self._group = asyncio.TaskGroup()
        classes = {p.NAME: p for p in (PrioritySort, *plugins, DefaultBinder)}
        points = {
            point: tuple(name for name, cls in classes.items() if point in points_of(cls))
            for point in POINT_METHODS
        }
        rng = np.random.default_rng(0)
        self.state, frameworks = build_state(
            [Profile(PROFILE, None, points, {}, {})],
            classes,
            rng=rng,
            waiting=self.waiting,
            notify=self._wake,
        )
        self.framework = frameworks[PROFILE]
        parts = Parts(self.state, self._clock, rng, self._spawn, ignore)
        self._failures = FailureHandler(parts, self, self)
        self.binder = Binder(
            parts,
            effects=self,
            extenders=None,
            waiting=self.waiting,
            reports=self,
            undo=self._failures.undo,
            max_writing=8,
        )
        self.loop = SchedulingLoop(
            parts,
            PodCycle(
                parts, frameworks, binder=self.binder, failures=self._failures, extenders=None
            ),
            extenders=None,
            parallelism=1,
            limits=(self.binder.writes,),
        )
        self.apply(Node, make_node("node-1"))

    def _wake(self) -> None:
        self.loop.wake()

    def _spawn(self, coroutine, name):
        return self._group.create_task(coroutine, name=name)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["World"]:
        async with self._group:
            loop = self._group.create_task(self.loop.run())
            yield self
            loop.cancel()

    def apply(self, kind: type, new: object) -> None:
        self.state.apply(Change(kind, None, new), self._clock.steady())
        self.loop.wake()

    def add(self, name: str) -> Pod:
        pod = make_pod(name)
        self.apply(Pod, pod)
        return pod

    # -------------------------------------------------- effects

    async def bind(self, pod, node_name):
        self.bound.append(pod.name)
        return SUCCESS

    # -------------------------------------------------- reports

    def scheduled(self, pod, now):
        self.told.append((pod.name, "scheduled"))

    def nominated(self, pod, node_name, now):
        self.told.append((pod.name, f"nominated {node_name}"))

    async def withdraw(self, pod):
        """Nothing is ever left to withdraw."""

    def failed(self, pod, *, reason, message, nominated_node, now):
        self.told.append((pod.name, f"{reason}: {message}"))

    def occupied(self) -> int:
        return int(self.state.table.pod_count.sum())


class Bookkeeper:
    """Notes its calls."""

    NAME = "Bookkeeper"
    calls: list[str]

    def __init__(self, args, handle):
        type(self).calls = []
        self.handle = handle

    def reserve(self, state, pod, node_name):
        self.calls.append(f"reserve {pod.name}")
        return SUCCESS

    def unreserve(self, state, pod, node_name):
        self.calls.append(f"unreserve {pod.name}")

    def post_bind(self, state, pod, node_name):
        self.calls.append(f"bound {pod.name}")


class Pair:
    """Lets pods go two at a time."""

    NAME = "Pair"

    def __init__(self, args, handle):
        self._waiting = handle.waiting

    def permit(self, state, pod, node_name):
        others = list(self._waiting)
        if not others:
            return PermitResult(Status(Code.Wait), 30.0)
        others[0].allow(self.NAME)
        return PermitResult(SUCCESS)


async def test_a_permit_plugin_lets_go_of_a_pod_it_held():
    async with World(Pair).running() as world:
        world.add("a")
        await asyncio.sleep(5)
        assert world.bound == []
        assert [waiting.pod.name for waiting in world.waiting] == ["a"]
        world.add("b")
        await world.binder.cycles.wait_until_idle()
        await asyncio.sleep(1)
        assert sorted(world.bound) == ["a", "b"]
        assert list(world.waiting) == []


async def test_pods_decided_in_one_go_find_each_other_on_hold():
    async with World(Pair).running() as world:
        world.add("a")
        world.add("b")
        await asyncio.sleep(1)
        assert sorted(world.bound) == ["a", "b"]


async def test_a_pod_that_nobody_lets_go_comes_back_in_time():
    async with World(Pair, Bookkeeper).running() as world:
        world.add("a")
        await asyncio.sleep(30.5)
        assert world.bound == []
        assert list(world.waiting) == []
        assert world.occupied() == 0
        assert world.told[-1][1].startswith(
            "Unschedulable: 0/1 nodes are available: "
            "1 rejected due to timeout after waiting 30s at plugin Pair."
        )
        assert Bookkeeper.calls == ["reserve a", "unreserve a"]


async def test_other_pods_hear_of_the_labels_that_a_pod_had_last(monkeypatch):
    async with World(Pair).running() as world:
        old = world.add("a")
        await asyncio.sleep(1)
        new = msgspec.structs.replace(old, labels=LabelSet({"app": "b"}), resource_version="2")
        world.state.apply(Change(Pod, old, new), 1.0)
        heard = []
        move_all = world.state.queue.move_all

        def listen(event, *objects, **more):
            heard.append((event.label, *[obj and obj.labels for obj in objects[:2]]))
            return move_all(event, *objects, **more)

        monkeypatch.setattr(world.state.queue, "move_all", listen)
        await asyncio.sleep(30)
        assert heard == [("AssignedPodDelete", new.labels, None)]


class Doorman:
    """Turns a pod on hold down when another one comes."""

    NAME = "Doorman"

    def __init__(self, args, handle):
        self._waiting = handle.waiting

    def permit(self, state, pod, node_name):
        for other in self._waiting:
            other.reject(self.NAME, "too late")
        return PermitResult(Status(Code.Wait), 60.0)


async def test_a_permit_plugin_turns_down_a_pod_it_held():
    async with World(Doorman).running() as world:
        world.add("a")
        await asyncio.sleep(1)
        world.add("b")
        await asyncio.sleep(1)
        assert ("a", "Unschedulable: 0/1 nodes are available: 1 too late.") in world.told
        assert [waiting.pod.name for waiting in world.waiting] == ["b"]
        next(iter(world.waiting)).allow("Doorman")


class Raising:
    """Raises at the point that a test names."""

    NAME = "Raising"
    at = ""

    def __init__(self, args, handle):
        pass

    def _run(self, point):
        if self.at == point:
            raise RuntimeError(f"broken {point}")
        return SUCCESS

    def reserve(self, state, pod, node_name):
        return self._run("reserve")

    def unreserve(self, state, pod, node_name):
        self._run("unreserve")

    def permit(self, state, pod, node_name):
        return PermitResult(self._run("permit"))

    async def pre_bind(self, state, pod, node_name, effects):
        return self._run("pre_bind")

    async def bind(self, state, pod, node_name, effects):
        self._run("bind")
        return Status(Code.Skip)

    def post_bind(self, state, pod, node_name):
        self._run("post_bind")


@pytest.mark.parametrize("point", ["reserve", "permit", "pre_bind", "bind"])
async def test_what_a_plugin_raises_fails_the_attempt_alone(point, monkeypatch):
    monkeypatch.setattr(Raising, "at", point)
    async with World(Raising, Bookkeeper).running() as world:
        world.add("a")
        await asyncio.sleep(0.5)
        assert world.told[-1] == ("a", f"SchedulerError: RuntimeError: broken {point}")
        assert Bookkeeper.calls[-1] == "unreserve a"
        assert world.occupied() == 0
        monkeypatch.setattr(Raising, "at", "")
        world.add("b")
        await asyncio.sleep(0.1)
        assert world.bound == ["b"]


async def test_every_plugin_unreserves_whatever_the_one_before_raised(monkeypatch, caplog):
    class Refusing(Bookkeeper):
        NAME = "Refusing"

        def permit(self, state, pod, node_name):
            return PermitResult(unschedulable("not today"))

        def unreserve(self, state, pod, node_name):
            raise RuntimeError("broken unreserve")

    async with World(Bookkeeper, Refusing).running() as world:
        world.add("a")
        await asyncio.sleep(0.5)
        assert Bookkeeper.calls == ["reserve a", "unreserve a"]
        assert world.told[-1][1] == "Unschedulable: 0/1 nodes are available: 1 not today."
        assert world.occupied() == 0
    assert "broken unreserve" in caplog.text
    assert "plugin Refusing" in caplog.text


async def test_what_pre_bind_wrote_is_taken_back_before_the_pod_is_given_back(caplog):
    class Writing(Bookkeeper):
        NAME = "Writing"

        async def pre_bind(self, state, pod, node_name, effects):
            self.calls.append("write")
            return SUCCESS

        async def undo_pre_bind(self, state, pod, node_name, effects):
            await asyncio.sleep(0.1)
            self.calls.append(f"take back {pod.name} from {node_name}")

    class Failing:
        NAME = "Failing"

        def __init__(self, args, handle):
            """Needs nothing."""

        async def pre_bind(self, state, pod, node_name, effects):
            return Status(Code.Error, ("no",))

        async def undo_pre_bind(self, state, pod, node_name, effects):
            raise RuntimeError("broken undo")

    async with World(Writing, Failing).running() as world:
        world.add("a")
        await asyncio.sleep(0.5)
        written = ["reserve a", "write", "take back a from node-1", "unreserve a"]
        assert Writing.calls == written
        assert world.told[-1][1] == 'SchedulerError: running PreBind plugin "Failing": no'
        assert world.occupied() == 0
    assert "broken undo" in caplog.text
    assert "plugin Failing" in caplog.text


async def test_a_pod_that_is_bound_stays_bound_whatever_post_bind_raises(monkeypatch, caplog):
    monkeypatch.setattr(Raising, "at", "post_bind")
    async with World(Raising, Bookkeeper).running() as world:
        world.add("a")
        await asyncio.sleep(0.5)
        assert world.bound == ["a"]
        assert world.told[-1] == ("a", "scheduled")
        assert world.occupied() == 1
        assert Bookkeeper.calls == ["reserve a", "bound a"]
    assert "broken post_bind" in caplog.text
