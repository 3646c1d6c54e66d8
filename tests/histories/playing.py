"""Many histories one after the other, and what is said about those that went wrong."""

import gc
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import nullcontext

from tests.histories.bugs import BUGS, GANG_BUGS
from tests.histories.gangs import draw_contest
from tests.histories.history import History, Outcome
from tests.histories.replica import simulated
from tests.histories.shape import CONTEST
from tests.histories.shape import draw as draw_history


def play(
    seeds: Iterable[int], *, bug: str = "", without: Collection[str] = (), contests: bool = False
) -> Iterator[Outcome]:
    """Plays histories, in the order of the seeds; with a bug planted, and without faults and incidents of these names.

    ``contests``: those of gangs.
    """
    draw = draw_contest if contests else draw_history
    planted = (BUGS | GANG_BUGS)[bug]() if bug else nullcontext()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        with simulated(), planted:
            for seed in seeds:
                shape = draw(seed)
                menu = [item for item in shape.menu if item.fault not in without]
                incidents = [each for each in shape.incidents if each.name not in without]
                try:
                    yield History(shape._replace(menu=menu, incidents=incidents)).play()
                except Exception as error:
                    error.add_note(f"in history {seed}")
                    raise
                # At once, while the processor has it at hand. What is left are caches, which are not looked through
                # again.
                gc.collect()
                gc.freeze()
    finally:
        gc.enable()
        gc.unfreeze()


def told(outcome: Outcome) -> str:
    """The story of a history, for people."""
    lines = [f"history {outcome.seed}: {outcome.theme}"]
    lines += [f"{time:11.6f}  {who:20} {what}" for time, who, what in outcome.story]
    lines += [f"violated: {text}" for text in outcome.violations]
    contest = " --contests" if outcome.theme == CONTEST else ""
    lines.append(f"repeat it: python -m tests.histories --seed {outcome.seed}{contest}")
    return "\n".join(lines)


def table(counts: Counter[tuple[str, str]]) -> str:
    """Which faults have hit which kinds of requests, how often."""
    by_kind: dict[str, list[str]] = {}
    for (kind, fault), count in sorted(counts.items()):
        by_kind.setdefault(kind, []).append(f"    {fault:30} {count:8}")
    lines: list[str] = []
    for kind, rows in by_kind.items():
        lines += [kind, *rows]
    return "\n".join(lines)
