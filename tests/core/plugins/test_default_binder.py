from app.framework.interface import CycleState
from app.model.pod import make_pod
from app.model.status import SUCCESS, Code, Status
from app.plugins.default_binder import DefaultBinder
from tests.core.framework.coroutines import finish
from tests.core.framework.worlds import World

POD = make_pod(namespace="ns", name="p", uid="u")


class Binder:
    """Effects of which only ``bind`` is called."""

    def __init__(self, status=SUCCESS):
        self.status = status
        self.bound = []

    async def bind(self, pod, node_name):
        self.bound.append((pod, node_name))
        return self.status


def run(effects):
    plugin = DefaultBinder(None, World(0, nodes=4).handle)
    return finish(plugin.bind(CycleState(), POD, "node-1", effects))


def test_writes_the_binding():
    effects = Binder()
    assert run(effects) == SUCCESS
    assert effects.bound == [(POD, "node-1")]


def test_a_failed_write_is_an_error_with_its_text():
    refused = Status(Code.Error, ("no room",))
    assert run(Binder(refused)) == refused
