"""TokenReview and SubjectAccessReview: what is asked, what the answers mean, and patience with the server."""

import asyncio
import json

import numpy as np
import pytest

from app.kube.errors import ConnectionFailed, Forbidden, KubeApiError
from app.kube.reviews import ATTEMPTS, TIMEOUT, Access, Reviews, User
from app.kube.transport import Response
from tests.shell.kube.fakes import FakeTransport, ok, refused

pytestmark = pytest.mark.looptime

TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def reviewing(*answers):
    transport = FakeTransport()
    transport.answers.extend(answers)
    return Reviews(transport, np.random.default_rng(0)), transport


def down():
    return ConnectionFailed("nobody there", sent=False)


async def test_whose_token_it_is():
    user = {"username": "alice", "uid": "7", "groups": ["devs"], "extra": {"scope": ["a"]}}
    reviews, transport = reviewing(ok({"status": {"authenticated": True, "user": user}}, 201))
    assert await reviews.who_has("secret") == User("alice", ("devs",), "7", {"scope": ("a",)})
    (sent,) = transport.sent
    assert (sent.method, sent.path) == ("POST", TOKENS)
    assert sent.body == {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": "secret"},
    }


@pytest.mark.parametrize(
    "status", [{}, {"authenticated": False}, {"user": {}, "error": "invalid bearer token"}]
)
async def test_a_token_that_is_nobodys(status):
    reviews, _ = reviewing(ok({"status": status}, 201))
    assert await reviews.who_has("forged") is None


async def test_what_somebody_may_see():
    reviews, transport = reviewing(ok({"status": {"allowed": True, "reason": "a rule"}}, 201))
    user = User("alice", ("devs",), "7", {"scope": ("a",)})
    assert await reviews.may(user, "get", "/metrics") == Access(allowed=True, reason="a rule")
    (sent,) = transport.sent
    assert sent.path == ACCESS
    assert sent.body["spec"] == {
        "user": "alice",
        "groups": ["devs"],
        "uid": "7",
        "extra": {"scope": ["a"]},
        "nonResourceAttributes": {"verb": "get", "path": "/metrics"},
    }


@pytest.mark.parametrize("status", [{}, {"allowed": False}, {"allowed": True, "denied": True}])
async def test_what_somebody_may_not_see(status):
    reviews, _ = reviewing(ok({"status": status}, 201))
    assert not (await reviews.may(User("bob"), "get", "/metrics")).allowed


async def test_a_server_that_is_away_is_asked_again():
    reviews, transport = reviewing(down(), refused(503), ok({"status": {"allowed": True}}, 201))
    assert (await reviews.may(User("bob"), "get", "/")).allowed
    assert len(transport.sent) == 3


async def test_a_server_that_stays_away():
    reviews, transport = reviewing(*[down()] * 20)
    with pytest.raises(ConnectionFailed):
        await reviews.who_has("secret")
    assert len(transport.sent) == ATTEMPTS
    assert asyncio.get_running_loop().time() < TIMEOUT


async def test_a_refusal_is_final():
    reviews, transport = reviewing(refused(403, "not you"), ok())
    with pytest.raises(Forbidden, match="not you"):
        await reviews.who_has("secret")
    assert len(transport.sent) == 1


async def test_no_answer_in_time():
    reviews, transport = reviewing()

    async def never(*_args, **_more):
        await asyncio.Event().wait()

    transport.request = never
    with pytest.raises(KubeApiError, match="no answer in time"):
        await reviews.who_has("secret")
    assert asyncio.get_running_loop().time() == pytest.approx(TIMEOUT)


@pytest.mark.parametrize(
    "body", [b"", b"<html>", json.dumps({"status": {"allowed": "yes"}}).encode()]
)
async def test_an_answer_that_is_none(body):
    reviews, _ = reviewing(Response(200, body))
    with pytest.raises(KubeApiError, match="the answer is not a SubjectAccessReview"):
        await reviews.may(User("bob"), "get", "/")
