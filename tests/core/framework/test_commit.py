"""PostFilter, and Reserve to PostBind: who is asked, what ends it, and in which words (docs/spec/framework.md)."""

import pytest

from app.framework.interface import PermitResult, PostFilterResult
from app.framework.profile import ProfilePlugins
from app.framework.runner import Framework
from app.framework.testing import FakeEffects, make_pod
from app.model.status import (
    SKIP,
    SUCCESS,
    Code,
    SchedulingError,
    Status,
    unresolvable,
    unschedulable,
)
from app.state.table import NodeTable
from tests.core.framework.coroutines import finish

NO, NEVER = unschedulable("no"), unresolvable("never")
LATER = Status(Code.Pending, ("later",))
WAIT = Status(Code.Wait)
BROKEN = Status(Code.Error, ("broken",))


class Says:
    """A plugin of one point that gives one answer, and notes when it is asked."""

    def __init__(self, name, point, answer, asked):
        self.NAME = name
        setattr(
            self,
            point,
            self._waiting if point in {"pre_bind", "bind", "post_filter"} else self._at_once,
        )
        self._answer, self._asked = answer, asked

    def _at_once(self, *_args):
        self._asked.append(self.NAME)
        return self._answer

    async def _waiting(self, *args):
        return self._at_once(*args)

    def unreserve(self, _state, _pod, _node_name):
        self._asked.append(f"not {self.NAME}")
        if isinstance(self._answer, Exception):
            raise self._answer


class Profile:
    """A profile whose plugins a, b, c... at one point give these answers. ``asked``: their names, in order."""

    def __init__(self, point, method, *answers):
        self.asked = []
        names = "abcdefgh"
        self.plugins = [
            Says(n, method, answer, self.asked) for n, answer in zip(names, answers, strict=False)
        ]
        self.framework = Framework(
            "profile", ProfilePlugins({point: self.plugins}, {}), NodeTable()
        )

    def run(self, method, *more):
        """What an extension point that does not wait answers."""
        return getattr(self.framework.commit, method)(None, make_pod(), "node", *more)


# ---------------------------------------------------------------- Reserve


@pytest.mark.parametrize(
    ("answers", "verdict", "asked"),
    [
        pytest.param([SUCCESS, SUCCESS], SUCCESS, "ab", id="all agree"),
        pytest.param([SUCCESS, NO, SUCCESS], NO.by("b"), "ab", id="a rejection ends it"),
        pytest.param([NEVER], NEVER.by("a"), "a", id="for good"),
        pytest.param([LATER], LATER.by("a"), "a", id="pending is a rejection"),
        pytest.param(
            [BROKEN, SUCCESS],
            Status(Code.Error, ('running Reserve plugin "a": broken',), "a"),
            "a",
            id="an error ends it",
        ),
    ],
)
def test_reserve(answers, verdict, asked):
    profile = Profile("reserve", "reserve", *answers)
    assert profile.run("reserve") == verdict
    assert "".join(profile.asked) == asked


def test_unreserve_tells_everybody_last_first():
    profile = Profile("reserve", "reserve", SUCCESS, RuntimeError("oops"), SUCCESS)
    with pytest.raises(ExceptionGroup) as caught:
        profile.run("unreserve")
    assert profile.asked == ["not c", "not b", "not a"]
    [fault] = caught.value.exceptions
    assert fault.__notes__ == ["plugin b"]


# ---------------------------------------------------------------- Permit

HELD = Status(Code.Wait, ("one or more plugins asked to wait and no plugin rejected pod",))


@pytest.mark.parametrize(
    ("answers", "verdict", "waits", "asked"),
    [
        pytest.param([(SUCCESS, 0), (SUCCESS, 0)], SUCCESS, {}, "ab", id="all agree"),
        pytest.param([(WAIT, 5), (SUCCESS, 0)], HELD, {"a": 5}, "ab", id="one waits"),
        pytest.param([(WAIT, 5), (WAIT, 7)], HELD, {"a": 5, "b": 7}, "ab", id="two wait"),
        pytest.param([(WAIT, 901)], HELD, {"a": 900}, "a", id="15 minutes at most"),
        pytest.param([(WAIT, 5), (NO, 0)], NO.by("b"), {}, "ab", id="a rejection beats a wait"),
        pytest.param([(NO, 0), (WAIT, 5)], NO.by("a"), {}, "a", id="a rejection ends it"),
        pytest.param(
            [(WAIT, 5), (BROKEN, 0), (SUCCESS, 0)],
            Status(Code.Error, ('running Permit plugin "b": broken',), "b"),
            {},
            "ab",
            id="an error ends it",
        ),
    ],
)
def test_permit(answers, verdict, waits, asked):
    profile = Profile("permit", "permit", *(PermitResult(*answer) for answer in answers))
    assert profile.run("permit") == (verdict, waits)
    assert "".join(profile.asked) == asked


