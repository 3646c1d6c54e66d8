"""The virtual clock, and processes that are stopped."""

import asyncio

import pytest

from tests.histories.simulation import TURN_SECONDS, ProcessLoop, Simulation


@pytest.fixture
def simulation():
    simulation = Simulation()
    yield simulation
    for loop in list(simulation.loops):
        simulation.end(loop)


def _end(simulation: Simulation) -> None:
    simulation.finished = True


@pytest.mark.parametrize("others", [0, 1])
def test_a_busy_process_does_nothing_while_it_is_frozen(simulation, others):
    turns = []

    async def work():
        for _ in range(1000):
            turns.append(simulation.now)
            await asyncio.sleep(0)

    frozen = ProcessLoop(simulation)
    frozen.create_task(work())
    for _ in range(others):
        ProcessLoop(simulation).create_task(asyncio.sleep(20.0))
    simulation.at(100 * TURN_SECONDS, lambda: frozen.freeze(5.0))
    simulation.at(10.0, _end, simulation)
    simulation.run()
    before = [time for time in turns if time < 5.0]
    assert len(turns) == 1000
    assert max(before) < 102 * TURN_SECONDS
    assert 95 < len(before) < 105
