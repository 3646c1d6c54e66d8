"""The plain manifest gives the rights that the chart gives."""

from pathlib import Path

import pytest
import yaml

from tests.helm.chart import Helm

MANIFESTS = Path(__file__).parents[2] / "config" / "manifests"
MODES = {"second-scheduler.yaml": "scheduler", "shadow.yaml": "shadow"}


@pytest.mark.parametrize("kind", ["ClusterRole", "Role"])
@pytest.mark.parametrize("file", MODES)
def test_the_plain_manifest_has_the_rules_of_the_chart(helm: Helm, file: str, kind: str) -> None:
    text = (MANIFESTS / file).read_text()
    plain = [each for each in yaml.safe_load_all(text) if each["kind"] == kind]
    rendered = helm.render({"mode": MODES[file]}, release="aiokube-scheduler")
    assert [each["rules"] for each in plain] == [each["rules"] for each in rendered.all(kind)]
