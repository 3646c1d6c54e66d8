from app.framework.interface import CycleState
from app.model.pod import make_pod
from app.model.status import SUCCESS, Code, SchedulingError, Status
from app.plugins.default_binder import DefaultBinder
from tests.core.framework.coroutines import finish
from tests.core.framework.worlds import World

POD = make_pod(namespace="ns", name="p", uid="u")


class Binder:
    """Effects of which only ``bind`` is called."""

    def __init__(self, error=None):
        self.error = error
        self.bound = []

    async def bind(self, pod, node_name):
        if self.error is not None:
            raise self.error
        self.bound.append((pod, node_name))


def run(effects):
    plugin = DefaultBinder(None, World(0, nodes=4).handle)
    return finish(plugin.bind(CycleState(), POD, "node-1", effects))


def test_writes_the_binding():
    effects = Binder()
    assert run(effects) == SUCCESS
    assert effects.bound == [(POD, "node-1")]


def test_a_failed_write_is_an_error_with_its_text():
    assert run(Binder(SchedulingError("no room"))) == Status(Code.Error, ("no room",))
