"""The nominated pods by row: the same as looking everything up anew, whatever has happened in between."""

import random

import pytest

from app.model.objects import Node, ObjectMeta, PodSpec
from app.model.pod import make_pod
from app.state.nominations import Nominations
from app.state.nominator import Nominator, nominate
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
    table, nominator = NodeTable(), Nominator(lambda _: True)
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
                nominator.add(some, nominate(name))
        if dice.random() < 0.3:
            continue
        asking = dice.choice(pods)
        found = nominations.concerning(asking)
        assert {row: [p.uid for p in on] for row, on in found.items()} == looked_up(
            nominator, table, asking
        )
        for row, on in found.items():
            assert {p.node_name for p in on} == {table.names[row]}


def test_what_has_not_changed_is_the_same_object():
    table, nominator = NodeTable(), Nominator(lambda _: True)
    for name in NODES:
        table.set_node(Node(metadata=ObjectMeta(name=name)))
    nominations = Nominations(nominator, table)
    nominator.add(pod(1, 5), nominate("a"))
    nominator.add(pod(2, 5), nominate("b"))
    before = dict(nominations.concerning(pod(9, 5)))
    nominator.add(pod(3, 5), nominate("b"))
    after = nominations.concerning(pod(8, 5))
    assert after[0] is before[0]
    assert after[1] is not before[1]


def test_names_the_nodes_that_have_changed_since():
    nominator = Nominator(lambda _: True)
    nominator.add(pod(1, 0), nominate("a"))
    version = nominator.version
    assert list(nominator.changed_since(0)) == ["a"]
    assert list(nominator.changed_since(version)) == []
    nominator.add(pod(2, 0), nominate("b"))
    nominator.add(pod(1, 0), nominate("c"))
    assert list(nominator.changed_since(version)) == ["c", "a", "b"]
    nominator.delete(pod(2, 0))
    assert list(nominator.changed_since(version)) == ["b", "c", "a"]


def test_does_not_remember_changes_for_good(monkeypatch):
    monkeypatch.setattr("app.state.nominator.MAX_CHANGES", 2)
    nominator = Nominator(lambda _: True)
    versions = [0]
    for number, name in enumerate("abc"):
        nominator.add(pod(number, 0), nominate(name))
        versions.append(nominator.version)
    assert nominator.changed_since(versions[0]) is None
    assert list(nominator.changed_since(versions[1])) == ["c", "b"]
    assert list(nominator.changed_since(versions[3])) == []
