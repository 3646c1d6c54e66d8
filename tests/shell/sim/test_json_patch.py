"""JSON patch operations by themselves."""

import pytest

from app.sim.errors import ApiError
from app.sim.patches.json_patch import apply_json_patch, apply_merge_patch


@pytest.mark.parametrize(
    ("document", "operations", "expected"),
    [
        pytest.param({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}, id="insert"),
        pytest.param({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}, id="append"),
        pytest.param({"a": 1}, [{"op": "replace", "path": "/a", "value": 2}], {"a": 2}, id="replace"),
        pytest.param({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 1}}], {"b": 1}, id="root"),
        pytest.param({"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}, id="remove"),
        pytest.param({"a": 1}, [{"op": "move", "from": "/a", "path": "/b"}], {"b": 1}, id="move"),
        pytest.param({"a/b": 1, "c~d": 2}, [{"op": "remove", "path": "/a~1b"}, {"op": "remove", "path": "/c~0d"}], {}, id="escapes"),
    ],
)  # fmt: skip
def test_operations(document, operations, expected) -> None:
    assert apply_json_patch(document, operations) == expected


def test_a_copy_shares_nothing() -> None:
    document = {"a": {"list": [1]}}
    operations = [
        {"op": "copy", "from": "/a", "path": "/b"},
        {"op": "add", "path": "/b/list/-", "value": 2},
    ]
    assert apply_json_patch(document, operations) == {"a": {"list": [1]}, "b": {"list": [1, 2]}}


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param({"op": "add", "path": "/a/5", "value": 1}, id="beyond-the-end"),
        pytest.param({"op": "add", "path": "/a/-1", "value": 1}, id="negative"),
        pytest.param({"op": "replace", "path": "/b", "value": 1}, id="replace-nothing"),
        pytest.param({"op": "add", "path": "b", "value": 1}, id="no-slash"),
        pytest.param({"op": "add", "path": "/a"}, id="no-value"),
        pytest.param({"op": [], "path": "/a"}, id="odd-operation"),
    ],
)
def test_operations_that_do_not_fit(operation) -> None:
    with pytest.raises(ApiError) as caught:
        apply_json_patch({"a": [1]}, [operation])
    assert caught.value.code == 422


def test_merge_patch_as_in_the_rfc() -> None:
    target = {"title": "x", "author": {"given": "J", "family": "D"}, "tags": ["a"]}
    patch = {"title": "y", "author": {"family": None}, "tags": ["b"], "new": {"z": None}}
    assert apply_merge_patch(target, patch) == {
        "title": "y",
        "author": {"given": "J"},
        "tags": ["b"],
        "new": {},
    }
