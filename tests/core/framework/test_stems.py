"""Templates that differ only in what they say about other pods and volumes share what NodeLocal plugins find."""

import pytest

from app.framework import classes, template_memos
from app.framework.interface import CycleState, NodeLocal
from app.framework.optional import IgnoresOtherPods
from app.framework.runner import Framework
from app.framework.testing import make_node, make_pod
from app.state.nominations import NO_PODS
from app.state.table import NodeTable
from tests.core.framework.profiles import profile_of


def spread(app):
    """A constraint on pods with a label of this pod's own."""
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    selector = {"labelSelector": {"matchLabels": {"app": app}}}
    return {"topologySpreadConstraints": [constraint | selector]}


def apart(app):
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": app}}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"affinity": {"podAntiAffinity": required}}


class Counts(NodeLocal):
    """Counts the rows that it is called with."""

    NAME = "Counts"
    rows = 0

    def filter(self, _state, _pod, view):
        self.rows += view.n


class CountsAlike(Counts, IgnoresOtherPods):
    """The same, with the promise."""


def framework_of(plugin, *names):
    table = NodeTable()
    for name in names:
        table.set_node(make_node(name))
    return Framework("default-scheduler", profile_of(plugin), table)


def decide(framework, name, spec):
    pod = make_pod(name, spec=spec)
    memo = framework.memo(pod)
    result = framework.filter(CycleState(memo.local.state), pod, memo, NO_PODS)
    return pod, result.outcome.feasible().tolist()


@pytest.mark.parametrize(("plugin", "rows"), [(CountsAlike, 3), (Counts, 9)])
def test_rows_are_filtered_once_for_templates_with_terms_of_their_own(plugin, rows):
    counting = plugin()
    framework = framework_of(counting, "a", "b", "c")
    pods = [decide(framework, name, spread(name))[0] for name in ("p", "q")]
    pods.append(decide(framework, "r", apart("r"))[0])
    assert len({pod.template for pod in pods}) == 3
    assert counting.rows == rows


def test_a_request_of_its_own_shares_nothing():
    counting = CountsAlike()
    framework = framework_of(counting, "a", "b")
    for number in range(3):
        container = {"name": "c", "resources": {"requests": {"memory": f"{number}Mi"}}}
        decide(framework, f"p-{number}", {"containers": [container], **spread("x")})
    assert counting.rows == 6


def test_with_many_nodes_nothing_is_shared(monkeypatch):
    monkeypatch.setattr(classes, "_CLASSES_FROM", 2)
    counting = CountsAlike()
    framework = framework_of(counting, "a", "b")
    for name in ("p", "q"):
        decide(framework, name, spread(name))
    assert counting.rows == 4


def test_what_is_shared_stays_as_long_as_a_template_uses_it(monkeypatch):
    counting = CountsAlike()
    framework = framework_of(counting, "a", "b")
    kept = [decide(framework, name, spread(name))[0] for name in ("p", "q")]
    monkeypatch.setattr(template_memos, "_MEMO_BYTES", 0)
    monkeypatch.setattr(template_memos, "_MEMO_BYTES_PER_ROW", 0)
    kept.append(decide(framework, "r", spread("r"))[0])  # the others are dropped
    assert counting.rows == 2
    kept.append(decide(framework, "plain", {})[0])  # and r, with what was shared
    assert counting.rows == 4
    decide(framework, "r2", spread("r"))
    assert counting.rows == 6


@pytest.mark.parametrize(
    "other", [apart("x"), {"volumes": [{"name": "v", "hostPath": {"path": "/v"}}]}]
)
def test_stems(other):
    one, two = make_pod("one", spec=spread("x")).template, make_pod("two", spec=other).template
    assert make_pod("three", spec={}).template.stem is None
    assert one.stem is not None
    assert (two.stem or one.stem) == one.stem
    tolerant = {"tolerations": [{"operator": "Exists"}]}
    assert make_pod("four", spec={**spread("x"), **tolerant}).template.stem != one.stem
    assert one.stem == make_pod("five", spec=spread("y")).template.stem
