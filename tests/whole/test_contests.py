"""Some contests of gangs with real processes; more of them: ``python -m tests.whole.contests``."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.whole import contests
from tests.whole.contests import FLAGS, PODS, Contests, Gang, problems
from tests.whole.harness import ApiServer, running_cluster
from tests.whole.real import NEEDS_REAL, RealApiServer

pytestmark = pytest.mark.whole

COUNT = 3


@pytest.fixture(params=["embedded", pytest.param("real", marks=NEEDS_REAL)])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ApiServer]:
    if request.param == "embedded":
        with running_cluster(tmp_path, "--no-kubelets", *FLAGS) as embedded:
            yield embedded
    else:
        with RealApiServer(tmp_path, *FLAGS).running() as real:
            yield real


def test_no_gang_is_left_in_part_and_each_runs(server: ApiServer, tmp_path: Path) -> None:
    with contests.contests(server, tmp_path) as played:
        for seed in range(COUNT):
            played.play(seed)
            assert problems(played) == []
        assert played.done


def test_half_a_gang_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bind_one(self: Contests, gangs: dict[str, Gang]) -> str | None:
        body = {"metadata": {"name": "c0-g0-0"}, "target": {"kind": "Node", "name": "n0"}}
        cluster.call("POST", f"{PODS}/c0-g0-0/binding", body)
        return wait(self, gangs)

    wait = Contests._next_winner
    monkeypatch.setattr(Contests, "_next_winner", bind_one)
    monkeypatch.setattr(Contests, "_start_scheduler", lambda self: self.log.touch())
    monkeypatch.setattr(Contests, "_strike", lambda _self: None)
    monkeypatch.setattr(contests, "LONGEST", 0.5)
    with (
        running_cluster(tmp_path, "--no-kubelets", *FLAGS) as cluster,
        contests.contests(cluster, tmp_path) as played,
    ):
        played.play(0)
        [found] = problems(played)
    assert found.endswith(" runs; bound: {'c0-g0': 1}")
