"""Selectors: what they see of devices, and that nothing is asked twice."""

import gc
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.cel import program
from app.cel.devices import DeviceSelectorError, Selectors, compile_error
from app.cel.errors import EvaluationError, EvaluationExpired
from app.model.devices import Device, DeviceAttribute, DeviceCapacity

DRIVER = "gpu.example.com"


def gpu(name: str, family: str = "Volta", memory: str = "16Gi") -> Device:
    return Device(
        name=name,
        attributes={"family": DeviceAttribute(string=family)},
        capacity={"memory": DeviceCapacity(value=memory)},
    )


@pytest.fixture(name="evaluated")
def count_evaluations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The drivers of devices that expressions were evaluated for."""
    evaluated: list[str] = []
    run = program.Program.run

    def counted(self: program.Program, device: program.Map, *more: object) -> tuple[bool, int]:
        evaluated.append(device.find("driver"))
        return run(self, device, *more)

    monkeypatch.setattr(program.Program, "run", counted)
    return evaluated


def test_devices_that_look_alike_are_asked_once(evaluated: list[str]) -> None:
    selectors = Selectors()
    expression = f'device.attributes["{DRIVER}"].family == "Volta"'
    devices = [gpu(f"gpu-{number}") for number in range(10)]
    assert all(selectors.matches(expression, DRIVER, it) for it in devices * 2)
    assert evaluated == [DRIVER]
    assert not selectors.matches(expression, DRIVER, gpu("gpu-10", family="Ampere"))
    assert evaluated == [DRIVER] * 2


def test_the_driver_is_part_of_what_is_seen(evaluated: list[str]) -> None:
    selectors = Selectors()
    device = gpu("gpu-0")
    expression = f'device.driver == "{DRIVER}" && has(device.attributes["{DRIVER}"].family)'
    assert selectors.matches(expression, DRIVER, device)
    assert not selectors.matches(expression, "other.io", device)
    assert selectors.matches(expression, DRIVER, device)
    assert sorted(evaluated) == [DRIVER, "other.io"]


@pytest.mark.parametrize(
    "other",
    [
        gpu("gpu-0", memory="8Gi"),
        Device(name="gpu-0", attributes={"family": DeviceAttribute(string="Volta")}),
        Device(name="gpu-0", allow_multiple_allocations=True),
    ],
)
def test_all_that_is_seen_counts(other: Device) -> None:
    selectors = Selectors()
    expression = (
        'device.capacity["gpu.example.com"].?memory.orValue(quantity("0")) == quantity("16Gi")'
        " && !device.allowMultipleAllocations"
    )
    assert selectors.matches(expression, DRIVER, gpu("gpu-0"))
    assert not selectors.matches(expression, DRIVER, other)


def test_the_same_number_of_another_type_is_another_attribute() -> None:
    selectors = Selectors()
    integer = Device(attributes={"value": DeviceAttribute(integer=1)})
    boolean = Device(attributes={"value": DeviceAttribute(boolean=True)})
    expression = f'device.attributes["{DRIVER}"].value == dyn(1)'
    assert selectors.matches(expression, DRIVER, integer)
    assert not selectors.matches(expression, DRIVER, boolean)


def test_names_without_a_domain_have_that_of_the_driver() -> None:
    device = Device(
        attributes={"a": DeviceAttribute(integer=1), "other.io/a": DeviceAttribute(integer=2)}
    )
    expression = f'device.attributes["{DRIVER}"].a == 1 && device.attributes["other.io"].a == 2'
    assert Selectors().matches(expression, DRIVER, device)


def test_errors_are_told_apart(evaluated: list[str]) -> None:
    selectors = Selectors()
    for _ in range(2):
        with pytest.raises(
            DeviceSelectorError, match=r"^compilation failed: ERROR: <input>:1:1: "
        ) as caught:
            selectors.matches("nothing", DRIVER, gpu("gpu-0"))
        assert caught.value.compiling
        with pytest.raises(DeviceSelectorError, match=r"^no such key: missing$") as caught:
            selectors.matches(f'device.attributes["{DRIVER}"].missing', DRIVER, gpu("gpu-0"))
        assert not caught.value.compiling
    assert evaluated == [DRIVER]


@pytest.mark.parametrize(
    "fields",
    [
        {"attributes": {"odd": DeviceAttribute()}},
        {"attributes": {"odd": DeviceAttribute(version="1")}},
        {"capacity": {"odd": DeviceCapacity(value="lots")}},
    ],
    ids=["no value", "version", "capacity"],
)
@pytest.mark.parametrize("expression", ["true", f'device.attributes["{DRIVER}"].odd == 1'])
def test_no_expression_accepts_a_device_that_cannot_be_read(fields: Any, expression: str) -> None:
    assert Selectors().matches(expression, DRIVER, Device(**fields)) is False


def test_little_is_kept(evaluated: list[str]) -> None:
    selectors = Selectors(limit=2, answers=2)
    for _ in range(2):
        for number in range(3):
            for family in ("Volta", "Ampere", "Turing"):
                device = gpu("gpu-0", family=family)
                expression = f'device.attributes["{DRIVER}"].family == "Volta" && {number} < 5'
                assert selectors.matches(expression, DRIVER, device) == (family == "Volta")
    assert len(evaluated) == 18


def test_no_device_is_kept_that_is_gone() -> None:
    selectors = Selectors()
    for number in range(50):
        assert selectors.matches("true", DRIVER, gpu(f"gpu-{number}"))
    gc.collect()
    assert len(selectors._readable) == 0


def test_an_expression_is_judged_without_a_device() -> None:
    assert compile_error(f'device.attributes["{DRIVER}"].family == "Volta"') is None
    assert compile_error("device.driver") == (
        "must evaluate to bool or the unknown type, not string"
    )


def test_the_language_is_loaded_when_it_is_needed() -> None:
    code = """
