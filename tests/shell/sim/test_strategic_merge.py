"""Strategic merge patch by itself: directives, and laws that hold for any patch."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.sim.errors import ApiError
from app.sim.patches.json_patch import apply_merge_patch
from app.sim.patches.merge_keys import MergeRule, Struct, struct_of
from app.sim.patches.strategic_merge import apply_strategic_merge

LAW = settings(max_examples=50)

PODS = struct_of("pods")


def merge_containers(original: list[Any], patch: dict[str, Any]) -> list[Any]:
    merged = apply_strategic_merge({"spec": {"containers": original}}, {"spec": patch}, PODS)
    return merged["spec"]["containers"]


A, B, C = ({"name": name, "image": name} for name in "abc")


@pytest.mark.parametrize(
    ("original", "patch", "expected"),
    [
        pytest.param([A], {"containers": [{"name": "a", "tty": True}]}, [A | {"tty": True}], id="merge"),
        pytest.param([A], {"containers": [B]}, [B, A], id="new-goes-first"),
        pytest.param([A, B], {"containers": [{"name": "a", "$patch": "delete"}]}, [B], id="delete"),
        pytest.param([A, B], {"containers": [{"$patch": "replace"}, C]}, [C], id="replace-list"),
        pytest.param([A], {"containers": [{"name": "a", "$patch": "replace", "tty": True}]}, [], id="replace-all"),
        pytest.param([A, B], {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}, [B, A], id="reorder"),
        pytest.param(
            [A, B],
            {"$setElementOrder/containers": [{"name": "c"}, {"name": "b"}], "containers": [C]},
            [C, A, B],
            id="order-keeps-others",
        ),
        pytest.param(
            [A],
            {"containers": [{"name": "a", "ports": [{"containerPort": 1}]}]},
            [A | {"ports": [{"containerPort": 1}]}],
            id="nested-list",
        ),
        pytest.param([A | {"tty": True}], {"containers": [{"name": "a", "tty": None}]}, [A], id="null-deletes"),
    ],
)  # fmt: skip
def test_lists_of_objects(original, patch, expected) -> None:
    assert merge_containers(original, patch) == expected


def test_nested_lists_are_merged_by_their_own_keys() -> None:
    original = [A | {"env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}]
    patch = [{"name": "a", "env": [{"name": "Y", "value": "3"}, {"name": "X", "$patch": "delete"}]}]
    assert merge_containers(original, {"containers": patch})[0]["env"] == [
        {"name": "Y", "value": "3"}
    ]


def test_sets_of_plain_values() -> None:
    original = {"metadata": {"finalizers": ["a", "b"]}}
    patch = {"metadata": {"finalizers": ["b", "c"], "$deleteFromPrimitiveList/finalizers": ["a"]}}
    merged = apply_strategic_merge(original, patch, PODS)
    assert merged["metadata"]["finalizers"] == ["b", "c"]


def test_lists_without_a_rule_are_replaced() -> None:
    original = {"spec": {"tolerations": [{"key": "a"}], "containers": [A]}}
    merged = apply_strategic_merge(original, {"spec": {"tolerations": [{"key": "b"}]}}, PODS)
    assert merged["spec"] == {"tolerations": [{"key": "b"}], "containers": [A]}


def test_retain_keys_drops_the_others() -> None:
    original = {"spec": {"strategy": {"type": "Rolling", "rolling": {"max": 1}}}}
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    merged = apply_strategic_merge(original, patch, struct_of("deployments.apps"))
    assert merged["spec"]["strategy"] == {"type": "Recreate"}


def test_retain_keys_must_name_what_the_patch_sets() -> None:
    with pytest.raises(ApiError, match="retainKeys does not name b"):
        apply_strategic_merge({}, {"$retainKeys": ["a"], "b": 1}, PODS)


def test_objects_can_be_replaced_or_emptied() -> None:
    original = {"metadata": {"labels": {"a": "b"}}, "spec": {"x": 1}}
    patch = {"metadata": {"labels": {"$patch": "replace", "c": "d"}}, "spec": {"$patch": "delete"}}
    assert apply_strategic_merge(original, patch, PODS) == {
        "metadata": {"labels": {"c": "d"}},
        "spec": {},
    }


def test_a_budgets_selector_is_replaced_whole() -> None:
    original = {"spec": {"selector": {"matchLabels": {"a": "b"}}, "minAvailable": 1}}
    patch = {"spec": {"selector": {"matchLabels": {"c": "d"}}}}
    merged = apply_strategic_merge(original, patch, struct_of("poddisruptionbudgets.policy"))
    assert merged["spec"] == {"selector": {"matchLabels": {"c": "d"}}, "minAvailable": 1}


LEAF = Struct({"tags": MergeRule(merge=True)})
TREE = Struct(
    {"items": MergeRule(struct=LEAF, merge=True, merge_key="id"), "inner": MergeRule(struct=LEAF)}
)

plain = st.none() | st.integers(0, 3) | st.sampled_from(["x", "y"])
tags = st.lists(st.integers(0, 4), max_size=4, unique=True)


def elements(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[dict[str, Any]]]:
    element = st.fixed_dictionaries(
        {"id": st.integers(0, 4)}, optional={"value": values, "tags": tags}
    )
    return st.lists(element, max_size=4, unique_by=lambda item: item["id"])


def objects(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {},
        optional={
            "items": elements(values),
            "inner": st.fixed_dictionaries({}, optional={"tags": tags, "value": values}),
            "value": values,
            "list": st.lists(st.integers(0, 3), max_size=3),
        },
    )


stored_objects = objects(st.integers(0, 3))
patches = objects(plain)


@LAW
@given(stored_objects, patches)
def test_applying_twice_is_applying_once(original, patch) -> None:
    once = apply_strategic_merge(original, patch, TREE)
    assert apply_strategic_merge(once, patch, TREE) == once


@LAW
@given(stored_objects, patches)
def test_neither_the_original_nor_the_patch_is_changed(original, patch) -> None:
    before = copy.deepcopy((original, patch))
    apply_strategic_merge(original, patch, TREE)
    assert (original, patch) == before


@LAW
@given(stored_objects)
def test_an_object_patched_with_itself_is_itself(original) -> None:
    assert apply_strategic_merge(original, original, TREE) == original


@LAW
@given(stored_objects, patches)
def test_every_element_of_the_original_survives_unless_deleted(original, patch) -> None:
    merged = apply_strategic_merge(original, patch, TREE)
    kept = {item["id"] for item in merged.get("items", [])}
    assert kept >= {item["id"] for item in original.get("items", [])}


@LAW
@given(stored_objects, patches)
def test_without_rules_it_is_a_merge_patch(original, patch) -> None:
    assert apply_strategic_merge(original, patch, Struct()) == apply_merge_patch(original, patch)


@LAW
@given(elements(st.integers(0, 3)), st.permutations(range(5)))
def test_the_order_asked_for_is_the_order_given(items, order) -> None:
    patch = {"$setElementOrder/items": [{"id": number} for number in order]}
    merged = apply_strategic_merge({"items": items}, patch, TREE)["items"]
    positions = [order.index(item["id"]) for item in merged]
    assert positions == sorted(positions)
    assert len(merged) == len(items)
