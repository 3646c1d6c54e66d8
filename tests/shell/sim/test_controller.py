"""The base of the controllers, on a virtual clock."""

import asyncio
import logging

import pytest

from app.sim.api import Api
from app.sim.controllers.controller import Controller
from app.sim.errors import ApiError
from app.sim.resources.kinds import NAMESPACES, NODES
from app.sim.store import StoreChange

pytestmark = pytest.mark.looptime


class Recorder(Controller[str]):
    """Notes the changes of nodes, and when their names are reconciled."""

    def __init__(self, api: Api) -> None:
        super().__init__(api, {NODES: self.on_node})
        self.changes: list[tuple[str, str]] = []
        self.reconciled: list[tuple[str, float]] = []

    def on_node(self, change: StoreChange) -> None:
        if change.key[1] == "broken":
            raise KeyError("spec")
        self.changes.append((change.type, change.key[1]))
        self.enqueue(change.key[1])

    def reconcile(self, key: str) -> None:
        self.reconciled.append((key, asyncio.get_running_loop().time()))
        if key == "bad":
            raise ApiError(409, "Conflict", "it has changed")
        if key == "worse":
            raise KeyError("status")


@pytest.fixture
async def api() -> Api:
    api = Api(now=asyncio.get_running_loop().time)
    api.create(NAMESPACES, "", {"metadata": {"name": "default"}})
    return api


def add(api: Api, name: str) -> None:
    api.create(NODES, "", {"metadata": {"name": name}})


async def test_it_starts_with_the_objects_that_exist(api: Api) -> None:
    add(api, "a")
    recorder = Recorder(api)
    recorder.start()
    add(api, "b")
    assert recorder.changes == [("ADDED", "a"), ("ADDED", "b")]
    assert recorder.reconciled == []
    await asyncio.sleep(0)
    assert [key for key, _ in recorder.reconciled] == ["a", "b"]
    recorder.stop()


async def test_a_key_is_reconciled_once_for_changes_that_come_together(api: Api) -> None:
    recorder = Recorder(api)
    recorder.start()
    for _ in range(3):
        recorder.enqueue("a")
    await asyncio.sleep(1)
    recorder.enqueue("a")
    await asyncio.sleep(1)
    assert recorder.reconciled == [("a", 0.0), ("a", 1.0)]
    recorder.stop()


async def test_a_key_is_due_at_the_earliest_time_unless_it_is_cancelled(api: Api) -> None:
    recorder = Recorder(api)
    recorder.enqueue("a", 5.0)
    recorder.enqueue("a", 1.0)
    recorder.enqueue("a", 3.0)
    recorder.enqueue("b", 1.0)
    recorder.cancel("b")
    recorder.enqueue("b", 2.0)
    await asyncio.sleep(10)
    assert recorder.reconciled == [("a", 1.0), ("b", 2.0)]


async def test_whatever_an_object_causes_the_others_go_on(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("broken", "good", "worse"):
        add(api, name)
    recorder = Recorder(api)
    with caplog.at_level(logging.ERROR):
        recorder.start()
        await asyncio.sleep(1)
    assert [key for key, _ in recorder.reconciled] == ["good", "worse"]
    assert "Recorder cannot handle /broken" in caplog.text
    assert "Recorder cannot reconcile worse" in caplog.text
    recorder.stop()


async def test_an_error_is_logged_and_the_others_go_on(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(api)
    recorder.enqueue("bad")
    recorder.enqueue("good")
    with caplog.at_level(logging.WARNING):
        await asyncio.sleep(1)
    assert [key for key, _ in recorder.reconciled] == ["bad", "good"]
    assert "Recorder cannot reconcile bad: it has changed" in caplog.text


async def test_nothing_happens_after_the_end(api: Api) -> None:
    recorder = Recorder(api)
    recorder.start()
    recorder.enqueue("a", 1.0)
    recorder.stop()
    add(api, "b")
    await asyncio.sleep(2)
    assert recorder.changes == recorder.reconciled == []
