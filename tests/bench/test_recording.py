"""The measure of what recording costs: it turns records on and off within one run."""

import subprocess
import sys

from tests.bench.recording import row


def test_halves_of_one_run_are_compared():
    given = ["--only=^plain$", "--nodes=100", "--pods=400", "--half=20", "--rounds=2"]
    command = [sys.executable, "-m", "tests.bench.recording", *given]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    *_, plain, everything = [line.split(" | ") for line in result.stdout.splitlines()]
    assert (plain[0], everything[0]) == ("| plain", "| all")
    assert plain[1:] == everything[1:]
    assert 14 <= int(plain[1]) <= 18


def test_a_row_has_the_mean_of_the_ratios_and_their_median():
    pairs = [[[2.0, 3.0], [1.0, 1.0]], [[1.0, 1.0], [2.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]]]
    runs = [[pair] for pair in pairs]
    assert row("a", runs) == "| a | 3 | 1.0000 ± 0.4002 | 1.0000 | 1.4422 ± 0.3662 | 1.0000 |"
    assert row("a", [pairs]) == "| a | 3 |  |  |  |  |"
    assert row("a", [*runs, []]) == row("a", runs)


def test_pairs_of_one_run_count_as_one_for_the_error():
    high, low = [[2.0, 2.0], [1.0, 1.0]], [[1.0, 1.0], [2.0, 2.0]]
    assert row("a", [[high, low], [low, high]]).split(" | ")[2] == "1.0000 ± 0.0000"
    apart = row("a", [[high, high], [low, low]]).split(" | ")[2]
    assert apart == row("a", [[high], [low]]).split(" | ")[2] == "1.0000 ± 0.6931"
