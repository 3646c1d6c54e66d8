"""Plugins whose Filter or Score does without its own PreFilter or PreScore, as in a profile that disables only
those.
"""

import pytest

from app.framework.interface import CycleState
from app.framework.testing import FakeCluster, make_node, make_pod
from app.model.status import Code, SchedulingError
from app.plugins.node_affinity import NodeAffinity
from app.plugins.node_resources_balanced_allocation import (
    NodeResourcesBalancedAllocation,
)
from app.plugins.node_resources_fit import NodeResourcesFit
from app.plugins.volume_zone import VolumeZone
from app.state.view import View

SSD = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
POD = make_pod(
    spec={
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "nowhere"}}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [SSD]},
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 7, "preference": SSD}
                ],
            }
        },
    }
)


def room(cpu, memory):
    return {"allocatable": {"cpu": cpu, "memory": memory, "pods": "110"}}


@pytest.fixture
def cluster():
    return FakeCluster(
        make_node("a", labels={"disk": "ssd"}, status=room("8", "8Gi")),
        make_node("b", labels={"disk": "hdd"}, status=room("4", "32Gi")),
    )


@pytest.mark.parametrize(
    "kind", [NodeAffinity, NodeResourcesFit, NodeResourcesBalancedAllocation], ids=lambda k: k.NAME
)
def test_score_without_pre_score(kind, cluster):
    plugin, view, state = (
        kind(None, cluster.handle),
        View.everything(cluster.handle.table),
        CycleState(),
    )
    assert plugin.pre_score(state, POD, view).ok
    with_it = plugin.score(state, POD, view).tolist()
    assert plugin.score(CycleState(), POD, view).tolist() == with_it
    assert len(set(with_it)) > 1


def test_balanced_allocation_without_pre_score_of_a_pod_that_asks_for_nothing(cluster):
    plugin = NodeResourcesBalancedAllocation(None, cluster.handle)
    assert plugin.score(CycleState(), make_pod(), View.everything(cluster.handle.table)) is None


def test_node_affinity_without_pre_score_of_a_term_that_cannot_be_read(cluster):
    term = {"matchExpressions": [{"key": "n", "operator": "Gt", "values": ["x"]}]}
    preferred = [{"weight": 1, "preference": term}]
    node_affinity = {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
    pod = make_pod(spec={"affinity": {"nodeAffinity": node_affinity}})
    plugin = NodeAffinity(None, cluster.handle)
    with pytest.raises(SchedulingError, match=r'plugin "NodeAffinity" failed with: .* "x"'):
        plugin.score(CycleState(), pod, View.everything(cluster.handle.table))


def test_node_affinity_without_pre_filter(cluster):
    view = View.everything(cluster.handle.table)
    verdicts = NodeAffinity(None, cluster.handle).filter(CycleState(), POD, view)
    assert verdicts.codes.tolist() == [0, Code.UnschedulableAndUnresolvable]


def test_volume_zone_without_pre_filter(cluster):
    view = View.everything(cluster.handle.table)
    plugin = VolumeZone(None, cluster.handle)
    verdicts = plugin.filter(CycleState(), POD, view)
    assert verdicts.codes.tolist() == 2 * [Code.UnschedulableAndUnresolvable]
    assert verdicts.text(int(verdicts.reasons[0])) == ('persistentvolumeclaim "nowhere" not found',)
    assert plugin.filter(CycleState(), make_pod(), view) is None
