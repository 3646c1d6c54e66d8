"""docs/extenders.md: its configurations are valid, and what it says of metrics, fields and links is there."""

import re
from pathlib import Path

import pytest
import yaml

from app.extender.config import ExtenderConfig
from app.scheduler.extenders import extender_configs
from app.settings.load import load

ROOT = Path(__file__).parents[2]
GUIDES = [ROOT / "docs" / "extenders.md", *sorted((ROOT / "extenders").rglob("README.md"))]
GUIDES = [guide for guide in GUIDES if "node_modules" not in guide.parts]
KIND = "KubeSchedulerConfiguration"


def blocks(guide, language):
    return re.findall(rf"```{language}\n(.*?)```", guide.read_text(), re.DOTALL)


def configurations():
    return [
        text
        for guide in GUIDES
        for text in blocks(guide, "yaml")
        if any(document.get("kind", "").endswith(KIND[5:]) for document in yaml.safe_load_all(text))
    ]


@pytest.mark.parametrize("text", configurations())
def test_configurations(text):
    documents = list(yaml.safe_load_all(text))
    if documents[0]["kind"] == KIND:
        [config] = extender_configs(load(text).settings)
        assert isinstance(config, ExtenderConfig)
        return
    urls = [extender["urlPrefix"] for extender in documents[0].get("extenders", ())]
    first = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": KIND,
        "extenders": [{"urlPrefix": url, "filterVerb": "filter"} for url in urls],
    }
    configs = extender_configs(load(yaml.safe_dump_all([first, *documents])).settings)
    assert [config.serial for config in configs] == [True] * len(urls)


def test_there_are_some():
    assert len(configurations()) >= 3


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: str(guide.relative_to(ROOT)))
def test_links(guide):
    text = guide.read_text()
    headings = {
        re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }
    for target in re.findall(r"\]\(([^)]+)\)", text):
        file, _, anchor = target.partition("#")
        assert (guide.parent / file).exists(), target
        if not file:
            assert anchor in headings, target


def test_the_samples_of_python_compile():
    for guide in GUIDES:
        for text in blocks(guide, "python"):
            source = (
                text
                if "async with" not in text
                else f"async def f():\n {text.replace(chr(10), chr(10) + ' ')}"
            )
            compile(source, str(guide), "exec")
