import numpy as np
import pytest

from app.state.table import CPU_ROW, MEMORY_ROW
from tests.core.framework.worlds import World

BLOCKS = (
    ("cpu", "memory"),
    ("memory", "cpu"),
    ("cpu", "memory", "ephemeral-storage"),
    ("example.com/gpu", "cpu", "hugepages-2Mi"),
    ("memory",),
    ("nobody/mentioned", "cpu"),
)


@pytest.mark.parametrize("seed", range(6))
def test_several_resources_at_once_are_what_they_are_one_by_one(seed):
    for seen in World(seed).views():
        view = seen.view
        for names in BLOCKS:
            for block, single in (
                (view.allocatable_of, view.allocatable),
                (view.requested_of, view.requested),
            ):
                want = [single(name) for name in names]
                np.testing.assert_array_equal(block(names), np.stack(want))
        want = [view.nonzero_requested(CPU_ROW), view.nonzero_requested(MEMORY_ROW)]
        np.testing.assert_array_equal(view.nonzero_of_both(), want)


def test_a_resource_is_seen_from_its_first_mention():
    world = World(0)
    names = ("example.com/never", "cpu")
    for seen in world.views():
        before = seen.view.requested_of(names)
        np.testing.assert_array_equal(before[0], seen.view.requested(names[0]))
    for _ in range(200):
        world.add_pod(world.random_pod(), next(iter(world.nodes)))
    assert "example.com/never" in world.table.requested.names
    assert any(seen.view.requested_of(names)[0].any() for seen in world.views())
