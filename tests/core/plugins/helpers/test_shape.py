import pytest

from app.plugins.helpers.shape import broken_linear, score_table
from tests.core.plugins.twins.node_resources import broken_linear as twin

SHAPES = [
    [(0, 0), (100, 100)],
    [(0, 100), (100, 0)],
    [(10, 30), (33, 100), (70, 10), (71, 40)],
    [(50, 70)],
    [(0, 0), (3, 10), (100, 10)],
]


@pytest.mark.parametrize("points", SHAPES)
def test_agrees_with_its_twin(points):
    assert [broken_linear(points, x) for x in range(-5, 120)] == [
        twin(points, x) for x in range(-5, 120)
    ]


def test_slopes_are_truncated_toward_zero():
    assert broken_linear([(0, 10), (3, 0)], 1) == 7
    assert broken_linear([(0, 0), (3, 10)], 1) == 3


def test_table_scales_configured_scores():
    table = score_table([(0, 0), (50, 10)])
    assert len(table) == 101
    assert table[[0, 25, 50, 100]].tolist() == [0, 50, 100, 100]
