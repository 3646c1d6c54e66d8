"""The plain manifest gives the rights that the chart gives."""

from pathlib import Path

import pytest
import yaml

from tests.helm.chart import Helm

MANIFEST = Path(__file__).parents[2] / "config" / "manifests" / "second-scheduler.yaml"


@pytest.mark.parametrize("kind", ["ClusterRole", "Role"])
def test_the_plain_manifest_has_the_rules_of_the_chart(helm: Helm, kind: str) -> None:
    plain = [each for each in yaml.safe_load_all(MANIFEST.read_text()) if each["kind"] == kind]
    rendered = helm.render(release="aiokube-scheduler")
    assert [each["rules"] for each in plain] == [each["rules"] for each in rendered.all(kind)]
