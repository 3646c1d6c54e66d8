"""The store: revisions, history, and the past as it was."""

from hypothesis import given, settings
from hypothesis import strategies as st

from app.sim.resources.kinds import PODS
from app.sim.selectors import compile_selector
from app.sim.store import Collection, ObjectStore, Record

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


def test_an_object_behind_the_history_is_kept_as_bytes() -> None:
    store = ObjectStore(["things"], history_limit=2)
    for name in "abcd":
        write(store, "put", name)
    records = store["things"].records
    assert [records["ns", name].decoded for name in "abcd"] == [False, False, True, True]
    assert content(store["things"]) == [(name, data) for data, name in enumerate("abcd", 1)]


@LAW
@given(
    labels=st.dictionaries(st.sampled_from(["app", "tier"]), NAMES),
    phase=st.sampled_from(["Running", "Failed", None]),
    label_selector=st.sampled_from(["", "app=a", "app!=a", "!tier", "app in (a,b),tier"]),
    field_selector=st.sampled_from(
        ["", "status.phase!=Failed", "status.phase=Running,metadata.name!=x", "spec.nodeName="]
    ),
)
def test_selectors_select_the_same_by_the_bytes(
    labels, phase, label_selector, field_selector
) -> None:
    value = {"metadata": {"name": "x", "namespace": "ns", **({"labels": labels} if labels else {})}}
    if phase:
        value["status"] = {"phase": phase}
    record = Record(value, 1)
    selector = compile_selector(PODS, label_selector, field_selector)
    before = selector.selects(record)
    record.keep_bytes()
    assert selector.selects(record) is before
    assert record.value == value


@LAW
@given(WRITES, st.sampled_from([None, "ns", "other"]), st.none() | NAMES)
def test_what_is_counted_is_what_is_iterated_over(writes, namespace, after) -> None:
    store = ObjectStore(["things"])
    for verb, name in writes:
        write(store, verb, name)
    selection = {"namespace": namespace, "after": after and ("ns", after)}
    collection = store["things"]
    assert collection.count(**selection) == len(list(collection.ordered(**selection)))
