"""The store: revisions, history, and the past as it was."""

from hypothesis import given, settings
from hypothesis import strategies as st

from app.sim.store import Collection, ObjectStore

LAW = settings(max_examples=50)

NAMES = st.sampled_from("abcd")
WRITES = st.lists(st.tuples(st.sampled_from(["put", "remove"]), NAMES), max_size=30)


def write(store: ObjectStore, verb: str, name: str) -> None:
    key = ("ns", name)
    if verb == "put":
        metadata = {"name": name, "namespace": "ns"}
        store.put("things", key, {"metadata": metadata, "data": store.revision})
    elif key in store["things"].records:
        store.remove("things", key)


def content(collection: Collection) -> list[tuple[str, int]]:
    return [(record.name, record.value["data"]) for record in collection.ordered()]


@LAW
@given(WRITES)
def test_every_past_revision_can_be_read(writes) -> None:
    store = ObjectStore(["things"])
    seen = {store.revision: content(store["things"])}
    for verb, name in writes:
        write(store, verb, name)
        seen[store.revision] = content(store["things"])
    for revision, expected in seen.items():
        assert content(store["things"].at(revision)) == expected


@LAW
@given(WRITES)
def test_the_history_replays_to_the_present(writes) -> None:
    store = ObjectStore(["things"])
    replayed = {}
    for verb, name in writes:
        write(store, verb, name)
    for change in store["things"].changes_since(0):
        if change.type == "DELETED":
            del replayed[change.key]
        else:
            assert (change.key in replayed) is (change.type == "MODIFIED")
            replayed[change.key] = change.record
    assert replayed == store["things"].records


@LAW
@given(WRITES, st.integers(1, 5))
def test_the_history_is_bounded(writes, limit) -> None:
    store = ObjectStore(["things"], history_limit=limit)
    for verb, name in writes:
        write(store, verb, name)
    collection = store["things"]
    assert len(collection.history) <= limit
    revisions = [change.revision for change in collection.history]
    assert all(revision > collection.compacted for revision in revisions)


def test_order_is_by_namespace_then_name() -> None:
    store = ObjectStore(["things"])
    for namespace, name in [("b", "a"), ("a", "z"), ("a", "b"), ("a-b", "c")]:
        store.put("things", (namespace, name), {"metadata": {"name": name, "namespace": namespace}})
    collection = store["things"]
    assert [(record.namespace, record.name) for record in collection.ordered()] == [
        ("a", "b"),
        ("a", "z"),
        ("a-b", "c"),
        ("b", "a"),
    ]
    assert [record.name for record in collection.ordered(namespace="a")] == ["b", "z"]
    after = collection.ordered(namespace="a", after=("a", "b"))
    assert [record.name for record in after] == ["z"]


def test_a_removal_carries_its_own_revision() -> None:
    store = ObjectStore(["things"])
    put = store.put("things", ("", "a"), {"metadata": {"name": "a"}})
    removed = store.remove("things", ("", "a"))
    assert removed.revision == put.revision + 1
    assert removed.value["metadata"]["resourceVersion"] == str(removed.revision)
    assert put.value["metadata"]["resourceVersion"] == str(put.revision)


def test_compaction_forgets_everything() -> None:
    store = ObjectStore(["things", "others"])
    store.put("things", ("", "a"), {"metadata": {"name": "a"}})
    store.compact()
    assert store["things"].compacted == store["others"].compacted == store.revision
    assert store["things"].changes_since(0) == []


def test_a_listener_that_fails_is_logged_and_the_others_are_told(caplog) -> None:
    store, told = ObjectStore(["things"]), []

    def fails(_change) -> None:
        raise KeyError("app")

    for listener in (fails, told.append):
        store["things"].listeners[listener] = None
    write(store, "put", "a")
    write(store, "remove", "a")
    assert [change.type for change in told] == ["ADDED", "DELETED"]
    assert [r.getMessage() for r in caplog.records] == [
        "A listener failed: ADDED ns/a",
        "A listener failed: DELETED ns/a",
    ]
    assert all(r.exc_info for r in caplog.records)