# ---------------------------------------------------------------- PreBind, Bind, PostBind


def test_pre_bind_leaves_out_who_has_nothing_to_do():
    profile = Profile("preBind", "pre_bind_pre_flight", SUCCESS, SKIP, SUCCESS)
    del profile.plugins[2].pre_bind_pre_flight
    assert [plugin.NAME for plugin in profile.run("pre_bind_work")] == ["a", "c"]


@pytest.mark.parametrize("answer", [NO, NEVER, LATER, BROKEN])
def test_a_pre_flight_that_is_neither_success_nor_skip_is_an_error(answer):
    profile = Profile("preBind", "pre_bind_pre_flight", answer)
    with pytest.raises(SchedulingError) as caught:
        profile.run("pre_bind_work")
    assert str(caught.value) == f'running PreBindPreFlight "a": {answer.message}'


@pytest.mark.parametrize("answer", [NO, BROKEN])
def test_pre_bind_stops_at_the_first_that_fails(answer):
    profile = Profile("preBind", "pre_bind", SUCCESS, answer, SUCCESS)
    with pytest.raises(SchedulingError) as caught:
        finish(profile.run("pre_bind", FakeEffects(), profile.plugins))
    assert str(caught.value) == f'running PreBind plugin "b": {answer.message}'
    assert profile.asked == ["a", "b"]


@pytest.mark.parametrize(("answers", "asked"), [([SUCCESS, SUCCESS], "a"), ([SKIP, SUCCESS], "ab")])
def test_the_first_bind_plugin_that_does_not_skip_binds(answers, asked):
    profile = Profile("bind", "bind", *answers)
    finish(profile.run("bind", FakeEffects()))
    assert "".join(profile.asked) == asked


@pytest.mark.parametrize(
    ("answers", "fault", "asked"),
    [
        pytest.param(
            [SKIP, BROKEN, SUCCESS], 'running Bind plugin "b": broken', "ab", id="an error"
        ),
        pytest.param([NO, SUCCESS], 'running Bind plugin "a": no', "a", id="so is a rejection"),
        pytest.param([SKIP, SKIP], "no Bind plugin took the pod", "ab", id="nobody"),
    ],
)
def test_faults_of_bind(answers, fault, asked):
    profile = Profile("bind", "bind", *answers)
    assert finish(profile.run("bind", FakeEffects())) == Status(Code.Error, (fault,))
    assert "".join(profile.asked) == asked


def test_post_bind_tells_everybody():
    profile = Profile("postBind", "post_bind", None, None)
    profile.run("post_bind")
    assert profile.asked == ["a", "b"]


# ---------------------------------------------------------------- PostFilter


@pytest.mark.parametrize(
    ("answers", "result", "asked"),
    [
        pytest.param([], None, "", id="no such plugin"),
        pytest.param([(NO, None)], (NO, None), "a", id="no"),
        pytest.param(
            [(NO, None), (unschedulable("nor so"), None)],
            (unschedulable("no", "nor so"), None),
            "ab",
            id="reasons add up",
        ),
        pytest.param(
            [(LATER, None), (NO, None)], (unschedulable("later", "no"), None), "ab", id="pending"
        ),
        pytest.param([(NO, ""), (NO, None)], (unschedulable("no", "no"), ""), "ab", id="clears"),
        pytest.param(
            [(NO, "x"), (NO, "y")], (unschedulable("no", "no"), "y"), "ab", id="last word"
        ),
        pytest.param(
            [(NO, ""), (SUCCESS, "x"), (NO, "")], (SUCCESS, "x"), "ab", id="success ends it"
        ),
        pytest.param([(NEVER, None), (SUCCESS, "x")], (NEVER, None), "a", id="for good ends it"),
        pytest.param(
            [(NO, ""), (BROKEN, "x"), (SUCCESS, "x")],
            (BROKEN.by("b"), None),
            "ab",
            id="an error ends it, and leaves the nomination",
        ),
    ],
)
def test_post_filter(answers, result, asked):
    profile = Profile(
        "postFilter", "post_filter", *(PostFilterResult(*answer) for answer in answers)
    )
    got = finish(profile.framework.commit.post_filter(None, make_pod(), None, FakeEffects()))
    assert got == (None if result is None else PostFilterResult(*result))
    assert "".join(profile.asked) == asked
    assert [profile.framework.commit.post_filter_calls[n] for n in "ab"] == [
        n in asked for n in "ab"
    ]
