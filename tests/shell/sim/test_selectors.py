"""Label and field selectors: parsing, meaning, mistakes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.sim.errors import ApiError
from app.sim.resources.kinds import BY_RESOURCE, NODES, PODS
from app.sim.selectors import compile_selector, parse_labels, selects_labels

LAW = settings(max_examples=50)


def matches(selector: str, labels: dict[str, str]) -> bool:
    value = {"metadata": {"labels": labels}}
    return compile_selector(PODS, selector, "").matches(value)


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        ("a=b", {"a": "b"}, True),
        ("a==b", {"a": "c"}, False),
        ("a=", {"a": ""}, True),
        ("a!=b", {}, True),
        ("a!=b", {"a": "b"}, False),
        ("a in (b, c)", {"a": "c"}, True),
        ("a in (b)", {}, False),
        ("a notin (b,c)", {"a": "d"}, True),
        ("a notin (b)", {}, True),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        ("! a", {}, True),
        ("a>1", {"a": "2"}, True),
        ("a<1", {"a": "2"}, False),
        ("a>1", {"a": "x"}, False),
        ("a=b,c in (d),!e", {"a": "b", "c": "d"}, True),
        ("a=b,c in (d),!e", {"a": "b", "c": "d", "e": ""}, False),
        ("x.io/a in (b),c", {"x.io/a": "b", "c": ""}, True),
        ("", {}, True),
    ],
)
def test_label_selectors(selector, labels, expected) -> None:
    assert matches(selector, labels) is expected


@pytest.mark.parametrize("selector", ["a in (", "=b", "a in b", "a=b c", "a>x", ",", "a,,b"])
def test_label_selectors_that_cannot_be_read(selector) -> None:
    with pytest.raises(ApiError) as caught:
        parse_labels(selector)
    assert caught.value.code == 400


labels = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"))
values = st.lists(st.sampled_from("xyz"), min_size=1, max_size=3)


@LAW
@given(st.sampled_from("abc"), values, labels)
def test_in_and_notin_are_opposites(key, values, labels) -> None:
    listed = ",".join(values)
    assert matches(f"{key} in ({listed})", labels) is not matches(f"{key} notin ({listed})", labels)


@LAW
@given(labels, labels)
def test_equalities_select_supersets(wanted, labels) -> None:
    selector = ",".join(f"{key}={value}" for key, value in wanted.items())
    assert matches(selector, labels) is (wanted.items() <= labels.items())


@LAW
@given(labels, labels, st.sampled_from("abc"), st.sampled_from(["Exists", "DoesNotExist"]))
def test_selector_objects(match_labels, labels, key, operator) -> None:
    selector = {
        "matchLabels": match_labels,
        "matchExpressions": [{"key": key, "operator": operator}],
    }
    expected = match_labels.items() <= labels.items() and (key in labels) is (operator == "Exists")
    assert selects_labels(selector)(labels) is expected


def test_no_selector_object_selects_nothing_and_an_empty_one_all() -> None:
    assert not selects_labels(None)({})
    assert selects_labels({})({})


POD = {
    "metadata": {"name": "p", "namespace": "ns"},
    "spec": {"nodeName": "n,1", "hostNetwork": True},
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("metadata.name=p", True),
        ("metadata.namespace!=ns", False),
        ("status.phase!=Succeeded,status.phase!=Failed", True),
        ("spec.nodeName=n\\,1", True),
        ("spec.schedulerName=", True),
        ("spec.hostNetwork==true", True),
    ],
)
def test_field_selectors(selector, expected) -> None:
    assert compile_selector(PODS, "", selector).matches(POD) is expected


def test_missing_booleans_are_false() -> None:
    selector = compile_selector(NODES, "", "spec.unschedulable=false")
    assert selector.matches({"metadata": {}, "spec": {}})


def test_event_fields_have_a_name_in_each_version() -> None:
    event = {"metadata": {}, "involvedObject": {"name": "p"}, "reportingComponent": "c"}
    core = compile_selector(BY_RESOURCE["events"], "", "involvedObject.name=p,reportingComponent=c")
    new = compile_selector(
        BY_RESOURCE["events.events.k8s.io"], "", "regarding.name=p,reportingController=c"
    )
    assert core.matches(event)
    assert new.matches(event)


@pytest.mark.parametrize(
    ("selector", "text"),
    [("spec.foo=x", "field label not supported: spec.foo"), ("name", "can't understand 'name'")],
)
def test_field_selectors_that_are_refused(selector, text) -> None:
    with pytest.raises(ApiError, match=text):
        compile_selector(PODS, "", selector)
