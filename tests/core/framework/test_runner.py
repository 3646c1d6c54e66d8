"""PreFilter, Filter, PreScore and Score of a profile: who is asked, what ends it, and in which words.

See docs/spec/framework.md.
"""

import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.framework.interface import (
    CycleState,
    NodeLocal,
    PreFilterResult,
    default_normalize,
    reject,
)
from app.framework.optional import ZeroNormalized
from app.framework.runner import Framework, PreFilterRejected
from app.framework.testing import FakeCluster, make_node, make_pod
from app.model.cluster_event import NODE_ADD, Action
from app.model.status import (
    SKIP,
    SUCCESS,
    Code,
    SchedulingError,
    Status,
    unresolvable,
    unschedulable,
)
from app.state.nominations import NO_PODS
from app.state.queue.hints import EventRegistration
from app.state.view import View
from tests.core.framework.profiles import profile_of

NO, NEVER = unschedulable("no"), unresolvable("never")
LATER = Status(Code.Pending, ("later",))
BROKEN = Status(Code.Error, ("broken",))


class Profile:
    """A profile of these plugins over the nodes x, y and z, or others."""

    def __init__(self, *plugins, weights=None, nodes="xyz"):
        self.table = FakeCluster(*map(make_node, nodes)).handle.table
        self.framework = Framework("profile", profile_of(*plugins, weights=weights), self.table)

    def filter(self):
        pod = make_pod()
        memo = self.framework.memo(pod)
        return self.framework.filter(CycleState(memo.local.state), pod, memo, NO_PODS)

    def feasible(self):
        return "".join(self.table.names[row] for row in self.filter().outcome.feasible())

    def scores(self, pod=None):
        pod = pod or make_pod()
        memo = self.framework.memo(pod)
        view = View(self.table, self.table.live_rows())
        return self.framework.scoring.score(CycleState(memo.local.state), pod, memo, view).tolist()


# ---------------------------------------------------------------- PreFilter


class Prepares:
    """Answers PreFilter with this status, and node names where some are given."""

    def __init__(self, name, status=SUCCESS, names=None):
        self.NAME = name
        self.asked = 0
        self._status = status
        self._names = None if names is None else frozenset(names)

    def pre_filter(self, _state, _pod):
        self.asked += 1
        return PreFilterResult(self._status, self._names)


class PreparesOnce(NodeLocal, Prepares):
    """The same; its answer is kept."""


@pytest.mark.parametrize(
    ("plugins", "status", "blamed", "asked"),
    [
        pytest.param([("a", NEVER), ("b", NO)], NEVER.by("a"), "a", [1, 0], id="for good ends it"),
        pytest.param(
            [("a", NO), ("b", SUCCESS)], NO.by("a"), "a", [1, 1], id="the others are still asked"
        ),
        pytest.param(
            [("a", NO), ("b", unschedulable("nor so"))],
            unschedulable("nor so").by("b"),
            "b",
            [1, 1],
            id="the last one counts",
        ),
        pytest.param([("a", NO), ("b", NEVER)], NEVER.by("b"), "b", [1, 1], id="for good beats it"),
        pytest.param(
            [("a", SUCCESS, "xy"), ("b", NEVER)],
            NEVER.by("b"),
            "ab",
            [1, 1],
            id="who has narrowed is to blame as well",
        ),
        pytest.param(
            [("a", SUCCESS, "x"), ("b", NO)],
            NO.by("b"),
            "ab",
            [1, 1],
            id="so with one that goes on",
        ),
        pytest.param(
            [("a", SUCCESS, ""), ("b", SUCCESS)],
            unresolvable("node(s) didn't satisfy plugin a"),
            "a",
            [1, 0],
            id="one leaves no node",
        ),
        pytest.param(
            [("b", SUCCESS, "xy"), ("a", SUCCESS, "z"), ("c", SUCCESS)],
            unresolvable("node(s) didn't satisfy plugin(s) [a b] simultaneously"),
            "ab",
            [1, 1, 0],
            id="two leave no node between them",
        ),
    ],
)
@pytest.mark.parametrize("kind", [Prepares, PreparesOnce])
def test_what_pre_filter_turns_down(kind, plugins, status, blamed, asked):
    plugins = [kind(*plugin) for plugin in plugins]
    with pytest.raises(PreFilterRejected) as caught:
        Profile(*plugins).filter()
    assert caught.value.status == status
    assert caught.value.plugins == set(blamed)
    if kind is Prepares:
        assert [plugin.asked for plugin in plugins] == asked


