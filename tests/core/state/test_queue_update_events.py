"""Which events the update of a pod or a node stands for."""

import msgspec
import pytest

from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.objects import (
    Container,
    ContainerImage,
    Node,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    PodResourceClaimStatus,
    ResourceRequirements,
    SchedulingGate,
    Taint,
    Toleration,
)
from app.model.pod import LabelSet, PodTemplate
from app.model.requests import PodResources
from app.state.queue.update_events import node_update_events, pod_update_events
from tests.core.state.queue_kit import make_pod, spec


def requesting(**requests):
    container = Container(resources=ResourceRequirements(requests=requests or None))
    return make_pod(template=PodTemplate(spec(containers=(container,))))


def with_spec(**fields):
    return make_pod(template=PodTemplate(spec(**fields)))


CLAIM = PodResourceClaimStatus("gpu", "web-gpu")
GATE = SchedulingGate("g")
TOLERATION = Toleration(key="k", operator="Exists")
SAME = with_spec()


@pytest.mark.parametrize(
    ("old", "new", "actions"),
    [
        pytest.param(SAME, SAME, [Action.Update], id="the same object"),
        pytest.param(make_pod(), make_pod(), [Action.Update], id="equal objects"),
        pytest.param(make_pod(labels={"a": "b"}), make_pod(labels={"a": "b"}), [Action.Update], id="equal labels"),
        pytest.param(make_pod(), make_pod(labels={"a": "b"}), [Action.UpdatePodLabel], id="label added"),
        pytest.param(make_pod(labels={"a": "b"}), make_pod(labels={"a": "c"}), [Action.UpdatePodLabel], id="label changed"),
        pytest.param(requesting(cpu="2"), requesting(cpu="1"), [Action.UpdatePodScaleDown], id="less of a resource"),
        pytest.param(requesting(cpu="1"), requesting(cpu="1000m"), [Action.Update], id="the same written differently"),
        pytest.param(requesting(cpu="1"), requesting(cpu="2"), [Action.Update], id="more of a resource"),
        pytest.param(requesting(cpu="1", memory="1Gi"), requesting(cpu="2", memory="1Mi"), [Action.UpdatePodScaleDown], id="more of one, less of another"),
        pytest.param(requesting(cpu="1", memory="1Gi"), requesting(cpu="1"), [Action.UpdatePodScaleDown], id="a resource less"),
        pytest.param(requesting(**{"example.com/gpu": "0"}), requesting(), [Action.UpdatePodScaleDown], id="a zero less"),
        pytest.param(requesting(cpu="1"), requesting(cpu="1", memory="1Gi"), [Action.Update], id="a resource more"),
        pytest.param(with_spec(scheduling_gates=(GATE,)), with_spec(), [Action.UpdatePodSchedulingGatesEliminated], id="last gate removed"),
        pytest.param(with_spec(scheduling_gates=(GATE,)), with_spec(scheduling_gates=()), [Action.UpdatePodSchedulingGatesEliminated], id="gates emptied"),
        pytest.param(with_spec(scheduling_gates=(GATE, GATE)), with_spec(scheduling_gates=(GATE,)), [Action.Update], id="a gate less"),
        pytest.param(with_spec(), with_spec(tolerations=(TOLERATION,)), [Action.UpdatePodToleration], id="toleration added"),
        pytest.param(with_spec(tolerations=(TOLERATION,)), with_spec(tolerations=(Toleration(),)), [Action.Update], id="as many tolerations"),
        pytest.param(with_spec(tolerations=()), with_spec(), [Action.Update], id="no tolerations either way"),
        pytest.param(make_pod(), make_pod(claim_statuses=(CLAIM,)), [Action.UpdatePodGeneratedResourceClaim], id="claims generated"),
        pytest.param(make_pod(), make_pod(extended_claim_status=b"{}"), [Action.UpdatePodGeneratedResourceClaim], id="claim for extended resources"),
        pytest.param(make_pod(), make_pod(phase="Pending", resource_version="2", nominated_node_name="n"), [Action.Update], id="status only"),
    ],
)  # fmt: skip
def test_pod_updates(old, new, actions):
    kind = Resource.UnschedulablePod
    assert pod_update_events(old, new) == [ClusterEvent(kind, action) for action in actions]


def test_a_pod_update_can_be_several_events_in_a_fixed_order():
    old = with_spec(
        scheduling_gates=(GATE,),
        containers=(Container(resources=ResourceRequirements(requests={"cpu": "2"})),),
    )
    new = with_spec(tolerations=(TOLERATION,))
    new = msgspec.structs.replace(new, labels=LabelSet({"a": "b"}), claim_statuses=(CLAIM,))
    assert [event.label for event in pod_update_events(old, new)] == [
        "UnschedulablePodUpdatePodLabel",
        "UnschedulablePodUpdatePodScaleDown",
        "UnschedulablePodUpdatePodSchedulingGatesEliminated",
        "UnschedulablePodUpdatePodToleration",
        "UnschedulablePodUpdatePodGeneratedResourceClaim",
    ]


