"""Values by two keys, the first of which is referenced weakly."""

import gc

from app.state import weak_cache
from app.state.weak_cache import WeakCache


class Owner:
    pass


def test_values_are_found_by_owner_and_key():
    cache, one, other = WeakCache(), Owner(), Owner()
    assert cache.get(one, "a") is None
    assert cache.put(one, "a", 1) == 1
    cache.put(one, "b", 2)
    cache.put(other, "a", 3)
    cache.put(one, "a", 4)
    assert [cache.get(one, "a"), cache.get(one, "b"), cache.get(other, "a")] == [4, 2, 3]
    cache.clear()
    assert cache.get(one, "a") is None


def test_values_go_with_their_owner():
    cache, owner, value = WeakCache(), Owner(), Owner()
    cache.put(owner, "a", value)
    referrers = len(gc.get_referrers(value))
    del owner
    assert len(gc.get_referrers(value)) == referrers - 1


def test_there_is_a_limit_for_all_owners_together(monkeypatch):
    monkeypatch.setattr(weak_cache, "MAX_VALUES", 3)
    cache, owners = WeakCache(), [Owner() for _ in range(4)]
    for key, owner in enumerate(owners[:3]):
        cache.put(owner, key, "kept")
    assert [cache.get(owner, key) for key, owner in enumerate(owners[:3])] == ["kept"] * 3
    cache.put(owners[3], 3, "new")
    assert [cache.get(owner, key) for key, owner in enumerate(owners)] == [None] * 3 + ["new"]
