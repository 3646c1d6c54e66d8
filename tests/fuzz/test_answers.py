"""Whatever an extender answers, the attempt ends: with the pod bound, rejected, or failed for that extender's sake."""

import asyncio
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.wire import extender_v1 as wire
from app.wire.extender_v1 import AnswerError
from tests.fuzz import asking
from tests.fuzz.answers import answer
from tests.fuzz.driver import Figures

READ = {
    "filter": wire.read_filter,
    "prioritize": wire.read_prioritize,
    "preempt": wire.read_preempt,
    "bind": wire.read_bind,
}


@pytest.mark.parametrize("verb", READ)
@given(st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_valid_answers_are_read(verb, random):
    READ[verb](answer(verb, random, 0.0))


@pytest.mark.parametrize("verb", READ)
@given(st.randoms(use_true_random=False), st.sampled_from([0.02, 0.2]))
@settings(max_examples=60)
def test_other_answers_are_read_or_refused(verb, random, harm):
    body = answer(verb, random, harm)
    try:
        READ[verb](body)
    except AnswerError as error:
        str(error).encode()


@pytest.mark.parametrize("seed", range(4))
def test_every_attempt_ends(seed):
    figures = Figures()
    asking.run(seed, 12, figures)
    assert sum(figures.results.values()) >= 12


def test_every_call_ends():
    """Bytes over real connections."""
    answered, failed = asyncio.run(asking.call(Random(1), 120))
    assert answered > 10
    assert failed > 10
