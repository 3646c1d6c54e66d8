"""The indexes behind the volume plugins, and the cost of pods that do not concern them."""

import pytest

from app.model.objects import GCEPersistentDisk, Volume
from app.model.status import SchedulingError
from app.state.assume_cache import AssumeCache
from app.state.cluster import Cluster
from app.state.columns.volumes import Disk, count_use, disks_of
from app.state.lister import Lister
from tests.core.plugins.volume_world import (
    Bench,
    make_claim,
    make_node,
    make_pod_with,
)


def disk(name, *, read_only=False):
    return Volume(name="v", gce_persistent_disk=GCEPersistentDisk(name, read_only))


# ---------------------------------------------------------------- listers


def test_followers_hear_of_every_change_after_it_was_made():
    lister, heard = Lister(), []
    lister.follow(lambda old, new: heard.append((old, new, lister.get("c", "ns"))))
    first, second = make_claim("c"), make_claim("c", version="2")
    lister.store(first)
    lister.store(second)
    lister.remove(second)
    lister.remove(second)
    assert heard == [(None, first, first), (first, second, second), (second, None, None)]


# ---------------------------------------------------------------- claims and disks in use


def test_claims_and_disks_by_row():
    one = make_pod_with("c", "c", disk("d"), uid="u1", node_name="a")
    two = make_pod_with("c", disk("d", read_only=True), uid="u2", node_name="b")
    bench = Bench(make_node("a"), make_node("b"), one, two)
    volumes = bench.table.volumes
    (writer,) = disks_of([disk("d")])
    (reader,) = disks_of([disk("d", read_only=True)])
    assert set(volumes.claim_rows(("ns", "c"))) == {0, 1}
    assert (volumes.disk_rows(writer), volumes.disk_rows(reader)) == ({0, 1}, {0})
    bench.table.remove_pod(one)
    assert set(volumes.claim_rows(("ns", "c"))) == {1}
    assert (volumes.disk_rows(writer), volumes.disk_rows(reader)) == ({1}, set())
    bench.table.remove_pod(two)
    assert not volumes.claim_rows(("ns", "c"))
    assert not volumes._claims
    assert not volumes._disk_uses
    assert not volumes._disk_writers


@pytest.mark.parametrize(("row", "step"), [(1, -1), (0, -3)])
def test_only_uses_that_were_counted_can_be_removed(row, step):
    uses = {}
    count_use(uses, "a", 0, 2)
    with pytest.raises(KeyError):
        count_use(uses, "a", row, step)
    with pytest.raises(KeyError):
        count_use(uses, "b", 0, -1)
    assert uses == {"a": {0: 2}}
    count_use(uses, "a", 0, -2)
    assert not uses


def test_disks_clash_by_any_shared_key_unless_both_only_read():
    a, b = Disk(frozenset({("x", "1"), ("x", "2")})), Disk(frozenset({("x", "2")}), read_only=True)
    assert a.clashes(b)
    assert b.clashes(a)
    assert not b.clashes(b)
    assert not a.clashes(Disk(frozenset({("y", "2")})))


# ---------------------------------------------------------------- assume cache


def cache_of(*claims):
    cluster = Cluster()
    for claim in claims:
        cluster.claims.store(claim)
    return cluster, AssumeCache(cluster.claims, "persistentvolumeclaims")


def test_an_assumed_object_stands_in_until_a_later_version_comes():
    stored = make_claim("c", version="1")
    cluster, cache = cache_of(stored)
    assumed = make_claim("c", version="1", annotations={"x": "y"})
    cache.assume(assumed)
    assert cache.get("c", "ns") is assumed
    assert cache.stored(assumed) is cache.current("c", "ns") is stored
    cluster.claims.store(make_claim("c", version="1"))
    assert cache.get("c", "ns") is assumed
    later = make_claim("c", version="2")
    cluster.claims.store(later)
    assert cache.get("c", "ns") is later
    cache.restore(assumed)
    assert cache.get("c", "ns") is later


def test_an_object_that_is_deleted_is_not_assumed_any_more():
    stored = make_claim("c")
    cluster, cache = cache_of(stored)
    cache.assume(make_claim("c", annotations={"x": "y"}))
    cluster.claims.remove(stored)
    assert cache.get("c", "ns") is None
    again = make_claim("c")
    cluster.claims.store(again)
    assert cache.get("c", "ns") is again


def test_restoring_takes_back_ones_own_assumption_only():
    _, cache = cache_of(make_claim("c"))
    first, second = make_claim("c"), make_claim("c")
    cache.assume(first)
    cache.assume(second)
    cache.restore(first)
    assert cache.get("c", "ns") is second
    cache.restore(second)
    assert cache.get("c", "ns") is cache.current("c", "ns")
    cache.restore(second)


def test_what_cannot_be_assumed():
    _, cache = cache_of(make_claim("c", version="2"))
    with pytest.raises(SchedulingError) as caught:
        cache.assume(make_claim("c", version="1"))
    assert str(caught.value) == '"ns/c" is out of sync (stored: 2, assume: 1)'
    with pytest.raises(SchedulingError) as caught:
        cache.assume(make_claim("d"))
    assert str(caught.value) == 'persistentvolumeclaims "ns/d" not found'


def test_followers_hear_what_the_cache_answers_anew():
    stored, heard = make_claim("c", version="1"), []
    cluster, cache = cache_of(stored)
    cache.follow(lambda old, new: heard.append((old, new)))
    assumed, later = make_claim("c", version="1"), make_claim("c", version="2")
    cache.assume(assumed)
    assert list(cache) == [assumed]
    cache.restore(assumed)
    cache.assume(assumed)
    cluster.claims.store(make_claim("c", version="1"))
    cluster.claims.store(later)
    cluster.claims.remove(later)
    pairs = [
        (stored, assumed),
        (assumed, stored),
        (stored, assumed),
        (assumed, later),
        (later, None),
    ]
    assert [(id(a), id(b)) for a, b in heard] == [(id(a), id(b)) for a, b in pairs]
