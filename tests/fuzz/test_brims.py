"""The objects whose cost the long run measures: that they are full, and as their kind wants them."""

import pytest

from tests.fuzz import brims
from tests.fuzz.kinds import KINDS


def entries_at(value, path):
    for step in path:
        match step:
            case "[]":
                (value,) = value
            case "{}":
                (value,) = value.values()
            case _:
                value = value[step]
    return value


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_list_and_map_can_be_filled(kind):
    paths = list(brims.containers(kind))
    assert ("metadata", "labels") in paths
    for path in paths:
        found = entries_at(brims.full(kind, path, 3), path)
        assert len(found) == 3, path
        if isinstance(found, list) and isinstance(found[0], dict):
            name = next((name for name in brims._NAMES if name in found[0]), None)
            assert name is None or len({entry[name] for entry in found}) == 3, path


def test_a_full_pod_is_scheduled_and_timed():
    (pod,) = (kind for kind in KINDS if kind.name == "Pod")
    path = ("spec", "containers", "[]", "ports")
    cost = brims.measure(pod, path, 100)
    assert cost.what.startswith("Pod.spec.containers.[].ports, ")
    assert cost.seconds > 0
