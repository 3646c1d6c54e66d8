"""One pod's attempt: where it may go, where it goes, and who is to blame if it goes nowhere.

See docs/spec/node-selection.md.
"""

import msgspec
import numpy as np
import pytest

from app.cycle.attempt import DROPPED, Attempt, NoNodesError, Unfit
from app.framework.interface import MAY_PAUSE, PreFilterResult, reject
from app.framework.runner import Framework
from app.framework.testing import FakeCluster, make_node, make_pod
from app.model.status import SUCCESS, Code, Status, Unfinished, unresolvable, unschedulable
from app.state.nominations import NO_PODS
from tests.core.framework.profiles import profile_of


class Bars:
    """Rejects these nodes."""

    def __init__(self, name, nodes, code=Code.Unschedulable):
        self.NAME = name
        self.nodes, self._code = nodes, code

    def filter(self, _state, _pod, view):
        barred = np.array([name in self.nodes for name in view.names()], bool)
        return reject(barred, self._code, f"{self.NAME} said no")


class Narrows:
    """Leaves these nodes, or answers with this status."""

    NAME = "Narrows"

    def __init__(self, nodes, status=SUCCESS):
        self._answer = PreFilterResult(status, frozenset(nodes))

    def pre_filter(self, _state, _pod):
        return self._answer


class Ranks:
    """Scores nodes by their place in the alphabet; counts how often it is asked."""

    NAME = "Ranks"

    def __init__(self):
        self.asked = 0

    def score(self, _state, _pod, view):
        self.asked += 1
        return np.array([ord(name) - ord("a") for name in view.names()], np.int64)


class World:
    """Nodes a to e and a profile of these plugins."""

    def __init__(self, *plugins, nodes="abcde"):
        self.cluster = FakeCluster(*map(make_node, nodes))
        self.table = self.cluster.handle.table
        self._framework = Framework("profile", profile_of(*plugins), self.table)

    def attempt(self, nominated="", *, lately=None, latest=lambda pod: pod):
        pod = make_pod()
        if nominated:
            pod = msgspec.structs.replace(pod, nominated_node_name=nominated)
        rng = np.random.default_rng(0)
        return Attempt(
            self._framework,
            self.table,
            pod,
            nominated=lambda _pod: NO_PODS,
            rng=rng,
            nominated_node=lately,
            latest=latest,
        )

    def diagnosis(self):
        with pytest.raises(Unfit) as caught:
            self.attempt().find()
        return caught.value.diagnosis


def found(attempt):
    return "".join(attempt.names(attempt.find()))


class Pauses:
    """Pauses once if it may; keeps the pods that it was asked about."""

    NAME = "Pauses"

    def __init__(self):
        self.asked = []

    def filter(self, state, pod, _view):
        self.asked.append(pod)
        if state.get(MAY_PAUSE) and len(self.asked) == 1:
            raise Unfinished


# ---------------------------------------------------------------- where


def test_after_a_pause_the_current_version_of_the_pod_is_judged():
    plugin = Pauses()
    newer = []
    attempt = World(plugin).attempt(latest=lambda pod: newer[-1] if newer else pod)
    first = attempt.pod
    attempt.may_pause = True
    with pytest.raises(Unfinished):
        attempt.find()
    newer.append(msgspec.structs.replace(first, resource_version="8"))
    assert found(attempt) == "abcde"
    assert plugin.asked == [first, newer[0]]
    assert attempt.pod is newer[0]


def test_nothing_may_pause_after_the_filters():
    """PostFilter plugins run them on the same state."""
    attempt = World(Pauses()).attempt()
    attempt.may_pause = True
    with pytest.raises(Unfinished):
        attempt.find()
    assert attempt.state.get(MAY_PAUSE) is False


def test_find_leaves_what_no_filter_turns_down():
    assert found(World(Bars("first", "ab"), Bars("second", "be")).attempt()) == "cd"


@pytest.mark.parametrize(
    ("nominated", "expected"),
    [("c", "c"), ("a", "bcde"), ("gone", "bcde"), ("", "bcde")],
    ids=["it will do", "it will not", "there is no such node", "none"],
)
def test_the_nominated_node_is_the_only_candidate_if_it_will_do(nominated, expected):
    assert found(World(Bars("first", "a")).attempt(nominated)) == expected


