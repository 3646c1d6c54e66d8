"""The measure of what recording costs: it turns records on and off within one run."""

import subprocess
import sys

from tests.bench.recording import row


def test_halves_of_one_run_are_compared():
    given = ["--only=^plain$", "--nodes=100", "--pods=400", "--half=20", "--rounds=1"]
    command = [sys.executable, "-m", "tests.bench.recording", *given]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    *_, plain, everything = [line.split(" | ") for line in result.stdout.splitlines()]
    assert (plain[0], everything[0]) == ("| plain", "| all")
    assert plain[1:] == everything[1:]
    assert 7 <= int(plain[1]) <= 9


def test_a_row_has_the_mean_of_the_ratios_and_their_median():
    pairs = [[[2.0, 3.0], [1.0, 1.0]], [[1.0, 1.0], [2.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]]]
    assert row("a", pairs) == "| a | 3 | 1.0000 ± 0.4002 | 1.0000 | 1.4422 ± 0.3662 | 1.0000 |"
    assert row("a", pairs[:1]) == "| a | 1 |  |  |  |  |"
