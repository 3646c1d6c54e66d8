"""Profiles that leave a plugin out at PreFilter or PreScore alone; the words are those of kube-scheduler 1.36.2."""

import pytest

from app.framework.interface import POINT_METHODS, CycleState
from app.framework.profile import ProfilePlugins, resolve_plugins
from app.framework.runner import Framework
from app.framework.testing import FakeCluster, make_node, make_pod
from app.model.status import Code, SchedulingError
from app.plugins.registry import IN_TREE, capabilities
from app.state.nominations import NO_PODS
from app.state.view import View

FILTER_ERRORS = {
    "NodePorts": 'reading "PreFilterNodePorts" from cycleState: not found',
    "NodeResourcesFit": 'error reading "PreFilterNodeResourcesFit" from cycleState: not found',
    "VolumeRestrictions": 'cannot read "PreFilterVolumeRestrictions" from cycleState',
    "VolumeBinding": "not found",
    "PodTopologySpread": 'reading "PreFilterPodTopologySpread" from cycleState: not found',
    "InterPodAffinity": 'error reading "PreFilterInterPodAffinity" from cycleState: not found',
    "DynamicResources": "not found",
    "NodeDeclaredFeatures": 'error reading "PreFilterNodeDeclaredFeatures" from cycle-state: not found',
}
SCORE_ERRORS = {
    "TaintToleration": 'failed to read "PreScoreTaintToleration" from cycleState: not found',
    "PodTopologySpread": 'error reading "PreScorePodTopologySpread" from cycleState: not found',
    "InterPodAffinity": 'failed to read "PreScoreInterPodAffinity" from cycleState: not found',
}
#: With something to say for every plugin that manages without preparation.
POD = make_pod(
    labels={"app": "web"},
    spec={
        "nodeSelector": {"disk": "ssd"},
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1,
                        "preference": {"matchExpressions": [{"key": "fast", "operator": "Exists"}]},
                    }
                ]
            }
        },
        "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}],
    },
)


class Trial:
    """Nodes with disks of these kinds, and the default plugins but for those left out at a point."""

    def __init__(self, *disks, **left_out):
        cluster = FakeCluster(
            *(make_node(f"node-{i}", labels={"disk": disk}) for i, disk in enumerate(disks))
        )
        self.table = cluster.handle.table
        plugins = {name: kind(None, cluster.handle) for name, kind in IN_TREE.items()}
        points = {
            point: [
                name
                for name, has in capabilities().items()
                if point in has and name not in left_out.get(point, ())
            ]
            for point in POINT_METHODS
        }
        lined_up = ProfilePlugins(resolve_plugins(points, plugins), {})
        self.framework = Framework("profile", lined_up, self.table)
        self._memo = self.framework.memo(POD)

    def find(self):
        self._state = CycleState(self._memo.local.state)
        filtered = self.framework.filter(self._state, POD, self._memo, NO_PODS)
        return filtered.outcome.feasible()

    def rank(self):
        view = View(self.table, self.find())
        return self.framework.scoring.score(self._state, POD, self._memo, view).tolist()

    def reserve(self):
        self.find()
        return self.framework.commit.reserve(self._state, POD, "node-0")

    def pre_bind_work(self):
        assert self.reserve().ok
        return self.framework.commit.pre_bind_work(self._state, POD, "node-0")


def plugins_at(*points):
    return [name for name, has in capabilities().items() if has.issuperset(points)]


@pytest.mark.parametrize("name", plugins_at("preFilter", "filter"))
def test_filter_without_pre_filter(name):
    trial = Trial("ssd", "ssd", "hdd", preFilter={name})
    if name not in FILTER_ERRORS:
        assert trial.find().tolist() == Trial("ssd", "ssd", "hdd").find().tolist()
        return
    with pytest.raises(SchedulingError) as caught:
        trial.find()
    assert str(caught.value) == f'running "{name}" filter plugin: {FILTER_ERRORS[name]}'


@pytest.mark.parametrize("name", plugins_at("preScore", "score"))
def test_score_without_pre_score(name):
    trial = Trial("ssd", "ssd", "hdd", preScore={name})
    if name not in SCORE_ERRORS:
        assert trial.rank() == Trial("ssd", "ssd", "hdd").rank()
        return
    with pytest.raises(SchedulingError) as caught:
        trial.rank()
    said = f'running Score plugins: plugin "{name}" failed with: {SCORE_ERRORS[name]}'
    assert str(caught.value) == said


@pytest.mark.parametrize("name", ["VolumeBinding", "DynamicResources"])
def test_reserve_and_pre_bind_without_pre_filter(name):
    out = {"preFilter": {name}, "filter": {name}, "score": {name}}
    status = Trial("ssd", **out).reserve()
    error = f'running Reserve plugin "{name}": not found'
    assert (status.code, status.message) == (Code.Error, error)
    trial = Trial("ssd", **out, reserve={name})
    with pytest.raises(SchedulingError) as caught:
        trial.pre_bind_work()
    assert str(caught.value) == f'running PreBindPreFlight "{name}": not found'
    assert Trial("ssd", **out, reserve={name}, preBind={name}).pre_bind_work() == []


def test_score_of_dynamic_resources_without_pre_filter():
    trial = Trial("ssd", "ssd", preFilter={"DynamicResources"}, filter={"DynamicResources"})
    with pytest.raises(SchedulingError) as caught:
        trial.rank()
    said = 'running Score plugins: plugin "DynamicResources" failed with: not found'
    assert str(caught.value) == said


def test_nodes_that_an_earlier_plugin_turned_down_meet_no_error():
    assert not len(Trial("hdd", "hdd", preFilter={"NodePorts"}).find())


def test_a_point_where_a_plugin_is_idle_may_be_listed_and_costs_nothing():
    framework = Trial("ssd").framework
    assert "permit" in capabilities()["GangScheduling"]
    assert list(framework.plugins.at("permit")) == []
