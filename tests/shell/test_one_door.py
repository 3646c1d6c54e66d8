"""What changes the scheduler's state goes through SchedulerState: nobody else calls its cache, queue or nominator to
change them.
"""

import ast
from pathlib import Path

import pytest

APP = Path(__file__).parents[2] / "app"
#: Methods that only look.
READ_ONLY = {
    "cache": {"assumed_pods", "dump", "get", "is_assumed", "statistics"},
    "queue": {
        "all_in_lanes",
        "all_pods",
        "dump",
        "earliest",
        "get",
        "pending_pods",
        "statistics",
        "where",
    },
    "nominator": {"all_nominations", "node_of", "pods_on"},
}
OUTSIDE = sorted(path for path in APP.rglob("*.py") if "state" not in path.relative_to(APP).parts)


def calls_past_the_door(source: str) -> list[str]:
    """Calls ``….state.cache.method()`` and the like of methods that are not known to only look."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(
                value=ast.Attribute(
                    value=ast.Attribute(attr=owner) | ast.Name(id=owner), attr=part
                ),
                attr=method,
            ) if owner.strip("_") == "state" and method not in READ_ONLY.get(part, {method}):
                found.append(f"line {node.lineno}: {owner}.{part}.{method}")
    return found


def test_the_state_is_changed_through_its_door_only():
    found = {str(path): calls_past_the_door(path.read_text()) for path in OUTSIDE}
    assert {path: calls for path, calls in found.items() if calls} == {}


@pytest.mark.parametrize(
    "source", ["self._state.queue.activate(pods, now)", "state.cache.forget(pod)"]
)
def test_a_change_past_the_door_is_found(source):
    assert calls_past_the_door(source) != []
