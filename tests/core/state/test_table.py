"""The node table as far as the histories of test_scheduler_state.py do not look."""

from app.framework.testing import make_node
from app.state.table import NodeTable


def test_names_follow_the_nodes():
    table = NodeTable()
    for name in ("a", "b", "c"):
        table.set_node(make_node(name))
    assert table.names_of(table.live_rows()) == ["a", "b", "c"]
    table.remove_node("b")
    assert table.names_of(table.live_rows()) == ["a", "c"]
    table.set_node(make_node("later"))
    assert table.names_of(table.live_rows()[::-1]) == ["c", "later", "a"]
