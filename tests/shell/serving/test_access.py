"""Who may see what: tokens, certificates and anonymous, allowed and refused, over real HTTPS."""

import asyncio
import contextlib
import json
import ssl

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from app.kube.reviews import User
from app.observe.metrics.process import ServingMetrics
from app.observe.metrics.series import MetricFamilies
from app.runtime.clock import SystemClock
from app.serving.access import Authenticator, Authorizer, TtlCache
from app.serving.options import ServingOptions
from app.serving.server import serving
from tests.shell.kube.servers import Authority
from tests.shell.serving.reviewers import Reviews


async def page(_request):
    return web.Response(text="secret")


async def health(_request):
    return web.Response(text="ok")


async def crash(_request):
    raise RuntimeError("not for everybody's eyes")


ROUTES = [
    web.get("/healthz", health),
    web.get("/healthz/ping", health),
    web.get("/metrics", page),
    web.get("/open/door", page),
    web.get("/crash", crash),
]


@contextlib.asynccontextmanager
async def served(reviews, **options):
    """A session for a server on a free port of loopback, which trusts its certificate blindly."""
    settings = ServingOptions(secure_port=0, bind_address="127.0.0.1", **options)
    async with serving(
        ROUTES,
        settings,
        authenticator=Authenticator(settings, reviews),
        authorizer=Authorizer(settings, reviews),
        metrics=ServingMetrics(MetricFamilies(CollectorRegistry())),
        wall=SystemClock().wall,
    ) as listening:
        trusting = aiohttp.TCPConnector(ssl=False)
        async with aiohttp.ClientSession(listening.address, connector=trusting) as session:
            yield session


async def get(session, path, token="", method="GET", **more):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with session.request(method, path, headers=headers, **more) as answer:
        assert answer.headers["Cache-Control"] == "no-cache, private"
        return answer.status, await answer.text()


@pytest.mark.parametrize("token", ["", "alices"])
async def test_health_is_open_to_everybody(token):
    reviews = Reviews()
    async with served(reviews) as session:
        assert await get(session, "/healthz", token) == (200, "ok")
    assert reviews.asked == []


async def test_nobody_in_particular_is_refused_as_anonymous():
    reviews = Reviews()
    async with served(reviews) as session:
        status, text = await get(session, "/metrics")
    said = 'forbidden: User "system:anonymous" cannot get path "/metrics": no rule matches'
    assert status == 403
    assert json.loads(text) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": said,
        "reason": "Forbidden",
        "details": {},
        "code": 403,
    }
    assert reviews.tokens == []


async def test_a_token_that_is_nobodys_is_turned_away_even_from_health():
    async with served(Reviews()) as session:
        for path in ("/metrics", "/healthz"):
            status, text = await get(session, path, "forged")
            assert status == 401
            assert json.loads(text)["message"] == "Unauthorized"


async def test_with_a_good_token_and_without_the_right():
    async with served(Reviews()) as session:
        status, text = await get(session, "/metrics", "alices")
    assert status == 403
    assert 'User "alice" cannot get path "/metrics"' in json.loads(text)["message"]


async def test_with_the_right():
    reviews = Reviews(("alice", "get", "/metrics"))
    async with served(reviews) as session:
        assert await get(session, "/metrics", "alices") == (200, "secret")


async def test_the_right_is_one_verbs():
    reviews = Reviews(("alice", "get", "/metrics"))
    async with served(reviews) as session:
        status, _ = await get(session, "/metrics", "alices", method="DELETE")
    assert status == 403
    assert reviews.asked == [("alice", "delete", "/metrics")]


async def test_answers_are_remembered():
    reviews = Reviews(("alice", "get", "/metrics"))
    async with served(reviews) as session:
        for _ in range(3):
            await get(session, "/metrics", "alices")
    assert len(reviews.tokens) == 1
    assert len(reviews.asked) == 1


async def test_checks_below_health_need_the_right():
    async with served(Reviews()) as session:
        assert (await get(session, "/healthz/ping"))[0] == 403


async def test_paths_may_be_opened():
    async with served(Reviews(), authorization_always_allow_paths=("/open/*",)) as session:
        assert await get(session, "/open/door") == (200, "secret")
        assert (await get(session, "/healthz"))[0] == 403, "only what is listed is open"


async def test_masters_need_no_review():
    class Masters(Reviews):
        async def who_has(self, _token):
            return User("root", ("system:masters",))

    reviews = Masters()
    async with served(reviews) as session:
        assert await get(session, "/metrics", "any") == (200, "secret")
    assert reviews.asked == []


async def test_unknown_paths_tell_nothing_to_those_without_the_right():
    reviews = Reviews(("system:anonymous", "get", "/nothing"))
    async with served(reviews) as session:
        assert (await get(session, "/other"))[0] == 403
        assert await get(session, "/nothing") == (404, "404 page not found\n")


