"""CSI volumes and the limits of nodes by row."""

import numpy as np

from app.plugins.helpers.csi.index import csi_index
from app.plugins.helpers.csi.nodes import NO_LIMIT, RowNames
from tests.core.plugins.volume_world import Bench, make_csi_node, make_node, make_pod_with


def test_pods_without_volumes_leave_no_trace():
    bench = Bench(make_node("a"))
    index = csi_index(bench.table, bench.cluster)
    bench.put(make_pod_with(node_name="a"))
    assert not bench.table.volumes._claims
    assert not index._claims


def test_there_is_one_index_per_table_and_one_pair_of_caches_per_cluster():
    bench = Bench()
    assert csi_index(bench.table, bench.cluster) is csi_index(bench.table, bench.cluster)
    assert bench.cluster.assumed is bench.cluster.assumed


# ---------------------------------------------------------------- rows and names


def test_row_names_tell_what_changed_since_the_last_time():
    bench = Bench(make_node("a"), make_node("b"))
    names = RowNames(bench.table)
    assert names.catch_up() == ([], [(0, "a"), (1, "b")])
    assert names.catch_up() == ([], [])
    bench.put(make_pod_with(node_name="a"))
    assert names.catch_up() == ([], [])
    bench.table.remove_node("b")
    bench.put(make_node("c"))
    bench.table.remove_node("c")
    bench.put(make_node("d"))
    assert names.catch_up() == ([(1, "b")], [(1, "d")])
    assert (names.name(1), names.row("d"), names.row("b")) == ("d", 1, None)


def test_a_name_that_moved_to_another_row():
    bench = Bench(make_node("a"), make_node("b"))
    names = RowNames(bench.table)
    names.catch_up()
    bench.table.remove_node("a")
    bench.table.remove_node("b")
    bench.put(make_node("a"), make_node("b"))
    assert bench.table.row_of == {"a": 1, "b": 0}
    lost, found = names.catch_up()
    assert sorted(lost) == [(0, "a"), (1, "b")]
    assert sorted(found) == [(0, "b"), (1, "a")]
    assert (names.row("a"), names.row("b")) == (1, 0)


def test_csi_nodes_by_row():
    bench = Bench(make_node("a"), make_node("b"), make_csi_node("a", "x,y", csi_a=3, csi_b=None))
    nodes = csi_index(bench.table, bench.cluster).nodes
    assert nodes.present[:2].tolist() == [True, False]
    both = np.arange(2)
    assert nodes.limit("csi.a", both).tolist() == [3, NO_LIMIT]
    assert nodes.limit("csi.b", both) is None
    assert nodes.migrated("y")[:2].tolist() == [True, False]
    assert not nodes.migrated("z").any()
    bench.put(make_csi_node("b", csi_b=1), make_csi_node("unheard-of", csi_a=1))
    assert nodes.limited[:2].tolist() == [True, True]
    bench.gone(make_csi_node("a"))
    assert nodes.present[:2].tolist() == [False, True]
    assert nodes.limit("csi.a", both) is None
    assert nodes.limit("csi.b", both).tolist() == [NO_LIMIT, 1]
