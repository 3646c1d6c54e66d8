"""Measuring: what is told of extension points and plugins, and that nothing else changes."""

import pytest

from app.framework.probe import NULL_PROBE, Participation, Stopwatch
from app.framework.runner import PreFilterRejected
from app.model.status import SUCCESS, Code, Status, unschedulable
from tests.core.framework.coroutines import finish


class Probe:
    """Whose clock advances by one with each look; samples every ``every``-th extension point."""

    def __init__(self, every=1):
        self.time, self.every, self.told = 0.0, every, []

    def now(self):
        self.time += 1.0
        return self.time

    def next_sample(self):
        return self.every

    def extension_point(self, point, status, profile):
        return lambda seconds: self.told.append((profile, point, status, seconds))

    def plugin(self, plugin, point, status):
        return lambda seconds: self.told.append((plugin, point, status, seconds))


class Plugin:
    NAME = "Mine"

    def __init__(self, answer=SUCCESS):
        self.answer = answer

    def filter(self, *args):
        self.seen = args
        return self.answer

    def score(self, *_args):
        return [1, 2]

    async def bind(self, *_args):
        return self.answer


def test_an_extension_point_is_told_with_its_status():
    probe = Probe(every=99)
    watch = Stopwatch("mine", probe)
    assert watch.point("Reserve", lambda a, b: (a, b), 1, 2) == (1, 2)
    assert watch.point("Reserve", lambda: unschedulable("no")).code is Code.Unschedulable
    assert watch.point("Permit", lambda: (Status(Code.Wait), {}))[0].code is Code.Wait
    assert watch.point("Filter", lambda: None) is None
    assert probe.told == [
        ("mine", "Reserve", "Success", 1.0),
        ("mine", "Reserve", "Unschedulable", 1.0),
        ("mine", "Permit", "Wait", 1.0),
        ("mine", "Filter", "Success", 1.0),
    ]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("why"), "Error"),
        (PreFilterRejected(unschedulable("no"), frozenset({"Mine"})), "Unschedulable"),
    ],
)
def test_what_is_raised_is_told_and_passed_on(error, status):
    probe = Probe(every=99)

    def fail():
        raise error

    with pytest.raises(type(error)):
        Stopwatch("mine", probe).point("PreFilter", fail)
    assert probe.told == [("mine", "PreFilter", status, 1.0)]


def test_plugins_are_themselves_unless_they_are_timed():
    watch, plugins = Stopwatch("mine", Probe(every=99)), [Plugin()]
    assert watch.point("Filter", lambda: watch.each(plugins)) is plugins
    assert watch.one(plugins[0]) is plugins[0]


def test_plugins_are_timed_now_and_then():
    probe = Probe(every=2)
    watch, plugin = Stopwatch("mine", probe), Plugin()

    def run():
        return [p.filter("state", "pod") for p in watch.each([plugin])]

    for _ in range(4):
        assert watch.point("Filter", run) == [SUCCESS]
    assert plugin.seen == ("state", "pod")
    assert [told[0] for told in probe.told] == ["mine", "Mine", "mine", "mine", "Mine", "mine"]
    assert ("Mine", "Filter", "Success", 1.0) in probe.told


def test_the_stand_in_is_the_plugin_in_all_other_respects():
    watch, plugin = Stopwatch("mine", Probe()), Plugin(unschedulable("no"))

    def look():
        stand_in = watch.one(plugin)
        assert stand_in is not plugin
        assert stand_in.NAME == "Mine"
        assert stand_in.answer is plugin.answer
        assert not hasattr(stand_in, "normalize")
        assert stand_in.score() == [1, 2]
        assert stand_in is watch.one(plugin)
        plugin.answer = SUCCESS
        assert stand_in.answer is SUCCESS

    watch.point("Score", look)
    assert watch.one(plugin) is plugin, "the point is over"


def test_points_that_wait():
    probe = Probe(every=1)
    watch, plugin = Stopwatch("mine", probe), Plugin(Status(Code.Skip))

    async def bind():
        return [await p.bind("pod") for p in watch.each_waiting([plugin])]

    assert finish(watch.waiting_point("Bind", bind())) == [Status(Code.Skip)]
    assert ("Mine", "Bind", "Skip", 1.0) in probe.told
    assert probe.told[-1][:3] == ("mine", "Bind", "Success")


def test_a_point_that_fails_while_it_waits():
    probe = Probe()

    async def fail():
        raise ValueError("why")

    with pytest.raises(ValueError, match="why"):
        finish(Stopwatch("mine", probe).waiting_point("PreBind", fail()))
    assert probe.told[0][:3] == ("mine", "PreBind", "Error")


def test_without_a_probe_nothing_is_ever_timed():
    watch, plugin = Stopwatch("mine", NULL_PROBE), Plugin()
    for _ in range(1000):
        assert watch.point("Filter", lambda: watch.one(plugin)) is plugin


def test_participation():
    taking_part = Participation(
        {"PreFilter": ["Fit", "Ports"], "Filter": ["Fit", "Ports", "Name"], "PreScore": ["Fit"]}
    )
    for skipped in (["Ports"], ["Ports"], []):
        taking_part.filtered(frozenset(skipped))
    taking_part.scored(("Fit", "Image"))
    assert taking_part.counts() == {
        ("Fit", "PreFilter"): 3,
        ("Ports", "PreFilter"): 1,
        ("Fit", "Filter"): 3,
        ("Ports", "Filter"): 1,
        ("Name", "Filter"): 3,
        ("Fit", "Score"): 1,
        ("Fit", "PreScore"): 1,
        ("Image", "Score"): 1,
    }
