"""The nominated pods by row: the same as looking everything up anew, whatever has happened in between."""

import random

import msgspec
import pytest

from app.model.objects import Node, ObjectMeta, PodSpec
from app.model.pod import LabelSet, PodTemplate, make_pod
from app.state.nominations import Nominations
from app.state.nominator import Nominator
from app.state.table import NodeTable

NODES = ("a", "b", "c", "d")


def pod(number, priority):
    return make_pod(PodSpec(priority=priority), namespace="ns", name=f"p{number}", uid=f"p{number}")


def looked_up(nominator, table, asking):
    found = {}
    for name in NODES:
        uids = [
            other.uid
            for other in nominator.pods_on(name)
            if other.uid != asking.uid and other.priority >= asking.priority
        ]
        if uids and name in table.row_of:
            found[table.row_of[name]] = uids
    return found


@pytest.mark.parametrize("kept", [1, 2, 1000])
@pytest.mark.parametrize("seed", range(20))
def test_follows_every_change(seed, kept, monkeypatch):
    monkeypatch.setattr("app.state.nominator.MAX_CHANGES", kept)
    dice = random.Random(seed)
    table, nominator = NodeTable(), Nominator()
    nominations = Nominations(nominator, table)
    pods = [pod(number, dice.choice((0, 5, 5, 10))) for number in range(12)]
    for _ in range(60):
        name, some = dice.choice(NODES), dice.choice(pods)
        match dice.randrange(4):
            case 0:
                if name in table.row_of:
                    table.remove_node(name)
                else:
                    table.set_node(Node(metadata=ObjectMeta(name=name)))
            case 1:
                nominator.delete(some)
            case _:
                nominator.add(some, name)
        if dice.random() < 0.3:
            continue
        asking = dice.choice(pods)
        found = nominations.concerning(asking)
        assert {row: [p.uid for p in on] for row, on in found.items()} == looked_up(
            nominator, table, asking
        )
        assert found.stamps.nonzero()[0].tolist() == sorted(found)
        for row, on in found.items():
            assert {p.node_name for p in on} == {table.names[row]}


def test_what_has_not_changed_has_the_same_stamp():
    table, nominator = NodeTable(), Nominator()
    for name in NODES:
        table.set_node(Node(metadata=ObjectMeta(name=name)))
    nominations = Nominations(nominator, table)
    nominator.add(pod(1, 5), "a")
    nominator.add(pod(2, 5), "b")
    before = nominations.concerning(pod(9, 5)).stamps.tolist()
    nominator.add(pod(3, 5), "b")
    after = nominations.concerning(pod(8, 5)).stamps.tolist()
    assert after[0] == before[0] != 0
    assert after[1] not in {0, before[1]}
    assert after[2:] == [0, 0]
    nominator.delete(pod(1, 5))
    assert nominations.concerning(pod(8, 5)).stamps.tolist() == [0, *after[1:]]


def test_for_a_nominated_pod_itself_its_own_node_has_another_stamp():
    table, nominator = NodeTable(), Nominator()
    for name in NODES:
        table.set_node(Node(metadata=ObjectMeta(name=name)))
    nominations = Nominations(nominator, table)
    own, other = pod(1, 5), pod(2, 5)
    for each in (own, other):
        nominator.add(each, "a")
    stamps = [nominations.concerning(each).stamps.tolist()[0] for each in (own, other, pod(3, 5))]
    assert len({0, *stamps}) == 4
    nominator.delete(other)
    assert nominations.concerning(own).stamps.tolist() == [0] * len(NODES)
    assert nominations.concerning(other).stamps.tolist()[0] not in {0, *stamps}


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        ({"resource_version": "2", "phase": "Pending", "nominated_node_name": "a"}, False),
        ({"template": PodTemplate(PodSpec(priority=5))}, True),
        ({"labels": LabelSet(app="x")}, True),
        ({"deletion_timestamp": "2023-01-01T00:00:00Z"}, True),
    ],
)
def test_a_status_that_says_something_else_changes_nothing(change, counts):
    table, nominator = NodeTable(), Nominator()
    table.set_node(Node(metadata=ObjectMeta(name="a")))
    nominations = Nominations(nominator, table)
    old = pod(1, 5)
    nominator.add(old, "a")
    [before] = nominations.concerning(pod(9, 5)).stamps.tolist()
    nominator.update(old, msgspec.structs.replace(old, **change))
    [after] = nominations.concerning(pod(9, 5)).stamps.tolist()
    assert (after != before) is counts


def test_names_the_nodes_that_have_changed_since():
    nominator = Nominator()
    nominator.add(pod(1, 0), "a")
    version = nominator.version
    assert list(nominator.changed_since(0)) == ["a"]
    assert list(nominator.changed_since(version)) == []
    nominator.add(pod(2, 0), "b")
    nominator.add(pod(1, 0), "c")
    assert list(nominator.changed_since(version)) == ["c", "a", "b"]
    nominator.delete(pod(2, 0))
    assert list(nominator.changed_since(version)) == ["b", "c", "a"]


def test_does_not_remember_changes_for_good(monkeypatch):
    monkeypatch.setattr("app.state.nominator.MAX_CHANGES", 2)
    nominator = Nominator()
    versions = [0]
    for number, name in enumerate("abc"):
        nominator.add(pod(number, 0), name)
        versions.append(nominator.version)
    assert nominator.changed_since(versions[0]) is None
    assert list(nominator.changed_since(versions[1])) == ["c", "b"]
    assert list(nominator.changed_since(versions[3])) == []
