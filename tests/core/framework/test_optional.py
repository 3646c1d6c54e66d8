"""What a plugin may offer is declared: methods of the same names that are not declared mean nothing to a profile."""

import ast
from pathlib import Path

import numpy as np
import pytest

import app
from app.cycle.attempt import Attempt
from app.framework.classes import Trait
from app.framework.contract import ContractError
from app.framework.interface import NodeLocal, default_normalize, reject
from app.framework.optional import (
    AcceptsAll,
    ByTraits,
    ColumnScore,
    OnlyNarrows,
    SteadySkip,
    ZeroNormalized,
)
from app.framework.plugin_class import fault_of
from app.framework.runner import Framework
from app.framework.testing import FakeCluster, make_node, make_pod
from app.model.status import SKIP, SUCCESS, Code
from app.state.nominations import NO_PODS
from tests.core.framework.profiles import profile_of


class Near:
    """Prefers node b. Its other methods are its own business, whatever they are called."""

    NAME = "Near"

    def score(self, _state, _pod, view):
        return self.column(view)

    def column(self, view):
        return np.array([100 * (name == "b") for name in view.names()], np.int64)

    def traits(self, one, other):
        raise AssertionError

    accepts_all = only_narrows = skips_scoring_steadily = traits


class NearFilter(Near):
    """The same at Filter."""

    def filter(self, _state, _pod, view):
        return reject(self.column(view) == 0, Code.Unschedulable, "not b")


def choose(framework, table, name):
    attempt = Attempt(
        framework,
        table,
        make_pod(name),
        nominated=lambda _pod: NO_PODS,
        rng=np.random.default_rng(0),
    )
    choice = attempt.choose_at_once() or attempt.choose(attempt.find())
    return choice.node_name


@pytest.mark.parametrize("kind", [Near, NearFilter])
def test_a_method_of_a_plugin_that_is_called_like_a_hook_is_left_alone(kind):
    cluster = FakeCluster(*map(make_node, "abc"))
    table = cluster.handle.table
    framework = Framework("profile", profile_of(kind(), weights={"Near": 50}), table)
    assert [choose(framework, table, name) for name in ("p", "q", "r")] == ["b", "b", "b"]


@pytest.mark.parametrize(
    ("attribute", "value", "base"),
    [("UNDECIDED_ONLY", True, "UndecidedOnly"), ("ZERO_NORMALIZED", 100, "ZeroNormalized")],
)
def test_an_attribute_without_its_base_class_is_a_fault(attribute, value, base):
    plugin = type("Old", (Near,), {attribute: value, "__init__": lambda self, args, handle: None})
    assert fault_of(plugin) == f"{attribute} needs the base class {base}"


# ---------------------------------------------------------------- the contract


class WrongColumn(Near, ColumnScore):
    def column(self, _pod):
        return np.ones(3, np.int64)

    def score(self, _state, _pod, view):
        return Near.column(self, view)


class ShortColumn(WrongColumn):
    def column(self, _pod):
        return np.ones(1, np.int64)


class WrongZero(NodeLocal, ZeroNormalized, Near):
    ZERO_NORMALIZED = 7

    def normalize(self, _state, _pod, scores, _view):
        return default_normalize(scores)


class WrongTraits(Near, ByTraits):
    def traits(self, _pod):
        return [Trait("all", lambda view: np.zeros(view.n, np.int64))]


class AcceptsNone(NearFilter, AcceptsAll):
    def accepts_all(self, _state, _pod):
        return True


class Attracted(OnlyNarrows, Near):
    """Wants to be where another pod is."""

    def filter(self, _state, _pod, view):
        return reject(view.pod_count() == 0, Code.Unschedulable, "lonely")

    def only_narrows(self, _state):
        return True


class SkipsWhileEmpty(SteadySkip, Near):
    """Applies to every pod as soon as there is another one."""

    def __init__(self, table):
        self.table = table

    def pre_filter(self, _state, _pod):
        return SUCCESS if any(self.table.pods) else SKIP

    def pre_score(self, _state, _pod, _view):
        return self.pre_filter(_state, _pod)


class SkipsByName(SteadySkip, Near):
    """Applies to the pods that are named like replicas."""

    def pre_filter(self, _state, pod):
        return SUCCESS if pod.name.endswith("-replica") else SKIP


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        (WrongColumn, "column and score differ"),
        (ShortColumn, "column gives 1 scores for 3 rows"),
        (WrongZero, "normalize does not give 7 where all scores are 0"),
        (WrongTraits, "score differs between nodes with equal traits"),
        (AcceptsNone, "accepts_all is true, but filter rejects a node"),
        (Attracted, "only_narrows is true, but a pod added to a makes it feasible"),
        (SkipsWhileEmpty, "pre_filter skips a pod that it does not skip beside a plain pod"),
        (SkipsWhileEmpty, "pre_score skips a pod that it does not skip beside a plain pod"),
        (SkipsByName, "pre_filter skips a pod, but no replica of it"),
    ],
)
def test_a_promise_that_is_not_kept_is_found(kind, fault):
    cluster = FakeCluster(*map(make_node, "abc"))
    plugin = kind(cluster.handle.table) if kind is SkipsWhileEmpty else kind()
    with pytest.raises(ContractError) as caught:
        cluster.check(plugin, make_pod())
    assert f"- {fault}" in str(caught.value).splitlines()


# ---------------------------------------------------------------- nothing is looked for elsewhere

#: Places where an attribute is looked for on something that is no plugin, and the proxy that passes every access on.
ELSEWHERE = {
    ("framework/memo.py", "scores"),
    ("framework/probe.py", "kind"),
    ("framework/probe.py", "result"),
    ("framework/probe.py", "self._plugin"),
    ("scheduler/group_algorithm.py", "self._effects"),
    ("cycle/group_algorithm.py", "self._effects"),
}


def looked_up(path):
    """What ``path`` calls hasattr and getattr with."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"hasattr", "getattr"}:
            yield ast.unparse(node.args[0])


def test_only_plugin_class_looks_for_methods_and_attributes_of_plugins():
    root = Path(app.__file__).parent
    found = {
        (str(path.relative_to(root)), name)
        for package in ("framework", "plugins", "scheduler", "cycle")
        for path in (root / package).rglob("*.py")
        for name in looked_up(path)
    }
    assert {place for place in found if place[0] != "framework/plugin_class.py"} <= ELSEWHERE
