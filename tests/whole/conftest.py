"""Fixtures that several whole tests use."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.whole.harness import ApiServer, Schedulers, running_cluster
from tests.whole.real import NEEDS_REAL, RealApiServer


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=NEEDS_REAL)])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiServer]:
    """The embedded cluster without nodes, then a real API server where there is one."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "embedded":
        with running_cluster(folder, "--nodes=0", "--no-kubelets") as embedded:
            yield embedded
    else:
        with RealApiServer(folder).running() as real:
            yield real


@pytest.fixture
def schedulers(cluster: ApiServer, tmp_path: Path) -> Iterator[Schedulers]:
    """Starts schedulers for ``cluster``, a fixture of each module, and ends them."""
    started = Schedulers(cluster, tmp_path)
    yield started
    started.end()
