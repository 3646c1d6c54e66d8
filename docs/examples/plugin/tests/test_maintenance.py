from aiokube_scheduler.framework.api import unresolvable
from aiokube_scheduler.framework.testing import FakeCluster, make_node, make_pod
from example_plugins.maintenance import Maintenance

BUSY = make_node("a", annotations={"example.com/maintenance": "new disks"})
READY = make_node("a")
REFUSED = unresolvable("node(s) were in maintenance (new disks)")


def test_nodes_in_maintenance_are_turned_down():
    cluster = FakeCluster(BUSY, make_node("b"))
    assert cluster.judge(Maintenance(None, cluster.handle), make_pod()) == {"a": REFUSED}


def test_another_annotation():
    cluster = FakeCluster(make_node("a", annotations={"closed": "stock-taking"}), make_node("b"))
    plugin = Maintenance({"annotation": "closed"}, cluster.handle)
    assert set(cluster.judge(plugin, make_pod())) == {"a"}


def test_the_end_of_maintenance_wakes_and_nothing_else_does():
    cluster = FakeCluster(BUSY)
    plugin = Maintenance(None, cluster.handle)
    assert cluster.wakes(plugin, make_pod(), old=BUSY, new=READY)
    assert cluster.wakes(plugin, make_pod(), new=READY)
    assert not cluster.wakes(plugin, make_pod(), new=BUSY)
    assert not cluster.wakes(plugin, make_pod(), old=READY, new=BUSY)
    assert not cluster.wakes(plugin, make_pod(), old=READY, new=make_node("a", labels={"x": "y"}))


def test_the_contract():
    cluster = FakeCluster(BUSY, make_node("b"), make_node("c"))
    cluster.check(Maintenance(None, cluster.handle), make_pod(), make_pod(labels={"app": "web"}))
