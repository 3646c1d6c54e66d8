"""Nothing is shared, everything comes and goes: the state costs what it holds, and nothing of what has gone stays."""

import gc
import sys
from collections.abc import Callable

import pytest

from app.framework import template_memos
from app.state.columns import labels
from tests.core.scheduler import unshared
from tests.core.scheduler.full_state import FullState
from tests.entries import entries, grown, lower_limits

#: Of these each pod or event has to do with all others, by what they are: pods are tried beside all that are nominated,
#: devices are searched on all nodes, and every event may help each of the pods that are held back.
QUADRATIC = {unshared.nominations, unshared.devices, unshared.missing_claims}

every_step = pytest.mark.parametrize("step", unshared.ALL, ids=lambda step: step.__name__)


@pytest.fixture(autouse=True)
def _forgetful(monkeypatch):
    lower_limits(monkeypatch)


def filled(step, count: int, first: int = 0) -> FullState:
    full = FullState()
    fill(full, step, range(first, first + count))
    return full


def fill(full, step, numbers) -> None:
    for number in numbers:
        step(full, str(number))
    full.schedule()


@every_step
def test_nothing_stays_of_what_has_gone(step):
    full, count = FullState(), 24
    sizes = []
    for number in range(5):
        fill(full, step, range(1000 * number, 1000 * number + count))
        full.remove_all()
        gc.collect()
        sizes.append(entries(full.state, full.framework))
    highest = sizes[1] | sizes[2]
    assert not grown(highest, sizes[3] | sizes[4], by=count // 4)


@every_step
def test_twice_as_much_takes_twice_the_room(step):
    few, many = (entries(f.state, f.framework) for f in (filled(step, 48), filled(step, 96)))
    assert many.total() < 2.3 * few.total()


@pytest.mark.parametrize(
    "step", [s for s in unshared.ALL if s not in QUADRATIC], ids=lambda step: step.__name__
)
def test_twice_as_much_takes_twice_the_calls(step):
    few, many = (calls(lambda n=n: filled(step, n).remove_all()) for n in (128, 256))
    assert many < 2.3 * few


def calls(work: Callable[[], object]) -> int:
    """How many functions are called, of Python's or others, but not what arrays do within."""
    count = 0

    def note(_frame, event, _argument):
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def large_pods(full, name):
    """Pods of some 30 KB, in labels or in the spec; what is kept for them must not keep them."""
    numbers = range(300)
    words = [f"{name}-{number}-word" for number in numbers]
    term = {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": words}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    tolerations = [{"key": word, "operator": "Exists"} for word in words]
    same = {"labelSelector": {"matchLabels": {"app": name}}, "topologyKey": unshared.HOST}
    apart = {"requiredDuringSchedulingIgnoredDuringExecution": [same]}
    full.pod(
        f"spec-{name}",
        {
            "tolerations": tolerations,
            "affinity": {"nodeAffinity": required, "podAntiAffinity": apart},
        },
    )
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "controller": True}
    full.pod(
        f"labels-{name}",
        labels=dict.fromkeys(words, "value"),
        ownerReferences=[owner | {"uid": name * 9000}],
    )


def test_large_pods_that_have_gone_are_let_go(monkeypatch):
    monkeypatch.undo()  # whatever is remembered, and how much of it
    monkeypatch.setattr(labels, "_MAX_COLUMNS", 8)
    monkeypatch.setattr(template_memos, "_SPEC_BYTES", 2**17)
    full = FullState()
    for number in range(4):
        full.node(f"node-{number}", labels={unshared.HOST: f"node-{number}"})
    nodes = dict(full.objects)
    kept = []
    for number in range(4):
        for pod in range(40):
            large_pods(full, f"{number}-{pod}")
        assert full.schedule() == 80
        for key in nodes:
            full.objects.pop(key)
        full.remove_all()
        full.objects.update(nodes)
        gc.collect()
        kept.append(entries(full.state, full.framework))
    assert not grown(kept[0], kept[3], by=1000)
