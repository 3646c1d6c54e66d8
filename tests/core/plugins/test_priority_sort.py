import itertools
import types

from app.model.objects import PodSpec
from app.model.pod import make_pod
from app.plugins.priority_sort import PrioritySort
from tests.core.framework.worlds import World


def queued(priority, timestamp):
    pod = make_pod(PodSpec(priority=priority), namespace="ns", name="p", uid="u")
    return types.SimpleNamespace(pod=pod, timestamp=timestamp)


def less(a, b):
    """kube-scheduler's comparison (docs/spec/plugins/priority-sort.md)."""
    mine, other = a.pod.spec.priority or 0, b.pod.spec.priority or 0
    return mine > other or (mine == other and a.timestamp < b.timestamp)


def test_higher_priority_first_then_longer_waiting():
    plugin = PrioritySort(None, World(0, nodes=4).handle)
    waiting = [queued(p, t) for p in (None, 0, -5, 2_000_000_000) for t in (1.0, 0.5, 2.0)]
    for a, b in itertools.product(waiting, repeat=2):
        assert (plugin.sort_key(a) < plugin.sort_key(b)) == less(a, b)
