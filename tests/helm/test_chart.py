"""Every values file of the matrix: linted, rendered, and what comes out is valid, consistent and restricted."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from app.settings.load import Loaded, load
from tests.helm.chart import (
    CHART,
    EXAMPLES,
    NAMESPACE,
    NEWEST,
    OLDEST,
    RELEASE,
    ROOT,
    VALUES,
    Helm,
    Rendered,
)
from tests.helm.kubernetes_schema import mistakes
from tests.helm.rules import broken_references, unrestricted

MATRIX = [*VALUES, *EXAMPLES]


@pytest.fixture(params=MATRIX, ids=lambda file: f"{file.parent.name}-{file.stem}")
def file(request: pytest.FixtureRequest) -> Path:
    """A values file."""
    path: Path = request.param
    return path


@pytest.fixture
def rendered(helm: Helm, file: Path) -> Rendered:
    """What the file makes of the chart."""
    return helm.render({}, "--values", str(file))


def test_lints(helm: Helm, file: Path) -> None:
    done = helm.run(
        *("lint", "--strict", "--quiet", "--namespace", NAMESPACE, "--kube-version", NEWEST),
        *("--values", str(file), str(CHART)),
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_is_valid_by_the_schema_of_kubernetes(rendered: Rendered) -> None:
    assert [said for each in rendered.objects for said in mistakes(each)] == []


def test_fits_together(rendered: Rendered) -> None:
    assert broken_references(rendered) == []


def test_pods_are_restricted(rendered: Rendered) -> None:
    allowed = {"hostNetwork"} if rendered.pod.get("hostNetwork") else set()
    found = {said for _, spec in rendered.pod_specs() for said in unrestricted(spec)}
    assert found == allowed


@pytest.mark.parametrize("release", ["a.b.c", "123", "on", "r" * 53])
def test_releases_may_have_odd_names(helm: Helm, release: str) -> None:
    """Valid ones: with dots, and such as YAML would take for numbers or truth values."""
    rendered = helm.render({}, "--namespace", "42", release=release)
    assert [said for each in rendered.objects for said in mistakes(each)] == []
    assert broken_references(helm.render(release=release)) == []
    assert rendered.deployment["template"]["metadata"]["labels"].items() >= {
        ("app.kubernetes.io/instance", release)
    }
    name = rendered.one("Service")["metadata"]["name"]
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name)
    assert {each["metadata"].get("namespace", "42") for each in rendered.objects} == {"42"}


def test_the_scheduler_accepts_its_configuration(rendered: Rendered, tmp_path: Path) -> None:
    loaded = configuration(rendered, tmp_path)
    assert [str(warning) for warning in loaded.warnings] == []


@pytest.mark.parametrize("kube_version", [OLDEST, NEWEST])
def test_is_rendered_alike_each_time_and_everywhere(helm: Helm, kube_version: str) -> None:
    """No upgrade, of the release or the cluster, restarts pods without a reason."""
    everything = ("--values", str(next(file for file in VALUES if file.stem == "everything")))
    again = ("template", RELEASE, str(CHART), "--namespace", NAMESPACE, *everything)
    done = helm.run(*again, "--kube-version", kube_version)
    assert (done.returncode, done.stdout) == (0, helm.render({}, *everything).text)


def configuration(rendered: Rendered, directory: Path) -> Loaded:
    """The configuration as the scheduler reads it."""
    path = directory / "scheduler.yaml"
    path.write_text(rendered.config_text)
    return load(path)


def test_the_chart_is_of_the_project_s_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert chart["appVersion"] == project["version"]
    assert chart["name"] == project["name"] == CHART.name
