"""Messages of FailedScheduling are read in linear time, whatever they hold."""

import time

import pytest

from app.tools.shadow.reasons import counts, plugins_of_message

MESSAGE = (
    "0/1000 nodes are available: 1 node(s) were unschedulable, 100 node(s) had untolerated taint(s), 850 node(s) didn't match "
    "Pod's node affinity/selector. no new claims to deallocate, preemption: 0/1000 nodes are available: 1000 Preemption is not "
    "helpful for scheduling."
)


def test_the_reasons_and_what_was_said_about_preemption():
    found = counts(MESSAGE)
    assert found.by_reason == {
        "node(s) were unschedulable": 1,
        "node(s) had untolerated taint(s)": 100,
        "node(s) didn't match Pod's node affinity/selector": 850,
    }
    assert found.preemption.startswith("0/1000 nodes")


def test_a_reason_with_a_comma():
    assert counts("0/3 nodes are available: 2 a, b and c, 1 d.").by_reason == {
        "a, b and c": 2,
        "d": 1,
    }


def test_the_plugins_are_those_of_other_counts():
    other = MESSAGE.replace("1 node(s) were unschedulable, ", "")
    assert plugins_of_message(MESSAGE, other) == ("NodeUnschedulable",)


@pytest.mark.parametrize(
    "part", ["1 a", "1 ", ", ", "1 a, ", ": 1 a", ",", ". ", "1", "preemption: ", "9" * 50 + " "]
)
def test_hostile_messages_take_linear_time(part):
    text = "0/1 nodes are available: " + part * (1_000_000 // len(part)) + "\nx"
    began = time.process_time()
    counts(text)
    assert time.process_time() - began < 2.0
