"""What events and lists change in the store. No event loop."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.kube.informer import Store
from app.kube.watch_decoder import ListPart
from app.model.objects import Named, ObjectMeta


def thing(name, version, uid="1"):
    return Named(metadata=ObjectMeta(name=name, uid=uid, resource_version=str(version)))


def described(changes):
    return [
        (old and (old.name, old.resource_version), new and (new.name, new.resource_version))
        for old, new in changes
    ]


def replace(store, part):
    """What the only part of a list changes."""
    yield from store.compare(part.items)
    yield from ((None, item) for item in store.add(part.items).values())
    yield from store.retain(part.keys)


def whole(items, unreadable=()):
    by_key = {item.key: item for item in items}
    return ListPart(by_key, frozenset({*by_key, *unreadable}))


def store_of(*items):
    store = Store()
    list(replace(store, whole(list(items))))
    return store


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        pytest.param(("ADDED", thing("b", 1)), [(None, ("b", "1"))], id="new"),
        pytest.param(("MODIFIED", thing("a", 2)), [(("a", "1"), ("a", "2"))], id="changed"),
        pytest.param(("ADDED", thing("a", 2)), [(("a", "1"), ("a", "2"))], id="added again"),
        pytest.param(("MODIFIED", thing("b", 4)), [(None, ("b", "4"))], id="missed add"),
        pytest.param(("ADDED", thing("a", 1)), [], id="known"),
        pytest.param(("DELETED", thing("a", 3)), [(("a", "1"), None)], id="gone"),
        pytest.param(("DELETED", thing("b", 3)), [], id="never known"),
        pytest.param(("DELETED", thing("a", 3, uid="0")), [], id="its predecessor gone"),
        pytest.param(("BOOKMARK", thing("", 9)), [], id="bookmark"),
        pytest.param(
            ("ADDED", thing("a", 7, uid="2")),
            [(("a", "1"), None), (None, ("a", "7"))],
            id="recreated",
        ),
    ],
)
def test_an_event(event, expected):
    assert described(store_of(thing("a", 1)).apply(event)) == expected


def test_a_list_is_compared_with_what_is_known():
    store = store_of(thing("same", 1), thing("changed", 1), thing("gone", 1), thing("new uid", 1))
    items = [thing("same", 1), thing("changed", 2), thing("new", 3), thing("new uid", 4, uid="2")]
    changes = replace(store, whole(items))
    assert described(changes) == [
        (("changed", "1"), ("changed", "2")),
        (("new uid", "1"), None),
        (None, ("new uid", "4")),
        (None, ("new", "3")),
        (("gone", "1"), None),
    ]
    assert set(store.objects) == {"same", "changed", "new", "new uid"}


def test_an_object_that_exists_but_cannot_be_read_stays_as_it_was():
    store = store_of(thing("a", 1))
    assert described(replace(store, whole([], {"a"}))) == []
    assert set(store.objects) == {"a"}


def test_the_handler_sees_the_store_as_the_change_left_it():
    store = store_of(thing("a", 1), thing("b", 1))
    for old, new in replace(store, whole([thing("b", 2), thing("c", 1)])):
        if new is None:
            assert old.key not in store.objects
        else:
            assert store.objects[new.key] is new


def test_the_view_cannot_be_written_to():
    with pytest.raises(TypeError):
        store_of().objects["x"] = thing("x", 1)


THINGS = st.builds(thing, st.sampled_from("abcd"), st.integers(1, 3), st.sampled_from("12"))
EVENTS = st.tuples(st.sampled_from(["ADDED", "MODIFIED", "DELETED"]), THINGS)
LISTS = st.lists(THINGS, unique_by=lambda t: t.name).map(whole)


@given(st.lists(EVENTS | LISTS, max_size=15))
def test_replaying_the_changes_gives_the_store(steps):
    store, replayed = Store(), {}
    for step in steps:
        changes = replace(store, step) if isinstance(step, ListPart) else store.apply(step)
        for old, new in changes:
            if old is not None:
                assert replayed.pop(old.key) is old
            if new is not None:
                assert new.key not in replayed
                replayed[new.key] = new
        if isinstance(step, ListPart):
            assert {(t.name, t.uid, t.resource_version) for t in step.items.values()} == {
                (t.name, t.uid, t.resource_version) for t in store.objects.values()
            }
    assert replayed == dict(store.objects)