import sys
from app.cel.devices import Selectors, compile_error
assert "app.cel.program" not in sys.modules
assert compile_error("true") is None
assert "app.cel.program" in sys.modules and "re2" not in sys.modules
assert compile_error("'a'.matches('a')") is None
assert "re2" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


_VALUES = st.one_of(
    st.builds(DeviceAttribute, string=st.sampled_from(["a", "b"])),
    st.builds(DeviceAttribute, integer=st.integers(0, 1)),
    st.builds(DeviceAttribute, boolean=st.booleans()),
)
_NAMES = st.sampled_from(["x", "y", f"{DRIVER}/z", "other.io/x", "other.io/y"])
_DEVICES = st.builds(
    Device,
    attributes=st.dictionaries(_NAMES, _VALUES, max_size=4),
    capacity=st.dictionaries(
        _NAMES, st.builds(DeviceCapacity, value=st.sampled_from(["1", "2Gi"])), max_size=2
    ),
    allow_multiple_allocations=st.booleans(),
)


@pytest.mark.parametrize(
    "expression",
    [
        f'device.attributes["{DRIVER}"].x == "a"',
        'device.attributes[device.driver].z == dyn(1) || has(device.attributes["other.io"].y)',
        '"x" in device.attributes["other.io"] && !("gpu.example.com" in device.attributes)',
        f'cel.bind(d, device.attributes["{DRIVER}"], d.?x.orValue(d.?y.orValue("n")) == "b")',
        f'cel.bind(d, device.attributes["{DRIVER}"], [0, 1].exists(d, d == 1) && d.x == "a")',
        f'cel.bind(d, device.attributes["{DRIVER}"], d.exists(k, d[k] == "a"))',
        f'device.capacity["{DRIVER}"][?"x"].hasValue() || device.allowMultipleAllocations',
        'optional.of(device.attributes).optMap(all, all["other.io"].x).value() == "a"',
        'cel.bind(all, device.attributes, all["other.io"].?x.orValue("a") == "a")',
        "device.attributes.all(domain, domain == device.driver)",
    ],
)
@settings(max_examples=20)
@given(devices=st.lists(_DEVICES, min_size=2, max_size=12))
def test_answers_are_those_for_the_device_itself(expression: str, devices: list[Device]) -> None:
    selectors = Selectors()
    compiled = program.Program(expression)
    for driver in (DRIVER, "other.io"):
        for device in devices:
            try:
                expected: bool | str = compiled.run(program.view(driver, device))[0]
            except EvaluationError as error:
                expected = str(error)
            assert _answer(selectors, expression, driver, device) == expected


def _answer(selectors: Selectors, expression: str, driver: str, device: Device) -> bool | str:
    try:
        return selectors.matches(expression, driver, device)
    except DeviceSelectorError as error:
        return str(error)


def test_what_is_not_looked_at_does_not_matter(evaluated: list[str]) -> None:
    selectors = Selectors()
    expression = f'cel.bind(d, device.attributes["{DRIVER}"], d.family == "Volta")'
    for number in range(10):
        device = Device(
            attributes={
                "family": DeviceAttribute(string="Volta"),
                "uuid": DeviceAttribute(string=f"GPU-{number}"),
            }
        )
        assert selectors.matches(expression, DRIVER, device)
    assert evaluated == [DRIVER]


# ---------------------------------------------------------------- how long it may take


NESTED = "[1,2,3,4,5,6,7,8,9,10].all(a, " * 3 + "a > 0" + ")" * 3


def test_an_evaluation_ends_when_there_is_no_time_left() -> None:
    """Its result is not known then; with more time it is."""
    selectors, looks = Selectors(), iter(range(1000))
    with pytest.raises(EvaluationExpired):
        selectors.matches(NESTED, DRIVER, gpu("a"), lambda: next(looks) > 2)
    assert next(looks) < 6
    assert selectors.matches(NESTED, DRIVER, gpu("a"))
    assert selectors.matches(NESTED, DRIVER, gpu("a"), lambda: True)


def test_nothing_is_compiled_when_there_is_no_time_left() -> None:
    with pytest.raises(EvaluationExpired):
        Selectors().matches("(", DRIVER, gpu("a"), lambda: True)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("true" + " " * 10_237, "compilation failed: longer than 10240 characters"),
        (" || ".join(["[]"] * 1700), "compilation failed: ERROR: <input>:1:1: "),
    ],
    ids=["long", "many mistakes"],
)
def test_mistakes_are_told_in_few_words(expression: str, text: str) -> None:
    with pytest.raises(DeviceSelectorError) as caught:
        Selectors().matches(expression, DRIVER, gpu("a"))
    assert str(caught.value).startswith(text)
    assert len(str(caught.value)) <= 16 * 1024


def test_a_hundred_mistakes_are_shown() -> None:
    text = compile_error(" || ".join(["[]"] * 150)) or ""
    assert text.count("ERROR:") == 100
    assert text.endswith("\n50 more errors were truncated")
