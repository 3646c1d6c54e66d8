"""The chart's metadata against what Artifact Hub documents for annotations of charts, and against helm's strict
lint.
"""

import re
import subprocess
import xml.etree.ElementTree as ET
from typing import Any

import jsonschema
import pytest
import yaml

from tests.helm.chart import CHART, ROOT, find_program

METADATA: dict[str, Any] = yaml.safe_load((CHART / "Chart.yaml").read_text())
PREFIX = "artifacthub.io/"
_URL = {"type": "string", "pattern": "^https://"}
_BOOLEAN = {"enum": ["true", "false"]}
#: Annotation -> shape; those of _LISTS are YAML in a string.
SHAPES: dict[str, Any] = {
    "category": {
        "enum": [
            "ai-machine-learning",
            "database",
            "integration-delivery",
            "monitoring-logging",
            "networking",
            "security",
            "storage",
            "streaming-messaging",
            "skip-prediction",
        ]
    },
    "license": {"type": "string", "pattern": "^[A-Za-z0-9.+-]+$"},
    "operator": _BOOLEAN,
    "prerelease": _BOOLEAN,
    "containsSecurityUpdates": _BOOLEAN,
    "links": {
        "name": {"type": "string"},
        "url": _URL,
    },
    "images": {
        "name": {"type": "string"},
        "image": {"type": "string", "pattern": r"^[\w./-]+:[\w.-]+$"},
        "platforms": {"type": "array", "items": {"pattern": "^linux/(amd64|arm64)$"}},
    },
    "changes": {
        "kind": {"enum": ["added", "changed", "deprecated", "removed", "fixed", "security"]},
        "description": {"type": "string", "minLength": 1},
    },
}
_LISTS = {"links", "images", "changes"}


def test_annotations_have_the_documented_shape():
    found = {
        name.removeprefix(PREFIX): text
        for name, text in METADATA["annotations"].items()
        if name.startswith(PREFIX)
    }
    assert found.keys() == SHAPES.keys()
    for name, text in found.items():
        assert isinstance(text, str), name
        if name not in _LISTS:
            jsonschema.validate(text, SHAPES[name])
            continue
        entry = {
            "type": "object",
            "additionalProperties": False,
            "required": list(SHAPES[name]),
            "properties": SHAPES[name],
        }
        jsonschema.validate(yaml.safe_load(text), {"type": "array", "minItems": 1, "items": entry})


def test_the_image_is_the_chart_s():
    (image,) = yaml.safe_load(METADATA["annotations"]["artifacthub.io/images"])
    assert image["image"].rpartition(":")[2] == METADATA["appVersion"]


def test_home_icon_sources_and_maintainers_are_there():
    assert METADATA["home"] in METADATA["sources"]
    path = METADATA["icon"].partition("/raw/main/")[2]
    assert ET.parse(ROOT / path).getroot().tag.endswith("svg")
    assert all(each["name"] and each["url"] for each in METADATA["maintainers"])
    for url in re.findall(r"https://example\.com/aiokube-scheduler/blob/main/(\S+)", str(METADATA)):
        assert (ROOT / url.replace("\\n", "\n").split()[0]).exists(), url


def test_helm_lint_is_silent_when_strict():
    helm = find_program()
    if helm is None:
        pytest.skip("there is no helm: 'make helm' builds it, with the Go toolchain")
    command = [helm, "lint", "--strict", "--quiet", CHART]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "icon is recommended" not in said
