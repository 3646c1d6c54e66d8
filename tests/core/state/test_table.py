"""The node table as far as the histories of test_scheduler_state.py do not look."""

import random

import numpy as np

from app.framework.testing import make_node, make_pod
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


def test_what_has_changed_since_a_generation():
    """However many changes that is, and whatever became of the rows: as if every row were looked at."""
    dice, table = random.Random(0), NodeTable()
    seen = [0]
    for number in range(3000):
        name = f"n{dice.randrange(40)}"
        pods = [make_pod(f"p{number}-{i}").on(name) for i in range(dice.choice((1, 1, 2)))]
        if dice.random() < 0.1 and name in table.row_of and table.nodes[table.row_of[name]]:
            table.remove_node(name)
        elif dice.random() < 0.5:
            table.set_node(make_node(name))
        else:
            table.add_pod(pods[0]) if len(pods) == 1 else table.add_pods(pods)
        seen.append(table.last_generation)
        for generation in (*dice.sample(seen, min(3, len(seen))), *seen[-3:]):
            newer = np.flatnonzero(table.generation[: table.size] > generation)
            assert table.rows_since(generation).tolist() == newer.tolist()
