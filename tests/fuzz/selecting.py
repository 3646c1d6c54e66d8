"""Asks selectors about devices: each has an answer or an error, and takes no longer than it may."""

import time
from random import Random

import msgspec

from app.cel.devices import DeviceSelectorError, Selectors
from app.model.devices import Device
from tests.fuzz.driver import Figures, Slow
from tests.fuzz.kinds import DEVICE
from tests.fuzz.selectors import damaged, expression
from tests.fuzz.shapes import draw, encode
from tests.fuzz.world import BUDGET, Cost, Violation

_DRIVER = "gpu.example.com"


def devices(random: Random, number: int) -> list[Device]:
    """Devices that can be read, some of them odd."""
    made: list[Device] = []
    while len(made) < number:
        text = encode(draw(DEVICE, random, random.choice([0.0, 0.05])))
        try:
            made.append(msgspec.json.decode(text, type=Device))
        except (ValueError, RecursionError):
            continue
    return made


def run(seed: int, number: int, figures: Figures, *, budget: float = BUDGET) -> None:
    """So many expressions. Raises Violation, and what is raised besides DeviceSelectorError."""
    random = Random(seed)
    known = devices(random, 20)
    for _ in range(number):
        text = damaged(random) if random.random() < 0.4 else expression(random)
        selectors = Selectors()
        figures.events += 1
        for device in random.sample(known, 3):
            started = time.process_time()
            figures.results.update([f"selector {_ask(selectors, text, device)}"])
            cost = Cost(
                time.process_time() - started, f"selector of {len(text)} characters: {text[:80]!r}"
            )
            figures.cost(cost, None)
            if cost.seconds > budget:
                raise Slow(f"{cost.seconds * 1000:.0f} ms of CPU for the selector {text[:1000]!r}")


def _ask(selectors: Selectors, text: str, device: Device) -> str:
    try:
        answer = selectors.matches(text, _DRIVER, device)
    except DeviceSelectorError as error:
        str(error).encode()
        return "does not compile" if error.compiling else "failed"
    if not isinstance(answer, bool):
        raise Violation(f"{answer!r} is the answer of {text!r}")
    return str(answer)
