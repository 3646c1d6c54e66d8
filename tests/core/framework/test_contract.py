"""The contract of plugins: the in-tree ones keep it, and each way of breaking it is found."""

import numpy as np
import pytest

from app.framework import contract
from app.framework.api import (
    SKIP,
    SUCCESS,
    Action,
    ClusterEvent,
    Code,
    EventRegistration,
    NodeFilter,
    NodeLocal,
    NodeScore,
    Resource,
    Status,
    Verdicts,
    reject,
    unschedulable,
)
from app.framework.contract import ContractError
from app.framework.testing import FakeCluster, make_node, make_pod
from app.plugins.registry import IN_TREE
from tests.core.framework.worlds import World

NODE_CHANGE = ClusterEvent(Resource.Node, Action.Add | Action.Update | Action.Delete)

#: Imagined worlds free a port with any pod that claims it, as kube-scheduler's do (docs/decisions/0003).
EXCEPTIONS = {"NodePorts"}


@pytest.mark.parametrize("name", sorted(IN_TREE.keys() - EXCEPTIONS))
def test_in_tree_plugins_keep_the_contract(name):
    for seed in range(3):
        world = World(seed)
        plugin = IN_TREE[name](None, world.handle)
        contract.check(plugin, world.table, [world.random_pod() for _ in range(3)])


def cluster() -> FakeCluster:
    """Five nodes, two of them red, each with a pod."""
    colours = ("red", "blue", "red", "blue", "green")
    cluster = FakeCluster(*(make_node(f"n{i}", labels={"is": c}) for i, c in enumerate(colours)))
    for number in range(5):
        cluster.place(make_pod(f"p{number}"), f"n{number}")
    return cluster


def red(view):
    column, codes = view.label("is")
    return codes == column.code("red")


class Plugin:
    """Takes whatever it is given."""

    NAME = "Example"

    def __init__(self, args=None, handle=None):
        self.handle = handle


class KeepsToTheRules(NodeLocal, Plugin):
    def filter(self, state, pod, view):
        return reject(red(view), Code.Unschedulable, "node(s) were red")

    def score(self, state, pod, view):
        return view.pod_count()

    def normalize(self, state, pod, scores, view):
        return np.minimum(scores * 10, 100)

    def reserve(self, state, pod, node_name):
        return SUCCESS

    def unreserve(self, state, pod, node_name):
        pass

    def events_to_register(self):
        return [EventRegistration(NODE_CHANGE, lambda pod, old, new: old is None, True)]


def test_a_good_plugin_passes_and_leaves_no_trace():
    world = cluster()
    table = world.handle.table
    before = [dict(pods) for pods in table.pods], table.requested.matrix.copy()
    world.check(KeepsToTheRules(), make_pod(), make_pod(labels={"a": "b"}))
    assert [dict(pods) for pods in table.pods] == before[0]
    assert np.array_equal(table.requested.matrix, before[1])


class NoVerdicts(Plugin):
    def filter(self, state, pod, view):
        return red(view)


class WrongSize(Plugin):
    def filter(self, state, pod, view):
        return reject(red(view)[1:], Code.Unschedulable, "red")


class WrongType(Plugin):
    def filter(self, state, pod, view):
        return Verdicts(red(view) * np.int64(2), np.zeros(view.n, np.int32), lambda _: ("red",))


class Skips(Plugin):
    def filter(self, state, pod, view):
        return reject(red(view), Code.Skip, "red")


class Wordless(Plugin):
    def filter(self, state, pod, view):
        return Verdicts(red(view) * np.int8(2), np.zeros(view.n, np.int32))


class OneWord(Plugin):
    def filter(self, state, pod, view):
        return Verdicts(red(view) * np.int8(2), np.zeros(view.n, np.int32), lambda _: "red")


class TableOrder(Plugin):
    """Answers for the first n rows of the table, whatever the view's are."""

    def filter(self, state, pod, view):
        failed = np.array([info_is_red(view.table, row) for row in range(view.n)], bool)
        return reject(failed, Code.Unschedulable, "red")


def info_is_red(table, row):
    node = table.nodes[row]
    return node is not None and node.labels.get("is") == "red"


class PastTheView(Plugin):
    """Counts pods in the table, where nothing is imagined."""

    def filter(self, state, pod, view):
        counts = self.handle.table.pod_count[view.rows]
        return reject(counts != 1, Code.Unschedulable, "crowded")