@pytest.mark.parametrize(("lately", "expected"), [("b", "b"), ("", "abcde"), (None, "c")])
def test_the_last_nomination_counts_before_the_status_says_so(lately, expected):
    assert found(World().attempt("c", lately=lately)) == expected


def test_a_nominated_node_that_an_extender_has_turned_down_is_one_among_others():
    attempt = World().attempt("c")
    attempt.extender_verdicts["c"] = DROPPED
    assert found(attempt) == "abcde"


def test_the_highest_total_wins():
    attempt = World(Ranks()).attempt()
    choice = attempt.choose(attempt.find())
    assert (choice.node_name, choice.feasible, choice.evaluated) == ("e", 5, 5)
    names, by_plugin, totals = attempt.scores()
    assert names == list("abcde")
    assert by_plugin["Ranks"].tolist() == totals.tolist() == [0, 1, 2, 3, 4]


def test_what_extenders_add_counts():
    attempt = World(Ranks()).attempt()
    choice = attempt.choose(attempt.find(), np.array([0, 100, 0, 0, 0], np.int64))
    assert choice.node_name == "b"
    assert attempt.scores()[2].tolist() == [0, 101, 2, 3, 4]


def test_a_single_node_is_chosen_without_being_scored():
    ranks = Ranks()
    attempt = World(Bars("first", "abde"), ranks).attempt()
    assert attempt.choose(attempt.find()).node_name == "c"
    assert not ranks.asked
    assert attempt.scores()[:2] == ([], {})


def test_nodes_are_judged_again_as_they_are_by_now():
    bars = Bars("first", "a")
    world = World(bars)
    attempt = world.attempt()
    rows = attempt.find()
    bars.nodes = "bc"
    world.cluster.remove_node("e")
    assert dict(zip("bcde", attempt.still_fits(rows).tolist(), strict=True)) == {
        "b": False,
        "c": False,
        "d": True,
        "e": False,
    }


# ---------------------------------------------------------------- why not


def test_a_cluster_without_nodes():
    with pytest.raises(NoNodesError) as caught:
        World(nodes="").attempt().find()
    assert str(caught.value) == "no nodes available to schedule pods"


def test_every_plugin_that_turned_a_node_down_is_to_blame():
    diagnosis = World(Bars("first", "abc"), Bars("second", "cde"), Bars("third", "a")).diagnosis()
    assert diagnosis.unschedulable_plugins == {"first", "second"}
    assert diagnosis.pending_plugins == set()
    assert diagnosis.message() == "0/5 nodes are available: 2 second said no, 3 first said no."


def test_a_plugin_that_waits_for_something_of_its_own_is_told_apart():
    diagnosis = World(Bars("first", "abc"), Bars("waits", "de", Code.Pending)).diagnosis()
    assert diagnosis.unschedulable_plugins == {"first"}
    assert diagnosis.pending_plugins == {"waits"}


def test_who_has_narrowed_is_to_blame_as_well():
    diagnosis = World(Narrows("ab"), Bars("first", "ab")).diagnosis()
    assert diagnosis.unschedulable_plugins == {"Narrows", "first"}
    assert diagnosis.message() == (
        "0/5 nodes are available: 2 first said no, 3 node(s) didn't satisfy plugin(s) [Narrows]."
    )


def test_what_pre_filter_says_of_the_pod_is_said_once():
    diagnosis = World(Narrows("ab", unresolvable("never"))).diagnosis()
    assert diagnosis.unschedulable_plugins == {"Narrows"}
    assert diagnosis.status(0) == unresolvable("never", plugin="Narrows")
    assert diagnosis.message() == "0/5 nodes are available: never."


def test_what_extenders_say_counts_whatever_the_filters_say():
    attempt = World(Bars("first", "abc")).attempt()
    attempt.find()
    attempt.extender_verdicts |= {
        "a": unresolvable("not that one"),
        "b": Status(Code.UnschedulableAndUnresolvable),
        "d": unschedulable("nor this"),
        "e": Status(Code.UnschedulableAndUnresolvable),
        "gone": unschedulable("what was it"),
    }
    diagnosis = attempt.diagnosis()
    assert diagnosis.unschedulable_plugins == {"first", "Extender"}
    assert diagnosis.message() == (
        "0/5 nodes are available: 1 nor this, 1 not that one, 2 first said no."
    )
    live = np.arange(5)
    assert diagnosis.rows_with(Code.Unschedulable, live).tolist() == [1, 2, 3]
