import pytest
from aiokube_scheduler.framework.testing import FakeCluster, make_node, make_pod
from example_plugins.cheap_nodes import CheapNodes


def priced(**prices: str) -> FakeCluster:
    """A node per price, named after the argument."""
    return FakeCluster(
        *(make_node(name, labels={"example.com/price": price}) for name, price in prices.items())
    )


@pytest.mark.parametrize(
    ("prices", "scores"),
    [
        ({"a": "0.40", "b": "0.10"}, {"a": 0, "b": 75}),
        ({"a": "4", "b": "0"}, {"a": 0, "b": 100}),
        ({"a": "0", "b": "0"}, {"a": 100, "b": 100}),
        ({"a": "1e9", "b": "free"}, {"a": 0, "b": 100}),
        ({"a": "2", "b": "nan"}, {"a": 0, "b": 50}),
    ],
)
def test_cheap_nodes_score_higher(prices: dict[str, str], scores: dict[str, int]) -> None:
    cluster = priced(**prices)
    assert cluster.score(CheapNodes(None, cluster.handle), make_pod()) == scores


def test_nodes_without_a_price():
    cluster = priced(a="4")
    cluster.set_node(make_node("b"))
    assert cluster.score(CheapNodes({"unlabelledPrice": 3}, cluster.handle), make_pod()) == {
        "a": 0,
        "b": 25,
    }


def test_a_price_may_change():
    cluster = priced(a="4", b="1")
    plugin = CheapNodes(None, cluster.handle)
    assert cluster.score(plugin, make_pod()) == {"a": 0, "b": 75}
    cluster.set_node(make_node("b", labels={"example.com/price": "8"}))
    assert cluster.score(plugin, make_pod()) == {"a": 50, "b": 0}


def test_the_contract():
    cluster = priced(a="4", b="1", c="2")
    cluster.check(CheapNodes(None, cluster.handle), make_pod(), make_pod(labels={"app": "web"}))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"lable": "price"}, "unknown field `lable`"),
        ({"unlabelledPrice": -1}, "unlabelledPrice must be between 0 and 1000000"),
        ({"unlabelledPrice": "1"}, "args.unlabelledPrice: Expected `float`, got `str`"),
    ],
)
def test_mistakes_in_the_arguments(args: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        CheapNodes(args, FakeCluster().handle)