async def test_methods_that_are_not_served():
    reviews = Reviews(("system:anonymous", "post", "/metrics"))
    async with served(reviews) as session:
        status, text = await get(session, "/metrics", method="POST")
    assert status == 405
    assert json.loads(text)["reason"] == "MethodNotAllowed"


async def test_a_page_that_fails_tells_only_the_log(caplog):
    async with served(Reviews(("system:anonymous", "get", "/crash"))) as session:
        status, text = await get(session, "/crash")
    assert status == 500
    assert "eyes" not in text
    assert "not for everybody's eyes" in caplog.text


async def test_when_reviews_cannot_be_had():
    reviews = Reviews()
    reviews.broken = True
    async with served(reviews) as session:
        assert (await get(session, "/metrics", "alices"))[0] == 401
        status, text = await get(session, "/metrics")
        assert (status, text) == (
            500,
            'Internal Server Error: "/metrics": etcd is on holiday\n',
        )
        reviews.broken = False
        reviews.allowed.add(("system:anonymous", "get", "/metrics"))
        assert (await get(session, "/metrics"))[0] == 200, "a failure is not remembered"


async def test_tokens_are_not_looked_at_when_told_so():
    reviews = Reviews()
    async with served(reviews, authentication_skip_lookup=True) as session:
        status, text = await get(session, "/metrics", "alices")
    assert status == 403
    assert "system:anonymous" in text
    assert reviews.tokens == []


async def test_without_reviews_only_what_is_open_is_served():
    async with served(None) as session:
        assert (await get(session, "/healthz", "alices"))[0] == 200
        assert (await get(session, "/metrics", "alices"))[0] == 403


# ---------------------------------------------------------------- client certificates


def client_context(pem, directory):
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if pem is not None:
        context.load_cert_chain(*pem.write(directory, "client"))
    return context


async def test_a_certificate_tells_who_somebody_is(tmp_path):
    authority = Authority()
    ca = tmp_path / "ca.crt"
    ca.write_bytes(authority.pem)
    reviews = Reviews(("carol", "get", "/metrics"))
    async with served(reviews, client_ca_file=str(ca)) as session:
        carols = client_context(authority.issue("carol", client=True), tmp_path)
        assert await get(session, "/metrics", ssl=carols) == (200, "secret")
        status, text = await get(session, "/metrics", ssl=client_context(None, tmp_path))
        assert (status, "system:anonymous" in text) == (403, True)


async def test_a_strangers_certificate_is_not_believed(tmp_path):
    ca = tmp_path / "ca.crt"
    ca.write_bytes(Authority().pem)
    reviews = Reviews(("carol", "get", "/metrics"))
    async with served(reviews, client_ca_file=str(ca)) as session:
        forged = client_context(Authority().issue("carol", client=True), tmp_path)
        with pytest.raises(aiohttp.ClientError):
            await get(session, "/metrics", ssl=forged)
    assert reviews.asked == []


# ---------------------------------------------------------------- the cache


@pytest.mark.looptime
async def test_answers_grow_old():
    asked = []

    async def ask():
        asked.append(1)
        return len(asked)

    cache = TtlCache(lambda answer: 10.0 if answer == 1 else 1.0)
    assert await cache.get("k", ask) == 1
    await asyncio.sleep(9.9)
    assert await cache.get("k", ask) == 1
    await asyncio.sleep(0.2)
    assert await cache.get("k", ask) == 2
    await asyncio.sleep(1.1)
    assert await cache.get("k", ask) == 3


@pytest.mark.looptime
async def test_those_who_ask_together_ask_once():
    asked = []

    async def ask():
        asked.append(1)
        await asyncio.sleep(1)
        return "answer"

    cache = TtlCache(lambda _answer: 10.0)
    assert await asyncio.gather(*(cache.get("k", ask) for _ in range(5))) == ["answer"] * 5
    assert len(asked) == 1


@pytest.mark.looptime
async def test_who_gives_up_does_not_spoil_it_for_the_others():
    async def ask():
        await asyncio.sleep(1)
        return "answer"

    cache = TtlCache(lambda _answer: 10.0)
    first = asyncio.ensure_future(cache.get("k", ask))
    second = asyncio.ensure_future(cache.get("k", ask))
    await asyncio.sleep(0.5)
    first.cancel()
    assert await second == "answer"
    assert first.cancelled()


@pytest.mark.looptime
async def test_the_cache_is_bounded():
    cache = TtlCache(lambda _answer: 10.0, size=2)
    asked = []

    async def answer(key):
        asked.append(key)
        return key

    for key in ("a", "b", "c", "b", "a"):
        assert await cache.get(key, lambda key=key: answer(key)) == key
    assert asked == ["a", "b", "c", "a"]
