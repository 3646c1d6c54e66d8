import numpy as np

from app.framework.diagnosis import Diagnosis
from app.framework.interface import CycleState
from app.framework.plugins.dynamic_resources import DynamicResources
from app.framework.plugins.dynamic_resources.plugin import ERR_REASON_CLAIMS
from app.framework.profile import ProfilePlugins
from app.framework.runner import Framework
from app.framework.testing import FakeCluster, make_node, make_pod
from app.model.status import SKIP, Code, unresolvable
from app.state.view import View
from tests.core.framework.coroutines import finish

CLAIMING = make_pod(spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}]})


def cluster():
    return FakeCluster(make_node("a"), make_node("b"))


def test_pods_with_claims_are_held_back():
    world = cluster()
    refused = unresolvable(ERR_REASON_CLAIMS)
    plugin = DynamicResources(None, world.handle)
    assert world.judge(plugin, CLAIMING) == {"a": refused, "b": refused}
    assert plugin.pre_filter(CycleState(), make_pod()) == SKIP


def test_its_score_counts_for_nothing_but_is_shown():
    world = cluster()
    plugin = DynamicResources(None, world.handle)
    assert world.score(plugin, make_pod()) == {"a": 0, "b": 0}
    world.check(plugin, make_pod())

    plugins = ProfilePlugins({"score": [plugin]}, {plugin.NAME: 2})
    table = world.handle.table
    framework = Framework("default-scheduler", plugins, table)
    pod = make_pod()
    memo = framework.memo(pod)
    scores = framework.plugin_scores(CycleState(memo.state), pod, memo, View.everything(table))
    assert list(scores) == ["DynamicResources"]
    assert np.array_equal(scores["DynamicResources"], [0, 0])


def test_words_after_a_failed_attempt():
    plugin = DynamicResources(None, cluster().handle)
    state, pod, diagnosis = CycleState(), make_pod(), Diagnosis(node_count=2)

    def after():
        result = finish(plugin.post_filter(state, pod, diagnosis, None))
        return result.status.code, result.status.message

    assert after() == (Code.Error, "not found")
    plugin.pre_filter(state, pod)
    assert after() == (Code.Unschedulable, "no new claims to deallocate")
