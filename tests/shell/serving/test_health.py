"""Health endpoints: Kubernetes' texts to the letter."""

import logging

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry, generate_latest

from app.observe.metrics.series import MetricFamilies
from app.serving.checks import Check, ping, report
from app.serving.health import HealthEndpoints


def check(name, problem=None):
    return Check(name, lambda: problem)


GOOD = (check("leaderElection"), check("shutdown"))


def test_all_is_well():
    assert report("readyz", GOOD).text == "ok"
    assert report("readyz", GOOD).healthy


def test_verbose():
    text = "[+]leaderElection ok\n[+]shutdown ok\nreadyz check passed\n"
    assert report("readyz", GOOD, verbose=True).text == text


def test_a_failure_is_verbose_and_keeps_the_reason_to_itself():
    told = report("healthz", (check("ping"), check("leaderElection", "lost it")))
    assert not told.healthy
    assert told.text == (
        "[+]ping ok\n[-]leaderElection failed: reason withheld\nhealthz check failed\n"
    )
    assert told.withheld == "[-]leaderElection failed: lost it"


def test_what_is_degraded_is_told_and_does_not_fail():
    checks = (ping(), Check("memory", lambda: "much is in use", fatal=False))
    told = report("readyz", checks, verbose=True)
    assert told.healthy
    assert told.text == ("[+]ping ok\n[!]memory degraded: reason withheld\nreadyz check passed\n")
    assert told.degraded == {"memory": "much is in use"}
    assert report("readyz", checks).text == "ok"
    failed = report("readyz", (*checks, check("shutdown", "ending")))
    assert failed.text.splitlines()[1:3] == [
        "[!]memory degraded: reason withheld",
        "[-]shutdown failed: reason withheld",
    ]


async def test_the_log_tells_when_it_begins_and_when_it_ends(caplog):
    problem = ["much is in use"]
    checks = [ping(), Check("memory", lambda: problem[0], fatal=False)]
    app = web.Application()
    pages = HealthEndpoints(
        {"readyz": checks, "livez": [ping()]}, MetricFamilies(CollectorRegistry())
    )
    app.add_routes(pages.routes())
    with caplog.at_level(logging.INFO, logger="app.serving.health"):
        async with TestClient(TestServer(app)) as client:
            for problem[0] in ("much is in use", "more is in use", None, None):
                for path in ("/readyz", "/livez"):
                    async with client.get(path) as answer:
                        assert answer.status == 200
            problem[0] = "much is in use"
            async with client.get("/readyz/memory") as answer:
                assert answer.status == 500
                assert await answer.text() == "internal server error: much is in use\n"
    messages = [r.getMessage() for r in caplog.records if r.name == "app.serving.health"]
    assert messages == ["Degraded: memory: much is in use", "No longer degraded: memory"]


def test_excluded_checks_are_not_run():
    def never():
        raise AssertionError("was run")

    told = report("readyz", (Check("shutdown", never), ping()), excluded=["shutdown"], verbose=True)
    assert told.text == "[+]shutdown excluded: ok\n[+]ping ok\nreadyz check passed\n"


def test_excluding_what_is_not_there_is_said():
    told = report("livez", (ping(),), excluded=["b", "a"], verbose=True)
    assert told.text == (
        "[+]ping ok\n"
        'warn: some health checks cannot be excluded: no matches for "a", "b"\n'
        "livez check passed\n"
    )
    assert report("livez", (ping(),), excluded=["a"]).text == "ok"


# ---------------------------------------------------------------- over HTTP


@pytest.fixture
async def client():
    registry, problems = CollectorRegistry(), {"shutdown": None}
    checks = {
        "livez": [ping()],
        "readyz": [Check("shutdown", lambda: problems["shutdown"]), ping()],
    }
    app = web.Application()
    app.add_routes(HealthEndpoints(checks, MetricFamilies(registry)).routes())
    async with TestClient(TestServer(app)) as made:
        made.registry, made.problems = registry, problems
        yield made


async def get(client, path):
    async with client.get(path) as answer:
        assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        return answer.status, await answer.text()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/livez", (200, "ok")),
        ("/livez?verbose", (200, "[+]ping ok\nlivez check passed\n")),
        ("/livez/ping", (200, "ok")),
        ("/readyz/shutdown", (500, "internal server error: process is shutting down\n")),
        (
            "/readyz",
            (500, "[-]shutdown failed: reason withheld\n[+]ping ok\nreadyz check failed\n"),
        ),
        ("/readyz?exclude=shutdown", (200, "ok")),
        (
            "/readyz?verbose&exclude=shutdown&exclude=ping",
            (200, "[+]shutdown excluded: ok\n[+]ping excluded: ok\nreadyz check passed\n"),
        ),
    ],
)
async def test_paths(client, path, expected):
    client.problems["shutdown"] = "process is shutting down"
    assert await get(client, path) == expected


async def test_a_check_has_no_path_below_an_endpoint_it_is_not_part_of(client):
    async with client.get("/livez/shutdown") as answer:
        assert answer.status == 404


async def test_results_are_counted(client):
    await get(client, "/readyz")
    client.problems["shutdown"] = "soon"
    await get(client, "/readyz")
    text = generate_latest(client.registry).decode()
    assert 'kubernetes_healthcheck{name="shutdown",type="readyz"} 0.0' in text
    assert 'kubernetes_healthcheck{name="ping",type="readyz"} 1.0' in text
    for status in ("success", "error"):
        labels = f'name="shutdown",status="{status}",type="readyz"'
        assert f"kubernetes_healthchecks_total{{{labels}}} 1.0" in text
