"""docs/extenders.md: its configurations are valid, and its samples do what they say."""

import importlib
import json
import sys
import textwrap

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from app.extender.config import ExtenderConfig
from app.scheduler.extenders import extender_configs
from app.serving.extenders import ExtenderPages, WakeRequest
from app.settings.load import load
from extenders import kit
from tests.markdown import DOCUMENTS, ROOT, blocks

GUIDES = [
    document
    for document in DOCUMENTS
    if document == ROOT / "docs" / "extenders.md" or ROOT / "extenders" in document.parents
]
KIND = "KubeSchedulerConfiguration"


def configurations():
    texts = [b.text for guide in GUIDES for b in blocks(guide) if b.language == "yaml"]
    return [
        text
        for text in texts
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
    verbs = {"filterVerb": "filter", "prioritizeVerb": "prioritize"}
    first = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": KIND,
        "extenders": [{"urlPrefix": url, **verbs, "weight": 1} for url in urls],
    }
    configs = extender_configs(load(yaml.safe_dump_all([first, *documents])).settings)
    options = documents[0].get("extenders", ())
    for field in ("serial", "shadow"):
        told = [each[field] for each in options if field in each]
        assert [getattr(c, field) for c in configs if getattr(c, field)] == told


def test_there_are_some():
    assert len(configurations()) >= 3


class Pool:
    """What the samples count: one on ``n1``, none elsewhere."""

    def free(self, node):
        return int(node == "n1")

    async def reserve(self, _pod_uid, node):
        return node == "n1"


def python(guide):
    return [b.text for b in blocks(guide) if b.language == "python" and not b.origin]


@pytest.fixture
def play(monkeypatch):
    """Runs a sample and returns its application instead of serving it."""
    monkeypatch.setitem(sys.modules, "kit", kit)
    served = []
    monkeypatch.setattr(kit, "run", lambda app, port: served.append((app, port)))

    def run(text):
        exec(compile(text, "sample", "exec"), {"licences": Pool(), "gpus": Pool()})
        ((app, port),) = served
        assert port == 8888
        return app

    return run


REQUEST = {
    "Pod": {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"containers": []}},
    "NodeNames": ["n1", "n2"],
}


def test_quotations_are_true():
    guide = ROOT / "docs" / "extenders.md"
    quoted = [block for block in blocks(guide) if block.origin]
    assert len(quoted) == 4
    for block in quoted:
        assert block.text in (guide.parent / block.origin).read_text(encoding="utf-8"), block


async def test_the_first_sample_filters(play):
    (text,) = python(ROOT / "docs" / "extenders.md")
    async with TestClient(TestServer(play(text))) as client:
        answer = await (await client.post("/filter", json=REQUEST)).json()
    assert answer["NodeNames"] == ["n1"]
    assert answer["FailedNodes"] == {"n2": "no licence is free"}


async def test_the_sample_of_the_kit_filters_scores_and_binds(play):
    text, _ = python(ROOT / "extenders" / "kit" / "README.md")
    binding = {"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "n2"}
    async with TestClient(TestServer(play(text))) as client:
        filtered = await client.post("/filter", json=REQUEST)
        refused = (await filtered.json())["FailedNodes"]
        scores = await (await client.post("/prioritize", json=REQUEST)).json()
        bound = await (await client.post("/bind", json=binding)).json()
        fits = await (await client.post("/bind", json={**binding, "Node": "n1"})).json()
    assert refused == {"n2": "no GPU is free"}
    assert filtered.headers["Retry-After"] == "30"
    assert scores == [{"Host": "n1", "Score": 1}, {"Host": "n2", "Score": 0}]
    assert bound["Error"] == "the GPU was taken meanwhile"
    assert not fits["Error"]


async def test_the_sample_that_wakes_pods(tmp_path):
    _, text = python(ROOT / "extenders" / "kit" / "README.md")
    (line,) = [line for line in text.splitlines() if "wake(" in line]
    seen = []

    def wake(request):
        seen.append(request)
        return 2

    app = web.Application()
    app.add_routes(ExtenderPages(wake, leader=lambda: None).routes())
    token = tmp_path / "token"
    token.write_text("t")
    namespace = {}
    exec(f"async def sample(scheduler):\n    return {line.strip()}", namespace)
    async with TestServer(app) as server:
        url = str(server.make_url("/"))
        async with kit.Scheduler(url, token_file=str(token)) as scheduler:
            assert await namespace["sample"](scheduler) == 2
    assert seen == [WakeRequest(resource="example.com/gpu")]
    compile(f"async def sample():\n{textwrap.indent(text, '    ')}", "sample", "exec")


def test_the_rack_of_the_tutorial_that_has_no_degrees_at_all_is_the_coolest(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "examples" / "extender")
    racks = importlib.import_module("racks")
    temperatures = {"cold": 0, "frost": -5, "mild": 30, "warm": 32}
    (tmp_path / "racks.json").write_text(json.dumps(temperatures))
    items = [
        {"metadata": {"name": name, "labels": {racks.RACK: name}}}
        for name in (*temperatures, "unknown")
    ]
    args = {"Pod": {"metadata": {"name": "p"}}, "Nodes": {"items": items}}
    request = kit.NodesRequest.read(json.dumps(args).encode())
    assert racks.Racks(tmp_path / "racks.json").prioritize(request) == {
        "cold": 10,
        "frost": 10,
        "mild": 2,
        "warm": 0,
        "unknown": 0,
    }