class ChangesItsWords(Plugin):
    calls = 0

    def filter(self, state, pod, view):
        self.calls += 1
        words = (f"refused for the {self.calls}. time",)
        return Verdicts(red(view) * np.int8(2), np.zeros(view.n, np.int32), lambda _: words)


class ForgetsItsWords(Plugin):
    """Numbers the reasons of each view anew."""

    def filter(self, state, pod, view):
        words = view.names()
        return Verdicts(
            red(view) * np.int8(2), np.arange(view.n, dtype=np.int32), lambda n: (words[n],)
        )


class LooksAtLabels(NodeLocal, NodeFilter):
    NAME = "Example"

    def filter_node(self, state, pod, info):
        return unschedulable("no") if pod.labels.get("is") else None


class ScoresByName(NodeLocal, NodeScore):
    NAME = "Example"

    def score_node(self, state, pod, info):
        return len(pod.name)


class LooksAtNeighbours(NodeLocal, Plugin):
    def filter(self, state, pod, view):
        return reject(
            np.full(view.n, self.handle.table.pod_count.sum() > 5), Code.Unschedulable, "x"
        )


class ScoresNeighbours(NodeLocal, Plugin):
    def score(self, state, pod, view):
        return np.full(view.n, self.handle.table.pod_count.sum())


class ChangesColumns(Plugin):
    def filter(self, state, pod, view):
        view.requested_of(("cpu",))[:] += 1


class FloatScores(Plugin):
    def score(self, state, pod, view):
        return np.linspace(0, 1, view.n)


class ListScores(Plugin):
    def score(self, state, pod, view):
        return [1] * view.n


class HugeScores(Plugin):
    def score(self, state, pod, view):
        return np.full(view.n, 101)


class NegativeAfterAll(Plugin):
    def score(self, state, pod, view):
        return np.full(view.n, 5000)

    def normalize(self, state, pod, scores, view):
        return scores - 5001


class NormalizesInPlace(Plugin):
    def score(self, state, pod, view):
        return np.full(view.n, 500)

    def normalize(self, state, pod, scores, view):
        scores //= 10
        return scores


class RanksInTheView(NodeLocal, Plugin):
    def score(self, state, pod, view):
        return np.arange(view.n)


class WrongPreFilter(Plugin):
    def pre_filter(self, state, pod):
        return True

    def filter(self, state, pod, view):
        return None


class WrongPreScore(Plugin):
    def pre_score(self, state, pod, view):
        pass

    def score(self, state, pod, view):
        return np.zeros(view.n, np.int64)


class Unconcerned(Plugin):
    def concerns(self, template):
        return False

    def pre_filter(self, state, pod):
        return SUCCESS


class RefusesTheUnconcerned(Unconcerned):
    def pre_filter(self, state, pod):
        return unschedulable("no")


class FiltersTheUnconcerned(Unconcerned):
    def filter(self, state, pod, view):
        return reject(red(view), Code.Unschedulable, "red")


class ScoresTheUnconcerned(Unconcerned):
    def score(self, state, pod, view):
        return red(view).astype(np.int64)


class VagueConcern(Unconcerned):
    def concerns(self, template):
        return template.volumes


class SilentReserve(Plugin):
    def reserve(self, state, pod, node_name):
        pass

    def unreserve(self, state, pod, node_name):
        pass


class NoUnreserve(Plugin):
    def reserve(self, state, pod, node_name):
        return SUCCESS


class SyncBind(Plugin):
    def bind(self, state, pod, node_name, effects):
        return SKIP


class AsyncFilter(Plugin):
    async def filter(self, state, pod, view):
        return None


class Hinting(Plugin):
    hint = None

    def filter(self, state, pod, view):
        return None

    def events_to_register(self):
        yield EventRegistration(NODE_CHANGE, type(self).hint, template_only=True)


class BareEvents(Hinting):
    def events_to_register(self):
        return [NODE_CHANGE]


class VagueHint(Hinting):
    @staticmethod
    def hint(pod, old, new):
        return None


class HintByName(Hinting):
    @staticmethod
    def hint(pod, old, new):
        return pod.name == "pod"


