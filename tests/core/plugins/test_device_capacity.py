"""What requests take of the capacity of devices (KEP-5075)."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.model.devices import DeviceCapacity
from app.model.quantity import NANO
from app.plugins.dynamic_resources.capacity import Capacity, DeviceCapacities

STEPS = {"default": "2", "validRange": {"min": "2", "step": "3", "max": "9"}}
OPEN = {"default": "1Gi", "validRange": {"min": "512Mi"}}
VALUES = {"default": "4", "validValues": ["1", "4", "10"]}


def capacity(value="10", policy=None):
    return msgspec.convert({"value": value, "requestPolicy": policy}, DeviceCapacity)


def taken(asked, policy=None, value="10"):
    amount = Capacity(capacity(value, policy)).taken(asked)
    return None if amount is None else amount.text


@pytest.mark.parametrize(
    ("policy", "asked", "expected"),
    [
        (None, None, "10"),
        (None, "3", "3"),
        (None, "0.5", "500m"),
        ({}, "30", "30"),
        (STEPS, None, "2"),
        (STEPS, "1", "2"),
        (STEPS, "2", "2"),
        (STEPS, "2.5", "5"),
        (STEPS, "6", "8"),
        (STEPS, "9", None),
        (OPEN, "1", "512Mi"),
        (OPEN, "1500Mi", "1500Mi"),
        (OPEN, "2048Mi", "2Gi"),
        (VALUES, None, "4"),
        (VALUES, "500m", "1"),
        (VALUES, "5", "10"),
        (VALUES, "11", None),
    ],
)
def test_rounding(policy, asked, expected):
    assert taken(asked, policy) == expected


MOST = 2**63 - 1
UNBOUNDED = {"default": "2", "validRange": {"min": "2", "step": "3"}}
NOT_ROUNDED = "capacity request cannot be represented in the device's range arithmetic: "


@pytest.mark.parametrize(
    ("policy", "asked", "value", "expected"),
    [
        (UNBOUNDED, "5", "10", ""),
        (UNBOUNDED, str(MOST - (MOST - 2) % 3), "10", ""),
        (
            UNBOUNDED,
            str(MOST),
            "10",
            f"rounding request {MOST} up to the next step passes MaxInt64",
        ),
        (UNBOUNDED, str(MOST + 1), "10", f"request {MOST + 1} exceeds MaxInt64"),
        (OPEN, str(MOST + 1), "10", ""),
        (None, str(MOST + 1), "10", ""),
        (None, "-1", "10", "capacity value is negative"),
        (VALUES, "-1", "10", ""),
        (None, None, "-10", "capacity value is negative"),
        ({"default": "-1"}, None, "10", "capacity value is negative"),
        (
            {"default": "-1", "validRange": {"min": "-3", "step": "1"}},
            "-2",
            "10",
            "capacity value is negative",
        ),
    ],
)
def test_amounts_that_are_errors(policy, asked, value, expected):
    wanted = {} if asked is None else {"a": asked}
    text = DeviceCapacities({"a": capacity(value, policy)}).fault(wanted)
    start = NOT_ROUNDED if "MaxInt64" in expected else ""
    assert text == (f'capacity "a": {start}{expected}' if expected else "")


def test_a_capacity_that_is_not_there_is_no_error():
    """Another device may have it."""
    assert DeviceCapacities({"a": capacity("-1")}).fault({"b": "1"}) == ""


def test_a_default_is_always_allowed():
    assert taken(None, {**VALUES, "default": "3"}) == "3"


def test_a_capacity_that_is_not_there_cannot_be_had():
    capacities = DeviceCapacities({"b": capacity("2"), "a": capacity("1")})
    assert capacities.names == ("a", "b")
    assert capacities.limits == (NANO, 2 * NANO)
    assert capacities.taken({"c": "1"}) is None
    assert [each.nanos for each in capacities.taken({"b": "1"})] == [NANO, NANO]
    assert capacities.in_use({"b": 7, "gone": 1}) == (0, 7)


@given(
    asked=st.integers(1, 100),
    least=st.integers(1, 20),
    step=st.integers(1, 7),
    steps=st.integers(0, 20),
)
def test_steps(asked, least, step, steps):
    most = least + step * steps
    policy = {
        "default": str(least),
        "validRange": {"min": str(least), "step": str(step), "max": str(most)},
    }
    amount = Capacity(capacity("1000", policy)).taken(str(asked))
    allowed = range(max(asked, least), most + 1)
    expected = next((each for each in allowed if (each - least) % step == 0), None)
    assert (None if amount is None else amount.nanos) == (
        None if expected is None else expected * NANO
    )
