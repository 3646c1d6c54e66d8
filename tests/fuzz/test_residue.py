"""Nothing grows with what has gone: the same history again and again, under other names each time."""

import re
from random import Random

import pytest

from tests.fuzz.census import census, grown, renamed
from tests.fuzz.driver import Figures, History, in_new_loop
from tests.fuzz.histories import Guests
from tests.fuzz.world import running

ROUNDS = 5
#: What is kept up to a limit of its own, whatever it is of.
BOUNDED = re.compile(
    r"_columns\[\]\._columns"  # columns of label keys
    r"|_table\._latest"  # rows of the latest generations
    r"|_columns\[\]\.(_code_of|_index|values)"  # codes of lists of taints, renumbered when there are many
    r"|_selectors\._expressions"  # compiled selectors of devices
    r"|nominator\._changed_at"
    r"|_selectors\._(by_services|kept)"  # selectors by default of families of pods
    r"|_indexes\[\]\.(_counters|_index)"  # counters by selector
    r"|watch\._proxies"  # one for each plugin
)


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_grows_with_what_has_gone(seed):
    events = [event for event in Guests(Random(seed), harm=0.0).events(80) if event.plain]
    counts = []

    async def main():
        async with running() as world:
            for number in range(ROUNDS):
                await History(world, Figures(), budget=1.0).run(renamed(events, 1000 + number))
                counts.append(census(world))

    in_new_loop(main)
    assert sum(counts[0].values()) > 1000
    found = grown(counts[ROUNDS // 2], counts[-1])
    assert {path: numbers for path, numbers in found.items() if not BOUNDED.search(path)} == {}