@pytest.mark.parametrize(
    ("plugin", "said"),
    [
        (NoVerdicts, "filter returns a ndarray, not Verdicts or None"),
        (WrongSize, r"the codes of filter's Verdicts is int8\[4\], not int8\[5\]"),
        (WrongType, r"the codes of filter's Verdicts is int64\[5\], not int8\[5\]"),
        (Skips, "filter answers Skip, which is no verdict on a node"),
        (Wordless, r"filter gives \(\) as the reasons of a rejection"),
        (OneWord, "filter gives 'red' as the reasons of a rejection"),
        (
            TableOrder,
            r'filter says "red" \(Unschedulable\) of node n4 in a view of 5 rows, and yes',
        ),
        (PastTheView, "of node n0 with a pod added in a dry run, .* must read the view"),
        (ChangesItsWords, "in a view of 5 rows"),
        (ForgetsItsWords, "filter's reason number 0 does not mean the same in two answers"),
        (LooksAtLabels, "filter is NodeLocal, but its answers change with the pod's name, labels"),
        (ScoresByName, "score is NodeLocal, but its answers change with the pod's name, labels"),
        (
            LooksAtNeighbours,
            "filter is NodeLocal, but its answers change when a pod comes to another",
        ),
        (
            ScoresNeighbours,
            "score is NodeLocal, but its answers change when a pod comes to another",
        ),
        (ChangesColumns, "filter changes the columns it was shown"),
        (FloatScores, r"score's answer is float64\[5\], not int64\[5\]"),
        (ListScores, r"score's answer is a list, not an array int64\[5\]"),
        (HugeScores, "score gives 101: outside of 0 to 100"),
        (NegativeAfterAll, "normalize gives -1: outside of 0 to 100"),
        (NormalizesInPlace, "normalize changes the array it was given"),
        (RanksInTheView, "score says 0 of node n4 in a view of 5 rows, and 4 in one of all rows"),
        (WrongPreFilter, "pre_filter returns a bool, not a Status or a PreFilterResult"),
        (WrongPreScore, "pre_score returns None, not a Status"),
        (
            RefusesTheUnconcerned,
            "concerns is false, but pods like pod are rejected by pre_filter",
        ),
        (FiltersTheUnconcerned, "concerns is false, but pods like pod are rejected by filter"),
        (ScoresTheUnconcerned, "concerns is false, but pods like pod are scored"),
        (VagueConcern, "concerns returns a tuple, not a bool"),
        (SilentReserve, "reserve returns None, not a Status"),
        (NoUnreserve, "the class lacks unreserve"),
        (SyncBind, r"bind must be a coroutine \(async def\)"),
        (BareEvents, "events_to_register yields a ClusterEvent, not an EventRegistration"),
        (VagueHint, "the hint for NodeAll returns None, not a bool"),
        (HintByName, "is registered as template_only, but its answer changes with the pod's name"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_each_way_of_breaking_it_is_found(plugin, said):
    world = cluster()
    instance = plugin(None, world.handle)
    with pytest.raises(ContractError, match=said) as caught:
        world.check(instance, make_pod(), make_pod(labels={"is": "red"}))
    assert str(caught.value).startswith("Example breaks the contract of plugins:\n- ")


def test_everything_that_is_wrong_is_told_at_once():
    class Bad(HugeScores):
        filter = NoVerdicts.filter
        reserve = NoUnreserve.reserve

    with pytest.raises(ContractError) as caught:
        cluster().check(Bad(), make_pod())
    assert str(caught.value).count("\n- ") == 3


def test_an_epoch_that_follows_the_neighbours_is_fine():
    class Counting(ScoresNeighbours):
        def epoch(self):
            return self.handle.table.pod_count.sum()

    world = cluster()
    world.check(Counting(None, world.handle), make_pod())


def test_a_coroutine_where_none_may_be():
    with pytest.raises(ContractError, match=r"filter must not be a coroutine"):
        contract.check(AsyncFilter(), cluster().handle.table, ())


def test_pods_that_pre_filter_skips_or_refuses_have_no_verdicts_to_check():
    class Choosy(NoVerdicts):
        def pre_filter(self, state, pod):
            return SKIP if pod.labels else unschedulable("no labels")

    cluster().check(Choosy(), make_pod(), make_pod(labels={"a": "b"}))


def test_an_error_is_a_verdict():
    class Failing(Plugin):
        def filter(self, state, pod, view):
            return reject(red(view), Code.Error, "the inventory is out of reach")

    cluster().check(Failing(), make_pod())
    with pytest.raises(Exception, match='running "Example" filter plugin: the inventory is out'):
        cluster().judge(Failing(), make_pod())


def test_a_status_without_reasons_is_no_word_for_a_rejection():
    class Terse(NodeFilter):
        NAME = "Example"

        def filter_node(self, state, pod, info):
            return Status(Code.Unschedulable)

    with pytest.raises(ContractError, match="as the reasons of a rejection"):
        cluster().check(Terse(), make_pod())
