"""Helm for the tests of the chart."""

import os

import pytest

from tests.helm.chart import Helm, find_program

HINT = "'make helm' builds it, with the Go toolchain"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what runs the Helm client: all who ask for it."""
    for item in items:
        if "helm" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.whole)


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """The Helm client; without one the test is skipped, in CI it fails."""
    program = find_program()
    if program is None:
        if os.environ.get("CI"):
            pytest.fail(f"CI must test the chart, and there is no helm: {HINT}")
        pytest.skip(f"there is no helm: {HINT}")
    run = tmp_path_factory.getbasetemp()
    home = (run.parent if "PYTEST_XDIST_WORKER" in os.environ else run) / "helm"
    home.mkdir(exist_ok=True)
    return Helm(program, home)
