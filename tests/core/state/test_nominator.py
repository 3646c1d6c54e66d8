"""The nominator: which pods are promised to which node."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from app.state.nominator import Nominator
from tests.core.state.queue_kit import NOW, fail_next, make_pod, make_queue


def names(nominator, node):
    return [pod.name for pod in nominator.pods_on(node)]


@pytest.mark.parametrize(
    ("status", "info", "node"),
    [
        pytest.param("", None, None, id="nothing"),
        pytest.param("a", None, "a", id="the status"),
        pytest.param("a", "b", "b", id="override beats the status"),
        pytest.param("", "b", "b", id="override without a status"),
        pytest.param("a", "", "", id="cleared"),
    ],
)
@pytest.mark.parametrize("before", [None, "old"])
def test_a_nomination_replaces_the_one_before(status, info, node, before):
    nominator = Nominator()
    if before:
        nominator.add(make_pod(), before)
    nominator.add(make_pod(nominated_node_name=status), info)
    assert nominator.node_of("pod") == node
    assert list(nominator.nominated_nodes()) == ([node] if node else [])
    assert nominator.pods_on("old") == []


def test_pods_are_listed_in_the_order_of_their_nomination():
    nominator = Nominator()
    for name in ("c", "a", "b"):
        nominator.add(make_pod(name), "node")
    nominator.add(make_pod("c"), "node")
    nominator.add(make_pod("d"), "other")
    assert names(nominator, "node") == ["a", "b", "c"]
    assert list(nominator.nominated_nodes()) == ["node", "other"]
    assert nominator.pods_on("unknown") == []


def test_the_list_of_pods_is_the_callers_own():
    nominator = Nominator()
    nominator.add(make_pod(), "node")
    nominator.pods_on("node").clear()
    assert names(nominator, "node") == ["pod"]


@pytest.mark.parametrize("info", [None, "b", ""])
def test_a_pod_that_is_gone_or_bound_loses_its_nomination(info):
    present = {make_pod().key: make_pod()}
    nominator = Nominator(present)
    nominator.add(make_pod(nominated_node_name="a"))
    present.clear()
    nominator.add(make_pod(nominated_node_name="a"), info)
    assert nominator.node_of("pod") is None
    assert not nominator.nominated_nodes()


@pytest.mark.parametrize(
    ("known", "old", "new", "node"),
    [
        pytest.param(None, "", "", None, id="never nominated"),
        pytest.param("mem", "", "", "mem", id="kept in memory"),
        pytest.param("", "", "", "", id="kept cleared"),
        pytest.param("mem", "", "b", "b", id="added"),
        pytest.param("a", "a", "b", "b", id="changed"),
        pytest.param("a", "a", "", None, id="removed"),
        pytest.param(None, "a", "a", "a", id="not known yet"),
        pytest.param("mem", "a", "a", "mem", id="the status is behind"),
        pytest.param("", "a", "a", "", id="the status is behind a cleared one"),
    ],
)
def test_updates_follow_the_status_where_it_changes(known, old, new, node):
    nominator = Nominator()
    if known is not None:
        nominator.add(make_pod(), known)
    updated = make_pod(nominated_node_name=new)
    nominator.update(make_pod(nominated_node_name=old), updated)
    assert nominator.node_of("pod") == node
    if node:
        assert nominator.pods_on(node) == [updated]


def test_an_update_to_another_uid_moves_a_nomination_along():
    nominator = Nominator()
    nominator.add(make_pod("web", uid="one"), "node")
    nominator.update(make_pod("web", uid="one"), make_pod("web", uid="two"))
    assert (nominator.node_of("one"), nominator.node_of("two")) == (None, "node")


def test_deleting_a_pod_that_is_not_nominated_does_nothing():
    nominator = Nominator()
    nominator.add(make_pod("other"), "node")
    nominator.delete(make_pod())
    assert names(nominator, "node") == ["other"]


# ---------------------------------------------------------------- together with the queue


def test_the_queue_takes_nominations_from_the_status_of_new_pods():
    queue = make_queue()
    queue.add(make_pod("added", nominated_node_name="node"), NOW)
    queue.update(make_pod("updated"), make_pod("updated", nominated_node_name="node"), NOW)
    assert names(queue.nominator, "node") == ["added", "updated"]


@pytest.mark.parametrize("by", [None, [], ["Fit"]])
def test_the_queue_follows_updates_wherever_the_pod_waits(by):
    queue = make_queue()
    old, new = make_pod(), make_pod(nominated_node_name="node")
    queue.add(old, NOW)
    if by is not None:
        fail_next(queue, by=by)
    queue.update(old, new, NOW)
    assert queue.nominator.pods_on("node") == [new]
    queue.update(new, make_pod(), NOW)
    assert queue.nominator.node_of("pod") is None


def test_popping_a_pod_keeps_its_nomination_and_deleting_it_does_not():
    queue = make_queue()
    pod = make_pod(nominated_node_name="node")
    queue.add(pod, NOW)
    queue.pop(NOW)
    assert names(queue.nominator, "node") == ["pod"]
    queue.delete(pod)
    assert not queue.nominator.nominated_nodes()


def test_a_namesake_takes_no_nomination_over():
    queue = make_queue()
    queue.add(make_pod("web", uid="one", nominated_node_name="node"), NOW)
    queue.add(make_pod("web", uid="two"), NOW)
    assert not queue.nominator.nominated_nodes()


# ---------------------------------------------------------------- any sequence

UIDS = st.sampled_from(["u1", "u2", "u3", "u4"])
NODES = st.sampled_from(["", "n1", "n2", "n3"])


class NominatorMachine(RuleBasedStateMachine):
    """Compares the nominator with a plain list of (uid, node)."""

    def __init__(self) -> None:
        super().__init__()
        self.gone: set[str] = set()
        self.pods = {make_pod(uid).key: make_pod(uid) for uid in ("u1", "u2", "u3", "u4")}
        self.nominator = Nominator(self.pods)
        self.model: list[tuple[str, str]] = []

    def known(self, uid):
        return dict(self.model).get(uid)

    def forget(self, uid):
        self.model = [entry for entry in self.model if entry[0] != uid]

    def expect(self, uid, node):
        self.forget(uid)
        if node is not None and uid not in self.gone:
            self.model.append((uid, node))

    @rule(uid=UIDS, status=NODES, override=st.none() | NODES)
    def add(self, uid, status, override):
        self.nominator.add(make_pod(uid, nominated_node_name=status), override)
        self.expect(uid, (status or None) if override is None else override)

    @rule(uid=UIDS, old=NODES, new=NODES)
    def update(self, uid, old, new):
        self.nominator.update(
            make_pod(uid, nominated_node_name=old), make_pod(uid, nominated_node_name=new)
        )
        known = self.known(uid) if old == new else None
        self.expect(uid, new or None if known is None else known)

    @rule(uid=UIDS)
    def delete(self, uid):
        self.nominator.delete(make_pod(uid))
        self.forget(uid)

    @rule(uid=UIDS)
    def vanish_or_come_back(self, uid):
        self.gone ^= {uid}
        pod = make_pod(uid)
        if self.pods.pop(pod.key, None) is None:
            self.pods[pod.key] = pod

    @invariant()
    def the_same_pods_are_on_the_same_nodes_in_the_same_order(self):
        for node in ("n1", "n2", "n3"):
            assert names(self.nominator, node) == [uid for uid, on in self.model if on == node]
        assert set(self.nominator.nominated_nodes()) == {on for _, on in self.model if on}
        for uid in ("u1", "u2", "u3", "u4"):
            assert self.nominator.node_of(uid) == self.known(uid)


TestNominatorMachine = NominatorMachine.TestCase
TestNominatorMachine.settings = settings(max_examples=60, stateful_step_count=50)
