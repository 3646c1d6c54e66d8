"""Which verdicts there are, and how many nodes each holds for."""

import collections
import random

import numpy as np
import pytest

from app.framework.diagnosis import NONE, FilterOutcome


@pytest.mark.parametrize("seed", range(20))
def test_refusals_are_counted_by_plugin_and_reason(seed):
    dice = random.Random(seed)
    n, span = dice.choice((1, 40, 3000)), dice.choice((1, 8, 5000))
    low = dice.choice((0, -span))
    rows = [
        (dice.choice((0, 1, int(NONE))), dice.randrange(low, low + span), dice.random() < 0.9)
        for _ in range(n)
    ]
    plugin, reasons, considered = map(np.array, zip(*rows, strict=True))
    outcome = FilterOutcome(
        ["A", "B"],
        plugin.astype(np.int8),
        np.full(n, 2, np.int8),
        reasons.astype(np.int32),
        {0: lambda number: (f"a{number}",), 1: lambda number: (f"b{number}",)},
        considered,
    )
    found = [
        (status.plugin, status.reasons, nodes)
        for status, nodes in outcome.rejection_counts(outcome.rejected())
    ]
    wanted = collections.Counter(row[:2] for row in rows if row[2] and row[0] != NONE)
    assert found == [
        ("AB"[plugin], (f"{'ab'[plugin]}{reason}",), count)
        for (plugin, reason), count in sorted(wanted.items())
    ]