@pytest.mark.parametrize("answer", [BROKEN, LATER])
@pytest.mark.parametrize("kind", [Prepares, PreparesOnce])
def test_any_other_answer_of_pre_filter_is_an_error(kind, answer):
    with pytest.raises(SchedulingError) as caught:
        Profile(kind("a", answer)).filter()
    assert str(caught.value) == f'running PreFilter plugin "a": {answer.message}'


def test_nodes_that_were_not_named_are_not_judged():
    filtered = Profile(Prepares("a", SUCCESS, "xy"), Prepares("b", SUCCESS, "yz")).filter()
    assert filtered.outcome.considered.tolist() == [False, True, False]
    assert filtered.narrowed_by == {"a", "b"}
    assert filtered.absent == unresolvable("node(s) didn't satisfy plugin(s) [a b]")


def test_names_of_nodes_that_do_not_exist_do_no_harm():
    assert Profile(Prepares("a", SUCCESS, ["y", "never"])).feasible() == "y"


def test_what_a_plugin_that_skips_names_is_ignored():
    assert Profile(Prepares("a", SKIP, "x")).feasible() == "xyz"


# ---------------------------------------------------------------- Filter


class Bars:
    """Rejects these nodes."""

    def __init__(self, name, nodes, pre_filter=SUCCESS):
        self.NAME = name
        self.nodes, self._pre_filter = nodes, pre_filter

    def pre_filter(self, _state, _pod):
        return self._pre_filter

    def filter(self, _state, _pod, view):
        barred = np.array([name in self.nodes for name in view.names()])
        return reject(barred, Code.Unschedulable, f"{self.NAME} said no")


class BarsRows(NodeLocal, Bars):
    """The same; its verdicts are kept."""


@pytest.mark.parametrize(("first", "second"), [(Bars, BarsRows), (BarsRows, Bars), (Bars, Bars)])
def test_the_first_plugin_that_turns_a_node_down_has_said_so(first, second):
    profile = Profile(first("a", "x"), second("b", "xy"))
    for _ in range(2):
        outcome = profile.filter().outcome
        said = {profile.table.names[row]: outcome.status(row).message for row in range(3)}
        assert said == {"x": "a said no", "y": "b said no", "z": ""}
        assert outcome.rejecting_plugins() == {"a", "b"}


@pytest.mark.parametrize(
    "named", ["!", "c", "hc!", "hgfedcba", "abcdefghi", "zyxwvutsrqponmlkjihgfedcba"]
)
def test_named_nodes_get_the_same_verdicts_however_many_there_are(named):
    nodes = string.ascii_lowercase
    plugins = [Prepares("names", names=named), BarsRows("a", "bdy"), Bars("b", "cdz")]
    outcome = Profile(*plugins, nodes=nodes).filter().outcome
    said = {
        name: outcome.status(row).message
        for row, name in enumerate(nodes)
        if outcome.considered[row]
    }
    rejected = {"b": "a said no", "d": "a said no", "y": "a said no", "c": "b said no"}
    rejected["z"] = "b said no"
    assert said == {name: rejected.get(name, "") for name in named if name in nodes}


@pytest.mark.parametrize("kind", [Bars, BarsRows])
def test_a_plugin_that_skips_filters_nothing(kind):
    assert Profile(kind("a", "x", SKIP), kind("b", "y")).feasible() == "xz"


def test_only_the_verdicts_of_node_local_plugins_are_kept():
    kept, asked = BarsRows("a", "x"), Bars("b", "y")
    profile = Profile(kept, asked)
    assert profile.feasible() == "z"
    kept.nodes = asked.nodes = ""
    assert profile.feasible() == "yz"
    profile.table.set_node(make_node("x", labels={"a": "change"}))
    assert profile.feasible() == "xyz"


# ---------------------------------------------------------------- PreScore and Score


class Ranks:
    """Gives x, y and z these scores; ``pre_score`` is what PreScore answers."""

    def __init__(self, name, *scores, pre_score=SUCCESS):
        self.NAME = name
        self._scores, self._answer = np.array(scores, np.int64), pre_score

    def pre_score(self, _state, _pod, _view):
        return self._answer

    def score(self, _state, _pod, view):
        return self._scores[view.rows]


class RanksRows(NodeLocal, Ranks):
    """The same; its scores are kept."""


class Compares(Ranks):
    """The same, and the highest score becomes 100."""

    def normalize(self, _state, _pod, scores, _view):
        return default_normalize(scores)


class ComparesRows(NodeLocal, Compares):
    """The same; its raw scores are kept."""


