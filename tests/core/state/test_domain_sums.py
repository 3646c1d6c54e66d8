"""The sums over topology domains that are kept are those of a count from scratch, after any history."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from app.framework.testing import make_node
from app.model.pod import make_pod
from app.model.selectors import from_map
from app.state.columns.labels import MISSING
from app.state.columns.selector_index import Scope
from app.state.table import NodeTable

KEYS = ("zone", "host")
nodes = st.integers(0, 5).map("node-{}".format)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("node"), nodes, st.sampled_from([*"abcdefgh", None])),
        st.tuples(st.just("no node"), nodes),
        st.tuples(st.just("pod"), nodes, st.sampled_from(["web", "db"])),
        st.tuples(st.just("no pod"), st.integers(0, 20)),
        st.tuples(st.just("many nodes"), st.just(80)),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(steps)
def test_sums_follow_pods_and_nodes(history):
    table, pods = NodeTable(), []
    labels = {app: {"app": app} for app in ("web", "db")}
    for number, (step, *arguments) in enumerate(history):
        match step, arguments:
            case "node", [name, zone]:
                zones = {} if zone is None else {"zone": zone}
                table.set_node(make_node(name, labels={"host": name, **zones}))
            case "no node", [name]:
                if table.row_of.get(name) is not None and table.nodes[table.row_of[name]]:
                    table.remove_node(name)
            case "pod", [name, app]:
                pods.append(pod_on(name, f"pod-{number}", labels[app]))
                table.add_pod(pods[-1])
            case "no pod", [which] if pods:
                table.remove_pod(pods.pop(which % len(pods)))
            case "many nodes", [count]:
                for name in map("more-{}".format, range(count)):
                    table.set_node(make_node(name, labels={"host": name}))
        check(table)


def pod_on(node, name, labels):
    return make_pod(None, labels, namespace="ns", name=name, uid=name, node_name=node)


def check(table) -> None:
    selector = from_map({"app": "web"})
    counter = table.families.counter(
        "web",
        lambda _ns, labels, _terminating: selector.matches(labels),
        within=Scope(frozenset(["ns"]), selector),
    )
    for key in KEYS:
        column = table.labels.column(key)
        expected = np.bincount(column.codes, counter.counts, len(column.values)).astype(np.int64)
        expected[MISSING] = 0
        assert counter.by_domain(column).tolist() == expected.tolist()
        used = np.bincount(column.codes, minlength=len(column.values))
        used[MISSING] = 0
        assert column.present.tolist() == (used > 0).tolist()
        assert column.labelled == used.sum()


def test_what_is_returned_does_not_change_later():
    table = NodeTable()
    table.set_node(make_node("a", labels={"zone": "x"}))
    counter = table.families.counter("all", lambda *_: True)
    before = counter.by_domain(table.labels.column("zone"))
    table.add_pod(pod_on("a", "pod", {}))
    assert before.sum() == 0
    assert counter.by_domain(table.labels.column("zone")).sum() == 1
