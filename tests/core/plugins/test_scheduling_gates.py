import pytest

from app.framework.interface import QueueingHint
from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.objects import PodSpec, SchedulingGate
from app.model.pod import make_pod
from app.model.status import SUCCESS, unresolvable
from app.plugins.scheduling_gates import SchedulingGates
from tests.core.framework.worlds import World

PLUGIN = SchedulingGates(None, World(0, nodes=4).handle)


def gated(*names, uid="u"):
    gates = tuple(SchedulingGate(name) for name in names)
    return make_pod(PodSpec(scheduling_gates=gates), namespace="ns", name="p", uid=uid)


def test_pod_without_gates_passes():
    assert PLUGIN.pre_enqueue(gated()) is SUCCESS
    assert PLUGIN.pre_enqueue(make_pod(namespace="ns", name="p", uid="u")) is SUCCESS


def test_gates_are_named_in_spec_order():
    status = PLUGIN.pre_enqueue(gated("b.example/x", "a"))
    assert status == unresolvable("waiting for scheduling gates: [b.example/x a]")


def test_wakes_on_the_removal_of_the_pods_own_gates():
    (registration,) = PLUGIN.events_to_register()
    assert registration.event == ClusterEvent(
        Resource.Pod, Action.UpdatePodSchedulingGatesEliminated
    )
    assert not registration.template_only


@pytest.mark.parametrize(
    ("uid", "expected"), [("u", QueueingHint.QUEUE), ("other", QueueingHint.SKIP)]
)
def test_hint(uid, expected):
    (registration,) = PLUGIN.events_to_register()
    assert registration.hint(gated("a"), gated("a", uid=uid), gated(uid=uid)) is expected