@pytest.mark.parametrize("kind", [Ranks, RanksRows])
@pytest.mark.parametrize("comparing", [Compares, ComparesRows])
def test_scores_are_weighed_and_added(kind, comparing):
    plugins = [kind("a", 1, 2, 3), comparing("b", 10, 20, 40), kind("c", 5, 0, 0)]
    weights = {"a": 2, "b": 3, "c": 0}
    assert Profile(*plugins, weights=weights).scores() == [2 + 75 + 5, 4 + 150, 6 + 300]


@pytest.mark.parametrize("kind", [Ranks, RanksRows, Compares, ComparesRows])
def test_a_plugin_that_skips_scores_nothing(kind):
    assert Profile(kind("a", 1, 2, 3, pre_score=SKIP), Ranks("b", 4, 5, 6)).scores() == [4, 5, 6]


class Counts(NodeLocal, Ranks):
    """The fewer the better; nothing to count is None."""

    def score(self, state, pod, view):
        counts = super().score(state, pod, view)
        return counts if counts.any() else None

    def normalize(self, _state, _pod, scores, _view):
        return default_normalize(scores, reverse=True)

    def count(self, *scores):
        self._scores = np.array(scores, np.int64)


class CountsAndSaysWhatZeroIs(Counts, ZeroNormalized):
    """The same; ``normalize`` need not be called where there is nothing to count."""

    ZERO_NORMALIZED = 100
    calls = 0

    def normalize(self, *args):
        self.calls += 1
        return super().normalize(*args)


@given(
    steps=st.lists(st.tuples(*[st.sampled_from([0, 0, 0, 1, 2])] * 3), min_size=1, max_size=6),
    added=st.booleans(),
)
def test_what_normalize_makes_of_zeros_may_be_said_once(steps, added):
    others = [RanksRows("a", 4, 5, 6)] if added else []
    plugins = [kind("b", *steps[0]) for kind in (Counts, CountsAndSaysWhatZeroIs)]
    profiles = [Profile(plugin, *others, weights={"b": 3, "a": 1}) for plugin in plugins]
    pod = make_pod()
    for step in steps:
        for plugin, profile in zip(plugins, profiles, strict=True):
            for row, (old, new) in enumerate(zip(plugin._scores, step, strict=True)):
                if old != new:
                    profile.table.set_node(make_node("xyz"[row], labels={"a": f"{new}"}))
            plugin.count(*step)
        assert profiles[0].scores(pod) == profiles[1].scores(pod)
    assert plugins[1].calls or not any(map(any, steps))
    assert not plugins[1].calls or any(map(any, steps))


@pytest.mark.parametrize("answer", [BROKEN, NO])
@pytest.mark.parametrize("kind", [Ranks, RanksRows])
def test_any_other_answer_of_pre_score_is_an_error(kind, answer):
    with pytest.raises(SchedulingError) as caught:
        Profile(kind("a", 1, 2, 3, pre_score=answer)).scores()
    assert str(caught.value) == f'running PreScore plugin "a": {answer.message}'


@pytest.mark.parametrize("wrong", [-1, 101])
@pytest.mark.parametrize("kind", [Ranks, RanksRows])
def test_scores_outside_of_0_to_100_are_an_error(kind, wrong):
    with pytest.raises(SchedulingError) as caught:
        Profile(kind("a", 0, wrong, 100)).scores()
    assert str(caught.value) == (
        f'applying score defaultWeights on Score plugins: plugin "a" returns an invalid score {wrong}, '
        "it should in the range of [0, 100] after normalizing"
    )


# ---------------------------------------------------------------- what wakes a pod


class Listens(Prepares):
    """Asks to be woken by these events."""

    def __init__(self, *events):
        super().__init__("a")
        self._events = events

    def events_to_register(self):
        return [EventRegistration(event) for event in self._events]


def test_a_plugin_that_does_not_say_what_it_waits_for_is_woken_by_anything():
    hints = Profile(Prepares("a")).framework.queueing_hints()
    assert {registration.plugin for registration in hints} == {"a"}
    assert {registration.event.action for registration in hints} == {Action.All}
    assert {registration.event.resource.name for registration in hints} == {
        *("Pod", "Node", "PersistentVolume", "PersistentVolumeClaim", "StorageClass"),
        *("CSINode", "CSIDriver", "CSIStorageCapacity", "ResourceClaim", "DeviceClass"),
    }


def test_one_that_says_so_by_that_alone():
    assert Profile(Listens()).framework.queueing_hints() == []
    [registration] = Profile(Listens(NODE_ADD)).framework.queueing_hints()
    assert (registration.plugin, registration.event) == ("a", NODE_ADD)


def test_one_that_only_scores_has_nothing_to_wait_for():
    assert Profile(Ranks("a", 1, 2, 3)).framework.queueing_hints() == []