def test_a_pod_with_a_node_is_an_assigned_pod():
    assert [event.label for event in pod_update_events(make_pod(), make_pod(node_name="n"))] == [
        "AssignedPodUpdate"
    ]


def test_an_in_place_resize_that_frees_something_is_a_scale_down():
    running = requesting(cpu="2")
    bigger = msgspec.structs.replace(running, resized=PodResources((("cpu", 3000),), 3000, 0))
    assert pod_update_events(running, bigger)[0].action is Action.Update
    assert pod_update_events(bigger, running)[0].action is Action.UpdatePodScaleDown


def node(labels=None, annotations=None, unschedulable=False, taints=None, **status) -> Node:
    return Node(
        metadata=ObjectMeta(name="n", labels=labels, annotations=annotations),
        spec=NodeSpec(unschedulable=unschedulable, taints=taints),
        status=NodeStatus(**status),
    )


READY, NOT_READY = NodeCondition("Ready", "True"), NodeCondition("Ready", "False")
PRESSURE = NodeCondition("MemoryPressure", "False")
RED, BLUE = Taint("red", "", "NoSchedule"), Taint("blue", "", "NoSchedule")


@pytest.mark.parametrize(
    ("old", "new", "actions"),
    [
        pytest.param(node(), node(), [], id="nothing"),
        pytest.param(node(unschedulable=True), node(), [Action.UpdateNodeTaint], id="uncordoned"),
        pytest.param(node(), node(unschedulable=True), [], id="cordoned"),
        pytest.param(node(allocatable={"cpu": "1"}), node(allocatable={"cpu": "2"}), [Action.UpdateNodeAllocatable], id="allocatable"),
        pytest.param(node(allocatable={"cpu": "1"}), node(allocatable={"cpu": "1000m"}), [], id="allocatable written differently"),
        pytest.param(node(allocatable={"cpu": "1"}), node(allocatable={"cpu": "1", "a/b": "0"}), [Action.UpdateNodeAllocatable], id="a resource more"),
        pytest.param(node(allocatable={"a/b": "junk"}), node(allocatable={"a/b": "junk", "cpu": "1"}), [Action.UpdateNodeAllocatable], id="unreadable and more"),
        pytest.param(node(allocatable={"a/b": "junk", "cpu": "1"}), node(allocatable={"a/b": "junk", "cpu": "1000m"}), [], id="unreadable but the same"),
        pytest.param(node(allocatable={}), node(), [], id="nothing allocatable"),
        pytest.param(node(labels={"a": "b"}), node(), [Action.UpdateNodeLabel], id="label removed"),
        pytest.param(node(labels={}), node(), [], id="no labels"),
        pytest.param(node(taints=(RED,)), node(), [Action.UpdateNodeTaint], id="taint removed"),
        pytest.param(node(taints=(RED, BLUE)), node(taints=(BLUE, RED)), [Action.UpdateNodeTaint], id="taints in another order"),
        pytest.param(node(taints=()), node(), [], id="no taints"),
        pytest.param(node(conditions=(READY,)), node(conditions=(NOT_READY,)), [Action.UpdateNodeCondition], id="condition"),
        pytest.param(node(conditions=(READY, PRESSURE)), node(conditions=(PRESSURE, READY)), [], id="conditions in another order"),
        pytest.param(node(annotations={"a": "b"}), node(annotations={"a": "c"}), [Action.UpdateNodeAnnotation], id="annotation"),
        pytest.param(node(declared_features=("A",)), node(declared_features=("A", "B")), [Action.UpdateNodeDeclaredFeature], id="feature"),
        pytest.param(node(declared_features=()), node(), [], id="no features"),
        pytest.param(node(declared_features=("A",)), node(declared_features=("A",)), [], id="the same features"),
        pytest.param(node(taints=(RED,)), node(taints=(RED,)), [], id="the same taints"),
        pytest.param(node(), node(images=(ContainerImage(("i",), 1),)), [], id="images"),
    ],
)  # fmt: skip
def test_node_updates(old, new, actions):
    assert node_update_events(old, new) == [ClusterEvent(Resource.Node, action) for action in actions]  # fmt: skip


def test_a_node_update_can_be_several_events_in_a_fixed_order():
    old = node(unschedulable=True)
    new = node(
        labels={"a": "b"},
        annotations={"a": "b"},
        taints=(RED,),
        allocatable={"cpu": "1"},
        conditions=(READY,),
        declared_features=("A",),
    )
    assert [event.label for event in node_update_events(old, new)] == [
        "NodeUpdateNodeTaint",
        "NodeUpdateNodeAllocatable",
        "NodeUpdateNodeLabel",
        "NodeUpdateNodeTaint",
        "NodeUpdateNodeCondition",
        "NodeUpdateNodeAnnotation",
        "NodeUpdateNodeDeclaredFeature",
    ]
