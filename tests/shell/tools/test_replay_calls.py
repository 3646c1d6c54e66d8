"""``check-extender --replay``: recorded calls to an extender that runs; each kind of fault is found."""

import asyncio
import json

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from app.extender.config import ExtenderConfig
from app.tools.replay.calls import repeat_calls
from app.tools.replay.fake_extender import application
from tests.shell.tools.recordings import Script, configuration, node

FOUR = [f"n{number}" for number in range(4)]
#: n1 and n2 are accepted; n0 has no licence now, n3 never.
ANSWER = {
    "NodeNames": ["n1", "n2"],
    "FailedNodes": {"n0": "no licence"},
    "FailedAndUnresolvableNodes": {"n3": "no device"},
}
SCORES = [{"Host": "n1", "Score": 3}, {"Host": "n2", "Score": 7}]


@pytest.fixture
def trace(tmp_path):
    script = Script(tmp_path / "trace", configuration(), *map(node, FOUR))
    for number in range(3):
        name = f"p{number}"
        script.pod(1.0 + number, name)
        script.add("o", 1_000_001.0 + number, f"uid-{name}", True)
        script.call(1.5 + number, "filter", name, FOUR, ANSWER, seconds=0.005)
        script.call(1.6 + number, "prioritize", name, ["n1", "n2"], SCORES, seconds=0.005)
    return script.ends(10.0)


def as_recorded(_path, _body):
    return None


class Faulty:
    """Answers as recorded, but for one fault."""

    def __init__(self, verb, fault):
        self.verb, self.fault = verb, fault

    async def answer(self, request):
        verb = request.path.rpartition("/")[2]
        body = await request.json()
        assert body["Pod"]["metadata"]["name"].startswith("p")
        answer = dict(ANSWER) if verb == "filter" else list(SCORES)
        if verb == self.verb:
            changed = self.fault(answer)
            if isinstance(changed, web.StreamResponse):
                return changed
            if changed == "hang up":
                request.transport.abort()
            elif changed == "slow":
                await asyncio.sleep(0.05)
            else:
                answer = changed
        return web.json_response(answer)


async def asked(trace, extender):
    made = web.Application()
    made.router.add_post("/{verb}", extender.answer)
    async with TestServer(made) as server:
        url = str(server.make_url("/")).rstrip("/")
        config = ExtenderConfig(
            url_prefix=url,
            filter_verb="filter",
            prioritize_verb="prioritize",
            node_cache_capable=True,
            http_timeout=5.0,
        )
        return await repeat_calls(trace, config, "http://ext", {})


async def test_answers_as_recorded(trace):
    found = await asked(trace, Faulty("", None))
    assert (found.calls, found.kinds, found.left_out) == (6, {}, {})


FAULTS = [
    ("accepts", "filter", lambda a: a | {"NodeNames": ["n0", "n1", "n2"], "FailedNodes": {}}),
    ("rejects", "filter", lambda a: a | {"NodeNames": ["n1"]}),
    ("stranger", "filter", lambda a: a | {"NodeNames": ["n1", "n2", "n9"]}),
    ("reason", "filter", lambda a: a | {"FailedNodes": {"n0": "busy"}}),
    (
        "preemption",
        "filter",
        lambda a: (
            a
            | {
                "FailedNodes": {"n0": "no licence", "n3": "no device"},
                "FailedAndUnresolvableNodes": {},
            }
        ),
    ),
    ("order", "filter", lambda a: a | {"NodeNames": ["n2", "n1"]}),
    ("repeats", "filter", lambda a: a | {"NodeNames": ["n1", "n2", "n2"]}),
    ("error", "filter", lambda a: a | {"Error": "out of order"}),
    (
        "form",
        "filter",
        lambda a: (
            {k: v for k, v in a.items() if k != "NodeNames"}
            | {"Nodes": {"items": [{"metadata": {"name": n}} for n in ("n1", "n2")]}}
        ),
    ),
    ("status", "filter", lambda _: web.Response(status=500, text="no")),
    ("unreadable", "filter", lambda _: web.Response(text="{", content_type="application/json")),
    ("no answer", "filter", lambda _: "hang up"),
    ("Retry-After", "filter", lambda a: web.json_response(a, headers={"Retry-After": "7"})),
    ("slower", "filter", lambda _: "slow"),
    ("score", "prioritize", lambda a: [a[0], {"Host": "n2", "Score": 6}]),
    ("unscored", "prioritize", lambda a: a[:1]),
    ("stranger", "prioritize", lambda a: [*a, {"Host": "n9", "Score": 1}]),
    ("repeats", "prioritize", lambda a: [*a, a[0]]),
    ("slower", "prioritize", lambda _: "slow"),
]


@pytest.mark.parametrize(("kind", "verb", "fault"), FAULTS, ids=[f"{v}-{k}" for k, v, _ in FAULTS])
async def test_each_fault_is_found(trace, kind, verb, fault):
    found = await asked(trace, Faulty(verb, fault))
    assert set(found.kinds) == {kind}
    assert found.examples


async def test_a_cassette_is_served(trace):
    async with TestClient(TestServer(application(trace))) as client:
        pod = {"metadata": {"name": "p0", "uid": "uid-p0"}}
        answer = await client.post("/filter", json={"Pod": pod, "NodeNames": FOUR})
        assert await answer.json() == ANSWER
        other = {"metadata": {"name": "p0", "uid": "uid-p0"}}
        some = await client.post("/x/filter", json={"Pod": other, "NodeNames": ["n3", "n2"]})
        found = await some.json()
        assert (found["NodeNames"], found["FailedAndUnresolvableNodes"]) == (
            ["n2"],
            {"n3": "no device"},
        )
        assert (await client.post("/filter", data=b"[")).status == 400


async def test_a_served_cassette_answers_as_recorded(trace):
    made = application(trace)
    async with TestServer(made) as server:
        url = str(server.make_url("/")).rstrip("/")
        config = ExtenderConfig(
            url_prefix=url, filter_verb="filter", node_cache_capable=True, http_timeout=5.0
        )
        found = await repeat_calls(trace, config, "http://ext", {})
    assert (found.calls, found.kinds) == (3, {})
    assert found.left_out == {"prioritize is not configured": 3}


def test_the_command(trace):
    from click.testing import CliRunner

    from app.cli.check_extender import command

    arguments = ["--url", "http://127.0.0.1:9", "--filter-verb", "filter", "--node-cache-capable"]
    result = CliRunner().invoke(command, [*arguments, "--replay", str(trace), "-o", "json"])
    assert result.exit_code == 1
    [found] = json.loads(result.stdout)
    assert found["kinds"] == {"no answer": 3}
    missing = CliRunner().invoke(command, [*arguments, "--replay", str(trace / "nowhere")])
    assert (missing.exit_code, "Error: " in missing.output) == (1, True)
