"""A filter's error ends the attempt only if the node was up for a decision: kube-scheduler filters no others."""

import numpy as np
import pytest

from app.framework.interface import CycleState, NodeLocal, PreFilterResult, reject
from app.framework.runner import Framework
from app.framework.testing import FakeCluster, make_node, make_pod
from app.model.status import SUCCESS, Code, SchedulingError
from app.state.nominations import PodsByRow
from app.state.view import DryRunView
from tests.core.framework.profiles import profile_of

MESSAGE = 'running "Checks" filter plugin: out of order'


class Narrows:
    """Leaves only the nodes in ``names``."""

    NAME = "Narrows"

    def __init__(self, *names):
        self._names = frozenset(names)

    def pre_filter(self, state, pod):
        return PreFilterResult(SUCCESS, self._names)


class Checks:
    """Meets an error on node b; with ``imagined`` only where pods are imagined there."""

    NAME = "Checks"

    def __init__(self, *, imagined=False):
        self.broken = True
        self._imagined = imagined

    def filter(self, state, pod, view):
        broken = self.broken and (isinstance(view, DryRunView) or not self._imagined)
        on_b = np.array([name == "b" for name in view.names()], bool)
        return reject(on_b & broken, Code.Error, "out of order")


class ChecksRows(NodeLocal, Checks):
    """The same; its answers are kept."""


class Trial:
    """Nodes a, b and c, and what the filters leave of them."""

    def __init__(self, *plugins):
        self.cluster = FakeCluster(*map(make_node, "abc"))
        self._table = self.cluster.handle.table
        self._framework = Framework("profile", profile_of(*plugins), self._table)

    def feasible(self, nominated=()):
        pod = make_pod()
        memo = self._framework.memo(pod)
        pods = PodsByRow(self._table.size)
        for name in nominated:
            pods.put(self._table.row_of[name], (make_pod("nominated"),), stamp=1)
        filtered = self._framework.filter(CycleState(memo.local.state), pod, memo, pods)
        return [self._table.names[row] for row in filtered.outcome.feasible()]


checks = pytest.mark.parametrize("kind", [Checks, ChecksRows])


@checks
def test_an_error_on_any_node_that_is_looked_at_ends_the_attempt(kind):
    for plugins in ([kind()], [Narrows("a", "b"), kind()]):
        with pytest.raises(SchedulingError) as caught:
            Trial(*plugins).feasible()
        assert str(caught.value) == MESSAGE


@checks
def test_no_error_comes_from_nodes_that_pre_filter_left_out(kind):
    assert Trial(Narrows("a"), kind()).feasible() == ["a"]


@checks
def test_no_error_comes_from_nodes_that_have_gone_and_still_have_pods(kind):
    trial = Trial(kind())
    trial.cluster.place(make_pod("left-behind"), "b")
    trial.cluster.remove_node("b")
    assert trial.feasible() == ["a", "c"]


@checks
def test_with_nominated_pods_it_is_the_same(kind):
    with pytest.raises(SchedulingError):
        Trial(kind(imagined=True)).feasible(nominated=["b"])
    assert Trial(kind(imagined=True)).feasible(nominated=["a"]) == ["a", "b", "c"]
    assert Trial(Narrows("a"), kind(imagined=True)).feasible(nominated=["b"]) == ["a"]


@checks
def test_errors_are_not_remembered(kind):
    checker = kind()
    trial = Trial(checker)
    for nominated in ([], ["b"]):
        checker.broken = True
        with pytest.raises(SchedulingError):
            trial.feasible(nominated)
        checker.broken = False
        assert trial.feasible(nominated) == ["a", "b", "c"]
